"""MSR-VTT: two JSON files of videos and sentences, with `videoN.mp4` beside or below them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from ctsan.data.corpus import Clip, Corpus, Split
from ctsan.data.readers.files import SAVE_AS_UTF8, cannot_read, videos_by_stem
from ctsan.data.splits import parse_split, unknown_split
from ctsan.errors import Problem
from ctsan.text.tokens import tokenize

FILES: tuple[str, ...] = ("train_val_videodatainfo.json", "test_videodatainfo.json")
_COPY_AGAIN = "Copy the official file again."


def recognises(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in FILES)


def read(path: Path, problems: list[Problem]) -> Corpus:
    """Read whichever of the two files exist; with an empty list of sentences, clips have no captions."""
    videos: dict[str, tuple[Path, Split, dict[str, object]]] = {}
    sentences: dict[str, list[str]] = {}
    unknown: Counter[tuple[Path, str]] = Counter()
    for file in (path / name for name in FILES if (path / name).is_file()):
        content = _load(file, problems)
        for index, video in _entries(file, content, "videos", problems):
            name, split_name = video.pop("video_id", None), video.pop("split", None)
            if not isinstance(name, str) or not name:
                problems.append(Problem(file, None, f"videos[{index}] has no video_id", _COPY_AGAIN))
            elif name in videos:
                what = f"video {name!r} is declared again in videos[{index}], first in {videos[name][0].name}"
                problems.append(Problem(file, None, what, "Delete one of the two."))
            elif isinstance(split_name, str) and (split := parse_split(split_name)):
                videos[name] = (file, split, video)
            else:
                problems.append(unknown_split(file, None, split_name, name))
                sentences[name] = []  # do not report its sentences too
        for index, sentence in _entries(file, content, "sentences", problems):
            name, caption = sentence.get("video_id"), sentence.get("caption")
            if not isinstance(caption, str) or not tokenize(caption):
                what = f"sentences[{index}] of {name!r} has no words ({caption!r})"
                problems.append(Problem(file, None, what, "Delete it or write its caption."))
            elif isinstance(name, str) and (name in videos or name in sentences):
                sentences.setdefault(name, []).append(caption)
            else:
                unknown[file, str(name)] += 1
    for (file, name), count in unknown.items():
        what = f"{count} sentence{'s' if count > 1 else ''} of unknown video {name!r}"
        problems.append(Problem(file, None, what, 'Add it to "videos", or delete its sentences.'))
    unlisted: list[Problem] = []
    paths = videos_by_stem(path, unlisted)
    clips = tuple(
        Clip(
            id=name,
            path=paths.get(name, path / f"{name}.mp4"),
            captions=tuple(sentences.get(name, ())),
            split=split,
            source=_source(extra.get("url")) or name,
            extra=extra,
        )
        for name, (_, split, extra) in videos.items()
    )
    return Corpus(name="MSR-VTT", root=path, format="msr-vtt", clips=clips, unlisted=tuple(unlisted))


def _load(file: Path, problems: list[Problem]) -> dict[str, object]:
    try:
        content = json.loads(file.read_bytes().decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        problems.append(Problem(file, error.lineno, f"the file is not JSON ({error.msg})", _COPY_AGAIN))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problems.append(Problem(file, line, "the line is not UTF-8", SAVE_AS_UTF8))
    except (ValueError, RecursionError) as error:  # too long numbers, too deep lists
        problems.append(Problem(file, None, f"the file is not JSON ({error})", _COPY_AGAIN))
    except OSError as error:
        problems.append(cannot_read(file, error))
    else:
        if isinstance(content, dict):
            return content
        problems.append(Problem(file, None, "the file is not a JSON object", _COPY_AGAIN))
    return {"videos": [], "sentences": []}


def _entries(
    file: Path, content: dict[str, object], key: str, problems: list[Problem]
) -> Iterator[tuple[int, dict[str, object]]]:
    """The objects in one of the file's two lists, with their indices."""
    entries = content.get(key)
    if not isinstance(entries, list):
        problems.append(Problem(file, None, f'the file has no list "{key}"', _COPY_AGAIN))
        return
    for index, entry in enumerate(entries):
        if isinstance(entry, dict):
            yield index, entry
        else:
            problems.append(Problem(file, None, f"{key}[{index}] is not an object", _COPY_AGAIN))


def _source(url: object) -> str:
    """The id of the video that a clip was cut from."""
    if not isinstance(url, str):
        return ""
    try:
        parts = urlsplit(url)
    except ValueError:  # not a URL, but still the same for all clips of a video
        return url
    return parse_qs(parts.query).get("v", [parts.path.rpartition("/")[2]])[0]
