"""Packages are read downwards and import upwards only: the order here is that of CONTRIBUTING.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import ctsan

ROOT = Path(ctsan.__file__).parent
# A package may import those in lines above its own, and those beside it in its line only where that is named.
LAYERS = (
    ("errors", "__version__"),
    ("config",),
    ("io",),
    ("video",),
    ("text",),
    ("data",),
    ("synthetic",),
    ("model",),
    ("baselines",),
    ("extensions",),
    ("evaluation",),
    ("tasks",),
    ("runs",),
    ("training",),
    ("inference",),
    ("search",),
    ("experiments",),
    ("figures", "subtitles", "export"),
    ("web",),
    ("cli",),
    ("__main__",),
)
LAYER_OF = {name: layer for layer, names in enumerate(LAYERS) for name in names}


def imports_of(file: Path) -> Iterator[str]:
    """Names right below `ctsan` that a file imports, also inside functions and for types only."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "ctsan":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ctsan."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("ctsan."))


def test_every_module_has_its_layer() -> None:
    found = {path.stem for path in ROOT.glob("*.py")} | {
        path.parent.name for path in ROOT.glob("*/__init__.py")
    }
    assert found - {"__init__"} == set(LAYER_OF) - {"__version__"}


def test_no_package_imports_one_below_it() -> None:
    wrong = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in ROOT.rglob("*.py")
        if file.parent != ROOT or file.stem != "__init__"
        for own in [file.relative_to(ROOT).parts[0].removesuffix(".py")]
        for name in imports_of(file)
        if name != own and LAYER_OF[name] >= LAYER_OF[own]
    }
    assert wrong == set()
