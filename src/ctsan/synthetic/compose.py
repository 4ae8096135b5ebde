"""Choosing what happens in the clip of a seed and an index.

What distinguishes one sentence from its opposite (left and right, growing and shrinking, coming and going,
who acts first) is decided by mirroring the finished scene and playing it backwards, each half of the time. So
the pictures of a clip, taken without their order, say nothing about it; nor do nouns, colours or background.
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
SIZES: tuple[Size, ...] = ("small", "medium", "big", "big")  # big ones find no room more often
RADII: dict[Size, tuple[float, float]] = {
    "small": (0.09, 0.10),
    "medium": (0.13, 0.145),
    "big": (0.185, 0.205),
}

_T = TypeVar("_T")

_CAMERA_MOVES = 0.5  # share of the clips
_PAN = 0.09
_ZOOM = 1.12
_ROOM = (0.1, 0.09, ASPECT - 0.1, 0.91)  # stays in the picture whatever the camera does
_SOLID = ("ball", "box", "heart", "flower")  # wide enough all round to hide a small thing behind
_WIDE = tuple(noun for noun in NOUNS if noun not in ("leaf", "moon"))  # seen to touch what is beside them
_ROLLING = ("ball", "ring")
# Twenty clips hold every duet once, four solos and seven pairs of solos one after the other.
_PLAN = (*DUETS, *["solo"] * 4, *["sequence"] * 7)
_SPLITS: dict[str, Split] = {"t": "train", "v": "val", "e": "test"}
_SPLIT_PLAN = "tttvttetttvttetttvte"


def split_of(index: int) -> Split:
    """70/15/15, evenly spread, and the same however many clips are made."""
    return _SPLITS[_SPLIT_PLAN[index % len(_SPLIT_PLAN)]]


def compose(seed: int, index: int, *, simple: bool = False) -> Scene:
    """The scene of clip `index`; it depends on nothing but what is given.

    A simple one has one large thing that does one thing, and a camera that stands still.
    """
    kind, backwards, mirrored = _plan(seed, index)
    rng = Random(f"scene {seed} {index}")
    if simple:
        return _turned(_simple(rng), backwards=backwards, mirrored=mirrored)
    together = rng.random() < 0.4
    solos = rng.sample(list(SOLOS), 2) if together else rng.choices(list(SOLOS), k=2)
    frames = rng.randint(51, 60) if kind == "sequence" else rng.randint(42, 60)
    if kind in DUETS:
        things, events = _until(lambda: _duet(kind, frames, rng))
    else:
        kinds = solos if kind == "sequence" else solos[:1]
        things, events = _until(lambda: _solos(kinds, frames, together, rng))
    things += _bystanders(things, frames, rng)
    things = _dress(things, events, rng)
    things += [_distractor(number, frames, rng) for number in range(rng.randint(1, 4))]
    scene = Scene(
        background=rng.choice(BACKGROUNDS),
        texture_seed=rng.getrandbits(32),
        things=tuple(things),
        events=tuple(events),
        camera=_camera(frames, rng),
    )
    return _turned(scene, backwards=backwards, mirrored=mirrored)


def _simple(rng: Random) -> Scene:
    frames = rng.randint(42, 60)
    solo = rng.choice(list(SOLOS))
    things, events = _until(lambda: _solos([solo], frames, False, rng, sizes=("big",)))
    return Scene(
        background=rng.choice(BACKGROUNDS),
        texture_seed=rng.getrandbits(32),
        things=tuple(_dress(things, events, rng)),
        events=tuple(events),
        camera=_held(frames),
    )


def _turned(scene: Scene, *, backwards: bool, mirrored: bool) -> Scene:
    if backwards:
        scene = scene.backwards()
    return scene.mirrored() if mirrored else scene


def _plan(seed: int, index: int) -> tuple[str, bool, bool]:
    """The kind of a clip, whether to play it backwards and whether to mirror it; every kind has all four."""
    block, place = divmod(index, len(_PLAN))
    order = Random(f"plan {seed} {block}").sample(_PLAN, len(_PLAN))
    kind = order[place]
    turn = block * _PLAN.count(kind) + order[:place].count(kind)
    ways = [(False, False), (False, True), (True, False), (True, True)]
    backwards, mirrored = Random(f"ways {seed} {kind} {turn // 4}").sample(ways, 4)[turn % 4]
    return kind, backwards, mirrored


def _until(attempt: Callable[[], _T | None]) -> _T:
    """Try again with the next random numbers until everything fits in."""
    while (result := attempt()) is None:
        pass
    return result


def _duet(kind: str, frames: int, rng: Random) -> tuple[list[Thing], list[Event]] | None:
    sizes: list[Size] = ["small", "big"] if kind == "hide" else [rng.choice(SIZES), rng.choice(SIZES)]
    actor, target = (_placed(name, size, frames, rng) for name, size in zip("ab", sizes, strict=True))
    start, end = _span(frames, rng)
    first, second, direction = DUETS[kind](actor.track, target.track, _progress(frames, start, end), rng)
    left, top, right, bottom = _borders([first, second])
    if right - left > _ROOM[2] - _ROOM[0] or bottom - top > _ROOM[3] - _ROOM[1]:
        return None
    x, y = rng.uniform(_ROOM[0] - left, _ROOM[2] - right), rng.uniform(_ROOM[1] - top, _ROOM[3] - bottom)
    first, second = (replace(track, x=track.x + x, y=track.y + y) for track in (first, second))
    depth = 1 if kind in ("pass behind", "hide") else 3
    things = [replace(actor, track=first, depth=depth), replace(target, track=second)]
    return things, [Event(kind, actor.id, target.id, direction, start, end)]


def _solos(
    kinds: list[str], frames: int, together: bool, rng: Random, *, sizes: tuple[Size, ...] = SIZES
) -> tuple[list[Thing], list[Event]] | None:
    """One event, or two in a row, by two things or `together` by one."""
    if len(kinds) == 1:
        parts = [[(kinds[0], *_span(frames, rng))]]
    else:
        first = kinds[0], rng.randint(1, 2), frames // 2 - 1
        second = kinds[1], frames // 2 + 1, frames - 1 - rng.randint(1, 2)
        parts = [[first, second]] if together else [[first], [second]]
    done = [
        _until(partial(_part, name, part, frames, sizes, rng))
        for name, part in zip("ab", parts, strict=False)
    ]
    things = [thing for thing, _ in done]
    if not all(_apart(one.track, other.track) for one, other in combinations(things, 2)):
        return None
    return things, [event for _, events in done for event in events]


def _part(
    name: str, acts: list[tuple[str, int, int]], frames: int, sizes: tuple[Size, ...], rng: Random
) -> tuple[Thing, list[Event]] | None:
    """What one thing does: each motion with its first and last frame."""
    changes_size = any(kind == "grow" for kind, _, _ in acts)
    thing = _placed(name, "medium" if changes_size else rng.choice(sizes), frames, rng)
    track, events = thing.track, []
    inside = np.ones(frames, dtype=bool)
    for turn, (kind, start, end) in enumerate(acts):
        verb, motion = SOLOS[kind]
        # Nothing acts before it has come or after it has gone.
        bound = len(acts) > 1 and kind in ("appear", "enter")
        backwards = turn == 1 if bound else rng.random() < 0.5
        u = _progress(frames, start, end)
        track, direction = motion(track, 1 - u if backwards else u, rng)
        event = Event(verb, name, None, direction, start, end)
        events.append(replace(event.backwards(frames), start=start, end=end) if backwards else event)
        if kind == "enter":
            inside &= u == (0 if backwards else 1)
    left, top, right, bottom = _borders([track], inside)
    if left < _ROOM[0] or top < _ROOM[1] or right > _ROOM[2] or bottom > _ROOM[3]:
        return None
    return replace(thing, track=track, size=None if changes_size else thing.size), events


def _span(frames: int, rng: Random) -> tuple[int, int]:
    return rng.randint(2, 6), frames - 1 - rng.randint(2, 6)


def _placed(name: str, size: Size, frames: int, rng: Random) -> Thing:
    left, top, right, bottom = _ROOM
    radius = rng.uniform(*RADII[size])
    x, y = rng.uniform(left + radius, right - radius), rng.uniform(top + radius, bottom - radius)
    track = rest(frames, x, y, radius, rng.uniform(-0.3, 0.3))
    return Thing(name, noun="", colour="", size=size, depth=2, track=track)


def _progress(frames: int, start: int, end: int) -> Array:
    return np.clip((np.arange(frames) - start) / (end - start), 0, 1)


def _borders(
    tracks: Sequence[Track], when: NDArray[np.bool_] | slice = slice(None)
) -> tuple[float, float, float, float]:
    """The box (left, top, right, bottom) that holds all tracks at all times."""
    return (
        min(float((track.x - track.radius)[when].min()) for track in tracks),
        min(float((track.y - track.radius)[when].min()) for track in tracks),
        max(float((track.x + track.radius)[when].max()) for track in tracks),
        max(float((track.y + track.radius)[when].max()) for track in tracks),
    )


def _apart(one: Track, other: Track) -> bool:
    distance = np.hypot(one.x - other.x, one.y - other.y)
    return bool((distance > one.radius + other.radius + 0.02).all())


def _bystanders(acting: list[Thing], frames: int, rng: Random) -> list[Thing]:
    """Up to two things that stay still, clear of all that happens; crowded scenes have fewer."""
    standing: list[Thing] = []
    wanted = rng.choice((0, 1, 1, 2)) if len(acting) > 1 else rng.choice((1, 1, 2))
    for name in "cd"[:wanted]:
        size = rng.choice(SIZES)
        for _ in range(30):
            thing = _placed(name, size, frames, rng)
            if all(_apart(thing.track, other.track) for other in acting + standing):
                standing.append(thing)
                break
    return standing


def _dress(things: list[Thing], events: list[Event], rng: Random) -> list[Thing]:
    """Nouns and colours at random; two things may share one of the two, never both."""
    hiding_places = {event.target for event in events if event.verb == "hide"}
    touching = {
        name for event in events if event.verb in ("bump", "push") for name in (event.actor, event.target)
    }
    taken: set[tuple[str, str]] = set()
    dressed = []
    for thing in things:
        nouns = _SOLID if thing.id in hiding_places else _WIDE if thing.id in touching else NOUNS
        while True:
            look = rng.choice(nouns), rng.choice(COLOURS)
            if look not in taken:
                break
        taken.add(look)
        noun, colour = look
        track = thing.track
        if noun in _ROLLING:
            track = replace(track, angle=track.angle + 0.6 * (track.x - track.x[0]) / track.radius[0])
        dressed.append(replace(thing, noun=noun, colour=colour, track=track))
    return dressed


def _distractor(number: int, frames: int, rng: Random) -> Thing:
    """A small grey speck behind everything, at rest or drifting, that no caption names."""
    x, y, radius = rng.uniform(0, ASPECT), rng.uniform(0, 1), rng.uniform(0.03, 0.045)
    track = rest(frames, x, y, radius, rng.uniform(-np.pi, np.pi))
    if rng.random() < 0.5:
        heading, way = rng.uniform(-np.pi, np.pi), rng.uniform(0.1, 0.4) * np.linspace(-0.5, 0.5, frames)
        track = replace(track, x=track.x + way * np.cos(heading), y=track.y + way * np.sin(heading))
    return Thing(f"s{number}", "speck", "grey", "small", depth=0, track=track, named=False)


def _held(frames: int) -> Camera:
    return Camera("still", np.full(frames, ASPECT / 2), np.full(frames, 0.5), np.ones(frames))


def _camera(frames: int, rng: Random) -> Camera:
    motion = rng.choice(CAMERAS) if rng.random() < _CAMERA_MOVES else "still"
    held = _held(frames)
    x, y, zoom = held.x, held.y, held.zoom
    sweep = np.linspace(-1, 1, frames)
    match motion.split():
        case ["pan", "left" | "right" as side]:
            x = x + _PAN * sweep * (1 if side == "right" else -1)
        case ["pan", side]:
            y = y + 0.8 * _PAN * sweep * (1 if side == "down" else -1)
        case ["zoom", way]:
            zoom = _ZOOM ** (sweep if way == "in" else -sweep)
        case ["shake"]:
            beat = 2 * np.pi * np.arange(frames) / FPS
            x = x + 0.022 * np.sin(1.9 * beat + rng.uniform(0, 6))
            y = y + 0.022 * np.sin(1.55 * beat + rng.uniform(0, 6))
    return Camera(motion, x, y, zoom)
