"""LSMDC16: movie clips with one or a few sentences, and the official items of three tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from ctsan.data.corpus import BLANK, BlankItem, ChoiceItem, Clip, Corpus, Item, ItemTask, QueryItem, Split
from ctsan.data.readers.files import lines_of, videos_by_stem
from ctsan.errors import Problem

_CAPTION_FILES: dict[Split, str] = {
    "train": "LSMDC16_annos_training",
    "val": "LSMDC16_annos_val",
    "test": "LSMDC16_annos_test",
    "blind": "LSMDC16_annos_blindtest",
}
_VARIANTS = ("_someone.csv", ".csv")  # prefer the later release, where SOMEONE replaces all names
_ITEM_FILES: dict[tuple[ItemTask, Split], str] = {
    ("fill", "train"): "LSMDC16_annos_training_FIB.csv",
    ("fill", "val"): "LSMDC16_annos_val_FIB.csv",
    ("fill", "test"): "LSMDC16_annos_test_FIB.csv",
    ("choose", "train"): "LSMDC16_multiple_choice_train.csv",
    ("choose", "val"): "LSMDC16_multiple_choice_valid.csv",
    ("choose", "test"): "LSMDC16_multiple_choice_test_randomized.csv",
    ("rank", "test"): "LSMDC16_challenge_1000_publictect.csv",  # the official spelling
}
# "Para-Phrase AD": shorter sentences for a fifth of the training clips. Those of the public test, in
# LSMDC16_paraphrased_test.txt, are not read: references are the original sentences.
_PARAPHRASES = "LSMDC16_paraphrased_train_subset.txt"
FILES: tuple[str, ...] = (
    *(f"{stem}{end}" for stem in _CAPTION_FILES.values() for end in _VARIANTS),
    *_ITEM_FILES.values(),
    _PARAPHRASES,
)
_CLIP_ID = re.compile(r"(?P<movie>.+?)_\d+\.\d+\.\d+\.\d+-\d+\.\d+\.\d+\.\d+")
_COPY_AGAIN = "Copy the row again from the official file, or delete it."


def recognises(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in FILES)


def read(path: Path, problems: list[Problem]) -> Corpus:
    """Read the caption files, the item files and the paraphrases; each is optional.

    A clip may have several sentences, on several rows. If no caption file contains a clip, its captions come
    from the item files. Paraphrases are further captions of training clips.
    """
    origin: dict[str, tuple[Split, Path, int]] = {}
    sentences: dict[str, list[str]] = {}

    def declare(clip: str, split: Split, file: Path, line: int) -> None:
        first_split, first_file, first_line = origin.setdefault(clip, (split, file, line))
        sentences.setdefault(clip, [])
        if first_split != split:
            what = f"clip {clip!r} is in {split} here and in {first_split} at {first_file.name}:{first_line}"
            problems.append(Problem(file, line, what, _COPY_AGAIN))

    for split, stem in _CAPTION_FILES.items():
        file = next((file for end in _VARIANTS if (file := path / f"{stem}{end}").is_file()), None)
        if file is None:
            continue
        for line, (clip, _, _, _, _, *rest) in _rows(file, (5, 6) if split == "blind" else (6,), problems):
            declare(clip, split, file, line)
            sentences[clip] += rest
    captioned = frozenset(origin)
    items: dict[tuple[ItemTask, Split], tuple[Item, ...]] = {}
    for (task, split), name in _ITEM_FILES.items():
        if not (path / name).is_file():
            continue
        file_items: list[Item] = []
        for line, item, sentence in _items(task, path / name, problems):
            file_items.append(item)
            declare(item.clip, split, path / name, line)
            if item.clip not in captioned and sentence not in sentences[item.clip]:
                sentences[item.clip].append(sentence)
        items[task, split] = tuple(file_items)

    paraphrases = path / _PARAPHRASES
    unknown: list[tuple[int, str]] = []
    for line, (clip, *_, paraphrase) in _rows(paraphrases, (7,), problems) if paraphrases.is_file() else ():
        if clip not in origin:
            unknown.append((line, clip))
            continue
        declare(clip, "train", paraphrases, line)
        if origin[clip][0] == "train" and paraphrase not in sentences[clip]:
            sentences[clip].append(paraphrase)

    unlisted: list[Problem] = []
    videos = videos_by_stem(path, unlisted)
    clips = tuple(
        Clip(
            id=clip,
            path=videos.get(clip, path / _movie(clip) / f"{clip}.avi"),
            captions=tuple(sentences[clip]),
            split=split,
            source=_movie(clip),
            origin=(file, line),
        )
        for clip, (split, file, line) in origin.items()
    )
    notes = () if not unknown else (_unknown_note(unknown),)
    return Corpus(
        name="LSMDC16",
        root=path,
        format="lsmdc16",
        clips=clips,
        items=items,
        notes=notes,
        unlisted=tuple(unlisted),
    )


def _unknown_note(unknown: list[tuple[int, str]]) -> str:
    """A note, not a problem: later releases have fewer training clips than the file of paraphrases."""
    line, clip = unknown[0]
    rows = "1 row is" if len(unknown) == 1 else f"{len(unknown):,} rows are"
    first = f"The first is {clip!r} at line {line}."
    return f"{rows} left out of {_PARAPHRASES}: no other file has the clip. {first}"


def _movie(clip: str) -> str:
    match = _CLIP_ID.fullmatch(clip)
    return match["movie"] if match else clip


def _rows(file: Path, widths: tuple[int, ...], problems: list[Problem]) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row with an allowed number of cells. Quotation marks are text, not quoting."""
    for line, text in lines_of(file, problems):
        cells = [cell.strip() for cell in text.strip().split("\t")]
        cells[0] = cells[0].strip('"')
        if cells == [""]:
            continue
        if not _CLIP_ID.fullmatch(cells[0]):
            if line > 1 or len(cells) not in widths:  # else a header
                what = (
                    f"{cells[0]!r} is not a clip id, which ends in two times such as "
                    "00.03.07.170-00.03.09.675"
                )
                problems.append(Problem(file, line, what, _COPY_AGAIN))
        elif len(cells) not in widths:
            expected = " or ".join(str(width) for width in widths)
            what = f"the row has {len(cells)} columns instead of {expected}"
            problems.append(Problem(file, line, what, f"Columns are separated by tabs. {_COPY_AGAIN}"))
        else:
            yield line, cells


def _items(task: ItemTask, file: Path, problems: list[Problem]) -> Iterator[tuple[int, Item, str]]:
    """The line, the item and the sentence that was written for the clip."""
    if task == "rank":
        for line, (clip, *_, sentence) in _rows(file, (6,), problems):
            yield line, QueryItem(query=sentence, clip=clip), sentence
    elif task == "fill":
        for line, (clip, *_, sentence, question, answer) in _rows(file, (8,), problems):
            if question.count(BLANK) == 1:
                yield line, BlankItem(clip=clip, sentence=question, answer=answer), sentence
            else:
                what = f"the question has {question.count(BLANK)} blanks ({BLANK}) instead of one"
                problems.append(Problem(file, line, what, _COPY_AGAIN))
    elif "randomized" in file.name:
        for line, (clip, _, _, _, _, *choices, index) in _rows(file, (11,), problems):
            if index in {"1", "2", "3", "4", "5"}:
                answer_index = int(index) - 1
                item = ChoiceItem(clip=clip, choices=tuple(choices), answer=answer_index)
                yield line, item, choices[answer_index]
            else:
                what = f"the answer's index is {index!r} instead of 1 to 5"
                problems.append(Problem(file, line, what, _COPY_AGAIN))
    else:
        for line, (clip, _, _, _, _, correct, *choices) in _rows(file, (10,), problems):
            # The file lists the correct sentence first; a hash of clip and sentence selects its position.
            answer_index = int.from_bytes(sha256(f"{clip}\n{correct}".encode()).digest()) % (len(choices) + 1)
            choices.insert(answer_index, correct)
            yield line, ChoiceItem(clip=clip, choices=tuple(choices), answer=answer_index), correct
