"""Compose the scene of a clip from a seed and an index.

What distinguishes a caption from its opposite (left and right, growing and shrinking, coming and going, who
acts first) is decided by mirroring the finished scene and playing it backwards, each with probability 1/2. So
the frames without their order carry no information about it; nor do nouns, colours or the background.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from random import Random
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ctsan.data.corpus import Split
from ctsan.synthetic.motion import DUETS, SOLOS, rest
from ctsan.synthetic.scene import ASPECT, FPS, Array, Camera, Event, Scene, Size, Thing, Track

NOUNS = ("ball", "box", "triangle", "star", "ring", "cross", "heart", "moon", "flower", "leaf")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "white")
BACKGROUNDS = ("grass", "night", "checks", "stripes", "sand", "bricks", "water", "wood")
CAMERAS = ("pan left", "pan right", "pan up", "pan down", "zoom in", "zoom out", "shake")
SIZES: tuple[Size, ...] = ("small", "medium", "big", "big")  # twice, because big ones fit less often
RADII: dict[Size, tuple[float, float]] = {
    "small": (0.09, 0.10),
    "medium": (0.13, 0.145),
    "big": (0.185, 0.205),
}

_T = TypeVar("_T")

_MOVING_CAMERA_SHARE = 0.5  # of the clips
_PAN = 0.09
_ZOOM = 1.12
_ROOM = (0.1, 0.09, ASPECT - 0.1, 0.91)  # left, top, right, bottom: visible whatever the camera does
_SOLID = ("ball", "box", "heart", "flower")  # wide enough on all sides to hide a small thing
_WIDE = tuple(noun for noun in NOUNS if noun not in ("leaf", "moon"))  # wide enough to touch a neighbour
_ROLLING = ("ball", "ring")
# Twenty clips contain every duet once, four solos, and seven sequences of two solos.
_PLAN = (*DUETS, *["solo"] * 4, *["sequence"] * 7)
_SPLITS: dict[str, Split] = {"t": "train", "v": "val", "e": "test"}
_SPLIT_PLAN = "tttvttetttvttetttvte"


def split_of(index: int) -> Split:
    """The split of a clip: 70/15/15, evenly spread, whatever the number of clips."""
    return _SPLITS[_SPLIT_PLAN[index % len(_SPLIT_PLAN)]]


def compose(seed: int, index: int, *, simple: bool = False) -> Scene:
    """The scene of clip `index`; it depends only on the arguments.

    Args:
        simple: one large thing, one event, and a still camera.
    """
    kind, backwards, mirrored = _plan(seed, index)
    rng = Random(f"scene {seed} {index}")
    if simple:
        return _transformed(_simple(rng), backwards=backwards, mirrored=mirrored)
    one_actor = rng.random() < 0.4
    solos = rng.sample(list(SOLOS), 2) if one_actor else rng.choices(list(SOLOS), k=2)
    frames = rng.randint(51, 60) if kind == "sequence" else rng.randint(42, 60)
    if kind in DUETS:
        things, events = _retry(lambda: _duet(kind, frames, rng))
    else:
        kinds = solos if kind == "sequence" else solos[:1]
        things, events = _retry(lambda: _solos(kinds, frames, one_actor, rng))
    things += _bystanders(things, frames, rng)
    things = _with_looks(things, events, rng)
    things += [_distractor(number, frames, rng) for number in range(rng.randint(1, 4))]
    scene = Scene(
        background=rng.choice(BACKGROUNDS),
        texture_seed=rng.getrandbits(32),
        things=tuple(things),
        events=tuple(events),
        camera=_camera(frames, rng),
    )
    return _transformed(scene, backwards=backwards, mirrored=mirrored)


def _simple(rng: Random) -> Scene:
    frames = rng.randint(42, 60)
    solo = rng.choice(list(SOLOS))
    things, events = _retry(lambda: _solos([solo], frames, False, rng, sizes=("big",)))
    return Scene(
        background=rng.choice(BACKGROUNDS),
        texture_seed=rng.getrandbits(32),
        things=tuple(_with_looks(things, events, rng)),
        events=tuple(events),
        camera=_still_camera(frames),
    )


def _transformed(scene: Scene, *, backwards: bool, mirrored: bool) -> Scene:
    if backwards:
        scene = scene.backwards()
    return scene.mirrored() if mirrored else scene


def _plan(seed: int, index: int) -> tuple[str, bool, bool]:
    """The kind of a clip, and whether to play it backwards and to mirror it, balanced for every kind."""
    block, position = divmod(index, len(_PLAN))
    order = Random(f"plan {seed} {block}").sample(_PLAN, len(_PLAN))
    kind = order[position]
    number = block * _PLAN.count(kind) + order[:position].count(kind)  # among clips of this kind
    ways = [(False, False), (False, True), (True, False), (True, True)]
    backwards, mirrored = Random(f"ways {seed} {kind} {number // 4}").sample(ways, 4)[number % 4]
    return kind, backwards, mirrored


def _retry(attempt: Callable[[], _T | None]) -> _T:
    """Repeat an attempt, with the next random numbers, until everything fits into the picture."""
    while (result := attempt()) is None:
        pass
    return result


def _duet(kind: str, frames: int, rng: Random) -> tuple[list[Thing], list[Event]] | None:
    sizes: list[Size] = ["small", "big"] if kind == "hide" else [rng.choice(SIZES), rng.choice(SIZES)]
    actor, target = (_placed(name, size, frames, rng) for name, size in zip("ab", sizes, strict=True))
    start, end = _span(frames, rng)
    first, second, direction = DUETS[kind](actor.track, target.track, _progress(frames, start, end), rng)
    left, top, right, bottom = _bounds([first, second])
    if right - left > _ROOM[2] - _ROOM[0] or bottom - top > _ROOM[3] - _ROOM[1]:
        return None
    x, y = rng.uniform(_ROOM[0] - left, _ROOM[2] - right), rng.uniform(_ROOM[1] - top, _ROOM[3] - bottom)
    first, second = (replace(track, x=track.x + x, y=track.y + y) for track in (first, second))
    depth = 1 if kind in ("pass behind", "hide") else 3
    things = [replace(actor, track=first, depth=depth), replace(target, track=second)]
    return things, [Event(kind, actor.id, target.id, direction, start, end)]


def _solos(
    kinds: list[str], frames: int, one_actor: bool, rng: Random, *, sizes: tuple[Size, ...] = SIZES
) -> tuple[list[Thing], list[Event]] | None:
    """One event, or a sequence of two, by one thing or by two."""
    if len(kinds) == 1:
        acts_by_thing = [[(kinds[0], *_span(frames, rng))]]
    else:
        first = kinds[0], rng.randint(1, 2), frames // 2 - 1
        second = kinds[1], frames // 2 + 1, frames - 1 - rng.randint(1, 2)
        acts_by_thing = [[first, second]] if one_actor else [[first], [second]]
    actors = [
        _retry(partial(_actor, name, acts, frames, sizes, rng))
        for name, acts in zip("ab", acts_by_thing, strict=False)
    ]
    things = [thing for thing, _ in actors]
    if not all(_apart(one.track, other.track) for one, other in combinations(things, 2)):
        return None
    return things, [event for _, events in actors for event in events]


def _actor(
    name: str, acts: list[tuple[str, int, int]], frames: int, sizes: tuple[Size, ...], rng: Random
) -> tuple[Thing, list[Event]] | None:
    """One thing and its events; None if it leaves the picture.

    Args:
        acts: motions with their first and last frame.
    """
    changes_size = any(kind == "grow" for kind, _, _ in acts)
    thing = _placed(name, "medium" if changes_size else rng.choice(sizes), frames, rng)
    track, events = thing.track, []
    is_inside = np.ones(frames, dtype=bool)
    for number, (kind, start, end) in enumerate(acts):
        verb, motion = SOLOS[kind]
        # A thing must not act before it appears or after it disappears.
        has_fixed_direction = len(acts) > 1 and kind in ("appear", "enter")
        backwards = number == 1 if has_fixed_direction else rng.random() < 0.5
        u = _progress(frames, start, end)
        track, direction = motion(track, 1 - u if backwards else u, rng)
        event = Event(verb, name, None, direction, start, end)
        events.append(replace(event.backwards(frames), start=start, end=end) if backwards else event)
        if kind == "enter":
            is_inside &= u == (0 if backwards else 1)
    left, top, right, bottom = _bounds([track], is_inside)
    if left < _ROOM[0] or top < _ROOM[1] or right > _ROOM[2] or bottom > _ROOM[3]:
        return None
    return replace(thing, track=track, size=None if changes_size else thing.size), events


def _span(frames: int, rng: Random) -> tuple[int, int]:
    """The first and last frame of an event."""
    return rng.randint(2, 6), frames - 1 - rng.randint(2, 6)


def _placed(name: str, size: Size, frames: int, rng: Random) -> Thing:
    """A thing at rest at a random position, without noun and colour."""
    left, top, right, bottom = _ROOM
    radius = rng.uniform(*RADII[size])
    x, y = rng.uniform(left + radius, right - radius), rng.uniform(top + radius, bottom - radius)
    track = rest(frames, x, y, radius, rng.uniform(-0.3, 0.3))
    return Thing(name, noun="", colour="", size=size, depth=2, track=track)


def _progress(frames: int, start: int, end: int) -> Array:
    return np.clip((np.arange(frames) - start) / (end - start), 0, 1)


def _bounds(
    tracks: Sequence[Track], when: NDArray[np.bool_] | slice = slice(None)
) -> tuple[float, float, float, float]:
    """The box (left, top, right, bottom) around all tracks in all frames."""
    return (
        min(float((track.x - track.radius)[when].min()) for track in tracks),
        min(float((track.y - track.radius)[when].min()) for track in tracks),
        max(float((track.x + track.radius)[when].max()) for track in tracks),
        max(float((track.y + track.radius)[when].max()) for track in tracks),
    )


def _apart(one: Track, other: Track) -> bool:
    """Whether two things never touch."""
    distance = np.hypot(one.x - other.x, one.y - other.y)
    return bool((distance > one.radius + other.radius + 0.02).all())


def _bystanders(actors: list[Thing], frames: int, rng: Random) -> list[Thing]:
    """Up to two things at rest that touch no other thing; fewer if there is no room."""
    bystanders: list[Thing] = []
    count = rng.choice((0, 1, 1, 2)) if len(actors) > 1 else rng.choice((1, 1, 2))
    for name in "cd"[:count]:
        size = rng.choice(SIZES)
        for _ in range(30):
            thing = _placed(name, size, frames, rng)
            if all(_apart(thing.track, other.track) for other in actors + bystanders):
                bystanders.append(thing)
                break
    return bystanders


def _with_looks(things: list[Thing], events: list[Event], rng: Random) -> list[Thing]:
    """The things with random nouns and colours; two things may share one of the two, never both."""
    hiding_places = {event.target for event in events if event.verb == "hide"}
    touching = {
        name for event in events if event.verb in ("bump", "push") for name in (event.actor, event.target)
    }
    used: set[tuple[str, str]] = set()
    with_looks = []
    for thing in things:
        nouns = _SOLID if thing.id in hiding_places else _WIDE if thing.id in touching else NOUNS
        while True:
            look = rng.choice(nouns), rng.choice(COLOURS)
            if look not in used:
                break
        used.add(look)
        noun, colour = look
        track = thing.track
        if noun in _ROLLING:
            track = replace(track, angle=track.angle + 0.6 * (track.x - track.x[0]) / track.radius[0])
        with_looks.append(replace(thing, noun=noun, colour=colour, track=track))
    return with_looks


def _distractor(number: int, frames: int, rng: Random) -> Thing:
    """A small grey speck behind all things, at rest or drifting, that no caption mentions."""
    x, y, radius = rng.uniform(0, ASPECT), rng.uniform(0, 1), rng.uniform(0.03, 0.045)
    track = rest(frames, x, y, radius, rng.uniform(-np.pi, np.pi))
    if rng.random() < 0.5:
        heading, way = rng.uniform(-np.pi, np.pi), rng.uniform(0.1, 0.4) * np.linspace(-0.5, 0.5, frames)
        track = replace(track, x=track.x + way * np.cos(heading), y=track.y + way * np.sin(heading))
    return Thing(f"s{number}", "speck", "grey", "small", depth=0, track=track, named=False)


def _still_camera(frames: int) -> Camera:
    return Camera("still", np.full(frames, ASPECT / 2), np.full(frames, 0.5), np.ones(frames))


def _camera(frames: int, rng: Random) -> Camera:
    motion = rng.choice(CAMERAS) if rng.random() < _MOVING_CAMERA_SHARE else "still"
    still = _still_camera(frames)
    x, y, zoom = still.x, still.y, still.zoom
    sweep = np.linspace(-1, 1, frames)
    match motion.split():
        case ["pan", "left" | "right" as side]:
            x = x + _PAN * sweep * (1 if side == "right" else -1)
        case ["pan", side]:
            y = y + 0.8 * _PAN * sweep * (1 if side == "down" else -1)
        case ["zoom", way]:
            zoom = _ZOOM ** (sweep if way == "in" else -sweep)
        case ["shake"]:
            phase = 2 * np.pi * np.arange(frames) / FPS
            x = x + 0.022 * np.sin(1.9 * phase + rng.uniform(0, 6))
            y = y + 0.022 * np.sin(1.55 * phase + rng.uniform(0, 6))
    return Camera(motion, x, y, zoom)
