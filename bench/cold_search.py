"""CPU time of `ctsan search` from a cold start, and of importing the same modules alone.

    python bench/cold_search.py "a dog runs on grass" --store STORE --library main

Both run in new processes, alternately, and both have the files in the page cache. The query prints the names
of the modules that it has imported; the other process imports these, in the same order, and ends.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

_QUERY = """
import atexit, os, sys
atexit.register(lambda: open(os.environ["CTSAN_BENCH_MODULES"], "w").write("\\n".join(sys.modules)))
sys.argv[0] = "ctsan"
from ctsan.cli import main
main()
"""
_IMPORTS = """
import atexit, gc, importlib, os
gc.set_threshold(50_000)  # as `ctsan` does
atexit.register(gc.freeze)
for name in open(os.environ["CTSAN_BENCH_MODULES"]).read().split("\\n"):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("query")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--library", default="main")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    arguments = ["search", options.query, "--store", str(options.store), "--library", options.library]
    queries, imports = [], []
    with tempfile.TemporaryDirectory() as folder:
        modules = Path(folder) / "modules.txt"
        _cpu_seconds(_QUERY, arguments, modules)  # fills the page cache, writes the list
        count = len(modules.read_text(encoding="utf-8").split("\n"))
        for _ in range(options.times):
            queries.append(_cpu_seconds(_QUERY, arguments, modules))
            imports.append(_cpu_seconds(_IMPORTS, [], modules))
    query, alone = min(queries), min(imports)  # other work on the machine only adds
    print(f"query {query:.2f} s, its {count:,} modules alone {alone:.2f} s: {query / alone:.2f} times")


def _cpu_seconds(program: str, arguments: list[str], modules: Path) -> float:
    """User and system time of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"CTSAN_BENCH_MODULES": str(modules), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, *arguments]
    ended = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    if ended.returncode not in (0, 1):  # 1: nothing matches
        raise SystemExit(f"the command failed with exit code {ended.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
