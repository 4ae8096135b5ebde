"""Read weights files that contain only tensors, so that loading them runs no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ctsan.errors import UsageError
from ctsan.video.backbones.spec import Colour

if TYPE_CHECKING:
    from torch import Tensor


def files_digest(files: Iterable[Path]) -> str:
    """sha256 of the concatenated files."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def read_state(weights: Path) -> Mapping[str, Tensor]:
    """The state_dict in a .safetensors or PyTorch file.

    Raises:
        UsageError: the file is damaged, or is not a state_dict.
    """
    import torch

    if weights.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(weights)
        except SafetensorError as error:
            raise UsageError(
                f"{weights}: a damaged safetensors file ({error}). Download it again."
            ) from error
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)  # runs no code
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
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, framework="numpy") as file:
            return file.metadata() or {}
    except SafetensorError as error:
        raise UsageError(f"{weights}: a damaged safetensors file ({error}). Download it again.") from error


def colour(text: str) -> Colour:
    """Parse a JSON list of red, green and blue."""
    red, green, blue = json.loads(text)
    return float(red), float(green), float(blue)
