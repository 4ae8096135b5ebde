"""Build models and tasks from settings, and initialise models from training clips."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ctsan.baselines.mean_pooling import MeanPooling
from ctsan.baselines.nearest_words import NearestWords
from ctsan.config import InitSettings, Settings
from ctsan.data.batches import encode_captions, references
from ctsan.data.corpus import Clip, Corpus, Split
from ctsan.extensions.dual_encoder import DualEncoder
from ctsan.extensions.mlp_probe import MLPProbe
from ctsan.model.blank_model import BlankModel
from ctsan.model.choice_model import ChoiceModel
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.description_model import DescriptionModel
from ctsan.model.retrieval_model import RetrievalModel
from ctsan.tasks.channel_statistics import channel_statistics
from ctsan.tasks.clip_encoders import check_decoder
from ctsan.tasks.clips import TaskClips
from ctsan.tasks.detection import DetectorModel
from ctsan.tasks.registry import task_spec
from ctsan.tasks.spec import ModelInputs, TaskInputs
from ctsan.tasks.task import Task
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import UNK
from ctsan.text.words import Words
from ctsan.video.clip_maps import subsample_maps
from ctsan.video.store import FeatureStore


@runtime_checkable
class GeneratesWords(Protocol):
    """A model with an output bias b_y, which is initialised from word frequencies."""

    def init_output_bias(self, counts: Tensor) -> None: ...


Model = DescriptionModel | BlankModel | ChoiceModel | RetrievalModel | DualEncoder

_PROBED_FRAMES = 10  # frames sampled from a clip for its mean feature
_FOLDS, _FOLD_SEED = 5, 0
_MOST_FITTED = _FOLDS + 1  # probes in the cache

_fitted: dict[str, dict[str, Tensor]] = {}  # cached probe weights, keyed by a hash of their training data


def build_model(
    task: str, settings: Settings, words: Words, *, grid: tuple[int, int], channels: int, seed: int
) -> Any:
    """Build a new model for a task. The same seed gives the same weights.

    Raises:
        UsageError: the settings do not describe a valid model for the task.
    """
    spec = task_spec(task)
    check_decoder(settings, spec)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return spec.build_model(ModelInputs(settings, words, grid, channels))


def build_task(
    task: str,
    settings: Settings,
    words: Words,
    store: FeatureStore,
    corpus: Corpus,
    *,
    model: Any,
    split: Split = "val",
    out_of_fold: Callable[[], Mapping[str, Tensor] | None] | None = None,
) -> Task[Any]:
    """Build a task that trains on a corpus' training clips and is evaluated on `split`.

    Args:
        out_of_fold: returns the result of `out_of_fold_scores`.
    """
    clips = TaskClips(
        store=store,
        words=words,
        train=corpus.split("train"),
        validation=corpus.split(split),
        max_frames=settings.model.max_frames,
        out_of_fold=out_of_fold,
    )
    return task_spec(task).build_task(TaskInputs(settings, model, clips, corpus, split))


def init_from_clips(
    model: Model | DetectorModel,
    clips: Sequence[Clip],
    store: FeatureStore,
    words: Words,
    init: InitSettings,
) -> None:
    """Initialise a new model from statistics of the training clips, as enabled in `init`.

    The statistics are channel means and scales, the principal directions of the clips' mean features, the
    share of clips that use each concept candidate, and word frequencies. External clips are excluded, because
    their statistics may differ.

    Two baselines are initialised regardless of `init`: mean pooling standardises its features, and NN-SAN
    stores the concept words of the training clips.
    """
    clips = [clip for clip in clips if clip.id in store and clip.captions and not clip.external]
    encoder = model.clip_encoder
    if isinstance(encoder, MeanPooling):
        encoder.init_from(*channel_statistics(clips, store)[:2])
    elif isinstance(encoder, ClipEncoder):
        if init.standardise_channels or init.pca_regions:
            means, scales, directions = channel_statistics(clips, store)
            encoder.init_from(
                channels=(means, scales) if init.standardise_channels else None,
                directions=directions if init.pca_regions else None,
            )
        used = _reference(clips, words).mean(dim=0)
        encoder.init_from(frequencies=used if init.word_frequencies else None, prior=used)
    if isinstance(encoder.detector, NearestWords):
        _fit_nearest(encoder.detector, clips, store, words)
    if init.word_frequencies and isinstance(model, GeneratesWords):
        model.init_output_bias(_word_counts(clips, words))


def fit_probes(
    model: Model | DetectorModel,
    clips: Sequence[Clip],
    store: FeatureStore,
    words: Words,
    *,
    keep_concept_probe: bool = False,
    ridge_init: bool = False,
) -> None:
    """Fit a model's probes, if it has any, to the training clips. They are not trained afterwards.

    Probes read features standardised by the model's channel statistics: initialise or transfer those first.

    Args:
        keep_concept_probe: do not refit the concept probe, because it was transferred with the clip encoder.
        ridge_init: initialise a `DualEncoder` by ridge regression.
    """
    clips = [clip for clip in clips if clip.id in store and clip.captions]
    is_own = torch.tensor([not clip.external for clip in clips])
    encoder = model.clip_encoder
    if isinstance(encoder, ClipEncoder) and isinstance(encoder.probe, MLPProbe) and not keep_concept_probe:
        _fit(encoder.probe, _means(encoder.means, clips, store), _reference(clips, words), is_own)
    if isinstance(model, DualEncoder) and (ridge_init or model.phrases is not None):
        captions = [
            [words.vocabulary.encode(tokenize(caption)) or [UNK] for caption in clip.captions]
            for clip in clips
        ]
        means = _means(lambda *maps: model.clip_encoder(*maps).state.top, clips, store)
        if ridge_init:
            model.fit(means, captions, is_own)
        if model.phrases is not None:
            model.phrases.fit(means, captions, is_own)


def out_of_fold_scores(
    encoder: ClipEncoder, clips: Sequence[Clip], store: FeatureStore, words: Words
) -> dict[str, Tensor] | None:
    """Score each training clip by a probe fitted without it: (V,) per clip id, in half precision.

    Differs from the paper: a detector soon overfits its training clips. A language model trained on its
    nearly perfect concept words then trusts wrong ones on new clips. Five probes are fitted, each without one
    fifth of the sources, or of the own clips if these share one source. At inference the concept words come
    from the detector, whose precision may differ from that of these probes.

    Returns:
        None with fewer than two own clips, because holding out the only one leaves none to fit.
    """
    clips = [clip for clip in clips if clip.id in store and clip.captions]
    is_own = torch.tensor([not clip.external for clip in clips], dtype=torch.bool)
    if is_own.sum() < 2:
        return None
    is_one_source = len({_source(clip) for clip in clips if not clip.external}) == 1
    sources = [clip.id if is_one_source and not clip.external else _source(clip) for clip in clips]
    device = encoder.candidate_words.device
    means = _means(
        lambda maps, is_real: encoder.means(maps.to(device), is_real.to(device)).cpu(), clips, store
    )
    reference = _reference(clips, words)
    fold: dict[str, int] = {}
    for external in (False, True):  # separately, so that every probe is fitted to clips of both kinds
        names = sorted({name for name, clip in zip(sources, clips, strict=True) if clip.external == external})
        order = torch.randperm(len(names), generator=torch.Generator().manual_seed(_FOLD_SEED)).tolist()
        fold = {name: place % _FOLDS for name, place in zip(names, order, strict=True)} | fold
    folds = torch.tensor([fold[name] for name in sources])
    scores = torch.zeros(reference.shape, dtype=torch.float16)
    for number in sorted(set(folds.tolist())):
        is_out = folds == number
        probe = MLPProbe(channels=means.shape[1], num_candidates=reference.shape[1])
        _fit(probe, means[~is_out], reference[~is_out], is_own[~is_out])
        scores[is_out] = probe(means[is_out]).half()
    return {clip.id: clip_scores for clip, clip_scores in zip(clips, scores, strict=True)}


def _fit(probe: MLPProbe, means: Tensor, reference: Tensor, is_own: Tensor) -> None:
    """Fit a probe. Fitting takes seconds, so runs in one process share the result through a cache."""
    content = hashlib.sha256()
    for tensor in (means, reference, is_own):
        content.update(tensor.cpu().contiguous().numpy().tobytes())
    key = content.hexdigest()
    if key not in _fitted:
        probe.fit(means, reference, is_own)
        if len(_fitted) >= _MOST_FITTED:
            _fitted.pop(next(iter(_fitted)))
        _fitted[key] = {name: tensor.clone() for name, tensor in probe.state_dict().items()}
    probe.load_state_dict(_fitted[key])


def _source(clip: Clip) -> str:
    return clip.source or clip.id


def _reference(clips: Sequence[Clip], words: Words) -> Tensor:
    return references([words.concepts.reference(clip.captions) for clip in clips], len(words.concepts.words))


def _word_counts(clips: Sequence[Clip], words: Words) -> Tensor:
    """How often the captions of clips use each word, (words,)."""
    captions = [caption for clip in clips for caption in clip.captions]
    word_ids = torch.tensor(
        [word for caption in encode_captions(captions, words.vocabulary) for word in caption[1:]]
    )
    return torch.bincount(word_ids, minlength=len(words.vocabulary))


@torch.no_grad()
def _means(mean: Callable[[Tensor, Tensor], Tensor], clips: Sequence[Clip], store: FeatureStore) -> Tensor:
    """Apply `mean` to the maps (1, N, h, w, C) of each clip and concatenate the results, one row per clip."""
    means = []
    for clip in clips:
        maps = torch.from_numpy(subsample_maps(store[clip.id].maps, _PROBED_FRAMES)).float()[None]
        means.append(mean(maps, torch.ones(maps.shape[:2], dtype=torch.bool)))
    return torch.cat(means)


def _fit_nearest(nearest: NearestWords, clips: Sequence[Clip], store: FeatureStore, words: Words) -> None:
    means = [
        torch.from_numpy(subsample_maps(store[clip.id].maps, nearest.max_frames)).float().mean((0, 1, 2))
        for clip in clips
    ]
    num = len(words.concepts.words)
    shares = [
        references([words.concepts.reference([caption]) for caption in clip.captions], num).mean(0)
        for clip in clips
    ]
    nearest.fit(torch.stack(means), torch.stack(shares))
