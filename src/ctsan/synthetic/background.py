"""The textured background of a scene, larger than the picture so that the camera can move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctsan.synthetic.scene import ASPECT, PIXELS_HIGH

Picture = NDArray[np.floating[Any]]  # (3, rows, columns), 0 to 1, float32
_Plane = NDArray[np.float64]  # (rows, columns)
_Tones = NDArray[np.float64]  # (rows, columns, 3)

MARGIN = 0.3  # picture heights beyond each border
_ROWS = round((1 + 2 * MARGIN) * PIXELS_HIGH)
_COLUMNS = round((ASPECT + 2 * MARGIN) * PIXELS_HIGH)


def paint_background(kind: str, seed: int) -> Picture:
    """A background of one kind with patches of light and shadow; the seed determines the details."""
    rng = np.random.default_rng(seed)
    picture = _PAINTERS[kind](rng) * (1 + 0.10 * _clouds(rng, 40) + 0.06 * _clouds(rng, 12))[..., None]
    return np.ascontiguousarray(np.clip(picture, 0, 1).transpose(2, 0, 1), dtype=np.float32)


def _clouds(rng: np.random.Generator, cell: int, stretch: int = 1) -> _Plane:
    """Smooth zero-mean noise with spots of about `cell` pixels, `stretch` times as wide as high."""
    coarse = rng.standard_normal((_ROWS // cell + 2, _COLUMNS // (cell * stretch) + 2))
    rows = np.arange(_ROWS) / cell
    columns = np.arange(_COLUMNS) / (cell * stretch)
    full_rows = np.stack([np.interp(rows, np.arange(len(coarse)), column) for column in coarse.T], axis=1)
    return np.stack([np.interp(columns, np.arange(full_rows.shape[1]), row) for row in full_rows])


def _grid() -> tuple[_Plane, _Plane]:
    """The row and the column of every pixel."""
    rows, columns = np.mgrid[0:_ROWS, 0:_COLUMNS].astype(np.float64)
    return rows, columns


def _tint(plane: _Plane, dark: tuple[float, ...], light: tuple[float, ...]) -> _Tones:
    """Interpolate between two colours by a plane from 0 to 1."""
    mix = np.clip(plane, 0, 1)[..., None]
    mixed: _Tones = (1 - mix) * np.array(dark) + mix * np.array(light)
    return mixed


def _grass(rng: np.random.Generator) -> _Tones:
    blades = _clouds(rng, 2) + 0.8 * _clouds(rng, 5)
    return _tint(0.5 + 0.28 * blades, (0.26, 0.34, 0.13), (0.46, 0.53, 0.27))


def _night(rng: np.random.Generator) -> _Tones:
    sky = _tint(0.4 + 0.3 * _clouds(rng, 30), (0.05, 0.06, 0.15), (0.13, 0.15, 0.30))
    rows, columns = rng.integers(1, _ROWS - 1, 130), rng.integers(1, _COLUMNS - 1, 130)
    glow = rng.uniform(0.3, 0.75, 130)[:, None]
    sky[rows, columns] += glow
    for row, column in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        sky[rows + row, columns + column] += 0.35 * glow
    return sky


def _checks(rng: np.random.Generator) -> _Tones:
    rows, columns = _grid()
    side = rng.integers(16, 24)
    odd = (rows // side + columns // side) % 2
    return _tint(odd + 0.08 * _clouds(rng, 3), (0.40, 0.42, 0.45), (0.66, 0.67, 0.68))


def _stripes(rng: np.random.Generator) -> _Tones:
    rows, columns = _grid()
    slope, width = rng.choice((-0.4, 0.0, 0.4)), rng.integers(9, 14)
    odd = (columns + slope * rows) // width % 2
    return _tint(odd + 0.05 * _clouds(rng, 3), (0.50, 0.42, 0.50), (0.74, 0.68, 0.70))


def _sand(rng: np.random.Generator) -> _Tones:
    grain = 0.5 + 0.16 * rng.standard_normal((_ROWS, _COLUMNS)) + 0.12 * _clouds(rng, 6, 3)
    return _tint(grain, (0.60, 0.50, 0.34), (0.86, 0.77, 0.58))


def _bricks(rng: np.random.Generator) -> _Tones:
    rows, columns = _grid()
    course = rows // 12
    along = columns + 13 * (course % 2)
    shade = rng.uniform(-0.25, 0.25, (_ROWS // 12 + 1, _COLUMNS // 26 + 2))
    wall = _tint(
        0.5 + shade[course.astype(int), (along // 26).astype(int)] + 0.07 * _clouds(rng, 2),
        (0.38, 0.22, 0.18),
        (0.60, 0.38, 0.30),
    )
    wall[(rows % 12 < 2) | (along % 26 < 2)] = (0.62, 0.59, 0.55)
    return wall


def _water(rng: np.random.Generator) -> _Tones:
    rows, _ = _grid()
    waves = np.sin(rows / 2.6 + 2.2 * _clouds(rng, 14, 2)) + 0.5 * _clouds(rng, 3, 4)
    return _tint(0.45 + 0.3 * waves, (0.16, 0.36, 0.46), (0.42, 0.62, 0.70))


def _wood(rng: np.random.Generator) -> _Tones:
    rows, _ = _grid()
    board = (rows // 24).astype(int)
    shade = rng.uniform(-0.2, 0.2, _ROWS // 24 + 1)
    grain = np.sin(1.5 * rows + 3 * _clouds(rng, 9, 8))
    planks = _tint(0.5 + shade[board] + 0.18 * grain, (0.36, 0.24, 0.14), (0.62, 0.46, 0.30))
    planks[rows % 24 < 1.5] *= 0.5
    return planks


_PAINTERS: dict[str, Callable[[np.random.Generator], _Tones]] = {
    "grass": _grass,
    "night": _night,
    "checks": _checks,
    "stripes": _stripes,
    "sand": _sand,
    "bricks": _bricks,
    "water": _water,
    "wood": _wood,
}
