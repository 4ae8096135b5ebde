"""The ground truth of a clip as JSON: what is where in every frame, what happens, and what each word means.

Times are in seconds. A box is [x0, y0, x1, y1] from 0 to 1 around the whole thing, cut at the border of the
picture, or null if the thing lies outside; `visible` is the share of the thing that is seen: in the picture,
not covered by a nearer thing, and times its opacity. The camera's x and y are the point of the scene at the
middle of the picture, in picture heights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ctsan.synthetic.caption import Word
from ctsan.synthetic.draw import Seen
from ctsan.synthetic.scene import FPS, PIXELS_HIGH, PIXELS_WIDE, Scene, Thing


def tell_truth(
    scene: Scene, captions: Sequence[Sequence[Word]], seen: Sequence[Mapping[str, Seen]]
) -> dict[str, object]:
    """Everything that is known of a clip; `seen` is what its frames show."""
    camera = scene.camera
    views = zip(camera.x, camera.y, camera.zoom, strict=True)
    return {
        "fps": FPS,
        "width": PIXELS_WIDE,
        "height": PIXELS_HIGH,
        "background": scene.background,
        "camera": {
            "motion": camera.motion,
            "frames": [{"x": _short(x), "y": _short(y), "zoom": _short(zoom)} for x, y, zoom in views],
        },
        "objects": [_describe(scene, thing) for thing in scene.things],
        "events": [
            asdict(event) | {"start": _short(event.start / FPS), "end": _short(event.end / FPS)}
            for event in scene.events
        ],
        "frames": [
            {
                "time": _short(number / FPS),
                "objects": {thing.id: _locate(things[thing.id]) for thing in scene.things},
            }
            for number, things in enumerate(seen)
        ],
        "words": _meanings(captions),
        "mentions": [  # the same, word by word for each caption
            [
                {"at": place, "word": word.text, "objects": list(word.refers_to)}
                for place, word in enumerate(caption)
                if word.refers_to
            ]
            for caption in captions
        ],
    }


def _describe(scene: Scene, thing: Thing) -> dict[str, str | None]:
    role = scene.role(thing)
    return {"id": thing.id, "noun": thing.noun, "colour": thing.colour, "size": thing.size, "role": role}


def _locate(seen: Seen) -> dict[str, object]:
    return {"box": seen.box and [_short(side) for side in seen.box], "visible": _short(seen.visible)}


def _meanings(captions: Sequence[Sequence[Word]]) -> dict[str, list[str]]:
    """Every word that refers to objects, with all that it refers to in this clip."""
    meanings: dict[str, set[str]] = {}
    for caption in captions:
        for word in caption:
            if word.refers_to:
                meanings.setdefault(word.text, set()).update(word.refers_to)
    return {word: sorted(meanings[word]) for word in sorted(meanings)}


def _short(value: float) -> float:
    return round(float(value), 4)
