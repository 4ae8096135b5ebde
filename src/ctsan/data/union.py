"""Several corpora used as one: all clips of one's own, and the training clips of external corpora."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ctsan.data.corpus import Clip, Corpus, CorpusPart, Item, ItemTask, Split
from ctsan.data.readers.own import MOST_REPEATS
from ctsan.errors import Problem, UsageError


def unite_corpora(
    corpora: Sequence[tuple[Path, Corpus]], external: Sequence[tuple[Path, Corpus]] = ()
) -> tuple[Corpus, list[Problem]]:
    """One corpus of several, and a problem for each source that two of them put on different sides.

    Splits and items are those of `corpora`. Of `external`, captioned clips of the split train or of none are
    training clips, but for files that `corpora` hold and sources that they hold out for validation or test.
    Own training clips are repeated so often that their captions are at least half of all.

    A clip keeps its id where no other corpus has it; otherwise the id follows the name of the corpus' folder,
    with as many of the folders above it as tell the corpora apart: `holiday/0001.mp4`.

    Corpora mean the same video by the same name of a source, but for a source that is named after a clip, as
    that of a clip without one is: this is the file of the clip, so that `0001.mp4` of two corpora are two
    sources, and one file in two corpora is one.

    Args:
        corpora: where each was read from, and the corpus.
        external: the same of corpora that others captioned.

    Raises:
        UsageError: a corpus is given twice, or there are no ids that tell all clips apart.
    """
    given = [*corpora, *external]
    places = [path.resolve() for path, _ in given]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise UsageError(f"{given[number][0]}: this corpus is given twice. Give each corpus once.")
    whole = [corpus for _, corpus in given]
    files = _RealPaths()
    clips = [list(_with_sources(corpus, files)) for corpus in whole]
    own, taken = clips[: len(corpora)], _external_training_clips(clips, len(corpora), files)
    clips = [*_repeated(own, taken), *taken]
    labels, ids = _labels_and_ids(places, clips)
    clips = [
        [replace(clip, id=new_ids[clip.id]) for clip in some]
        for some, new_ids in zip(clips, ids, strict=True)
    ]
    items: dict[tuple[ItemTask, Split], tuple[Item, ...]] = {}
    for (_, corpus), new_ids in zip(corpora, ids, strict=False):
        for key, asked in corpus.items.items():
            renamed = (replace(item, clip=new_ids.get(item.clip, item.clip)) for item in asked)
            items[key] = (*items.get(key, ()), *renamed)
    notes = [f"{label}: {note}" for label, corpus in zip(labels, whole, strict=True) for note in corpus.notes]
    united = Corpus(
        name=" + ".join(labels),
        root=whole[0].root,
        format=", ".join(dict.fromkeys(corpus.format for corpus in whole)),
        clips=tuple(clip for some in clips for clip in some),
        items=items,
        notes=(*notes, *_shared_file_notes(clips, files)),
        has_own_splits=any(corpus.has_own_splits for _, corpus in corpora),
        parts=tuple(CorpusPart(corpus, new_ids) for corpus, new_ids in zip(whole, ids, strict=True)),
    )
    return united, list(_leaks_between(clips, whole))


def parts_without_items(corpus: Corpus, clips: Iterable[Clip], items: Iterable[Item]) -> list[Corpus]:
    """Which of several corpora have captioned clips among those to ask about, and no item about any.

    Items are built from captions only where no corpus brings any.
    """
    asked = {item.clip for item in items}
    captioned = {clip.id for clip in clips if clip.captions}
    found = [(part.corpus, captioned.intersection(part.ids.values())) for part in corpus.parts]
    return [part for part, ids in found if asked and ids and not ids & asked]


def _external_training_clips(
    clips: Sequence[Sequence[Clip]], num_own: int, files: _RealPaths
) -> list[list[Clip]]:
    """Of each corpus after the first `num_own`, the clips that are learnt from; a file is taken once."""
    own = [clip for some in clips[:num_own] for clip in some]
    held = {files[clip.path] for clip in own}
    held_out = {clip.source for clip in own if clip.split not in (None, "train")}
    taken = []
    for some in clips[num_own:]:
        new = []
        for clip in some:
            file = files[clip.path]
            if is_for_training(clip) and file not in held and clip.source not in held_out:
                held.add(file)
                new.append(replace(clip, split="train", repeat=1, external=True))
        taken.append(new)
    return taken


def is_for_training(clip: Clip) -> bool:
    """Whether a clip of an external corpus can be learnt from; where it gives no splits, all can."""
    return bool(clip.captions) and clip.split in (None, "train")


def _repeated(own: Sequence[Sequence[Clip]], taken: Sequence[Sequence[Clip]]) -> list[list[Clip]]:
    """Own clips, those for training so often that their captions are at least half of all."""

    def num_captions(clips: Iterable[Clip], *, external: bool) -> int:
        learnt = (clip for clip in clips if clip.split == "train" and clip.external == external)
        return sum(clip.repeat * len(clip.captions) for clip in learnt)

    every = [clip for some in (*own, *taken) for clip in some]
    num_own = num_captions(every, external=False)
    repeat = math.ceil(num_captions(every, external=True) / num_own) if any(taken) and num_own else 1
    return [
        [
            replace(clip, repeat=min(repeat * clip.repeat, MOST_REPEATS))
            if clip.split == "train" and not clip.external
            else clip
            for clip in some
        ]
        for some in own
    ]


def _labels_and_ids(
    places: Sequence[Path], corpora: Sequence[Sequence[Clip]]
) -> tuple[list[str], list[dict[str, str]]]:
    """What to call each corpus, and the ids of its clips: the shortest labels that make all different."""
    counts = Counter(clip_id for corpus in corpora for clip_id in {clip.id for clip in corpus})
    for length in range(1, max(len(place.parts) for place in places) + 1):
        labels = [Path(*place.parts[-length:]).as_posix() for place in places]
        ids = [
            {
                clip.id: f"{label}/{clip.id.removeprefix('/')}" if counts[clip.id] > 1 else clip.id
                for clip in corpus
            }
            for label, corpus in zip(labels, corpora, strict=True)
        ]
        made = [clip_id for own in ids for clip_id in own.values()]
        if len(set(labels)) == len(labels) and len(set(made)) == len(made):
            return labels, ids
    clip_id, _ = Counter(made).most_common(1)[0]
    raise UsageError(f"{places[0]}: two clips would have the id {clip_id!r}. Rename one of them.")


def _with_sources(corpus: Corpus, files: _RealPaths) -> Iterator[Clip]:
    """The clips, each with its source as several corpora know it."""
    paths = {clip.id: clip.path for clip in corpus}
    for clip in corpus:
        named_after = paths.get(clip.source)
        yield clip if named_after is None else replace(clip, source=files[named_after])


def _leaks_between(clips: Sequence[Sequence[Clip]], corpora: Sequence[Corpus]) -> Iterator[Problem]:
    """Each source that stands in two corpora on two sides; what leaks inside of one was told with it."""
    first: dict[str, list[tuple[int, Clip]]] = {}  # of a source, by corpus and split
    told: set[str] = set()
    for number, some in enumerate(clips):
        for clip in some:
            if clip.split is None or clip.source in told:
                continue
            known = first.setdefault(clip.source, [])
            for there, other in known:
                if there != number and other.split != clip.split:
                    told.add(clip.source)
                    file, line = clip.origin or (clip.path, None)
                    what = (
                        f"source {clip.source!r} is in {clip.split} here with clip {clip.id!r}, and in "
                        f"{other.split} with clip {other.id!r} of {corpora[there].root}"
                    )
                    remedy = "Give all clips of one source the same split, or leave out one of the corpora."
                    yield Problem(file, line, what, remedy)
                    break
            if all((there, other.split) != (number, clip.split) for there, other in known):
                known.append((number, clip))


def _shared_file_notes(clips: Sequence[Sequence[Clip]], files: _RealPaths) -> Iterator[str]:
    seen: dict[str, Clip] = {}
    shared = []
    for some in clips:
        own = {files[clip.path]: clip for clip in some}
        shared += [(seen[path], clip) for path, clip in own.items() if path in seen]
        seen = own | seen
    if shared:
        one, other = shared[0]
        number = "1 file is" if len(shared) == 1 else f"{len(shared):,} files are"
        yield f"{number} in two corpora, twice as a clip, the first as {one.id!r} and {other.id!r}."


class _RealPaths:
    """Files with links followed; a folder is looked at once, however many clips it holds."""

    def __init__(self) -> None:
        self._folders: dict[str, tuple[str, frozenset[str]]] = {}  # where it really is, and its links

    def __getitem__(self, path: Path) -> str:
        folder, _, name = str(path).rpartition(os.sep)
        folder = folder or path.anchor
        if folder not in self._folders:
            self._folders[folder] = _real_folder(Path(folder))
        real, links = self._folders[folder]
        return str(path.resolve()) if name in links else f"{real}{os.sep}{name}"


def _real_folder(folder: Path) -> tuple[str, frozenset[str]]:
    try:
        with os.scandir(folder) as entries:
            links = frozenset(entry.name for entry in entries if entry.is_symlink())
        return str(folder.resolve()), links
    except (OSError, ValueError):  # it is not there, or a folder cannot have this name
        return str(folder.absolute()), frozenset()
