"""Word vectors of others: read in the formats that they come in, and put before what captions teach."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from ctsan.errors import UsageError, WordsError
from ctsan.text.embedding import learn_embedding
from ctsan.text.known_vectors import read_vectors
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import PAD, SPECIALS, Vocabulary
from ctsan.text.words import Words, prepare_words

GLOVE = "guitar 1 0.5 -2\nat the stage 0 0 0\nstage 0 1 1e-1\nmoon 9 9 9\n"
WINK = {"dimensions": 3, "vectors": {"guitar": [1, 0.5, -2, 77, 0], "stage": [0, 1, 0.1, 78, 1]}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("glove.txt", GLOVE),
        ("word2vec.txt", "4 3\n" + GLOVE),
        ("wink.json", json.dumps(WINK)),
    ],
)
def test_all_formats_give_the_same_vectors(name: str, content: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    vectors = read_vectors(file, ("guitar", "stage", "rice"))
    assert {word: vector.tolist() for word, vector in vectors.items()} == {
        "guitar": [1.0, 0.5, -2.0],
        "stage": [0.0, 1.0, pytest.approx(0.1)],
    }


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("short.txt", "moon 1 2 3\nguitar 1 2\n", r"short.txt:2: the vector has 2 numbers, not 3"),
        ("letters.txt", "moon 1 2 3\nguitar 1 b 3\n", r"letters.txt:2: the vector of 'guitar'"),
        ("infinite.txt", "guitar 1 nan 3\n", r"infinite.txt:1: the vector of 'guitar'"),
        ("others.txt", "moon 1 2 3\n", "no vector of any word"),
        ("bytes.txt", "\udcff", "not UTF-8"),
        ("cut.json", '{"vectors": {', "not JSON"),
        ("list.json", "[1]", "a list where an object should be"),
        ("none.json", "{}", 'no "vectors"'),
        ("deep.json", "[" * 100_000, "nested too deeply"),
        ("digits.json", '{"vectors": {"guitar": [' + "1" * 5000 + "]}}", "not JSON"),
        ("large.json", '{"vectors": {"guitar": [1' + "0" * 400 + "]}}", "not a list of finite numbers"),
        ("large.txt", "guitar 1e99 2\n", "not a list of finite numbers"),
        ("word.txt", "guitar\n", "not a list of finite numbers"),
        ("nested.json", '{"vectors": {"guitar": [[1]]}}', "not a list of finite numbers"),
        ("objects.json", '{"vectors": {"guitar": [{}]}}', "not a list of finite numbers"),
        ("zero.json", '{"dimensions": 0, "vectors": {"guitar": [1]}}', "not a whole number of at least 1"),
        ("long.txt", "guitar " + "1 " * 1_000_000, "long.txt:1: the line is longer than 1,000,000"),
        ("ragged.json", '{"vectors": {"guitar": [1], "stage": [1, 2]}}', "different lengths"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(name: str, content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(WordsError, match=said):
        read_vectors(file, ("guitar", "stage"))
    with pytest.raises(WordsError, match="no such file"):
        read_vectors(tmp_path / "none.txt", ("guitar",))


def test_they_are_the_first_part_and_as_wide_as_what_is_learnt(captions: list[str], tmp_path: Path) -> None:
    file = tmp_path / "glove.txt"
    file.write_text(GLOVE, encoding="utf-8")
    words = prepare_words(captions, embedding_dim=20, vectors=file)
    given, learnt = words.embedding[:, :3], words.embedding[:, 3:]
    guitar, stage, rice = words.vocabulary.encode(["guitar", "stage", "rice"])
    scale = given[stage, 1]
    assert given[guitar] == pytest.approx(scale * np.array([1, 0.5, -2]))
    assert not given[rice].any()
    assert not words.embedding[PAD].any()
    learnt = learnt[len(SPECIALS) :]
    assert given[[guitar, stage]].std() == pytest.approx(learnt.std(), rel=0.01)
    sentences = [tokenize(caption) for caption in captions]
    alone = learn_embedding(sentences, Vocabulary.build(sentences), dim=17)
    assert np.array_equal(learnt, alone[len(SPECIALS) :])


def test_they_may_be_whole_rows(captions: list[str], tmp_path: Path) -> None:
    file = tmp_path / "glove.txt"
    file.write_text(GLOVE, encoding="utf-8")
    words = prepare_words(captions, embedding_dim=3, vectors=file)
    guitar, rice = words.vocabulary.encode(["guitar", "rice"])
    assert words.embedding[guitar].tolist() == [1, 0.5, -2]
    assert not words.embedding[PAD].any()
    assert words.embedding[rice].any()  # drawn: sentences of such words must not be nothing


def test_words_that_no_caption_has_come_after_all_others(captions: list[str], tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("guitar 1 0\n<s> 9 9\nespresso 0 1\nrocket 1 1\n", encoding="utf-8")
    alone = prepare_words(captions, embedding_dim=4, vectors=file)
    words = prepare_words(captions, embedding_dim=4, vectors=file, extra_vocabulary=1)
    assert words.vocabulary.words == (*alone.vocabulary.words, "espresso")
    assert words.vocabulary.counts[-1] == 0
    assert words.embedding[-1, 1] > 0
    assert not words.embedding[-1, [0, 2, 3]].any()  # captions teach nothing of it
    guitar = words.vocabulary.encode(["guitar"])
    np.testing.assert_array_equal(words.embedding[guitar, 2:], alone.embedding[guitar, 2:])
    assert words.embedding[guitar, 0] > 0.5 * alone.embedding[guitar, 0]  # none is small for want of captions
    words.save(tmp_path / "words")
    assert Words.load(tmp_path / "words").vocabulary == words.vocabulary


def test_too_long_vectors_are_refused_with_the_setting(captions: list[str], tmp_path: Path) -> None:
    file = tmp_path / "glove.txt"
    file.write_text(GLOVE, encoding="utf-8")
    with pytest.raises(UsageError, match=r"--set model\.embedding_dim=203"):
        prepare_words(captions, embedding_dim=2, vectors=file)


@pytest.mark.parametrize("text", ['{"vectors": {"dog": 5}}', '{"vectors": {"dog": null}}'])
def test_a_row_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "vectors.json"
    file.write_text(text)
    with pytest.raises(WordsError, match="the vector of 'dog' is not a list of finite numbers"):
        read_vectors(file, ["dog"])


def test_dimensions_that_are_no_number_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "vectors.json"
    file.write_text('{"vectors": {"dog": [1, 2]}, "dimensions": "two"}')
    with pytest.raises(WordsError, match='"dimensions" is not a whole number'):
        read_vectors(file, ["dog"])


def test_a_pipe_or_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(WordsError, match="pipe.txt: it is not a regular file"):
        read_vectors(tmp_path / "pipe.txt", ("guitar",))
    with pytest.raises(WordsError, match="it is a folder"):
        read_vectors(tmp_path, ("guitar",))
