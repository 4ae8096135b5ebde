"""Weights files and their configuration: what is damaged is named with a remedy."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import ctsan.video.backbones.finding as finding
from ctsan.errors import UsageError
from ctsan.video.backbones import find_backbone
from ctsan.video.backbones.hf_network import weights_files
from ctsan.video.backbones.onnx_network import _read_options
from ctsan.video.backbones.weights import files_digest, read_metadata, read_state

NESTED = pytest.param("[" * 100_000, id="nested")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_are_a_regular_file(tmp_path: Path, suffix: str) -> None:
    """Reading a pipe would wait for somebody to write."""
    pipe, folder = tmp_path / f"pipe{suffix}", tmp_path / f"folder{suffix}"
    os.mkfifo(pipe)
    folder.mkdir()
    for path, what in ((pipe, "it is not a regular file"), (folder, "it is a folder")):
        for read in (read_state, lambda path: files_digest([path])):
            with pytest.raises(UsageError, match=what):
                read(path)
        if suffix == ".safetensors":
            with pytest.raises(UsageError, match=what):
                read_metadata(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 7, b"\xff" * 100, struct.pack("<Q", 2) + b"{}x", struct.pack("<Q", 50) + b"[" * 50],
)
def test_damaged_safetensors_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    for read in (read_state, read_metadata):
        with pytest.raises(UsageError, match=r"w.safetensors: a damaged weights file .*Download it again"):
            read(path)


@pytest.mark.parametrize("mean", ["", "[1, 2]", '"red"', "[1, 2, NaN]", "[1, 2, null]", NESTED, "7"])
def test_a_damaged_normalisation_is_named(tmp_path: Path, mean: str) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(1)}, path, metadata={"mean": mean, "std": "[1, 1, 1]"})
    with pytest.raises(UsageError, match="the mean or std in its metadata is not a list of three numbers"):
        find_backbone("resnet50", path)
    save_file({"a": torch.zeros(1)}, path, metadata={"mean": "[1, 1, 1]"})
    with pytest.raises(UsageError, match="the mean or std in its metadata"):
        find_backbone("resnet50", path)


@pytest.mark.parametrize(
    "content", ["", "[" * 100_000, '{"a":' * 100_000, "[]", '{"size": ' + "1" * 5000 + "}"]
)
def test_damaged_options_of_an_onnx_file_are_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "net.onnx.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"net.onnx.json: not a JSON object .*Write one such as"):
        _read_options(path)


@pytest.mark.parametrize(
    "content", ["", "[" * 100_000, "[]", '{"weight_map": {"a": 3}}', '{"weight_map": []}']
)
def test_a_damaged_list_of_shards_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(UsageError, match="there is no model.safetensors. Save the model with save_pre"):
        weights_files(tmp_path)


@pytest.mark.parametrize("content", ["", NESTED, "[]", "{}", '{"path": 3}', '{"path": ["a"]}'])
def test_a_damaged_note_of_a_path_counts_as_none(cache: Path, content: str) -> None:
    digest = "0" * 64
    (cache / "backbones").mkdir(parents=True)
    (cache / "backbones" / f"{digest}.json").write_text(content)
    assert finding._saved_path(digest) is None


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EACCES, errno.EIO])
def test_a_cache_that_cannot_be_written_costs_only_the_note_of_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(1)}, path, metadata={"mean": "[1, 2, 3]", "std": "[4, 5, 6]"})

    def refused(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", refused)
    backbone = find_backbone("resnet50", path)
    assert (backbone.mean, backbone.std) == ((1, 2, 3), (4, 5, 6))
