"""Rows of a CSV file, with the lines on which they begin."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from ctsan.data.readers.files import lines_of
from ctsan.errors import Problem


def table_rows(file: Path, problems: list[Problem], *, strict: bool) -> Iterator[tuple[int, list[str]]]:
    """The header, then every row that has as many cells as the header; blank rows are skipped.

    Comma, semicolon or tab, whichever the header holds most of, parts the cells. A quoted cell may run over
    several lines. `strict` refuses a quotation mark that is opened and never closed, or closed mid-cell.
    """
    lines = lines_of(file, problems)
    _, first = next(lines, (1, ""))
    delimiter = max(",;\t", key=first.count)
    header = next(csv.reader([first], delimiter=delimiter), [])
    if not first.strip():
        return
    yield 1, header
    reader = csv.reader((f"{text}\n" for _, text in lines), delimiter=delimiter, strict=strict)
    while True:
        begin = reader.line_num + 2  # the header is line 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = 'Quote a cell as "…" and double the quotation marks inside it.'
            problems.append(Problem(file, begin, f"the row is not CSV ({error})", remedy))
            continue
        if len(row) == len(header):
            yield begin, row
        elif any(cell.strip() for cell in row):
            what = f"the row has {len(row)} cells where the header has {len(header)}"
            remedy = f"Put a sentence that holds {delimiter!r} in quotation marks."
            problems.append(Problem(file, begin, what, remedy))
