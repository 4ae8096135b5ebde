"""The procedural corpus on disk: the same bytes however it came about, and a truth that fits the pictures."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from ctsan.errors import UsageError
from ctsan.synthetic import make_corpus
from ctsan.synthetic.compose import compose, split_of
from ctsan.synthetic.draw import RGB, draw
from ctsan.synthetic.motion import rest
from ctsan.synthetic.scene import ASPECT, Camera, Scene, Thing
from ctsan.text.tokens import tokenize

CLIPS, SEED = 10, 5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("procedural") / "corpus"
    done: list[int] = []
    make_corpus(out, clips=CLIPS, seed=SEED, progress=done.append)
    assert sum(done) == CLIPS
    return out


def entries(corpus: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (corpus / "clips.jsonl").read_text(encoding="utf-8").splitlines()]


def truth(corpus: Path, entry: dict[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((corpus / entry["truth"]).read_text(encoding="utf-8"))
    return value


def frames(path: Path) -> list[Any]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def digests(corpus: Path) -> dict[str, str]:
    files = (path for path in corpus.rglob("*") if path.is_file())
    return {
        path.relative_to(corpus).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def make_elsewhere(out: Path, clips: int, hash_seed: str) -> None:
    program = (
        "import sys; from pathlib import Path; from ctsan.synthetic import make_corpus;"
        f"make_corpus(Path(sys.argv[1]), clips={clips}, seed={SEED})"
    )
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    subprocess.run([sys.executable, "-c", program, str(out)], check=True, env=environment, timeout=120)


@pytest.mark.slow
def test_interrupted_and_extended_gives_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "pieces"
    make_elsewhere(out, clips=2, hash_seed="1")  # so few are made without further processes
    assert len(entries(out)) == 2
    # As a kill leaves it: one clip without its truth, one half written, no list.
    (out / "truth" / "0001.json").unlink()
    (out / "clips" / ".0001.mp4.tmp").write_bytes(b"half a clip")
    (out / "clips.jsonl").unlink()
    make_elsewhere(out, clips=CLIPS, hash_seed="2")
    assert digests(out) == digests(corpus)


def test_making_it_again_touches_no_clip(corpus: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (corpus / "clips").iterdir()}
    told: list[int] = []
    make_corpus(corpus, clips=CLIPS, seed=SEED, progress=told.append)
    assert told == [CLIPS]
    assert {path: path.stat().st_mtime_ns for path in (corpus / "clips").iterdir()} == before


def test_what_is_not_this_corpus_is_refused(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "holiday.mp4").write_bytes(b"")
    with pytest.raises(UsageError, match=r"contains something else\. Name a folder that is empty"):
        make_corpus(tmp_path, clips=1, seed=0)
    with pytest.raises(UsageError, match=r"is a file\. Name a folder"):
        make_corpus(tmp_path / "holiday.mp4", clips=1, seed=0)
    with pytest.raises(UsageError, match=rf"has seed {SEED} and version 2, not seed 6 and version 2\. Name"):
        make_corpus(corpus, clips=CLIPS, seed=6)
    with pytest.raises(
        UsageError, match=rf"begun with {CLIPS} clips, more than 3\. Ask for at least {CLIPS}"
    ):
        make_corpus(corpus, clips=3, seed=SEED)
    with pytest.raises(UsageError, match="scenes of this corpus are not simple. Name another folder"):
        make_corpus(corpus, clips=CLIPS, seed=SEED, simple=True)
    with pytest.raises(UsageError, match="Ask for at least one"):
        make_corpus(tmp_path / "new", clips=0, seed=0)
    marked = tmp_path / "marked"
    marked.mkdir()
    (marked / "procedural.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UsageError, match=r"procedural\.json: cannot be read .* Delete the folder"):
        make_corpus(marked, clips=1, seed=0)


def test_every_entry_is_in_our_own_format(corpus: Path) -> None:
    for number, entry in enumerate(entries(corpus)):
        assert list(entry) == ["clip", "captions", "split", "source", "truth"]
        assert entry["clip"] == f"clips/{number:04d}.mp4"
        assert entry["split"] == split_of(number)
        assert len(set(entry["captions"])) == 5
        with av.open(str(corpus / entry["clip"])) as container:
            stream = container.streams.video[0]
            assert (stream.width, stream.height) == (160, 120)
            assert stream.average_rate == Fraction(12)
            assert 3.5 <= stream.frames / 12 <= 5
            assert stream.frames == len(truth(corpus, entry)["frames"])
    assert len({entry["source"] for entry in entries(corpus)}) == CLIPS


def test_splits_are_70_15_15() -> None:
    splits = [split_of(index) for index in range(200)]
    assert [splits.count(name) for name in ("train", "val", "test")] == [140, 30, 30]
    assert set(splits[:7]) == {"train", "val", "test"}


def test_a_thing_is_seen_where_the_truth_says(corpus: Path) -> None:
    """In the decoded pictures, a thing that is not covered has its colour in its box."""
    checked = 0
    for entry in entries(corpus):
        facts = truth(corpus, entry)
        colours = {thing["id"]: RGB[thing["colour"]] for thing in facts["objects"]}
        for picture, frame in zip(frames(corpus / entry["clip"]), facts["frames"], strict=True):
            for thing in facts["objects"]:
                place = frame["objects"][thing["id"]]
                if thing["role"] == "distractor" or place["visible"] < 0.95:
                    continue
                x0, y0, x1, y1 = np.round(np.array(place["box"]) * (160, 120, 160, 120)).astype(int)
                patch = picture[y0:y1, x0:x1] / 255
                like = np.abs(patch - colours[thing["id"]]).max(axis=-1) < 0.3
                assert like.mean() > 0.12, (entry["clip"], frame["time"], thing)
                checked += 1
    assert checked > 500


def test_visible_counts_borders_cover_and_opacity() -> None:
    camera = Camera("still", np.full(1, ASPECT / 2), np.full(1, 0.5), np.ones(1))

    def box(name: str, x: float, y: float, depth: int) -> Thing:
        return Thing(name, "box", "red", "big", depth, rest(1, x, y, 0.2, 0))

    faint = box("faint", 1.1, 0.75, 1)
    faint.track.opacity[:] = 0.25
    things = (box("near", 0.56, 0.3, 2), box("far", 0.40, 0.3, 1), box("cut", 0.4, 1.0, 1), faint)
    ((picture, seen),) = draw(Scene("grass", 0, things, (), camera))
    assert picture.shape == (120, 160, 3)
    assert seen["near"].visible == pytest.approx(1)
    assert seen["far"].visible == pytest.approx(0.5, abs=0.03)
    assert seen["cut"].visible == pytest.approx(0.5, abs=0.03)
    assert seen["faint"].visible == pytest.approx(0.25, abs=0.01)
    # A box of radius 0.2 is 0.32 wide.
    assert seen["near"].box == pytest.approx((0.40 / ASPECT, 0.14, 0.72 / ASPECT, 0.46), abs=0.01)
    assert seen["cut"].box == pytest.approx((0.24 / ASPECT, 0.84, 0.56 / ASPECT, 1), abs=0.01)


def test_a_clip_played_backwards_shows_the_same_pictures() -> None:
    scene = compose(SEED, 0)
    forwards = [picture for picture, _ in draw(scene)]
    backwards = [picture for picture, _ in draw(scene.backwards())]
    assert all(np.array_equal(one, other) for one, other in zip(forwards, reversed(backwards), strict=True))


def test_words_refer_to_objects_that_exist(corpus: Path) -> None:
    for entry in entries(corpus):
        facts = truth(corpus, entry)
        objects = {thing["id"]: thing for thing in facts["objects"]}
        said = {token for caption in entry["captions"] for token in tokenize(caption)}
        for word, names in facts["words"].items():
            assert word in said
            assert names
            assert set(names) <= set(objects)
            assert all(objects[name]["role"] != "distractor" for name in names)
        for caption, mentions in zip(entry["captions"], facts["mentions"], strict=True):
            tokens = tokenize(caption)
            assert " ".join(tokens) == caption
            assert all(tokens[mention["at"]] == mention["word"] for mention in mentions)
            # A word that means an object means one wherever it stands.
            places = {mention["at"] for mention in mentions}
            assert places == {at for at, token in enumerate(tokens) if token in facts["words"]}
        for event in facts["events"]:
            assert objects[event["actor"]]["role"] == "actor"
            assert event["end"] - event["start"] > 1.6  # four frames at 2.4 a second
