"""A joint embedding without order: what changes it, how it is learnt, and when nothing matches.

Worst of five seeds by `make margins`, and the bound:

- found among five .92 (> .6)
"""

from __future__ import annotations

import math

import pytest
import torch

from ctsan.baselines.mean_pooling import MeanPooling
from ctsan.extensions.dual_encoder import DualEncoder, fit_matches, in_batch_loss
from ctsan.model.clip_encoder import ClipEncoding
from margins import Margins, Start


@pytest.fixture
def model() -> DualEncoder:
    torch.manual_seed(0)
    pooling = MeanPooling(channels=6, embedding=torch.randn(12, 5), candidate_words=torch.arange(5, 12))
    pooling.init_from(torch.randn(6), torch.rand(6) + 0.5)
    model = DualEncoder(clip_encoder=pooling, joint_dim=4).eval()
    torch.nn.init.normal_(model.weigh.weight)
    return model


def encoded(model: DualEncoder, maps: torch.Tensor, is_real: torch.Tensor) -> ClipEncoding:
    encoding: ClipEncoding = model.clip_encoder(maps, is_real)
    return encoding


def test_neither_the_order_of_words_nor_padding_changes_a_sentence(model: DualEncoder) -> None:
    vectors = model.embed_sentences(torch.tensor([[5, 6, 7, 0, 0], [7, 5, 6, 0, 0], [5, 6, 8, 0, 0]]))
    alone = model.embed_sentences(torch.tensor([[5, 6, 7]]))
    torch.testing.assert_close(vectors[0], vectors[1])
    torch.testing.assert_close(vectors[:1], alone)
    assert (vectors[0] - vectors[2]).abs().max() > 1e-3
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))


def test_neither_the_order_of_frames_nor_padding_changes_a_clip(model: DualEncoder) -> None:
    maps, is_real = torch.randn(1, 4, 2, 3, 6), torch.tensor([[True, True, True, False]])
    own = model.embed_clips(encoded(model, maps, is_real))
    turned = model.embed_clips(encoded(model, maps[:, [2, 0, 1]], is_real[:, :3]))
    mean = maps[:, :3].mean(dim=(1, 2, 3), keepdim=True)
    torch.testing.assert_close(own, turned)
    torch.testing.assert_close(own, model.embed_clips(encoded(model, mean, is_real[:, :1])))


def test_a_score_is_the_cosine_of_sentence_and_clip(model: DualEncoder) -> None:
    encoding = encoded(model, torch.randn(2, 1, 1, 1, 6), torch.ones(2, 1, dtype=torch.bool))
    words = torch.tensor([[5, 6], [7, 8]])
    scored = model(words, words != 0, encoding)
    wanted = torch.nn.functional.cosine_similarity(model.embed_sentences(words), model.embed_clips(encoding))
    torch.testing.assert_close(scored.scores, wanted)


def test_it_can_begin_as_a_regression_that_finds_clips(start: Start, margins: Margins) -> None:
    """Clips of which a word is said have something of that word's direction in their features."""
    torch.manual_seed(start.seed)
    words, clips = 20, 400
    pooling = MeanPooling(
        channels=30, embedding=torch.randn(words, 16), candidate_words=torch.arange(5, words)
    )
    model = DualEncoder(clip_encoder=pooling, joint_dim=12).eval()
    said = torch.randint(5, words, (clips, 2))
    features = torch.randn(words, 30)[said].sum(dim=1) + torch.randn(clips, 30)
    features = torch.nn.functional.layer_norm(features, (30,))
    kept = clips - 50
    is_own = torch.arange(kept) % 4 != 0
    model.fit(features[:kept], [[own] for own in said[:kept].tolist()], is_own)
    found = (
        model.embed_sentences(said[kept:])
        @ torch.nn.functional.normalize(model.from_clip(features[kept:]), dim=1).mT
    )
    ranks = (found > found.diagonal()[:, None]).sum(dim=1)
    margins.above("found among five", float((ranks < 5).float().mean()), 0.6)  # a tenth by chance
    torch.testing.assert_close(model.from_words.weight @ model.from_words.weight.mT, torch.eye(12))
    seen = model.from_clip(features[:kept][is_own]).detach()
    assert float(seen.norm(dim=1).mean()) == pytest.approx(1, abs=0.1)


def test_captions_that_are_all_alike_leave_it_as_it_was(model: DualEncoder) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.fit(torch.randn(3, 6), [[[5, 6]]] * 3, torch.ones(3, dtype=torch.bool))
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())


def test_a_joint_embedding_may_have_more_numbers_than_words_vectors(model: DualEncoder) -> None:
    wide = DualEncoder(clip_encoder=model.clip_encoder, joint_dim=9)
    wide.fit(torch.randn(30, 6), [[[5, 6]], [[7]]] * 15, torch.ones(30, dtype=torch.bool))
    wide.train()
    encoding = encoded(wide, torch.randn(2, 1, 1, 1, 6), torch.ones(2, 1, dtype=torch.bool))
    words = torch.tensor([[5, 6], [7, 8]])
    loss = in_batch_loss(
        wide.embed_sentences(words), wide.embed_clips(encoding), torch.tensor([0, 1]), temperature=0.1
    )
    torch.autograd.backward(loss)
    gradient = wide.from_clip.weight.grad
    assert gradient is not None
    assert (gradient[5:].abs().sum(dim=1) > 0).all()


def test_a_perceptron_begins_by_adding_nothing_and_then_adds_what_it_is(model: DualEncoder) -> None:
    deep = DualEncoder(clip_encoder=model.clip_encoder, joint_dim=4, hidden_dim=8).eval()
    deep.load_state_dict(model.state_dict(), strict=False)
    encoding = encoded(model, torch.randn(3, 1, 1, 1, 6), torch.ones(3, 1, dtype=torch.bool))
    torch.testing.assert_close(deep.embed_clips(encoding), model.embed_clips(encoding))
    assert deep.perceptron is not None
    first, last = deep.perceptron[0], deep.perceptron[-1]
    torch.nn.init.normal_(last.weight)  # type: ignore[arg-type]  # it is linear
    seen = encoding.state.top
    added = torch.nn.functional.gelu(seen @ first.weight.mT + first.bias) @ last.weight.mT  # type: ignore[operator]
    wanted = torch.nn.functional.normalize(model.from_clip(seen) + added, dim=1)
    torch.testing.assert_close(deep.embed_clips(encoding), wanted)


def test_the_loss_of_a_batch_worked_out_by_hand() -> None:
    """Two clips at right angles; the first has two sentences, which are no negatives of each other."""
    clips = torch.eye(2)
    sentences = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    loss = in_batch_loss(sentences, clips, torch.tensor([0, 0, 1]), temperature=1.0)

    def against(own: float, *others: float) -> float:
        return math.log(sum(map(math.exp, (own, *others)))) - own

    to_clips = (against(1, 0) + against(0.6, 0.8) + against(1, 0)) / 3
    to_sentences = (against(1, 0) + against(0.6, 0) + against(1, 0, 0.8)) / 3
    assert float(loss) == pytest.approx((to_clips + to_sentences) / 2)


def test_the_threshold_parts_queries_with_their_clips_from_those_without(model: DualEncoder) -> None:
    """Six queries, each for the clip of its number, which stands out; the last one suits another as well."""
    scores = torch.zeros(6, 6)
    scores[range(6), range(6)] = 3.0
    scores[5, 0] = 3.0
    calibration = fit_matches(scores, torch.arange(6), torch.eye(6).bool(), top_k=1)
    model.set_matches(calibration)
    # Best plus mean: with their clips 3 + 3/5; without them 0, and 3 + 3/5 for the last.
    assert calibration.rates == (1.0, pytest.approx(5 / 6), pytest.approx(5 / 6))  # type: ignore[comparison-overlap]  # approx is as good as a number
    assert float(model.match_accuracy) == pytest.approx(11 / 12)
    assert model.match_score(5) == pytest.approx(1.8)  # halfway
    assert calibration.num_clips == 5


def test_clips_like_the_right_one_are_no_proof_that_nothing_matches() -> None:
    twins = torch.arange(10) // 2 * 2  # clips 0 and 1 are alike, 2 and 3, …
    is_alike = twins[:, None] == twins
    matches = fit_matches(5.0 * is_alike, torch.arange(10), is_alike, top_k=1).rates
    assert (matches.found, matches.none) == (1.0, 1.0)
    assert matches.none_alone == 0.0


def test_queries_that_match_everywhere_are_not_calibrated_on() -> None:
    scores = 3.0 * torch.eye(4)
    is_alike = torch.eye(4).bool()
    with_general = torch.cat([scores, torch.full((4, 4), -9.0)])
    alike = torch.cat([is_alike, torch.ones(4, 4, dtype=torch.bool)])
    calibration = fit_matches(with_general, torch.arange(8) % 4, alike, top_k=1)
    assert calibration == fit_matches(scores, torch.arange(4), is_alike, top_k=1)


def test_among_more_clips_a_match_must_score_higher(model: DualEncoder) -> None:
    scores = torch.randn(400, 80, generator=torch.Generator().manual_seed(0))
    right = torch.arange(400) % 80
    is_alike = torch.zeros(400, 80, dtype=torch.bool).scatter(1, right[:, None], True)
    model.set_matches(fit_matches(scores, right, is_alike, top_k=1))
    steps = [model.match_score(2 ** (6 + n)) - model.match_score(2 ** (5 + n)) for n in range(3)]
    # The largest of 80 normal numbers is 2.43 on average, of 40 it is 2.16.
    assert steps == [pytest.approx(0.27, abs=0.06)] * 3
