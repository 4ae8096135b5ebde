"""Write the synthetic corpus: clips, their ground truth, and clips.jsonl with their captions."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from fractions import Fraction
from pathlib import Path
from random import Random

from ctsan.errors import UsageError
from ctsan.io.atomic import replacing
from ctsan.io.device import usable_cores
from ctsan.io.fields import typed_field
from ctsan.io.reading import DamagedFileError, read_json_object
from ctsan.synthetic.caption import Word, write_captions
from ctsan.synthetic.compose import compose, split_of
from ctsan.synthetic.draw import Visibility, draw
from ctsan.synthetic.scene import FPS, PIXELS_HIGH, PIXELS_WIDE, Scene
from ctsan.synthetic.truth import ground_truth

VERSION = 2  # to be increased when the frames or the captions of a seed change
MARKER = "procedural.json"
LIST = "clips.jsonl"
_ENCODING = {"crf": "20", "preset": "veryfast", "x264-params": "asm=0"}
_MAX_SERIAL_CLIPS = 4  # for so few, starting processes takes longer than it saves


def make_corpus(
    out: Path,
    *,
    clips: int,
    seed: int,
    simple: bool = False,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Make a corpus of `clips` clips in the folder `out`, or continue one with the same seed and kind.

    A clip depends only on the seed and its number. So an interrupted corpus can be finished, and a finished
    one extended, with the same bytes as in one go.

    Args:
        simple: one large thing, one event, and a still camera.
        progress: called with the number of clips that are done since the last call.

    Raises:
        UsageError: `out` cannot be written, contains something else, or has more clips.
    """
    try:
        _claim(out, clips=clips, seed=seed, simple=simple)
    except OSError as error:
        raise UsageError(
            f"{out}: cannot be written ({error}). Name a folder that you may write to."
        ) from error
    report = progress or (lambda _: None)
    missing = [index for index in range(clips) if not all(path.exists() for path in _paths(out, index))]
    if len(missing) < clips:
        report(clips - len(missing))
    processes = min(usable_cores(), len(missing))
    if processes < 2 or len(missing) <= _MAX_SERIAL_CLIPS:
        for index in missing:
            _make_clip(out, seed, index, simple)
            report(1)
    else:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_end_with_parent) as pool:
            try:
                futures = [pool.submit(_make_clip, out, seed, index, simple) for index in missing]
                for future in as_completed(futures):
                    future.result()
                    report(1)
            finally:
                pool.shutdown(cancel_futures=True)
    entries = (_entry(out, seed, index, simple) for index in range(clips))
    _write_text(out / LIST, "".join(f"{json.dumps(entry)}\n" for entry in entries))


def _claim(out: Path, *, clips: int, seed: int, simple: bool) -> None:
    """Check that the folder is empty or has a part of this corpus, and write its marker file.

    Raises:
        UsageError: it has something else.
    """
    if clips < 1:
        raise UsageError(f"{out}: cannot make a corpus of {clips} clips. Ask for at least one.")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file. Name a folder that is empty or does not exist yet.")
    marker = out / MARKER
    content = {"version": VERSION, "seed": seed, "clips": clips} | ({"simple": True} if simple else {})
    if marker.is_file():
        existing = _read_marker(marker)
        if (existing["version"], existing["seed"]) != (VERSION, seed):
            raise UsageError(
                f"{marker}: this corpus has seed {existing['seed']} and version {existing['version']}, "
                f"not seed {seed} and version {VERSION}. Name another folder, or delete this one."
            )
        if existing["simple"] != simple:
            kind = "simple" if existing["simple"] else "not simple"
            raise UsageError(f"{marker}: the scenes of this corpus are {kind}. Name another folder.")
        if existing["clips"] > clips:
            raise UsageError(
                f"{marker}: this corpus was begun with {existing['clips']} clips, more than {clips}. "
                f"Ask for at least {existing['clips']}, or name another folder."
            )
        if existing["clips"] < clips:
            (out / LIST).unlink(missing_ok=True)  # not a complete corpus until all clips exist
    elif out.exists() and any(path.suffix != ".tmp" for path in out.iterdir()):
        raise UsageError(
            f"{out}: contains something else. Name a folder that is empty or does not exist yet."
        )
    out.mkdir(parents=True, exist_ok=True)
    _write_json(marker, content)
    (out / "clips").mkdir(exist_ok=True)
    (out / "truth").mkdir(exist_ok=True)


def _read_marker(marker: Path) -> dict[str, int]:
    try:
        content = read_json_object(marker)
        return {key: typed_field(content, key, int) for key in ("version", "seed", "clips")} | {
            "simple": bool(content.get("simple"))
        }
    except DamagedFileError as error:
        raise UsageError(
            f"{marker}: cannot be read ({error}). Delete the folder, or name another."
        ) from error


def _end_with_parent() -> None:
    """Leave SIGINT to the parent process, and exit with it even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if parent := multiprocessing.parent_process():

        def exit_after_parent() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=exit_after_parent, daemon=True).start()


def _paths(out: Path, index: int) -> tuple[Path, Path]:
    return out / "clips" / f"{index:04d}.mp4", out / "truth" / f"{index:04d}.json"


def _scene(seed: int, index: int, simple: bool) -> tuple[Scene, list[tuple[Word, ...]]]:
    scene = compose(seed, index, simple=simple)
    return scene, write_captions(scene, Random(f"captions {seed} {index}"))


def _entry(out: Path, seed: int, index: int, simple: bool) -> dict[str, object]:
    _, captions = _scene(seed, index, simple)
    clip, truth = (path.relative_to(out).as_posix() for path in _paths(out, index))
    return {
        "clip": clip,
        "captions": [" ".join(word.text for word in caption) for caption in captions],
        "split": split_of(index),
        "source": f"procedural-{seed}-{index:04d}",
        "truth": truth,
    }


def _make_clip(out: Path, seed: int, index: int, simple: bool) -> None:
    scene, captions = _scene(seed, index, simple)
    clip, truth = _paths(out, index)
    with replacing(clip) as temporary:
        visibilities = _encode(scene, temporary)
    _write_json(truth, ground_truth(scene, captions, visibilities))


def _encode(scene: Scene, path: Path) -> list[dict[str, Visibility]]:
    """Write the frames of a scene as H.264, with the same bytes on every machine.

    This needs one thread, and no assembly code of x264, which on some CPUs reads uninitialised memory.

    Returns:
        The visibility of every thing, per frame.
    """
    import av

    visibilities = []
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS, options=_ENCODING)
        stream.width, stream.height, stream.pix_fmt = PIXELS_WIDE, PIXELS_HIGH, "yuv420p"
        stream.codec_context.thread_count = 1
        stream.time_base = Fraction(1, FPS)
        for number, (pixels, visibility) in enumerate(draw(scene)):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
            visibilities.append(visibility)
        container.mux(stream.encode())
    return visibilities


def _write_json(path: Path, value: object) -> None:
    _write_text(path, json.dumps(value, separators=(",", ":")) + "\n")


def _write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
