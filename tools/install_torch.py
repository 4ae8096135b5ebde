"""Install PyTorch into this environment, without gigabytes of CUDA that nobody asked for.

Asks pip what it would install. If that brings CUDA packages, stops and says what to do instead; TORCH_INDEX
names an index with CPU builds, CUDA=1 accepts the large one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys

REQUIREMENT = (
    "torch==2.13.0"  # within the range of pyproject.toml; exact, so that pip picks a CPU build of it
)
CUDA_PACKAGE = re.compile(r"nvidia-|cuda-|triton", re.IGNORECASE)

ADVICE = """
The PyTorch that pip finds for this machine brings {number} CUDA packages, several gigabytes.
ctsan does not need them. Either
  make TORCH_INDEX=ADDRESS …   with the index of CPU builds: pytorch.org/get-started shows it
                               under 'Compute Platform: CPU'; or
  make CUDA=1 …                to take them, for a machine with an NVIDIA GPU.
"""


def main() -> None:
    if importlib.util.find_spec("torch") is not None:
        return
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wanted = [REQUIREMENT]
    if index := os.environ.get("TORCH_INDEX"):
        wanted += ["--index-url", index]
    if os.environ.get("CUDA") != "1" and (found := _cuda_packages(pip, wanted)):
        sys.exit(ADVICE.format(number=len(found)))
    subprocess.run([*pip, "install", "--quiet", *wanted], check=True)


def _cuda_packages(pip: list[str], wanted: list[str]) -> list[str]:
    """The CUDA packages that pip would install, without installing anything."""
    command = [*pip, "install", "--dry-run", "--quiet", "--report", "-", *wanted]
    report = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    names = [item["metadata"]["name"] for item in json.loads(report)["install"]]
    return [name for name in names if CUDA_PACKAGE.match(name)]


if __name__ == "__main__":
    main()
