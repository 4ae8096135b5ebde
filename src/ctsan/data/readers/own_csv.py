"""Read `clips.csv`, with one caption per row; rows of the same clip are merged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ctsan.data.readers.own_keys import current_keys, misspelt_keys
from ctsan.data.readers.tables import table_rows
from ctsan.errors import Problem, did_you_mean

_CAPTION_COLUMNS = ("caption", "captions")


def csv_rows(file: Path, problems: list[Problem]) -> Iterator[tuple[int, dict[str, object]]]:
    """One row per clip, in the form of `clips.jsonl`, with the first line of the clip.

    The header names the columns: `clip`, and optionally `caption`, `split`, `source` and any other column.
    Empty cells are ignored.
    """
    rows = table_rows(file, problems, strict=True)
    columns = [column.strip().lower() for column in next(rows, (1, ["clip"]))[1]]
    if not _header_is_valid(columns, file, problems):
        return
    columns = list(current_keys(dict.fromkeys(columns), file))
    problems += misspelt_keys(columns, file, 1)
    first_lines: dict[str, int] = {}
    captions: dict[str, list[str]] = {}
    other_cells: dict[str, dict[str, str]] = {}
    for line, row in rows:
        cells = dict(zip(columns, (cell.strip() for cell in row), strict=True))
        if "external" in cells:
            cells["external"] = cells["external"].lower()  # spreadsheet programs write TRUE
        clip = cells.pop("clip")
        first_line = first_lines.setdefault(clip, line)
        caption = next((cells.pop(column) for column in _CAPTION_COLUMNS if column in cells), "")
        captions.setdefault(clip, []).extend([caption] if caption else [])
        clip_cells = other_cells.setdefault(clip, {})
        for column, value in cells.items():
            if value and clip_cells.setdefault(column, value) != value:
                what = (
                    f"{column} {value!r} contradicts {clip_cells[column]!r} of the same clip at line "
                    f"{first_line}"
                )
                remedy = f"Give all rows of clip {clip!r} the same {column}, or leave it empty."
                problems.append(Problem(file, line, what, remedy))
    for clip, line in first_lines.items():
        yield line, {"clip": clip, "captions": captions[clip], **other_cells[clip]}


def _header_is_valid(columns: list[str], file: Path, problems: list[Problem]) -> bool:
    if "clip" not in columns:
        what = f"the file has no column 'clip', its columns are {', '.join(columns)}"
        remedy = f"{did_you_mean('clip', columns)}Begin the file with a header such as clip,caption,split."
        problems.append(Problem(file, 1, what, remedy))
    elif len(set(columns)) < len(columns) or set(columns).issuperset(_CAPTION_COLUMNS):
        what = f"the header names a column twice ({', '.join(columns)})"
        problems.append(Problem(file, 1, what, "Keep one column of each name; caption and captions are one."))
    else:
        return True
    return False
