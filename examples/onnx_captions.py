"""Caption a clip with the files of `ctsan export RUN --onnx DIR`, and nothing of ctsan or PyTorch.

python examples/onnx_captions.py CLIP DIR
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import av
import numpy as np
from onnxruntime import InferenceSession


def caption(clip: str, folder: Path) -> str:
    model = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    see, detect, step = (
        InferenceSession(folder / f"{name}.onnx") for name in ("backbone", "detector", "step")
    )
    size, frames = model["image_size"], list[Any]()
    with av.open(clip) as video:
        for frame in video.decode(video=0):
            if (frame.time or 0.0) > len(frames) * model["spacing"] - 1e-3:  # one in ten, as films count them
                small = frame.reformat(width=size, height=size, format="rgb24", interpolation="BICUBIC")
                frames.append(small.to_ndarray())
    kept = min(len(frames), model["max_frames"])
    chosen = np.stack([frames[place * len(frames) // kept] for place in range(kept)])
    states = {each.name: np.zeros(each.shape, np.float32) for each in detect.get_inputs()[2:]}
    for number, maps in enumerate(see.run(None, {"frames": chosen})[0]):
        now = {"maps": maps, "is_first": np.array(number == 0)}
        *after, concepts, seen, _ = detect.run(None, now | states)
        states = dict(zip(states, after, strict=True))
    print("seen:", ", ".join(model["concepts"][number] for number in seen[0]))
    said = [model["begin"]]
    state = {"concepts": concepts, "hidden": states["hidden"], "cell": states["cell"]}
    while len(said) <= model["max_words"]:
        scores, state["hidden"], state["cell"] = step.run(None, {"last": np.array(said[-1:])} | state)
        n = model["no_repeat_ngram"]
        ngrams = [said[start : start + n] for start in range(len(said) - n + 1)] if n else []
        again = [ngram[-1] for ngram in ngrams if ngram[:-1] == said[len(said) - n + 1 :]]
        nothing_yet = [model["end"]] if len(said) == 1 else []  # a sentence has a word
        scores[:, model["never"] + again + nothing_yet] = -np.inf
        if (best := int(scores.argmax())) == model["end"]:
            break
        said.append(best)
    return " ".join(model["words"][number] for number in said[1:])


if __name__ == "__main__":
    print(caption(sys.argv[1], Path(sys.argv[2])))
