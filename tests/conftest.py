"""Options and fixtures of tests that learn (see margins.py), and which tests `make quick` leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from margins import Margins, Start, margin_table, read_margins


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("learning", "tests that learn")
    group.addoption("--seeds", type=int, default=1, help="train each from so many seeds")
    group.addoption(
        "--jitter", type=float, default=0.0, help="train each with such noise on features as well"
    )
    group.addoption(
        "--margins", type=Path, help="keep margins in this file, print them, and run no test that it has"
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "margins" in getattr(item, "fixturenames", ()):
            item.add_marker("learns")
        if item.nodeid.startswith(("tests/e2e/", "tests/web/")):
            item.add_marker("slow")
    if file := config.getoption("--margins"):
        done = {margin.test for margin in read_margins(file)}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
        items[:] = [item for item in items if item.nodeid not in done]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if file := config.getoption("--margins"):
        terminalreporter.section("margins of what was learnt")
        terminalreporter.write_line(margin_table(read_margins(file)))
