"""Run ONNX networks with ONNX Runtime: with CUDA where it is installed and finds a GPU, else on the CPU."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ctsan.io.device import has_gpu_files
from ctsan.io.onnx_graph import Array, Graph

logger = logging.getLogger(__name__)

CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"

_without_cuda: list[bool] = []  # filled once CUDA was found to be unusable


class Session:
    """A network, as a function from named arrays to named arrays. Thread-safe.

    Args:
        network: a graph, or the path or content of an ONNX file.
        threads: per call.
        on_gpu: run on the GPU, if there is one. Networks of many small steps are faster on the CPU.
    """

    def __init__(self, network: Graph | str | bytes, *, threads: int = 1, on_gpu: bool = False) -> None:
        runtime = _runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only: those that matter are raised
        # Idle threads must not spin, because the other cores are decoding.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if isinstance(network, Graph):
            self._weights = [  # in use as long as the session
                runtime.OrtValue.ortvalue_from_numpy(array) for array in network.weights.values()
            ]
            options.add_external_initializers(list(network.weights), self._weights)
            network = network.serialize()
        providers = [CUDA_PROVIDER, CPU_PROVIDER] if on_gpu and has_cuda() else [CPU_PROVIDER]
        self._session = runtime.InferenceSession(network, options, providers=providers)
        self.inputs: list[str] = [each.name for each in self._session.get_inputs()]
        self.outputs: list[str] = [each.name for each in self._session.get_outputs()]
        if CUDA_PROVIDER in providers and CUDA_PROVIDER not in self._session.get_providers():
            _without_cuda.append(True)
            logger.warning("ONNX Runtime cannot use the GPU, and runs on the CPU. Check CUDA and cuDNN.")

    def __call__(self, feed: Mapping[str, Array], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Compute all outputs, or those named. Inputs that the network does not have are ignored."""
        names = self.outputs if outputs is None else list(outputs)
        given = {name: feed[name] for name in self.inputs}
        return dict(zip(names, self._session.run(names, given), strict=True))


def has_cuda() -> bool:
    """Whether ONNX Runtime is a build with CUDA, on a machine with a GPU, and has not failed to use it."""
    if _without_cuda or not has_gpu_files():
        return False
    return CUDA_PROVIDER in _runtime().get_available_providers()


def _runtime() -> Any:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import: nothing is sent anywhere
    import onnxruntime

    return onnxruntime
