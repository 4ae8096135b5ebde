"""Sentences of a decoder: the most probable by beam search, of which a beam of one is greedy, or drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ctsan.model.lstm import State

# Beginnings of sentences (B, n, t) to what they are worth beside their log-probabilities, (B, n).
Worth = Callable[[Tensor], Tensor]
# The last words (B beam,) and the state to log-probabilities of the next (B beam, words) and the new state.
NextWords = Callable[[Tensor, State], tuple[Tensor, State]]

_LOOKED_AT = 5  # times the beam: so many of the likeliest beginnings are asked for their worth


class Sentence(NamedTuple):
    words: tuple[int, ...]  # without the beginning and the end
    score: float  # log-probability, end included, over length to the power of `length_penalty`


@torch.inference_mode()
def beam_search(
    next_words: NextWords,
    state: State,
    *,
    begin: int,
    end: int,
    never: Sequence[int],
    beam: int,
    n_best: int = 1,
    enough: int | None = None,
    worth: Worth | None = None,
    max_words: int = 30,
    length_penalty: float = 1.0,
    repeats: bool = True,
) -> list[list[Sentence]]:
    """The `n_best` sentences of every clip, the best first.

    Args:
        state: what the decoder starts from, (layers, B, D).
        never: words that are never said, such as the unknown word and padding.
        enough: ended sentences of a clip, after which its search is over; by default it goes on until no
            unfinished one could still be among the best.
        worth: of two beginnings that of the larger log-probability and worth is gone on with.
        length_penalty: 0 compares plain log-probabilities, 1 those of an average word.
        repeats: whether a sentence may have the same two words in a row twice.

    Raises:
        ValueError: more sentences are asked for than the beam holds.
    """
    if n_best > beam:
        raise ValueError(f"{n_best} sentences from a beam of {beam}: widen the beam.")
    batch = state.hidden.shape[1]
    device = state.hidden.device
    state = _rows(state, torch.arange(batch, device=device).repeat_interleave(beam))
    words = torch.full((batch * beam, 1), begin, device=device)  # (B beam, t)
    # All beams of a clip begin alike, so at first only one of them counts.
    scores = torch.tensor([0.0] + [-torch.inf] * (beam - 1), device=device).repeat(batch)  # (B beam,)
    finished: list[list[Sentence]] = [[] for _ in range(batch)]
    first_of_clip = torch.arange(batch, device=device)[:, None] * beam  # (B, 1)
    for length in range(1, max_words + 1):
        log_probabilities, state = next_words(words[:, -1], state)
        log_probabilities[:, [begin, *never]] = -torch.inf
        if length == 1:
            log_probabilities[:, end] = -torch.inf  # a sentence has a word
        if not repeats:
            log_probabilities[_second_again(words)] = -torch.inf
        total = (scores[:, None] + log_probabilities).view(batch, -1)  # (B, beam words)
        # At most `beam` of them end here, so twice as many always leave a full beam of unfinished ones.
        likely = min((_LOOKED_AT if worth else 2) * beam, total.shape[1])
        best, places = total.topk(likely, dim=1)
        rows, chosen = places // log_probabilities.shape[1], places % log_probabilities.shape[1]
        begun = torch.cat([words[first_of_clip + rows], chosen[..., None]], dim=2)  # (B, n, t + 1)
        ends = chosen == end
        has_enough = [enough is not None and len(done) >= enough for done in finished]
        for clip, place in (ends & best.isfinite())[:, :beam].nonzero().tolist():
            if has_enough[clip]:
                continue  # as if it were alone
            score = float(best[clip, place]) / length**length_penalty
            finished[clip].append(Sentence(tuple(begun[clip, place, 1:-1].tolist()), score))
        worths = best if worth is None else best + worth(begun[..., 1:])
        keep = worths.masked_fill(ends, -torch.inf).topk(beam, dim=1).indices  # the best unfinished ones
        scores = best.gather(1, keep).view(-1).masked_fill(ends.gather(1, keep).view(-1), -torch.inf)
        words = begun.gather(1, keep[..., None].expand(-1, -1, begun.shape[2])).flatten(0, 1)
        state = _rows(state, (first_of_clip + rows.gather(1, keep)).view(-1))
        hopes = (scores.view(batch, beam).max(dim=1).values / max_words**length_penalty).tolist()
        if all(_is_settled(done, n_best, enough, hope) for done, hope in zip(finished, hopes, strict=True)):
            break
    for clip, done in enumerate(finished):  # sentences that never ended are cut off
        for row in range(clip * beam, (clip + 1) * beam):
            if len(done) < n_best and scores[row].isfinite():
                score = float(scores[row]) / (words.shape[1] - 1) ** length_penalty
                done.append(Sentence(tuple(words[row, 1:].tolist()), score))
        done.sort(key=lambda sentence: -sentence.score)
    return [done[:n_best] for done in finished]


@torch.no_grad()
def draw_sentences(
    next_words: NextWords, state: State, *, begin: int, end: int, never: Sequence[int], max_words: int
) -> list[tuple[int, ...]]:
    """One sentence for each row of the state, every word drawn by its probability, without begin and end."""
    last = torch.full((state.hidden.shape[1],), begin, device=state.hidden.device)
    drawn, has_ended = [], torch.zeros_like(last, dtype=torch.bool)
    for _ in range(max_words):
        log_probabilities, state = next_words(last, state)
        log_probabilities[:, [begin, *never]] = -torch.inf
        last = log_probabilities.exp().multinomial(1)[:, 0]
        has_ended |= last == end
        drawn.append(last.masked_fill(has_ended, end))
        if has_ended.all():
            break
    rows = torch.stack(drawn, dim=1).tolist()
    return [tuple(row[: row.index(end)] if end in row else row) for row in rows]


def _second_again(words: Tensor) -> tuple[Tensor, Tensor]:
    """What followed the last word where it stood before: the rows of `words` (R, t), and the words."""
    rows, places = (words[:, :-1] == words[:, -1:]).nonzero(as_tuple=True)
    return rows, words[rows, places + 1]


def _is_settled(done: list[Sentence], n_best: int, enough: int | None, hope: float) -> bool:
    """There are enough sentences, or no unfinished one can still become better than the best ones."""
    if enough is not None and len(done) >= enough:
        return True
    return sum(sentence.score >= hope for sentence in done) >= n_best


def _rows(state: State, rows: Tensor) -> State:
    return State(state.hidden[:, rows], state.cell[:, rows])
