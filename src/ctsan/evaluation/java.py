"""Find and run Java, which the PTB tokeniser and METEOR need, always with a time limit."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ctsan.errors import CtsanError

HOW_TO_GET_JAVA = (
    "Install it (Debian, Ubuntu: apt install default-jre-headless; macOS: brew install openjdk; Windows: "
    "winget install EclipseAdoptium.Temurin.21.JRE; conda: conda install openjdk), or set JAVA_HOME to its "
    "folder."
)

_CHECK_SECONDS = 60


class JavaError(CtsanError):
    """A Java program failed or took too long."""


def find_java() -> Path | None:
    """The Java of JAVA_HOME if that is set, else the one on the PATH; None if there is none that runs.

    Starts it, because on some systems `java` is only a stub that says how to install Java.
    """
    home = os.environ.get("JAVA_HOME")
    executable = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if executable is None:
        return None
    java = Path(executable).absolute()
    try:
        process = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CHECK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return java if process.returncode == 0 else None


def run_java(
    java: Path, arguments: Sequence[str], lines: Sequence[str], *, folder: Path, seconds: float
) -> list[str]:
    """Run a Java program on input lines; returns its output lines, one per input line.

    The program gets all input at once, so that neither side waits for the other. It is killed when its time
    is up or this process is interrupted, and reaches the end of its input when this process ends.

    Args:
        lines: without line breaks.
        folder: the working directory, with the program's files. Arguments name them relative to it, because
            Java programs often fail to find their files under paths with spaces.

    Raises:
        JavaError: it failed, took more than `seconds`, or did not answer every line.
    """
    what = " ".join(arguments)
    try:
        process = subprocess.run(
            [java, "-Dfile.encoding=UTF-8", *arguments],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C.UTF-8"},  # the encoding of file names in Java
            input="".join(f"{line}\n" for line in lines).encode("utf-8", "replace"),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JavaError(
            f"{java} {what}: not finished after {seconds:.0f} s. Try again when the machine is less busy."
        ) from error
    except OSError as error:
        raise JavaError(f"{java} {what}: {error.strerror}. {HOW_TO_GET_JAVA}") from error
    if process.returncode != 0:
        messages = process.stderr.decode("utf-8", "replace").strip().splitlines() or ["no error message"]
        raise JavaError(f"{java} {what}: failed with {process.returncode}: {messages[0]}. {HOW_TO_GET_JAVA}")
    answers = process.stdout.decode("utf-8", "replace").split("\n")[:-1]
    if len(answers) != len(lines):
        raise JavaError(
            f"{java} {what}: {len(answers)} answers to {len(lines)} lines. Reinstall pycocoevalcap."
        )
    return answers
