"""What is kept of a training: the best weights for use, and all that is needed to go on exactly.

A checkpoint is one safetensors file, tensors and header together: it appears whole or not at all, so a kill
can never leave two halves of different moments. No random state is in it, because the loop draws anew at
every step, from the seed and the step's number.

Weights may also lie in a pack (`packing`): in half precision or eight bits, and with the tensors that
several runs have in common in a file beside their folders.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ctsan.config import check_resumable
from ctsan.errors import RunError
from ctsan.io.atomic import replacing

CHECKPOINT_FILE = "checkpoint.safetensors"
WEIGHTS_FILE = "weights.safetensors"
SHARED_FILE = "shared.safetensors"  # of a pack: one folder above its weights files
SCALE = "/scale"  # after the name of a matrix in eight bits: what each of its rows is multiplied by
VERSION = 1

_REMOVED = frozenset({"clip_encoder.word_noise"})  # in files of older runs; no model has them any more
_CHECKPOINT, _WEIGHTS, _SHARED = "ctsan-checkpoint", "ctsan-weights", "ctsan-shared-weights"


class RunningMean(Protocol):
    """The averaged weights that a checkpoint holds beside the last ones."""

    mean: dict[str, Tensor]

    def restore(self, mean: Mapping[str, Tensor]) -> None: ...


@dataclass(slots=True)
class State:
    """Where a training stands, besides its weights."""

    step: int = 0  # steps done; epoch and place in it follow
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
    """Write all that `load_checkpoint` needs; the settings, sections as in JSON, are stored to compare."""
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
    """Put model, optimiser and averaged weights back as they were; they must be made as they were then.

    Raises:
        RunError: the file is damaged, foreign, of another version, or of another model or corpus.
        UsageError: it was made with other settings.
    """
    tensors, header = _read(file, _CHECKPOINT)
    check_resumable(file, header["settings"], settings)
    if header["num_examples"] != num_examples:
        what = (
            f"it was made with {header['num_examples']:,} training examples, and there are {num_examples:,}"
        )
        raise RunError(
            f"{file}: {what}. Train on the same corpora (--corpus and --external), or name "
            "another folder for a new run."
        )
    fill_with(file, model, _without_removed(_below("model/", tensors)))
    if average is not None:
        average.restore(_below("average/", tensors))
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _below("optimiser/", tensors).items():
        index, key = name.split("/")
        moments.setdefault(int(index), {})[key] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})
    return State(**header["state"])


def save_weights(file: Path, model: nn.Module, *, step: int, score: float) -> None:
    """Write weights for use, with the step and the score they were chosen by."""
    _write(file, _WEIGHTS, model.state_dict(), {"step": step, "score": score})


def load_weights(file: Path, model: nn.Module) -> None:
    """Give a model the weights of a run.

    Raises:
        RunError: the file is missing, damaged, foreign, of another version or of another model.
    """
    fill_with(file, model, read_weights(file))


def read_weights(file: Path) -> dict[str, Tensor]:
    """The weights of a run, in single precision, whether it lies in a pack or not.

    Raises:
        RunError: the file is missing, damaged, foreign or of another version.
    """
    tensors, header = _read(file, _WEIGHTS)
    if names := header.get("shared"):  # of the tensors in the file of all, by their names here
        found, _ = _read(file.parent.parent / SHARED_FILE, _SHARED, only=set(names.values()))
        tensors |= {name: found[key] for name, key in names.items()}
    return {
        name: _in_full(tensor, tensors.get(name + SCALE))
        for name, tensor in _without_removed(tensors).items()
        if not name.endswith(SCALE)
    }


def check_weights(file: Path) -> None:
    """Raises:
    RunError: a run has no weights, or their file is damaged, foreign or of another version.
    """
    with _opened(file, _WEIGHTS):
        pass


def write_packed_weights(file: Path, own: Mapping[str, Tensor], shared: Mapping[str, str]) -> None:
    """Weights of one run of a pack: its own tensors, and the keys of others in the file of all, by name."""
    _write(file, _WEIGHTS, own, {"shared": shared})


def write_shared_weights(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """The tensors that several runs of a pack have in common, by their keys."""
    _write(file, _SHARED, tensors, {})


def fill_with(file: Path, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give a model the tensors of a file.

    Raises:
        RunError: they are of another model.
    """
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:]]
        what = f"its weights do not fit the model: {' '.join(lines)}"
        raise RunError(f"{file}: {what} Build the model with the settings of the run.") from None


def _write(file: Path, kind: str, tensors: Mapping[str, Tensor], header: Mapping[str, object]) -> None:
    whole: dict[str, Tensor] = {}
    held: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        memory = plain.untyped_storage().data_ptr()
        whole[name] = plain.clone() if memory in held else plain  # the format refuses tied weights
        held.add(memory)
    # One metadata entry only: the library writes several in an order that changes from run to run.
    text = json.dumps({"format": kind, "version": VERSION, **header})
    with replacing(file) as temporary:
        temporary.write_bytes(save(whole, metadata={"ctsan": text}))


def _read(
    file: Path, kind: str, only: Collection[str] | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All tensors of a file, or only some of them, and its header."""
    with _opened(file, kind) as (opened, header):
        # Copied out of the file: it may be replaced while they are in use.
        names = opened.keys() if only is None else only
        return {name: opened.get_tensor(name).clone() for name in names}, header


@contextmanager
def _opened(file: Path, kind: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """A safetensors file, which is mapped into memory, and its header."""
    remedy = "Put it back from a copy, or name another folder for a new run."
    try:
        with safe_open(file, framework="pt") as opened:
            header = json.loads((opened.metadata() or {}).get("ctsan", "{}"))
            if header.get("format") != kind:
                found = header.get("format", "unknown")
                raise RunError(f"{file}: its format is {found!r}, not {kind!r}. {remedy}")
            if header["version"] != VERSION:
                what = f"its version is {header['version']}, and this ctsan reads version {VERSION}"
                raise RunError(
                    f"{file}: {what}. Use the ctsan that made it, or train again in another folder."
                )
            yield opened, header
    except FileNotFoundError:
        raise RunError(f"{file}: there is no such file. Train first, or name another run.") from None
    except (OSError, SafetensorError, ValueError) as error:
        raise RunError(f"{file}: it is damaged ({error}). {remedy}") from None


def _in_full(tensor: Tensor, scale: Tensor | None) -> Tensor:
    if scale is not None:
        return tensor * scale.view(-1, *[1] * (tensor.dim() - 1))
    return tensor.float() if tensor.dtype == torch.half else tensor


def _without_removed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name not in _REMOVED}


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
