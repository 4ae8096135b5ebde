"""Cut new clips into shots, decode them and compute their feature maps: the costly part of indexing."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import av

from ctsan import __version__
from ctsan.errors import VideoError
from ctsan.inference.featurizer import ClipFeatures, ClipFeaturizer, NeedsFeatures
from ctsan.search.thumbnails import THUMBNAIL_BOX, encode_thumbnail
from ctsan.video.frames import SPACING, packets_duration
from ctsan.video.shots import MAX_SECONDS, Shot
from ctsan.video.suffixes import reads_heic

# What a file says when it is out of reach for a while. Damaged files give others, such as EINVAL and EIO.
_UNAVAILABLE = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ESTALE, errno.ENODEV, errno.ENXIO),
    *(errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.EBUSY, errno.EINTR),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ELOOP),
}


def reader_version() -> str:
    """What decodes clips. Another version may read what this one cannot."""
    codec, container = (av.library_versions[name] for name in ("libavcodec", "libavformat"))
    return (
        f"ctsan {__version__}, PyAV {av.__version__}, libavcodec {'.'.join(map(str, codec))}, libavformat "
        f"{'.'.join(map(str, container))}" + (", pillow-heif" if reads_heic() else "")
    )


@dataclass(frozen=True, slots=True)
class NewClip:
    path: Path
    seconds: float  # 0 if the file cannot be read

    @property
    def is_long(self) -> bool:
        return self.seconds > MAX_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """One shot of a clip with its features, or, as the last segment of a clip, the error that ended it."""

    path: Path
    result: tuple[Shot, ClipFeatures] | str
    is_unavailable: bool = False  # the error is not of the content: the clip may be readable the next time
    thumbnail: bytes | None = None  # of the shot


Segmenter = Callable[[Sequence[NewClip]], Iterator[Segment]]  # keeps the order; at least one segment a clip


def segment_clips(
    clips: Sequence[NewClip], models: Sequence[NeedsFeatures], featurizer: ClipFeaturizer
) -> Iterator[Segment]:
    """All shots of long clips; a short clip is one shot. An unreadable clip yields an error segment.

    Raises:
        UsageError: the features of a model cannot be computed.
    """
    for is_long, group in groupby(clips, key=lambda clip: clip.is_long):
        segment = _segment_long if is_long else _segment_short
        yield from segment(list(group), models, featurizer)


def _segment_short(
    clips: Sequence[NewClip], models: Sequence[NeedsFeatures], featurizer: ClipFeaturizer
) -> Iterator[Segment]:
    waiting = deque(clips)
    while waiting:
        try:
            paths = [clip.path for clip in waiting]
            for features in featurizer.featurize_all(paths, models, middle_box=THUMBNAIL_BOX):
                clip = waiting.popleft()
                if isinstance(features, VideoError):
                    yield _failure(clip.path, features)
                else:
                    yield _segment(clip.path, Shot(0.0, _seconds(clip, features)), features)
        except OSError as error:  # the file went away while it was read; go on behind it
            yield _failure(waiting.popleft().path, error)


def _segment_long(
    clips: Sequence[NewClip], models: Sequence[NeedsFeatures], featurizer: ClipFeaturizer
) -> Iterator[Segment]:
    for clip in clips:
        try:
            for shot, features in featurizer.featurize_shots(clip.path, models, middle_box=THUMBNAIL_BOX):
                yield _segment(clip.path, shot, features)
        except (VideoError, OSError) as error:
            yield _failure(clip.path, error)


def _seconds(clip: NewClip, features: ClipFeatures) -> float:
    """The duration of a short clip: that of its header, unless it is truncated."""
    seconds = clip.seconds
    last_sample = float(features.times[-1] - features.times[0])
    if seconds - last_sample > 2 * SPACING:  # or its last picture stands for long
        with suppress(VideoError, OSError):  # it went away: indexing notices that later
            seconds = packets_duration(clip.path) or seconds
    return max(seconds, last_sample)


def _segment(path: Path, shot: Shot, features: ClipFeatures) -> Segment:
    thumbnail = None if features.middle is None else encode_thumbnail(features.middle)
    return Segment(path, (shot, replace(features, middle=None)), thumbnail=thumbnail)


def _failure(path: Path, error: VideoError | OSError) -> Segment:
    message = str(error)
    if isinstance(error, OSError):
        message = f"{path}: it cannot be read ({error.strerror or error}). Index its folder again."
    return Segment(path, message, is_unavailable=_is_unavailable(error))


def _is_unavailable(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised for, tells nothing about the content of a file."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _UNAVAILABLE):
            return True
        error = error.__cause__ or error.__context__
    return False
