"""Ensemble inference: captions, filled blanks, concept words, attention and effects of several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ctsan.data.corpus import BLANK
from ctsan.errors import UsageError
from ctsan.inference.effects import WordEffects, blank_effects, caption_effects
from ctsan.inference.results import Answer, Attention, Blank, Caption, Concept, Effects
from ctsan.model.clip_encoder import ClipEncoder, ClipEncoding
from ctsan.runs.trained_run import WORDS_FOLDER, TrainedRun
from ctsan.tasks.blank import AskedBlank, fill
from ctsan.tasks.captioning import caption_clips
from ctsan.tasks.scoring import covers_query, score_each
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import BOS
from ctsan.text.words import VOCABULARY_FILE


def concepts_seen(
    runs: Sequence[TrainedRun],
    encodings: Sequence[ClipEncoding],
    row: int = 0,
    *,
    all_candidates: bool = False,
) -> tuple[Concept, ...]:
    """Rank the concept words of a clip as the language models receive them.

    Confidence and ranking score of a word are means over the runs that have a detector.

    Args:
        encodings: one per run, from `LoadedModel.encode`.
        row: row of the clip in the encodings.
        all_candidates: return every candidate, not only the first K.
    """
    seen = [
        (run, encoding.detection.confidences[row])
        for run, encoding in zip(runs, encodings, strict=True)
        if encoding.detection is not None
    ]
    means: dict[str, float] = {}
    ranks: dict[str, float] = {}
    lemmas: dict[str, str] = {}
    has_prior = False
    for run, confidences in seen:
        encoder = run.loaded.model.clip_encoder
        assert isinstance(encoder, ClipEncoder)  # it has a detector
        has_prior = has_prior or encoder.prior_weight > 0
        ranked = encoder.ranking(confidences).tolist()
        candidates = run.loaded.words.concepts.candidates
        for candidate, confidence, rank in zip(candidates, confidences.tolist(), ranked, strict=True):
            word = candidate.word
            means[word] = means.get(word, 0.0) + confidence / len(seen)
            ranks[word] = ranks.get(word, 0.0) + rank / len(seen)
            lemmas[word] = candidate.lemma or lemmas.get(word, word)
    most = None if all_candidates else max(encoding.concept_words.shape[1] for encoding in encodings)
    first: dict[str, str] = {}  # best word by lemma, or by word
    for word in sorted((word for word in ranks if means[word] > 0), key=lambda word: -ranks[word]):
        first.setdefault(lemmas[word] if has_prior and not all_candidates else word, word)
        if len(first) == most:
            break
    return tuple(Concept(word, means[word]) for word in first.values())


def runs_covering_query(runs: Sequence[TrainedRun], query: str) -> list[TrainedRun]:
    """Select the runs whose vocabulary covers enough words of a query: see `covers_query`."""
    say = covers_query([run.loaded for run in runs], [query])[:, 0].tolist()
    return [run for run, has_say in zip(runs, say, strict=True) if has_say]


def captions_of(
    runs: Sequence[TrainedRun], encodings: Sequence[ClipEncoding], beam: int | None, n_best: int
) -> list[tuple[Caption, ...]]:
    """Caption each clip by ensemble beam search, then rerank the hypotheses.

    The first `describe` run provides the decoding and reranking settings.
    """
    settings = next(run.settings for run in runs if run.task == "describe")
    found = caption_clips(
        [run.loaded for run in runs],
        encodings,
        replace(settings.decoding, beam=max(beam or settings.decoding.beam, n_best)),
        settings.rerank,
        n_best=n_best,
    )
    return [tuple(Caption(*each) for each in best) for best in found]


def filled_blanks(
    runs: Sequence[TrainedRun],
    encodings: Sequence[ClipEncoding],
    sentence: str,
    read: Sequence[str],
    *,
    n_best: int,
    attention: bool,
) -> tuple[Blank, ...]:
    """Predict the word for each blank of a sentence about a clip.

    Args:
        encodings: one per run, with one row.
        read: tokens of the sentence, with `BLANK` for each blank.
    """
    asked = [AskedBlank(sentence, number) for number in range(read.count(BLANK))]
    rows = torch.zeros(len(asked), dtype=torch.long)
    found = fill([run.loaded for run in runs], asked, [each.of(rows) for each in encodings])
    blanks = []
    for number in range(len(asked)):
        best = found.probabilities[number].topk(min(n_best, len(found.words)))
        likeliest = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        weights = [
            attention_of(
                run,
                encoding,
                read,
                None if own.input_weights is None else own.input_weights[number],
                None if own.output_weights is None else own.output_weights[number, 0],
            )
            for run, encoding, own in zip(runs, encodings, found.members, strict=True)
            if attention
        ]
        answers = [Answer(found.words[word], probability) for word, probability in likeliest if probability]
        effects = None
        if attention:
            said = answers[0].word
            owed = blank_effects([run.loaded for run in runs], encodings, asked[number], said)
            effects = effects_of(owed, [said])
        blanks.append(Blank(tuple(answers), tuple(weights), effects))
    return tuple(blanks)


def effects_of_caption(
    runs: Sequence[TrainedRun], encodings: Sequence[ClipEncoding], caption: Caption
) -> Effects | None:
    """Compute the effect of each concept word on each word of an ensemble's caption.

    Args:
        runs: only `describe` runs count. Joint embeddings rerank captions and generate none.
        encodings: one per run, with one row.
    """
    pairs = [(run, own) for run, own in zip(runs, encodings, strict=True) if run.task == "describe"]
    words = caption.text.split()
    return effects_of(
        caption_effects([run.loaded for run, _ in pairs], [own for _, own in pairs], words), words
    )


def effects_of(found: WordEffects | None, words: Sequence[str]) -> Effects | None:
    if found is None:
        return None
    return Effects(found.concepts, tuple(words), found.each.cpu().numpy(), found.together.cpu().numpy())


@torch.inference_mode()
def caption_attention(run: TrainedRun, encoding: ClipEncoding, caption: Caption) -> Attention:
    """Compute the input and output attention of a `describe` run for a caption.

    One teacher-forced pass. Step t reads word t - 1 and predicts word t; the last step predicts the end of
    the sentence. Output weights therefore come from all steps but the last, input weights from all but the
    first.

    Args:
        encoding: with one row.
    """
    words, member = caption.text.split(), run.loaded
    numbers = [BOS, *member.words.vocabulary.encode(words)]
    decoded = member.model(torch.tensor([numbers], device=encoding.concepts.device), encoding)
    read, said = decoded.input_weights, decoded.output_weights
    return attention_of(
        run, encoding, words, None if read is None else read[0, 1:], None if said is None else said[0, :-1]
    )


def attention_of(
    run: TrainedRun,
    encoding: ClipEncoding,
    words: Sequence[str],
    input_weights: Tensor | None,
    output_weights: Tensor | None = None,
) -> Attention:
    """Pair one run's attention weights with the words and the concept words they belong to.

    Args:
        encoding: with one row.
        words: of the sentence; cut to the length of `input_weights`.
        input_weights: (T, K), padded.
        output_weights: (K,) or (T, K).
    """
    candidates = run.loaded.words.concepts.words
    given = int((encoding.confidences[0] > 0).sum())  # a clip may have fewer than K concept words
    return Attention(
        run=str(run.folder),
        concepts=tuple(candidates[number] for number in encoding.concept_words[0, :given].tolist()),
        words=tuple(words if input_weights is None else words[: len(input_weights)]),
        input_weights=None if input_weights is None else input_weights[: len(words), :given].cpu().numpy(),
        output_weights=None if output_weights is None else output_weights[..., :given].cpu().numpy(),
    )


def reading_attentions(
    runs: Sequence[TrainedRun], encodings: Sequence[ClipEncoding], sentences: Sequence[str]
) -> list[tuple[Attention, ...]]:
    """Compute every run's input attention for each sentence about a clip.

    Args:
        encodings: one per run, with one row.
    """
    rows = torch.zeros(len(sentences), dtype=torch.long)
    read = [score_each(run.loaded, sentences, own.of(rows)) for run, own in zip(runs, encodings, strict=True)]
    return [
        tuple(
            attention_of(
                run,
                encoding,
                tokenize(sentence),
                None if scored.input_weights is None else scored.input_weights[number],
            )
            for run, encoding, scored in zip(runs, encodings, read, strict=True)
        )
        for number, sentence in enumerate(sentences)
    ]


def unknown_words(runs: Sequence[TrainedRun], sentences: Mapping[str, str]) -> tuple[str, ...]:
    """List the words that are in no run's vocabulary.

    Args:
        sentences: keyed by the name to use in messages.

    Raises:
        UsageError: a sentence has no words, or only unknown ones. The message lists every such sentence.
    """
    vocabularies = [run.loaded.words.vocabulary for run in runs]
    unknown: dict[str, None] = {}
    problems = []
    for name, sentence in sentences.items():
        words = tokenize(sentence)
        strange = [word for word in words if not any(word in vocabulary for vocabulary in vocabularies)]
        unknown |= dict.fromkeys(strange)
        if not words:
            problems.append(f"{name} has no words ({sentence!r}). Write a sentence, such as 'a dog runs'.")
        elif len(strange) == len(words):
            problems.append(
                f"{name} has only words that are not known to the model: {', '.join(strange)}. Use words of "
                f"its training captions: {WORDS_FOLDER}/{VOCABULARY_FILE} of the run lists them."
            )
    if problems:
        raise UsageError("\n".join(problems))
    return tuple(unknown)
