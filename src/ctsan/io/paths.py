"""Default folders for caches and libraries."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

CACHE_TAG = "CACHEDIR.TAG"  # backup programs leave out folders with this file: https://bford.info/cachedir/
_TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# The cache of ctsan: see 'ctsan cache'.\n"


def cache_folder() -> Path:
    """The user's cache folder for ctsan; the environment variable CTSAN_CACHE overrides it.

    It is made if it can be, for its owner only. The permissions of a folder that was there are changed only
    if it is the default one: another may be shared on purpose.
    """
    override = os.environ.get("CTSAN_CACHE")
    if override:
        folder = Path(override).expanduser()
    else:
        import platformdirs

        folder = Path(platformdirs.user_cache_dir("ctsan", appauthor=False))
    with suppress(OSError):  # said where something is written
        _make_private(folder, is_default=not override)
    return folder


def _make_private(folder: Path, *, is_default: bool) -> None:
    """Make a cache folder of mode 700 with a tag; one with files of others gets no tag."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        is_ours = True
    else:
        is_ours = is_default or not any(folder.iterdir())
    if is_default and folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    if is_ours and not (folder / CACHE_TAG).exists():
        (folder / CACHE_TAG).write_text(_TAG_TEXT, encoding="utf-8")


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
