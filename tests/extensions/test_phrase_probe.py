"""What a sentence would be worth: CIDEr with captions that are guessed from features.

Worst of five seeds by `make margins`, and the bound:

- right sentences .955 (> .9); known of it 1.32 times as much (> 1.2)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from ctsan.extensions.phrase_probe import PhraseProbe
from margins import Margins, Start

C = 6
DOG, CAT, RUNS, SLEEPS, A, THERE = range(5, 11)

# Sentences of one length, so that a metric with a penalty on length would agree.
CAPTIONS = [
    [[A, DOG, RUNS, THERE], [A, DOG, RUNS, A]],
    [[A, CAT, SLEEPS, THERE], [THERE, A, CAT, SLEEPS]],
    [[A, DOG, SLEEPS, THERE]],
    [[THERE, A, CAT, A], [CAT, CAT, CAT, RUNS]],
]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def all_own(captions: Sequence[object]) -> Tensor:
    return torch.ones(len(captions), dtype=torch.bool)


def ngrams(words: Sequence[int], n: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def cider(said: Sequence[int], references: Sequence[Sequence[int]]) -> float:
    """CIDEr as Vedantam et al. (2015) write it, one n-gram after the other: the reference for the probe."""

    def vector(words: Sequence[int], n: int) -> dict[tuple[int, ...], float]:
        def clips_with(gram: tuple[int, ...]) -> int:
            return sum(any(gram in ngrams(caption, n) for caption in own) for own in CAPTIONS)

        weights = {
            gram: count * math.log(len(CAPTIONS) / max(1, clips_with(gram)))
            for gram, count in ngrams(words, n).items()
        }
        norm = math.sqrt(sum(weight**2 for weight in weights.values())) or 1.0
        return {gram: weight / norm for gram, weight in weights.items()}

    total = 0.0
    for n in range(1, 5):
        own = vector(said, n)
        for caption in references:
            other = vector(caption, n)
            total += sum(weight * other.get(gram, 0.0) for gram, weight in own.items()) / len(references)
    return 10 * total / 4


def learnt(num_phrases: int = 100) -> PhraseProbe:
    probe = PhraseProbe(channels=C, num_phrases=num_phrases)
    probe.fit(drawn(len(CAPTIONS), C), CAPTIONS, all_own(CAPTIONS))
    return probe


@pytest.mark.parametrize("said", [[A, DOG, RUNS, THERE], [CAT, CAT, RUNS, A], [THERE, 30, 31, DOG]])
def test_features_that_tell_nothing_leave_the_mean_cider_over_all_clips(said: list[int]) -> None:
    wanted = sum(cider(said, own) for own in CAPTIONS) / len(CAPTIONS)
    probe = learnt()
    found = probe(torch.tensor([[said]]), probe.weigh(torch.zeros(1, C)))
    assert float(found) == pytest.approx(wanted, abs=1e-5)
    assert wanted > 0.1


def test_features_tell_which_sentence_is_worth_more(start: Start, margins: Margins) -> None:
    """Half of 600 clips are of dogs that run, the others of cats that sleep: one channel knows which."""
    seen = drawn(600, C, seed=2 * start.seed) * 3
    is_dog = seen[:, 0] > 0
    captions = [[[A, DOG, RUNS, THERE]] if dog else [[A, CAT, SLEEPS, THERE]] for dog in is_dog.tolist()]
    probe = PhraseProbe(channels=C, num_phrases=50)
    probe.fit(seen, captions, all_own(captions))
    sentences = torch.tensor([[A, DOG, RUNS, THERE], [A, CAT, SLEEPS, THERE]])
    new = drawn(200, C, seed=2 * start.seed + 1) * 3
    dog, cat = probe(sentences.expand(200, -1, -1), probe.weigh(new)).unbind(dim=1)
    margins.above("right", float(((dog > cat) == (new[:, 0] > 0)).float().mean()), 0.9)


def test_others_teach_what_goes_with_what_and_not_how_often_it_is_said(
    start: Start, margins: Margins
) -> None:
    seen = drawn(400, C, seed=start.seed) * 3
    captions = [[[A, DOG]] if x > 0 else [[A, CAT]] for x in seen[:, 0].tolist()]
    is_own = torch.arange(400) < 40
    alone, both = (PhraseProbe(channels=C, num_phrases=20) for _ in range(2))
    alone.fit(seen[:40], captions[:40], all_own(captions[:40]))
    both.fit(seen, captions[:40] + [[[A, DOG, RUNS]]] * 360, is_own)
    torch.testing.assert_close(alone.often, both.often)
    assert torch.equal(alone.keys, both.keys)
    both.fit(seen, captions, is_own)
    guess = [probe.phrase @ probe.clip[:, 0] for probe in (alone, both)]
    known = float(guess[1].abs().max() / guess[0].abs().max())
    margins.above("known of it / without others", known, 1.2)  # 18 clips' worth more


@pytest.mark.parametrize("num_phrases", [5, 100])
def test_neither_padding_nor_other_sentences_change_what_one_is_worth(num_phrases: int) -> None:
    probe, seen = learnt(num_phrases), drawn(3, C, seed=4)
    words = torch.tensor([[A, DOG, RUNS, 0, 0], [CAT, 0, 0, 0, 0], [A, CAT, SLEEPS, THERE, A]])
    together = probe(words.expand(3, -1, -1), probe.weigh(seen))
    alone = [
        [
            float(probe(words[None, row : row + 1, :size], probe.weigh(one)))
            for row, size in enumerate((3, 1, 5))
        ]
        for one in seen[:, None]
    ]
    assert together.isfinite().all()
    torch.testing.assert_close(together, torch.tensor(alone))


def test_few_phrases_are_the_commonest_and_the_others_still_make_a_sentence_worth_less() -> None:
    few = learnt(num_phrases=2)
    assert few.keys.tolist() == sorted([A, THERE])  # in all four clips, and in all four
    nothing = torch.zeros(1, C)
    [[plain, longer]] = few(torch.tensor([[[THERE, 0, 0], [THERE, 40, 41]]]), few.weigh(nothing)).tolist()
    assert plain == longer == 0  # what all clips have tells nothing: its weight is 0
    some = learnt(num_phrases=6)
    [[plain, longer]] = some(torch.tensor([[[DOG, 0, 0], [DOG, 40, 41]]]), some.weigh(nothing)).tolist()
    assert plain > longer > 0


def test_nothing_of_it_is_trained_and_it_is_saved_as_it_is() -> None:
    probe, other = learnt(), PhraseProbe(channels=C, num_phrases=100)
    assert not list(probe.parameters())
    other.load_state_dict(probe.state_dict())
    words, seen = torch.tensor([[[A, DOG, RUNS]]]), drawn(1, C, seed=2)
    assert torch.equal(probe(words, probe.weigh(seen)), other(words, other.weigh(seen)))
