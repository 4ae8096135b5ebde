"""Write docs/gallery.md: what the bundled model says of the example clips, and where it looked.

    python tools/gallery.py [--out docs]

Run it again when the model or the clips change; `tests/e2e/test_site.py` compares the words.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from ctsan import Predictor
from ctsan.figures.traces import choose_traces, draw_figure

_REPOSITORY = Path(__file__).resolve().parents[1]
_WIDTH = 1100

_CLIPS = {
    "cat": ("a photograph of a cat, with a moving camera", '"Chelsea" by Stéfan van der Walt, CC0'),
    "coffee": ("a photograph of a cup of coffee, with a moving camera", "Rachel Michetti, CC0"),
    "astronaut": ("a portrait of Eileen Collins, with a moving camera", "NASA, public domain"),
    "rocket": ("a photograph of a rocket at take-off, with a moving camera", "SpaceX, CC0"),
    "rabbit": (
        "a rabbit in a meadow, in a cartoon",
        "*Big Buck Bunny*, © Blender Foundation, CC BY 3.0, www.bigbuckbunny.org; attention drawn over it",
    ),
}

_HEAD = """# Gallery

Five clips that [the bundled model](model.md) has never seen: all that are in `examples/clips`, none chosen
for its answer. Each row is one trace of the detector; colour is where it looked while it raised its concept
word. `python tools/gallery.py` makes this page.

Of [twenty clips](results/twenty.md) of MSR-VTT the captions are judged one by one. The clips are for research
only, so their pictures are not shown.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=_REPOSITORY / "docs")
    folder: Path = parser.parse_args().out
    (folder / "gallery").mkdir(parents=True, exist_ok=True)
    (folder / "gallery.md").write_text("".join(_page(folder)), encoding="utf-8")


def _page(folder: Path) -> Iterator[str]:
    predictor = Predictor.load()
    yield _HEAD
    for name, (shows, origin) in _CLIPS.items():
        clip = _REPOSITORY / "examples" / "clips" / f"{name}.mp4"
        tracing = predictor.trace(clip)
        figure = draw_figure(clip, tracing, choose_traces(tracing))
        figure = figure.resize((_WIDTH, round(figure.height * _WIDTH / figure.width)))
        figure.convert("RGB").save(folder / "gallery" / f"{name}.jpg", quality=82, optimize=True)
        words = ", ".join(concept.word for concept in predictor.concepts(clip))
        yield (
            f"\n## {name}\n\n"
            f"![{shows}](gallery/{name}.jpg)\n\n"
            f"| it shows | {shows} |\n|---|---|\n"
            f"| the model says | {predictor.describe(clip).caption} |\n"
            f"| concept words | {words} |\n| picture by | {origin} |\n"
        )


if __name__ == "__main__":
    main()
