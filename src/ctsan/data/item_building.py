"""Test items from the captions of a split: blanks, choices and queries, the same for the same seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from ctsan.data.corpus import BLANK, BlankItem, ChoiceItem, Clip, Corpus, Item, ItemTask, QueryItem, Split
from ctsan.errors import UsageError
from ctsan.text.tagging import CONTENT_PARTS, TaggedWord, Tagger, load_tagger
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import Vocabulary

DISTRACTORS = 4
_DRAWS = 100  # captions drawn at random before all are looked through; a few tens are enough as a rule
_LEFT_OUT: dict[ItemTask, str] = {
    "fill": "no caption has a noun, verb or adjective of the vocabulary",
    "choose": f"no caption has {DISTRACTORS} of other sources that share no verb and no object with it",
    "rank": "it has no captions",
}


@dataclass(frozen=True, slots=True)
class BuiltItems:
    """The items, and for every clip of the split that got none the reason."""

    items: tuple[Item, ...]
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Caption:
    clip: Clip
    text: str
    tokens: tuple[str, ...]

    def random(self, seed: int, purpose: str) -> Random:
        """Draws of their own for each purpose, which other captions do not change."""
        return Random("\n".join((str(seed), purpose, self.clip.id, *self.tokens)))


_Maker = Callable[[int], Item | None]  # the item of the n-th caption, None where it gives none


def build_items(
    corpus: Corpus,
    *,
    split: Split,
    task: ItemTask,
    seed: int,
    tagger: Tagger | None = None,
    vocabulary_words: Collection[str] | None = None,
    per_clip: int | None = None,
) -> BuiltItems:
    """Build the items of one task from the captions of one split, in the order of the corpus.

    fill: one blank a caption, over a noun, verb or adjective of the vocabulary, in the caption's tokens;
    choose: the caption among captions of other sources that share no verb and no object with it;
    rank: captions as queries. A sentence that a clip has twice counts once.

    Args:
        tagger: by default the one that concept candidates are found with.
        vocabulary_words: by default those of the corpus' training captions, and of no others.
        per_clip: at most so many items of each clip; by default one for each caption, for rank one a clip.

    Raises:
        UsageError: if the split has no captions.
    """
    clips = corpus.split(split)
    captions = _distinct_captions(clips)
    if not captions:
        remedy = "Choose a split that has some: `ctsan corpus check` counts them."
        raise UsageError(f"{corpus.place}: the split {split!r} has no captions. {remedy}")
    make: _Maker
    if task == "rank":
        per_clip = per_clip or 1

        def make(place: int) -> Item:
            return QueryItem(query=captions[place].text, clip=captions[place].clip.id)

    else:
        tagged = list((tagger or load_tagger()).tag(caption.tokens for caption in captions))
        if task == "fill":
            if vocabulary_words is None:
                training = (tokenize(caption) for caption in corpus.captions("train"))
                vocabulary_words = Vocabulary.build(training).words
            make = _blank_maker(captions, tagged, frozenset(vocabulary_words), seed)
        else:
            make = _choice_maker(captions, tagged, seed)

    places: dict[str, list[int]] = {clip.id: [] for clip in clips}
    for place, caption in enumerate(captions):
        places[caption.clip.id].append(place)
    items: list[Item] = []
    left_out: dict[str, str] = {}
    for clip, own in places.items():
        made = _make_some(own, make, captions, seed, per_clip)
        items += made
        if not made:
            left_out[clip] = _LEFT_OUT[task if own else "rank"]
    return BuiltItems(tuple(items), left_out)


def _distinct_captions(clips: Iterable[Clip]) -> list[_Caption]:
    captions: dict[tuple[str, tuple[str, ...]], _Caption] = {}
    for clip in clips:
        for text in clip.captions:
            if tokens := tuple(tokenize(text)):
                captions.setdefault((clip.id, tokens), _Caption(clip, text.strip(), tokens))
    return list(captions.values())


def _make_some(
    places: Sequence[int], make: _Maker, captions: Sequence[_Caption], seed: int, limit: int | None
) -> list[Item]:
    """Items of one clip's captions in their order; with a limit, of captions drawn at random."""
    order = places
    if limit is not None:
        order = sorted(places, key=lambda place: captions[place].random(seed, "order").random())
    made: dict[int, Item] = {}
    for place in order:
        if len(made) == limit:
            break
        if item := make(place):
            made[place] = item
    return [made[place] for place in sorted(made)]


def _draw(random: Random, count: int) -> int:
    """A place below `count`; from `random()` alone, the one draw that Python keeps the same for ever."""
    return int(random.random() * count)


def _blank_maker(
    captions: Sequence[_Caption], tagged: Sequence[list[TaggedWord]], vocabulary: frozenset[str], seed: int
) -> _Maker:
    def make(place: int) -> Item | None:
        caption, words = captions[place], tagged[place]
        good = [n for n, word in enumerate(words) if word.part in CONTENT_PARTS and word.word in vocabulary]
        if not good:
            return None
        blank = good[_draw(caption.random(seed, "blank"), len(good))]
        sentence = " ".join((*caption.tokens[:blank], BLANK, *caption.tokens[blank + 1 :]))
        return BlankItem(clip=caption.clip.id, sentence=sentence, answer=caption.tokens[blank])

    return make


def _choice_maker(captions: Sequence[_Caption], tagged: Sequence[list[TaggedWord]], seed: int) -> _Maker:
    meanings = [_verbs_and_objects(words) for words in tagged]
    pool = [place for place, meaning in enumerate(meanings) if meaning]
    everything = frozenset(pool)
    saying: defaultdict[str, set[int]] = defaultdict(set)  # the captions with each verb or object
    for place in pool:
        for word in meanings[place]:
            saying[word].add(place)

    def make(place: int) -> Item | None:
        answer = captions[place]
        random = answer.random(seed, "choices")
        chosen: list[_Caption] = []

        def consider(other: int) -> None:
            caption = captions[other]
            if (
                caption.clip.source != answer.clip.source
                and meanings[other].isdisjoint(meanings[place])
                and all(caption.clip is not each.clip and caption.tokens != each.tokens for each in chosen)
            ):
                chosen.append(caption)

        if not meanings[place]:
            return None
        for _ in range(_DRAWS):
            consider(pool[_draw(random, len(pool))])
            if len(chosen) == DISTRACTORS:
                break
        else:
            rest = sorted(everything.difference(*(saying[word] for word in meanings[place])))
            for other in sorted(rest, key=lambda _: random.random()):
                if len(chosen) < DISTRACTORS:
                    consider(other)
        if len(chosen) < DISTRACTORS:
            return None
        choices = [caption.text for caption in chosen]
        right = _draw(random, DISTRACTORS + 1)
        choices.insert(right, answer.text)
        return ChoiceItem(clip=answer.clip.id, choices=tuple(choices), answer=right)

    return make


def _verbs_and_objects(words: Sequence[TaggedWord]) -> frozenset[str]:
    """Lemmas of a sentence's verbs and objects, each marked with which it is.

    Objects are the nouns after the first verb; a sentence without a verb is all object.
    """
    parts = [word.part for word in words]
    first_verb = parts.index("verb") if "verb" in parts else -1
    return frozenset(
        f"{word.part} {word.lemma}"
        for place, word in enumerate(words)
        if word.part == "verb" or (word.part == "noun" and place > first_verb)
    )
