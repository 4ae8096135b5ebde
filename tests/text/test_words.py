from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ctsan.errors import WordsError
from ctsan.text.concepts import Concept, Concepts
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
    with pytest.raises(WordsError, match=r"does not hold concepts\.json\. Prepare the words again"):
        Words.load(tmp_path)


def test_candidates_of_other_words_are_refused(words: Words, tmp_path: Path) -> None:
    words.save(tmp_path)
    Concepts((Concept("unicorn", "noun", 9),)).save(tmp_path / "concepts.json")
    with pytest.raises(WordsError, match=r"1 candidates, such as 'unicorn', are not in vocabulary\.json"):
        Words.load(tmp_path)
