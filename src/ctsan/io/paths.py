"""Default folders for caches and libraries."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_folder() -> Path:
    """The user's cache folder for ctsan; the environment variable CTSAN_CACHE overrides it."""
    override = os.environ.get("CTSAN_CACHE")
    if override:
        return Path(override).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("ctsan", appauthor=False))


def default_folder(kind: str, *corpora: Path) -> Path:
    """The default folder for files derived from corpora, in the cache because a corpus may be read-only.

    Args:
        kind: the subfolder of the cache.
    """
    paths = [corpus.resolve() for corpus in corpora]
    digest = hashlib.sha256("\n".join(map(str, paths)).encode(errors="surrogatepass")).hexdigest()[:8]
    name = paths[0].name if len(paths) == 1 else f"{paths[0].name}-and-{len(paths) - 1}-more"
    return cache_folder() / kind / f"{name}-{digest}"


def library_folder(name: str, store: Path | None = None) -> Path:
    """The folder of a library: in `store`, or by default in the user's data folder.

    Raises:
        UsageError: the name is not valid as a folder name.
    """
    from ctsan.errors import UsageError

    if not name or name != Path(name).name or name.startswith("."):
        raise UsageError(f"{name!r} cannot be the name of a library. Use letters, digits and dashes.")
    if store is None:
        import platformdirs

        store = Path(platformdirs.user_data_dir("ctsan", appauthor=False)) / "libraries"
    return store / name
