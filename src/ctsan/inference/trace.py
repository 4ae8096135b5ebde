"""The spatial attention of a model's traces over a clip, as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ctsan.errors import UsageError, did_you_mean
from ctsan.inference.ensemble import caption_attention
from ctsan.inference.results import Caption, Concept, Effects, Tracing
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.concept_detector import ConceptDetector
from ctsan.runs.trained_run import WORDS_FOLDER, TrainedRun
from ctsan.text.words import CONCEPTS_FILE
from ctsan.video.frames import subsample


def has_traces(run: TrainedRun) -> bool:
    return isinstance(run.loaded.model.clip_encoder.detector, ConceptDetector)


def check_concept(run: TrainedRun, concept: str | None) -> None:
    """Check that a run has traces, and that the concept is one of its candidates.

    Raises:
        UsageError: the model has no detector, or does not know the concept.
    """
    candidates = run.loaded.words.concepts.words
    if not has_traces(run):
        raise UsageError("The model has no concept detector, so no traces. Name a run that has one.")
    if concept is not None and concept not in candidates:
        raise UsageError(
            f"Unknown concept word '{concept}'. {did_you_mean(concept, candidates)}"
            f"{WORDS_FOLDER}/{CONCEPTS_FILE} of the run lists the {len(candidates):,} that it knows."
        )


@torch.inference_mode()
def trace_clip(
    run: TrainedRun,
    encoding: ClipEncoding,
    caption: Caption,
    *,
    said_by: Sequence[TrainedRun],
    effects: Effects | None,
    concepts: tuple[Concept, ...],
    concept: str | None,
    times: NDArray[np.float64],
    cell_borders: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Tracing:
    """Collect the traces, attention and effects of one description run for a clip.

    Args:
        caption: the caption of the clip.
        said_by: the runs of the ensemble that generated it; `run` is one of them.
        effects: of the ensemble's concept words on the words of the caption.
        concepts: the concept words that `run` detects.
        concept: one more concept word to include, detected or not.
        times: of all sampled frames of the clip, in seconds.
        cell_borders: borders of the rows and columns of the backbone's grid in a frame, from 0 to 1.
    """
    detector, detection = run.loaded.model.clip_encoder.detector, encoding.detection
    assert detection is not None  # see `check_concept`
    candidates = run.loaded.words.concepts.words
    raised = encoding.concept_words[0].tolist()
    if concept is not None and candidates.index(concept) not in raised:
        raised.append(candidates.index(concept))
    numbers = torch.tensor([raised], device=detection.scores.device)
    attention = caption_attention(run, encoding, caption)
    frames = detection.attention.shape[1]
    rows, columns = cell_borders
    without_traces = detection.scores if detection.probed is None else detection.probed
    return Tracing(
        run=str(run.folder),
        said_by=tuple(str(each.folder) for each in said_by),
        times=times[subsample(len(times), frames)],
        attention=detection.attention[0].cpu().numpy(),
        rows=rows,
        columns=columns,
        concepts=concepts,
        raised=tuple(Concept(candidates[n], float(detection.confidences[0, n])) for n in raised),
        probe_confidences=without_traces[0, raised].sigmoid().cpu().numpy(),
        has_probe=detection.probed is not None,
        shares=detector.shares(detection.states, numbers)[0].cpu().numpy(),
        caption=caption,
        output_weights=attention.output_weights,
        input_weights=attention.input_weights,
        effects=effects,
    )
