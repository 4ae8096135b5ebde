"""Settings to models and tasks: here, and nowhere else, a setting becomes an argument."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ctsan.baselines.mean_pooling import MeanPooling
from ctsan.baselines.nearest_words import NearestWords
from ctsan.config import InitSettings, Settings
from ctsan.data.batches import encode_captions, references, subsample_maps
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
from ctsan.video.store import FeatureStore

Model = DescriptionModel | BlankModel | ChoiceModel | RetrievalModel | DualEncoder

_PROBED_FRAMES = 10  # of a clip are enough for its mean
_FOLD_SEED = 0


def build_model(
    task: str, settings: Settings, words: Words, *, grid: tuple[int, int], channels: int, seed: int
) -> Any:
    """A fresh model of a task; the same seed gives the same weights.

    Raises:
        UsageError: the settings ask for what no model of the task can be.
    """
    check_decoder(settings, task=task)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return task_spec(task).build_model(ModelInputs(settings, words, grid, channels))


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
    """A task that learns from the training clips of a corpus and is measured on another split of it.

    Args:
        out_of_fold: gives what `out_of_fold_scores` does.
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
    """Let a fresh model begin with what training clips tell before any training, as far as that is asked for.

    The channels' means and scales, in which directions clips differ, in how many clips each concept candidate
    is used, and how often each word is said: it need not learn those by small steps. Others' clips, which
    may look otherwise, tell nothing. What is no part of the paper's model begins so in any case: mean pooling
    standardises its features, and NN-SAN needs the clips' words.
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
    if init.word_frequencies:
        _start_saying(model, clips, words)


def fit_probes(
    model: Model | DetectorModel,
    clips: Sequence[Clip],
    store: FeatureStore,
    words: Words,
    *,
    keep: bool = False,
    ridge_init: bool = False,
) -> None:
    """Let the probes of a model, if it has any, learn all that they ever will, from training clips.

    They see clips with the scales that the model has, so these must be there first, taken over or not.

    Args:
        keep: leave a probe of concept words, which is part of how clips are seen, as it was taken over.
        regression: let a joint embedding begin as one.
    """
    clips = [clip for clip in clips if clip.id in store and clip.captions]
    is_own = torch.tensor([not clip.external for clip in clips])
    encoder = model.clip_encoder
    if isinstance(encoder, ClipEncoder) and isinstance(encoder.probe, MLPProbe) and not keep:
        _fit(encoder.probe, _means(encoder.means, clips, store), _reference(clips, words), is_own)
    if isinstance(model, DualEncoder) and (ridge_init or model.phrases is not None):
        read = [
            [words.vocabulary.encode(tokenize(said)) or [UNK] for said in clip.captions] for clip in clips
        ]
        means = _means(lambda *maps: model.clip_encoder(*maps).state.top, clips, store)
        if ridge_init:
            model.fit(means, read, is_own)
        if model.phrases is not None:
            model.phrases.fit(means, read, is_own)


_FOLDS = 5


def out_of_fold_scores(
    encoder: ClipEncoder, clips: Sequence[Clip], store: FeatureStore, words: Words
) -> dict[str, Tensor] | None:
    """Scores (V,) for each training clip by a probe that has not seen it, in half precision.

    Differs from the paper: a detector soon knows its training clips by heart, and a language model that meets
    only right words there trusts wrong ones on new clips. Five probes are each fitted without a fifth of the
    sources, or without a fifth of the clips where all of your own are of one source. On new clips words come
    from the detector, which may be right more or less often than these.

    Returns:
        None where there are fewer than two own clips: left out, the only one leaves nothing to learn from.
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
    for external in (False, True):  # apart, so that every probe has clips of both kinds to learn from
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
    return {clip.id: own for clip, own in zip(clips, scores, strict=True)}


_fitted: dict[str, dict[str, Tensor]] = {}  # weights of probes, by what they were fitted to
_MOST_FITTED = _FOLDS + 1


def _fit(probe: MLPProbe, means: Tensor, reference: Tensor, is_own: Tensor) -> None:
    """Fit a probe. It takes seconds, so the many runs of tables in one process share it."""
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


@torch.no_grad()
def _start_saying(model: Model | DetectorModel, clips: Sequence[Clip], words: Words) -> None:
    """Let b_y, where there is one, begin as the logarithms of the words' frequencies."""
    captions = [caption for clip in clips for caption in clip.captions]
    said = torch.tensor(
        [word for caption in encode_captions(captions, words.vocabulary) for word in caption[1:]]
    )
    match model:
        case DescriptionModel():
            say = model.decode.say
        case BlankModel():  # only concept candidates are left out
            say, said = model.say, said[torch.isin(said, model.clip_encoder.candidate_words)]
        case _:
            return
    counts = torch.bincount(said, minlength=say.out_features).float() + 0.1
    say.bias.copy_((counts / counts.sum()).log())


@torch.no_grad()
def _means(mean: Callable[[Tensor, Tensor], Tensor], clips: Sequence[Clip], store: FeatureStore) -> Tensor:
    """What is made of the maps (1, N, h, w, C) of each clip, in as many rows."""
    found = []
    for clip in clips:
        maps = torch.from_numpy(subsample_maps(store[clip.id].maps, _PROBED_FRAMES)).float()[None]
        found.append(mean(maps, torch.ones(maps.shape[:2], dtype=torch.bool)))
    return torch.cat(found)


def _fit_nearest(nearest: NearestWords, clips: Sequence[Clip], store: FeatureStore, words: Words) -> None:
    means = [
        torch.from_numpy(subsample_maps(store[clip.id].maps, nearest.max_frames)).float().mean((0, 1, 2))
        for clip in clips
    ]
    num = len(words.concepts.words)
    shares = [
        references([words.concepts.reference([said]) for said in clip.captions], num).mean(0)
        for clip in clips
    ]
    nearest.know(torch.stack(means), torch.stack(shares))
