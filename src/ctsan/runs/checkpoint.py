"""Save and load weights for inference, and checkpoints from which training resumes exactly.

A checkpoint is one safetensors file with tensors and header, written atomically: a killed process never
leaves a partial one. It holds no random state, because every step draws from the seed and the step number.
`weights` reads the weights alone, without PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save
from torch import Tensor, nn

from ctsan.config import check_resumable
from ctsan.errors import RunError
from ctsan.io.atomic import replacing
from ctsan.io.fields import typed_field, whole_field
from ctsan.io.reading import DamagedFileError
from ctsan.runs.weights import (
    WEIGHTS_FORMAT,
    Array,
    damage_of,
    metadata_of,
    opened_tensors,
    read_weights,
    without_removed,
)

_CHECKPOINT = "ctsan-checkpoint"
_DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool}
_MOST_LETTERS = 400  # of what PyTorch says about weights that do not fit


class RunningMean(Protocol):
    """The averaged weights, which a checkpoint holds in addition to the current ones."""

    mean: dict[str, Tensor]

    def restore(self, mean: Mapping[str, Tensor]) -> None: ...


@dataclass(slots=True)
class State:
    """The state of a training run, apart from its tensors."""

    step: int = 0  # steps done; determines the epoch and the position in it
    best_step: int = 0  # 0: no evaluation yet
    best_score: float = 0.0
    stale: int = 0  # evaluations since the best one
    metrics_size: int = 0  # bytes of the metrics file


def save_checkpoint(
    file: Path,
    state: State,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: RunningMean | None,
    *,
    settings: Mapping[str, object],
    num_examples: int,
) -> None:
    """Write all that `load_checkpoint` needs, with the settings (JSON sections) it compares."""
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    if average is not None:
        tensors |= {f"average/{name}": tensor for name, tensor in average.mean.items()}
    for index, moments in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser/{index}/{name}": tensor for name, tensor in moments.items()}
    header = {"settings": settings, "num_examples": num_examples, "state": asdict(state)}
    _write(file, _CHECKPOINT, tensors, header)


def load_checkpoint(
    file: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: RunningMean | None,
    *,
    settings: Mapping[str, object],
    num_examples: int,
) -> State:
    """Restore model, optimiser and averaged weights, which must be built as they were when it was saved.

    Raises:
        RunError: the file is damaged, of another format or version, or of another model or corpus.
        UsageError: the checkpoint was made with different settings.
    """
    tensors, header = _read(file, _CHECKPOINT)
    with damage_of(file):
        stored = typed_field(header, "settings", dict)
        if not all(isinstance(section, dict) for section in stored.values()):
            raise DamagedFileError("its 'settings' are not sections of settings")
        examples = whole_field(header, "num_examples")
        state = _state(typed_field(header, "state", dict))
    check_resumable(file, stored, settings)
    if examples != num_examples:
        raise RunError(
            f"{file}: it was made with {examples:,} training examples, and there are {num_examples:,}. Train "
            "on the same corpora (--corpus and --external), or name another folder for a new run."
        )
    fill_with(file, model, without_removed(_below("model/", tensors)))
    with damage_of(file):
        if average is not None:
            means = _below("average/", tensors)
            _check_same_shapes(means, average.mean)
            average.restore(means)
        moments = _moments(_below("optimiser/", tensors), optimiser)
    optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})
    return state


def _state(fields: Mapping[str, Any]) -> State:
    wholes = ("step", "best_step", "stale", "metrics_size")
    numbers = {name: whole_field(fields, name) for name in wholes}
    score = fields.get("best_score")  # -inf as long as no score was finite
    if isinstance(score, bool) or not isinstance(score, int | float) or math.isnan(score):
        raise DamagedFileError("its 'best_score' is not a number")
    return State(best_score=score, **numbers)


def _moments(tensors: Mapping[str, Tensor], optimiser: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    """Group the tensors of an optimiser by the index of their parameter; each has its shape, or is a scalar.

    Raises:
        DamagedFileError: a tensor belongs to no parameter, or has another shape.
    """
    parameters = [weights for group in optimiser.param_groups for weights in group["params"]]
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, key = name.partition("/")
        place = int(index) if index.isdecimal() and len(index) < 10 else len(parameters)
        if place >= len(parameters) or tensor.shape not in (parameters[place].shape, torch.Size()):
            raise DamagedFileError(f"its tensor 'optimiser/{name}' belongs to no weights of the model")
        moments.setdefault(place, {})[key] = tensor
    if len({frozenset(of_one) for of_one in moments.values()}) > 1:
        raise DamagedFileError("it lacks tensors of the optimiser")
    return moments


def _check_same_shapes(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    for name in sorted(tensors.keys() | expected.keys()):
        if name not in tensors or name not in expected or tensors[name].shape != expected[name].shape:
            raise DamagedFileError(f"its averaged weights do not fit the model: {name}")


def save_weights(file: Path, model: nn.Module, *, step: int, score: float) -> None:
    """Write weights for inference, with their step and validation score."""
    _write(file, WEIGHTS_FORMAT, model.state_dict(), {"step": step, "score": score})


def load_weights(file: Path, model: nn.Module) -> None:
    """Load the weights of a run into a model.

    Raises:
        RunError: the file is missing, damaged, of another format or version, or of another model.
    """
    fill_with(file, model, as_tensors(read_weights(file)))


def as_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Arrays of `read_weights` as tensors that share their memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def fill_with(file: Path, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load tensors that were read from `file` into a model.

    Raises:
        RunError: the tensors do not fit the model.
    """
    remedy = "Build the model with the settings of the run."
    kinds = {name: value.is_floating_point() for name, value in model.state_dict().items()}
    for name, tensor in tensors.items():
        if kinds.get(name, tensor.is_floating_point()) != tensor.is_floating_point():
            raise RunError(f"{file}: its weights do not fit the model: {name} is {tensor.dtype}. {remedy}")
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(line.strip() for line in str(error).splitlines()[1:])
        what = reason if len(reason) <= _MOST_LETTERS else f"{reason[:_MOST_LETTERS]}…"
        raise RunError(f"{file}: its weights do not fit the model: {what} {remedy}") from None


def _write(file: Path, kind: str, tensors: Mapping[str, Tensor], header: Mapping[str, object]) -> None:
    stored: dict[str, Tensor] = {}
    pointers: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        memory = plain.untyped_storage().data_ptr()
        stored[name] = plain.clone() if memory in pointers else plain  # safetensors rejects shared memory
        pointers.add(memory)
    with replacing(file) as temporary:
        temporary.write_bytes(save(stored, metadata=metadata_of(kind, header)))


def _read(file: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the header of a file and its tensors."""
    with opened_tensors(file, kind, framework="pt") as (opened, header):
        # Copied, because the memory-mapped file may be replaced while the tensors are in use.
        tensors = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118
        for name, tensor in tensors.items():
            _check_numbers(name, tensor)
        return tensors, header


def _check_numbers(name: str, tensor: Tensor) -> None:
    """The sum is finite only if all numbers are, and is computed faster than a mask of them."""
    if tensor.dtype not in _DTYPES:
        raise DamagedFileError(f"its {name} is of the type {tensor.dtype}")
    if tensor.is_floating_point() and not tensor.float().sum().isfinite() and not tensor.isfinite().all():
        raise DamagedFileError(f"its {name} has values that are infinite or no number")


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
