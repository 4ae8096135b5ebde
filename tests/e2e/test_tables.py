"""The paper's tables from one command, at a size at which nothing is learnt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import ctsan, ctsan_here
from ctsan.data.reading import read_corpora, read_corpus
from ctsan.errors import UsageError
from ctsan.experiments.layout import TABLES, Column
from ctsan.experiments.paper import CLAIMS
from ctsan.experiments.systems import ENSEMBLES, SYSTEMS
from ctsan.runs.run_folder import weights_digest
from ctsan.text.words import Words, prepare_words

SMALL = [
    "--set=model.hidden_dim=16",
    "--set=model.embedding_dim=16",
    "--set=detector.attention_dim=8",
    "--set=training.evaluations=1",
    "--set=decoding.max_words=8",
    "--set=retrieval.sketch_dim=32",
    "--set=retrieval.joint_dim=8",
    "--steps=1",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and its features: five clips for tests, so that choices can be made of them."""
    folder = tmp_path_factory.mktemp("tables")
    ctsan("corpus", "make", folder / "corpus", "--clips", 34, "--simple")
    ctsan("features", folder / "corpus", "--out", folder / "features")
    return folder


def measured_in(row: str, column: Column) -> bool:
    """Whether a row has a figure in a column."""
    return column.task in (SYSTEMS.get(row) or ENSEMBLES[row]).measured


def tables(corpus: Path, out: Path, *options: object) -> None:
    folders = ("--corpus", corpus / "corpus", "--features", corpus / "features", "--out", out)
    ctsan_here("tables", *folders, *SMALL, *options)


@pytest.mark.slow
def test_all_tables_come_out_of_all_systems_and_nothing_is_trained_twice(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables(corpus, tmp_path, "--seeds=1")
    first = capsys.readouterr()
    assert "53 runs: 0 done already, 53 to do" in first.err
    assert "0 s left for all" in first.err
    value = json.loads((tmp_path / "tables.json").read_text())
    for name, table in TABLES.items():
        rows = value["tables"][name]["rows"]
        assert set(rows) == {row for row in table.rows if row in SYSTEMS}
        for row, cells in rows.items():
            wanted = {f"{c.task}: {c.metric}" for c in table.columns if measured_in(row, c)}
            has_words = "precision" in str(cells)
            assert set(cells) == {
                cell for cell in wanted if "METEOR" not in cell and (has_words or "precision" not in cell)
            }
    stored = json.loads((tmp_path / "runs/rank/ct-san/0/test.json").read_text())
    assert set(stored["reliance"]["rank"]) == {"another", "none"}
    assert json.loads((tmp_path / "runs/rank/base-san/0/test.json").read_text())["reliance"] == {}
    assert "## Reliance on concept words" in (tmp_path / "tables.md").read_text()
    assert "describe: precision" not in value["tables"]["concept-words"]["rows"]["base-san"]
    singles = {(claim.better, claim.worse, task) for claim in CLAIMS for task in claim.tasks}
    assert {(one["better"], one["worse"], one["task"]) for one in value["claims"]} == {
        claim for claim in singles if "ensemble" not in claim[0]
    }
    assert {one["verdict"] for one in value["claims"]} == {"cannot tell"}  # with one seed
    assert f"and {len(value['claims'])} cannot be decided with these clips and seeds" in first.out
    page = (tmp_path / "tables.html").read_text()
    assert page.count("<svg") >= 8
    assert "data:image/jpeg;base64," in page
    assert '<ul class="choices">' in page
    assert '<ol class="ranked">' in page
    assert not any(sign in page for sign in ('src="http', "<script", "<link", "@import"))
    started = json.loads((tmp_path / "runs/fill/ct-san/0/settings.json").read_text())["from"]
    assert started["task"] == "describe"
    alone = json.loads((tmp_path / "runs/fill/ct-san-alone/0/settings.json").read_text())
    assert alone["from"] is None

    before = {name: (tmp_path / name).read_bytes() for name in ("tables.md", "tables.html", "tables.csv")}
    tables(corpus, tmp_path, "--seeds=1")
    assert "53 done already, 0 to do" in capsys.readouterr().err
    assert all((tmp_path / name).read_bytes() == content for name, content in before.items())

    only = ("--only=base-san", "--only=rank", "--seeds=2")  # the choice model that helps them is there
    tables(corpus, tmp_path, *only)
    assert "5 runs: 3 done already, 2 to do" in capsys.readouterr().err
    rows = json.loads((tmp_path / "tables.json").read_text())["tables"]["choice-retrieval"]["rows"]
    assert set(rows) == {"base-san", "base-san-ensemble"}
    assert "rank: R@10" in rows["base-san-ensemble"]
    assert "| Base-SAN (ensemble), 2 + 1 in retrieval |" in (tmp_path / "tables.md").read_text()

    tables(corpus, tmp_path, "--only=base-san", "--only=fill", "--seeds=2", "--ensemble-sizes=paper")
    assert "6 runs: 3 done already, 3 to do" in capsys.readouterr().err  # a third member and what it needs
    value = json.loads((tmp_path / "tables.json").read_text())
    rows = value["tables"]["description-blank"]["rows"]
    assert len(rows["base-san"]["fill: accuracy"]["values"]) == 2
    assert len(rows["base-san-ensemble"]["fill: accuracy"]["values"]) == 1
    members = json.loads((tmp_path / "runs/fill/base-san-ensemble.json").read_text())["made_of"]
    assert members[:3] == [weights_digest(tmp_path / "runs/fill/base-san" / seed) for seed in "012"]
    assert value["facts"]["members of an ensemble"] == "3 in blank, 6 in choice, 6 + 1 in retrieval"
    assert "| Base-SAN (ensemble), 3 in blank |" in (tmp_path / "tables.md").read_text()


def test_several_corpora_are_one_in_every_run_and_figure(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctsan_here("corpus", "make", tmp_path / "more", "--clips", 10, "--seed", 2)
    corpora = [shapes / "corpus", tmp_path / "more"]
    ctsan_here("features", corpora[1], "--out", tmp_path / "features")
    given = ("--corpus", corpora[0], "--corpus", corpora[1], "--features", shapes / "features")
    asked = ("tables", *given, "--out", tmp_path / "out", *SMALL, "--only=temporal-attention", "--seeds=1")
    with pytest.raises(UsageError, match="--features is given 1 time, and there are 2 corpora"):
        ctsan_here(*asked)
    assert not (tmp_path / "out").exists()
    ctsan_here(*asked, "--features", tmp_path / "features")
    both = read_corpora(corpora)
    run = tmp_path / "out/runs/describe/temporal-attention/0"
    said = json.loads((run / "test.json").read_text())["answers"]["describe"]
    assert set(said) == {clip.id for clip in both.split("test")}
    alone = [len(read_corpus(path).split("test")) for path in corpora]
    assert len(said) == sum(alone) > max(alone)
    prepared = prepare_words(both.captions("train"), num_concepts=2000, embedding_dim=16)
    assert Words.load(run / "words").vocabulary.words == prepared.vocabulary.words
    facts = json.loads((tmp_path / "out/tables.json").read_text())["facts"]
    assert facts["corpus"].startswith("corpus + more: 24 clips (")
    capsys.readouterr()
    ctsan_here(*asked, "--features", tmp_path / "features")
    assert "1 run: 1 done already, 0 to do" in capsys.readouterr().err


def test_settings_that_count_for_nothing_are_refused_before_anything_is_done(
    shapes: Path, tmp_path: Path
) -> None:
    options = ("--only=s2vt", "--set=training.freeze_clip_encoder=true", "--set=training.seed=3")
    folders = ("--corpus", shapes / "corpus", "--features", shapes / "features", "--out", tmp_path / "out")
    refused = ctsan("tables", *folders, *options, exit_code=2).stderr
    assert "--set training.freeze_clip_encoder: no run that is asked for starts from another." in refused
    assert "--set training.seed: every system has the seeds 0, 1, … here. Say how many: --seeds N." in refused
    assert not (tmp_path / "out").exists()


def test_runs_of_other_captions_are_not_mixed(shapes: Path, tmp_path: Path) -> None:
    (tmp_path / "words.json").write_text('{"captions": "others"}')
    with pytest.raises(UsageError, match="its runs were begun with other training captions"):
        tables(shapes, tmp_path, "--only=s2vt")


def test_a_run_that_was_measured_on_other_clips_is_measured_anew(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ("--only=temporal-attention", "--seeds=1")
    tables(shapes, tmp_path, *only)
    result = tmp_path / "runs/describe/temporal-attention/0/test.json"
    stored = json.loads(result.read_text())
    result.write_text(json.dumps({**stored, "measured_on": "others"}))
    capsys.readouterr()
    tables(shapes, tmp_path, *only)
    assert "1 run: 0 done already, 1 to do" in capsys.readouterr().err
    assert json.loads(result.read_text())["measured_on"] == stored["measured_on"]
