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


def default_folder(kind: str, *corpora: Path) -> Path:
    """Where what is made of corpora goes, and is looked for, when nobody says: a corpus may be read-only."""
    paths = [corpus.resolve() for corpus in corpora]
    place = hashlib.sha256("\n".join(map(str, paths)).encode(errors="surrogatepass")).hexdigest()[:8]
    name = paths[0].name if len(paths) == 1 else f"{paths[0].name}-and-{len(paths) - 1}-more"
    return cache_folder() / kind / f"{name}-{place}"


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
