"""Runs are read with the weights that their files hold, and quickly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ctsan.pack_folder import DEFAULT
from ctsan.trained_run import Undrawn, load_runs
from ctsan.training.checkpoint import WEIGHTS_FILE, read_weights


@pytest.mark.parametrize(
    "module", [nn.Linear(3, 2), nn.Embedding(4, 3), nn.Conv2d(2, 3, 1), nn.Bilinear(2, 2, 2)], ids=repr
)
def test_nothing_is_drawn_for_a_model_whose_weights_come_from_a_file(module: nn.Module) -> None:
    with torch.no_grad():
        for weights in module.parameters():
            weights.fill_(7)
    state = torch.get_rng_state()
    with Undrawn():
        module.reset_parameters()  # type: ignore[operator]
        nn.init.xavier_uniform_(next(module.parameters()))
    assert all(bool((weights == 7).all()) for weights in module.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    module.reset_parameters()  # type: ignore[operator]
    assert not (next(module.parameters()) == 7).any()


def test_every_number_of_the_packed_models_is_from_their_files() -> None:
    for run in load_runs([Path(DEFAULT)]):
        stored = read_weights(run.folder / WEIGHTS_FILE)
        model = run.member.model
        held = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        assert {name for name, _ in held} == stored.keys()  # nothing is left as it was undrawn
        assert not [part for part in model.modules() if any(map(torch.is_tensor, vars(part).values()))]
        read = model.state_dict()
        for name, tensor in read.items():
            assert torch.equal(tensor, stored[name]), f"{run.folder.name}: {name}"
