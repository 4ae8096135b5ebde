"""How much does a bare clone install, and how long does `make demo` take?

    python bench/install.py [REV...] [--before REV] [--cache FOLDER]

Each revision is cloned, and `make install` and `make demo` run in it with nothing in the environment but a
new home and the settings of pip. Packages come from a warm cache: that of `--cache`, or else each revision is
installed twice, and the second time is measured. Without REV it is HEAD; `--before` is measured first, in the
same run. Changes that are not committed are not seen.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

_REPOSITORY = Path(__file__).resolve().parents[1]


class _Measured(NamedTuple):
    installed: int  # bytes of the environment
    packages: int
    install_seconds: float
    demo_seconds: float  # after the installation
    cached: int  # bytes that the demo leaves in the home


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*", default=["HEAD"], metavar="REV")
    parser.add_argument("--before", metavar="REV", help="measure this revision first")
    parser.add_argument("--cache", type=Path, help="of pip, which has all packages already")
    options = parser.parse_args()
    revisions = [*([options.before] if options.before else []), *options.revisions]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cache = options.cache.resolve() if options.cache else Path(folder, "cache")
        is_warm = options.cache is not None
        for number, revision in enumerate(revisions):
            work = Path(folder, str(number))
            if not is_warm:
                _measure(revision, work / "first", cache, runs_demo=False)  # fills the cache
                shutil.rmtree(work)
            result = _measure(revision, work / "second", cache, runs_demo=True)
            rows.append(
                (
                    f"{revision} ({_git('rev-parse', '--short', revision)})",
                    f"{result.installed / 1e6:,.0f} MB",
                    result.packages,
                    f"{result.install_seconds:.0f} s",
                    f"{result.demo_seconds:.0f} s",
                    f"{result.install_seconds + result.demo_seconds:.0f} s",
                    f"{result.cached / 1e6:,.0f} MB",
                )
            )
            shutil.rmtree(work)
    headers = ["revision", "installed", "packages", "make install", "the demo after it", "together", "cached"]
    print(tabulate(rows, headers, disable_numparse=True))


def _measure(revision: str, folder: Path, cache: Path, *, runs_demo: bool) -> _Measured:
    clone, home = folder / "clone", folder / "home"
    home.mkdir(parents=True)
    _git("clone", "--quiet", "--no-hardlinks", "--no-checkout", str(_REPOSITORY), str(clone))
    _git("-C", str(clone), "checkout", "--quiet", _git("rev-parse", revision))
    environment = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))},
        "PIP_CACHE_DIR": str(cache),
    }
    install_seconds = _make("install", clone, environment)
    demo_seconds = _make("demo", clone, environment) if runs_demo else 0.0
    packages = list((clone / ".venv").glob("lib/python*/site-packages/*.dist-info"))
    return _Measured(_bytes(clone / ".venv"), len(packages), install_seconds, demo_seconds, _bytes(home))


def _make(target: str, folder: Path, environment: dict[str, str]) -> float:
    start = time.perf_counter()
    result = subprocess.run(
        ["make", target],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise SystemExit(
            f"make {target} failed in {folder}:\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
        )
    return time.perf_counter() - start


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_REPOSITORY), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _bytes(folder: Path) -> int:
    return sum(Path(parent, name).lstat().st_size for parent, _, names in os.walk(folder) for name in names)


if __name__ == "__main__":
    main()
