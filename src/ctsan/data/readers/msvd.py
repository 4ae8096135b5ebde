"""MSVD: short YouTube clips `ID_start_end.avi`, each with about forty sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ctsan.data.corpus import Clip, Corpus, Split
from ctsan.data.readers.files import lines_of, videos_by_stem
from ctsan.data.readers.tables import table_rows
from ctsan.errors import Problem
from ctsan.text.tokens import tokenize

_TEXT_FILE = "AllVideoDescriptions.txt"
_TABLE_FILES = ("MSR Video Description Corpus.csv", "video_corpus.csv")
FILES: tuple[str, ...] = (_TEXT_FILE, *_TABLE_FILES)  # the first that exists is read
_MAPPING_FILE = "youtube_mapping.txt"
_LAST_TRAIN, _LAST_VAL = 1200, 1300  # the common split, by the numbers of the mapping
_COLUMNS = ("VideoID", "Start", "End", "Language", "Description")
_CLIP_ID = re.compile(r"(?P<video>\S+)_\d+_\d+")  # a video id may contain "_" and "-"
_LINE = "Write ID_start_end and a sentence, separated by a space, or delete the line."


def recognises(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in FILES)


def read(path: Path, problems: list[Problem]) -> Corpus:
    """Read the text file, or else the table's English rows; splits come from the mapping if it exists."""
    file = next(path / name for name in FILES if (path / name).is_file())
    rows = _text_rows(file, problems) if file.name == _TEXT_FILE else _table_rows(file, problems)
    first_line: dict[str, int] = {}
    sentences: dict[str, list[str]] = {}
    for line, clip, sentence in rows:
        first_line.setdefault(clip, line)
        sentences.setdefault(clip, []).append(sentence)

    numbers = _mapping(path / _MAPPING_FILE, problems) if (path / _MAPPING_FILE).is_file() else {}
    clip_ids = [clip for clip in sentences if not numbers or clip in numbers]
    left_out = len(sentences) - len(clip_ids)
    unlisted: list[Problem] = []
    videos = videos_by_stem(path, unlisted)
    clips = []
    for clip in clip_ids:
        number = numbers.get(clip)
        match = _CLIP_ID.fullmatch(clip)
        clips.append(
            Clip(
                id=clip,
                path=videos.get(clip) or videos.get(f"vid{number}") or path / "YouTubeClips" / f"{clip}.avi",
                captions=tuple(sentences[clip]),
                split=_common_split(number) if number else None,
                source=match["video"] if match else clip,
                origin=(file, first_line[clip]),
            )
        )
    notes = (
        (f"{left_out} of {len(sentences)} clips are left out, because {_MAPPING_FILE} does not list them.",)
        if left_out
        else ()
    )
    return Corpus(
        name="MSVD", root=path, format="msvd", clips=tuple(clips), notes=notes, unlisted=tuple(unlisted)
    )


def _text_rows(file: Path, problems: list[Problem]) -> Iterator[tuple[int, str, str]]:
    for line, text in lines_of(file, problems):
        if not text.strip() or text.startswith("#"):
            continue
        clip, _, sentence = text.strip().partition(" ")
        if not _CLIP_ID.fullmatch(clip):
            problems.append(Problem(file, line, f"{clip!r} is not of the form ID_start_end", _LINE))
        elif not tokenize(sentence):
            problems.append(Problem(file, line, f"clip {clip!r} has no sentence on this line", _LINE))
        else:
            yield line, clip, sentence.strip()


def _table_rows(file: Path, problems: list[Problem]) -> Iterator[tuple[int, str, str]]:
    """The English rows; the few rows of the official table without a description are skipped."""
    rows = table_rows(file, problems, strict=False)
    _, columns = next(rows, (1, []))
    missing = [column for column in _COLUMNS if column not in columns]
    if missing:
        what = f"the table has no column {', '.join(missing)}"
        problems.append(Problem(file, 1, what, f"Its header needs {', '.join(_COLUMNS)}."))
        return
    video, start, end, language, description = (columns.index(column) for column in _COLUMNS)
    for line, row in rows:
        if row[language] == "English" and tokenize(row[description]):
            yield line, f"{row[video]}_{row[start]}_{row[end]}", row[description].strip()


def _mapping(file: Path, problems: list[Problem]) -> dict[str, int]:
    """The number of each clip, from lines `ID_start_end vidN`."""
    numbers: dict[str, int] = {}
    for line, text in lines_of(file, problems):
        if match := re.fullmatch(r"(\S+)\s+vid(\d{1,9})", text.strip()):
            numbers[match[1]] = int(match[2])
        elif text.strip():
            what = f"{text.strip()!r} is not of the form 'ID_start_end vidN'"
            problems.append(Problem(file, line, what, "Copy the official file again."))
    return numbers


def _common_split(number: int) -> Split:
    return "train" if number <= _LAST_TRAIN else "val" if number <= _LAST_VAL else "test"
