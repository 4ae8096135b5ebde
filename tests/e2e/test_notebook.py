"""The notebook runs from top to bottom, and shows what it speaks of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "tour.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def test_it_is_committed_without_outputs() -> None:
    """They would hold paths of one machine."""
    cells = [cell for cell in read().cells if cell.cell_type == "code"]
    assert cells
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for the folder that it works in
    notebook = read()
    NotebookClient(
        notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}}
    ).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 5 + 1 + 3 + 3  # clips, traces, hits, made clips
    text = "".join(output.text for output in outputs if output.get("name") == "stdout")
    assert "a cup of coffee on a table" in text
    assert "an animal in the grass: rabbit.mp4" in text
    [learnt] = re.findall(r"CIDEr on validation clips: (\d\.\d\d)", text)
    assert float(learnt) > 0.1  # without training it is 0.04
    said = re.findall(r"model says:  (.+)", text)
    assert len(said) == 6
    assert said[:3] != said[3:]
