"""Read the rows of a CSV file with their line numbers."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from ctsan.data.readers.files import lines_of
from ctsan.errors import Problem


def table_rows(file: Path, problems: list[Problem], *, strict: bool) -> Iterator[tuple[int, list[str]]]:
    """The header, then every row with as many cells as the header; blank rows are skipped.

    The delimiter is the most frequent of comma, semicolon and tab in the header. A quoted cell may span
    several lines, and the row has the number of its first line.

    Args:
        strict: report a quotation mark that is never closed, or closed in the middle of a cell.
    """
    lines = lines_of(file, problems)
    _, first = next(lines, (1, ""))
    delimiter = max(",;\t", key=first.count)
    if not first.strip():
        return
    try:
        header = next(csv.reader([first], delimiter=delimiter))
    except csv.Error as error:
        problems.append(_problem(file, 1, error))
        return
    yield 1, header
    reader = csv.reader((f"{text}\n" for _, text in lines), delimiter=delimiter, strict=strict)
    while True:
        first_line = reader.line_num + 2  # the header is line 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problems.append(_problem(file, first_line, error))
            continue
        if len(row) == len(header):
            yield first_line, row
        elif any(cell.strip() for cell in row):
            what = f"the row has {len(row)} cells where the header has {len(header)}"
            remedy = f"Put a sentence that contains {delimiter!r} in quotation marks."
            problems.append(Problem(file, first_line, what, remedy))


def _problem(file: Path, line: int, error: csv.Error) -> Problem:
    """A quotation that is not closed, a carriage return outside of one, or a cell of more than 128 kB."""
    reason = str(error).partition(" - ")[0]  # what follows advises the programmer
    remedy = 'Quote a cell as "…" and double the quotation marks inside it.'
    return Problem(file, line, f"the row is not CSV ({reason})", remedy)
