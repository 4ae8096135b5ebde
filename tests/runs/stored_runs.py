"""Small runs that are not trained, in folders of their own, and ways to damage their files."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from built_runs import small_run
from ctsan.runs.checkpoint import save_weights
from ctsan.runs.run_folder import create_run
from ctsan.runs.trained_run import WORDS_FOLDER, write_recipe
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore


def store_run(folder: Path, task: str, words: Words, store: FeatureStore, *overrides: str) -> Path:
    """Write a run of a task as training does, without training it."""
    run = small_run(task, words, store, *overrides)
    create_run(folder, task=task, profile="laptop", settings=run.settings)
    write_recipe(folder, run.recipe)
    words.save(folder / WORDS_FOLDER)
    save_weights(folder / WEIGHTS_FILE, run.model, step=1, score=0.5)
    return folder


def change_json(file: Path, place: tuple[str | int, ...], value: object) -> None:
    """Replace the value at a place of a JSON file; the type `Missing` removes it."""
    document = json.loads(file.read_text(encoding="utf-8"))
    holder = document
    for key in place[:-1]:
        holder = holder[key]
    if value is Missing:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    file.write_text(json.dumps(document), encoding="utf-8")


class Missing:
    """In place of a value that is removed."""


def places_in(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all values in a JSON value; of a list, the first two."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(min(2, len(value))):
            yield (*place, key)
            yield from places_in(value[key], (*place, key))


def change_tensors(file: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Rewrite a safetensors file with the dict that `change` returns, or with tensors changed in place."""
    tensors, header = _read(file)
    changed = change(tensors)
    save_file(changed if isinstance(changed, dict) else tensors, file, metadata={"ctsan": json.dumps(header)})


def change_header(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite a safetensors file with the same tensors, and another header."""
    tensors, header = _read(file)
    changed = copy.deepcopy(header)
    change(changed)
    save_file(tensors, file, metadata={"ctsan": json.dumps(changed)})


def _read(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with safe_open(file, framework="pt") as opened:
        names = opened.keys()
        return {name: opened.get_tensor(name).clone() for name in names}, json.loads(
            opened.metadata()["ctsan"]
        )
