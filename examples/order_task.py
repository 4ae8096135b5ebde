"""A new task in one file: tell a clip from the same clip with its two halves swapped.

    python examples/order_task.py CORPUS RUN

trains on the training clips of CORPUS, writes the run into the folder RUN and prints its accuracy on the test
clips, of which 0.5 is chance. It needs no labels. `TASKS["order"] = SPEC` registers the task: training,
resuming, ensembles, evaluation and the page of examples then work as for the others. As a part of ctsan, this
file is `src/ctsan/tasks/order.py`, and the registration a line of `src/ctsan/tasks/registry.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan import evaluate, train
from ctsan.data.batches import pad_maps
from ctsan.data.corpus import Clip
from ctsan.evaluation.items import item_statistics
from ctsan.model.clip_encoder import BaseClipEncoder, ClipEncoding
from ctsan.tasks.clip_encoders import build_clip_encoder
from ctsan.tasks.clips import AnsweredItem, TaskClips, accuracy, answers_by_clip
from ctsan.tasks.registry import TASKS
from ctsan.tasks.spec import AnswerReport, ModelInputs, TaskSpec
from ctsan.tasks.task import Example, Measured, ShownChoice
from ctsan.video.clip_maps import subsample_maps
from ctsan.video.store import Maps

ORDERS = ("first half, second half", "second half, first half")  # the first is the right one


def swap_halves(maps: Maps) -> Maps:
    """Maps (N, h, w, C) with the second half of the frames first."""
    return np.roll(maps, -(len(maps) // 2), axis=0)


class OrderModel(nn.Module):
    """Score how well the frames of a clip follow each other, from the state s_N of the video encoder."""

    def __init__(self, *, clip_encoder: BaseClipEncoder, hidden_dim: int) -> None:
        super().__init__()
        self.clip_encoder = clip_encoder
        for unused in (clip_encoder.embedding, clip_encoder.detector):  # s_N depends on neither
            if unused is not None:
                unused.requires_grad_(requires_grad=False)
        self.score = nn.Linear(hidden_dim, 1)

    def forward(self, encoding: ClipEncoding) -> Tensor:
        scores: Tensor = self.score(encoding.state.top)  # (B, 1)
        return scores[:, 0]  # (B,)


class OrderBatch(NamedTuple):
    maps: Tensor  # (B, N, h, w, C)
    frame_is_real: Tensor  # (B, N)
    is_in_order: Tensor  # (B,), 1 or 0


class OrderTask:
    """Examples 2n and 2n + 1 are training clip n in order and swapped; pictures (one frame) are left out."""

    primary_metric = "accuracy"

    def __init__(self, *, model: OrderModel, clips: TaskClips) -> None:
        self.model = model
        self.clips = clips
        self._train = [clip for clip in clips.epoch_clips if not clips.bucket(clip)]

    @property
    def buckets(self) -> list[int]:
        return [0] * (2 * len(self._train))

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> OrderBatch:
        is_in_order = [example % 2 == 0 for example in examples]
        clips = [self._train[example // 2] for example in examples]
        maps, frame_is_real = pad_maps(
            [self._maps(*each) for each in zip(clips, is_in_order, mirrored, strict=True)]
        )
        return OrderBatch(maps, frame_is_real, torch.tensor(is_in_order).float())

    def losses(self, batch: OrderBatch) -> dict[str, Tensor]:
        scores = self.model(self.model.clip_encoder(batch.maps, batch.frame_is_real))
        return {"order": F.binary_cross_entropy_with_logits(scores, batch.is_in_order)}

    def num_words(self, batch: OrderBatch) -> int:  # noqa: ARG002  # required by `Task`
        return 0

    def evaluate(self) -> Mapping[str, float]:
        self.model.eval()
        return self.measure().metrics

    def calibrate(self) -> None:
        """Probabilities need no scale."""

    def measure(self, encoding: ClipEncoding | None = None) -> Measured:
        encoding = self.clips.encoded(self.model.clip_encoder) if encoding is None else encoding
        return self.measured(self.probabilities(encoding))

    def examples(self) -> list[Example]:
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        return self.clips.examples(encoding, self._answered(self.probabilities(encoding)))

    def measured(self, probabilities: Tensor) -> Measured:
        """Metrics and answers from the probabilities of both orders (clips, 2)."""
        answered = self._answered(probabilities)
        return Measured(accuracy(answered), answers_by_clip(answered))

    @torch.inference_mode()
    def probabilities(self, encoding: ClipEncoding) -> Tensor:
        """Of both orders of every validation clip, (clips, 2)."""
        return torch.stack([self.model(encoding), self._scores_of_swapped()], dim=1).sigmoid()

    def _maps(self, clip: Clip, is_in_order: bool, mirrored: bool) -> Maps:
        features = self.clips.store[clip.id]
        stored = features.mirrored if mirrored and features.mirrored is not None else features.maps
        maps = subsample_maps(stored, self.clips.max_frames)
        return maps if is_in_order else swap_halves(maps)

    def _answered(self, probabilities: Tensor) -> list[AnsweredItem]:
        """The order with the higher probability for each validation clip."""
        answered = []
        for clip, both in zip(self.clips.validation, probabilities.tolist(), strict=True):
            if self.clips.bucket(clip):
                continue
            choice = int(both[1] >= both[0])  # a tie is wrong: a constant score earns nothing
            answered.append(
                AnsweredItem(
                    clip=clip.id,
                    answer=ORDERS[choice],
                    right=ORDERS[0],
                    score=1.0 - choice,
                    output={"choice": choice, "right": 0, "scores": both},
                    choices=tuple(ShownChoice(ORDERS[n], n == 0, n == choice) for n in (0, 1)),
                )
            )
        return answered

    def _scores_of_swapped(self) -> Tensor:
        scores = []
        for clip in self.clips.validation:
            maps, frame_is_real = pad_maps([self._maps(clip, is_in_order=False, mirrored=False)])
            device = self.model.score.weight.device
            scores.append(self.model(self.model.clip_encoder(maps.to(device), frame_is_real.to(device))))
        return torch.cat(scores)


def _build_model(inputs: ModelInputs) -> OrderModel:
    settings, words, grid, channels = inputs
    encoder = build_clip_encoder(settings, words, grid=grid, channels=channels)
    return OrderModel(clip_encoder=encoder, hidden_dim=settings.model.hidden_dim)


def _measure_ensemble(task: OrderTask, models: Sequence[OrderModel]) -> Measured:
    """Several models as one: the mean of their probabilities."""
    members = [OrderTask(model=model, clips=task.clips) for model in models]
    by_member = [member.probabilities(task.clips.encoded(member.model.clip_encoder)) for member in members]
    return task.measured(torch.stack(by_member).mean(dim=0))


SPEC = TaskSpec(
    name="order",
    help="Learn to tell clips from the same clips with their halves swapped.",
    primary_metric=OrderTask.primary_metric,
    build_model=_build_model,
    build_task=lambda inputs: OrderTask(model=inputs.model, clips=inputs.clips),
    report=lambda inputs: AnswerReport(item_statistics("choose", inputs.answers)),
    measure_ensemble=_measure_ensemble,
    defaults=("detector.enabled=false",),
)
TASKS["order"] = SPEC

if __name__ == "__main__":
    corpus, run = sys.argv[1:]
    train("order", corpus, run)
    print(f"accuracy {evaluate(run, corpus).metrics['accuracy']:.3f}")
