"""Build the PyTorch model of a trained run from its settings, and fill it with its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.overrides import TorchFunctionMode

from ctsan.baselines.nearest_words import NearestWords
from ctsan.errors import RunError, UsageError
from ctsan.model.compact_bilinear import CompactBilinear
from ctsan.runs.checkpoint import as_tensors, fill_with
from ctsan.runs.run_folder import SETTINGS_FILE
from ctsan.runs.trained_run import FEATURES_FILE, TrainedRun
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.tasks.building import build_model

_SCALES = frozenset({"scale", "score_scale", "channel_scales"})  # buffers that numbers are divided by
_SPARE_ELEMENTS = 1_000_000  # that building a model makes and a file of weights does not hold


class TooLargeError(Exception):
    """A model is larger than the weights that it is built for."""


class SkipInit(TorchFunctionMode):
    """Skip random initialisation of models built inside this context.

    Their weights are loaded from a file anyway, and drawing random ones takes time.

    Args:
        max_elements: of all tensors that are made, so that damaged settings do not take all memory.

    Raises:
        TooLargeError: more elements are made.
    """

    _DRAWING = frozenset(
        {init.kaiming_uniform_, init.normal_, init.uniform_, Tensor.normal_, Tensor.uniform_}
    )
    _MAKING = frozenset({torch.empty, torch.zeros, torch.ones, torch.full, torch.randint, torch.eye})

    def __init__(self, max_elements: int | None = None) -> None:
        super().__init__()
        self._left = max_elements

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if func in self._DRAWING:
            return args[0] if args else named["tensor"]
        made = func(*args, **named)
        if self._left is not None and func in self._MAKING:
            self._left -= made.numel()
            if self._left < 0:
                raise TooLargeError
        return made


def build_trained(run: TrainedRun) -> Any:
    """The trained model, in evaluation mode.

    Raises:
        RunError: the weights are damaged or do not fit the model.
        WordsError: the words are missing or damaged.
    """
    file = run.folder / WEIGHTS_FILE
    weights = as_tensors(run.weights)
    model = _build(run, file, sum(tensor.numel() for tensor in weights.values()))
    indices = _indices_of(model)  # before they are filled
    fill_with(file, model, weights)
    _check_buffers(file, model, indices)
    return model.eval()


def _build(run: TrainedRun, file: Path, num_weights: int) -> Any:
    """Build the model of the settings, to be filled with so many weights."""
    recipe = run.recipe
    try:
        with SkipInit(max_elements=2 * num_weights + _SPARE_ELEMENTS):
            return build_model(
                run.task, run.settings, run.words, grid=recipe.grid, channels=recipe.channels, seed=0
            )
    except (TooLargeError, RuntimeError, MemoryError) as error:  # PyTorch asked for too much memory
        raise RunError(
            f"{file}: the model that {SETTINGS_FILE} and {FEATURES_FILE} describe is larger than these "
            "weights. Put the files back from a copy, or train again in another folder."
        ) from error
    except UsageError as error:
        raise RunError(f"{run.folder / SETTINGS_FILE}: {error}") from None


def _indices_of(model: nn.Module) -> dict[str, Tensor]:
    """The buffers of a model that follow from its words, by name."""
    return {
        name: tensor.clone() for name, tensor in model.named_buffers() if name.endswith("candidate_words")
    }


def _check_buffers(file: Path, model: nn.Module, indices: Mapping[str, Tensor]) -> None:
    """Check the numbers of a loaded model that index other tensors, or that others are divided by.

    Raises:
        RunError: some are out of range, or others than those of the words.
    """
    buffers = dict(model.named_buffers())
    wrong = [name for name, expected in indices.items() if not torch.equal(buffers[name], expected)]
    scales = {name: tensor for name, tensor in buffers.items() if name.rpartition(".")[2] in _SCALES}
    wrong += [name for name, scale in scales.items() if not (scale > 0).all()]
    for name, module in model.named_modules():
        if isinstance(module, CompactBilinear):
            limited = {"first_hash": module.out_dim, "second_hash": module.out_dim}
        else:
            limited = {"known_words": module.num_candidates} if isinstance(module, NearestWords) else {}
        wrong += [
            f"{name}.{buffer}"
            for buffer, limit in limited.items()
            if not all(0 <= index < limit for index in module.get_buffer(buffer).flatten().tolist())
        ]
    if wrong:
        raise RunError(
            f"{file}: it is damaged ({', '.join(wrong)} does not fit the words or the settings). Put it back "
            "from a copy, or train again in another folder."
        )
