"""What runs a backbone: ONNX Runtime on processors, PyTorch on a GPU and wherever the former is missing.

`bench/engines.py` compares the engines; they agree to `TOLERANCE`.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ctsan import __version__
from ctsan.atomic import replacing
from ctsan.errors import UsageError
from ctsan.folders import cache_folder
from ctsan.video.backbone import Backbone, feature_maps

logger = logging.getLogger(__name__)

EngineName = Literal["onnxruntime", "torch"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)

BATCH = 4  # frames at a time: more do not make a processor faster, and cost memory
GPU_BATCH = 32
TOLERANCE = 0.01  # largest difference between the maps of two engines, whose values go to 6 and beyond

Pixels = NDArray[np.uint8]
Maps = NDArray[np.float16]
Engine = Callable[[Pixels], Maps]  # (N, size, size, 3) -> (N, h, w, C); may be called from several threads


def load_engine(backbone: Backbone, *, engine: EngineName | None = None, threads: int = 1) -> Engine:
    """A function from frames to feature maps; `engine` None picks the fastest one here."""
    match engine or fastest_engine():
        case "onnxruntime":
            return _onnxruntime(backbone, threads)
        case "torch":
            return _torch(backbone, threads)


def fastest_engine() -> EngineName:
    """PyTorch with a GPU, else ONNX Runtime where it is installed."""
    from ctsan.device import best_device

    has_onnx = all(importlib.util.find_spec(package) for package in ("onnx", "onnxscript", "onnxruntime"))
    return "onnxruntime" if best_device() == "cpu" and has_onnx else "torch"


def _in_batches(run: Callable[[Pixels], Maps], batch: int) -> Engine:
    return lambda frames: np.concatenate(
        [run(frames[start : start + batch]) for start in range(0, len(frames), batch)]
    )


def _onnxruntime(backbone: Backbone, threads: int) -> Engine:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import: nothing is sent anywhere
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Idle threads must not spin: the other cores are decoding.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(onnx_file(backbone), options, providers=["CPUExecutionProvider"])

    def run(frames: Pixels) -> Maps:
        maps: Maps = session.run(None, {"frames": frames})[0]
        return maps

    return _in_batches(run, BATCH)


def _torch(backbone: Backbone, threads: int) -> Engine:
    import torch

    from ctsan.device import best_device

    device = torch.device(best_device())
    if device.type == "cpu":
        torch.set_num_threads(threads)
    module = feature_maps(backbone).to(device)

    @torch.inference_mode()
    def run(frames: Pixels) -> Maps:
        maps: Maps = module(torch.from_numpy(frames).to(device)).cpu().numpy()
        return maps

    return _in_batches(run, BATCH if device.type == "cpu" else GPU_BATCH)


def onnx_file(backbone: Backbone) -> Path:
    """The backbone as ONNX, exported once and kept in the cache folder."""
    path = cache_folder() / "onnx" / f"{backbone.name}-{backbone.digest[:16]}-{__version__}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):  # another process may be at it
            if not path.exists():
                logger.info("Preparing %s for ONNX Runtime: once, some ten seconds.", backbone.name)
                with replacing(path) as temporary:
                    export_onnx(backbone, temporary)
    return path


def export_onnx(backbone: Backbone, path: Path) -> None:
    """Write the backbone with its preprocessing and pooling as one ONNX file, any number of frames."""
    import torch

    example = torch.zeros((2, backbone.image_size, backbone.image_size, 3), dtype=torch.uint8)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter warns of its own deprecated parts
        torch.onnx.export(
            feature_maps(backbone),
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
    """Raises: UsageError: no such engine."""
    for engine in ENGINES:
        if name == engine:
            return engine
    raise UsageError(f"Unknown engine '{name}'. There are: {', '.join(ENGINES)}.")
