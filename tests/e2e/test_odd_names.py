"""Names of files that a terminal would obey: whatever is printed of them has no control characters."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clip_making import counting, encode
from commands import ctsan
from ctsan.errors import printable
from ctsan.io.messages import printable_lines

NAME = "a\x1b]0;owned\x07 \x9b31m \u202e4pm\n\x7f.mp4"
PRINTED = r"a\x1b]0;owned\x07 \x9b31m \u202e4pm\n\x7f.mp4"
CLI = Path(__file__).parents[2] / "src/ctsan/cli"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A readable clip and a damaged one, with such names."""
    folder = tmp_path_factory.mktemp("names") / "clips"
    folder.mkdir()
    encode(folder / "a.mp4", counting(24)).rename(folder / NAME)
    (folder / f"damaged {NAME}").write_bytes(b"no video")
    return folder


def check(text: str) -> None:
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text), ascii(text)


def test_names_are_printed_with_their_control_characters_escaped() -> None:
    assert printable(Path(NAME)) == PRINTED
    assert printable("été 日本 👩‍👧 \\x1b") == "été 日本 👩‍👧 \\x1b"
    assert printable(PRINTED) == PRINTED
    assert printable_lines("one\ntwo\x1b[2J") == "one\ntwo\\x1b[2J"


def test_answers_and_errors_about_such_files(folder: Path) -> None:
    for command in (
        ("describe", folder),
        ("describe", folder / NAME, folder / f"damaged {NAME}", folder / f"missing {NAME}"),
        ("rank", "a square", folder),
        ("choose", folder / NAME, "a square", "a circle"),
        ("fill", folder / NAME, "a _____ square"),
    ):
        is_whole = command[0] in ("choose", "fill")
        result = ctsan(*command, exit_code=0 if is_whole else 1)
        check(result.stdout)
        check(result.stderr)
        assert PRINTED in result.stdout
        assert is_whole or f"damaged {PRINTED}: " in result.stderr


def test_json_names_the_file_as_it_is(folder: Path) -> None:
    result = ctsan("describe", folder / NAME, "--json")
    check(result.stdout)
    assert json.loads(result.stdout)["clip"] == str(folder / NAME)


def test_search_in_a_library_of_such_files(folder: Path, tmp_path: Path) -> None:
    index = ctsan("index", folder, "--store", tmp_path, exit_code=1)
    check(index.stdout)
    check(index.stderr.replace("\r", ""))  # of the progress bar
    found = ctsan("search", "a square", "--store", tmp_path)
    check(found.stdout)
    assert PRINTED in found.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("corpus", "check", NAME),
        ("corpus", "make", f"/proc/{NAME}"),
        ("describe", "--model", NAME, "clip.mp4"),
        ("backbone", "check", NAME),
        ("settings", NAME),
        (NAME,),
        ("describe", f"--{NAME}"),
        ("serve", "--port", NAME),
        ("serve", "--host", NAME, "--port", "0"),
        ("search", "a square", "--library", NAME),
    ],
)
def test_usage_errors(arguments: tuple[str, ...]) -> None:
    result = ctsan(*arguments, exit_code=2)
    check(result.stderr)
    assert "owned" in result.stderr


def test_commands_print_through_one_module() -> None:
    printing = re.compile(r"click\.s?echo|(?<![\w.])print\(|sys\.std(out|err)\.write|bar\.write\((?!print)")
    for file in CLI.glob("*.py"):
        if file.name not in ("__init__.py", "output.py"):
            assert not printing.search(file.read_text(encoding="utf-8")), file
