"""Word vectors that are learnt from captions.

Worst of five seeds by `make margins`, and the bound:

- words of one world are nearer than those of two by .51 and .66 (> .2)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ctsan.errors import WordsError
from ctsan.text.embedding import Embedding, learn_embedding, load_embedding, save_embedding
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import PAD, SPECIALS, Vocabulary
from margins import Margins, Start


@pytest.fixture(scope="module")
def sentences(captions: list[str]) -> list[list[str]]:
    return [tokenize(caption) for caption in captions]


@pytest.fixture(scope="module")
def vocabulary(sentences: list[list[str]]) -> Vocabulary:
    return Vocabulary.build(sentences)


@pytest.fixture(scope="module")
def embedding(sentences: list[list[str]], vocabulary: Vocabulary) -> Embedding:
    return learn_embedding(sentences, vocabulary, dim=300, seed=0)


def test_every_word_has_a_row(embedding: Embedding, vocabulary: Vocabulary) -> None:
    assert embedding.shape == (len(vocabulary), 300)
    assert embedding.dtype == np.float32
    assert np.isfinite(embedding).all()


def test_pad_is_zero_and_the_other_special_tokens_are_as_wide_as_words(embedding: Embedding) -> None:
    assert not embedding[PAD].any()
    widths = embedding[PAD + 1 : len(SPECIALS)].std(axis=1) / embedding[len(SPECIALS) :].std()
    assert (np.abs(widths - 1) < 0.2).all()


def test_words_of_one_world_lie_nearer_than_words_of_two(
    sentences: list[list[str]], vocabulary: Vocabulary, start: Start, margins: Margins
) -> None:
    """Of ten times as many captions: after these alone, all words still lie as near as .998."""
    embedding = learn_embedding(sentences * 10, vocabulary, dim=50, seed=start.seed)
    guitar, stage, rice, kitchen = embedding[vocabulary.encode(["guitar", "stage", "rice", "kitchen"])]
    unit = [vector / np.linalg.norm(vector) for vector in (guitar, stage, rice, kitchen)]
    margins.above("guitar, nearer to stage", unit[0] @ unit[1] - unit[0] @ unit[3], 0.2)
    margins.above("rice, nearer to kitchen", unit[2] @ unit[3] - unit[2] @ unit[1], 0.2)


def test_the_seed_decides(sentences: list[list[str]], vocabulary: Vocabulary, embedding: Embedding) -> None:
    assert learn_embedding(sentences, vocabulary, seed=0).tobytes() == embedding.tobytes()
    assert learn_embedding(sentences, vocabulary, seed=1).tobytes() != embedding.tobytes()


def test_one_word_is_a_corpus_too() -> None:
    sentences = [["dog"]] * 4
    learnt = learn_embedding(sentences, Vocabulary.build(sentences), dim=8)
    assert learnt.shape == (len(SPECIALS) + 1, 8)
    assert np.isfinite(learnt).all()


def test_saved_and_loaded_it_is_the_same(
    embedding: Embedding, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    file = tmp_path / "embedding.safetensors"
    save_embedding(file, embedding, vocabulary)
    first = file.read_bytes()
    save_embedding(file, embedding, vocabulary)
    assert file.read_bytes() == first
    assert np.array_equal(load_embedding(file, vocabulary), embedding)


def test_another_vocabulary_is_refused(embedding: Embedding, vocabulary: Vocabulary, tmp_path: Path) -> None:
    file = tmp_path / "embedding.safetensors"
    save_embedding(file, embedding, vocabulary)
    swapped = Vocabulary((*vocabulary.words[:-2], *vocabulary.words[:-3:-1]), vocabulary.counts)
    with pytest.raises(WordsError, match="learnt for another vocabulary"):
        load_embedding(file, swapped)


def test_missing_cut_and_foreign_files_are_told_apart(
    embedding: Embedding, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    file = tmp_path / "embedding.safetensors"
    with pytest.raises(WordsError, match="there is no such file"):
        load_embedding(file, vocabulary)
    save_embedding(file, embedding, vocabulary)
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(WordsError, match=r"embedding\.safetensors: it is not a whole safetensors file"):
        load_embedding(file, vocabulary)
    file.write_bytes(b"")
    with pytest.raises(WordsError, match="it is not a whole safetensors file"):
        load_embedding(file, vocabulary)
    save_file({"embedding": embedding}, file)
    with pytest.raises(WordsError, match="its format is 'unknown', not 'ctsan-embedding'"):
        load_embedding(file, vocabulary)
