r"""Fine-tune the last stage of TinyViT on captioned clips and pictures.

    python tools/finetune_tiny_vit.py CLIPS FRAMES PICTURES --weights pretrained.safetensors \
        --out tuned.safetensors --cache /tmp/maps

All stages but the last stay as they are. Their maps are computed once, for up to four frames of each training
clip and their mirror images, and kept in --cache. From the mean over a clip's frames and cells the last stage
learns which concept words its captions hold (sigmoid cross-entropy), and which caption of a batch is its own
(softmax over cosines with a sum of word vectors, in both directions). What is written is the running mean of
the weights. No clip outside the training splits is read; bench/probe.py says whether the result is better.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from ctsan.data.corpus import Clip
from ctsan.data.reading import read_corpus
from ctsan.io.atomic import replacing, write_json
from ctsan.io.device import usable_cores
from ctsan.text.concepts import Concepts
from ctsan.text.tagging import load_tagger
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import Vocabulary
from ctsan.video.backbones.registry import BACKBONES
from ctsan.video.backbones.tiny_vit import TinyViT, tiny_vit
from ctsan.video.frames import sample_frames, subsample

Maps = NDArray[np.float16]

SPEC = BACKBONES["tiny-vit-5m"]
FRAMES = 4  # of a clip that are cached
FRAMES_AT_ONCE = 2  # of these in a step
BATCH = 64
JOINT_DIM = 256
CONCEPT_WEIGHT = 0.1  # of the sum over candidates
HEADS_RATE = 1e-3
WARMUP = 100
DECAY = 0.995  # of the running mean of weights


class Lesson(NamedTuple):
    """A clip to learn from."""

    rows: range  # of its frames in the cached maps
    corpus: int
    captions: list[list[int]]
    concepts: list[int]


class LastStage(nn.Module):
    """Maps before the last stage (N, 160, 10, 10) to the mean of those after it, (N, 320)."""

    def __init__(self, network: TinyViT) -> None:
        super().__init__()
        self.downsample, self.stage = network.downsamples[-1], network.stages[-1]

    def forward(self, maps: Tensor) -> Tensor:
        after: Tensor = self.stage(self.downsample(maps).permute(0, 2, 3, 1))
        return after.mean(dim=(1, 2))


class Heads(nn.Module):
    """What is learnt beside the stage and thrown away: words by a clip, and a joint embedding."""

    rarity: Tensor

    def __init__(self, *, frequencies: Tensor, rarity: Tensor) -> None:
        super().__init__()
        channels, num_words = SPEC.channels, len(rarity)
        self.name = nn.Linear(channels, frequencies.shape[1], bias=False)
        nn.init.normal_(self.name.weight, std=0.01)
        self.bias = nn.Parameter(frequencies.clamp(1e-3, 1 - 1e-3).logit())  # (corpora, V)
        self.embed_clip = nn.Linear(channels, JOINT_DIM)
        self.embed_words = nn.EmbeddingBag(num_words, JOINT_DIM, mode="sum", include_last_offset=True)
        nn.init.normal_(self.embed_words.weight, std=0.1)
        self.log_scale = nn.Parameter(torch.tensor(2.6))
        self.register_buffer("rarity", rarity)

    def losses(
        self, clips: Tensor, corpus: Tensor, reference: Tensor, captions: Sequence[list[int]]
    ) -> Tensor:
        """Mean features (B, C), the corpus of each (B,), its words (B, V) and one caption of each."""
        clips = F.layer_norm(clips, clips.shape[1:])
        scores = self.name(F.dropout(clips, 0.2)) + self.bias[corpus]
        concepts = F.binary_cross_entropy_with_logits(scores, reference, reduction="none").sum(dim=1).mean()
        words = torch.tensor([word for caption in captions for word in caption])
        ends = torch.tensor([0, *np.cumsum([len(caption) for caption in captions])])
        sentences = F.normalize(self.embed_words(words, ends, per_sample_weights=self.rarity[words]), dim=1)
        pictures = F.normalize(self.embed_clip(F.dropout(clips, 0.2)), dim=1)
        alike = pictures @ sentences.mT * self.log_scale.exp().clamp(max=50)
        own = torch.arange(len(alike))
        joint = (F.cross_entropy(alike, own) + F.cross_entropy(alike.mT, own)) / 2
        return CONCEPT_WEIGHT * concepts + joint


class FrozenStages(nn.Module):
    """Pixels (N, size, size, 3) to maps before the last stage, (N, 160, 10, 10)."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: TinyViT) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(SPEC.mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(SPEC.std).view(3, 1, 1))

    def forward(self, frames: Tensor) -> Tensor:
        return self.network.before_last_stage((frames.permute(0, 3, 1, 2).float() - self.mean) / self.std)


def frozen_session(network: TinyViT, file: Path) -> onnxruntime.InferenceSession:
    example = torch.zeros((2, SPEC.image_size, SPEC.image_size, 3), dtype=torch.uint8)
    with torch.no_grad():
        torch.onnx.export(
            FrozenStages(network).eval(),
            (example,),
            file,
            dynamo=True,
            external_data=False,
            input_names=["frames"],
            dynamic_shapes={"frames": {0: torch.export.Dim("N")}},
            verbose=False,
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # a clip a core
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def cached_maps(
    clips: Sequence[Clip], network: TinyViT, weights: Path, folder: Path
) -> tuple[list[range], list[Maps]]:
    """The rows of each clip's frames, and maps before the last stage, as they are and mirrored; resumable."""
    folder.mkdir(parents=True, exist_ok=True)
    done_file = folder / "done.json"
    paths = "\n".join(str(clip.path) for clip in clips)
    of = hashlib.sha256(paths.encode() + weights.read_bytes()).hexdigest()
    done: list[int] = []
    if done_file.exists():
        kept = json.loads(done_file.read_text())
        if kept["of"] != of:
            sys.exit(f"{folder}: maps of other clips or weights. Name another --cache, or delete it.")
        done = kept["frames"]
    shape = (len(clips) * FRAMES, 160, SPEC.image_size // 16, SPEC.image_size // 16)
    maps: list[Maps] = [
        np.lib.format.open_memmap(
            folder / f"{name}.npy", mode="r+" if done else "w+", dtype=np.float16, shape=shape
        )
        for name in ("maps", "mirrored")
    ]
    left = range(len(done), len(clips))
    session = frozen_session(network, folder / "frozen.onnx")

    def see(number: int) -> int:
        pixels = sample_frames(clips[number].path, size=SPEC.image_size).pixels
        pixels = pixels[subsample(len(pixels), FRAMES)]
        for kept, frames in zip(maps, (pixels, pixels[:, :, ::-1]), strict=True):
            seen = session.run(None, {"frames": np.ascontiguousarray(frames)})[0]
            kept[number * FRAMES : number * FRAMES + len(pixels)] = seen
        return len(pixels)

    with ThreadPoolExecutor(usable_cores()) as pool:
        for count in tqdm(pool.map(see, left), initial=len(done), total=len(clips), desc="frozen stages"):
            done.append(count)
            if len(done) % 200 == 0 or len(done) == len(clips):
                write_json(done_file, {"of": of, "frames": done})
    return [range(n * FRAMES, n * FRAMES + count) for n, count in enumerate(done)], maps


def tuned(
    stage: LastStage,
    heads: Heads,
    lessons: Sequence[Lesson],
    maps: Sequence[Maps],
    *,
    epochs: int,
    rate: float,
    seed: int,
) -> dict[str, Tensor]:
    """The running mean of the stage's weights."""
    random = np.random.default_rng(seed)
    optimiser = torch.optim.AdamW(
        [
            {"params": list(stage.parameters()), "lr": rate},
            {"params": list(heads.parameters()), "lr": HEADS_RATE},
        ],
        weight_decay=0.05,
    )
    rates = [group["lr"] for group in optimiser.param_groups]
    average = {name: weights.clone() for name, weights in stage.state_dict().items()}
    steps = epochs * len(lessons) // BATCH
    num_candidates = heads.name.out_features
    order: list[int] = []
    for step in (shown := tqdm(range(steps), desc="fine-tuning")):
        scale = min(1.0, step / WARMUP) * (1 + np.cos(np.pi * step / steps)) / 2
        for group, full in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = full * scale
        if len(order) < BATCH:
            order = random.permutation(len(lessons)).tolist()
        some = [lessons[order.pop()] for _ in range(BATCH)]
        frames, clip_of = [], []
        for place, lesson in enumerate(some):
            flip = int(random.random() < 0.5)
            for row in random.choice(lesson.rows, min(len(lesson.rows), FRAMES_AT_ONCE), replace=False):
                frames.append(maps[flip][row])
                clip_of.append(place)
        owner = torch.tensor(clip_of)
        means = stage(torch.from_numpy(np.stack(frames).astype(np.float32)))
        clips = torch.zeros(BATCH, SPEC.channels).index_add(0, owner, means)
        clips = clips / torch.bincount(owner, minlength=BATCH)[:, None]
        reference = torch.zeros(BATCH, num_candidates)
        for place, lesson in enumerate(some):
            reference[place, lesson.concepts] = 1
        captions = [lesson.captions[random.integers(len(lesson.captions))] for lesson in some]
        corpora = torch.tensor([lesson.corpus for lesson in some])
        loss = heads.losses(clips, corpora, reference, captions)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        nn.utils.clip_grad_norm_(stage.parameters(), 1.0)
        optimiser.step()
        for name, weights in stage.state_dict().items():
            average[name].lerp_(weights, 1 - DECAY)
        if step % 50 == 0:
            shown.set_postfix(loss=f"{loss.item():.3f}")
    return average


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpora", type=Path, nargs="+", help="each has its own word frequencies")
    parser.add_argument("--weights", type=Path, required=True, help="what convert_tiny_vit.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True, help="a folder for maps, 130 kB a clip")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    weights = load_file(arguments.weights)
    network = tiny_vit(weights)

    clips: list[Clip] = []
    corpus_of: list[int] = []
    for number, path in enumerate(arguments.corpora):
        own = [clip for clip in read_corpus(path).split("train") if clip.captions]
        clips += own
        corpus_of += [number] * len(own)
    rows, maps = cached_maps(clips, network, arguments.weights, arguments.cache)
    sentences = [tokenize(caption) for clip in clips for caption in clip.captions]
    vocabulary = Vocabulary.build(sentences)
    concepts = Concepts.build(sentences, vocabulary, load_tagger())
    place = {word: number for number, word in enumerate(vocabulary.words)}

    lessons = [
        Lesson(
            own_rows,
            corpus,
            [
                [place[word] for word in tokenize(caption) if word in place] or [0]
                for caption in clip.captions
            ],
            concepts.reference(clip.captions),
        )
        for clip, corpus, own_rows in zip(clips, corpus_of, rows, strict=True)
    ]
    frequencies = torch.zeros(len(arguments.corpora), len(concepts.words))
    used = torch.ones(len(place))
    for lesson in lessons:
        frequencies[lesson.corpus, lesson.concepts] += 1
        used[list({word for caption in lesson.captions for word in caption})] += 1
    frequencies /= torch.bincount(torch.tensor(corpus_of))[:, None]
    heads = Heads(frequencies=frequencies, rarity=(len(lessons) / used).log().clamp(min=0.05))
    stage = LastStage(network)
    average = tuned(
        stage, heads, lessons, maps, epochs=arguments.epochs, rate=arguments.rate, seed=arguments.seed
    )
    stage.load_state_dict(average)
    with replacing(arguments.out) as temporary:
        state = {name: tensor.half().contiguous() for name, tensor in sorted(network.state_dict().items())}
        save_file(state, temporary)
    print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
