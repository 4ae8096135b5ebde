"""Save and load weights for inference, and checkpoints from which training resumes exactly.

A checkpoint is one safetensors file with tensors and header, written atomically: a killed process never
leaves a partial one. It holds no random state, because every step draws from the seed and the step number.

In a pack (`packing`), weights are in half precision or 8 bits, and tensors that several runs share are in one
file next to the run folders.
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
SHARED_FILE = "shared.safetensors"  # in a pack, in the parent of the run folders
SCALE = "/scale"  # suffix of the tensor with the row scales of an 8-bit matrix
VERSION = 1

_REMOVED = frozenset({"clip_encoder.word_noise"})  # in files of older runs; no current model has them
_CHECKPOINT, _WEIGHTS, _SHARED = "ctsan-checkpoint", "ctsan-weights", "ctsan-shared-weights"


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
    """Write weights for inference, with their step and validation score."""
    _write(file, _WEIGHTS, model.state_dict(), {"step": step, "score": score})


def load_weights(file: Path, model: nn.Module) -> None:
    """Load the weights of a run into a model.

    Raises:
        RunError: the file is missing, damaged, of another format or version, or of another model.
    """
    fill_with(file, model, read_weights(file))


def read_weights(file: Path) -> dict[str, Tensor]:
    """Read the weights of a run, in a pack or not, as single precision.

    Raises:
        RunError: the file is missing, damaged, or of another format or version.
    """
    tensors, header = _read(file, _WEIGHTS)
    if names := header.get("shared"):  # tensor name -> key in the shared file
        found, _ = _read(file.parent.parent / SHARED_FILE, _SHARED, only=set(names.values()))
        tensors |= {name: found[key] for name, key in names.items()}
    return {
        name: _in_full(tensor, tensors.get(name + SCALE))
        for name, tensor in _without_removed(tensors).items()
        if not name.endswith(SCALE)
    }


def check_weights(file: Path) -> None:
    """Check that a weights file can be opened, without reading its tensors.

    Raises:
        RunError: the file is missing, damaged, or of another format or version.
    """
    with _opened(file, _WEIGHTS):
        pass


def write_packed_weights(file: Path, own: Mapping[str, Tensor], shared: Mapping[str, str]) -> None:
    """Write the weights of one run of a pack.

    Args:
        own: tensors that no other run has.
        shared: tensor name -> key in the shared file.
    """
    _write(file, _WEIGHTS, own, {"shared": shared})


def write_shared_weights(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors that several runs of a pack share, by key."""
    _write(file, _SHARED, tensors, {})


def fill_with(file: Path, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load tensors that were read from `file` into a model.

    Raises:
        RunError: the tensors do not fit the model.
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
        whole[name] = plain.clone() if memory in held else plain  # safetensors rejects shared memory
        held.add(memory)
    # One metadata entry only: the library writes several in an order that is not deterministic.
    text = json.dumps({"format": kind, "version": VERSION, **header})
    with replacing(file) as temporary:
        temporary.write_bytes(save(whole, metadata={"ctsan": text}))


def _read(
    file: Path, kind: str, only: Collection[str] | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the header of a file and its tensors, or only those named in `only`."""
    with _opened(file, kind) as (opened, header):
        # Copied, because the memory-mapped file may be replaced while the tensors are in use.
        names = opened.keys() if only is None else only
        return {name: opened.get_tensor(name).clone() for name in names}, header


@contextmanager
def _opened(file: Path, kind: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Open a safetensors file (memory-mapped) and read its header."""
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
