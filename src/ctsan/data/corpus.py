"""The common form of every captioned-video corpus: clips with captions, splits and test items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from ctsan.errors import Problem

Split = Literal["train", "val", "test", "blind"]  # blind: a challenge's test split without captions
SPLITS: tuple[Split, ...] = get_args(Split)

BLANK = "_____"  # the missing word of a fill-in-the-blank sentence


@dataclass(frozen=True, slots=True)
class Clip:
    """One clip and its captions."""

    id: str  # unique in the corpus: the `clip` value of our own format, the official id of the others
    path: Path
    captions: tuple[str, ...] = ()
    split: Split | None = None  # None only in a corpus without captions
    source: str = ""  # the video it was cut from; all clips of a source are in the same split
    repeat: int = 1  # oversampling: how often an epoch uses it, see `unite_corpora`
    external: bool = False  # from an external corpus, whose captions may use other words
    extra: Mapping[str, object] = field(default_factory=dict)  # further keys of our own format
    origin: tuple[Path, int] | None = None  # the file and line that declare it, for messages


@dataclass(frozen=True, slots=True)
class BlankItem:
    """Fill-in-the-blank: `sentence` contains one `BLANK`, and `answer` is the missing word."""

    clip: str
    sentence: str
    answer: str


@dataclass(frozen=True, slots=True)
class ChoiceItem:
    """Multiple choice: `answer` is the 0-based index of the correct sentence."""

    clip: str
    choices: tuple[str, ...]
    answer: int


@dataclass(frozen=True, slots=True)
class QueryItem:
    """Retrieval: `query` was written for `clip`; the clips of all items are ranked."""

    query: str
    clip: str


Item = BlankItem | ChoiceItem | QueryItem
ItemTask = Literal["fill", "choose", "rank"]
ITEM_TASKS: tuple[ItemTask, ...] = get_args(ItemTask)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Clips in a fixed order, with official test items if the corpus has any."""

    name: str
    root: Path
    format: str
    clips: tuple[Clip, ...]
    items: Mapping[tuple[ItemTask, Split], tuple[Item, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # remarks for the user that need no action
    has_own_splits: bool = False  # False if its splits are generated, or it has none
    unlisted: tuple[Problem, ...] = ()  # subfolders that cannot be listed; commands report them and continue
    parts: tuple[CorpusPart, ...] = ()  # the members of a union: see `unite_corpora`

    @property
    def place(self) -> str:
        """The folder or folders, for messages."""
        return ", ".join(str(part.corpus.root) for part in self.parts) or str(self.root)

    def __iter__(self) -> Iterator[Clip]:
        return iter(self.clips)

    def __len__(self) -> int:
        return len(self.clips)

    def split(self, name: Split) -> tuple[Clip, ...]:
        return tuple(clip for clip in self.clips if clip.split == name)

    def captions(self, split: Split) -> Iterator[str]:
        """The captions of one split. Anything that learns must use `train` only."""
        for clip in self.clips:
            if clip.split == split:
                yield from clip.captions


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """A member of a union of corpora."""

    corpus: Corpus  # the member by itself
    ids: Mapping[
        str, str
    ]  # from a clip's id in the member to its id in the union; only of clips in the union


def parts_of(corpus: Corpus) -> tuple[CorpusPart, ...]:
    """The members of a corpus: the corpus itself unless it is a union."""
    return corpus.parts or (CorpusPart(corpus, {clip.id: clip.id for clip in corpus}),)
