"""Several corpora as one, so that few clips of one's own are learnt beside many that others captioned."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from ctsan.atomic import replacing
from ctsan.data.corpus import Clip, Corpus
from ctsan.data.readers.own import CAPTION_FILES
from ctsan.errors import UsageError


def join_corpora(
    main: Corpus, others: Sequence[Corpus], out: Path, *, times: int | None = None
) -> tuple[int, int]:
    """Write a corpus in our own format that names the clips of all, where they are.

    The splits are those of the main corpus. The captioned clips of the others are only learnt from, except
    for those that they keep for validation and test.

    Args:
        times: how often a training clip of the main corpus counts; by default so often that its captions are
            at least half of all, and the others do not drown it.

    Returns:
        How many clips come from the others, and how many times a training clip of the main corpus counts.

    Raises:
        UsageError: the main corpus has no training clips, or nothing comes to them, or a corpus is there.
    """
    more = [clip for corpus in others for clip in corpus if clip.captions and clip.split in (None, "train")]
    own = sum(len(clip.captions) for clip in main.split("train") if not clip.others)
    if not own:
        raise UsageError(
            f"{main.root}: no captioned clip of the split 'train', so there is nothing to add to."
        )
    if not more:
        raise UsageError(
            f"{others[0].root}: no captioned clip of the split 'train', so nothing would be added."
        )
    file = out / CAPTION_FILES[0]
    if any((out / name).exists() for name in CAPTION_FILES):
        raise UsageError(f"{out}: there is a corpus already. Name another folder.")
    strange = [*more, *(clip for clip in main.split("train") if clip.others)]
    times = times or math.ceil(sum(len(clip.captions) for clip in strange) / own)
    out.mkdir(parents=True, exist_ok=True)
    with replacing(file) as temporary:
        temporary.write_text("".join(_lines(main.clips, more, times)), encoding="utf-8")
    return len(more), times


def _lines(own: Iterable[Clip], more: Iterable[Clip], times: int) -> Iterable[str]:
    for clip in own:
        counts = times if clip.split == "train" and not clip.others else 1
        yield _line(clip, split=clip.split, times=counts, others=clip.others)
    for clip in more:
        yield _line(clip, split="train", times=1, others=True)


def _line(clip: Clip, *, split: str | None, times: int, others: bool) -> str:
    row = {
        "clip": str(clip.path.resolve()),
        "captions": clip.captions,
        "split": split,
        "source": clip.source,
        "times": times,
        "others": others,
    }
    return json.dumps(row, ensure_ascii=False) + "\n"
