"""The wheel is whole: it answers from another folder, in an environment without the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
MAX_BYTES = 60_000_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(REPOSITORY)], check=True, capture_output=True)
    [wheel] = folder.glob("ctsan-*.whl")
    return wheel


@pytest.fixture(scope="module")
def ctsan(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in a new environment, with the packages that this one has but not with this checkout."""
    folder = tmp_path_factory.mktemp("fresh") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(folder / "bin/python")]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    # Its .pth files are not read from there, so that the editable installation is not seen.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin" / "ctsan"


def run(command: Path, *arguments: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [str(command), *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_wheel_is_small(wheel: Path) -> None:
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.1f} MB")
    assert 1_000_000 < size < MAX_BYTES  # the weights are in it


def test_the_wheel_works_from_another_folder(ctsan: Path, tmp_path: Path) -> None:
    where = run(ctsan.with_name("python"), "-c", "import ctsan; print(ctsan.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(ctsan.parents[1])
    clips = REPOSITORY / "examples/clips"
    described = json.loads(run(ctsan, "describe", clips / "coffee.mp4", "--json", cwd=tmp_path))
    assert described["caption"]
    run(ctsan, "index", clips / "coffee.mp4", clips / "cat.mp4", "--store", "store", cwd=tmp_path)
    found = json.loads(run(ctsan, "search", "a cup of coffee", "--store", "store", "--json", cwd=tmp_path))
    assert found["hits"][0]["file"].endswith("coffee.mp4")


def test_the_page_is_in_the_wheel(ctsan: Path, tmp_path: Path) -> None:
    code = "import ctsan.web, os; print(*os.listdir(os.path.join(*ctsan.web.__path__, 'static')))"
    names = run(ctsan.with_name("python"), "-c", code, cwd=tmp_path).split()
    assert set(names) == {path.name for path in (REPOSITORY / "src/ctsan/web/static").iterdir()}
