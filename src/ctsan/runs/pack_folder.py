"""The folder of a pack: trained runs of one or more tasks, for inference only. `packing` writes it.

pack.json               the names of the runs
shared.safetensors      tensors that several runs share
words/                  vocabulary and concept candidates of all runs without their own
describe/ fill/ …       one run each: settings.json, features.json, weights.safetensors; words/ if they differ

The package ships with one, named `default`.
"""

from __future__ import annotations

import re
from pathlib import Path

from ctsan.errors import RunError
from ctsan.io.fields import OtherFormatError, check_format, typed_field
from ctsan.io.reading import DamagedFileError, read_json_object

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
        value = read_json_object(file)
        check_format(value, FORMAT, VERSION)
        names = typed_field(value, "runs", list)
        if not names or not all(map(_is_plain_name, names)) or len(set(names)) < len(names):
            raise DamagedFileError("its 'runs' are not the names of folders in the pack")
        return [folder / name for name in names]
    except OtherFormatError as error:
        raise RunError(f"{file}: {error}. Use the ctsan that made it, or make the pack again.") from None
    except DamagedFileError as error:
        raise RunError(f"{file}: it is damaged ({error}). Make the pack again: ctsan pack") from None


def _is_plain_name(name: object) -> bool:
    """Whether a name can be that of a run in a pack: no path to elsewhere."""
    return isinstance(name, str) and bool(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name))
