"""Check the fields of JSON objects that ctsan wrote. Faults are a `DamagedFileError`, as in `reading`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ctsan.errors import abridged
from ctsan.io.reading import DamagedFileError

T = TypeVar("T")

_NAMES: Mapping[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


class OtherFormatError(DamagedFileError):
    """A file has another format or version than this ctsan reads."""


def check_format(fields: Mapping[str, Any], kind: str, version: int) -> None:
    """Check that an object declares a format and a version.

    Raises:
        OtherFormatError: it declares others.
        DamagedFileError: it has a format, and no version.
    """
    if fields.get("format") != kind:
        raise OtherFormatError(f"its format is {abridged(fields.get('format', 'unknown'))}, not {kind!r}")
    if whole_field(fields, "version") != version:
        what = f"its version is {fields['version']}, and this ctsan reads version {version}"
        raise OtherFormatError(what)


def typed_field(fields: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A field of an exact type: true is no whole number, and a whole number no string.

    Raises:
        DamagedFileError: the field is missing or of another type.
    """
    if name not in fields:
        raise DamagedFileError(f"it has no {name!r}")
    value = fields[name]
    if type(value) is not kind:
        raise DamagedFileError(f"its {name!r} is {abridged(value)}, not {_NAMES[kind]}")
    return value


def whole_field(fields: Mapping[str, Any], name: str, *, least: int = 0, most: int = 2**53) -> int:
    """A whole number within limits.

    Raises:
        DamagedFileError: the field is missing, no whole number, or beyond a limit.
    """
    value = typed_field(fields, name, int)
    if not least <= value <= most:
        raise DamagedFileError(f"its {name!r} is {abridged(value)}, not from {least:,} to {most:,}")
    return value
