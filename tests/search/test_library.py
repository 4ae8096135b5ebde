"""The store of a library: what power losses, full disks, damage and read-only media leave of it."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ctsan.errors import StorageError, StoreError
from ctsan.io import atomic
from ctsan.search import library as library_module
from ctsan.search import library_opening, library_writer
from ctsan.search.candidates import MAX_CANDIDATES, concepts_to_candidates
from ctsan.search.library import Library
from ctsan.search.library_format import ARRAY_NAMES, FileRecord
from ctsan.search.library_opening import open_for_writing
from ctsan.search.library_repair import LibraryRepair
from ctsan.search.library_writer import LibraryWriter
from ctsan.search.store import ConceptFilter, ShownWords
from ctsan.video.shots import Shot
from other_user import make_reachable, without_privileges
from search.conftest import DIM, RUNS, WORDS, arrays_of, details_of

VERSION_2 = Path(__file__).parent / "library-of-version-2" / "main"  # of the fixture `folder`


def add(library: LibraryWriter, number: int, num_shots: int = 2) -> None:
    shots = [Shot(float(second), float(second + 1)) for second in range(num_shots)]
    record = FileRecord(Path(f"/clips/{number}.mp4"), 1, 1)
    arrays, details = arrays_of(num_shots, number), details_of(num_shots, number)
    library.add(record, f"digest {number}", shots, arrays, details=details)


@contextmanager
def writing(folder: Path) -> Iterator[LibraryWriter]:
    with open_for_writing(folder, runs=RUNS, words=WORDS) as library:
        yield library


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A library of five files with two shots each, and one that cannot be read."""
    folder = tmp_path / "store" / "main"
    with writing(folder) as library:
        for number in range(5):
            add(library, number)
        library.add(FileRecord(Path("/clips/text.mp4"), 1, 1), "digest text", [], {}, "no video", "reader 1")
    return folder


def make_version_1(folder: Path) -> None:
    """Turn a library into one that older versions of ctsan made."""
    with closing(sqlite3.connect(folder / "library.sqlite")) as records:
        records.execute("alter table contents drop column has_details")
        records.execute("drop table details")
        records.execute("alter table contents drop column reader")
        records.execute("alter table contents drop column checksum")
        records.execute("drop table mounts")
        records.execute("pragma user_version = 1")
        records.commit()
    for file in folder.glob("numbers-*/candidate*.npy"):
        file.unlink()


def check(folder: Path) -> None:
    """Read all that a search reads."""
    with closing(Library(folder)) as library:
        library.check_arrays(library.arrays())
        library.locate(library.rows().tolist())
        _ = library.revision, library.runs, library.words, library.files(), library.errors()


# Power losses and damage


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced, and "record" for every record that is written."""
    events: list[str] = []
    sync, set_value = atomic.sync, LibraryWriter._set

    def noted_sync(path: Path) -> None:
        events.append(f"{path.parent.name}/{path.name}")
        sync(path)

    def noted_set(*given: Any) -> None:
        events.append("record")
        set_value(*given)

    for module in (library_opening, library_writer, atomic):
        monkeypatch.setattr(module, "sync", noted_sync)
    monkeypatch.setattr(LibraryWriter, "_set", noted_set)
    return events


def arrays_in(folder: str) -> list[str]:
    return [f"{folder}/{name}.npy" for name in ARRAY_NAMES]


def test_arrays_are_on_the_disk_before_the_records_that_speak_of_them(
    folder: Path, events: list[str]
) -> None:
    with writing(folder) as library:
        [(level,)] = library._query("pragma synchronous")
        assert level == 2  # FULL: every commit is synced
        del events[:]
        add(library, 7)
    assert events[: events.index("record")] == [*arrays_in("numbers-0"), "main/numbers-0"]


def test_rewritten_arrays_are_on_the_disk_before_the_records_that_speak_of_them(
    folder: Path, events: list[str]
) -> None:
    with writing(folder) as library:
        library.drop([Path(f"/clips/{number}.mp4") for number in range(3)])
        del events[:]
    assert events[: events.index("record")] == ["store/main", *arrays_in("numbers-1"), "main/numbers-1"]
    check(folder)


def test_a_new_library_and_its_name_are_on_the_disk(tmp_path: Path, events: list[str]) -> None:
    with writing(tmp_path / "store" / "main"):
        pass
    assert f"{tmp_path.name}/store" in events
    assert events[-2:] == ["main/.library.sqlite.tmp", "store/main"]


def zero_tail(file: Path) -> None:
    """As a power loss leaves blocks that were never written."""
    content = file.read_bytes()
    file.write_bytes(content[:-20] + b"\0" * 20)


def zero(file: Path) -> None:
    file.write_bytes(b"\0" * file.stat().st_size)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-40] ^= 4
    file.write_bytes(content)


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 10)


def cut_rows(file: Path) -> None:
    np.save(file, np.load(file)[:-3])


def widen(file: Path) -> None:
    np.save(file, np.load(file).astype(np.float64))


def become_strings(file: Path) -> None:
    np.save(file, np.load(file).astype("U8"))


def become_objects(file: Path) -> None:
    np.save(file, np.array([None, {}], dtype=object), allow_pickle=True)


def become_a_column(file: Path) -> None:
    np.save(file, np.load(file)[:, 0])


def become_fortran(file: Path) -> None:
    np.save(file, np.asfortranarray(np.load(file)))


def become_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def become_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


DAMAGES = [
    *(zero_tail, zero, flip, truncate, cut_rows, widen, become_strings, become_objects, become_a_column),
    *(become_fortran, become_a_folder, become_a_pipe, Path.unlink, lambda file: file.write_bytes(b"")),
]


@pytest.mark.parametrize("name", ARRAY_NAMES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_array_is_said_and_its_files_are_encoded_again(
    folder: Path, name: str, damage: Callable[[Path], object]
) -> None:
    damage(folder / "numbers-0" / f"{name}.npy")
    with pytest.raises(StoreError, match="damaged") as caught:
        check(folder)
    assert str(caught.value).startswith(f"{folder}/numbers-0")
    assert f"ctsan index FOLDER --library main --store {folder.parent}" in str(caught.value)
    with writing(folder) as library:
        lost = library.lost_files()
        assert lost
        for path in lost:
            assert "its numbers in the library were damaged" in library.errors()[path]
            assert not library.has_content(f"digest {path.stem}", "reader 1")
            add(library, int(path.stem))
        assert library.lost_files() == []
    check(folder)
    with closing(Library(folder)) as library:
        assert len(library.rows()) == 10
        for place in library.locate(library.rows().tolist()):
            stored = library.array("vectors")[place.row]
            expected = arrays_of(2, int(place.file.stem))["vectors"][int(place.shot.start)]
            np.testing.assert_array_equal(stored, expected)


def test_links_in_a_library_lead_to_no_other_file(folder: Path, tmp_path: Path) -> None:
    """Neither is an array written through a link, nor what a linked folder holds removed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    array, victim = folder / "numbers-0" / "vectors.npy", outside / "vectors.npy"
    array.rename(victim)
    content = victim.read_bytes()
    array.symlink_to(victim)
    message = r"vectors.npy: .*Replace this link by a file"
    with pytest.raises(StorageError, match=message), writing(folder) as library:
        add(library, 9)
    assert victim.read_bytes() == content
    array.unlink()
    victim.rename(array)
    (outside / "keep").touch()
    (folder / "numbers-7").symlink_to(outside)
    with writing(folder) as library:
        library.compact()
    assert not (folder / "numbers-7").exists()
    assert (outside / "keep").exists()


def test_damage_of_one_file_costs_only_that_file(folder: Path) -> None:
    zero_tail(folder / "numbers-0" / "vectors.npy")
    with writing(folder) as library:
        assert library.lost_files() == [Path("/clips/4.mp4")]


def test_a_repair_that_was_killed_goes_on(folder: Path) -> None:
    (folder / "numbers-0" / "vectors.npy").unlink()
    with writing(folder) as library:
        add(library, 0)
    with writing(folder) as library:
        assert library.lost_files() == [Path(f"/clips/{number}.mp4") for number in range(1, 5)]


def test_a_large_library_is_checked_at_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "_CHECKED_ROWS", 4)
    monkeypatch.setattr(library_module, "_SAMPLED_ROWS", 2)
    check(folder)
    zero_tail(folder / "numbers-0" / "confidences.npy")
    with pytest.raises(StoreError, match=r"the numbers of /clips/4.mp4 are damaged"):
        check(folder)


def test_rows_that_were_checked_before_are_not_read_again(folder: Path) -> None:
    with closing(Library(folder)) as library:
        arrays = {name: array.copy() for name, array in library.arrays().items()}
        arrays["vectors"][0] = 0
        library.check_arrays(arrays, since=2)
        with pytest.raises(StoreError):
            library.check_arrays(arrays)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("revision", "x"), ("revision", "-1"), ("generation", "1e3"), ("next_row", "9" * 40)),
        *(("next_row", "3"), ("next_row", "٣"), ("runs", "{}"), ("runs", "[1]"), ("runs", '[{"folder": 1}]')),
        *(("runs", "[" * 100_000), ("runs", "no JSON"), ("words", "[1]"), ("words", "null")),
        ("runs", '[{"folder": "\\u0000", "task": "embed", "weights": ""}]'),
    ],
)
def test_records_of_a_wrong_type_are_damage(folder: Path, name: str, value: str) -> None:
    with sqlite3.connect(folder / "library.sqlite") as records:
        records.execute("update about set value = ? where name = ?", (value, name))
    with pytest.raises(StoreError, match="it is damaged"):
        check(folder)


@pytest.mark.parametrize(
    "statement",
    [
        "update files set path = 'text'",
        "update files set path = x'2f00'",
        "update shots set starts = 'text'",
        "update shots set ends = 9e999",
        "update shots set row = row - 5",
        "update about set value = x'ff'",
        "delete from about",
        "drop table shots",
    ],
)
def test_damaged_records_are_said(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "library.sqlite") as records:
        records.execute(statement + (" where rowid = 1" if statement.startswith("update files") else ""))
    with pytest.raises(StoreError, match="library.sqlite: it is damaged"):
        check(folder)


def test_a_schema_that_is_no_text_is_damage(folder: Path) -> None:
    """SQLite quotes it in its message, which Python cannot decode then."""
    file = folder / "library.sqlite"
    content = file.read_bytes()
    assert content.count(b"CREATE TABLE shots (") == 1
    file.write_bytes(content.replace(b"CREATE TABLE shots (", b"CREATE TABLE shots \xff"))
    with pytest.raises(StoreError, match="library.sqlite: it is damaged"):
        check(folder)


# Versions


def test_a_library_of_version_1_is_read_as_it_is_and_upgraded_by_a_write(folder: Path) -> None:
    with closing(Library(folder)) as library:
        before = library.locate(library.rows().tolist()), library.files(), library.errors()
    make_version_1(folder)
    check(folder)
    with closing(Library(folder)) as library:
        assert library.version == 1
        assert (library.locate(library.rows().tolist()), library.files(), library.errors()) == before
    with writing(folder) as library:
        assert library.lost_files() == []
        assert library.unread_files("reader 1") == [Path("/clips/text.mp4")]  # whoever failed to read it
        add(library, 5)
    check(folder)
    with closing(Library(folder)) as library:
        assert library.version == 3
        assert len(library.rows()) == 12


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    """The library of the fixture `folder`, as a ctsan of version 2 made it."""
    folder = tmp_path / "old" / "main"
    shutil.copytree(VERSION_2, folder)
    return folder


def test_a_library_of_version_2_is_read_as_it_is(version_2: Path, folder: Path) -> None:
    check(version_2)
    assert contents(version_2) == contents(folder)
    with closing(Library(version_2)) as library:
        assert library.version == 2
        assert library.captions(range(10)) == {}
        assert library.thumbnail(0) is None
        assert len(library.incomplete_files()) == 5


def test_a_library_of_version_2_is_upgraded_by_a_write_and_completed_by_adding_again(
    version_2: Path, folder: Path
) -> None:
    expected = contents(folder)
    shown = rows_showing(version_2, "dog", 0.5)
    with writing(version_2) as library:
        assert library.version == 3
        assert library.lost_files() == []
        assert library.incomplete_files() == [Path(f"/clips/{number}.mp4") for number in range(5)]
        assert library.has_shots("digest 0")
        assert not library.has_content("digest 0", "reader 1")  # so that it is decoded again
        assert library.has_content("digest text", "reader 1")
    check(version_2)
    assert contents(version_2) == expected
    assert rows_showing(version_2, "dog", 0.5) == shown  # of the concept words that it had
    assert 0 < len(shown) < 10
    with writing(version_2) as library:
        for number in range(5):
            add(library, number)
        assert library.incomplete_files() == []
    check(version_2)
    assert contents(version_2) == expected
    with closing(Library(version_2)) as library:
        assert library.captions(range(10))[3] == "shot 1 of 1"


@pytest.mark.parametrize("damage", [zero_tail, zero, Path.unlink])
def test_lost_blocks_of_a_library_of_version_2_are_found_by_the_upgrade(
    version_2: Path, damage: Callable[[Path], object]
) -> None:
    damage(version_2 / "numbers-0" / "vectors.npy")
    with pytest.raises(StoreError, match="damaged"):
        check(version_2)
    with writing(version_2) as library:
        assert Path("/clips/4.mp4") in library.lost_files()


def test_an_upgrade_that_was_killed_is_done_by_the_next_write(version_2: Path, folder: Path) -> None:
    killed = LibraryRepair(version_2)
    killed._write_candidates(killed.arrays())  # the arrays are written, and no record is
    killed.close()
    with closing(Library(version_2)) as library:
        assert library.version == 2
    with writing(version_2):
        pass
    check(version_2)
    assert contents(version_2) == contents(folder)


@pytest.mark.parametrize("damage", [zero_tail, zero, Path.unlink])
def test_lost_blocks_of_a_library_of_version_1_are_found(
    folder: Path, damage: Callable[[Path], object]
) -> None:
    make_version_1(folder)
    damage(folder / "numbers-0" / "vectors.npy")
    with pytest.raises(StoreError, match="damaged"):
        check(folder)
    with writing(folder) as library:
        assert Path("/clips/4.mp4") in library.lost_files()


def test_words_that_a_library_of_version_1_does_not_have_are_damage(folder: Path) -> None:
    make_version_1(folder)
    file = folder / "numbers-0" / "concepts.npy"
    concepts = np.load(file)
    concepts[-1] = 99
    np.save(file, concepts)
    with pytest.raises(StoreError, match="damaged"):
        check(folder)


def test_a_library_of_a_newer_version_is_left_alone(folder: Path) -> None:
    with sqlite3.connect(folder / "library.sqlite") as records:
        records.execute("pragma user_version = 4")
    with pytest.raises(StoreError, match="the library has version 4, and this ctsan reads versions 1 to 3"):
        Library(folder)


# What is stored


def rows_showing(folder: Path, word: str, min_confidence: float) -> list[int]:
    with closing(Library(folder)) as library:
        return _rows_showing(library, word, min_confidence)


def _rows_showing(library: Library, word: str, min_confidence: float) -> list[int]:
    where = ConceptFilter((ShownWords((word,), min_confidence),))
    rows: list[int] = library.shots(DIM, None).sample(100, where).tolist()
    return rows


def shown_details(folder: Path) -> dict[tuple[str, float], tuple[str | None, bytes | None]]:
    with closing(Library(folder)) as library:
        places = library.locate(library.rows().tolist())
        captions = library.captions([place.row for place in places])
        return {
            (place.file.stem, place.shot.start): (captions.get(place.row), library.thumbnail(place.row))
            for place in places
        }


def expected_details(numbers: Iterable[int]) -> dict[tuple[str, float], tuple[str | None, bytes | None]]:
    return {
        (str(number), float(place)): (details.caption, details.thumbnail)
        for number in numbers
        for place, details in enumerate(details_of(2, number))
    }


def test_captions_and_thumbnails_stay_with_their_shots_when_arrays_are_rewritten(folder: Path) -> None:
    assert shown_details(folder) == expected_details(range(5))
    with writing(folder) as library:
        library.drop([Path(f"/clips/{number}.mp4") for number in range(3)])
        add(library, 7)
    assert (folder / "numbers-1").is_dir()
    assert shown_details(folder) == expected_details([3, 4, 7])


def test_a_file_of_dropped_thumbnails_shrinks(folder: Path) -> None:
    with writing(folder) as library:
        for number in range(5, 200):
            add(library, number, num_shots=4)
    before = (folder / "library.sqlite").stat().st_size
    with writing(folder) as library:
        library.drop([Path(f"/clips/{number}.mp4") for number in range(5, 200)])
    assert before > 2 << 20
    assert (folder / "library.sqlite").stat().st_size < before / 4
    assert shown_details(folder) == expected_details(range(5))


@pytest.mark.parametrize(
    "statement",
    [
        "update details set caption = 'another' where content = 1 and number = 1",
        "update details set thumbnail = zeroblob(3000) where content = 1 and number = 1",
        "update details set thumbnail = 'text' where content = 1 and number = 1",
        "update details set checksum = 0 where content = 1 and number = 1",
        "delete from details where content = 1 and number = 1",
    ],
)
def test_a_damaged_caption_or_thumbnail_is_not_shown_and_made_again(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "library.sqlite")) as records, records:
        records.execute(statement)
    check(folder)  # its shots are searched
    assert shown_details(folder) == expected_details(range(5)) | {("0", 1.0): (None, None)}
    with writing(folder) as library:
        assert library.incomplete_files() == [Path("/clips/0.mp4")]
        add(library, 0)
        assert library.incomplete_files() == []
    assert shown_details(folder) == expected_details(range(5))


def test_details_of_a_large_library_are_checked_in_samples(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_module, "_CHECKED_ROWS", 4)
    monkeypatch.setattr(library_module, "_SAMPLED_ROWS", 2)
    with closing(sqlite3.connect(folder / "library.sqlite")) as records, records:
        records.execute("update details set checksum = 0 where content = 5")
    with writing(folder) as library:
        assert library.incomplete_files() == [Path("/clips/4.mp4")]


def test_rows_that_show_a_word_are_found_by_confidence(tmp_path: Path) -> None:
    confidences = [{"cat": 0.9, "dog": 0.3}, {"dog": 0.7}, {"cat": 0.001, "dog": 0.5}, {}]
    folder = tmp_path / "store" / "main"
    with writing(folder) as library:
        add(library, 0)
        arrays = {**arrays_of(4, 1), **concepts_to_candidates(confidences, WORDS)}
        library.add(FileRecord(Path("/clips/1.mp4"), 1, 1), "digest", [Shot(0.0, 1.0)] * 4, arrays)
        library.drop([Path("/clips/0.mp4")])
        assert _rows_showing(library, "dog", 0.3) == [2, 3, 4]
    assert rows_showing(folder, "dog", 0.3) == [0, 1, 2]  # as the arrays were rewritten
    assert rows_showing(folder, "dog", 0.31) == [1, 2]
    assert rows_showing(folder, "dog", 0.5) == [1, 2]
    assert rows_showing(folder, "dog", 0.51) == [1]
    assert rows_showing(folder, "cat", 0.0) == [0]  # one in a thousand is stored as nothing
    assert rows_showing(folder, "bird", 0.0) == []


def test_of_many_candidates_the_surest_are_stored() -> None:
    words = [f"word {number}" for number in range(200)]
    shot = {word: (number + 1) / 200 for number, word in enumerate(words)}
    arrays = concepts_to_candidates([shot, {}], words)
    assert arrays["candidates"][0].tolist() == list(range(199, 199 - MAX_CANDIDATES, -1))
    stored = np.asarray(arrays["candidate_confidences"][0], np.float64) / 255
    expected = [shot[words[word]] for word in arrays["candidates"][0].tolist()]
    np.testing.assert_allclose(stored, expected, atol=0.5 / 255)
    assert not arrays["candidate_confidences"][1].any()


def test_an_error_is_tried_again_by_another_reader_only(folder: Path) -> None:
    with writing(folder) as library:
        assert library.has_content("digest text", "reader 1")
        assert library.unread_files("reader 1") == []
        assert not library.has_content("digest text", "reader 2")
        assert library.unread_files("reader 2") == [Path("/clips/text.mp4")]
        library.link(FileRecord(Path("/clips/copy.mp4"), 1, 1), "digest text")
        record = FileRecord(Path("/clips/text.mp4"), 1, 1)
        library.add(record, "digest text", [Shot(0.0, 1.0)], arrays_of(1, 9))
        assert library.errors() == {}  # nor has the copy one
        row = library.row_of(Path("/clips/copy.mp4"), Shot(0.0, 1.0))
    with closing(Library(folder)) as library:
        assert row is not None
        np.testing.assert_array_equal(library.array("vectors")[row], arrays_of(1, 9)["vectors"][0])


def test_the_error_of_a_file_whose_name_is_not_text_is_kept(folder: Path) -> None:
    path = Path(os.fsdecode(b"/clips/\xff.mp4"))
    with writing(folder) as library:
        library.add(FileRecord(path, 1, 1), "digest", [], {}, f"{path}: no video.", "reader")
    with closing(Library(folder)) as library:
        assert library.errors()[path] == f"{path}: no video."


@pytest.mark.parametrize("seconds", [10_413_792_000, 9_223_372_037, -2_208_988_800])
def test_a_file_dated_in_2300_or_before_1970_is_stored(folder: Path, tmp_path: Path, seconds: int) -> None:
    path = tmp_path / "clip.mp4"
    path.touch()
    os.utime(path, (seconds, seconds))
    record = FileRecord.of(path, path.stat())
    with writing(folder) as library:
        library.add(record, "digest", [], {}, "no video", "reader")
        assert library.files()[path] == record


def test_a_new_library_is_for_its_owner_alone(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_permissions_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    (tmp_path / "store").mkdir()
    before = os.umask(umask)
    try:
        with writing(tmp_path / "store" / "main") as library:
            add(library, 0)
    finally:
        os.umask(before)
    test_a_new_library_is_for_its_owner_alone(tmp_path / "store" / "main")


def test_a_library_that_is_shared_stays_shared(folder: Path) -> None:
    """As those of older versions of ctsan are: others who read it can read what is added."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with writing(folder) as library:
        library.drop([Path(f"/clips/{number}.mp4") for number in range(3)])
    assert (folder / "numbers-1").is_dir()
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


# Full disks


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A disk that takes no larger files; Python ignores the signal."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def contents(folder: Path) -> list[tuple[Path, Shot, bytes]]:
    with closing(Library(folder)) as library:
        library.check_arrays(library.arrays())
        return [
            (place.file, place.shot, library.array("vectors")[place.row].tobytes())
            for place in library.locate(library.rows().tolist())
        ]


@pytest.mark.parametrize("size", [*range(0, 400, 50), 4096, 8192, 40_000])
def test_a_full_disk_is_one_message_and_the_same_command_goes_on(folder: Path, size: int) -> None:
    before = contents(folder)

    def fill() -> None:
        with writing(folder) as library:
            for number in range(5, 400):
                add(library, number)

    with largest_file(size), pytest.raises(StorageError) as caught:
        fill()
    assert str(caught.value).startswith(str(folder))
    assert "again" in str(caught.value) or "larger files" in str(caught.value)
    now = contents(folder)
    assert now[: len(before)] == before
    with writing(folder) as library:
        known = library.files()
        for number in range(5, 20):
            if Path(f"/clips/{number}.mp4") not in known:
                add(library, number)
    assert len(contents(folder)) >= 40


def test_a_library_on_a_full_disk_is_read(folder: Path) -> None:
    expected = contents(folder)
    for size in (0, 100, 10_000):
        with largest_file(size):
            assert contents(folder) == expected


def test_a_full_disk_before_the_first_record_leaves_no_half_library(tmp_path: Path) -> None:
    folder = tmp_path / "store" / "main"
    with largest_file(2000), pytest.raises(StorageError, match=str(folder)), writing(folder):
        pass
    with writing(folder) as library:
        add(library, 0)
    check(folder)


def test_a_full_disk_while_arrays_are_rewritten_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    dropped = [Path(f"/clips/{number}.mp4") for number in range(3)]

    def drop(patch: pytest.MonkeyPatch) -> None:
        with writing(folder) as library:
            library.drop(dropped)
            patch.setattr(library_writer, "write_rows", full)

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="Free some space"):
        drop(patch)
    assert [file.stem for file, _, _ in contents(folder)] == ["3", "3", "4", "4"]
    with writing(folder):
        pass
    assert [file.stem for file, _, _ in contents(folder)] == ["3", "3", "4", "4"]
    with closing(Library(folder)) as library:
        assert library.rows().tolist() == [0, 1, 2, 3]


# Read-only media


@pytest.fixture
def read_only(folder: Path) -> Iterator[Path]:
    """The library, which `lock` makes readable by everybody and writable by nobody."""
    make_reachable(folder.parent)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)


def lock(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)


def test_a_library_on_a_read_only_medium_is_read(read_only: Path) -> None:
    expected = contents(read_only)
    lock(read_only)
    with without_privileges():
        assert contents(read_only) == expected
        assert not list(read_only.glob("library.sqlite-*"))
        with pytest.raises(StorageError, match=f"{read_only}.*you may write to"), writing(read_only):
            pass


def test_changes_that_were_not_yet_in_the_main_file_are_read_from_a_read_only_medium(
    read_only: Path, tmp_path: Path
) -> None:
    """A process was killed, or the library was copied while it was written."""
    copy = tmp_path / "copy"
    with writing(read_only) as library:
        add(library, 5)
        shutil.copytree(read_only, copy, ignore=shutil.ignore_patterns("*-shm", ".lock"))
    assert (copy / "library.sqlite-wal").stat().st_size
    expected = contents(read_only)
    for file in (copy / "library.sqlite-wal", copy / "library.sqlite"):
        file.chmod(0o444)
    copy.chmod(0o555)
    (copy / "numbers-0").chmod(0o555)
    for file in (copy / "numbers-0").iterdir():
        file.chmod(0o444)
    with without_privileges():
        assert contents(copy) == expected
    copy.chmod(0o755)


def test_an_open_read_only_library_follows_its_owner(read_only: Path) -> None:
    lock(read_only)
    with without_privileges():
        library = Library(read_only)
        library.begin_snapshot()
        assert len(library.rows()) == 10
        library.end_snapshot()
    for path in [read_only, *read_only.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with writing(read_only) as owner:
        add(owner, 5)
    lock(read_only)
    with without_privileges():
        library.begin_snapshot()
        assert len(library.rows()) == 12
        library.end_snapshot()
        library.close()


def test_a_library_of_another_user_is_said_to_be_unreadable(read_only: Path) -> None:
    read_only.chmod(0o700)
    if os.geteuid() != 0:
        read_only.chmod(0)
    with (
        without_privileges(),
        pytest.raises(StoreError, match=r"main: it cannot be read \(Permission denied\)"),
    ):
        Library(read_only)
