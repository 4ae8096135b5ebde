"""The training loop, the same for every task: runs on one process or several, resumes at any step."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from ctsan.config import OptimiserSettings, Precision, TrainingSettings
from ctsan.errors import RunError
from ctsan.runs.checkpoint import State, load_checkpoint, save_checkpoint, save_weights
from ctsan.runs.run_folder import CHECKPOINT_FILE, training_alone
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.tasks.task import Task
from ctsan.training.ema import AveragedWeights
from ctsan.training.meters import Meters
from ctsan.training.metrics import METRICS_FILE, MetricsLog
from ctsan.training.processes import Processes, joined_processes
from ctsan.training.sampler import batches_in_epoch, batches_of, draw_noise_for, mirrored_in, move, read_ahead
from ctsan.training.schedule import learning_rate

BatchT = TypeVar("BatchT")

_SECONDS_BETWEEN_PROGRESS = 0.2  # reading a loss synchronises with the GPU


@dataclass(frozen=True, slots=True)
class Progress:
    """What the progress bar shows."""

    step: int
    total_steps: int
    losses: Mapping[str, float]  # smoothed
    words_per_second: float


@dataclass(frozen=True, slots=True)
class Result:
    steps: int
    best_step: int
    best_score: float  # value of the task's primary metric
    stopped_early: bool


def train_loop(
    task: Task[BatchT],
    folder: Path,
    *,
    optimiser: OptimiserSettings,
    training: TrainingSettings,
    on_progress: Callable[[Progress], None] | None = None,
    on_evaluation: Callable[[int, Mapping[str, float]], None] | None = None,
) -> Result:
    """Train a task's model in a run folder; resume from its checkpoint if there is one.

    The model ends with the last weights. The folder holds the best ones: load them with `load_weights`.
    Under `torchrun` every process calls this with the same folder; only the first writes and reports.

    Args:
        on_evaluation: called with the step and the metrics of each evaluation.

    Raises:
        RunError: there are no training examples, the folder cannot be resumed, another process is training
            there, or the loss is not finite.
        UsageError: the checkpoint was made with different settings.
        OtherProcessError: one of these happened in another process.
    """
    with joined_processes() as processes, ExitStack() as stack:
        with processes.together():
            if not task.buckets:
                remedy = "Check the corpus' training split and its features."
                raise RunError(f"{folder}: no training examples. {remedy}")
            if processes.is_first:
                stack.enter_context(training_alone(folder))
            session = stack.enter_context(closing(_Session(task, folder, optimiser, training, processes)))
        session.run(on_progress, on_evaluation)
        state = session.state
        return Result(state.step, state.best_step, state.best_score, state.step < session.total_steps)


class _Epoch(NamedTuple):
    """The random draws of one epoch. Cached, because drawing takes long with many clips."""

    epoch: int
    batches: list[list[int]]
    mirrored: list[bool]


class _Session(Generic[BatchT]):
    """One call of `train_loop`: its constants and its current state."""

    def __init__(
        self,
        task: Task[BatchT],
        folder: Path,
        optimiser: OptimiserSettings,
        training: TrainingSettings,
        processes: Processes,
    ) -> None:
        self.task, self.folder, self.processes = task, folder, processes
        self.optimiser, self.training = optimiser, training
        self.buckets = task.buckets
        self.steps_per_epoch = batches_in_epoch(self.buckets, training.batch_size)
        self.total_steps = training.steps or self.steps_per_epoch * training.epochs
        self.steps_per_evaluation = (
            math.ceil(training.steps / training.evaluations)
            if training.steps
            else self.steps_per_epoch * training.evaluate_every
        )
        task.model.to(processes.device)
        self.parameters = [weights for weights in task.model.parameters() if weights.requires_grad]
        # AdamW: Adam with decoupled weight decay. The fused version takes a sixth of the time on the CPU.
        self.adam = torch.optim.AdamW(
            _by_lr_scale(task.model), weight_decay=optimiser.weight_decay, fused=True
        )
        self.origin: dict[str, Any] = {
            "settings": {"optimiser": asdict(optimiser), "training": asdict(training)},
            "num_examples": len(self.buckets),
        }
        self.average = AveragedWeights(task.model, optimiser.ema_decay) if optimiser.ema_decay else None
        self.drawn: _Epoch | None = None
        self.state = State()
        if (file := folder / CHECKPOINT_FILE).exists():
            self.state = load_checkpoint(file, task.model, self.adam, self.average, **self.origin)
        self.losses: nn.Module = _Losses(task)
        self.meters = Meters()
        self.log: MetricsLog | None = None  # only in the first process
        if processes.is_first:
            self.log = MetricsLog(folder / METRICS_FILE, size=self.state.metrics_size, step=self.state.step)

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def run(
        self,
        on_progress: Callable[[Progress], None] | None,
        on_evaluation: Callable[[int, Mapping[str, float]], None] | None,
    ) -> None:
        state, training, first_step = self.state, self.training, self.state.step
        if self.processes.count > 1:
            # Harmless: the gradient of a 1x1 convolution differs only in the strides of dimensions of size 1.
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides", UserWarning)
            self.losses = DistributedDataParallel(self.losses, find_unused_parameters=any(self.buckets))
        last_progress = time.monotonic()
        with closing(read_ahead(self._batch, range(first_step, self.total_steps))) as batches:
            while state.step < self.total_steps and state.stale < training.patience:
                batch, share = next(batches)
                self._learn(batch, share)
                state.step += 1
                is_last = state.step == self.total_steps
                evaluate = is_last or state.step % self.steps_per_evaluation == 0
                keep = evaluate or state.step % training.checkpoint_every == 0
                now = time.monotonic()
                if on_progress and self.log and (is_last or now - last_progress >= _SECONDS_BETWEEN_PROGRESS):
                    losses, rate = self.meters.recent()
                    rate *= self.processes.count
                    on_progress(Progress(state.step, self.total_steps, losses, rate))
                    last_progress = now
                # Write a row before every checkpoint, so that the checkpoint need not store partial sums.
                if keep or state.step % training.report_every == 0:
                    self._report()
                if evaluate:
                    self._evaluate(on_evaluation)
                if keep:
                    self._save_checkpoint()
                    self.meters.restart_clock()

    def _batch(self, step: int) -> tuple[BatchT, float]:
        """Build this process' part of a step's batch, and return it with its share of the whole."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if self.drawn is None or self.drawn.epoch != epoch:
            self.drawn = self._draw(epoch)
        examples, share = self.processes.shard(self.drawn.batches[place])
        mirrored = [self.training.hflip and self.drawn.mirrored[example] for example in examples]
        return self.task.batch(examples, mirrored=mirrored), share

    def _draw(self, epoch: int) -> _Epoch:
        number, seed, size = len(self.buckets), self.training.seed, self.training.batch_size
        return _Epoch(
            epoch,
            batches_of(epoch, buckets=self.buckets, batch_size=size, seed=seed),
            mirrored_in(epoch, num_examples=number, seed=seed),
        )

    def _learn(self, batch: BatchT, share: float) -> None:
        processes, step = self.processes, self.state.step
        self.task.model.train()
        draw_noise_for(step, rank=processes.rank, seed=self.training.seed)
        for group in self.adam.param_groups:
            group["lr"] = group["lr_scale"] * learning_rate(self.optimiser, step, self.total_steps)
        with _autocast(processes.device, self.training.precision):
            losses: dict[str, Tensor] = self.losses(move(batch, processes.device))
        # DDP averages gradients over processes. Multiplying by their number weights each by its share.
        loss = torch.stack(list(losses.values())).sum() * (share * processes.count)
        self.adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        clip_grad_norm_(self.parameters, self.optimiser.clip_norm)
        self.adam.step()
        if self.average:
            self.average.update(step)
        self.meters.add(losses, share=share, words=self.task.num_words(batch) if share else 0)

    def _report(self) -> None:
        """Write the mean losses since the last row."""
        losses, rate = self.meters.take(self.processes)
        if not all(map(math.isfinite, losses.values())):
            with self.processes.together():
                what = f"the loss is no longer a number at step {self.state.step:,}"
                remedy = "Train in another folder with a lower optimiser.learning_rate."
                raise RunError(f"{self.folder}: {what}. {remedy}")
        if self.log:
            self.log.write(
                {
                    **self._place(),
                    "losses": losses,
                    "total": sum(losses.values()),
                    "learning_rate": learning_rate(self.optimiser, self.state.step - 1, self.total_steps),
                    "words_per_second": round(rate, 1),
                }
            )

    def _evaluate(self, on_evaluation: Callable[[int, Mapping[str, float]], None] | None) -> None:
        """Evaluate on the first process and broadcast the score, so that all stop at the same step."""
        with self.average.in_place() if self.average else nullcontext():
            self._evaluate_weights(on_evaluation)

    def _evaluate_weights(self, on_evaluation: Callable[[int, Mapping[str, float]], None] | None) -> None:
        state, score = self.state, 0.0
        if self.log:
            began = time.monotonic()
            self.task.model.eval()
            with torch.no_grad():
                metrics = self.task.evaluate()
            self.log.write(
                {**self._place(), "metrics": metrics, "seconds": round(time.monotonic() - began, 2)}
            )
            if on_evaluation:
                on_evaluation(state.step, metrics)
            score = metrics.get(self.task.primary_metric, math.nan)
        score = self.processes.from_first(score if math.isfinite(score) else -math.inf)
        # As long as no score has been finite, keep the latest weights.
        if state.best_step and score <= state.best_score and state.best_score > -math.inf:
            state.stale += 1
            return
        state.best_step, state.best_score, state.stale = state.step, score, 0
        if self.log:
            self.task.calibrate()
            save_weights(self.folder / WEIGHTS_FILE, self.task.model, step=state.step, score=score)

    def _save_checkpoint(self) -> None:
        if self.log:
            self.state.metrics_size = self.log.size()
            model, file = self.task.model, self.folder / CHECKPOINT_FILE
            save_checkpoint(file, self.state, model, self.adam, self.average, **self.origin)

    def _place(self) -> dict[str, int]:
        return {"step": self.state.step, "epoch": math.ceil(self.state.step / self.steps_per_epoch)}


def _by_lr_scale(model: nn.Module) -> list[dict[str, Any]]:
    """Group the trainable parameters by the `lr_scale` of their module, a factor of the learning rate."""
    scales: dict[nn.Parameter, float] = {}
    for module in model.modules():
        if isinstance(lr_scale := getattr(module, "lr_scale", None), float):
            scales |= dict.fromkeys(module.parameters(), lr_scale)
    groups: dict[float, list[nn.Parameter]] = {}
    for weights in model.parameters():
        if weights.requires_grad:
            groups.setdefault(scales.get(weights, 1.0), []).append(weights)
    return [{"params": weights, "lr_scale": lr_scale} for lr_scale, weights in groups.items()]


class _Losses(nn.Module):
    """A task's losses as a module, which `DistributedDataParallel` can wrap."""

    def __init__(self, task: Task[Any]) -> None:
        super().__init__()
        self.task, self.model = task, task.model

    def forward(self, batch: object) -> dict[str, Tensor]:
        return self.task.losses(batch)


def _autocast(device: torch.device, precision: Precision) -> torch.autocast | nullcontext[None]:
    helps = device.type == "cuda" and torch.cuda.is_bf16_supported()
    if precision == "bfloat16" or (precision == "auto" and helps):
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()
