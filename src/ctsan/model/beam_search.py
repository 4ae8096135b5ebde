"""Beam search over a decoder, on NumPy arrays. A beam of one is greedy search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
StateT = TypeVar("StateT")

_GROUP = 32  # scores per group in `_highest`


class Sentence(NamedTuple):
    words: tuple[int, ...]  # without `begin` and `end`
    score: float  # log-probability, including `end`, divided by length ** length_penalty


class Steps(Protocol[StateT]):
    """A decoder as the search sees it. Its state may be of any type."""

    @property
    def num_clips(self) -> int: ...

    def start(self) -> StateT:
        """The state of all clips, one row each."""
        ...

    def next_words(self, last: Ints, state: StateT, clips: tuple[int, ...]) -> tuple[Floats, StateT]:
        """Map the last words (n,) to log-probabilities of the next (n, words), and the new state.

        Args:
            clips: the unfinished clips, which have the same number of successive rows each.
        """
        ...

    def select(self, state: StateT, rows: Ints) -> StateT:
        """Rows of a state; a row may occur more than once."""
        ...


def beam_search(
    steps: Steps[StateT],
    *,
    begin: int,
    end: int,
    never: Sequence[int],
    beam: int,
    n_best: int = 1,
    enough: int | None = None,
    max_words: int = 30,
    length_penalty: float = 1.0,
    no_repeat_ngram: int = 0,
) -> list[list[Sentence]]:
    """The `n_best` sentences of every clip, best first.

    Args:
        never: words that are never generated, such as the unknown word and padding.
        enough: number of finished sentences after which the search for a clip stops. By default it continues
            until no unfinished sentence can reach the `n_best`.
        length_penalty: 0 compares log-probabilities, 1 their mean per word.
        no_repeat_ngram: no n-gram of this length occurs twice in a sentence; 0 allows all.

    Raises:
        ValueError: `n_best` is larger than the beam.
    """
    if n_best > beam:
        raise ValueError(f"{n_best} sentences from a beam of {beam}: widen the beam.")
    clips = tuple(range(steps.num_clips))  # unfinished clips: B
    state = steps.start()
    finished: list[list[Sentence]] = [[] for _ in clips]
    words: Ints = np.full((len(clips), 1), begin, np.int64)  # (B width, t)
    scores: Floats = np.zeros(len(clips), np.float32)  # (B width,)
    for length in range(1, max_words + 1):
        log_probabilities, state = steps.next_words(words[:, -1], state, clips)
        num_words = log_probabilities.shape[1]
        log_probabilities[:, [begin, *never]] = -np.inf
        if length == 1:
            log_probabilities[:, end] = -np.inf  # no empty sentences
        if no_repeat_ngram:
            log_probabilities[_repeating(words, no_repeat_ngram)] = -np.inf
        total = (scores[:, None] + log_probabilities).reshape(len(clips), -1)  # (B, width words)
        # At most `beam` candidates end here, so the best 2 x beam leave a full beam of unfinished ones.
        best, places = _highest(total, min(2 * beam, total.shape[1]))  # both (B, n)
        first = np.arange(0, len(words), len(words) // len(clips))[:, None]  # rows of clips
        rows, chosen = first + places // num_words, places % num_words
        begun = np.concatenate([words[rows], chosen[..., None]], axis=2)  # (B, n, t + 1)
        ends = chosen == end
        for place, number in np.argwhere((ends & np.isfinite(best))[:, :beam]).tolist():
            score = float(best[place, number]) / length**length_penalty
            finished[clips[place]].append(Sentence(tuple(begun[place, number, 1:-1].tolist()), score))
        # The best unfinished ones. A small vocabulary may give fewer than the beam holds.
        kept, keep = _sorted(np.where(ends, np.float32(-np.inf), best), min(beam, best.shape[1]))
        hopes = (kept[:, 0] / max_words**length_penalty).tolist()
        open_ = [
            place
            for place, (clip, hope) in enumerate(zip(clips, hopes, strict=True))
            if not _is_settled(finished[clip], n_best, enough, hope)
        ]
        if not open_:
            break
        if len(open_) < len(clips):
            keep, kept, rows, begun = keep[open_], kept[open_], rows[open_], begun[open_]
            clips = tuple(clips[place] for place in open_)
        scores = kept.reshape(-1)
        words = np.take_along_axis(begun, keep[..., None], axis=1).reshape(kept.size, -1)
        state = steps.select(state, np.take_along_axis(rows, keep, axis=1).reshape(-1))
    else:
        for place, (sentence, score) in enumerate(zip(words.tolist(), scores.tolist(), strict=True)):
            done = finished[clips[place * len(clips) // len(words)]]
            if len(done) < n_best and score > -np.inf:  # unfinished sentences are cut off
                done.append(Sentence(tuple(sentence[1:]), score / max_words**length_penalty))
    for done in finished:
        done.sort(key=lambda sentence: -sentence.score)
    return [done[:n_best] for done in finished]


def _highest(scores: Floats, count: int) -> tuple[Floats, Ints]:
    """The `count` highest scores of each row, best first, and their places: both (B, count).

    About as fast as a maximum if `count` is small: the `count` highest scores all lie in the `count` groups
    with the highest maxima.
    """
    num_groups = -(-scores.shape[1] // _GROUP)
    if num_groups <= count:
        return _sorted(scores, count)
    padding = ((0, 0), (0, num_groups * _GROUP - scores.shape[1]))
    padded = np.pad(scores, padding, constant_values=-np.inf)
    grouped = padded.reshape(len(scores), _GROUP, num_groups)  # group g: places g, g + num_groups, …
    groups = np.argpartition(-grouped.max(axis=1), count - 1, axis=1)[:, :count]  # (B, count)
    held = np.take_along_axis(grouped, groups[:, None], axis=2).reshape(len(scores), -1)
    best, places = _sorted(held, count)
    within, group = np.divmod(places, count)
    return best, within * num_groups + np.take_along_axis(groups, group, axis=1)


def _sorted(scores: Floats, count: int) -> tuple[Floats, Ints]:
    places: Ints = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(scores, places, axis=1), places


def _repeating(words: Ints, n: int) -> tuple[Ints, Ints]:
    """Next words that would repeat an n-gram: their rows in `words` (R, t), and the words."""
    if words.shape[1] < n:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    ngrams = np.lib.stride_tricks.sliding_window_view(words, n, axis=1)  # (R, t - n + 1, n)
    last = words[:, words.shape[1] - n + 1 :]  # (R, n - 1), the current prefix
    rows, places = np.nonzero((ngrams[:, :, :-1] == last[:, None]).all(axis=2))
    return rows, ngrams[rows, places, -1]


def _is_settled(done: list[Sentence], n_best: int, enough: int | None, hope: float) -> bool:
    """Whether there are enough finished sentences, or no unfinished one can reach the `n_best`."""
    if enough is not None and len(done) >= enough:
        return True
    return sum(sentence.score >= hope for sentence in done) >= n_best
