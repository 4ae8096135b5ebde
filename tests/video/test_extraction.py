"""The store: whole at every moment, the same bytes however often it was interrupted, nothing done twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from clip_making import counting, encode
from ctsan.errors import StoreError
from ctsan.video.backbones import find_backbone
from ctsan.video.extraction import Outcome, Report, extract_features
from ctsan.video.frames import MAX_FRAMES, Frames, sample_frames
from ctsan.video.imported import arrays_of, import_features
from ctsan.video.store import FeatureStore, clip_file

Clips = list[tuple[str, Path]]


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Clips:
    folder = tmp_path_factory.mktemp("clips")
    made = []
    for number in range(4):
        path = encode(folder / f"clip{number}.mp4", counting(12 + 10 * number))
        made.append((f"some/id {number}", path))
    return made


def extract(clips: Clips, folder: Path, **options: object) -> Report:
    return extract_features(clips, folder, backbone=find_backbone("efficientnet-lite0"), **options)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_every_clip_is_stored_and_can_be_read_at_random(clips: Clips, tmp_path: Path) -> None:
    report = extract(clips, tmp_path / "f")
    assert (report.done, report.kept, report.frames, report.unreadable) == (4, 0, 2 + 3 + 4 + 5, {})
    store = FeatureStore(tmp_path / "f")
    assert (store.grid, store.channels, len(store)) == ((4, 4), 1280, 4)
    features = store["some/id 2"]
    assert features.maps.shape == (4, 4, 4, 1280)
    assert features.maps.dtype == np.float16
    assert features.times is not None
    np.testing.assert_allclose(features.times, np.arange(4) * 10 / 24, atol=1e-3)
    assert features.mirrored is None
    assert list(store) == [clip for clip, _ in clips]


def test_bytes_do_not_depend_on_the_number_of_workers(clips: Clips, tmp_path: Path) -> None:
    extract(clips, tmp_path / "one", workers=1)
    extract(clips, tmp_path / "three", workers=3)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")


def test_nothing_is_done_twice_and_only_what_changed_is_done_again(clips: Clips, tmp_path: Path) -> None:
    own = [(clip, tmp_path / path.name) for clip, path in clips]
    for (_, path), (_, copy) in zip(clips, own, strict=True):
        copy.write_bytes(path.read_bytes())
    folder = tmp_path / "f"
    extract(own, folder)
    before = contents(folder)
    report = extract(own, folder)
    assert (report.done, report.kept) == (0, 4)
    assert contents(folder) == before

    os.utime(own[0][1])  # touched, but the same
    encode(own[1][1], counting(60))  # changed
    report = extract(own, folder)
    assert (report.done, report.kept) == (1, 3)
    assert len(FeatureStore(folder)[own[1][0]].maps) == 6

    added = [*own, ("new", clips[0][1])]
    assert extract(added, folder).done == 1
    clip_file(folder, "new").unlink()
    assert extract(added, folder).done == 1  # lost files are made again
    clip_file(folder, "new").write_bytes(b"damaged")
    os.utime(added[-1][1])
    assert extract(added, folder).done == 1


def test_an_unreadable_clip_stops_nothing_and_is_listed(clips: Clips, tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video " * 300)
    seen: list[Outcome] = []
    bad = [("text", tmp_path / "text.mp4"), ("gone", tmp_path / "gone.mp4")]
    report = extract([bad[0], *clips, bad[1]], tmp_path / "f", on_clip=seen.append)
    assert report.done == 4
    assert len(seen) == 6
    assert set(report.unreadable) == {"text", "gone"}
    store = FeatureStore(tmp_path / "f")
    assert "this is text, not a video" in store.manifest.unreadable["text"]
    assert "there is no such file" in store.manifest.unreadable["gone"]
    with pytest.raises(StoreError, match="no features of clip 'text': .*this is text, not a video"):
        store["text"]
    with pytest.raises(StoreError, match="it was not in the corpus"):
        store["other"]


def test_a_clip_that_cannot_even_be_looked_at_stops_nothing(clips: Clips, tmp_path: Path) -> None:
    (tmp_path / "loop.mp4").symlink_to(tmp_path / "loop.mp4")
    odd = [("long", tmp_path / ("n" * 300)), ("null", Path("a\0b.mp4")), ("loop", tmp_path / "loop.mp4")]
    odd.append(("caf\udce9.mp4", tmp_path / "caf\udce9.mp4"))  # a name that is not UTF-8
    report = extract([*odd, *clips], tmp_path / "f")
    assert report.done == 4
    assert set(report.unreadable) == {clip for clip, _ in odd}
    assert "File name too long" in report.unreadable["long"]
    assert FeatureStore(tmp_path / "f").manifest.unreadable == report.unreadable


@pytest.mark.timeout(60)
def test_a_file_that_does_not_open_is_not_hashed(clips: Clips, tmp_path: Path) -> None:
    sparse = tmp_path / "sparse.mp4"
    with sparse.open("wb") as file:
        file.truncate(100 << 30)
    log = tmp_path / "log.mp4"
    log.symlink_to("/proc/kmsg")
    report = extract([*clips, ("sparse", sparse), ("log", log)], tmp_path / "f")
    assert report.done == 4
    assert report.unreadable.keys() == {"sparse", "log"}
    assert "not a video or picture that FFmpeg can read" in report.unreadable["sparse"]
    assert "the file is empty (0 bytes)" in report.unreadable["log"]


def test_a_clip_that_changes_while_it_is_read_is_done_again(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ctsan.video.extraction as module

    path = tmp_path / "clip.mp4"
    path.write_bytes(clips[0][1].read_bytes())

    def then_change(path: Path, *, size: int) -> Frames:
        frames = sample_frames(path, size=size)
        path.write_bytes(clips[3][1].read_bytes())
        return frames

    monkeypatch.setattr(module, "sample_frames", then_change)
    extract([("clip", path)], tmp_path / "f")
    monkeypatch.setattr(module, "sample_frames", sample_frames)
    assert extract([("clip", path)], tmp_path / "f").done == 1
    assert len(FeatureStore(tmp_path / "f")["clip"].maps) == 5


def test_corpora_that_share_a_folder_keep_their_clips(clips: Clips, tmp_path: Path) -> None:
    extract(clips[:2], tmp_path / "f")
    extract(clips[2:], tmp_path / "f")
    assert set(FeatureStore(tmp_path / "f")) == {clip for clip, _ in clips}


def test_two_at_once_in_one_folder_are_refused(clips: Clips, tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with FileLock(tmp_path / "f" / ".lock"), pytest.raises(StoreError, match="another ctsan is filling"):
        extract(clips, tmp_path / "f")


def test_mirrored_maps_are_those_of_the_mirrored_frames(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8).repeat(4, 0).repeat(4, 1)
    from skimage.io import imsave

    imsave(tmp_path / "a.png", picture)
    imsave(tmp_path / "b.png", picture[:, ::-1])
    clips = [("a", tmp_path / "a.png"), ("b", tmp_path / "b.png")]
    extract(clips, tmp_path / "f", mirrored=True)
    store = FeatureStore(tmp_path / "f")
    a, b = store["a"], store["b"]
    assert a.mirrored is not None
    difference = np.abs(a.mirrored.astype(np.float32) - b.maps).mean()
    assert difference < 0.1 * np.abs(a.maps.astype(np.float32) - b.maps).mean()
    with pytest.raises(StoreError, match=r"made in another way \(with mirrored frames\). Give another --out"):
        extract(clips, tmp_path / "f")


def test_features_of_two_backbones_never_mix(clips: Clips, tmp_path: Path) -> None:
    extract(clips[:1], tmp_path / "f")
    with pytest.raises(StoreError, match=r"contains efficientnet-lite0 features .*lite1 is requested"):
        extract_features(clips[:1], tmp_path / "f", backbone=find_backbone("efficientnet-lite1"))


@pytest.mark.slow
def test_a_run_killed_at_any_moment_ends_with_the_same_bytes(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ctsan.video.extraction as module

    monkeypatch.setattr(module, "BLOCK", 7)
    many = [(f"{clip} {n}", path) for n in range(30) for clip, path in clips]
    extract(many, tmp_path / "whole")
    script = (
        "import sys, json; from pathlib import Path\n"
        "from ctsan.video.backbones import find_backbone\n"
        "import ctsan.video.extraction as module; from ctsan.video.extraction import extract_features\n"
        "module.BLOCK = 7\n"
        "clips = [(c, Path(p)) for c, p in json.loads(sys.argv[1])]\n"
        "extract_features(clips, Path(sys.argv[2]), backbone=find_backbone('efficientnet-lite0'),\n"
        "                 on_clip=lambda outcome: print(outcome.clip, flush=True))\n"
    )
    arguments = [
        sys.executable,
        "-c",
        script,
        json.dumps([(c, str(p)) for c, p in many]),
        str(tmp_path / "f"),
    ]
    for stop_after in (1, 20, 45):
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(stop_after):
                process.stdout.readline()
            process.kill()
    killed = contents(tmp_path / "f")
    assert 40 < len(killed) < len(many)
    report = extract(many, tmp_path / "f")
    assert report.kept >= 40
    assert contents(tmp_path / "f") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a manifest of features"),
        ('{"format": "other"}', "not a manifest of features"),
        ('{"format": "ctsan-features", "version": 2}', "not a manifest of features"),
        (
            '{"format": "ctsan-features", "version": 99}',
            "features of format version 99, this ctsan reads 1 to 2",
        ),
    ],
)
def test_a_foreign_manifest_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match=message):
        FeatureStore(tmp_path)
    with pytest.raises(StoreError, match="no features here. Make them with 'ctsan features"):
        FeatureStore(tmp_path / "none")


def test_arrays_of_others_with_and_without_a_grid(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays = tmp_path / "arrays"
    (arrays / "sub").mkdir(parents=True)
    flat = random.normal(size=(50, 8)).astype(np.float32)
    np.save(arrays / "sub/a.npy", flat)
    np.save(arrays / "b_00.01.02.345.npy", flat[:3])
    sources = arrays_of(["sub/a.mp4", "b_00.01.02.345", "c.mp4"], arrays)
    report = import_features(sources, tmp_path / "f", name="mine")
    assert report.done == 2
    assert "there is no such array" in report.unreadable["c.mp4"]
    store = FeatureStore(tmp_path / "f")
    assert (store.grid, store.channels) == ((1, 1), 8)
    kept = np.arange(MAX_FRAMES) * 50 // MAX_FRAMES  # evenly over all of it
    np.testing.assert_array_equal(store["sub/a.mp4"].maps[:, 0, 0], flat[kept].astype(np.float16))
    np.testing.assert_array_equal(store["b_00.01.02.345"].maps[:, 0, 0], flat[:3].astype(np.float16))
    assert store["sub/a.mp4"].times is None

    grid = random.normal(size=(3, 7, 7, 8)).astype(np.float32)
    np.save(arrays / "g.npy", grid)
    import_features(arrays_of(["g"], arrays), tmp_path / "g", name="mine", pool=True)
    pooled = FeatureStore(tmp_path / "g")["g"].maps
    assert pooled.shape == (3, 4, 4, 8)
    np.testing.assert_allclose(pooled[1, 3, 0], grid[1, 6, 0:2].max(axis=0), atol=2e-3)
    np.testing.assert_allclose(pooled[1, 1, 2], grid[1, 2:4, 4:6].max(axis=(0, 1)), atol=2e-3)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.zeros((3, 4, 8), dtype=np.float32),
            "an array of shape 3×4×8 and type float32. Save floating-point",
        ),
        (np.zeros((3, 8), dtype=np.int64), "an array of shape 3×8 and type int64"),
        (np.zeros((0, 8), dtype=np.float32), "an array of shape 0×8"),
        (np.full((3, 8), np.nan, dtype=np.float32), "contains NaN, or numbers beyond half precision"),
        (np.full((3, 8), 1e6, dtype=np.float32), "contains NaN, or numbers beyond half precision"),
        (
            np.zeros((3, 9), dtype=np.float32),
            "its maps are 1×1×9, those of the other clips 1×1×8. Export all",
        ),
        (np.array([{"a": 1}], dtype=object), "it is not a whole .npy array"),
    ],
)
def test_each_kind_of_bad_array_has_its_own_message(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "good.npy", np.zeros((3, 8), dtype=np.float32))
    np.save(tmp_path / "bad.npy", array, allow_pickle=True)
    report = import_features(arrays_of(["good", "bad"], tmp_path), tmp_path / "f", name="mine")
    assert report.done == 1
    assert message in report.unreadable["bad"]


def test_an_archive_is_no_array(tmp_path: Path) -> None:
    np.save(tmp_path / "good.npy", np.zeros((3, 8), dtype=np.float32))
    np.savez(tmp_path / "bad.npz", a=np.zeros((3, 8), dtype=np.float32))
    (tmp_path / "bad.npz").rename(tmp_path / "bad.npy")
    report = import_features(arrays_of(["good", "bad"], tmp_path), tmp_path / "f", name="mine")
    assert "it is not a .npy array. Save one array of numbers per clip" in report.unreadable["bad"]


def test_no_readable_array_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"no array")
    with pytest.raises(
        StoreError, match=r"None of the 2 arrays can be read. The first: .*a\.npy: it is not a \.npy array"
    ):
        import_features(arrays_of(["gone", "a"], tmp_path), tmp_path / "f", name="mine")
    with pytest.raises(StoreError, match="there is no such folder. Give the one that holds the .npy files"):
        arrays_of(["a"], tmp_path / "none")


def test_arrays_of_no_clip_name_what_is_expected_and_what_is_there(tmp_path: Path) -> None:
    for found, files in (("no .npy files", ()), ("1 .npy file, such as 'x.npy'", ("x.npy",))):
        for name in files:
            np.save(tmp_path / name, np.zeros((3, 8), dtype=np.float32))
        with pytest.raises(StoreError) as caught:
            arrays_of(["sub/video1.mp4", "video2.mp4"], tmp_path)
        expected = f"expected {tmp_path}/sub/video1.npy for clip 'sub/video1.mp4', found {found}. Save one"
        assert expected in str(caught.value)


def test_a_full_disk_says_what_to_do(clips: Clips, tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    extract(clips[:1], tmp_path / "f")
    blocked = clip_file(tmp_path / "f", "new").parent
    blocked.parent.mkdir(exist_ok=True)
    blocked.write_bytes(b"a file where a folder must go")
    with pytest.raises(StoreError, match=r"cannot be written .* run the same command again"):
        extract([*clips[:1], ("new", clips[1][1])], tmp_path / "f")
