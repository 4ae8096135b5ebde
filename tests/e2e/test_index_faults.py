"""Files that go away, change or block while they are indexed, and a store on a bad disk."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clip_making import encode
from commands import ctsan, ctsan_here
from ctsan.errors import StorageError, StoreError, VideoError
from ctsan.inference import featurizer
from ctsan.inference.predictor import Predictor
from ctsan.search import growable_array, indexing, listing
from ctsan.search.indexing import index_folders
from ctsan.search.library import Library
from ctsan.search.opening import LibraryAddress
from ctsan.search.postgres_library import PostgresLibrary
from ctsan.search.search import Hit, Searcher
from ctsan.video import given_frames
from e2e.small_run import SMALL
from other_user import make_reachable, without_privileges

QUERY = "a red circle"
COLOURS = {"a": (200, 30, 30), "b": (30, 200, 30), "c": (30, 30, 200), "d": (200, 200, 30)}

Frames = Callable[..., Any]


@pytest.fixture(scope="module")
def models(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A joint embedding, and a run with a concept detector."""
    folder = tmp_path_factory.mktemp("runs")
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", *SMALL)
    quick = ("--set=training.steps=10", "--set=training.batch_size=8", "--set=retrieval.joint_dim=16")
    for task in ("embed", "describe"):
        ctsan_here("train", task, *options, *quick, "--set=detector.probe=none", "--out", folder / task)
    return [folder / "embed", folder / "describe"]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Four pictures: a and b, and c and d in a subfolder."""
    folder = tmp_path.resolve() / "mine"
    (folder / "sub").mkdir(parents=True)
    for name in COLOURS:
        draw(folder / ("sub" if name in "cd" else "") / f"{name}.png", COLOURS[name])
    return folder


def draw(file: Path, colour: tuple[int, int, int]) -> None:
    Image.new("RGB", (64, 48), colour).save(file)


@pytest.fixture(params=["folder", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> LibraryAddress:
    """Where a library can be made."""
    if request.param == "folder":
        return tmp_path / "store" / "main"
    found: LibraryAddress = request.getfixturevalue("postgres_place")
    return found


in_folder = pytest.mark.parametrize("place", ["folder"], indirect=True)


def indexed_digests(place: LibraryAddress) -> dict[str, str]:
    """The digest of the content under which each file is found."""
    found = "select path, digest from files join contents on contents.id = content where error is null"
    if isinstance(place, Path):
        with closing(sqlite3.connect(place / "library.sqlite")) as records:
            rows = records.execute(found).fetchall()
    else:
        with closing(PostgresLibrary(place)) as library:
            rows = library.connection.query(found)
    return {Path(os.fsdecode(name)).name: digest for name, digest in rows}


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def while_decoding(
    patch: pytest.MonkeyPatch, name: str, wrap: Callable[[Frames, Path], Any]
) -> Iterator[None]:
    """Call `wrap` with the function that decodes a clip, and the clip, for clips of this name."""
    decode = given_frames.frames_of

    def decode_name(clip: Path, **options: Any) -> Any:
        if Path(clip).name == name:
            return wrap(lambda path: decode(path, **options), Path(clip))
        return decode(clip, **options)

    with patch.context() as inner:
        inner.setattr(featurizer, "frames_of", decode_name)
        yield


# Files that are out of reach


def test_a_file_that_is_away_for_a_moment_is_found_the_next_time(
    models: list[Path], mine: Path, place: LibraryAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(decode: Frames, clip: Path) -> Any:
        clip.rename(mine / "away")
        try:
            return decode(clip)
        finally:
            (mine / "away").rename(clip)

    with while_decoding(monkeypatch, "a.png", away):
        for _ in range(2):  # it is tried on every run
            report = index_folders([mine], place, models=models)
            assert "there is no such file" in report.errors[mine / "a.png"]
            assert report.files == 3
    report = index_folders([mine], place, models=models)
    assert (report.files, report.new, report.errors) == (4, 1, {})


@pytest.mark.parametrize("code", [errno.EACCES, errno.ESTALE, errno.EMFILE])
def test_an_error_of_the_machine_is_not_stored(
    models: list[Path], mine: Path, place: LibraryAddress, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(_: Frames, clip: Path) -> Any:
        raise OSError(code, os.strerror(code), str(clip))

    with while_decoding(monkeypatch, "b.png", fail):
        report = index_folders([mine], place, models=models)
    assert f"it cannot be read ({os.strerror(code)})" in report.errors[mine / "b.png"]
    assert report.files == 3  # those behind it are indexed
    assert index_folders([mine], place, models=[]).files == 4


def test_a_file_that_cannot_be_read_to_the_end_is_tried_again(
    models: list[Path], mine: Path, place: LibraryAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad sector fails the decoder like damaged content, and then the hash, which reads it again."""

    def fail(_: Frames, clip: Path) -> Any:
        monkeypatch.setattr(indexing, "_digest", bad_sector)
        raise VideoError(clip, "reading failed half-way", "Convert it.")

    def bad_sector(path: Path) -> str:
        raise OSError(errno.EIO, "Input/output error", str(path))

    with monkeypatch.context() as patch, while_decoding(patch, "a.png", fail):
        report = index_folders([mine / "a.png"], place, models=models)
    assert "Input/output error" in report.errors[mine / "a.png"]
    monkeypatch.undo()
    assert index_folders([mine / "a.png"], place, models=[]).errors == {}


def test_a_copy_of_a_file_that_is_out_of_reach_is_indexed(
    models: list[Path], mine: Path, place: LibraryAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(mine / "a.png", mine / "copy.png")

    def fail(_: Frames, clip: Path) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(clip))

    with while_decoding(monkeypatch, "a.png", fail):
        report = index_folders([mine], place, models=models)
    assert set(report.errors) == {mine / "a.png"}
    assert "copy.png" in indexed_digests(place)


def test_an_error_of_the_content_is_tried_again_by_a_newer_reader_only(
    models: list[Path], mine: Path, place: LibraryAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fail(_: Frames, clip: Path) -> Any:
        tried.append(clip.name)
        raise VideoError(clip, "no decoder for this codec", "Convert it.")

    with while_decoding(monkeypatch, "a.png", fail):
        for _ in range(2):
            report = index_folders([mine], place, models=models)
            assert set(report.errors) == {mine / "a.png"}
        assert tried == ["a.png"]
        monkeypatch.setattr(indexing, "reader_version", lambda: "FFmpeg 99")
        assert set(index_folders([mine], place, models=[]).errors) == {mine / "a.png"}
        assert tried == ["a.png"] * 2
    assert index_folders([mine], place, models=[]).known == 3  # and the reader has tried the fourth
    monkeypatch.setattr(indexing, "reader_version", lambda: "FFmpeg 100")
    report = index_folders([mine], place, models=[])
    assert (report.files, report.new, report.errors) == (4, 1, {})


def test_an_unreadable_file_is_listed_once_and_is_not_known(
    models: list[Path], mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine / "text.mp4").write_text("no video")
    named = [argument for model in models for argument in ("--model", model)]
    for counts in ("4 looked at now, 0 known", "0 looked at now, 4 known"):
        with pytest.raises(SystemExit, match="1"):
            ctsan_here("index", mine, "--store", tmp_path / "store", *named)
        said = capsys.readouterr()
        assert counts in said.out
        assert said.err.count("text.mp4: this is text, not a video") == 1


def test_a_truncated_clip_is_as_long_as_what_is_left_of_it(
    models: list[Path], place: LibraryAddress, tmp_path: Path
) -> None:
    """Its header still has the length of the whole. A last picture that stands for long is not missing."""
    folder = tmp_path / "clips"
    folder.mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (120, 48, 64, 3), dtype=np.uint8)
    whole = encode(folder / "whole.avi", noise, rate=12)
    (folder / "cut.avi").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    encode(folder / "slides.mp4", noise[:3], seconds=(0, 4, 9.5))
    encode(folder / "shown.mkv", noise[:3], seconds=(0, 0.5, 9.5))
    index_folders([folder], place, models=models)
    seconds = {hit.file.name: hit.end for hit in Searcher(place).search(QUERY).hits}
    assert seconds["whole.avi"] == pytest.approx(10, abs=0.1)
    assert seconds["cut.avi"] == pytest.approx(5, abs=1)
    assert seconds["slides.mp4"] >= 9.5
    assert seconds["shown.mkv"] >= 9.5


def test_a_folder_that_cannot_be_listed_keeps_its_files(
    models: list[Path], mine: Path, place: LibraryAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_folders([mine], place, models=models)
    scandir = os.scandir

    def deny(path: Any) -> Any:
        if not isinstance(path, int) and Path(path) == mine / "sub":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    (mine / "a.png").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", deny)
        report = index_folders([mine], place, models=[])
    assert (report.files, report.dropped) == (3, 1)
    assert report.errors == {
        mine / "sub": f"{mine / 'sub'}: it cannot be listed (Permission denied). Check its permissions."
    }
    assert index_folders([mine], place, models=[]).new == 0


def test_files_of_a_disk_that_is_not_mounted_stay_until_they_are_given_up(
    models: list[Path], mine: Path, place: LibraryAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = {mine / "sub"}
    monkeypatch.setattr(listing, "_is_mount", lambda folder: folder in mounts)
    index_folders([mine], place, models=models)
    mounts.clear()
    shutil.rmtree(mine / "sub")
    report = index_folders([mine], place, models=[])
    assert (report.files, report.dropped) == (4, 0)
    assert "the disk with indexed files is not mounted" in report.errors[mine / "sub"]
    report = index_folders([mine], place, models=[], drop_unmounted=True)
    assert (report.files, report.dropped, report.errors) == (2, 2, {})


@pytest.mark.timeout(120)
def test_pipes_and_devices_do_not_block(models: list[Path], mine: Path, place: LibraryAddress) -> None:
    os.mkfifo(mine / "pipe.mp4")
    (mine / "zero.png").symlink_to("/dev/zero")
    report = index_folders([mine], place, models=models)
    assert report.files == 4
    assert set(report.errors) == {mine / "pipe.mp4", mine / "zero.png"}


@pytest.mark.timeout(120)
def test_a_file_that_becomes_a_pipe_before_it_is_hashed_does_not_block(
    models: list[Path], mine: Path, place: LibraryAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_clips = listing.list_clips

    def replaced(folders: list[Path]) -> Any:
        found = list_clips(folders)
        (mine / "a.png").unlink()
        os.mkfifo(mine / "a.png")
        return found

    monkeypatch.setattr(indexing, "list_clips", replaced)
    report = index_folders([mine], place, models=models)
    assert report.errors == {mine / "a.png": f"{mine / 'a.png'}: it is not a regular file. Leave it out."}


@pytest.mark.timeout(120)
def test_files_without_a_size_are_not_read(models: list[Path], mine: Path, place: LibraryAddress) -> None:
    """Files of /proc are regular; one has another content each time, and another waits for it."""
    links = {
        mine / "log.mp4": "/proc/kmsg",
        mine / "log.ts": "/proc/kmsg",
        mine / "status.mp4": "/proc/self/stat",
    }
    for link, target in links.items():
        link.symlink_to(target)
    for _ in range(2):
        report = index_folders([mine], place, models=models)
        assert report.files == 4
        assert report.errors.keys() == links.keys()
        assert "the file is empty (0 bytes)" in report.errors[mine / "status.mp4"]


def test_a_large_file_is_hashed_only_if_it_opens(
    models: list[Path], mine: Path, place: LibraryAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed, digest = [], indexing._digest

    def counted(path: Path) -> str:
        hashed.append(path.name)
        return digest(path)

    monkeypatch.setattr(indexing, "_digest", counted)
    monkeypatch.setattr(indexing, "_LARGE", 10)
    with (mine / "sparse.mp4").open("wb") as file:
        file.truncate(20 << 30)
    for known in (0, 4):
        report = index_folders([mine], place, models=models)
        assert (report.files, report.known) == (4, known)
        assert "not a video or picture that FFmpeg can read" in report.errors[mine / "sparse.mp4"]
    assert hashed == ["a.png", "b.png", "c.png", "d.png"]
    (mine / "a.png").rename(mine / "renamed.png")
    with while_decoding(monkeypatch, "renamed.png", lambda *_: pytest.fail("it was decoded")):
        assert index_folders([mine], place, models=models).known == 4


# Files that change


def test_a_file_that_is_replaced_after_hashing_is_found_under_its_own_content(
    models: list[Path], mine: Path, place: LibraryAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a file of the same size and date, as `cp -p` and `rsync` leave it."""
    status = (mine / "a.png").stat()
    Image.new("RGB", (64, 48), (30, 30, 30)).save(mine / "other", "PNG")
    with (mine / "other").open("ab") as stream:
        stream.write(b"\0" * (status.st_size - stream.tell()))
    assert (mine / "other").stat().st_size == status.st_size
    os.utime(mine / "other", ns=(status.st_atime_ns, status.st_mtime_ns))
    expected = digest_of(mine / "other")

    def replace(decode: Frames, clip: Path) -> Any:
        if (mine / "other").exists():
            (mine / "other").replace(clip)
        return decode(clip)

    with while_decoding(monkeypatch, "a.png", replace):
        report = index_folders([mine], place, models=models)
    assert (report.files, report.errors) == (4, {})
    assert indexed_digests(place)["a.png"] == expected == digest_of(mine / "a.png")


def test_a_file_that_keeps_changing_is_said_and_indexed_the_next_time(
    models: list[Path], mine: Path, place: LibraryAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    shades = iter(range(1, 100))

    def grow(decode: Frames, clip: Path) -> Any:
        draw(clip, (next(shades), 0, 0))
        os.utime(clip, ns=(0, next(shades)))
        return decode(clip)

    with while_decoding(monkeypatch, "a.png", grow):
        report = index_folders([mine], place, models=models)
    assert report.errors == {
        mine / "a.png": f"{mine / 'a.png'}: it changes while it is read. Index its folder again when it is "
        "complete."
    }
    assert report.files == 3
    assert index_folders([mine], place, models=[]).files == 4
    assert indexed_digests(place)["a.png"] == digest_of(mine / "a.png")


def test_a_file_dated_in_2300_is_known_the_second_time(
    models: list[Path], mine: Path, place: LibraryAddress
) -> None:
    for file, seconds in (("a.png", 10_413_792_000), ("b.png", -2_208_988_800)):
        os.utime(mine / file, (seconds, seconds))
    assert index_folders([mine], place, models=models).files == 4
    assert index_folders([mine], place, models=[]).known == 4


# The store


@in_folder
@pytest.mark.parametrize("calls", [1, 2, 5])
def test_a_full_disk_is_said_and_the_same_call_goes_on(
    models: list[Path], mine: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    left, write = [calls], growable_array._write_header

    def full(*given: Any) -> None:
        left[0] -= 1
        if left[0] == 0:  # the rows are written, and their number is not
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(growable_array, "_write_header", full)
        with pytest.raises(StorageError, match=r"\.npy: No space left on device. Free some space"):
            index_folders([mine], place, models=models)
    assert index_folders([mine], place, models=models).files == 4
    index_folders([mine], tmp_path / "fresh", models=models)
    hits = [
        [(hit.file, hit.score) for hit in Searcher(library).search(QUERY).hits]
        for library in (place, tmp_path / "fresh")
    ]
    assert hits[0] == hits[1]


def hits_without_captions(place: Path) -> list[Hit]:
    """Version 1 has no captions."""
    return [replace(hit, caption=None) for hit in Searcher(place).search(QUERY).hits]


def damage_vectors(place: Path) -> None:
    file = place / "numbers-0" / "vectors.npy"
    content, row_bytes = file.read_bytes(), np.load(file)[-1].nbytes
    file.write_bytes(content[:-row_bytes] + b"\0" * row_bytes)  # the last row


@in_folder
@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize(
    "damage", [damage_vectors, lambda place: (place / "numbers-0" / "concepts.npy").unlink()]
)
def test_damaged_numbers_are_said_and_encoded_again_wherever_their_files_are(
    models: list[Path], mine: Path, place: Path, version: int, damage: Callable[[Path], object]
) -> None:
    index_folders([mine], place, models=models)
    if version == 1:
        make_version_1(place)
    before = hits_without_captions(place)
    damage(place)
    with pytest.raises(StoreError, match="numbers-0.*damaged.*ctsan index FOLDER --library main --store"):
        Searcher(place)
    report = index_folders([mine / "a.png"], place, models=[])
    assert (report.files, report.errors) == (4, {})
    assert hits_without_captions(place) == before


@in_folder
def test_damaged_numbers_of_files_that_are_gone_are_dropped(
    models: list[Path], mine: Path, place: Path
) -> None:
    index_folders([mine], place, models=models)
    (place / "numbers-0" / "vectors.npy").write_bytes(b"")
    shutil.rmtree(mine / "sub")
    report = index_folders([mine / "a.png"], place, models=[])
    assert (report.files, report.dropped, report.errors) == (2, 2, {})


def make_version_1(place: Path) -> None:
    with closing(sqlite3.connect(place / "library.sqlite")) as records:
        records.execute("alter table contents drop column has_details")
        records.execute("drop table details")
        records.execute("alter table contents drop column reader")
        records.execute("alter table contents drop column checksum")
        records.execute("drop table mounts")
        records.execute("pragma user_version = 1")
        records.commit()
    for file in place.glob("numbers-*/candidate*.npy"):
        file.unlink()


@in_folder
def test_a_library_of_version_1_is_searched_and_upgraded(models: list[Path], mine: Path, place: Path) -> None:
    index_folders([mine], place, models=models)
    before = hits_without_captions(place)
    make_version_1(place)
    assert hits_without_captions(place) == before
    with closing(Library(place)) as library:
        assert library.version == 1
    draw(mine / "e.png", (9, 9, 9))
    report = index_folders([mine], place, models=[])
    assert (report.new, report.completed) == (5, 4)
    assert len(Searcher(place).search(QUERY).hits) == 5


@in_folder
def test_a_damaged_index_is_not_used_and_written_anew(
    models: list[Path],
    mine: Path,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("ctsan.search.ann_index.EXACT_UP_TO", 2)
    index_folders([mine], place, models=models)
    [file] = place.glob("index-*.faiss")
    whole = file.read_bytes()
    before = Searcher(place).search(QUERY).hits
    file.write_bytes(whole[: len(whole) // 2])
    assert Searcher(place).search(QUERY).hits == before
    assert f"{file}: it is damaged" in caplog.text
    index_folders([mine], place, models=[])
    assert file.read_bytes() == whole


@in_folder
def test_numbers_of_a_large_library_that_a_sample_missed_are_said(
    models: list[Path], mine: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_folders([mine], place, models=models)
    monkeypatch.setattr(Library, "check_arrays", lambda *_: None)
    for name, value in (("vectors", np.nan), ("concepts", 10**6)):
        file = place / "numbers-0" / f"{name}.npy"
        whole, array = file.read_bytes(), np.load(file)
        array[:] = value
        np.save(file, array)
        with pytest.raises(StoreError, match=f"{name}.npy: it is damaged"):
            Searcher(place).search(QUERY)
        file.write_bytes(whole)


@in_folder
def test_a_read_only_library_is_searched(models: list[Path], mine: Path, place: Path) -> None:
    index_folders([mine], place, models=models)
    searcher = Searcher(place)
    before = searcher.search(QUERY).hits
    searcher.library.close()
    assert not list(place.glob("library.sqlite-*"))  # SQLite would have to make these to read it
    for folder in (place, *models):
        make_reachable(folder.parent)
        for path in [*folder.rglob("*"), folder]:
            path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with without_privileges():
            assert Searcher(place).search(QUERY).hits == before
    finally:
        for folder in (place, *models):
            for path in [folder, *folder.rglob("*")]:
                path.chmod(0o755 if path.is_dir() else 0o644)


@in_folder
def test_the_commands_say_damage_in_one_line(models: list[Path], mine: Path, place: Path) -> None:
    index_folders([mine], place, models=models)
    damage_vectors(place)
    said = ctsan("search", QUERY, "--store", place.parent, exit_code=2).stderr
    assert said.count("\n") == 1
    assert f"{place}/numbers-0: the numbers of {mine}/sub/d.png are damaged." in said
    assert "4 files with 4 shots" in ctsan("index", mine, "--store", place.parent).stdout


# Captions and thumbnails


def shown(place: LibraryAddress) -> dict[str, tuple[str | None, bytes | None]]:
    searcher = Searcher(place)
    hits = searcher.search(QUERY, n_best=100).hits
    return {hit.file.name: (hit.caption, searcher.thumbnail(hit)) for hit in hits}


def test_every_shot_has_the_caption_of_describe_and_a_thumbnail(
    models: list[Path], mine: Path, place: LibraryAddress
) -> None:
    index_folders([mine], place, models=models)
    stored = shown(place)
    predictor = Predictor.load(*models)
    assert {name: caption for name, (caption, _) in stored.items()} == {
        path.name: predictor.describe(path).caption for path in mine.rglob("*.png")
    }
    for name, (_, thumbnail) in stored.items():
        assert thumbnail is not None
        picture = Image.open(io.BytesIO(thumbnail))
        assert (picture.format, picture.size) == ("JPEG", (64, 48))
        mean = np.asarray(picture, np.float64).mean(axis=(0, 1))
        np.testing.assert_allclose(mean, COLOURS[name[0]], atol=6)
    searcher = Searcher(place)
    [hit] = searcher.search(QUERY, n_best=1).hits
    hit.file.unlink()
    index_folders([mine], place, models=[])
    assert searcher.thumbnail(hit) is None


def test_without_a_run_that_describes_there_are_thumbnails_and_no_captions(
    models: list[Path], mine: Path, place: LibraryAddress
) -> None:
    index_folders([mine], place, models=models[:1])
    stored = shown(place)
    assert {caption for caption, _ in stored.values()} == {None}
    assert all(thumbnail for _, thumbnail in stored.values())
    assert index_folders([mine], place, models=[]).known == 4


def make_version_2(place: Path) -> None:
    """Turn a library into one without captions and thumbnails. A real one is in tests/search."""
    with closing(sqlite3.connect(place / "library.sqlite")) as records:
        records.execute("delete from details")
        records.execute("update contents set has_details = 0")
        records.commit()


@in_folder
def test_indexing_an_old_library_again_adds_captions_and_thumbnails(
    models: list[Path], mine: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_folders([mine], place, models=models)
    expected, hits = shown(place), Searcher(place).search(QUERY).hits
    make_version_2(place)
    assert set(shown(place).values()) == {(None, None)}
    said = ctsan("index", mine / "sub", "--store", place.parent).stdout
    assert "4 files with 4 shots" in said
    assert "2 looked at now (2 again, for captions and thumbnails)" in said
    assert "2 files without captions and thumbnails: index the other folders" in said
    assert sum(caption is not None for caption, _ in shown(place).values()) == 2

    def fail(_: Frames, clip: Path) -> Any:
        raise VideoError(clip, "no decoder for this codec", "Convert it.")

    with while_decoding(monkeypatch, "a.png", fail):  # what was searchable stays so
        report = index_folders([mine], place, models=[])
    assert (report.files, report.completed, report.incomplete, report.errors) == (4, 1, 1, {})
    report = index_folders([mine], place, models=[])
    assert (report.new, report.completed, report.incomplete) == (1, 1, 0)
    assert shown(place) == expected
    assert Searcher(place).search(QUERY).hits == hits
