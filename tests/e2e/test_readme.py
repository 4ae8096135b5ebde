"""The commands of the README print what it shows, and its Python examples run."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import ctsan_here

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
TOLERANCE = 0.06  # processors round differently: a confidence or a score may differ in its last digits
MADE_BY_DEMO = ("corpus check", "features", "words")  # commands about the folder that `make demo` makes


def sessions() -> Iterator[tuple[str, str]]:
    """Every command of a console block with the output shown below it."""
    for block in re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL):
        for session in block.split("$ ctsan ")[1:]:
            command, _, output = session.partition("\n")
            yield command.partition("  #")[0].strip(), output


ASKING = [session for session in sessions() if not session[0].startswith(MADE_BY_DEMO)]


def test_there_are_commands_to_compare() -> None:
    assert len(ASKING) >= 9


def assert_alike(printed: str, shown: str) -> None:
    """The same text, and numbers that differ by little. A line "…" stands for any rest."""
    shown, is_cut = (shown.partition("    …")[0], True) if "    …" in shown else (shown, False)
    printed_lines, shown_lines = printed.rstrip().splitlines(), shown.rstrip().splitlines()
    if is_cut:
        printed_lines = printed_lines[: len(shown_lines)]
    without_numbers = [[NUMBER.sub("0", line) for line in lines] for lines in (printed_lines, shown_lines)]
    assert without_numbers[0] == without_numbers[1]
    for printed_line, shown_line in zip(printed_lines, shown_lines, strict=True):
        pairs = zip(NUMBER.findall(printed_line), NUMBER.findall(shown_line), strict=True)
        differences = [abs(float(value) - float(expected)) for value, expected in pairs]
        assert max(differences, default=0.0) < TOLERANCE, (printed_line, shown_line)


def test_console_blocks_show_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    monkeypatch.chdir(tmp_path)
    for command, shown in ASKING:
        capsys.readouterr()
        ctsan_here(*shlex.split(command))
        printed = capsys.readouterr().out.replace(str(REPOSITORY), "/home/you/ctsan")
        if command.startswith("index"):  # the time that it took
            printed, shown = (re.sub(r"\(\d+\.\d s\)", "(0 s)", text) for text in (printed, shown))
        assert_alike(printed, shown)


def test_the_first_python_example_prints_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    [(code, shown), *_] = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README, flags=re.DOTALL)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {})  # the README's own text
    assert output.getvalue() == shown
