"""The API gives the same answers as the predictor."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from httpx import Client

from clip_making import counting, encode
from ctsan.inference.predictor import Predictor
from ctsan.inference.torch_model import load_torch_model
from ctsan.runs import trained_run
from ctsan.runs.trained_run import load_runs
from ctsan.runs.weights import Array, read_weights
from ctsan.search.filters import SHOWN
from ctsan.search.indexing import index_folders
from ctsan.search.library import Library
from ctsan.web.app import create_app
from ctsan.web.limits import Limits
from web.conftest import Serve
from web.serving import found_in, load_predictor, served, until, upload


@pytest.fixture(scope="module")
def clip_id(client: Client, clip: Path) -> str:
    return upload(client, clip)


def test_description_is_the_predictors(client: Client, clip_id: str, clip: Path, asked: Predictor) -> None:
    found, tracing = asked.describe(clip), asked.trace(clip)
    answer = client.get(f"/api/clips/{clip_id}/description").json()
    assert answer["caption"] == found.caption
    assert answer["score"] == pytest.approx(found.captions[0].score, abs=1e-4)
    assert [each["word"] for each in answer["concepts"]] == [each.word for each in found.concepts]
    assert " ".join(each["word"] for each in answer["words"]) == found.caption
    weights = [each["attention"] for each in answer["words"]]
    assert tracing.output_weights is not None
    np.testing.assert_allclose(weights, tracing.output_weights, atol=1e-3)
    assert len(answer["attended"]) == 4
    assert (answer["run"], answer["num_models"]) == ("describe", 1)
    effects = tracing.effects
    assert effects is not None
    for place, word in enumerate(answer["words"]):
        assert word["effect"] == pytest.approx(effects.together[place], abs=1e-3)
        assert [(each["word"], each["effect"]) for each in word["effects"]] == [
            (each.word, pytest.approx(each.effect, abs=1e-3)) for each in effects.largest(place)
        ]


def test_effects_are_those_of_leaving_a_concept_word_out(models: list[Path], clip: Path) -> None:
    """With wide open gates a concept word has an effect on at least one word of the caption."""
    [run] = load_runs(models[:1])
    for name, values in run.model.named_parameters():
        if name.endswith("gate"):
            values.data.fill_(20.0)
    predictor = Predictor([load_torch_model(run)])  # a graph would have the stored gates
    with served(create_app(predictor, limits=Limits(workers=1))) as client:
        answer = client.get(f"/api/clips/{upload(client, clip)}/description").json()
    owed = [each for word in answer["words"] for each in word["effects"]]
    assert owed
    assert all(len(word["effects"]) <= 3 for word in answer["words"])
    assert all(each["effect"] >= 0.1 for each in owed)
    assert {each["word"] for each in owed} <= set(answer["attended"])


def test_a_joint_embedding_alone_chooses_as_in_the_command(models: list[Path], clip: Path) -> None:
    app = create_app(load_predictor(models[3:]), limits=Limits(workers=1))
    sentences = ["a blue square moves", "the yellow heart grows"]
    with served(app) as client:
        assert client.get("/api/status").json()["tasks"] == ["choose", "rank"]
        clip_id = upload(client, clip)
        chosen = client.post(f"/api/clips/{clip_id}/choose", json={"sentences": sentences}).json()
        assert client.post(f"/api/clips/{clip_id}/fill", json={"sentence": "a ___"}).status_code != 200
    found = Predictor.load(*models[3:]).choose(clip, sentences)
    assert chosen["scores"] == [each.score for each in found.choices]


def test_answers_are_those_of_the_commands_to_the_last_digit(
    client: Client, long_clip: Path, asked: Predictor
) -> None:
    """Of a clip with many more frames than the runs take in."""
    clip = upload(client, long_clip)
    found, tracing = asked.describe(long_clip), asked.trace(long_clip)
    answer = client.get(f"/api/clips/{clip}/description").json()
    assert (answer["caption"], answer["score"]) == (found.caption, found.captions[0].score)
    assert [(each["word"], each["confidence"]) for each in answer["concepts"]] == [
        (each.word, round(each.confidence, 4)) for each in found.concepts
    ]
    traces = client.get(f"/api/clips/{clip}/traces").json()
    assert len(traces["times"]) == 10 < len(until(client, clip, "ready")["times"])
    assert traces["times"] == (tracing.times - tracing.times[0]).round(4).tolist()
    assert traces["attention"] == tracing.attention.astype(float).round(4).tolist()
    blank = client.post(f"/api/clips/{clip}/fill", json={"sentence": "the ___ moves"}).json()["blanks"][0]
    assert [(each["word"], each["probability"]) for each in blank] == [
        (each.word, each.probability) for each in asked.fill(long_clip, "the ___ moves").answers
    ]
    sentences = ["a blue square moves", "the yellow heart grows"]
    chosen = client.post(f"/api/clips/{clip}/choose", json={"sentences": sentences}).json()
    assert chosen["scores"] == [each.score for each in asked.choose(long_clip, sentences).choices]
    while (shots := client.get(f"/api/clips/{clip}/shots").json())["state"] == "reading":
        pass
    assert [(shot["start"], shot["end"], shot["caption"]) for shot in shots["shots"]] == [
        (scene.start, scene.end, scene.caption.text) for scene in asked.describe_scenes(long_clip)
    ]


def test_traces_look_somewhere_at_every_moment(client: Client, clip_id: str) -> None:
    answer = client.get(f"/api/clips/{clip_id}/traces").json()
    attention = np.array(answer["attention"])
    assert attention.shape == (len(answer["times"]), 25, 5, 5)
    np.testing.assert_allclose(attention.sum(axis=(2, 3)), 1, atol=2e-3)
    assert answer["times"][0] == 0
    assert answer["rows"][0] == 0
    assert answer["columns"][-1] == 1
    assert all(len(each["shares"]) == 25 for each in answer["concepts"])


def test_a_concept_word_that_was_not_detected_can_be_traced(
    client: Client, clip_id: str, library: Path
) -> None:
    detected = {each["word"] for each in client.get(f"/api/clips/{clip_id}/concepts").json()}
    word = next(word for word in Library(library).words if word not in detected)
    answer = client.get(f"/api/clips/{clip_id}/traces", params={"concept": word}).json()
    assert answer["concepts"][-1]["word"] == word
    unknown = client.get(f"/api/clips/{clip_id}/traces", params={"concept": "xylophone"})
    assert unknown.status_code == 422
    assert "xylophone" in unknown.json()["error"]["message"]


def test_blanks_are_filled_as_by_the_predictor(
    client: Client, clip_id: str, clip: Path, asked: Predictor
) -> None:
    sentence = "the ___ moves to the ___"
    found = asked.fill(clip, sentence)
    answer = client.post(f"/api/clips/{clip_id}/fill", json={"sentence": sentence}).json()
    assert answer["filled"] == found.filled
    assert [[each["word"] for each in blank] for blank in answer["blanks"]] == [
        [each.word for each in blank.answers] for blank in found.blanks
    ]


def test_sentences_are_chosen_as_by_the_predictor(
    client: Client, clip_id: str, clip: Path, asked: Predictor
) -> None:
    sentences = ["a blue square moves", "the yellow heart grows", "a shape on the water"]
    found = asked.choose(clip, sentences)
    answer = client.post(f"/api/clips/{clip_id}/choose", json={"sentences": sentences}).json()
    assert answer["choice"] == found.choice
    assert answer["scores"] == pytest.approx([each.score for each in found.choices], abs=1e-3)


@pytest.mark.parametrize(
    ("path", "question", "about"),
    [
        ("fill", {"sentence": "no blank at all"}, "no blank"),
        ("fill", {"sentence": "__ __ __ __ __ and a shape"}, "more than 4 blanks"),
        ("fill", {"sentence": "x" * 501}, "sentence"),
        ("fill", {"words": "a __"}, "words"),
        ("choose", {"sentences": ["only one"]}, "sentences"),
        ("choose", {"sentences": ["a square", "zyx qwv"]}, "zyx"),
    ],
)
def test_questions_that_cannot_be_asked_are_explained(
    client: Client, clip_id: str, path: str, question: dict[str, object], about: str
) -> None:
    answer = client.post(f"/api/clips/{clip_id}/{path}", json=question)
    assert answer.status_code == 422
    assert about in answer.json()["error"]["message"]


def test_pictures_are_those_that_the_model_sees(client: Client, clip_id: str) -> None:
    known = until(client, clip_id, "ready")
    assert (known["width"], known["height"]) == (640, 360) or known["width"] > 0
    last = client.get(f"/api/clips/{clip_id}/pictures/{len(known['times']) - 1}")
    assert last.headers["content-type"] == "image/jpeg"
    assert last.content.startswith(b"\xff\xd8")
    assert client.get(f"/api/clips/{clip_id}/pictures/{len(known['times'])}").status_code == 404
    assert client.get(f"/api/clips/{clip_id}/poster").content.startswith(b"\xff\xd8")


def test_a_picture_is_a_clip_too(client: Client, tmp_path: Path) -> None:
    picture = encode(tmp_path / "still.png", list(counting(1)), codec="png")
    known = until(client, upload(client, picture), "ready", "failed")
    assert known["state"] == "ready"
    assert known["times"] == [0.0]


def test_a_long_video_is_described_shot_by_shot(client: Client, long_clip: Path) -> None:
    clip = upload(client, long_clip)
    client.get(f"/api/clips/{clip}/description")
    known = until(client, clip, "ready")
    assert known["duration"] == 40
    while (answer := client.get(f"/api/clips/{clip}/shots").json())["state"] == "reading":
        pass
    assert answer["state"] == "ready"
    assert [round(shot["start"]) for shot in answer["shots"]] == [0, 10, 20, 30]
    assert answer["shots"][-1]["end"] == pytest.approx(40, abs=0.3)
    track = client.get(f"/api/clips/{clip}/shots.vtt")
    assert track.headers["content-type"].startswith("text/vtt")
    assert track.text.startswith("WEBVTT\n")
    assert "\n\n1\n00:00:00.000 --> 00:00:10.000\n" in track.text
    assert track.text.count("-->") == 4
    assert client.get(f"/api/clips/{clip}/shots/3/picture").content.startswith(b"\xff\xd8")


def test_the_library_is_searched(client: Client, corpus: Path, long_clip: Path) -> None:
    found = client.get("/api/search", params={"query": "a blue square moves", "n": 3}).json()
    assert len(found["hits"]) == 3
    files = {file.name: file for file in (*(corpus / "clips").iterdir(), long_clip)}
    assert {hit["name"] for hit in found["hits"]} <= files.keys()
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True)
    hit = found["hits"][0]
    assert client.get(f"/api/library/{hit['id']}/thumbnail").content.startswith(b"\xff\xd8")
    part = client.get(f"/api/library/{hit['id']}/video", headers={"Range": "bytes=4-7"})
    assert part.status_code == 206
    assert part.content == b"ftyp"
    opened = client.post(f"/api/library/{hit['id']}/open").json()["id"]
    assert client.get(f"/api/clips/{opened}/description").status_code == 200
    assert files[hit["name"]].exists()


def test_a_moment_is_most_like_itself(client: Client, long_clip: Path) -> None:
    everything = client.get("/api/search", params={"query": "a square", "n": 100}).json()["hits"]
    moments = [hit for hit in everything if hit["name"] == long_clip.name]
    assert len(moments) == 4
    for moment in moments:
        best = client.get("/api/search", params={"like": moment["id"], "n": 3}).json()["hits"][0]
        assert best["id"] == moment["id"]
        assert best["score"] == pytest.approx(1, abs=1e-2)
    unknown = client.get("/api/search", params={"like": "none"})
    nowhere = client.get("/api/nowhere")
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "not_found")
    assert unknown.status_code == 404
    assert "clip or moment" in unknown.json()["error"]["message"]


def test_a_library_that_is_indexed_again_is_seen(serve: Serve, own_library: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    encode(new / "new.mp4", counting(48))
    with serve(library=own_library) as client:

        def names() -> set[str]:
            hits = client.get("/api/search", params={"query": "a square", "n": 100}).json()["hits"]
            return {hit["name"] for hit in hits}

        before = names()
        index_folders([new], own_library, models=[])
        assert names() == before | {"new.mp4"}
        moment = found_in(client, "new.mp4")["id"]
        (new / "new.mp4").unlink()
        index_folders([new], own_library, models=[])
        assert names() == before
        gone = client.get("/api/search", params={"like": moment})
        assert gone.status_code == 410
        assert gone.json()["error"]["code"] == "gone"
        assert client.get(f"/api/library/{moment}/video").status_code == 404


def test_a_damaged_library_is_no_secret_path(serve: Serve, own_library: Path) -> None:
    with serve(library=own_library) as client:
        with sqlite3.connect(own_library / "library.sqlite") as records:
            records.execute("delete from about where name = 'generation'")
        answer = client.get("/api/search", params={"query": "a square"})
        assert answer.status_code == 500
        assert str(own_library) not in answer.text
        assert "library cannot be read" in answer.json()["error"]["message"]


def test_models_of_server_and_library_are_loaded_once(
    serve: Serve, models: list[Path], library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def reading(file: Path) -> dict[str, Array]:
        read.append(file.parent)
        return read_weights(file)

    monkeypatch.setattr(trained_run, "read_weights", reading)
    with serve(library=library) as client:
        assert client.get("/api/search", params={"query": "a square"}).status_code == 200
    assert sorted(read) == sorted(models)  # three are asked about clips, and two of them and `embed` search


def test_a_clip_is_most_like_itself(client: Client, clip_id: str, clip: Path) -> None:
    found = client.get("/api/search", params={"like": clip_id}).json()
    assert found["hits"][0]["name"] == clip.name
    assert found["hits"][0]["score"] == pytest.approx(1, abs=1e-2)


def test_concept_words_narrow_the_search(client: Client) -> None:
    """By confidence, with the number of shots that each word leaves."""
    asked: dict[str, str | int] = {"query": "a shape moves", "n": 100}
    everything = client.get("/api/search", params=asked).json()
    assert everything["allowed_shots"] == everything["library_shots"] == len(everything["hits"])
    assert everything["words"]
    for counted in everything["words"]:
        word, shots = counted["word"], counted["shots"]
        having = {
            hit["id"]
            for hit in everything["hits"]
            if any(each["word"] == word and each["confidence"] >= SHOWN for each in hit["concepts"])
        }
        found = client.get("/api/search", params={**asked, "concept": word}).json()
        ids = {hit["id"] for hit in found["hits"]}
        assert having <= ids
        assert len(ids) == shots == found["allowed_shots"]
        [asked_for] = found["filters"]
        assert (asked_for["word"], asked_for["is_excluded"], asked_for["shots"]) == (word, False, shots)
        others = client.get("/api/search", params={**asked, "without": word}).json()
        assert not ids & {hit["id"] for hit in others["hits"]}
        assert others["filters"][0]["is_excluded"]


def test_a_misspelt_query_says_what_was_searched_for(client: Client) -> None:
    found = client.get("/api/search", params={"query": "a grean leaf"}).json()
    assert found["corrections"] == [{"typed": "grean", "read_as": "green"}]
    assert found["searched_for"] == "a green leaf"
    assert found["hits"]


def test_pages_of_a_search_follow_each_other(client: Client) -> None:
    everything = client.get("/api/search", params={"query": "a shape moves", "n": 100}).json()["hits"]
    pages = [
        client.get("/api/search", params={"query": "a shape moves", "n": 5, "skip": skip}).json()["hits"]
        for skip in range(0, len(everything) + 5, 5)
    ]
    assert [hit["id"] for page in pages for hit in page] == [hit["id"] for hit in everything]
    assert pages[-1] == [] or len(pages[-1]) < 5


def test_everything_is_documented(client: Client) -> None:
    described = client.get("/api/openapi.json").json()
    assert len(described["paths"]) >= 17
    for path, verbs in described["paths"].items():
        for verb, about in verbs.items():
            assert about["description"].endswith("."), (verb, path)
            assert "429" in about["responses"]
