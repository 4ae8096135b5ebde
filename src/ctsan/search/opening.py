"""Open a library wherever it is: in a folder, or in PostgreSQL.

The modules of PostgreSQL are imported only for a library that is there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from ctsan.io.paths import library_folder
from ctsan.search.library import Library, is_library
from ctsan.search.library_format import RunFingerprint
from ctsan.search.postgres_address import PostgresAddress, is_connection_string
from ctsan.search.store import LibraryStore, LibraryWriting

LibraryAddress = Path | PostgresAddress


def library_address(name: str, store: str | Path | None = None) -> LibraryAddress:
    """Where a library is.

    Args:
        store: a folder, or the connection string of a PostgreSQL database; None is the user's data folder.

    Raises:
        UsageError: the name or the connection string cannot be used.
    """
    if store is not None and is_connection_string(str(store)):
        library_folder(name, None)  # the same names are valid
        return PostgresAddress(str(store), name)
    return library_folder(name, None if store is None else Path(store))


def open_library(address: LibraryAddress) -> LibraryStore:
    """Open a library for reading.

    Raises:
        StoreError: there is no such library, or it cannot be used.
    """
    if isinstance(address, Path):
        return Library(address)
    from ctsan.search.postgres_library import PostgresLibrary

    return PostgresLibrary(address)


def has_library(address: LibraryAddress) -> bool:
    """Whether there is a library.

    Raises:
        StoreError: the folder cannot be looked into, or the server cannot be reached.
    """
    if isinstance(address, Path):
        return is_library(address)
    from ctsan.search.postgres_schema import Connection

    with closing(Connection(address)) as connection:
        return connection.has_library()


@contextmanager
def open_for_writing(
    address: LibraryAddress, *, runs: Sequence[RunFingerprint], words: Sequence[str], dim: int
) -> Iterator[LibraryWriting]:
    """Open a library for writing; create it if there is none. A folder is locked for other processes.

    Args:
        dim: number of columns of the vectors.

    Raises:
        StoreError: it was indexed with other runs, or cannot be used.
        StorageError: the disk is full, or the folder cannot be written to.
    """
    if isinstance(address, Path):
        from ctsan.search import library_opening

        with library_opening.open_for_writing(address, runs=runs, words=words) as library:
            yield library
        return
    from ctsan.search.postgres_writer import open_postgres_for_writing

    with open_postgres_for_writing(address, runs=runs, words=words, dim=dim) as shared:
        yield shared


def store_option(address: LibraryAddress) -> str:
    """The option `--store` of commands about a library, without a password."""
    store = str(address.parent) if isinstance(address, Path) else address.store
    return shlex.join(["--store", store])
