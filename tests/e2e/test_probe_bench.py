"""bench/probe.py on two corpora of pictures: one network sees colours, one is blind, others are imported."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from commands import ctsan_here
from ctsan.data.corpus import Clip
from ctsan.evaluation.clip_statistics import mean
from video.own_networks import Grid, export, seeded

BENCH = Path(__file__).parents[2] / "bench" / "probe.py"

COLOURS = {  # with what people say of it
    "red": ((250, 20, 20), "rose", "apple", "fire"),
    "green": ((20, 200, 20), "grass", "leaf", "frog"),
    "blue": ((20, 20, 250), "ocean", "whale", "jeans"),
    "yellow": ((240, 240, 20), "banana", "lemon", "sun"),
    "black": ((10, 10, 10), "night", "coal", "cat"),
    "white": ((250, 250, 250), "snow", "milk", "sheep"),
    "pink": ((250, 120, 200), "pig", "candy", "dress"),
    "orange": ((250, 130, 10), "fox", "pumpkin", "tiger"),
}
SPLITS = ("train", "train", "train", "val", "test")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two corpora whose clips have the same names and other colours, and their features.

    `sees` and `blind` are of real networks, `imported` are arrays that tell the colour outright, of all
    clips but one.
    """
    folder = tmp_path_factory.mktemp("probe")
    for name, turn in (("one", 0), ("two", 3)):
        _write_corpus(folder / name, list(COLOURS)[turn:] + list(COLOURS)[:turn])
    export(seeded(Grid), folder / "sees.onnx")
    with torch.no_grad():
        blind = seeded(Grid)
        blind.conv.weight.zero_()
        export(blind, folder / "blind.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("CTSAN_CACHE", str(folder / "cache"))
        for name in ("sees", "blind"):
            ctsan_here(
                "features",
                *("one", "two"),
                *("--backbone", f"onnx:{name}.onnx"),
                *("--out", f"features/{name}-one", "--out", f"features/{name}-two"),
            )
        arrays = ("--import", "one-arrays", "--import", "two-arrays", "--backbone=told")
        ctsan_here("features", "one", "two", *arrays, "--out=features/told-one", "--out=features/told-two")
        yield folder


def _write_corpus(folder: Path, colours: list[str]) -> None:
    random = np.random.default_rng(len(folder.name))
    (folder / "clips").mkdir(parents=True)
    lines = []
    for number in range(len(colours) * len(SPLITS)):
        colour = colours[number % len(colours)]
        rgb, *things = COLOURS[colour]
        picture = np.clip(np.array(rgb) + random.normal(0, 5, (32, 32, 3)), 0, 255).astype(np.uint8)
        clip = f"clips/{number:02}.png"
        Image.fromarray(picture).save(folder / clip)
        captions = [f"a picture shows a {colour} {thing}" for thing in things]
        split = SPLITS[number // len(colours)]
        lines.append(
            {"clip": clip, "captions": captions, "split": split, "source": f"{folder.name} {number}"}
        )
        if (folder.name, number) != ("two", 0):
            array = folder.with_name(f"{folder.name}-arrays") / f"{clip}.npy"
            array.parent.mkdir(parents=True, exist_ok=True)
            np.save(array, np.eye(len(COLOURS), dtype=np.float32)[[list(COLOURS).index(colour)]])
    (folder / "clips.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def features(*names: str) -> list[str]:
    return [part for name in names for part in ("--features", f"features/{name}-one", f"features/{name}-two")]


def run(place: Path, *options: str, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH), "one", "two", *options, "--rounds=3"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=place, check=False)
    assert result.returncode == exit_code, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def found(place: Path) -> dict[str, Any]:
    printed: dict[str, Any] = json.loads(run(place, *features("blind", "sees"), "--json").stdout)
    return printed


def test_a_network_that_sees_colours_is_told_from_one_that_does_not(found: dict[str, Any]) -> None:
    assert found["clips"] == {"train": 48, "val": 16, "test": 16}
    blind, sees = found["backbones"]
    assert (blind["backbone"], sees["backbone"]) == ("onnx:blind.onnx", "onnx:sees.onnx")
    for split in ("val", "test"):
        # "picture", "shows", the colour and its three things are right, of ten; blind knows the first two.
        assert sees[split]["words"]["value"] > 0.5
        assert blind[split]["words"]["value"] == found["commonest"][split]["value"] < 0.4
        assert sees[split]["rise"]["value"] >= 0.4
        assert sees[split]["MRR"]["value"] > 2 * blind[split]["MRR"]["value"]
        assert sees[split]["R@10"]["value"] == 1
        # Four of the 32 clips have the colour; all predictions of the blind one are tied.
        assert sees[split]["median rank"]["value"] <= 4
        assert blind[split]["median rank"]["value"] == 32
        low, high = sees[split]["MRR"]["interval"]
        assert low < sees[split]["MRR"]["value"] < high
    assert blind["against_first"] == {}
    assert {metric: each["verdict"] for metric, each in sees["against_first"].items()} == {
        "words": "larger",
        "MRR": "larger",
    }


def test_engines_are_timed_and_agree_and_the_rule_recommends(found: dict[str, Any]) -> None:
    costs = {(cost["backbone"], cost["engine"]): cost for cost in found["engines"]}
    names = [each["backbone"] for each in found["backbones"]]
    engines = [name for name in ("onnxruntime", "openvino") if importlib.util.find_spec(name)]
    assert set(costs) == {(name, engine) for name in names for engine in engines}
    assert all(cost["milliseconds"] > 0 and cost["cosine"] > 0.999 for cost in costs.values())
    assert costs[names[0], "onnxruntime"]["ratio"] == 1
    is_quick = costs[names[1], "onnxruntime"]["ratio"] <= 2
    assert found["recommended"] == names[1 if is_quick else 0]


def test_features_without_a_network_are_probed_and_not_timed(place: Path) -> None:
    printed = run(place, *features("sees", "told"))
    assert "told: not timed." in printed.stderr
    assert "Left out: 1 captioned clip " in printed.stderr
    assert "47 training, 16 validation and 16 test clips" in printed.stdout
    assert "| test       | told " in printed.stdout
    assert "against onnx:sees.onnx" in printed.stdout
    assert printed.stdout.rstrip().splitlines()[-1].startswith("Recommended: onnx:sees.onnx.")


def test_one_folder_for_corpora_with_the_same_clips_is_refused(place: Path) -> None:
    said = run(place, "--features", "features/sees-one", exit_code=1).stderr
    assert "one folder for two corpora" in said
    said = run(place, "--features", *["features/sees-one"] * 3, exit_code=1).stderr
    assert "3 folders, and there are 2 corpora" in said


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_probe", BENCH)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_a_backbone_that_takes_too_long_is_not_recommended(bench: ModuleType) -> None:
    def probed(name: str, *right: float) -> object:
        return bench.Probed(name, 8, {}, {"val": {"words": mean(right)}})

    first, better, best = probed("a", *[0.1, 0.2] * 50), probed("b", *[0.3] * 100), probed("c", *[0.4] * 100)
    recommend = bench.recommend
    name, reason = recommend([first, better, best], {"a": 1.0, "b": 2.0, "c": 2.1})
    assert name == "b"
    assert "is beyond noise: +0.150" in reason
    assert recommend([first, better, best], {"a": 1.0, "b": 1.0, "c": 1.0})[0] == "c"
    assert recommend([better, first, best], {"a": 1.0, "b": 1.0})[0] == "b"  # c cannot be timed
    assert recommend([first, better], {"b": 1.0})[0] is None
    hardly = probed("d", *[0.1, 0.2] * 49, 0.2, 0.2)
    assert "is within noise: +0.001" in recommend([first, hardly], {"a": 1.0, "d": 1.0})[1]


def test_tf_idf_vectors_have_length_1_and_forget_words_of_every_clip(bench: ModuleType) -> None:
    said = ("a dog runs", "a dog eats"), ("a cat runs", "a cat"), ("a fox", "a fox runs")
    train = [Clip(str(n), Path("x"), captions=captions * 4, split="train") for n, captions in enumerate(said)]
    vectors = bench.TfIdf(train).vectors(["a dog runs", "dog dog", "a", "unheard of"]).toarray()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 0, 0], atol=1e-6)
    # Of three clips one has a dog, and all have somebody who runs.
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
