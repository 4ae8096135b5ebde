"""Attention weights and effects that explain an answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ctsan.inference.ensemble import word_ids
from ctsan.inference.loaded_model import Captioner, ClipEncoding, Floats, LoadedModel, SentenceScorer
from ctsan.inference.results import Attention, Caption
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import BOS


def attention_of(
    model: LoadedModel,
    encoding: ClipEncoding,
    words: Sequence[str],
    input_weights: Floats | None,
    output_weights: Floats | None = None,
) -> Attention:
    """Pair one model's attention weights with the words and the concept words they belong to.

    Args:
        encoding: with one row.
        words: of the sentence; cut to the length of `input_weights`.
        input_weights: (T, K), padded.
        output_weights: (K,) or (T, K).
    """
    candidates = model.concepts.words
    given = int((encoding.confidences[0] > 0).sum())  # a clip may have fewer than K concept words
    return Attention(
        run=str(model.folder),
        concepts=tuple(candidates[number] for number in encoding.concept_words[0, :given].tolist()),
        words=tuple(words if input_weights is None else words[: len(input_weights)]),
        input_weights=None if input_weights is None else input_weights[: len(words), :given],
        output_weights=None if output_weights is None else output_weights[..., :given],
    )


def caption_attention(model: Captioner, encoding: ClipEncoding, caption: Caption) -> Attention:
    """Compute the input and output attention of a captioner for a caption.

    One teacher-forced pass. Step t reads word t - 1 and predicts word t; the last step predicts the end of
    the sentence. Output weights therefore come from all steps but the last, input weights from all but the
    first.

    Args:
        encoding: with one row.
    """
    words = caption.text.split()
    reading = model.read_caption(np.array([[BOS, *model.vocabulary.encode(words)]]), encoding)
    inputs, outputs = reading.input_weights, reading.output_weights
    return attention_of(
        model,
        encoding,
        words,
        None if inputs is None else inputs[0, 1:],
        None if outputs is None else outputs[0, :-1],
    )


def reading_attentions(
    models: Sequence[SentenceScorer], encodings: Sequence[ClipEncoding], sentences: Sequence[str]
) -> list[tuple[Attention, ...]]:
    """Compute every model's input attention for each sentence about a clip.

    Args:
        encodings: one per model, with one row.
    """
    weights = [
        model.score_each(word_ids(model, sentences), encoding.without_detection.of([0] * len(sentences)))[1]
        for model, encoding in zip(models, encodings, strict=True)
    ]
    return [
        tuple(
            attention_of(model, encoding, tokenize(sentence), None if shares is None else shares[number])
            for model, encoding, shares in zip(models, encodings, weights, strict=True)
        )
        for number, sentence in enumerate(sentences)
    ]
