"""Pack trained runs into one small folder for inference; `pack_folder` documents its layout.

Matrices are stored in half precision, large ones in 8 bits. Tensors that runs share are stored once. Word
vectors are those of the trained models.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ctsan.config import overridden
from ctsan.errors import UsageError
from ctsan.io.atomic import UNFINISHED, replacing_folder, write_json
from ctsan.io.reading import read_json_object
from ctsan.runs.pack_folder import FORMAT, PACK_FILE, VERSION
from ctsan.runs.run_folder import SETTINGS_FILE
from ctsan.runs.trained_run import (
    WORDS_FOLDER,
    TrainedRun,
    load_run,
    trained_embedding,
    words_folder,
    write_recipe,
)
from ctsan.runs.weights import (
    SCALE,
    SHARED_FILE,
    WEIGHTS_FILE,
    Array,
    read_weights,
    write_packed_weights,
    write_shared_weights,
)
from ctsan.text.words import CONCEPTS_FILE, VOCABULARY_FILE, Words

_LARGE = 50_000  # elements from which on a matrix is stored in 8 bits

# Sections of settings that affect inference, not training.
_INFERENCE_SECTIONS = ("decoding.", "rerank.", "ensemble.")


def write_pack(runs: Sequence[Path], out: Path, *, overrides: Sequence[str] = ()) -> int:
    """Pack run folders into a new folder; return its size in bytes.

    Args:
        runs: folders of single runs, not of ensembles.
        overrides: inference settings, such as `decoding.beam=10`; the rest stay as in the runs.

    Raises:
        RunError: a run cannot be read.
        UsageError: the folder exists and is not empty, or an override is not an inference setting.
    """
    if refused := [
        override for override in overrides if not override.strip().startswith(_INFERENCE_SECTIONS)
    ]:
        raise UsageError(
            f"{', '.join(refused)}: a pack keeps the settings that runs were trained with. Only those of "
            "'decoding', 'rerank' and 'ensemble' may be set, for example decoding.beam=10."
        )
    _check_new_folder(out)
    opened = [load_run(run) for run in runs]
    trained = [read_weights(run / WEIGHTS_FILE) for run in runs]
    words = [
        Words.load(words_folder(run), embedding=trained_embedding(run / WEIGHTS_FILE, weights))
        for run, weights in zip(runs, trained, strict=True)
    ]
    with replacing_folder(out) as folder:
        _write_runs(opened, list(map(_reduced, trained)), words, folder, overrides)
    return sum(file.stat().st_size for file in out.rglob("*") if file.is_file())


def _check_new_folder(out: Path) -> None:
    """Check that a pack can be written to a folder: it is new, empty, or of a pack that was not finished.

    Raises:
        UsageError: there is something else.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / UNFINISHED).exists())):
        raise UsageError(f"{out}: it is there already. Name a new or an empty folder for the pack.")


def _write_runs(
    runs: Sequence[TrainedRun],
    weights: Sequence[dict[str, Array]],
    words: Sequence[Words],
    out: Path,
    overrides: Sequence[str],
) -> None:
    names = _names([run.task for run in runs])
    keys = [{name: _digest(tensor) for name, tensor in run_weights.items()} for run_weights in weights]
    uses = Counter(key for run_keys in keys for key in run_keys.values())  # or twice in one model
    shared: dict[str, Array] = {}
    for run, name, run_weights, run_keys in zip(runs, names, weights, keys, strict=True):
        common = {tensor: key for tensor, key in sorted(run_keys.items()) if uses[key] > 1}
        shared |= {key: run_weights[tensor] for tensor, key in common.items()}
        alone = {tensor: value for tensor, value in run_weights.items() if tensor not in common}
        write_packed_weights(out / name / WEIGHTS_FILE, alone, common)
        settings = overridden(run.settings, overrides)  # with defaults of settings that its file lacks
        stored = read_json_object(run.folder / SETTINGS_FILE)
        stored |= {"settings": settings.to_json(), "from": None}  # the origin is a local path
        write_json(out / name / SETTINGS_FILE, stored)
        write_recipe(out / name, run.recipe)
    if shared:
        write_shared_weights(out / SHARED_FILE, shared)
    _save_words(words[0], out / WORDS_FOLDER)
    for name, one in zip(names, words, strict=True):
        if (one.vocabulary, one.concepts) != (words[0].vocabulary, words[0].concepts):
            _save_words(one, out / name / WORDS_FOLDER)
    write_json(out / PACK_FILE, {"format": FORMAT, "version": VERSION, "runs": names})


def _names(tasks: Sequence[str]) -> list[str]:
    """Name the runs by task: `describe`, `fill`, then `fill-2` for a second run of the same task."""
    counts: Counter[str] = Counter()
    names = []
    for task in tasks:
        counts[task] += 1
        names.append(task if counts[task] == 1 else f"{task}-{counts[task]}")
    return names


def _reduced(weights: dict[str, Array]) -> dict[str, Array]:
    """Store matrices in fewer bits; keep vectors and scalars, which are small, as they are."""
    reduced: dict[str, Array] = {}
    for name, tensor in weights.items():
        is_matrix = tensor.dtype.kind == "f" and tensor.ndim > 1
        if is_matrix and tensor.size >= _LARGE:
            rows = tensor.reshape(len(tensor), -1)
            scale = (np.maximum(np.abs(rows).max(axis=1), 1e-12) / 127).astype(np.float32)
            reduced[name] = np.round(rows / scale[:, None]).astype(np.int8).reshape(tensor.shape)
            reduced[name + SCALE] = scale
        else:
            reduced[name] = tensor.astype(np.float16) if is_matrix else tensor
    return reduced


def _digest(tensor: Array) -> str:
    content = hashlib.sha256(f"{tensor.dtype} {tensor.shape}".encode())
    content.update(np.ascontiguousarray(tensor).tobytes())
    return content.hexdigest()[:24]


def _save_words(words: Words, folder: Path) -> None:
    words.vocabulary.save(folder / VOCABULARY_FILE)
    words.concepts.save(folder / CONCEPTS_FILE)
