"""Java, which the official tokeniser and METEOR run on: found, checked, and never waited for without end."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ctsan.errors import CtsanError

HOW_TO_GET_JAVA = (
    "Install it (Debian, Ubuntu: apt install default-jre-headless; macOS: brew install openjdk; Windows: "
    "winget install EclipseAdoptium.Temurin.21.JRE; conda: conda install openjdk), or let JAVA_HOME name its "
    "folder."
)

_CHECK_SECONDS = 60


class JavaError(CtsanError):
    """A program for Java failed or took too long."""


def find_java() -> Path | None:
    """A Java that runs: the one of JAVA_HOME where that is set, else the one on the path, else none.

    It is run, for on some systems `java` is there only to say that Java is not.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if found is None:
        return None
    java = Path(found).absolute()
    try:
        checked = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CHECK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return java if checked.returncode == 0 else None


def run_java(
    java: Path, arguments: Sequence[str], lines: Sequence[str], *, folder: Path, seconds: float
) -> list[str]:
    """A program's answers to lines, one each.

    It gets all of them at once, so that neither side can wait for the other; it is killed when its time is
    up or this process is interrupted, and ends by itself, having no more input, when this process ends.

    Args:
        lines: without line breaks.
        folder: where the program's files are; arguments name them from there, for Java programs find their
            own badly under paths with spaces.

    Raises:
        JavaError: it failed, took more than `seconds`, or did not answer each line.
    """
    what = " ".join(arguments)
    try:
        done = subprocess.run(
            [java, "-Dfile.encoding=UTF-8", *arguments],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C.UTF-8"},  # by which Java reads names of files
            input="".join(f"{line}\n" for line in lines).encode("utf-8", "replace"),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JavaError(
            f"{java} {what}: no end after {seconds:.0f} s. Try when the machine is less busy."
        ) from error
    except OSError as error:
        raise JavaError(f"{java} {what}: {error.strerror}. {HOW_TO_GET_JAVA}") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        raise JavaError(f"{java} {what}: failed with {done.returncode}: {said[0]}. {HOW_TO_GET_JAVA}")
    answers = done.stdout.decode("utf-8", "replace").split("\n")[:-1]
    if len(answers) != len(lines):
        raise JavaError(
            f"{java} {what}: {len(answers)} answers to {len(lines)} lines. Install pycocoevalcap anew."
        )
    return answers
