"""All queries with all clips: the scores of each pair alone, with as little read as there is to read."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ctsan.model import pair_scores, prefix_tree, retrieval_model
from ctsan.model.choice_model import ChoiceModel
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.lstm import State
from ctsan.model.pair_scores import score_pairs
from ctsan.model.retrieval_model import RetrievalModel
from worked_out import D, draw, small_clip_encoder, stirred

QUERIES = torch.tensor(
    [
        [4, 9, 2, 3, 7],
        [4, 9, 2, 0, 0],  # the beginning of another query
        [9, 4, 0, 0, 0],
        [4, 9, 6, 3, 7],
        [4, 9, 2, 3, 7],  # twice
        [10, 0, 0, 0, 0],
        [4, 8, 2, 3, 0],
        [9, 5, 5, 5, 5],
    ]
)
CONCEPT_WORDS = torch.tensor(  # four different sets: of the last two clips one has a word, and one has none
    [[0, 1, 2], [3, 1, 6], [2, 0, 1], [3, 1, 6], [5, 4, 0]]
)
KINDS = {
    "attention": {},
    "weighted": {"weighted": True},
    "without attention": {"input_attention": False},
    "without detector": {"with_detector": False},
}

Model = RetrievalModel | ChoiceModel


def small_model(
    kind: type[Model], *, weighted: bool = False, with_detector: bool = True, input_attention: bool = True
) -> Model:
    torch.manual_seed(0)
    encoder = small_clip_encoder(weighted=weighted, with_detector=with_detector)
    if kind is ChoiceModel:
        return stirred(ChoiceModel(clip_encoder=encoder, hidden_dim=D, input_attention=input_attention))
    return stirred(
        RetrievalModel(
            clip_encoder=encoder,
            hidden_dim=D,
            sketch_dim=20,
            joint_dim=5,
            pieces=3,
            input_attention=input_attention,
        )
    )


def clips_for(model: Model) -> ClipEncoding:
    clips, encoder = len(CONCEPT_WORDS), model.clip_encoder
    words = CONCEPT_WORDS if encoder.detector is not None else CONCEPT_WORDS[:, :0]
    confidences = draw(clips, words.shape[1], seed=1).sigmoid()
    confidences[3, 1:] = confidences[4] = 0
    return ClipEncoding(
        state=State(draw(2, clips, D, seed=2), draw(2, clips, D, seed=3)),
        concepts=encoder.embed_concepts(words, confidences),
        concept_words=words,
        confidences=confidences,
        detection=None,
    )


def pair_by_pair(model: Model, queries: Tensor, encoding: ClipEncoding) -> Tensor:
    scores = torch.empty(len(queries), len(encoding.concepts), dtype=torch.double)
    for query, clip in torch.cartesian_prod(torch.arange(len(queries)), torch.arange(len(encoding.concepts))):
        words = queries[query][queries[query] != 0][None]
        with torch.no_grad():
            alone = model(words, torch.ones_like(words, dtype=torch.bool), encoding.of(clip[None]))
        scores[query, clip] = alone.scores[0]
    return scores


@pytest.mark.parametrize(
    "num_queries", [1, 2, len(QUERIES)]
)  # few are pooled by transforms, many by matrices
@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("kind", [RetrievalModel, ChoiceModel])
def test_the_scores_are_those_of_every_pair_alone(
    kind: type[Model], options: dict[str, bool], num_queries: int
) -> None:
    model = small_model(kind, **options)
    encoding, queries = clips_for(model), QUERIES[:num_queries]
    scores = score_pairs(model, queries, encoding)
    torch.testing.assert_close(scores, pair_by_pair(model, queries, encoding), rtol=0, atol=1e-10)
    assert scores.std() > 1e-3


@pytest.mark.parametrize("kind", [RetrievalModel, ChoiceModel])
def test_in_single_precision_they_agree_to_the_fifth_decimal(kind: type[Model]) -> None:
    model = small_model(kind)
    encoding = clips_for(model)
    wanted = pair_by_pair(model, QUERIES, encoding)
    single = encoding._replace(
        state=State(encoding.state.hidden.float(), encoding.state.cell.float()),
        concepts=encoding.concepts.float(),
    )
    torch.testing.assert_close(
        score_pairs(model.float(), QUERIES, single).double(), wanted, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("kind", [RetrievalModel, ChoiceModel])
def test_small_blocks_change_nothing(
    kind: type[Model], options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(kind, **options)
    encoding = clips_for(model)
    wanted = score_pairs(model, QUERIES, encoding)
    monkeypatch.setattr(pair_scores, "_QUERIES_AT_ONCE", 3)
    monkeypatch.setattr(pair_scores, "_CLIPS_AT_ONCE", 3)
    monkeypatch.setattr(pair_scores, "_NUMBERS_AT_ONCE", 1)
    monkeypatch.setattr(prefix_tree, "_NUMBERS_AT_ONCE", 1)
    monkeypatch.setattr(retrieval_model, "_PAIRS_AT_ONCE", 1)
    monkeypatch.setattr(retrieval_model, "_NUMBERS_AT_ONCE", 1)
    torch.testing.assert_close(score_pairs(model, QUERIES, encoding), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("kind", "options", "readings"),
    [
        (RetrievalModel, KINDS["attention"], 4),  # in any order
        (RetrievalModel, KINDS["weighted"], 5),
        (RetrievalModel, KINDS["without attention"], 1),
        (RetrievalModel, KINDS["without detector"], 1),
        (ChoiceModel, KINDS["attention"], 5),  # which begins to read where the clip ended
    ],
)
def test_queries_are_read_once_for_all_clips_beside_which_they_are_the_same(
    kind: type[Model], options: dict[str, bool], readings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counted(*arguments: object) -> Tensor:
        last = prefix_tree.read_tree(*arguments)  # type: ignore[arg-type]  # whatever it is called with
        read.append(last.shape[1])
        return last

    monkeypatch.setattr(pair_scores, "read_tree", counted)
    model = small_model(kind, **options)
    score_pairs(model, QUERIES, clips_for(model))
    assert sum(read) == readings


@pytest.mark.parametrize("num_queries", [1, len(QUERIES)])
@pytest.mark.parametrize("kind", [RetrievalModel, ChoiceModel])
def test_dropout_is_left_out(kind: type[Model], num_queries: int) -> None:
    model = small_model(kind)
    encoding, queries = clips_for(model), QUERIES[:num_queries]
    wanted = score_pairs(model, queries, encoding)
    assert torch.equal(score_pairs(model.train(), queries, encoding), wanted)


@pytest.mark.parametrize("kind", [RetrievalModel, ChoiceModel])
def test_no_queries_and_no_clips_have_no_scores(kind: type[Model]) -> None:
    model = small_model(kind)
    encoding = clips_for(model)
    assert score_pairs(model, QUERIES[:0], encoding).shape == (0, 5)
    assert score_pairs(model, QUERIES, encoding.of(torch.arange(0))).shape == (len(QUERIES), 0)
