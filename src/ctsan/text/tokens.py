"""The tokeniser: sentences to lower-case tokens."""

from __future__ import annotations

import re
import unicodedata

# Markup that other software leaves in sentences: <unk>, </s>, <br>.
_MARKER = re.compile(r"</?[a-z_]+\s*/?>")

# One spelling of apostrophes and hyphens.
_JOINS = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "´": "'", "`": "'", "‐": "-", "‑": "-"})

# Numbers (10,000 and 1.5), or letters and digits joined by single apostrophes or hyphens (man's, t-shirt,
# r2d2, 20-year-old). All else is dropped: punctuation, emoji, underscores.
_LETTERS = r"[^\W_](?:[^\W_]|[\u0300-\u036f])*"  # with combining accents that NFC cannot compose
_TOKEN = re.compile(rf"\d{{1,3}}(?:,\d{{3}})+(?!\w)|\d+\.\d+(?!\w)|{_LETTERS}(?:['\-]{_LETTERS})*")


def tokenize(sentence: str) -> list[str]:
    """Lower-case tokens of a sentence, in order, without punctuation.

    The `_____` of a fill-in-the-blank sentence gives no token: split the sentence there first.
    """
    plain = unicodedata.normalize("NFC", sentence.lower()).translate(_JOINS)
    return _TOKEN.findall(_MARKER.sub(" ", plain))
