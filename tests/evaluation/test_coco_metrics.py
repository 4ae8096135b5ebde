"""Official metrics agree with pycocoevalcap's own, survive strange captions, and do without Java."""

from __future__ import annotations

import shutil
import stat
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor import meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer import ptbtokenizer

from ctsan.evaluation.bootstrap import interval
from ctsan.evaluation.coco_metrics import CaptionScores, score_captions, score_systems
from ctsan.evaluation.java import JavaError, find_java, run_java

JAVA = find_java()
needs_java = pytest.mark.skipif(JAVA is None, reason="METEOR and the PTB tokeniser need Java")

REFERENCES = {
    "sing": [
        "A man is singing on a stage.",
        "The singer performs in front of people",
        "someone sings, loudly!",
    ],
    "dog": ['A dog runs; it\'s "happy"', "the dog isn't running on the grass", "2 dogs (brown) run"],
    "cook": ["A woman is slicing an onion.", "Someone is cutting onions - in a kitchen"],
    "car": ["a red sports-car drives quickly down the road", "A car is driving on a street..."],
    "ball": ["children play football", "Kids are playing soccer in the U.S.", "a ball"],
    "same": ["a boat on the sea"],
}
CAPTIONS = {
    "sing": "a man sings on the stage",
    "dog": "a dog is running on the grass in front of a dog",
    "cook": "a woman cuts onions",
    "car": "a man is riding a horse",
    "ball": "kids are playing football",
    "same": "a boat on the sea",
}
STRANGE = {
    "nothing": "",
    "spaces": " \t ",
    "lines": "a man\nsings\r\non\u2028the\x85stage\x0bnow",
    "bars": "a man ||| sings |||| on ||",
    "quotes": "\"a 'man` “sings” \\ on\" ''",
    "accents": "un garçon naïve à côté d'un café",
    "emoji": "a man 🎉👩‍👩‍👧 sings",
    "surrogate": "a man \ud83c sings",
    "control": "a\x00man\x1b[31m sings *NL*",
    "signs": "?!... -LRB- <unk> &amp; %s $HOME",
    "long": "word " * 400,
    "command": "EVAL ||| 1.0",
}
NAMES = ("CIDEr", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CaptionScores]:
    """The fixture's captions and strange ones, by programs that stand under a path with a space."""
    folder = tmp_path_factory.mktemp("with space é")
    strange = {clip: ["a man sings", "un café", "||| bars", "!?"] for clip in STRANGE}
    with pytest.MonkeyPatch.context() as patch:
        for module in (meteor, ptbtokenizer):
            here = Path(module.__file__)
            shutil.copytree(here.parent, folder / here.parent.name)
            patch.setattr(module, "__file__", str(folder / here.parent.name / here.name))
        systems = {"plain": CAPTIONS, "strange": STRANGE}
        return score_systems(REFERENCES | strange, systems, java=JAVA)


@needs_java
@pytest.mark.slow
def test_every_metric_is_pycocoevalcaps_own(judged: dict[str, CaptionScores]) -> None:
    tokenizer = ptbtokenizer.PTBTokenizer()
    truth = tokenizer.tokenize({clip: [{"caption": one} for one in own] for clip, own in REFERENCES.items()})
    said = tokenizer.tokenize({clip: [{"caption": own}] for clip, own in CAPTIONS.items()})
    bleus = Bleu(4).compute_score(truth, said, verbose=0)[0]
    scorer = meteor.Meteor()
    meteor_score, meteors = scorer.compute_score(truth, said)
    for pipe in (scorer.meteor_p.stdout, scorer.meteor_p.stderr):  # which it leaves open
        pipe.close()
    expected = [
        Cider().compute_score(truth, said)[0],
        *bleus,
        meteor_score,
        Rouge().compute_score(truth, said)[0],
    ]

    found = judged["plain"]
    assert (found.tokeniser, found.notes) == ("ptb", ())
    values = {name: statistic.value for name, statistic in found.statistics.items()}
    assert values == pytest.approx(dict(zip(NAMES, expected, strict=True)), abs=1e-12)
    statistic = found.statistics["METEOR"]
    assert statistic.of_sums(statistic.rows).tolist() == pytest.approx(meteors, abs=1e-12)
    assert 0.3 < meteor_score < 0.9  # there was something to agree on


@needs_java
def test_strange_captions_are_judged_like_any(judged: dict[str, CaptionScores]) -> None:
    found = judged["strange"]
    assert (found.tokeniser, found.notes) == ("ptb", ())
    assert tuple(found.statistics) == NAMES
    statistic = found.statistics["METEOR"]
    scores = dict(zip(STRANGE, statistic.of_sums(statistic.rows), strict=True))
    assert scores["nothing"] == scores["spaces"] == 0
    assert scores["emoji"] == scores["surrogate"] > 0.6  # the words are found beside it
    assert scores["lines"] > 0
    assert scores["accents"] > 0  # café
    assert all(np.isfinite(own.rows).all() for own in found.statistics.values())


def test_bleu_of_draws_is_that_of_the_drawn_captions() -> None:
    """A clip that is drawn twice counts as two clips with the same captions would."""
    found = score_captions(REFERENCES, CAPTIONS, java=None).statistics
    drawn = ["sing", "sing", "ball", "dog"]
    truth = {str(place): REFERENCES[clip] for place, clip in enumerate(drawn)}
    again = score_captions(truth, {str(place): CAPTIONS[clip] for place, clip in enumerate(drawn)}, java=None)
    times = np.array([drawn.count(clip) for clip in CAPTIONS], dtype=float)
    for order in range(1, 5):
        statistic = found[f"BLEU-{order}"]
        assert float(statistic.of_sums(times @ statistic.rows)) == pytest.approx(
            again.statistics[f"BLEU-{order}"].value
        )
    low, high = interval(found["BLEU-1"])
    assert low < found["BLEU-1"].value < high


def test_bleu_worked_out_by_hand() -> None:
    """3 of 4 words and 1 of 3 pairs are right; 4 words for the closest of 3, 5 and 9 words is the shorter."""
    references = {
        "a": ["the cat sat", "the cat sat down there", "one two three four five six seven eight nine"]
    }
    found = score_captions(references, {"a": "the cat ran down"}, java=None).statistics
    assert found["BLEU-1"].rows[0].tolist() == [3, 1, 0, 0, 4, 3, 2, 1, 4, 3]
    assert found["BLEU-1"].value == pytest.approx(3 / 4)
    assert found["BLEU-2"].value == pytest.approx((3 / 4 * 1 / 3) ** 0.5)
    short = score_captions(references, {"a": "the cat"}, java=None).statistics
    assert short["BLEU-2"].value == pytest.approx(np.exp(1 - 3 / 2))  # all right, and too short


def test_without_java_the_difference_is_marked() -> None:
    found = score_captions(REFERENCES, CAPTIONS, java=None)
    assert found.tokeniser == "python"
    assert "METEOR" not in found.statistics
    assert "apt install default-jre-headless" in found.notes[0]
    assert found.statistics["CIDEr"].value > 0


def _program(folder: Path, text: str) -> Path:
    file = folder / "bin/java"
    file.parent.mkdir()
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def test_java_home_comes_first_and_what_does_not_run_is_not_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() is None
    file = _program(tmp_path, "exit 0")
    assert find_java() == file
    file.write_text("#!/bin/sh\necho No Java runtime present\nexit 1\n", encoding="utf-8")
    assert find_java() is None


def test_a_program_that_hangs_is_killed(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(JavaError, match="not finished after 1 s"):
        run_java(_program(tmp_path, "exec sleep 60"), ["x"], ["a line"] * 100_000, folder=tmp_path, seconds=1)
    assert time.monotonic() - began < 20


def test_a_program_that_breaks_leaves_the_other_metrics(tmp_path: Path) -> None:
    broken = _program(tmp_path, "echo out of memory >&2; exit 3")
    found = score_captions(REFERENCES, CAPTIONS, java=broken)
    assert found.tokeniser == "python"
    assert "failed with 3: out of memory" in found.notes[0]
    silent = tmp_path / "silent"
    silent.mkdir()
    with pytest.raises(JavaError, match="0 answers to 2 lines"):
        run_java(_program(silent, "cat >/dev/null"), ["x"], ["a", "b"], folder=tmp_path, seconds=20)


def test_systems_that_are_judged_together_are_judged_as_alone() -> None:
    some = dict(islice(CAPTIONS.items(), 3))
    together = score_systems(REFERENCES, {"all": CAPTIONS, "some": some}, java=None)
    alone = score_captions(REFERENCES, some, java=None)
    for name, statistic in alone.statistics.items():
        assert together["some"].statistics[name].value == statistic.value
