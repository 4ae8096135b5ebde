from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from ctsan.errors import WordsError
from ctsan.text.concepts import Concept, Concepts
from ctsan.text.tagging import Part, TaggedWord, load_tagger
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import Vocabulary


class ByRule:
    """A tagger whose mistakes are known: each sentence starts with the part of all its words."""

    def tag(self, sentences: Iterable[Sequence[str]]) -> Iterator[list[TaggedWord]]:
        parts: dict[str, Part] = {"n": "noun", "v": "verb", "a": "adjective", "o": "other"}
        for mark, *words in sentences:
            yield [TaggedWord(mark, mark, "other"), *(TaggedWord(word, word, parts[mark]) for word in words)]


def by_rule(*sentences: str, num_concepts: int = 2000) -> Concepts:
    tokens = [sentence.split() for sentence in sentences]
    vocabulary = Vocabulary.build(tokens, min_count=2)
    return Concepts.build(tokens, vocabulary, ByRule(), num_concepts=num_concepts)


def test_only_content_uses_count_and_the_commonest_part_names_the_word() -> None:
    concepts = by_rule("n dance", "v dance", "v dance", "o dance", "a red", "a red")
    assert concepts.candidates == (
        Concept("dance", "verb", 3, "dance"),
        Concept("red", "adjective", 2, "red"),
    )


def test_a_word_that_is_seldom_content_is_no_candidate() -> None:
    assert by_rule("o of of", "n of", "o of", "n of dog dog").words == ("dog",)


def test_half_content_is_not_enough() -> None:
    assert by_rule("n like dog dog", "o like").words == ("dog",)


def test_rare_words_are_left_to_the_vocabulary() -> None:
    assert by_rule("n dog dog unicorn").words == ("dog",)


def test_the_most_common_are_kept_and_ties_go_by_alphabet() -> None:
    sentences = ("n owl owl bat bat cat cat cat", "v bat")
    assert by_rule(*sentences, num_concepts=10).words == ("bat", "cat", "owl")
    assert by_rule(*sentences, num_concepts=2).words == ("bat", "cat")


def test_every_repetition_of_a_sentence_counts() -> None:
    assert by_rule("n dog", "n dog", "n dog").candidates == (Concept("dog", "noun", 3, "dog"),)


def test_forms_of_a_word_have_one_lemma_and_files_without_lemmas_are_read(tmp_path: Path) -> None:
    tokens = [tokenize(caption) for caption in ["a man plays a piano", "a man is playing a piano"] * 4]
    concepts = Concepts.build(tokens, Vocabulary.build(tokens, min_count=2), load_tagger())
    lemma = dict(zip(concepts.words, concepts.lemma_ids, strict=True))
    assert lemma["plays"] == lemma["playing"]
    assert len({lemma["man"], lemma["plays"], lemma["piano"]}) == 3
    file = tmp_path / "concepts.json"
    concepts.save(file)
    assert Concepts.load(file) == concepts
    old = json.loads(file.read_text())
    for row in old["concepts"]:
        del row["lemma"]
    file.write_text(json.dumps(old))
    assert Concepts.load(file).words == concepts.words
    assert len(set(Concepts.load(file).lemma_ids)) == len(concepts)  # every form is a word of its own


def test_candidates_of_real_captions(captions: list[str]) -> None:
    sentences = [tokenize(caption) for caption in captions]
    told: list[tuple[int, int]] = []
    concepts = Concepts.build(
        sentences,
        Vocabulary.build(sentences),
        load_tagger(),
        progress=lambda done, total: told.append((done, total)),
    )
    parts = {concept.word: concept.part for concept in concepts.candidates}
    assert {"man", "woman", "guitar", "onions", "pan", "stage"} <= {
        w for w, p in parts.items() if p == "noun"
    }
    assert {"singing", "frying", "playing"} <= {w for w, p in parts.items() if p == "verb"}
    assert {"old", "young"} == {w for w, p in parts.items() if p == "adjective"}
    assert not {"is", "a", "the", "on", "someone", "and"} & parts.keys()
    assert told[-1] == (32, 32)  # different sentences


def test_reference_marks_the_candidates_in_any_of_the_captions() -> None:
    concepts = by_rule("n dog dog dog cat cat bird bird")
    assert concepts.words == ("dog", "bird", "cat")
    assert concepts.reference(["A Cat!", "the cat and a dog's tail", "SOMEONE's unicorn, cat"]) == [2]
    assert concepts.reference(["a dog", "a cat"]) == [0, 2]
    assert concepts.reference([]) == []


def test_saved_and_loaded_they_are_the_same(tmp_path: Path) -> None:
    concepts = by_rule("n café café dog dog", "v runs runs")
    concepts.save(tmp_path / "concepts.json")
    assert Concepts.load(tmp_path / "concepts.json") == concepts


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "'concepts' is not a list"),
        (["dog"], "'dog' is not a word with its part and count"),
        ([{"word": "dog", "part": "other", "count": 3}], "is not a word with its part and count"),
        ([{"word": "dog", "part": ["noun"], "count": 3}], "is not a word with its part and count"),
        ([{"word": "dog", "part": "noun", "count": True}], "is not a word with its part and count"),
        ([{"word": "dog", "part": "noun", "count": 3, "lemma": 1}], "is not a word with its part and count"),
        ([{"word": "dog", "part": "noun", "count": 3}] * 2, "a word is listed twice"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, rows: object, message: str) -> None:
    file = tmp_path / "concepts.json"
    file.write_text(
        json.dumps({"format": "ctsan-concepts", "version": 1, "concepts": rows}), encoding="utf-8"
    )
    with pytest.raises(WordsError, match=message):
        Concepts.load(file)
