"""Render the frames of a scene, with the visibility of every thing.

A thing is drawn by its signed distance function, in units of its radius. The same function gives smooth
edges, the outline, the shadow, the box and the occluded part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctsan.synthetic.background import MARGIN, Picture, paint_background
from ctsan.synthetic.scene import PIXELS_HIGH, PIXELS_WIDE, Camera, Scene, Thing

Plane = NDArray[np.floating[Any]]  # (rows, columns); float32 at run time
Distance = Callable[[Plane, Plane], Plane]  # x, y -> signed distance, negative inside

RGB = {
    "red": (0.86, 0.10, 0.10),
    "orange": (0.98, 0.52, 0.05),
    "yellow": (0.98, 0.88, 0.12),
    "green": (0.05, 0.72, 0.22),
    "blue": (0.12, 0.30, 0.92),
    "purple": (0.52, 0.14, 0.72),
    "pink": (1.00, 0.50, 0.74),
    "white": (0.96, 0.96, 0.96),
    "grey": (0.48, 0.48, 0.47),
}
_SHADOW = 3  # pixels to the right and down: the light comes from the top left


@dataclass(frozen=True, slots=True)
class Visibility:
    """The visibility of one thing in one frame."""

    box: tuple[float, float, float, float] | None  # x0, y0, x1, y1 from 0 to 1; None if outside the picture
    visible: float  # the share of the thing that is in the picture and not occluded, times its opacity


def draw(scene: Scene) -> Iterator[tuple[NDArray[np.uint8], dict[str, Visibility]]]:
    """The frames of a scene (rows, columns, RGB), each with the visibility of every thing."""
    background = paint_background(scene.background, scene.texture_seed)
    far_to_near = sorted(scene.things, key=lambda thing: thing.depth)
    for frame in range(scene.frames):
        picture = _view(background, scene.camera, frame)
        footprints = {thing.id: _draw_thing(picture, thing, scene.camera, frame) for thing in far_to_near}
        transmission = np.ones((PIXELS_HIGH, PIXELS_WIDE), dtype=np.float32)  # through all nearer things
        visibilities = {}
        for name, footprint in reversed(footprints.items()):
            window = footprint.rows, footprint.columns
            visible = float((footprint.cover * transmission[window]).sum()) / footprint.area
            visibilities[name] = Visibility(_box(footprint), visible)
            transmission[window] *= 1 - footprint.cover
        yield (np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8).transpose(1, 2, 0), visibilities


@dataclass(frozen=True, slots=True)
class _Footprint:
    """The coverage of each pixel by a thing, in the window of the picture around it."""

    rows: slice
    columns: slice
    shape: Plane  # coverage without opacity
    cover: Plane
    area: float  # in pixels, including those outside the picture


def _view(background: Picture, camera: Camera, frame: int) -> Picture:
    """The part of the background that the camera shows, by separable bilinear interpolation."""

    def sample(pixels: int, centre: float) -> tuple[NDArray[np.int64], Plane]:
        position = (
            (np.arange(pixels) + 0.5 - pixels / 2) / camera.zoom[frame]
            + (centre + MARGIN) * PIXELS_HIGH
            - 0.5
        )
        floor = np.floor(position).astype(np.int64)
        return floor, (position - floor).astype(np.float32)

    row, down = sample(PIXELS_HIGH, camera.y[frame])
    column, across = sample(PIXELS_WIDE, camera.x[frame])
    rows = background[:, row] * (1 - down)[:, None] + background[:, row + 1] * down[:, None]
    return rows[:, :, column] * (1 - across) + rows[:, :, column + 1] * across


def _draw_thing(picture: Picture, thing: Thing, camera: Camera, frame: int) -> _Footprint:
    """Draw a thing into the picture, in place."""
    track = thing.track
    scale = camera.zoom[frame] * PIXELS_HIGH
    x = float((track.x[frame] - camera.x[frame]) * scale + PIXELS_WIDE / 2)
    y = float((track.y[frame] - camera.y[frame]) * scale + PIXELS_HIGH / 2)
    radius = float(track.radius[frame] * scale)
    reach = radius * 1.05 + 2 * _SHADOW
    left, right = math.floor(x - reach), math.ceil(x + reach)
    top, bottom = math.floor(y - reach), math.ceil(y + reach)
    across = (np.arange(left, right, dtype=np.float32) + (0.5 - x)) / radius
    down = ((np.arange(top, bottom, dtype=np.float32) + (0.5 - y)) / radius)[:, None]
    cos, sin = math.cos(track.angle[frame]), math.sin(track.angle[frame])
    own_x, own_y = cos * across + sin * down, cos * down - sin * across  # in the thing's rotated frame
    distance = _SHAPES[thing.noun](own_x, own_y) * radius  # in pixels
    shape = np.clip(0.5 - distance, 0, 1)

    rows = slice(min(max(top, 0), PIXELS_HIGH), min(max(bottom, 0), PIXELS_HIGH))
    columns = slice(min(max(left, 0), PIXELS_WIDE), min(max(right, 0), PIXELS_WIDE))
    inside = slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left)
    opacity = float(track.opacity[frame])
    cover = opacity * shape[inside]
    window = picture[:, rows, columns]
    shadow_distance = np.roll(distance, (_SHADOW, _SHADOW), (0, 1))[inside]
    window *= 1 - 0.4 * opacity * np.clip(0.5 - shadow_distance / 4, 0, 1)
    paint = np.array(RGB[thing.colour], dtype=np.float32)[:, None, None] * (1 - 0.2 * (across + down)[inside])
    if thing.noun in _MARKS:
        mark = np.clip(0.5 - _MARKS[thing.noun](own_x, own_y)[inside] * radius, 0, 1)
        paint += 0.55 * mark * ((0.3 if thing.colour == "white" else 1) - paint)
    paint *= 1 - 0.68 * np.clip(distance[inside] + min(2, radius / 7), 0, 1)  # the outline
    window += cover * (paint - window)
    return _Footprint(rows, columns, shape[inside], cover, float(shape.sum()))


def _box(footprint: _Footprint) -> tuple[float, float, float, float] | None:
    is_covered = footprint.shape > 0.5
    rows, columns = np.flatnonzero(is_covered.any(axis=1)), np.flatnonzero(is_covered.any(axis=0))
    if not len(rows):
        return None
    left, top = footprint.columns.start, footprint.rows.start
    return (
        float(left + columns[0]) / PIXELS_WIDE,
        float(top + rows[0]) / PIXELS_HIGH,
        float(left + columns[-1] + 1) / PIXELS_WIDE,
        float(top + rows[-1] + 1) / PIXELS_HIGH,
    )


def _disc(x: Plane, y: Plane, radius: float | Plane = 1.0) -> Plane:
    distance: Plane = np.hypot(x, y) - radius
    return distance


def _rectangle(x: Plane, y: Plane, width: float, height: float) -> Plane:
    right, down = np.abs(x) - width, np.abs(y) - height
    return np.hypot(np.maximum(right, 0), np.maximum(down, 0)) + np.minimum(np.maximum(right, down), 0)


def _rounded_box(x: Plane, y: Plane) -> Plane:
    return _rectangle(x, y, 0.70, 0.70) - 0.1


def _triangle(x: Plane, y: Plane) -> Plane:
    slanted = 0.866 * np.abs(x) - 0.5 * y
    return np.maximum(slanted, y) - 0.5


def _star(x: Plane, y: Plane) -> Plane:
    sector = math.pi / 5
    turn = np.abs((np.arctan2(x, -y) + sector) % (2 * sector) - sector)
    length = np.hypot(x, y)
    # Fold all points onto half a ray of the star, whose border runs from the tip (1, 0) to the notch.
    across, along = length * np.cos(turn), length * np.sin(turn)
    notch_x, notch_y = 0.5 * math.cos(sector), 0.5 * math.sin(sector)
    return ((across - 1) * notch_y - along * (notch_x - 1)) / math.hypot(notch_x - 1, notch_y)


def _ring(x: Plane, y: Plane) -> Plane:
    return np.abs(np.hypot(x, y) - 0.70) - 0.28


def _cross(x: Plane, y: Plane) -> Plane:
    return np.minimum(_rectangle(x, y, 0.95, 0.30), _rectangle(x, y, 0.30, 0.95))


def _heart(x: Plane, y: Plane) -> Plane:
    side = np.abs(x)
    lobe = _disc(side - 0.46, y + 0.36, 0.5)
    # Straight lines from the lobes down to the tip.
    flank: Plane = np.maximum(0.78 * side + 0.626 * y - 0.60, -0.36 - y)
    return np.minimum(lobe, flank)


def _moon(x: Plane, y: Plane) -> Plane:
    return np.maximum(_disc(x, y), -_disc(x - 0.52, y, 0.80))


def _flower(x: Plane, y: Plane) -> Plane:
    petals = 0.76 + 0.22 * np.cos(6 * np.arctan2(y, x))
    return 0.75 * _disc(x, y, petals)


def _leaf(x: Plane, y: Plane) -> Plane:
    return _disc(np.abs(x) + 0.55, y, 1.14)


def _speck(x: Plane, y: Plane) -> Plane:
    return np.maximum(np.abs(x) + 0.3 * np.abs(y), np.abs(y)) - 0.7


_SHAPES: dict[str, Distance] = {
    "ball": _disc,
    "box": _rounded_box,
    "triangle": _triangle,
    "star": _star,
    "ring": _ring,
    "cross": _cross,
    "heart": _heart,
    "moon": _moon,
    "flower": _flower,
    "leaf": _leaf,
    "speck": _speck,
}
# Marks, lighter than the thing or darker on white, that show the rotation of round things and distinguish
# similar outlines.
_MARKS: dict[str, Distance] = {
    "ball": lambda x, y: np.abs(y) - 0.2 + 0 * x,
    "box": lambda x, y: _rectangle(x, y, 0.42, 0.42),
    "ring": lambda x, y: np.abs(y) - 0.22 + 0 * x,
    "flower": lambda x, y: _disc(x, y, 0.32),
    "leaf": lambda x, y: np.abs(x) - 0.05 + 0 * y,
}
