from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
from httpx import Client

from clip_making import counting, encode
from commands import ctsan, ctsan_here
from ctsan.inference.predictor import Predictor
from ctsan.web.app import create_app
from ctsan.web.limits import Limits
from e2e.small_run import SMALL
from web.serving import load_predictor, running, served

Serve = Callable[..., AbstractContextManager[Client]]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "corpus"
    ctsan("corpus", "make", folder, "--clips", 14, "--seed", 1)
    return folder


@pytest.fixture(scope="session")
def models(corpus: Path) -> list[Path]:
    """Small runs: they describe, fill and choose, and one embeds for the library."""
    features = corpus.parent / "features"
    ctsan_here("features", corpus, "--out", features)
    folders = []
    for task in ("describe", "fill", "choose", "embed"):
        folders.append(corpus.parent / task)
        options = ("--corpus", corpus, "--features", features, *SMALL, "--set=training.epochs=1")
        ctsan_here("train", task, *options, "--out", folders[-1])
    return folders


@pytest.fixture(scope="session")
def clip(corpus: Path) -> Path:
    return min((corpus / "clips").glob("*.mp4"))


@pytest.fixture(scope="session")
def long_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty seconds at five pictures a second: stripes that change every ten seconds."""
    frames = [picture for number in (1, 85, 255, 51) for picture in [list(counting(number + 1))[-1]] * 50]
    return encode(tmp_path_factory.mktemp("long") / "long.mp4", frames, rate=5)


@pytest.fixture(scope="session")
def library(corpus: Path, models: list[Path], long_clip: Path) -> Path:
    """The corpus' clips, and a long one, as a library of the name `shapes`."""
    store = corpus.parent / "store"
    named = [option for folder in models for option in ("--model", folder)]
    ctsan_here("index", corpus / "clips", long_clip.parent, "--library", "shapes", "--store", store, *named)
    return store / "shapes"


@pytest.fixture(scope="session")
def big_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five seconds of noise, in some megabytes."""
    random = np.random.default_rng(0)
    noise = (random.integers(0, 256, (240, 320, 3), dtype=np.uint8) for _ in range(60))
    clip = encode(tmp_path_factory.mktemp("big") / "noise.mp4", noise, rate=12, options={"crf": "18"})
    assert clip.stat().st_size > 3 * 2**20
    return clip


@pytest.fixture
def own_library(library: Path, tmp_path: Path) -> Path:
    """A copy of the library, to be changed."""
    return shutil.copytree(library, tmp_path / "own")


@pytest.fixture(scope="session")
def asked(models: list[Path]) -> Predictor:
    """The same models, to be asked about files."""
    return Predictor.load(*models[:3])


@pytest.fixture
def serve(models: list[Path]) -> Serve:
    """A server in this process, with limits of its own."""

    @contextmanager
    def start(token: str | None = None, library: Path | None = None, **limits: object) -> Iterator[Client]:
        predictor = load_predictor(models[:3])
        own = Limits(**{"workers": 1, **limits})  # type: ignore[arg-type]
        app = create_app(predictor, limits=own, library=library, token=token)
        with served(app, own) as client:
            yield client

    return start


@pytest.fixture(scope="module")
def client(models: list[Path], library: Path) -> Iterator[Client]:
    """A server with a library, for tests that leave it as it was."""
    limits = Limits(workers=1)
    app = create_app(load_predictor(models[:3]), limits=limits, library=library)
    with served(app, limits) as client:
        yield client


@pytest.fixture(scope="session")
def server(models: list[Path], library: Path) -> Iterator[str]:
    """The address of the real command, in a process of its own."""
    with running(models[:3], "--library", library.name, "--store", library.parent) as (address, _):
        yield address


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where uploads go."""
    folder = tmp_path / "spool"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder
