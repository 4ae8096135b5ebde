"""Write varied captions of a scene: all are true, none is complete.

The grammar consists of templates. `(x|y)` is a choice. Capitals are placeholders: A and B for noun phrases of
things, SIDE and FROM for directions, X and Y for clauses. A word with `*` is a verb and refers to the actor
and the target. A word never refers to a thing in one caption and to something else in another, which is why
a camera "pans" and a thing "moves".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from ctsan.synthetic.scene import OPPOSITE, Event, Scene, Thing

NAMES = {
    "ball": ("ball", "ball", "ball", "circle", "disc"),
    "box": ("box", "box", "square", "cube"),
    "triangle": ("triangle",),
    "star": ("star",),
    "ring": ("ring", "ring", "hoop"),
    "cross": ("cross",),
    "heart": ("heart",),
    "moon": ("moon", "moon", "crescent"),
    "flower": ("flower", "flower", "blossom"),
    "leaf": ("leaf",),
}
SIZE_WORDS = {"small": ("small", "little", "tiny"), "big": ("big", "large", "huge")}

EVENTS = {
    "move left": "A (moves|slides|glides|drifts|goes|is moving)* (SIDE|to the SIDE)",
    "move right": "A (moves|slides|glides|drifts|goes|is moving)* (SIDE|to the SIDE)",
    "move up": "A (moves|goes|rises|climbs|is moving)* (up|up|upwards)",
    "move down": "A (moves|goes|falls|drops|is moving)* (down|down|downwards)",
    "enter": "A (enters*|enters*|comes* in|is coming* in) from the FROM",
    "leave": "A (leaves*|leaves* the picture|goes* out|is leaving*) to the SIDE",
    "bounce": "A (bounces*|hops*|is bouncing*|jumps* up and down|bounces* up and down)",
    "zigzag": "A (zigzags*|moves* in a zigzag|goes* in a zigzag) to the SIDE",
    "circle": "A (moves|goes|flies|is flying)* (round and round|in circles)",
    "shake": "A (shakes|trembles|wobbles|is shaking)*",
    "spin": "A (spins*|rotates*|turns* around|is spinning*)",
    "grow": "A (grows*|gets* bigger|becomes* larger|is growing*)",
    "shrink": "A (shrinks*|gets* smaller|becomes* smaller|is shrinking*)",
    "appear": "A (appears*|fades* in|becomes* visible|slowly appears*)",
    "disappear": "A (disappears*|fades* away|vanishes*|slowly disappears*)",
    "pass behind": "A (passes|goes|is passing)* behind B (|to the SIDE|from FROM to SIDE)",
    "pass in front": "A (passes|goes|is passing)* in front of B (|to the SIDE|from FROM to SIDE)",
    "jump": "A (jumps|leaps|hops|is jumping)* over B (|to the SIDE|from FROM to SIDE)",
    "chase": "(A (chases|follows|is chasing)* B|B is (chased|followed)* by A) (|to the SIDE)",
    "bump": "(A (bumps* into|hits*|knocks* into) B|B is hit* by A) (|from the FROM)",
    "push": "(A (pushes|is pushing)* B|B is pushed* by A) (|to the SIDE)",
    "pull": "(A (pulls|is pulling)* B|B is pulled* by A) (|to the SIDE)",
    "approach": "A (approaches*|moves* towards|comes* closer to|gets* closer to) B",
    "retreat": "A (moves|goes|drifts|backs|is moving)* away from B",
    "hide": "A (hides|hides|disappears|is hiding)* behind B",
    "emerge": "A (comes* out|appears*|is coming* out) from behind B",
    "orbit": "A (circles*|circles* around|moves* around|flies* around|goes* around) B",
}
ROLLS = "A (rolls|rolls|is rolling)* (SIDE|to the SIDE)"

IN_ORDER = "(first X then Y|X and then Y|X then Y|X before Y|after X Y|Y after X|X and afterwards Y)"
IN_ORDER_ONE_ACTOR = "(first X then Y|X and then Y|X then Y|X before it Y|X and afterwards it Y)"

BACKGROUNDS = {
    "grass": "on (the grass|the grass|a lawn)",
    "night": "(at night|in the night sky|in the dark)",
    "checks": "on a (checkered|tiled) floor",
    "stripes": "(on|against) a striped wall",
    "sand": "on (the sand|a beach)",
    "bricks": "(on|against) a brick wall",
    "water": "on (the water|the water|a lake)",
    "wood": "on (a wooden floor|wooden boards)",
}
CAMERAS = {
    "pan left": "the camera (pans|pans|swings) (SIDE|to the SIDE)",
    "pan right": "the camera (pans|pans|swings) (SIDE|to the SIDE)",
    "pan up": "the camera (pans|tilts) SIDE",
    "pan down": "the camera (pans|tilts) SIDE",
    "zoom in": "the camera zooms in",
    "zoom out": "the camera zooms out",
    "shake": "the (camera|picture) (is shaky|jitters)",
}
WITH_CAMERA = "(X (while|as) Y|(while|as) Y X|Y and X)"
WITH_BYSTANDER = "(X (while|and) Y|Y (while|and) X)"
STAYS = "A (stays* still|does not move*)"
LIES = "A (is|sits*|rests*|stays*|lies*)"

_NUM_CAPTIONS = 5  # of a scene


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    refers_to: tuple[str, ...] = ()  # ids of things


Phrase = list[Word]


def write_captions(scene: Scene, rng: Random) -> list[tuple[Word, ...]]:
    """Distinct captions of a scene."""
    captions: dict[str, tuple[Word, ...]] = {}
    while len(captions) < _NUM_CAPTIONS:
        words = _CaptionWriter(scene, rng).sentence()
        captions[" ".join(word.text for word in words)] = tuple(words)
    return list(captions.values())


class _CaptionWriter:
    """Writes one caption, and keeps track of the things that it has mentioned."""

    def __init__(self, scene: Scene, rng: Random) -> None:
        self.scene = scene
        self.rng = rng
        self.named = [thing for thing in scene.things if thing.named]
        self.nouns: dict[str, str] = {}  # the noun of each mentioned thing, by id
        self.article = rng.choice(("a", "a", "the"))

    def sentence(self) -> Phrase:
        """One event or both, and perhaps the background, the camera or a bystander."""
        events = self.scene.events
        if len(events) > 1 and self.rng.random() < 0.25:
            events = (self.rng.choice(events),)
        motion = self.scene.camera.motion
        bystanders = [thing for thing in self.named if self.scene.role(thing) == "bystander"]
        match self.rng.choice(("", "background", "camera", "bystander")):
            case "background":
                background = self.expand(BACKGROUNDS[self.scene.background])
                clauses = self.event_clauses(events)
                return clauses + background if self.rng.random() < 0.7 else background + clauses
            case "camera" if motion != "still":
                camera = CAMERAS[motion].replace("SIDE", motion.split()[-1])
                return self.expand(
                    WITH_CAMERA, X=lambda: self.event_clauses(events), Y=lambda: self.expand(camera)
                )
            case "bystander" if bystanders and len(events) == 1:
                bystander = self.rng.choice(bystanders)
                return self.expand(
                    WITH_BYSTANDER,
                    X=lambda: self.event_clauses(events),
                    Y=lambda: self.bystander_clause(bystander),
                )
        return self.event_clauses(events)

    def event_clauses(self, events: tuple[Event, ...]) -> Phrase:
        if len(events) == 1:
            with_location = self.rng.random() < 0.5
            clause = self.clause(events[0])
            return clause + (self.location(self.scene.thing(events[0].actor)) if with_location else [])
        first, second = events
        one_actor = first.actor == second.actor  # the second clause then has no subject
        return self.expand(
            IN_ORDER_ONE_ACTOR if one_actor else IN_ORDER,
            X=lambda: self.clause(first),
            Y=lambda: self.clause(second, subject=not one_actor),
        )

    def clause(self, event: Event, *, subject: bool = True) -> Phrase:
        actor = self.scene.thing(event.actor)
        template = EVENTS.get(event.verb) or EVENTS[f"{event.verb} {event.direction}"]
        if event.verb == "move" and event.direction in ("left", "right") and actor.noun in ("ball", "ring"):
            template = self.rng.choice((template, ROLLS))
        if event.direction is not None:
            template = template.replace("SIDE", event.direction).replace("FROM", OPPOSITE[event.direction])
        return self.expand(
            template,
            verb_refers_to=tuple(name for name in (event.actor, event.target) if name is not None),
            A=lambda: self.noun_phrase(actor) if subject else [],
            B=lambda: self.noun_phrase(self.scene.thing(event.target or "")),
        )

    def bystander_clause(self, thing: Thing) -> Phrase:
        location = self.location(thing) if self.rng.random() < 0.7 else []
        template = LIES if location else STAYS
        if location and self.article == "a" and self.rng.random() < 0.3:
            template = "there is A"
        clause = self.expand(template, verb_refers_to=(thing.id,), A=lambda: self.noun_phrase(thing))
        return clause + location

    def expand(
        self, template: str, *, verb_refers_to: tuple[str, ...] = (), **parts: Callable[[], Phrase]
    ) -> Phrase:
        """Resolve the choices of a template and fill its placeholders, in reading order."""
        while "(" in template:
            template = re.sub(r"\(([^()]*)\)", lambda choice: self.rng.choice(choice[1].split("|")), template)
        phrase: Phrase = []
        for token in template.split():
            if token in parts:
                phrase += parts[token]()
            else:
                phrase.append(Word(token.rstrip("*"), verb_refers_to if token.endswith("*") else ()))
        return phrase

    def noun_phrase(self, thing: Thing) -> Phrase:
        """A noun phrase, longer at the first mention, that is never ambiguous."""
        is_mentioned = thing.id in self.nouns
        same_noun = any(other.noun == thing.noun for other in self.named if other is not thing)
        same_colour = any(other.colour == thing.colour for other in self.named if other is not thing)
        if not is_mentioned:
            is_vague = not same_colour and self.rng.random() < 0.06
            self.nouns[thing.id] = self.rng.choice(("shape", "object") if is_vague else NAMES[thing.noun])
        noun = self.nouns[thing.id]
        words = []
        if not is_mentioned and thing.size in SIZE_WORDS and self.rng.random() < 0.4:
            words.append(self.rng.choice(SIZE_WORDS[thing.size]))
        if same_noun or noun not in NAMES[thing.noun] or self.rng.random() < (0.2 if is_mentioned else 0.75):
            words.append(thing.colour)
        words.append(noun)
        article = "the" if is_mentioned else self.article
        if article == "a" and words[0][0] in "aeiou":
            article = "an"
        return [Word(article), *(Word(word, (thing.id,)) for word in words)]

    def location(self, thing: Thing) -> Phrase:
        """Where a thing is in all frames, in the picture or relative to another; empty if no phrase fits."""
        spot = location_in_picture(self.scene, thing)
        choices = [(spot, thing)] * 2 if spot else []
        for other in self.named:
            if other is not thing and (relation := location_relative_to(thing, other)):
                choices.append((f"{relation} B", other))
        if not choices:
            return []
        template, other = self.rng.choice(choices)
        return self.expand(template, B=lambda: self.noun_phrase(other))


def location_in_picture(scene: Scene, thing: Thing) -> str:
    """The part of the picture where a thing is in all frames, as a template; "" if none fits."""
    if not _is_at_rest(thing):
        return ""
    x, y = scene.camera.project(thing.track.x, thing.track.y)
    horizontal = "left" if x.max() < 0.38 else "right" if x.min() > 0.62 else ""
    vertical = "top" if y.max() < 0.38 else "bottom" if y.min() > 0.62 else ""
    if horizontal and vertical:
        return f"(in the {vertical} {horizontal} corner|at the {vertical} {horizontal})"
    if horizontal:
        return f"(on the {horizontal}|on the {horizontal} side)"
    if vertical:
        return f"at the {vertical}"
    return "in the middle" if max(abs(x - 0.5).max(), abs(y - 0.5).max()) < 0.12 else ""


def location_relative_to(thing: Thing, other: Thing) -> str:
    """The position of a thing relative to another one in all frames, as a template; "" if none fits."""
    if not (_is_at_rest(thing) and _is_at_rest(other)):
        return ""
    right = float(thing.track.x[0] - other.track.x[0])
    down = float(thing.track.y[0] - other.track.y[0])
    if max(abs(right), abs(down)) > 0.5:
        return ""
    if abs(right) > 2 * abs(down):
        side = "right" if right > 0 else "left"
        return f"(to the {side} of|on the {side} of|next to)"
    if abs(down) > 2 * abs(right):
        return "below" if down > 0 else "above"
    return "near"


def _is_at_rest(thing: Thing) -> bool:
    return float(np.ptp(thing.track.x) + np.ptp(thing.track.y)) < 1e-9
