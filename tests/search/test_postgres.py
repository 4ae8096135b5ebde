"""A library in PostgreSQL: several machines at once, kills, lost connections, and unusable servers.

What it has in common with a library in a folder is in test_stores.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner

from ctsan.cli import group
from ctsan.errors import StoreError, UsageError
from ctsan.search.candidates import concepts_to_candidates
from ctsan.search.opening import has_library, library_address, open_library, store_option
from ctsan.search.postgres_address import PostgresAddress, host_label
from ctsan.search.postgres_library import PostgresLibrary
from ctsan.search.postgres_schema import Connection
from ctsan.search.store import ConceptFilter, ShownWords
from ctsan.video.shots import Shot
from search.conftest import DIM, WORDS, arrays_of, details_of
from search.test_stores import add, expected, record, snapshot, stored, writing


@pytest.fixture
def place(postgres_place: PostgresAddress) -> PostgresAddress:
    return postgres_place


def as_host(patch: pytest.MonkeyPatch, label: str) -> None:
    patch.setenv("CTSAN_HOST", label)


# Several machines


def test_a_path_belongs_to_the_machine_that_indexed_it(
    place: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_host(monkeypatch, "attic")
    with writing(place) as library:
        add(library, 0)
        add(library, 1)
        library.add_mounts([Path("/disk")])
    as_host(monkeypatch, "cellar")
    with writing(place) as library:
        assert (library.files(), library.mounts(), library.num_shots()) == ({}, [], 0)
        assert library.has_content("digest 0", "reader 1")  # so that it is not encoded again
        add(library, 2)
        library.link(record("0"), "digest 1")  # the same name, another content
        library.drop([record(1).path])  # not its own: nothing happens
        assert library.num_shots() == 4
    with snapshot(place) as (library, shots):
        places = {
            (location.host, location.file.stem, location.row)
            for location in library.locate(shots.sample(100).tolist())
        }
        assert {(host, stem) for host, stem, _ in places} == {("attic", "0"), (None, "0"), (None, "2")}
        own = library.row_of(record(0).path, Shot(0.0, 1.0))
        other = library.row_of(record(0).path, Shot(0.0, 1.0), "attic")
        assert own is not None
        assert other is not None
        assert library.captions([own, other]) == {own: "shot 0 of 1", other: "shot 0 of 0"}
    as_host(monkeypatch, "attic")
    with writing(place) as library:
        library.drop([record(0).path, record(1).path])
        assert library.files() == {}
        assert not library.has_content("digest 0")
        assert library.has_content("digest 1")  # the other machine has it


def test_the_host_is_that_of_the_machine_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CTSAN_HOST", raising=False)
    assert host_label() == os.uname().nodename
    as_host(monkeypatch, "shared")
    assert host_label() == "shared"


_WRITER = """
import sys
from ctsan.search.postgres_address import PostgresAddress
from search.test_stores import add, writing

url, name, first, count = sys.argv[1:]
with writing(PostgresAddress(url, name)) as library:
    for number in range(int(first), int(first) + int(count)):
        add(library, number)
        print(number, flush=True)
"""


def writer(place: PostgresAddress, host: str, first: int, count: int) -> subprocess.Popen[str]:
    """A process that adds files, as another machine would."""
    command = [sys.executable, "-c", _WRITER, place.url, place.name, str(first), str(count)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = {**os.environ, "CTSAN_HOST": host, "PYTHONPATH": path}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_several_machines_write_at_once_and_a_killed_one_loses_nothing_and_blocks_nobody(
    place: PostgresAddress,
) -> None:
    """All begin together, so that they also create the library together; two add the same files."""
    writers = [
        writer(place, "attic", 0, 40),
        writer(place, "cellar", 20, 40),
        writer(place, "garden", 100, 10_000),
    ]
    victim = writers.pop()
    assert victim.stdout is not None
    said = [victim.stdout.readline() for _ in range(10)]
    victim.kill()
    said += victim.stdout.readlines()
    for process in writers:
        with process:
            output, _ = process.communicate(timeout=60)
            assert (process.returncode, len(output.split())) == (0, 40)
    victim.wait()
    victim.stdout.close()
    whole = stored(place)
    kept = {name: shot for name, shot in whole.items() if int(name[0]) < 100}
    assert kept == expected(*range(60))  # each content once, and all of it
    killed = {int(file) for file, _ in whole.keys() - kept.keys()}
    committed = {int(number) for number in said}
    assert committed <= killed
    assert len(killed - committed) <= 1  # it was committed, and not said any more
    assert {name: whole[name] for name in whole.keys() - kept.keys()} == expected(*killed)


_KILLED = """
import os, signal, sys
import psycopg
from ctsan.search import postgres_writer
from ctsan.search.postgres_address import PostgresAddress
from search.test_stores import add, record, writing

url, name, moment = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

Writer = postgres_writer.PostgresWriter
if moment == "creating":  # the tables are there, and not committed
    psycopg.Cursor.executemany = die
if moment == "shots":  # the content is there, its shots are not
    Writer._insert_shots = die
if moment == "file":  # all is there, and not committed
    link = Writer._link
    Writer._link = lambda *given: (link(*given), die())
def commit(library, write):
    with library.connection.transaction() as cursor:
        write(cursor)
        die()

with writing(PostgresAddress(url, name)) as library:
    if moment == "dropping":
        Writer._commit = commit
        library.drop([record(0).path])
    add(library, 7)
"""


@pytest.mark.parametrize("moment", ["creating", "shots", "file", "dropping"])
def test_a_process_killed_in_a_transaction_leaves_nothing_and_holds_no_lock(
    place: PostgresAddress, moment: str
) -> None:
    if moment != "creating":
        with writing(place) as library:
            add(library, 0)
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    command = [sys.executable, "-c", _KILLED, place.url, place.name, moment]
    killed = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert killed.returncode == -signal.SIGKILL
    began = time.monotonic()
    with writing(place) as library:
        add(library, 0)
        add(library, 7)
    assert time.monotonic() - began < 10
    assert stored(place) == expected(0, 7)


def test_content_that_another_machine_removes_before_it_is_linked_is_said(
    place: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_host(monkeypatch, "attic")
    with writing(place) as attic:
        add(attic, 0)
        as_host(monkeypatch, "cellar")
        with writing(place) as cellar:
            assert cellar.has_content("digest 0", "reader 1")
            attic.drop([record(0).path])
            assert not cellar.link(record(0), "digest 0")
            assert cellar.files() == {}


def test_content_that_gets_a_file_while_it_is_dropped_stays(
    place: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other machine's file is not committed yet when the content is found to have none."""
    as_host(monkeypatch, "attic")
    with writing(place) as attic:
        add(attic, 0)
        with psycopg.connect(place.url) as other:
            other.execute(f'set search_path to "{place.schema}"')
            other.execute("select id from contents for key share")
            other.execute("insert into files select 'cellar', '/copy', 1, 1, id from contents")
            thread = Thread(target=attic.drop, args=([record(0).path],))
            thread.start()
            time.sleep(0.5)
            other.commit()
            thread.join(20)
        assert attic.files() == {}
        assert attic.has_content("digest 0")


# The index


@pytest.fixture
def large(place: PostgresAddress, monkeypatch: pytest.MonkeyPatch) -> PostgresAddress:
    """A library that is searched by its index: 600 shots, of which three show a cat."""
    monkeypatch.setattr("ctsan.search.ann_index.EXACT_UP_TO", 100)
    random = np.random.default_rng(0)
    with writing(place) as library:
        for number in range(3):
            words = [{"dog": 0.9} for _ in range(200)]
            words[50] = {"dog": 0.9, "cat": 0.8}
            add(
                library,
                number,
                200,
                vectors=random.normal(size=(200, DIM)).astype(np.float16),
                **concepts_to_candidates(words, WORDS),
            )
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f'analyze "{place.schema}".shots')
    return place


def test_the_index_finds_what_an_exhaustive_search_finds(
    large: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(1)
    common = 0
    with snapshot(large) as (_, shots):
        for _ in range(20):
            vector = random.normal(size=DIM).astype(np.float32)
            found = shots.nearest(vector, 10).tolist()
            with monkeypatch.context() as patch:
                patch.setattr("ctsan.search.ann_index.EXACT_UP_TO", 1000)
                exact = shots.nearest(vector, 10).tolist()
            common += len({*found} & {*exact})
    assert common >= 190


def test_a_rare_word_is_found_through_the_index(large: PostgresAddress) -> None:
    shows_cat = ConceptFilter((ShownWords(("cat",), 0.5),))
    with snapshot(large) as (_, shots):
        rare = shots.sample(10, shows_cat).tolist()
        assert len(rare) == 3
        found = shots.nearest(np.ones(DIM, np.float32), 100, shows_cat)
        assert sorted(found.tolist()) == rare
        others = shots.nearest(
            np.ones(DIM, np.float32), 100, ConceptFilter(hiding=(ShownWords(("cat",), 0.5),))
        )
        assert len(others) == 100
        assert not set(others.tolist()) & set(rare)


def test_the_statement_of_a_search_uses_the_index(large: PostgresAddress) -> None:
    with snapshot(large) as (_, shots):
        connection = shots._connection  # type: ignore[attr-defined]  # of PostgresShots
        shots.nearest(np.ones(DIM, np.float32), 10)
        [(setting,)] = connection.query("show hnsw.iterative_scan")
        connection.query("set local enable_seqscan = off")
        plan = connection.query(
            "explain select id from shots order by vector <#> %s::halfvec limit 10", ([0.5] * DIM,)
        )
    assert setting == "strict_order"
    assert "shots_by_vector" in str(plan)


# Servers and connections


@pytest.mark.parametrize("command", [["index", "."], ["search", "a dog"]])
def test_a_server_that_is_not_there_is_said_without_the_password(command: list[str]) -> None:
    url = "postgresql://me:s3cret@127.0.0.1:1/videos"
    result = CliRunner().invoke(group, [*command, "--store", url])
    assert isinstance(result.exception, StoreError)
    said = str(result.exception)
    assert said.startswith("postgresql://me@127.0.0.1:1/videos (library main): the server cannot be reached")
    assert "Check the address, the user and the password" in said
    result = CliRunner().invoke(group, command, env={"CTSAN_STORE": url})
    assert str(result.exception) == said
    assert "s3cret" not in said


def test_a_password_is_never_shown() -> None:
    address = PostgresAddress("postgresql://me:s3cret@db.example:5433/videos?password=s3cret", "main")
    for shown in (str(address), repr(address), store_option(address)):
        assert "s3cret" not in shown
    assert address.store == "postgresql://me@db.example:5433/videos"


@pytest.mark.parametrize(
    ("name", "store", "said"),
    [
        ("main", "postgresql://host:port/db", "this is no connection string"),
        ("x" * 60, "postgresql://host/db", "Use a shorter one"),
        ("../x", "postgresql://host/db", "cannot be the name of a library"),
    ],
)
def test_addresses_that_cannot_be_are_said(name: str, store: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        library_address(name, store)


def test_a_folder_is_a_folder(tmp_path: Path) -> None:
    assert library_address("main", tmp_path) == tmp_path / "main"
    assert library_address("main", str(tmp_path)) == tmp_path / "main"
    assert library_address("main", "postgresql") == Path("postgresql/main")


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    """A database of this test's own, without pgvector."""
    name = f"test_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield postgres_url.replace("/postgres?", f"/{name}?")
        connection.execute(f"drop database {name} with (force)")


def test_a_server_without_pgvector_is_said(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of an extension that is not installed, because this server has pgvector."""
    address = PostgresAddress(database, "main")
    execute = psycopg.Connection.execute

    def renamed(self: psycopg.Connection, query: str, *given: object, **named: object) -> object:
        return execute(self, query.replace("exists vector", "exists nowhere"), *given, **named)

    monkeypatch.setattr(psycopg.Connection, "execute", renamed)
    with pytest.raises(StoreError, match="the server has no pgvector. Install it there"), writing(address):
        pass
    monkeypatch.undo()
    assert not has_library(address)
    with writing(address) as library:  # and with it, all is well
        add(library, 0)


def test_a_role_that_may_not_switch_pgvector_on_is_told_whom_to_ask(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("drop role if exists guest")
        connection.execute("create role guest login")
    guest = PostgresAddress(database.replace("postgres@", "guest@"), "main")
    with pytest.raises(StoreError, match="Ask who runs the server .*CREATE EXTENSION vector"), writing(guest):
        pass
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create extension vector")
    with (
        pytest.raises(StoreError, match="permission denied for database.*Use a role that may"),
        writing(guest),
    ):
        pass
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("drop role guest")


@pytest.mark.parametrize(("version", "is_usable"), [("0.5.1", False), ("0.7.4", True), ("0.8.5", True)])
def test_a_pgvector_that_is_too_old_is_said(database: str, version: str, is_usable: bool) -> None:
    address = PostgresAddress(database, "main")
    with writing(address) as library:
        add(library, 0)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update pg_extension set extversion = %s where extname = 'vector'", (version,))
    if is_usable:  # without an iterative scan before 0.8
        assert stored(address) == expected(0)
        with closing(PostgresLibrary(address)) as library:
            assert library.connection.has_iterative_scan == (version == "0.8.5")
        return
    with pytest.raises(
        StoreError, match="it has pgvector 0.5.1, and 0.7 or later is needed. Install a newer"
    ):
        open_library(address)


def test_a_pgvector_in_a_schema_of_its_own_is_used(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create schema extensions")
        connection.execute("create extension vector schema extensions")
    address = PostgresAddress(database, "main")
    with writing(address) as library:
        add(library, 0)
    assert stored(address) == expected(0)


def test_a_library_of_another_version_is_left_alone(place: PostgresAddress) -> None:
    with writing(place) as library:
        add(library, 0)
    with psycopg.connect(place.url) as connection:
        connection.execute(f"update \"{place.schema}\".about set value = '2' where name = 'version'")
    with pytest.raises(StoreError, match="the library has version 2, and this ctsan reads version 1"):
        open_library(place)


@pytest.mark.parametrize(
    ("name", "value"),
    [("runs", "{}"), ("runs", "[1]"), ("words", "null"), ("words", "no JSON"), ("dim", "x")],
)
def test_records_of_a_wrong_type_are_damage(place: PostgresAddress, name: str, value: str) -> None:
    with writing(place) as library:
        add(library, 0)
    with psycopg.connect(place.url) as connection:
        connection.execute(f'update "{place.schema}".about set value = %s where name = %s', (value, name))
    said = f'it is damaged.*DROP SCHEMA "{place.schema}" CASCADE'
    with pytest.raises(StoreError, match=said), snapshot(place) as (read, _):
        _ = read.runs, read.words


def test_missing_tables_are_damage(place: PostgresAddress) -> None:
    with writing(place) as library:
        add(library, 0)
    with psycopg.connect(place.url) as connection:
        connection.execute(f'drop table "{place.schema}".shots cascade')
    with pytest.raises(StoreError, match="it is damaged .relation .shots. does not exist"):
        stored(place)


def cut_connections(place: PostgresAddress) -> None:
    """As a restart of the server, or a cable that was pulled."""
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'ctsan'"
        )


def test_a_connection_that_is_lost_while_writing_is_said_and_nothing_is_half_written(
    place: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ctsan.search.postgres_writer import PostgresWriter

    link = PostgresWriter._link

    def cut(*given: object) -> None:
        cut_connections(place)
        link(*given)  # type: ignore[arg-type]  # passed on

    with writing(place) as library:
        add(library, 0)
        with monkeypatch.context() as patch:
            patch.setattr(PostgresWriter, "_link", cut)
            with pytest.raises(StoreError, match="the connection was lost.*run the same command again"):
                add(library, 1)
        add(library, 2)  # with a new connection
    assert stored(place) == expected(0, 2)


def test_a_reader_connects_again(place: PostgresAddress) -> None:
    with writing(place) as library:
        add(library, 0)
    with closing(open_library(place)) as library:
        for _ in range(2):
            library.begin_snapshot()
            assert len(library.shots(DIM, None)) == 2
            library.end_snapshot()
            cut_connections(place)
        library.begin_snapshot()
        cut_connections(place)
        with pytest.raises(StoreError, match="the connection was lost"):
            library.shots(DIM, None)
        library.end_snapshot()  # nothing to end
        library.begin_snapshot()
        assert len(library.shots(DIM, None)) == 2
        library.end_snapshot()


def test_a_silent_client_does_not_hold_its_locks_for_ever(place: PostgresAddress) -> None:
    with writing(place), closing(Connection(place)) as connection:
        [(seconds,)] = connection.query("show idle_in_transaction_session_timeout")
    assert seconds == "1min"


def test_details_and_arrays_are_what_was_given(place: PostgresAddress) -> None:
    """A vector is stored in half precision, as in a folder: no number changes."""
    with writing(place) as library:
        library.add(record(0), "digest 0", [Shot(0.0, 1.0)], arrays_of(1, 0), details=details_of(1, 0))
    with snapshot(place) as (_, shots):
        vectors = shots.vectors(shots.sample(10))
    assert vectors.dtype == np.float16
    np.testing.assert_array_equal(vectors, arrays_of(1, 0)["vectors"])
