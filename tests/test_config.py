from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ctsan.config import (
    PROFILES,
    EnsembleSettings,
    Settings,
    check_resumable,
    described_settings,
    load_settings,
    settings_from_json,
)
from ctsan.config.settings import value_types
from ctsan.errors import UsageError, warn_renamed
from ctsan.tasks.registry import task_settings


def message_of(*overrides: str, profile: str = "paper") -> str:
    with pytest.raises(UsageError) as caught:
        load_settings(profile, overrides)
    return str(caught.value)


def test_the_paper_profile_has_the_papers_values() -> None:
    paper = load_settings("paper")
    assert (paper.model.hidden_dim, paper.model.embedding_dim, paper.model.num_layers) == (500, 300, 2)
    assert (paper.detector.num_concepts, paper.detector.num_candidates) == (10, 2000)
    assert (paper.model.dropout, paper.optimiser.learning_rate) == (0.2, 1e-4)
    assert (paper.attention.input, paper.attention.output, paper.detector.confidence_weighted) == (
        True,
        True,
        False,
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_settings_survive_json(profile: str) -> None:
    settings = load_settings(profile, ["training.seed=7", "detector.confidence_weighted=true"])
    assert settings_from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_overrides_have_the_kind_of_their_setting_and_the_last_counts() -> None:
    settings = load_settings(
        "laptop",
        [
            "detector.num_concepts=20",
            "optimiser.learning_rate=.5",
            "optimiser.learning_rate = 1",
            "attention.input=False",
            "optimiser.schedule=halve",
        ],
    )
    assert settings.detector.num_concepts == 20
    assert isinstance(settings.optimiser.learning_rate, float)
    assert settings.optimiser.learning_rate == 1
    assert settings.attention.input is False
    assert settings.optimiser.schedule == "halve"
    assert settings.model == PROFILES["laptop"].model


def test_a_task_has_its_defaults_in_every_profile_and_overrides_come_after_them() -> None:
    for profile, usual in PROFILES.items():
        assert all(task_settings(task, profile) == usual for task in ("describe", "fill", "rank"))
        embed = task_settings("embed", profile, ["training.steps=7"])
        assert (embed.training.batch_size, embed.training.steps) == (256, 7)
        assert (embed.optimiser.learning_rate, embed.optimiser.weight_decay) == (1e-3, 0.05)
        assert (embed.retrieval.ridge_init, embed.retrieval.phrases) == (True, 16000)
        assert embed.model == usual.model
        assert task_settings("embed", profile, ["training.epochs=3"]).training.steps == 0
    with pytest.raises(UsageError, match="Unknown task 'embedd'. Did you mean 'embed'?"):
        task_settings("embedd", "paper")


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    expected = "Unknown setting 'num_concept' in [detector]. Did you mean 'num_concepts'?"
    assert message_of("detector.num_concept=5") == expected
    assert message_of("detektor.probe=mlp") == "Unknown section [detektor]. Did you mean 'detector'?"
    assert message_of(profile="papers") == "Unknown profile 'papers'. Did you mean 'paper'?"
    assert message_of(profile="x") == "Unknown profile 'x'. There are paper and laptop."
    expected = "Unknown setting 'xyz' in [attention]. It has input, output, contrastive_init."
    assert message_of("attention.xyz=1") == expected


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("detector.num_concepts=ten", "cannot be 'ten'. It must be a whole number from 1 to 1,000,000."),
        ("detector.num_concepts=1.5", "cannot be '1.5'. It must be a whole number from 1 to 1,000,000."),
        ("detector.num_concepts=0", "cannot be 0. It must be a whole number from 1 to 1,000,000."),
        ("training.seed=-1", "cannot be -1. It must be a whole number from 0 to 4,294,967,295."),
        ("model.dropout=1", "cannot be 1.0. It must be a number from 0 to below 1."),
        ("optimiser.learning_rate=0", "cannot be 0.0. It must be a number above 0, at most 1,000,000."),
        ("optimiser.learning_rate=nan", "cannot be nan. It must be a number above 0, at most 1,000,000."),
        ("loss.attention_weight=inf", "cannot be inf. It must be a number from 0 to 1,000,000."),
        ("attention.input=yes", "cannot be 'yes'. It must be true or false."),
        ("optimiser.schedule=linear", "cannot be 'linear'. It must be one of constant, cosine, halve."),
    ],
)
def test_values_out_of_kind_or_range_are_refused(override: str, expected: str) -> None:
    assert message_of(override) == f"Setting {override.partition('=')[0]} {expected}"


@pytest.mark.parametrize("override", ["detector", "detector.confidence_weighted", "=3", "beam=3"])
def test_what_sets_nothing_is_refused(override: str) -> None:
    assert message_of(override).startswith(f"{override!r} sets nothing. Write section.setting=value")


def test_all_problems_come_at_once() -> None:
    assert len(message_of("beam", "model.x=1", "x.y=1", "model.dropout=2").splitlines()) == 4


def test_more_concepts_than_candidates_are_refused() -> None:
    expected = "Setting detector.num_concepts must be at most detector.num_candidates, 5."
    assert message_of("detector.num_candidates=5") == expected


def test_json_with_unknown_or_wrong_settings_is_refused() -> None:
    stored = Settings().to_json()
    stored["detector"] |= {"num_trace": 3, "confidence_weighted": 1}
    with pytest.raises(UsageError) as caught:
        settings_from_json(stored)
    assert "Setting detector.confidence_weighted cannot be 1. It must be true or false." in str(caught.value)
    assert "Unknown setting 'num_trace' in [detector]." in str(caught.value)
    wrong: tuple[object, ...] = ([], {"model": 3}, None)
    for nonsense in wrong:
        with pytest.raises(UsageError, match="an object of sections"):
            settings_from_json(nonsense)


def test_a_run_goes_on_with_the_same_settings_or_for_longer() -> None:
    file, stored = Path("settings.json"), Settings().to_json()
    check_resumable(file, stored, load_settings("paper", ["training.epochs=60"]).to_json())
    check_resumable(file, stored, load_settings("paper", ["training.patience=6"]).to_json())
    other = load_settings("paper", ["training.epochs=6", "model.dropout=0"]).to_json()
    with pytest.raises(UsageError) as caught:
        check_resumable(file, stored, other)
    expected = "model.dropout is 0.2 there and 0.0 now; training.epochs is 50 there and 6 now."
    assert expected in str(caught.value)


def test_a_run_that_is_older_than_a_setting_goes_on_with_its_default() -> None:
    stored = Settings().to_json()
    del stored["training"]["freeze_clip_encoder"]
    check_resumable(Path("settings.json"), stored, Settings().to_json())
    with pytest.raises(UsageError, match="training.freeze_clip_encoder is False there and True now"):
        check_resumable(
            Path("settings.json"),
            stored,
            load_settings("paper", ["training.freeze_clip_encoder=true"]).to_json(),
        )


def test_an_older_run_keeps_what_the_code_of_its_time_did() -> None:
    """Whatever the default of a setting that it does not know, and without one that is gone."""
    values = PROFILES["paper"].to_json()
    del values["ensemble"]
    values["decoding"]["hearing"] = 0.1
    values["training"]["corrupt_concepts"] = True
    read = settings_from_json(values)
    assert read == replace(PROFILES["paper"], ensemble=EnsembleSettings(standardise=True))
    check_resumable(Path("run/settings.json"), values, read.to_json())  # it goes on as it began
    with pytest.raises(UsageError, match="ensemble.standardise is True there and False now"):
        check_resumable(Path("run/settings.json"), values, PROFILES["paper"].to_json())
    older = PROFILES["laptop"].to_json()
    assert older["decoding"].pop("skip_faulty")
    assert not settings_from_json(older).decoding.skip_faulty
    with pytest.raises(UsageError, match="Unknown setting 'hearing'"):
        load_settings("paper", ["decoding.hearing=0.1"])
    with pytest.raises(UsageError, match="Unknown setting 'corrupt_concepts'"):
        load_settings("paper", ["training.corrupt_concepts=true"])


def test_settings_need_no_torch() -> None:
    script = "import sys, ctsan.config; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


@pytest.mark.parametrize(("rank_by", "prior_weight"), [("confidence", 0.0), ("lift", 1.0)])
def test_settings_that_have_another_name_now_are_read(rank_by: str, prior_weight: float) -> None:
    old = load_settings("laptop").to_json()
    old["detector"].pop("prior_weight")
    old["detector"] |= {"rank_by": rank_by, "probe": False}
    read = settings_from_json(old)
    assert (read.detector.prior_weight, read.detector.probe) == (prior_weight, "none")


def test_stored_settings_with_old_names_are_translated_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    new = load_settings(
        "laptop", ["rerank.embedding_weight=0.4", "training.hflip=true", "detector.confidence_weighted=true"]
    )
    old = new.to_json()
    old["decoding"] |= {"suiting": 0.4, "expecting": old.pop("rerank")["cider_weight"], "repeats": False}
    old["training"] |= {"mirror": old["training"].pop("hflip"), "keep_clips": False}
    old["detector"] |= {"weighted": True, "pace": old["detector"].pop("lr_scale")}
    del old["decoding"]["no_repeat_ngram"], old["detector"]["confidence_weighted"]
    del old["training"]["freeze_clip_encoder"]
    assert settings_from_json(old) == new
    check_resumable(Path("run/settings.json"), old, new.to_json())
    assert caplog.text == ""


def test_a_setting_is_taken_by_its_old_name_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    overrides = ["decoding.repeats=False", "decoding.suiting=0.5", "decoding.suiting=0.4"]
    warn_renamed.cache_clear()
    settings = load_settings("paper", overrides)
    assert (settings.decoding.no_repeat_ngram, settings.rerank.embedding_weight) == (2, 0.4)
    load_settings("paper", overrides)
    assert [record.message for record in caplog.records] == [
        "decoding.repeats is called decoding.no_repeat_ngram now.",
        "decoding.suiting is called rerank.embedding_weight now.",
    ]


def test_every_setting_says_what_it_does() -> None:
    for each in described_settings():
        assert each.help.endswith("."), f"{each.section}.{each.name}"


@pytest.mark.parametrize("probe", [True, "ridge"])
def test_an_older_run_with_a_ridge_regression_as_its_probe_is_refused(probe: object) -> None:
    old = load_settings("laptop").to_json()
    old["detector"]["probe"] = probe
    with pytest.raises(UsageError) as caught:
        settings_from_json(old)
    assert str(caught.value) == (
        "This run is of an older ctsan: its probe of concept words (detector.probe) is a ridge regression, "
        "which this version does not have. Train it again in another folder."
    )
    assert message_of("detector.probe=ridge") == (
        "Setting detector.probe cannot be 'ridge'. It must be one of none, mlp."
    )


def numbers() -> list[tuple[str, str, type]]:
    """Every setting that is a number, with its section and its type."""
    return [
        (setting.section, setting.name, value_types(setting.section)[setting.name].base)
        for setting in described_settings()
        if value_types(setting.section)[setting.name].base in (int, float)
    ]


@pytest.mark.parametrize("value", [10**12, 10**400, 1e300, float("inf"), float("nan")])
def test_every_number_has_a_largest_value_that_the_message_names(value: float) -> None:
    for section, name, _ in numbers():
        stored = Settings().to_json()
        stored[section][name] = value
        with pytest.raises(UsageError, match=f"Setting {section}.{name} cannot be") as caught:
            settings_from_json(stored)
        assert re.search(r"(to|at most|below) [\d,]+\.$", str(caught.value))
        assert len(str(caught.value)) < 300


def test_the_largest_value_of_a_setting_is_accepted() -> None:
    for section, name, base in numbers():
        expected = value_types(section)[name].expected
        if base is int and (found := re.search(r"to ([\d,]+)$", expected)):
            largest = int(found[1].replace(",", ""))
            rest = ["detector.num_candidates=1000000"] if name == "num_concepts" else []
            settings = load_settings("paper", [*rest, f"{section}.{name}={largest}"])
            assert settings.to_json()[section][name] == largest
            assert f"cannot be {largest + 1}" in message_of(*rest, f"{section}.{name}={largest + 1}")


def test_an_override_as_long_as_a_file_has_a_short_message() -> None:
    for override in ("decoding.beam=" + "9" * 10_000, "model." + "x" * 10_000 + "=1", "x" * 10_000 + ".y=1"):
        assert len(message_of(override)) < 500


def test_a_checkpoint_with_settings_of_another_type_is_of_another_run() -> None:
    stored = Settings().to_json()
    stored["training"]["epochs"] = "many"
    with pytest.raises(UsageError, match="training.epochs is many there and 50 now"):
        check_resumable(Path("checkpoint"), stored, Settings().to_json())
