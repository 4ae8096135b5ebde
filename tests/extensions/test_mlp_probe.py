"""The probe beside the traces: a perceptron on a clip's mean feature, fitted before training."""

from __future__ import annotations

import torch
from torch import Tensor

from ctsan.baselines.average_detector import AverageDetector
from ctsan.extensions.mlp_probe import MLPProbe
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.tasks.losses import detector_losses

B, N, H, C, D, E, V = 3, 4, 2, 12, 8, 5, 6


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def encoder() -> ClipEncoder:
    torch.manual_seed(0)
    return ClipEncoder(
        channels=C,
        embedding=drawn(V + 5, E),
        candidate_words=torch.arange(5, V + 5),
        hidden_dim=D,
        detector=AverageDetector(hidden_dim=D, num_layers=1, num_candidates=V, dropout=0.0),
        num_concepts=2,
        probe=MLPProbe(channels=C, num_candidates=V),
    ).eval()


def fitted_encoder() -> ClipEncoder:
    """With a probe that has learnt, and traces that add to it."""
    model = encoder()
    assert isinstance(model.probe, MLPProbe)
    assert isinstance(model.detector, AverageDetector)
    said = (drawn(40, V, seed=5) > 0.5).float()
    model.probe.fit(drawn(40, C, seed=3), said, torch.ones(40, dtype=torch.bool))
    torch.nn.init.normal_(model.detector.name.weight)
    return model


@torch.no_grad()
def test_scores_of_probe_and_traces_are_added_and_padding_changes_nothing() -> None:
    model = fitted_encoder()
    assert model.probe is not None
    assert model.detector is not None
    maps, real = drawn(B, N, H, H, C), torch.ones(B, N, dtype=torch.bool)
    found = model(maps, real)
    probed = model.probe(maps.mean(dim=(1, 2, 3)))
    by_traces = model.detector(model.regions(maps), real).scores
    torch.testing.assert_close(found.detection.probed, probed)
    torch.testing.assert_close(found.detection.scores, probed + by_traces)
    more = torch.cat([maps, torch.full((B, 2, H, H, C), 7.0)], dim=1)
    padded = model(more, torch.cat([real, ~real[:, :2]], dim=1))
    torch.testing.assert_close(padded.detection.scores, found.detection.scores)


def test_it_finds_words_that_depend_on_the_features_in_no_linear_way() -> None:
    """A word for two features of one sign: a linear map of them is no better than chance."""
    seen, new = drawn(3000, C, seed=3), drawn(500, C, seed=4)
    said, asked = ((x[:, :V] * x[:, 1 : V + 1] > 0).float() for x in (seen, new))
    probe = MLPProbe(channels=C, num_candidates=V)
    probe.fit(seen, said, torch.ones(3000, dtype=torch.bool))
    assert ((probe.eval()(new) > 0) == (asked > 0)).float().mean() > 0.7


def test_own_clips_count_more_than_those_of_others() -> None:
    """Both are as many, and say the opposite of each other."""
    seen, new = drawn(400, C, seed=3), drawn(500, C, seed=4)
    is_own = torch.arange(400) < 200
    said = ((seen[:, :V] > 0) == is_own[:, None]).float()
    probe = MLPProbe(channels=C, num_candidates=V)
    probe.fit(seen, said, is_own)
    assert ((probe.eval()(new) > 0) == (new[:, :V] > 0)).float().mean() > 0.7


def test_traces_begin_by_adding_nothing_and_learn_what_it_does_not_tell() -> None:
    model = encoder()
    model.init_from(frequencies=torch.full((V,), 0.2))
    maps, real, said = drawn(B, N, H, H, C), torch.ones(B, N, dtype=torch.bool), torch.ones(B, V)
    assert model.probe is not None
    found = model(maps, real).detection
    torch.testing.assert_close(found.scores, model.probe(model.means(maps, real)))
    out_of_fold = drawn(B, V, seed=7)
    encoding = model(maps, real, out_of_fold)
    torch.testing.assert_close(encoding.detection.scores, out_of_fold)
    losses = detector_losses(1.0, encoding, said)
    torch.testing.assert_close(losses["concepts"], -out_of_fold.sigmoid().log().mean())
    torch.autograd.backward(losses["concepts"])
    assert isinstance(model.detector, AverageDetector)
    assert model.detector.name.weight.grad is not None
    assert model.detector.name.weight.grad.abs().max() > 0


def test_it_is_fitted_alike_every_time_and_learns_nothing_more() -> None:
    seen, said = drawn(40, C, seed=3), (drawn(40, V, seed=5) > 0.5).float()
    probes = [MLPProbe(channels=C, num_candidates=V) for _ in range(2)]
    for probe in probes:
        torch.rand(3)  # what was drawn before does not count
        probe.fit(seen, said, torch.arange(40) < 30)
        assert not any(weights.requires_grad for weights in probe.parameters())
    states = [probe.state_dict() for probe in probes]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    scores = probes[0].train()(seen)
    torch.testing.assert_close(scores, probes[0].eval()(seen))  # no dropout once it is fitted


@torch.no_grad()
def test_rows_of_clips_have_the_detection_of_those_clips() -> None:
    model = fitted_encoder()
    maps, real = drawn(B, N, H, H, C), torch.ones(B, N, dtype=torch.bool)
    found, rows = model(maps, real), torch.tensor([2, 0, 2, 1])
    own, again = found.of(rows).detection, model(maps[rows], real[rows]).detection
    assert own.probed is not None
    for part, expected in zip(own, again, strict=True):
        torch.testing.assert_close(part, expected)
    torch.testing.assert_close(own.confidences, found.detection.confidences[rows])
    assert model(maps, real)._replace(detection=None).of(rows).detection is None
