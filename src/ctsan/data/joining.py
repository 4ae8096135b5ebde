"""Several corpora as one, so that few clips of one's own are learnt beside many that others captioned."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ctsan.atomic import replacing
from ctsan.data.corpus import Clip, Corpus
from ctsan.data.readers.own import CAPTION_FILES, MOST_TIMES
from ctsan.errors import UsageError


def join_corpora(
    main: Corpus, others: Sequence[Corpus], out: Path, *, times: int | None = None
) -> tuple[int, int]:
    """Write a corpus in our own format that names the clips of all, where they are.

    The splits are those of the main corpus. The captioned clips of the others are only learnt from, except
    for those that they keep for validation and test.

    Args:
        times: how often a training clip of the main corpus counts, times what it counted there; by default so
            often that its captions are at least half of all, and the others do not drown it.

    Returns:
        How many clips come from the others, and how many times a training clip of the main corpus counts.

    Raises:
        UsageError: the main corpus has no training clips of one's own, or nothing new comes to them, or a
            corpus is there.
    """
    file = out / CAPTION_FILES[0]
    if any((out / name).exists() for name in CAPTION_FILES):
        raise UsageError(f"{out}: there is a corpus already. Name another folder.")
    own = sum(clip.times * len(clip.captions) for clip in main.split("train") if not clip.others)
    if not own:
        raise UsageError(
            f"{main.root}: no captioned clip of the split 'train', or none that others did not caption, so "
            "there is nothing to add to."
        )
    more = _new_clips(main, others)
    if not more:
        raise UsageError(
            f"{others[0].root}: no captioned clip of the split 'train', or none that {main.root} does not "
            "hold, so nothing would be added."
        )
    strange = [*more, *(clip for clip in main.split("train") if clip.others)]
    times = times or math.ceil(sum(len(clip.captions) for clip in strange) / own)
    out.mkdir(parents=True, exist_ok=True)
    with replacing(file) as temporary:
        temporary.write_text("".join(_lines(main.clips, more, times)), encoding="utf-8")
    return len(more), times


def _new_clips(main: Corpus, others: Sequence[Corpus]) -> list[Clip]:
    """The captioned training clips of others that the main corpus does not hold, each once.

    Two corpora may use one name for two videos: a source is told apart by its corpus' folder.
    """
    found: dict[Path, Clip] = {}
    known = {clip.path.resolve() for clip in main}
    for corpus in others:
        for clip in corpus:
            path = clip.path.resolve()
            if clip.captions and clip.split in (None, "train") and path not in known:
                found.setdefault(path, replace(clip, source=str(corpus.root.resolve() / clip.source)))
    return list(found.values())


def _lines(own: Iterable[Clip], more: Iterable[Clip], times: int) -> Iterable[str]:
    for clip in own:
        counts = times * clip.times if clip.split == "train" and not clip.others else clip.times
        yield _line(clip, split=clip.split, times=min(counts, MOST_TIMES), others=clip.others)
    for clip in more:
        yield _line(clip, split="train", times=1, others=True)


def _line(clip: Clip, *, split: str | None, times: int, others: bool) -> str:
    row: dict[str, object] = {
        **clip.extra,
        "clip": str(clip.path.resolve()),
        "captions": clip.captions,
        "split": split,
        "source": clip.source,
        "times": times,
        "others": others,
    }
    return json.dumps(row, ensure_ascii=False) + "\n"
