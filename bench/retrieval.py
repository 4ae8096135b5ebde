"""How fast are all queries scored with all clips, and in how much memory?

The queries are real sentences, because it matters how much they have in common: by default one caption for
each of 1,000 clips of the made corpus (`ctsan corpus make`, seed 0). Weights are fresh, and clips are random;
no two have the same concept words, so nothing is gained there.

1. Pairs a second of the plain form (one pair at a time), of batches that share nothing (256 pairs, queries of
   about the same length) and of `score_pairs`, all with clips that are encoded already, and of the plain form
   that encodes the clip for every pair; for the retrieval and the choice model, in the sizes of a profile.
   Before any clock starts, the first three must give the same scores.
2. Time and peak memory of 1,000 queries with 1,000 encoded clips, in a process of its own. Unless --full, a
   few of the clips are scored, and the time is extrapolated: it is proportional to the clips.

Rounds alternate, because machines are noisy; ratios are within a round, and the table gives their median and
range. On a machine that others use as well, --busy counts the CPU time of one thread in place of the clock's.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from tabulate import tabulate
from torch import Tensor

from ctsan.config import PROFILES, Settings
from ctsan.data.batches import pad_words
from ctsan.data.reading import read_corpus
from ctsan.model.choice_model import ChoiceModel
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.lstm import State
from ctsan.model.pair_scores import score_pairs
from ctsan.model.prefix_tree import prefix_tree
from ctsan.model.retrieval_model import RetrievalModel
from ctsan.synthetic.caption import write_captions
from ctsan.synthetic.compose import compose
from ctsan.tasks.building import build_model
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import PAD, SPECIALS
from train import against, make_words, rounds_of

Model = RetrievalModel | ChoiceModel
Kind = Literal["rank", "choose"]

NAMES: dict[Kind, str] = {"rank": "retrieval", "choose": "choice"}
QUERIES = CLIPS = 1000
FEW_CLIPS = 16
NUM_WORDS, NUM_CANDIDATES = 12_500, 2000
GRID, CHANNELS = (4, 4), 2048


def synthetic_captions() -> list[str]:
    """The first caption of each clip of the synthetic corpus, without rendering the clips."""
    captions = []
    for number in range(QUERIES):
        words = write_captions(compose(0, number), random.Random(f"captions 0 {number}"))[0]
        captions.append(" ".join(word.text for word in words))
    return captions


def captions_in(path: Path) -> list[str]:
    """Some captions of a corpus, or lines of a text file; always the same ones."""
    if path.suffix == ".txt":
        captions = path.read_text(encoding="utf-8-sig").splitlines()
    else:
        captions = [caption for clip in read_corpus(path) for caption in clip.captions]
    captions = [caption for caption in captions if tokenize(caption)]
    return random.Random(0).sample(captions, min(QUERIES, len(captions)))


def numbered(captions: Sequence[str]) -> Tensor:
    """Queries (Q, T): the words have numbers in the order of the alphabet."""
    sentences = [tokenize(caption) for caption in captions]
    numbers = {word: n for n, word in enumerate(sorted({w for s in sentences for w in s}), len(SPECIALS))}
    return pad_words([[numbers[word] for word in sentence] for sentence in sentences])


def make_model(kind: Kind, settings: Settings) -> Model:
    words = make_words(NUM_WORDS, NUM_CANDIDATES, settings.model.embedding_dim)
    model = build_model(kind, settings, words, grid=GRID, channels=CHANNELS, seed=0)
    assert isinstance(model, RetrievalModel | ChoiceModel)
    return model.eval()


@torch.no_grad()
def make_clips(model: Model, settings: Settings, clips: int) -> ClipEncoding:
    draw = torch.Generator().manual_seed(0)
    shape = (settings.model.num_layers, clips, settings.model.hidden_dim)
    hidden, cell = (torch.randn(shape, generator=draw).tanh() for _ in range(2))
    chance = torch.rand(clips, NUM_CANDIDATES, generator=draw)
    words = chance.topk(settings.detector.num_concepts, dim=1).indices  # of one clip all different
    concepts = model.clip_encoder.embedding(model.clip_encoder.candidate_words[words])
    return ClipEncoding(State(hidden, cell), concepts, words, torch.ones_like(words).float(), None)


@torch.inference_mode()
def one_by_one(model: Model, queries: Tensor, clips: ClipEncoding, pairs: Tensor) -> Tensor:
    """The scores of pairs (n, 2), each alone."""
    scores = []
    for query, clip in pairs:
        words = queries[query][queries[query] != PAD][None]
        scores.append(model(words, torch.ones_like(words, dtype=torch.bool), clips.of(clip[None])).scores)
    return torch.cat(scores)


@torch.inference_mode()
def from_maps(model: Model, queries: Tensor, maps: Tensor, pairs: Tensor) -> Tensor:
    """The scores of queries with a clip (1, N, h, w, C) that is encoded for each of them."""
    is_real = torch.ones(maps.shape[:2], dtype=torch.bool)
    alone = [one_by_one(model, queries, model.clip_encoder(maps, is_real), pair[None]) for pair in pairs]
    return torch.cat(alone)


@torch.inference_mode()
def in_batches(model: Model, queries: Tensor, clips: ClipEncoding, pairs: Tensor) -> Tensor:
    """The same, 256 at a time, with queries of about the same length beside each other."""
    lengths = (queries != PAD).sum(dim=1)[pairs[:, 0]]
    scores = torch.empty(len(pairs))
    for batch in torch.split(lengths.argsort(), 256):
        words = queries[pairs[batch, 0], : int(lengths[batch].max())]
        scores[batch] = model(words, words != PAD, clips.of(pairs[batch, 1])).scores
    return scores


def discarding(form: Callable[..., Tensor], *arguments: object) -> Callable[[], None]:
    def run() -> None:
        form(*arguments)

    return run


def measure_forms(
    kind: Kind, settings: Settings, queries: Tensor, rounds: int, clock: Callable[[], float]
) -> dict[str, dict[str, Any]]:
    model = make_model(kind, settings)
    clips = make_clips(model, settings, FEW_CLIPS)
    every = torch.cartesian_prod(torch.arange(len(queries)), torch.arange(FEW_CLIPS))
    drawn = every[torch.randperm(len(every), generator=torch.Generator().manual_seed(0))]
    few, many = drawn[:30], drawn[:512]
    ours = score_pairs(model, queries, clips)
    for name, form in (("one by one", one_by_one), ("in batches", in_batches)):
        difference = (form(model, queries, clips, few) - ours[few[:, 0], few[:, 1]]).abs().max()
        if difference > 2e-5 * ours.std():
            sys.exit(f"{name}: scores differ by {difference}, their spread is {ours.std()}. This is a bug.")
    maps = torch.rand(
        1, settings.model.max_frames, *GRID, CHANNELS, generator=torch.Generator().manual_seed(0)
    )
    alone = every[every[:, 1] == 0][:2]  # two queries with this clip
    num_pairs = {
        "clip encoded for every pair": len(alone),
        "one pair at a time": len(few),
        "in batches": len(many),
        "score_pairs": len(every),
    }
    seconds = rounds_of(
        {
            "clip encoded for every pair": discarding(from_maps, model, queries, maps, alone),
            "one pair at a time": discarding(one_by_one, model, queries, clips, few),
            "in batches": discarding(in_batches, model, queries, clips, many),
            "score_pairs": discarding(score_pairs, model, queries, clips),
        },
        rounds,
        clock,
    )
    rates = {name: [num_pairs[name] / duration for duration in times] for name, times in seconds.items()}
    return {
        name: {
            "pairs_per_second": statistics.median(values),
            "times_faster": against(values, rates["one pair at a time"]),
        }
        for name, values in rates.items()
    }


def measure_all(
    kind: Kind, settings: Settings, queries: Tensor, num_clips: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Seconds, and peak memory beyond model, queries and encoded clips. Nothing else may run before it."""
    model = make_model(kind, settings)
    clips = make_clips(model, settings, num_clips)
    before = psutil.Process().memory_info().rss
    started = clock()
    score_pairs(model, queries, clips)
    seconds = clock() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "clips": num_clips,
        "seconds": seconds,
        "seconds_for_all": seconds / num_clips * CLIPS,
        "extra_gigabytes": (peak - before) / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--captions", type=Path, help="a corpus, or a .txt with a sentence a line")
    parser.add_argument("--profile", choices=PROFILES, default="paper", help="the sizes; default: paper")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--full", action="store_true", help="really score all 1,000 clips (half an hour)")
    parser.add_argument("--busy", action="store_true", help="one thread, and its CPU time")
    parser.add_argument("--only-all", choices=NAMES, help="measure 2 for one model in this process, as JSON")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    arguments = parser.parse_args()
    clock = time.perf_counter
    if arguments.busy:
        torch.set_num_threads(1)
        clock = time.process_time
    settings = PROFILES[arguments.profile]
    queries = numbered(captions_in(arguments.captions) if arguments.captions else synthetic_captions())
    if arguments.only_all:
        num_clips = CLIPS if arguments.full else FEW_CLIPS
        print(json.dumps(measure_all(arguments.only_all, settings, queries, num_clips, clock)))
        return
    distinct = torch.unique(queries, dim=0)
    tree = prefix_tree(distinct, distinct != PAD)
    results: dict[str, Any] = {
        "queries": len(queries),
        "different_queries": len(distinct),
        "words": int((queries != PAD).sum()),
        "different_words": len(torch.unique(queries[queries != PAD])),
        "beginnings": sum(len(level.words) for level in tree.levels),
        "forms": {
            name: measure_forms(kind, settings, queries, arguments.rounds, clock)
            for kind, name in NAMES.items()
        },
        "all": {},
    }
    for kind, name in NAMES.items():
        command = [sys.executable, __file__, *sys.argv[1:], "--only-all", kind]
        results["all"][name] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    if arguments.json:
        print(json.dumps(results))
        return
    source = arguments.captions or "the made corpus"
    print(
        "Queries: {queries} captions of {source}, {words} words ({different_words} different ones), "
        "{beginnings} different beginnings\n".format(source=source, **results)
    )
    rows = [
        (
            name,
            form,
            f"{row['pairs_per_second']:.1f}",
            "{median:.2f} ({least:.2f} to {most:.2f})".format(**row["times_faster"]),
        )
        for name, forms in results["forms"].items()
        for form, row in forms.items()
    ]
    print(
        tabulate(
            rows,
            headers=(f"model, {arguments.profile} sizes", "form", "pairs/s", "times as fast"),
            disable_numparse=True,
        )
    )
    print()
    for name, row in results["all"].items():
        how = "measured" if arguments.full else f"extrapolated from {row['clips']} clips"
        print(
            f"{name}, {len(queries)} queries with {CLIPS} clips: {row['seconds_for_all'] / 60:.1f} minutes "
            f"({how}), peak memory {row['extra_gigabytes']:.2f} GB beyond model and encoded clips"
        )


if __name__ == "__main__":
    main()
