"""A run or a pack whose files are damaged is refused with the file, the fault and a remedy."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ctsan.errors import CtsanError, RunError, WordsError
from ctsan.runs.pack_folder import PACK_FILE
from ctsan.runs.packing import write_pack
from ctsan.runs.run_folder import SETTINGS_FILE, open_run
from ctsan.runs.trained_run import FEATURES_FILE, load_runs, read_recipe
from ctsan.runs.weights import SHARED_FILE, WEIGHTS_FILE
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore
from runs.stored_runs import Missing, change_header, change_json, change_tensors, places_in, store_run

TASKS = ("describe", "rank", "embed")
VOCABULARY, CONCEPTS = "words/vocabulary.json", "words/concepts.json"
DEEP = "a value that is nested deeply"
ODD_VALUES: tuple[object, ...] = (
    *(None, True, -1, 0.5, float("inf"), float("nan"), 10**18, 10**400, "", "\ud800", "../../x", [], {}),
    *([[[1]]], {"version": 99}, "x" * 10_000, Missing, DEEP),
)


@pytest.fixture(scope="module")
def whole(words: Words, store: FeatureStore, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each task, and a pack of two that share tensors."""
    folder = tmp_path_factory.mktemp("whole")
    runs = {task: store_run(folder / task, task, words, store) for task in TASKS}
    write_pack([runs["describe"], runs["describe"]], folder / "pack")
    return {**runs, "pack": folder / "pack"}


@pytest.fixture
def copied(whole: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: shutil.copytree(whole[name], tmp_path / name, dirs_exist_ok=True)


def load(folder: Path) -> None:
    for run in load_runs([folder]):
        _ = run.model, run.words


def message_of(folder: Path, file: Path) -> str:
    """What is said about a folder whose file is damaged: the file, and what to do."""
    with pytest.raises((RunError, WordsError)) as caught:
        load(folder)
    said = str(caught.value)
    assert str(file) in said
    assert len(said) < 1_000
    return said


def fault_of(read: Callable[[], object]) -> str | None:
    """The message, if it is refused; anything but a message fails the test."""
    try:
        read()
    except CtsanError as error:
        return str(error)
    return None


def set_json(file: Path, place: tuple[str | int, ...], value: object) -> None:
    change_json(file, place, value)
    if value is DEEP:
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(json.dumps(DEEP), "[" * 100_000), encoding="utf-8")


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("name", [FEATURES_FILE, VOCABULARY, CONCEPTS])
def test_no_value_of_a_file_leads_to_another_error(
    name: str, value: object, copied: Callable[[str], Path]
) -> None:
    """Some values are as good as others; whatever is refused is refused with a message."""
    run = copied("describe")
    whole = (run / name).read_bytes()
    refused = 0
    for place in places_in(json.loads(whole)):
        set_json(run / name, place, value)
        said = fault_of(lambda: load(run))
        assert said is None or str(run) in said
        refused += said is not None
        (run / name).write_bytes(whole)
    assert refused


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: repr(value)[:20])
def test_no_value_of_the_settings_leads_to_another_error(
    value: object, copied: Callable[[str], Path]
) -> None:
    file = copied("describe") / SETTINGS_FILE
    whole = file.read_bytes()
    for place in places_in(json.loads(whole)):
        set_json(file, place, value)
        said = fault_of(lambda: open_run(file.parent))
        assert said is None or (said.startswith(f"{file}: ") and len(said) < 2_000)
        file.write_bytes(whole)


@pytest.mark.parametrize("name", [SETTINGS_FILE, FEATURES_FILE, WEIGHTS_FILE, VOCABULARY, CONCEPTS])
def test_what_stands_in_place_of_a_file_is_refused(name: str, copied: Callable[[str], Path]) -> None:
    run = copied("describe")
    file = run / name
    content = file.read_bytes()
    for damaged in (b"", content[: len(content) // 2], b"\xff\xfe\0", b"[]", b"PK\x03\x04" + content):
        file.write_bytes(damaged)
        message_of(run, file)
    file.unlink()
    os.mkfifo(file)  # to read it would be to wait forever
    with pytest.raises((RunError, WordsError)):
        load(run)
    file.unlink()
    file.mkdir()
    with pytest.raises((RunError, WordsError)):
        load(run)


def test_settings_beyond_their_limits_are_refused_in_stored_runs(copied: Callable[[str], Path]) -> None:
    run = copied("describe")
    change_json(run / SETTINGS_FILE, ("settings", "decoding", "beam"), 100_000)
    said = message_of(run, run / SETTINGS_FILE)
    assert "decoding.beam cannot be 100000. It must be a whole number from 1 to 1,000." in said


@pytest.mark.parametrize(
    ("section", "setting", "value"),
    [("model", "hidden_dim", 16_384), ("detector", "attention_dim", 16_384)],
)
def test_a_model_that_is_larger_than_its_weights_is_not_built(
    section: str, setting: str, value: int, copied: Callable[[str], Path]
) -> None:
    """Such a one could take all memory."""
    run = copied("describe")
    change_json(run / SETTINGS_FILE, ("settings", section, setting), value)
    assert "is larger than these weights" in message_of(run, run / WEIGHTS_FILE)


def test_a_run_without_its_features_file_says_what_it_lacks(copied: Callable[[str], Path]) -> None:
    run = copied("describe")
    (run / FEATURES_FILE).unlink()
    with pytest.raises(RunError, match="features.json: missing or damaged .there is no such file.. Put it"):
        read_recipe(run)


def first(tensors: dict[str, torch.Tensor], end: str) -> str:
    return next(name for name in tensors if name.endswith(end))


TENSORS: dict[str, tuple[str, Callable[[dict[str, Any]], Any], str]] = {
    "a weight is no number": (
        "describe",
        lambda t: t[first(t, "say.weight")].view(-1)[3:4].fill_(float("nan")),
        "values that are infinite or no number",
    ),
    "a weight is infinite": (
        "describe",
        lambda t: t[first(t, "say.bias")][:1].fill_(float("-inf")),
        "values that are infinite or no number",
    ),
    "one is missing": (
        "describe",
        lambda t: {name: tensor for name, tensor in t.items() if not name.endswith("say.bias")},
        "do not fit the model: Missing key",
    ),
    "one is too many": ("describe", lambda t: t | {"x": torch.zeros(3)}, "do not fit the model: Unexpected"),
    "one has another shape": (
        "describe",
        lambda t: t | {first(t, "say.bias"): torch.zeros(3)},
        "do not fit the model: size mismatch",
    ),
    "one is of whole numbers": (
        "describe",
        lambda t: t | {(name := first(t, "say.bias")): t[name].long()},
        "do not fit the model: .* is torch.int64",
    ),
    "one is of complex numbers": (
        "describe",
        lambda t: t | {(name := first(t, "say.bias")): t[name].to(torch.complex64)},
        "is of the type complex64",
    ),
    "no word vectors": (
        "describe",
        lambda t: {name: tensor for name, tensor in t.items() if "embedding.weight" not in name},
        "it holds no word vectors",
    ),
    "word vectors that are numbers": (
        "describe",
        lambda t: t | {first(t, "embedding.weight"): torch.zeros(13)},
        "it holds no word vectors",
    ),
    "word vectors of fewer words": (
        "describe",
        lambda t: t | {(name := first(t, "embedding.weight")): t[name][:-1].clone()},
        "it has 13 words, and the weights have vectors of 12",
    ),
    "a candidate that is no word": (
        "describe",
        lambda t: t["clip_encoder.candidate_words"][:1].fill_(2**40),
        "candidate_words does not fit the words",
    ),
    "a hash beyond the sketch": (
        "rank",
        lambda t: t["pool.first_hash"][:1].fill_(32),
        "pool.first_hash does not fit",
    ),
    "a scale of zero": ("rank", lambda t: t["score_scale"].fill_(0), "score_scale does not fit"),
    "a negative hash": (
        "rank",
        lambda t: t["pool.second_hash"][:1].fill_(-1),
        "pool.second_hash does not fit",
    ),
}


@pytest.mark.parametrize(("task", "change", "said"), TENSORS.values(), ids=TENSORS)
def test_damaged_tensors_are_named(
    task: str, change: Callable[[dict[str, Any]], Any], said: str, copied: Callable[[str], Path]
) -> None:
    run = copied(task)
    change_tensors(run / WEIGHTS_FILE, change)
    with pytest.raises((RunError, WordsError), match=said) as caught:
        load(run)
    assert str(run) in str(caught.value)
    assert len(str(caught.value)) < 1_000


HEADERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no format": lambda header: header.pop("format"),
    "no version": lambda header: header.pop("version"),
    "a version of text": lambda header: header.update(version="1"),
    "a later version": lambda header: header.update(version=2),
    "shared tensors by number": lambda header: header.update(shared={"x": 3}),
    "shared tensors as a list": lambda header: header.update(shared=["x"]),
    "shared tensors that are nowhere": lambda header: header.update(shared={"x": "y"}),
}


@pytest.mark.parametrize("change", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("name", ["describe", "pack"])
def test_damaged_headers_are_named(
    name: str, change: Callable[[dict[str, Any]], Any], copied: Callable[[str], Path]
) -> None:
    folder = copied(name)
    change_header((folder if name != "pack" else folder / "describe") / WEIGHTS_FILE, change)
    with pytest.raises(RunError) as caught:
        load(folder)
    assert str(caught.value).startswith(f"{folder.parent}/")  # that of the weights, or of the shared tensors


@pytest.mark.parametrize(
    "names",
    [
        *([], None, "describe", ["../describe"], ["/etc"], ["describe", "describe"], ["describe"] * 1000),
        *([3], [""], ["."], [".."], ["a/b"], ["a\0"], ["\ud800"], ["x" * 10_000], {"describe": 1}),
    ],
    ids=lambda names: repr(names)[:20],
)
def test_a_pack_names_folders_of_its_own_only(names: object, copied: Callable[[str], Path]) -> None:
    pack = copied("pack")
    change_json(pack / PACK_FILE, ("runs",), names)
    assert "it is damaged (its 'runs'" in message_of(pack, pack / PACK_FILE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "other"}, "its format is 'other', not 'ctsan-pack'. Use the ctsan that made it"),
        ({"version": 2}, "its version is 2, and this ctsan reads version 1. Use the ctsan that made it"),
        ({"version": None}, "it is damaged (its 'version' is None, not a whole number). Make the pack again"),
    ],
)
def test_a_pack_of_another_kind_is_named(
    change: dict[str, object], said: str, copied: Callable[[str], Path]
) -> None:
    pack = copied("pack")
    for key, value in change.items():
        change_json(pack / PACK_FILE, (key,), value)
    assert said in message_of(pack, pack / PACK_FILE)


def test_a_pack_with_damaged_shared_tensors_is_named(copied: Callable[[str], Path]) -> None:
    pack = copied("pack")

    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensor = next(tensor for tensor in tensors.values() if tensor.is_floating_point())
        tensor.view(-1)[:1].fill_(float("nan"))

    change_tensors(pack / SHARED_FILE, spoil)
    assert "infinite or no number" in message_of(pack, pack / SHARED_FILE)
    (pack / SHARED_FILE).unlink()
    assert "there is no such file" in message_of(pack, pack / SHARED_FILE)


def test_a_run_of_an_unknown_task_is_not_packed(copied: Callable[[str], Path], tmp_path: Path) -> None:
    """Its task would be the name of a folder."""
    run = copied("describe")
    change_json(run / SETTINGS_FILE, ("task",), "../../escaped")
    with pytest.raises(RunError, match="which this ctsan does not know"):
        write_pack([run], tmp_path / "out" / "pack")
    assert not (tmp_path / "out").exists()
