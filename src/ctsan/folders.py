"""Where `ctsan` keeps what it can make again, and how many cores it may use."""

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


def default_folder(kind: str, root: Path) -> Path:
    """Where what is made of a corpus goes, and is looked for, when nobody says: a corpus may be read-only."""
    root = root.resolve()
    place = hashlib.sha256(str(root).encode()).hexdigest()[:8]
    return cache_folder() / kind / f"{root.name}-{place}"


def usable_cores() -> int:
    """The cores that this process may run on, which containers and schedulers keep below the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
