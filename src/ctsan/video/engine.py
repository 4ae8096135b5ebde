"""The engines that run a backbone.

ONNX Runtime is the default on a CPU, PyTorch on a GPU or if ONNX Runtime is not installed. OpenVINO is
optional. A backbone that is an ONNX file always runs on the CPU.

`bench/engines.py` compares the engines; they agree to `TOLERANCE`.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ctsan import __version__
from ctsan.errors import UsageError
from ctsan.io.atomic import replacing
from ctsan.io.device import usable_cores
from ctsan.io.paths import cache_folder
from ctsan.video.backbones import Backbone
from ctsan.video.backbones.onnx_model import model_up_to
from ctsan.video.backbones.preprocessing import to_input, to_maps

logger = logging.getLogger(__name__)

EngineName = Literal["onnxruntime", "openvino", "torch"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)

BATCH = 4  # frames: on a CPU, more are no faster and cost memory
GPU_BATCH = 32
TOLERANCE = 0.01  # the largest difference between the maps of two engines, whose values exceed 6

Pixels = NDArray[np.uint8]
Maps = NDArray[np.float16]
Engine = Callable[[Pixels], Maps]  # (N, size, size, 3) -> (N, h, w, C); thread-safe


def load_engine(backbone: Backbone, *, engine: EngineName | None = None, threads: int = 1) -> Engine:
    """A function from frames to feature maps.

    Args:
        engine: by default `fastest_engine`.
        threads: per call.

    Raises:
        UsageError: the engine is not installed, or cannot run the backbone.
    """
    match engine or fastest_engine(backbone):
        case "torch":
            return _torch(backbone, threads)
        case "onnxruntime":
            return _graph_engine(backbone, _onnxruntime, threads)
        case "openvino":
            return _graph_engine(backbone, _openvino, threads)


def fastest_engine(backbone: Backbone) -> EngineName:
    """PyTorch with a GPU, else ONNX Runtime if it is installed; always ONNX Runtime for an ONNX file."""
    from ctsan.io.device import best_device

    has_onnx = all(importlib.util.find_spec(package) for package in ("onnx", "onnxscript", "onnxruntime"))
    if backbone.spec.graph is not None:
        return "onnxruntime"
    return "onnxruntime" if best_device() == "cpu" and has_onnx else "torch"


def _in_batches(run: Callable[[Pixels], Maps], batch: int) -> Engine:
    return lambda frames: np.concatenate(
        [run(frames[start : start + batch]) for start in range(0, len(frames), batch)]
    )


Graph = Callable[[NDArray[Any]], NDArray[Any]]  # an ONNX network with one input and one output
LoadGraph = Callable[[str | bytes, int], Graph]  # a path or the content of a file, and the number of threads


def _graph_engine(backbone: Backbone, load: LoadGraph, threads: int) -> Engine:
    if backbone.spec.graph is None:
        return _in_batches(load(str(onnx_file(backbone)), threads), BATCH)
    compute_maps = run_network(backbone, load=load, threads=threads)

    def run(frames: Pixels) -> Maps:
        with np.errstate(over="ignore"):
            maps = compute_maps(frames).astype(np.float16)
        if not np.isfinite(maps).all():
            raise UsageError(
                f"{backbone.weights}: it outputs NaN, or numbers beyond half precision (65,504). Check its "
                "normalisation with 'ctsan backbone check', or name another \"output\"."
            )
        return maps

    return _in_batches(run, backbone.spec.graph.batch or BATCH)


def run_network(
    backbone: Backbone, *, load: LoadGraph | None = None, threads: int = 1
) -> Callable[[Pixels], NDArray[np.float32]]:
    """An ONNX network with its preprocessing and pooling; the maps are float32."""
    spec = backbone.spec
    assert spec.graph is not None
    batch_size = spec.graph.batch
    network = (load or _onnxruntime)(model_up_to(backbone.weights, spec.graph.output), threads)

    def run(frames: Pixels) -> NDArray[np.float32]:
        batch = to_input(frames, spec)
        if batch_size:  # a fixed batch size: pad
            batch = np.concatenate(
                [batch, np.zeros((batch_size - len(batch), *batch.shape[1:]), batch.dtype)]
            )
        return to_maps(network(batch)[: len(frames)], spec)

    return run


def _onnxruntime(network: str | bytes, threads: int) -> Graph:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import: nothing is sent anywhere
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Idle threads must not spin, because the other cores are decoding.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(frames: NDArray[Any]) -> NDArray[Any]:
        output: NDArray[Any] = session.run(None, {name: frames})[0]
        return output

    return run


def _openvino(network: str | bytes, threads: int) -> Graph:
    try:
        import openvino
    except ImportError:
        raise UsageError(
            "--engine openvino needs a package that is not installed. Install it: pip install "
            "'ctsan[openvino]'"
        ) from None
    cores = usable_cores()
    options = {
        "INFERENCE_NUM_THREADS": cores,
        "NUM_STREAMS": max(1, cores // threads),  # parallel calls
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = openvino.Core()
    model = core.compile_model(core.read_model(network), "CPU", options)

    def run(frames: NDArray[Any]) -> NDArray[Any]:
        output: NDArray[Any] = model.create_infer_request().infer([frames])[0]
        return output

    return run


def _torch(backbone: Backbone, threads: int) -> Engine:
    if backbone.spec.graph is not None:
        raise UsageError(
            f"{backbone.name} is an ONNX file, which PyTorch does not run. Use --engine onnxruntime or "
            "openvino."
        )
    import torch

    from ctsan.io.device import best_device
    from ctsan.video.backbones.feature_maps import FeatureMaps

    device = torch.device(best_device())
    if device.type == "cpu":
        torch.set_num_threads(threads)
    module = FeatureMaps(backbone).to(device)

    @torch.inference_mode()
    def run(frames: Pixels) -> Maps:
        maps: Maps = module(torch.from_numpy(frames).to(device)).cpu().numpy()
        return maps

    return _in_batches(run, BATCH if device.type == "cpu" else GPU_BATCH)


def onnx_file(backbone: Backbone) -> Path:
    """The backbone as an ONNX file, exported once into the cache folder."""
    path = cache_folder() / "onnx" / f"{backbone.key}-{__version__}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):  # another process may be exporting it
            if not path.exists():
                logger.info("Preparing %s for ONNX Runtime: once, about ten seconds.", backbone.name)
                with replacing(path) as temporary:
                    export_onnx(backbone, temporary)
    return path


def export_onnx(backbone: Backbone, path: Path) -> None:
    """Write the backbone with its preprocessing and pooling as one ONNX file with a dynamic batch size."""
    import torch

    from ctsan.video.backbones.feature_maps import FeatureMaps

    example = torch.zeros((2, backbone.image_size, backbone.image_size, 3), dtype=torch.uint8)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter warns of its own deprecated code
        torch.onnx.export(
            FeatureMaps(backbone),
            (example,),
            path,
            dynamo=True,
            external_data=False,
            input_names=["frames"],
            output_names=["maps"],
            dynamic_shapes={"frames": {0: torch.export.Dim("N")}},
            verbose=False,
        )


def check_engine(name: str) -> EngineName:
    """The name as an `EngineName`.

    Raises:
        UsageError: there is no such engine.
    """
    for engine in ENGINES:
        if name == engine:
            return engine
    raise UsageError(f"Unknown engine '{name}'. There are: {', '.join(ENGINES)}.")
