"""Faults of captions that rules can find and that n-gram metrics hardly see."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from ctsan.text.tokens import tokenize

_FINITE = re.compile(r"is|are|was|were")
# After one of these a finite verb has a subject of its own, and after a relative one the main clause goes on.
_NEW_CLAUSE = re.compile(r"and|as|because|but|how|if|or|so|then|when|while|why")
_RELATIVE = re.compile(r"that|what|where|which|who|whom|whose")
_NEVER_LAST = re.compile(r"a|an|and|his|into|of|or|the|their|while|with")
_ARTICLE = re.compile(r"a|an|the")
_PREPOSITION = re.compile(r"about|at|by|for|from|in|into|near|of|on|over|through|to|under|with|holding")
# Heads of subjects, and what they never do.
_THING = re.compile(
    r"ball|boat|bowl|building|car|clip|computer|cup|dish|food|game|guitar|house|ingredients|kitchen|meal"
    r"|motorcycle|movie|onion|pan|paper|phone|picture|pot|recipe|road|room|screen|song|stage|street|table|train"
    r"|truck|vehicle|water"
)
_DEED = re.compile(
    r"acting|applying|arguing|chatting|crying|dancing|discussing|drinking|eating|explaining|holding|kissing"
    r"|laughing|looking|reading|singing|sleeping|smiling|speaking|swimming|talking|walking|watching|wearing"
)


def grammar_fault(caption: str) -> str | None:
    """The first fault of a caption, in words; None where no rule finds one."""
    words = tokenize(caption)
    if not words:
        return "it is empty"
    return (
        _second_verb(words)
        or (f"it ends with {words[-1]!r}" if _NEVER_LAST.fullmatch(words[-1]) else None)
        or _odd_neighbours(words)
        or _thing_that_acts(words)
    )


def _second_verb(words: Sequence[str]) -> str | None:
    finite = 0  # verbs of this clause
    for word in words:
        if _NEW_CLAUSE.fullmatch(word):
            finite = 0
        elif _RELATIVE.fullmatch(word):
            finite = -1
        elif _FINITE.fullmatch(word):
            finite += 1
            if finite == 2:
                return f"a second {word!r} for one subject"
    return None


def _odd_neighbours(words: Sequence[str]) -> str | None:
    for before, word in pairwise(words):
        if before == word:
            return f"{word!r} twice in a row"
        if _ARTICLE.fullmatch(before) and (_ARTICLE.fullmatch(word) or _FINITE.fullmatch(word)):
            return f"{before!r} before {word!r}"
    return None


def _thing_that_acts(words: Sequence[str]) -> str | None:
    """Of the first subject alone, and only where nothing comes between it and its verb."""
    for subject, verb, deed in zip(words, words[1:], words[2:], strict=False):
        if _PREPOSITION.fullmatch(subject) or _NEW_CLAUSE.fullmatch(subject) or _RELATIVE.fullmatch(subject):
            return None
        if _FINITE.fullmatch(verb):
            acts = _THING.fullmatch(subject) and _DEED.fullmatch(deed)
            return f"a {subject} that is {deed}" if acts else None
    return None


def faulty_share(captions: Iterable[str]) -> float:
    """The share of captions with a fault; 0 without any."""
    faults = [grammar_fault(caption) is not None for caption in captions]
    return sum(faults) / max(len(faults), 1)
