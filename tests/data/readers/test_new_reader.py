"""The recipe of CONTRIBUTING.md for a corpus format: a module with two functions, and a line in `READERS`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ctsan.data import reading
from ctsan.data.corpus import Clip, Corpus
from ctsan.data.readers.files import lines_of
from ctsan.data.reading import inspect_corpus, read_corpora, read_corpus
from ctsan.errors import Problem
from data.conftest import Write

FILE = "sentences.tab"


def recognises(path: Path) -> bool:
    return (path / FILE).is_file()


def read(path: Path, problems: list[Problem]) -> Corpus:
    file, clips = path / FILE, []
    for line, text in lines_of(file, problems):
        name, tab, caption = text.partition("\t")
        if tab:
            clips.append(Clip(name, path / name, (caption,), source=name, origin=(file, line)))
        else:
            problems.append(Problem(file, line, "the line has no tab", "Write the clip, a tab, a sentence."))
    return Corpus(name=path.name, root=path, format="tab", clips=tuple(clips))


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = SimpleNamespace(recognises=recognises, read=read)
    monkeypatch.setattr(reading, "READERS", {"tab": mine, **reading.READERS})


def test_a_new_format_is_recognised_split_and_united(write: Write) -> None:
    names = [f"{number}.mp4" for number in range(20)]
    root = write({FILE: "".join(f"{name}\ta dog runs\n" for name in names)})
    corpus = read_corpus(root)
    assert (corpus.format, [clip.id for clip in corpus]) == ("tab", names)
    assert {clip.split for clip in corpus} == {"train", "val", "test"}
    other = write({"others/clips.jsonl": [{"clip": "a.mp4", "captions": ["a cat"], "split": "train"}]})
    assert len(read_corpora([root, other / "others"])) == 21


def test_its_problems_name_the_line(write: Write) -> None:
    root = write({FILE: "a.mp4\ta dog runs\nb.mp4 a cat\n"})
    corpus, problems = inspect_corpus(root)
    assert [clip.id for clip in corpus] == ["a.mp4"]
    assert [(problem.file, problem.line) for problem in problems] == [(root / FILE, 2)]
