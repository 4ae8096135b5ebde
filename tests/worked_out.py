"""The parts that all of the paper's language models share, in plain NumPy, and small models to compare."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ctsan.model.clip_encoder import ClipEncoder, ClipEncoding
from ctsan.model.concept_detector import ConceptDetector

B, N, T, K, E, D, CHANNELS, CANDIDATES, WORDS = 2, 3, 5, 3, 4, 6, 5, 7, 11

Weights = dict[str, np.ndarray]
Model = TypeVar("Model", bound=nn.Module)


def small_clip_encoder(*, with_detector: bool = True, weighted: bool = False) -> ClipEncoder:
    detector = ConceptDetector(hidden_dim=D, grid=(1, 2), num_candidates=CANDIDATES, attention_dim=4)
    return ClipEncoder(
        channels=CHANNELS,
        embedding=draw(WORDS, E, seed=5),
        candidate_words=torch.arange(CANDIDATES) + 2,
        hidden_dim=D,
        detector=detector if with_detector else None,
        num_concepts=K,
        confidence_weighted=weighted,
    )


def stirred(model: Model) -> Model:
    """The model in double precision, without dropout, with weights that are nowhere zero or one."""
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval().double()


def encode(encoder: ClipEncoder, clips: list[int]) -> ClipEncoding:
    """Two clips, and from them one row for each sentence of the clips named."""
    encoding: ClipEncoding = encoder(
        draw(B, N, 1, 2, CHANNELS, seed=7), torch.tensor([[True] * 3, [True, True, False]])
    )
    return encoding.of(torch.tensor(clips))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def trained_by(model: nn.Module, loss: Tensor) -> set[str]:
    """The parameters that a loss has a gradient for."""
    model.zero_grad()
    torch.autograd.backward(loss)
    return {name for name, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())}


def numbers(model: nn.Module) -> Weights:
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}


def softmax(x: np.ndarray) -> np.ndarray:
    shares: np.ndarray = np.exp(x) / np.exp(x).sum()
    return shares


def sigmoid(x: np.ndarray) -> np.ndarray:
    squashed: np.ndarray = 1 / (1 + np.exp(-x))
    return squashed


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | float) -> np.ndarray:
    centred = x - x.mean()
    normed: np.ndarray = centred / np.sqrt((centred**2).mean() + 1e-5) * weight + bias
    return normed


def attended_input(w: Weights, word: np.ndarray, concepts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equations 9 and 10 for one word (E,) and the concept words (K, E): x (D,) and γ (K,)."""
    p = "word_input.attention."
    gamma = softmax(np.array([word @ w[p + "relate"] @ a for a in concepts]))
    mixed = word + w[p + "gate"] * sum(g * a for g, a in zip(gamma, concepts, strict=True))
    return w[p + "project.weight"] @ mixed, gamma


def attended_output(w: Weights, state: np.ndarray, concepts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equations 11 and 12 for one state (D,) and the concept words (K, E): p (D,) and β (K,)."""
    p = "output_attention."
    related = [w[p + "relate.weight"] @ np.tanh(a) for a in concepts]
    beta = softmax(np.array([state @ r for r in related]))
    return state + w[p + "gate"] * sum(b * r for b, r in zip(beta, related, strict=True)), beta


def lstm(
    w: Weights, name: str, inputs: list[np.ndarray], hidden: np.ndarray, cell: np.ndarray
) -> list[np.ndarray]:
    """The top layer's states (D,) over a sequence, from hidden states and cells (layers, D)."""
    return run_lstm(w, name, inputs, hidden, cell)[0]


def run_lstm(
    w: Weights, name: str, inputs: list[np.ndarray], hidden: np.ndarray, cell: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The same, and all layers' hidden states and cells after the sequence."""
    states = []
    for x in inputs:
        hidden, cell = lstm_step(w, name, x, hidden, cell)
        states.append(hidden[-1])
    return states, hidden, cell


def lstm_step(
    w: Weights, name: str, x: np.ndarray, hidden: np.ndarray, cell: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Hidden states and cells (layers, D) after one more input."""
    hidden, cell = hidden.copy(), cell.copy()
    for layer in range(len(hidden)):
        p = f"{name}.layers.{layer}."
        gates = layer_norm(
            w[p + "from_input.weight"] @ x, w[p + "norm_input.weight"], w[p + "norm_input.bias"]
        )
        gates = gates + layer_norm(
            w[p + "from_hidden.weight"] @ hidden[layer], w[p + "norm_hidden.weight"], 0.0
        )
        forget, write, show, new = np.split(gates, 4)
        cell[layer] = sigmoid(forget) * cell[layer] + sigmoid(write) * np.tanh(new)
        normed = layer_norm(cell[layer], w[p + "norm_cell.weight"], w[p + "norm_cell.bias"])
        hidden[layer] = x = sigmoid(show) * np.tanh(normed)
    return hidden, cell
