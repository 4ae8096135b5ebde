"""`make` on a fresh machine, with a stub of Python that makes an environment of stubs and writes a log.

`bench/install.py` runs `make demo` from a bare clone for real.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

STUB = """#!/bin/sh
log={log}
name=$(basename "$0")
if [ "$1" = -c ]; then exit 0; fi
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin"
    for each in python ctsan ruff mypy mkdocs; do cp "$0" "$3/bin/$each"; done
fi
if read -r line; then echo "$name was given input" >> "$log"; fi
echo "$name $*" >> "$log"
"""

Make = Callable[..., list[str]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Run `make` in a copy with nothing in the environment but a new home; return the commands it ran."""
    clone, log = tmp_path / "clone", tmp_path / "log"
    (clone / "tools").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "tools/install_torch.py"):
        shutil.copy(REPOSITORY / name, clone / name)
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(STUB.format(log=log), encoding="utf-8")
    python.chmod(0o755)
    (tmp_path / "home").mkdir()

    def run(*targets: str) -> list[str]:
        log.write_text("", encoding="utf-8")
        subprocess.run(
            ["make", "--no-print-directory", *targets],
            cwd=clone,
            env={"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(tmp_path / "home")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        return log.read_text(encoding="utf-8").splitlines()

    return run


def installed(commands: list[str]) -> list[str]:
    return [line.rpartition(" ")[2] for line in commands if " install --quiet" in line]


def test_the_demo_sets_up_use_only_and_once(make: Make) -> None:
    commands = make("demo")
    assert commands[:2] == [
        "python3 -m venv .venv",
        "python -m pip --disable-pip-version-check --no-input install --quiet --editable .",
    ]
    verbs = [line.split()[1] for line in commands[2:]]
    assert verbs == ["describe", "fill", "choose", "rank", "trace", "index", "search"]
    assert make("demo") == commands[2:]


def test_the_tests_set_up_all_on_top_of_it(make: Make) -> None:
    make("demo")
    commands = make("test")
    assert commands[:2] == [
        "python tools/install_torch.py",
        "python -m pip --disable-pip-version-check --no-input install --quiet --no-compile --editable .[dev]",
    ]
    assert any("-m pytest" in line for line in commands)
    assert installed(make("quick")) == []


def test_the_tests_set_up_a_fresh_machine(make: Make) -> None:
    assert installed(make("test")) == [".", ".[dev]"]


def test_an_old_python_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / "tools").mkdir()
    shutil.copy(REPOSITORY / "tools/install_torch.py", tmp_path / "tools")
    result = subprocess.run(
        ["make", f"PYTHON={old}", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert not (tmp_path / ".venv").exists()
