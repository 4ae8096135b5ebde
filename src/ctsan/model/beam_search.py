"""The most probable sentences of a decoder, by beam search. A beam of one is greedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ctsan.model.lstm import State

# Last words (n,), the state, and the clips still searched for, each with as many rows as the others, to
# log-probabilities of the next words, (n, words), and the new state.
NextWordsOf = Callable[[Tensor, State, tuple[int, ...]], tuple[Tensor, State]]

_GROUP = 32  # scores of which the highest is looked for first


class Sentence(NamedTuple):
    words: tuple[int, ...]  # without the beginning and the end
    score: float  # log-probability, end included, over length to the power of `length_penalty`


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
    """The `n_best` sentences of every clip, the best first.

    Args:
        state: what the decoder starts from, (layers, B, D).
        never: words that are never said, such as the unknown word and padding.
        enough: ended sentences of a clip, after which its search is over; by default it goes on until no
            unfinished one could still be among the best.
        length_penalty: 0 compares plain log-probabilities, 1 those of an average word.
        no_repeat_ngram: no n-gram of this length occurs twice in a sentence; 0 allows all.

    Raises:
        ValueError: more sentences are asked for than the beam holds.
    """
    if n_best > beam:
        raise ValueError(f"{n_best} sentences from a beam of {beam}: widen the beam.")
    clips = tuple(range(state.hidden.shape[1]))  # that are still searched for: B
    device = state.hidden.device
    finished: list[list[Sentence]] = [[] for _ in clips]
    words = torch.full((len(clips), 1), begin, device=device)  # (B width, t): all sentences begin alike
    scores = torch.zeros(len(clips), device=device)  # (B width,)
    for length in range(1, max_words + 1):
        log_probabilities, state = next_words(words[:, -1], state, clips)
        log_probabilities[:, [begin, *never]] = -torch.inf
        if length == 1:
            log_probabilities[:, end] = -torch.inf  # a sentence has a word
        if no_repeat_ngram:
            log_probabilities[_repeating(words, no_repeat_ngram)] = -torch.inf
        total = (scores[:, None] + log_probabilities).view(len(clips), -1)  # (B, width words)
        # At most `beam` of them end here, so twice as many always leave a full beam of unfinished ones.
        best, places = _highest(total, min(2 * beam, total.shape[1]))
        first = torch.arange(0, len(words), len(words) // len(clips), device=device)[:, None]  # rows of clips
        rows, chosen = first + places // log_probabilities.shape[1], places % log_probabilities.shape[1]
        begun = torch.cat([words[rows], chosen[..., None]], dim=2)  # (B, n, t + 1)
        ends = chosen == end
        for place, number in (ends & best.isfinite())[:, :beam].nonzero().tolist():
            score = float(best[place, number]) / length**length_penalty
            finished[clips[place]].append(Sentence(tuple(begun[place, number, 1:-1].tolist()), score))
        # The best unfinished ones, of which a few words in all may not give as many as the beam holds.
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
            if len(done) < n_best and score > -torch.inf:  # sentences that never ended are cut off
                done.append(Sentence(tuple(sentence[1:]), score / max_words**length_penalty))
    for done in finished:
        done.sort(key=lambda sentence: -sentence.score)
    return [done[:n_best] for done in finished]


def _highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As `scores.topk(count, dim=1)`, of far more scores than are asked for: its time is that of a maximum.

    As many groups of scores hold all of the highest as there are highest: those with the highest maxima.
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
    """Words that would end an n-gram a second time: the rows of `words` (R, t), and the words."""
    if words.shape[1] < n:
        nothing = words.new_zeros(0)
        return nothing, nothing
    ngrams = words.unfold(1, n, 1)  # (R, t - n + 1, n)
    last = words[:, words.shape[1] - n + 1 :]  # (R, n - 1), which a word would follow
    rows, places = (ngrams[:, :, :-1] == last[:, None]).all(dim=2).nonzero(as_tuple=True)
    return rows, ngrams[rows, places, -1]


def _is_settled(done: list[Sentence], n_best: int, enough: int | None, hope: float) -> bool:
    """There are enough sentences, or no unfinished one can still become better than the best ones."""
    if enough is not None and len(done) >= enough:
        return True
    return sum(sentence.score >= hope for sentence in done) >= n_best


def _rows(state: State, rows: Tensor) -> State:
    return State(state.hidden[:, rows], state.cell[:, rows])
