"""The real `ctsan` command in a process of its own, with warnings as errors."""

from __future__ import annotations

import subprocess
import sys


def ctsan(*arguments: object, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "ctsan", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == exit_code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result
