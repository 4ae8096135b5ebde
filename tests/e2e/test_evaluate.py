"""`ctsan evaluate` for one run and for several that answer as one, on items of a file or of the corpus."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import ctsan.training.features
from commands import ctsan as real_command
from commands import ctsan_here
from ctsan.data.corpus import BlankItem, ChoiceItem, Item, QueryItem
from ctsan.data.items import write_items
from ctsan.data.reading import read_corpus
from ctsan.errors import CtsanError, UsageError
from ctsan.evaluation.java import find_java
from ctsan.inference.predictor import Predictor
from e2e.small_run import SMALL

Runs = dict[str, Path]
JAVA = find_java()


@pytest.fixture(scope="module")
def items(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files of items about all training clips."""
    clips = read_corpus(shapes / "corpus").split("train")
    made: dict[str, list[Item]] = {"fill": [], "choose": [], "rank": []}
    for clip, other in zip(clips, reversed(clips), strict=True):
        first, *_, last = clip.captions[0].split()
        made["fill"].append(BlankItem(clip.id, f"_____ {clip.captions[0].partition(' ')[2]}", first))
        made["choose"].append(ChoiceItem(clip.id, (other.captions[0], clip.captions[0], f"a {last}"), 1))
        made["rank"].append(QueryItem(clip.captions[0], clip.id))
    folder = tmp_path_factory.mktemp("items")
    for task, some in made.items():
        write_items(folder / f"{task}.jsonl", some)
    return {task: folder / f"{task}.jsonl" for task in made}


def options(shapes: Path, split: str = "train") -> tuple[object, ...]:
    return ("--corpus", shapes / "corpus", "--features", shapes / "features", "--split", split)


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    ctsan_here("evaluate", *arguments, "--json")
    return json.loads(capsys.readouterr().out)


def test_blanks_are_answered_as_by_the_predictor(shapes: Path, runs: Runs, items: dict[str, Path]) -> None:
    both = (runs["fill"], runs["fill2"])
    result = real_command("evaluate", *both, *options(shapes), "--items", items["fill"], "--json")
    found = json.loads(result.stdout)
    assert list(found) == ["task", "split", "clips", "runs", "metrics", "intervals", "answers"]
    assert (found["task"], found["split"], found["runs"]) == ("fill", "train", [str(run) for run in both])
    rows = [json.loads(line) for line in items["fill"].read_text(encoding="utf-8").splitlines()]
    predictor = Predictor.load(*both)
    right = []
    for row in rows[:3]:
        [answer] = found["answers"][row["clip"]]
        said = predictor.fill(shapes / "corpus" / row["clip"], row["sentence"])
        assert answer == {
            "sentence": row["sentence"],
            "answer": said.answers[0].word,
            "right": row["answer"],
        }
    for row in rows:
        right += [answer["answer"] == row["answer"] for answer in found["answers"][row["clip"]]]
    assert found["metrics"]["accuracy"] == pytest.approx(sum(right) / len(rows))
    assert 0 <= found["metrics"]["precision"] <= 1


def test_choices_of_several_runs_are_means(
    shapes: Path, runs: Runs, items: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (*options(shapes), "--items", items["choose"])
    one, two = (evaluated(capsys, runs[name], *asked) for name in ("choose", "choose2"))
    both = evaluated(capsys, runs["choose"], runs["choose2"], *asked)
    right = []
    for clip, [answer] in both["answers"].items():
        mean = np.mean([each["answers"][clip][0]["scores"] for each in (one, two)], axis=0)
        assert answer["scores"] == pytest.approx(mean.tolist(), abs=1e-5)
        assert answer["choice"] == int(mean.argmax())
        right.append(answer["choice"] == answer["right"] == 1)
    assert both["metrics"]["accuracy"] == pytest.approx(np.mean(right))
    precisions = [each["metrics"]["precision"] for each in (one, two)]
    assert both["metrics"]["precision"] == pytest.approx(np.mean(precisions))


def test_clips_are_ranked_with_choosing_runs_beside(
    shapes: Path, runs: Runs, items: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    named = (runs["choose"], runs["rank"], runs["plain"])
    found = evaluated(capsys, *named, *options(shapes), "--items", items["rank"])
    assert found["task"] == "rank"
    predictor = Predictor.load(*named)
    clips = [shapes / "corpus" / name for name in found["answers"]]
    [answer] = found["answers"]["clips/0000.mp4"]
    ranked = [each.clip for each in predictor.rank(answer["query"], clips).clips]
    assert ranked.index(str(shapes / "corpus/clips/0000.mp4")) + 1 == answer["rank"]
    assert ranked[0] == str(shapes / "corpus" / answer["first"])
    ranks = np.array([each["rank"] for [each] in found["answers"].values()])
    metrics = found["metrics"]
    for k in (1, 5, 10):
        assert metrics[f"R@{k}"] == pytest.approx((ranks <= k).mean())
    assert metrics["median rank"] == np.median(ranks)
    assert metrics["mean rank"] == pytest.approx(ranks.mean())
    assert metrics["MRR"] == pytest.approx((1 / ranks).mean())


@pytest.fixture(scope="module")
def embedding(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embedding") / "run"
    quick = ("--set=training.steps=20", "--set=training.batch_size=8", "--set=retrieval.joint_dim=16")
    learnt = ("--corpus", shapes / "corpus", "--features", shapes / "features", *SMALL, *quick)
    ctsan_here("train", "embed", *learnt, "--out", folder)
    return folder


def test_joint_embeddings_answer_choices_and_queries(
    shapes: Path,
    runs: Runs,
    items: dict[str, Path],
    embedding: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By themselves, as the predictor answers; and alone where others stand beside them, which is said."""
    predictor = Predictor.load(embedding)
    asked = [json.loads(line) for line in items["choose"].read_text().splitlines()]
    chosen = [predictor.choose(shapes / "corpus" / item["clip"], item["choices"]).choice for item in asked]
    right = [choice == item["answer"] for choice, item in zip(chosen, asked, strict=True)]
    for task in ([], ["--task", "choose"]):
        found = evaluated(capsys, embedding, *options(shapes), *task, "--items", items["choose"])
        assert found["task"] == "choose"
        assert found["metrics"]["accuracy"] == pytest.approx(sum(right) / len(right))
    alone = evaluated(capsys, embedding, *options(shapes), "--items", items["rank"])
    assert alone["task"] == "rank"
    beside = (runs["rank"], runs["choose"], embedding)
    ctsan_here("evaluate", *beside, *options(shapes), "--items", items["rank"], "--json")
    out, err = capsys.readouterr()
    together = json.loads(out)
    assert together["answers"] == alone["answers"]
    assert together["runs"] == [str(embedding)]
    assert f"{runs['rank']}: not asked, for the runs of 'embed' decide alone." in err


def test_items_are_built_where_there_are_none(
    shapes: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    found = evaluated(capsys, runs["rank"], *options(shapes, "test"))
    assert len(found["answers"]) == 2
    ctsan_here("evaluate", runs["rank"], *options(shapes, "test"))
    *table, _, last = capsys.readouterr().out.strip().splitlines()[2:]
    assert last == "Measured on 2 clips of the split 'test'."
    rows = [re.split(r"  +", line) for line in table]
    spans = {name: ["{:.3f} to {:.3f}".format(*span)] for name, span in found["intervals"].items()}
    assert rows == [[name, f"{value:.3f}", *spans.get(name, [])] for name, value in found["metrics"].items()]
    assert found["metrics"].keys() - spans.keys() == {"different concept words"}


def test_descriptions_of_several_runs_are_measured(
    shapes: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    one, twice = (
        evaluated(capsys, *[runs["describe"]] * number, *options(shapes, "test")) for number in (1, 2)
    )
    assert twice["answers"] == one["answers"]
    assert twice["metrics"] == pytest.approx(one["metrics"])
    for name, (low, high) in one["intervals"].items():
        assert low - 1e-9 <= one["metrics"][name] <= high + 1e-9
    assert {"recall", "mean average precision", "most said in training"} <= one["metrics"].keys()


@pytest.mark.skipif(JAVA is None, reason="METEOR and the PTB tokeniser need Java")
def test_captions_are_measured_as_in_publications(
    shapes: Path, runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert JAVA is not None
    monkeypatch.setenv("JAVA_HOME", str(JAVA.parent.parent))
    found = evaluated(capsys, runs["describe"], *options(shapes))
    assert (found["tokeniser"], found["notes"]) == ("ptb", [])
    official = ["CIDEr", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L"]
    assert list(found["metrics"])[: len(official)] == list(found["intervals"])[: len(official)] == official


@pytest.mark.parametrize(
    ("name", "metric", "noun"),
    [
        ("describe", "CIDEr", "captions"),
        ("fill", "accuracy", "filled words"),
        ("choose", "accuracy", "choices"),
        ("rank", "MRR", "first-ranked clips"),
    ],
)
def test_reliance_on_concept_words_is_measured_in_every_task(
    name: str, metric: str, noun: str, shapes: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = evaluated(capsys, runs[name], *options(shapes))
    found = evaluated(capsys, runs[name], *options(shapes), "--reliance")
    assert (found["task"], found["split"]) == (name, "train")
    [(run, own)] = found["reliance"].items()
    assert (run, own["metric"], own["clips"]) == (str(runs[name]), metric, plain["clips"])
    sources = own["sources"]
    assert list(sources) == ["own", "another", "random", "none", "oracle"]
    assert sources["own"] == {metric: plain["metrics"][metric], "interval": plain["intervals"][metric]}
    for source in list(sources)[1:]:
        difference = sources[source][metric] - sources["own"][metric]
        assert sources[source]["difference"] == pytest.approx(difference)
        assert 0 <= sources[source]["changed"] <= 1
    ctsan_here("evaluate", runs[name], *options(shapes), "--reliance")
    shown = capsys.readouterr().out
    assert f"{runs[name]} ({name}), measured alone: no other run votes or reranks." in shown
    rows = [re.split(r"  +", line) for line in shown.splitlines()]
    low, high = sources["none"]["interval of difference"]
    [none] = [row for row in rows if row[0] == "none"]
    assert none[-3:] == [
        f"{sources['none']['difference']:+.3f}",
        f"{low:+.3f} to {high:+.3f}",
        f"{sources['none']['changed']:.1%}",
    ]
    assert f"'changed' is the share of {own['answers']:,} {noun} that differ" in shown


def test_reliance_is_measured_run_by_run_and_alone(
    shapes: Path, runs: Runs, embedding: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = evaluated(capsys, runs["describe"], *options(shapes), "--reliance")
    beside = (runs["describe"], embedding, *options(shapes), "--reliance")
    ctsan_here("evaluate", *beside, "--json")
    out, err = capsys.readouterr()
    assert json.loads(out) == alone  # without its judge
    assert f"{embedding}: not asked, for it is a run of 'embed'." in err
    both = evaluated(capsys, runs["fill"], runs["fill2"], *options(shapes), "--reliance")["reliance"]
    assert both.keys() == {str(runs["fill"]), str(runs["fill2"])}
    one = evaluated(capsys, runs["fill2"], *options(shapes), "--reliance")["reliance"]
    assert both[str(runs["fill2"])] == one[str(runs["fill2"])]
    ctsan_here("evaluate", runs["rank"], runs["plain"], *options(shapes), "--reliance", "--json")
    out, err = capsys.readouterr()
    assert json.loads(out)["reliance"].keys() == {str(runs["rank"])}
    assert f"{runs['plain']}: it reads no concept words: left out." in err


def test_runs_without_concept_words_have_no_reliance(shapes: Path, runs: Runs, embedding: Path) -> None:
    refused = real_command("evaluate", runs["plain"], *options(shapes), "--reliance", exit_code=2)
    why = "it reads no concept words: --reliance has nothing to measure. Name a run that does."
    assert refused.stderr.strip().endswith(f"{runs['plain']}: {why}")
    assert refused.stdout == ""
    with pytest.raises(UsageError, match="--reliance needs a run of 'rank', and .* is of 'embed'. Name one."):
        ctsan_here("evaluate", embedding, *options(shapes), "--task", "rank", "--reliance")


def test_without_java_the_difference_is_said(
    shapes: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    ctsan_here("evaluate", runs["describe"], *options(shapes, "test"), "--json")
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert "METEOR" not in found["metrics"]
    assert found["tokeniser"] == "python"
    assert found["notes"][0] == printed.err.strip().splitlines()[0]
    assert "Java was not found" in printed.err


def test_a_corpus_of_the_measured_split_alone_is_enough(
    shapes: Path, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("0000", "0001", "0002")
    rows = [
        {"clip": str(shapes / f"corpus/clips/{name}.mp4"), "captions": ["a star leaves"], "split": "test"}
        for name in names
    ]
    (tmp_path / "clips.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    ctsan_here("features", tmp_path, "--out", tmp_path / "features")
    lines = [json.dumps({"clip": row["clip"], "choices": ["a star", "a heart"], "answer": 0}) for row in rows]
    (tmp_path / "items.jsonl").write_text("\n".join(lines), encoding="utf-8")
    capsys.readouterr()
    found = evaluated(
        capsys,
        runs["choose"],
        *("--corpus", tmp_path, "--features", tmp_path / "features", "--items", tmp_path / "items.jsonl"),
    )
    assert len(found["answers"]) == found["clips"] == 3


def test_all_clips_are_measured_where_the_corpus_gives_no_splits(
    shapes: Path, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Captioned ones, and those that a file of items asks about, which then need no captions."""
    clips = [shapes / f"corpus/clips/{number:04}.mp4" for number in range(5)]
    rows = [{"clip": str(clip), "captions": ["a star leaves", "a heart"]} for clip in clips]
    (tmp_path / "clips.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    ctsan_here("features", tmp_path, "--out", tmp_path / "features")
    told = ("--corpus", tmp_path, "--features", tmp_path / "features")
    capsys.readouterr()
    found = evaluated(capsys, runs["describe"], *told)
    assert (found["split"], found["clips"], len(found["answers"])) == ("all", 5, 5)
    assert evaluated(capsys, runs["describe"], *told, "--split", "test")["clips"] == 1
    ctsan_here("evaluate", runs["describe"], *told)
    assert "Measured on 5 clips." in capsys.readouterr().out

    bare = [{"clip": str(clip)} for clip in clips]
    (tmp_path / "clips.jsonl").write_text("".join(json.dumps(row) + "\n" for row in bare), encoding="utf-8")
    items = [{"clip": str(clip), "choices": ["a star", "a heart"], "answer": 0} for clip in clips[:3]]
    (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
    assert evaluated(capsys, runs["choose"], *told, "--items", tmp_path / "items.jsonl")["clips"] == 3
    with pytest.raises(CtsanError, match="no clip has captions. Choose another split, or name a file"):
        ctsan_here("evaluate", runs["describe"], *told)


def test_what_cannot_be_measured_says_so(
    shapes: Path, runs: Runs, items: dict[str, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"query": "a star", "clip": "clips/0000.mp4"}\n{"query": "a", "clip": "gone.mp4"}\n')
    bare = tmp_path / "features"
    (tmp_path / "one").mkdir()
    (tmp_path / "one/a.mp4").symlink_to(shapes / "corpus/clips/0000.mp4")
    ctsan_here("features", tmp_path / "one", "--out", bare)
    train, test = options(shapes), options(shapes, "test")
    for message, arguments in (
        ("The runs do not answer the same questions:", (runs["fill"], runs["rank"], *train)),
        (
            "those of 'embed' may stand beside runs of 'describe', 'choose' and 'rank', and those of "
            "'choose' beside runs of 'rank'",
            (runs["describe"], runs["rank"], *train),
        ),
        ("items of 'rank', and the runs are of 'fill'", (runs["fill"], *train, "--items", items["rank"])),
        (
            "items of 'rank', and the runs are of 'describe'",
            (runs["describe"], *train, "--items", items["rank"]),
        ),
        (
            "10 items about clips that are not of the split 'test'",
            (runs["rank"], *test, "--items", items["rank"]),
        ),
        ("other.jsonl:2: clip 'gone.mp4' is not in the corpus", (runs["rank"], *train, "--items", other)),
        (
            "no features of any clip that is asked about",
            (runs["rank"], *test[:2], "--features", bare, *test[4:]),
        ),
        ("nothing to ask of the split 'test'", (runs["choose"], *test)),
        ("no run is there", (tmp_path, *test)),
    ):
        with pytest.raises((CtsanError, click.UsageError), match=re.escape(message)):
            ctsan_here("evaluate", *arguments)


def test_features_that_cannot_be_computed_are_asked_for_before_any_are(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays, features, run = tmp_path / "arrays", tmp_path / "features", tmp_path / "run"
    random = np.random.default_rng(0)
    for clip in read_corpus(shapes / "corpus"):
        (arrays / clip.id).parent.mkdir(parents=True, exist_ok=True)
        np.save(
            arrays / f"{clip.id.removesuffix('.mp4')}.npy", random.random((4, 2, 2, 8)).astype(np.float32)
        )
    ctsan_here("features", shapes / "corpus", "--import", arrays, "--backbone", "slowfast", "--out", features)
    trained = ("--corpus", shapes / "corpus", "--features", features, *SMALL, "--set=training.epochs=1")
    ctsan_here("train", "fill", *trained, "--out", run)

    def compute(*_: object, **__: object) -> None:
        raise AssertionError("features were computed")

    monkeypatch.setattr(ctsan.training.features, "make_features", compute)
    with pytest.raises(UsageError) as caught:
        ctsan_here("evaluate", run, "--corpus", shapes / "corpus")
    command = f"ctsan features {shapes / 'corpus'} --import ARRAYS --backbone slowfast --out FOLDER"
    assert str(caught.value) == (
        f"{run}: it was trained on imported features of slowfast. Give such features of "
        f"{shapes / 'corpus'} with --features FOLDER, or make them: {command}"
    )
    with pytest.raises(UsageError, match=re.escape(f"Make them: {command}")):
        ctsan_here("evaluate", run, *options(shapes))
    ctsan_here("evaluate", run, "--corpus", shapes / "corpus", "--features", features)
