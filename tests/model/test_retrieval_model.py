"""Retrieval against appendix A.2 in plain NumPy, and what it promises of padding, pairs and negatives."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from ctsan.config import Negatives
from ctsan.model.retrieval_model import RetrievalModel, pairwise_margin_loss
from worked_out import (
    D,
    K,
    T,
    attended_input,
    draw,
    encode,
    lstm,
    numbers,
    small_clip_encoder,
    stirred,
    trained_by,
)

SKETCH, JOINT = 20, 5
LENGTHS = [5, 3, 4, 1]
QUERIES = torch.tensor([[4, 9, 2, 3, 7], [8, 6, 5, 0, 0], [2, 10, 3, 6, 0], [9, 0, 0, 0, 0]])
CLIPS = [0, 0, 1, 1]
IS_REAL = torch.arange(T) < torch.tensor(LENGTHS)[:, None]


def small_model(
    *, with_detector: bool = True, weighted: bool = False, input_attention: bool = True, pieces: int = 2
) -> RetrievalModel:
    torch.manual_seed(0)
    return stirred(
        RetrievalModel(
            clip_encoder=small_clip_encoder(with_detector=with_detector, weighted=weighted),
            hidden_dim=D,
            sketch_dim=SKETCH,
            joint_dim=JOINT,
            pieces=pieces,
            input_attention=input_attention,
        )
    )


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_scores_and_weights_are_those_of_the_equations(pieces: int) -> None:
    model = small_model(pieces=pieces)
    encoding = encode(model.clip_encoder, CLIPS)
    scored = model(QUERIES, IS_REAL, encoding)
    assert scored.input_weights.shape == (4, T, K)
    w = numbers(model)
    maps = w["join.weight"].reshape(pieces, JOINT, SKETCH)
    for row, length in enumerate(LENGTHS):
        a = encoding.concepts[row].detach().numpy()
        words = w["clip_encoder.embedding.weight"][QUERIES[row, :length].tolist()]
        x, gamma = zip(*(attended_input(w, word, a) for word in words), strict=True)
        query = lstm(w, "lstm", list(x), np.zeros((2, D)), np.zeros((2, D)))[-1]
        clip = encoding.state.hidden[-1, row].detach().numpy()
        nu = np.zeros(SKETCH)
        for i in range(D):
            for j in range(D):
                place = (w["pool.first_hash"][i] + w["pool.second_hash"][j]) % SKETCH
                nu[place] += w["pool.first_sign"][i] * w["pool.second_sign"][j] * clip[i] * query[j]
        score = w["rate.weight"][0] @ [max(piece[n] @ nu for piece in maps) for n in range(JOINT)]
        np.testing.assert_allclose(scored.input_weights[row, :length].detach().numpy(), gamma, atol=1e-9)
        assert scored.scores[row].item() == pytest.approx(score, abs=1e-9)


def test_the_sizes_are_the_papers() -> None:
    model = RetrievalModel(clip_encoder=small_clip_encoder(), hidden_dim=D)
    assert model.pool.out_dim == 8000
    assert model.join.weight.shape == (2 * 1500, 8000)
    assert model.rate.weight.shape == (1, 1500)


def test_padding_changes_nothing() -> None:
    model = small_model()
    encoding = encode(model.clip_encoder, CLIPS)
    scores = model(QUERIES, IS_REAL, encoding).scores
    noise = torch.where(IS_REAL, QUERIES, torch.tensor(8))
    torch.testing.assert_close(model(noise, IS_REAL, encoding).scores, scores, rtol=0, atol=0)
    for row, length in enumerate(LENGTHS):
        alone = model(
            QUERIES[row : row + 1, :length],
            IS_REAL[row : row + 1, :length],
            encoding.of(torch.tensor([row])),
        )
        torch.testing.assert_close(alone.scores, scores[row : row + 1])


def test_the_parts_score_a_clip_against_all_queries_as_pair_by_pair() -> None:
    model = small_model()
    clips = encode(model.clip_encoder, [0, 1])
    sketches = model.sketch_clip(clips)
    for clip in range(2):
        rows = torch.full((len(QUERIES),), clip)
        queries, _ = model.encode_query(QUERIES, IS_REAL, clips.concepts[rows])
        together = model.score(sketches[clip], queries)
        torch.testing.assert_close(together, model(QUERIES, IS_REAL, clips.of(rows)).scores)


def test_joint_dropout_is_for_training_only() -> None:
    model = small_model()
    sketches, queries = model.sketch_clip(encode(model.clip_encoder, CLIPS)), draw(4, D)
    assert torch.equal(model.score(sketches, queries), model.score(sketches, queries))
    model.train()
    assert not torch.equal(model.score(sketches, queries), model.score(sketches, queries))


def plain_loss(scores: Tensor, clips: list[int], margin: float, negatives: Negatives) -> list[float]:
    """Term by term, S of clips in rows and sentences in columns; `clips` says which clip each pair is of."""
    s, n = scores.tolist(), range(len(clips))
    others = [[other for other in n if clips[other] != clips[pair]] for pair in n]
    ways: tuple[Callable[[int, int], float], ...] = (
        lambda pair, other: s[pair][other],
        lambda pair, other: s[other][pair],
    )
    sentences, videos = (
        [
            math.fsum(max(0.0, score(pair, other) - s[pair][pair] + margin) for other in others[pair])
            for pair in n
        ]
        for score in ways
    )
    both = [one + other for one, other in zip(sentences, videos, strict=True)]
    return {"sentences": sentences, "clips": videos, "both": both}[negatives]


@pytest.mark.parametrize("negatives", ["clips", "sentences", "both"])
def test_the_loss_has_the_negatives_asked_for_and_none_of_the_same_clip(negatives: Negatives) -> None:
    scores = 3 * draw(4, 4)
    wanted = plain_loss(scores, [0, 1, 2, 3], 3.0, negatives)
    np.testing.assert_allclose(pairwise_margin_loss(scores, negatives=negatives).numpy(), wanted)
    clips = [0, 1, 0, 2]
    same = torch.tensor([[row == column for column in clips] for row in clips])
    wanted = plain_loss(scores, clips, 0.5, negatives)
    found = pairwise_margin_loss(scores, same, margin=0.5, negatives=negatives)
    np.testing.assert_allclose(found.numpy(), wanted)
    if negatives == "clips":  # of a query, as the paper tests
        np.testing.assert_allclose(pairwise_margin_loss(scores, same, margin=0.5).numpy(), wanted)


def test_pairs_beyond_the_margin_cost_and_train_nothing() -> None:
    scores = torch.tensor([[4.0, 0.5], [1.5, 5.0]], requires_grad=True)
    loss = pairwise_margin_loss(scores)
    torch.testing.assert_close(loss, torch.tensor([0.5, 0.0]))  # clip 1 comes within 2.5 of sentence 0's own
    torch.autograd.backward(loss.sum())
    torch.testing.assert_close(scores.grad, torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))


def loss_of(model: RetrievalModel) -> Tensor:
    rows, columns = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 2, 0, 2])
    encoding = encode(model.clip_encoder, [0, 1])
    scores = model(QUERIES[columns], IS_REAL[columns], encoding.of(rows)).scores.view(2, 2)
    return pairwise_margin_loss(scores, margin=100.0).mean()


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_trains_everything_and_the_detector_only_through_weighted_concepts(weighted: bool) -> None:
    model = small_model(weighted=weighted)
    every = {name for name, _ in model.named_parameters()}
    detector = {name for name in every if name.startswith("clip_encoder.detector.")}
    assert trained_by(model, loss_of(model)) == (every if weighted else every - detector)


@pytest.mark.parametrize("with_input", [True, False])
def test_attention_can_be_left_out(with_input: bool) -> None:
    model = small_model(input_attention=with_input)
    encoding = encode(model.clip_encoder, CLIPS)
    scored = model(QUERIES, IS_REAL, encoding)
    assert (scored.input_weights is not None) == with_input
    changed = model(QUERIES, IS_REAL, encoding._replace(concepts=encoding.concepts + 1))
    assert torch.equal(changed.scores, scored.scores) == (not with_input)


def test_without_a_detector_the_clip_still_counts() -> None:
    model = small_model(with_detector=False)
    scored = model(QUERIES, IS_REAL, encode(model.clip_encoder, CLIPS))
    assert scored.scores.shape == (4,)
    assert scored.input_weights is None
    other = model(QUERIES, IS_REAL, encode(model.clip_encoder, [1, 1, 0, 0]))
    assert (other.scores - scored.scores).abs().min() > 1e-6
    assert trained_by(model, loss_of(model)) == {name for name, _ in model.named_parameters()}
