"""Cells, best ones and verdicts, from answers that are made up."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from ctsan.data.corpus import Clip, Corpus
from ctsan.evaluation.bootstrap import compare
from ctsan.evaluation.clip_statistics import mean_of
from ctsan.experiments.formats import as_csv, as_json, latex, markdown
from ctsan.experiments.layout import TABLES
from ctsan.experiments.results import Results, check_claims, make_results, measure_all

CLIPS = 40


def answers(right: int) -> dict[str, list[dict[str, Any]]]:
    """Of each clip one blank, the first ones filled rightly."""
    return {
        f"{clip:02}": [{"sentence": "a _____", "answer": "dog" if clip < right else "cat", "right": "dog"}]
        for clip in range(CLIPS)
    }


@pytest.fixture(scope="module")
def results() -> Results:
    corpus = Corpus("mine", Path(), "own", (Clip("a", Path(), ("a dog",), "train"),))
    said: Any = {
        ("ct-san", "fill"): [answers(30), answers(32), answers(31)],
        ("ct-san-alone", "fill"): [answers(30), answers(32), answers(31)],
        ("ct-san-ensemble", "fill"): [answers(40)],
        ("base-san", "fill"): [answers(10), answers(12), answers(11)],
        ("simple-lstm", "fill"): [answers(30), answers(31), answers(32)],
        ("simple-blstm", "fill"): [answers(38), answers(40), answers(39)],
    }
    measured, notes = measure_all(said, {}, corpus, java=None)
    sizes: Any = {"fill": 3, "choose": 6, "rank": 6}
    return make_results(measured, [TABLES["description-blank"]], notes, ensemble_sizes=sizes)


def test_a_cell_is_the_mean_over_seeds_with_students_interval(results: Results) -> None:
    rows = {row.name: row.cells[-1] for row in results.tables[0].rows}
    cell = rows["ct-san"]
    assert cell is not None
    assert cell.values == (0.75, 0.8, 0.775)
    assert cell.mean == pytest.approx(0.775)
    assert cell.half_width == pytest.approx(4.3027 * 0.025 / 3**0.5, rel=1e-3)  # t of two degrees of freedom
    assert cell.paper == 0.419
    assert [name for name, own in rows.items() if own and own.is_best] == ["ct-san-ensemble"]


def test_verdicts_tell_claims_that_hold_from_those_that_do_not_and_from_what_is_not_known(
    results: Results,
) -> None:
    verdicts = {(one.claim.better, one.claim.worse): one.verdict for one in results.checked}
    assert verdicts == {
        ("ct-san", "base-san"): "holds",
        ("ct-san-alone", "simple-lstm"): "cannot tell",
        ("ct-san-alone", "simple-blstm"): "does not hold",
        ("ct-san-ensemble", "ct-san"): "cannot tell",  # one ensemble, however much above
    }
    first = results.checked[0]
    assert first.difference == pytest.approx(0.5)
    assert first.in_paper == pytest.approx(0.419 - 0.345)
    simple = next(one for one in results.checked if one.claim.worse == "simple-lstm")
    assert simple.in_paper == pytest.approx(0.419 - 0.309)  # the paper has no CT-SAN from nothing


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((30, 31, 29), "holds"),  # every seed is above by as much as clips can tell
        ((40, 40, 10), "cannot tell"),  # as much on average: the clips agree, the seeds do not
        ((30, 30), "cannot tell"),  # two seeds that agree
        ((10, 11, 9), "does not hold"),
        ((10, 9), "cannot tell"),
    ],
)
def test_a_verdict_needs_three_seeds_that_agree(ours: tuple[int, ...], verdict: str) -> None:
    corpus = Corpus("mine", Path(), "own", (Clip("a", Path(), ("a dog",), "train"),))
    said: Any = {
        ("ct-san", "fill"): [answers(right) for right in ours],
        ("rand-san", "fill"): [answers(20) for _ in ours],
    }
    measured, _ = measure_all(said, {}, corpus, java=None)
    [checked] = check_claims(measured)
    assert checked.verdict == verdict
    averaged = compare(*(mean_of([own["accuracy"] for own in row.seeds]) for row in measured.values()))
    assert averaged.verdict != "within noise"  # by the clips alone there would be a verdict each time


@pytest.mark.parametrize(
    ("five_right", "verdict"),
    [
        (range(200), "holds"),  # of the same clips: no difference at all
        (range(200, 400), "cannot tell"),  # as many, of others: by another draw of clips they would differ
        (range(100), "does not hold"),
    ],
)
def test_being_as_good_is_told_from_too_few_clips_to_tell(five_right: range, verdict: str) -> None:
    corpus = Corpus("mine", Path(), "own", (Clip("a", Path(), ("a dog",), "train"),))
    ten, five = (
        {
            f"{clip:03}": [
                {"sentence": "a _____", "answer": "dog" if clip in right else "cat", "right": "dog"}
            ]
            for clip in range(400)
        }
        for right in (range(200), five_right)
    )
    said: Any = {("ct-san", "fill"): [ten] * 3, ("ct-san-k5", "fill"): [five] * 3}
    measured, _ = measure_all(said, {}, corpus, java=None)
    [checked] = check_claims(measured)
    assert checked.verdict == verdict


def test_reliance_stands_beside_the_systems_that_were_asked_with_other_words() -> None:
    corpus = Corpus(
        "mine", Path(), "own", tuple(Clip(f"{n}", Path(), ("a dog runs",), "test") for n in range(4))
    )
    own = {f"{n}": "a dog runs" for n in range(4)}
    said: Any = {("ct-san", "describe"): [own], ("rand-san", "describe"): [own]}
    said |= {("ct-san", "fill"): [answers(30), answers(32)]}
    others: Any = {
        ("ct-san", "describe"): [{"another": own | {"3": "a cat"}, "none": dict.fromkeys(own, "a cat")}],
        ("ct-san", "fill"): [
            {"another": answers(20), "none": answers(10)},
            {"another": answers(22), "none": answers(12)},
        ],
    }
    sizes: Any = {"fill": 1, "choose": 1, "rank": 1}

    def made(reliance: Any) -> Results:
        measured, notes = measure_all(said, {}, corpus, java=None, reliance=reliance)
        return make_results(measured, [TABLES["reliance"]], notes, ensemble_sizes=sizes)

    found = made(others)
    [row] = found.tables[0].rows  # rand-SAN's result is of before
    assert row.name == "ct-san"
    means = [None if cell is None else cell.mean for cell in row.cells]
    assert means[3] == 0.25  # changed captions
    assert means[4:8] == pytest.approx([0.775, 0.525, 0.275, 0.25])
    assert means[8:] == [None] * 8
    assert "## Reliance on concept words" in markdown(found, "Title", [])
    assert r"filled words changed \%" in latex(found)
    old = made(None)
    assert "Reliance" not in markdown(old, "Title", []) + latex(old)
    assert as_json(old, [])["tables"]["reliance"]["rows"] == {}


def test_all_forms_have_the_same_figures_and_mark_the_papers_corpus(results: Results) -> None:
    text = markdown(results, "Title", [("corpus", "mine")])
    assert "| CT-SAN | " in text
    assert "77.5 ± 6.2<br>*LSMDC 41.9*" in text
    assert "| CT-SAN (ensemble), 3 in blank | " in text
    assert "**100.0** ± 0.0<br>*LSMDC 42.7*" in text
    assert "| CT-SAN above Base-SAN | blank | accuracy | +0.500 |" in text
    assert "*Merging-LSTM (published, LSMDC only)*" in text
    tex = latex(results)
    assert r"\textbf{100.0} $\pm$ 0.0" in tex
    assert "CT-SAN (ensemble), 3 in blank & " in tex
    assert r"blank \%" in tex
    assert r"\scriptsize Merging-LSTM (published, LSMDC only)}" in tex
    rows = list(csv.DictReader(io.StringIO(as_csv(results))))
    assert {row["system"]: float(row["mean"]) for row in rows}["ct-san"] == pytest.approx(0.775)
    value = as_json(results, [("corpus", "mine")])
    cell = value["tables"]["description-blank"]["rows"]["ct-san"]["fill: accuracy"]
    assert cell["values"] == (0.75, 0.8, 0.775)
    assert value["claims"][0]["verdict"] == "holds"
    assert "Merging-LSTM" in value["tables"]["description-blank"]["published_on_lsmdc"]
