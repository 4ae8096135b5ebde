"""Export a description run as ONNX: three networks and a JSON file, usable without this package.

backbone.onnx   frames (N, size, size, 3), uint8 -> feature maps (N, h, w, C)
detector.onnx   feature maps of one frame, recurrent state -> next state, concept words so far
step.onnx       last words, concept words, decoder state -> log-probabilities of the next words, next state
model.json      vocabulary, frame sampling and decoding settings

`examples/onnx_captions.py` captions a clip with them.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ctsan.errors import CtsanError, UsageError
from ctsan.export.plain import FrameStep, WordStep
from ctsan.io.atomic import replacing, replacing_folder, write_json
from ctsan.model.caption_decoder import CaptionDecoder
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_detector import ConceptDetector
from ctsan.model.description_model import DescriptionModel
from ctsan.model.video_encoder import VideoEncoder
from ctsan.runs.trained_run import TrainedRun
from ctsan.text.vocabulary import BOS, EOS, NEVER_SAID
from ctsan.video.backbones import Backbone, backbone_of
from ctsan.video.backbones.composing import write_composed
from ctsan.video.backbones.feature_maps import FeatureMaps
from ctsan.video.engine import run_network
from ctsan.video.frames import MAX_FRAMES, SPACING

MODEL_FILE = "model.json"
TOLERANCE = 1e-3  # between ONNX Runtime and PyTorch: max |a - b| / max(1, |b|), the precision of float16

_NUM_SENTENCES = 3  # batch size of the example for step.onnx


@dataclass(frozen=True, slots=True, eq=False)
class _NetworkExport:
    """A network to export, with example inputs and the outputs that PyTorch computes for them.

    Args:
        network: a module, or a function that writes the ONNX file.
        inputs: by input name.
        expected: after the last call, by output name; None is not compared.
        dynamic_axes: the axis of variable length of an input; all have the same length.
        next_inputs: inputs of further calls. Each output `next_X` becomes the input `X` of the next call.
    """

    file: str
    network: nn.Module | Callable[[Path], None]
    inputs: Mapping[str, Tensor]
    expected: Mapping[str, Tensor | None]
    dynamic_axes: Mapping[str, int]
    next_inputs: Sequence[Mapping[str, Tensor]] = ()


def export_onnx(run: TrainedRun, out: Path, *, weights: Path | None = None) -> dict[str, float]:
    """Write a description run into a folder, and compare every network with PyTorch.

    If a network differs by more than `TOLERANCE`, nothing is written.

    Args:
        weights: the backbone's weights, if they are not installed with ctsan.

    Returns:
        The largest difference of each file.

    Raises:
        UsageError: the run has a model that cannot be exported.
        CtsanError: ONNX Runtime and PyTorch differ.
    """
    model = _paper_model(run)
    backbone = backbone_of(run.recipe, weights)
    with replacing_folder(out) as folder, torch.no_grad():
        networks = _networks(run, model, backbone)
        differences = {network.file: _export(network, folder / network.file) for network in networks}
        _write_model_file(run, backbone, folder / MODEL_FILE)
    return differences


def _write_model_file(run: TrainedRun, backbone: Backbone, file: Path) -> None:
    vocabulary, decoding = run.words.vocabulary, run.settings.decoding
    write_json(
        file,
        {
            "image_size": backbone.image_size,
            "spacing": SPACING,  # seconds between sampled frames; longer if there were more than `max_taken`
            "max_taken": MAX_FRAMES,
            "max_frames": run.settings.model.max_frames,  # sampled frames that the model uses
            "max_words": decoding.max_words,
            "length_penalty": decoding.length_penalty,
            "no_repeat_ngram": decoding.no_repeat_ngram,
            "begin": BOS,
            "end": EOS,
            "never": [BOS, *NEVER_SAID],
            "words": vocabulary.words,
            "concepts": run.words.concepts.words,
        },
    )


def _paper_model(run: TrainedRun) -> DescriptionModel:
    """The model of a run as a `DescriptionModel` with the paper's encoders, detector and decoder.

    Raises:
        UsageError: a part of the model is not the paper's.
    """
    model = run.model
    if (
        isinstance(model, DescriptionModel)
        and isinstance(model.decode, CaptionDecoder)
        and isinstance(model.clip_encoder, ClipEncoder)
        and isinstance(model.clip_encoder.encode_video, VideoEncoder)
        and isinstance(model.clip_encoder.detector, ConceptDetector)
    ):
        return model
    raise UsageError(
        f"{run.folder}: only runs of 'describe' with the paper's detector, encoder and decoder are exported. "
        "Name such a run."
    )


def _networks(run: TrainedRun, model: DescriptionModel, backbone: Backbone) -> list[_NetworkExport]:
    """The three networks, with examples computed from smooth random frames."""
    generator = torch.Generator().manual_seed(0)
    num_frames, size = run.settings.model.max_frames, backbone.image_size
    coarse = torch.rand(num_frames, 3, 8, 8, generator=generator) * 255
    frames = nn.functional.interpolate(coarse, size=size, mode="bilinear").byte().permute(0, 2, 3, 1)
    feature_maps: nn.Module | Callable[[Path], None]
    if backbone.spec.graph is None:
        feature_maps = FeatureMaps(backbone, half=False)
        maps = feature_maps(frames)
    else:
        feature_maps = partial(write_composed, backbone)
        maps = torch.from_numpy(run_network(backbone)(frames.numpy()))
    encoded = model.clip_encoder(maps[None].half().float(), torch.ones(1, num_frames, dtype=torch.bool))
    assert isinstance(model.clip_encoder, ClipEncoder)  # checked in `_paper_model`
    assert isinstance(model.clip_encoder.detector, ConceptDetector)
    zeros = torch.zeros_like(encoded.state.hidden)
    trace_zeros = zeros.expand(-1, model.clip_encoder.detector.num_traces, -1).contiguous()
    batch = encoded.of(torch.zeros(_NUM_SENTENCES, dtype=torch.long))
    last = torch.randint(len(run.words.vocabulary), (_NUM_SENTENCES,), generator=generator)
    log_probabilities, next_state = model.next_words(last, batch.concepts, batch.state)
    probe_inputs = {} if model.clip_encoder.probe is None else {"total": torch.zeros(1, maps.shape[-1] + 1)}
    return [
        _NetworkExport("backbone.onnx", feature_maps, {"frames": frames}, {"maps": maps}, {"frames": 0}),
        _NetworkExport(
            "detector.onnx",
            FrameStep(model.clip_encoder),
            {
                "maps": maps[0],
                "is_first": torch.tensor(True),
                "hidden": zeros,
                "cell": zeros.clone(),  # the exporter would merge two inputs that are the same tensor
                "trace_hidden": trace_zeros,
                "trace_cell": trace_zeros.clone(),
                **probe_inputs,
            },
            {
                "next_hidden": encoded.state.hidden,
                "next_cell": encoded.state.cell,
                "next_trace_hidden": None,
                "next_trace_cell": None,
                **{f"next_{name}": None for name in probe_inputs},
                "concepts": encoded.concepts,
                "concept_words": encoded.concept_words,
                "confidences": encoded.confidences,
            },
            {},
            [{"maps": frame, "is_first": torch.tensor(False)} for frame in maps[1:]],
        ),
        _NetworkExport(
            "step.onnx",
            WordStep(model),
            {
                "last": last,
                "concepts": batch.concepts,
                "hidden": batch.state.hidden,
                "cell": batch.state.cell,
            },
            {
                "log_probabilities": log_probabilities,
                "next_hidden": next_state.hidden,
                "next_cell": next_state.cell,
            },
            {"last": 0, "concepts": 0, "hidden": 1, "cell": 1},
        ),
    ]


def _export(export: _NetworkExport, file: Path) -> float:
    """Write a network and compare it with PyTorch; returns the largest difference."""
    length = torch.export.Dim("many", min=1)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with replacing(file) as temporary:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter warns about its own deprecated parts
            if not isinstance(export.network, nn.Module):
                export.network(temporary)
            else:
                torch.onnx.export(
                    export.network.eval(),
                    tuple(export.inputs.values()),
                    temporary,
                    dynamo=True,
                    external_data=False,
                    input_names=list(export.inputs),
                    output_names=list(export.expected),
                    dynamic_shapes=[
                        {export.dynamic_axes[name]: length} if name in export.dynamic_axes else {}
                        for name in export.inputs
                    ],
                    verbose=False,
                )
        difference = _largest_difference(temporary, export)
        if not difference <= TOLERANCE:
            raise CtsanError(
                f"{file.name}: ONNX Runtime and PyTorch differ by {difference:.1e}, more than "
                f"{TOLERANCE:.0e}, so nothing was written. Export with other versions of torch, onnxscript "
                "or onnxruntime."
            )
    return difference


def _largest_difference(file: Path, export: _NetworkExport) -> float:
    """The largest |a - b| / max(1, |b|) between the outputs of ONNX Runtime, a, and of PyTorch, b."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    feed = {name: tensor.numpy() for name, tensor in export.inputs.items()}
    outputs: dict[str, NDArray[np.generic]] = {}
    for next_inputs in ({}, *export.next_inputs):
        state = {name: outputs[f"next_{name}"] for name in feed if f"next_{name}" in outputs}
        feed |= state | {name: tensor.numpy() for name, tensor in next_inputs.items()}
        outputs = dict(zip(export.expected, session.run(None, feed), strict=True))
    largest = 0.0
    for name, expected in export.expected.items():
        if expected is not None:
            reference = expected.double().numpy()
            difference = np.abs(outputs[name].astype(np.float64) - reference)
            largest = max(largest, float((difference / np.maximum(1, np.abs(reference))).max()))
    return largest
