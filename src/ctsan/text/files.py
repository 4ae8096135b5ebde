"""Files of prepared words: JSON with a format and a version, written atomically."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from ctsan.errors import Problem, WordsError
from ctsan.io import fields
from ctsan.io.atomic import write_json
from ctsan.io.reading import DamagedFileError, read_json_object

VERSION = 1
MAX_COUNT = 2**53  # of a word in captions
_NOT_IN_WORDS = re.compile("[\ud800-\udfff\\s\\0]")
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
        document = read_json_object(file)
    except DamagedFileError as error:
        raise problem_with(file, str(error)) from None
    return check_format(file, kind, document)


def check_format(file: Path, kind: str, header: dict[str, object]) -> dict[str, object]:
    """The header, if it declares this kind and the current version.

    Raises:
        WordsError: it does not.
    """
    try:
        fields.check_format(header, kind, VERSION)
    except fields.OtherFormatError as error:
        remedy = "Use the ctsan that made it, or prepare the words again"
        raise problem_with(file, str(error), remedy=remedy) from None
    except DamagedFileError as error:
        raise problem_with(file, str(error)) from None
    return header


def is_word(value: object) -> bool:
    """Whether a value can be a word: a string without spaces that can be written as UTF-8."""
    return isinstance(value, str) and value != "" and not _NOT_IN_WORDS.search(value)


def first_no_word(values: Collection[str]) -> str | None:
    """The first string that cannot be a word, if there is one. All are searched at once, which is faster."""
    if "" not in values and not _NOT_IN_WORDS.search("".join(values)):
        return None
    return next(value for value in values if not is_word(value))
