"""Fields of JSON objects have the type, the size and the version that they should have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ctsan.errors import abridged, did_you_mean
from ctsan.io.fields import OtherFormatError, check_format, typed_field, whole_field
from ctsan.io.reading import DamagedFileError


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "its format is 'unknown', not 'ctsan-x'"),
        ({"format": "ctsan-y", "version": 1}, "its format is 'ctsan-y', not 'ctsan-x'"),
        ({"format": ["ctsan-x"], "version": 1}, "its format is ['ctsan-x'], not 'ctsan-x'"),
        ({"format": "ctsan-x", "version": 3}, "its version is 3, and this ctsan reads version 1"),
    ],
)
def test_another_format_or_version_is_told_apart_from_damage(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(OtherFormatError) as caught:
        check_format(fields, "ctsan-x", 1)
    assert str(caught.value) == said


@pytest.mark.parametrize("version", [None, "1", 1.0, True, -1, [1], float("nan")])
def test_a_version_that_is_no_version_is_damage(version: object) -> None:
    check_format({"format": "ctsan-x", "version": 1}, "ctsan-x", 1)
    with pytest.raises(DamagedFileError, match="its 'version' is") as caught:
        check_format({"format": "ctsan-x", "version": version}, "ctsan-x", 1)
    assert not isinstance(caught.value, OtherFormatError)
    with pytest.raises(DamagedFileError, match="it has no 'version'"):
        check_format({"format": "ctsan-x"}, "ctsan-x", 1)


VALUES: dict[type, object] = {str: "a", bool: True, int: 1, float: 1.5, list: [1], dict: {"a": 1}}


@pytest.mark.parametrize("kind", VALUES)
def test_a_field_is_of_its_type_and_of_no_other(kind: type) -> None:
    for other, value in VALUES.items():
        if other is kind:
            assert typed_field({"a": value}, "a", kind) == value
        else:
            with pytest.raises(DamagedFileError, match="its 'a' is .*, not "):
                typed_field({"a": value}, "a", kind)
    with pytest.raises(DamagedFileError, match="it has no 'a'"):
        typed_field({}, "a", kind)


def test_a_whole_number_lies_within_its_limits() -> None:
    for value in (1, 7):
        assert whole_field({"a": value}, "a", least=1, most=7) == value
    for value in (0, 8, -(10**400), 10**400):
        with pytest.raises(DamagedFileError, match="not from 1 to 7"):
            whole_field({"a": value}, "a", least=1, most=7)


@pytest.mark.parametrize("value", ["x" * 10**6, [0] * 10**5, 10**4000, {"a": "b" * 300}])
def test_what_is_long_is_abridged(value: object) -> None:
    assert len(abridged(value)) <= 80
    assert abridged("a'b") == repr("a'b")


def test_what_cannot_be_printed_is_described() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert abridged(nested) == "a list that is too long to print"
    assert abridged(int("9" * 4000) ** 2) == "a int that is too long to print"  # 8,000 digits
    while nested:  # freed one by one: the interpreter would recurse
        nested = nested[0]


def test_no_suggestion_is_looked_for_in_a_word_as_long_as_a_file() -> None:
    assert did_you_mean("num_concept", ["num_concepts"]) == "Did you mean 'num_concepts'? "
    assert did_you_mean(json.dumps("x" * 10**6), ["x" * 10**6]) == ""
