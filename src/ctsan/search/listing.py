"""Find the clips below folders, and tell the indexed ones that are gone from those that are out of reach."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ctsan.data.readers.files import cannot_read, files_below, is_clip
from ctsan.errors import Problem
from ctsan.io.messages import count
from ctsan.video.suffixes import COMPANION_SUFFIXES, HEIC_SUFFIXES, reads_heic

_MOST_KINDS = 8  # suffixes of skipped files that are named in a line
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


@dataclass(frozen=True, slots=True)
class Listing:
    """What is below the given folders."""

    roots: list[Path]  # the given folders, resolved
    clips: list[Path]  # videos and pictures, sorted and without duplicates
    unlisted: list[Path]  # folders that could not be listed
    problems: list[Problem] = field(default_factory=list)  # of folders that could not be listed, and of pipes
    skipped: Counter[str] = field(
        default_factory=Counter
    )  # other files by suffix, without companions of clips
    unread: list[Path] = field(
        default_factory=list
    )  # those of them that an extra would read: they are not gone


def list_clips(folders: Sequence[Path]) -> Listing:
    """Videos and pictures below folders, by name. A missing folder counts as empty.

    Other files are counted by suffix; text, subtitles and other companions of clips are not.
    """
    roots = [_resolved(folder) for folder in folders]
    unlisted: list[Problem] = []
    clips: set[Path] = set()
    others: set[Path] = set()
    problems: list[Problem] = []
    skipped_suffixes = frozenset() if reads_heic() else HEIC_SUFFIXES
    for root in roots:
        for path in _files(root, unlisted):
            suffix = path.suffix.lower()
            if suffix in skipped_suffixes or not is_clip(path):
                if suffix not in COMPANION_SUFFIXES:
                    others.add(path)
            elif _is_special(path):
                problems.append(Problem(path, None, "it is not a regular file", "Leave it out."))
            else:
                clips.add(path)
    return Listing(
        roots,
        sorted(clips),
        [problem.file for problem in unlisted],
        [*unlisted, *problems],
        skipped=Counter(path.suffix.lower() for path in others),
        unread=sorted(path for path in others if path.suffix.lower() in HEIC_SUFFIXES),
    )


def skipped_line(skipped: Mapping[str, int]) -> str:
    """Files that were passed over in one line: `8 files skipped: .mp3 5, .zip 3`; empty without any."""
    if not skipped:
        return ""
    kinds = [
        f"{suffix or 'no ending'} {number:,}"
        for suffix, number in sorted(skipped.items(), key=lambda item: (-item[1], item[0]))
    ]
    shown = (
        kinds if len(kinds) <= _MOST_KINDS else [*kinds[:_MOST_KINDS], f"{len(kinds) - _MOST_KINDS} others"]
    )
    line = f"{count(sum(skipped.values()), 'file')} skipped: {', '.join(shown)}"
    if not HEIC_SUFFIXES.isdisjoint(skipped) and not reads_heic():
        line += ". HEIC pictures are read with: pip install 'ctsan[heic]'"
    return line


def find_gone(
    indexed: Iterable[Path], listing: Listing, unmounted: Collection[Path], problems: list[Problem]
) -> list[Path]:
    """Indexed files below the listed folders that are no clips any more.

    A file is not gone if its folder cannot be listed, or was on a disk that is not mounted now.

    Args:
        unmounted: mount points without their disk, see `find_unmounted`.
        problems: gets an entry for each folder that is out of reach, unless the listing has it.
    """
    clips, gone = {*listing.clips, *listing.unread}, []
    out_of_reach: dict[Path, Problem] = {}
    for path in indexed:
        if path in clips or not _is_below(path, listing.roots) or _is_below(path, listing.unlisted):
            continue
        error = _access_error(path)
        if error is None or error.errno in _GONE:
            if mount := _mount_of(path, unmounted):
                out_of_reach.setdefault(mount, _not_mounted(mount))
            else:
                gone.append(path)
        else:
            out_of_reach.setdefault(path.parent, cannot_read(path.parent, error))
    problems += out_of_reach.values()
    return gone


def find_missing(paths: Iterable[Path], unmounted: Collection[Path]) -> list[Path]:
    """Those of the paths that do not exist, and are not on a disk that is not mounted now."""
    return [
        path
        for path in paths
        for error in [_access_error(path)]
        if error is not None and error.errno in _GONE and not _mount_of(path, unmounted)
    ]


def find_unmounted(mounts: Iterable[Path]) -> list[Path]:
    """Former mount points that hold no disk now: they are missing or empty."""
    return [mount for mount in mounts if not _is_mount(mount) and _is_empty(mount)]


def mount_points(clips: Iterable[Path]) -> list[Path]:
    """The mount points that clips are below, without the root of the file system."""

    @cache
    def above(folder: Path) -> Path | None:
        if folder == folder.parent:
            return None
        return folder if _is_mount(folder) else above(folder.parent)

    folders = {_resolved(folder) for folder in {path.parent for path in clips}}
    return sorted({mount for folder in folders if (mount := above(folder))})


def never_indexed(listing: Listing, indexed: Iterable[Path]) -> list[Problem]:
    """Given folders that do not exist and that the library has no files of."""
    return [
        Problem(root, None, "there is no such folder", "Check its name.")
        for root in find_missing(listing.roots, ())
        if not any(path.is_relative_to(root) for path in indexed)
    ]


def _files(root: Path, unlisted: list[Problem]) -> Iterator[Path]:
    try:
        status = root.stat()
    except OSError as error:
        if error.errno not in _GONE:
            unlisted.append(cannot_read(root, error))
        return
    if stat.S_ISDIR(status.st_mode):
        yield from files_below(root, unlisted)
    else:
        yield root


def _is_special(path: Path) -> bool:
    """Whether a path is a pipe, a socket or a device, which would block a reader, or a link to one."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):  # said when it is read
        return False


def _access_error(path: Path) -> OSError | None:
    try:
        path.stat()
    except OSError as error:
        return error
    return None


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike `Path.resolve`, also of a loop of links


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _mount_of(path: Path, mounts: Collection[Path]) -> Path | None:
    """The mount point that a file is below, also through a link."""
    if not mounts:
        return None
    folder = _resolved(path.parent)
    return next((mount for mount in mounts if folder.is_relative_to(mount)), None)


def _not_mounted(mount: Path) -> Problem:
    return Problem(
        mount,
        None,
        "the disk with indexed files is not mounted",
        "Mount it, or drop its files with --drop-unmounted.",
    )


def _is_mount(folder: Path) -> bool:
    return os.path.ismount(folder)


def _is_empty(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError as error:
        return error.errno in _GONE
