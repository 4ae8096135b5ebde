"""The spatial attention of a model's traces over a clip, as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import UsageError, did_you_mean
from ctsan.inference.explaining import caption_attention
from ctsan.inference.loaded_model import Captioner, ClipEncoding
from ctsan.inference.results import Caption, Concept, Effects, Tracing
from ctsan.runs.trained_run import WORDS_FOLDER
from ctsan.text.words import CONCEPTS_FILE
from ctsan.video.frames import subsample


def check_concept(model: Captioner, concept: str | None) -> None:
    """Check that a model has traces, and that the concept is one of its candidates.

    Raises:
        UsageError: the model has no detector, or does not know the concept.
    """
    candidates = model.concepts.words
    if not model.has_traces:
        raise UsageError("The model has no concept detector, so no traces. Name a run that has one.")
    if concept is not None and concept not in candidates:
        raise UsageError(
            f"Unknown concept word '{concept}'. {did_you_mean(concept, candidates)}"
            f"{WORDS_FOLDER}/{CONCEPTS_FILE} of the run lists the {len(candidates):,} that it knows."
        )


def trace_clip(
    model: Captioner,
    encoding: ClipEncoding,
    caption: Caption,
    *,
    captioned_by: Sequence[Captioner],
    effects: Effects | None,
    concepts: tuple[Concept, ...],
    concept: str | None,
    times: NDArray[np.float64],
    cell_borders: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Tracing:
    """Collect the traces, attention and effects of one captioner for a clip.

    Args:
        encoding: with one row.
        caption: the caption of the clip.
        captioned_by: the ensemble that generated it; `model` is one of them.
        effects: of the ensemble's concept words on the words of the caption.
        concepts: the concept words that `model` detects.
        concept: one more concept word to include, detected or not.
        times: of all sampled frames of the clip, in seconds.
        cell_borders: borders of the rows and columns of the backbone's grid in a frame, from 0 to 1.
    """
    detection, candidates = encoding.detection, model.concepts.words
    assert detection is not None  # see `check_concept`
    raised = encoding.concept_words[0].tolist()
    if concept is not None and candidates.index(concept) not in raised:
        raised.append(candidates.index(concept))
    attention = caption_attention(model, encoding, caption)
    frames = detection.attention.shape[1]
    rows, columns = cell_borders
    confidences, probed = detection.confidences[0], detection.probe_confidences
    return Tracing(
        run=str(model.folder),
        captioned_by=tuple(str(captioner.folder) for captioner in captioned_by),
        times=times[subsample(len(times), frames)],
        attention=detection.attention[0],
        rows=rows,
        columns=columns,
        concepts=concepts,
        raised=tuple(Concept(candidates[number], float(confidences[number])) for number in raised),
        probe_confidences=(confidences if probed is None else probed[0])[raised],
        has_probe=probed is not None,
        shares=model.trace_shares(detection, raised),
        caption=caption,
        output_weights=attention.output_weights,
        input_weights=attention.input_weights,
        effects=effects,
    )
