"""Files of prepared words: JSON with a format and a version, written atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ctsan.errors import Problem, WordsError
from ctsan.io.atomic import write_json

VERSION = 1
REMEDY = "Prepare the words again from the training captions"


def problem_with(file: Path, what: str, *, line: int | None = None, remedy: str = REMEDY) -> WordsError:
    return WordsError([Problem(file, line, what, f"{remedy}.")])


def write_words_json(file: Path, kind: str, content: Mapping[str, object]) -> None:
    write_json(file, {"format": kind, "version": VERSION, **content})


def read_words_json(file: Path, kind: str) -> dict[str, object]:
    """The content of a file that `write_words_json` wrote for the same kind.

    Raises:
        WordsError: the file is missing, is not JSON, or has another kind or version.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise problem_with(file, "there is no such file") from None
    except OSError as error:
        raise problem_with(file, f"it cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise problem_with(file, "this is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise problem_with(file, f"this is not JSON ({error.msg})", line=error.lineno) from None
    return check_format(file, kind, document)


def check_format(file: Path, kind: str, header: object) -> dict[str, object]:
    """The header, if it declares this kind and the current version.

    Raises:
        WordsError: it does not.
    """
    fields = header if isinstance(header, dict) else {}
    if fields.get("format") != kind:
        raise problem_with(file, f"its format is {fields.get('format', 'unknown')!r}, not {kind!r}")
    if fields.get("version") != VERSION:
        what = f"its version is {fields.get('version')!r} and this ctsan reads version {VERSION}"
        raise problem_with(file, what, remedy="Use the ctsan that made it, or prepare the words again")
    return fields
