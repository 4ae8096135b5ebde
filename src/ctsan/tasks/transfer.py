"""Transfer: initialise a new model from the weights of a trained one, of the same or another task."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from ctsan.baselines.decoupled_detector import DecoupledDetector
from ctsan.config import Settings, Transfer, settings_from_json
from ctsan.errors import UsageError
from ctsan.model.choice_model import ChoiceModel
from ctsan.model.concept_detector import LearntConceptSource
from ctsan.model.retrieval_model import RetrievalModel
from ctsan.tasks.building import Model

# Sections copied from the trained run: architecture and inference, so that the new model initially gives the
# same answers. Training settings are not copied.
_COPIED = ("model", "detector", "attention", "decoding", "rerank")
_COPIED_BY_SAME_TASK = (*_COPIED, "retrieval")
# Settings that transferred weights depend on: those of the detector and its word embedding, and those of all
# shared parts. `detector.probe` is one: with a probe, traces predict a residual of its scores; without one,
# the full scores.
_FIXED_BY_DETECTOR = (
    "model.hidden_dim",
    "model.num_layers",
    "model.region_kernel",
    "detector.enabled",
    "detector.kind",
    "detector.attention_dim",
    "detector.tie_traces",
    "detector.probe",
    "model.embedding_dim",
)
_FIXED = (
    *_FIXED_BY_DETECTOR,
    "model.decoder",
    "model.bidirectional",
    "model.use_video",
    "attention.input",
    "attention.output",
    "retrieval.sketch_dim",
    "retrieval.joint_dim",
)
# Parts shared by the models of all tasks; `_COMMON_NAMES` maps model-specific prefixes to these names.
_SHARED = ("clip_encoder", "word_input", "lstm")
# The paper's transfer: the detector, and the layers that produce its input.
_DETECTOR = "clip_encoder.detector"
_DETECTOR_INPUT = (
    "clip_encoder.reduce",
    "clip_encoder.channel_means",
    "clip_encoder.channel_scales",
)
_COMMON_NAMES = {"decode.word_input.": "word_input.", "decode.lstm.": "lstm.", "read_forwards.": "lstm."}
_PROBE = "clip_encoder.probe"
_FREQUENCIES = "clip_encoder.frequencies"  # share of training clips with each candidate
_PHRASES = "phrases."  # the phrase probe, which is fitted to the new model's own clips
# Input attention weights that are not transferred between tasks if the new model has `contrastive_init`: it
# compares a word with similar concept words, whereas captioning relates them to predict the next word.
_NOT_TRANSFERRED = ("word_input.attention.relate", "word_input.attention.gate")


def settings_with(
    settings: Settings, trained: Settings, *, overrides: Collection[str], same_task: bool
) -> Settings:
    """Settings for a model initialised from a trained one: those of the latter, except for overrides.

    Args:
        overrides: those passed to `load_settings` for `settings`.

    Raises:
        UsageError: overrides conflict with the weights; the message names each of them.
    """
    named = {override.partition("=")[0].strip() for override in overrides}
    fixed = _FIXED if settings.training.transfer == "shared" else _FIXED_BY_DETECTOR
    values, old = settings.to_json(), trained.to_json()
    problems = []
    for section in _COPIED_BY_SAME_TASK if same_task else _COPIED:
        for setting, value in old[section].items():
            name = f"{section}.{setting}"
            if name not in named:
                values[section][setting] = value
            elif name in fixed and values[section][setting] != value:
                problems.append(f"{name} is {value} there and {values[section][setting]} here")
    if problems:
        raise UsageError(
            f"The weights that training starts from do not fit: {'; '.join(problems)}. Leave these settings "
            "out, for they are taken over, or train without --from."
        )
    return settings_from_json(values)


def parts_taken(trained: Model, *, same_task: bool, transfer: Transfer) -> tuple[str, ...]:
    """Names of the parts of a trained model that are transferred.

    - `transfer="detector"`: the detector, its input layers and its probe; nothing if it is not a learnt one.
    - `transfer="shared"`, same task: everything except the phrase probe.
    - `transfer="shared"`, another task: the parts that the models of all tasks share.
    """
    if transfer == "detector":
        detector = trained.clip_encoder.detector
        if isinstance(detector, DecoupledDetector):  # it has its own input layers
            return (_DETECTOR,)
        if not isinstance(detector, LearntConceptSource):
            return ()
        probe = () if trained.clip_encoder.probe is None else (_PROBE,)
        return (_DETECTOR, *_DETECTOR_INPUT, *probe)
    names = (name for name in _weights(trained) if not name.startswith(_PHRASES))
    return tuple(dict.fromkeys(name.partition(".")[0] for name in names)) if same_task else _SHARED


@torch.no_grad()
def init_from_model(
    model: Model, trained: Model, *, transfer: Transfer, keep_frequencies: bool = False
) -> None:
    """Copy the weights of a trained model into a new one, for the parts that `parts_taken` names.

    The new vocabulary and candidate list must begin with the trained model's, in the same order. For weights
    with one row per word or candidate, the first rows are copied, and the rows of new words are left as
    initialised.

    Args:
        keep_frequencies: rank concept words with the trained model's frequencies.

    Raises:
        UsageError: shapes do not match, or only one of the models has a probe.
    """
    same_task = type(model) is type(trained)
    parts = parts_taken(trained, same_task=same_task, transfer=transfer)
    excluded = _NOT_TRANSFERRED if not same_task and _has_contrastive_init(model) else ()
    new, old = (
        {
            name: tensor
            for name, tensor in _weights(source).items()
            if any(_is_of(name, part) for part in (*parts, _PROBE)) and name not in excluded
        }
        for source in (model, trained)
    )
    if new.keys() & {_FREQUENCIES} and not keep_frequencies:
        new.pop(_FREQUENCIES)
    if _FREQUENCIES not in new:  # keep those of the new clips, or rank by confidence
        old.pop(_FREQUENCIES, None)
    unlike = [
        f"{name} ({_shape(old.get(name))} there, {_shape(new.get(name))} here)"
        for name in sorted(old.keys() | new.keys())
        if name not in old or name not in new or not _fits(new[name], old[name])
    ]
    if unlike:
        raise UsageError(
            f"The weights that training starts from do not fit the new model: {', '.join(unlike)}. Train "
            "with the settings of that run, or without --from."
        )
    for name, weights in old.items():
        rows = new[name][: len(weights)] if weights.dim() else new[name]
        rows.copy_(weights)


def _weights(model: Model) -> dict[str, Tensor]:
    """State dict (parameters and buffers, not copies), with names that are the same for all models."""
    return {_common(name): tensor for name, tensor in model.state_dict().items()}


def _common(name: str) -> str:
    for prefix, common in _COMMON_NAMES.items():
        if name.startswith(prefix):
            return common + name.removeprefix(prefix)
    return name


def _is_of(name: str, part: str) -> bool:
    return name == part or name.startswith(part + ".")


def _has_contrastive_init(model: Model) -> bool:
    attention = model.word_input.attention if isinstance(model, ChoiceModel | RetrievalModel) else None
    return attention is not None and attention.contrastive_init


def _fits(new: Tensor, old: Tensor) -> bool:
    """Whether the shapes match, except that `new` may have more rows."""
    return new.dim() == old.dim() and new.shape[1:] == old.shape[1:] and new.shape[:1] >= old.shape[:1]


def _shape(tensor: Tensor | None) -> str:
    return "none" if tensor is None else "x".join(map(str, tensor.shape)) or "one number"
