"""Install PyTorch into this environment, without CUDA where there is no GPU. Never asks.

1. pip, if what it finds brings no CUDA packages, as where its index or `--find-links` has a CPU build.
2. Else uv, which knows PyTorch's own indexes and takes CUDA only where there is a GPU: the one on the path,
   or one from PyPI in a temporary folder.
3. Else pip all the same, with a line that says how large that is.

TORCH_INDEX names another index for pip; CUDA=1 takes what pip finds.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

REQUIREMENT = (
    "torch==2.13.0"  # within the range of pyproject.toml; exact, so that pip picks a CPU build of it
)
CUDA_PACKAGE = re.compile(r"nvidia-|cuda-|triton", re.IGNORECASE)
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def main() -> None:
    if importlib.util.find_spec("torch") is not None:
        return
    index = os.environ.get("TORCH_INDEX")
    if index or os.environ.get("CUDA") == "1":
        install_by_pip("--index-url", index) if index else install_by_pip()
        return
    found = what_pip_finds()
    if found is not None and not any(CUDA_PACKAGE.match(item["metadata"]["name"]) for item in found):
        install_by_pip()
    elif not install_by_uv():
        print(
            f"Installing PyTorch with CUDA, which ctsan does not need: {size_of(found or [])}. The build for "
            "the CPU is smaller: make TORCH_INDEX=ADDRESS, with what pytorch.org/get-started shows for it.",
            flush=True,
        )
        install_by_pip()


def install_by_pip(*options: str) -> None:
    subprocess.run([*PIP, "install", "--quiet", REQUIREMENT, *options], check=True, stdin=subprocess.DEVNULL)


def what_pip_finds() -> list[dict[str, Any]] | None:
    """pip's report of each package that it would install; None if it finds none."""
    command = [*PIP, "install", "--dry-run", "--quiet", "--report", "-", REQUIREMENT]
    result = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        return None
    packages: list[dict[str, Any]] = json.loads(result.stdout)["install"]
    return packages


def install_by_uv() -> bool:
    """Whether uv could be had and installed PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        uv = shutil.which("uv") or uv_from_pypi(Path(folder))
        if uv is None:
            return False
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--torch-backend=auto"]
        return subprocess.run([*command, REQUIREMENT], check=False, stdin=subprocess.DEVNULL).returncode == 0


def uv_from_pypi(folder: Path) -> str | None:
    command = [*PIP, "install", "--quiet", "--target", str(folder), "uv"]
    installed = subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    return shutil.which("uv", path=str(folder / "bin")) if installed.returncode == 0 else None


def size_of(packages: list[dict[str, Any]]) -> str:
    """How much pip will download, as the servers say; 'several GB' if one does not."""
    total = 0
    for package in packages:
        try:
            request = urllib.request.Request(package["download_info"]["url"], method="HEAD")
            with urllib.request.urlopen(request, timeout=10) as answer:
                total += int(answer.headers["Content-Length"])
        except (OSError, KeyError, TypeError, ValueError):
            return "several GB"
    return f"{total / 1e9:.1f} GB" if total else "several GB"


if __name__ == "__main__":
    main()
