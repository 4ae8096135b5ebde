"""CONTRIBUTING.md names packages, files and dicts that are there; CHANGELOG.md names all old settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ctsan.config.old_names import REMOVED, RENAMED
from ctsan.data.reading import OFFICIAL_READERS, READERS
from ctsan.tasks.clip_encoders import DETECTORS
from ctsan.tasks.registry import TASKS
from ctsan.video.backbones import BACKBONES
from test_import_graph import LAYERS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def chapter(heading: str) -> str:
    """The text from a heading to the next one."""
    return TEXT.partition(f"\n{heading}\n")[2].split("\n#")[0]


def test_the_packages_are_in_the_order_of_the_layers() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", chapter("## The packages"), flags=re.MULTILINE)
    assert listed == [name for layer in LAYERS for name in layer if name != "__version__"]


def test_every_file_that_is_named_exists() -> None:
    paths = re.findall(r"`((?:src|tests|docs|examples|bench)/[\w./-]*)`", TEXT)
    assert len(paths) > 20
    assert [path for path in paths if "NAME" not in path and not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("heading", "name", "registry"),
    [
        ("### A new task", "TASKS", TASKS),
        ("### A new backbone", "BACKBONES", BACKBONES),
        ("### A new corpus format", "READERS", READERS),
        ("### A new corpus format", "OFFICIAL_READERS", OFFICIAL_READERS),
        ("### A new detector", "DETECTORS", DETECTORS),
    ],
)
def test_every_recipe_names_its_dict(heading: str, name: str, registry: object) -> None:
    assert f"`{name}`" in chapter(heading)
    assert type(registry) is dict


@pytest.mark.parametrize("heading", ["## How a clip travels", "### A training batch", "### A search query"])
def test_the_files_on_the_way_are_counted(heading: str) -> None:
    way = chapter(heading)
    files = set(re.findall(r"^\| `([\w/]+\.py)` \|", way, flags=re.MULTILINE))
    assert {file for file in files if not (ROOT / "src/ctsan" / file).is_file()} == set()
    assert re.findall(r"through (\d+) files", way) == [str(len(files))]


def test_the_changelog_has_every_setting_that_is_gone() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [
        f"| `{old}` | `{new}`" for old, new in RENAMED.items() if f"| `{old}` | `{new}`" not in changes
    ] == []
    assert [old for old in REMOVED if f"`{old}`" not in changes] == []
