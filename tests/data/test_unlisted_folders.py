"""A subfolder that cannot be listed is reported, and the clips beside it are read."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from clip_making import counting, encode
from commands import ctsan_here
from ctsan.cli.common import clip_files
from ctsan.cli.index import command as index
from ctsan.data.reading import inspect_corpora, inspect_corpus, read_corpora, read_corpus
from ctsan.errors import CorpusError

Close = Callable[[Path], None]


@pytest.fixture
def close(monkeypatch: pytest.MonkeyPatch) -> Close:
    """Closes a folder as chmod 000 does. Root may list everything, so the listing itself is replaced."""
    closed: set[str] = set()
    scandir, stat = os.scandir, os.stat

    def check(path: object) -> None:
        if str(path) in closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def refused_listing(path: object = ".") -> object:
        check(path)
        return scandir(path)  # type: ignore[call-overload]

    def refused_file(path: object, **options: object) -> object:
        if isinstance(path, Path | str):
            check(Path(path).parent)
        return stat(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "scandir", refused_listing)
    monkeypatch.setattr(os, "stat", refused_file)
    return lambda folder: closed.add(str(folder))


@pytest.fixture
def folder(tmp_path: Path, close: Close) -> Path:
    """Two clips, and a closed subfolder with another one."""
    root = tmp_path / "clips"
    for name in ("a.mp4", "open/b.mp4", "closed/c.mp4"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("no video")
    close(root / "closed")
    return root


def message(folder: Path) -> str:
    return f"{folder}: it cannot be listed (Permission denied). Check its permissions."


def test_the_clips_beside_it_are_read_and_it_is_reported(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ctsan"):
        corpus = read_corpus(folder)
    assert [clip.id for clip in corpus] == ["a.mp4", "open/b.mp4"]
    assert caplog.messages == [message(folder / "closed")]


def test_commands_about_clips_go_on(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ctsan"):
        assert clip_files([folder]) == ([folder / "a.mp4", folder / "open/b.mp4"], False)
    assert caplog.messages == [message(folder / "closed")]
    inside = folder / "closed/c.mp4"
    assert clip_files([inside]) == ([inside], True)  # reading it says why it cannot be read


@pytest.mark.parametrize(
    "command", [("describe",), ("describe", "--scenes"), ("concepts",), ("rank", "a dog runs")]
)
def test_commands_about_clips_exit_with_1(
    folder: Path, command: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    for clip in ("a.mp4", "open/b.mp4"):
        encode(folder / clip, counting(5))
    with caplog.at_level(logging.WARNING, "ctsan"), pytest.raises(SystemExit) as caught:
        ctsan_here(*command, folder)
    assert caught.value.code == 1
    assert caplog.messages == [message(folder / "closed")]


def test_index_decides_itself_about_a_folder_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # what click asks; root may read everything
    assert index.make_context("index", [str(tmp_path)]).params["folders"] == (tmp_path,)


def test_a_corpus_with_captions_is_read(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    line = {"clip": "a.mp4", "captions": ["a dog runs"], "split": "train"}
    (folder / "clips.jsonl").write_text(json.dumps(line) + "\n")
    with caplog.at_level(logging.WARNING, "ctsan"):
        assert len(read_corpus(folder)) == 1
    assert message(folder / "closed") in caplog.messages


def test_a_union_reports_those_of_all_corpora(folder: Path, tmp_path: Path, close: Close) -> None:
    other = tmp_path / "other"
    (other / "shut").mkdir(parents=True)
    (other / "d.mp4").write_text("no video")
    close(other / "shut")
    corpus, problems = inspect_corpora([folder, other])
    assert not problems
    assert [problem.file for problem in corpus.unlisted] == [folder / "closed", other / "shut"]
    assert len(read_corpora([folder, other])) == 3


def test_it_is_an_error_where_nothing_else_is_there(folder: Path) -> None:
    (folder / "a.mp4").unlink()
    (folder / "open/b.mp4").unlink()
    corpus, problems = inspect_corpus(folder)
    assert not corpus.clips
    assert [str(problem) for problem in problems] == [message(folder / "closed")]
    with pytest.raises(CorpusError, match="it cannot be listed"):
        read_corpus(folder)


def test_a_corpus_that_cannot_be_listed_itself_is_an_error(folder: Path) -> None:
    _, problems = inspect_corpus(folder / "closed")
    assert [str(problem) for problem in problems] == [message(folder / "closed")]


def test_corpus_check_counts_it_as_a_problem(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        ctsan_here("corpus", "check", folder, "--no-video", "--json")
    assert caught.value.code == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [problem["file"] for problem in problems] == [str(folder / "closed")]
