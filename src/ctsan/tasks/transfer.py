"""Transfer: a new model starts from the weights of a trained one, of the same task or of another."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from ctsan.config import Settings, settings_from_json
from ctsan.errors import UsageError
from ctsan.model.choice_model import ChoiceModel
from ctsan.model.retrieval_model import RetrievalModel
from ctsan.tasks.building import Model

# What a model is and how it is asked: the new one begins with the answers of the old one. How it is trained
# is said anew.
_TAKEN = ("model", "detector", "attention", "decoding")
_TAKEN_BY_THE_SAME_TASK = (*_TAKEN, "retrieval")
# Weights fit no other values.
_FIXED = (
    "model.hidden_dim",
    "model.embedding_dim",
    "model.num_layers",
    "model.region_kernel",
    "model.decoder",
    "model.both_ways",
    "model.sees_clip",
    "detector.enabled",
    "detector.kind",
    "detector.attention_dim",
    "attention.input",
    "attention.output",
    "retrieval.sketch_dim",
    "retrieval.joint_dim",
)
# Parts that the models of all tasks have, and what they are called in those that call them otherwise.
_SHARED = ("clip_encoder", "word_input", "lstm")
_COMMON_NAMES = {"decode.word_input.": "word_input.", "decode.lstm.": "lstm.", "read_forwards.": "lstm."}
_PROBE = "clip_encoder.probe."
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
    values, old = given.to_json(), trained.to_json()
    problems = []
    for section in _TAKEN_BY_THE_SAME_TASK if same_task else _TAKEN:
        for setting, value in old[section].items():
            name = f"{section}.{setting}"
            if name not in named:
                values[section][setting] = value
            elif name in _FIXED and values[section][setting] != value:
                problems.append(f"{name} is {value} there and {values[section][setting]} here")
    if problems:
        raise UsageError(
            f"The weights that training starts from do not fit: {'; '.join(problems)}. Leave these settings "
            "out, for they are taken over, or train without --from."
        )
    return settings_from_json(values)


def parts_taken(trained: Model, *, same_task: bool) -> tuple[str, ...]:
    """The parts of a trained model that a new one starts from: if it is of the same task, all but phrases."""
    own = (name for name in _weights(trained) if not name.startswith(_PHRASES))
    return tuple(dict.fromkeys(map(_part, own))) if same_task else _SHARED


@torch.no_grad()
def start_from_model(model: Model, trained: Model) -> None:
    """Give a fresh model the weights of a trained one in all parts that they share.

    The words of the trained model are the first ones of the new model, in the same order: of weights with a
    row for each word or each concept candidate the first rows are taken over, and those of new words stay.

    Raises:
        UsageError: the models are of different sizes.
    """
    same_task = type(model) is type(trained)
    parts = parts_taken(trained, same_task=same_task)
    own = _OWN if not same_task and _compares(model) else ()
    new, old = (
        {name: tensor for name, tensor in _weights(each).items() if _part(name) in parts and name not in own}
        for each in (model, trained)
    )
    for name in [name for name in new.keys() ^ old.keys() if name.startswith(_PROBE)]:
        (new if name in new else old).pop(name)  # it has learnt already, or is not wanted any more
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


def _part(name: str) -> str:
    return name.partition(".")[0]


def _compares(model: Model) -> bool:
    attention = model.word_input.attention if isinstance(model, ChoiceModel | RetrievalModel) else None
    return attention is not None and attention.compares


def _has_room(new: Tensor, old: Tensor) -> bool:
    """Whether tensors differ in nothing but the number of rows, of which the new one may have more."""
    return new.dim() == old.dim() and new.shape[1:] == old.shape[1:] and new.shape[:1] >= old.shape[:1]


def _shape(tensor: Tensor | None) -> str:
    return "none" if tensor is None else "x".join(map(str, tensor.shape)) or "one number"
