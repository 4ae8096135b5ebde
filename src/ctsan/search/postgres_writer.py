"""Write a library in PostgreSQL. Several processes may, on several machines: each call is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ctsan.errors import StoreError
from ctsan.search.library_format import (
    UNKNOWN_READER,
    FileRecord,
    RunFingerprint,
    ShotArrays,
    ShotDetails,
    path_to_bytes,
)
from ctsan.search.postgres_address import PostgresAddress
from ctsan.search.postgres_library import PostgresLibrary
from ctsan.search.postgres_schema import Connection
from ctsan.search.store import LibraryWriting, check_runs
from ctsan.video.shots import Shot

T = TypeVar("T")

_TRIES = 5  # of a transaction that others got in the way of


class _RemovedError(Exception):
    """Another machine has removed a content that was just found."""


class PostgresWriter(PostgresLibrary, LibraryWriting):
    """A library that is open for writing. `open_postgres_for_writing` gives one."""

    def link(self, file: FileRecord, digest: str) -> bool:
        def write(cursor: Any) -> bool:
            # The lock keeps others from removing the content before this is committed.
            cursor.execute("select id from contents where digest = %s for key share", (digest,))
            records = cursor.fetchall()
            if records:
                self._link(cursor, file, records[0][0])
            return bool(records)

        return self._commit(write)

    def add(
        self,
        file: FileRecord,
        digest: str,
        shots: Sequence[Shot],
        arrays: ShotArrays,
        error: str | None = None,
        reader: str = UNKNOWN_READER,
        *,
        details: Sequence[ShotDetails] = (),
    ) -> None:
        """See `LibraryWriting`. Of content that another machine has stored meanwhile, that is kept."""
        values = (
            None if error is None else error.encode(errors="surrogateescape"),
            None if error is None else reader,
            bool(details) and len(details) == len(shots),
        )

        def write(cursor: Any) -> None:
            cursor.execute(
                "insert into contents (digest, error, reader, has_details) values (%s, %s, %s, %s) "
                "on conflict (digest) do nothing returning id",
                (digest, *values),
            )
            records = cursor.fetchall()
            if records:
                [(content_id,)] = records
                self._insert_shots(cursor, content_id, shots, arrays, details)
            else:
                content_id, is_complete = self._lock_content(cursor, digest)
                if not is_complete:
                    cursor.execute("delete from shots where content = %s", (content_id,))
                    cursor.execute(
                        "update contents set error = %s, reader = %s, has_details = %s where id = %s",
                        (*values, content_id),
                    )
                    self._insert_shots(cursor, content_id, shots, arrays, details)
            self._link(cursor, file, content_id)

        self._commit(write)

    def add_mounts(self, mounts: Sequence[Path]) -> None:
        known = set(self.mounts())
        if new := [(self.host, path_to_bytes(path)) for path in mounts if path not in known]:
            self._commit(
                lambda cursor: cursor.executemany(
                    "insert into mounts values (%s, %s) on conflict do nothing", new
                )
            )

    def drop(self, files: Sequence[Path]) -> None:
        unreferenced = "from contents where not exists (select from files where content = contents.id)"
        if not files and not self._query(f"select 1 {unreferenced} limit 1"):
            return
        names = [(self.host, path_to_bytes(path)) for path in files]

        def write(cursor: Any) -> None:
            cursor.executemany("delete from files where host = %s and sha256(path) = sha256(%s)", names)
            cursor.execute(f"delete {unreferenced}")

        self._commit(write)

    def optimise(self) -> None:
        """Nothing: PostgreSQL keeps its index up to date, and gives back space by itself."""

    def _insert_shots(
        self,
        cursor: Any,
        content_id: int,
        shots: Sequence[Shot],
        arrays: ShotArrays,
        details: Sequence[ShotDetails],
    ) -> None:
        from pgvector import HalfVector

        records = []
        for number, shot in enumerate(shots):
            word_ids, confidences, candidates, levels = (
                np.asarray(arrays[name][number])
                for name in ("concepts", "confidences", "candidates", "candidate_confidences")
            )
            order = np.argsort(-levels.astype(np.int16), kind="stable")
            candidates, levels = candidates[order], levels[order]
            shot_details = details[number] if details else ShotDetails()
            records.append(
                (
                    *(content_id, number, float(shot.start), float(shot.end)),
                    HalfVector(arrays["vectors"][number]),
                    word_ids[word_ids >= 0].tolist(),
                    confidences[word_ids >= 0].astype(np.float64).tolist(),
                    candidates[levels > 0].tolist(),
                    (-levels[levels > 0].astype(np.int16)).tolist(),
                    *(shot_details.caption, shot_details.thumbnail),
                )
            )
        cursor.executemany(
            "with added as (insert into shots (content, number, starts, ends, vector, concepts, confidences, "
            "candidates, levels) values (%s, %s, %s, %s, %s, %s::int[], %s::real[], %s::int[], "
            "%s::smallint[]) returning id) insert into details select id, %s::text, %s::bytea from added",
            records,
        )

    def _link(self, cursor: Any, file: FileRecord, content_id: int) -> None:
        cursor.execute(
            "insert into files values (%s, %s, %s, %s, %s) on conflict (host, sha256(path)) do update set "
            "size = excluded.size, mtime_ns = excluded.mtime_ns, content = excluded.content",
            (self.host, path_to_bytes(file.path), file.size, file.mtime_ns, content_id),
        )

    @staticmethod
    def _lock_content(cursor: Any, digest: str) -> tuple[int, bool]:
        """The id of a content that is stored already, and whether nothing of it is missing."""
        cursor.execute(
            "select id, error is null and has_details from contents where digest = %s for update", (digest,)
        )
        records = cursor.fetchall()
        if not records:
            raise _RemovedError
        content_id, is_complete = records[0]
        return content_id, is_complete

    def _commit(self, write: Callable[[Any], T]) -> T:
        """Write in a transaction; again, if another one got in the way.

        The revision comes last: writers of one host wait for each other only from there on.
        """
        conflicts: tuple[type[Exception], ...] = (_RemovedError, *self.connection.conflicts)
        for _ in range(_TRIES):
            try:
                with self.connection.transaction() as cursor:
                    result = write(cursor)
                    cursor.execute(
                        "insert into revisions values (%s, 1) on conflict (host) do update set "
                        "number = revisions.number + 1",
                        (self.host,),
                    )
                return result
            except conflicts:
                continue
        raise StoreError(f"{self.label}: others write too much at once. Run the same command again.")


@contextmanager
def open_postgres_for_writing(
    address: PostgresAddress, *, runs: Sequence[RunFingerprint], words: Sequence[str], dim: int
) -> Iterator[PostgresWriter]:
    """Open a library for writing; create it if there is none.

    Raises:
        StoreError: it was indexed with other runs, or the server cannot be used.
    """
    with closing(Connection(address)) as connection:
        connection.create_library(runs, words, dim)
    with closing(PostgresWriter(address)) as library:
        check_runs(library, runs, words)
        yield library
