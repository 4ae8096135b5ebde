"""How PyTorch is installed: with a stub of pip in Python's path, and stubs of uv on the path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "tools/install_torch.py"

# Logs its arguments, prints the report of a dry run, and puts an executable into `--target` if there is one.
STUB_OF_PIP = """
import json, os, pathlib, shutil, sys
log = pathlib.Path(os.environ["STUB_LOG"])
with log.open("a") as file:
    file.write(json.dumps(["pip", *sys.argv[1:]]) + "\\n")
arguments = sys.argv[1:]
assert sys.stdin.read() == ""  # nobody is asked
if "--dry-run" in arguments:
    if "STUB_REPORT" not in os.environ:
        sys.exit("no matching distribution")
    print(os.environ["STUB_REPORT"])
elif "--target" in arguments:
    if "STUB_UV" not in os.environ:
        sys.exit("no matching distribution")
    folder = pathlib.Path(arguments[arguments.index("--target") + 1]) / "bin"
    folder.mkdir(parents=True)
    shutil.copy(os.environ["STUB_UV"], folder / "uv")
"""

Run = Callable[..., tuple[list[list[str]], str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the script without site-packages, so that PyTorch is not found; return the calls and its output."""
    log, packages = tmp_path / "log", tmp_path / "packages"
    (packages / "pip").mkdir(parents=True)
    (packages / "pip/__main__.py").write_text(STUB_OF_PIP, encoding="utf-8")
    (packages / "pip/__init__.py").touch()

    def run(*, path: Path | None = None, **environment: str) -> tuple[list[list[str]], str]:
        log.write_text("", encoding="utf-8")
        search = os.pathsep.join(map(str, filter(None, [path, "/usr/bin", "/bin"])))
        result = subprocess.run(
            [sys.executable, "-S", str(SCRIPT)],
            env={"PYTHONPATH": str(packages), "PATH": search, "STUB_LOG": str(log), **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()], result.stdout

    return run


def stub_of_uv(folder: Path, exit_code: int = 0) -> Path:
    folder.mkdir()
    uv = folder / "uv"
    uv.write_text(
        "#!/bin/sh\n"
        'printf \'["uv"\' >> "$STUB_LOG"; for each; do printf \', "%s"\' "$each" >> "$STUB_LOG"; done\n'
        f'echo "]" >> "$STUB_LOG"; exit {exit_code}\n',
        encoding="utf-8",
    )
    uv.chmod(0o755)
    return uv


def report(*names: str, **urls: Path) -> str:
    packages: list[dict[str, Any]] = [{"metadata": {"name": name}} for name in names]
    for name, file in urls.items():
        packages.append({"metadata": {"name": name}, "download_info": {"url": file.as_uri()}})
    return json.dumps({"install": packages})


def installs(calls: list[list[str]]) -> list[list[str]]:
    return [call for call in calls if "--dry-run" not in call and "--target" not in call]


CUDA = report("torch", "nvidia-cublas-cu12", "triton")
BY_PIP = ["pip", "--disable-pip-version-check", "--no-input", "install", "--quiet", "torch==2.13.0"]


def test_a_cpu_build_that_pip_finds_is_taken(run: Run, tmp_path: Path) -> None:
    calls, said = run(path=stub_of_uv(tmp_path / "bin").parent, STUB_REPORT=report("torch", "sympy"))
    assert installs(calls) == [BY_PIP]
    assert said == ""


def test_where_pip_would_bring_cuda_uv_chooses(run: Run, tmp_path: Path) -> None:
    calls, said = run(path=stub_of_uv(tmp_path / "bin").parent, STUB_REPORT=CUDA)
    [call] = installs(calls)
    assert call[:3] == ["uv", "pip", "install"]
    assert call[-2:] == ["--torch-backend=auto", "torch==2.13.0"]
    assert call[call.index("--python") + 1] == sys.executable
    assert said == ""


def test_uv_is_taken_from_pypi_where_there_is_none(run: Run, tmp_path: Path) -> None:
    uv = stub_of_uv(tmp_path / "elsewhere")
    calls, _ = run(STUB_REPORT=CUDA, STUB_UV=str(uv))
    assert [call[0] for call in installs(calls)] == ["uv"]
    assert [call[-1] for call in calls if "--target" in call] == ["uv"]


@pytest.mark.parametrize("has_uv", [True, False])
def test_without_uv_pip_says_how_large_it_is(run: Run, tmp_path: Path, has_uv: bool) -> None:
    wheel = tmp_path / "wheel"
    with wheel.open("wb") as file:
        file.truncate(1_250_000_000)  # takes no room on the disk
    path = stub_of_uv(tmp_path / "bin", exit_code=2).parent if has_uv else None
    calls, said = run(path=path, STUB_REPORT=report(torch=wheel, triton=wheel))
    assert [call[0] for call in installs(calls)] == (["uv", "pip"] if has_uv else ["pip"])
    assert installs(calls)[-1] == BY_PIP
    assert "Installing PyTorch with CUDA, which ctsan does not need: 2.5 GB." in said


def test_a_size_that_no_server_tells_is_said_so(run: Run) -> None:
    _, said = run(STUB_REPORT=CUDA)
    assert "several GB" in said


def test_without_a_report_uv_is_tried_and_then_pip(run: Run, tmp_path: Path) -> None:
    calls, _ = run(path=stub_of_uv(tmp_path / "bin", exit_code=1).parent)
    assert [call[0] for call in installs(calls)] == ["uv", "pip"]


def test_an_index_and_cuda_can_be_asked_for(run: Run, tmp_path: Path) -> None:
    path = stub_of_uv(tmp_path / "bin").parent
    assert run(path=path, STUB_REPORT=CUDA, CUDA="1")[0] == [BY_PIP]
    address = "https://example.org/cpu"
    assert run(path=path, STUB_REPORT=CUDA, TORCH_INDEX=address)[0] == [[*BY_PIP, "--index-url", address]]


def test_what_is_installed_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "packages" / "torch").mkdir()
    (tmp_path / "packages" / "torch" / "__init__.py").touch()
    assert run(STUB_REPORT=CUDA)[0] == []
