"""The linear probe beside the traces: it learns at once, and has half the say.

Worst of five seeds by `make margins`, and the bound:

- right words .875 (> .85); weights of many clips 2.60 times those of a few (> 2), and these .028 (> 0)
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ctsan.model.average_detector import AverageDetector
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_probe import ConceptProbe
from ctsan.model.mlp_probe import MLPProbe
from ctsan.tasks.losses import detector_losses
from margins import Margins, Start

B, N, H, C, D, E, V = 3, 4, 2, 12, 8, 5, 6


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def encoder(*, probe: bool) -> ClipEncoder:
    torch.manual_seed(0)
    return ClipEncoder(
        channels=C,
        embedding=drawn(V + 5, E),
        candidate_words=torch.arange(5, V + 5),
        hidden_dim=D,
        detector=AverageDetector(hidden_dim=D, num_layers=1, num_candidates=V, dropout=0.0),
        num_concepts=2,
        probe=ConceptProbe(channels=C, num_candidates=V) if probe else None,
    ).eval()


def test_it_finds_words_that_depend_on_the_features(start: Start, margins: Margins) -> None:
    seen, new = drawn(4000, C, seed=3 * start.seed), drawn(500, C, seed=3 * start.seed + 1)
    says = drawn(V, C, seed=3 * start.seed + 2)
    said = (seen @ says.mT > 0).float()
    probe = ConceptProbe(channels=C, num_candidates=V)
    probe.start_from(seen, said, torch.ones(4000, dtype=torch.bool))
    undecided = torch.full((500, V), -9.0)
    found = (
        probe.mix(probe.scores(new), undecided).sigmoid() > 0.25
    )  # half the say, and more than an even chance
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


def test_a_perceptron_learns_by_a_loss_of_its_own_and_begins_with_frequencies() -> None:
    alone, both = encoder(probe=False), encoder(probe=False)
    both.probe = MLPProbe(channels=C, num_candidates=V)
    both.start_from(frequencies=torch.linspace(0.1, 0.6, V))
    alone.start_from(frequencies=torch.linspace(0.1, 0.6, V))
    torch.testing.assert_close(both.probe.name.bias.sigmoid(), torch.linspace(0.1, 0.6, V))
    maps, real, said = drawn(B, N, H, H, C), torch.ones(B, N, dtype=torch.bool), torch.ones(B, V)
    encoding = both.eval()(maps, real)
    losses = detector_losses(1.0, encoding, said)
    torch.testing.assert_close(losses["concepts"], detector_losses(1.0, alone(maps, real), said)["concepts"])
    own = encoding.detection.probed.sigmoid()
    torch.testing.assert_close(losses["probe"], -own.log().mean())
    torch.testing.assert_close(
        encoding.detection.confidences, (own + encoding.detection.learnt.sigmoid()) / 2, atol=1e-5, rtol=0
    )
    losses["probe"].backward()
    assert both.probe.hidden.weight.grad.abs().max() > 0
    assert both.detector.name.weight.grad is None


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
