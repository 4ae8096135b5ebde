"""Probes beside the traces: a ridge regression and a perceptron, both fitted before training.

Worst of five seeds by `make margins`, and the bound:

- right words .875 (> .85); weights of many clips 2.60 times those of a few (> 2), and these .028 (> 0)
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ctsan.model.average_detector import AverageDetector
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_detector import Detection
from ctsan.model.concept_probe import ConceptProbe
from ctsan.model.mlp_probe import MLPProbe
from ctsan.tasks.losses import detector_losses
from margins import Margins, Start

B, N, H, C, D, E, V = 3, 4, 2, 12, 8, 5, 6


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def encoder(*, probe: bool, kind: type[ConceptProbe | MLPProbe] = ConceptProbe) -> ClipEncoder:
    torch.manual_seed(0)
    return ClipEncoder(
        channels=C,
        embedding=drawn(V + 5, E),
        candidate_words=torch.arange(5, V + 5),
        hidden_dim=D,
        detector=AverageDetector(hidden_dim=D, num_layers=1, num_candidates=V, dropout=0.0),
        num_concepts=2,
        probe=kind(channels=C, num_candidates=V) if probe else None,
    ).eval()


def test_it_finds_words_that_depend_on_the_features(start: Start, margins: Margins) -> None:
    seen, new = drawn(4000, C, seed=3 * start.seed), drawn(500, C, seed=3 * start.seed + 1)
    says = drawn(V, C, seed=3 * start.seed + 2)
    said = (seen @ says.mT > 0).float()
    probe = ConceptProbe(channels=C, num_candidates=V)
    probe.start_from(seen, said, torch.ones(4000, dtype=torch.bool))
    undecided = Detection(torch.full((500, V), -9.0), torch.zeros(0), torch.zeros(0))
    found = probe.add_to(undecided, probe.scores(new)).confidences > 0.25  # half of an even chance
    margins.above("right", float((found == (new @ says.mT > 0)).float().mean()), 0.85)


def test_others_teach_what_goes_with_what_and_not_how_often_it_is_said(
    start: Start, margins: Margins
) -> None:
    seen = drawn(2000, C, seed=start.seed)
    said = (seen[:, :1] > 0).float().expand(-1, V).clone()
    is_own = torch.arange(2000) < 100
    said[~is_own, 1:] = 1.0  # others always say these
    said[is_own, 2:] = 0.0  # and here nobody does
    probe = ConceptProbe(channels=C, num_candidates=V)
    probe.start_from(seen, said, is_own)
    assert probe.bias[0] == pytest.approx(float(said[is_own, 0].mean()))
    assert not probe.bias[2:].any()
    margins.above("weight of a few clips", float(probe.weight[1, 0]), 0)
    margins.above("weight of many clips / of a few", float(probe.weight[0, 0] / probe.weight[1, 0]), 2)
    assert probe.weight[2:].abs().max() < 1e-6


@torch.no_grad()
def test_the_confidence_is_the_mean_of_both_and_padding_changes_nothing() -> None:
    alone, both = encoder(probe=False), encoder(probe=True)
    assert isinstance(both.probe, ConceptProbe)
    both.probe.weight.copy_(drawn(V, C, seed=3) / 4)
    both.probe.bias.fill_(0.3)
    maps, real = drawn(B, N, H, H, C), torch.ones(B, N, dtype=torch.bool)
    found, plain = both(maps, real), alone(maps, real)
    means = torch.nn.functional.layer_norm(maps.mean(dim=(1, 2, 3)), (C,))
    own = (means @ both.probe.weight.mT + 0.3).clamp(0, 1)
    assert torch.allclose(found.detection.confidences, (plain.detection.confidences + own) / 2, atol=1e-5)
    assert torch.equal(found.detection.learnt, plain.detection.scores)
    more = torch.cat([maps, torch.full((B, 2, H, H, C), 7.0)], dim=1)
    padded = both(more, torch.cat([real, ~real[:, :2]], dim=1))
    assert torch.allclose(padded.confidences, found.confidences, atol=1e-5)


def test_a_perceptron_finds_words_that_depend_on_the_features_in_no_linear_way() -> None:
    """A word for features of one sign: a regression on them is no better than chance."""
    seen, new = drawn(3000, C, seed=3), drawn(500, C, seed=4)
    said, asked = ((x[:, :V] * x[:, 1 : V + 1] > 0).float() for x in (seen, new))
    right = {}
    for kind in (MLPProbe, ConceptProbe):
        probe = kind(channels=C, num_candidates=V)
        probe.start_from(seen, said, torch.ones(3000, dtype=torch.bool))
        right[kind] = float(((probe.eval().scores(new) > 0) == (asked > 0)).float().mean())
    assert right[MLPProbe] > 0.7
    assert right[ConceptProbe] < 0.6


def test_traces_beside_a_perceptron_begin_by_adding_nothing_and_learn_what_it_does_not_tell() -> None:
    model = encoder(probe=True, kind=MLPProbe)
    model.start_from(frequencies=torch.full((V,), 0.2))
    maps, real, said = drawn(B, N, H, H, C), torch.ones(B, N, dtype=torch.bool), torch.ones(B, V)
    assert model.probe is not None
    found = model(maps, real).detection
    torch.testing.assert_close(found.scores, model.probe.scores(model.means(maps, real)))
    out_of_fold = drawn(B, V, seed=7)
    encoding = model(maps, real, out_of_fold)
    torch.testing.assert_close(encoding.detection.scores, out_of_fold)
    losses = detector_losses(1.0, encoding, said)
    torch.testing.assert_close(losses["concepts"], -out_of_fold.sigmoid().log().mean())
    losses["concepts"].backward()
    assert model.detector.name.weight.grad.abs().max() > 0


def test_a_perceptron_is_fitted_alike_every_time_and_learns_nothing_more() -> None:
    seen, said = drawn(40, C, seed=3), (drawn(40, V, seed=5) > 0.5).float()
    probes = [MLPProbe(channels=C, num_candidates=V) for _ in range(2)]
    for probe in probes:
        torch.rand(3)  # what was drawn before does not count
        probe.start_from(seen, said, torch.arange(40) < 30)
        assert not any(weights.requires_grad for weights in probe.parameters())
    states = [probe.state_dict() for probe in probes]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    scores = probes[0].train().scores(seen)
    torch.testing.assert_close(scores, probes[0].eval().scores(seen))  # no dropout once it is fitted


def test_the_loss_is_that_of_the_traces_alone() -> None:
    alone, both = encoder(probe=False), encoder(probe=True)
    maps, real, said = drawn(B, N, H, H, C), torch.ones(B, N, dtype=torch.bool), torch.ones(B, V)
    losses = [detector_losses(1.0, model(maps, real), said) for model in (alone, both)]
    assert losses[0].keys() == losses[1].keys() == {"concepts"}  # a regression has learnt already
    assert torch.allclose(losses[0]["concepts"], losses[1]["concepts"])
    assert not [name for name, _ in both.named_parameters() if name.startswith("probe")]


@torch.no_grad()
def test_rows_of_clips_have_the_detection_of_those_clips() -> None:
    model = encoder(probe=True)
    maps, real = drawn(B, N, H, H, C), torch.ones(B, N, dtype=torch.bool)
    found, rows = model(maps, real), torch.tensor([2, 0, 2, 1])
    own, again = found.of(rows).detection, model(maps[rows], real[rows]).detection
    assert own.learnt is not None
    for part, expected in zip(own, again, strict=True):
        torch.testing.assert_close(part, expected)
    torch.testing.assert_close(own.confidences, found.detection.confidences[rows])
    assert model(maps, real)._replace(detection=None).of(rows).detection is None
