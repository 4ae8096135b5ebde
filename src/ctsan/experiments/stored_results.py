"""Read stored answers and statistics of runs: `test.json` of a run, and the answers of an ensemble."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ctsan.errors import RunError, abridged
from ctsan.experiments.systems import ALL
from ctsan.io.fields import typed_field, whole_field
from ctsan.io.reading import DamagedFileError, read_json_object

# What each answer to an item holds, by task; a description is a string.
_FIELDS: Mapping[str, Mapping[str, type]] = {
    "fill": {"answer": str, "right": str},
    "choose": {"choice": int, "right": int},
    "rank": {"rank": int},
}

_MAX_BYTES = 256 << 20  # answers about all test clips, with scores


def read_result(file: Path, clips: Collection[str]) -> dict[str, Any]:
    """The result of a run.

    Args:
        clips: ids of the test clips, of which alone there are answers.

    Raises:
        RunError: the file is missing or damaged.
    """
    try:
        result = read_json_object(file, max_bytes=_MAX_BYTES)
        typed_field(result, "settings", dict)
        for name in ("steps", "best_step", "parameters"):
            whole_field(result, name)
        if not _is_number(result.get("seconds_per_step")):
            raise DamagedFileError("its 'seconds_per_step' is not a number")
        for task, answers in _object(result, "answers").items():
            _check_answers(task, answers, clips)
        for task, sources in _object(result, "reliance").items():
            if not isinstance(sources, dict):
                raise DamagedFileError(f"its 'reliance' in {abridged(task)} is not an object")
            for answers in sources.values():
                _check_answers(task, answers, clips)
        for name, rows in _object(result, "concepts").items():
            if not isinstance(rows, list) or not all(map(_is_pair, rows)):
                raise DamagedFileError(f"its 'concepts' in {abridged(name)} are not pairs of numbers")
    except DamagedFileError as error:
        raise _damage(file, error) from None
    return result


def read_answers(file: Path, task: str, clips: Collection[str]) -> tuple[object, Any]:
    """What the answers of an ensemble were made of, and the answers.

    Raises:
        RunError: the file is missing or damaged.
    """
    try:
        stored = read_json_object(file, max_bytes=_MAX_BYTES)
        answers = typed_field(stored, "answers", dict)
        _check_answers(task, answers, clips)
    except DamagedFileError as error:
        raise _damage(file, error) from None
    return stored.get("made_of"), answers


def _damage(file: Path, error: DamagedFileError) -> RunError:
    return RunError(f"{file}: it is damaged ({error}). Delete it, and it is made again.")


def _object(result: Mapping[str, Any], name: str) -> dict[str, Any]:
    return typed_field(result, name, dict) if name in result else {}


def _check_answers(task: str, answers: object, clips: Collection[str]) -> None:
    if task not in ALL or not isinstance(answers, dict):
        raise DamagedFileError(f"its answers in {abridged(task)} are not those of a task")
    for clip, answer in answers.items():
        if clip not in clips:
            raise DamagedFileError(f"it has answers of {abridged(clip)}, which is not a test clip")
        if task == "describe":
            is_whole = isinstance(answer, str)
        else:
            is_whole = isinstance(answer, list) and all(_is_item(row, _FIELDS[task]) for row in answer)
        if not is_whole:
            raise DamagedFileError(f"its answer in {task!r} for {abridged(clip)} is {abridged(answer)}")


def _is_item(row: object, kinds: Mapping[str, type]) -> bool:
    return isinstance(row, dict) and all(type(row.get(name)) is kind for name, kind in kinds.items())


def _is_pair(row: object) -> bool:
    return isinstance(row, list) and len(row) == 2 and all(map(_is_number, row))


def _is_number(value: object) -> bool:
    return type(value) is not bool and isinstance(value, int | float) and abs(value) < 1e15
