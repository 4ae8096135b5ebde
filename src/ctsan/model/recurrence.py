"""The recurrence of a layer-normalised LSTM layer as one autograd function with a hand-written backward pass.

This avoids an autograd graph of a dozen small operations per step. The backward pass runs step by step only
for the gradients of the state. Gradients of weights and gains are one product or reduction over all steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def as_multiplied(weight: Tensor) -> Tensor:
    """Cast a tensor to the precision of matrix products: that of autocast, if enabled."""
    device = weight.device.type
    return weight.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else weight


class Recurrence(torch.autograd.Function):
    """Input projections of the gates and an initial state to all states.

    The 4 D gate values are forget, write (input), show (output) and the new content, in this order. Names
    that start with `d_` are gradients of the loss.
    """

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,  # (T, B, 4 D)
        hidden: Tensor,  # (B, D)
        cell: Tensor,  # (B, D)
        is_real: Tensor | None,  # (T, B), False where the state is kept
        weight: Tensor,  # (4 D, D), hidden projection of the gates
        gain: Tensor,  # (4 D,), of its layer normalisation
        cell_gain: Tensor,  # (D,)
        cell_bias: Tensor,  # (D,)
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states after each step (T, B, D), and the last hidden state and cell."""
        raw, gates = torch.empty_like(projected), torch.empty_like(projected)
        hiddens = projected.new_empty(len(projected) + 1, *hidden.shape)
        cells, shown = torch.empty_like(hiddens), torch.empty_like(hiddens[1:])
        hiddens[0], cells[0] = hidden, cell
        hidden_at, cell_at = hiddens.unbind(0), cells.unbind(0)
        sigmoids, forget, write, show, new = _gates_by_step(gates)
        moments: list[Tensor] = []  # means and scales of both normalisations, step by step
        steps = zip(projected.unbind(0), raw.unbind(0), gates.unbind(0), shown.unbind(0), strict=True)
        for t, (x, share, gate, tanh) in enumerate(steps):
            hidden, after, cell, cell_after = hidden_at[t], hidden_at[t + 1], cell_at[t], cell_at[t + 1]
            _multiply(hidden, weight.mT, out=share)
            normed, *both = torch.native_layer_norm(share, gain.shape, gain, None, eps)
            moments += both
            torch.add(x, normed, out=gate)
            sigmoids[t].sigmoid_()
            new[t].tanh_()
            torch.mul(forget[t], cell, out=cell_after).addcmul_(write[t], new[t])
            normed, *both = torch.native_layer_norm(cell_after, cell_gain.shape, cell_gain, cell_bias, eps)
            moments += both
            torch.mul(show[t], torch.tanh(normed, out=tanh), out=after)
            if is_real is not None:
                here = is_real[t, :, None]
                after.copy_(torch.where(here, after, hidden))
                cell_after.copy_(torch.where(here, cell_after, cell))
        ctx.save_for_backward(
            hiddens, cells, raw, gates, shown, is_real, weight, gain, cell_gain, cell_bias, *moments
        )
        return hiddens[1:], hiddens[-1], cells[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        hiddens, cells, raw, gates, shown, is_real, weight, gain, cell_gain, cell_bias, *moments = (
            ctx.saved_tensors
        )
        means, scales, cell_means, cell_scales = (moments[n::4] for n in range(4))
        sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
        tanh_backward = torch.ops.aten.tanh_backward.grad_input
        norm_backward = torch.ops.aten.native_layer_norm_backward
        d_gates, d_raw, d_normed = torch.empty_like(gates), torch.empty_like(raw), torch.empty_like(shown)
        sigmoids, forget, write, show, new = _gates_by_step(gates)
        d_sigmoids, d_forget, d_write, d_show, d_new = _gates_by_step(d_gates)
        cell_at = cells.unbind(0)
        d_hidden, d_cell = d_hidden.clone(), d_cell.clone()
        for t in reversed(range(len(gates))):
            d_hidden += d_outputs[t]
            if is_real is not None:  # padding passes the gradient to the previous step unchanged
                here = is_real[t, :, None]
                d_passed, d_cell_passed = d_hidden.masked_fill(here, 0), d_cell.masked_fill(here, 0)
                d_hidden, d_cell = d_hidden.masked_fill(~here, 0), d_cell.masked_fill(~here, 0)
            torch.mul(d_hidden, shown[t], out=d_show[t])
            tanh_backward(d_hidden.mul_(show[t]), shown[t], grad_input=d_normed[t])
            d_cell += norm_backward(
                d_normed[t],
                cell_at[t + 1],
                cell_gain.shape,
                cell_means[t],
                cell_scales[t],
                cell_gain,
                cell_bias,
                [True, False, False],
            )[0]
            torch.mul(d_cell, cell_at[t], out=d_forget[t])
            torch.mul(d_cell, new[t], out=d_write[t])
            torch.mul(d_cell, write[t], out=d_new[t])
            d_cell *= forget[t]
            sigmoid_backward(d_sigmoids[t], sigmoids[t], grad_input=d_sigmoids[t])
            tanh_backward(d_new[t], new[t], grad_input=d_new[t])
            d_share = norm_backward(
                d_gates[t], raw[t], gain.shape, means[t], scales[t], gain, None, [True, False, False]
            )[0]
            d_raw[t] = d_share
            _multiply(d_share, weight, out=d_hidden)
            if is_real is not None:
                d_hidden += d_passed
                d_cell += d_cell_passed
        d_weight = d_raw.flatten(0, 1).to(weight.dtype).mT @ hiddens[:-1].flatten(0, 1).to(weight.dtype)
        d_gain = norm_backward(
            d_gates.flatten(0, 1),
            raw.flatten(0, 1),
            gain.shape,
            torch.cat(means),
            torch.cat(scales),
            gain,
            None,
            [False, True, False],
        )[1]
        _, d_cell_gain, d_cell_bias = norm_backward(
            d_normed.flatten(0, 1),
            cells[1:].flatten(0, 1),
            cell_gain.shape,
            torch.cat(cell_means),
            torch.cat(cell_scales),
            cell_gain,
            cell_bias,
            [False, True, True],
        )
        return d_gates, d_hidden, d_cell, None, d_weight, d_gain, d_cell_gain, d_cell_bias, None


def _gates_by_step(gates: Tensor) -> tuple[tuple[Tensor, ...], ...]:
    """Views of (T, B, 4 D) for each step: the three sigmoid gates together, and each of the four parts."""
    parts = gates.chunk(4, dim=2)
    return tuple(part.unbind(0) for part in (gates[..., : 3 * parts[0].shape[2]], *parts))


def _multiply(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    """A matrix product in the precision of `b`."""
    if b.dtype == out.dtype:
        torch.mm(a, b, out=out)
    else:
        out.copy_(a.to(b.dtype) @ b)
