"""Our own format: `clips.jsonl` with one clip per line, or `clips.csv` with one caption per row."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path, PurePath

from ctsan.data.corpus import Clip, Corpus
from ctsan.data.readers.files import files_below, is_clip, lines_of
from ctsan.data.readers.own_csv import csv_rows
from ctsan.data.readers.own_keys import KNOWN_KEYS, current_keys, misspelt_keys
from ctsan.data.splits import parse_split, unknown_split
from ctsan.errors import Problem
from ctsan.text.tokens import tokenize

CAPTION_FILES = ("clips.jsonl", "clips.csv")
MAX_CAPTION_WORDS = 1000  # tagging takes memory and time for all words of a caption together
MAX_REPEATS = 1000
_BOOLEANS = {"true": True, "false": False, "": False}
_EXAMPLE = '{"clip": "a.mp4", "captions": ["a man drives a car"], "split": "train"}'


def recognises(path: Path) -> bool:
    if path.is_dir():
        return any((path / name).is_file() for name in CAPTION_FILES)
    return path.suffix.lower() in {".jsonl", ".csv"}


def read(path: Path, problems: list[Problem]) -> Corpus:
    """Read a folder with a caption file, or the caption file; clip paths are relative to its folder."""
    file = path
    if path.is_dir():
        files = [path / name for name in CAPTION_FILES if (path / name).is_file()]
        file = files[0]
        if len(files) > 1:
            what = "the folder contains both clips.jsonl and clips.csv"
            problems.append(
                Problem(path, None, what, "Keep one of them, or give the path of the file itself.")
            )
    root = file.parent
    rows = csv_rows(file, problems) if file.suffix.lower() == ".csv" else _json_rows(file, problems)
    num_problems_before = len(problems)
    clips: list[Clip] = []
    declared: dict[Path, Clip] = {}
    is_empty = True
    for line, row in rows:
        is_empty = False
        clip = _clip(row, file, line, root, problems)
        if clip is None:
            continue
        first = declared.setdefault(clip.path, clip)
        if first is clip:
            clips.append(clip)
        else:
            _, first_line = first.origin or (file, 0)
            name = f"{clip.id!r}" + (f", the same file as {first.id!r}," if first.id != clip.id else "")
            what = f"clip {name} is declared again, first at line {first_line}"
            problems.append(Problem(file, line, what, "Gather its captions in one line, or rename one clip."))
    if is_empty and len(problems) == num_problems_before:
        problems.append(Problem(file, None, "the file declares no clip", f"Write lines such as {_EXAMPLE}."))
    unlisted: list[Problem] = []
    notes = _undeclared_note(path, declared, unlisted) if path.is_dir() else ()
    return Corpus(
        name=root.resolve().name,
        root=root,
        format="own",
        clips=tuple(clips),
        notes=notes,
        unlisted=tuple(unlisted),
    )


def _undeclared_note(folder: Path, declared: Collection[Path], unlisted: list[Problem]) -> tuple[str, ...]:
    """A note on clips in the folder that the caption file does not declare."""
    undeclared = [path for path in files_below(folder, unlisted) if path not in declared and is_clip(path)]
    if not undeclared:
        return ()
    number = (
        "1 clip in the folder is" if len(undeclared) == 1 else f"{len(undeclared)} clips in the folder are"
    )
    return (f"{number} not in the caption file, the first is {undeclared[0].relative_to(folder)}.",)


def _json_rows(file: Path, problems: list[Problem]) -> Iterator[tuple[int, dict[str, object]]]:
    for line, text in lines_of(file, problems):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = (
                f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
            )
            problems.append(Problem(file, line, f"the line is not JSON ({reason})", f"Write {_EXAMPLE}."))
            continue
        if isinstance(row, dict):
            row = current_keys(row, file)
            problems += misspelt_keys(row, file, line)
            yield line, row
        else:
            what = f"the line is a JSON {_json_name(row)}, not an object"
            problems.append(Problem(file, line, what, f"Write {_EXAMPLE}."))


def _clip(row: dict[str, object], file: Path, line: int, root: Path, problems: list[Problem]) -> Clip | None:
    """The clip that a row declares; None, with its problems, if its name or split is not valid."""

    def problem(what: str, remedy: str) -> None:
        problems.append(Problem(file, line, what, remedy))

    is_valid = True
    name = row.get("clip")
    if not isinstance(name, str) or not name.strip():
        fault = 'no "clip"' if name is None else f'a "clip" that is not a file name ({name!r})'
        problem(f"the line has {fault}", f'Name the clip\'s file: "clip": "a.mp4", from the folder {root}.')
        is_valid = False
    elif ".." in PurePath(name).parts:
        problem(
            f"clip {name!r} leaves the corpus folder", "Move it into the folder, or give its absolute path."
        )
        is_valid = False

    captions = row.get("captions")
    if captions is None:
        caption = row.get("caption")  # a single one, like the column of clips.csv
        captions = [] if caption is None else [caption]
    if not isinstance(captions, list) or not all(isinstance(caption, str) for caption in captions):
        problem('"captions" is not a list of strings', 'Write "captions": ["one sentence", "another"].')
        captions = []
    for number, caption in enumerate(captions, start=1):
        words = tokenize(caption)
        if not words:
            problem(
                f"caption {number} of {name!r} has no words ({caption!r})", "Delete it or write a sentence."
            )
        elif len(words) > MAX_CAPTION_WORDS:
            what = f"caption {number} of {name!r} has {len(words):,} words"
            problem(
                what, f"Write a sentence, or several captions; one has at most {MAX_CAPTION_WORDS:,} words."
            )

    split_name, split = row.get("split"), None
    if split_name is not None:
        split = parse_split(split_name) if isinstance(split_name, str) else None
        if split is None:
            problems.append(unknown_split(file, line, split_name, name))
            is_valid = False

    source = row.get("source")
    if source is not None and (not isinstance(source, str) or not source):
        problem(
            f'"source" is not a name ({source!r})', "Write it as a string, the same for clips of one video."
        )
        source = None

    repeat = row.get("repeat", 1)
    if isinstance(repeat, str) and repeat.isdecimal() and len(repeat) < 10:  # from clips.csv
        repeat = int(repeat)
    if not isinstance(repeat, int) or not 1 <= repeat <= MAX_REPEATS:
        problem(
            f'"repeat" is not a whole number from 1 to {MAX_REPEATS} ({repeat!r})',
            "Leave it out, or correct it.",
        )
        repeat = 1

    external = _BOOLEANS.get(str(row.get("external", False)).lower())  # a string in clips.csv
    if external is None:
        problem(f'"external" is neither true nor false ({row["external"]!r})', "Write true or false.")

    if not is_valid or not isinstance(name, str):
        return None
    return Clip(
        id=name,
        path=root / name,
        captions=tuple(caption for caption in captions if tokenize(caption)),
        split=split,
        source=source or name,
        repeat=repeat,
        external=bool(external),
        extra={key: value for key, value in row.items() if key not in KNOWN_KEYS},
        origin=(file, line),
    )


def _json_name(value: object) -> str:
    names = {list: "list", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
