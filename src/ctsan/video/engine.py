"""The engines that run a backbone.

ONNX Runtime is the default, with CUDA where it is installed (the package onnxruntime-gpu) and finds a GPU.
PyTorch is the default if it has a GPU and ONNX Runtime has none. OpenVINO is optional.

`bench/engines.py` compares the engines; they agree to `TOLERANCE`.
"""

from __future__ import annotations

import atexit
import errno
import functools
import logging
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ctsan import __version__
from ctsan.errors import StorageError, UsageError
from ctsan.io.atomic import replacing, storage_errors, write_json
from ctsan.io.device import best_device, usable_cores
from ctsan.io.extras import extra
from ctsan.io.onnx_session import Session, has_cuda
from ctsan.io.paths import cache_folder
from ctsan.io.reading import DamagedFileError, check_regular, read_json_object
from ctsan.video.backbones import Backbone
from ctsan.video.backbones.onnx_model import model_up_to
from ctsan.video.backbones.preprocessing import to_input, to_maps
from ctsan.video.backbones.weights import files_digest

logger = logging.getLogger(__name__)

EngineName = Literal["onnxruntime", "openvino", "torch"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)

BATCH = 4  # frames: on a CPU, more are no faster and cost memory
GPU_BATCH = 32
TOLERANCE = 0.01  # the largest difference between the maps of two engines, whose values exceed 6

# Errors of a cache folder that cannot be there, may not be written to, or is on a full disk.
_NO_CACHE = (
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ELOOP),
    *(errno.ENOSPC, errno.EDQUOT),
)

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
    """ONNX Runtime, unless only PyTorch has a GPU; always ONNX Runtime for an ONNX file."""
    if backbone.spec.graph is not None or has_cuda() or best_device() == "cpu":
        return "onnxruntime"
    return "torch"


def _in_batches(run: Callable[[Pixels], Maps], batch: int) -> Engine:
    return lambda frames: np.concatenate(
        [run(frames[start : start + batch]) for start in range(0, len(frames), batch)]
    )


Graph = Callable[[NDArray[Any]], NDArray[Any]]  # an ONNX network with one input and one output
LoadGraph = Callable[[str | bytes, int], Graph]  # a path or the content of a file, and the number of threads


def _graph_engine(backbone: Backbone, load: LoadGraph, threads: int) -> Engine:
    if backbone.spec.graph is None:
        return _in_batches(load(str(onnx_file(backbone)), threads), GPU_BATCH if has_cuda() else BATCH)
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
    session = Session(network, threads=threads, on_gpu=True)
    [name], output = session.inputs, session.outputs[0]
    return lambda frames: session({name: frames}, [output])[output]


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
    with extra("train", "--engine torch"):
        import torch

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
    """The backbone as an ONNX file, exported once into the cache folder, and again if it is damaged.

    Where the cache cannot be written to, as in a read-only home or on a full disk, it is exported for this
    process alone, into the folder for temporary files.

    Raises:
        StorageError: that folder cannot be written to either.
    """
    cache = cache_folder()
    try:
        return _exported(backbone, cache / "onnx")
    except (StorageError, OSError) as error:
        reason = error.__cause__ if isinstance(error, StorageError) else error
        if not isinstance(reason, OSError) or reason.errno not in _NO_CACHE:
            raise
        logger.warning(
            "%s: %s. The network is prepared again for each command. To keep it, free some space "
            "there, or set CTSAN_CACHE to a folder that can be written to.",
            cache,
            reason.strerror,
        )
        return _exported(backbone, _temporary_folder())


@functools.cache
def _temporary_folder() -> Path:
    """A folder that is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="ctsan-onnx-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _exported(backbone: Backbone, folder: Path) -> Path:
    path = folder / f"{backbone.key}-{__version__}.onnx"
    if not _is_whole(path):
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(path.with_suffix(".lock")):  # another process may be exporting it
                if not _is_whole(path):
                    if backbone.spec.build_graph is None:
                        logger.info("Preparing %s for ONNX Runtime: once, about ten seconds.", backbone.name)
                    with replacing(path) as temporary:
                        export_onnx(backbone, temporary)
                    write_json(_checksum_file(path), _checksum(path))
    return path


def _is_whole(path: Path) -> bool:
    """Whether a cached file is as it was written. An engine would crash on some damaged ones."""
    try:
        stored = read_json_object(_checksum_file(path))
        if "sha256" in stored:  # by earlier versions
            return stored == {"sha256": files_digest([path])}
        return stored == _checksum(path)
    except (DamagedFileError, UsageError, OSError):
        return False


def _checksum(path: Path) -> dict[str, object]:
    """The CRC-32 of a file: that damage is found is enough, and a sha256 takes eight times as long."""
    check_regular(path)
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            checksum = zlib.crc32(chunk, checksum)
    return {"crc32": checksum}


def _checksum_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def export_onnx(backbone: Backbone, path: Path) -> None:
    """Write the backbone with its preprocessing and pooling as one ONNX file with a dynamic batch size.

    Raises:
        UsageError: the backbone is exported by PyTorch, which is not installed.
    """
    if backbone.spec.build_graph is not None:
        graph = backbone.spec.build_graph(backbone.weights, backbone.spec)
        path.write_bytes(graph.serialize(with_weights=True))
        return
    with extra("train", f"To prepare {backbone.name} for ONNX Runtime"):
        import onnxscript  # noqa: F401  # which the exporter of PyTorch needs
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


def describe_engine(backbone: Backbone) -> str:
    """The engine that runs a backbone by default, and where: for `--timing`."""
    engine = fastest_engine(backbone)
    if engine == "onnxruntime":
        return "ONNX Runtime, CUDA" if has_cuda() else "ONNX Runtime, CPU"
    return f"PyTorch, {best_device()}"


def check_engine(name: str) -> EngineName:
    """The name as an `EngineName`.

    Raises:
        UsageError: there is no such engine.
    """
    for engine in ENGINES:
        if name == engine:
            return engine
    raise UsageError(f"Unknown engine '{name}'. There are: {', '.join(ENGINES)}.")
