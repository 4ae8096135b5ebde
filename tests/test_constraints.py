"""constraints.txt pins what pyproject.toml asks for, and names no place to fetch it from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LINE = re.compile(r"([a-z0-9-]+)==([^ ]+) --hash=sha256:[0-9a-f]{64}")


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [LINE.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(found), "a line is no package with version and digest"
    return {match[1]: match[2] for match in found if match}


def test_every_requirement_is_pinned_within_its_range_except_pytorch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    texts = (*project["dependencies"], *extras["train"], *extras["onnx"])
    wanted = [requirement for text in texts if (requirement := Requirement(text)).name != "ctsan"]
    pinned = pins()
    assert "torch" not in pinned
    for requirement in wanted:
        name = canonicalize_name(requirement.name)
        if name != "torch":
            assert requirement.specifier.contains(pinned[name]), (name, pinned.get(name))


def test_no_host_and_no_path_is_named() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|@|(^|\s)/|--index|--find-links|nvidia|cuda", text)
