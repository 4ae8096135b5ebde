"""The union of several corpora: all clips of the user's own corpora, and training clips of external ones."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ctsan.data.corpus import Clip, Corpus, CorpusPart, Item, ItemTask, Split
from ctsan.data.readers.own import MAX_REPEATS
from ctsan.errors import Problem, UsageError


def unite_corpora(
    corpora: Sequence[tuple[Path, Corpus]], external: Sequence[tuple[Path, Corpus]] = ()
) -> tuple[Corpus, list[Problem]]:
    """The union of several corpora, and a problem for each source that two of them put in different splits.

    Splits and items are those of `corpora`. Of `external`, the captioned clips of the split train or without
    a split are training clips, except files that are also in `corpora`, and sources that `corpora` hold out
    for validation or test. Training clips of `corpora` are repeated until their captions are at least half
    of all training captions.

    A clip keeps its id if no other corpus has the same; otherwise the id is prefixed with the name of the
    corpus' folder, and as many of its parents as are needed to make labels unique: `holiday/0001.mp4`.

    The same source name in two corpora is the same source, unless it is the name of a clip, which is the
    default source. Such a source is replaced by the clip's file, so that `0001.mp4` in two corpora are two
    sources, and the same file in two corpora is one source.

    Args:
        corpora: path and corpus, of the user's own corpora.
        external: path and corpus, of external corpora.

    Raises:
        UsageError: a corpus is given twice, or ids cannot be made unique.
    """
    all_corpora = [*corpora, *external]
    paths = [path.resolve() for path, _ in all_corpora]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise UsageError(f"{all_corpora[number][0]}: this corpus is given twice. Give each corpus once.")
    members = [corpus for _, corpus in all_corpora]
    files = _RealPaths()
    clips = [list(_with_sources(corpus, files)) for corpus in members]
    own_clips = clips[: len(corpora)]
    external_clips = _external_training_clips(clips, len(corpora), files)
    clips = [*_repeated(own_clips, external_clips), *external_clips]
    labels, ids = _labels_and_ids(paths, clips)
    clips = [
        [replace(clip, id=new_ids[clip.id]) for clip in member_clips]
        for member_clips, new_ids in zip(clips, ids, strict=True)
    ]
    items: dict[tuple[ItemTask, Split], tuple[Item, ...]] = {}
    for (_, corpus), new_ids in zip(corpora, ids, strict=False):
        for key, member_items in corpus.items.items():
            renamed = (replace(item, clip=new_ids.get(item.clip, item.clip)) for item in member_items)
            items[key] = (*items.get(key, ()), *renamed)
    notes = [
        f"{label}: {note}" for label, corpus in zip(labels, members, strict=True) for note in corpus.notes
    ]
    union = Corpus(
        name=" + ".join(labels),
        root=members[0].root,
        format=", ".join(dict.fromkeys(corpus.format for corpus in members)),
        clips=tuple(clip for member_clips in clips for clip in member_clips),
        items=items,
        notes=(*notes, *_shared_file_notes(clips, files)),
        has_own_splits=any(corpus.has_own_splits for _, corpus in corpora),
        unlisted=tuple(problem for corpus in members for problem in corpus.unlisted),
        parts=tuple(CorpusPart(corpus, new_ids) for corpus, new_ids in zip(members, ids, strict=True)),
    )
    return union, list(_leaks_between(clips, members))


def parts_without_items(corpus: Corpus, clips: Iterable[Clip], items: Iterable[Item]) -> list[Corpus]:
    """The members of a union with captioned clips among `clips` but no item, if other members have items.

    Items are built from captions only if no member has any.
    """
    with_items = {item.clip for item in items}
    captioned = {clip.id for clip in clips if clip.captions}
    members = [(part.corpus, captioned.intersection(part.ids.values())) for part in corpus.parts]
    return [member for member, ids in members if with_items and ids and not ids & with_items]


def _external_training_clips(
    clips: Sequence[Sequence[Clip]], num_own: int, files: _RealPaths
) -> list[list[Clip]]:
    """The training clips of each corpus after the first `num_own`; each file is used once."""
    own_clips = [clip for member_clips in clips[:num_own] for clip in member_clips]
    used_files = {files[clip.path] for clip in own_clips}
    held_out = {clip.source for clip in own_clips if clip.split not in (None, "train")}
    selected = []
    for member_clips in clips[num_own:]:
        training_clips = []
        for clip in member_clips:
            file = files[clip.path]
            if is_for_training(clip) and file not in used_files and clip.source not in held_out:
                used_files.add(file)
                training_clips.append(replace(clip, split="train", repeat=1, external=True))
        selected.append(training_clips)
    return selected


def is_for_training(clip: Clip) -> bool:
    """Whether a clip of an external corpus is for training; without splits, every captioned clip is."""
    return bool(clip.captions) and clip.split in (None, "train")


def _repeated(
    own_clips: Sequence[Sequence[Clip]], external_clips: Sequence[Sequence[Clip]]
) -> list[list[Clip]]:
    """Own clips, with the training clips repeated until their captions are at least half of all."""

    def num_captions(clips: Iterable[Clip], *, external: bool) -> int:
        training = (clip for clip in clips if clip.split == "train" and clip.external == external)
        return sum(clip.repeat * len(clip.captions) for clip in training)

    all_clips = [clip for member_clips in (*own_clips, *external_clips) for clip in member_clips]
    num_own = num_captions(all_clips, external=False)
    has_external = any(external_clips)
    repeat = math.ceil(num_captions(all_clips, external=True) / num_own) if has_external and num_own else 1
    return [
        [
            replace(clip, repeat=min(repeat * clip.repeat, MAX_REPEATS))
            if clip.split == "train" and not clip.external
            else clip
            for clip in member_clips
        ]
        for member_clips in own_clips
    ]


def _labels_and_ids(
    paths: Sequence[Path], corpora: Sequence[Sequence[Clip]]
) -> tuple[list[str], list[dict[str, str]]]:
    """The label of each corpus and the new ids of its clips, by the shortest labels that make all unique."""
    counts = Counter(clip_id for corpus in corpora for clip_id in {clip.id for clip in corpus})
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        labels = [Path(*path.parts[-length:]).as_posix() for path in paths]
        ids = [
            {
                clip.id: f"{label}/{clip.id.removeprefix('/')}" if counts[clip.id] > 1 else clip.id
                for clip in corpus
            }
            for label, corpus in zip(labels, corpora, strict=True)
        ]
        all_ids = [clip_id for new_ids in ids for clip_id in new_ids.values()]
        if len(set(labels)) == len(labels) and len(set(all_ids)) == len(all_ids):
            return labels, ids
    clip_id, _ = Counter(all_ids).most_common(1)[0]
    raise UsageError(f"{paths[0]}: two clips would have the id {clip_id!r}. Rename one of them.")


def _with_sources(corpus: Corpus, files: _RealPaths) -> Iterator[Clip]:
    """The clips, with a source that is the id of a clip replaced by that clip's file."""
    paths = {clip.id: clip.path for clip in corpus}
    for clip in corpus:
        source_path = paths.get(clip.source)
        yield clip if source_path is None else replace(clip, source=files[source_path])


def _leaks_between(clips: Sequence[Sequence[Clip]], corpora: Sequence[Corpus]) -> Iterator[Problem]:
    """A problem for each source that two corpora put in different splits; not for leaks within one."""
    first_clips: dict[str, list[tuple[int, Clip]]] = {}  # by source: the first clip of each corpus and split
    reported: set[str] = set()
    for number, member_clips in enumerate(clips):
        for clip in member_clips:
            if clip.split is None or clip.source in reported:
                continue
            earlier = first_clips.setdefault(clip.source, [])
            for other_number, other in earlier:
                if other_number != number and other.split != clip.split:
                    reported.add(clip.source)
                    file, line = clip.origin or (clip.path, None)
                    what = (
                        f"source {clip.source!r} is in {clip.split} here with clip {clip.id!r}, and in "
                        f"{other.split} with clip {other.id!r} of {corpora[other_number].root}"
                    )
                    remedy = "Give all clips of one source the same split, or leave out one of the corpora."
                    yield Problem(file, line, what, remedy)
                    break
            if all((other_number, other.split) != (number, clip.split) for other_number, other in earlier):
                earlier.append((number, clip))


def _shared_file_notes(clips: Sequence[Sequence[Clip]], files: _RealPaths) -> Iterator[str]:
    """A note on files that are clips of two corpora."""
    first_clips: dict[str, Clip] = {}
    shared = []
    for member_clips in clips:
        clips_by_file = {files[clip.path]: clip for clip in member_clips}
        shared += [(first_clips[path], clip) for path, clip in clips_by_file.items() if path in first_clips]
        first_clips = clips_by_file | first_clips
    if shared:
        one, other = shared[0]
        number = "1 file is a clip" if len(shared) == 1 else f"{len(shared):,} files are clips"
        yield f"{number} of two corpora, the first as {one.id!r} and {other.id!r}."


class _RealPaths:
    """Paths with links resolved; each folder is scanned once, however many clips it contains."""

    def __init__(self) -> None:
        self._folders: dict[str, tuple[str, frozenset[str]]] = {}  # the real path, and the names of its links

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
    except (OSError, ValueError):  # it does not exist, or its name is not valid
        return str(folder.absolute()), frozenset()
