"""The summary of a corpus that `ctsan corpus check` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ctsan.data.corpus import SPLITS, Clip, Corpus
from ctsan.data.readers.files import is_file
from ctsan.errors import Problem, VideoError
from ctsan.text.tokens import tokenize


def check_clips(
    corpus: Corpus, *, workers: int, progress: Callable[[], object] | None = None
) -> tuple[float, list[Problem]]:
    """Open every clip that exists; `missing_clips` reports the others.

    Args:
        progress: called once per clip of the corpus.

    Returns:
        The hours of video, and one problem per unreadable clip.
    """
    from ctsan.video.frames import probe

    def duration_of(clip: Clip) -> float | Problem:
        try:
            return probe(clip.path).duration if is_file(clip.path) else 0.0
        except VideoError as error:
            return Problem(clip.path, None, error.what, error.remedy)

    seconds: list[float] = []
    problems: list[Problem] = []
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for duration in pool.map(duration_of, corpus.clips):
            if isinstance(duration, Problem):
                problems.append(duration)
            else:
                seconds.append(duration)
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
    """A JSON-serialisable summary.

    Args:
        hours: of video; None if the clips were not opened.
        features_only: the number of clips with features but without a file.
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
            {
                "file": str(problem.file),
                "line": problem.line,
                "what": problem.what,
                "remedy": problem.remedy,
            }
            for problem in (*problems, *missing, *unreadable)
        ],
    }
