"""The losses of blanks, choices and retrieval, term by term in plain NumPy from the clips' encodings on.

L = −log p(y) + λ1 (g(β) + g(γ)) + λ2 L_con          section 3.2
L = Σ_l max(0, S_l − S_l* + Δ) + λ1 g(γ) + λ2 L_con  appendices A.1 and A.2

Where the code differs from the paper, the tests have the code's form:
- The sums over l leave out l = l*, which would add Δ whatever the scores are.
- In retrieval other clips for a sentence are negatives, too, and a clip's other captions are not.
- Every term is a mean over clips, in which a clip's sentences count alike; in retrieval over sentences, and
  g(γ) over all pairs of clip and sentence, for each clip attends to each sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ctsan.config import load_settings
from ctsan.data.corpus import BlankItem, ChoiceItem, Clip, Corpus, Item, ItemTask
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.building import build_model, build_task
from ctsan.text.vocabulary import PAD
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore
from worked_out import Weights, attended_input, attended_output, lstm, numbers, softmax, stirred

D, SKETCH, JOINT = 16, 24, 5
LAMBDA1, LAMBDA2 = 0.3, 2.0
CHOICE_MARGIN, RETRIEVAL_MARGIN = 1.5, 2.25  # Δ, not the default
SETTINGS = (
    f"model.hidden_dim={D}",
    "model.embedding_dim=8",
    "model.num_layers=2",
    "detector.attention_dim=4",
    "detector.probe=none",
    "detector.tie_traces=false",
    "detector.prior_weight=0",
    "detector.num_concepts=3",
    f"retrieval.sketch_dim={SKETCH}",
    f"retrieval.joint_dim={JOINT}",
    f"loss.attention_weight={LAMBDA1}",
    f"loss.concept_weight={LAMBDA2}",
    f"loss.choice_margin={CHOICE_MARGIN}",
    f"loss.retrieval_margin={RETRIEVAL_MARGIN}",
    "loss.label_smoothing=0",
    "training.captions_per_clip=20",
    "retrieval.captions_per_clip=2",
)


def make(
    kind: ItemTask, words: Words, clips: Sequence[Clip], store: FeatureStore, items: Sequence[Item] = ()
) -> tuple[Any, Any, ClipEncoding, Weights]:
    """A task on the first two clips in double precision, a batch of both, their encodings and all weights."""
    settings = load_settings("laptop", SETTINGS)
    corpus = Corpus("animals", Path(), "own", tuple(clips), {(kind, "train"): tuple(items)} if items else {})
    model = build_model(kind, settings, words, grid=store.grid, channels=store.channels, seed=0)
    task: Any = build_task(kind, settings, words, store, corpus, model=stirred(model), split="train")
    batch = task.batch([0, 1], mirrored=[False] * 2)
    batch = batch._replace(maps=batch.maps.double(), reference=batch.reference.double())
    with torch.no_grad():
        return task, batch, model.clip_encoder(batch.maps, batch.frame_is_real), numbers(model)


def read(w: Weights, sentence: torch.Tensor, concepts: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The inputs of a padded sentence's words, and γ (T, K) at them."""
    own = w["clip_encoder.embedding.weight"][sentence[sentence != PAD].tolist()]
    x, gamma = zip(*(attended_input(w, word, concepts) for word in own), strict=True)
    return list(x), np.array(gamma)


def g(weights: np.ndarray) -> float:
    """Equation 15 with p = 2 and q = 0.5, of (T, K)."""
    over_steps = (weights.sum(axis=0) ** 2).sum() ** 0.5
    over_words = (weights.sum(axis=1) ** 0.5).sum() ** 2
    return float(over_steps + over_words)


def state_of(encoding: ClipEncoding, clip: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Concept words (K, E), and s_N of both layers."""
    hidden, cell = (part[:, clip].numpy() for part in encoding.state)
    return encoding.concepts[clip].numpy(), hidden, cell


def concept_loss(encoding: ClipEncoding, reference: torch.Tensor) -> float:
    """L_con, a mean over clips."""
    assert encoding.detection is not None
    p, truth = encoding.detection.confidences.numpy(), reference.numpy()
    assert 0 < truth.mean() < 1
    return float(-(truth * np.log(p) + (1 - truth) * np.log(1 - p)).mean())


def per_clip(values: Sequence[float], clip_of: Sequence[int]) -> float:
    return float(
        np.mean([np.mean([v for v, own in zip(values, clip_of, strict=True) if own == c]) for c in (0, 1)])
    )


def found(task: Any, batch: Any) -> dict[str, float]:
    return {name: loss.item() for name, loss in task.losses(batch).items()}


def test_the_loss_of_blanks_is_that_of_section_3_2(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    some = [
        BlankItem(clips[0].id, "a _____ runs", "dog"),
        BlankItem(clips[0].id, "dog _____", "runs"),
        BlankItem(clips[0].id, "_____ dog runs a dog", "a"),
        BlankItem(clips[1].id, "a dog _____", "sleeps"),
    ]
    task, batch, encoding, w = make("fill", words, clips, store, some)
    clip_of = batch.clip_of_sentence.tolist()
    assert clip_of == [0, 0, 0, 1]
    likelihoods, of_gamma, of_beta = [], [], []
    for sentence, place, answer, clip in zip(
        batch.sentences, batch.places.tolist(), batch.answers.tolist(), clip_of, strict=True
    ):
        a, hidden, cell = state_of(encoding, clip)
        x, gamma = read(w, sentence, a)
        forwards = lstm(w, "read_forwards", x, hidden, cell)[place]
        backwards = lstm(w, "read_backwards", x[::-1], hidden, cell)[len(x) - 1 - place]
        o = np.tanh(w["join.weight"] @ np.concatenate([forwards, backwards]) + w["join.bias"])
        p, beta = attended_output(w, o, a)
        likelihoods.append(-np.log(softmax(w["say.weight"] @ p + w["say.bias"])[answer]))
        of_gamma.append(g(gamma))
        of_beta.append(g(beta[None]))  # it attends once, at the blank
    assert found(task, batch) == pytest.approx(
        {
            "blanks": per_clip(likelihoods, clip_of),
            "input attention": LAMBDA1 * per_clip(of_gamma, clip_of),
            "output attention": LAMBDA1 * per_clip(of_beta, clip_of),
            "concepts": LAMBDA2 * concept_loss(encoding, batch.reference),
        },
        rel=1e-6,
    )


def test_the_loss_of_choices_is_that_of_appendix_a_1_without_the_answer_itself(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    sentences = ("a dog runs", "cat sleeps", "a bird eats a horse", "dog eats", "a horse sleeps")
    some = [
        ChoiceItem(clips[0].id, sentences, 0),
        ChoiceItem(clips[0].id, sentences[::-1], 3),
        ChoiceItem(clips[1].id, (*sentences[2:], *sentences[:2]), 4),
    ]
    task, batch, encoding, w = make("choose", words, clips, store, some)
    clip_of = batch.clip_of_question.tolist()
    assert clip_of == [0, 0, 1]
    hinges, of_gamma = [], []
    for question, (clip, answer) in enumerate(zip(clip_of, batch.answers.tolist(), strict=True)):
        a, hidden, cell = state_of(encoding, clip)
        scores = []
        for sentence in batch.sentences[5 * question : 5 * question + 5]:
            x, gamma = read(w, sentence, a)
            last = lstm(w, "lstm", x, hidden, cell)[-1]
            scores.append(w["rate.weight"][0] @ np.maximum(w["align.weight"] @ last + w["align.bias"], 0))
            of_gamma.append(g(gamma))
        wrong = [choice for choice in range(5) if choice != answer]
        hinges.append(sum(max(0.0, scores[choice] - scores[answer] + CHOICE_MARGIN) for choice in wrong))
    assert found(task, batch) == pytest.approx(
        {
            "choices": per_clip(hinges, clip_of),
            "input attention": LAMBDA1 * per_clip(of_gamma, np.repeat(clip_of, 5).tolist()),
            "concepts": LAMBDA2 * concept_loss(encoding, batch.reference),
        },
        rel=1e-6,
    )


def test_the_loss_of_retrieval_is_that_of_appendix_a_2_with_negatives_of_both_kinds(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    task, batch, encoding, w = make("rank", words, clips, store)
    clip_of = batch.clip_of_caption.tolist()
    assert clip_of == [0, 0, 1, 1]
    maps = w["join.weight"].reshape(-1, JOINT, SKETCH)
    nothing = np.zeros((2, D))
    scores, of_gamma = np.zeros((2, 4)), []
    for clip in range(2):
        a, hidden, _ = state_of(encoding, clip)
        for row, sentence in enumerate(batch.captions):
            x, gamma = read(w, sentence, a)
            query = lstm(w, "lstm", x, nothing, nothing)[-1]
            sketch = np.zeros(SKETCH)
            for i in range(D):
                for j in range(D):
                    place = (w["pool.first_hash"][i] + w["pool.second_hash"][j]) % SKETCH
                    sign = w["pool.first_sign"][i] * w["pool.second_sign"][j]
                    sketch[place] += sign * hidden[-1, i] * query[j]
            scores[clip, row] = w["rate.weight"][0] @ (maps @ sketch).max(axis=0)
            of_gamma.append(g(gamma))
    ranking = []
    for row, clip in enumerate(clip_of):
        own, other = scores[clip, row], 1 - clip
        sentences = [
            max(0.0, scores[clip, wrong] - own + RETRIEVAL_MARGIN)
            for wrong in range(4)
            if clip_of[wrong] == other
        ]
        # The other clip stands in the batch once for each of its captions, and is as often a negative.
        videos = [max(0.0, scores[other, row] - own + RETRIEVAL_MARGIN)] * clip_of.count(other)
        ranking.append(sum(sentences) + sum(videos))
    assert found(task, batch) == pytest.approx(
        {
            "ranking": np.mean(ranking),
            "input attention": LAMBDA1 * np.mean(of_gamma),
            "concepts": LAMBDA2 * concept_loss(encoding, batch.reference),
        },
        rel=1e-6,
    )
