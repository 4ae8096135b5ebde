"""Write constraints.txt: every package that ctsan needs, with its version and the digest of its file on PyPI.

    python tools/pin_dependencies.py

Asks pip what it would install with the extra `train` for this Python and platform. pip's own
configuration is left aside, so that no file of this machine or of another index is listed. Nothing is
installed. PyTorch and its CUDA packages are left out: there are several builds of it to choose from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from install_torch import CUDA_PACKAGE

ROOT = Path(__file__).parents[1]
FILE = ROOT / "constraints.txt"
EXTRAS = "train"
HEADER = """\
# The packages that pip chooses for ctsan, for {python} on {platform}, with the extra train.
# Written by tools/pin_dependencies.py. To install these files and no others, PyTorch first:
#   pip install --no-deps --require-hashes -r constraints.txt
#   pip install --no-deps .
# torch is not listed, because its digest differs between builds: CPU, CUDA, ROCm. Take {torch}.
"""
_PIP_SETTINGS = ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_CONSTRAINT")


def main() -> None:
    report = pip_report()
    FILE.write_text(as_constraints(report), encoding="utf-8")
    print(f"{FILE.name}: {len(pins(report))} packages")


def pip_report() -> dict[str, Any]:
    """What pip would install from PyPI into an empty environment."""
    environment = {name: value for name, value in os.environ.items() if name not in _PIP_SETTINGS}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(file)]
        command = [sys.executable, "-m", "pip", "install", *options, f"{ROOT}[{EXTRAS}]"]
        subprocess.run(command, check=True, env={**environment, "PIP_CONFIG_FILE": os.devnull})
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return report


def as_constraints(report: Mapping[str, Any]) -> str:
    """The text of the file."""
    environment = report["environment"]
    header = HEADER.format(
        python=f"{environment['platform_python_implementation']} {environment['python_version']}",
        platform=f"{environment['platform_system']} {environment['platform_machine']}",
        torch=next(_pinned(item) for item in report["install"] if _name(item) == "torch"),
    )
    return header + "".join(f"{pin} --hash=sha256:{digest}\n" for pin, digest in pins(report).items())


def pins(report: Mapping[str, Any]) -> dict[str, str]:
    """The digest of each package's file, by `name==version`, in the order of the names."""
    found = {
        _pinned(item): item["download_info"]["archive_info"]["hashes"]["sha256"]
        for item in report["install"]
        if _name(item) not in ("ctsan", "torch") and not CUDA_PACKAGE.match(_name(item))
    }
    return dict(sorted(found.items()))


def _name(item: Mapping[str, Any]) -> str:
    name: str = item["metadata"]["name"]
    return name.lower().replace("_", "-").replace(".", "-")


def _pinned(item: Mapping[str, Any]) -> str:
    return f"{_name(item)}=={item['metadata']['version']}"


if __name__ == "__main__":
    main()
