"""Settings to models and tasks: here, and nowhere else, a setting becomes an argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ctsan.config import Settings
from ctsan.data.batches import encode_captions, references, thin
from ctsan.data.corpus import BlankItem, ChoiceItem, Clip, Corpus, Item, ItemTask, QueryItem, Split
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
        encoder = _clip_encoder(settings, words, grid=grid, channels=channels)
        return _MODELS[task](settings, encoder)


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
    clips = TaskClips(
        store=store,
        words=words,
        train=corpus.split("train"),
        validation=corpus.split(split),
        max_frames=settings.model.max_frames,
    )
    return _TASKS[task](settings, model, clips, corpus, split)


def start_from_clips(model: Model, clips: Sequence[Clip], store: FeatureStore, words: Words) -> None:
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


def _description_model(settings: Settings, encoder: ClipEncoder) -> Model:
    return DescriptionModel(
        clip_encoder=encoder,
        hidden_dim=settings.model.hidden_dim,
        input_attention=settings.attention.input,
        output_attention=settings.attention.output,
        num_layers=settings.model.num_layers,
        dropout=settings.model.dropout,
    )


def _description_task(
    settings: Settings, model: Model, clips: TaskClips, _corpus: Corpus, _split: Split
) -> Task[Any]:
    assert isinstance(model, DescriptionModel)
    return DescriptionTask(
        model=model,
        clips=clips,
        attention_weight=settings.loss.attention_weight,
        concept_weight=settings.loss.concept_weight,
        label_smoothing=settings.loss.label_smoothing,
        captions_per_clip=settings.training.captions_per_clip,
        beam=settings.decoding.beam,
        max_words=settings.decoding.max_words,
        length_penalty=settings.decoding.length_penalty,
    )


def _blank_model(settings: Settings, encoder: ClipEncoder) -> Model:
    return BlankModel(
        clip_encoder=encoder,
        hidden_dim=settings.model.hidden_dim,
        input_attention=settings.attention.input,
        output_attention=settings.attention.output,
        num_layers=settings.model.num_layers,
        dropout=settings.model.dropout,
    )


def _blank_task(
    settings: Settings, model: Model, clips: TaskClips, corpus: Corpus, split: Split
) -> Task[Any]:
    assert isinstance(model, BlankModel)
    validation = _items("fill", corpus, split, clips.words, per_clip=_ITEMS_PER_CLIP)
    return BlankTask(
        model=model,
        clips=clips,
        train=[item for item in corpus.items.get(("fill", "train"), ()) if isinstance(item, BlankItem)],
        validation=[item for item in validation if isinstance(item, BlankItem)],
        attention_weight=settings.loss.attention_weight,
        concept_weight=settings.loss.concept_weight,
        label_smoothing=settings.loss.label_smoothing,
        questions_per_clip=settings.training.captions_per_clip,
        max_words=settings.decoding.max_words,
    )


def _choice_model(settings: Settings, encoder: ClipEncoder) -> Model:
    return ChoiceModel(
        clip_encoder=encoder,
        hidden_dim=settings.model.hidden_dim,
        input_attention=settings.attention.input,
        num_layers=settings.model.num_layers,
        dropout=settings.model.dropout,
    )


def _choice_task(
    settings: Settings, model: Model, clips: TaskClips, corpus: Corpus, split: Split
) -> Task[Any]:
    assert isinstance(model, ChoiceModel)
    train = _items("choose", corpus, "train", clips.words)
    validation = _items("choose", corpus, split, clips.words, per_clip=_ITEMS_PER_CLIP)
    return ChoiceTask(
        model=model,
        clips=clips,
        train=[item for item in train if isinstance(item, ChoiceItem)],
        validation=[item for item in validation if isinstance(item, ChoiceItem)],
        attention_weight=settings.loss.attention_weight,
        concept_weight=settings.loss.concept_weight,
        questions_per_clip=settings.training.captions_per_clip,
        max_words=settings.decoding.max_words,
        margin=settings.loss.choice_margin,
    )


def _retrieval_model(settings: Settings, encoder: ClipEncoder) -> Model:
    return RetrievalModel(
        clip_encoder=encoder,
        hidden_dim=settings.model.hidden_dim,
        sketch_dim=settings.retrieval.sketch_dim,
        joint_dim=settings.retrieval.joint_dim,
        joint_dropout=settings.retrieval.dropout,
        input_attention=settings.attention.input,
        num_layers=settings.model.num_layers,
        dropout=settings.model.dropout,
    )


def _retrieval_task(
    settings: Settings, model: Model, clips: TaskClips, corpus: Corpus, split: Split
) -> Task[Any]:
    assert isinstance(model, RetrievalModel)
    validation = _items("rank", corpus, split, clips.words)
    return RetrievalTask(
        model=model,
        clips=clips,
        validation=[item for item in validation if isinstance(item, QueryItem)],
        attention_weight=settings.loss.attention_weight,
        concept_weight=settings.loss.concept_weight,
        captions_per_clip=settings.training.captions_per_clip,
        max_words=settings.decoding.max_words,
        margin=settings.loss.retrieval_margin,
    )


_MODELS: Mapping[TaskName, Callable[[Settings, ClipEncoder], Model]] = {
    "describe": _description_model,
    "fill": _blank_model,
    "choose": _choice_model,
    "rank": _retrieval_model,
}
_TASKS: Mapping[TaskName, Callable[[Settings, Model, TaskClips, Corpus, Split], Task[Any]]] = {
    "describe": _description_task,
    "fill": _blank_task,
    "choose": _choice_task,
    "rank": _retrieval_task,
}


def _items(
    task: ItemTask, corpus: Corpus, split: Split, words: Words, *, per_clip: int | None = None
) -> Sequence[Item]:
    """The corpus' own items of a split, or such as are built from its captions."""
    given = corpus.items.get((task, split), ())
    return (
        given
        or build_items(
            corpus,
            split=split,
            task=task,
            seed=_ITEM_SEED,
            vocabulary_words=words.vocabulary.words,
            per_clip=per_clip,
        ).items
    )


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
