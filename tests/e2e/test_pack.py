"""`ctsan pack`, and packs wherever a run can be named: in half precision, each thing once, `default` too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open

import ctsan.runs.pack_folder
import ctsan.runs.packing
from commands import ctsan_here
from ctsan.errors import CtsanError, RunError, UsageError
from ctsan.inference.predictor import Predictor
from ctsan.runs import trained_run
from ctsan.runs.pack_folder import runs_of_pack
from ctsan.runs.packing import write_pack
from ctsan.runs.trained_run import load_runs
from ctsan.runs.weights import Array, read_weights

Runs = dict[str, Path]

TASKS = ("describe", "fill", "choose", "rank")
SENTENCES = ["a star leaves to the left", "a heart grows"]


@pytest.fixture(scope="module")
def pack(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packs") / "pack"
    write_pack([runs[task] for task in TASKS], folder)
    return folder


@pytest.fixture(scope="module")
def clip(shapes: Path) -> Path:
    return shapes / "corpus/clips/0000.mp4"


def test_a_pack_answers_like_its_runs(runs: Runs, pack: Path, clip: Path) -> None:
    packed, whole = Predictor.load(pack), Predictor.load(*(runs[task] for task in TASKS))
    confidences = {each.word: each.confidence for each in whole.concepts(clip)}
    for each in packed.concepts(clip):
        assert each.confidence == pytest.approx(confidences[each.word], abs=2e-3)
    answers = {each.word: each.probability for each in whole.fill(clip, "a __ star", n_best=99).answers}
    for answer in packed.fill(clip, "a __ star").answers:
        assert answer.probability == pytest.approx(answers[answer.word], abs=2e-3)
    for one, two in zip(
        packed.choose(clip, SENTENCES).choices, whole.choose(clip, SENTENCES).choices, strict=True
    ):
        assert one.score == pytest.approx(two.score, abs=2e-2)
    assert packed.describe(clip).captions[0].score == pytest.approx(
        whole.describe(clip).captions[0].score, abs=2e-2
    )


def test_a_pack_holds_only_what_use_needs(pack: Path) -> None:
    files = {str(file.relative_to(pack)) for file in pack.rglob("*") if file.is_file()}
    own = {f"{task}/{name}" for task in TASKS for name in ("settings.json", "features.json")}
    own |= {f"{task}/weights.safetensors" for task in TASKS}
    assert files - {"shared.safetensors"} == {
        "pack.json",
        "words/vocabulary.json",
        "words/concepts.json",
        *own,
    }
    with safe_open(pack / "rank/weights.safetensors", framework="numpy") as weights:
        kinds = {name: weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118 (no dict)
        shapes = {name: weights.get_slice(name).get_shape() for name in kinds}
    assert {kinds[name] for name in kinds if len(shapes[name]) > 1} == {"F16"}
    assert {kinds[name] for name in kinds if len(shapes[name]) < 2} <= {"F32", "I64"}


def test_large_matrices_are_in_eight_bits(
    runs: Runs, tmp_path: Path, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = write_pack([runs["describe"]], tmp_path / "half")
    monkeypatch.setattr(ctsan.runs.packing, "_LARGE", 100)
    assert write_pack([runs["describe"]], tmp_path / "eight") < half
    with safe_open(tmp_path / "eight/describe/weights.safetensors", framework="numpy") as weights:
        name = "clip_encoder.detector.name.weight"
        assert weights.get_slice(name).get_dtype() == "I8"
        assert weights.get_slice(name + "/scale").get_dtype() == "F32"
    one, two = (
        {each.word: each.confidence for each in Predictor.load(tmp_path / folder).concepts(clip)}
        for folder in ("half", "eight")
    )
    assert one.keys() == two.keys()
    assert all(two[word] == pytest.approx(one[word], abs=5e-3) for word in one)


def test_what_runs_have_in_common_is_there_once(runs: Runs, tmp_path: Path, clip: Path) -> None:
    tuned = tmp_path / "tuned"  # another head on the same encoder would look the same
    shutil.copytree(runs["fill"], tuned)
    alone = write_pack([runs["fill"]], tmp_path / "one")
    both = write_pack([runs["fill"], tuned], tmp_path / "two")
    assert both < alone + 20_000
    assert [run.name for run in runs_of_pack(tmp_path / "two")] == ["fill", "fill-2"]
    one, two = (Predictor.load(tmp_path / name).fill(clip, "a __") for name in ("one", "two"))
    assert [each.word for each in one.answers] == [each.word for each in two.answers]
    (tmp_path / "two/shared.safetensors").unlink()
    with pytest.raises(RunError, match="shared.safetensors: there is no such file"):
        Predictor.load(tmp_path / "two").fill(clip, "a __")


def test_runs_with_words_of_their_own_keep_them(runs: Runs, tmp_path: Path, clip: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs["choose"], other)
    file = other / "words/vocabulary.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["words"] = {word: count + 1 for word, count in content["words"].items()}
    file.write_text(json.dumps(content), encoding="utf-8")
    write_pack([runs["rank"], other], tmp_path / "pack", overrides=["decoding.beam=4"])
    assert {run.settings.decoding.beam for run in load_runs([tmp_path / "pack"])} == {4}
    with pytest.raises(UsageError, match="model.dropout=0: a pack keeps the settings"):
        write_pack([runs["rank"]], tmp_path / "other", overrides=["model.dropout=0"])
    assert not (tmp_path / "pack/rank/words").exists()
    assert (tmp_path / "pack/choose/words").exists()
    found = Predictor.load(tmp_path / "pack")
    assert found.models[1].vocabulary.counts != found.models[0].vocabulary.counts
    assert len(found.rank("a star", [clip]).clips) == 1


def test_packing_twice_gives_the_same_bytes(runs: Runs, pack: Path, tmp_path: Path) -> None:
    write_pack([runs[task] for task in TASKS], tmp_path / "again")
    for file in pack.rglob("*"):
        if file.is_file():
            assert file.read_bytes() == (tmp_path / "again" / file.relative_to(pack)).read_bytes()


def test_only_what_is_asked_is_read(pack: Path, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def reading(file: Path) -> dict[str, Array]:
        read.append(file.parent)
        return read_weights(file)

    monkeypatch.setattr(trained_run, "read_weights", reading)
    predictor = Predictor.load(pack)
    predictor.describe(clip)
    assert [model.task for model in predictor.models if model.folder in read] == ["describe"]
    assert set(predictor.seconds) == {"load", "decode", "backbone", "model"}


def test_the_package_s_own_model_is_the_default(
    pack: Path, shapes: Path, clip: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ctsan.runs.pack_folder, "DEFAULT_FOLDER", pack)
    for arguments in (
        ("describe", clip),
        ("concepts", clip),
        ("fill", clip, "a __ star"),
        ("choose", clip, *SENTENCES),
        ("rank", "a star", clip),
    ):
        ctsan_here(*arguments, "--json")
        with_default = capsys.readouterr().out
        ctsan_here(*arguments, "--json", "--model", pack)
        assert with_default == capsys.readouterr().out
    assert Predictor.load().describe(clip) == Predictor.load(pack).describe(clip)
    corpus = ("--corpus", shapes / "corpus", "--features", shapes / "features", "--split", "train")
    for task in ("fill", "rank"):
        ctsan_here("evaluate", "default", "--task", task, *corpus, "--json")
        measured = json.loads(capsys.readouterr().out)
        assert measured["task"] == task
        # Runs that choose rank beside those that rank.
        assert {Path(run).name for run in measured["runs"]} == {task, *({"choose"} if task == "rank" else ())}
    with pytest.raises(UsageError, match="Say which to ask with --task"):
        ctsan_here("evaluate", "default", *corpus)


def test_without_a_model_of_its_own_the_package_says_what_to_do(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctsan.runs.pack_folder, "DEFAULT_FOLDER", tmp_path)
    with pytest.raises(RunError, match="carries no trained model. Train one, and name it: ctsan train"):
        ctsan_here("describe", clip)


def test_training_starts_from_the_run_of_its_task(pack: Path, shapes: Path, tmp_path: Path) -> None:
    ctsan_here(
        *("train", "fill", "--corpus", shapes / "corpus", "--features", shapes / "features"),
        *("--from", pack, "--out", tmp_path / "run"),
        *("--set=training.steps=2", "--set=training.evaluations=1"),
    )
    origin = json.loads((tmp_path / "run/settings.json").read_text(encoding="utf-8"))["from"]
    assert (origin["run"], origin["task"]) == (str(pack / "fill"), "fill")
    write_pack([tmp_path / "run"], tmp_path / "packed")
    assert json.loads((tmp_path / "packed/fill/settings.json").read_text(encoding="utf-8"))["from"] is None
    assert load_runs([tmp_path / "packed"])[0].task == "fill"


def test_what_cannot_be_packed_says_so(runs: Runs, pack: Path, tmp_path: Path, shapes: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(pack, broken)
    (broken / "pack.json").write_text("{", encoding="utf-8")
    for message, arguments in (
        ("it is there already", ("pack", runs["fill"], "--out", pack)),
        ("no run is there", ("pack", shapes, "--out", tmp_path / "a")),
        ("pack.json: it is damaged", ("describe", "clip.mp4", "--model", broken)),
    ):
        with pytest.raises(CtsanError, match=message):
            ctsan_here(*arguments)
    assert not (tmp_path / "a").exists()
