"""The paper's tables from one command, at a size at which nothing is learnt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import ctsan_here
from ctsan.errors import UsageError

SMALL = [
    "--set=model.hidden_dim=16",
    "--set=model.embedding_dim=16",
    "--set=detector.attention_dim=8",
    "--set=training.evaluations=1",
    "--set=decoding.max_words=8",
    "--set=retrieval.sketch_dim=32",
    "--set=retrieval.joint_dim=8",
    "--steps=2",
    "--seeds=1",
]
SYSTEMS = (
    "ct-san",
    "base-san",
    "decoupled",
    "nn-san",
    "rand-san",
    "no-att-san",
    "s2vt",
    "temporal-attention",
)


def tables(shapes: Path, out: Path, *options: object) -> None:
    ctsan_here(
        "tables",
        "--corpus",
        shapes / "corpus",
        "--features",
        shapes / "features",
        "--out",
        out,
        *SMALL,
        *options,
    )


def test_all_tables_come_out_and_nothing_is_trained_twice(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = [f"--only={name}" for name in (*SYSTEMS, "simple-lstm", "dual-encoder")]
    tables(shapes, tmp_path, *only, "--only=describe", "--only=fill", "--only=rank")
    first = capsys.readouterr()
    assert "0 done already, 23 to do" in first.err
    assert "0 s left for all" in first.err
    value = json.loads((tmp_path / "tables.json").read_text())
    assert set(value["tables"]) == {
        "description-blank",
        "choice-retrieval",
        "concept-words",
        "number-of-words",
        "attention",
    }
    concepts = value["tables"]["concept-words"]["rows"]
    assert set(concepts) == {"ct-san", "base-san", "decoupled", "nn-san", "rand-san", "no-att-san"}
    assert "describe: precision" in concepts["nn-san"]
    assert "describe: precision" not in concepts["base-san"]
    assert {"describe: CIDEr", "fill: accuracy", "rank: R@10"} <= set(concepts["decoupled"])
    assert {claim["task"] for claim in value["claims"]} == {"describe", "fill", "rank"}
    page = (tmp_path / "tables.html").read_text()
    assert page.count("<svg") >= 8
    assert "data:image/jpeg;base64," in page
    assert not any(sign in page for sign in ('src="http', "<script", "<link", "@import"))
    started = json.loads((tmp_path / "runs/fill/ct-san/0/settings.json").read_text())["from"]
    assert started["task"] == "describe"

    before = {name: (tmp_path / name).read_bytes() for name in ("tables.md", "tables.html", "tables.csv")}
    tables(shapes, tmp_path, *only, "--only=describe", "--only=fill", "--only=rank")
    assert "23 done already, 0 to do" in capsys.readouterr().err
    assert all((tmp_path / name).read_bytes() == content for name, content in before.items())


def test_runs_of_other_captions_are_not_mixed(shapes: Path, tmp_path: Path) -> None:
    (tmp_path / "words.json").write_text('{"captions": "others"}')
    with pytest.raises(UsageError, match="its runs were begun with other training captions"):
        tables(shapes, tmp_path, "--only=s2vt")
