"""Whatever is wrong with a file is a `DamagedFileError` that says what, and nothing else is raised."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ctsan.io import reading
from ctsan.io.arrays import check_finite, header_of, open_tensors, read_array
from ctsan.io.reading import DamagedFileError, check_regular, read_json, read_json_object


def read_tensors(path: Path) -> dict[str, object]:
    with open_tensors(path) as tensors:
        return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118  # it is no mapping


READERS: dict[str, Callable[[Path], object]] = {
    "regular": check_regular,
    "JSON": read_json,
    "array": read_array,
    "tensors": read_tensors,
}


def message_of(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(DamagedFileError) as caught:
        read(path)
    said = str(caught.value)
    assert "\n" not in said
    assert not said.endswith(".")  # the caller adds place and remedy
    return said


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_what_is_no_file_is_told_apart(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # reading it would wait forever
    (tmp_path / "zero").symlink_to("/dev/zero")  # reading it would take all memory
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert message_of(read, tmp_path / "none") == "there is no such file"
    assert message_of(read, tmp_path / "gone") == "there is no such file"
    assert message_of(read, tmp_path) == "it is a folder"
    assert message_of(read, tmp_path / "pipe") == "it is not a regular file"
    assert message_of(read, tmp_path / "zero") == "it is not a regular file"
    assert message_of(read, tmp_path / "loop").startswith("it cannot be read (")
    assert message_of(read, tmp_path / "null\0byte").startswith("it cannot be read (")
    assert message_of(read, tmp_path / ("x" * 300)).startswith("it cannot be read (File name too long")


def test_a_file_that_may_not_be_read_is_named_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    file.write_text("{}", encoding="utf-8")

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)  # the tests may run as root
    assert message_of(read_json, file) == "it cannot be read (Permission denied)"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is not JSON (Expecting value"),
        (b'{"a": ', "it is not JSON (Expecting value"),
        (b"[" * 100_000, "it is not JSON of ours: it is nested too deeply"),
        (b'{"a":' * 100_000, "it is not JSON of ours: it is nested too deeply"),
        (b"1" * 5_000, "it is not JSON (Exceeds the limit"),
        (b'"\xff"', "it is not UTF-8 text"),
        ('{"a": 1}'.encode("utf-16"), "it is not UTF-8 text"),
        (b"\0" * 10, "it is not JSON ("),
    ],
)
def test_what_is_no_json_is_said(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    assert message_of(read_json, file).startswith(said)


def test_json_is_read_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    value = {"words": ["café", None, 1.5, True]}
    file = tmp_path / "a.json"
    for mark in (b"", b"\xef\xbb\xbf"):
        file.write_bytes(mark + json.dumps(value, ensure_ascii=False).encode())
        assert read_json(file) == value
        assert read_json_object(file) == value


@pytest.mark.parametrize("text", ["[]", "null", "3", '"a"'])
def test_a_json_value_that_is_no_object_is_refused_where_one_is_needed(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(text, encoding="utf-8")
    read_json(file)
    assert "where an object should be" in message_of(read_json_object, file)


def test_json_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    with file.open("wb") as stream:
        stream.truncate(3 << 20)  # holes take no space
    monkeypatch.setattr(reading, "MAX_JSON_BYTES", 2 << 20)
    assert message_of(read_json, file) == "it is larger than 2 MB"


def saved(array: object, **options: bool) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)  # type: ignore[arg-type]
    return stream.getvalue()


def zipped() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(3))
    return stream.getvalue()


def header_only(text: str) -> bytes:
    body = text.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


PLAIN = saved(np.ones((4, 8), np.float32))
ARRAYS = {
    "empty": (b"", "it is not a .npy array"),
    "text": (b"1 2 3\n", "it is not a .npy array"),
    "a zip named .npy": (zipped(), "it is not a .npy array"),
    "a pickle named .npy": (pickle.dumps([1]), "it is not a .npy array"),
    "cut in the numbers": (PLAIN[:-7], "it is not a whole .npy array ("),
    "cut in the header": (PLAIN[:40], "it is not a whole .npy array ("),
    "cut after the magic": (PLAIN[:6], "it is not a whole .npy array ("),
    "no numbers": (PLAIN[:128], "it is not a whole .npy array ("),
    "another version": (PLAIN.replace(b"NUMPY\x01", b"NUMPY\x09"), "it is not a whole .npy array ("),
    "header is no Python": (header_only("{'descr': '<f4', ("), "it is not a whole .npy array ("),
    "header nested deeply": (header_only("(" * 5000), "it is not a whole .npy array ("),
    "header without a shape": (header_only("{'descr': '<f4'}"), "it is not a whole .npy array ("),
    "shape too large": (
        header_only("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999, 9999999)}"),
        "it is not a whole .npy array (",
    ),
    "negative shape": (
        header_only("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 8)}") + bytes(128),
        "it is not a whole .npy array (",
    ),
    "objects": (saved(np.array([{}, None], object), allow_pickle=True), "it is not a whole .npy array ("),
    "records": (saved(np.zeros(3, [("a", "f4"), ("b", "i4")])), "it is not an array of numbers"),
}


@pytest.mark.parametrize(("content", "said"), ARRAYS.values(), ids=ARRAYS)
def test_what_is_no_array_is_said(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(content)
    assert message_of(read_array, file).startswith(said)


def test_a_pickle_in_an_array_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
            return Path.touch, (tmp_path / "was run",)

    (tmp_path / "a.npy").write_bytes(saved(np.array([Evil()], object), allow_pickle=True))
    message_of(read_array, tmp_path / "a.npy")
    assert not (tmp_path / "was run").exists()


def test_an_array_is_read_without_a_copy(tmp_path: Path) -> None:
    array = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    read = read_array(tmp_path / "a.npy")
    assert np.array_equal(read, array)
    assert isinstance(read, np.memmap)


def test_tensors_are_read_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    numbers = np.arange(6, dtype=np.float32)
    save_file({"numbers": numbers}, file, metadata={"ctsan": '{"format": "x"}'})
    whole = file.read_bytes()
    with open_tensors(file) as tensors:
        assert np.array_equal(tensors.get_tensor("numbers"), numbers)
        assert header_of(tensors) == {"format": "x"}
    huge = (1 << 60).to_bytes(8, "little")
    for content in (b"", whole[:4], whole[:-1], whole[: len(whole) // 2], whole + b"x", huge + whole[8:]):
        file.write_bytes(content)
        assert message_of(read_tensors, file).startswith("it is not a whole safetensors file (")
    file.write_bytes(whole)
    with pytest.raises(DamagedFileError, match="not a whole safetensors file"), open_tensors(file) as tensors:
        tensors.get_tensor("letters")


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "1" * 5_000, "[]", "null"])
def test_a_header_that_is_no_object_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save_file({"numbers": np.zeros(1)}, file, metadata={"ctsan": text})
    with open_tensors(file) as tensors, pytest.raises(DamagedFileError, match="its header is not"):
        header_of(tensors)


def test_errors_of_the_caller_pass_through_open_tensors(tmp_path: Path) -> None:
    save_file({"numbers": np.zeros(1)}, tmp_path / "a.safetensors")
    with pytest.raises(ZeroDivisionError), open_tensors(tmp_path / "a.safetensors"):
        _ = 1 / 0
    with pytest.raises(DamagedFileError, match="^as it is$"), open_tensors(tmp_path / "a.safetensors"):
        raise DamagedFileError("as it is")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_number_that_is_not_finite_is_noticed(value: float, dtype: type[np.floating]) -> None:
    array = np.zeros((3, 5), dtype)
    check_finite(array)
    array[2, 4] = value
    with pytest.raises(DamagedFileError, match="infinite or no number"):
        check_finite(array)
    check_finite(np.zeros(3, np.int64))


def test_a_large_array_is_opened_in_little_memory(tmp_path: Path) -> None:
    """A header may promise more than there is memory; a file with holes keeps the promise."""
    with (tmp_path / "a.npy").open("wb") as stream:
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1073741824,)}"
        stream.write(header_only(f"{header:<117}\n"))
        stream.truncate(stream.tell() + (4 << 30))
    program = (
        "import resource, sys; from pathlib import Path; from ctsan.io.arrays import read_array; "
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30)); "
        "print(read_array(Path(sys.argv[1])).shape)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.npy")], capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.stderr) == ("(1073741824,)\n", "")


def test_archives_stay_what_they_are() -> None:
    """`zipped` is what `np.load` would open as an archive, whatever its name."""
    assert zipfile.is_zipfile(io.BytesIO(zipped()))
