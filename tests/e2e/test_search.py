"""A library on the disk: indexed, stopped, renamed, changed, and asked.

Worst of ten trainings by `make margins` (five seeds, each with and without jitter of 1e-4), and the bound:

- cosine of like words 1.00 (> .9) and of others .33 (< .7)
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clip_making import encode
from commands import ctsan, ctsan_here
from ctsan.errors import StoreError, UsageError
from ctsan.inference.featurizer import ClipFeaturizer
from ctsan.inference.loaded_model import JointEmbedding
from ctsan.inference.loading import load_models
from ctsan.inference.predictor import Predictor
from ctsan.runs.run_folder import weights_digest
from ctsan.search.encodings import embed_query, joint_embeddings, shot_arrays
from ctsan.search.filters import FilterCount
from ctsan.search.indexing import Report, index_folders
from ctsan.search.library import Library
from ctsan.search.library_writer import LibraryWriter
from ctsan.search.opening import LibraryAddress
from ctsan.search.postgres_address import PostgresAddress
from ctsan.search.postgres_library import PostgresLibrary
from ctsan.search.postgres_schema import Connection
from ctsan.search.search import Searcher, SearchResult
from ctsan.text.sentences import encode_sentences
from ctsan.video.shots import Shot
from e2e.small_run import SMALL
from margins import Margins, Start


@pytest.fixture(scope="module")
def models(shapes: Path, runs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of all tasks that a search makes use of."""
    folder = tmp_path_factory.mktemp("embed") / "run"
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", *SMALL)
    quick = ("--set=training.steps=30", "--set=training.batch_size=8", "--set=retrieval.joint_dim=16")
    ctsan_here("train", "embed", *options, *quick, "--out", folder)
    return [folder, runs["rank"], runs["choose"], runs["describe"]]


def test_a_word_that_no_caption_has_is_understood_by_its_vector(
    shapes: Path, models: list[Path], tmp_path: Path, start: Start, margins: Margins
) -> None:
    [without] = load_models(models[:1])
    common, other, *_ = without.concepts.words
    rng = np.random.default_rng(0)
    vectors = {word: rng.normal(size=16) for word in (common, other)}
    vectors["crimson"] = vectors[common]
    lines = (f"{word} {' '.join(map(str, vector))}" for word, vector in vectors.items())
    (tmp_path / "vectors.txt").write_text("\n".join(lines), encoding="utf-8")
    features = start.features(shapes / "features", tmp_path / "features")
    options = ("--corpus", shapes / "corpus", "--features", features, *SMALL, start.option)
    quick = ("--set=training.steps=10", "--set=training.batch_size=8", "--set=retrieval.joint_dim=12")
    given = ("--vectors", tmp_path / "vectors.txt", "--out", tmp_path / "run")
    ctsan_here("train", "embed", *options, *quick, *given)
    [model] = joint_embeddings(load_models([tmp_path / "run"]))
    read = encode_sentences([common, "crimson", other], model.vocabulary, max_words=5)
    known, new, unlike = model.embed_sentences(read)
    margins.above("cosine of like words", float(known @ new), 0.9)  # only the known one was learnt further
    margins.below("cosine of others", float(known @ unlike), 0.7)
    joint = embed_query([without, model], "crimson")  # the run that does not know it has no say
    assert not joint[:16].any()
    np.testing.assert_allclose(joint[16:], new * 2**0.5, atol=1e-6)
    assert embed_query([without, model], common)[:16].any()


@pytest.fixture(scope="module")
def folder(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clips, a copy of one, a picture, a film of two scenes, and two files that are no clips."""
    folder = tmp_path_factory.mktemp("videos").resolve() / "mine"
    clips = sorted((shapes / "corpus").glob("clips/*.mp4"))[:6]
    (folder / "clips").mkdir(parents=True)
    for clip in clips:
        shutil.copy(clip, folder / "clips")
    shutil.copy(clips[0], folder / "zz copy.mp4")
    Image.new("RGB", (64, 48), (200, 30, 30)).save(folder / "red.png")
    colours = np.random.default_rng(0).integers(0, 256, (2, 6, 8, 3), dtype=np.uint8)
    scenes = [np.kron(scene, np.ones((8, 8, 1), np.uint8)) for scene in colours]
    encode(folder / "film.mp4", (scenes[n >= 80] for n in range(160)), rate=4)
    (folder / "text.mp4").write_text("not a video", encoding="utf-8")
    (folder / "empty.mp4").touch()
    return folder


@pytest.fixture(scope="module")
def library(
    folder: Path, models: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Report]:
    place = tmp_path_factory.mktemp("libraries") / "main"
    return place, index_folders([folder], place, models=models)


@pytest.fixture(scope="module")
def shared_library(
    folder: Path, models: list[Path], postgres_url: str
) -> Iterator[tuple[PostgresAddress, Report]]:
    """The same in PostgreSQL."""
    place = PostgresAddress(postgres_url, f"search-{uuid.uuid4().hex[:12]}")
    yield place, index_folders([folder], place, models=models)
    drop_library(place)


def drop_library(place: PostgresAddress) -> None:
    with closing(Connection(place)) as connection:
        connection.query(f'drop schema "{place.schema}" cascade')


@pytest.fixture(scope="module", params=["folder", "postgres"])
def any_library(request: pytest.FixtureRequest) -> tuple[LibraryAddress, Report]:
    name = "library" if request.param == "folder" else "shared_library"
    found: tuple[LibraryAddress, Report] = request.getfixturevalue(name)
    return found


@pytest.fixture(scope="module")
def searcher(any_library: tuple[LibraryAddress, Report]) -> Searcher:
    return Searcher(any_library[0])


@pytest.fixture(params=["folder", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> LibraryAddress:
    """Where a library can be made."""
    if request.param == "folder":
        return tmp_path / "main"
    found: LibraryAddress = request.getfixturevalue("postgres_place")
    return found


_POSTGRES_CONTENT = (
    "select name, value from about",
    "select host, number from revisions",
    "select host, path, size, mtime_ns, digest, error, reader, has_details from files "
    "join contents on contents.id = content",
    "select digest, number, starts, ends, vector::text, concepts, confidences, candidates, levels, caption, "
    "thumbnail from contents join shots on shots.content = contents.id join details on shot = shots.id",
    "select host, path from mounts",
)


def content(library: LibraryAddress) -> dict[str, object]:
    """All that a store holds: every table, and the bytes of every array."""
    if not isinstance(library, Path):
        with closing(PostgresLibrary(library)) as store:
            return {query: store.connection.query(f"{query} order by 1, 2") for query in _POSTGRES_CONTENT}
    with sqlite3.connect(library / "library.sqlite") as records:
        tables = [name for (name,) in records.execute("select name from sqlite_master where type = 'table'")]
        found: dict[str, object] = {
            name: records.execute(f"select * from {name} order by 1").fetchall() for name in tables
        }
    arrays = sorted(library.glob("numbers-*/*.npy"))
    return found | {str(file.relative_to(library)): file.read_bytes() for file in arrays}


def test_everything_is_found_and_bad_files_stop_nothing(
    any_library: tuple[LibraryAddress, Report], folder: Path
) -> None:
    report = any_library[1]
    assert (report.files, report.new, report.known) == (9, 8, 1)
    assert report.shots == 6 + 1 + 2  # the copy has no shots of its own; the film has two
    assert set(report.errors) == {folder / "text.mp4", folder / "empty.mp4"}
    assert "this is text" in report.errors[folder / "text.mp4"]


def test_a_second_time_nothing_is_looked_at(
    any_library: tuple[LibraryAddress, Report], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _ = any_library
    before = content(place)
    monkeypatch.setattr(ClipFeaturizer, "engine", None)
    report = index_folders([folder], place, models=[])
    assert (report.new, report.known, report.dropped) == (0, 9, 0)
    assert content(place) == before


_KILLED = """
import json, os, signal, sys
from pathlib import Path
import psycopg
from ctsan.search import library_opening, library_writer
from ctsan.search.indexing import index_folders
from ctsan.search.opening import library_address
from ctsan.search.postgres_writer import PostgresWriter

folder, store, name, moments, *models = sys.argv[1:]

def index(moment: str, count: int) -> None:
    left = [count]

    def die(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if moment == "creating":  # the folder is there, and nothing in it; the tables are, and not committed
        library_opening._create = psycopg.Cursor.executemany = die
    if moment == "numbers":  # some arrays of a file are written, others are not
        write = library_writer.write_rows
        library_writer.write_rows = lambda *given: (die(), write(*given))
        insert = PostgresWriter._insert_shots
        PostgresWriter._insert_shots = lambda *given: (die(), insert(*given))
    if moment == "records":  # they all are, but the records that speak of them are not committed
        link = library_writer.LibraryWriter._link
        library_writer.LibraryWriter._link = lambda *given: (link(*given), die())
        link_there = PostgresWriter._link
        PostgresWriter._link = lambda *given: (link_there(*given), die())
    on_file = die if moment == "file" else None
    place = library_address(name, store)
    index_folders([Path(folder)], place, models=list(map(Path, models)), on_file=on_file)

for moment, count in json.loads(moments):
    child = os.fork()  # what takes seconds to import is there already
    if child == 0:
        index(moment, count)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_killed_at_any_moment_it_goes_on_to_the_same_store(
    any_library: tuple[LibraryAddress, Report], folder: Path, models: list[Path], tmp_path: Path
) -> None:
    whole, _ = any_library
    place = tmp_path / "main" if isinstance(whole, Path) else replace(whole, name=f"{whole.name}-killed")
    store = str(tmp_path) if isinstance(place, Path) else place.url
    moments = [
        ("creating", 1),
        ("numbers", 1),
        ("numbers", 2),
        ("records", 1),
        ("records", 2),
        ("file", 3),
        ("numbers", 4),
        ("records", 2),
        ("file", 8),
        ("numbers", 2),
    ]
    if not isinstance(place, Path):  # all shots of a file are written by one call
        moments = [(moment, 1 if moment == "numbers" else count) for moment, count in moments]
    arguments = [str(each) for each in (folder, store, place.name, json.dumps(moments), *models)]
    command = [sys.executable, "-c", _KILLED, *arguments]
    killed = subprocess.run(command, check=True, capture_output=True, text=True)
    assert killed.stdout.split() == [str(-signal.SIGKILL)] * len(moments)
    index_folders([folder], place, models=models)
    assert content(place) == content(whole)
    if not isinstance(place, Path):
        drop_library(place)


def test_a_folder_that_an_early_kill_left_empty_is_no_dead_end(tmp_path: Path) -> None:
    (tmp_path / "store" / "main").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    Image.new("RGB", (64, 48), (200, 30, 30)).save(tmp_path / "mine" / "red.png")
    ctsan_here("index", tmp_path / "mine", "--store", tmp_path / "store")
    assert len(Library(tmp_path / "store" / "main").files()) == 1


def test_an_open_library_is_asked_as_it_is_now(
    folder: Path, models: list[Path], tmp_path: Path, place: LibraryAddress
) -> None:
    mine, query = tmp_path / "mine", "a red circle moves"
    shutil.copytree(folder / "clips", mine)
    index_folders([mine], place, models=models)
    searcher = Searcher(place)
    assert len(searcher.search(query).hits) == 6
    for number, clip in enumerate(sorted(mine.iterdir())[:3]):  # the second makes it write arrays anew
        [before] = searcher.like(clip, n_best=1).hits
        clip.unlink()
        index_folders([mine], place, models=[])
        found = searcher.search(query)
        assert {hit.file for hit in found.hits} == set(mine.iterdir())
        assert found == Searcher(place).search(query)
        with pytest.raises(UsageError, match="does not have this moment any more"):
            searcher.like_moment(before)
        if isinstance(place, Path):
            assert Library(place).generation == (0, 1, 1)[number]
    shutil.copy(folder / "red.png", mine)
    index_folders([mine], place, models=[])
    assert searcher.like(mine / "red.png").hits[0].file == mine / "red.png"


def test_shots_that_no_file_holds_any_more_are_not_found(
    library: tuple[Path, Report], tmp_path: Path
) -> None:
    """While a library is being indexed, a changed file has given up its shots, and they are still there."""
    place = tmp_path / "main"
    shutil.copytree(library[0], place)
    searcher = Searcher(place)
    before = searcher.search("a red circle", n_best=100).hits
    [gone] = [hit for hit in before if hit.file.name == "red.png"]
    with sqlite3.connect(place / "library.sqlite") as records:
        records.execute("delete from files where path = ?", (str(gone.file).encode(),))
    after = searcher.search("a red circle", n_best=100).hits
    assert after == tuple(hit for hit in before if hit != gone)


def test_everything_in_an_open_library_may_go(
    folder: Path, models: list[Path], tmp_path: Path, place: LibraryAddress
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    shutil.copy(folder / "red.png", mine)
    index_folders([mine], place, models=models)
    searcher = Searcher(place)
    shutil.rmtree(mine)
    report = index_folders([mine], place, models=[])
    assert (report.files, report.dropped, report.errors) == (
        0,
        1,
        {},
    )  # it was there, so it is no typing error
    assert searcher.search("a red circle").hits == ()
    assert searcher.like(folder / "red.png").hits == ()


def test_the_index_in_use_answers_until_the_next_is_there(
    folder: Path, models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctsan.search.ann_index.EXACT_UP_TO", 2)
    mine, place = tmp_path / "mine", tmp_path / "main"
    shutil.copytree(folder / "clips", mine)
    index_folders([mine], place, models=models)
    assert Library(place).index_file.exists()
    searcher = Searcher(place)
    nearest = searcher.shots
    first, second, *others = sorted(mine.iterdir())
    store = LibraryWriter(place)
    store.drop([first])  # as half-way through indexing
    assert not store.index_file.exists()
    assert {hit.file for hit in searcher.search("a red circle").hits} == {second, *others}
    assert searcher.shots is nearest
    first.unlink()
    second.unlink()
    index_folders([mine], place, models=[])
    assert Library(place).generation == 1
    assert Library(place).index_file.exists()  # of the arrays that were written anew
    assert {hit.file for hit in searcher.search("a red circle").hits} == set(others)
    assert searcher.shots is not nearest


def test_a_moment_is_most_like_itself(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = [hit for hit in searcher.search("a red circle", n_best=100).hits if hit.file.name == "film.mp4"]
    assert len(scenes) == 2
    monkeypatch.setattr(ClipFeaturizer, "featurize_all", None)  # nothing is decoded
    for scene in scenes:
        best, *_ = searcher.like_moment(scene, n_best=3).hits
        assert (best.file, best.start) == (scene.file, scene.start)
        assert best.score == pytest.approx(1, abs=0.01)


def test_damaged_records_are_explained(library: tuple[Path, Report], folder: Path, tmp_path: Path) -> None:
    """Each page of the file in turn, behind the first, which holds the version."""
    whole, said = (library[0] / "library.sqlite").read_bytes(), []
    place = tmp_path / "main"
    place.mkdir()
    for start in range(4096, len(whole), 4096):
        (place / "library.sqlite").write_bytes(whole[:start] + b"\xff" * 4096 + whole[start + 4096 :])
        store = LibraryWriter(place)
        for read in (
            lambda store: (store.runs, store.words, store.revision),
            Library.files,
            Library.errors,
            Library.copies,
            Library.rows,
            lambda store: store.locate(range(9)),
            lambda store: store.row_of(folder / "red.png", Shot(0, 0)),
            lambda store: store.has_content("none"),
            lambda store: store.drop([folder / "red.png"]),
        ):
            try:
                read(store)
            except StoreError as error:
                said.append(str(error))
        store.close()
        for left in place.glob("library.sqlite-*"):
            left.unlink()
    assert len(said) > 9
    assert all(error.startswith(f"{place}/library.sqlite: it is damaged (") for error in said)
    assert all(error.endswith(f"Delete {place} and index again.") for error in said)


def test_a_folder_that_is_not_there_is_said(
    library: tuple[Path, Report], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, typo = tmp_path / "main", tmp_path / "typo-folder"
    shutil.copytree(library[0], place)
    with pytest.raises(SystemExit) as stopped:
        ctsan_here("index", folder / "clips", typo, "--store", tmp_path)
    assert stopped.value.code == 1
    said = capsys.readouterr()
    assert f"{typo}: there is no such folder" in said.err
    assert "6 known" in said.out  # the rest is indexed
    with pytest.raises(UsageError, match="typo-folder: there is no such folder"):
        index_folders([typo], place, models=[])


def test_a_folder_that_is_not_there_leaves_no_library(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, said in (("gone", "gone: there is no such folder"), ("empty", "No videos or pictures in")):
        with pytest.raises(UsageError, match=said):
            ctsan_here("index", tmp_path / name, "--store", tmp_path / "store")
        assert sorted(tmp_path.iterdir()) == [tmp_path / "empty"]


def test_a_renamed_folder_is_known_without_decoding(
    library: tuple[Path, Report], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "libraries" / "main"
    shutil.copytree(library[0], place)
    shutil.copytree(folder, tmp_path / "first")
    index_folders([tmp_path / "first"], place, models=[])
    (tmp_path / "first").rename(tmp_path / "second")
    monkeypatch.setattr(ClipFeaturizer, "engine", None)
    report = index_folders([tmp_path / "second"], place, models=[])
    assert (report.new, report.known, report.dropped) == (0, 9, 11)
    names = [path for path in Library(place).files() if path.is_relative_to(tmp_path)]
    assert len(names) == 11
    assert all(path.is_relative_to(tmp_path / "second") for path in names)


def test_what_is_gone_is_dropped_and_what_changed_is_looked_at_again(
    folder: Path, models: list[Path], tmp_path: Path, place: LibraryAddress
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(folder / "clips", mine)
    index_folders([mine], place, models=models)
    first, second, third, *others = sorted(mine.iterdir())
    first.unlink()
    second.unlink()
    shutil.copy(folder / "red.png", third)
    report = index_folders([mine], place, models=[])
    assert (report.files, report.shots, report.new, report.dropped) == (4, 4, 1, 2)
    if isinstance(place, Path):
        store = Library(place)
        assert store.rows().tolist() == [0, 1, 2, 3]  # more than a quarter of the rows were of no use
        assert {each.file for each in store.locate([0, 1, 2, 3])} == {third, *others}
    searcher = Searcher(place)
    assert {hit.file for hit in searcher.search("a red circle").hits} == {third, *others}
    hits = searcher.like(others[0], n_best=1).hits
    assert hits[0].file == others[0]


def test_a_clip_is_most_like_itself(searcher: Searcher, folder: Path) -> None:
    for clip in sorted((folder / "clips").iterdir())[1:4]:
        found = searcher.like(clip, n_best=3)
        assert found.hits[0].file == clip
        assert found.hits[0].score == pytest.approx(1, abs=0.01)
        assert found.hits[0].score >= found.hits[1].score >= found.hits[2].score


def test_scores_are_those_of_the_runs(searcher: Searcher, models: list[Path], folder: Path) -> None:
    """`search` and `rank` score a clip as the runs of 'embed' do alone, whatever stands beside them."""
    query = "a red circle moves left"
    hits = {hit.file: hit.score for hit in searcher.search(query, n_best=100).hits}
    clips = sorted((folder / "clips").iterdir())[1:]  # the first has a copy with an earlier name
    for asked in (models, models[:1]):
        ranked = Predictor.load(*asked).rank(query, clips).clips
        assert {Path(each.clip): each.score for each in ranked} == pytest.approx(
            {clip: hits[clip] for clip in clips},
            abs=0.02,  # half precision in the library
        )


def test_several_joint_embeddings_search_as_they_rank(
    shapes: Path, models: list[Path], folder: Path, tmp_path: Path
) -> None:
    """Each cosine comes to its own run's scale, and a run that does not know the query's words has no say."""
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", *SMALL)
    vectors = tmp_path / "vectors.txt"
    [word, *_] = load_models(models[:1])[0].concepts.words
    vectors.write_text(f"crimson 1 0 0 1\n{word} 1 0 0 1\n", encoding="utf-8")
    quick = ("--set=training.steps=10", "--set=training.batch_size=8", "--set=retrieval.joint_dim=12")
    ctsan_here("train", "embed", *options, *quick, "--vectors", vectors, "--out", tmp_path / "run")
    both = [models[0], tmp_path / "run"]
    index_folders([folder / "clips"], tmp_path / "library", models=both)
    clips = sorted((folder / "clips").iterdir())
    scales = [model.score_scale[1] for model in joint_embeddings(load_models(both))]
    assert abs(scales[0] - scales[1]) > 0.01 * scales[0]
    for query in (f"a {word} circle", "crimson"):
        hits = Searcher(tmp_path / "library").search(query, n_best=100).hits
        ranked = Predictor.load(*both).rank(query, clips).clips
        assert {str(hit.file): hit.score for hit in hits} == pytest.approx(
            {each.clip: each.score for each in ranked}, abs=0.02
        )


def test_a_library_of_an_older_ctsan_is_used_as_it_is(
    library: tuple[Path, Report], models: list[Path], folder: Path, tmp_path: Path
) -> None:
    """It named runs of 'rank' and 'choose' too, and kept what they made of the clips."""
    old = tmp_path / "old"
    shutil.copytree(library[0], old)
    marks = [
        {"folder": str(run.resolve()), "task": task, "weights": weights_digest(run)}
        for run, task in zip(models, ("embed", "rank", "choose", "describe"), strict=True)
    ]
    with sqlite3.connect(old / "library.sqlite") as records:
        records.execute("update about set value = ? where name = 'runs'", (json.dumps(marks),))
    kept = old / "numbers-0" / "1.hidden.npy"
    shutil.copy(old / "numbers-0" / "concepts.npy", kept)
    query = "a red circle"
    assert Searcher(old).search(query).hits == Searcher(library[0]).search(query).hits
    assert index_folders([folder], old, models=[]).new == 0
    assert not kept.exists()
    assert [run.task for run in Library(old).runs] == ["embed", "describe"]
    assert Searcher(old).search(query).hits == Searcher(library[0]).search(query).hits


def test_a_library_with_the_columns_of_an_older_ctsan_grows_and_answers_as_a_new_one(
    folder: Path, models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its vectors ended in 64 columns that described the concept words."""
    mine = tmp_path / "mine"
    mine.mkdir()
    first, *others = sorted((folder / "clips").iterdir())[:4]
    shutil.copy(first, mine)

    def old_arrays(*arguments: Any) -> dict[str, Any]:
        arrays = shot_arrays(*arguments)
        sketches = np.full((len(arrays["vectors"]), 64), 0.5, np.float16)
        return {**arrays, "vectors": np.concatenate([arrays["vectors"], sketches], axis=1)}

    with monkeypatch.context() as patch:
        patch.setattr("ctsan.search.indexing.shot_arrays", old_arrays)
        index_folders([mine], tmp_path / "old", models=models)
    for clip in others:
        shutil.copy(clip, mine)
    index_folders([mine], tmp_path / "old", models=[])
    index_folders([mine], tmp_path / "new", models=models)
    old, new = Searcher(tmp_path / "old"), Searcher(tmp_path / "new")
    old_columns, new_columns = (Library(tmp_path / name).array("vectors").shape[1] for name in ("old", "new"))
    assert old_columns == new_columns + 64
    for one, other in (
        (old.search("a red circle"), new.search("a red circle")),
        (old.like(first), new.like(first)),
    ):
        assert [hit.file for hit in one.hits] == [hit.file for hit in other.hits]
        assert [hit.score for hit in one.hits] == pytest.approx([hit.score for hit in other.hits], abs=1e-3)


def test_concept_words_filter(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the stored confidences of all candidates; what is not surely absent is left out by --not."""
    everything = {hit.file for hit in searcher.search("a red circle", n_best=100).hits}
    word = searcher.library.words[0]
    rows = searcher.shots.sample(100).tolist()
    stored = [float(searcher.confidences([word], np.array([row]))[0]) for row in rows]
    level = sorted(stored)[len(stored) // 2]
    monkeypatch.setattr("ctsan.search.search.SHOWN", level)
    monkeypatch.setattr("ctsan.search.search.NOT_SHOWN", level)
    only = searcher.search("a red circle", n_best=100, concepts=[word])
    rest = searcher.search("a red circle", n_best=100, without=[word])
    count = sum(confidence >= level for confidence in stored)
    assert 0 < count <= len(stored)
    for result, is_excluded in ((only, False), (rest, True)):
        assert result.filters == (FilterCount(word, word, is_excluded, count),)
        assert result.num_shots == len(stored)
    assert (only.num_allowed, rest.num_allowed) == (count, len(stored) - count)
    for hit in only.hits:  # also where the word is not among the ten that are listed with the hit
        [matched] = hit.matched
        assert matched.word == word
        assert matched.confidence >= level
    assert not any(hit.matched for hit in rest.hits)
    assert {hit.file for hit in only.hits} | {hit.file for hit in rest.hits} == everything
    by_confidence = searcher.search(n_best=100, concepts=[word])
    assert [hit.score for hit in by_confidence.hits] == sorted(
        (confidence for confidence in stored if confidence >= level), reverse=True
    )
    with pytest.raises(UsageError, match="The library has no concept word like 'xyzzy'"):
        searcher.search("a red circle", concepts=["xyzzy"])


def test_words_of_the_query_are_named_only_where_they_had_a_say(
    models: list[Path], folder: Path, place: LibraryAddress
) -> None:
    """The run that describes sees them in every library; a joint embedding reads none."""
    index_folders([folder / "clips"], place, models=[models[0], models[3]])
    alone = Searcher(place)
    word = next(each.word for hit in alone.search("a circle").hits for each in hit.concepts)
    found = alone.search(f"a {word}").hits
    assert any(word in {each.word for each in hit.concepts} for hit in found)
    assert not any(hit.matched for hit in found)
    only = alone.search(f"a {word}", concepts=[word]).hits
    assert all([each.word for each in hit.matched] == [word] for hit in only)


def test_nothing_matches_where_the_statistic_is_below_the_threshold(
    searcher: Searcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = searcher.models[0]
    assert isinstance(model, JointEmbedding)
    monkeypatch.setattr("ctsan.search.search._MIN_SHOTS_TO_JUDGE", 5)
    monkeypatch.setattr(type(model), "match_score", lambda *_: 1e3)
    assert not searcher.search("a red circle").has_match
    word = searcher.search("a circle")
    assert (word.has_match, word.match_accuracy) == (False, None)  # the accuracy is that of sentences
    monkeypatch.setattr(type(model), "match_score", lambda *_: -1e3)
    found = searcher.search("a red circle")
    assert found.has_match
    assert found.match_accuracy == pytest.approx(model.match_accuracy)
    assert found.is_judged
    both = searcher.search("a red circle", plus=["a circle"])  # judged for a sentence alone
    assert (both.has_match, both.is_judged, both.match_accuracy) == (True, False, None)


def test_a_single_hit_that_stands_out_is_a_match(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the statistic, which asks for several good hits, is below the threshold."""
    model = searcher.models[0]
    assert isinstance(model, JointEmbedding)
    rows = np.arange(20)
    monkeypatch.setattr(
        Searcher,
        "scores",
        lambda *args, **_: np.where(args[3] == 7, 4.0, 0.0),  # a statistic of 4/3 + 4/20
    )
    for threshold, is_match in ((1.5, True), (2.9, True), (3.1, False)):
        monkeypatch.setattr(type(model), "match_score", lambda *_, level=threshold: level)
        judged = searcher.judge_match("a red circle", np.zeros(1, np.float32), np.roll(rows, -7), rows)
        assert judged is not None
        assert judged[0] is is_match


@pytest.mark.parametrize(
    ("query", "word"), [("a park without people", "people"), ("no dog", "dog"), ("a dog", None), ("no", None)]
)
def test_a_negation_in_a_sentence_is_pointed_out(query: str, word: str | None) -> None:
    result = SearchResult((), has_match=False, is_judged=False, match_accuracy=None, searched_for=query)
    assert result.negated == word


def test_too_few_shots_are_not_judged(
    library: tuple[Path, Report],
    searcher: Searcher,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("ctsan.search.search._MIN_SHOTS_TO_JUDGE", len(searcher.shots) + 1)
    found = searcher.search("a red circle")
    assert (found.has_match, found.is_judged, found.match_accuracy) == (True, False, None)
    place = library[0]
    ctsan_here("search", "a red circle", "--store", place.parent, "--library", place.name, "--json")
    said = capsys.readouterr()
    assert json.loads(said.out)["judged"] is False
    assert "whether they match was not judged" in said.err


def test_pages_follow_each_other_and_weak_hits_are_left_out(searcher: Searcher) -> None:
    everything = searcher.search("a red circle", n_best=100).hits
    first, second = (searcher.search("a red circle", n_best=4, skip=skip) for skip in (0, 4))
    assert (*first.hits, *second.hits) == everything[:8]
    assert second.skipped == 4
    middle = everything[4].score
    strong = searcher.search("a red circle", n_best=100, min_score=middle).hits
    assert strong == tuple(hit for hit in everything if hit.score >= middle)


def test_sentences_are_added_and_subtracted(searcher: Searcher) -> None:
    """The score is the mean of those added, less those subtracted."""

    def scores(*args: str, **options: Sequence[str]) -> dict[tuple[Path, float], float]:
        hits = searcher.search(*args, n_best=100, **options).hits  # type: ignore[arg-type]  # lists of sentences
        return {(hit.file, hit.start): hit.score for hit in hits}

    one, other = scores("a red circle"), scores("a man")
    both, less = scores("a red circle", plus=["a man"]), scores("a red circle", minus=["a man"])
    for key, score in one.items():
        assert both[key] == pytest.approx((score + other[key]) / 2, abs=1e-4)
        assert less[key] == pytest.approx(score - other[key], abs=1e-4)


def test_a_clip_is_not_found_for_itself_nor_its_copies(searcher: Searcher, folder: Path) -> None:
    first, second, *_ = sorted((folder / "clips").iterdir())
    copies = {first, folder / "zz copy.mp4"}
    assert copies & {hit.file for hit in searcher.like(first, n_best=3).hits}
    others = searcher.like(first, n_best=100, exclude_itself=True)
    assert others.hits
    assert not copies & {hit.file for hit in others.hits}
    two = searcher.like(first, also=[second], n_best=100, exclude_itself=True).hits
    assert {hit.file for hit in two} == {hit.file for hit in others.hits} - {second}


def test_both_stores_find_the_same(
    library: tuple[Path, Report], shared_library: tuple[PostgresAddress, Report]
) -> None:
    for query in ("a red circle", "a blue square moves left"):
        here, there = (Searcher(place).search(query, n_best=100) for place in (library[0], shared_library[0]))
        assert here == there
    searchers = [Searcher(place) for place in (library[0], shared_library[0])]
    [hit] = searchers[0].search("a red circle", n_best=1).hits
    assert searchers[0].thumbnail(hit) == searchers[1].thumbnail(hit)
    assert searchers[0].like_moment(hit) == searchers[1].like_moment(hit)


def test_the_command(any_library: tuple[LibraryAddress, Report], folder: Path, tmp_path: Path) -> None:
    clip = sorted((folder / "clips").iterdir())[2]
    place, _ = any_library
    store = place.parent if isinstance(place, Path) else place.url
    where = ("--store", store, "--library", place.name)
    asked = ctsan("search", "--like", clip, *where, "-n", 2, "--thumbnails", tmp_path / "found", "--json")
    answer = json.loads(asked.stdout)
    assert answer["match"] is True
    assert str(clip) not in {hit["file"] for hit in answer["hits"]}
    with Image.open(answer["hits"][0]["thumbnail"]) as picture:
        assert max(picture.size) == 320
    (tmp_path / "text.mp4").write_text("no video")
    wrong = ctsan("search", "--like", tmp_path / "text.mp4", *where, exit_code=2)  # 1 is "nothing matches"
    assert "text.mp4: this is text, not a video" in wrong.stderr


def test_problems_are_said(library: tuple[Path, Report], runs: Mapping[str, Path], tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no such library. Did you mean 'main'"):
        Searcher(library[0].with_name("mian"))
    with pytest.raises(UsageError, match="A library needs a run of 'embed'"):
        index_folders([tmp_path], tmp_path / "new", models=[runs["rank"]])
    with pytest.raises(StoreError, match="indexed with other runs"):
        index_folders([tmp_path], library[0], models=[Path(Library(library[0]).runs[0].folder)])
