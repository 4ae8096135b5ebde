"""Render answers as HTML: frames of a clip, the five sentences of a choice, the clips ranked for a sentence.

The last two follow the layout of the paper's appendix D. Pictures are embedded, so the page loads nothing.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import av
import numpy as np
from numpy.typing import NDArray

from ctsan.errors import VideoError
from ctsan.video.frames import pictures_at, probe

if TYPE_CHECKING:  # imports PyTorch
    from ctsan.tasks.task import Example, ShownChoice, ShownClip, ShownConcept

NUM_FRAMES = 4

_BOX = (320, 240)  # largest width and height of a picture, in pixels

_CHOICES_LEGEND = "The right sentence is in bold; the model's choice is ticked."
_RANKING_LEGEND = (
    "From left to right are the first five clips for the sentence, the right one framed in green. Where it "
    "is not among them, the first four are shown and the right one, framed in red, with its rank."
)

# The page must define the colours --line, --soft, --right and --wrong.
STYLE = """
.frames { display: grid; grid-template-columns: repeat(4, 1fr); gap: .4rem; max-width: 62rem; }
.frames img { display: block; width: 100%; height: 100%; object-fit: contain; background: #000;
  border-radius: .3rem; }
.gone { color: var(--soft); border: 1px dashed var(--line); border-radius: .3rem; padding: .8rem; margin: 0; }
.choices { list-style: none; margin: .6rem 0; padding: 0; }
.choices li { display: flex; gap: .6rem; padding: .1rem 0; }
.box { flex: none; width: 1.15rem; height: 1.15rem; margin-top: .2rem; border: 1.5px solid var(--soft);
  border-radius: .2rem; text-align: center; font-weight: 700; line-height: 1; }
.chosen .box { color: var(--wrong); border-color: currentColor; }
.right.chosen .box { color: var(--right); }
.ranked { display: grid; grid-template-columns: repeat(5, 1fr); gap: .6rem; list-style: none;
  margin: .6rem 0; padding: 0; max-width: 78rem; }
.ranked li { display: flex; flex-direction: column; text-align: center; color: var(--soft);
  font-variant-numeric: tabular-nums; }
.ranked .picture { flex: 1; display: flex; background: #000; border-radius: .3rem; overflow: hidden;
  outline: 4px solid transparent; }
.ranked img { width: 100%; height: 100%; object-fit: contain; }
.ranked .gone { flex: 1; }
.ranked .right, .ranked .missed { font-weight: 700; }
.ranked .right { color: var(--right); }
.ranked .missed { color: var(--wrong); }
.ranked .right .picture, .ranked .missed .picture { outline-color: currentColor; }
.ranked span { margin-top: .35rem; }
@media (max-width: 40rem) { .frames { grid-template-columns: repeat(2, 1fr); } .ranked { gap: .3rem; } }
"""


def legend(examples: Sequence[Example]) -> str:
    """Explain the marks in the examples' answers, with a trailing space; empty if there are none."""
    is_needed = {
        _CHOICES_LEGEND: any(example.choices for example in examples),
        _RANKING_LEGEND: any(example.ranked for example in examples),
    }
    return "".join(f"{text} " for text, needed in is_needed.items() if needed)


def answer_html(example: Example) -> str:
    """Render a clip with the model's answer, or a sentence with the clips ranked for it."""
    caption = f'<p class="says">{escape(example.caption) or "(no words)"}</p>'
    if example.ranked:
        return f"{caption}\n{_ranking_html(example.ranked, example.num_ranked)}"
    return f"{_frames_html(example)}\n{_choices_html(example.choices) if example.choices else caption}"


def _frames_html(example: Example) -> str:
    """Render frames evenly spaced over the clip, or the error if it cannot be read."""
    try:
        pictures = _pictures(example.path, NUM_FRAMES)
    except VideoError as error:
        return f'<p class="gone">No pictures: {escape(str(error))}</p>'
    images = [_image(pixels, f"Frame at {time:.1f} seconds") for pixels, time in pictures]
    return f'<div class="frames">{"".join(images)}</div>'


def concept_html(concept: ShownConcept) -> str:
    mark, kind = ("✓ ", ' class="right"') if concept.is_right else ("", "")
    return f"<li{kind}>{mark}{escape(concept.word)} <small>{concept.confidence:.2f}</small></li>"


def _choices_html(choices: Sequence[ShownChoice]) -> str:
    """Render the sentences of a choice: the right one in bold, the chosen one ticked."""
    rows = []
    for choice in choices:
        classes = " ".join(["right"] * choice.is_right + ["chosen"] * choice.is_chosen)
        sentence = escape(choice.sentence)
        text = f"<strong>{sentence}</strong>" if choice.is_right else f"<span>{sentence}</span>"
        rows.append(f'<li class="{classes}"><span class="box">{"✓" * choice.is_chosen}</span>{text}</li>')
    return f'<ul class="choices">{"".join(rows)}</ul>'


def _ranking_html(ranked: Sequence[ShownClip], num_ranked: int) -> str:
    """Render the middle frame of each clip with its rank; the right clip is framed in green or red.

    Args:
        ranked: from `Example.ranked`.
        num_ranked: total number of clips ranked.
    """
    rows = []
    for place, clip in enumerate(ranked, start=1):
        is_missed = clip.is_right and clip.rank != place
        kind, label = "", f"{clip.rank}"
        if clip.is_right:
            kind = "missed" if is_missed else "right"
            label = f"✗ {clip.rank} of {num_ranked:,}" if is_missed else f"✓ {clip.rank}"
        name = f"Rank {clip.rank}: {clip.clip}"
        try:
            [(pixels, _)] = _pictures(clip.path, 1)
            picture = f'<div class="picture">{_image(pixels, name)}</div>'
        except VideoError as error:
            picture = f'<div class="gone">No picture: {escape(str(error))}</div>'
        rows.append(f'<li class="{kind}" title="{escape(clip.clip)}">{picture}<span>{label}</span></li>')
    return f'<ol class="ranked">{"".join(rows)}</ol>'


def _pictures(path: Path, count: int) -> list[tuple[NDArray[np.uint8], float]]:
    """Read frames evenly spaced over a clip, each from the middle of its segment.

    Raises:
        VideoError: the clip cannot be read.
    """
    moments = (np.arange(count) + 0.5) * probe(path).duration / count
    return pictures_at(path, moments, box=_BOX)


def _image(pixels: NDArray[np.uint8], alt: str) -> str:
    return (
        f'<img src="data:image/jpeg;base64,{_jpeg(pixels)}" width="{pixels.shape[1]}" '
        f'height="{pixels.shape[0]}" alt="{escape(alt)}">'
    )


def _jpeg(pixels: NDArray[np.uint8]) -> str:
    """Encode a picture (h, w, 3) as base64 JPEG."""
    file = io.BytesIO()
    with av.open(file, "w", format="mjpeg") as container:
        stream = container.add_stream("mjpeg", rate=1, options={"qmin": "3", "qmax": "3"})
        stream.height, stream.width, stream.pix_fmt = *pixels.shape[:2], "yuvj420p"
        stream.thread_count = 1
        container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return b64encode(file.getvalue()).decode()
