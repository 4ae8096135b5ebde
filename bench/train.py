"""How fast is a training step, and against what?

Features, captions and words are synthetic, with fixed seeds, in the sizes of a profile; no corpus is needed.

1. The step (forward, backward, Adam) against the same model with each economy given up: traces one after the
   other, each with its convolution as printed; a pass of the clip for every caption; both; the convolution as
   printed alone; the output word by word. Before any clock starts, all must give the same loss.
2. The recurrent part alone against a bare `torch.nn.LSTM` stack of the same sizes.
3. With --paper, one step at the paper's sizes in a process of its own: its seconds and its peak memory.

Rounds alternate, because machines are noisy; ratios are within a round, and the table gives their median and
range. On a machine that others use as well, --busy counts the CPU time of one thread in place of the clock's.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from tabulate import tabulate
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.config import PROFILES, Settings
from ctsan.model.concept_detector import ConceptDetector, Detection, TraceAttention, concept_loss
from ctsan.model.description_model import DescriptionModel
from ctsan.model.lstm import LayerNormLSTM
from ctsan.model.semantic_attention import attention_regulariser
from ctsan.tasks.building import build_model
from ctsan.tasks.clips import CaptionBatch
from ctsan.text.concepts import Concept, Concepts
from ctsan.text.vocabulary import BOS, EOS, PAD, SPECIALS, Vocabulary
from ctsan.text.words import Words

GRID = (4, 4)


def make_words(num_words: int, num_candidates: int, embedding_dim: int) -> Words:
    names = [f"word{n}" for n in range(num_words - len(SPECIALS))]
    vocabulary = Vocabulary((*SPECIALS, *names), (*(0 for _ in SPECIALS), *(1 for _ in names)))
    concepts = Concepts(tuple(Concept(name, "noun", 1) for name in names[:num_candidates]))
    embedding = np.random.default_rng(0).normal(size=(num_words, embedding_dim)).astype(np.float32)
    return Words(vocabulary, concepts, embedding)


def _model(settings: Settings, words: Words, *, channels: int) -> DescriptionModel:
    model = build_model("describe", settings, words, grid=GRID, channels=channels, seed=0)
    assert isinstance(model, DescriptionModel)
    return model


def make_batch(
    words: Words, *, clips: int, captions: int, frames: int, channels: int, longest: int
) -> CaptionBatch:
    """Clips of equal length with `captions` captions each, of 8 to `longest` words."""
    draw = torch.Generator().manual_seed(0)
    sentences = torch.randint(
        len(SPECIALS), len(words.vocabulary), (clips * captions, longest + 2), generator=draw
    )
    lengths = torch.randint(8, longest + 1, (clips * captions, 1), generator=draw)
    place = torch.arange(longest + 2)
    sentences[:, 0] = BOS
    sentences[place.expand_as(sentences) == lengths + 1] = EOS
    sentences[place > lengths + 1] = PAD
    return CaptionBatch(
        maps=torch.randn(clips, frames, *GRID, channels, generator=draw).relu_(),
        frame_is_real=torch.ones(clips, frames, dtype=torch.bool),
        reference=(torch.rand(clips, len(words.concepts.words), generator=draw) < 0.01).float(),
        concept_scores=torch.zeros(clips, 0),
        captions=sentences,
        clip_of_caption=torch.arange(clips).repeat_interleave(captions),
        clips=tuple(map(str, range(clips))),
    )


def loss_of(model: DescriptionModel, batch: CaptionBatch, *, word_by_word: bool = False) -> Tensor:
    """Equation 14, with equal weights for all captions."""
    encoding = model.clip_encoder(batch.maps, batch.frame_is_real)
    words, following = batch.captions[:, :-1], batch.captions[:, 1:]  # (M, T)
    of_captions = encoding.of(batch.clip_of_caption)
    likelihood: list[Tensor] = []
    weights: list[Tensor] = []
    for chunk in words.split(1 if word_by_word else words.shape[1], dim=1):  # type: ignore[no-untyped-call]  # torch's
        embedded = model.clip_encoder.embedding(chunk)
        decoded, state = model.decode(embedded, of_captions.concepts, of_captions.state)
        of_captions = of_captions._replace(state=state)
        targets = following[:, len(likelihood) :][:, : chunk.shape[1]]
        likelihood.append(
            F.cross_entropy(
                decoded.scores.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum"
            )
        )
        weights.append(torch.stack([decoded.input_weights, decoded.output_weights]))
    both = torch.cat(weights, dim=2)  # (2, M, T, K)
    regulariser = sum(attention_regulariser(attention, following != PAD).mean() for attention in both)
    concepts = concept_loss(encoding.detection.scores, batch.reference).mean()
    return torch.stack(likelihood).sum() / len(words) + 0.01 * regulariser + concepts


class AttentionAsPrinted(TraceAttention):
    """Every trace has a convolution of its own."""

    def weigh(self, regions: Tensor, hidden: Tensor, first: Tensor, second: Tensor) -> Tensor:  # noqa: ARG002  # those are for sharing
        return self.forward_plainly(regions, hidden)


class TracesOneByOne(ConceptDetector):
    """A loop over the traces, as in section 2.2."""

    def forward(self, regions: Tensor, frame_is_real: Tensor) -> Detection:
        attention, states = [], []
        for trace in range(self.num_traces):
            state = self.trace.initial(len(regions), regions)
            weights = regions.new_zeros(len(regions), 1, self.num_traces)
            weights[..., trace] = 1
            weights = weights.view(len(regions), 1, *regions.shape[3:])
            looks = []
            for number, frame in enumerate(regions.unbind(1)):
                if number:
                    weights = self.attend.forward_plainly(frame, state.top[:, None])
                context = (weights * frame).sum(dim=(2, 3))
                state = self.trace.step(context, state, is_real=frame_is_real[:, number])
                looks.append(weights[:, 0])
            attention.append(torch.stack(looks, dim=1))
            states.append(state.top)
        together = torch.stack(states, dim=1)  # (B, L, D)
        return Detection(self.name_words(together), torch.stack(attention, dim=2), together)


def with_parts(
    model: DescriptionModel, *, attend: type | None = None, detect: type | None = None
) -> DescriptionModel:
    """A copy with another implementation of attention or detector, and the same weights."""
    model = copy.deepcopy(model)
    assert model.clip_encoder.detector is not None
    if attend is not None:
        model.clip_encoder.detector.attend.__class__ = attend
    if detect is not None:
        model.clip_encoder.detector.__class__ = detect
    return model


def clip_per_caption(batch: CaptionBatch) -> CaptionBatch:
    clips = batch.clip_of_caption
    return batch._replace(
        maps=batch.maps[clips],
        frame_is_real=batch.frame_is_real[clips],
        reference=batch.reference[clips],
        clip_of_caption=torch.arange(len(clips)),
    )


class Trainer:
    """A model, a batch and Adam."""

    def __init__(self, model: DescriptionModel, batch: CaptionBatch, *, word_by_word: bool = False) -> None:
        self.model, self.batch, self.word_by_word = model.train(), batch, word_by_word
        self.adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    @torch.no_grad()
    def loss(self) -> float:
        """Without dropout, to be compared."""
        loss = float(loss_of(self.model.eval(), self.batch, word_by_word=self.word_by_word))
        self.model.train()
        return loss

    def step(self) -> None:
        self.adam.zero_grad()
        loss_of(self.model, self.batch, word_by_word=self.word_by_word).backward()  # type: ignore[no-untyped-call]  # torch's
        self.adam.step()


def rounds_of(
    things: Mapping[str, Callable[[], None]], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of each function in every round, run in turns; the first round is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in things}
    for number in range(rounds + 1):
        for name, thing in things.items():
            started = clock()
            thing()
            if number:
                seconds[name].append(clock() - started)
    return seconds


def against(seconds: list[float], base: list[float]) -> dict[str, float]:
    ratios = [mine / theirs for mine, theirs in zip(seconds, base, strict=True)]
    return {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}


def measure_steps(rounds: int, clock: Callable[[], float]) -> dict[str, dict[str, Any]]:
    settings = PROFILES["laptop"]
    words = make_words(2000, 1800, settings.model.embedding_dim)
    model = _model(settings, words, channels=1280)
    batch = make_batch(
        words,
        clips=settings.training.batch_size,
        captions=settings.training.captions_per_clip,
        frames=settings.model.max_frames,
        channels=1280,
        longest=15,
    )
    repeated = clip_per_caption(batch)
    looped = with_parts(model, detect=TracesOneByOne)
    trainers = {
        "as it is": Trainer(model, batch),
        "traces one by one": Trainer(looped, batch),
        "a clip pass per caption": Trainer(copy.deepcopy(model), repeated),
        "both (naive)": Trainer(copy.deepcopy(looped), repeated),
        "attention as printed": Trainer(with_parts(model, attend=AttentionAsPrinted), batch),
        "output word by word": Trainer(copy.deepcopy(model), batch, word_by_word=True),
    }
    expected = trainers["as it is"].loss()
    for name, trainer in trainers.items():
        if abs(trainer.loss() - expected) > 1e-4 * abs(expected):
            sys.exit(f"{name}: the loss is {trainer.loss()}, not {expected}. This is not the same model.")
    seconds = rounds_of({name: trainer.step for name, trainer in trainers.items()}, rounds, clock)
    return {
        name: {
            "captions_per_second": len(batch.captions) / statistics.median(times),
            "times_slower": against(times, seconds["as it is"]),
        }
        for name, times in seconds.items()
    }


def measure_recurrence(rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Decoder, video encoder and traces, forward and backward."""
    settings = PROFILES["laptop"]
    captions = settings.training.captions_per_clip
    dim, frames, clips = settings.model.hidden_dim, settings.model.max_frames, settings.training.batch_size
    torch.manual_seed(0)
    inputs = [
        torch.randn(*shape, dim, requires_grad=True)
        for shape in ((clips * captions, 16), (clips, frames), (clips * GRID[0] * GRID[1], frames))
    ]

    def run(stack: list[nn.Module]) -> None:
        for lstm, x in zip(stack, inputs, strict=True):
            lstm(x)[0].sum().backward()

    layers = settings.model.num_layers
    ours: list[nn.Module] = [LayerNormLSTM(input_dim=dim, hidden_dim=dim, num_layers=layers) for _ in inputs]
    bare: list[nn.Module] = [nn.LSTM(dim, dim, layers, batch_first=True) for _ in inputs]
    seconds = rounds_of({"ours": lambda: run(ours), "bare": lambda: run(bare)}, rounds, clock)
    medians = {name: 1000 * statistics.median(times) for name, times in seconds.items()}
    return {
        "milliseconds": medians["ours"],
        "bare_milliseconds": medians["bare"],
        **against(seconds["ours"], seconds["bare"]),
    }


def paper_step(clock: Callable[[], float]) -> dict[str, float]:
    """One step with 32 clips of 40 frames and a caption each."""
    settings = PROFILES["paper"]
    words = make_words(12_500, 2000, settings.model.embedding_dim)
    batch = make_batch(
        words,
        clips=settings.training.batch_size,
        captions=1,
        frames=settings.model.max_frames,
        channels=2048,
        longest=15,
    )
    trainer = Trainer(_model(settings, words, channels=2048), batch)
    started = clock()
    trainer.step()
    seconds = clock() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"seconds": seconds, "peak_gigabytes": peak / 1e9}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="of the steps; the recurrent part has four times as many"
    )
    parser.add_argument(
        "--paper", action="store_true", help="also one step at the paper's sizes (a minute, 6 GB)"
    )
    parser.add_argument("--only-paper-step", action="store_true", help="that step in this process, as JSON")
    parser.add_argument("--busy", action="store_true", help="one thread, and its CPU time")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    arguments = parser.parse_args()
    clock = time.perf_counter
    if arguments.busy:
        torch.set_num_threads(1)
        clock = time.process_time
    if arguments.only_paper_step:
        print(json.dumps(paper_step(clock)))
        return
    results: dict[str, Any] = {
        "steps": measure_steps(arguments.rounds, clock),
        "recurrence": measure_recurrence(4 * arguments.rounds, clock),
    }
    if arguments.paper:
        command = [sys.executable, __file__, "--only-paper-step", *["--busy"] * arguments.busy]
        results["paper"] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    if arguments.json:
        print(json.dumps(results))
        return
    laptop = PROFILES["laptop"]
    captions = laptop.training.captions_per_clip
    sizes = (
        f"{laptop.training.batch_size} clips of {laptop.model.max_frames} frames, {captions} captions each"
    )
    rows = [
        (
            name,
            f"{row['captions_per_second']:.0f}",
            "{median:.1f} ({least:.1f} to {most:.1f})".format(**row["times_slower"]),
        )
        for name, row in results["steps"].items()
    ]
    print(
        tabulate(
            rows,
            headers=(f"a training step: {sizes}", "captions/s", "times the time"),
            disable_numparse=True,
        )
    )
    print(
        "\nRecurrent part, forward and backward: {milliseconds:.0f} ms, bare torch.nn.LSTM "
        "{bare_milliseconds:.0f} ms; {median:.2f} times ({least:.2f} to {most:.2f})".format(
            **results["recurrence"]
        )
    )
    if arguments.paper:
        print(
            "A step at the paper's sizes: {seconds:.0f} s, peak memory {peak_gigabytes:.1f} GB "
            "(of the whole process: Python, PyTorch, weights, gradients, Adam, batch)".format(
                **results["paper"]
            )
        )


if __name__ == "__main__":
    main()
