"""A description run as ONNX: three networks and their words, which need nothing of this package.

backbone.onnx   frames (N, size, size, 3), bytes -> maps (N, h, w, C)
detector.onnx   maps of one frame and what is remembered -> what is remembered then, and the concept words
step.onnx       last words, concept words and a state -> log-probabilities of the next words, and a state
model.json      the words, how frames are taken and how sentences are made

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
from ctsan.io.atomic import replacing, write_json
from ctsan.model.caption_decoder import CaptionDecoder
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_detector import ConceptDetector
from ctsan.model.description_model import DescriptionModel
from ctsan.model.video_encoder import VideoEncoder
from ctsan.runs.trained_run import TrainedRun
from ctsan.tasks.captioning import NEVER_SAID
from ctsan.text.vocabulary import BOS, EOS
from ctsan.video.backbones import Backbone, backbone_of
from ctsan.video.backbones.composing import write_composed
from ctsan.video.backbones.feature_maps import FeatureMaps
from ctsan.video.engine import run_network
from ctsan.video.frames import MAX_FRAMES, SPACING

MODEL_FILE = "model.json"
TOLERANCE = 1e-3  # between ONNX Runtime and PyTorch, of a number above one that share: as half precision

_SENTENCES = 3  # in the comparison of a step


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One network, with an example of what goes in and of what the model itself makes of it."""

    file: str
    network: nn.Module | Callable[[Path], None]  # or what writes it
    inputs: Mapping[str, Tensor]
    expected: Mapping[str, Tensor | None]  # by the names of the outputs; None is only remembered
    many: Mapping[str, int]  # the axis of each input that may have any length, the same for all
    steps: Sequence[
        Mapping[str, Tensor]
    ] = ()  # more calls, of other inputs, with the states of the one before


def export_onnx(run: TrainedRun, out: Path, *, weights: Path | None = None) -> dict[str, float]:
    """Write a description run into a folder; no file stays there that computes something else than PyTorch.

    Args:
        weights: of the backbone, where it is not installed with ctsan.

    Returns:
        The largest difference of each file.

    Raises:
        UsageError: the run is of a kind that is not exported.
        CtsanError: ONNX Runtime computes something else.
    """
    model = _paper_model(run)
    backbone = backbone_of(run.recipe, weights)
    with torch.no_grad():
        parts = _parts(run, model, backbone)
        differences = {part.file: _export(part, out / part.file) for part in parts}
    vocabulary, decoding = run.member.words.vocabulary, run.settings.decoding
    write_json(
        out / MODEL_FILE,
        {
            "image_size": backbone.image_size,
            "spacing": SPACING,  # seconds between two frames that are taken, or more in long clips:
            "max_taken": MAX_FRAMES,
            "max_frames": run.settings.model.max_frames,  # of which so many are looked at
            "max_words": decoding.max_words,
            "length_penalty": decoding.length_penalty,
            "no_repeat_ngram": decoding.no_repeat_ngram,
            "begin": BOS,
            "end": EOS,
            "never": [BOS, *NEVER_SAID],
            "words": vocabulary.words,
            "concepts": run.member.words.concepts.words,
        },
    )
    return differences


def _paper_model(run: TrainedRun) -> DescriptionModel:
    """Raises:
    UsageError: it is another model than the paper's, with its detector.
    """
    model = run.member.model
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


def _parts(run: TrainedRun, model: DescriptionModel, backbone: Backbone) -> list[_Part]:
    """The three networks; examples are made of smooth random frames."""
    draw = torch.Generator().manual_seed(0)
    count, size = run.settings.model.max_frames, backbone.image_size
    coarse = torch.rand(count, 3, 8, 8, generator=draw) * 255
    frames = nn.functional.interpolate(coarse, size=size, mode="bilinear").byte().permute(0, 2, 3, 1)
    see: nn.Module | Callable[[Path], None]
    if backbone.spec.graph is None:
        see = FeatureMaps(backbone, half=False)
        maps = see(frames)
    else:
        see = partial(write_composed, backbone)
        maps = torch.from_numpy(run_network(backbone)(frames.numpy()))
    encoded = model.clip_encoder(maps[None].half().float(), torch.ones(1, count, dtype=torch.bool))
    assert isinstance(model.clip_encoder, ClipEncoder)  # see `_paper_model`
    assert isinstance(model.clip_encoder.detector, ConceptDetector)
    nothing = torch.zeros_like(encoded.state.hidden)
    no_traces = nothing.expand(-1, model.clip_encoder.detector.num_traces, -1).contiguous()
    begun = encoded.of(torch.zeros(_SENTENCES, dtype=torch.long))
    last = torch.randint(len(run.member.words.vocabulary), (_SENTENCES,), generator=draw)
    said, after = model.next_words(last, begun.concepts, begun.state)
    probed = {} if model.clip_encoder.probe is None else {"total": torch.zeros(1, maps.shape[-1] + 1)}
    return [
        _Part("backbone.onnx", see, {"frames": frames}, {"maps": maps}, {"frames": 0}),
        _Part(
            "detector.onnx",
            FrameStep(model.clip_encoder),
            {
                "maps": maps[0],
                "is_first": torch.tensor(True),
                "hidden": nothing,
                "cell": nothing.clone(),  # the exporter takes one tensor given twice for one input
                "trace_hidden": no_traces,
                "trace_cell": no_traces.clone(),
                **probed,
            },
            {
                "next_hidden": encoded.state.hidden,
                "next_cell": encoded.state.cell,
                "next_trace_hidden": None,
                "next_trace_cell": None,
                **{f"next_{name}": None for name in probed},
                "concepts": encoded.concepts,
                "concept_words": encoded.concept_words,
                "confidences": encoded.confidences,
            },
            {},
            [{"maps": frame, "is_first": torch.tensor(False)} for frame in maps[1:]],
        ),
        _Part(
            "step.onnx",
            WordStep(model),
            {
                "last": last,
                "concepts": begun.concepts,
                "hidden": begun.state.hidden,
                "cell": begun.state.cell,
            },
            {"log_probabilities": said, "next_hidden": after.hidden, "next_cell": after.cell},
            {"last": 0, "concepts": 0, "hidden": 1, "cell": 1},
        ),
    ]


def _export(part: _Part, file: Path) -> float:
    """Write a network and compare it; returns the largest difference."""
    length = torch.export.Dim("many", min=1)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with replacing(file) as temporary:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter warns of its own deprecated parts
            if not isinstance(part.network, nn.Module):
                part.network(temporary)
            else:
                torch.onnx.export(
                    part.network.eval(),
                    tuple(part.inputs.values()),
                    temporary,
                    dynamo=True,
                    external_data=False,
                    input_names=list(part.inputs),
                    output_names=list(part.expected),
                    dynamic_shapes=[
                        {part.many[name]: length} if name in part.many else {} for name in part.inputs
                    ],
                    verbose=False,
                )
        difference = _difference(temporary, part)
        if not difference <= TOLERANCE:
            raise CtsanError(
                f"{file}: ONNX Runtime and PyTorch differ by {difference:.1e}, more than {TOLERANCE:.0e}, so "
                "it was not written. Export with other versions of torch, onnxscript or onnxruntime."
            )
    return difference


def _difference(file: Path, part: _Part) -> float:
    """The largest difference of the outputs, relative for numbers above one."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import: nothing is sent anywhere
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    feed = {name: tensor.numpy() for name, tensor in part.inputs.items()}
    found: dict[str, NDArray[np.generic]] = {}
    for step in ({}, *part.steps):
        remembered = {name: found[f"next_{name}"] for name in feed if f"next_{name}" in found}
        feed |= remembered | {name: tensor.numpy() for name, tensor in step.items()}
        found = dict(zip(part.expected, session.run(None, feed), strict=True))
    largest = 0.0
    for name, expected in part.expected.items():
        if expected is not None:
            wanted = expected.double().numpy()
            distance = np.abs(found[name].astype(np.float64) - wanted) / np.maximum(1, np.abs(wanted))
            largest = max(largest, float(distance.max()))
    return largest
