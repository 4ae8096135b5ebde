"""What a model begins with: means, scales, and the directions in which clips differ."""

from __future__ import annotations

import torch

from ctsan.data.corpus import Clip
from ctsan.model.concept_detector import RegionReducer
from ctsan.tasks.channel_statistics import channel_statistics
from ctsan.video.clip_maps import subsample_maps
from ctsan.video.store import FeatureStore


def test_directions_are_orthonormal_and_hold_all_that_tells_clips_apart(
    clips: list[Clip], store: FeatureStore
) -> None:
    found = channel_statistics(clips, store)
    maps = [torch.from_numpy(subsample_maps(store[clip.id].maps, 10)).float() for clip in clips]
    cells = torch.cat([each.flatten(0, 2) for each in maps])
    torch.testing.assert_close(found.means, cells.mean(dim=0))
    torch.testing.assert_close(found.scales, cells.std(dim=0, unbiased=False) + 1e-3)
    identity = found.directions @ found.directions.mT
    torch.testing.assert_close(identity, torch.eye(len(identity)), atol=1e-5, rtol=0)
    means = torch.stack([(each.flatten(0, 2).mean(dim=0) - found.means) / found.scales for each in maps])
    means = means - means.mean(dim=0)
    torch.testing.assert_close(means @ found.directions.mT @ found.directions, means, atol=1e-5, rtol=0)
    spread = (means @ found.directions.mT).square().sum(dim=0)
    assert (spread[:-1] >= spread[1:] - 1e-6).all()


def test_regions_begin_as_places_along_the_directions() -> None:
    torch.manual_seed(0)
    directions = torch.linalg.qr(torch.randn(8, 3))[0].mT  # (3, 8)
    for kernel in (1, 3):
        reduce = RegionReducer(channels=8, hidden_dim=5, kernel=kernel)
        left = reduce.conv.weight[3:].detach().clone()
        reduce.init_from(directions)
        maps = torch.randn(2, 4, 3, 3, 8)
        regions = reduce(maps)[:, :, :3].detach()  # (B, N, 3, h, w)
        wanted = (maps @ directions.mT).movedim(-1, 2)
        torch.testing.assert_close(regions / regions.norm(), wanted / wanted.norm())
        assert torch.equal(reduce.conv.weight[3:], left)
