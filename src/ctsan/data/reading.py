"""Read a corpus from a path, in any of the supported formats."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ctsan.data.corpus import Corpus
from ctsan.data.readers import clip_folder, lsmdc16, msrvtt, msvd, own
from ctsan.data.readers.files import cannot_list, exists, is_file
from ctsan.data.splits import leaks, seeded_split, split_problems
from ctsan.data.union import unite_corpora
from ctsan.errors import CorpusError, Problem, did_you_mean
from ctsan.io.messages import warn


class Reader(Protocol):
    """The interface of a module in `readers`."""

    def recognises(self, path: Path) -> bool: ...

    def read(self, path: Path, problems: list[Problem]) -> Corpus: ...


class OfficialReader(Reader, Protocol):
    """A reader of a published corpus with fixed file names."""

    FILES: tuple[str, ...]


OFFICIAL_READERS: dict[str, OfficialReader] = {"lsmdc16": lsmdc16, "msr-vtt": msrvtt, "msvd": msvd}
READERS: dict[str, Reader] = {"own": own, **OFFICIAL_READERS, "clips": clip_folder}  # tried in this order

_SEED = 0  # of generated splits


def read_corpus(path: Path | str) -> Corpus:
    """Read a corpus; if it has captions and no splits, they are generated.

    Missing clip files are no error here: see `missing_clips`. Subfolders that cannot be listed are logged.

    Raises:
        CorpusError: with every problem that `inspect_corpus` finds.
    """
    return _usable(*inspect_corpus(path))


def inspect_corpus(path: Path | str) -> tuple[Corpus, list[Problem]]:
    """The corpus as far as it can be read, and all problems of its files."""
    problems: list[Problem] = []
    corpus = _with_splits(_read(Path(path), problems), problems)
    problems.sort(key=lambda problem: (str(problem.file), problem.line or 0))
    return corpus, problems


def read_corpora(paths: Sequence[Path], *, external: Sequence[Path] = ()) -> Corpus:
    """Read one corpus, or a union of several: see `unite_corpora`.

    Args:
        external: external corpora, of which only the training clips are added.

    Raises:
        CorpusError: with every problem that `inspect_corpora` finds.
        UsageError: a corpus is given twice.
    """
    return _usable(*inspect_corpora(paths, external=external))


def inspect_corpora(paths: Sequence[Path], *, external: Sequence[Path] = ()) -> tuple[Corpus, list[Problem]]:
    """The union of corpora as far as they can be read, and all problems of each and between them.

    Raises:
        UsageError: a corpus is given twice.
    """
    inspected = [inspect_corpus(path) for path in paths]
    problems = [problem for _, corpus_problems in inspected for problem in corpus_problems]
    if len(inspected) == 1 and not external:
        return inspected[0]
    corpora = [corpus for corpus, _ in inspected]
    external_corpora = [(path, _read_external(path, problems)) for path in external]
    union, union_problems = unite_corpora(list(zip(paths, corpora, strict=True)), external_corpora)
    for path, part in zip(external, union.parts[len(paths) :], strict=True):
        if part.corpus.clips and not part.ids:
            what = (
                "none of its clips can be used for training: they have no captions, are for validation or "
                "test, or are in another given corpus"
            )
            problems.append(Problem(path, None, what, "Leave out this --external."))
    return union, [*problems, *union_problems]


def _usable(corpus: Corpus, problems: Sequence[Problem]) -> Corpus:
    if problems:
        raise CorpusError(problems)
    for problem in corpus.unlisted:
        warn(str(problem))
    return corpus


def missing_clips(corpus: Corpus, features: Container[str] = ()) -> list[Problem]:
    """One problem per clip with neither a file nor features; commands report them and continue.

    Args:
        features: the ids of the clips with features.
    """
    problems = []
    for clip in corpus:
        if clip.id not in features and not is_file(clip.path):
            file, line = clip.origin or (clip.path, None)
            what = f"the file of clip {clip.id!r} is missing ({clip.path})"
            remedy = "Put it there, name its features with --features, or delete the clip's entry."
            problems.append(Problem(file, line, what, remedy))
    return problems


def clips_without_files(corpus: Corpus, features: Container[str]) -> int:
    """The number of clips with features but without a file."""
    return sum(clip.id in features and not is_file(clip.path) for clip in corpus)


def _read(path: Path, problems: list[Problem]) -> Corpus:
    empty = Corpus(name=path.name, root=path, format="unknown", clips=())
    if not exists(path):
        names: list[str] = []
        with suppress(OSError):
            names = [entry.name for entry in path.parent.iterdir()]
        problems.append(
            Problem(path, None, "it does not exist", f"{did_you_mean(path.name, names)}Check the path.")
        )
        return empty
    for name, official in OFFICIAL_READERS.items():
        if path.is_file() and path.name in official.FILES:
            what = f"this is one of the files of the {name} format"
            problems.append(Problem(path, None, what, f"Give their folder instead: {path.parent}"))
            return empty
    try:
        reader = next((reader for reader in READERS.values() if reader.recognises(path)), None)
    except OSError as error:  # a folder whose files may not be looked at
        problems.append(cannot_list(path, error))
        return empty
    if reader is not None:
        return reader.read(path, problems)
    remedy = "Give a folder, a clips.jsonl, a clips.csv or a clip."
    problems.append(Problem(path, None, "this is neither a clip nor a caption file", remedy))
    return empty


def _read_external(path: Path, problems: list[Problem]) -> Corpus:
    """A corpus without generated splits, because all its clips without a split are for training."""
    corpus_problems: list[Problem] = []
    corpus = _read(path, corpus_problems)
    _check_has_clips(corpus, corpus_problems)
    problems += corpus_problems
    return corpus


def _check_has_clips(corpus: Corpus, problems: list[Problem]) -> None:
    if not corpus.clips and not problems:
        remedy = "Check that its files are complete."
        problems.append(Problem(corpus.root, None, "the corpus has no clips", remedy))


def _with_splits(corpus: Corpus, problems: list[Problem]) -> Corpus:
    """The corpus with its own splits, which are checked, or generated ones if it has captions and none."""
    _check_has_clips(corpus, problems)
    if any(clip.split for clip in corpus):
        corpus = replace(corpus, has_own_splits=True)
        if corpus.format in OFFICIAL_READERS:
            return replace(corpus, notes=corpus.notes + _leak_notes(corpus))
        problems += split_problems(corpus.clips)
    elif any(clip.captions for clip in corpus):
        note = f"The corpus has no splits; they are generated from seed {_SEED}."
        return replace(corpus, clips=seeded_split(corpus.clips, seed=_SEED), notes=(*corpus.notes, note))
    return corpus


def _leak_notes(corpus: Corpus) -> tuple[str, ...]:
    """A note on the leaks of an official split, which is kept so that figures are comparable."""
    pairs = leaks(corpus)
    if not pairs:
        return ()
    one, other = pairs[0]
    sources = "1 source is" if len(pairs) == 1 else f"{len(pairs)} sources are"
    return (
        f"{sources} in two of the official splits, the first is {one.source!r}: "
        f"{one.id} in {one.split}, {other.id} in {other.split}.",
    )
