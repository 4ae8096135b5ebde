"""Writing the procedural corpus: clips, their ground truth, and the list of clips with their captions."""

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
from ctsan.synthetic.caption import Word, write_captions
from ctsan.synthetic.compose import compose, split_of
from ctsan.synthetic.draw import Seen, draw
from ctsan.synthetic.scene import FPS, PIXELS_HIGH, PIXELS_WIDE, Scene
from ctsan.synthetic.truth import tell_truth

VERSION = 2  # of what a seed gives; a change of the pictures or the words is another version
MARKER = "procedural.json"
LIST = "clips.jsonl"
_ENCODING = {"crf": "20", "preset": "veryfast", "x264-params": "asm=0"}
_FEW = 4  # clips for which starting processes takes longer than it saves


def make_corpus(
    out: Path,
    *,
    clips: int,
    seed: int,
    simple: bool = False,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Make a corpus of `clips` clips in the folder `out`, or go on with one of the same seed and kind.

    A clip depends on the seed and its number only. So an interrupted corpus can be finished, and a finished
    one extended, to the same bytes as one made at once. `progress` is told of clips as they are done; those
    that were there before count at once.

    Raises:
        UsageError: `out` cannot be written, or holds something else, or more clips than asked for.
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
    if processes < 2 or len(missing) <= _FEW:
        for index in missing:
            _make_clip(out, seed, index, simple)
            report(1)
    else:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_end_with_parent) as pool:
            try:
                made = [pool.submit(_make_clip, out, seed, index, simple) for index in missing]
                for done in as_completed(made):
                    done.result()
                    report(1)
            finally:
                pool.shutdown(cancel_futures=True)
    entries = (_entry(out, seed, index, simple) for index in range(clips))
    _write_text(out / LIST, "".join(f"{json.dumps(entry)}\n" for entry in entries))


def _claim(out: Path, *, clips: int, seed: int, simple: bool) -> None:
    """Make sure that the folder is empty or holds the beginning of this very corpus, and mark it as such."""
    if clips < 1:
        raise UsageError(f"{out}: cannot make a corpus of {clips} clips. Ask for at least one.")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file. Name a folder that is empty or does not exist yet.")
    marker = out / MARKER
    wanted = {"version": VERSION, "seed": seed, "clips": clips} | ({"simple": True} if simple else {})
    if marker.is_file():
        found = _read_marker(marker)
        if (found["version"], found["seed"]) != (VERSION, seed):
            raise UsageError(
                f"{marker}: this corpus has seed {found['seed']} and version {found['version']}, "
                f"not seed {seed} and version {VERSION}. Name another folder, or delete this one."
            )
        if found["simple"] != simple:
            kind = "simple" if found["simple"] else "not simple"
            raise UsageError(f"{marker}: the scenes of this corpus are {kind}. Name another folder.")
        if found["clips"] > clips:
            raise UsageError(
                f"{marker}: this corpus was begun with {found['clips']} clips, more than {clips}. "
                f"Ask for at least {found['clips']}, or name another folder."
            )
        if found["clips"] < clips:
            (out / LIST).unlink(missing_ok=True)  # until all clips are there, this is not a corpus
    elif out.exists() and any(path.suffix != ".tmp" for path in out.iterdir()):
        raise UsageError(f"{out}: holds something else. Name a folder that is empty or does not exist yet.")
    out.mkdir(parents=True, exist_ok=True)
    _write_json(marker, wanted)
    (out / "clips").mkdir(exist_ok=True)
    (out / "truth").mkdir(exist_ok=True)


def _read_marker(marker: Path) -> dict[str, int]:
    try:
        found = json.loads(marker.read_text(encoding="utf-8-sig"))
        return {key: int(found[key]) for key in ("version", "seed", "clips")} | {
            "simple": bool(found.get("simple"))
        }
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{marker}: cannot be read ({error}). Delete the folder, or name another."
        ) from error


def _end_with_parent() -> None:
    """Leave an interrupt to the parent process, and end with it even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if parent := multiprocessing.parent_process():

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


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
        seen = _encode(scene, temporary)
    _write_json(truth, tell_truth(scene, captions, seen))


def _encode(scene: Scene, path: Path) -> list[dict[str, Seen]]:
    """Write the frames of a scene as H.264, the same bytes always and everywhere.

    Hence one thread, and no assembly of x264's: on some processors it reads what was left in memory.
    """
    import av

    seen = []
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS, options=_ENCODING)
        stream.width, stream.height, stream.pix_fmt = PIXELS_WIDE, PIXELS_HIGH, "yuv420p"
        stream.codec_context.thread_count = 1
        stream.time_base = Fraction(1, FPS)
        for number, (picture, things) in enumerate(draw(scene)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
            seen.append(things)
        container.mux(stream.encode())
    return seen


def _write_json(path: Path, value: object) -> None:
    _write_text(path, json.dumps(value, separators=(",", ":")) + "\n")


def _write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
