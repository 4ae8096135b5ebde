"""An SQLite file of a stranger has no effect beyond itself."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ctsan.errors import StoreError
from ctsan.io.sqlite import open_file, store_errors
from ctsan.search.library import Library
from ctsan.video.clip_index import ClipIndex

_MAGIC = bytes.fromhex("d9d505f920a163d7")
_PAGE_BYTES, _SECTOR_BYTES, _NONCE = 4096, 512, 7
_ENDLESS = "with recursive r(x) as (select 0 union all select x + 1 from r) select x from r"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "main" / "library.sqlite"
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("create table shots (row integer)")
        connection.execute("create index by_row on shots (row)")
        connection.commit()
    return file


def plant_journal(file: Path, pointer: bytes) -> Path:
    """A journal with the first page, which SQLite rolls back."""
    content = file.read_bytes()
    page, num_pages = content[:_PAGE_BYTES], len(content) // _PAGE_BYTES
    checksum = _NONCE + sum(page[place] for place in range(_PAGE_BYTES - 200, 0, -200))
    header = _MAGIC + struct.pack(">IIIII", 1, _NONCE, num_pages, _SECTOR_BYTES, _PAGE_BYTES)
    record = struct.pack(">I", 1) + page + struct.pack(">I", checksum)
    body = header.ljust(_SECTOR_BYTES, b"\0") + record
    journal = file.with_name(f"{file.name}-journal")
    journal.write_bytes(body.ljust(-(-len(body) // _SECTOR_BYTES) * _SECTOR_BYTES, b"\0") + pointer)
    return journal


def pointer_to(victim: Path) -> bytes:
    """The end of a journal that names the journal of a transaction over several files."""
    name = str(victim).encode()
    page = 0x40000000 // _PAGE_BYTES + 1
    return struct.pack(">I", page) + name + struct.pack(">II", len(name), sum(name)) + _MAGIC


def test_a_journal_that_names_another_file_is_refused(file: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine", encoding="utf-8")
    journal = plant_journal(file, pointer_to(victim))
    with pytest.raises(sqlite3.DatabaseError, match="sqlite-journal beside it would delete another file"):
        open_file(file, "mode=rw")
    assert victim.exists()
    assert journal.exists()
    with closing(sqlite3.connect(file)) as connection:  # what SQLite itself does
        connection.execute("select * from shots").fetchall()
    assert not victim.exists()


def test_a_journal_of_a_killed_process_is_rolled_back(file: Path) -> None:
    journal = plant_journal(file, b"")
    with closing(open_file(file, "mode=rw")) as connection:
        assert connection.execute("select * from shots").fetchall() == []
    assert not journal.exists()


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
def test_links_and_pipes_beside_a_file_are_refused(file: Path, tmp_path: Path, ending: str) -> None:
    beside = file.with_name(file.name + ending)
    victim = tmp_path / "victim"
    victim.touch()
    makers: tuple[Callable[[], object], ...] = (
        lambda: beside.symlink_to(victim),
        lambda: beside.symlink_to(tmp_path / "nowhere"),
        lambda: os.mkfifo(beside),
    )
    for make in makers:
        make()
        with pytest.raises(sqlite3.DatabaseError, match=f"sqlite{ending} beside it is not a regular file"):
            open_file(file, "mode=rw")
        beside.unlink()


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (f"create view files as {_ENDLESS}", "the view 'files'"),
        ("create trigger t after insert on shots begin delete from shots; end", "the trigger 't'"),
        ("create virtual table pages using fts5(text)", "the table 'pages'"),
    ],
)
def test_views_triggers_and_virtual_tables_are_refused(file: Path, statement: str, what: str) -> None:
    with closing(open_file(file, "mode=rw")) as connection:
        connection.execute(statement)
        connection.commit()
    with pytest.raises(sqlite3.DatabaseError, match=f"it holds {what}, which is not ctsan's"):
        open_file(file, "mode=rw")


@pytest.mark.parametrize(
    ("name", "read"),
    [("library.sqlite", lambda file: Library(file.parent)), ("index.sqlite", ClipIndex)],
)
def test_libraries_and_features_are_opened_so(
    file: Path, tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    file = file.rename(file.with_name(name))
    plant_journal(file, pointer_to(tmp_path / "victim"))
    with pytest.raises(StoreError, match=f"{name}.* would delete another file"):
        read(file)


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_the_remedy_for_what_is_beside_a_file_is_to_delete_that_alone(
    file: Path, make: Callable[[Path], object], ending: str
) -> None:
    beside = file.with_name(file.name + ending)
    make(beside)
    with pytest.raises(
        StoreError, match=f"^{beside}: it is not a regular file, .* Delete it, not the folder"
    ):
        Library(file.parent)


def test_a_pipe_in_place_of_the_shared_memory_is_no_full_disk(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("pragma journal_mode = wal")
    os.mkfifo(file.with_name(f"{file.name}-shm"))
    with (
        closing(sqlite3.connect(file)) as connection,
        pytest.raises(StoreError, match="shm: it is not a reg"),
        store_errors(file, str),
    ):
        connection.execute("insert into shots values (1)")
