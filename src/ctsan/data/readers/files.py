"""File access shared by the readers: numbered lines, and the clips below a folder."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ctsan.errors import Problem
from ctsan.io.reading import DamagedFileError, check_regular, is_text
from ctsan.video.suffixes import CLIP_SUFFIXES, VIDEO_SUFFIXES

SAVE_AS_UTF8 = "Save the file as UTF-8."
MAX_LINE_BYTES = 16 << 20


def lines_of(path: Path, problems: list[Problem]) -> Iterator[tuple[int, str]]:
    """Numbered lines without line ends; a line that is not UTF-8 is a problem, its bad bytes are replaced.

    Only a line feed ends a line, so that other Unicode separators in a sentence do not shift line numbers.
    """
    try:
        check_regular(path)
        with path.open("rb") as stream:
            for number, raw in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES), b""), start=1):
                if len(raw) == MAX_LINE_BYTES:
                    what = f"the line is longer than {MAX_LINE_BYTES >> 20} MB"
                    problems.append(Problem(path, number, what, "Write one clip, item or sentence a line."))
                    return
                if number == 1:
                    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                        problems.append(Problem(path, None, "the file is UTF-16, not UTF-8", SAVE_AS_UTF8))
                        return
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                raw = raw.rstrip(b"\r\n")
                try:
                    yield number, raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    what = (
                        f"the line is not UTF-8 (byte 0x{raw[error.start]:02X} at position {error.start + 1})"
                    )
                    problems.append(Problem(path, number, what, SAVE_AS_UTF8))
                    yield number, raw.decode("utf-8", errors="replace")
    except DamagedFileError as error:
        problems.append(Problem(path, None, str(error), "Name a file that you may read."))
    except OSError as error:
        problems.append(cannot_read(path, error))


def cannot_read(path: Path, error: OSError) -> Problem:
    return Problem(path, None, f"it cannot be read ({error.strerror})", "Check its permissions.")


def cannot_list(folder: Path, error: OSError) -> Problem:
    return Problem(folder, None, f"it cannot be listed ({error.strerror})", "Check its permissions.")


def files_below(folder: Path, unlisted: list[Problem], *, depth: int | None = None) -> Iterator[Path]:
    """Files in a folder and its subfolders, breadth first, then by name.

    Hidden files and folders are skipped; links to folders are followed, but no folder is entered twice.

    Args:
        unlisted: gets a problem for each folder that cannot be listed; the others are listed all the same.
        depth: how many levels of subfolders to enter; None enters all.
    """
    level, visited = [folder], {folder.resolve()}
    while level:
        next_level: list[Path] = []
        for parent in level:
            try:
                with os.scandir(parent) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except OSError as error:
                unlisted.append(cannot_list(parent, error))
                continue
            for entry in entries:
                path = parent / entry.name
                if entry.name.startswith("."):
                    continue
                if not is_folder(path):
                    yield path
                elif (real := path.resolve()) not in visited:
                    visited.add(real)
                    next_level.append(path)
        if depth is not None:
            if depth == 0:
                return
            depth -= 1
        level = next_level


def is_file(path: Path) -> bool:
    """Whether the path is a file; False if it is inaccessible or not a valid name."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether the path is a folder; False if it is inaccessible, or a loop of links."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def exists(path: Path) -> bool:
    """Whether there is anything at the path; False if it is inaccessible or not a valid name."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_clip(path: Path) -> bool:
    """Whether a file has the name of a video or a picture. A `.ts` that is text is TypeScript."""
    suffix = path.suffix.lower()
    if suffix != ".ts":
        return suffix in CLIP_SUFFIXES
    try:
        check_regular(path)
        if path.stat().st_size == 0:  # files of /proc, which may wait for their content, have no size
            return True
        with path.open("rb") as file:
            return not is_text(file.read(4096))
    except (DamagedFileError, OSError):
        return True  # said when it is read


def videos_by_stem(root: Path, unlisted: list[Problem]) -> dict[str, Path]:
    """Every video at most two folders below `root`, by its name without suffix; the shallowest wins.

    Two levels reach `root/videos/movie/clip.avi` but not deeper folders, which often hold extracted frames.

    Args:
        unlisted: as of `files_below`.
    """
    videos: dict[str, Path] = {}
    for path in files_below(root, unlisted, depth=2):
        if path.suffix.lower() in VIDEO_SUFFIXES:
            videos.setdefault(path.stem, path)
    return videos
