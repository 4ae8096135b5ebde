"""The content of a synthetic clip: things with their tracks, events, and the camera.

Lengths are in picture heights, so the picture is `ASPECT` wide and 1 high, with y downwards. A scene can be
mirrored and played backwards; both give a valid scene, with its events renamed accordingly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Direction = Literal["left", "right", "up", "down"]
Size = Literal["small", "medium", "big"]
Role = Literal["actor", "target", "bystander", "distractor"]

FPS = 12
PIXELS_HIGH = 120
PIXELS_WIDE = 160
ASPECT = PIXELS_WIDE / PIXELS_HIGH

OPPOSITE: dict[Direction, Direction] = {"left": "right", "right": "left", "up": "down", "down": "up"}
# The names of events that are played backwards; an event that is not listed keeps its name.
_PAIRS = (
    ("grow", "shrink"),
    ("appear", "disappear"),
    ("enter", "leave"),
    ("push", "pull"),
    ("approach", "retreat"),
    ("hide", "emerge"),
)
BACKWARDS = dict(_PAIRS) | {second: first for first, second in _PAIRS}
SWAP_ROLES = frozenset({"chase", "bump"})  # backwards, actor and target change places
_CAMERA_BACKWARDS = {
    "pan left": "pan right",
    "pan right": "pan left",
    "pan up": "pan down",
    "pan down": "pan up",
    "zoom in": "zoom out",
    "zoom out": "zoom in",
}


@dataclass(frozen=True, slots=True)
class Track:
    """Position, size, rotation and opacity of one thing in every frame."""

    x: Array  # (N,)
    y: Array  # (N,)
    radius: Array  # (N,)
    angle: Array  # (N,) radians, clockwise
    opacity: Array  # (N,) 0 to 1

    def backwards(self) -> Track:
        return Track(self.x[::-1], self.y[::-1], self.radius[::-1], self.angle[::-1], self.opacity[::-1])

    def mirrored(self) -> Track:
        return replace(self, x=ASPECT - self.x, angle=-self.angle)


@dataclass(frozen=True, slots=True)
class Thing:
    id: str
    noun: str
    colour: str
    size: Size | None  # None if it changes
    depth: int  # higher is nearer to the camera
    track: Track
    named: bool = True  # whether captions may mention it; False for distractors


@dataclass(frozen=True, slots=True)
class Event:
    """`actor` does `verb`, to `target` if there is one, from frame `start` to frame `end`."""

    verb: str
    actor: str
    target: str | None
    direction: Direction | None  # of the actor's motion in the scene, if it has one
    start: int
    end: int

    def backwards(self, frames: int) -> Event:
        actor, target = self.actor, self.target
        if self.verb in SWAP_ROLES and target is not None:
            actor, target = target, actor
        return Event(
            verb=BACKWARDS.get(self.verb, self.verb),
            actor=actor,
            target=target,
            direction=self.direction and OPPOSITE[self.direction],
            start=frames - 1 - self.end,
            end=frames - 1 - self.start,
        )

    def mirrored(self) -> Event:
        if self.direction not in ("left", "right"):
            return self
        return replace(self, direction=OPPOSITE[self.direction])


@dataclass(frozen=True, slots=True)
class Camera:
    """The scene coordinates of the picture's centre, and the zoom, in every frame."""

    motion: str  # "still", "shake", "pan left", "zoom in", ...
    x: Array  # (N,)
    y: Array  # (N,)
    zoom: Array  # (N,)

    def backwards(self) -> Camera:
        motion = _CAMERA_BACKWARDS.get(self.motion, self.motion)
        return Camera(motion, self.x[::-1], self.y[::-1], self.zoom[::-1])

    def mirrored(self) -> Camera:
        is_horizontal = self.motion in ("pan left", "pan right")
        motion = _CAMERA_BACKWARDS[self.motion] if is_horizontal else self.motion
        return replace(self, motion=motion, x=ASPECT - self.x)

    def project(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Scene coordinates to picture coordinates, from 0 to 1 on both axes."""
        return (x - self.x) * self.zoom / ASPECT + 0.5, (y - self.y) * self.zoom + 0.5


@dataclass(frozen=True, slots=True)
class Scene:
    background: str
    texture_seed: int
    things: tuple[Thing, ...]
    events: tuple[Event, ...]  # in order of time
    camera: Camera

    @property
    def frames(self) -> int:
        return len(self.camera.x)

    def thing(self, name: str) -> Thing:
        return next(thing for thing in self.things if thing.id == name)

    def role(self, thing: Thing) -> Role:
        if any(event.actor == thing.id for event in self.events):
            return "actor"
        if any(event.target == thing.id for event in self.events):
            return "target"
        return "bystander" if thing.named else "distractor"

    def backwards(self) -> Scene:
        return replace(
            self,
            things=tuple(replace(thing, track=thing.track.backwards()) for thing in self.things),
            events=tuple(event.backwards(self.frames) for event in reversed(self.events)),
            camera=self.camera.backwards(),
        )

    def mirrored(self) -> Scene:
        return replace(
            self,
            things=tuple(replace(thing, track=thing.track.mirrored()) for thing in self.things),
            events=tuple(event.mirrored() for event in self.events),
            camera=self.camera.mirrored(),
        )
