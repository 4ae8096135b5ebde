"""Semantic attention (section 3.1): mixes concept words into input words and into hidden states."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_P, _Q = 2.0, 0.5  # exponents of the regulariser g (eq. 15)


def _gate(dim: int, initial: float | None) -> nn.Parameter:
    """w of diag(w), (dim,); if `initial` is None, drawn like a Xavier-initialised (dim, dim) matrix."""
    gate = nn.Parameter(torch.empty(dim))
    if initial is not None:
        nn.init.constant_(gate, initial)
    else:
        bound = math.sqrt(3 / dim)
        nn.init.uniform_(gate, -bound, bound)
    return gate


def concept_attention(scores: Tensor, concepts: Tensor) -> Tensor:
    """Masked softmax of scores (B, T, K) over the concept words (B, K, E).

    A row of zeros is an empty slot and gets weight 0. Without any concept words all weights are 0.
    """
    is_word = (concepts != 0).any(dim=-1)[:, None]  # (B, 1, K)
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~is_word, lowest).softmax(dim=-1).masked_fill(~is_word, 0.0)


class InputSemanticAttention(nn.Module):
    """Mix the concept words most related to a word into that word (φ, eqs. 9 and 10).

    Args:
        contrastive_init: initialise W_γ as the identity and w_{x,a} as -1. The concept words most similar to
            a word are then subtracted from it, and the remainder is what the clip does not explain.
        gate: initial value of w_{x,a}; None for Xavier initialisation. With a small value the language model
            first learns without concept words, which are random while the detector is untrained.
    """

    def __init__(
        self,
        *,
        embedding_dim: int,
        hidden_dim: int,
        contrastive_init: bool = False,
        gate: float | None = None,
    ) -> None:
        super().__init__()
        self.contrastive_init = contrastive_init
        self.relate = nn.Parameter(torch.empty(embedding_dim, embedding_dim))  # W_γ
        self.gate = _gate(embedding_dim, gate)  # w_{x,a}
        self.project = nn.Linear(embedding_dim, hidden_dim, bias=False)  # W_x
        nn.init.xavier_uniform_(self.relate)
        nn.init.xavier_uniform_(self.project.weight)
        if contrastive_init:
            nn.init.eye_(self.relate)
            nn.init.constant_(self.gate, -1.0)

    def forward(self, word: Tensor, concepts: Tensor) -> tuple[Tensor, Tensor]:
        """Words (B, T, E) and concept words (B, K, E) to inputs (B, T, D) and weights (B, T, K)."""
        scores = word @ self.relate @ concepts.mT  # (B, T, K)
        weights = concept_attention(scores, concepts)
        mixed = word + self.gate * (weights @ concepts)  # (B, T, E)
        return self.project(mixed), weights


class OutputSemanticAttention(nn.Module):
    """Mix the concept words most related to a hidden state into that state (ϕ, eqs. 11 and 12).

    Args:
        gate: initial value of w_{h,a}; None for Xavier initialisation.
    """

    def __init__(self, *, embedding_dim: int, hidden_dim: int, gate: float | None = None) -> None:
        super().__init__()
        self.relate = nn.Linear(embedding_dim, hidden_dim, bias=False)  # W_β
        self.gate = _gate(hidden_dim, gate)  # w_{h,a}
        nn.init.xavier_uniform_(self.relate.weight)

    def forward(
        self, hidden: Tensor, concepts: Tensor, related: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """States (B, T, D) and concept words (B, K, E) to states (B, T, D) and weights (B, T, K).

        Args:
            related: the result of `related`, if already computed.
        """
        related = self.related(concepts) if related is None else related
        weights = concept_attention(hidden @ related.mT, concepts)  # (B, T, K)
        return hidden + self.gate * (weights @ related), weights

    def related(self, concepts: Tensor) -> Tensor:
        """Projected concept words, (B, K, D), that are mixed into every state."""
        mixed: Tensor = self.relate(concepts.tanh())
        return mixed


@torch.no_grad()
def init_output_layer(say: nn.Linear, embedding: Tensor, attention: OutputSemanticAttention | None) -> None:
    """Initialise W_y as tanh(E - mean(E)) W_βᵀ, the projection of concept words, at the norm of its weights.

    An attended concept word then raises its own score, and those of similar words, from the first step on.
    Without attention a random matrix replaces W_β.

    Args:
        embedding: (words, E).
    """
    size = say.weight.norm(dim=1).mean()
    relate = say.weight.new_empty(say.in_features, embedding.shape[1])
    nn.init.xavier_uniform_(relate)
    if attention is not None:
        relate = attention.relate.weight
    seen = (embedding - embedding.mean(dim=0)).tanh() @ relate.mT  # the mean carries no information
    say.weight.copy_(seen * size / seen.norm(dim=1).mean())


@torch.no_grad()
def init_output_bias(say: nn.Linear, counts: Tensor) -> None:
    """Initialise b_y as the log of the word frequencies.

    Args:
        counts: (words,), how often each word is to be predicted in training.
    """
    smoothed = counts.float() + 0.1
    say.bias.copy_((smoothed / smoothed.sum()).log())


def attention_regulariser(weights: Tensor, is_real: Tensor) -> Tensor:
    """g of eq. 15 for every sequence, (B,), as printed.

    The first term is minimal if all concept words get the same attention. The weights of a step sum to one,
    so the second term is the square of the number of steps and has no gradient. Without concept words g is 0.

    Args:
        weights: (B, T, K), attention on K concept words at T steps.
        is_real: (B, T), True where a step is not padding.
    """
    totals = weights.sum(dim=2)
    is_attended = is_real & (totals > 0)
    # The gradient of a root is infinite at 0: exclude padding and clips without words.
    squares = (weights * is_real[..., None]).sum(dim=1).pow(_P).sum(dim=1)
    counted = (torch.where(is_attended, totals, 1.0).pow(_Q) * is_attended).sum(dim=1)
    has_words = is_attended.any(dim=1)
    over_steps = torch.where(has_words, squares, 1.0).pow(1 / _P)
    over_words = torch.where(has_words, counted, 1.0).pow(1 / _Q)
    return torch.where(has_words, over_steps + over_words, 0.0)
