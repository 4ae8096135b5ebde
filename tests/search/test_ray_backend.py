"""What is said where Ray or a node cannot be used; tests/e2e/test_index_on_ray.py uses a real one."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ctsan import __version__
from ctsan.cli import group
from ctsan.errors import UsageError
from ctsan.search.ray_backend import _received, looking_on_ray
from ctsan.search.segments import Part


def test_where_ray_is_missing_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(UsageError, match=r"not installed \(ray\). Get them with: pip install 'ctsan\[ray\]'"),
        looking_on_ray("local", [], None),
    ):
        pass


def test_an_address_where_nobody_is_is_named() -> None:
    pytest.importorskip("ray")
    with (
        pytest.raises(UsageError, match="no Ray cluster at '127.0.0.1:1'"),
        looking_on_ray("127.0.0.1:1", [], None),
    ):
        pass


def test_a_worker_that_has_no_clips_is_named(tmp_path: Path) -> None:
    """Else its errors would be stored, as if the clips were bad."""
    clip = tmp_path / "clip.mp4"
    clip.touch()
    part = pickle.dumps(Part(clip, "there is no such file"))
    row = {"part": part, "is_seen": False, "node": "far", "version": __version__}
    with pytest.raises(UsageError, match="clip.mp4: there is no such file on far. Put clips where all nodes"):
        _received(row)
    clip.unlink()  # gone here too: then it is as in a local run
    assert _received(row).found == "there is no such file"


def test_a_worker_with_another_ctsan_is_named() -> None:
    row = {"part": b"of no use here", "is_seen": True, "node": "far", "version": "0.0.1"}
    with pytest.raises(UsageError, match=f"far: it has ctsan 0.0.1, and here is {__version__}"):
        _received(row)


def test_a_worker_that_cannot_make_features_stops_all() -> None:
    error = pickle.dumps(UsageError("Not the weights that the features were made with."))
    with pytest.raises(UsageError, match="Not the weights"):
        _received({"part": error, "is_seen": True, "node": "far", "version": __version__})


@pytest.mark.parametrize("arguments", [["--ray", "films/"], ["--ray", "films/", "more/"]])
def test_a_folder_is_not_taken_for_an_address(arguments: list[str]) -> None:
    result = CliRunner().invoke(group, ["index", *arguments])
    assert result.exit_code == 2
    assert "'films/' is no address" in result.output
    assert "Put folders before --ray" in result.output
