"""Choose a typeface that has the characters of a text."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from PIL import ImageFont
from PIL.ImageFont import FreeTypeFont

Typeface = Callable[[int], FreeTypeFont]  # by size in pixels

# The first three are common on Linux, Windows and macOS; the others cover Chinese and Japanese.
_SYSTEM_FONTS = (
    "DejaVuSans.ttf",
    "arial.ttf",
    "Arial Unicode.ttf",
    "NotoSansCJK-Regular.ttc",
    "msyh.ttc",
    "Hiragino Sans GB.ttc",
)


def typeface_for(text: str) -> Typeface:
    """The typeface with the most characters of a text.

    Pillow's default font is preferred: it is the same on every machine, but covers little beyond English.
    Characters that the chosen font lacks are drawn as boxes.
    """
    characters = "".join(sorted({character for character in text if not character.isspace()}))
    return max(_typefaces(), key=lambda face: _count_covered(face(16), characters))  # the first of equals


@lru_cache(maxsize=64)
def _pillow_font(size: int) -> FreeTypeFont:
    font = ImageFont.load_default(size)
    assert isinstance(font, FreeTypeFont)  # if Pillow is built with FreeType, as all its wheels are
    return font


@lru_cache(maxsize=1)
def _typefaces() -> tuple[Typeface, ...]:
    typefaces: list[Typeface] = [_pillow_font]
    for name in _SYSTEM_FONTS:
        try:
            ImageFont.truetype(name, 16)
        except OSError:  # not on this system
            continue
        typefaces.append(lru_cache(maxsize=64)(lambda size, name=name: ImageFont.truetype(name, size)))
    return tuple(typefaces)


def _count_covered(font: FreeTypeFont, characters: str) -> int:
    missing_glyph = bytes(font.getmask("\uffff"))  # a code point that is never assigned
    return sum(bytes(font.getmask(character)) != missing_glyph for character in characters)
