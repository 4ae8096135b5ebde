"""The motions of one thing alone (solos), and of two things together (duets).

A motion changes tracks as a function of its progress `u`, which goes from 0 to 1 during the event and is
constant before and after it. So `1 - u` plays the motion backwards, with the same frames in reverse order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np

from ctsan.synthetic.scene import ASPECT, FPS, Array, Direction, Track

Solo = Callable[[Track, Array, Random], tuple[Track, Direction | None]]
Duet = Callable[[Track, Track, Array, Random], tuple[Track, Track, Direction | None]]

_OUTSIDE = 0.35  # so far beyond the border, the largest thing is invisible


def rest(frames: int, x: float, y: float, radius: float, angle: float) -> Track:
    """The track of a thing at rest."""
    return Track(*(np.full(frames, value) for value in (x, y, radius, angle, 1.0)))


def _ease(u: Array) -> Array:
    return u * u * (3 - 2 * u)


def _part(u: Array, start: float, end: float) -> Array:
    """The progress of one part of a motion: 0 before `start`, 1 after `end`."""
    return np.clip((u - start) / (end - start), 0, 1)


def _repeats(u: Array, seconds: float) -> int:
    """How many movements of about `seconds` fit into the event."""
    return max(1, round(int(((u > 0) & (u < 1)).sum()) / FPS / seconds))


def _wave(u: Array) -> Array:
    """A triangle wave of period 1 between -1 and 1 that starts at 0."""
    return 2 / np.pi * np.arcsin(np.sin(2 * np.pi * u))


def _side(rng: Random) -> tuple[int, Direction]:
    return rng.choice(((1, "right"), (-1, "left")))


def _move_sideways(track: Track, u: Array, rng: Random) -> tuple[Track, Direction | None]:
    sign, direction = _side(rng)
    return replace(track, x=track.x + sign * rng.uniform(0.55, 0.75) * _ease(u)), direction


def _move_upright(track: Track, u: Array, rng: Random) -> tuple[Track, Direction | None]:
    return replace(track, y=track.y + rng.uniform(0.42, 0.55) * _ease(u)), "down"


def _enter(track: Track, u: Array, rng: Random) -> tuple[Track, Direction | None]:
    sign, direction = _side(rng)
    way = track.x[-1] + _OUTSIDE if sign > 0 else ASPECT + _OUTSIDE - track.x[-1]
    return replace(track, x=track.x - sign * way * (1 - u)), direction


def _bounce(track: Track, u: Array, rng: Random) -> tuple[Track, Direction | None]:
    hops = np.abs(np.sin(np.pi * _repeats(u, 1.1) * u))
    return replace(track, y=track.y - rng.uniform(0.25, 0.35) * hops), None


def _zigzag(track: Track, u: Array, rng: Random) -> tuple[Track, Direction | None]:
    sign, direction = _side(rng)
    up_and_down = rng.choice((-1, 1)) * rng.uniform(0.11, 0.15) * _wave(2 * u)
    return replace(track, x=track.x + sign * rng.uniform(0.55, 0.7) * u, y=track.y + up_and_down), direction


def _circle(track: Track, u: Array, rng: Random) -> tuple[Track, Direction | None]:
    turn = rng.uniform(0, 2 * np.pi) + 2 * np.pi * _repeats(u, 2.4) * u
    reach = rng.uniform(0.16, 0.21)
    return replace(track, x=track.x + reach * np.cos(turn), y=track.y + reach * np.sin(turn)), None


def _shake(track: Track, u: Array, rng: Random) -> tuple[Track, Direction | None]:
    swing = np.sin(2 * np.pi * _repeats(u, 0.6) * u)
    reach = rng.uniform(0.06, 0.07)
    return replace(track, x=track.x + reach * swing, angle=track.angle + 0.35 * swing), None


def _spin(track: Track, u: Array, rng: Random) -> tuple[Track, Direction | None]:
    # Slow enough to be visible when sampled at 2.4 Hz, even for a star, which repeats every fifth of a turn.
    turn = rng.choice((-1, 1)) * np.radians(72) * _repeats(u, 1 / FPS) / FPS * u
    return replace(track, angle=track.angle + turn), None


def _grow(track: Track, u: Array, rng: Random) -> tuple[Track, Direction | None]:
    return replace(track, radius=track.radius * rng.uniform(1.5, 1.65) ** (2 * u - 1)), None


def _appear(track: Track, u: Array, _rng: Random) -> tuple[Track, Direction | None]:
    return replace(track, opacity=track.opacity * _ease(u)), None


def _gap(actor: Track, target: Track) -> float:
    """The distance at which two things touch."""
    return float(0.93 * (actor.radius[0] + target.radius[0]))


def _pass(actor: Track, target: Track, u: Array, rng: Random) -> tuple[Track, Track, Direction | None]:
    far = _gap(actor, target) + 0.08
    height = rng.uniform(-0.3, 0.3) * target.radius
    return replace(actor, x=target.x + far * (2 * u - 1), y=target.y + height), target, "right"


def _jump(actor: Track, target: Track, u: Array, rng: Random) -> tuple[Track, Track, Direction | None]:
    far = _gap(actor, target) + rng.uniform(0.06, 0.12)
    ground = target.y + target.radius - actor.radius
    leap = (2 * target.radius + 0.06) * np.sin(np.pi * u)
    return replace(actor, x=target.x + far * (2 * u - 1), y=ground - leap), target, "right"


def _chase(actor: Track, target: Track, u: Array, rng: Random) -> tuple[Track, Track, Direction | None]:
    way, ahead = rng.uniform(0.5, 0.6), _gap(actor, target) + rng.uniform(0.04, 0.08)
    bend, phase = rng.uniform(0.04, 0.1), rng.uniform(0, 2 * np.pi)

    def follow(track: Track, lead: float) -> Track:
        x = way * u + lead
        return replace(track, x=target.x + x, y=target.y + bend * np.sin(6 * x + phase))

    return follow(actor, 0), follow(target, ahead), "right"


def _bump(actor: Track, target: Track, u: Array, rng: Random) -> tuple[Track, Track, Direction | None]:
    gap, way = _gap(actor, target), rng.uniform(0.3, 0.36)
    moved = replace(target, x=target.x + way * _part(u, 0.55, 1))
    return replace(actor, x=target.x - gap - way * (1 - _part(u, 0, 0.45)), y=target.y), moved, "right"


def _push(actor: Track, target: Track, u: Array, rng: Random) -> tuple[Track, Track, Direction | None]:
    gap, run, way = _gap(actor, target), rng.uniform(0.18, 0.24), rng.uniform(0.34, 0.42)
    moved = replace(target, x=target.x + way * _part(u, 0.35, 1))
    return replace(actor, x=moved.x - gap - run * (1 - _part(u, 0, 0.35)), y=target.y), moved, "right"


def _approach(actor: Track, target: Track, u: Array, rng: Random) -> tuple[Track, Track, Direction | None]:
    near, turn = _gap(actor, target) + 0.03, rng.uniform(-np.pi, np.pi)
    distance = near + rng.uniform(0.42, 0.58) * (1 - _ease(u))
    x, y = target.x + distance * np.cos(turn), target.y + distance * np.sin(turn)
    return replace(actor, x=x, y=y), target, None


def _hide(actor: Track, target: Track, u: Array, rng: Random) -> tuple[Track, Track, Direction | None]:
    far = _gap(actor, target) + rng.uniform(0.16, 0.26)
    return replace(actor, x=target.x - far * (1 - _ease(_part(u, 0, 0.85))), y=target.y), target, "right"


def _orbit(actor: Track, target: Track, u: Array, rng: Random) -> tuple[Track, Track, Direction | None]:
    reach = _gap(actor, target) + 0.05
    turn = rng.uniform(0, 2 * np.pi) + 2 * np.pi * _repeats(u, 2.8) * u
    return replace(actor, x=target.x + reach * np.cos(turn), y=target.y + reach * np.sin(turn)), target, None


# Each motion with its verb when played forwards.
SOLOS: dict[str, tuple[str, Solo]] = {
    "move sideways": ("move", _move_sideways),
    "move upright": ("move", _move_upright),
    "enter": ("enter", _enter),
    "bounce": ("bounce", _bounce),
    "zigzag": ("zigzag", _zigzag),
    "circle": ("circle", _circle),
    "shake": ("shake", _shake),
    "spin": ("spin", _spin),
    "grow": ("grow", _grow),
    "appear": ("appear", _appear),
}
DUETS: dict[str, Duet] = {
    "pass behind": _pass,
    "pass in front": _pass,
    "jump": _jump,
    "chase": _chase,
    "bump": _bump,
    "push": _push,
    "approach": _approach,
    "hide": _hide,
    "orbit": _orbit,
}
