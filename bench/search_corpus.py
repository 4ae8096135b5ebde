"""Clips of corpora with stored features as the shots of a library, for the benchmarks of search."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ctsan.data.corpus import Clip
from ctsan.data.reading import read_corpus
from ctsan.inference.encoded_clip import EncodedClip
from ctsan.inference.featurizer import ClipFeatures
from ctsan.inference.loaded_model import LoadedModel
from ctsan.search.encodings import concept_words, shot_arrays, vector_dim
from ctsan.search.library_format import FileRecord
from ctsan.search.models import run_fingerprints
from ctsan.search.opening import LibraryAddress, open_for_writing
from ctsan.video.backbones import network_key
from ctsan.video.clip_maps import ClipMaps
from ctsan.video.shots import Shot
from ctsan.video.store import FeatureStore

Numbers = dict[str, NDArray[np.generic]]

_ROWS_AT_ONCE = 10_000
_CLIPS_AT_ONCE = 32


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--features", type=Path, nargs="+", required=True, help="one folder a corpus")
    parser.add_argument("--model", type=Path, action="append", required=True)


def read_clips(
    models: Sequence[LoadedModel], corpora: Sequence[Path], features: Sequence[Path], splits: Sequence[str]
) -> tuple[list[Clip], Numbers]:
    """The clips of some splits, in the order of the splits, and their arrays."""
    clips, parts = [], []
    for corpus, folder in zip(corpora, features, strict=True):
        store = FeatureStore(folder)
        own = [clip for clip in read_corpus(corpus) if clip.id in store and clip.split in splits]
        clips += own
        parts += list(_encoded(models, own, store))
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = sorted(range(len(clips)), key=lambda place: splits.index(clips[place].split))
    return [clips[place] for place in order], {name: array[order] for name, array in arrays.items()}


def _encoded(
    models: Sequence[LoadedModel], clips: Sequence[Clip], features: FeatureStore
) -> Iterator[Numbers]:
    words = concept_words(models)
    keys = {network_key(model.recipe) for model in models}
    for start in range(0, len(clips), _CLIPS_AT_ONCE):
        batch = []
        for clip in clips[start : start + _CLIPS_AT_ONCE]:
            maps = features[clip.id].maps
            clip_maps = ClipMaps(len(maps), np.arange(len(maps)), maps)
            times = np.arange(len(maps), dtype=np.float64)
            batch.append(EncodedClip(ClipFeatures(clip.id, times, dict.fromkeys(keys, clip_maps))))
        yield shot_arrays(models, batch, words)


def make_library(
    address: LibraryAddress,
    models: Sequence[LoadedModel],
    real: Numbers,
    clips: Sequence[Clip],
    size: int | None = None,
) -> None:
    """Make a library of `size` clips: the real ones first, then mixtures of them; None for no mixtures."""
    draw = np.random.default_rng(0)
    size = len(clips) if size is None else size
    runs, words = run_fingerprints(models), concept_words(models)
    with open_for_writing(address, runs=runs, words=words, dim=vector_dim(models)) as library:
        for number, clip in enumerate(clips[:size]):
            arrays = {kind: values[number : number + 1] for kind, values in real.items()}
            library.add(FileRecord(Path(clip.id), 0, 0), f"real {number}", [Shot(0.0, 1.0)], arrays)
        for start in range(len(clips), size, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, size - start)
            shots = [Shot(float(second), float(second + 1)) for second in range(count)]
            library.add(
                FileRecord(Path(f"made {start}"), 0, 0), f"made {start}", shots, _mixed(real, count, draw)
            )
        library.optimise()


def _mixed(real: Numbers, count: int, draw: np.random.Generator) -> Numbers:
    """Vectors of two real clips, mixed, with noise, and the concept words of the first."""
    total = len(real["vectors"])
    first, second = draw.integers(0, total, (2, count))
    share = draw.uniform(0.5, 1.0, count)[:, None].astype(np.float32)
    mixed = {kind: values[first] for kind, values in real.items()}
    numbers = real["vectors"].astype(np.float32)
    mixture = share * numbers[first] + (1 - share) * numbers[second]
    mixture += draw.standard_normal(mixture.shape, dtype=np.float32) * numbers.std(axis=0) * np.float32(0.3)
    lengths = np.linalg.norm(numbers[first], axis=1) / np.linalg.norm(mixture, axis=1)
    mixed["vectors"] = (mixture * lengths[:, None]).astype(np.float16)  # as long as those of real clips
    return mixed
