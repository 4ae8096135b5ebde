from __future__ import annotations

import json
from pathlib import Path

import pytest

import ctsan
from ctsan.config import load_settings
from ctsan.errors import RunError, UsageError
from ctsan.training.checkpoint import CHECKPOINT_FILE, WEIGHTS_FILE
from ctsan.training.run_folder import SETTINGS_FILE, Run, create_run, open_run, training_alone


def begin(folder: Path, *overrides: str, task: str = "describe") -> Run:
    return create_run(folder, task=task, profile="laptop", settings=load_settings("laptop", overrides))


def test_a_run_is_opened_as_it_was_created(tmp_path: Path) -> None:
    created = begin(tmp_path / "new" / "run", "detector.num_concepts=20")
    assert open_run(tmp_path / "new" / "run") == created
    assert (created.task, created.profile, created.ctsan) == ("describe", "laptop", ctsan.__version__)
    assert created.settings.detector.num_concepts == 20


def test_the_same_run_is_taken_up_and_may_become_longer(tmp_path: Path) -> None:
    begin(tmp_path)
    before = (tmp_path / SETTINGS_FILE).read_bytes()
    begin(tmp_path)
    assert (tmp_path / SETTINGS_FILE).read_bytes() == before
    begin(tmp_path, "training.epochs=99")
    assert open_run(tmp_path).settings.training.epochs == 99


@pytest.mark.parametrize("result", [CHECKPOINT_FILE, WEIGHTS_FILE])
def test_another_run_is_refused(tmp_path: Path, result: str) -> None:
    begin(tmp_path, "model.dropout=0.2")
    (tmp_path / result).touch()
    with pytest.raises(UsageError, match="model.dropout is 0.2 there and 0.5 now"):
        begin(tmp_path, "model.dropout=0.5")
    with pytest.raises(RunError, match="holds a run of the task 'describe', not 'retrieve'. Name another"):
        begin(tmp_path, "model.dropout=0.2", task="retrieve")
    assert open_run(tmp_path).settings == load_settings("laptop", ["model.dropout=0.2"])


def test_what_is_no_run_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(RunError, match="no run folder and not empty \\(it holds 'photo.jpg'\\)"):
        begin(tmp_path)
    with pytest.raises(RunError, match="this is a file. Name a folder"):
        begin(tmp_path / "photo.jpg")
    for folder in (tmp_path, tmp_path / "none", tmp_path / "photo.jpg"):
        with pytest.raises(RunError, match="no run is there. Train one with 'ctsan train'"):
            open_run(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"format": "other"}, "its format is 'other', not 'ctsan-run'"),
        ({"version": 9}, "a run of version 9, and this ctsan reads version 1"),
        ({"settings": {"model": {"hiden_dim": 3}}}, "Unknown setting 'hiden_dim' in [model]. Did you mean"),
        ({"settings": 3}, "Settings are an object of sections"),
    ],
)
def test_settings_that_cannot_be_used_are_named(tmp_path: Path, change: dict[str, object], what: str) -> None:
    begin(tmp_path)
    file = tmp_path / SETTINGS_FILE
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(RunError) as caught:
        open_run(tmp_path)
    assert str(caught.value).startswith(f"{file}: {what}")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\udcff"])
def test_damaged_settings_are_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / SETTINGS_FILE
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(RunError, match="it is damaged .* Put it back from a copy"):
        open_run(tmp_path)


def test_a_run_without_a_checkpoint_gives_way_to_another(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / "words").mkdir()
    new = begin(tmp_path, "model.dropout=0.5", task="retrieve")
    assert open_run(tmp_path) == new
    assert new.settings.model.dropout == 0.5


def test_settings_of_another_program_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text('{"format": "editor", "tabs": 4}', encoding="utf-8")
    with pytest.raises(RunError, match="its format is 'editor', not 'ctsan-run'"):
        begin(tmp_path)
    assert "tabs" in (tmp_path / SETTINGS_FILE).read_text(encoding="utf-8")


def test_a_run_begins_in_a_folder_that_is_locked_for_it(tmp_path: Path) -> None:
    with training_alone(tmp_path):
        begin(tmp_path)
        with (
            pytest.raises(RunError, match="another process is training in this folder"),
            training_alone(tmp_path),
        ):
            pass
