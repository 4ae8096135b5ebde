"""A path to a corpus, whichever format it is in."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ctsan.data.corpus import Corpus
from ctsan.data.readers import clip_folder, lsmdc16, msrvtt, msvd, own
from ctsan.data.readers.files import is_there
from ctsan.data.splits import leaks, seeded_split, split_problems
from ctsan.data.union import unite_corpora
from ctsan.errors import CorpusError, Problem, did_you_mean


class Reader(Protocol):
    """What a module in `readers` offers."""

    def recognises(self, path: Path) -> bool: ...

    def read(self, path: Path, problems: list[Problem]) -> Corpus: ...


class OfficialReader(Reader, Protocol):
    """A reader of a published corpus, which comes in files of fixed names."""

    FILES: tuple[str, ...]


OFFICIAL_READERS: dict[str, OfficialReader] = {"lsmdc16": lsmdc16, "msr-vtt": msrvtt, "msvd": msvd}
READERS: dict[str, Reader] = {"own": own, **OFFICIAL_READERS, "clips": clip_folder}  # asked in this order


def read_corpus(path: Path | str, *, seed: int = 0) -> Corpus:
    """Read a corpus; where it has captions and no splits, `seed` makes them.

    Missing clips do not stop it: see `missing_clips`.

    Raises:
        CorpusError: with every problem that `inspect_corpus` finds.
    """
    corpus, problems = inspect_corpus(path, seed=seed)
    if problems:
        raise CorpusError(problems)
    return corpus


def inspect_corpus(path: Path | str, *, seed: int = 0) -> tuple[Corpus, list[Problem]]:
    """The corpus as far as it can be read, and everything that is wrong with what its files say."""
    problems: list[Problem] = []
    corpus = _with_splits(_read(Path(path), problems), problems, seed)
    problems.sort(key=lambda problem: (str(problem.file), problem.line or 0))
    return corpus, problems


def read_corpora(paths: Sequence[Path], *, external: Sequence[Path] = (), seed: int = 0) -> Corpus:
    """Read one corpus, or several as one: see `unite_corpora`.

    Args:
        external: corpora that others captioned, of which the training clips are added.

    Raises:
        CorpusError: with every problem that `inspect_corpora` finds.
        UsageError: a corpus is given twice.
    """
    corpus, problems = inspect_corpora(paths, external=external, seed=seed)
    if problems:
        raise CorpusError(problems)
    return corpus


def inspect_corpora(
    paths: Sequence[Path], *, external: Sequence[Path] = (), seed: int = 0
) -> tuple[Corpus, list[Problem]]:
    """The corpora as one as far as they can be read, and everything that is wrong with each and between them.

    Raises:
        UsageError: a corpus is given twice.
    """
    inspected = [inspect_corpus(path, seed=seed) for path in paths]
    problems = [problem for _, some in inspected for problem in some]
    if len(inspected) == 1 and not external:
        return inspected[0]
    corpora = [corpus for corpus, _ in inspected]
    more = [(path, _read_external(path, problems)) for path in external]
    united, between = unite_corpora(list(zip(paths, corpora, strict=True)), more)
    for path, part in zip(external, united.parts[len(paths) :], strict=True):
        if part.corpus.clips and not part.ids:
            what = (
                "no clip of it can be learnt from: they have no captions, are for validation or test, or are "
                "in another corpus that is given"
            )
            problems.append(Problem(path, None, what, "Leave out this --external."))
    return united, [*problems, *between]


def missing_clips(corpus: Corpus, features: Container[str] = ()) -> list[Problem]:
    """Clips with neither a file nor features. One of them stops no job over a thousand others.

    Args:
        features: the ids of the clips that there are features of.
    """
    problems = []
    for clip in corpus:
        if clip.id not in features and not is_there(clip.path):
            file, line = clip.origin or (clip.path, None)
            what = f"the file of clip {clip.id!r} is missing ({clip.path})"
            remedy = "Put it there, name its features with --features, or delete what is said of the clip."
            problems.append(Problem(file, line, what, remedy))
    return problems


def clips_without_files(corpus: Corpus, features: Container[str]) -> int:
    """How many clips have features and no file."""
    return sum(clip.id in features and not is_there(clip.path) for clip in corpus)


def _read(path: Path, problems: list[Problem]) -> Corpus:
    nothing = Corpus(name=path.name, root=path, format="unknown", clips=())
    if not path.exists():
        names: list[str] = []
        with suppress(OSError):
            names = [entry.name for entry in path.parent.iterdir()]
        problems.append(
            Problem(path, None, "it does not exist", f"{did_you_mean(path.name, names)}Check the path.")
        )
        return nothing
    for name, official in OFFICIAL_READERS.items():
        if path.is_file() and path.name in official.FILES:
            what = f"this is one of the files of the {name} format"
            problems.append(Problem(path, None, what, f"Give their folder instead: {path.parent}"))
            return nothing
    for reader in READERS.values():
        if reader.recognises(path):
            return reader.read(path, problems)
    remedy = "Give a folder, a clips.jsonl, a clips.csv or a clip."
    problems.append(Problem(path, None, "this is neither a clip nor a caption file", remedy))
    return nothing


def _read_external(path: Path, problems: list[Problem]) -> Corpus:
    """A corpus as its files say: no splits are made, as all clips without one are learnt from."""
    found: list[Problem] = []
    corpus = _read(path, found)
    _check_has_clips(corpus, found)
    problems += found
    return corpus


def _check_has_clips(corpus: Corpus, problems: list[Problem]) -> None:
    if not corpus.clips and not problems:
        remedy = "Check that its files are complete."
        problems.append(Problem(corpus.root, None, "the corpus has no clips", remedy))


def _with_splits(corpus: Corpus, problems: list[Problem], seed: int) -> Corpus:
    """The corpus with splits made for it where it has captions and none; splits that it gives are checked."""
    _check_has_clips(corpus, problems)
    if any(clip.split for clip in corpus):
        corpus = replace(corpus, has_own_splits=True)
        if corpus.format in OFFICIAL_READERS:
            return replace(corpus, notes=corpus.notes + _leak_notes(corpus))
        problems += split_problems(corpus.clips)
    elif any(clip.captions for clip in corpus):
        note = f"The corpus gives no splits; seed {seed} made them."
        return replace(corpus, clips=seeded_split(corpus.clips, seed=seed), notes=(*corpus.notes, note))
    return corpus


def _leak_notes(corpus: Corpus) -> tuple[str, ...]:
    """An official split stays as it is, so that figures compare; but it is said where it leaks."""
    found = leaks(corpus)
    if not found:
        return ()
    one, other = found[0]
    sources = "1 source stands" if len(found) == 1 else f"{len(found)} sources stand"
    return (
        f"{sources} on two sides of the official split, the first is {one.source!r}: "
        f"{one.id} in {one.split}, {other.id} in {other.split}.",
    )
