from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ctsan.errors import StorageError, WordsError
from ctsan.text.concepts import Concept, Concepts
from ctsan.text.embedding import save_embedding
from ctsan.text.vocabulary import SPECIALS, Vocabulary
from ctsan.text.words import Words, prepare_words

FILES = ("concepts.json", "embedding.safetensors", "vocabulary.json")

IN_A_PROCESS = """
import sys
from pathlib import Path
from ctsan.text.words import prepare_words
prepare_words(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()).save(Path(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def words(captions: list[str]) -> Words:
    return prepare_words(captions, num_concepts=10)


def test_the_parts_belong_together(words: Words) -> None:
    assert len(words.concepts) == 10
    assert all(word in words.vocabulary for word in words.concepts.words)
    assert words.embedding.shape == (len(words.vocabulary), 300)


def test_progress_ends_at_the_end(captions: list[str]) -> None:
    told: list[tuple[str, int, int]] = []
    prepare_words(iter(captions), embedding_dim=8, progress=lambda *step: told.append(step))
    assert told == [
        ("tagging sentences", 32, 32),
        ("learning the embedding", 0, 1),
        ("learning the embedding", 1, 1),
    ]


def test_saved_and_loaded_they_are_the_same(words: Words, tmp_path: Path) -> None:
    words.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == list(FILES)
    loaded = Words.load(tmp_path)
    assert loaded.vocabulary == words.vocabulary
    assert loaded.concepts == words.concepts
    assert np.array_equal(loaded.embedding, words.embedding)
    first = [(tmp_path / name).read_bytes() for name in FILES]
    loaded.save(tmp_path)
    assert [(tmp_path / name).read_bytes() for name in FILES] == first


@pytest.mark.slow
def test_two_processes_with_different_hash_seeds_write_the_same_bytes(
    captions: list[str], tmp_path: Path
) -> None:
    (tmp_path / "captions.txt").write_text("\n".join(captions), encoding="utf-8")
    command = [sys.executable, "-W", "error", "-c", IN_A_PROCESS, str(tmp_path / "captions.txt")]
    runs = [
        subprocess.Popen(
            [*command, str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stderr=subprocess.PIPE,
        )
        for seed in ("1", "2")
    ]
    assert [(run.communicate()[1], run.returncode) for run in runs] == [(b"", 0)] * 2  # and no noise either
    for name in FILES:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


def test_a_folder_without_words_names_all_that_is_missing(words: Words, tmp_path: Path) -> None:
    with pytest.raises(WordsError, match=r"vocabulary\.json or concepts\.json or embedding\.safetensors"):
        Words.load(tmp_path / "nowhere")
    words.save(tmp_path)
    (tmp_path / "concepts.json").unlink()
    with pytest.raises(WordsError, match=r"does not contain concepts\.json\. Prepare the words again"):
        Words.load(tmp_path)


def test_candidates_of_other_words_are_refused(words: Words, tmp_path: Path) -> None:
    words.save(tmp_path)
    Concepts((Concept("unicorn", "noun", 9),)).save(tmp_path / "concepts.json")
    with pytest.raises(WordsError, match=r"1 candidates, such as 'unicorn', are not in vocabulary\.json"):
        Words.load(tmp_path)


def words_of(embedding: dict[str, np.ndarray], *candidates: str) -> Words:
    """Every word is seen nine times; special tokens are zero."""
    dim = len(next(iter(embedding.values())))
    vocabulary = Vocabulary((*SPECIALS, *embedding), (*[0] * len(SPECIALS), *[9] * len(embedding)))
    concepts = Concepts(tuple(Concept(word, "noun", 9) for word in candidates))
    vectors = np.concatenate([np.zeros((len(SPECIALS), dim)), list(embedding.values())])
    return Words(vocabulary, concepts, vectors.astype(np.float32))


def test_old_words_keep_their_places_and_new_ones_follow() -> None:
    vectors = np.random.default_rng(0).normal(size=(6, 3))
    old = words_of(dict(zip(("a", "dog", "runs"), vectors, strict=False)), "runs", "dog")
    new = words_of(dict(zip(("zebra", "a", "lion", "runs"), vectors, strict=False)), "zebra", "runs", "lion")
    both = old.extended_by(new)
    assert both.vocabulary.words == (*SPECIALS, "a", "dog", "runs", "zebra", "lion")
    assert both.concepts.words == ("runs", "dog", "zebra", "lion")
    assert np.array_equal(both.embedding[: len(old.embedding)], old.embedding)
    assert both.embedding.shape == (len(both.vocabulary), 3)
    again = both.extended_by(new)
    assert again.vocabulary == both.vocabulary
    assert np.array_equal(again.embedding, both.embedding)


def test_new_vectors_are_turned_to_lie_among_the_old_ones() -> None:
    random = np.random.default_rng(0)
    meant = {word: random.normal(size=8) for word in "abcdefghijklz"}
    turn = np.linalg.qr(random.normal(size=(8, 8)))[0]
    old = words_of({word: vector for word, vector in meant.items() if word != "z"})
    new = words_of({word: 3 * vector @ turn for word, vector in meant.items()})
    [z] = old.extended_by(new).vocabulary.encode("z")
    assert old.extended_by(new).embedding[z] == pytest.approx(meant["z"], abs=1e-5)


def test_words_of_corpora_that_share_none_stand_side_by_side() -> None:
    old, new = words_of({"a": np.ones(2)}), words_of({"b": np.full(2, 2.0)})
    assert old.extended_by(new).embedding[-2:].tolist() == [[1, 1], [2, 2]]


def spoilt(embedding: np.ndarray, how: str) -> np.ndarray:
    match how:
        case "nan":
            embedding = embedding.copy()
            embedding[7, 3] = np.nan
        case "float64":
            embedding = embedding.astype(np.float64)
        case "flat":
            embedding = embedding.reshape(-1)
        case "short":
            embedding = embedding[:-1]
        case "empty":
            embedding = embedding[:, :0]
    return embedding


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("nan", "it holds values that are infinite or no number"),
        ("float64", "its word vectors are float64 of the shape"),
        ("flat", "its word vectors are float32 of the shape"),
        ("short", "word vectors for"),
        ("empty", "its word vectors are float32 of the shape"),
    ],
)
def test_damaged_vectors_are_refused(words: Words, tmp_path: Path, how: str, said: str) -> None:
    words.save(tmp_path)
    file = tmp_path / "embedding.safetensors"
    save_embedding(file, spoilt(words.embedding, how), words.vocabulary)
    with pytest.raises(WordsError, match=said) as caught:
        Words.load(tmp_path)
    assert str(caught.value).startswith(f"{file}: ")


@pytest.mark.parametrize("word", ["\ud800", "", "two words", "a\0", "a\nb"])
@pytest.mark.parametrize("name", ["vocabulary.json", "concepts.json"])
def test_what_cannot_be_a_word_is_refused(words: Words, tmp_path: Path, name: str, word: str) -> None:
    words.save(tmp_path)
    file = tmp_path / name
    first = json.dumps(words.concepts.words[0])
    file.write_text(file.read_text(encoding="utf-8").replace(first, json.dumps(word), 1), encoding="utf-8")
    with pytest.raises(WordsError) as caught:
        Words.load(tmp_path)
    assert str(caught.value).startswith(f"{file}: ")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_full_disk_leaves_the_words_that_were_there(
    words: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_there: bool
) -> None:
    out = tmp_path / "words"
    if is_there:
        words.save(out)
    before = {path.name: path.read_bytes() for path in out.iterdir()} if is_there else {}
    write_bytes = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if name in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageError, match=f"^{out}/{name}: No space left on device. Free some space"):
        words.save(out)
    assert ({path.name: path.read_bytes() for path in out.iterdir()} if is_there else {}) == before
    assert out.exists() == is_there
