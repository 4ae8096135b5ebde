"""Concept words of the nearest training clip: the paper's NN-SAN (appendix C.1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ctsan.model.concept_detector import ConceptSource, Detection
from ctsan.model.video_encoder import mean_over_frames

_SAME = 1e-3  # features with a smaller relative distance are the same clip


class NearestWords(ConceptSource):
    """Nearest neighbour by features averaged over frames and grid.

    Differs from the paper: a training clip is not its own neighbour, because its own words would be right in
    training and never afterwards. Words that the neighbour does not have get a score of -inf, so a clip may
    have fewer than K.

    Args:
        max_frames: frames used per clip.
    """

    known_clips: Tensor
    known_words: Tensor
    known_shares: Tensor

    def __init__(self, *, channels: int, num_candidates: int, num_concepts: int, max_frames: int) -> None:
        super().__init__()
        self.num_candidates = num_candidates
        self.max_frames = max_frames
        self.register_buffer("known_clips", torch.zeros(0, channels))
        self.register_buffer("known_words", torch.zeros(0, num_concepts, dtype=torch.long))
        self.register_buffer("known_shares", torch.zeros(0, num_concepts))

    def fit(self, means: Tensor, shares: Tensor) -> None:
        """Store the training clips.

        Args:
            means: (clips, C), mean features.
            shares: (clips, V), share of a clip's captions with each word. The top K are the clip's words.
        """
        best = shares.topk(self.known_words.shape[1], dim=1)
        self.known_clips, self.known_words, self.known_shares = means, best.indices, best.values

    def forward(self, maps: Tensor, frame_is_real: Tensor) -> Detection:
        """Stored maps (B, N, h, w, C) to a detection; padding has no effect."""
        batch, frames, height, width, _ = maps.shape
        means = mean_over_frames(maps.mean(dim=(2, 3)), frame_is_real)  # (B, C)
        distances = torch.cdist(means, self.known_clips, compute_mode="donot_use_mm_for_euclid_dist")
        itself = distances < _SAME * means.norm(dim=1, keepdim=True)
        if self.training:  # a mirrored clip is close to itself, but not identical
            itself = itself.scatter(1, distances.argmin(dim=1, keepdim=True), value=True)
        nearest = distances.masked_fill(itself, torch.inf).argmin(dim=1)
        shares = self.known_shares[nearest]  # 0 where that clip has fewer words
        scores = maps.new_full((batch, self.num_candidates), -torch.inf)
        scores.scatter_(
            1, self.known_words[nearest], shares.logit(eps=1e-3).masked_fill(shares == 0, -torch.inf)
        )
        return Detection(scores, maps.new_zeros(batch, frames, 0, height, width), maps.new_zeros(batch, 0, 1))

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Resize the buffers first: the number of stored clips is known only from the file."""
        for name in ("known_clips", "known_words", "known_shares"):
            if (stored := state_dict.get(prefix + name)) is not None:
                setattr(self, name, torch.empty_like(stored, device=self.known_clips.device))
        super()._load_from_state_dict(state_dict, prefix, *args)
