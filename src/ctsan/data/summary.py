"""What a corpus holds, in numbers: the answer of `ctsan corpus check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ctsan.data.corpus import SPLITS, Clip, Corpus
from ctsan.data.readers.files import is_there
from ctsan.errors import Problem, VideoError
from ctsan.text.tokens import tokenize


def check_clips(
    corpus: Corpus, *, workers: int, progress: Callable[[], object] | None = None
) -> tuple[float, list[Problem]]:
    """Open every clip that is there: hours of video in all, and a problem for each clip that cannot be read.

    `progress` is called once for each clip of the corpus. Missing clips are `missing_clips`' to tell.
    """
    from ctsan.video.frames import probe

    def look(clip: Clip) -> float | Problem:
        try:
            return probe(clip.path).duration if is_there(clip.path) else 0.0
        except VideoError as error:
            return Problem(clip.path, None, error.what, error.remedy)

    seconds: list[float] = []
    problems: list[Problem] = []
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for seen in pool.map(look, corpus.clips):
            if isinstance(seen, Problem):
                problems.append(seen)
            else:
                seconds.append(seen)
            if progress:
                progress()
    return sum(seconds) / 3600, problems


def summarise(
    corpus: Corpus,
    *,
    problems: Sequence[Problem] = (),
    missing: Sequence[Problem] = (),
    unreadable: Sequence[Problem] = (),
    hours: float | None = None,
    features_only: int = 0,
) -> dict[str, object]:
    """A summary that JSON can hold.

    Args:
        hours: of video; None where the clips were not opened.
        features_only: how many clips have features and no file.
    """
    words = Counter(word for clip in corpus for caption in clip.captions for word in tokenize(caption))
    captions = sum(len(clip.captions) for clip in corpus)
    return {
        "name": corpus.name,
        "format": corpus.format,
        "path": corpus.place,
        "clips": len(corpus),
        "sources": len({clip.source for clip in corpus}),
        "captions": captions,
        "captions_per_clip": round(captions / len(corpus), 2) if len(corpus) else 0.0,
        "words": words.total(),
        "distinct_words": len(words),
        "hours": None if hours is None else round(hours, 3),
        "splits": {
            split: {"clips": len(clips), "captions": sum(len(clip.captions) for clip in clips)}
            for split in SPLITS
            if (clips := corpus.split(split))
        },
        "external": sum(clip.external for clip in corpus),
        "items": {f"{task} {split}": len(items) for (task, split), items in corpus.items.items()},
        "features_only": features_only,
        "missing": len(missing),
        "unreadable": len(unreadable),
        "notes": list(corpus.notes),
        "problems": [
            {"file": str(each.file), "line": each.line, "what": each.what, "remedy": each.remedy}
            for each in (*problems, *missing, *unreadable)
        ],
    }
