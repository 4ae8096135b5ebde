"""Build test items (blanks, choices and queries) from the captions of a split, reproducibly by seed."""

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
_DRAWS = 100  # random draws before an exhaustive search; a few tens usually suffice
_LEFT_OUT: dict[ItemTask, str] = {
    "fill": "no caption has a noun, verb or adjective of the vocabulary",
    "choose": f"no caption has {DISTRACTORS} of other sources that share no verb and no object with it",
    "rank": "it has no captions",
}


@dataclass(frozen=True, slots=True)
class BuiltItems:
    """The items, and the reason for every clip of the split without any."""

    items: tuple[Item, ...]
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Caption:
    clip: Clip
    text: str
    tokens: tuple[str, ...]

    def random(self, seed: int, purpose: str) -> Random:
        """A generator for one purpose, independent of other captions and purposes."""
        return Random("\n".join((str(seed), purpose, self.clip.id, *self.tokens)))


_MakeItem = Callable[[int], Item | None]  # the item of the n-th caption, None if it gives none


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

    - fill: the tokens of a caption with one noun, verb or adjective of the vocabulary left blank;
    - choose: a caption among captions of other sources that share no verb and no object with it;
    - rank: captions as queries.

    Repeated captions of a clip count once.

    Args:
        tagger: by default the tagger of the concept candidates.
        vocabulary_words: by default the vocabulary of the corpus' training captions.
        per_clip: the most items per clip; by default one per caption, for rank one per clip.

    Raises:
        UsageError: the split has no captions.
    """
    clips = corpus.split(split)
    captions = _distinct_captions(clips)
    if not captions:
        remedy = "Choose a split that has some: `ctsan corpus check` counts them."
        raise UsageError(f"{corpus.place}: the split {split!r} has no captions. {remedy}")
    make_item: _MakeItem
    if task == "rank":
        per_clip = per_clip or 1

        def make_item(index: int) -> Item:
            return QueryItem(query=captions[index].text, clip=captions[index].clip.id)

    else:
        tagged = list((tagger or load_tagger()).tag(caption.tokens for caption in captions))
        if task == "fill":
            if vocabulary_words is None:
                training = (tokenize(caption) for caption in corpus.captions("train"))
                vocabulary_words = Vocabulary.build(training).words
            make_item = _blank_maker(captions, tagged, frozenset(vocabulary_words), seed)
        else:
            make_item = _choice_maker(captions, tagged, seed)

    indices_by_clip: dict[str, list[int]] = {clip.id: [] for clip in clips}
    for index, caption in enumerate(captions):
        indices_by_clip[caption.clip.id].append(index)
    items: list[Item] = []
    left_out: dict[str, str] = {}
    for clip_id, indices in indices_by_clip.items():
        clip_items = _clip_items(indices, make_item, captions, seed, per_clip)
        items += clip_items
        if not clip_items:
            left_out[clip_id] = _LEFT_OUT[task if indices else "rank"]
    return BuiltItems(tuple(items), left_out)


def _distinct_captions(clips: Iterable[Clip]) -> list[_Caption]:
    captions: dict[tuple[str, tuple[str, ...]], _Caption] = {}
    for clip in clips:
        for text in clip.captions:
            if tokens := tuple(tokenize(text)):
                captions.setdefault((clip.id, tokens), _Caption(clip, text.strip(), tokens))
    return list(captions.values())


def _clip_items(
    indices: Sequence[int], make_item: _MakeItem, captions: Sequence[_Caption], seed: int, limit: int | None
) -> list[Item]:
    """Items of one clip's captions in their order; with a limit, of randomly drawn captions."""
    order = indices
    if limit is not None:
        order = sorted(indices, key=lambda index: captions[index].random(seed, "order").random())
    items: dict[int, Item] = {}
    for index in order:
        if len(items) == limit:
            break
        if item := make_item(index):
            items[index] = item
    return [items[index] for index in sorted(items)]


def _draw(random: Random, count: int) -> int:
    """A random index below `count`, by `random()`, the only method that is stable across Python versions."""
    return int(random.random() * count)


def _blank_maker(
    captions: Sequence[_Caption], tagged: Sequence[list[TaggedWord]], vocabulary: frozenset[str], seed: int
) -> _MakeItem:
    def make_item(index: int) -> Item | None:
        caption, words = captions[index], tagged[index]
        positions = [
            n for n, word in enumerate(words) if word.part in CONTENT_PARTS and word.word in vocabulary
        ]
        if not positions:
            return None
        blank = positions[_draw(caption.random(seed, "blank"), len(positions))]
        sentence = " ".join((*caption.tokens[:blank], BLANK, *caption.tokens[blank + 1 :]))
        return BlankItem(clip=caption.clip.id, sentence=sentence, answer=caption.tokens[blank])

    return make_item


def _choice_maker(captions: Sequence[_Caption], tagged: Sequence[list[TaggedWord]], seed: int) -> _MakeItem:
    meanings = [_verbs_and_objects(words) for words in tagged]
    pool = [index for index, meaning in enumerate(meanings) if meaning]
    all_indices = frozenset(pool)
    indices_by_word: defaultdict[str, set[int]] = defaultdict(set)  # the captions with each verb or object
    for index in pool:
        for word in meanings[index]:
            indices_by_word[word].add(index)

    def make_item(index: int) -> Item | None:
        answer = captions[index]
        random = answer.random(seed, "choices")
        distractors: list[_Caption] = []

        def add_if_suitable(candidate: int) -> None:
            caption = captions[candidate]
            if (
                caption.clip.source != answer.clip.source
                and meanings[candidate].isdisjoint(meanings[index])
                and all(
                    caption.clip is not other.clip and caption.tokens != other.tokens for other in distractors
                )
            ):
                distractors.append(caption)

        if not meanings[index]:
            return None
        for _ in range(_DRAWS):
            add_if_suitable(pool[_draw(random, len(pool))])
            if len(distractors) == DISTRACTORS:
                break
        else:
            rest = sorted(all_indices.difference(*(indices_by_word[word] for word in meanings[index])))
            for candidate in sorted(rest, key=lambda _: random.random()):
                if len(distractors) < DISTRACTORS:
                    add_if_suitable(candidate)
        if len(distractors) < DISTRACTORS:
            return None
        choices = [caption.text for caption in distractors]
        answer_index = _draw(random, DISTRACTORS + 1)
        choices.insert(answer_index, answer.text)
        return ChoiceItem(clip=answer.clip.id, choices=tuple(choices), answer=answer_index)

    return make_item


def _verbs_and_objects(words: Sequence[TaggedWord]) -> frozenset[str]:
    """The lemmas of a sentence's verbs and objects, prefixed with their part of speech.

    Objects are the nouns after the first verb; in a sentence without a verb all nouns are objects.
    """
    parts = [word.part for word in words]
    first_verb = parts.index("verb") if "verb" in parts else -1
    return frozenset(
        f"{word.part} {word.lemma}"
        for position, word in enumerate(words)
        if word.part == "verb" or (word.part == "noun" and position > first_verb)
    )
