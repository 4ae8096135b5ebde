"""Runs are read with the weights that their files hold, and quickly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ctsan.config import PROFILES
from ctsan.errors import UsageError
from ctsan.runs.pack_folder import DEFAULT
from ctsan.runs.run_folder import SETTINGS_FILE
from ctsan.runs.torch_building import SkipInit
from ctsan.runs.trained_run import TrainedRun, answering, detecting_concepts, load_runs
from ctsan.runs.weights import WEIGHTS_FILE, read_weights
from ctsan.video.store import Recipe


@pytest.mark.parametrize(
    "module", [nn.Linear(3, 2), nn.Embedding(4, 3), nn.Conv2d(2, 3, 1), nn.Bilinear(2, 2, 2)], ids=repr
)
def test_nothing_is_drawn_for_a_model_whose_weights_come_from_a_file(module: nn.Module) -> None:
    with torch.no_grad():
        for weights in module.parameters():
            weights.fill_(7)
    state = torch.get_rng_state()
    with SkipInit():
        module.reset_parameters()  # type: ignore[operator]
        nn.init.xavier_uniform_(next(module.parameters()))
    assert all(bool((weights == 7).all()) for weights in module.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    module.reset_parameters()  # type: ignore[operator]
    assert not (next(module.parameters()) == 7).any()


def test_every_number_of_the_packed_models_is_from_their_files() -> None:
    for run in load_runs([Path(DEFAULT)]):
        stored = read_weights(run.folder / WEIGHTS_FILE)
        model = run.model
        held = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        made = {"clip_encoder.lemmas"} & {name for name, _ in held}  # of the words
        assert {name for name, _ in held} - made == stored.keys()  # nothing is left as it was undrawn
        for _ in made:
            assert model.clip_encoder.lemmas.tolist() == list(run.words.concepts.lemma_ids)
        assert not [part for part in model.modules() if any(map(torch.is_tensor, vars(part).values()))]
        read = model.state_dict()
        for name, tensor in read.items():
            assert np.array_equal(tensor.numpy(), stored[name]), f"{run.folder.name}: {name}"


def test_the_carried_model_stores_every_setting() -> None:
    """So that no default in code decides what it says."""
    wanted = {section: set(values) for section, values in PROFILES["laptop"].to_json().items()}
    for run in load_runs([Path(DEFAULT)]):
        stored = json.loads((run.folder / SETTINGS_FILE).read_text(encoding="utf-8"))["settings"]
        assert {section: set(values) for section, values in stored.items()} == wanted, run.folder.name


def run_of(task: str, *, name: str = "", detects: bool = True) -> TrainedRun:
    settings = PROFILES["laptop"]
    settings = replace(settings, detector=replace(settings.detector, enabled=detects))
    return TrainedRun(Path(name or task), task, settings, Recipe("any", (1, 1), 1, False, {}))


@pytest.mark.parametrize(
    ("there", "task", "asked"),
    [
        (("choose", "rank", "embed", "describe"), "rank", ("embed",)),
        (("choose", "rank", "embed", "describe"), "choose", ("embed",)),
        (("choose", "rank", "embed", "describe"), "describe", ("embed", "describe")),
        (("embed",), "choose", ("embed",)),
        (("choose", "rank"), "rank", ("choose", "rank")),  # as the paper's ensemble
        (("choose", "rank"), "choose", ("choose",)),
        (("fill", "embed"), "fill", ("fill",)),
    ],
)
def test_joint_embeddings_alone_say_how_well_sentences_suit_clips(
    there: tuple[str, ...], task: str, asked: tuple[str, ...]
) -> None:
    assert tuple(run.task for run in answering([run_of(own) for own in there], task)) == asked


def test_who_cannot_answer_is_named() -> None:
    with pytest.raises(UsageError, match="A run of 'rank' is needed, and choose is of 'choose'"):
        answering([run_of("choose")], "rank")


def test_concept_words_are_those_of_runs_that_describe_if_any_has_a_detector() -> None:
    runs = [run_of("embed"), run_of("rank"), run_of("describe", detects=False), run_of("describe", name="x")]
    assert detecting_concepts(runs) == runs[3:]
    assert detecting_concepts(runs[:3]) == runs[1:2]
    assert detecting_concepts(runs[:1]) == []
