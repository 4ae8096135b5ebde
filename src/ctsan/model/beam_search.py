"""Beam search over a decoder. A beam of one is greedy search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ctsan.model.lstm import State

# Maps the last words (n,), the state, and the unfinished clips, which have the same number of rows each, to
# log-probabilities of the next words, (n, words), and the new state.
NextWordsOf = Callable[[Tensor, State, tuple[int, ...]], tuple[Tensor, State]]

_GROUP = 32  # scores per group in `_highest`


class Sentence(NamedTuple):
    words: tuple[int, ...]  # without `begin` and `end`
    score: float  # log-probability, including `end`, divided by length ** length_penalty


@torch.inference_mode()
def beam_search(
    next_words: NextWordsOf,
    state: State,
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
        state: initial state of the decoder, (layers, B, D).
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
    clips = tuple(range(state.hidden.shape[1]))  # unfinished clips: B
    device = state.hidden.device
    finished: list[list[Sentence]] = [[] for _ in clips]
    words = torch.full((len(clips), 1), begin, device=device)  # (B width, t)
    scores = torch.zeros(len(clips), device=device)  # (B width,)
    for length in range(1, max_words + 1):
        log_probabilities, state = next_words(words[:, -1], state, clips)
        log_probabilities[:, [begin, *never]] = -torch.inf
        if length == 1:
            log_probabilities[:, end] = -torch.inf  # no empty sentences
        if no_repeat_ngram:
            log_probabilities[_repeating(words, no_repeat_ngram)] = -torch.inf
        total = (scores[:, None] + log_probabilities).view(len(clips), -1)  # (B, width words)
        # At most `beam` candidates end here, so the best 2 x beam leave a full beam of unfinished ones.
        best, places = _highest(total, min(2 * beam, total.shape[1]))
        first = torch.arange(0, len(words), len(words) // len(clips), device=device)[:, None]  # rows of clips
        rows, chosen = first + places // log_probabilities.shape[1], places % log_probabilities.shape[1]
        begun = torch.cat([words[rows], chosen[..., None]], dim=2)  # (B, n, t + 1)
        ends = chosen == end
        for place, number in (ends & best.isfinite())[:, :beam].nonzero().tolist():
            score = float(best[place, number]) / length**length_penalty
            finished[clips[place]].append(Sentence(tuple(begun[place, number, 1:-1].tolist()), score))
        # The best unfinished ones. A small vocabulary may give fewer than the beam holds.
        keep = best.masked_fill(ends, -torch.inf).topk(min(beam, best.shape[1]), dim=1).indices
        kept = best.masked_fill(ends, -torch.inf).gather(1, keep)  # (B, width)
        hopes = (kept.max(dim=1).values / max_words**length_penalty).tolist()
        open_ = [
            place
            for place, (clip, hope) in enumerate(zip(clips, hopes, strict=True))
            if not _is_settled(finished[clip], n_best, enough, hope)
        ]
        if not open_:
            break
        if len(open_) < len(clips):
            keep, kept, rows, begun = (of_clips[open_] for of_clips in (keep, kept, rows, begun))
            clips = tuple(clips[place] for place in open_)
        scores = kept.flatten()
        words = begun.gather(1, keep[..., None].expand(-1, -1, begun.shape[2])).flatten(0, 1)
        state = _rows(state, rows.gather(1, keep).flatten())
    else:
        for place, (sentence, score) in enumerate(zip(words.tolist(), scores.tolist(), strict=True)):
            done = finished[clips[place * len(clips) // len(words)]]
            if len(done) < n_best and score > -torch.inf:  # unfinished sentences are cut off
                done.append(Sentence(tuple(sentence[1:]), score / max_words**length_penalty))
    for done in finished:
        done.sort(key=lambda sentence: -sentence.score)
    return [done[:n_best] for done in finished]


def _highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Equal to `scores.topk(count, dim=1)`, but about as fast as a maximum if `count` is small.

    The `count` highest scores all lie in the `count` groups with the highest maxima.
    """
    groups = scores.shape[1] // _GROUP
    if groups <= count:
        return scores.topk(count, dim=1)
    padded = F.pad(scores, (0, -scores.shape[1] % _GROUP), value=-torch.inf)
    grouped = padded.view(len(scores), -1, _GROUP)
    best = grouped.amax(dim=2).topk(count, dim=1).indices  # (B, count)
    held = grouped.gather(1, best[..., None].expand(-1, -1, _GROUP)).flatten(1)  # (B, count _GROUP)
    values, places = held.topk(count, dim=1)
    return values, best.gather(1, places // _GROUP) * _GROUP + places % _GROUP


def _repeating(words: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Next words that would repeat an n-gram: their rows in `words` (R, t), and the words."""
    if words.shape[1] < n:
        nothing = words.new_zeros(0)
        return nothing, nothing
    ngrams = words.unfold(1, n, 1)  # (R, t - n + 1, n)
    last = words[:, words.shape[1] - n + 1 :]  # (R, n - 1), the current prefix
    rows, places = (ngrams[:, :, :-1] == last[:, None]).all(dim=2).nonzero(as_tuple=True)
    return rows, ngrams[rows, places, -1]


def _is_settled(done: list[Sentence], n_best: int, enough: int | None, hope: float) -> bool:
    """Whether there are enough finished sentences, or no unfinished one can reach the `n_best`."""
    if enough is not None and len(done) >= enough:
        return True
    return sum(sentence.score >= hope for sentence in done) >= n_best


def _rows(state: State, rows: Tensor) -> State:
    return State(state.hidden[:, rows], state.cell[:, rows])
