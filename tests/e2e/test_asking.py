"""`ctsan fill`, `choose` and `rank`, and the same verbs in Python: runs asked about video files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from PIL import Image

import ctsan.video.given_frames
from commands import ctsan as real_command
from commands import ctsan_here as ask
from ctsan.errors import CtsanError, UsageError
from ctsan.inference.ensemble import word_ids
from ctsan.inference.loaded_model import Captioner, SentenceScorer
from ctsan.inference.loading import load_model
from ctsan.inference.predictor import Predictor
from ctsan.runs.trained_run import load_runs
from ctsan.text.vocabulary import BOS
from ctsan.video.frames import sample_frames

Runs = dict[str, Path]


@pytest.fixture(scope="module")
def clip(shapes: Path) -> Path:
    return shapes / "corpus/clips/0000.mp4"


def models(runs: Runs, *names: str) -> list[object]:
    return [part for name in names for part in ("--model", runs[name])]


def test_a_blank_is_filled_by_the_real_command(runs: Runs, clip: Path) -> None:
    sentence = "the _____ moves to the left"
    answer = json.loads(
        real_command("fill", clip, sentence, *models(runs, "fill", "fill2"), "--n-best", 3, "--json").stdout
    )
    assert list(answer) == ["clip", "sentence", "answers", "concepts"]
    assert (answer["clip"], answer["sentence"]) == (str(clip), sentence)
    found = Predictor.load(runs["fill"], runs["fill2"]).fill(clip, sentence, n_best=3)
    here = [(each.word, each.probability) for each in found.answers]
    said = [(each["word"], pytest.approx(each["probability"], abs=1e-5)) for each in answer["answers"]]
    assert here == said  # type: ignore[comparison-overlap]  # approx is as good as a number
    assert len(found.answers) == 3
    assert found.filled == f"the {found.answers[0].word} moves to the left"
    assert len(answer["concepts"]) == 4


def test_words_of_several_runs_have_their_mean_probability(runs: Runs, clip: Path) -> None:
    sentence = "a ___ star leaves to the <BLANK>"
    alone = [Predictor.load(runs[name]).fill(clip, sentence, n_best=10**6) for name in ("fill", "fill2")]
    together = Predictor.load(runs["fill"], runs["fill2"]).fill(clip, sentence, n_best=10**6)
    assert len(together.blanks) == 2
    for number, blank in enumerate(together.blanks):
        own = [{each.word: each.probability for each in one.blanks[number].answers} for one in alone]
        assert sum(own[0].values()) == pytest.approx(1, abs=1e-5)
        probabilities = [each.probability for each in blank.answers]
        assert probabilities == sorted(probabilities, reverse=True)
        for each in blank.answers:
            assert each.probability == pytest.approx((own[0][each.word] + own[1][each.word]) / 2, abs=1e-6)
    # Confidences of the concept words are means as well.
    both = Predictor.load(runs["fill"], runs["fill2"])
    encoded = both.encode(clip)
    confidences: dict[str, float] = dict.fromkeys(both.models[0].concepts.words, 0.0)
    for model in both.models:
        detection = encoded.encoding(model).detection
        assert detection is not None
        found = detection.confidences[0].tolist()
        for word, confidence in zip(model.concepts.words, found, strict=True):
            confidences[word] += confidence / 2
    surest = sorted(confidences.values(), reverse=True)[:4]
    assert [concept.confidence for concept in together.concepts] == pytest.approx(surest, abs=1e-5)
    assert all(
        concept.confidence == pytest.approx(confidences[concept.word]) for concept in together.concepts
    )


def test_sentences_of_a_clip_stand_with_the_score_that_orders_them(
    runs: Runs, clip: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask("describe", clip, "--n-best", 3, *models(runs, "describe"))
    *lines, _ = capsys.readouterr().out.splitlines()
    scores = [float(found[1]) for line in lines if (found := re.search(r"  \(score (-?\d+\.\d\d)\)$", line))]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)


def test_several_blanks_are_listed_one_after_the_other(
    runs: Runs, clip: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("fill", clip, "a __ star and a ____ zircle", *models(runs, "fill"))
    ask(*arguments, "--json")
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["blanks"]) == 2
    assert answer["blanks"][0] == answer["answers"]
    ask(*arguments)
    shown = capsys.readouterr()
    best = [blank[0]["word"] for blank in answer["blanks"]]
    assert shown.out.startswith(f"{clip}: a {best[0]} star and a {best[1]} zircle\n    1: {best[0]} 0.")
    assert "    concept words: " in shown.out
    assert "Not known to the model, and read as the unknown word: zircle." in shown.err


def test_a_choice_by_the_real_command_is_the_mean_of_the_runs(runs: Runs, clip: Path) -> None:
    choices = ["a star leaves to the left", "a heart grows", "the ball"]
    names = ("choose", "choose2")
    answer = json.loads(real_command("choose", clip, *choices, *models(runs, *names), "--json").stdout)
    assert list(answer) == ["clip", "choice", "scores", "concepts"]
    alone = [Predictor.load(runs[name]).choose(clip, choices) for name in names]
    mean = [(one.score + two.score) / 2 for one, two in zip(alone[0].choices, alone[1].choices, strict=True)]
    assert answer["scores"] == pytest.approx(mean, abs=1e-5)
    assert answer["choice"] == int(np.argmax(mean))
    found = Predictor.load(*(runs[name] for name in names)).choose(clip, choices)
    assert (found.choice, found.sentence) == (answer["choice"], choices[answer["choice"]])


def test_clips_are_ranked_by_the_real_command(runs: Runs, shapes: Path, tmp_path: Path) -> None:
    names = ("rank", "choose", "rank2")
    (tmp_path / "text.mp4").write_text("no video")
    arguments = ("rank", "a star leaves", shapes / "corpus", tmp_path / "text.mp4", tmp_path / "gone.mp4")
    result = real_command(*arguments, *models(runs, *names), "-n", 14, "--json", exit_code=1)
    assert "16/16" in result.stderr  # the bar
    answer = json.loads(result.stdout)
    assert list(answer) == ["query", "searched_for", "clips", "errors"]
    assert answer["query"] == answer["searched_for"] == "a star leaves"
    assert [Path(each["clip"]).name for each in answer["errors"]] == ["text.mp4", "gone.mp4"]
    assert "this is text, not a video" in answer["errors"][0]["error"]
    assert len(answer["clips"]) == 14
    found = {each["clip"]: each["score"] for each in answer["clips"]}
    assert list(found.values()) == sorted(found.values(), reverse=True)
    # By hand, from each run's own scores and the scale that it was stored with.
    predictor = Predictor.load(*(runs[name] for name in names))
    members = [model for model in predictor.models if isinstance(model, SentenceScorer)]
    assert members[0].score_scale[1] != 1
    for path in list(found)[::4]:
        encoded, scores = predictor.encode(Path(path)), []
        for model in members:
            own = model.score_all(word_ids(model, ["a star leaves"]), encoded.encoding(model)).item()
            mean, scale = model.score_scale
            scores.append((own - mean) / scale)
        assert found[path] == pytest.approx(sum(scores) / 3, abs=1e-4)


def test_sentences_are_ranked_for_a_clip(
    runs: Runs, clip: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sentences.txt"
    file.write_bytes(b"\xef\xbb\xbfa star leaves\r\n\r\n  a heart grows \nthe ball")
    arguments = ("rank", "--clip", clip, "--sentences", file, *models(runs, "rank"))
    answer = json.loads(real_command(*arguments, "-n", 2, "--json").stdout)
    assert list(answer) == ["clip", "sentences", "concepts"]
    sentences = ["a star leaves", "a heart grows", "the ball"]
    ranked = Predictor.load(runs["rank"]).rank_sentences(clip, sentences).sentences
    said = [(each["sentence"], pytest.approx(each["score"], abs=1e-4)) for each in answer["sentences"]]
    here = [(each.sentence, each.score) for each in ranked[:2]]
    assert said == here  # type: ignore[comparison-overlap]  # approx is as good as a number
    assert sorted(each.sentence for each in ranked) == sorted(sentences)
    assert ranked[0].score >= ranked[1].score >= ranked[2].score
    ask(*arguments)
    assert capsys.readouterr().out.startswith(f"{clip}:\n    ")


def test_people_see_scores_and_clips(
    runs: Runs, shapes: Path, clip: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shapes / "corpus/clips/0001.mp4"
    ask("rank", "a star", clip, other, clip, *models(runs, "rank"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2  # a clip that is named twice is there once
    assert {re.split(r"  +", line.strip())[1] for line in lines} == {str(clip), str(other)}
    ask("choose", clip, "a star", "a heart", *models(runs, "choose"))
    first, *scores, last = capsys.readouterr().out.splitlines()
    shown = {line.split(maxsplit=1)[1]: float(line.split()[0]) for line in scores}
    assert shown[first.removeprefix(f"{clip}: ")] == max(shown.values())  # as rounded
    assert last.startswith("    concept words: ")
    ask("rank", "a star", clip, *models(runs, "rank"))
    assert f"{clip}  (concept words: " in capsys.readouterr().out
    ask("rank", "a star", clip, *models(runs, "plain", "choose", "describe"))
    assert "concept words" in capsys.readouterr().out  # those of the run that chooses, which has a say
    ask("rank", "a star", clip, *models(runs, "plain", "describe"))
    assert capsys.readouterr().out.rstrip().endswith(str(clip))  # no run that decides has a detector


def test_attention_comes_on_request(runs: Runs, clip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def answered(*arguments: object) -> Any:
        ask(*arguments, "--attention", "--json")
        return json.loads(capsys.readouterr().out)

    filled = answered("fill", clip, "a __ star ___", *models(runs, "fill", "fill2"))["attention"]
    assert [(each["run"], each["blank"]) for each in filled] == [
        (str(runs[name]), blank) for blank in (0, 1) for name in ("fill", "fill2")
    ]
    for each in filled:
        assert each["words"] == ["a", "_____", "star", "_____"]
        assert np.shape(each["input"]) == (4, 4)
        np.testing.assert_allclose(np.sum([*each["input"], each["output"]], axis=1), 1, atol=1e-3)
        assert len(each["concepts"]) == 4
    chosen = answered("choose", clip, "a star", "the heart grows", *models(runs, "choose"))["attention"]
    assert [(each["choice"], each["words"]) for each in chosen] == [
        (0, ["a", "star"]),
        (1, ["the", "heart", "grows"]),
    ]
    assert all(each["output"] is None for each in chosen)
    ranked = answered("rank", "a star", clip, *models(runs, "rank", "plain"))["clips"][0]["attention"]
    assert np.shape(ranked[0]["input"]) == (2, 4)
    assert (ranked[1]["input"], ranked[1]["concepts"]) == (None, [])
    ask("fill", clip, "a __ star", *models(runs, "fill"), "--attention")
    shown = capsys.readouterr().out
    assert f"    attended to by {runs['fill']}\n      a " in shown
    assert "      to answer  " in shown
    assert not re.search(r" 0\.00\b", shown)
    ask("rank", "a star", clip, *models(runs, "plain"), "--attention")
    assert f"    no attention: {runs['plain']} reads no concept words\n" in capsys.readouterr().out


def test_effects_come_with_attention(runs: Runs, clip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask("describe", clip, *models(runs, "describe"), "--attention", "--json")
    line = json.loads(capsys.readouterr().out)
    words, effects = line["caption"].split(), line["effects"]
    assert effects["words"] == words
    assert effects["concepts"] == [each["word"] for each in line["concepts"]]
    assert (np.shape(effects["each"]), np.shape(effects["together"])) == ((len(words), 4), (len(words),))
    [attention] = line["attention"]
    assert attention["concepts"] == effects["concepts"]
    tracing = Predictor.load(runs["describe"]).trace(clip)
    assert tracing.output_weights is not None
    assert tracing.input_weights is not None
    np.testing.assert_allclose(attention["output"], tracing.output_weights, atol=1e-4)
    np.testing.assert_allclose(attention["input"], tracing.input_weights, atol=1e-4)
    # A concept word less, by hand: the first said word after the beginning.
    predictor = Predictor.load(runs["describe"])
    predictor.describe(clip)
    [model] = predictor.models
    assert isinstance(model, Captioner)
    encoding = predictor.encode(clip).encoding(model)
    first = model.vocabulary.encode(words)[0]
    log_probabilities = []
    for kept in ([0, 1, 2, 3], [1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], []):
        steps = model.steps(replace(encoding, concepts=encoding.concepts[:, kept]))
        next_words, _ = steps.next_words(np.array([BOS]), steps.start(), (0,))
        log_probabilities.append(next_words[0, first].item())
    whole, *without = log_probabilities
    expected = [whole - each for each in without]
    np.testing.assert_allclose([*effects["each"][0], effects["together"][0]], expected, atol=2e-4)
    ask("fill", clip, "a __ star ___", *models(runs, "fill", "fill2"), "--attention", "--json")
    filled = json.loads(capsys.readouterr().out)
    assert [each["words"] for each in filled["effects"]] == [
        [answers[0]["word"]] for answers in filled["blanks"]
    ]
    assert all(np.shape(each["each"]) == (1, len(each["concepts"])) for each in filled["effects"])
    ask("describe", clip, *models(runs, "describe"), "--json")
    assert not {"effects", "attention"} & json.loads(capsys.readouterr().out).keys()
    with pytest.raises(UsageError, match="--attention does not go with --scenes"):
        ask("describe", clip, *models(runs, "describe"), "--attention", "--scenes")


def test_only_effects_that_are_there_are_told(
    runs: Runs, clip: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With gates at zero no concept word has an effect; with large ones some have."""
    told = {}
    for gate in (0.0, 20.0):

        def loaded(*folders: Path, weights: Path | None = None, gate: float = gate) -> Predictor:
            trained = load_runs(folders)
            for name, values in trained[0].weights.items():
                if name.endswith("gate"):
                    trained[0].weights[name] = np.full_like(values, gate)
            return Predictor([load_model(run) for run in trained], weights=weights)

        monkeypatch.setattr(Predictor, "load", loaded)
        ask("describe", clip, *models(runs, "describe"), "--attention")
        lines = capsys.readouterr().out.splitlines()
        start = lines.index("    likelier by each concept word, and by all of them (x1.0: no effect)")
        end = lines.index(f"    attended to by {runs['describe']}")
        told[gate] = [line.split(maxsplit=1) for line in lines[start + 1 : end]]
        assert [word for word, _ in told[gate]] == lines[0].partition(": ")[2].split()
    assert {owed for _, owed in told[0.0]} == {"all x1.0"}
    assert any(owed.count(" x") > 1 for _, owed in told[20.0])
    for _, owed in told[20.0]:
        assert owed.count(" x") <= 4
        assert all(float(each.split(" x")[1].replace(",", "")) >= 1.1 for each in owed.split(", ")[:-1])


def test_a_clip_is_decoded_once_for_all_runs(runs: Runs, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []

    def counted(path: Path, **options: Any) -> Any:
        decoded.append(path)
        return sample_frames(path, **options)

    monkeypatch.setattr(ctsan.video.given_frames, "sample_frames", counted)
    predictor = Predictor.load(*runs.values())
    predictor.rank("a star", [clip, clip.with_name("0001.mp4")])
    assert [path.name for path in decoded] == ["0000.mp4", "0001.mp4"]


def test_runs_of_all_tasks_answer_side_by_side(runs: Runs, clip: Path) -> None:
    predictor = Predictor.load(*runs.values())
    described = Predictor.load(runs["describe"]).describe(clip)
    assert predictor.describe(clip) == described
    assert predictor.concepts(clip) == described.concepts
    assert predictor.trace(clip).caption == described.captions[0]
    assert Predictor.load(runs["plain"], runs["rank"]).concepts(clip) == Predictor.load(
        runs["rank"]
    ).concepts(clip)
    twice = Predictor.load(runs["describe"], runs["describe"]).describe(clip, n_best=2)
    once = Predictor.load(runs["describe"]).describe(clip, n_best=2)
    assert [caption.text for caption in twice.captions] == [caption.text for caption in once.captions]
    with pytest.raises(UsageError, match="No run has a concept detector"):
        Predictor.load(runs["plain"]).concepts(clip)


def test_the_folder_of_an_ensemble_stands_for_its_members(runs: Runs, clip: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("fill", "fill2"), start=1):
        (tmp_path / str(number)).symlink_to(runs[name])
    predictor = Predictor.load(tmp_path)
    assert [model.folder.name for model in predictor.models] == ["1", "2"]
    assert (
        predictor.fill(clip, "a __").answers
        == Predictor.load(runs["fill"], runs["fill2"]).fill(clip, "a __").answers
    )


def test_what_cannot_be_answered_says_so(runs: Runs, clip: Path, tmp_path: Path) -> None:
    fill, choose, rank = (models(runs, name) for name in ("fill", "choose", "rank"))
    empty, notes, blank = tmp_path / "empty", tmp_path / "notes", tmp_path / "blank.txt"
    empty.mkdir()
    notes.mkdir()
    (notes / "a.txt").write_text("a note")
    blank.write_text("\n \n")
    sentences = ("--sentences", blank)
    for message, arguments in (
        ("The sentence has no blank ('a star')", ("fill", clip, "a star", *fill)),
        ("only words that are not known to the model: zyx, xyz", ("fill", clip, "zyx _____ xyz", *fill)),
        ("A run of 'fill' is needed, and", ("fill", clip, "a ___", *choose)),
        ("ctsan train fill --corpus CORPUS --out RUN", ("fill", clip, "a ___", *choose)),
        ("There is nothing to choose from: 1 given", ("choose", clip, "a star", *choose)),
        ("There is nothing to choose from: 0 given", ("choose", clip, *choose)),
        ("Choice 2 has no words ('...')", ("choose", clip, "a star", "...", *choose)),
        ("Choice 1 has only words that are not known", ("choose", clip, "zyx", "xyz", *choose)),
        ("Choice 2 has only words that are not known", ("choose", clip, "zyx", "xyz", *choose)),
        ("A run of 'choose' is needed, and", ("choose", clip, "a star", "a heart", *rank)),
        ("The query has no words ('')", ("rank", "", clip, *rank)),
        ("None of these words is known to the model: zyx", ("rank", "zyx", clip, *rank)),
        ("the folder is empty", ("rank", "a star", empty, *rank)),
        ("the folder contains neither clips nor a caption file", ("rank", "a star", notes, *rank)),
        ("A run of 'rank' is needed, and", ("rank", "a star", clip, *choose)),
        ("Give a sentence and the clips to rank for it", ("rank", "a star", *rank)),
        ("is a file or folder: the sentence comes first", ("rank", clip, "a star", *rank)),
        ("Give a sentence and the clips to rank for it", ("rank", *rank)),
        ("give --clip CLIP and --sentences FILE alone", ("rank", "--clip", clip, *rank)),
        ("give --clip CLIP and --sentences FILE alone", ("rank", *sentences, *rank)),
        ("give --clip CLIP and --sentences FILE alone", ("rank", "a", "--clip", clip, *sentences, *rank)),
        ("blank.txt: it holds no sentences", ("rank", "--clip", clip, *sentences, *rank)),
        ("gone.txt: there is no such file", ("rank", "--clip", clip, "--sentences", "gone.txt", *rank)),
        ("A run of 'describe' is needed, and", ("describe", clip, *fill)),
        ("no run is there", ("fill", clip, "a ___", "--model", tmp_path)),
    ):
        with pytest.raises((CtsanError, click.UsageError), match=re.escape(message)):
            ask(*arguments)
    assert "no words" in real_command("rank", " ", clip, *rank, exit_code=2).stderr
    with pytest.raises(UsageError, match="There are no clips to rank"):
        Predictor.load(runs["rank"]).rank("a star", [])
    with pytest.raises(UsageError, match="There are no sentences to rank"):
        Predictor.load(runs["rank"]).rank_sentences(clip, [])


def test_a_clip_that_cannot_be_read_gets_its_error_in_place_of_an_answer(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone.mp4"
    for arguments in (
        ("fill", gone, "a ___", *models(runs, "fill")),
        ("choose", gone, "a star", "a heart", *models(runs, "choose")),
    ):
        with pytest.raises(SystemExit, match="1"):
            ask(*arguments, "--json")
        error = {"clip": str(gone), "error": f"{gone}: there is no such file. Check the path."}
        assert json.loads(capsys.readouterr().out) == error
        with pytest.raises(SystemExit, match="1"):
            ask(*arguments)
        assert error["error"] in capsys.readouterr().err
    with pytest.raises(SystemExit, match="1"):
        ask("rank", "a star", gone, *models(runs, "rank"), "--json")
    assert json.loads(capsys.readouterr().out) == {
        "query": "a star",
        "searched_for": "a star",
        "clips": [],
        "errors": [error],
    }


def test_a_clip_to_trace_or_to_search_by_gets_its_error_as_json_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    Image.new("RGB", (64, 48), (200, 30, 30)).save(tmp_path / "mine/red.png")
    store = ("--store", tmp_path / "store")
    ask("index", tmp_path / "mine", *store)
    capsys.readouterr()
    gone = tmp_path / "gone.mp4"
    error = {"clip": str(gone), "error": f"{gone}: there is no such file. Check the path."}
    for arguments, exit_code in (
        (("trace", gone, "-o", tmp_path / "a.png"), 1),
        (("search", "--like", gone, *store), 2),  # 1 is "nothing matches"
    ):
        with pytest.raises(SystemExit) as stopped:
            ask(*arguments, "--json")
        assert stopped.value.code == exit_code
        assert json.loads(capsys.readouterr().out) == error
        said = real_command(*arguments, exit_code=exit_code)  # for people, on stderr
        assert (said.stdout, error["error"] in said.stderr) == ("", True)


@pytest.mark.parametrize("command", ["fill", "choose", "rank"])
def test_help_begins_with_the_model_that_the_package_carries(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(command, "--help")
    shown = capsys.readouterr().out
    first, *others = re.findall(rf"^ +ctsan {command} .*", shown.partition("Examples:")[2], re.MULTILINE)
    assert "--model" not in first
    assert "--model runs/" in others[-1]
    assert f"Needs a run of 'ctsan train {command}'" not in " ".join(shown.split())


@pytest.mark.parametrize("command", ["describe", "concepts", "fill", "choose", "rank", "evaluate"])
def test_every_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask(command, "--help")
    assert f"  ctsan {command} " in capsys.readouterr().out.partition("Example")[2]
