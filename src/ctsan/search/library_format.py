"""What a library stores, on the disk: tables, arrays, versions, and how names and errors are written.

Versions of the library:

1    files, contents, shots; vectors, concepts and confidences
2    also checksums of array rows, mount points, and what failed to read a file
3    also caption and thumbnail of each shot, and the confidences of up to `MAX_CANDIDATES` concept words
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import StoreError
from ctsan.io.sqlite import clamped, store_errors
from ctsan.video.shots import Shot

VERSION = 3
ARRAY_NAMES = ("vectors", "concepts", "confidences", "candidates", "candidate_confidences")
ARRAY_NAMES_OF_VERSION_2 = ARRAY_NAMES[:3]
ARRAY_KINDS = {  # of the NumPy types
    "vectors": "f",
    "concepts": "i",
    "confidences": "f",
    "candidates": "u",
    "candidate_confidences": "u",
}
ScalarT = TypeVar("ScalarT", bound=np.generic)
ShotArrays = Mapping[str, NDArray[np.generic]]  # by array name; one row per shot

FILE = "library.sqlite"
OLD_COLUMNS = 64  # behind the vectors, in libraries of older versions: a sketch of concept words
LOST = "its numbers in the library were damaged. Index its folder again."
NO_READER = ""  # of contents that are lost: no reader has failed
UNKNOWN_READER = "unknown"  # of errors in libraries of version 1
LEGACY_ENCODINGS = "[0-9]*.npy"  # such as 2.hidden.npy

_DETAILS = """
create table details (
    content integer not null, number integer not null, caption text, thumbnail blob,
    checksum integer not null,
    primary key (content, number)
)
"""
SCHEMA = f"""
create table about (name text primary key, value text not null);
create table contents (
    id integer primary key, digest text unique not null, error text, reader text, checksum integer,
    has_details integer not null default 0
);
create table shots (
    row integer primary key, content integer not null, starts real not null, ends real not null
);
create index shots_of_content on shots (content);
create table files (
    path blob primary key, size integer not null, mtime_ns integer not null, content integer not null
);
create index files_of_content on files (content);
create table mounts (path blob primary key);
{_DETAILS};
"""
UPGRADE_TO_2 = (
    "alter table contents add column reader text",
    "alter table contents add column checksum integer",
    f"update contents set reader = '{UNKNOWN_READER}' where error is not null",
    "create table mounts (path blob primary key)",
)
UPGRADE_TO_3 = ("alter table contents add column has_details integer not null default 0", _DETAILS)


@dataclass(frozen=True, slots=True)
class FileRecord:
    path: Path
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path, status: os.stat_result) -> FileRecord:
        """Numbers beyond 64 bits, such as the nanoseconds of a date in 2300, are clamped."""
        return cls(path, clamped(status.st_size), clamped(status.st_mtime_ns))


@dataclass(frozen=True, slots=True)
class ShotLocation:
    """Where a shot is. If several files have the same content, `file` is the first by name."""

    row: int
    file: Path
    shot: Shot
    versions: frozenset[tuple[int, int]]  # sizes and dates (ns) of the files with this content, as indexed
    host: str | None = None  # the machine that has the file, if it is another than this


@dataclass(frozen=True, slots=True)
class ShotDetails:
    """What is shown of a shot."""

    caption: str | None = None  # None if no run of the library describes
    thumbnail: bytes | None = None  # JPEG

    @property
    def checksum(self) -> int:
        caption = b"" if self.caption is None else self.caption.encode(errors="surrogatepass")
        return zlib.crc32(self.thumbnail or b"", zlib.crc32(caption))


@dataclass(frozen=True, slots=True)
class RunFingerprint:
    """A run that a library was indexed with; `weights` tells whether it has been trained further since."""

    folder: str
    task: str
    weights: str  # digest


@dataclass(frozen=True, slots=True)
class ContentRows:
    """The array rows of one content. Adding writes them together, and nothing moves them apart."""

    content_id: int
    first: int
    last: int
    count: int
    checksum: int | None


def arrays_checksum(
    arrays: ShotArrays, part: ContentRows | None = None, names: Sequence[str] = ARRAY_NAMES
) -> int:
    """Of the rows of a content in all arrays."""
    checksum = 0
    for name in names:
        rows = arrays[name] if part is None else arrays[name][part.first : part.last + 1]
        checksum = zlib.crc32(np.ascontiguousarray(rows).data, checksum)
    return checksum


def index_command(folder: Path) -> str:
    """The command that updates a library."""
    return shlex.join(["ctsan", "index", "FOLDER", "--library", folder.name, "--store", str(folder.parent)])


def damage(folder: Path, what: str) -> str:
    return f"{folder / FILE}: it is damaged ({what}). Delete {folder} and index again."


def record_errors(folder: Path) -> AbstractContextManager[None]:
    """Raise SQLite's errors with the file and a remedy."""
    return store_errors(folder / FILE, partial(damage, folder))


@contextmanager
def read_errors(folder: Path) -> Iterator[None]:
    """Raise errors of a folder that cannot be looked into with a remedy."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{folder}: it cannot be read ({error.strerror}). Change its permissions, or choose another "
            "--library or --store."
        ) from error


def make_folder(folder: Path, mode: int) -> None:
    folder.mkdir(mode=mode)
    folder.chmod(mode)  # whatever the umask is


def folder_mode(folder: Path) -> int:
    """The permissions of a library's folder, which everything in it gets; the owner has all."""
    return stat.S_IMODE(folder.stat().st_mode) & 0o777 | 0o700


def widened(vectors: NDArray[ScalarT], num_columns: int) -> NDArray[ScalarT]:
    """Vectors (n, J) with columns of zeros, where a library of an older version has `OLD_COLUMNS`."""
    return np.pad(vectors, ((0, 0), (0, num_columns - vectors.shape[1])))


def runs_to_json(runs: Sequence[RunFingerprint]) -> str:
    return json.dumps([{"folder": run.folder, "task": run.task, "weights": run.weights} for run in runs])


def is_run(run: object) -> bool:
    if not isinstance(run, dict) or set(run) != {"folder", "task", "weights"}:
        return False
    return all(isinstance(value, str) and "\0" not in value for value in run.values())


def path_to_bytes(path: Path) -> bytes:
    """Paths are stored as bytes, because file names need not be valid text."""
    return os.fsencode(path)


def encode_text(text: str) -> str | bytes:
    """Text for SQLite: bytes if it names a file whose name is not valid text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogateescape")
    return text


def decode_text(text: object) -> str:
    return text.decode(errors="surrogateescape") if isinstance(text, bytes) else str(text)
