"""Old features and runs: what was made before networks had records is what is made now."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ctsan.runs.pack_folder import DEFAULT
from ctsan.runs.trained_run import load_runs
from ctsan.video.backbones import BACKBONES, backbone_of, find_backbone
from ctsan.video.extraction import recipe_of

# Digests as features of ctsan 0.1.0 have them in their files.
RECIPES = {
    "efficientnet-lite0": "48d50aebfbe009235e282cf7e5a61f86d8a78c7c42b12232b25476666287f9bf",
    "efficientnet-lite1": "30404d0eb0de02bc6c7148e7a329c2e808e6f03979abffb3043f22fc11e19560",
    "efficientnet-lite2": "57f5887ceea5846c853a587089583e8a5f57ba4ddb24ffd491122f911fd0c15f",
    "resnet50": "ab9206530d0e1d51ad13ef8194e99ee8ef938d581cdf5dba5bc82312420ec3a9",
    "resnet101": "b8395f9afa0d8f35749607f89c73db99fe750259968251e0b6ac9ed47493c88e",
    "resnet152": "a12d07f17ceb4fcb2864265f256a237552021b492194544e3e05e375917d55f2",
}
MIRRORED = "de3a31b40cf972e405a81567b346d00fe6445823702c67505d25d16c43e64cc8"  # efficientnet-lite0


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_of_a_network_is_what_it_was(name: str, tmp_path: Path) -> None:
    weights = None
    if BACKBONES[name].packaged is None:
        weights = tmp_path / "w.pth"
        weights.write_bytes(b"weights")
    assert recipe_of(find_backbone(name, weights), mirrored=False).digest() == RECIPES[name]


def test_the_recipe_with_mirrored_frames_is_what_it_was() -> None:
    assert recipe_of(find_backbone("efficientnet-lite0"), mirrored=True).digest() == MIRRORED


def test_the_runs_that_ctsan_carries_find_their_network() -> None:
    for run in load_runs([Path(DEFAULT)]):
        backbone = backbone_of(run.recipe)
        assert recipe_of(backbone, mirrored=run.recipe.mirrored).digest() == run.recipe.digest()


@pytest.mark.parametrize("name", RECIPES)
def test_cells_of_the_old_networks_are_64_of_224_pixels_and_the_last_is_narrower(name: str) -> None:
    for borders in BACKBONES[name].cell_borders:
        np.testing.assert_array_equal(borders, np.array([0, 64, 128, 192, 224]) / 224)
