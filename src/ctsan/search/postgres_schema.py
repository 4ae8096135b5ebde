"""Connect to PostgreSQL with pgvector, and create the tables of a library: a schema in the database.

Of each shot, `candidates` are its surest concept words, the surest first, and `levels` their confidences,
negated, so that they ascend: `width_bucket` then counts those from some level on.

Several machines write at once. Nothing is locked for longer than one transaction, and the server ends a
transaction whose client is silent for a minute. A killed client leaves nothing that is half written.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ctsan.errors import StorageError, StoreError, did_you_mean
from ctsan.io.extras import extra
from ctsan.search.library_format import RunFingerprint, runs_to_json
from ctsan.search.postgres_address import PostgresAddress

VERSION = 1
_MIN_PGVECTOR = (0, 7)  # the first with halfvec
_ITERATIVE_SCAN = (0, 8)
_CONNECT_SECONDS = 10
_SESSION = (
    "set idle_in_transaction_session_timeout = '60s'",
    "set client_encoding = 'UTF8'",
    "set client_min_messages = 'warning'",
)
_TABLES = """
create schema {schema};
create table {schema}.about (name text primary key, value text not null);
create table {schema}.revisions (host text primary key, number bigint not null);
create table {schema}.contents (
    id bigint generated always as identity primary key, digest text unique not null, error bytea, reader text,
    has_details boolean not null
);
create table {schema}.shots (
    id bigint generated always as identity primary key,
    content bigint not null references {schema}.contents on delete cascade, number integer not null,
    starts double precision not null, ends double precision not null, vector {types}.halfvec({dim}) not null,
    concepts integer[] not null, confidences real[] not null, candidates integer[] not null,
    levels smallint[] not null, unique (content, number)
);
create index shots_by_vector on {schema}.shots using hnsw (vector {types}.halfvec_ip_ops);
create table {schema}.details (
    shot bigint primary key references {schema}.shots on delete cascade, caption text, thumbnail bytea
);
create table {schema}.files (
    host text not null, path bytea not null, size bigint not null, mtime_ns bigint not null,
    content bigint not null references {schema}.contents
);
create unique index files_by_path on {schema}.files (host, sha256(path));
create index files_of_content on {schema}.files (content);
create table {schema}.mounts (host text not null, path bytea not null);
create unique index mounts_by_path on {schema}.mounts (host, sha256(path));
"""


class Connection:
    """A connection to the database of a library. It is made again after it was lost, on the next `ready`.

    Raises:
        StoreError: the server cannot be reached or has no usable pgvector.
        UsageError: the packages of the extra are not installed.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self.has_iterative_scan = False
        self._has_types = False
        with extra("postgres", "A library in PostgreSQL"):
            import pgvector.psycopg
            import psycopg
        self._psycopg, self._register = psycopg, pgvector.psycopg.register_vector
        self._connection: Any = self._connect()

    def ready(self) -> None:
        """Connect again if the connection was lost."""
        if self._connection.closed:
            self._connection = self._connect()

    @property
    def is_closed(self) -> bool:
        return bool(self._connection.closed)

    def close(self) -> None:
        self._connection.close()

    def query(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """All rows of an SQL query; an empty list for a statement without rows.

        Raises:
            StoreError: the connection was lost, or the library is damaged.
            StorageError: the disk of the server is full.
        """
        with self.errors(), self._connection.cursor(binary=True) as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Yield a cursor; what it does is committed at the end, or undone by an exception."""
        self.ready()
        with self.errors(), self._connection.transaction(), self._connection.cursor(binary=True) as cursor:
            yield cursor

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the errors of PostgreSQL with the library and a remedy."""
        codes = self._psycopg.errors
        try:
            yield
        except self.conflicts:
            raise  # callers try again
        except codes.DiskFull as error:
            raise StorageError(
                f"{self.address}: the disk of the server is full. Free some space there and run the same "
                "command again: what is done is kept."
            ) from error
        except codes.InsufficientPrivilege as error:
            raise StoreError(
                f"{self.address}: {_first_line(error)}. Use a role that may do this, or ask who runs the "
                "server to grant it."
            ) from error
        except (self._psycopg.OperationalError, self._psycopg.InterfaceError) as error:
            raise StoreError(
                f"{self.address}: the connection was lost ({_first_line(error)}). What is stored is kept: "
                "run the same command again when the server answers."
            ) from error
        except self._psycopg.Error as error:
            raise self.damage(_first_line(error)) from error

    @property
    def conflicts(self) -> tuple[type[Exception], ...]:
        """Errors after which a transaction is tried again: another one was faster."""
        codes = self._psycopg.errors
        return (codes.ForeignKeyViolation, codes.SerializationFailure, codes.DeadlockDetected)

    def damage(self, what: str) -> StoreError:
        return StoreError(
            f"{self.address}: it is damaged ({what}). Restore the database, or {self.how_to_delete} and "
            "index again."
        )

    @property
    def how_to_delete(self) -> str:
        return f"run in the database: DROP SCHEMA {self._quoted(self.address.schema)} CASCADE"

    def has_library(self) -> bool:
        return self.address.name in self.libraries()

    def libraries(self) -> list[str]:
        """Names of the libraries in the database."""
        records = self.query(
            "select substr(nspname, 7) from pg_namespace where starts_with(nspname, 'ctsan_') "
            "and to_regclass(format('%I.about', nspname)) is not null order by 1"
        )
        return [str(name) for (name,) in records]

    def use_library(self) -> None:
        """Let queries refer to the tables of the library.

        Raises:
            StoreError: there is none of this name, or it is of another version.
        """
        libraries = self.libraries()
        name = self.address.name
        if name not in libraries:
            hint = did_you_mean(name, libraries) or (
                f"There are {', '.join(libraries)}. " if libraries else ""
            )
            raise StoreError(
                f"{self.address}: there is no such library. {hint}Make it: ctsan index FOLDER --library "
                f"{name} --store {self.address.store}"
            )
        self._use_types()
        [(version,)] = self.query("select value from about where name = 'version'") or [("none",)]
        if version != str(VERSION):
            raise StoreError(
                f"{self.address}: the library has version {version}, and this ctsan reads version {VERSION}. "
                f"Use the ctsan that made it, or {self.how_to_delete} and index again."
            )

    def create_library(self, runs: Sequence[RunFingerprint], words: Sequence[str], dim: int) -> None:
        """Create the tables, unless there are some. Of several machines, one does.

        Raises:
            StoreError: the server has no usable pgvector, or it may not be done.
        """
        if self.has_library():
            return
        self._create_extension()
        about = {
            "version": str(VERSION),
            "runs": runs_to_json(runs),
            "words": json.dumps(list(words)),
            "dim": str(dim),
        }
        schema = self._quoted(self.address.schema)
        with self.transaction() as cursor:
            cursor.execute(
                "select pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"ctsan {self.address.schema}",)
            )
            cursor.execute("select 1 from pg_namespace where nspname = %s", (self.address.schema,))
            if cursor.fetchall():
                return
            types = self._quoted(self._extension()[1])
            for statement in _TABLES.format(schema=schema, types=types, dim=int(dim)).split(";\n"):
                if statement.strip():
                    cursor.execute(statement)
            cursor.executemany(f"insert into {schema}.about values (%s, %s)", list(about.items()))

    def _create_extension(self) -> None:
        """Switch pgvector on in the database, if it is not.

        Raises:
            StoreError: the server has no pgvector, or it may not be switched on.
        """
        if self._extension()[0] is not None:
            self._check_version()
            return
        try:
            self._connection.execute("create extension if not exists vector")
        except self._psycopg.errors.InsufficientPrivilege:
            raise StoreError(
                f"{self.address}: pgvector is not switched on in this database, and this role may not do it. "
                "Ask who runs the server to run there: CREATE EXTENSION vector"
            ) from None
        except self._psycopg.errors.UniqueViolation:  # another machine did it in this moment
            pass
        except (self._psycopg.errors.FeatureNotSupported, self._psycopg.errors.UndefinedFile):
            raise StoreError(
                f"{self.address}: the server has no pgvector. Install it there, on Debian as "
                "postgresql-NN-pgvector, and run the same command again."
            ) from None
        self._check_version()

    def _check_version(self) -> None:
        version, _ = self._extension()
        if version is None or _numbers(version) < _MIN_PGVECTOR:
            least = ".".join(map(str, _MIN_PGVECTOR))
            raise StoreError(
                f"{self.address}: it has pgvector {version or 'nowhere'}, and {least} or later is needed. "
                "Install a newer one in the server, and run in the database: ALTER EXTENSION vector UPDATE"
            )

    def _extension(self) -> tuple[str | None, str]:
        """Version and schema of pgvector in the database; None if it is not switched on."""
        records = self.query(
            "select extversion, nspname from pg_extension join pg_namespace n on n.oid = extnamespace "
            "where extname = 'vector'"
        )
        return (str(records[0][0]), str(records[0][1])) if records else (None, "public")

    def _use_types(self) -> None:
        self._check_version()
        version, types = self._extension()
        schema = self.address.schema
        self.query(f"set search_path to {self._quoted(schema)}, {self._quoted(types)}, pg_catalog")
        with self.errors():
            self._register(self._connection)
        self.has_iterative_scan = version is not None and _numbers(version) >= _ITERATIVE_SCAN
        self._has_types = True

    def _connect(self) -> Any:
        try:
            connection = self._psycopg.connect(
                self.address.url,
                autocommit=True,
                connect_timeout=_CONNECT_SECONDS,
                application_name="ctsan",
                keepalives_idle=30,
            )
        except (self._psycopg.OperationalError, self._psycopg.ProgrammingError) as error:
            raise StoreError(
                f"{self.address}: the server cannot be reached ({_first_line(error)}). Check the address, "
                "the user and the password, and whether the server runs and lets this machine in."
            ) from None
        weakref.finalize(self, connection.close)  # also if nobody closes the library
        with self.errors():
            for statement in _SESSION:
                connection.execute(statement)
        self._connection = connection
        if self._has_types:
            self._use_types()
        return connection

    def _quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
