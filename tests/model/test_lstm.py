"""The recurrence and its hand-made gradients against the same step by step, as autograd has it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ctsan.model.concept_detector import ConceptDetector, SharedConvolution, TraceAttention
from ctsan.model.lstm import LayerNormLSTM, LayerNormLSTMLayer
from ctsan.model.recurrence import Recurrence

B, T, E, D = 3, 4, 5, 6
PADDED = torch.tensor([[True, True, True, False], [True] * 4, [True, False, True, True]])


def draw(*shape: int, seed: int = 0) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    return values.requires_grad_()


@pytest.fixture
def layer() -> LayerNormLSTMLayer:
    torch.manual_seed(0)
    layer = LayerNormLSTMLayer(input_dim=E, hidden_dim=D).double()
    with torch.no_grad():  # weights that are nowhere zero or one
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def step_by_step(
    layer: LayerNormLSTMLayer, x: Tensor, hidden: Tensor, cell: Tensor, is_real: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    outputs = []
    for step, projected in enumerate(layer.project(x).unbind(dim=1)):
        after = layer.advance(projected, hidden, cell)
        here = torch.ones(len(x), 1, dtype=torch.bool) if is_real is None else is_real[:, step, None]
        hidden, cell = torch.where(here, after[0], hidden), torch.where(here, after[1], cell)
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), hidden, cell


@pytest.mark.parametrize("is_real", [None, PADDED])
def test_all_steps_at_once_give_the_numbers_and_gradients_of_one_by_one(
    layer: LayerNormLSTMLayer, is_real: Tensor | None
) -> None:
    x, hidden, cell = draw(B, T, E), draw(B, D, seed=1), draw(B, D, seed=2)
    found = []
    for run in (step_by_step, LayerNormLSTMLayer.forward):
        outputs = run(layer, x, hidden, cell, is_real)
        # All three results have a part in the loss, each number of them with another weight.
        losses = [(out * draw(*out.shape, seed=3 + n).detach()).sum() for n, out in enumerate(outputs)]
        loss = torch.stack(losses).sum()
        found.append([*outputs, *torch.autograd.grad(loss, [x, hidden, cell, *layer.parameters()])])
    for wanted, got in zip(*found, strict=True):
        assert wanted.abs().max() > 0
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("is_real", [None, PADDED.mT])
def test_gradients_of_the_recurrence_are_its_differences(is_real: Tensor | None) -> None:
    weights = [draw(4 * D, D, seed=3), draw(4 * D, seed=4), draw(D, seed=5), draw(D, seed=6)]
    first = [draw(T, B, 4 * D), draw(B, D, seed=1), draw(B, D, seed=2)]

    def apply(*given: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = Recurrence.apply(*given[:3], is_real, *given[3:], 1e-5)  # type: ignore[no-untyped-call]  # of torch
        return found

    assert torch.autograd.gradcheck(apply, (*first, *weights))


def test_gradients_of_the_shared_convolution_are_its_differences() -> None:
    patches, kernels, hidden = draw(2, 3, 9, 4), draw(3, 9, 2, seed=1), draw(2, 5, 3, seed=2)
    assert torch.autograd.gradcheck(SharedConvolution.apply, (patches, kernels, hidden))


def test_attention_has_the_gradients_of_the_convolutions_as_printed() -> None:
    torch.manual_seed(0)
    attend = TraceAttention(hidden_dim=D, attention_dim=5).double()
    torch.nn.init.normal_(attend.first_bias)
    regions, hidden, target = draw(B, D, 4, 3), draw(B, 12, D, seed=1), draw(B, 12, 4, 3, seed=2).detach()
    found = [
        torch.autograd.grad((run(regions, hidden) * target).sum(), [regions, hidden, *attend.parameters()])
        for run in (attend.forward_plainly, attend)
    ]
    for wanted, got in zip(*found, strict=True):
        assert wanted.abs().max() > 0
        torch.testing.assert_close(got, wanted)


def test_what_padding_holds_reaches_no_gradient(layer: LayerNormLSTMLayer) -> None:
    x, state = draw(B, T, E), draw(B, D, seed=1).detach()
    outputs = layer(x, state, state, PADDED)[0]
    (gradient,) = torch.autograd.grad(outputs.square().sum(), x)
    assert (gradient[~PADDED] == 0).all()
    assert (gradient[PADDED] != 0).any(dim=1).all()


def test_a_step_leaves_padded_rows_as_they_were() -> None:
    torch.manual_seed(0)
    lstm = LayerNormLSTM(input_dim=E, hidden_dim=D).double()
    state = lstm.step(draw(B, E), lstm.initial(B, draw(1)))
    after = lstm.step(draw(B, E, seed=1), state, is_real=torch.tensor([True, False, True]))
    for before, now in zip(state, after, strict=True):
        assert torch.equal(now[:, 1], before[:, 1])
        assert (now[:, [0, 2]] != before[:, [0, 2]]).all()


def test_under_autocast_numbers_are_close_and_gradients_are_whole() -> None:
    torch.manual_seed(0)
    detector = ConceptDetector(hidden_dim=16, grid=(2, 2), num_candidates=5, attention_dim=4)
    lstm = LayerNormLSTM(input_dim=16, hidden_dim=16)
    regions, is_real = torch.randn(B, T, 16, 2, 2), torch.ones(B, T, dtype=torch.bool)
    detector.eval()

    def run() -> tuple[Tensor, Tensor]:
        return detector(regions, is_real).scores, lstm(regions.mean(dim=(3, 4)), is_real=PADDED)[0]

    wanted = run()
    with torch.autocast("cpu", torch.bfloat16):
        got = run()
    for precise, rough in zip(wanted, got, strict=True):
        torch.testing.assert_close(rough.float(), precise, atol=0.05, rtol=0.05)
    torch.autograd.backward(torch.stack([out.float().square().sum() for out in got]).sum())
    for name, parameter in (*detector.named_parameters(), *lstm.named_parameters()):
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


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
    x = draw(2, T, E)
    is_real = torch.tensor([[True, True, False, False], [True] * 4])
    _, padded = layers(x, is_real=is_real)
    _, alone = layers(x[:1, :2])
    torch.testing.assert_close(padded.hidden[:, :1], alone.hidden)
    torch.testing.assert_close(padded.cell[:, :1], alone.cell)
