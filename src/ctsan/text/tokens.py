"""Sentences to lower-case tokens."""

from __future__ import annotations

import re

# Words with inner apostrophes or hyphens (man's, t-shirt), numbers (3, 1.5, 10,000); punctuation is dropped.
_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+(?:['’\-][^\W\d_]+)*\w*")


def tokenize(sentence: str) -> list[str]:
    """Lower-case tokens of a sentence, in order, without punctuation."""
    return [token.replace("’", "'") for token in _TOKEN.findall(sentence.lower())]
