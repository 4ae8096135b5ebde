"""Do filters hold? What --not still shows, and how often what --concept shows is there, by captions.

    python bench/filters.py --corpus CLIPS FRAMES --features F1 F2 --model default
    python bench/filters.py … --split val --levels 0.02 0.05 0.1 0.2 0.3 0.4 0.5 0.6

The 50 most frequent concept words, all forms of a word together, and people. A clip mentions a word if three
of its captions do, or one. Without --levels, the confidences are those of search/filters.py, chosen on the
validation clips.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from tabulate import tabulate

from ctsan.data.corpus import Clip
from ctsan.search import filters
from ctsan.search import search as searching
from ctsan.search.encodings import joint_embeddings
from ctsan.search.filters import ConceptWords
from ctsan.search.models import load_search_models
from ctsan.search.search import Searcher
from ctsan.text.tokens import tokenize
from search_corpus import add_options, make_library, read_clips

_NUM_WORDS = 50
_HEADERS = [
    "",
    "mention it (3)",
    "--not: shown",
    "of these mention it (3)",
    "hidden without a mention",
    "--concept: shown",
    "of these mention it (1)",
    "(3)",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_options(parser)
    parser.add_argument("--split", default="test")
    parser.add_argument("--levels", type=float, nargs="*", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    models = load_search_models(options.model)
    clips, arrays = read_clips(models, options.corpus, options.features, [options.split])
    with tempfile.TemporaryDirectory() as temporary:
        make_library(Path(temporary) / "library", models, arrays, clips)
        searcher = Searcher(Path(temporary) / "library", loaded=models)
        words = ConceptWords(searcher.library.words, joint_embeddings(models))
        frequent: dict[tuple[str, ...], str] = {}
        for word in searcher.library.words:
            frequent.setdefault(words.meant_by(word).forms, word)
        chosen = list(frequent.values())[:_NUM_WORDS]
        rows = []
        for level in options.levels or [None]:
            names = ("SHOWN", "NOT_SHOWN", "NOT_SHOWN_PERSON")
            levels = {name: getattr(filters, name) if level is None else level for name in names}
            with patch.multiple(searching, **levels):
                table = np.array([_measure(searcher, clips, words, word) for word in chosen])
                person = _measure(searcher, clips, words, "person")
            said = "" if level is None else f" from {level}"
            rows += [[f"mean of {len(chosen)} words{said}", *np.nanmean(table, axis=0)]]
            rows += [[f"person{said}", *person]]
    print(f"{len(clips)} {options.split} clips")
    print(tabulate(rows, _HEADERS, floatfmt=".3f"))


def _measure(searcher: Searcher, clips: Sequence[Clip], words: ConceptWords, word: str) -> list[float]:
    forms = set(words.meant_by(word).forms)
    mentions = np.array(
        [sum(not forms.isdisjoint(tokenize(text)) for text in clip.captions) for clip in clips]
    )
    kept = searcher.select([], [word]).rows
    shown = searcher.select([word], []).rows
    is_hidden = np.ones(len(clips), bool)
    is_hidden[kept] = False
    return [
        (mentions >= 3).mean(),
        len(kept),
        _mean(mentions[kept] >= 3),
        _mean(is_hidden[mentions == 0]),
        len(shown),
        _mean(mentions[shown] >= 1),
        _mean(mentions[shown] >= 3),
    ]


def _mean(values: NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else float("nan")


if __name__ == "__main__":
    main()
