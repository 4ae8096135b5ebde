"""Settings to models and tasks: here, and nowhere else, a setting becomes an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from ctsan.config import Settings
from ctsan.data.batches import encode_captions, references, thin
from ctsan.data.corpus import BlankItem, ChoiceItem, Clip, Corpus, ItemTask, QueryItem, Split
from ctsan.data.item_building import build_items
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
from ctsan.tasks.task import Task
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore

TaskName = Literal["describe", "fill", "choose", "rank"]
Model = DescriptionModel | BlankModel | ChoiceModel | RetrievalModel
ItemT = TypeVar("ItemT", BlankItem, ChoiceItem, QueryItem)

PRIMARY_METRICS: Mapping[TaskName, str] = {
    "describe": DescriptionTask.primary_metric,
    "fill": BlankTask.primary_metric,
    "choose": ChoiceTask.primary_metric,
    "rank": RetrievalTask.primary_metric,
}

_RECOMPUTE_ABOVE = 10_000  # hidden x attention dimensions: beyond, what traces share is made twice
_ENOUGH_CLIPS, _ENOUGH_FRAMES = 1000, 10  # to know means and scales of the channels
_ITEMS_PER_CLIP = 5  # where the corpus brings none, so many are built of each clip that is measured
_ITEM_SEED = 0  # all runs are measured on the same items


def build_model(
    task: TaskName, settings: Settings, words: Words, *, grid: tuple[int, int], channels: int, seed: int
) -> Model:
    """A fresh model; the same seed gives the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shared: dict[str, Any] = {
            "clip_encoder": _clip_encoder(settings, words, grid=grid, channels=channels),
            "hidden_dim": settings.model.hidden_dim,
            "input_attention": settings.attention.input,
            "num_layers": settings.model.num_layers,
            "dropout": settings.model.dropout,
        }
        saying: dict[str, Any] = {
            "output_attention": settings.attention.output,
            "say_from_words": settings.model.say_from_words,
        }
        match task:
            case "describe":
                return DescriptionModel(**shared, **saying)
            case "fill":
                return BlankModel(**shared, **saying)
            case "choose":
                return ChoiceModel(**shared)
            case "rank":
                return RetrievalModel(
                    **shared,
                    sketch_dim=settings.retrieval.sketch_dim,
                    joint_dim=settings.retrieval.joint_dim,
                    joint_dropout=settings.retrieval.dropout,
                )


def build_task(
    task: TaskName,
    settings: Settings,
    words: Words,
    store: FeatureStore,
    corpus: Corpus,
    *,
    model: Model,
    split: Split = "val",
) -> Task[Any]:
    """A task that learns from the training clips of a corpus and is measured on another split of it."""
    loss, at_once = settings.loss, settings.training.captions_per_clip
    shared: dict[str, Any] = {
        "model": model,
        "clips": TaskClips(
            store=store,
            words=words,
            train=corpus.split("train"),
            validation=corpus.split(split),
            max_frames=settings.model.max_frames,
        ),
        "attention_weight": loss.attention_weight,
        "concept_weight": loss.concept_weight,
        "max_words": settings.decoding.max_words,
    }
    match task:
        case "describe":
            return DescriptionTask(
                **shared,
                label_smoothing=loss.label_smoothing,
                reward_weight=loss.reward_weight,
                reward_from=loss.reward_from,
                captions_per_clip=at_once,
                beam=settings.decoding.beam,
                length_penalty=settings.decoding.length_penalty,
            )
        case "fill":
            own = corpus.items.get(("fill", "train"), ())
            return BlankTask(
                **shared,
                train=[item for item in own if isinstance(item, BlankItem)],
                validation=_items(BlankItem, "fill", corpus, split, words, per_clip=_ITEMS_PER_CLIP),
                label_smoothing=loss.label_smoothing,
                questions_per_clip=at_once,
            )
        case "choose":
            return ChoiceTask(
                **shared,
                train=_items(ChoiceItem, "choose", corpus, "train", words) if corpus.split("train") else [],
                validation=_items(ChoiceItem, "choose", corpus, split, words, per_clip=_ITEMS_PER_CLIP),
                questions_per_clip=at_once,
                margin=loss.choice_margin,
            )
        case "rank":
            return RetrievalTask(
                **shared,
                validation=_items(QueryItem, "rank", corpus, split, words),
                captions_per_clip=at_once,
                margin=loss.retrieval_margin,
            )


def start_from_clips(model: Model, clips: Sequence[Clip], store: FeatureStore, words: Words) -> None:
    """Let a fresh model begin with what training clips tell before any training.

    The channels' means and scales, in how many clips each concept candidate is used, and how often each word
    is said: it need not learn those by small steps.
    """
    clips = [clip for clip in clips if clip.id in store and clip.captions]
    encoder = model.clip_encoder
    used = references([words.concepts.reference(clip.captions) for clip in clips], len(words.concepts.words))
    encoder.start_from(*_channel_statistics(clips, store), used.mean(dim=0))
    captions = [caption for clip in clips for caption in clip.captions]
    said = torch.tensor(
        [word for caption in encode_captions(captions, words.vocabulary) for word in caption[1:]]
    )
    if isinstance(model, DescriptionModel):
        _start_saying(model.decode.say, said)
    if isinstance(model, BlankModel):  # only concept candidates are left out
        _start_saying(model.say, said[torch.isin(said, encoder.candidate_words)])


@torch.no_grad()
def _start_saying(say: nn.Linear, said: Tensor) -> None:
    counts = torch.bincount(said, minlength=say.out_features).float() + 0.1
    say.bias.copy_((counts / counts.sum()).log())


def _items(
    kind: type[ItemT], task: ItemTask, corpus: Corpus, split: Split, words: Words, per_clip: int | None = None
) -> list[ItemT]:
    """The corpus' own items of a split, or such as are built from its captions."""
    items = corpus.items.get((task, split), ())
    if not items:
        known = words.vocabulary.words
        items = build_items(
            corpus, split=split, task=task, seed=_ITEM_SEED, vocabulary_words=known, per_clip=per_clip
        ).items
    return [item for item in items if isinstance(item, kind)]


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


def _clip_encoder(settings: Settings, words: Words, *, grid: tuple[int, int], channels: int) -> ClipEncoder:
    model, detector = settings.model, settings.detector
    candidates = words.concepts.words
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
            pace=detector.pace,
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
