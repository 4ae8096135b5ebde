"""The regions that the clip encoder makes of feature maps."""

from __future__ import annotations

import torch

from ctsan.model.clip_encoder import ClipEncoder

B, N, H, C, V, K = 3, 4, 2, 6, 12, 3


def test_a_dropped_channel_is_dropped_in_the_whole_clip() -> None:
    torch.manual_seed(0)
    maps = torch.randn(B, N, H, H, C)
    encoder = ClipEncoder(
        channels=C,
        embedding=torch.randn(V, 4),
        candidate_words=torch.arange(V),
        hidden_dim=C,
        detector=None,
        num_concepts=K,
        region_kernel=1,
        channel_dropout=0.5,
    )
    with torch.no_grad():  # a region is then the channels at its place
        encoder.reduce.conv.weight.copy_(torch.eye(C)[..., None, None])
    seen = encoder.regions(maps).movedim(2, -1)
    kept = seen != 0
    assert torch.equal(kept, kept[:, :1, :1, :1].expand_as(kept))
    assert torch.allclose(seen[kept], 2 * maps[kept])
    assert 0 < kept.float().mean() < 1
    assert torch.equal(encoder.eval().regions(maps).movedim(2, -1), maps)
