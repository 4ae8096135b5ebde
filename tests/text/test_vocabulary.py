from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctsan.errors import UsageError, WordsError
from ctsan.text.vocabulary import BLANK, BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

SENTENCES = [["a", "dog", "runs"], ["a", "dog", "sits"], ["a", "cat", "sits"], ["the", "dog"]]


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary.build(SENTENCES, min_count=2)


def test_words_stand_by_frequency_then_alphabet_after_the_special_tokens(vocabulary: Vocabulary) -> None:
    assert vocabulary.words == ("<pad>", "<unk>", "<bos>", "<eos>", "<blank>", "a", "dog", "sits")
    assert vocabulary.counts == (0, 0, 0, 0, 0, 3, 3, 2)
    assert [vocabulary.words[n] for n in (PAD, UNK, BOS, EOS, BLANK)] == list(SPECIALS)


def test_the_order_of_the_captions_changes_nothing(vocabulary: Vocabulary) -> None:
    assert Vocabulary.build(SENTENCES[::-1], min_count=2) == vocabulary


def test_a_word_needs_more_than_three_uses() -> None:
    kept = Vocabulary.build([["four", "three"]] * 3 + [["four"]])
    assert "four" in kept
    assert "three" not in kept


def test_unknown_words_are_unk_and_known_ones_come_back(vocabulary: Vocabulary) -> None:
    numbers = vocabulary.encode(["<bos>", "a", "cat", "sits", "<blank>"])
    assert numbers == [BOS, 5, UNK, 7, BLANK]
    assert vocabulary.decode(numbers) == ["<bos>", "a", "<unk>", "sits", "<blank>"]
    assert len(vocabulary) == 8


@pytest.mark.parametrize("sentences", [[], [[]], [["once"]]])
def test_captions_without_a_frequent_word_are_refused(sentences: list[list[str]]) -> None:
    with pytest.raises(UsageError, match=r"occurs 4 times or more.*Add training captions"):
        Vocabulary.build(sentences)


def test_saved_and_loaded_it_is_the_same(vocabulary: Vocabulary, tmp_path: Path) -> None:
    file = tmp_path / "new" / "vocabulary.json"
    vocabulary.save(file)
    first = file.read_bytes()
    vocabulary.save(file)
    assert file.read_bytes() == first
    assert Vocabulary.load(file) == vocabulary
    assert [path.name for path in file.parent.iterdir()] == ["vocabulary.json"]
    file.write_bytes(b"\xef\xbb\xbf" + first)  # an editor's byte-order mark does no harm
    assert Vocabulary.load(file) == vocabulary


def damage(**changes: object) -> str:
    sound = {"format": "ctsan-vocabulary", "version": 1, "special": list(SPECIALS), "words": {"dog": 4}}
    return json.dumps(sound | changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format":\n oops', r"vocabulary\.json: it is not JSON \(Expecting value: line 2"),
        ("[]", r"it holds a list where an object should be"),
        ("{}", r"its format is 'unknown', not 'ctsan-vocabulary'"),
        (damage(format="ctsan-concepts"), r"its format is 'ctsan-concepts', not 'ctsan-vocabulary'"),
        (damage(version=2), r"its version is 2, and this ctsan reads version 1\. Use the ctsan that made it"),
        (damage(special=["<pad>"]), r"its special tokens are not <pad> <unk> <bos> <eos> <blank>"),
        (damage(words=["dog"]), r"'words' does not give a whole number for each word"),
        (damage(words={"dog": "4"}), r"'words' does not give a whole number for each word"),
        (damage(words={"dog": True}), r"'words' does not give a whole number for each word"),
        (damage(words={"dog": 4, "cat": -1}), r"'words' does not give a whole number for each word"),
        (damage(words={"dog": 4, "cat": 2**53 + 1}), r"'words' does not give a whole number for each word"),
        (damage(words={"dog": 4, "a cat": 3, "b c": 1}), r"'a cat' is not a word"),
        (damage(words={"dog": 4, "": 3}), r"'' is not a word"),
        (damage(words={"<eos>": 4}), r"it lists <eos> among the words"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "vocabulary.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(WordsError, match=message) as caught:
        Vocabulary.load(file)
    assert str(file) in str(caught.value)
    assert "repare the words again" in str(caught.value)
    assert caught.value.exit_code == 2


def test_missing_unreadable_and_binary_files_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(WordsError, match="there is no such file"):
        Vocabulary.load(tmp_path / "none.json")
    with pytest.raises(WordsError, match="it is a folder"):
        Vocabulary.load(tmp_path)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WordsError, match="not UTF-8"):
        Vocabulary.load(tmp_path / "binary.json")
