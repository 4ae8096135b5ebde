"""What every store of libraries does: the same tests over a folder and over PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ctsan.errors import StoreError
from ctsan.search.candidates import concepts_to_candidates
from ctsan.search.library_format import FileRecord, RunFingerprint
from ctsan.search.opening import LibraryAddress, has_library, open_for_writing, open_library
from ctsan.search.store import ConceptFilter, LibraryStore, LibraryWriting, Shots, ShownWords
from ctsan.video.shots import Shot
from search.conftest import DIM, RUNS, WORDS, arrays_of, details_of

Place = LibraryAddress


@pytest.fixture(params=["folder", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a library can be made."""
    if request.param == "folder":
        return tmp_path / "store" / "main"
    found: Place = request.getfixturevalue("postgres_place")
    return found


def record(number: int | str) -> FileRecord:
    return FileRecord(Path(f"/clips/{number}.mp4"), 1, 1)


def add(library: LibraryWriting, number: int, num_shots: int = 2, **changed: Any) -> None:
    shots = [Shot(float(second), float(second + 1)) for second in range(num_shots)]
    arrays = {**arrays_of(num_shots, number), **changed}
    library.add(record(number), f"digest {number}", shots, arrays, details=details_of(num_shots, number))


@contextmanager
def writing(place: Place, runs: Sequence[RunFingerprint] = RUNS) -> Iterator[LibraryWriting]:
    with open_for_writing(place, runs=runs, words=WORDS, dim=DIM) as library:
        yield library


@contextmanager
def snapshot(place: Place) -> Iterator[tuple[LibraryStore, Shots]]:
    with closing(open_library(place)) as library:
        library.begin_snapshot()
        yield library, library.shots(DIM, None)
        library.end_snapshot()


@pytest.fixture
def filled(place: Place) -> Place:
    """A library of five files with two shots each, and one that cannot be read."""
    with writing(place) as library:
        for number in range(5):
            add(library, number)
        library.add(record("text"), "digest text", [], {}, "no video", "reader 1")
    return place


def stored(place: Place) -> dict[tuple[str, float], tuple[bytes, str | None, bytes | None]]:
    """Vector, caption and thumbnail of every shot."""
    with snapshot(place) as (library, shots):
        rows = shots.sample(10**6)
        captions = library.captions(rows.tolist())
        return {
            (location.file.stem, location.shot.start): (
                shots.vectors(np.array([location.row]))[0].tobytes(),
                captions.get(location.row),
                library.thumbnail(location.row),
            )
            for location in library.locate(rows.tolist())
        }


def expected(*numbers: int) -> dict[tuple[str, float], tuple[bytes, str | None, bytes | None]]:
    return {
        (str(number), float(place)): (vector.tobytes(), details.caption, details.thumbnail)
        for number in numbers
        for place, (vector, details) in enumerate(
            zip(arrays_of(2, number)["vectors"], details_of(2, number), strict=True)
        )
    }


def test_what_is_added_is_read(filled: Place) -> None:
    assert has_library(filled)
    assert stored(filled) == expected(*range(5))
    with closing(open_library(filled)) as library:
        assert library.runs == RUNS
        assert library.words == WORDS
        assert library.num_shots() == 10
        assert library.files() == {record(name).path: record(name) for name in [*range(5), "text"]}
        assert library.errors() == {Path("/clips/text.mp4"): "no video"}
        assert (library.lost_files(), library.incomplete_files()) == ([], [])


def test_a_library_that_is_not_there_is_said(place: Place) -> None:
    assert not has_library(place)
    with pytest.raises(StoreError, match="there is no such library. .*ctsan index FOLDER --library"):
        open_library(place)


def test_a_library_of_other_runs_is_said(filled: Place) -> None:
    others = [RunFingerprint("/runs/other", "embed", "1" * 64)]
    with (
        pytest.raises(StoreError, match=r"indexed with other runs: /runs/embed \(embed\). Name those with"),
        writing(filled, others),
    ):
        pass
    with closing(open_library(filled)) as library:
        assert library.matches_runs([RunFingerprint("/elsewhere", "embed", "0" * 64)], WORDS)
        assert not library.matches_runs(others, WORDS)


def test_vectors_of_another_size_are_damage(filled: Place) -> None:
    with closing(open_library(filled)) as library:
        library.begin_snapshot()
        with pytest.raises(StoreError, match="it is damaged"):
            library.shots(DIM + 1, None)
        library.end_snapshot()


def test_concept_words_are_those_that_were_added(filled: Place) -> None:
    with snapshot(filled) as (library, shots):
        rows = shots.sample(100).tolist()
        found = shots.concepts(rows)
        for location in library.locate(rows):
            arrays = arrays_of(2, int(location.file.stem))
            number = int(location.shot.start)
            pairs = zip(arrays["concepts"][number], arrays["confidences"][number], strict=True)
            assert found[location.row] == [(int(word), float(level)) for word, level in pairs if word >= 0]


# Search


def exact(shots: Shots, vector: Any, rows: Any) -> list[int]:
    scores = shots.vectors(rows).astype(np.float32) @ vector
    return [int(rows[place]) for place in np.argsort(-scores, kind="stable")]


def test_the_nearest_shots_come_first(filled: Place) -> None:
    random = np.random.default_rng(0)
    with snapshot(filled) as (_, shots):
        rows = shots.sample(100)
        for _ in range(5):
            vector = random.normal(size=DIM).astype(np.float32)
            assert shots.nearest(vector, 4).tolist() == exact(shots, vector, rows)[:4]
            assert shots.nearest(vector, 99).tolist() == exact(shots, vector, rows)


@pytest.fixture
def shown(place: Place) -> Place:
    """One file whose four shots show cats and dogs with different confidences."""
    confidences = [{"cat": 0.9, "dog": 0.3}, {"dog": 0.7}, {"cat": 0.001, "dog": 0.5}, {}]
    concepts = np.array([[0, 1, -1], [1, -1, -1], [-1, -1, -1], [-1, -1, -1]], np.int32)
    with writing(place) as library:
        add(library, 0)
        add(library, 1, 4, concepts=concepts, **concepts_to_candidates(confidences, WORDS))
        library.drop([record(0).path])
    return place


def shown_words(filters: dict[str, float]) -> tuple[ShownWords, ...]:
    return tuple(ShownWords(tuple(words.split()), least) for words, least in filters.items())


@pytest.mark.parametrize(
    ("showing", "hiding", "expected"),
    [
        ({}, {}, [0, 1, 2, 3]),
        ({"dog": 0.3}, {}, [0, 1, 2]),
        ({"dog": 0.31}, {}, [1, 2]),
        ({"dog": 0.51}, {}, [1]),
        ({"cat": 0.0}, {}, [0]),  # one in a thousand is stored as nothing
        ({"dog": 0.2, "cat": 0.2}, {}, [0]),
        ({}, {"dog": 0.5}, [0, 3]),
        ({"dog": 0.2}, {"cat": 0.5}, [1, 2]),
        ({"bird": 0.2}, {}, []),
        ({}, {"bird": 0.2}, [0, 1, 2, 3]),
        ({"cat dog": 0.6}, {}, [0, 1]),  # either
        ({}, {"cat dog": 0.6}, [2, 3]),
        ({"cat dog bird": 0.6}, {"cat": 0.5}, [1]),
    ],
)
def test_filters_are_decided_by_confidence(
    shown: Place,
    showing: dict[str, float],
    hiding: dict[str, float],
    expected: list[int],
) -> None:
    with snapshot(shown) as (_, shots):
        where = ConceptFilter(shown_words(showing), shown_words(hiding))
        first = int(shots.sample(100)[0])
        assert len(shots) == 4
        assert shots.count(where) == len(expected)
        assert (shots.sample(100, where) - first).tolist() == expected
        nearest = shots.nearest(np.ones(DIM, np.float32), 10, where)
        assert sorted((nearest - first).tolist()) == expected
        assert shots.confidences(["cat"], shots.sample(100)) == pytest.approx([0.9, 0, 0, 0], abs=1 / 500)
        assert shots.confidences(["cat", "dog"], shots.sample(100)) == pytest.approx(
            [0.9, 0.7, 0.5, 0], abs=1 / 500
        )
        assert (shots.last(3) - first).tolist() == [3, 2, 1]


def test_a_sample_is_spread_over_all(place: Place) -> None:
    with writing(place) as library:
        for number in range(4):
            add(library, number, 50)
    with snapshot(place) as (_, shots):
        everything = shots.sample(1000)
        some = shots.sample(20)
        assert len(everything) == len(shots) == 200
        assert 15 <= len(some) <= 21
        assert set(some.tolist()) <= set(everything.tolist())
        assert np.diff(some).max() <= 15
        cats = ConceptFilter((ShownWords(("cat",), 0.995),))
        shown = shots.sample(1000, cats)
        assert 40 < shots.count(cats) == len(shown) < 160  # some of them
        assert shots.sample(shots.count(cats), cats).tolist() == shown.tolist()
        few = shots.sample(10, cats)
        assert 8 <= len(few) <= 20
        assert set(few.tolist()) <= set(shown.tolist())
        assert few[0] == shown[0]


def test_a_snapshot_does_not_see_what_is_written_meanwhile(filled: Place) -> None:
    with closing(open_library(filled)) as library:
        library.begin_snapshot()
        before = library.shots(DIM, None)
        assert library.shots(DIM, before) is before
        with writing(filled) as other:
            add(other, 7)
        assert len(library.shots(DIM, before)) == 10
        library.end_snapshot()
        library.begin_snapshot()
        after = library.shots(DIM, before)
        assert after is not before
        assert len(after) == 12
        library.end_snapshot()


# What is stored


def test_a_dropped_file_takes_its_shots_along_unless_a_copy_has_them(filled: Place) -> None:
    with writing(filled) as library:
        assert library.link(FileRecord(Path("/clips/copy.mp4"), 1, 1), "digest 0")
        assert library.copies() == [Path("/clips/0.mp4"), Path("/clips/copy.mp4")]
        library.drop([record(0).path, record(1).path])
        assert library.copies() == []
        assert library.has_content("digest 0", "reader 1")
        assert not library.has_content("digest 1")
        assert library.row_of(Path("/clips/copy.mp4"), Shot(1.0, 2.0)) is not None
        assert library.row_of(record(0).path, Shot(1.0, 2.0)) is None
        assert library.row_of(Path("/clips/copy.mp4"), Shot(1.0, 3.0)) is None
        shots = library.shots_of(Path("/clips/copy.mp4"))
        assert [(each.file.stem, each.shot.start) for each in shots] == [("copy", 0.0), ("copy", 1.0)]
        assert library.shots_of(record(0).path) == []
    assert {file for file, _ in stored(filled)} == {"copy", "2", "3", "4"}
    with writing(filled) as library:
        library.drop([Path("/clips/copy.mp4")])
    assert stored(filled) == expected(2, 3, 4)


def test_a_file_that_has_changed_gives_up_its_old_content(filled: Place) -> None:
    with writing(filled) as library:
        library.add(
            FileRecord(record(0).path, 2, 2),
            "digest new",
            [Shot(0.0, 5.0)],
            arrays_of(1, 9),
            details=details_of(1, 9),
        )
        library.drop([])
        assert library.files()[record(0).path].size == 2
        assert not library.has_content("digest 0")
    assert len(stored(filled)) == 9


def test_an_error_is_tried_again_by_another_reader_only(filled: Place) -> None:
    with writing(filled) as library:
        assert library.has_content("digest text", "reader 1")
        assert library.unread_files("reader 1") == []
        assert not library.has_content("digest text", "reader 2")
        assert library.unread_files("reader 2") == [Path("/clips/text.mp4")]
        library.link(FileRecord(Path("/clips/copy.mp4"), 1, 1), "digest text")
        library.add(record("text"), "digest text", [Shot(0.0, 1.0)], arrays_of(1, 9))
        assert library.errors() == {}  # nor has the copy one
        row = library.row_of(Path("/clips/copy.mp4"), Shot(0.0, 1.0))
    assert row is not None
    with snapshot(filled) as (_, shots):
        np.testing.assert_array_equal(shots.vectors(np.array([row]))[0], arrays_of(1, 9)["vectors"][0])


def test_shots_without_captions_are_incomplete_until_they_are_added_with_them(place: Place) -> None:
    with writing(place) as library:
        library.add(record(0), "digest 0", [Shot(0.0, 1.0), Shot(1.0, 2.0)], arrays_of(2, 0))
        assert library.has_shots("digest 0")
        assert library.has_content("digest 0")
        assert not library.has_content("digest 0", "reader 1")
        assert library.incomplete_files() == [record(0).path]
    assert [(caption, thumbnail) for _, caption, thumbnail in stored(place).values()] == [(None, None)] * 2
    with writing(place) as library:
        add(library, 0)
        assert library.has_content("digest 0", "reader 1")
        assert library.incomplete_files() == []
    assert stored(place) == expected(0)


def test_names_that_are_no_text_and_long_ones_are_kept(filled: Place) -> None:
    odd = Path(os.fsdecode(b"/clips/\xff.mp4"))
    long = Path("/clips", *["x" * 200] * 19, "clip.mp4")
    with writing(filled) as library:
        library.add(FileRecord(odd, 1, 1), "digest odd", [], {}, f"{odd}: no video.", "reader")
        library.link(FileRecord(long, 1, 1), "digest 0")
        library.add_mounts([odd.parent, long.parent])
        library.add_mounts([long.parent])
    with closing(open_library(filled)) as library:
        assert library.errors()[odd] == f"{odd}: no video."
        assert long in library.files()
        assert library.mounts() == [odd.parent, long.parent]


@pytest.mark.parametrize("nanoseconds", [2**63 - 1, -(2**63) + 1, 0])
def test_all_dates_are_stored(filled: Place, nanoseconds: int) -> None:
    file = FileRecord(record(0).path, 2**40, nanoseconds)
    with writing(filled) as library:
        library.link(file, "digest 0")
        assert library.files()[file.path] == file
