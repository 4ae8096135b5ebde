"""Every `--set` of the tables reaches a run's model, task or training, or is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from commands import ctsan_here
from ctsan.config import PROFILES, load_settings
from ctsan.data.reading import read_corpus
from ctsan.errors import UsageError
from ctsan.experiments.plan import Training, check_overrides, make_plan
from ctsan.experiments.shared_words import words_for
from ctsan.experiments.train_system import ExperimentContext, prepared, run
from ctsan.extensions.dual_encoder import DualEncoder
from ctsan.tasks.building import Model
from ctsan.training.loop import train_loop
from ctsan.video.store import FeatureStore

SMALL = (
    "model.hidden_dim=16",
    "model.embedding_dim=16",
    "detector.attention_dim=8",
    "detector.probe=none",  # as this and the next take seconds to fit, for every setting
    "training.out_of_fold=false",
    "decoding.max_words=8",
    "retrieval.sketch_dim=32",
    "retrieval.joint_dim=8",
    "training.evaluations=1",
    "training.steps=1",
)
# In this order: most settings reach the first. Its seed is none that another run starts from.
PROBED = (
    Training("describe", "ct-san", 1),
    Training("fill", "ct-san", 0),
    Training("choose", "ct-san", 0),
    Training("rank", "ct-san", 0),
    Training("embed", "dual-encoder", 0),
    Training("describe", "rand-san", 1),
)
SETTINGS = [
    f"{section.name}.{setting.name}"
    for section in fields(PROFILES["laptop"])
    for setting in fields(getattr(PROFILES["laptop"], section.name))
]
OTHER_VALUES = {
    "detector.num_candidates": "20",  # fewer than there are
    "model.decoder": "pooled",  # which is refused where a detector is asked for
    "detector.kind": "average",
    "retrieval.ridge_init": "false",  # of a dual encoder, which begins as one
    "optimiser.schedule": "constant",
    "detector.random_words": "fixed",
    "detector.probe": "mlp",
    "loss.retrieval_negatives": "clips",
    "training.transfer": "detector",
    "training.precision": "bfloat16",
}
REFUSED = {
    "model.decoder",  # pooled, beside a detector
    "training.seed",
    "retrieval.phrases",
    "retrieval.extra_vocabulary",
    "rerank.embedding_weight",
    "rerank.cider_weight",
}


class Place:
    """Tables with one trained description model, from which others start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.corpus = read_corpus(folder / "corpus")
        self.store = FeatureStore(folder / "features")
        run(self.context(), Training("describe", "ct-san", 0))

    def context(self, *overrides: str) -> ExperimentContext:
        settings = load_settings("laptop", (*SMALL, *overrides))
        sizes = f"{settings.detector.num_candidates}-{settings.model.embedding_dim}"
        return ExperimentContext(
            out=self.folder / "tables",
            profile="laptop",
            overrides=(*SMALL, *overrides),
            corpus=self.corpus,
            store=self.store,
            words=words_for(self.corpus, self.folder / sizes, settings),
        )

    @cache  # noqa: B019  # as long as the tests
    def usual_traits(self, training: Training) -> tuple[object, ...]:
        return traits(self.context(), training)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("reaching")
    ctsan_here("corpus", "make", folder / "corpus", "--clips", 34, "--simple")
    ctsan_here("features", folder / "corpus", "--out", folder / "features")
    return Place(folder)


def traits(context: ExperimentContext, training: Training) -> tuple[object, ...]:
    """All that makes a run and its measurement, except for settings that nobody has looked at."""
    settings = context.settings(training)
    task = prepared(context, training, settings)
    looked_at = {  # by `prepared`, not by the loop
        *("training.captions_per_clip", "training.freeze_clip_encoder", "training.transfer"),
    }
    loop = [
        (name, value)
        for section in ("optimiser", "training", "ensemble")  # the last for members of ensembles
        for name, value in settings.to_json()[section].items()
        if f"{section}.{name}" not in looked_at
    ]
    tested = context.test_task(cast("Any", training.task), settings, task.model)
    return loop, *map(tuple, (_model_traits(task.model), _traits(task), _traits(tested)))


def _model_traits(model: nn.Module) -> Iterator[object]:
    for name, module in model.named_modules():
        plain = {key: value for key, value in vars(module).items() if isinstance(value, int | float | str)}
        yield name, type(module).__name__, sorted((k, v) for k, v in plain.items() if k != "training")
    for name, tensor in model.state_dict().items():
        yield name, tuple(tensor.shape), hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
    for name, weights in model.named_parameters():
        yield name, weights.requires_grad


def _traits(thing: object) -> Iterator[object]:
    """Plain values that an object of ours holds, and how long its lists are."""
    own = (
        {field.name: getattr(thing, field.name) for field in fields(thing)}
        if is_dataclass(thing)
        else vars(thing)
    )
    for name, value in own.items():
        if isinstance(value, int | float | str):
            yield name, value
        elif isinstance(value, list | tuple):
            yield name, len(value)
        elif type(value).__module__.startswith("ctsan.") and not isinstance(value, nn.Module):
            yield name, tuple(_traits(value)) if name in ("clips", "decoding") else None


def other_value(name: str) -> str:
    if name in OTHER_VALUES:
        return OTHER_VALUES[name]
    section, _, setting = name.partition(".")
    value = load_settings("laptop", SMALL).to_json()[section][setting]
    if isinstance(value, bool):
        return str(not value).lower()
    if isinstance(value, float):
        return f"{value / 2 or 0.5}"
    return f"{value + 2}"  # an odd number stays one


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_reaches_a_run_or_is_refused(place: Place, name: str) -> None:
    override = f"{name}={other_value(name)}"
    context = place.context(override)
    try:
        check_overrides(make_plan([], seeds=2), profile="laptop", overrides=context.overrides)
        reached = any(place.usual_traits(one) != traits(context, one) for one in PROBED)
    except UsageError:
        reached = False
    assert reached == (name not in REFUSED)


def test_a_regression_is_what_a_dual_encoder_begins_as_unless_it_is_switched_off(place: Place) -> None:
    dual = Training("embed", "dual-encoder", 0)

    def projection(*overrides: str) -> torch.Tensor:
        context = place.context(*overrides)
        model = prepared(context, dual, context.settings(dual)).model
        assert isinstance(model, DualEncoder)
        return torch.cat([weights.detach().flatten() for weights in model.parameters()])

    begun, off = projection(), projection("retrieval.ridge_init=false")
    assert torch.equal(begun, projection("retrieval.ridge_init=true"))
    assert not torch.equal(begun, off)


def test_clips_that_are_kept_are_seen_as_the_description_model_sees_them(place: Place) -> None:
    """After a step too; without the setting they are not."""
    first = Training("fill", "ct-san", 0)
    before = _encoder(prepared(place.context(), first, place.context().settings(first)).model)
    for keep in ("false", "true"):
        context, training = (
            place.context(f"training.freeze_clip_encoder={keep}"),
            Training("choose", "ct-san", 0),
        )
        settings = context.settings(training)
        task = prepared(context, training, settings)
        train_loop(
            task,
            place.folder / f"kept-{keep}",
            optimiser=settings.optimiser,
            training=settings.training,
        )
        after = _encoder(task.model)
        assert all(torch.equal(before[name], after[name]) for name in before) == (keep == "true")


def _encoder(model: nn.Module) -> dict[str, torch.Tensor]:
    encoder = cast("Model", model).clip_encoder
    return {name: weights.detach().clone() for name, weights in encoder.named_parameters()}
