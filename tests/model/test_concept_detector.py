"""The detector against equations 1 to 6 in plain NumPy, and what it promises of padding and traces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ctsan.model.concept_detector import ConceptDetector, RegionReducer, TraceAttention, concept_loss
from worked_out import lstm_step, numbers, sigmoid

B, N, D, H, W, V = 2, 5, 6, 3, 2, 7
L = P = H * W


@pytest.fixture
def detector() -> ConceptDetector:
    torch.manual_seed(0)
    detector = ConceptDetector(hidden_dim=D, grid=(H, W), num_candidates=V, attention_dim=4).eval()
    with torch.no_grad():  # weights that are nowhere zero or one
        for parameter in detector.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return detector.double()


@pytest.fixture
def regions() -> Tensor:
    return torch.randn(B, N, D, H, W, generator=torch.Generator().manual_seed(1), dtype=torch.double)


def every(shape: tuple[int, ...] = (B, N)) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


def convolve(x: np.ndarray, kernels: np.ndarray) -> np.ndarray:
    """(I, h, w) with (O, I, 3, 3) to (O, h, w), zeros outside."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    out = np.zeros((len(kernels), H, W))
    for j in range(H):
        for k in range(W):
            out[:, j, k] = (kernels * padded[None, :, j : j + 3, k : k + 3]).sum(axis=(1, 2, 3))
    return out


def equations(detector: ConceptDetector, regions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equations 1 to 5 for one clip, one trace and one cell at a time."""
    w = numbers(detector)
    last, attention = [], np.zeros((len(regions), L, H, W))
    for trace in range(L):
        hidden, cell = np.zeros((2, D)), np.zeros((2, D))
        for n, v in enumerate(regions):  # v: (D, h, w)
            if n == 0:
                alpha = np.eye(P)[trace].reshape(H, W)
            else:
                e = v * hidden[1][:, None, None]  # eq. 3
                inner = np.maximum(convolve(e, w["attend.first.weight"]) + w["attend.first_bias"], 0)
                scores = convolve(inner, w["attend.second.weight"])[0]
                alpha = np.exp(scores) / np.exp(scores).sum()  # eq. 4
            x = (alpha * v).sum(axis=(1, 2))  # eq. 1
            hidden, cell = lstm_step(w, "trace", x, hidden, cell)  # eq. 2, with layer normalisation
            attention[n, trace] = alpha
        last.append(hidden[1])
    confidences = sigmoid(w["name.weight"] @ np.concatenate(last) + w["name.bias"])  # eq. 5
    return confidences, attention


def test_confidences_and_attention_are_those_of_the_equations(
    detector: ConceptDetector, regions: Tensor
) -> None:
    found = detector(regions, every())
    for clip in range(B):
        p, attention = equations(detector, regions[clip].numpy())
        np.testing.assert_allclose(found.confidences[clip].detach().numpy(), p, atol=1e-9)
        np.testing.assert_allclose(found.attention[clip].detach().numpy(), attention, atol=1e-9)


def test_sharing_between_traces_changes_no_number() -> None:
    torch.manual_seed(0)
    attend = TraceAttention(hidden_dim=D, attention_dim=5).double()
    regions, hidden = torch.randn(B, D, 4, 4).double(), torch.randn(B, 16, D).double()
    torch.testing.assert_close(attend(regions, hidden), attend.forward_plainly(regions, hidden))


def test_attention_adds_up_to_one_and_starts_one_hot(detector: ConceptDetector, regions: Tensor) -> None:
    attention = detector(regions, every()).attention
    assert attention.shape == (B, N, L, H, W)
    torch.testing.assert_close(attention.sum(dim=(3, 4)), torch.ones(B, N, L, dtype=torch.double))
    torch.testing.assert_close(attention[0, 0].flatten(1), torch.eye(L, dtype=torch.double))


def test_padded_frames_do_not_change_the_concepts(detector: ConceptDetector, regions: Tensor) -> None:
    alone = detector(regions[:1, :3], every((1, 3))).scores
    padded = regions.clone()
    padded[0, 3:] = 1e3
    is_real = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    torch.testing.assert_close(detector(padded, is_real).scores[:1], alone)


@pytest.mark.parametrize("grid", [(1, 1), (4, 4), (2, 3)])
def test_there_are_as_many_traces_as_cells(grid: tuple[int, int]) -> None:
    detector = ConceptDetector(hidden_dim=D, grid=grid, num_candidates=V, attention_dim=4)
    found = detector(torch.randn(B, N, D, *grid), every())
    assert found.attention.shape == (B, N, grid[0] * grid[1], *grid)
    assert found.scores.shape == (B, V)


def test_the_loss_is_that_of_equation_6() -> None:
    scores = torch.tensor([[0.3, -1.2, 2.0], [0.0, 0.5, -0.7]], dtype=torch.double)
    reference = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], dtype=torch.double)
    p, truth = sigmoid(scores.numpy()), reference.numpy()
    wanted = -(truth * np.log(p) + (1 - truth) * np.log(1 - p)).mean(axis=1)
    np.testing.assert_allclose(concept_loss(scores, reference).numpy(), wanted)


def test_the_concept_loss_reaches_every_parameter_also_when_attention_is_recomputed(
    detector: ConceptDetector, regions: Tensor
) -> None:
    reference = torch.zeros(B, V, dtype=torch.double)
    gradients = []
    for detector.recompute_attention in (False, True):
        detector.zero_grad()
        torch.autograd.backward(concept_loss(detector(regions, every()).scores, reference).mean())
        gradients.append(
            {name: p.grad.clone() for name, p in detector.named_parameters() if p.grad is not None}
        )
    assert set(gradients[0]) == {name for name, _ in detector.named_parameters()}
    for name, gradient in gradients[0].items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(gradients[1][name], gradient)


def test_regions_are_reduced_cell_by_cell() -> None:
    reduce = RegionReducer(channels=3, hidden_dim=D)
    maps = torch.randn(B, N, H, W, 3)
    regions = reduce(maps)
    assert regions.shape == (B, N, D, H, W)
    alone = reduce.conv(maps[1, 2].permute(2, 0, 1)[None])[0]
    torch.testing.assert_close(regions[1, 2], alone)


def test_tied_traces_are_named_by_their_mean(regions: Tensor) -> None:
    """Nothing else changes: copies of W_p for every trace, over L, give the same scores."""
    torch.manual_seed(0)
    tied = (
        ConceptDetector(hidden_dim=D, grid=(H, W), num_candidates=V, attention_dim=4, tie_traces=True)
        .double()
        .eval()
    )
    plain = ConceptDetector(hidden_dim=D, grid=(H, W), num_candidates=V, attention_dim=4).double().eval()
    weights = tied.state_dict()
    weights["name.weight"] = weights["name.weight"].repeat(1, L) / L
    plain.load_state_dict(weights)
    found, expected = tied(regions, every()), plain(regions, every())
    torch.testing.assert_close(found.scores, expected.scores)
    concepts = found.scores.topk(3, dim=1).indices
    torch.testing.assert_close(tied.shares(found.states, concepts), plain.shares(expected.states, concepts))


def test_the_traces_shares_of_a_score_add_up_to_it(detector: ConceptDetector, regions: Tensor) -> None:
    found = detector.eval()(regions, torch.ones(regions.shape[:2], dtype=torch.bool))
    concepts = found.scores.topk(3, dim=1).indices
    shares = detector.shares(found.states, concepts)  # (B, K, L)
    scores = shares.sum(dim=2) + detector.name.bias[concepts]
    torch.testing.assert_close(scores, found.scores.gather(1, concepts))
