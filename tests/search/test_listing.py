"""Which files are indexed, which are gone, and which are only out of reach."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ctsan.errors import Problem
from ctsan.search import listing as listing_module
from ctsan.search.listing import (
    Listing,
    find_gone,
    find_missing,
    find_unmounted,
    list_clips,
    mount_points,
    never_indexed,
    skipped_line,
)
from other_user import make_reachable, without_privileges


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "mine"
    for name in ("a.mp4", "sub/b.mp4", "sub/below/c.mp4", "notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def gone(indexed: list[Path], listing: Listing, *unmounted: Path) -> tuple[list[Path], list[Problem]]:
    problems = list(listing.problems)
    return find_gone(indexed, listing, unmounted, problems), problems


def test_files_that_were_deleted_are_gone(folder: Path) -> None:
    indexed = list_clips([folder]).clips
    assert [path.name for path in indexed] == ["a.mp4", "b.mp4", "c.mp4"]
    (folder / "sub" / "b.mp4").unlink()
    assert gone(indexed, list_clips([folder])) == ([folder / "sub" / "b.mp4"], [])
    assert gone(indexed, list_clips([folder / "sub" / "below"])) == ([], [])


@pytest.mark.parametrize(
    ("mode", "said"), [(0o000, "sub: it cannot be listed"), (0o444, "sub/below: it cannot be read")]
)
def test_what_cannot_be_listed_is_not_gone(folder: Path, mode: int, said: str) -> None:
    indexed = list_clips([folder]).clips
    (folder / "a.mp4").unlink()
    make_reachable(folder)
    (folder / "sub").chmod(mode)
    with without_privileges():
        files, problems = gone(indexed, list_clips([folder]))
    (folder / "sub").chmod(0o755)
    assert files == [folder / "a.mp4"]
    assert [str(problem) for problem in problems] == [
        f"{folder / said} (Permission denied). Check its permissions."
    ]


def test_a_given_folder_that_cannot_be_listed_is_said(folder: Path) -> None:
    indexed = list_clips([folder]).clips
    make_reachable(folder)
    folder.chmod(0)
    with without_privileges():
        files, problems = gone(indexed, list_clips([folder, folder / "sub"]))
    folder.chmod(0o755)
    assert files == []
    assert {problem.file for problem in problems} == {folder, folder / "sub"}


def test_a_folder_that_was_never_there_is_told_from_one_that_is_gone(folder: Path) -> None:
    missing = list_clips([folder / "typo"])
    assert [problem.file for problem in never_indexed(missing, [])] == [folder / "typo"]
    assert never_indexed(missing, [folder / "typo" / "clip.mp4"]) == []
    assert never_indexed(list_clips([folder]), []) == []


def test_pipes_sockets_and_devices_are_said_and_left_out(folder: Path) -> None:
    os.mkfifo(folder / "pipe.mp4")
    (folder / "device.mp4").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "s.mp4"))
    (folder / "loop.mp4").symlink_to("loop.mp4")
    (folder / "link.mp4").symlink_to("a.mp4")
    listing = list_clips([folder])
    assert {path.name for path in listing.clips} == {"a.mp4", "b.mp4", "c.mp4", "link.mp4", "loop.mp4"}
    assert {str(problem) for problem in listing.problems} == {
        f"{folder / name}: it is not a regular file. Leave it out."
        for name in ("pipe.mp4", "device.mp4", "s.mp4")
    }
    assert gone([folder / "pipe.mp4"], listing)[0] == [folder / "pipe.mp4"]  # it was a clip before


def test_a_loop_of_links_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    listing = list_clips([tmp_path / "loop"])
    assert (listing.clips, listing.unlisted) == ([], [])
    assert len(never_indexed(listing, [])) == 1


def test_files_of_a_disk_that_is_not_mounted_are_not_gone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, mounts = folder / "sub", {folder / "sub"}
    monkeypatch.setattr(listing_module, "_is_mount", lambda path: path in mounts)
    (tmp_path / "link").symlink_to(disk / "below")
    indexed = [*list_clips([folder]).clips, *list_clips([folder]).clips[2:]]
    assert mount_points(indexed) == [disk]
    assert find_unmounted([disk]) == []
    mounts.clear()
    for path in indexed[1:3]:
        path.unlink()
    (disk / "below").rmdir()
    assert find_unmounted([disk]) == [disk]  # an empty folder
    through_link = tmp_path / "link" / "c.mp4"
    for _ in range(2):
        assert find_missing([*indexed, through_link], [disk]) == []
        files, problems = gone(indexed, list_clips([folder]), disk)
        assert files == []
        assert [str(problem) for problem in problems] == [
            f"{disk}: the disk with indexed files is not mounted. Mount it, or drop its files with "
            "--drop-unmounted."
        ]
        if disk.exists():
            disk.rmdir()  # as desktops do
    assert gone(indexed, list_clips([folder]))[0] == indexed[1:]


def test_a_disk_that_was_replaced_by_a_folder_is_as_it_is_now(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_module, "_is_mount", lambda _: False)
    assert find_unmounted([folder / "sub"]) == []


def test_what_is_no_clip_is_counted_by_its_ending(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.MP3", "sub/c.mp3", "sub/d.cr2", "sub/Makefile", "a.srt", ".hidden.mp3", "clips.jsonl"):
        (folder / name).touch()
    (folder / "page.ts").write_text("export const answer = 42;\n", encoding="utf-8")
    (folder / "film.ts").write_bytes(b"\x47\x40\x11\x10\0\x42\xf0\x25")
    (folder / "phone.heic").touch()
    listing = list_clips([folder, folder / "sub"])  # a file of both counts once
    assert listing.skipped == {".mp3": 2, ".cr2": 1, "": 1, ".ts": 1}
    assert skipped_line(listing.skipped) == "5 files skipped: .mp3 2, no ending 1, .cr2 1, .ts 1"
    assert {path.name for path in listing.clips} >= {"film.ts", "phone.heic"}

    monkeypatch.setattr(listing_module, "reads_heic", lambda: False)
    without = list_clips([folder])
    assert folder / "phone.heic" not in without.clips
    assert without.skipped[".heic"] == 1
    assert skipped_line({".heic": 1}) == (
        "1 file skipped: .heic 1. HEIC pictures are read with: pip install 'ctsan[heic]'"
    )
    assert gone(listing.clips, without) == ([], [])  # it stays in the library


def test_a_long_list_of_endings_is_cut_off() -> None:
    assert skipped_line({}) == ""
    assert skipped_line({f".{letter}": 1 for letter in "abcdefghijk"}) == (
        "11 files skipped: .a 1, .b 1, .c 1, .d 1, .e 1, .f 1, .g 1, .h 1, 3 others"
    )
