"""Worker process: decodes clips and computes their feature maps for the server.

Untrusted files are decoded only here. The process has a memory limit and cannot write files, and the server
kills it when it takes too long. The server receives nothing but messages; see `messages`.
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from ctsan.errors import VideoError
from ctsan.video.backbones import Backbone, backbone_of
from ctsan.video.clip_maps import needed_frames
from ctsan.video.engine import Engine, load_engine
from ctsan.video.frames import Frames, pictures_at, probe, readable_duration, sample_frames
from ctsan.video.shots import MAX_SECONDS, MIN_SECONDS, frames_of_shots_by_size
from ctsan.video.store import Recipe
from ctsan.video.video_file import pixel_limit
from ctsan.web.messages import Message, pack, receive_from

_BATCH_SIZE = 4  # frames between two progress messages
_THUMBNAIL = (400, 400)
_STRIP_CELL = (320, 180)
_POSTER = (640, 640)
_MAX_OPEN_FILES = 64
_MAX_LOG = 4000  # characters of a traceback


@dataclass(frozen=True, slots=True)
class Network:
    key: str
    backbone: Backbone
    engine: Engine
    max_frames: list[int]  # distinct values of the runs' `max_frames`


def main() -> None:
    """Answer requests from stdin until it is closed; `argv[1]` is JSON with the networks and limits."""
    settings = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that output of libraries does not mix with the messages
    networks = []
    weights = Path(settings["weights"]) if settings["weights"] else None
    for key, recipe, max_frames in settings["networks"]:
        backbone = backbone_of(Recipe(**{**recipe, "grid": tuple(recipe["grid"])}), weights)
        networks.append(Network(key, backbone, load_engine(backbone), max_frames))
    _limit_resources(settings["memory"])
    _send(out, Message({"kind": "started"}))
    while (request := receive_from(sys.stdin.buffer)) is not None:
        for message in answer(request.head, networks):
            _send(out, message)


def answer(request: Mapping[str, Any], networks: list[Network]) -> Iterator[Message]:
    """Messages about a file. The last has the kind "done" or "error", whatever happens.

    An error that nobody expected has its traceback in "log". The server prints it, within its limits.
    """
    file = Path(request["file"])
    try:
        if request["what"] == "picture":
            yield read_picture(file, request["second"])
        elif request["what"] == "strip":
            yield read_strip(file, request["seconds"])
        else:
            with pixel_limit(request["pixels"]):
                yield from read_clip(file, networks, request)
    except VideoError as error:
        yield Message({"kind": "error", "text": f"{_capitalize(error.what)}. {error.remedy}"})
    except MemoryError:
        text = "Reading it takes more memory than is allowed. Reduce its resolution, or cut it."
        yield Message({"kind": "error", "text": text})
    except Exception:
        text = "It could not be read: the decoder failed. Convert it to mp4."
        yield Message({"kind": "error", "text": text, "log": traceback.format_exc()[-_MAX_LOG:]})
    else:
        yield Message({"kind": "done"})


def read_clip(file: Path, networks: list[Network], limits: Mapping[str, Any]) -> Iterator[Message]:
    """Messages about a clip: first about the whole clip, then about each shot if it is long.

    With a "span" in the limits, only that part of the file is read, as a clip of its own.

    Raises:
        VideoError: the clip cannot be read, or exceeds a limit.
    """
    declared = probe(file).duration
    # A moment is read by its times; reading all packets of its film would take long.
    duration = declared if limits.get("span") else readable_duration(file, declared)
    span = _part_of(duration, limits.get("span"))
    if span is None and duration > limits["seconds"]:
        what = f"it is {duration:,.0f} seconds long, and {limits['seconds']:,.0f} are allowed"
        raise VideoError(file, what, "Cut it into shorter files.")
    start, end = span or (0.0, duration)
    posters = pictures_at(file, np.array([start]), box=_POSTER)
    if not posters:
        raise VideoError(file, f"there is no frame at {start:,.1f} seconds", "Index the folder again.")
    [(poster, _)] = posters
    height, width = poster.shape[:2]
    about = {"start": start, "duration": end - start, "declared": declared, "width": width, "height": height}
    yield Message({"kind": "info", **about}, _jpeg(poster))
    sizes = {network.backbone.image_size for network in networks}
    frames = {size: sample_frames(file, size=size, span=span) for size in sizes}
    places = [
        needed_frames(len(frames[network.backbone.image_size].times), network.max_frames)
        for network in networks
    ]
    total, done = sum(map(len, places)), 0
    for number, network in enumerate(networks):
        sampled = frames[network.backbone.image_size]
        if number == 0:
            for pixels, time in zip(sampled.pixels, sampled.times, strict=True):
                yield Message({"kind": "picture", "time": float(time)}, _jpeg(pixels))
        batches = []
        for start in range(0, len(places[number]), _BATCH_SIZE):
            batches.append(network.engine(sampled.pixels[places[number][start : start + _BATCH_SIZE]]))
            done += len(batches[-1])
            yield Message({"kind": "progress", "share": done / total})
        yield _maps_message(network, places[number], np.concatenate(batches), sampled)
    is_long = span is None and duration > MAX_SECONDS and limits["shots"] > 0
    yield Message({"kind": "read", "shots": is_long})
    if is_long:
        yield from _read_shots(file, networks, limits["shots"])


def read_picture(file: Path, second: float) -> Message:
    """The frame at the given time, as a thumbnail.

    Raises:
        VideoError: the file cannot be read.
    """
    return Message({"kind": "picture"}, _jpeg(_thumbnails(file, [second])[0]))


def read_strip(file: Path, seconds: list[float]) -> Message:
    """The frames at the given times side by side, each cropped to 16:9.

    Raises:
        VideoError: the file cannot be read.
    """
    cells = [
        np.asarray(ImageOps.fit(Image.fromarray(pixels), _STRIP_CELL))
        for pixels in _thumbnails(file, seconds)
    ]
    cells += cells[-1:] * (len(seconds) - len(cells))  # a file may end before its last shot does
    return Message({"kind": "picture"}, _jpeg(np.concatenate(cells, axis=1)))


def _thumbnails(file: Path, seconds: list[float]) -> list[NDArray[np.uint8]]:
    pictures = pictures_at(file, np.array(seconds), box=_THUMBNAIL)
    if not pictures:
        raise VideoError(file, "no frame could be decoded", "Index the folder again.")
    return [pixels for pixels, _ in pictures]


def _part_of(duration: float, span: list[float] | None) -> tuple[float, float] | None:
    """The span, unless it is the whole file: that is sampled as the commands do."""
    if span is None or (span[0] == 0 and span[1] >= duration - MIN_SECONDS):
        return None
    return span[0], span[1]


def _read_shots(file: Path, networks: list[Network], max_shots: int) -> Iterator[Message]:
    sizes = sorted({network.backbone.image_size for network in networks})
    for number, (shot, by_size) in enumerate(frames_of_shots_by_size(file, sizes)):
        if number == max_shots:
            return
        pictures = by_size[networks[0].backbone.image_size].pixels
        middle = pictures[len(pictures) // 2]
        yield Message({"kind": "shot", "start": shot.start, "end": shot.end}, _jpeg(middle))
        for network in networks:
            frames = by_size[network.backbone.image_size]
            places = needed_frames(len(frames.times), network.max_frames)
            yield _maps_message(network, places, network.engine(frames.pixels[places]), frames)
        yield Message({"kind": "shot read", "end": shot.end})


def _maps_message(
    network: Network, places: NDArray[np.int64], maps: NDArray[np.float16], frames: Frames
) -> Message:
    head = {
        "kind": "maps",
        "network": network.key,
        "places": places.tolist(),
        "shape": maps.shape,
        "times": frames.times.tolist(),
    }
    return Message(head, np.ascontiguousarray(maps, dtype=np.float16).tobytes())


def _jpeg(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=82)
    return file.getvalue()


def _limit_resources(memory: int) -> None:
    """Allow no file writes, few open files, no core dumps, and `memory` bytes beyond those in use now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) if _has_proc() else 0
    limits: list[tuple[int, int]] = [
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _MAX_OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ]
    if pages:
        limits.append((resource.RLIMIT_AS, pages * resource.getpagesize() + memory))
    for limit, value in limits:
        resource.setrlimit(limit, (value, value))


def _has_proc() -> bool:
    return sys.platform == "linux"


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def _send(out: BinaryIO, message: Message) -> None:
    out.write(pack(message))
    out.flush()


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the server is gone, so there is nobody to answer
        main()
