from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

import ctsan
from ctsan.config import load_settings
from ctsan.errors import RunError, UsageError
from ctsan.runs.run_folder import (
    CHECKPOINT_FILE,
    LOCK_FILE,
    SETTINGS_FILE,
    Origin,
    Run,
    check_ensemble_folder,
    check_folder,
    check_origin,
    create_run,
    members_of,
    open_run,
    training_alone,
    weights_digest,
)
from ctsan.runs.weights import WEIGHTS_FILE

ORIGIN = Origin(
    run="runs/old",
    task="describe",
    weights="0",
    parts=("clip_encoder", "word_input"),
    kept_words=100,
    new_words=3,
    kept_candidates=50,
    new_candidates=2,
)


def begin(folder: Path, *overrides: str, task: str = "describe", origin: Origin | None = None) -> Run:
    settings = load_settings("laptop", overrides)
    return create_run(folder, task=task, profile="laptop", settings=settings, origin=origin)


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
    begin(tmp_path, "training.steps=9999")
    assert open_run(tmp_path).settings.training.steps == 9999


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
        ({"format": None}, "its format is None, not 'ctsan-run'"),
        ({"format": "other"}, "its format is 'other', not 'ctsan-run'"),
        ({"version": 9}, "its version is 9, and this ctsan reads version 1"),
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


def test_a_run_that_is_too_old_has_one_remedy(tmp_path: Path) -> None:
    """A copy of it would not help."""
    begin(tmp_path)
    file = tmp_path / SETTINGS_FILE
    stored = json.loads(file.read_text(encoding="utf-8"))
    stored["settings"]["detector"]["probe"] = "ridge"
    file.write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(RunError) as caught:
        open_run(tmp_path)
    assert str(caught.value).startswith(f"{file}: This run is of an older ctsan")
    assert str(caught.value).endswith("does not have. Train it again in another folder.")


@pytest.mark.parametrize("text", ["", "{", "[]", "\udcff"])
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


def test_a_folder_is_locked_until_the_outermost_block_ends(tmp_path: Path) -> None:
    others = FileLock(tmp_path / LOCK_FILE)  # as good as that of another process
    with training_alone(tmp_path):
        begin(tmp_path)
        with training_alone(tmp_path / "sub" / ".."):
            pass
        with pytest.raises(Timeout):
            others.acquire(timeout=0)
    with (
        others.acquire(timeout=0),
        pytest.raises(RunError, match="another process is training in this folder. Wait"),
        training_alone(tmp_path),
    ):
        pass


def test_a_run_knows_where_it_came_from_and_keeps_it(tmp_path: Path) -> None:
    begin(tmp_path, origin=ORIGIN)
    assert open_run(tmp_path).origin == ORIGIN
    (tmp_path / CHECKPOINT_FILE).touch()
    begin(tmp_path, "training.steps=9999")  # gone on with
    assert open_run(tmp_path).origin == ORIGIN


def test_runs_of_before_there_were_origins_are_opened(tmp_path: Path) -> None:
    begin(tmp_path)
    file = tmp_path / SETTINGS_FILE
    value = json.loads(file.read_text(encoding="utf-8"))
    del value["from"]
    file.write_text(json.dumps(value), encoding="utf-8")
    assert open_run(tmp_path).origin is None


def test_a_run_goes_on_from_its_own_origin_only(tmp_path: Path) -> None:
    old, moved, other = (tmp_path / name for name in ("old", "moved", "other"))
    for folder, content in ((moved, b"weights"), (other, b"others")):
        folder.mkdir()
        (folder / WEIGHTS_FILE).write_bytes(content)
    origin = replace(ORIGIN, run=str(old), weights=weights_digest(moved))
    run, plain = begin(tmp_path / "run", origin=origin), begin(tmp_path / "plain")
    check_origin(run, old)  # it is gone, and its name is enough
    check_origin(run, moved)  # the same weights in another place
    check_origin(plain, None)
    with pytest.raises(UsageError, match=f"those that were in {old}, than are in {other}. Give it the same"):
        check_origin(run, other)
    with pytest.raises(UsageError, match="started from other weights"):
        check_origin(run, tmp_path / "nowhere")
    with pytest.raises(UsageError, match=f"this run was started from {old}. Give it --from {old}, or name"):
        check_origin(run, None)
    with pytest.raises(UsageError, match=f"from no other run, and {old} is given. Leave out --from"):
        check_origin(plain, old)
    with pytest.raises(RunError, match="there is no such file. Train first"):
        weights_digest(old)


def test_one_run_and_an_ensemble_are_not_taken_for_each_other(tmp_path: Path) -> None:
    ensemble, single = tmp_path / "ensemble", tmp_path / "single"
    check_ensemble_folder(ensemble)  # not there yet
    begin(single)
    for number in (1, 2):
        begin(ensemble / str(number))
    assert members_of(ensemble) == [ensemble / "1", ensemble / "2"]
    assert members_of(single) == []
    check_ensemble_folder(ensemble)
    with pytest.raises(RunError, match="an ensemble of 2, not one run. Go on with it by --ensemble 2"):
        check_folder(ensemble)
    with pytest.raises(RunError, match="it holds one run, not an ensemble. Name another folder"):
        check_ensemble_folder(single)
    with pytest.raises(RunError, match="an ensemble is there, not one run. Name a member: .*1, .*2"):
        open_run(ensemble)
    (ensemble / "photo.jpg").touch()
    with pytest.raises(RunError, match="not empty \\(it holds 'photo.jpg'\\)"):
        check_ensemble_folder(ensemble)
