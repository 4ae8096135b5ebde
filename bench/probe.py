"""How well do the features of each backbone predict captions, and how long do they take?

    python bench/probe.py CORPUS [CORPUS …] --features DIR [DIR …] [--features DIR [DIR …] …]

Each --features is a backbone: one folder a corpus, or one for all. The others are compared with the first.

A clip is the mean of its maps over time and space. Ridge regressions guess from it which concept words
somebody used for the clip, and the mean TF-IDF vector of its captions. Words, frequencies and regressions
are of the training captions alone.

    words         share of the ten surest words that somebody used
    rise          the same of the ten whose score p is furthest above their frequency q in training: by p - q
    MRR, R@10,    of the clip among all validation and test clips, for 8 of its captions as queries: cosine of
    median rank   the caption's TF-IDF vector and the one that is guessed for the clip; ties count against it
    ms/frame      on ONNX Runtime in float32, a call a core at a time, all backbones in turns; and the ratio
                  to the first, the median over rounds

A last table has every engine that is installed, and networks in fewer bits: int8 by ONNX Runtime's dynamic
quantisation, bfloat16 by OpenVINO. The cosine of their maps and those in float32 says what that loses.

Both penalties of a backbone are chosen on validation: for words by their precision, for TF-IDF vectors by the
MRR among validation clips. So is the backbone that is recommended: of those that take at most twice the time
of the first, the one with the most words right. The test split chooses nothing. Validation figures are of the
clips that chose a penalty, so they are a little too good for every backbone; test figures are not.

Intervals are 95 %, bootstrapped over clips; differences are paired.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import math
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from tabulate import tabulate
from torch import Tensor
from tqdm import tqdm

from ctsan.data.corpus import Clip, Corpus, Split, parts_of
from ctsan.data.reading import read_corpora
from ctsan.errors import CtsanError, UsageError, VideoError
from ctsan.evaluation.bootstrap import Comparison, compare, interval
from ctsan.evaluation.clip_statistics import ClipStatistic, mean
from ctsan.evaluation.linear_probe import (
    COMMONEST,
    Matrix,
    RidgeRegression,
    mean_features,
    precision_at_top,
    precision_by_rise,
    probe_clips,
    train_concepts,
    word_truth,
)
from ctsan.evaluation.retrieval import rank_statistics, ranks
from ctsan.io.device import usable_cores
from ctsan.io.messages import count
from ctsan.text.concepts import Concepts
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import SPECIALS, Vocabulary
from ctsan.video.backbones import Backbone, backbone_of
from ctsan.video.backbones.speed import milliseconds_in_rounds
from ctsan.video.engine import Engine, Maps, Pixels, load_engine, onnx_file
from ctsan.video.frames import sample_frames
from ctsan.video.store import FeatureStore
from ctsan.video.store_union import open_stores

QUERIES = 8  # captions of each clip
PENALTIES = (0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100)  # times the number of channels
HELD_OUT: tuple[Split, ...] = ("val", "test")
METRICS = ("words", "rise", "MRR", "R@10", "median rank")
COMPARED = ("words", "MRR")
MOST_TIMES = 2.0  # the time of the first backbone

REFERENCE = "onnxruntime"
CLIPS, FRAMES = 4, 4  # whose maps are compared between engines


class TfIdf:
    """Captions as vectors of length 1 over the words of the training captions; a document is a clip."""

    def __init__(self, train: Sequence[Clip]) -> None:
        captions = [[tokenize(caption) for caption in clip.captions] for clip in train]
        vocabulary = Vocabulary.build(caption for clip_captions in captions for caption in clip_captions)
        words = vocabulary.words[len(SPECIALS) :]
        clips_with = Counter(
            word
            for clip_captions in captions
            for word in {word for caption in clip_captions for word in caption}
        )
        self._columns = {word: column for column, word in enumerate(words)}
        self._idf = np.log([len(train) / clips_with[word] for word in words]).astype(np.float32)

    def __len__(self) -> int:
        return len(self._columns)

    def vectors(self, captions: Sequence[str]) -> csr_array:
        """(captions, words); zeros where a caption has no word that tells clips apart."""
        known_words = [self._columns.keys() & set(tokenize(caption)) for caption in captions]
        columns = [sorted(self._columns[word] for word in words) for words in known_words]
        rows = np.repeat(np.arange(len(columns)), [len(row) for row in columns])
        flat = np.array([column for row in columns for column in row], dtype=np.int64)
        idf = self._idf[flat]
        lengths = np.sqrt(np.bincount(rows, idf**2, minlength=len(columns)))
        weights = (idf / np.where(lengths == 0, 1, lengths)[rows]).astype(np.float32)
        return csr_array((weights, (rows, flat)), shape=(len(columns), len(self)))

    def clip_vectors(self, clips: Sequence[Clip]) -> Matrix:
        """(clips, words), the mean over the captions of each."""
        return np.stack([self.vectors(clip.captions).mean(axis=0) for clip in clips]).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Truth:
    """Concept words and queries of clips, from their captions."""

    words: Matrix  # (clips, V), 1 where somebody used a concept word
    queries: csr_array  # (Q, vocabulary)
    query_clip: Tensor  # (Q,), the row of the clip that each was written for

    @classmethod
    def of(cls, clips: Sequence[Clip], concepts: Concepts, tfidf: TfIdf) -> Truth:
        captions = [clip.captions[:QUERIES] for clip in clips]
        return cls(
            words=word_truth(concepts, clips),
            queries=tfidf.vectors([caption for clip_captions in captions for caption in clip_captions]),
            query_clip=torch.repeat_interleave(
                torch.tensor([len(clip_captions) for clip_captions in captions])
            ),
        )

    def ranks(self, predicted: Matrix) -> list[list[int]]:
        """Of each clip, for its queries.

        Args:
            predicted: (clips, vocabulary), the vector that is guessed for each.
        """
        lengths = np.linalg.norm(predicted, axis=1, keepdims=True)
        scores = self.queries @ (predicted / np.where(lengths == 0, 1, lengths)).T
        query_ranks = ranks(torch.from_numpy(np.ascontiguousarray(scores)), self.query_clip)
        counts = torch.bincount(self.query_clip, minlength=len(predicted))
        ends = np.cumsum(counts)[:-1]
        return [part.tolist() for part in np.split(query_ranks.numpy(), ends)]


@dataclass(frozen=True, slots=True)
class Probed:
    """The metrics of one backbone's features."""

    name: str
    channels: int
    penalties: dict[str, float]  # of words, of TF-IDF vectors
    statistics: dict[Split, dict[str, ClipStatistic]]  # of each of METRICS


class Probe:
    """Ridge regressions from the features of any backbone to concept words and TF-IDF vectors."""

    def __init__(self, clips: Mapping[Split, Sequence[Clip]]) -> None:
        """Prepare the targets of both regressions, and the truth on validation and held-out clips.

        Args:
            clips: of train, val and test, captioned.
        """
        train, val, test = clips["train"], clips["val"], clips["test"]
        self.concepts, self.tfidf = train_concepts(train), TfIdf(train)
        self.words = word_truth(self.concepts, train)
        self._vectors = self.tfidf.clip_vectors(train)
        self._val = Truth.of(val, self.concepts, self.tfidf)
        self._held_out = Truth.of([*val, *test], self.concepts, self.tfidf)

    def __call__(self, name: str, train: Matrix, val: Matrix, test: Matrix) -> Probed:
        """Fit both ridge regressions to features, with the penalties that are best on the validation clips.

        Args:
            train, val, test: (clips, C).
        """
        held_out = np.concatenate([val, test])
        words = RidgeRegression(train, self.words)
        vectors = RidgeRegression(train, self._vectors)
        by_words = max(PENALTIES, key=lambda penalty: self._val_words(words.predict(val, penalty=penalty)))
        by_mrr = max(PENALTIES, key=lambda penalty: self._val_mrr(vectors.predict(val, penalty=penalty)))
        scores = words.predict(held_out, penalty=by_words)
        surest = precision_at_top(scores, self._held_out.words)
        rise = precision_by_rise(scores, words.target_mean, self._held_out.words)
        clip_ranks = self._held_out.ranks(vectors.predict(held_out, penalty=by_mrr))
        places = {"val": slice(len(val)), "test": slice(len(val), None)}
        return Probed(
            name=name,
            channels=train.shape[1],
            penalties={"words": by_words, "tf-idf": by_mrr},
            statistics={
                split: {"words": mean(surest[part]), "rise": mean(rise[part])}
                | rank_statistics(clip_ranks[part])
                for split in HELD_OUT
                for part in (places[split],)
            },
        )

    def commonest(self) -> dict[Split, ClipStatistic]:
        """Precision of the ten most frequent words, the same for every clip: the baseline."""
        frequency = self.words.mean(axis=0)
        truth = self._held_out.words
        right = precision_at_top(np.tile(frequency, (len(truth), 1)), truth)
        val = len(self._val.words)
        return {"val": mean(right[:val]), "test": mean(right[val:])}

    def _val_words(self, scores: Matrix) -> float:
        return float(precision_at_top(scores, self._val.words).mean())

    def _val_mrr(self, predicted: Matrix) -> float:
        return rank_statistics(self._val.ranks(predicted))["MRR"].value


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one backbone on one engine."""

    name: str
    engine: str
    milliseconds: float  # a frame, the median over rounds
    ratio: float | None  # to the first backbone on ONNX Runtime; None if that cannot be timed
    cosine: float  # of its maps and those of ONNX Runtime, the mean over cells


def int8_engine(backbone: Backbone) -> Engine:
    """Matrices and convolutions in int8, scales of activations found for each call."""
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    logging.getLogger().setLevel(logging.ERROR)  # it warns of inputs that are bytes
    with tempfile.TemporaryDirectory() as folder:
        prepared, quantised = Path(folder, "prepared.onnx"), Path(folder, "int8.onnx")
        quant_pre_process(onnx_file(backbone), prepared, skip_symbolic_shape=True)
        quantize_dynamic(prepared, quantised)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(quantised, options, providers=["CPUExecutionProvider"])
    return lambda frames: np.asarray(session.run(None, {"frames": frames})[0])


def bfloat16_engine(backbone: Backbone) -> Engine:
    import openvino

    cores = usable_cores()
    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": cores, "NUM_STREAMS": cores, "INFERENCE_PRECISION_HINT": "bf16"}
    model = core.compile_model(core.read_model(str(onnx_file(backbone))), "CPU", options)
    return lambda frames: np.asarray(model.create_infer_request().infer([frames])[0])


ENGINES: dict[str, Callable[[Backbone], Engine]] = {
    "onnxruntime": partial(load_engine, engine="onnxruntime"),
    "onnxruntime, int8": int8_engine,
    "openvino": partial(load_engine, engine="openvino"),
    "openvino, bfloat16": bfloat16_engine,
}


def measure_costs(
    backbones: Mapping[str, Backbone], first: str, clips: Sequence[Clip], rounds: int
) -> list[Cost]:
    installed = {name: load for name, load in ENGINES.items() if importlib.util.find_spec(name.split(",")[0])}
    engines: dict[tuple[str, str], tuple[Engine, int]] = {}
    for name, backbone in backbones.items():
        for engine, load in installed.items():
            if backbone.spec.graph is not None and "," in engine:
                continue  # a user's file is run as it is
            try:
                engines[name, engine] = (load(backbone), backbone.image_size)
            except CtsanError as error:
                tell(f"{name}: not timed on {engine}. {error}")
    pixels = {size: pictures(clips, size) for size in {size for _, size in engines.values()}}
    maps = {key: run(pixels[size]) for key, (run, size) in engines.items()}
    times = milliseconds_in_rounds(engines, rounds=rounds) if engines else {}
    base = times.get((first, REFERENCE))
    return [
        Cost(
            name,
            engine,
            milliseconds=statistics.median(values),
            ratio=statistics.median(np.divide(values, base).tolist()) if base else None,
            cosine=mean_cosine(maps[name, engine], maps[name, REFERENCE])
            if (name, REFERENCE) in maps
            else math.nan,
        )
        for (name, engine), values in times.items()
    ]


def pictures(clips: Sequence[Clip], size: int) -> Pixels:
    """Frames of a few clips; smooth synthetic pictures if no clip can be read."""
    pixels: list[Pixels] = []
    for clip in clips:
        if len(pixels) == CLIPS:
            break
        try:
            pixels.append(sample_frames(clip.path, size=size, max_frames=FRAMES).pixels)
        except VideoError:  # features may be there without files
            continue
    if pixels:
        return np.concatenate(pixels)
    tell("No clip can be read: engines are compared on smooth pictures.")
    across = np.linspace(0, 2 * np.pi, size)
    waves = np.random.default_rng(0).uniform(0.2, 3, (CLIPS * FRAMES, 2, 3))
    rows, columns = (np.sin(across[:, None] * waves[:, None, axis]) for axis in (0, 1))  # (N, size, 3)
    smooth = (rows[:, :, None] + columns[:, None]) * 63 + 128
    return smooth.astype(np.uint8)


def mean_cosine(maps: Maps, reference: Maps) -> float:
    """Of the cells of two maps, (N, h, w, C)."""
    a, b = maps.astype(np.float64), reference.astype(np.float64)
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return float(((a * b).sum(axis=-1) / np.maximum(lengths, 1e-12)).mean())


def recommend(probed: Sequence[Probed], ratios: Mapping[str, float]) -> tuple[str | None, str]:
    """The name of the recommended backbone, and the reason as a sentence."""
    first = probed[0]
    if first.name not in ratios:
        return None, f"Recommended: none. {first.name}, the first, cannot be timed here."
    allowed = [candidate for candidate in probed if ratios.get(candidate.name, math.inf) <= MOST_TIMES]
    best = max(
        allowed, key=lambda candidate: candidate.statistics["val"]["words"].value
    )  # the first of equal ones
    limit = f"at most {MOST_TIMES:g} times the time of {first.name}"
    if best is first:
        return best.name, (
            f"Recommended: {best.name}. Of the backbones that take {limit}, none has more words right on "
            "validation."
        )
    words = compare(best.statistics["val"]["words"], first.statistics["val"]["words"])
    noise = "beyond noise" if words.verdict == "larger" else "within noise"
    return best.name, (
        f"Recommended: {best.name}. Of the backbones that take {limit}, it has the most words right on "
        f"validation; the difference to {first.name} is {noise}: {difference_text(words)}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpora", metavar="CORPUS", type=Path, nargs="+")
    parser.add_argument(
        "--features",
        metavar="DIR",
        type=Path,
        nargs="+",
        action="append",
        required=True,
        help="of one backbone: a folder for each corpus, or one for all; give it once a backbone",
    )
    parser.add_argument(
        "--weights", metavar="FILE", type=Path, nargs="+", default=[], help="of networks to time"
    )
    parser.add_argument("--rounds", type=int, default=15, help="of timing [default: 15]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    try:
        run(arguments)
    except CtsanError as error:
        sys.exit(f"Error: {error}")


def run(arguments: argparse.Namespace) -> None:
    corpus = read_corpora(arguments.corpora)
    stores = named_stores(corpus, arguments.features)
    clips = probe_clips(corpus, stores.values())
    for split in HELD_OUT:
        if not clips[split]:
            raise UsageError(
                f"{corpus.place}: no captioned clip of the split '{split}' has features of every backbone. "
                "'ctsan corpus check' shows the splits."
            )
    if left_out := len([clip for clip in corpus if clip.captions]) - sum(map(len, clips.values())):
        tell(f"Left out: {count(left_out, 'captioned clip')} without a split or without all features.")
    probe = Probe(clips)
    probed = []
    for name, store in tqdm(stores.items(), desc="probing", disable=None):
        features = (mean_features(store, clips[split]) for split in ("train", *HELD_OUT))
        probed.append(probe(name, *features))
    first = probed[0]
    backbones = {}
    for name, store in stores.items():
        try:
            backbones[name] = find_stored_backbone(store, arguments.weights)
        except CtsanError as error:
            tell(f"{name}: not timed. {error}")
    costs = measure_costs(backbones, first.name, clips["val"], arguments.rounds)
    ratios = {cost.name: cost.ratio for cost in costs if cost.engine == REFERENCE and cost.ratio is not None}
    recommended, reason = recommend(probed, ratios)
    differences = {
        candidate.name: {
            metric: compare(candidate.statistics["val"][metric], first.statistics["val"][metric])
            for metric in COMPARED
        }
        for candidate in probed[1:]
    }
    counts = {split: len(clips[split]) for split in clips}
    if arguments.json:
        print(json.dumps(as_json(probe, probed, differences, costs, recommended, counts), indent=2))
    else:
        print_tables(probe, probed, differences, costs, counts)
        print(f"\n{reason}")


def named_stores(corpus: Corpus, features: Sequence[Sequence[Path]]) -> dict[str, FeatureStore]:
    """The features of each backbone, by its name, and by its folder too where two have one name."""
    ids = [part.ids for part in parts_of(corpus)]
    stores = []
    for folders in features:
        if len(folders) not in (1, len(ids)):
            raise UsageError(
                f"--features {' '.join(map(str, folders))}: {len(folders)} folders, and there are {len(ids)} "
                "corpora. Give one folder a corpus, in their order, or one for all; a second backbone has a "
                "--features of its own."
            )
        stores.append(open_stores(folders if len(folders) == len(ids) else [*folders] * len(ids), ids))
    names = [store.manifest.recipe.backbone for store in stores]
    if len({store.folder.resolve() for store in stores}) < len(stores):
        raise UsageError("--features: one folder is given for two backbones. Give each folder once.")
    return {
        f"{name} ({store.folder})" if names.count(name) > 1 else name: store
        for name, store in zip(names, stores, strict=True)
    }


def find_stored_backbone(store: FeatureStore, weights: Sequence[Path]) -> Backbone:
    """The network that made the features of a store, with the installed weights or those of a given file.

    Raises:
        UsageError: its weights are neither here nor given, or the features were imported.
    """
    recipe = store.manifest.recipe
    for file in weights:
        try:
            return backbone_of(recipe, file)
        except UsageError:
            continue
    return backbone_of(recipe)


def print_tables(
    probe: Probe,
    probed: Sequence[Probed],
    differences: Mapping[str, Mapping[str, Comparison]],
    costs: Sequence[Cost],
    counts: Mapping[Split, int],
) -> None:
    print(
        f"{counts['train']} training, {counts['val']} validation and {counts['test']} test clips; "
        f"{len(probe.concepts)} concept words, {len(probe.tfidf)} words in queries\n"
    )
    fp32 = {cost.name: cost for cost in costs if cost.engine == REFERENCE}
    commonest = probe.commonest()
    rows: list[tuple[str, ...]] = []
    for split, title in zip(HELD_OUT, ("validation", "test"), strict=True):
        rows.append((title, COMMONEST, with_interval(commonest[split])))
        for row in probed:
            statistics = [row.statistics[split][metric] for metric in METRICS]
            cells = [
                with_interval(statistic, digits=0 if statistic is statistics[-1] else 3)
                for statistic in statistics
            ]
            rows.append((title, row.name, *cells, *time_cells(fp32.get(row.name))))
    print_table(rows, ("split", "backbone", *METRICS, "ms/frame", "× first"))
    penalties = [
        (row.name, row.channels, *(penalty_cell(value) for value in row.penalties.values())) for row in probed
    ]
    print_table(penalties, ("backbone", "channels", "penalty, words", "penalty, TF-IDF"))
    compared = [
        (name, *(difference_text(comparisons[metric]) for metric in COMPARED))
        for name, comparisons in differences.items()
    ]
    if compared:
        headers = (f"{metric}, validation" for metric in COMPARED)
        print_table(compared, (f"against {probed[0].name}", *headers))
    engines = [(cost.name, cost.engine, *time_cells(cost), f"{cost.cosine:.5f}") for cost in costs]
    if engines:
        print_table(engines, ("backbone", "engine", "ms/frame", "× first", f"cosine to {REFERENCE}"))


def print_table(rows: Sequence[tuple[object, ...]], headers: Sequence[str]) -> None:
    print(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True), end="\n\n")


def time_cells(cost: Cost | None) -> tuple[str, str]:
    if cost is None:
        return "", ""
    return f"{cost.milliseconds:.1f}", "" if cost.ratio is None else f"{cost.ratio:.2f}"


def penalty_cell(penalty: float) -> str:
    is_edge = penalty in (PENALTIES[0], PENALTIES[-1])
    return f"{penalty:g} (edge of the grid)" if is_edge else f"{penalty:g}"


def with_interval(statistic: ClipStatistic, *, digits: int = 3) -> str:
    low, high = interval(statistic)
    return f"{statistic.value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def difference_text(compared: Comparison) -> str:
    low, high = compared.interval
    return f"{compared.difference:+.3f} [{low:+.3f}, {high:+.3f}], {compared.verdict}"


def as_json(
    probe: Probe,
    probed: Sequence[Probed],
    differences: Mapping[str, Mapping[str, Comparison]],
    costs: Sequence[Cost],
    recommended: str | None,
    counts: Mapping[Split, int],
) -> dict[str, Any]:
    return {
        "clips": counts,
        "concepts": len(probe.concepts),
        "vocabulary": len(probe.tfidf),
        "commonest": {split: figures(statistic) for split, statistic in probe.commonest().items()},
        "backbones": [
            {
                "backbone": backbone.name,
                "channels": backbone.channels,
                "penalties": backbone.penalties,
                **{
                    split: {metric: figures(backbone.statistics[split][metric]) for metric in METRICS}
                    for split in HELD_OUT
                },
                "against_first": {
                    metric: {
                        "difference": comparison.difference,
                        "interval": comparison.interval,
                        "verdict": comparison.verdict,
                    }
                    for metric, comparison in differences.get(backbone.name, {}).items()
                },
            }
            for backbone in probed
        ],
        "engines": [
            {
                "backbone": cost.name,
                "engine": cost.engine,
                "milliseconds": cost.milliseconds,
                "ratio": cost.ratio,
                "cosine": None if math.isnan(cost.cosine) else cost.cosine,
            }
            for cost in costs
        ],
        "recommended": recommended,
    }


def figures(statistic: ClipStatistic) -> dict[str, object]:
    return {"value": statistic.value, "interval": interval(statistic)}


def tell(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
