"""Atomic, durable writes: a file appears complete or not at all, also after a power loss.

A file is on the disk before its name is, and its name before `replacing` returns. So a record that is written
afterwards never speaks of a file that a power loss could undo.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ctsan.errors import StorageError

UNFINISHED = ".unfinished"

_KEPT = ": what is done is kept"
_REMEDIES = {
    errno.ENOSPC: f"Free some space on this disk and run the same command again{_KEPT}.",
    errno.EDQUOT: f"Free some of your quota and run the same command again{_KEPT}.",
    errno.EFBIG: "Write to a file system that takes larger files.",
    errno.ELOOP: "Replace this link by a file: ctsan writes through no link.",
    errno.EROFS: "Name a folder on a disk that can be written to.",
    errno.EACCES: "Name a folder that you may write to, or change its permissions.",
    errno.EPERM: "Name a folder that you may write to, or change its permissions.",
}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`; it replaces `path` unless the block raises, then it is deleted.

    The temporary name is fixed, so the next write overwrites what a killed process left. Processes that may
    write the same path concurrently must hold a lock.

    Raises:
        StorageError: the disk is full, or the folder cannot be written to.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with storage_errors(path):
        make_folder(path.parent)
        try:
            temporary.unlink(missing_ok=True)  # it may be a link that a stranger has put there
            yield temporary
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a new temporary folder; its files are those of `folder` unless the block raises.

    A folder that did not exist appears complete or not at all. Into one that exists, which may be a mount
    point, the files are moved one after the other when all are on the disk, and replace those of the same
    name. A process that is killed in between leaves the folder `UNFINISHED` in it.

    Raises:
        StorageError: the disk is full, or the folder cannot be written to.
    """
    is_new = not folder.exists()
    temporary = folder.with_name(f".{folder.name}.tmp") if is_new else folder / UNFINISHED
    try:
        with storage_errors(folder):
            shutil.rmtree(temporary, ignore_errors=True)
            make_folder(temporary.parent)
            temporary.mkdir()
            yield temporary
            paths = sorted(temporary.rglob("*"))
            for path in (*paths, temporary):
                sync(path)
            if is_new:
                temporary.replace(folder)
                sync(folder.parent)
            else:
                _move(temporary, [path for path in paths if path.is_file()], folder)
    except StorageError as error:  # may name a file in the temporary folder, which is deleted
        what = str(error).replace(str(temporary), str(folder)).replace(_KEPT, "")
        raise StorageError(what) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move(source: Path, files: Sequence[Path], target: Path) -> None:
    places = [target / file.relative_to(source) for file in files]
    for file, place in zip(files, places, strict=True):
        place.parent.mkdir(parents=True, exist_ok=True)
        file.replace(place)
    for folder in sorted({place.parent for place in places} | {target}):
        sync(folder)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, unless they exist. The names of new ones are on the disk then."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # a file is in the way
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error
    for path in missing:
        with suppress(PermissionError):  # a folder that may be written to but not listed cannot be synced
            sync(path.parent)


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):  # some file systems cannot
            raise
    finally:
        os.close(descriptor)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Translate errors of writing at a path that only more space or other permissions can remedy.

    Raises:
        StorageError: in place of such an `OSError`; others pass.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _REMEDIES:
            raise StorageError(f"{path}: {error.strerror}. {_REMEDIES[error.errno]}") from error
        raise


def write_json(path: Path, value: object) -> None:
    """Write indented JSON atomically; the same value gives the same bytes."""
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    try:
        content = text.encode()
    except UnicodeEncodeError:  # a file name that is not UTF-8
        content = (json.dumps(value, indent=1) + "\n").encode()
    with replacing(path) as temporary:
        temporary.write_bytes(content)
