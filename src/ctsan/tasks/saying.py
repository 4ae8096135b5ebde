"""Sentences of clips: searched by models that describe, and chosen by such as compare, if there are any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ctsan.config import DecodingSettings
from ctsan.evaluation.grammar import grammar_fault
from ctsan.extensions.dual_encoder import DualEncoder
from ctsan.extensions.phrase_probe import PhraseProbe
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.description_model import DescriptionModel
from ctsan.model.lstm import State
from ctsan.model.search import Sentence, beam_search
from ctsan.tasks.member import Member
from ctsan.tasks.scoring import ensemble_scores, score_each
from ctsan.text.vocabulary import BLANK, BOS, EOS, PAD, UNK

NEVER_SAID = (PAD, UNK, BLANK)
_BESIDE_EXPECTED = 0.1  # of a sentence's score counts where its CIDEr can be expected
_TO_CHOOSE_FROM = 1.4  # times the beam: so many sentences end a search where the best of them is chosen

Speaker = Member[DescriptionModel] | Member[DualEncoder]


class Said(NamedTuple):
    text: str
    score: float  # the sentences of a clip are ordered by it, those with a grammar fault after the others
    log_probability: float  # as of a `Sentence`: of a word, in the mean


@torch.inference_mode()
def describe(
    members: Sequence[Speaker],
    encodings: Sequence[ClipEncoding],
    decoding: DecodingSettings,
    *,
    n_best: int = 1,
) -> list[list[Said]]:
    """The best sentences for each encoded clip, the best first.

    A next word's probability is the mean of the members' that describe; one reads what it does not know as
    the unknown word, and would never say it. Likely sentences are often those that would do for any clip.
    Joint embeddings therefore rerank all that the beam found:

        score = log p + suiting · embedding                                 without a phrase probe
        score = 0.1 · log p + suiting · embedding + expecting · CIDEr       with one

    where log p is the mean over a sentence's words, embedding the mean of the standardised cosines, and CIDEr
    what the phrase probe expects. With `skip_faulty`, hypotheses with a grammar fault come after those
    without one, whatever their scores.

    Args:
        encodings: of each member, a row a clip.
    """
    telling = [(member, own) for member, own in zip(members, encodings, strict=True) if _describes(member)]
    judging = [(member, own) for member, own in zip(members, encodings, strict=True) if _compares(member)]
    words = _words_of_all(tuple(member.words.vocabulary.words for member, _ in telling))
    expected = _Expected.of(judging, words)
    found = _search(
        telling,
        words,
        decoding,
        n_best=decoding.beam if judging or decoding.skip_faulty else n_best,
        enough=math.ceil(_TO_CHOOSE_FROM * decoding.beam) if judging else None,
    )
    said = [
        [Said(" ".join(words[number] for number in each.words), each.score, each.score) for each in own]
        for own in found
    ]
    if not judging:
        return [_ordered(own, decoding)[:n_best] for own in said]
    likely = _BESIDE_EXPECTED if expected else 1.0
    worth = (decoding.suiting * _suits(judging, said)).tolist()
    if expected:
        told = expected.of_sentences(found)
        worth = [own + decoding.expecting * each for own, each in zip(worth, told, strict=True)]
    chosen, others = [], iter(worth)
    for some in said:
        scored = [each._replace(score=likely * each.log_probability + next(others)) for each in some]
        chosen.append(_ordered(scored, decoding)[:n_best])
    return chosen


def _ordered(hypotheses: Sequence[Said], decoding: DecodingSettings) -> list[Said]:
    """The best first; those with a grammar fault last, where they are skipped."""
    by_score = sorted(hypotheses, key=lambda each: -each.score)
    if not decoding.skip_faulty:
        return by_score
    return sorted(by_score, key=lambda each: grammar_fault(each.text) is not None)


@lru_cache(maxsize=8)
def _words_of_all(vocabularies: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for words in vocabularies for word in words))


def _describes(member: Speaker) -> TypeGuard[Member[DescriptionModel]]:
    return isinstance(member.model, DescriptionModel)


def _compares(member: Speaker) -> TypeGuard[Member[DualEncoder]]:
    return isinstance(member.model, DualEncoder)


Judges = Sequence[tuple[Member[DualEncoder], ClipEncoding]]


def _suits(judges: Judges, said: Sequence[Sequence[Said]]) -> Tensor:
    """How well each sentence suits its clip, in standard deviations, (sentences of all clips,)."""
    texts, rows = _listed(said)
    scores = [score_each(judge, texts, own.of(rows.to(own.concepts.device))).scores for judge, own in judges]
    return ensemble_scores([judge for judge, _ in judges], scores, standardise=True)


class _Expected:
    """The CIDEr that sentences of clips should have, by the mean of all judges that can tell."""

    def __init__(self, probes: Sequence[tuple[PhraseProbe, Tensor, Tensor]]) -> None:
        self._probes = probes  # each with the weights of phrases in the clips, and its numbers of all words

    @classmethod
    def of(cls, judges: Judges, words: Sequence[str]) -> _Expected | None:
        """Args:
        words: by the numbers that sentences will have.
        """
        probes = []
        for judge, own in judges:
            if judge.model.phrases is not None:
                numbers = torch.tensor(judge.words.vocabulary.encode(words), device=own.concepts.device)
                probes.append((judge.model.phrases, judge.model.phrases.weigh(own.state.top), numbers))
        return cls(probes) if probes else None

    def of_sentences(self, found: Sequence[Sequence[Sentence]]) -> list[float]:
        """Of the sentences of all clips, one clip after the other."""
        counts = [len(own) for own in found]
        read = [torch.tensor(each.words) for own in found for each in own]
        padded = pad_sequence(read, batch_first=True, padding_value=PAD)
        by_clip = pad_sequence(list(torch.split(padded, counts)), batch_first=True, padding_value=PAD)
        sentences = by_clip.to(self._probes[0][1].device)
        by_probe = [probe(numbers[sentences], weights) for probe, weights, numbers in self._probes]
        told = torch.stack(by_probe).mean(dim=0).tolist()
        return [each for own, count in zip(told, counts, strict=True) for each in own[:count]]


def _listed(said: Sequence[Sequence[Said]]) -> tuple[list[str], Tensor]:
    """The sentences of all clips, and whose they are."""
    counts = torch.tensor([len(some) for some in said])
    return [each.text for some in said for each in some], torch.arange(len(said)).repeat_interleave(counts)


def _search(
    telling: Sequence[tuple[Member[DescriptionModel], ClipEncoding]],
    words: Sequence[str],
    decoding: DecodingSettings,
    *,
    n_best: int,
    enough: int | None,
) -> list[list[Sentence]]:
    """Sentences in numbers of all members' words together."""
    members, encodings = zip(*telling, strict=True)
    device = encodings[0].concepts.device
    vocabularies = [member.words.vocabulary for member in members]
    known = [
        None if own.words == words else torch.tensor(own.encode(words), device=device) for own in vocabularies
    ]
    related = [member.model.decode.related(encoding.concepts) for member, encoding in telling]
    shapes = [encoding.state.hidden.shape for encoding in encodings]

    @lru_cache(maxsize=1)  # for most steps are about the same clips
    def shown(clips: tuple[int, ...], width: int) -> list[tuple[Tensor, Tensor | None]]:
        rows = torch.tensor(clips, device=device).repeat_interleave(width)
        return [
            (encoding.concepts[rows], None if own is None else own[rows])
            for encoding, own in zip(encodings, related, strict=True)
        ]

    def next_words(last: Tensor, state: State, clips: tuple[int, ...]) -> tuple[Tensor, State]:
        total, states = torch.zeros((), device=device), []
        seen = shown(clips, len(last) // len(clips))
        for member, numbers, (concepts, same), own in zip(
            members, known, seen, _parted(state, shapes), strict=True
        ):
            scores, after = member.model.next_words(
                last if numbers is None else numbers[last], concepts, own, same
            )
            if numbers is not None:
                scores = scores[:, numbers].masked_fill_(numbers == UNK, -torch.inf)
            total = scores.exp_().add_(total)
            states.append(after)
        return total.div_(len(states)).log_(), _together(states)

    return beam_search(
        next_words,
        _together([encoding.state for encoding in encodings]),
        begin=BOS,
        end=EOS,
        never=NEVER_SAID,
        beam=decoding.beam,
        n_best=n_best,
        enough=enough,
        max_words=decoding.max_words,
        length_penalty=decoding.length_penalty,
        repeats=decoding.repeats,
    )


def _together(states: Sequence[State]) -> State:
    """The states of several models, which may differ in layers and sizes, side by side as one layer."""
    hidden, cell = (
        torch.cat([tensor.transpose(0, 1).flatten(1) for tensor in tensors], dim=1)[None]
        for tensors in zip(*states, strict=True)
    )
    return State(hidden, cell)


def _parted(state: State, shapes: Sequence[torch.Size]) -> Iterator[State]:
    """What `_together` put together, of models whose states have these shapes but for the batch."""
    sizes = [layers * dim for layers, _, dim in shapes]
    hiddens, cells = (torch.split(tensor[0], sizes, dim=1) for tensor in state)
    for hidden, cell, (layers, _, dim) in zip(hiddens, cells, shapes, strict=True):
        yield State(*(part.reshape(-1, layers, dim).transpose(0, 1) for part in (hidden, cell)))
