"""Beam search against all sentences of a table of transitions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from ctsan.model.beam_search import Floats, Ints, _highest, beam_search
from worked_out import draw


class Markov:
    """A decoder whose next word depends on the last one only, so that all sentences can be enumerated.

    The state of a row is its clip. `searched` has the clips of each step, and how many rows there were.
    """

    def __init__(self, words: int, clips: int) -> None:
        self.table: Any = draw(clips, words, words, seed=4).mul(2).log_softmax(dim=-1).numpy()
        self.clips = np.arange(clips)
        self.searched: list[tuple[tuple[int, ...], int]] = []

    @property
    def num_clips(self) -> int:
        return len(self.clips)

    def start(self) -> Ints:
        return self.clips

    def next_words(self, last: Ints, state: Ints, clips: tuple[int, ...]) -> tuple[Floats, Ints]:
        self.searched.append((clips, len(last)))
        own = state.reshape(len(clips), -1)
        assert (own == own[:, :1]).all()  # as many rows of each clip
        assert (own[:, 0] - own[0, 0]).tolist() == [clip - clips[0] for clip in clips]
        return self.table[state, last], state

    def select(self, state: Ints, rows: Ints) -> Ints:
        return state[rows]

    def normalise(self) -> None:
        """Make probabilities of a table that was changed."""
        self.table = torch.from_numpy(self.table).log_softmax(dim=-1).numpy()

    def enumerate(self, clip: int, max_words: int, penalty: float) -> list[tuple[tuple[int, ...], float]]:
        """Every sentence of words 2 and up between 0, the beginning, and 1, the end."""
        found = []
        for length in range(1, max_words):
            for words in itertools.product(range(2, self.table.shape[1]), repeat=length):
                path = (0, *words, 1)
                score = sum(float(self.table[clip, a, b]) for a, b in itertools.pairwise(path))
                found.append((words, score / (length + 1) ** penalty))
        return sorted(found, key=lambda pair: -pair[1])


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
def test_a_wide_beam_finds_the_best_sentences_of_all(penalty: float) -> None:
    model = Markov(words=5, clips=3)
    found = beam_search(
        model, begin=0, end=1, never=(), beam=60, n_best=4, max_words=5, length_penalty=penalty
    )
    for clip in range(3):
        wanted = model.enumerate(clip, 5, penalty)[:4]
        assert [sentence.words for sentence in found[clip]] == [words for words, _ in wanted]
        np.testing.assert_allclose([s.score for s in found[clip]], [score for _, score in wanted], rtol=1e-6)


def test_a_beam_of_one_is_greedy_and_forbidden_words_are_never_said() -> None:
    model = Markov(words=8, clips=4)
    plain = beam_search(model, begin=0, end=1, never=(2,), beam=1, max_words=12)
    for clip, (sentence,) in enumerate(plain):
        last = 0
        words: list[int] = []
        while len(words) < 12:
            scores = model.table[clip, last].copy()
            scores[[0, 2]] = -math.inf
            if not words:
                scores[1] = -math.inf
            last = int(scores.argmax())
            if last == 1:
                break
            words.append(last)
        assert list(sentence.words) == words
        assert 2 not in sentence.words


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_ngram_is_said_twice(n: int) -> None:
    def has_repeats(words: tuple[int, ...]) -> bool:
        ngrams = [words[start : start + n] for start in range(len(words) - n + 1)]
        return len(set(ngrams)) < len(ngrams)

    model = Markov(words=4, clips=4)
    model.table[:, 2:, 1] -= 2  # long sentences are likelier, which have to repeat their words
    found = beam_search(model, begin=0, end=1, never=(), beam=300, n_best=2, max_words=7, no_repeat_ngram=n)
    for clip in range(4):
        possible = model.enumerate(clip, 7, 1.0)
        assert has_repeats(possible[0][0])
        assert not any(has_repeats(sentence.words) for sentence in found[clip])
        wanted = [score for words, score in possible if not has_repeats(words)][:2]  # some are alike
        np.testing.assert_allclose([s.score for s in found[clip]], wanted, rtol=1e-6)


@pytest.mark.parametrize("enough", [None, 2, 4])
def test_a_clip_gets_the_same_sentence_alone_and_in_a_batch(enough: int | None) -> None:
    model = Markov(words=7, clips=3)
    options: dict[str, Any] = {"begin": 0, "end": 1, "never": (), "beam": 3, "n_best": 2, "max_words": 6}
    options |= {"enough": enough}
    together = beam_search(model, **options)
    for clip in range(3):
        model.clips = np.array([clip])
        assert beam_search(model, **options)[0] == together[clip]


def test_a_search_may_end_with_enough_sentences() -> None:
    """Each with its own score, and in fewer steps than it takes to be sure of the best."""
    model = Markov(words=5, clips=2)
    model.table[:, 2:, 1] += 2  # which end sooner
    model.normalise()
    lengths = []
    for enough in (None, 2):
        model.searched.clear()
        found = beam_search(model, begin=0, end=1, never=(), beam=4, n_best=2, max_words=20, enough=enough)
        lengths.append(len(model.searched))
        for clip, sentences in enumerate(found):
            assert len({sentence.words for sentence in sentences}) == 2
            for sentence in sentences:
                ended = len(sentence.words) < 20
                path = (0, *sentence.words, *([1] if ended else []))
                own = [float(model.table[clip, a, b]) for a, b in itertools.pairwise(path)]
                assert sentence.score == pytest.approx(sum(own) / len(own), rel=1e-6)
        assert model.searched[0] == ((0, 1), 2)  # all sentences of a clip begin alike
    assert lengths[1] < lengths[0]


def test_a_clip_with_enough_sentences_is_not_searched_for_any_longer() -> None:
    model = Markov(words=5, clips=2)
    model.table[0, 2:, 1] += 9  # all its sentences are short,
    model.table[1, 2:, 1] -= 9  # and those of the other long
    model.normalise()
    beam_search(model, begin=0, end=1, never=(), beam=3, n_best=2, max_words=9, enough=3)
    assert model.searched[0][0] == (0, 1)
    assert model.searched[-1][0] == (1,)


@pytest.mark.parametrize("count", [3, 32, 200])
def test_the_highest_of_many_scores(count: int) -> None:
    scores = draw(4, 3210, seed=1)
    scores[1] = scores[1].sort().values
    scores[2, 40:] = -math.inf
    array: Any = scores.numpy()
    values, places = _highest(array, count)
    assert np.array_equal(values, scores.topk(count, dim=1).values.numpy())
    assert np.array_equal(np.take_along_axis(array, places, axis=1), values)
    assert all(len(set(own)) == count for own in places.tolist())


def test_more_sentences_than_the_beam_holds_are_refused() -> None:
    model = Markov(words=4, clips=1)
    with pytest.raises(ValueError, match="3 sentences from a beam of 2: widen the beam"):
        beam_search(model, begin=0, end=1, never=(), beam=2, n_best=3)
