"""What is trained for which table, and from what it starts."""

from __future__ import annotations

import pytest

from ctsan.config import load_settings
from ctsan.errors import UsageError
from ctsan.tables.layout import TABLES
from ctsan.tables.paper import CLAIMS, COMPARED_BY, figure
from ctsan.tables.plan import Training, make_plan, settings_of
from ctsan.tables.systems import ENSEMBLES, SYSTEMS


def test_each_run_comes_once_and_after_those_that_it_starts_from() -> None:
    trainings = make_plan([], seeds=2).trainings
    places = {training: place for place, training in enumerate(trainings)}
    assert len(places) == len(trainings)
    for training, place in places.items():
        if training.task in ("fill", "choose", "rank") and "describe" in SYSTEMS[training.system].measured:
            assert training.system != "ct-san-alone"
            assert places[Training("describe", training.system, training.seed)] < place
        if training.system == "decoupled" and training.task != "detect":
            assert places[Training("detect", "decoupled", training.seed)] < place


def test_every_row_of_every_table_is_trained() -> None:
    trained = {(training.task, training.system) for training in make_plan([], seeds=1).trainings}
    for table in TABLES.values():
        for row in table.rows:
            name = ENSEMBLES[row].of if row in ENSEMBLES else row
            for task in {column.task for column in table.columns} & set(SYSTEMS[name].measured):
                assert (SYSTEMS[name].training(task), name) in trained


def test_names_choose_tables_systems_and_tasks() -> None:
    names = {one.name for one in make_plan(["ct-san", "s2vt", "describe"], seeds=1).trainings}
    assert names == {"describe/ct-san/0", "describe/s2vt/0"}
    systems = {one.system for one in make_plan(["attention"], seeds=1).trainings}
    assert systems == {"only-input", "only-output", "ct-san"}
    with pytest.raises(UsageError, match="Unknown table, system or task 'ct-sun'. Did you mean 'ct-san'?"):
        make_plan(["ct-sun"], seeds=1)
    with pytest.raises(UsageError, match="s2vt, fill have nothing in common"):
        make_plan(["s2vt", "fill"], seeds=1)


def test_retrieval_ensembles_get_the_choice_model_that_helps_them() -> None:
    names = {one.name for one in make_plan(["ct-san", "rank"], seeds=2).trainings}
    assert names == {
        "describe/ct-san/0",
        "describe/ct-san/1",
        "rank/ct-san/0",
        "rank/ct-san/1",
        "choose/ct-san/0",
    }
    assert "choose/ct-san/0" not in {one.name for one in make_plan(["ct-san", "rank"], seeds=1).trainings}


def test_an_ensemble_is_wanted_with_its_members_in_a_table_that_shows_it() -> None:
    assert make_plan(["ct-san"], seeds=2).has("ct-san-ensemble")
    assert not make_plan(["ct-san"], seeds=2).has("base-san-ensemble")
    assert not make_plan(["attention"], seeds=2).has("ct-san-ensemble")


def test_all_systems_have_the_same_budget_and_differ_from_ct_san_in_what_they_are() -> None:
    budgets = set()
    for training in make_plan([], seeds=1).trainings:
        settings = settings_of(training, profile="laptop", overrides=("training.steps=7",))
        budgets.add(settings.training.steps)
        if training.task != "embed":
            assert settings.optimiser == load_settings("laptop").optimiser
    assert budgets == {7}


def test_the_papers_figures_bear_out_its_claims() -> None:
    """In the metrics that we compare by; a mistyped figure would not."""
    for claim in CLAIMS:
        for task in claim.tasks:
            better, worse = (figure(name, task, COMPARED_BY[task]) for name in (claim.better, claim.worse))
            if better is not None and worse is not None:
                assert better > worse if claim.kind == "above" else abs(better - worse) < 0.01
