"""The neutral form of every captioned-video corpus: clips, their sentences, splits and test items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

Split = Literal["train", "val", "test", "blind"]  # blind: a challenge's test split without sentences
SPLITS: tuple[Split, ...] = get_args(Split)

VIDEO_SUFFIXES = frozenset({".mp4", ".avi", ".mkv", ".mov", ".webm", ".gif", ".m4v", ".mpg", ".mpeg"})
PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp"})  # a picture is a clip of one frame
CLIP_SUFFIXES = VIDEO_SUFFIXES | PICTURE_SUFFIXES

BLANK = "_____"  # stands for the missing word of a fill-in-the-blank sentence


@dataclass(frozen=True, slots=True)
class Clip:
    """One clip and what people said of it."""

    id: str  # unique in the corpus: the `clip` value of our own format, the official id of the others
    path: Path
    captions: tuple[str, ...] = ()
    split: Split | None = None  # None only in a corpus without captions
    source: str = ""  # clips cut from one video share it, and never stand on two sides of a split
    repeat: int = 1  # how often it is learnt from where most are once: see `unite_corpora`
    external: bool = False  # somebody else captioned it, who may use other words for the same
    extra: Mapping[str, object] = field(default_factory=dict)  # further keys of our own format, as given
    origin: tuple[Path, int] | None = None  # file and line that declared it, for messages


@dataclass(frozen=True, slots=True)
class BlankItem:
    """Fill-in-the-blank: `sentence` holds one `BLANK`, `answer` is the word that stood there."""

    clip: str
    sentence: str
    answer: str


@dataclass(frozen=True, slots=True)
class ChoiceItem:
    """Multiple choice: `answer` is the 0-based index of the right sentence."""

    clip: str
    choices: tuple[str, ...]
    answer: int


@dataclass(frozen=True, slots=True)
class QueryItem:
    """Retrieval: `clip` is the one that `query` was written for; all clips of the items are ranked."""

    query: str
    clip: str


Item = BlankItem | ChoiceItem | QueryItem
ItemTask = Literal["fill", "choose", "rank"]
ITEM_TASKS: tuple[ItemTask, ...] = get_args(ItemTask)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Clips in a fixed order, with the official test items where the corpus brings some."""

    name: str
    root: Path
    format: str
    clips: tuple[Clip, ...]
    items: Mapping[tuple[ItemTask, Split], tuple[Item, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a person should know and need not mend
    has_own_splits: bool = False  # False where they were made for it, or there are none
    parts: tuple[CorpusPart, ...] = ()  # of several corpora that are used as one: see `unite_corpora`

    @property
    def place(self) -> str:
        """The folder, or the folders, for messages."""
        return ", ".join(str(part.corpus.root) for part in self.parts) or str(self.root)

    def __iter__(self) -> Iterator[Clip]:
        return iter(self.clips)

    def __len__(self) -> int:
        return len(self.clips)

    def split(self, name: Split) -> tuple[Clip, ...]:
        return tuple(clip for clip in self.clips if clip.split == name)

    def captions(self, split: Split) -> Iterator[str]:
        """The sentences of one split. Whatever is learnt asks for `train` and nothing else."""
        for clip in self.clips:
            if clip.split == split:
                yield from clip.captions


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """One of several corpora that are used as one."""

    corpus: Corpus  # as it is by itself
    ids: Mapping[str, str]  # from a clip's id by itself to its id among all; of clips that are used


def parts_of(corpus: Corpus) -> tuple[CorpusPart, ...]:
    """The corpora that a corpus was made of: itself, unless it was made of several."""
    return corpus.parts or (CorpusPart(corpus, {clip.id: clip.id for clip in corpus}),)
