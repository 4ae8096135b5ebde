"""Equations 7 to 15 against plain NumPy: LSTM, both semantic attentions, decoder, regulariser; and search."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from ctsan.model.beam_search import Floats, Ints, _highest, beam_search
from ctsan.model.caption_decoder import CaptionDecoder
from ctsan.model.lstm import LayerNormLSTM, State
from ctsan.model.semantic_attention import (
    InputSemanticAttention,
    OutputSemanticAttention,
    attention_regulariser,
)
from ctsan.model.video_encoder import VideoEncoder
from worked_out import attended_input, attended_output, draw, lstm, numbers, softmax, stirred

B, T, K, E, D, WORDS = 2, 4, 3, 5, 6, 9


def test_input_attention_is_equations_9_and_10() -> None:
    attend = InputSemanticAttention(embedding_dim=E, hidden_dim=D).double()
    torch.nn.init.normal_(attend.gate)
    words, concepts = draw(B, T, E), draw(B, K, E, seed=1)
    x, gamma = attend(words, concepts)
    w_gamma, w_x, gate = (p.detach().numpy() for p in (attend.relate, attend.project.weight, attend.gate))
    for b, t in itertools.product(range(B), range(T)):
        y, a = words[b, t].numpy(), concepts[b].numpy()
        weights = softmax(np.array([y @ w_gamma @ a[i] for i in range(K)]))
        np.testing.assert_allclose(gamma[b, t].detach().numpy(), weights)
        mixed = y + np.diag(gate) @ sum(weights[i] * a[i] for i in range(K))
        np.testing.assert_allclose(x[b, t].detach().numpy(), w_x @ mixed)


def test_output_attention_is_equations_11_and_12() -> None:
    attend = OutputSemanticAttention(embedding_dim=E, hidden_dim=D).double()
    torch.nn.init.normal_(attend.gate)
    hidden, concepts = draw(B, T, D), draw(B, K, E, seed=1)
    p, beta = attend(hidden, concepts)
    w_beta, gate = attend.relate.weight.detach().numpy(), attend.gate.detach().numpy()
    for b, t in itertools.product(range(B), range(T)):
        h, a = hidden[b, t].numpy(), np.tanh(concepts[b].numpy())
        weights = softmax(np.array([h @ w_beta @ a[i] for i in range(K)]))
        np.testing.assert_allclose(beta[b, t].detach().numpy(), weights)
        wanted = h + np.diag(gate) @ sum(weights[i] * (w_beta @ a[i]) for i in range(K))
        np.testing.assert_allclose(p[b, t].detach().numpy(), wanted)


def test_regulariser_is_equation_15_and_padding_has_no_part_in_it() -> None:
    weights = draw(B, T, K).softmax(dim=-1).requires_grad_()
    lengths = [4, 2]
    is_real = torch.tensor([[step < length for step in range(T)] for length in lengths])
    g = attention_regulariser(weights, is_real)
    for b, length in enumerate(lengths):
        a = weights[b, :length].detach().numpy()
        first = math.sqrt(sum(sum(a[t, i] for t in range(length)) ** 2 for i in range(K)))
        second = sum(math.sqrt(sum(a[t, i] for i in range(K))) for t in range(length)) ** 2
        assert g[b].item() == pytest.approx(first + second)
        assert second == pytest.approx(length**2)
    torch.autograd.backward(g.sum())
    assert weights.grad is not None
    assert weights.grad.isfinite().all()
    assert (weights.grad[1, 2:] == 0).all()


def test_steps_one_by_one_are_the_same_as_all_at_once() -> None:
    torch.manual_seed(0)
    layers = LayerNormLSTM(input_dim=E, hidden_dim=D, num_layers=2).double()
    x = draw(B, T, E)
    outputs, last = layers(x)
    state = layers.initial(B, x)
    for step in range(T):
        state = layers.step(x[:, step], state)
        torch.testing.assert_close(state.top, outputs[:, step])
    torch.testing.assert_close(state.cell, last.cell)


def test_padding_leaves_the_lstm_as_it_was() -> None:
    torch.manual_seed(0)
    layers = LayerNormLSTM(input_dim=E, hidden_dim=D).double()
    x = draw(B, T, E)
    is_real = torch.tensor([[True, True, False, False], [True] * 4])
    _, padded = layers(x, is_real=is_real)
    _, alone = layers(x[:1, :2])
    torch.testing.assert_close(padded.hidden[:, :1], alone.hidden)
    torch.testing.assert_close(padded.cell[:, :1], alone.cell)


def test_the_video_encoder_is_equation_7_over_grid_averages() -> None:
    encode = stirred(VideoEncoder(hidden_dim=D))
    regions, lengths = draw(B, T, D, 2, 2), [4, 3]
    is_real = torch.tensor([[step < length for step in range(T)] for length in lengths])
    state = encode(regions, is_real)
    nothing = np.zeros((2, D))
    for b, length in enumerate(lengths):
        averages = [regions[b, n].numpy().mean(axis=(1, 2)) for n in range(length)]
        wanted = lstm(numbers(encode), "lstm", averages, nothing, nothing)[-1]
        np.testing.assert_allclose(state.top[b].detach().numpy(), wanted, rtol=1e-6)


def test_the_decoder_is_equations_8_to_13_from_the_video_encoders_state() -> None:
    decode = stirred(CaptionDecoder(num_words=WORDS, embedding_dim=E, hidden_dim=D))
    words, concepts = draw(B, T, E), draw(B, K, E, seed=1)
    start = State(draw(2, B, D, seed=2), draw(2, B, D, seed=3))
    decoded, _ = decode(words, concepts, start)
    w = numbers(decode)
    for b in range(B):
        a = concepts[b].numpy()
        read = [attended_input(w, word, a)[0] for word in words[b].numpy()]
        states = lstm(w, "lstm", read, start.hidden[:, b].numpy(), start.cell[:, b].numpy())
        for t, state in enumerate(states):
            scores = w["say.weight"] @ attended_output(w, state, a)[0] + w["say.bias"]
            np.testing.assert_allclose(decoded.scores[b, t].detach().numpy(), scores, rtol=1e-6)


@pytest.mark.parametrize(
    ("with_input", "with_output"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_each_attention_can_be_left_out(with_input: bool, with_output: bool) -> None:
    torch.manual_seed(0)
    decode = CaptionDecoder(
        num_words=WORDS,
        embedding_dim=E,
        hidden_dim=D,
        input_attention=with_input,
        output_attention=with_output,
        dropout=0.0,
    ).double()
    words, concepts = draw(B, T, E), draw(B, K, E, seed=1)
    start = State(draw(2, B, D, seed=2), draw(2, B, D, seed=3))
    decoded, _ = decode(words, concepts, start)
    assert decoded.scores.shape == (B, T, WORDS)
    assert (decoded.input_weights is not None) == with_input
    assert (decoded.output_weights is not None) == with_output
    changed = decode(words, concepts + 1, start)[0].scores
    assert torch.equal(changed, decoded.scores) == (not with_input and not with_output)
    # A word says nothing of the words before it.
    words[:, -1] += 1
    again = decode(words, concepts, start)[0].scores
    torch.testing.assert_close(again[:, :-1], decoded.scores[:, :-1])
    assert not torch.equal(again[:, -1], decoded.scores[:, -1])


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
