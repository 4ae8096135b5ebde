from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from ctsan.data.corpus import BlankItem, ChoiceItem, Clip, Corpus, Item, ItemTask, QueryItem
from ctsan.data.item_building import DISTRACTORS, BuiltItems, build_items
from ctsan.errors import UsageError
from ctsan.text.tagging import TaggedWord
from ctsan.text.tokens import tokenize

NOUNS = ["man", "woman", "dog", "car", "horse", "song", "ball", "pan", "guitar", "boat", "river", "tree"]
VERBS = ["drives", "cooks", "plays", "throws", "paints", "rides", "washes", "pulls", "breaks", "lifts"]

Kind = TypeVar("Kind", BlankItem, ChoiceItem, QueryItem)


class DictionaryTagger:
    """Looks words up; enough for sentences of the words above."""

    def tag(self, sentences: Iterable[Sequence[str]]) -> Iterator[list[TaggedWord]]:
        for sentence in sentences:
            yield [self._word(word) for word in sentence]

    def _word(self, word: str) -> TaggedWord:
        if word in VERBS:
            return TaggedWord(word, word.removesuffix("s"), "verb")
        if word in NOUNS:
            return TaggedWord(word, word, "noun")
        return TaggedWord(word, word, "adjective" if word == "red" else "other")


def corpus_of(captions: Sequence[Sequence[str]], *, sources: Sequence[str] | None = None) -> Corpus:
    clips = tuple(
        Clip(
            id=f"{n}.mp4",
            path=Path(f"{n}.mp4"),
            captions=tuple(each),
            split="test",
            source=sources[n] if sources else f"{n}",
        )
        for n, each in enumerate(captions)
    )
    return Corpus(name="made", root=Path("made"), format="own", clips=clips)


def varied(clips: int, captions: int) -> Corpus:
    random = Random(0)
    return corpus_of(
        [
            [
                f"The {random.choice(NOUNS)} {random.choice(VERBS)} a red {random.choice(NOUNS)}."
                for _ in range(captions)
            ]
            for _ in range(clips)
        ]
    )


def build(corpus: Corpus, task: ItemTask, **more: Any) -> BuiltItems:
    arguments: dict[str, Any] = {
        "split": "test",
        "seed": 0,
        "tagger": DictionaryTagger(),
        "vocabulary_words": {*NOUNS, *VERBS},
    }
    return build_items(corpus, task=task, **{**arguments, **more})


def all_of(kind: type[Kind], items: Sequence[Item]) -> list[Kind]:
    """The items, every one of which is of this kind."""
    found = [item for item in items if isinstance(item, kind)]
    assert len(found) == len(items)
    return found


def test_a_blank_stands_for_a_content_word_of_the_vocabulary() -> None:
    corpus = varied(30, 4)
    vocabulary = ["dog", "red", "the", *VERBS[:5]]
    items = all_of(BlankItem, build(corpus, "fill", vocabulary_words=vocabulary).items)
    captions = {(clip.id, " ".join(tokenize(text))) for clip in corpus for text in clip.captions}
    assert {(item.clip, item.sentence.replace("_____", item.answer)) for item in items} <= captions
    assert {item.answer for item in items} == {"dog", "red", *VERBS[:5]}


def test_one_blank_for_each_distinct_caption_in_the_order_of_the_corpus() -> None:
    corpus = corpus_of([["a man rides", "A man rides!", "a dog pulls"], ["a boat"]])
    items = all_of(BlankItem, build(corpus, "fill").items)
    assert [(item.clip, item.sentence.count("_____")) for item in items] == [
        ("0.mp4", 1),
        ("0.mp4", 1),
        ("1.mp4", 1),
    ]


def test_distractors_come_from_other_sources_and_share_no_verb_and_no_object() -> None:
    sources = [str(n // 2) for n in range(60)]
    corpus = replace(
        varied(60, 3), clips=tuple(map(lambda c, s: replace(c, source=s), varied(60, 3), sources))
    )
    built = build(corpus, "choose")
    source = {clip.id: clip.source for clip in corpus}
    owners: dict[str, set[str]] = {}
    for clip in corpus:
        for text in clip.captions:
            owners.setdefault(text, set()).add(clip.source)

    def verb_and_object(text: str) -> tuple[str, str]:
        _, _, verb, _, _, thing = tokenize(text)
        return verb, thing

    assert built.left_out == {}
    items = all_of(ChoiceItem, built.items)
    assert {item.answer for item in items} == set(range(DISTRACTORS + 1))
    for item in items:
        right = item.choices[item.answer]
        wrong = [choice for choice in item.choices if choice != right]
        assert len(set(wrong)) == DISTRACTORS
        assert source[item.clip] in owners[right]
        for choice in wrong:
            assert owners[choice] - {source[item.clip]}
            assert not set(verb_and_object(choice)) & set(verb_and_object(right))


def test_subjects_may_be_shared_and_a_sentence_without_a_verb_is_all_object() -> None:
    same_subject = [["a man drives"], ["a man cooks"], ["a man plays"], ["a man throws"], ["a man paints"]]
    (first, *_) = all_of(ChoiceItem, build(corpus_of(same_subject), "choose").items)
    assert sorted(first.choices) == sorted(text for (text,) in same_subject)
    no_verb = [["the man"], *same_subject[1:], ["a dog rides the man"]]
    (first, *_) = all_of(ChoiceItem, build(corpus_of(no_verb), "choose").items)
    assert first.choices.count("a dog rides the man") == 0


def test_a_rare_distractor_is_found_however_many_captions_share_the_verb() -> None:
    alike = [["a man drives"]] * 3000
    others = [["a man cooks"], ["a man plays"], ["a man throws"], ["a man paints"]]
    items = all_of(ChoiceItem, build(corpus_of([*alike, *others]), "choose", per_clip=1).items)
    assert len(items) == 3004
    assert set(items[0].choices) == {"a man drives", *(text for (text,) in others)}


def test_each_distractor_comes_from_another_clip() -> None:
    corpus = corpus_of([["a man drives"], ["a man cooks", "a man plays", "a man throws", "a man paints"]])
    assert build(corpus, "choose").items == ()


def test_a_clip_without_enough_distractors_is_named() -> None:
    corpus = corpus_of([["a man drives"], ["a man cooks"], ["a man plays"], [], ["the and"]])
    built = build(corpus, "choose")
    reason = "no caption has 4 of other sources that share no verb and no object with it"
    assert built.items == ()
    assert built.left_out == {
        "0.mp4": reason,
        "1.mp4": reason,
        "2.mp4": reason,
        "3.mp4": "it has no captions",
        "4.mp4": reason,
    }
    assert (
        build(corpus, "fill").left_out["4.mp4"]
        == "no caption has a noun, verb or adjective of the vocabulary"
    )


def test_one_query_for_each_clip_or_as_many_as_asked_for() -> None:
    corpus = varied(20, 5)
    texts = {clip.id: clip.captions for clip in corpus}
    items = all_of(QueryItem, build(corpus, "rank").items)
    assert [item.clip for item in items] == [clip.id for clip in corpus]
    assert all(item.query in texts[item.clip] for item in items)
    assert len({texts[item.clip].index(item.query) for item in items}) > 1
    assert len(build(corpus, "rank", per_clip=3).items) == 60


def test_a_limit_takes_another_caption_where_the_first_gives_no_item() -> None:
    corpus = corpus_of([["the and", "or the", "but so", "a dog"]] * 10)
    assert len(build(corpus, "fill", per_clip=1).items) == 10


def test_a_limit_does_not_favour_blanks_at_the_beginning() -> None:
    corpus = corpus_of([[f"man dog car horse song {n} {m}" for m in range(20)] for n in range(300)])
    items = all_of(BlankItem, build(corpus, "fill", per_clip=1).items)
    counts = Counter(item.answer for item in items)
    assert min(counts.values()) > 35  # 60 each, if all places are alike


@pytest.mark.parametrize("task", ["fill", "choose", "rank"])
def test_the_seed_decides(task: ItemTask) -> None:
    corpus = varied(40, 3)
    assert build(corpus, task).items == build(corpus, task).items
    assert build(corpus, task).items != build(corpus, task, seed=1).items


def test_blanks_do_not_depend_on_the_order_of_the_corpus() -> None:
    corpus = varied(40, 3)
    turned = replace(corpus, clips=corpus.clips[::-1])
    assert set(build(corpus, "fill").items) == set(build(turned, "fill").items)


def test_items_do_not_depend_on_the_order_of_sets_in_the_process() -> None:
    script = (
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('made', sys.argv[1])\n"
        "made = importlib.util.module_from_spec(spec); spec.loader.exec_module(made)\n"
        "print(made.build(made.varied(30, 3), 'choose'), made.build(made.varied(30, 3), 'fill'))\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", script, __file__],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert len(told[0]) > 1000


def test_a_split_without_captions_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"made: the split 'val' has no captions\. Choose a split that has some"
    ):
        build(varied(2, 1), "fill", split="val")


def test_ten_thousand_captions_take_seconds() -> None:
    corpus = varied(500, 20)
    start = time.process_time()
    built = build(corpus, "choose")
    assert len(built.items) > 9000
    assert time.process_time() - start < 10
