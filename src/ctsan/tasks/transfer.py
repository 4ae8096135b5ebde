"""Transfer: a new model starts from the weights of a trained one, of the same task or of another."""

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

# What a model is and how it is asked: the new one begins with the answers of the old one. How it is trained
# is said anew.
_TAKEN = ("model", "detector", "attention", "decoding", "rerank")
_TAKEN_BY_THE_SAME_TASK = (*_TAKEN, "retrieval")
# Weights fit no other values: those of the detector with its words, and those of all that models share.
# Beside a probe traces add to its scores; without one they name words alone.
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
# Parts that the models of all tasks have, and what they are called in those that call them otherwise.
_SHARED = ("clip_encoder", "word_input", "lstm")
# The paper's transfer: the detector, and what it sees clips by.
_DETECTOR = "clip_encoder.detector"
_SEEN_BY_DETECTOR = (
    "clip_encoder.reduce",
    "clip_encoder.channel_means",
    "clip_encoder.channel_scales",
)
_COMMON_NAMES = {"decode.word_input.": "word_input.", "decode.lstm.": "lstm.", "read_forwards.": "lstm."}
_PROBE = "clip_encoder.probe"
_FREQUENCIES = "clip_encoder.frequencies"  # of words in the training clips
_PHRASES = "phrases."  # which a new model learns from its own clips at once
# Words are held against concept words by another relation than that by which the next one is said.
_OWN = ("word_input.attention.relate", "word_input.attention.gate")


def settings_with(
    given: Settings, trained: Settings, *, overrides: Collection[str], same_task: bool
) -> Settings:
    """Settings for a model that starts from a trained one: its own, except for those that were set.

    Args:
        overrides: as `load_settings` took them for `given`.

    Raises:
        UsageError: names every setting that was set to a value which the weights do not fit.
    """
    named = {override.partition("=")[0].strip() for override in overrides}
    fixed = _FIXED if given.training.transfer == "shared" else _FIXED_BY_DETECTOR
    values, old = given.to_json(), trained.to_json()
    problems = []
    for section in _TAKEN_BY_THE_SAME_TASK if same_task else _TAKEN:
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
    """The parts of a trained model that a new one starts from.

    Its detector, with the probe beside it, and none if it has not learnt one; or what the models of all tasks
    share, and if it is of the same task all but phrases.
    """
    if transfer == "detector":
        detector = trained.clip_encoder.detector
        if isinstance(detector, DecoupledDetector):  # which sees clips by its own
            return (_DETECTOR,)
        if not isinstance(detector, LearntConceptSource):
            return ()
        probe = () if trained.clip_encoder.probe is None else (_PROBE,)
        return (_DETECTOR, *_SEEN_BY_DETECTOR, *probe)
    own = (name for name in _weights(trained) if not name.startswith(_PHRASES))
    return tuple(dict.fromkeys(name.partition(".")[0] for name in own)) if same_task else _SHARED


@torch.no_grad()
def init_from_model(
    model: Model, trained: Model, *, transfer: Transfer, keep_frequencies: bool = False
) -> None:
    """Give a fresh model the weights of a trained one in the parts that are taken: see `parts_taken`.

    The words of the trained model are the first ones of the new model, in the same order: of weights with a
    row for each word or each concept candidate the first rows are taken over, and those of new words stay.

    Args:
        keep_frequencies: rank concept words with the trained model's frequencies.

    Raises:
        UsageError: the models are of different sizes, or only one of them has a probe.
    """
    same_task = type(model) is type(trained)
    parts = parts_taken(trained, same_task=same_task, transfer=transfer)
    own = _OWN if not same_task and _compares(model) else ()
    new, old = (
        {
            name: tensor
            for name, tensor in _weights(each).items()
            if any(_is_of(name, part) for part in (*parts, _PROBE)) and name not in own
        }
        for each in (model, trained)
    )
    if new.keys() & {_FREQUENCIES} and not keep_frequencies:
        new.pop(_FREQUENCIES)
    if _FREQUENCIES not in new:  # the new clips' own stand, or words are ranked by confidence
        old.pop(_FREQUENCIES, None)
    unlike = [
        f"{name} ({_shape(old.get(name))} there, {_shape(new.get(name))} here)"
        for name in sorted(old.keys() | new.keys())
        if name not in old or name not in new or not _has_room(new[name], old[name])
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
    """A model's tensors, buffers too, to be read and written; a part has the same name in all models."""
    return {_common(name): tensor for name, tensor in model.state_dict().items()}


def _common(name: str) -> str:
    for own, common in _COMMON_NAMES.items():
        if name.startswith(own):
            return common + name.removeprefix(own)
    return name


def _is_of(name: str, part: str) -> bool:
    return name == part or name.startswith(part + ".")


def _compares(model: Model) -> bool:
    attention = model.word_input.attention if isinstance(model, ChoiceModel | RetrievalModel) else None
    return attention is not None and attention.contrastive_init


def _has_room(new: Tensor, old: Tensor) -> bool:
    """Whether tensors differ in nothing but the number of rows, of which the new one may have more."""
    return new.dim() == old.dim() and new.shape[1:] == old.shape[1:] and new.shape[:1] >= old.shape[:1]


def _shape(tensor: Tensor | None) -> str:
    return "none" if tensor is None else "x".join(map(str, tensor.shape)) or "one number"
