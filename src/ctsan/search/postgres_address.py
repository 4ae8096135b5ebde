"""Where a library in PostgreSQL is, and whose files this machine's are."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from ctsan.errors import UsageError

SCHEMES = ("postgresql", "postgres")

_HOST_VARIABLE = "CTSAN_HOST"
_MAX_SCHEMA_BYTES = 63  # of a name in PostgreSQL
_PREFIX = "ctsan_"


def is_connection_string(store: str) -> bool:
    """Whether a store is a connection string, such as postgresql://user@host/database, and not a folder."""
    return store.partition("://")[0] in SCHEMES and "://" in store


def host_label() -> str:
    """The name under which the files of this machine are stored: CTSAN_HOST, or else the host name.

    Machines that have the same files under the same paths may share one.
    """
    return os.environ.get(_HOST_VARIABLE) or socket.gethostname()


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A library in a database: a schema of its own.

    Args:
        url: a connection string of libpq as URL; it may hold a password, so it is never shown.
        name: of the library.

    Raises:
        UsageError: the name is too long, or the URL is none.
    """

    url: str = field(repr=False)
    name: str

    def __post_init__(self) -> None:
        if len(self.schema.encode()) > _MAX_SCHEMA_BYTES or "\0" in self.name:
            raise UsageError(
                f"{self.name!r} cannot be the name of a library in PostgreSQL: it has more than "
                f"{_MAX_SCHEMA_BYTES - len(_PREFIX)} bytes. Use a shorter one."
            )
        try:
            _ = urlsplit(self.url).port
        except ValueError:
            raise UsageError(
                "--store: this is no connection string. It is postgresql://USER@HOST:PORT/DATABASE."
            ) from None

    @property
    def schema(self) -> str:
        return f"{_PREFIX}{self.name}"

    @property
    def store(self) -> str:
        """The connection string without its password and options, for messages and commands."""
        parts = urlsplit(self.url)
        user = f"{unquote(parts.username)}@" if parts.username else ""
        host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
        return f"postgresql://{user}{host}{parts.path}"

    def __str__(self) -> str:
        return f"{self.store} (library {self.name})"
