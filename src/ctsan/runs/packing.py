"""Pack trained runs into one small folder for inference; `pack_folder` documents its layout.

Matrices are stored in half precision, large ones in 8 bits. Tensors that runs share are stored once. Word
vectors are those of the trained models.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ctsan.config import overridden, settings_from_json
from ctsan.errors import UsageError
from ctsan.io.atomic import write_json
from ctsan.runs.checkpoint import (
    SCALE,
    SHARED_FILE,
    WEIGHTS_FILE,
    read_weights,
    write_packed_weights,
    write_shared_weights,
)
from ctsan.runs.pack_folder import FORMAT, PACK_FILE, VERSION
from ctsan.runs.run_folder import SETTINGS_FILE, open_run
from ctsan.runs.trained_run import WORDS_FOLDER, learnt_vectors, read_recipe, words_folder, write_recipe
from ctsan.text.words import CONCEPTS_FILE, VOCABULARY_FILE, Words

_LARGE = 50_000  # elements from which on a matrix is stored in 8 bits

# Sections of settings that affect inference, not training.
_ASKED = ("decoding.", "rerank.", "ensemble.")


def write_pack(runs: Sequence[Path], out: Path, *, overrides: Sequence[str] = ()) -> int:
    """Pack run folders into a new folder; return its size in bytes.

    Args:
        runs: folders of single runs, not of ensembles.
        overrides: inference settings, such as `decoding.beam=10`; the rest stay as in the runs.

    Raises:
        RunError: a run cannot be read.
        UsageError: the folder exists and is not empty, or an override is not an inference setting.
    """
    if others := [each for each in overrides if not each.strip().startswith(_ASKED)]:
        raise UsageError(
            f"{', '.join(others)}: a pack keeps the settings that runs were trained with. Only those of "
            "'decoding', 'rerank' and 'ensemble' may be set, for example decoding.beam=10."
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: it is there already. Name a new or an empty folder for the pack.")
    names = _names([open_run(run).task for run in runs])
    trained = [read_weights(run / WEIGHTS_FILE) for run in runs]
    words = [
        Words.load(words_folder(run), embedding=learnt_vectors(own))
        for run, own in zip(runs, trained, strict=True)
    ]
    weights = list(map(_reduced, trained))
    keys = [{name: _digest(tensor) for name, tensor in own.items()} for own in weights]
    uses = Counter(key for own in keys for key in own.values())  # or twice in one model
    shared: dict[str, Tensor] = {}
    for run, name, own, own_keys in zip(runs, names, weights, keys, strict=True):
        common = {tensor: key for tensor, key in sorted(own_keys.items()) if uses[key] > 1}
        shared |= {key: own[tensor] for tensor, key in common.items()}
        alone = {tensor: value for tensor, value in own.items() if tensor not in common}
        write_packed_weights(out / name / WEIGHTS_FILE, alone, common)
        stored = json.loads((run / SETTINGS_FILE).read_text(encoding="utf-8-sig"))
        settings = overridden(settings_from_json(stored["settings"]), overrides)  # adds missing defaults
        stored |= {"settings": settings.to_json(), "from": None}  # the origin is a local path
        write_json(out / name / SETTINGS_FILE, stored)
        write_recipe(out / name, read_recipe(run))
    if shared:
        write_shared_weights(out / SHARED_FILE, shared)
    _save_words(words[0], out / WORDS_FOLDER)
    for name, one in zip(names, words, strict=True):
        if (one.vocabulary, one.concepts) != (words[0].vocabulary, words[0].concepts):
            _save_words(one, out / name / WORDS_FOLDER)
    write_json(out / PACK_FILE, {"format": FORMAT, "version": VERSION, "runs": names})
    return sum(file.stat().st_size for file in out.rglob("*") if file.is_file())


def _names(tasks: Sequence[str]) -> list[str]:
    """Name the runs by task: `describe`, `fill`, then `fill-2` for a second run of the same task."""
    seen: Counter[str] = Counter()
    names = []
    for task in tasks:
        seen[task] += 1
        names.append(task if seen[task] == 1 else f"{task}-{seen[task]}")
    return names


def _reduced(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Store matrices in fewer bits; keep vectors and scalars, which are small, as they are."""
    reduced: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if tensor.is_floating_point() and tensor.dim() > 1 and tensor.numel() >= _LARGE:
            rows = tensor.flatten(1)
            scale = rows.abs().amax(dim=1).clamp(min=1e-12) / 127
            reduced[name] = (rows / scale[:, None]).round().to(torch.int8).view_as(tensor)
            reduced[name + SCALE] = scale
        else:
            reduced[name] = tensor.half() if tensor.is_floating_point() and tensor.dim() > 1 else tensor
    return reduced


def _digest(tensor: Tensor) -> str:
    content = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    content.update(tensor.contiguous().numpy().tobytes())
    return content.hexdigest()[:24]


def _save_words(words: Words, folder: Path) -> None:
    words.vocabulary.save(folder / VOCABULARY_FILE)
    words.concepts.save(folder / CONCEPTS_FILE)
