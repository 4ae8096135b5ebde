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
# Packages above that a package may not import all the same: it answers without what trains.
FORBIDDEN = {"inference": {"tasks", "training"}}


def modules_of(file: Path) -> Iterator[str]:
    """Dotted names that a file imports, also inside functions and for types only."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "ctsan":
            yield from (f"ctsan.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def imports_of(file: Path) -> Iterator[str]:
    """Names right below `ctsan` that a file imports."""
    yield from (module.split(".")[1] for module in modules_of(file) if module.startswith("ctsan."))


def test_every_module_has_its_layer() -> None:
    found = {path.stem for path in ROOT.glob("*.py")} | {
        path.parent.name for path in ROOT.glob("*/__init__.py")
    }
    assert found - {"__init__"} == set(LAYER_OF) - {"__version__"}


def test_no_package_imports_one_below_it_or_one_that_is_forbidden() -> None:
    wrong = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in ROOT.rglob("*.py")
        if file.parent != ROOT or file.stem != "__init__"
        for own in [file.relative_to(ROOT).parts[0].removesuffix(".py")]
        for name in imports_of(file)
        if name != own and (LAYER_OF[name] >= LAYER_OF[own] or name in FORBIDDEN.get(own, ()))
    }
    assert wrong == set()


def test_one_file_of_inference_knows_torch() -> None:
    """All else speaks NumPy, so that something else can run the networks."""
    knowing = {
        file.name
        for file in (ROOT / "inference").rglob("*.py")
        if any(module.split(".")[0] == "torch" for module in modules_of(file))
    }
    assert knowing == {"torch_model.py"}
