"""The terms of the loss that all tasks share: g of both attentions, and the detector's own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.concept_detector import concept_loss
from ctsan.model.semantic_attention import attention_regulariser


def mean_over_clips(clip_of: Tensor) -> Callable[[Tensor], Tensor]:
    """The mean of one value a sentence or question, (M,), in which all clips count alike.

    However a batch is shared out to processes, the mean over their clips is then that over the batch.

    Args:
        clip_of: (M,), the clip that each belongs to; every clip has one or more.
    """
    counts = torch.bincount(clip_of)
    return lambda values: (values / counts[clip_of]).sum() / len(counts)


def attention_losses(
    weight: float,
    *,
    input: tuple[Tensor | None, Tensor],  # noqa: A002  # the paper's name
    output: tuple[Tensor | None, Tensor] | None = None,
    mean: Callable[[Tensor], Tensor] = Tensor.mean,
) -> dict[str, Tensor]:
    """λ1 (g(γ) + g(β)), of attentions that there are.

    Args:
        input, output: attention weights (M, T, K), and which of the steps (M, T) are real.
        mean: of one value a sentence, (M,).
    """
    both = {"input attention": input, "output attention": output}
    return {
        name: weight * mean(attention_regulariser(attention[0], attention[1]))
        for name, attention in both.items()
        if weight and attention is not None and attention[0] is not None
    }


def detector_losses(weight: float, encoding: ClipEncoding, reference: Tensor) -> dict[str, Tensor]:
    """λ2 L_con where there is a detector that learns.

    Args:
        reference: (B, V), p*: 1 where a word is in the clip's captions.
    """
    if encoding.detection is None:
        return {}
    scores = encoding.detection.scores
    return {"concepts": weight * concept_loss(scores, reference).mean()} if scores.requires_grad else {}
