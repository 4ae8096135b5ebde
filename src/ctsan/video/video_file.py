"""Open video files and pictures. Whatever is wrong with a file becomes its `VideoError`.

PyAV and NumPy raise exceptions of many classes for damaged files. `video_errors` and `guarded` translate
them. They stand around calls into PyAV and NumPy, never around the code of a caller.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

import av
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ctsan.errors import VideoError
from ctsan.io.reading import is_text
from ctsan.video.heif import is_sequence, still_format, to_bitmap
from ctsan.video.picture_size import picture_size
from ctsan.video.sample_count import samples_of_one_size
from ctsan.video.suffixes import PICTURE_SUFFIXES

MAX_PIXELS = 8192 * 8192  # of one frame, which then takes about 200 MB as RGB

_MAX_UNDECODED = 100_000  # packets in a row, more than an hour of film; one takes some 10 µs

T = TypeVar("T")

_ADDRESS = re.compile(r"(https?|ftp|rtsp):/", re.IGNORECASE)
_max_pixels: ContextVar[int] = ContextVar("max_pixels", default=MAX_PIXELS)

# Containers and images only: FFmpeg would also follow playlists to other files and URLs.
_CONTAINERS = (
    "mov,mp4,m4v,matroska,webm,avi,gif,flv,asf,mpeg,mpegts,mpegvideo,h264,hevc,ogg,rm,mxf,nut,dv,image2,"
    "jpeg_pipe,png_pipe,webp_pipe,bmp_pipe,tiff_pipe,apng,mp3,wav,flac,aac,aiff"
)

_NOT_VIDEO = "Give a video, such as mp4, avi, mkv, mov or webm, or a picture, such as jpg, png, webp or tiff."
_CONVERT = "Convert it to mp4, or leave it out."


@contextmanager
def pixel_limit(max_pixels: int) -> Iterator[None]:
    """Decode no frame of more pixels in the block, in place of `MAX_PIXELS`. None is allocated for."""
    token = _max_pixels.set(max_pixels)
    try:
        yield
    finally:
        _max_pixels.reset(token)


@contextmanager
def open_video(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open the video stream of a file.

    Raises:
        VideoError: it is missing, inaccessible, not a regular file, not a video, too large, or damaged.
    """
    _check_file(path)
    with _open_container(path) as container:
        with video_errors(path):
            stream = _video_stream(path, container)
        yield container, stream


def check_video(path: Path) -> None:
    """Check that a file can be opened as a video or picture. Its frames are not read.

    Raises:
        VideoError: as of `open_video`.
    """
    with open_video(path):
        pass


@contextmanager
def video_errors(path: Path) -> Iterator[None]:
    """Raise whatever PyAV and NumPy raise as the `VideoError` of a file.

    Raises:
        VideoError: in place of any other exception. `KeyboardInterrupt` and its like pass.
    """
    try:
        yield
    except VideoError:
        raise
    except MemoryError as error:
        raise _out_of_memory(path) from error
    except Exception as error:
        raise VideoError(path, f"reading failed half-way ({_reason(error)})", _CONVERT) from error


def guarded(path: Path, items: Iterator[T]) -> Iterator[T]:
    """The items of a generator that calls PyAV.

    Raises:
        VideoError: in place of what the generator raises. What a caller throws passes unchanged.
    """
    while True:
        with video_errors(path):
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    """The packets of a stream up to its end or the first damage; at the end, one that flushes the decoder."""
    demuxed = container.demux(stream)
    while True:
        try:
            packet = next(demuxed, None)
        except MemoryError:
            raise
        except Exception:
            # Truncated within a packet; or PyAV looks for a stream that appeared after the file was opened,
            # which it does after all packets of this stream.
            return
        if packet is None:
            return
        yield packet


def decoded(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    """Every frame that can be decoded, in presentation order; damaged packets are skipped.

    Ends after `_MAX_UNDECODED` packets in a row of which none could be decoded.

    Raises:
        MemoryError: no frame could be decoded for want of memory. FFmpeg also says so of damaged packets.
    """
    out_of_memory: MemoryError | None = None
    is_empty = True
    undecoded = 0
    for packet in packets(container, stream):
        undecoded += 1
        if undecoded > _MAX_UNDECODED:
            break
        try:
            frames = packet.decode()
        except MemoryError as error:
            out_of_memory = error
            continue
        except Exception:  # a damaged packet
            continue
        for frame in frames:
            if isinstance(frame, VideoFrame) and not frame.is_corrupt:
                is_empty, undecoded = False, 0
                yield frame
    if is_empty and out_of_memory is not None:
        raise out_of_memory


def nothing_decoded(path: Path) -> VideoError:
    """The error of a file without a frame that can be decoded."""
    head = _head(path, 64)
    if head[8:12] == b"WEBP" and b"ANIM" in head:
        return VideoError(path, "an animated WebP, which FFmpeg does not read", "Convert it to gif or mp4.")
    what = "no picture could be decoded: the file is damaged or cut off"
    return VideoError(path, what, "Copy or download it again.")


def _check_file(path: Path) -> None:
    """Check what can be known before FFmpeg opens a file.

    Raises:
        VideoError: it is missing, inaccessible, not a regular file, empty, a picture that is too large, or a
            video whose index lists more frames than it has bytes.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        if _ADDRESS.match(str(path)):
            raise VideoError(path, "this is an address, not a file", "Download it first.") from None
        raise VideoError(path, "there is no such file", "Check the path.") from None
    except (OSError, ValueError) as error:  # no permission, too long a name, a loop of links
        raise _no_access(path, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise VideoError(path, "this is a folder, not a clip", "Name a file in it.")
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for somebody to write
        raise VideoError(path, "this is a pipe, socket or device, not a file", "Save the clip as a file.")
    if status.st_size == 0:
        raise VideoError(path, "the file is empty (0 bytes)", "Copy or download it again.")
    try:
        with path.open("rb") as file:
            size = picture_size(file)
            samples = samples_of_one_size(file)
    except OSError as error:
        raise _no_access(path, error) from error
    if size is not None:
        _check_pixels(path, *size)
    if samples > status.st_size:  # real ones have ten bytes or more a frame
        what = f"its index lists {samples:,} frames, more than its bytes can hold"
        raise VideoError(path, what, "Copy or download it again, or leave it out.")


def _check_pixels(path: Path, width: int, height: int) -> None:
    max_pixels = _max_pixels.get()
    if width * height > max_pixels:
        raise VideoError(
            path,
            f"its frames of {width:,} × {height:,} pixels are larger than is allowed",
            f"Scale them down to at most {max_pixels:,} pixels.",
        )


def _decoder_limit() -> str:
    """The limit for FFmpeg's decoders, which count the padding of a frame too."""
    return str(_max_pixels.get() * 5 // 4)


def _open_container(path: Path) -> InputContainer:
    options = {
        "format_whitelist": _CONTAINERS,
        "protocol_whitelist": "file",
        "max_pixels": _decoder_limit(),  # FFmpeg decodes some frames to find the properties of the streams
    }
    if path.suffix.lower() in PICTURE_SUFFIXES:
        options["pattern_type"] = "none"  # a % in the name of an image is no pattern
    try:
        if kind := still_format(_head(path, 64)):
            return av.open(to_bitmap(path, kind, _check_pixels), "r", format="bmp_pipe", options=options)
        return av.open(f"file:{path}", options=options, metadata_errors="replace")
    except VideoError:
        raise
    except PermissionError as error:
        raise _no_access(path, error) from error
    except MemoryError as error:
        raise _out_of_memory(path) from error
    except Exception as error:
        raise _cannot_open(path, error) from error


def _video_stream(path: Path, container: InputContainer) -> VideoStream:
    """The first video stream that can be decoded, prepared for that.

    Raises:
        VideoError: there is none, or its frames are too large.
    """
    streams = [stream for stream in container.streams.video if not _is_cover_art(stream)]
    if not streams:
        what = "it has sound but no pictures" if container.streams.audio else "it has no video stream"
        raise VideoError(path, what, _NOT_VIDEO)
    if is_sequence(_head(path, 64)):
        streams.sort(key=lambda stream: -stream.frames)  # the still picture beside it has one
    stream = next((stream for stream in streams if stream.codec_context is not None), None)
    if stream is None:
        raise VideoError(path, "FFmpeg has no decoder for its video codec", _CONVERT)
    context = stream.codec_context
    _check_pixels(path, context.width, context.height)
    context.thread_count = 1  # clips are decoded in parallel, one per core
    context.options = {**context.options, "max_pixels": _decoder_limit()}  # frames may grow later
    return stream


def _is_cover_art(stream: VideoStream) -> bool:
    return bool(stream.disposition & Disposition.attached_pic)


def _no_access(path: Path, error: OSError | ValueError) -> VideoError:
    return VideoError(path, f"it cannot be read ({_reason(error)})", "Change its permissions, or rename it.")


def _out_of_memory(path: Path) -> VideoError:
    what = "reading it takes more memory than there is"
    return VideoError(path, what, "Reduce its resolution, or leave it out.")


def _cannot_open(path: Path, error: Exception) -> VideoError:
    head = _head(path, 4096)
    if head[4:8] == b"ftyp" or head[:4] in (b"RIFF", b"\x1a\x45\xdf\xa3"):
        return VideoError(path, "the file is cut off: its index is missing", "Copy or download it again.")
    if is_text(head):
        return VideoError(path, "this is text, not a video", _NOT_VIDEO)
    what = f"this is not a video or picture that FFmpeg can read ({_reason(error)})"
    return VideoError(path, what, _NOT_VIDEO)


def _head(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError:  # removed meanwhile
        return b""


def _reason(error: BaseException) -> str:
    """What an exception says on its first line, or its class if it says nothing."""
    text = str(getattr(error, "strerror", None) or error)
    return next(iter(text.splitlines()), "")[:200] or type(error).__name__
