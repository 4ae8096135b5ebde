"""Files and folders appear complete or not at all; a full disk is one message with path and remedy."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ctsan.errors import StorageError
from ctsan.io import atomic
from ctsan.io.atomic import (
    UNFINISHED,
    make_folder,
    replacing,
    replacing_folder,
    storage_errors,
    sync,
    write_json,
)


def files_in(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def stop_after(_: object) -> None:
    raise ZeroDivisionError


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.txt"
    with replacing(file) as temporary:
        temporary.write_text("one", encoding="utf-8")
        assert not file.exists()
    with pytest.raises(ZeroDivisionError), replacing(file) as temporary:
        stop_after(temporary.write_text("half", encoding="utf-8"))
    assert files_in(tmp_path) == {"new/a.txt": "one"}


def test_nothing_is_written_through_a_link_with_the_temporary_name(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine", encoding="utf-8")
    (tmp_path / ".a.txt.tmp").symlink_to(victim)
    with replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("new", encoding="utf-8")
    assert files_in(tmp_path) == {"a.txt": "new", "victim": "mine"}
    assert not (tmp_path / "a.txt").is_symlink()


def test_what_a_killed_process_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / ".a.txt.tmp").write_text("left", encoding="utf-8")
    with replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("one", encoding="utf-8")
    assert files_in(tmp_path) == {"a.txt": "one"}


def test_a_file_is_on_the_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    names: dict[int, str] = {}
    opens, syncs, renames = os.open, os.fsync, Path.replace

    def record_open(path: Path, flags: int) -> int:
        descriptor = opens(path, flags)
        names[descriptor] = Path(path).name
        return descriptor

    def record_sync(descriptor: int) -> None:
        syncs(descriptor)
        done.append(f"sync {names[descriptor]}")

    def record_rename(path: Path, target: Path) -> Path:
        done.append(f"rename to {target.name}")
        return renames(path, target)

    monkeypatch.setattr(os, "open", record_open)
    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(Path, "replace", record_rename)
    with replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("one", encoding="utf-8")
    assert done == ["sync .a.txt.tmp", "rename to a.txt", f"sync {tmp_path.name}"]
    done.clear()
    with replacing_folder(tmp_path / "pack") as folder:
        (folder / "b.txt").write_text("two", encoding="utf-8")
    assert done == ["sync b.txt", "sync .pack.tmp", "rename to pack", f"sync {tmp_path.name}"]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "Free some space on this disk"),
        (errno.EDQUOT, "Free some of your quota"),
        (errno.EFBIG, "Write to a file system that takes larger files"),
        (errno.EROFS, "Name a folder on a disk that can be written to"),
        (errno.EACCES, "Name a folder that you may write to"),
        (errno.EPERM, "Name a folder that you may write to"),
    ],
)
def test_storage_errors_say_where_what_and_the_remedy(code: int, remedy: str) -> None:
    with pytest.raises(StorageError) as caught, storage_errors(Path("run/weights")):
        raise OSError(code, os.strerror(code))
    assert str(caught.value).startswith(f"run/weights: {os.strerror(code)}. {remedy}")


def test_other_errors_pass() -> None:
    with pytest.raises(FileNotFoundError), storage_errors(Path("a")):
        raise FileNotFoundError(errno.ENOENT, "No such file")
    with pytest.raises(ValueError, match="b"), storage_errors(Path("a")):
        raise ValueError("b")


@pytest.mark.parametrize("moment", ["write_bytes", "fsync", "replace", "mkdir"])
def test_a_disk_that_fills_up_leaves_what_was_there(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"old": 1})

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os if moment == "fsync" else Path, moment, full)
        with pytest.raises(StorageError, match=f"^{file}: No space left on device. Free some space"):
            write_json(file, {"new": 2})
    assert files_in(tmp_path) == {"a.json": '{\n "old": 1\n}\n'}


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EBADF, errno.ENOTSUP])
def test_a_file_system_without_sync_is_written_to_all_the_same(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    write_json(tmp_path / "a.json", {"a": 1})
    assert (tmp_path / "a.json").exists()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"):
        sync(tmp_path)


def test_json_keeps_names_that_are_not_utf8(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"café": "\udcff"})
    assert "caf\\u00e9" in (tmp_path / "a.json").read_text(encoding="utf-8")
    write_json(tmp_path / "a.json", {"café": 1})
    assert "café" in (tmp_path / "a.json").read_text(encoding="utf-8")


def fill(folder: Path, word: str) -> Path:
    (folder / "sub").mkdir()
    for name in ("a.txt", "sub/b.txt"):
        (folder / name).write_text(word, encoding="utf-8")
    return folder


def test_a_new_folder_appears_as_a_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "pack"
    with pytest.raises(ZeroDivisionError), replacing_folder(out) as folder:
        stop_after(fill(folder, "half"))
    assert not out.exists()
    with replacing_folder(out) as folder:
        fill(folder, "one")
        assert not out.exists()
    assert files_in(tmp_path) == {"deep/pack/a.txt": "one", "deep/pack/sub/b.txt": "one"}
    assert [path.name for path in out.parent.iterdir()] == ["pack"]


def test_in_a_folder_that_is_there_files_are_replaced_and_others_stay(tmp_path: Path) -> None:
    """The folder itself is kept: it may be a mount point, or a link to another disk."""
    (tmp_path / "disk").mkdir()
    out = tmp_path / "link"
    out.symlink_to(tmp_path / "disk")
    (out / "own.txt").write_text("mine", encoding="utf-8")
    for word in ("one", "two"):
        with replacing_folder(out) as folder:
            fill(folder, word)
        assert files_in(out) == {"a.txt": word, "own.txt": "mine", "sub/b.txt": word}
    with pytest.raises(ZeroDivisionError), replacing_folder(out) as folder:
        stop_after(fill(folder, "half"))
    assert files_in(out) == {"a.txt": "two", "own.txt": "mine", "sub/b.txt": "two"}
    assert out.is_symlink()


@pytest.mark.parametrize("is_there", [False, True])
def test_what_a_killed_process_left_of_a_folder_is_removed(is_there: bool, tmp_path: Path) -> None:
    out = tmp_path / "pack"
    left = out / UNFINISHED if is_there else tmp_path / ".pack.tmp"
    left.mkdir(parents=True)
    (left / "old.txt").write_text("left", encoding="utf-8")
    with replacing_folder(out) as folder:
        fill(folder, "one")
    assert files_in(tmp_path) == {"pack/a.txt": "one", "pack/sub/b.txt": "one"}


@pytest.mark.parametrize("moment", ["write", "inner", "fsync", "replace"])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_disk_that_fills_up_leaves_no_part_of_a_folder(
    moment: str, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "pack"
    if is_there:
        out.mkdir()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pack() -> None:
        with replacing_folder(out) as folder:
            if moment == "inner":
                with monkeypatch.context() as patch:
                    patch.setattr(Path, "write_bytes", full)
                    write_json(folder / "sub" / "a.json", 1)
            fill(folder, "one")
            if moment == "write":
                full()
            if moment in ("fsync", "replace"):
                monkeypatch.setattr(os if moment == "fsync" else Path, moment, full)

    with pytest.raises(StorageError) as caught:
        pack()
    place = out / "sub" / "a.json" if moment == "inner" else out
    remedy = "Free some space on this disk and run the same command again."
    assert str(caught.value) == f"{place}: No space left on device. {remedy}"
    monkeypatch.undo()
    assert files_in(tmp_path) == {}
    assert out.exists() == is_there


PROGRAM = """
import resource, signal, sys
from pathlib import Path
from ctsan.errors import StorageError
from ctsan.io.atomic import replacing_folder, write_json
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
out = Path(sys.argv[1])
for write in (
    lambda: write_json(out / "a.json", "x" * 100_000),
    lambda: write_pack(),
):
    def write_pack():
        with replacing_folder(out / "pack") as folder:
            write_json(folder / "small.json", 1)
            write_json(folder / "large.json", "x" * 100_000)
    try:
        write()
    except StorageError as error:
        print(error)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit of file sizes here")
def test_a_limit_of_the_system_is_one_message(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    remedy = "File too large. Write to a file system that takes larger files."
    assert run.stdout == f"{tmp_path}/a.json: {remedy}\n{tmp_path}/pack/large.json: {remedy}\n", run.stderr
    assert files_in(tmp_path) == {}
    assert not list(tmp_path.iterdir())


def test_every_remedy_is_a_sentence() -> None:
    assert all(remedy.endswith(".") for remedy in atomic._REMEDIES.values())


def test_the_names_of_new_folders_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(atomic, "sync", synced.append)
    make_folder(tmp_path / "a" / "b" / "c")
    assert sorted(synced) == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    del synced[:]
    make_folder(tmp_path / "a" / "b" / "c")
    assert synced == []
