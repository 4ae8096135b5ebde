"""The real `ctsan` command: in a process of its own, with warnings as errors, or in this one."""

from __future__ import annotations

import subprocess
import sys

from ctsan.cli import group


def ctsan(*arguments: object, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "ctsan", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == exit_code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result


def ctsan_here(*arguments: object) -> None:
    """The same in this process, which saves the seconds of importing torch; errors are raised."""
    group.main([str(argument) for argument in arguments], standalone_mode=False)
