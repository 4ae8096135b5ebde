"""Options and fixtures of tests that learn (see margins.py), and which tests `make quick` leaves out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from margins import Margins, Start, margin_table, read_margins

if TYPE_CHECKING:
    from ctsan.search.postgres_address import PostgresAddress


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("learning", "tests that learn")
    group.addoption("--seeds", type=int, default=1, help="train each from so many seeds")
    group.addoption(
        "--jitter", type=float, default=0.0, help="train each with such noise on features as well"
    )
    group.addoption(
        "--margins", type=Path, help="keep margins in this file, print them, run no test that passed there"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    seeds, jitter = (metafunc.config.getoption(name) for name in ("--seeds", "--jitter"))
    if "start" in metafunc.fixturenames and (seeds > 1 or jitter):
        starts = [Start(seed, noise) for noise in sorted({0.0, jitter}) for seed in range(seeds)]
        metafunc.parametrize("start", starts, ids=str, indirect=True, scope="session")


@pytest.fixture(scope="session")
def start(request: pytest.FixtureRequest) -> Start:
    found: Start = getattr(request, "param", Start())
    return found


@pytest.fixture
def margins(request: pytest.FixtureRequest, start: Start) -> Iterator[Margins]:
    found = Margins(start)
    yield found
    if file := request.config.getoption("--margins"):
        found.write(file, request.node.nodeid)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The connection string of a PostgreSQL with pgvector, one for all tests."""
    pytest.importorskip("psycopg")
    from postgres import NoServerError, running_server

    with running_server() as url_or_reason:
        if isinstance(url_or_reason, NoServerError):
            pytest.skip(f"no PostgreSQL: {url_or_reason}")
        yield url_or_reason


@pytest.fixture
def postgres_place(postgres_url: str) -> Iterator[PostgresAddress]:
    """A library of this test's own, which is not made yet: a schema."""
    import psycopg

    from ctsan.search.postgres_address import PostgresAddress

    address = PostgresAddress(postgres_url, f"test-{uuid.uuid4().hex[:12]}")
    yield address
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'drop schema if exists "{address.schema}" cascade')


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "margins" in getattr(item, "fixturenames", ()):
            item.add_marker("learns")
        if item.nodeid.startswith(("tests/e2e/", "tests/web/")):
            item.add_marker("slow")
    if file := config.getoption("--margins"):
        margins = read_margins(file)
        done = {each.test for each in margins} - {each.test for each in margins if each.margin <= 0}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
        items[:] = [item for item in items if item.nodeid not in done]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.getoption("--margins") and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # all have passed already


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if file := config.getoption("--margins"):
        terminalreporter.section("margins of what was learnt")
        terminalreporter.write_line(margin_table(read_margins(file)))
