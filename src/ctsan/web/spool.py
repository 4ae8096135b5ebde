"""The folder of uploads: private, locked while its server lives, made again when something removes it."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)

_PREFIX = "ctsan-uploads-"


class Spool:
    """A temporary folder with an exclusive lock on it.

    The kernel drops the lock when the process ends, however it ends. So the next server knows which folders
    nobody uses, and removes them.

    Raises:
        OSError: the folder for temporary files cannot be written to.
    """

    def __init__(self) -> None:
        _remove_stale_folders()
        self._lock: int | None  # the open folder; None after making it again has failed
        self._folder, self._lock = _make_locked_folder()

    def new_file(self) -> Path:
        """An unused path in the folder, which is made anew if it is gone or no longer private.

        Raises:
            OSError: the folder for temporary files cannot be written to.
        """
        if not self._is_intact():
            logger.warning("%s: the folder of uploads is gone. It is made again.", self._folder)
            self._unlock()
            self._folder, self._lock = _make_locked_folder()
        return self._folder / secrets.token_urlsafe(16)

    def close(self) -> None:
        """Remove the folder with all uploads."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._unlock()

    def _is_intact(self) -> bool:
        return self._lock is not None and _is_same(self._folder, self._lock)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _make_locked_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))  # mode 0700
        # Until it is locked, another server that starts may take it for a stale one: then make another.
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        with suppress(OSError):  # a file system without locks: there, no server finds stale folders
            fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_same(folder, lock):
            return folder, lock
        os.close(lock)


def _remove_stale_folders() -> None:
    """Remove the folders of this user's servers that were killed, and no others."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's, no folder, or removed meanwhile
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # its server lives
            continue
        finally:
            os.close(lock)


def _is_same(folder: Path, descriptor: int) -> bool:
    """Whether a path still leads to an open folder that only its owner may enter."""
    try:
        found, opened = folder.lstat(), os.fstat(descriptor)
    except OSError:
        return False
    return os.path.samestat(found, opened) and stat.S_IMODE(found.st_mode) & 0o077 == 0
