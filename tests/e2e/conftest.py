from __future__ import annotations

from pathlib import Path

import pytest

from commands import ctsan


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small corpus and its features: ten clips to learn from, two for validation."""
    folder = tmp_path_factory.mktemp("shapes")
    ctsan("corpus", "make", folder / "corpus", "--clips", 14, "--seed", 1)
    ctsan("features", folder / "corpus", "--out", folder / "features")
    return folder
