"""How much would more captioned clips help? Words, captions, choices and rankings by the number of clips.

A share of the training sources is drawn, and four models are fitted to their clips: the perceptron that names
concept words from the mean feature of a clip, a joint embedding, a small CT-SAN and a plain captioner. All
are measured on validation clips. The last row has no clips: each caption is compared with the mean of the
clip's other captions, both as the joint embedding of all clips reads them. A model that saw all that people
wrote of a clip would reach that.

    python bench/learning_curve.py CORPUS… --features FOLDER… [--vectors FILE] [--shares 0.125 0.25 0.5 1]
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tabulate import tabulate
from torch import Tensor
from torch.nn import functional as F

from ctsan.config import Settings
from ctsan.data.batches import references
from ctsan.data.corpus import Clip, Corpus, parts_of
from ctsan.data.reading import read_corpora
from ctsan.evaluation.bootstrap import interval
from ctsan.evaluation.clip_statistics import ClipStatistic, mean, ratio
from ctsan.evaluation.retrieval import rank_statistics
from ctsan.extensions.dual_encoder import DualEncoder
from ctsan.extensions.mlp_probe import MLPProbe
from ctsan.runs.checkpoint import load_weights
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.tasks.registry import task_settings
from ctsan.tasks.task import Task
from ctsan.text.sentences import encode_sentences
from ctsan.text.words import Words, prepare_words
from ctsan.training.initialisation import set_up_task
from ctsan.training.loop import train_loop
from ctsan.video.clip_maps import subsample_maps
from ctsan.video.store import FeatureStore
from ctsan.video.store_union import open_stores

NUM_CONCEPTS, PRIOR_WEIGHT = 10, 0.5  # as in the laptop profile
DISTRACTORS = 4  # beside the right sentence of a choice
METRICS = (
    "words right",
    "CIDEr, CT-SAN",
    "CIDEr, plain captioner",
    "choice of five",
    "MRR",
    "R@10",
    "median rank",
)
SMALL = (
    "model.hidden_dim=128",
    "model.embedding_dim=128",
    "model.max_frames=5",
    "detector.attention_dim=16",
    "training.evaluations=3",
    "decoding.beam=5",
)
CAPTIONERS = {
    "CIDEr, CT-SAN": (),
    "CIDEr, plain captioner": (
        "model.decoder=pooled",
        "detector.enabled=false",
        "model.channel_dropout=0.3",
        "training.batch_size=64",
        "training.captions_per_clip=2",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--features", nargs="+", type=Path, required=True, help="one folder for each corpus")
    parser.add_argument("--vectors", type=Path, help="of words, as for 'ctsan train embed'")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.125, 0.25, 0.5, 1.0])
    parser.add_argument("--steps", type=int, default=1500, help="of the joint embedding")
    parser.add_argument(
        "--models", nargs="+", choices=("captions", "embedding"), default=["captions", "embedding"]
    )
    parser.add_argument("--caption-steps", type=int, default=400, help="of the captioners")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    corpus = read_corpora(options.corpora)
    store = open_stores(options.features, [part.ids for part in parts_of(corpus)])
    held_out = [clip for clip in corpus.split("val") if clip.id in store and clip.captions]
    parts = [with_share(corpus, share, seed=options.seed) for share in sorted(options.shares)]
    rows: list[dict[str, ClipStatistic]] = [{} for _ in parts]
    labels = [f"{len(part.split('train')):,} clips" for part in parts]
    if "captions" in options.models:
        words = prepare_words(corpus.captions("train"), embedding_dim=128)  # none beyond the captions
        for row, part in zip(rows, parts, strict=True):
            row |= concept_precision(part, held_out, store, words)
            for name, changes in CAPTIONERS.items():
                budget = (f"training.steps={options.caption_steps}", f"training.seed={options.seed}")
                settings = task_settings("describe", "laptop", [*SMALL, *budget, *changes])
                task = trained("describe", part, store, words, settings)
                row[name] = mean([example.score for example in task.examples()])
    if "embedding" in options.models:
        overrides = [
            f"training.steps={options.steps}",
            f"training.seed={options.seed}",
            "training.evaluations=3",
        ]
        if options.vectors is not None:
            overrides.append("model.embedding_dim=128")
        settings = task_settings("embed", "laptop", [*overrides, "retrieval.phrases=0"])
        words = prepare_words(
            corpus.captions("train"),
            embedding_dim=settings.model.embedding_dim,
            vectors=options.vectors,
            extra_vocabulary=settings.retrieval.extra_vocabulary if options.vectors else 0,
        )
        for row, part in zip(rows, parts, strict=True):
            embedding = joint_embedding(part, store, words, settings)
            row |= retrieval_by_clips(embedding, held_out, store, words)
        labels.append("other captions")
        rows.append(retrieval_by_captions(embedding, held_out, words))
    print(f"{len(held_out)} validation clips, all their captions; seed {options.seed}\n")
    metrics = [name for name in METRICS if any(name in row for row in rows)]
    table = [(label, *cells(row, metrics)) for label, row in zip(labels, rows, strict=True)]
    print(tabulate(table, headers=("learnt from", *metrics), disable_numparse=True))


def with_share(corpus: Corpus, share: float, *, seed: int) -> Corpus:
    """The corpus with the training clips of a share of their sources; a larger share holds the smaller."""
    sources = sorted({clip.source or clip.id for clip in corpus.split("train")})
    order = np.random.default_rng(seed).permutation(len(sources))
    chosen_sources = {sources[place] for place in order[: math.ceil(share * len(sources))]}
    clips = [clip for clip in corpus if clip.split != "train" or (clip.source or clip.id) in chosen_sources]
    return replace(corpus, clips=tuple(clips))


def joint_embedding(corpus: Corpus, store: FeatureStore, words: Words, settings: Settings) -> DualEncoder:
    model = trained("embed", corpus, store, words, settings).model
    assert isinstance(model, DualEncoder)
    return model


def trained(name: str, corpus: Corpus, store: FeatureStore, words: Words, settings: Settings) -> Task[Any]:
    """A trained task, its model with the best weights on validation clips."""
    task = set_up_task(name, settings, words, store, corpus)
    with tempfile.TemporaryDirectory() as folder:
        train_loop(task, Path(folder), optimiser=settings.optimiser, training=settings.training)
        load_weights(Path(folder) / WEIGHTS_FILE, task.model)
    task.model.eval()
    return task


def concept_precision(
    corpus: Corpus, held_out: Sequence[Clip], store: FeatureStore, words: Words
) -> dict[str, ClipStatistic]:
    """Precision of the ten words with the highest p - q/2; forms of the same lemma count once."""
    clips = [clip for clip in corpus.split("train") if clip.id in store and clip.captions]
    truth = reference(clips, words)
    probe = MLPProbe(channels=store.channels, num_candidates=truth.shape[1])
    probe.fit(means(clips, store), truth, torch.ones(len(clips), dtype=torch.bool))
    ranking = probe(means(held_out, store)).sigmoid() - PRIOR_WEIGHT * truth.mean(dim=0)
    right, lemmas = [], words.concepts.lemma_ids
    for row, clip_words in zip(
        ranking.argsort(dim=1, descending=True), reference(held_out, words), strict=True
    ):
        first: dict[int, int] = {}
        for word in row[: 4 * NUM_CONCEPTS].tolist():
            first.setdefault(lemmas[word], word)
        right.append(float(clip_words[list(first.values())[:NUM_CONCEPTS]].mean()))
    return {"words right": mean(right)}


def reference(clips: Sequence[Clip], words: Words) -> Tensor:
    return references([words.concepts.reference(clip.captions) for clip in clips], len(words.concepts.words))


def means(clips: Sequence[Clip], store: FeatureStore) -> Tensor:
    maps = (subsample_maps(store[clip.id].maps, 10).astype(np.float32) for clip in clips)
    return torch.from_numpy(np.stack([clip_maps.mean(axis=(0, 1, 2)) for clip_maps in maps]))


@torch.inference_mode()
def retrieval_by_clips(
    embedding: DualEncoder, clips: Sequence[Clip], store: FeatureStore, words: Words
) -> dict[str, ClipStatistic]:
    features = means(clips, store)[:, None, None, None]
    encoded = embedding.clip_encoder(features, torch.ones(features.shape[:2], dtype=torch.bool))
    sentences, clip_of = captions_of(embedding, clips, words)
    return retrieval_statistics(sentences @ embedding.embed_clips(encoded).mT, clip_of)


@torch.inference_mode()
def retrieval_by_captions(
    embedding: DualEncoder, clips: Sequence[Clip], words: Words
) -> dict[str, ClipStatistic]:
    """Retrieval with clips represented by the mean of their captions, the query itself excluded."""
    sentences, clip_of = captions_of(embedding, clips, words)
    sums = sentences.new_zeros(len(clips), sentences.shape[1]).index_add_(0, clip_of, sentences)
    scores = sentences @ F.normalize(sums, dim=1).mT
    others = F.normalize(sums[clip_of] - sentences, dim=1)
    return retrieval_statistics(
        scores.scatter(1, clip_of[:, None], (sentences * others).sum(dim=1)[:, None]), clip_of
    )


def captions_of(embedding: DualEncoder, clips: Sequence[Clip], words: Words) -> tuple[Tensor, Tensor]:
    """The embeddings of all captions, (M, J), and the clip of each, (M,)."""
    captions = [caption for clip in clips for caption in clip.captions]
    word_ids = torch.from_numpy(encode_sentences(captions, words.vocabulary, max_words=30))
    counts = torch.tensor([len(clip.captions) for clip in clips])
    return embedding.embed_sentences(word_ids), torch.arange(len(clips)).repeat_interleave(counts)


def retrieval_statistics(scores: Tensor, clip_of: Tensor) -> dict[str, ClipStatistic]:
    """Retrieval metrics, and the expected accuracy of a choice among five, from scores (M, clips).

    If b of the n other clips score at least as high, the accuracy with four random distractors is
    C(n - b, 4) / C(n, 4).
    """
    ranks = (scores >= scores.gather(1, clip_of[:, None])).sum(dim=1)
    num_clips = scores.shape[1]
    draws = torch.arange(DISTRACTORS)
    chances = ((num_clips - ranks)[:, None] - draws).clamp(min=0) / (num_clips - 1 - draws)
    by_clip = [ranks[clip_of == clip].tolist() for clip in range(num_clips)]
    right = [chances.prod(dim=1)[clip_of == clip] for clip in range(num_clips)]
    return {
        "choice of five": ratio(
            [float(of_clip.sum()) for of_clip in right], [len(of_clip) for of_clip in right]
        ),
        **rank_statistics(by_clip),
    }


def cells(measured: dict[str, ClipStatistic], metrics: Sequence[str]) -> list[str]:
    texts = []
    for name in metrics:
        if name not in measured:
            texts.append("")
            continue
        low, high = interval(measured[name])
        digits = 0 if name == "median rank" else 3
        texts.append(f"{measured[name].value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})")
    return texts


if __name__ == "__main__":
    main()
