"""The frozen networks that turn frames into feature maps: one spec each, in `BACKBONES`.

`find_backbone` finds a network by its name, `onnx:FILE` or `hf:NAME`; `backbone_of` finds that of a recipe of
features. Networks are loaded only by `load_engine`.
"""

from ctsan.video.backbones.finding import backbone_of, find_backbone, network_key
from ctsan.video.backbones.registry import BACKBONES, DEFAULT_BACKBONE
from ctsan.video.backbones.spec import Backbone, BackboneSpec, GraphSpec

__all__ = [
    "BACKBONES",
    "DEFAULT_BACKBONE",
    "Backbone",
    "BackboneSpec",
    "GraphSpec",
    "backbone_of",
    "find_backbone",
    "network_key",
]
