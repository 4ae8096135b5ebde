"""Options and fixtures of tests that learn: see margins.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from margins import Margin, Margins, Start, margin_table


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("learning", "tests that learn")
    group.addoption("--seeds", type=int, default=1, help="train each from so many seeds, and print the margins")
    group.addoption("--jitter", type=float, default=0.0, help="train each with such noise on features as well")


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
def margins(request: pytest.FixtureRequest, start: Start) -> Margins:
    return Margins(request.node, start)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "margins" in getattr(item, "fixturenames", ()):
            item.add_marker("learns")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.getoption("--seeds") > 1 or terminalreporter.config.getoption("--jitter"):
        terminalreporter.section("margins of what was learnt")
        terminalreporter.write_line(margin_table(_margins(terminalreporter)))


def _margins(terminalreporter: pytest.TerminalReporter) -> Iterator[Margin]:
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in getattr(report, "user_properties", ()):
                if name == "margin":
                    yield Margin(*value)
