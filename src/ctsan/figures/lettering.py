"""Letters in pictures: a typeface that has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from PIL import ImageFont
from PIL.ImageFont import FreeTypeFont

Typeface = Callable[[int], FreeTypeFont]  # by size in pixels

# The first three are widespread on Linux, Windows and macOS; the others have Chinese and Japanese.
_SYSTEM_FONTS = (
    "DejaVuSans.ttf",
    "arial.ttf",
    "Arial Unicode.ttf",
    "NotoSansCJK-Regular.ttc",
    "msyh.ttc",
    "Hiragino Sans GB.ttc",
)


def typeface_for(text: str) -> Typeface:
    """The typeface that has most of the letters of a text, all of them if there is one.

    Pillow brings its own, which looks good and is the same on every machine, but knows little beyond English.
    For other letters the fonts of the system are asked; those that are still missing are drawn as boxes.
    """
    letters = "".join(sorted({letter for letter in text if not letter.isspace()}))
    return max(_typefaces(), key=lambda face: _count_known(face(16), letters))  # the first of equals


@lru_cache(maxsize=64)
def _own(size: int) -> FreeTypeFont:
    font = ImageFont.load_default(size)
    assert isinstance(font, FreeTypeFont)  # wherever Pillow is built with FreeType, as all its wheels are
    return font


@lru_cache(maxsize=1)
def _typefaces() -> tuple[Typeface, ...]:
    found: list[Typeface] = [_own]
    for name in _SYSTEM_FONTS:
        try:
            ImageFont.truetype(name, 16)
        except OSError:  # not on this system
            continue
        found.append(lru_cache(maxsize=64)(lambda size, name=name: ImageFont.truetype(name, size)))
    return tuple(found)


def _count_known(font: FreeTypeFont, letters: str) -> int:
    missing = bytes(font.getmask("\uffff"))  # no letter at all: the font's sign for what it does not have
    return sum(bytes(font.getmask(letter)) != missing for letter in letters)
