"""Rules that find grammatical and semantic faults of captions that n-gram metrics hardly punish."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ctsan.text.tokens import tokenize

_FINITE = re.compile(r"is|are|was|were")
# After one of these words a new clause begins, with its own subject and finite verb. After a relative pronoun
# the main clause continues, so two finite verbs may follow.
_NEW_CLAUSE = re.compile(r"after|and|as|because|before|but|how|if|or|so|then|until|when|while|why")
# As the first word of a sentence: a subordinate clause and the main clause follow.
_SUBORDINATING = re.compile(r"after|as|before|if|once|since|until|when|while")
# Before a verb: the subject of a relative clause without a pronoun, as in "the dish he is making".
_PRONOUN = re.compile(r"he|it|she|they|we|you")
_RELATIVE = re.compile(r"that|what|where|which|who|whom|whose")
_PREPOSITION = re.compile(r"about|at|by|for|from|in|into|near|of|on|over|through|to|under|with|holding")
# Subjects that are things, and actions that things never do.
_THING = re.compile(
    r"ball|boat|bowl|building|car|clip|computer|cup|dish|food|game|guitar|house|ingredients|kitchen|meal"
    r"|motorcycle|movie|onion|pan|paper|phone|picture|pot|recipe|road|room|screen|song|stage|street|table|train"
    r"|truck|vehicle|water"
)
_ACTION = re.compile(
    r"acting|applying|arguing|chatting|crying|dancing|discussing|drinking|eating|explaining|holding|kissing"
    r"|laughing|looking|reading|singing|sleeping|smiling|speaking|swimming|talking|walking|watching|wearing"
)


def _pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of whole words; FINITE, ARTICLE, PERSON, THING and CLAUSE match a class of words."""
    for name, words in (
        ("FINITE", _FINITE.pattern),
        ("ARTICLE", "a|an|the"),
        ("PERSON", "baby|boy|chef|child|girl|guy|kid|lady|man|person|woman"),
        ("THING", _THING.pattern),
        ("CLAUSE", f"{_NEW_CLAUSE.pattern}|{_RELATIVE.pattern}|it|there"),
    ):
        text = text.replace(name, f"(?:{words})")
    return re.compile(rf"(?<!\S)(?:{text})(?!\S)")


# Patterns, and the descriptions of their faults with the matched groups.
_PATTERNS = tuple(
    (_pattern(text), fault)
    for text, fault in (
        (r"(a|an|and|his|into|of|or|the|their|while|with)$", "it ends with {0!r}"),
        (r"^(?!.*\bCLAUSE\b).*(?<!\S)(is|are)$", "it ends with {0!r}"),
        (r"(?!in in)(\S+(?: (?!and )\S+){0,2}) \1", "{0!r} twice in a row"),
        (r"(ARTICLE \S+) and \1(?=$| are| were| \S+ing)", "{0!r} twice, joined by 'and'"),
        (
            r"(ARTICLE) (ARTICLE|FINITE|about|and|at|by|for|from|her|his|into|of|or|their|to|with)",
            "{0!r} before {1!r}",
        ),
        (r"(a) (in|men|on|people)(?! s)", "{0!r} before {1!r}"),
        (r"^(?!.*\bCLAUSE\b).*(?<!\S)(about|at|for|into|of|to|with) (FINITE)", "{0!r} before {1!r}"),
        (
            r"(is|are) (describe|discuss|drive|eat|explain|hold|perform|play|ride|sing|sit|speak|stand|talk"
            r"|walk|wear)",
            "{0!r} before {1!r}",
        ),
        (r"^an? (?:\S+ )?(PERSON) (are|were)", "{0!r} before {1!r}"),
        (r"an? (?:\S+ )?(PERSON) is an? (boy|girl|guy|man|person|woman)", "a {0} that is a {1}"),
        (r"ARTICLE (\S+) (?:is|are) (?:an?|the) (\1)", "a {0} that is a {1}"),
        (
            r"there is an? (?:\S+ )?(THING) (dancing|laughing|singing|smiling|speaking|talking|walking)",
            "a {0} that is {1}",
        ),
        (
            r"^(?:there is )?ARTICLE (?:\S+ )?(\S+) (?:is |are )?\S+ing (?:down )?(in|inside|on) (?:top of )?"
            r"ARTICLE \1",
            "a {0} {1} itself",
        ),
        (
            r"(PERSON|people) (?:is |are )(?:laying|lying|sitting|standing|walking) (in|on) ARTICLE (?:\S+ )?"
            r"(bowl|cup|dish|pan|plate|pot|sky)",
            "{0} {1} a {2}",
        ),
        (
            r"(speaking|talking) (on|to|with) ARTICLE (?:\S+ )?(beach|bike|boat|building|car|cup|dish|field"
            r"|floor|food|glass|grass|guitar|house|kitchen|meal|ocean|park|plate|road|room|sky|street|table"
            r"|water)$",
            "{0} {1} a {2}",
        ),
        (
            r"riding ARTICLE (?:\S+ )?(bicycle|bike|boat|car|horse|motorcycle) on ARTICLE (?:\S+ )?"
            r"(bicycle|bike|boat|car|horse|motorcycle|truck)",
            "riding a {0} on a {1}",
        ),
        (r"ARTICLE (\S+) (in|on) ARTICLE \1$", "a {0} {1} itself"),
        (
            r"^an? (?:(?!band|bunch|class|couple|crew|crowd|family|group|lot|number|pack|pair|set|team)\S+ )"
            r"{1,2}is (\S+ing) (?:\S+ ){1,3}each other$",
            "one that is {0} each other",
        ),
        (
            r"(animals?|bears?|birds?|cats?|cows?|dogs?|horses?|monkeys?) (?:is|are) playing (?:ARTICLE )?"
            r"(?:video )?(football|games?|guitar|piano|soccer)",
            "{0} playing {1}",
        ),
    )
)


def grammar_fault(caption: str) -> str | None:
    """A description of the first fault of a caption; None if no rule matches."""
    words = tokenize(caption)
    if not words:
        return "it is empty"
    return _second_verb(words) or _pattern_fault(" ".join(words)) or _thing_that_acts(words)


def _pattern_fault(sentence: str) -> str | None:
    for pattern, fault in _PATTERNS:
        if match := pattern.search(sentence):
            return fault.format(*match.groups())
    return None


def _second_verb(words: Sequence[str]) -> str | None:
    """A second finite verb in a clause."""
    finite = -1 if _SUBORDINATING.fullmatch(words[0]) else 0  # finite verbs of this clause
    for place, word in enumerate(words):
        if _NEW_CLAUSE.fullmatch(word) and place:
            finite = 0
        elif _RELATIVE.fullmatch(word):
            finite = -1
        elif _FINITE.fullmatch(word) and not (place > 1 and _PRONOUN.fullmatch(words[place - 1])):
            finite += 1
            if finite == 2:
                return f"a second {word!r} for one subject"
    return None


def _thing_that_acts(words: Sequence[str]) -> str | None:
    """A thing that does what only a person does; checks the first subject, if its verb follows directly."""
    for subject, verb, action in zip(words, words[1:], words[2:], strict=False):
        if _PREPOSITION.fullmatch(subject) or _NEW_CLAUSE.fullmatch(subject) or _RELATIVE.fullmatch(subject):
            return None
        if _FINITE.fullmatch(verb):
            acts = _THING.fullmatch(subject) and _ACTION.fullmatch(action)
            return f"a {subject} that is {action}" if acts else None
    return None


def faulty_share(captions: Iterable[str]) -> float:
    """The share of captions with a fault; 0 without captions."""
    faults = [grammar_fault(caption) is not None for caption in captions]
    return sum(faults) / max(len(faults), 1)
