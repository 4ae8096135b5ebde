"""The folder of a pack: trained runs of one or several tasks, for use and nothing else. `packing` fills it.

pack.json               the names of the runs
shared.safetensors      tensors that several runs have in common, once
words/                  vocabulary and concept candidates, where all runs have the same
describe/ fill/ …       a run each: settings.json, features.json, weights.safetensors, else words/ of its own

The package carries one, `default`.
"""

from __future__ import annotations

import json
from pathlib import Path

from ctsan.errors import RunError

DEFAULT = "default"
DEFAULT_FOLDER = Path(__file__).parents[1] / "default_model"
PACK_FILE = "pack.json"
FORMAT, VERSION = "ctsan-pack", 1


def runs_of_pack(folder: Path) -> list[Path]:
    """The run folders of the pack that a folder holds, or of the one that is named `default`; else none.

    Raises:
        RunError: the pack is damaged, or the package carries none.
    """
    if str(folder) == DEFAULT:
        folder = DEFAULT_FOLDER
        if not (folder / PACK_FILE).exists():
            raise RunError(
                "This ctsan carries no trained model. Train one, and name it: ctsan train describe --corpus "
                "CORPUS --out RUN, then --model RUN"
            )
    file = folder / PACK_FILE
    if not file.exists():
        return []
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        if (value["format"], value["version"]) != (FORMAT, VERSION):
            raise RunError(f"{file}: a pack of another kind or version. Use the ctsan that made it.")
        return [folder / str(name) for name in value["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file}: it is damaged ({error!r}). Make the pack again: ctsan pack") from None
