"""Prepare a training run: settings, features, words, and the initial model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ctsan.config import Settings, overridden
from ctsan.data.corpus import Clip, Corpus, Split, parts_of
from ctsan.data.union import is_for_training, parts_without_items
from ctsan.errors import UsageError
from ctsan.io.messages import count, inform, listed, warn
from ctsan.runs.run_folder import (
    CHECKPOINT_FILE,
    Origin,
    begun_run,
    check_origin,
    create_run,
    has_begun,
    open_run,
    weights_digest,
)
from ctsan.runs.trained_run import WORDS_FOLDER, TrainedRun, load_runs, read_recipe, write_recipe
from ctsan.tasks.registry import TASKS, task_settings
from ctsan.tasks.task import Task
from ctsan.tasks.transfer import parts_taken, settings_with
from ctsan.text.embedding import Embedding
from ctsan.text.vocabulary import SPECIALS
from ctsan.text.words import Words, prepare_words
from ctsan.training.features import (
    NOT_FOR_FILES,
    features_command,
    features_folder,
    make_features,
    open_features,
)
from ctsan.training.initialisation import set_up_task
from ctsan.video.backbones import DEFAULT_BACKBONE, Backbone, find_backbone
from ctsan.video.store import FeatureStore, Recipe
from ctsan.video.store_union import folders_of

_FEW_CLIPS = 5  # in the validation split: with fewer, a metric is unreliable


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """The arguments of `ctsan train`."""

    task: str
    corpora: tuple[Path, ...]  # joined into one corpus
    profile: str
    overrides: tuple[str, ...]
    features: tuple[Path, ...]  # one folder per path in `paths`; if empty, features are made in the cache
    source: Path | None  # run to initialise from
    vectors: Path | None = None  # file of pretrained word vectors
    backbone: Backbone | None = None  # computes the features; None means the default
    external: tuple[Path, ...] = ()  # corpora captioned by others: for training only

    @property
    def paths(self) -> tuple[Path, ...]:
        """All corpora, in the order of `features`."""
        return (*self.corpora, *self.external)

    @property
    def place(self) -> str:
        """The paths of the user's own corpora, for messages."""
        return listed(self.corpora)

    @property
    def network(self) -> Backbone:
        return self.backbone or find_backbone(DEFAULT_BACKBONE)

    def stores(self, settings: Settings) -> tuple[Path, ...]:
        """List the feature folder of each corpus."""
        mirrored = settings.training.hflip
        return self.features or tuple(
            features_folder(corpus, self.network, mirrored=mirrored) for corpus in self.paths
        )


def settings_for(request: TrainRequest, runs: Sequence[Path]) -> list[Settings]:
    """Compute the settings of each run of a request; they differ only in the seed.

    A run that has begun stores the settings it inherited, so the run it was initialised from may be gone.

    Raises:
        UsageError: settings contradict each other, or a run was initialised from other weights.
    """
    settings = task_settings(request.task, request.profile, request.overrides)
    if settings.training.freeze_clip_encoder and request.source is None:
        raise UsageError(
            "training.freeze_clip_encoder=true freezes the clip encoder of a trained run, and none is named. "
            "Name one: --from RUN"
        )
    if settings.training.freeze_clip_encoder and request.vectors is not None:
        raise UsageError(
            "training.freeze_clip_encoder=true keeps the words of the run that --from names: --vectors would "
            "change nothing. Leave out one of the two."
        )
    if settings.training.freeze_clip_encoder and settings.training.transfer == "detector":
        raise UsageError(
            "training.freeze_clip_encoder=true freezes the clip encoder, and training.transfer=detector "
            "takes over its detector alone. Take over the rest too: --transfer shared"
        )
    if settings.detector.kind == "decoupled":
        raise UsageError(
            "detector.kind=decoupled takes a detector that was trained alone. One command trains both: ctsan "
            "tables --only decoupled"
        )
    begun = [open_run(folder) for folder in runs if has_begun(folder)]
    for run in begun:
        check_origin(run, request.source)
    if request.source is not None:
        trained = begun[0] if begun else open_run(request.source)
        settings = settings_with(
            settings, trained.settings, overrides=request.overrides, same_task=trained.task == request.task
        )
    seed = settings.training.seed
    return [overridden(settings, [f"training.seed={seed + number}"]) for number in range(len(runs))]


def check_splits(request: TrainRequest, clips: Corpus) -> None:
    """Check that there are captioned clips to train on and to validate on.

    Raises:
        UsageError: there are no training clips, or too few validation clips to select weights.
    """
    metric = TASKS[request.task].primary_metric
    purposes: dict[Split, str] = {"train": "learn from", "val": "choose the best weights by"}
    for split, purpose in purposes.items():
        if not any(clip.captions for clip in clips.split(split)):
            raise UsageError(
                f"{request.place}: no clip of the split '{split}' has captions, and some are needed to "
                f"{purpose}. 'ctsan corpus check' shows the splits; without any, three sources or more are "
                "split for you."
            )
    if all(clip.external for clip in clips.split("train") if clip.captions):
        raise UsageError(
            f"{request.place}: every captioned clip of the split 'train' is external. At least one must be "
            'your own: caption it, or take out "external" where the captions are yours.'
        )
    if len({clip.repeat for clip in clips.split("train")}) > 1 and not any(clip.external for clip in clips):
        warn(
            f"{request.place}: some clips are repeated, and none is external. If an older ctsan joined it, "
            "give the corpora apart: --corpus YOURS --external THEIRS"
        )
    if sum(bool(clip.captions) for clip in clips.split("val")) == 1:
        raise UsageError(
            f"{request.place}: one clip only of the split 'val' has captions, and "
            f"{metric}, by which the best weights are chosen, says nothing with one. "
            'Write "split": "val" for two clips or more, or caption more clips: a tenth of them is set aside.'
        )
    for item_task, split in TASKS[request.task].items:
        items = clips.items.get((item_task, split), ())
        for part in parts_without_items(clips, clips.split(split), items):
            warn(
                f"{part.root}: it has no items of {item_task!r} for the split {split!r} and another "
                "corpus does, so no question is about its clips."
            )
    if request.external:
        inform(_external_line(request, clips))


def _external_line(request: TrainRequest, clips: Corpus) -> str:
    """`External: 7 clips, 35 captions. Your training clips count 4-fold: 52% of all captions are yours.`"""
    parts = parts_of(clips)
    own_parts, external_parts = parts[: len(request.corpora)], parts[len(request.corpora) :]
    used = {clip_id for part in external_parts for clip_id in part.ids.values()}
    captions = sum(len(clip.captions) for clip in clips if clip.id in used)
    once = _num_own_captions(clip for part in own_parts for clip in part.corpus.split("train"))
    repeated = _num_own_captions(clips.split("train"))
    every = sum(clip.repeat * len(clip.captions) for clip in clips.split("train"))
    left_out = sum(is_for_training(clip) for part in external_parts for clip in part.corpus) - len(used)
    line = (
        f"External: {count(len(used), 'clip')}, {count(captions, 'caption')}. Your training clips count "
        f"{repeated // once}-fold: {repeated / every:.0%} of all captions are yours."
    )
    reason = "a corpus of yours or another external one holds the file, or yours holds out the source"
    return f"{line} {count(left_out, 'external clip')} left out: {reason}." if left_out else line


def _num_own_captions(clips: Iterable[Clip]) -> int:
    return sum(clip.repeat * len(clip.captions) for clip in clips if not clip.external)


def prepare(request: TrainRequest, clips: Corpus, runs: Sequence[Path], settings: Sequence[Settings]) -> None:
    """Make the features, and write settings, words and recipe into the run folders.

    All runs share the same words: those of the run that has begun, if there is one.
    """
    begun = [
        begun_run(folder, task=request.task, settings=run_settings)
        for folder, run_settings in zip(runs, settings, strict=True)
    ]
    # Loaded now even if the words exist already, so that a damaged source fails before training starts.
    source = _load_source(request) if any(_needs_source(request, folder) for folder in runs) else None
    recipe = _prepare_features(request, clips, settings[0], source)
    first = next(filter(None, begun), None)
    if first is None:
        words, origin = _prepare_words(request, clips, settings[0], source)
    else:
        words, origin = Words.load(first.folder / WORDS_FOLDER), first.origin
        if (then := read_recipe(first.folder)) != recipe:
            raise UsageError(
                f"{listed(request.stores(settings[0]))}: not the kind of features that the run in "
                f"{first.folder} was begun with ({recipe.backbone} now, {then.backbone} then). Give it "
                "those, or name another folder for a new run."
            )
    for folder, run_settings, old in zip(runs, settings, begun, strict=True):
        create_run(folder, task=request.task, profile=request.profile, settings=run_settings, origin=origin)
        if old is None:  # words left in the folder may belong to other settings
            write_recipe(folder, recipe)
            words.save(folder / WORDS_FOLDER)


def load_task(request: TrainRequest, clips: Corpus, run: Path, settings: Settings) -> Task[Any]:
    """Build the task of a prepared run, with its initial model."""
    words, features = Words.load(run / WORDS_FOLDER), open_features(clips, request.stores(settings))
    source = _load_source(request).model if _needs_source(request, run) else None
    is_resumed = (run / CHECKPOINT_FILE).exists()
    return set_up_task(
        request.task, settings, words, features, clips, init_from=source, is_resumed=is_resumed
    )


def _needs_source(request: TrainRequest, run: Path) -> bool:
    return request.source is not None and not (run / CHECKPOINT_FILE).exists()


def _load_source(request: TrainRequest) -> TrainedRun:
    assert request.source is not None  # see `_needs_source`
    [source] = load_runs([request.source])
    return source


def _prepare_features(
    request: TrainRequest, clips: Corpus, settings: Settings, source: TrainedRun | None
) -> Recipe:
    """Make or open the features, and return how they were made."""
    if not request.features:
        if source:
            _check_backbone(request, source, request.network.name)
        make_features(clips, request.stores(settings), request.network, mirrored=settings.training.hflip)
    features = open_features(clips, request.stores(settings))
    recipe = features.manifest.recipe
    if recipe.details.get("imported"):
        warn(NOT_FOR_FILES)
    if source:
        _check_backbone(request, source, recipe.backbone)
        if replace(recipe, mirrored=source.recipe.mirrored) != source.recipe:
            raise UsageError(
                f"{folders_of(features)}: these features of {recipe.backbone} were made otherwise than those "
                f"that {source.folder} was trained on. Use features of {request.place} that were made as "
                "features.json of that run says."
            )
    check_features(request, clips, features)
    warn_unless_mirrored(request, settings, features)
    return recipe


def _check_backbone(request: TrainRequest, source: TrainedRun, backbone: str) -> None:
    needed = source.recipe.backbone
    if needed != backbone:
        raise UsageError(
            f"{source.folder}: this run was trained on features of {needed}, and training would be on those "
            f"of {backbone}. Make the same: {features_command(request.paths, source.recipe)}, and give them: "
            "--features FOLDER"
        )


def warn_unless_mirrored(request: TrainRequest, settings: Settings, features: FeatureStore) -> None:
    """Warn if training.hflip is set and the features hold no mirrored frames."""
    recipe = features.manifest.recipe
    if settings.training.hflip and not recipe.mirrored:
        is_imported = recipe.details.get("imported")
        make = "" if is_imported else f"Make them: {features_command(request.paths, recipe)} --hflip. "
        warn(
            f"{folders_of(features)}: these features hold no mirrored frames, so nothing is mirrored, though "
            f"training.hflip=true asks for it. {make}To do without: --set training.hflip=false"
        )


def check_features(
    request: TrainRequest, clips: Corpus, features: FeatureStore, splits: Sequence[Split] = ("train", "val")
) -> None:
    """Check that enough captioned clips have features.

    Raises:
        UsageError: there are no features to train on, or too few to select weights or to evaluate.
    """
    metric = TASKS[request.task].primary_metric
    for split in splits:
        needed = 1 if split == "train" else 2
        captioned = [clip for clip in clips.split(split) if clip.captions]
        if split == "train":  # external clips alone are not enough to train on
            captioned = [clip for clip in captioned if not clip.external]
        usable = sum(clip.id in features for clip in captioned)
        if usable < needed:
            raise UsageError(
                f"{folders_of(features)}: holds features of {count(usable, 'captioned clip')} of yours in "
                f"the split '{split}', and {needed} are needed. Make them: {features_command(request.paths)}"
            )
        if split == "val" and usable < _FEW_CLIPS:
            warn(
                f"There are {usable} validation clips: {metric} on so few says little, "
                "and the weights chosen by it may not be the best. Caption more clips, or give more of them "
                "to the split 'val'."
            )
    for part in parts_of(clips)[len(request.corpora) :]:
        if not any(clip_id in features for clip_id in part.ids.values()):
            raise UsageError(
                f"{part.corpus.root}: none of its clips that are learnt from has features in "
                f"{folders_of(features)}. Give --features in the order of --corpus, then --external, or make "
                f"them: {features_command(request.paths)}"
            )


def _prepare_words(
    request: TrainRequest, clips: Corpus, settings: Settings, source: TrainedRun | None
) -> tuple[Words, Origin | None]:
    """Append the words of the training captions to those of the source run.

    A frozen clip encoder keeps its words, since new concept words would change it. With
    training.transfer=detector the word vectors come from the training captions, not from the source run.
    """
    if source is None:
        return _words_of(request, clips, settings), None
    trained = source.model
    embedding: Embedding = trained.clip_encoder.embedding.weight.detach().numpy()
    source_words = replace(source.words, embedding=embedding)
    transfer = settings.training.transfer
    parts = parts_taken(trained, same_task=source.task == request.task, transfer=transfer)
    if not parts:
        raise UsageError(
            f"{source.folder}: this run has learnt no concept word detector, and training.transfer=detector "
            "takes over nothing else. Take over all that the models share: --transfer shared"
        )
    words = source_words
    if not settings.training.freeze_clip_encoder:
        new = _words_of(request, clips, settings)
        words = source_words.extended_by(new)
        words = words.with_vectors_of(new) if transfer == "detector" else words
    origin = Origin(
        run=str(source.folder),
        task=source.task,
        weights=weights_digest(source.folder),
        parts=parts,
        kept_words=len(source_words.vocabulary) - len(SPECIALS),
        new_words=len(words.vocabulary) - len(source_words.vocabulary),
        kept_candidates=len(source_words.concepts),
        new_candidates=len(words.concepts) - len(source_words.concepts),
    )
    inform(
        f"Starting from {origin.run}, a run of '{origin.task}', with the weights of its "
        f"{', '.join(origin.parts)}. To its {count(origin.kept_words, 'word')} come {origin.new_words:,} new "
        f"ones, to its {count(origin.kept_candidates, 'concept candidate')} {origin.new_candidates:,}."
    )
    return words, origin


def _words_of(request: TrainRequest, clips: Corpus, settings: Settings) -> Words:
    inform("Preparing the words of the training captions.")
    return prepare_words(
        clips.captions("train"),
        num_concepts=settings.detector.num_candidates,
        embedding_dim=settings.model.embedding_dim,
        seed=settings.training.seed,
        vectors=request.vectors,
        extra_vocabulary=settings.retrieval.extra_vocabulary,
    )
