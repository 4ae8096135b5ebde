"""The ONNX files in the cache: checked before each use, and written again when they are damaged."""

from __future__ import annotations

import atexit
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ctsan.video.engine as engine
from ctsan.errors import StorageError
from ctsan.video.backbones import Backbone, find_backbone
from ctsan.video.engine import load_engine, onnx_file
from other_user import make_reachable, without_privileges

NETWORK = b"a network" * 1000


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty cache, and the names of the backbones that are exported into it, as `NETWORK`."""
    names: list[str] = []

    def export(backbone: Backbone, path: Path) -> None:
        names.append(backbone.name)
        path.write_bytes(NETWORK)

    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(engine, "export_onnx", export)
    return names


def test_a_network_is_exported_once(exported: list[str]) -> None:
    backbone = find_backbone("tiny-vit-5m")
    assert onnx_file(backbone) == onnx_file(backbone)
    assert onnx_file(backbone).read_bytes() == NETWORK
    assert len(exported) == 1


def test_a_file_with_the_sha256_of_an_earlier_version_is_kept_while_it_is_whole(exported: list[str]) -> None:
    backbone = find_backbone("tiny-vit-5m")
    path = onnx_file(backbone)
    checksum = path.with_name(f"{path.name}.json")
    checksum.write_text(json.dumps({"sha256": hashlib.sha256(NETWORK).hexdigest()}))
    onnx_file(backbone)
    assert len(exported) == 1
    path.write_bytes(b"A" + NETWORK[1:])
    assert onnx_file(backbone).read_bytes() == NETWORK
    assert len(exported) == 2
    assert list(json.loads(checksum.read_text())) == ["crc32"]


def _without_checksum(path: Path) -> None:
    path.with_name(f"{path.name}.json").unlink()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(b""), id="emptied"),
        pytest.param(lambda path: path.write_bytes(NETWORK[:-1]), id="truncated"),
        pytest.param(lambda path: path.write_bytes(b"A" + NETWORK[1:]), id="one byte"),
        pytest.param(Path.unlink, id="removed"),
        pytest.param(_without_checksum, id="without checksum"),
        pytest.param(lambda path: path.with_name(f"{path.name}.json").write_bytes(b""), id="empty checksum"),
        pytest.param(lambda path: path.with_name(f"{path.name}.json").write_text("[" * 9999), id="nested"),
        pytest.param(_pipe, id="pipe"),
    ],
)
def test_a_damaged_file_is_written_again(exported: list[str], damage: Callable[[Path], object]) -> None:
    backbone = find_backbone("tiny-vit-5m")
    damage(onnx_file(backbone))
    assert onnx_file(backbone).read_bytes() == NETWORK
    assert len(exported) == 2
    onnx_file(backbone)
    assert len(exported) == 2


def test_an_emptied_file_costs_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path))
    backbone = find_backbone("efficientnet-lite0")
    onnx_file(backbone).write_bytes(b"")
    frames = np.zeros((1, backbone.image_size, backbone.image_size, 3), np.uint8)
    assert load_engine(backbone, engine="onnxruntime")(frames).shape == (1, *backbone.grid, backbone.channels)


def test_no_space_anywhere_says_what_to_do(
    exported: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    backbone = find_backbone("tiny-vit-5m")
    monkeypatch.setattr(Path, "mkdir", full_disk)
    monkeypatch.setattr(engine, "_temporary_folder", lambda: tmp_path)
    with pytest.raises(StorageError, match=r"onnx: No space left on device. Free some space"):
        onnx_file(backbone)
    assert not exported


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_cache_costs_only_the_cache(
    exported: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
) -> None:
    export = engine.export_onnx

    def full_disk(backbone: Backbone, path: Path) -> None:
        if path.is_relative_to(tmp_path / "cache"):
            raise OSError(code, os.strerror(code))
        export(backbone, path)

    monkeypatch.setattr(engine, "export_onnx", full_disk)
    monkeypatch.setattr(engine, "_temporary_folder", lambda: tmp_path / "temporary")
    assert onnx_file(find_backbone("tiny-vit-5m")).read_bytes() == NETWORK
    assert f"{tmp_path / 'cache'}: {os.strerror(code)}. The network is prepared again" in caplog.text
    assert "To keep it, free some space there, or set CTSAN_CACHE" in caplog.text
    assert len(exported) == 1


def test_a_home_that_cannot_be_written_to_costs_only_the_cache(
    exported: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backbone = find_backbone("tiny-vit-5m")
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    make_reachable(home)
    with without_privileges():
        for cache in (home / "cache", Path("/dev/null/cache")):
            monkeypatch.setenv("CTSAN_CACHE", str(cache))
            file = onnx_file(backbone)
            assert file.read_bytes() == NETWORK
            assert "set CTSAN_CACHE to a folder that can be written to" in caplog.text
            caplog.clear()
            engine._temporary_folder.cache_clear()
            atexit.unregister(shutil.rmtree)
            shutil.rmtree(file.parent)
    assert len(exported) == 2
