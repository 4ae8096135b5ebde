"""Tests of permissions, also where the tests run as root, who has all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


def make_reachable(folder: Path) -> None:
    """Let other users enter the folder: pytest's temporary folders are for their owner alone."""
    for path in [folder, *folder.parents]:
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Run a block as a user whom permissions bind: as nobody if the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
