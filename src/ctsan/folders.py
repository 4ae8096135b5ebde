"""Where `ctsan` keeps what it can make again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_folder() -> Path:
    """The user's cache folder for ctsan; the environment variable CTSAN_CACHE names another."""
    chosen = os.environ.get("CTSAN_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("ctsan", appauthor=False))


def default_folder(kind: str, corpus: Path) -> Path:
    """Where what is made of a corpus goes, and is looked for, when nobody says: a corpus may be read-only."""
    path = corpus.resolve()
    place = hashlib.sha256(str(path).encode(errors="surrogatepass")).hexdigest()[:8]
    return cache_folder() / kind / f"{path.name}-{place}"


def library_folder(name: str, store: Path | None = None) -> Path:
    """Where a library is kept: in `store`, or in the user's data folder.

    Raises:
        UsageError: the name is none for a folder.
    """
    from ctsan.errors import UsageError

    if not name or name != Path(name).name or name.startswith("."):
        raise UsageError(f"{name!r} cannot be the name of a library. Use letters, digits and dashes.")
    if store is None:
        import platformdirs

        store = Path(platformdirs.user_data_dir("ctsan", appauthor=False)) / "libraries"
    return store / name
