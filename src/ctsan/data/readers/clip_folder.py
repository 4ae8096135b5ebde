"""Clips without captions, to caption or to search: a folder of clips, or a single clip."""

from __future__ import annotations

from pathlib import Path

from ctsan.data.corpus import Clip, Corpus
from ctsan.data.readers.files import files_below, is_clip
from ctsan.errors import Problem
from ctsan.video.suffixes import CLIP_SUFFIXES


def recognises(path: Path) -> bool:
    """Any folder, so this reader is tried last, or a file with the suffix of a clip."""
    return path.is_dir() or path.suffix.lower() in CLIP_SUFFIXES


def read(path: Path, problems: list[Problem]) -> Corpus:
    """Every clip below the folder, sorted by id, which is its path relative to the folder."""
    root = path if path.is_dir() else path.parent
    unlisted: list[Problem] = []
    files = list(files_below(root, unlisted)) if path.is_dir() else [path]
    names = sorted(file.relative_to(root).as_posix() for file in files if file == path or is_clip(file))
    if not names and unlisted:
        problems += unlisted
        unlisted = []
    elif not names:
        what = "the folder contains neither clips nor a caption file" if files else "the folder is empty"
        remedy = (
            "Put videos or pictures into it (such as .mp4 and .jpg), or a clips.jsonl, or the files of "
            "LSMDC16, MSR-VTT or MSVD."
        )
        problems.append(Problem(path, None, what, remedy))
    clips = tuple(Clip(id=name, path=root / name, source=name) for name in names)
    return Corpus(name=path.resolve().name, root=root, format="clips", clips=clips, unlisted=tuple(unlisted))
