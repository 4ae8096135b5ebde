"""Read weights files that contain only tensors, so that loading them runs no code."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ctsan.errors import UsageError
from ctsan.io.arrays import open_tensors
from ctsan.io.reading import DamagedFileError, check_regular
from ctsan.video.backbones.spec import Colour

if TYPE_CHECKING:
    from torch import Tensor


def files_digest(files: Iterable[Path]) -> str:
    """sha256 of the concatenated files.

    Raises:
        UsageError: one is missing, not a regular file, or cannot be read.
    """
    digest = hashlib.sha256()
    for path in files:
        try:
            check_regular(path)
            with path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
        except (DamagedFileError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"{path}: {reason}. Check the path and its permissions.") from error
    return digest.hexdigest()


def read_state(weights: Path) -> Mapping[str, Tensor]:
    """The state_dict in a .safetensors or PyTorch file.

    Raises:
        UsageError: the file is damaged, or is not a state_dict.
    """
    import torch

    if weights.suffix == ".safetensors":
        try:
            with open_tensors(weights, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except DamagedFileError as error:
            raise _damaged(weights, error) from error
    try:
        check_regular(weights)
        state = torch.load(weights, map_location="cpu", weights_only=True)  # runs no code
    except DamagedFileError as error:
        raise _damaged(weights, error) from error
    except Exception as error:
        raise UsageError(
            f"{weights}: not a file of plain tensors ({type(error).__name__}). "
            "Save the network's state_dict() and nothing else."
        ) from error
    if not isinstance(state, Mapping):
        raise UsageError(f"{weights}: not a state_dict. Save the network's state_dict() and nothing else.")
    return state


def read_metadata(weights: Path) -> Mapping[str, str]:
    """The metadata of a safetensors file; empty for other files.

    Raises:
        UsageError: the file is damaged.
    """
    if weights.suffix != ".safetensors":
        return {}
    try:
        with open_tensors(weights) as file:
            return file.metadata() or {}
    except DamagedFileError as error:
        raise _damaged(weights, error) from error


def read_normalisation(weights: Path) -> tuple[Colour, Colour] | None:
    """The mean and std of red, green and blue in the metadata of a safetensors file; None if there are none.

    Raises:
        UsageError: the file is damaged, or they are not three numbers each.
    """
    metadata = read_metadata(weights)
    if "mean" not in metadata:
        return None
    try:
        return _colour(metadata["mean"]), _colour(metadata["std"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{weights}: the mean or std in its metadata is not a list of three numbers. Convert it again."
        ) from error


def _colour(text: str) -> Colour:
    red, green, blue = map(float, json.loads(text))
    if not all(map(math.isfinite, (red, green, blue))):
        raise ValueError
    return red, green, blue


def _damaged(weights: Path, error: DamagedFileError) -> UsageError:
    return UsageError(f"{weights}: a damaged weights file ({error}). Download it again.")
