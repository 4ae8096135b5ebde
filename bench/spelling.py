"""How often is a misspelt word restored, a right word spoilt, and a query refused as foreign?

    python bench/spelling.py --corpus CLIPS --model default

Words of the test captions are misspelt by one random edit: a letter left out, doubled, swapped with the next,
or replaced by a neighbour on the keyboard; the first letter is kept. Only words of three letters or more that
captions mention ten times or more are misspelt. Corrections are found with rapidfuzz and with symspellpy.
Right words are all words of the test captions that symspellpy's dictionary of English has, once each, known
to the model or not. That dictionary only measures.

Foreign queries are those of foreign_queries.txt; English ones are test captions, and two or three words in a
row of such, articles and the like left out. Both are also asked with one misspelt word.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from statistics import mean

from symspellpy import SymSpell, Verbosity
from tabulate import tabulate

from ctsan.data.reading import read_corpus
from ctsan.errors import UsageError
from ctsan.inference.loaded_model import LoadedModel
from ctsan.inference.query_words import QueryReader
from ctsan.search.encodings import joint_embeddings
from ctsan.search.models import load_search_models
from ctsan.text.tokens import tokenize

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_SMALL = {
    "a",
    "an",
    "and",
    "are",
    "at",
    "by",
    "for",
    "her",
    "his",
    "in",
    "is",
    "it",
    "its",
    "of",
    "on",
    "the",
}
_SMALL |= {"to", "with"}
_MISSPELLINGS = 3_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--model", type=Path, action="append", required=True)
    parser.add_argument("--split", default="test")
    options = parser.parse_args()
    models = joint_embeddings(load_search_models(options.model))
    clips = [clip for place in options.corpus for clip in read_corpus(place) if clip.split == options.split]
    words = {word for clip in clips for caption in clip.captions for word in tokenize(caption)}
    words = {word for word in words if word.isalpha() and word.isascii()}
    plain = QueryReader(models)
    draw = random.Random(0)
    common = sorted(word for word in words if len(word) >= 3 and plain.counts.get(word, 0) >= 10)
    typed = [(_misspelt(word, draw), word) for word in draw.choices(common, k=_MISSPELLINGS)]
    typed = [(wrong, word) for wrong, word in typed if wrong not in words or wrong not in plain.counts]
    english = files("symspellpy") / "frequency_dictionary_en_82_765.txt"
    dictionary = {line.split()[0] for line in english.read_text(encoding="utf-8-sig").splitlines()}
    right = sorted(words & dictionary)
    rows = []
    for name, make in (("rapidfuzz", QueryReader), ("symspellpy", _symspell_reader)):
        began = time.process_time()
        reader = make(models)
        reader.correct("qwertzuiop")
        ready = time.process_time() - began
        began = time.process_time()
        restored = sum(reader.correct(wrong) == word for wrong, word in typed) / len(typed)
        seconds = (time.process_time() - began) / len(typed)
        left = sum(reader.correct(wrong) in (wrong, None) for wrong, word in typed) / len(typed)
        changed = [word for word in right if reader.correct(word) not in (word, None)]
        known = [word for word in right if word in reader.counts]
        spoilt_known = len(set(changed) & set(known)) / len(known)
        rows.append([name, restored, left, len(changed) / len(right), spoilt_known, ready, 1000 * seconds])
    headers = [
        "",
        "restored",
        "left as typed",
        "right words changed",
        "of known ones",
        "ready, s",
        "ms a word",
    ]
    print(f"{len(typed)} misspellings, {len(right)} right words")
    print(tabulate(rows, headers, floatfmt=".3f"))
    captions = sorted({caption for clip in clips for caption in clip.captions})
    _print_refusals(plain, draw.sample(captions, min(len(captions), _MISSPELLINGS)), draw)


def _print_refusals(reader: QueryReader, captions: Sequence[str], draw: random.Random) -> None:
    """Print the share of queries that are refused, by their kind."""
    short = [query for caption in captions if (query := _short(caption, draw))]
    queries = {"captions": captions, "two or three words": short}
    for name, right in list(queries.items()):
        spoilt = [_with_one_misspelt(query, draw) for query in right]
        queries[f"{name}, one misspelt"] = [query for query in spoilt if query is not None]
    for line in (Path(__file__).parent / "foreign_queries.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            language, query = line.split("\t")
            queries[language] = [*queries.get(language, ()), query]
    rows = [
        [name, len(asked), mean(_is_refused(reader, query) for query in asked)]
        for name, asked in queries.items()
    ]
    print()
    print(tabulate(rows, ["queries", "number", "refused"], floatfmt=".3f"))


def _short(caption: str, draw: random.Random) -> str | None:
    words = [word for word in tokenize(caption) if word.isalpha() and word not in _SMALL]
    if len(words) < 2:
        return None
    start = draw.randrange(len(words) - 1)
    return " ".join(words[start : start + draw.choice((2, 3))])


def _with_one_misspelt(query: str, draw: random.Random) -> str | None:
    words = tokenize(query)
    long = [place for place, word in enumerate(words) if len(word) >= 4 and word.isalpha() and word.isascii()]
    if not long:
        return None
    place = draw.choice(long)
    return " ".join((*words[:place], _misspelt(words[place], draw), *words[place + 1 :]))


def _is_refused(reader: QueryReader, query: str) -> bool:
    try:
        reader.read(query)
    except UsageError:
        return True
    return False


def _misspelt(word: str, draw: random.Random) -> str:
    place = draw.randrange(1, len(word))
    edits: list[Callable[[], str]] = [
        lambda: word[:place] + word[place + 1 :],
        lambda: word[:place] + word[place] + word[place:],
        lambda: word[: place - 1] + word[place] + word[place - 1] + word[place + 1 :],
        lambda: word[:place] + _neighbour(word[place], draw) + word[place + 1 :],
    ]
    while (made := draw.choice(edits)()) == word or made[0] != word[0]:
        place = draw.randrange(1, len(word))
    return made


def _neighbour(letter: str, draw: random.Random) -> str:
    row = next(row for row in _ROWS if letter in row)
    place = row.index(letter)
    return draw.choice([row[beside] for beside in (place - 1, place + 1) if 0 <= beside < len(row)])


def _symspell_reader(models: Sequence[LoadedModel]) -> QueryReader:
    """The same rules, with words that symspellpy finds."""
    spelling = SymSpell(max_dictionary_edit_distance=2, prefix_length=7)
    reader = QueryReader(models, lambda word, distance: _suggestions(spelling, word, distance))
    for word in reader._candidates:
        spelling.create_dictionary_entry(word, reader.counts[word])
    return reader


def _suggestions(spelling: SymSpell, word: str, distance: int) -> list[tuple[str, int]]:
    found = spelling.lookup(word, Verbosity.ALL, max_edit_distance=distance)
    return [(each.term, each.distance) for each in found if each.distance > 0]


if __name__ == "__main__":
    main()
