"""The frozen networks that turn frames into feature maps: one record each, in `BACKBONES`.

`find_backbone` gives a network by its name, `onnx:FILE` or `hf:NAME`; `backbone_of` the one that a recipe of
features names. Nothing here loads a network before `load_engine` asks for it.
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
