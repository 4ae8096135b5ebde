"""What the loop does with a task, step by step.

Worst of five seeds by `make margins`, and the bound:

- error left .055 (< .1)
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from ctsan.config import PROFILES, OptimiserSettings, load_settings
from ctsan.errors import RunError
from ctsan.runs.checkpoint import load_weights
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.training.loop import Progress, Result, train_loop
from ctsan.training.metrics import METRICS_FILE, read_metrics
from ctsan.training.sampler import batches_in_epoch, batches_of, mirrored_in, move, read_ahead
from ctsan.training.schedule import learning_rate
from margins import Margins, Start
from training.stand_in import StandIn


def run(folder: Path, task: StandIn, *overrides: str, **options: Any) -> Result:
    short = ("training.batch_size=4", "training.epochs=4", "training.patience=4", "optimiser.warmup_steps=0")
    settings = load_settings("laptop", [*short, *overrides])
    return train_loop(task, folder, optimiser=settings.optimiser, training=settings.training, **options)


def test_it_learns_and_the_best_weights_are_those_of_the_best_score(
    tmp_path: Path, start: Start, margins: Margins
) -> None:
    task = StandIn(dropout=0.0, seed=1 + start.seed)
    before = task.fit()
    seed = f"training.seed={start.seed}"
    result = run(tmp_path, task, "training.epochs=100", "optimiser.learning_rate=0.02", seed)
    evaluations = [row for row in read_metrics(tmp_path / METRICS_FILE) if "metrics" in row]
    best = max(evaluations, key=lambda row: row["metrics"]["fit"])
    assert (result.best_step, result.best_score) == (best["step"], best["metrics"]["fit"])
    load_weights(tmp_path / WEIGHTS_FILE, task.model)
    assert task.fit() == pytest.approx(result.best_score, abs=1e-7)
    margins.below("error left", result.best_score / before, 0.1)


def test_every_epoch_takes_every_example_once_in_another_order(tmp_path: Path) -> None:
    task = StandIn()
    run(tmp_path, task, "training.epochs=3")
    batches = [examples for examples, _ in task.seen]
    assert [len(batch) for batch in batches] == [4, 4, 4, 4, 4, 1] * 3
    epochs = [[example for batch in batches[i : i + 6] for example in batch] for i in (0, 6, 12)]
    assert all(sorted(epoch) == list(range(21)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_seed_alone_decides_order_and_mirroring(tmp_path: Path) -> None:
    seen: list[object] = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        task = StandIn()
        torch.manual_seed(len(seen))
        run(tmp_path / name, task, "training.epochs=2", f"training.seed={seed}")
        seen.append(task.seen)
    assert seen[0] == seen[1] != seen[2]


def test_half_of_the_examples_are_mirrored_or_none(tmp_path: Path) -> None:
    flips = [mirrored_in(epoch, num_examples=1000, seed=3) for epoch in range(2)]
    assert flips[0] != flips[1]
    assert all(450 < sum(epoch) < 550 for epoch in flips)
    task = StandIn()
    run(tmp_path, task, "training.hflip=false", "training.epochs=1")
    assert not any(mirrored for _, flips_of_batch in task.seen for mirrored in flips_of_batch)


def test_a_batch_holds_one_kind_and_an_epoch_holds_all() -> None:
    buckets = [0] * 10 + [1] * 7
    epochs = [batches_of(epoch, buckets=buckets, batch_size=4, seed=3) for epoch in range(2)]
    assert epochs[0] != epochs[1]
    for batches in epochs:
        assert sorted(example for batch in batches for example in batch) == list(range(17))
        assert all(len({buckets[example] for example in batch}) == 1 for batch in batches)
        assert sorted(map(len, batches)) == [2, 3, 4, 4, 4]
        assert len(batches) == batches_in_epoch(buckets, 4) == 5
    ordered = [
        buckets[batch[0]]
        for epoch in range(20)
        for batch in batches_of(epoch, buckets=buckets, batch_size=4, seed=3)
    ]
    assert 0 < sum(ordered[::5]) < 20  # either kind may come first


def test_dropout_differs_from_step_to_step(tmp_path: Path) -> None:
    class Recording(StandIn):
        def losses(self, batch: Any) -> dict[str, torch.Tensor]:
            drawn.append(torch.rand(3))
            return super().losses(batch)

    drawn: list[torch.Tensor] = []
    run(tmp_path, Recording(), "training.epochs=2")
    assert len(set(torch.cat(drawn).tolist())) == 12 * 3


def test_early_stopping_keeps_the_best(tmp_path: Path) -> None:
    task = StandIn(scores=[0.1, 0.5, math.nan, 0.5, 0.4, 0.9])
    result = run(tmp_path, task, "training.epochs=20", "training.patience=3")
    assert result == Result(steps=30, best_step=12, best_score=0.5, stopped_early=True)
    rows = [row for row in read_metrics(tmp_path / METRICS_FILE) if "metrics" in row]
    assert [row["metrics"]["fit"] for row in rows] == [0.1, 0.5, None, 0.5, 0.4]


def test_the_last_epoch_is_always_evaluated(tmp_path: Path) -> None:
    run(tmp_path, StandIn(), "training.epochs=5", "training.evaluate_every=2")
    rows = read_metrics(tmp_path / METRICS_FILE)
    assert [row["epoch"] for row in rows if "metrics" in row] == [2, 4, 5]


def test_rows_hold_the_mean_losses_since_the_row_before(tmp_path: Path) -> None:
    overrides = ("training.epochs=3", "training.checkpoint_every=7", "training.evaluate_every=3")
    run(tmp_path / "each", StandIn(), *overrides, "training.report_every=1")
    run(tmp_path / "some", StandIn(), *overrides, "training.report_every=5")
    each, some = (
        [row for row in read_metrics(tmp_path / name / METRICS_FILE) if "losses" in row]
        for name in ("each", "some")
    )
    assert [row["step"] for row in some] == [5, 7, 10, 14, 15, 18]
    for row, begin in zip(some, [0, 5, 7, 10, 14, 15], strict=True):
        steps = each[begin : row["step"]]
        for name, value in row["losses"].items():
            assert value == pytest.approx(sum(step["losses"][name] for step in steps) / len(steps), rel=1e-5)
        assert row["total"] == pytest.approx(sum(row["losses"].values()))
        assert row["words_per_second"] > 0


def test_the_learning_rate_of_a_row_is_that_of_its_step(tmp_path: Path) -> None:
    run(tmp_path, StandIn(), "training.epochs=2", "training.report_every=1", "optimiser.warmup_steps=3")
    rates = [row["learning_rate"] for row in read_metrics(tmp_path / METRICS_FILE) if "losses" in row]
    settings = replace(PROFILES["laptop"].optimiser, warmup_steps=3)
    assert rates == [learning_rate(settings, step, 12) for step in range(12)]


def test_schedules() -> None:
    def rates(total: int, **given: Any) -> list[float]:
        settings = OptimiserSettings(learning_rate=0.8, **given)
        return [learning_rate(settings, step, total) for step in range(total)]

    assert rates(5, schedule="constant", warmup_steps=3) == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8])
    assert rates(5, schedule="halve", halve_every=2) == pytest.approx([0.8, 0.8, 0.4, 0.4, 0.2])
    cosine = [0.4, 0.8, 0.8 * (0.5 + 0.5 * math.sqrt(0.5)), 0.4, 0.8 * (0.5 - 0.5 * math.sqrt(0.5))]
    assert rates(5, schedule="cosine", warmup_steps=1) == pytest.approx(cosine)


def test_large_gradients_are_clipped(tmp_path: Path) -> None:
    class Steep(StandIn):
        def losses(self, batch: Any) -> dict[str, torch.Tensor]:
            return {name: 1e6 * loss for name, loss in super().losses(batch).items()}

        def evaluate(self) -> dict[str, float]:
            gradients = [
                weights.grad.norm() for weights in self.model.parameters() if weights.grad is not None
            ]
            return {"fit": torch.stack(gradients).norm().item()}

    result = run(tmp_path, Steep(), "training.epochs=1", "optimiser.clip_norm=0.5")
    assert result.best_score == pytest.approx(0.5, rel=1e-4)


def test_a_loss_that_is_no_number_stops_the_training(tmp_path: Path) -> None:
    class Broken(StandIn):
        def losses(self, batch: Any) -> dict[str, torch.Tensor]:
            losses = super().losses(batch)
            return {**losses, "fit": losses["fit"] * math.nan}

    with pytest.raises(RunError, match="no longer a number at step 6.*lower optimiser.learning_rate"):
        run(tmp_path, Broken())


def test_without_examples_nothing_is_trained(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no training examples"):
        run(tmp_path, StandIn(num_examples=0))


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    shown: list[Progress] = []
    run(tmp_path, StandIn(seconds=0.02), "training.epochs=4", on_progress=shown.append)
    assert [progress.step for progress in shown] == sorted({progress.step for progress in shown})
    assert len(shown) > 1
    last = shown[-1]
    assert (last.step, last.total_steps) == (24, 24)
    assert list(last.losses) == ["fit", "size"]
    assert 0 < last.words_per_second < 4 / 0.02


def test_every_evaluation_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, dict[str, float]]] = []
    task = StandIn(scores=[0.1, 0.5, 0.3])
    run(tmp_path, task, "training.epochs=3", on_evaluation=lambda step, metrics: told.append((step, metrics)))
    assert told == [(6, {"fit": 0.1}), (12, {"fit": 0.5}), (18, {"fit": 0.3})]


def test_bfloat16_is_used_when_asked_for(tmp_path: Path) -> None:
    class Recording(StandIn):
        def losses(self, batch: Any) -> dict[str, torch.Tensor]:
            buckets[self.model(batch.inputs).dtype] += 1
            return super().losses(batch)

    buckets: Counter[torch.dtype] = Counter()
    run(tmp_path / "low", Recording(), "training.epochs=1", "training.precision=bfloat16")
    run(tmp_path / "auto", Recording(), "training.epochs=1")
    expected = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    assert buckets == Counter([torch.bfloat16] * 6) + Counter([expected] * 6)


def test_every_row_is_plain_json(tmp_path: Path) -> None:
    run(tmp_path, StandIn(scores=[math.inf, math.nan]), "training.epochs=2")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for line in (tmp_path / METRICS_FILE).read_text(encoding="utf-8").splitlines():
        json.loads(line, parse_constant=refuse)


def test_reading_ahead_keeps_the_order_and_raises_in_its_place() -> None:
    assert list(read_ahead(lambda number: number**2, range(6))) == [0, 1, 4, 9, 16, 25]
    made = read_ahead(lambda number: 1 // (2 - number), range(6))
    assert [next(made), next(made)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(made)


def test_batches_of_any_shape_are_moved() -> None:
    class Inner(NamedTuple):
        numbers: torch.Tensor

    @dataclass(frozen=True)
    class Outer:
        inner: Inner
        ids: tuple[str, ...]

    moved = move(Outer(Inner(torch.zeros(2)), ("a", "b")), torch.device("meta"))
    assert isinstance(moved.inner, Inner)
    assert moved.inner.numbers.device.type == "meta"
    assert moved.ids == ("a", "b")


def test_steps_may_be_given_instead_of_epochs_and_are_evaluated_evenly(tmp_path: Path) -> None:
    task = StandIn(num_examples=8)
    told: list[int] = []
    overrides = ["training.batch_size=4", "training.steps=29", "training.evaluations=3"]
    settings = load_settings("paper", overrides)
    result = train_loop(
        task,
        tmp_path / "run",
        optimiser=settings.optimiser,
        training=settings.training,
        on_evaluation=lambda step, _: told.append(step),
    )
    assert result.steps == 29
    assert told == [10, 20, 29]


def test_a_part_with_a_pace_of_its_own_takes_smaller_steps(tmp_path: Path) -> None:
    """Adam's first step is as large as the learning rate, for every weight."""

    def first_step(lr_scale: float | None) -> dict[str, float]:
        task = StandIn(dropout=0.0)
        if lr_scale is not None:
            task.model.outer.lr_scale = lr_scale  # type: ignore[assignment]
        before = {name: weights.detach().clone() for name, weights in task.model.named_parameters()}
        settings = load_settings("paper", ["training.steps=1", "training.hflip=false"])
        folder = tmp_path / str(lr_scale)
        train_loop(task, folder, optimiser=settings.optimiser, training=settings.training)
        return {
            name: (weights - before[name]).abs().max().item()
            for name, weights in task.model.named_parameters()
        }

    plain, slow = first_step(None), first_step(0.25)
    assert slow["inner.bias"] == pytest.approx(plain["inner.bias"])
    assert slow["outer.bias"] == pytest.approx(plain["outer.bias"] / 4, rel=1e-3)
