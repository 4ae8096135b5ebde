"""Word vectors that add up to what a sentence transformer makes of sentences, by the real one's code.

Worst of five seeds by `make margins`, and the bound:

- cosine of like words 1.00 (> .9) and of others .11 (< .7); length of "a" .03 (< .5)
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from commands import ctsan_here
from ctsan.errors import UsageError
from ctsan.text.distilled_vectors import distil, save_vectors
from ctsan.text.known_vectors import read_vectors
from ctsan.text.sentence_teacher import SentenceTeacher
from ctsan.text.tokens import tokenize
from margins import Margins, Start

THINGS = {
    "cat": "kitten",
    "dog": "puppy",
    "car": "automobile",
    "boat": "ship",
    "cup": "mug",
    "ball": "sphere",
}
DEEDS = {"runs": "races", "falls": "drops", "turns": "rotates", "waits": "rests"}
SAME = {**THINGS, **DEEDS}


def means_the_same(sentences: Sequence[str], **_: object) -> Tensor:
    """A teacher to whom a word and its like are one, and "a" is nothing."""
    directions = torch.randn(len(SAME), 32, generator=torch.Generator().manual_seed(0))
    vectors = []
    for sentence in sentences:
        meant = [
            row for row, (word, like) in enumerate(SAME.items()) if {word, like} & set(tokenize(sentence))
        ]
        vectors.append(directions[meant].sum(dim=0) + 0.01)
    return F.normalize(torch.stack(vectors), dim=1)


def test_words_that_mean_the_same_come_to_lie_together(start: Start, margins: Margins) -> None:
    captions = [f"a {thing} {deed}" for thing, deed in product(THINGS, DEEDS)]
    others = [f"a {thing} {deed}" for thing, deed in product(THINGS.values(), DEEDS.values())]
    vectors = distil(captions, others, means_the_same, dim=16, num_words=100, seed=start.seed)
    assert set(vectors) == {"a", *SAME, *SAME.values()}
    assert set(list(vectors)[:11]) == {"a", *SAME}  # the captions' own first
    cosine = {
        (word, like): float(
            vectors[word] @ vectors[like] / np.linalg.norm(vectors[word]) / np.linalg.norm(vectors[like])
        )
        for word, like in product(THINGS, THINGS.values())
    }
    margins.above("cosine of like words", min(cosine[word, THINGS[word]] for word in THINGS), 0.9)
    other = max(each for (word, like), each in cosine.items() if like != THINGS[word])
    margins.below("cosine of others", other, 0.7)
    length = float(np.linalg.norm(vectors["a"]) / np.linalg.norm(vectors["cat"]))
    margins.below("length of 'a'", length, 0.5)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_file_and_it_is_read_as_written(tmp_path: Path) -> None:
    captions = [f"a {thing} {deed}" for thing, deed in product(THINGS, DEEDS)]
    for name in ("one.txt", "two.txt"):
        save_vectors(tmp_path / name, distil(captions, [], means_the_same, dim=8, num_words=7))
    assert (tmp_path / "one.txt").read_bytes() == (tmp_path / "two.txt").read_bytes()
    read = read_vectors(tmp_path / "one.txt", ("a",), extra=100)
    assert len(read) == 7
    assert {vector.shape for vector in read.values()} == {(8,)}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformer that was never trained, of the same kind as the real ones, and small."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("teacher")
    words = ["[PAD]", "[UNK]", "a", *SAME, *SAME.values()]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(
        folder
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def test_a_sentence_is_read_the_same_alone_and_among_longer_ones(teacher: Path) -> None:
    read = SentenceTeacher(teacher)
    told: list[tuple[int, int]] = []
    among = read(
        ["a cat runs", "a", "a dog falls a boat turns a cup waits"], progress=lambda *done: told.append(done)
    )
    torch.testing.assert_close(among[:1], read(["a cat runs"]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(among.norm(dim=1), torch.ones(3))
    assert told == [(3, 3)]
    assert (among[0] - among[1]).abs().max() > 1e-3


def test_a_folder_that_holds_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no config.json"):
        SentenceTeacher(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="the sentence transformer cannot be read"):
        SentenceTeacher(tmp_path)


def test_damaged_weights_are_refused(teacher: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(teacher, damaged)
    whole = (damaged / "model.safetensors").read_bytes()
    (damaged / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="the sentence transformer cannot be read"):
        SentenceTeacher(damaged)


@pytest.mark.slow
def test_the_command(teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(0)
    rows = [
        {"clip": f"{number}.mp4", "captions": [f"a {rng.choice(list(THINGS))} {rng.choice(list(DEEDS))}"]}
        for number in range(30)
    ]
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    lines = (json.dumps({**row, "split": "train"}) for row in rows)
    (corpus / "clips.jsonl").write_text("\n".join(lines), encoding="utf-8")
    text = tmp_path / "text.txt"
    text.write_text("a kitten races\n\na kitten rests\n", encoding="utf-8")
    given = (corpus, "--teacher", teacher, "--text", text, "--dim", 8, "--json")
    ctsan_here("vectors", *given, "--out", tmp_path / "vectors.txt")
    told = json.loads(capsys.readouterr().out)
    assert told["captions"] == 30
    assert told["others"] == 2
    more = tmp_path / "more.jsonl"  # of one clip for training, and one that is held out
    external = [{"clip": str(tmp_path / f"{split}.png"), "split": split} for split in ("train", "test")]
    captioned = (json.dumps(row | {"captions": ["a cat rests", "a dog runs"]}) for row in external)
    more.write_text("\n".join(captioned), encoding="utf-8")
    (tmp_path / "third.jsonl").write_text(json.dumps({**rows[0], "split": "train"}), encoding="utf-8")
    both = (corpus, tmp_path / "third.jsonl", "--external", more, *given[1:])
    ctsan_here("vectors", *both, "--out", tmp_path / "both.txt")
    assert json.loads(capsys.readouterr().out)["captions"] == 30 + 1 + 2
    vectors = read_vectors(tmp_path / "vectors.txt", ("kitten", "races", "a"))
    assert set(vectors) == {"kitten", "a"}  # others are seen once
    for captions in (["a cat runs"], ["a cat", "a cat"]):
        with pytest.raises(UsageError, match="all alike"):
            distil(captions, [], means_the_same, dim=8, num_words=7)
    with pytest.raises(UsageError, match="--dim 24"):
        ctsan_here("vectors", *given, "--dim", 25, "--out", tmp_path / "vectors.txt")
    with pytest.raises(UsageError, match=r"vectors\.txt"):
        ctsan_here("vectors", *given, "--out", tmp_path / "vectors.json")
    with pytest.raises(UsageError, match=r"none\.txt: it cannot be read"):
        ctsan_here("vectors", corpus, "--teacher", teacher, "--text", tmp_path / "none.txt", "--out", "x")
