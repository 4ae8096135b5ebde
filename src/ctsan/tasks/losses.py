"""Loss terms that all tasks share: the regulariser g of both attentions, and the detector's loss.

Differs from the paper: means over a batch in place of sums, because Adam's steps do not depend on the scale.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.concept_detector import concept_loss
from ctsan.model.semantic_attention import attention_regulariser


def mean_over_clips(clip_of: Tensor) -> Callable[[Tensor], Tensor]:
    """A mean over values of sentences or questions, (M,), in which all clips have the same weight.

    The mean over a batch is then the same however its clips are distributed over processes.

    Args:
        clip_of: (M,), clip index of each value; every clip has at least one.
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
    """λ1 (g(γ) + g(β)), over the attentions that the model has.

    Args:
        input, output: attention weights (M, T, K), and `is_real` (M, T).
        mean: reduces one value per sentence, (M,).
    """
    both = {"input attention": input, "output attention": output}
    return {
        name: weight * mean(attention_regulariser(attention[0], attention[1]))
        for name, attention in both.items()
        if weight and attention is not None and attention[0] is not None
    }


def detector_losses(weight: float, encoding: ClipEncoding, reference: Tensor) -> dict[str, Tensor]:
    """λ2 L_con if there is a learnt detector.

    Args:
        reference: (B, V), p*: 1 where a word is in the clip's captions.
    """
    if encoding.detection is None:
        return {}
    scores = encoding.detection.scores
    return {"concepts": weight * concept_loss(scores, reference).mean()} if scores.requires_grad else {}
