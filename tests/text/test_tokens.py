from __future__ import annotations

import pytest

from ctsan.text.tokens import tokenize


@pytest.mark.parametrize(
    ("sentence", "tokens"),
    [
        ("a man is playing guitar", "a man is playing guitar"),
        ("SOMEONE opens the door.", "someone opens the door"),
        ("SOMEONE's wife, who can't sleep, gets up.", "someone's wife who can't sleep gets up"),
        ("the players’ bench and a boy’s hat", "the players bench and a boy's hat"),
        ("rock 'n' roll at 5 o'clock", "rock n roll at 5 o'clock"),
        ("A close-up of a t‑shirt -- and a man- no", "a close-up of a t-shirt and a man no"),
        ("10,000 fans paid $1.50 for 3 songs, 1,2 or 3", "10,000 fans paid 1.50 for 3 songs 1 2 or 3"),
        ("a 20-year-old r2d2 in 3d from the 1970s", "a 20-year-old r2d2 in 3d from the 1970s"),
        ("football player #80 at 12:30", "football player 80 at 12 30"),
        ("A Café in Zürich", "a café in zürich"),
        ("cafe\u0301", "café"),  # the accent as a character of its own
        ("a man is _____ a car", "a man is a car"),
        ("snake_case and __x__", "snake case and x"),
        ("a man <unk> a <blank>car</s><br>now", "a man a car now"),
        ("one line<br/>another<br />a third", "one line another a third"),
        ("İstanbul by night", "i\u0307stanbul by night"),  # no single letter has this accent
        ("dogs <3 cats & 5 > 4", "dogs 3 cats 5 4"),
        ("so cute 😍🐶!!! 👍🏽", "so cute"),
        ("a red/blue ball...(again)", "a red blue ball again"),
        ("two   spaces\tand\na line", "two spaces and a line"),
    ],
)
def test_people_write_all_kinds_of_captions(sentence: str, tokens: str) -> None:
    assert tokenize(sentence) == tokens.split()


@pytest.mark.parametrize("nothing", ["", "   ", "?!", "_____", "😀", "-", "'", "<pad>"])
def test_what_holds_no_word_gives_no_token(nothing: str) -> None:
    assert tokenize(nothing) == []


def test_tokens_are_tokenised_to_themselves() -> None:
    tokens = tokenize("SOMEONE’s café: 10,000 t-shirts, 1.5 litres and 20-year-olds can't <unk> wait…")
    assert tokenize(" ".join(tokens)) == tokens
