"""Messages when Ray or a node cannot be used; tests/e2e/test_index_on_ray.py runs a real cluster."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ctsan import __version__
from ctsan.cli import group
from ctsan.errors import UsageError
from ctsan.search.ray_backend import _unpack, ray_segmenter
from ctsan.search.segments import Segment


def test_without_ray_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(UsageError, match=r"not installed \(ray\). Get them with: pip install 'ctsan\[ray\]'"),
        ray_segmenter("local", [], None),
    ):
        pass


def test_an_unreachable_address_is_named() -> None:
    pytest.importorskip("ray")
    with (
        pytest.raises(UsageError, match="no Ray cluster at '127.0.0.1:1'"),
        ray_segmenter("127.0.0.1:1", [], None),
    ):
        pass


def test_a_node_without_the_clips_is_named(tmp_path: Path) -> None:
    """Otherwise its errors would be stored as if the clips were damaged."""
    clip = tmp_path / "clip.mp4"
    clip.touch()
    segment = pickle.dumps(Segment(clip, "there is no such file"))
    row = {"segment": segment, "clip_exists": False, "node": "far", "version": __version__}
    with pytest.raises(UsageError, match="clip.mp4: there is no such file on far. Put clips where all nodes"):
        _unpack(row)
    clip.unlink()  # also gone here: reported as in a local run
    assert _unpack(row).result == "there is no such file"


def test_a_node_with_another_version_is_named() -> None:
    row = {"segment": b"of no use here", "clip_exists": True, "node": "far", "version": "0.0.1"}
    with pytest.raises(UsageError, match=f"far: it has ctsan 0.0.1, and this machine has {__version__}"):
        _unpack(row)


def test_an_error_in_a_worker_is_raised_here() -> None:
    error = pickle.dumps(UsageError("Not the weights that the features were made with."))
    with pytest.raises(UsageError, match="Not the weights"):
        _unpack({"segment": error, "clip_exists": True, "node": "far", "version": __version__})


@pytest.mark.parametrize("arguments", [["--ray", "films/"], ["--ray", "films/", "more/"]])
def test_a_folder_is_not_taken_for_an_address(arguments: list[str]) -> None:
    result = CliRunner().invoke(group, ["index", *arguments])
    assert result.exit_code == 2
    assert "'films/' is no address" in result.output
    assert "Put folders before --ray" in result.output
