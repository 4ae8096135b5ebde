"""Settings to models: here, and nowhere else, a setting becomes an argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ctsan.config import Settings
from ctsan.data.batches import encode_captions, references, thin
from ctsan.data.corpus import BlankItem, ChoiceItem, Clip, QueryItem
from ctsan.model.blank_model import BlankModel
from ctsan.model.choice_model import ChoiceModel
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_detector import ConceptDetector
from ctsan.model.description_model import DescriptionModel
from ctsan.model.retrieval_model import RetrievalModel
from ctsan.tasks.blank import BlankTask
from ctsan.tasks.choice import ChoiceTask
from ctsan.tasks.clips import TaskClips
from ctsan.tasks.description import DescriptionTask
from ctsan.tasks.retrieval import RetrievalTask
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore

_RECOMPUTE_ABOVE = 10_000  # hidden x attention dimensions: beyond, what traces share is made twice
_ENOUGH_CLIPS, _ENOUGH_FRAMES = 1000, 10  # to know means and scales of the channels


def build_description_model(
    settings: Settings, words: Words, *, grid: tuple[int, int], channels: int, seed: int
) -> DescriptionModel:
    """A fresh model; the same seed gives the same weights."""
    with _drawing(seed):
        return DescriptionModel(
            clip_encoder=_clip_encoder(settings, words, grid=grid, channels=channels),
            hidden_dim=settings.model.hidden_dim,
            input_attention=settings.attention.input,
            output_attention=settings.attention.output,
            num_layers=settings.model.num_layers,
            dropout=settings.model.dropout,
        )


def build_description_task(
    settings: Settings,
    words: Words,
    store: FeatureStore,
    *,
    model: DescriptionModel,
    train: Sequence[Clip],
    validation: Sequence[Clip],
) -> DescriptionTask:
    return DescriptionTask(
        model=model,
        clips=_clips(settings, words, store, train, validation),
        attention_weight=settings.loss.attention_weight,
        concept_weight=settings.loss.concept_weight,
        label_smoothing=settings.loss.label_smoothing,
        captions_per_clip=settings.training.captions_per_clip,
        beam=settings.decoding.beam,
        max_words=settings.decoding.max_words,
        length_penalty=settings.decoding.length_penalty,
    )


def build_blank_task(
    settings: Settings,
    words: Words,
    store: FeatureStore,
    *,
    train: Sequence[Clip],
    validation: Sequence[Clip],
    items: Sequence[BlankItem],
    train_items: Sequence[BlankItem] = (),
    seed: int,
) -> BlankTask:
    with _drawing(seed):
        model = BlankModel(
            clip_encoder=_clip_encoder(settings, words, grid=store.grid, channels=store.channels),
            hidden_dim=settings.model.hidden_dim,
            input_attention=settings.attention.input,
            output_attention=settings.attention.output,
            num_layers=settings.model.num_layers,
            dropout=settings.model.dropout,
        )
    return BlankTask(
        model=model,
        clips=_clips(settings, words, store, train, validation),
        train=train_items,
        validation=items,
        attention_weight=settings.loss.attention_weight,
        concept_weight=settings.loss.concept_weight,
        label_smoothing=settings.loss.label_smoothing,
        questions_per_clip=settings.training.captions_per_clip,
        max_words=settings.decoding.max_words,
    )


def build_choice_task(
    settings: Settings,
    words: Words,
    store: FeatureStore,
    *,
    train: Sequence[Clip],
    validation: Sequence[Clip],
    items: Sequence[ChoiceItem],
    train_items: Sequence[ChoiceItem],
    seed: int,
) -> ChoiceTask:
    with _drawing(seed):
        model = ChoiceModel(
            clip_encoder=_clip_encoder(settings, words, grid=store.grid, channels=store.channels),
            hidden_dim=settings.model.hidden_dim,
            input_attention=settings.attention.input,
            num_layers=settings.model.num_layers,
            dropout=settings.model.dropout,
        )
    return ChoiceTask(
        model=model,
        clips=_clips(settings, words, store, train, validation),
        train=train_items,
        validation=items,
        attention_weight=settings.loss.attention_weight,
        concept_weight=settings.loss.concept_weight,
        questions_per_clip=settings.training.captions_per_clip,
        max_words=settings.decoding.max_words,
        margin=settings.loss.choice_margin,
    )


def build_retrieval_task(
    settings: Settings,
    words: Words,
    store: FeatureStore,
    *,
    train: Sequence[Clip],
    validation: Sequence[Clip],
    items: Sequence[QueryItem],
    seed: int,
) -> RetrievalTask:
    with _drawing(seed):
        model = RetrievalModel(
            clip_encoder=_clip_encoder(settings, words, grid=store.grid, channels=store.channels),
            hidden_dim=settings.model.hidden_dim,
            sketch_dim=settings.retrieval.sketch_dim,
            joint_dim=settings.retrieval.joint_dim,
            joint_dropout=settings.retrieval.dropout,
            input_attention=settings.attention.input,
            num_layers=settings.model.num_layers,
            dropout=settings.model.dropout,
        )
    return RetrievalTask(
        model=model,
        clips=_clips(settings, words, store, train, validation),
        validation=items,
        attention_weight=settings.loss.attention_weight,
        concept_weight=settings.loss.concept_weight,
        captions_per_clip=settings.training.captions_per_clip,
        max_words=settings.decoding.max_words,
        margin=settings.loss.retrieval_margin,
    )


def start_from_clips(
    model: DescriptionModel, clips: Sequence[Clip], store: FeatureStore, words: Words
) -> None:
    """Let a fresh model begin with what training clips tell before any training.

    The channels' means and scales, in how many clips each concept candidate is used, and how often each word
    is said: it need not learn those by small steps.
    """
    clips = [clip for clip in clips if clip.id in store and clip.captions]
    encoder = model.clip_encoder
    used = references([words.concepts.reference(clip.captions) for clip in clips], len(words.concepts.words))
    frequencies = used[:, : len(encoder.candidate_words)].mean(dim=0)
    encoder.start_from(*_channel_statistics(clips, store), frequencies)
    captions = [caption for clip in clips for caption in clip.captions]
    said = [word for caption in encode_captions(captions, words.vocabulary) for word in caption[1:]]
    counts = torch.bincount(torch.tensor(said), minlength=len(words.vocabulary)).float() + 0.1
    with torch.no_grad():
        model.decode.say.bias.copy_((counts / counts.sum()).log())


def _channel_statistics(clips: Sequence[Clip], store: FeatureStore) -> tuple[Tensor, Tensor]:
    """Mean and scale of each channel, both (C,)."""
    total = squares = torch.zeros(store.channels, dtype=torch.double)
    count = 0
    for clip in clips[:: max(1, len(clips) // _ENOUGH_CLIPS)]:
        values = torch.from_numpy(thin(store[clip.id].maps, _ENOUGH_FRAMES)).flatten(0, 2).double()
        total, squares = total + values.sum(dim=0), squares + values.square().sum(dim=0)
        count += len(values)
    means = total / count
    variances = (squares / count - means.square()).clamp(min=0)
    return means.float(), (variances.sqrt() + 1e-3).float()


@contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """First weights follow from the seed alone, and leave other draws as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _clips(
    settings: Settings,
    words: Words,
    store: FeatureStore,
    train: Sequence[Clip],
    validation: Sequence[Clip],
) -> TaskClips:
    return TaskClips(
        store=store, words=words, train=train, validation=validation, max_frames=settings.model.max_frames
    )


def _clip_encoder(settings: Settings, words: Words, *, grid: tuple[int, int], channels: int) -> ClipEncoder:
    model, detector = settings.model, settings.detector
    candidates = words.concepts.words[: detector.num_candidates]
    return ClipEncoder(
        channels=channels,
        embedding=torch.from_numpy(words.embedding),
        candidate_words=torch.tensor(words.vocabulary.encode(candidates)),
        hidden_dim=model.hidden_dim,
        detector=ConceptDetector(
            hidden_dim=model.hidden_dim,
            grid=grid,
            num_candidates=len(candidates),
            attention_dim=detector.attention_dim,
            num_layers=model.num_layers,
            dropout=detector.dropout,
            trace_dropout=detector.trace_dropout,
            recompute_attention=model.hidden_dim * detector.attention_dim > _RECOMPUTE_ABOVE,
        )
        if detector.enabled
        else None,
        num_concepts=min(detector.num_concepts, len(candidates)),
        weighted=detector.weighted,
        region_kernel=model.region_kernel,
        num_layers=model.num_layers,
        dropout=model.dropout,
    )
