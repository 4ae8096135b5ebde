"""What is trained for which table, and from what it starts."""

from __future__ import annotations

import re

import pytest

from ctsan.config import PROFILES, load_settings
from ctsan.errors import UsageError
from ctsan.experiments.layout import TABLES
from ctsan.experiments.paper import CLAIMS, COMPARED_BY, ENSEMBLE_SIZES, figure
from ctsan.experiments.plan import Training, check_overrides, description_of, make_plan, settings_of
from ctsan.experiments.systems import ALL, ENSEMBLES, SYSTEMS
from ctsan.tasks.registry import task_settings


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


def test_ensembles_of_the_papers_sizes_train_more_members_and_no_more_of_other_systems() -> None:
    plan = make_plan([], seeds=2, ensemble_sizes=ENSEMBLE_SIZES)
    seeds: dict[tuple[str, str], int] = {}
    for one in plan.trainings:
        seeds[one.task, one.system] = max(seeds.get((one.task, one.system), 0), one.seed + 1)
    for system in ("ct-san", "base-san"):
        assert [seeds[task, system] for task in ("fill", "choose", "rank")] == [3, 6, 6]
        assert seeds["describe", system] == 6  # each member starts from a description model of its seed
        assert plan.members(f"{system}-ensemble", "rank") == [
            *(Training("rank", system, seed) for seed in range(6)),
            Training("choose", system, 0),
        ]
    assert {own for (_, system), own in seeds.items() if system not in ("ct-san", "base-san")} == {2}
    few = make_plan(["ct-san", "fill"], seeds=1, ensemble_sizes=ENSEMBLE_SIZES).trainings
    assert {one.name for one in few} == {
        f"{task}/ct-san/{seed}" for task in ("describe", "fill") for seed in range(3)
    }


def test_an_ensemble_is_wanted_with_its_members_in_a_table_that_shows_it() -> None:
    assert make_plan(["ct-san"], seeds=2).has("ct-san-ensemble")
    assert not make_plan(["ct-san"], seeds=2).has("base-san-ensemble")
    assert not make_plan(["attention"], seeds=2).has("ct-san-ensemble")


def test_all_systems_have_the_same_budget_and_differ_from_ct_san_in_what_they_are() -> None:
    budgets = set()
    for training in make_plan([], seeds=1).trainings:
        settings = settings_of(training, profile="laptop", overrides=("training.steps=7",))
        budgets.add(settings.training.steps)
        task = "describe" if training.task == "detect" else training.task
        assert settings.optimiser == task_settings(task, "laptop").optimiser
        unset = settings_of(training, profile="laptop", overrides=())
        assert unset.training.steps == load_settings("laptop").training.steps
    assert budgets == {7}


@pytest.mark.parametrize("profile", PROFILES)
def test_the_dual_encoder_is_what_train_embed_trains_but_for_the_budget_and_phrases(profile: str) -> None:
    steps = load_settings(profile).training.steps
    ours = settings_of(Training("embed", "dual-encoder", 0), profile=profile, overrides=())
    assert ours == task_settings("embed", profile, (f"training.steps={steps}", "retrieval.phrases=0"))
    assert (ours.training.batch_size, ours.retrieval.ridge_init) == (256, True)
    given = ("training.batch_size=9", "retrieval.ridge_init=false")
    changed = settings_of(Training("embed", "dual-encoder", 0), profile=profile, overrides=given)
    assert (changed.training.batch_size, changed.retrieval.ridge_init) == (9, False)


def test_clips_are_kept_in_runs_that_start_from_another_and_in_no_others() -> None:
    for training in make_plan([], seeds=1).trainings:
        settings = settings_of(training, profile="laptop", overrides=("training.freeze_clip_encoder=true",))
        assert settings.training.freeze_clip_encoder == (description_of(training) is not None)


@pytest.mark.parametrize(
    ("override", "only", "message"),
    [
        ("training.seed=7", [], "--set training.seed: every system has the seeds 0, 1, … here. Say how many"),
        ("retrieval.extra_vocabulary=9", [], "--set retrieval.extra_vocabulary: it takes words of --vectors"),
        ("detector.kind=decoupled", [], "Ask for that system: --only decoupled"),
        ("training.freeze_clip_encoder=true", ["s2vt"], "no run that is asked for starts from another"),
        ("detector.enabled=true", ["base-san"], "every system that is asked for has another value"),
    ],
)
def test_settings_that_would_change_no_run_are_refused(override: str, only: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        check_overrides(make_plan(only, seeds=1), profile="laptop", overrides=(override,))


def test_settings_that_some_run_takes_are_not_refused() -> None:
    given = (
        "training.freeze_clip_encoder=true",
        "detector.enabled=true",
        "model.dropout=0.3",
        "detector.kind=traces",
    )
    check_overrides(make_plan([], seeds=1), profile="laptop", overrides=given)


def test_both_systems_of_a_claim_start_alike() -> None:
    """A verdict on a model that starts from a description model, and one that does not, is of the start."""
    for claim in CLAIMS:
        for task in claim.tasks:
            ours, theirs = (
                description_of(Training(task, ENSEMBLES[name].of if name in ENSEMBLES else name, 0))
                for name in (claim.better, claim.worse)
            )
            assert (ours is None) == (theirs is None), f"{claim.better} and {claim.worse} in {task}"


def test_the_claim_that_decides_is_tested() -> None:
    """If random words do as well, concept words do nothing."""
    assert [claim.tasks for claim in CLAIMS if (claim.better, claim.worse) == ("ct-san", "rand-san")] == [ALL]


def test_the_papers_figures_bear_out_its_claims() -> None:
    """In the metrics that we compare by; a mistyped figure would not."""
    for claim in CLAIMS:
        for task in claim.tasks:
            names = (claim.better_in_paper or claim.better, claim.worse)
            better, worse = (figure(name, task, COMPARED_BY[task]) for name in names)
            if better is not None and worse is not None:
                assert better > worse if claim.kind == "above" else abs(better - worse) < 0.01
