"""What a store of libraries offers: `LibraryStore` to a search, `LibraryWriting` to indexing.

Two stores implement it: files in a folder (`library.py`, `library_writer.py`), and PostgreSQL, which several
machines share (`postgres_library.py`, `postgres_writer.py`). `opening.py` opens either.

A row is the number of a shot. It stays the same while a snapshot is open.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import StoreError
from ctsan.search.library_format import (
    FileRecord,
    RunFingerprint,
    ShotArrays,
    ShotDetails,
    ShotLocation,
)
from ctsan.video.shots import Shot


class ShownWords(NamedTuple):
    """A shot shows these if its confidence of any of the words is at least so much."""

    words: tuple[str, ...]
    min_confidence: float


@dataclass(frozen=True, slots=True)
class ConceptFilter:
    """Which shots may be found."""

    showing: tuple[ShownWords, ...] = ()  # all of these
    hiding: tuple[ShownWords, ...] = ()  # none of these

    def __bool__(self) -> bool:
        return bool(self.showing or self.hiding)


EVERYTHING = ConceptFilter()


class Shots(ABC):
    """The shots of a library that can be found, as they were when `LibraryStore.shots` was called."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def count(self, where: ConceptFilter = EVERYTHING) -> int:
        """The number of shots that may be found."""

    @abstractmethod
    def sample(self, size: int, where: ConceptFilter = EVERYTHING) -> NDArray[np.int64]:
        """About `size` rows, evenly spread over those that may be found, in ascending order; all if fewer."""

    @abstractmethod
    def nearest(
        self, vector: NDArray[np.float32], k: int, where: ConceptFilter = EVERYTHING
    ) -> NDArray[np.int64]:
        """The `k` rows with the largest inner product, largest first.

        A filter never hides a shot that matches it: there are fewer than `k` rows only if no more match.
        """

    @abstractmethod
    def known(self, rows: Sequence[int]) -> NDArray[np.int64]:
        """Those of the rows that these shots have: others may have been added since."""

    @abstractmethod
    def last(self, count: int) -> NDArray[np.int64]:
        """The rows that were added last, the last one first."""

    @abstractmethod
    def confidences(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The largest stored confidence of any of the words in each row."""

    @abstractmethod
    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float16]:
        """Stored vectors (n, D) of rows.

        Raises:
            StoreError: they are damaged.
        """

    @abstractmethod
    def concepts(self, rows: Sequence[int]) -> dict[int, list[tuple[int, float]]]:
        """Word ids and confidences of the top concept words of rows, by rank.

        Raises:
            StoreError: they are damaged.
        """


class LibraryStore(ABC):
    """A library that is open for reading. Files are those of this machine, unless something else is said."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Where the library is, for messages. Never a password."""

    @property
    @abstractmethod
    def how_to_delete(self) -> str:
        """What deletes the whole library, as part of a message: "delete FOLDER"."""

    @abstractmethod
    def damaged(self, what: str) -> StoreError:
        """The error of damaged records, with a remedy."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def begin_snapshot(self) -> None:
        """Begin a read transaction: later reads see one state, whatever other processes write."""

    @abstractmethod
    def end_snapshot(self) -> None: ...

    @abstractmethod
    def shots(self, dim: int, previous: Shots | None) -> Shots:
        """The shots that can be found now; `previous` itself if it is still good. Call it in a snapshot.

        Args:
            dim: number of columns that vectors must have.

        Raises:
            StoreError: the library is damaged, or has vectors of another size.
            FileNotFoundError: a writer has just replaced a file. Begin a new snapshot.
        """

    @property
    @abstractmethod
    def revision(self) -> int:
        """Changes with every write."""

    @property
    @abstractmethod
    def runs(self) -> list[RunFingerprint]: ...

    @property
    @abstractmethod
    def words(self) -> list[str]:
        """The concept words; word ids are positions in this list."""

    def matches_runs(self, runs: Sequence[RunFingerprint], words: Sequence[str]) -> bool:  # noqa: ARG002
        """Whether the library was indexed with these runs, with the weights that they have now."""
        return [(run.task, run.weights) for run in runs] == [(run.task, run.weights) for run in self.runs]

    @abstractmethod
    def files(self) -> dict[Path, FileRecord]: ...

    @abstractmethod
    def errors(self) -> dict[Path, str]:
        """Files that cannot be read, with the reason."""

    @abstractmethod
    def unread_files(self, reader: str) -> list[Path]:
        """Files with an error of another reader, which this one should try, and the lost ones."""

    @abstractmethod
    def lost_files(self) -> list[Path]:
        """Files whose numbers were damaged, and that have to be encoded again."""

    @abstractmethod
    def incomplete_files(self) -> list[Path]:
        """Files whose shots lack captions and thumbnails: of an older version of ctsan, or damaged."""

    @abstractmethod
    def copies(self) -> list[Path]:
        """Files that have the same content as another file."""

    @abstractmethod
    def mounts(self) -> list[Path]:
        """Mount points that indexed files were below."""

    @abstractmethod
    def num_shots(self) -> int:
        """The number of shots of files."""

    @abstractmethod
    def has_content(self, digest: str, reader: str | None = None) -> bool:
        """Whether the library has the shots of a content with all that is stored of them, or its error.

        Args:
            reader: errors of other readers do not count; None counts all, and shots without captions too.
        """

    @abstractmethod
    def has_shots(self, digest: str) -> bool:
        """Whether the library has shots of a content, complete or not."""

    @abstractmethod
    def locate(self, rows: Sequence[int]) -> list[ShotLocation]:
        """Files and times of the shots in the given rows. Rows that no file refers to are left out."""

    @abstractmethod
    def row_of(self, file: Path, shot: Shot, host: str | None = None) -> int | None:
        """The row of a shot of a file; None if the library no longer has it.

        Args:
            host: the machine that has the file; None if it is this one.
        """

    @abstractmethod
    def shots_of(self, file: Path, host: str | None = None) -> list[ShotLocation]:
        """The shots of a file in order; none if the library does not have the file.

        Args:
            host: the machine that has the file; None if it is this one.
        """

    @abstractmethod
    def captions(self, rows: Sequence[int]) -> dict[int, str]:
        """Captions of the shots in the given rows. Shots without one are left out."""

    @abstractmethod
    def thumbnail(self, row: int) -> bytes | None:
        """The JPEG of a shot; None if there is none."""


class LibraryWriting(LibraryStore):
    """A library that is open for writing. Each call is one transaction: a kill leaves all of it or none."""

    @abstractmethod
    def link(self, file: FileRecord, digest: str) -> bool:
        """Record a file whose content is in the library; False if another machine has just removed that."""

    @abstractmethod
    def add(
        self,
        file: FileRecord,
        digest: str,
        shots: Sequence[Shot],
        arrays: ShotArrays,
        error: str | None = None,
        reader: str = "unknown",
        *,
        details: Sequence[ShotDetails] = (),
    ) -> None:
        """Record a file with new content: either shots with one array row each, or the error.

        Content that is in the library, with an error or without captions, is replaced, for all files that
        have it.

        Args:
            error: why the content cannot be read; then there are no shots.
            reader: version of what failed to read it.
            details: one per shot; without them the next indexing makes them.

        Raises:
            StorageError: the disk is full. The library is as before.
        """

    @abstractmethod
    def add_mounts(self, mounts: Sequence[Path]) -> None:
        """Remember mount points of indexed files."""

    @abstractmethod
    def drop(self, files: Sequence[Path]) -> None:
        """Remove files, and every content that no file of any machine refers to any more."""

    @abstractmethod
    def optimise(self) -> None:
        """Give back unused space, and bring the index up to date.

        Raises:
            StorageError: the disk is full. The library is as before.
        """


def check_runs(library: LibraryStore, runs: Sequence[RunFingerprint], words: Sequence[str]) -> None:
    """Check that a library was indexed with these runs.

    Raises:
        StoreError: it was indexed with others.
    """
    if not library.matches_runs(runs, words):
        stored = ", ".join(f"{run.folder} ({run.task})" for run in library.runs)
        raise StoreError(
            f"{library.label}: this library was indexed with other runs: {stored}. Name those with --model, "
            f"choose another --library, or {library.how_to_delete} to start over."
        )
    if not set(words) <= set(library.words):
        raise library.damaged("it lacks concept words of its runs")
