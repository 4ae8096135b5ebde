"""The folder of a pack: trained runs of one or more tasks, for inference only. `packing` writes it.

pack.json               the names of the runs
shared.safetensors      tensors that several runs share
words/                  vocabulary and concept candidates of all runs without their own
describe/ fill/ …       one run each: settings.json, features.json, weights.safetensors; words/ if they differ

The package ships with one, named `default`.
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
    """List the run folders of a pack, or of the packaged one for `default`; empty if there is no pack.

    Raises:
        RunError: the pack is damaged, or `default` is named and this ctsan ships without a model.
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
