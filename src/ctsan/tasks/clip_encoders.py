"""Build clip encoders and decoders from settings, with one function per source of concept words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ctsan.baselines.average_detector import AverageDetector
from ctsan.baselines.decoupled_detector import DecoupledDetector
from ctsan.baselines.mean_pooling import PooledDecoder, PooledEncoder
from ctsan.baselines.nearest_words import NearestWords
from ctsan.baselines.random_words import RandomWords
from ctsan.baselines.s2vt import S2VTDecoder, S2VTStack
from ctsan.baselines.temporal_attention import FrameEncoder, TemporalAttentionDecoder
from ctsan.config import Settings
from ctsan.errors import UsageError
from ctsan.extensions.mlp_probe import MLPProbe
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_detector import ConceptDetector, ConceptSource, LearntConceptSource
from ctsan.model.video_encoder import NoVideo
from ctsan.tasks.spec import ModelInputs, TaskSpec
from ctsan.text.words import Words

_RECOMPUTE_ABOVE = 10_000  # hidden_dim x attention_dim, above which the backward pass recomputes attention


def language_model_arguments(inputs: ModelInputs) -> dict[str, Any]:
    """Arguments of every language model with a clip encoder."""
    settings = inputs.settings
    return {
        "clip_encoder": build_clip_encoder(
            settings, inputs.words, grid=inputs.grid, channels=inputs.channels
        ),
        "hidden_dim": settings.model.hidden_dim,
        "input_attention": settings.attention.input,
        "num_layers": settings.model.num_layers,
        "dropout": settings.model.dropout,
        "gate": settings.init.attention_gate or None,  # 0 means Xavier initialisation
    }


def output_arguments(settings: Settings) -> dict[str, Any]:
    """Arguments of the models that generate words."""
    return {
        "output_attention": settings.attention.output,
        "init_output_from_embeddings": settings.model.init_output_from_embeddings,
    }


def build_clip_encoder(
    settings: Settings, words: Words, *, grid: tuple[int, int], channels: int
) -> ClipEncoder | PooledEncoder:
    model, detector = settings.model, settings.detector
    candidates = words.concepts.words
    shared: dict[str, Any] = {
        "channels": channels,
        "embedding": torch.from_numpy(words.embedding),
        "candidate_words": torch.tensor(words.vocabulary.encode(candidates)),
        "hidden_dim": model.hidden_dim,
        "channel_dropout": model.channel_dropout,
    }
    if model.decoder == "pooled":
        return PooledEncoder(**shared)
    shared |= {
        "num_concepts": min(detector.num_concepts, len(candidates)),
        "region_kernel": model.region_kernel,
    }
    if model.decoder == "temporal":
        return FrameEncoder(**shared, max_frames=model.max_frames)
    source = _word_source(ModelInputs(settings, words, grid, channels))
    probe: MLPProbe | None = None
    if detector.probe == "mlp" and isinstance(source, LearntConceptSource):
        probe = MLPProbe(channels=channels, num_candidates=len(candidates))
    return ClipEncoder(
        **shared,
        detector=source,
        probe=probe,
        confidence_weighted=detector.confidence_weighted,
        prior_weight=detector.prior_weight,
        lemmas=torch.tensor(words.concepts.lemma_ids),
        memory=settings.init.frame_memory,
        num_layers=model.num_layers,
        dropout=model.dropout,
        video_encoder=_video_encoder(settings, words),
    )


def build_decoder(
    settings: Settings, encoder: ClipEncoder | PooledEncoder
) -> S2VTDecoder | TemporalAttentionDecoder | PooledDecoder | None:
    """The decoder that replaces the paper's; None to use the paper's."""
    model, num_words = settings.model, encoder.embedding.num_embeddings
    match model.decoder:
        case "semantic":
            return None
        case "s2vt":
            assert isinstance(encoder, ClipEncoder)
            assert isinstance(encoder.encode_video, S2VTStack)
            return S2VTDecoder(stack=encoder.encode_video, num_words=num_words, dropout=model.dropout)
        case "temporal":
            return TemporalAttentionDecoder(
                num_words=num_words,
                embedding_dim=encoder.embedding.embedding_dim,
                hidden_dim=model.hidden_dim,
                dropout=model.dropout,
            )
        case "pooled":
            return PooledDecoder(
                embedding=encoder.embedding, hidden_dim=model.hidden_dim, dropout=model.dropout
            )


def check_decoder(settings: Settings, spec: TaskSpec) -> None:
    """Check `model.decoder`. The baselines' decoders replace the paper's in description alone.

    Raises:
        UsageError: the decoder does not support the task, or other settings do not fit it.
    """
    model = settings.model
    if model.decoder == "semantic":
        return
    if not spec.replaces_decoder:
        raise UsageError(
            f"model.decoder={model.decoder} describes only, and the task is {spec.name!r}. "
            "Leave it at 'semantic'."
        )
    if settings.detector.enabled or not model.use_video:
        raise UsageError(
            f"model.decoder={model.decoder} sees clips and has no concept words. Set detector.enabled=false "
            "and leave model.use_video as it is."
        )


def _video_encoder(settings: Settings, words: Words) -> S2VTStack | NoVideo | None:
    """The video encoder that replaces the paper's; None to use the paper's."""
    model = settings.model
    if model.decoder == "s2vt":
        return S2VTStack(
            hidden_dim=model.hidden_dim,
            embedding_dim=words.embedding.shape[1],
            dropout=model.dropout,
            memory=settings.init.frame_memory,
        )
    return None if model.use_video else NoVideo(hidden_dim=model.hidden_dim, num_layers=model.num_layers)


def _word_source(inputs: ModelInputs) -> ConceptSource | None:
    detector = inputs.settings.detector
    return DETECTORS[detector.kind](inputs) if detector.enabled else None


def _learning_arguments(inputs: ModelInputs) -> dict[str, Any]:
    """Arguments of every learnt source of concept words."""
    model, detector = inputs.settings.model, inputs.settings.detector
    return {
        "hidden_dim": model.hidden_dim,
        "num_layers": model.num_layers,
        "dropout": detector.dropout,
        "lr_scale": detector.lr_scale,
        "memory": inputs.settings.init.frame_memory,
        "num_candidates": len(inputs.words.concepts.words),
    }


def _traces(inputs: ModelInputs) -> ConceptDetector:
    model, detector = inputs.settings.model, inputs.settings.detector
    return ConceptDetector(
        **_learning_arguments(inputs),
        grid=inputs.grid,
        attention_dim=detector.attention_dim,
        tie_traces=detector.tie_traces,
        recompute_attention=model.hidden_dim * detector.attention_dim > _RECOMPUTE_ABOVE,
    )


def _average(inputs: ModelInputs) -> AverageDetector:
    return AverageDetector(**_learning_arguments(inputs))


def _decoupled(inputs: ModelInputs) -> DecoupledDetector:
    model = inputs.settings.model
    return DecoupledDetector(
        channels=inputs.channels,
        hidden_dim=model.hidden_dim,
        region_kernel=model.region_kernel,
        detector=_traces(inputs),
    )


def _nearest(inputs: ModelInputs) -> NearestWords:
    num_candidates = len(inputs.words.concepts.words)
    return NearestWords(
        channels=inputs.channels,
        num_candidates=num_candidates,
        num_concepts=min(inputs.settings.detector.num_concepts, num_candidates),
        max_frames=inputs.settings.model.max_frames,
    )


def _random(inputs: ModelInputs) -> RandomWords:
    redrawn = inputs.settings.detector.random_words == "redrawn"
    return RandomWords(num_candidates=len(inputs.words.concepts.words), redrawn=redrawn)


# By detector.kind. A new one is a line here and a name in `DetectorName` of config/settings.py.
DETECTORS: dict[str, Callable[[ModelInputs], ConceptSource]] = {
    "traces": _traces,
    "average": _average,
    "decoupled": _decoupled,
    "nearest": _nearest,
    "random": _random,
}
