"""The ground truth of a clip as JSON: objects in every frame, events, and the objects that words refer to.

Times are in seconds. A box is [x0, y0, x1, y1] from 0 to 1 around the whole thing, clipped to the picture, or
null if the thing is outside. `visible` is the share of the thing that is in the picture and not occluded,
times its opacity. The camera's x and y are the scene coordinates of the picture's centre, in picture heights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ctsan.synthetic.caption import Word
from ctsan.synthetic.draw import Visibility
from ctsan.synthetic.scene import FPS, PIXELS_HIGH, PIXELS_WIDE, Scene, Thing


def ground_truth(
    scene: Scene, captions: Sequence[Sequence[Word]], visibilities: Sequence[Mapping[str, Visibility]]
) -> dict[str, object]:
    """The ground truth of a clip.

    Args:
        visibilities: of every thing, per frame, by its id.
    """
    camera = scene.camera
    camera_frames = zip(camera.x, camera.y, camera.zoom, strict=True)
    return {
        "fps": FPS,
        "width": PIXELS_WIDE,
        "height": PIXELS_HIGH,
        "background": scene.background,
        "camera": {
            "motion": camera.motion,
            "frames": [
                {"x": _rounded(x), "y": _rounded(y), "zoom": _rounded(zoom)} for x, y, zoom in camera_frames
            ],
        },
        "objects": [_attributes(scene, thing) for thing in scene.things],
        "events": [
            asdict(event) | {"start": _rounded(event.start / FPS), "end": _rounded(event.end / FPS)}
            for event in scene.events
        ],
        "frames": [
            {
                "time": _rounded(number / FPS),
                "objects": {thing.id: _visibility(things[thing.id]) for thing in scene.things},
            }
            for number, things in enumerate(visibilities)
        ],
        "words": _referents(captions),
        "mentions": [  # the same per caption and word
            [
                {"at": position, "word": word.text, "objects": list(word.refers_to)}
                for position, word in enumerate(caption)
                if word.refers_to
            ]
            for caption in captions
        ],
    }


def _attributes(scene: Scene, thing: Thing) -> dict[str, str | None]:
    role = scene.role(thing)
    return {"id": thing.id, "noun": thing.noun, "colour": thing.colour, "size": thing.size, "role": role}


def _visibility(visibility: Visibility) -> dict[str, object]:
    box = visibility.box and [_rounded(side) for side in visibility.box]
    return {"box": box, "visible": _rounded(visibility.visible)}


def _referents(captions: Sequence[Sequence[Word]]) -> dict[str, list[str]]:
    """Every word that refers to objects, with the ids of all of them in this clip."""
    referents: dict[str, set[str]] = {}
    for caption in captions:
        for word in caption:
            if word.refers_to:
                referents.setdefault(word.text, set()).update(word.refers_to)
    return {word: sorted(referents[word]) for word in sorted(referents)}


def _rounded(value: float) -> float:
    return round(float(value), 4)
