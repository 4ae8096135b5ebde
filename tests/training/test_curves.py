from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ctsan.errors import RunError
from ctsan.training.curves import draw_curves

SVG = "{http://www.w3.org/2000/svg}"


def draw(folder: Path, rows: list[dict[str, object]], unfinished: str = "") -> ElementTree.Element:
    metrics = folder / "metrics.jsonl"
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows) + unfinished, encoding="utf-8")
    draw_curves(metrics, folder / "curves.svg")
    return ElementTree.parse(folder / "curves.svg").getroot()


def polylines(picture: ElementTree.Element) -> list[list[tuple[float, float]]]:
    lines = [line.attrib["points"].split() for line in picture.iter(f"{SVG}polyline")]
    return [[(float(x), float(y)) for x, y in (point.split(",") for point in line)] for line in lines]


def losses(step: int, **terms: float) -> dict[str, object]:
    return {"step": step, "losses": terms, "total": sum(terms.values())}


def metrics(step: int, **values: float | None) -> dict[str, object]:
    return {"step": step, "metrics": {name.replace("_", " "): value for name, value in values.items()}}


def test_every_series_is_a_labelled_line_in_its_panel(tmp_path: Path) -> None:
    rows = [losses(5, words=4, concepts=1), losses(10, words=2, concepts=1)]
    rows += [metrics(10, CIDEr=0.3, precision=0.4, precision_on_train=0.9)]
    picture = draw(tmp_path, rows)
    shown = [text.text for text in picture.iter(f"{SVG}text")]
    assert len(picture.findall(f"{SVG}g")) == 5
    titles = {"loss", "loss: words", "loss: concepts", "CIDEr", "precision"}
    assert titles | {"precision on train"} <= set(shown)
    assert shown.count("step") == 5
    assert [len(line) for line in polylines(picture)] == [2, 2, 2, 1, 1, 1]


def test_points_lie_in_proportion_inside_the_picture(tmp_path: Path) -> None:
    (line,) = polylines(draw(tmp_path, [losses(step, words=10 - step) for step in (0, 2, 8)]))
    (x0, y0), (x1, y1), (x2, y2) = line
    assert (x1 - x0) / (x2 - x0) == pytest.approx(0.25, abs=0.01)
    assert (y1 - y0) / (y2 - y0) == pytest.approx(0.25, abs=0.01)
    assert y0 < y1 < y2  # a falling loss goes down
    assert all(0 < x < 320 and 0 < y < 210 for x, y in line)


def test_gaps_single_points_and_flat_lines_are_drawn(tmp_path: Path) -> None:
    rows = [metrics(3, CIDEr=0.0), metrics(6, CIDEr=None), metrics(9, CIDEr=0.0), metrics(9, once=-math.pi)]
    assert [len(line) for line in polylines(draw(tmp_path, rows))] == [2, 1]


def test_a_run_that_has_just_begun_gives_an_empty_picture(tmp_path: Path) -> None:
    assert polylines(draw(tmp_path, [], unfinished='{"step": 5, "los')) == []


def test_no_metrics_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="none.jsonl: the metrics cannot be read"):
        draw_curves(tmp_path / "none.jsonl", tmp_path / "curves.svg")
