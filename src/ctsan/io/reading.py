"""Read JSON files that ctsan wrote. Whatever is wrong with one is a `DamagedFileError` that says what.

Callers add the place and the remedy. No reader runs code from a file or follows a link to a device. A value
takes up to thirty times the memory of its JSON, so files are limited. Arrays are read by `ctsan.io.arrays`,
which needs NumPy.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

MAX_JSON_BYTES = 16 << 20  # a vocabulary of a million words


class DamagedFileError(ValueError):
    """A file is missing, or is not what it should be. The message is a clause without an end."""


def check_regular(path: Path) -> None:
    """Check that a path is a file, and no folder, device or pipe.

    Raises:
        DamagedFileError: it is not, or is missing.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise DamagedFileError("there is no such file") from None
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"it cannot be read ({reason_of(error)})") from error
    if not stat.S_ISREG(mode):
        raise DamagedFileError("it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file")


def read_json(path: Path, *, max_bytes: int | None = None) -> Any:
    """The value of a JSON file.

    Args:
        max_bytes: by default `MAX_JSON_BYTES`.

    Raises:
        DamagedFileError: it is missing, too large, or no JSON.
    """
    check_regular(path)
    limit = MAX_JSON_BYTES if max_bytes is None else max_bytes
    if path.stat().st_size > limit:
        raise DamagedFileError(f"it is larger than {limit >> 20:,} MB")
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))  # an editor may have added a mark
    except OSError as error:
        raise DamagedFileError(f"it cannot be read ({reason_of(error)})") from error
    except RecursionError:
        raise DamagedFileError("it is not JSON of ours: it is nested too deeply") from None
    except UnicodeDecodeError:
        raise DamagedFileError("it is not UTF-8 text") from None
    except (ValueError, MemoryError) as error:  # no JSON, or a number of too many digits
        raise DamagedFileError(f"it is not JSON ({reason_of(error)})") from error


def read_json_object(path: Path, *, max_bytes: int | None = None) -> dict[str, Any]:
    """The same, of a file that holds an object.

    Raises:
        DamagedFileError: it is missing, too large, no JSON, or holds another value.
    """
    value = read_json(path, max_bytes=max_bytes)
    if not isinstance(value, dict):
        raise DamagedFileError(f"it holds a {type(value).__name__} where an object should be")
    return value


def is_text(head: bytes) -> bool:
    """Whether the first bytes of a file are printable UTF-8; the last character may be cut off."""
    try:
        text = head.decode("utf-8", errors="strict")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return False
        text = head[: error.start].decode("utf-8")
    return bool(text) and all(character.isprintable() or character in "\r\n\t\f" for character in text)


def reason_of(error: BaseException) -> str:
    """What an exception says, on one line of at most 200 characters."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join((text or type(error).__name__).split())[:200]
