"""How often is "nothing matches" right? Queries over a library with their clip, and without it and its like.

    python bench/nothing_matches.py --corpus CLIPS FRAMES --features F1 F2 --model default
    python bench/nothing_matches.py … --fit --write runs/embed

Every caption of a clip is a query three times: over the clips without its own and those like it; over as many
clips with its own; and over the first of these with its own in place of one, then the only one of its kind.
Captions alone decide which clips are alike: `evaluation/likeness.py`. Queries that more than half of the
clips are like are left out. Single words are asked as well: over the clips of which no caption has the word;
with all clips that have it; and with one clip that has it in three captions or more.

--fit chooses the threshold on the validation clips, as `ctsan train embed` does; --write stores it in a run,
which may be part of a pack. Without these, the stored threshold is measured on the test clips.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file
from tabulate import tabulate

from ctsan.data.corpus import Clip
from ctsan.evaluation.likeness import alike_clips
from ctsan.extensions.dual_encoder import MatchCalibration, fit_matches
from ctsan.inference.loaded_model import LoadedModel
from ctsan.runs.run_folder import SETTINGS_FILE
from ctsan.search.encodings import embed_query, joint_embeddings
from ctsan.search.models import load_search_models
from ctsan.search.search import Searcher
from ctsan.text.tokens import tokenize
from search_corpus import add_options, make_library, read_clips

_TOP_K = 3
_MOST_ALIKE = 0.5  # share of the clips
_LEAST_CAPTIONS = 3  # of a clip that surely shows what a word names
_SIZES = (25, 50, 100, 200, 1_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_options(parser)
    parser.add_argument("--split", default="test")
    parser.add_argument("--fit", action="store_true", help="print the threshold of the validation clips")
    parser.add_argument("--write", type=Path, help="run of 'embed' to store it in")
    options = parser.parse_args()
    torch.set_num_threads(1)
    models = load_search_models(options.model)
    split = "val" if options.fit else options.split
    clips, arrays = read_clips(models, options.corpus, options.features, [split])
    with tempfile.TemporaryDirectory() as temporary:
        make_library(Path(temporary) / "library", models, arrays, clips)
        searcher = Searcher(Path(temporary) / "library", loaded=models)
        trials = _Trials(searcher, clips, _lemmas(models))
        if options.fit:
            calibration = trials.fit()
            print(calibration)
            if options.write:
                _write(options.write, calibration)
            return
        print(f"{len(clips)} {split} clips")
        rows = [["sentences", *trials.sentences(None)]]
        rows += [
            [f"sentences, {size} clips", *trials.sentences(size)] for size in _SIZES if size < len(clips)
        ]
        rows += [["single words", *trials.words()]]
        columns = ["queries", "asked", "with it and its like", "it alone", "without: no match"]
        print(tabulate(rows, columns, floatfmt=".3f"))
        print(f"The first hit of a single word has a caption with it: {trials.first_hits:.3f} of the words.")


class _Trials:
    """Asks the searcher whether a query has a match among some of its rows."""

    def __init__(self, searcher: Searcher, clips: Sequence[Clip], lemmas: dict[str, str]) -> None:
        self.searcher, self.clips, self.lemmas = searcher, clips, lemmas
        self.captions = [clip.captions for clip in clips]
        self.queries = [caption for own in self.captions for caption in own]
        self.right = [place for place, own in enumerate(self.captions) for _ in own]
        self.is_alike = alike_clips(self.queries, self.right, self.captions, lemmas)
        self.draw = np.random.default_rng(0)
        self.first_hits = 0.0  # share of words whose first hit has a caption with the word
        self._known: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}

    def fit(self) -> MatchCalibration:
        scores = np.stack([self._scores(query)[1] for query in self.queries])
        return fit_matches(
            torch.from_numpy(scores), torch.tensor(self.right), torch.from_numpy(self.is_alike), top_k=_TOP_K
        )

    def sentences(self, size: int | None) -> tuple[int, float, float, float]:
        """Queries, and shares of right answers. A size takes a random part of the clips."""
        found, only, none = [], [], []
        for query, right, is_alike in zip(self.queries, self.right, self.is_alike, strict=True):
            if is_alike.mean() > _MOST_ALIKE:
                continue
            without = self.draw.permutation(np.flatnonzero(~is_alike))[:size]
            others = self.draw.permutation(len(self.clips))
            with_clip = np.append(others[others != right][: len(without) - 1], right)
            found.append(self._has_match(query, with_clip))
            only.append(self._has_match(query, np.append(without[1:], right)))
            none.append(not self._has_match(query, without))
        return len(found), float(np.mean(found)), float(np.mean(only)), float(np.mean(none))

    def words(self) -> tuple[int, float, float, float]:
        counts = [
            Counter(self.lemmas[word] for text in own for word in set(tokenize(text)) if word in self.lemmas)
            for own in self.captions
        ]
        found, only, none, first = [], [], [], []
        for word in sorted({word for words in counts for word in words}):
            mentions = np.array([words[word] for words in counts])
            if mentions.max() < _LEAST_CAPTIONS or (mentions > 0).mean() > _MOST_ALIKE:
                continue
            without = np.flatnonzero(mentions == 0)
            some = self.draw.permutation(without)[: len(self.clips) - 2 * (mentions > 0).sum()]
            found.append(self._has_match(word, np.append(some, np.flatnonzero(mentions))))
            shown = self.draw.choice(np.flatnonzero(mentions >= _LEAST_CAPTIONS))
            only.append(self._has_match(word, np.append(without, shown)))
            none.append(not self._has_match(word, without))
            first.append(mentions[self._scores(word)[1].argmax()] > 0)
        self.first_hits = float(np.mean(first))
        return len(found), float(np.mean(found)), float(np.mean(only)), float(np.mean(none))

    def _has_match(self, query: str, rows: NDArray[np.int64]) -> bool:
        vector, scores = self._scores(query)
        rows = np.sort(rows)
        best = rows[np.argsort(-scores[rows], kind="stable")]
        judged = self.searcher.judge_match(query, vector, best, rows)
        return judged is None or judged[0]

    def _scores(self, query: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if query in self._known:
            return self._known[query]
        searcher = self.searcher
        vector = embed_query(searcher.models, query)
        self._known[query] = (
            vector,
            searcher.scores(query, vector, np.arange(len(self.clips)), standardise=True),
        )
        return self._known[query]


def _lemmas(models: Sequence[LoadedModel]) -> dict[str, str]:
    [embedding, *_] = joint_embeddings(models)
    return {each.word: each.lemma or each.word for each in embedding.concepts.candidates}


def _write(run: Path, calibration: MatchCalibration) -> None:
    """Store a threshold in the weights of a run, and its statistic in the settings."""
    file = run / "weights.safetensors"
    with safe_open(file, "np") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (no mapping)
        header = opened.metadata()
    rates = calibration.rates
    numbers = {
        "match_threshold": calibration.threshold,
        "match_growth": calibration.growth or 0.0,
        "match_clips": calibration.num_clips,
        "match_accuracy": (rates.found + rates.none) / 2,
    }
    tensors |= {name: np.array(number, np.float32) for name, number in numbers.items()}
    save_file(tensors, file, metadata=header)
    settings = json.loads((run / SETTINGS_FILE).read_text(encoding="utf-8"))
    settings["settings"]["retrieval"]["match_top_k"] = _TOP_K
    (run / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
