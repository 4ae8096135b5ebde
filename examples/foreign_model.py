"""The concept word detector inside a model that has nothing to do with the paper.

The model guesses which of a few categories a clip belongs to, from the clip's mean map and from the concept
words. All that the detector asks of it: give it regions, read its words, and add its loss to your own.

    python examples/foreign_model.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.concept_detector import ConceptDetector, RegionReducer, concept_loss


class CategoryModel(nn.Module):
    """Mean map and soft concept words to category scores; K, vectors and sentences play no part here."""

    def __init__(
        self, *, channels: int, grid: tuple[int, int], num_candidates: int, num_categories: int
    ) -> None:
        super().__init__()
        self.reduce = RegionReducer(channels=channels, hidden_dim=32)
        self.detector = ConceptDetector(
            hidden_dim=32, grid=grid, num_candidates=num_candidates, attention_dim=8, num_layers=1
        )
        self.decide = nn.Linear(channels + num_candidates, num_categories)

    def losses(
        self, maps: Tensor, frame_is_real: Tensor, words: Tensor, category: Tensor
    ) -> dict[str, Tensor]:
        found = self.detector(self.reduce(maps), frame_is_real)  # scores, and where each trace looked
        mean = (maps.mean(dim=(2, 3)) * frame_is_real[..., None]).sum(1) / frame_is_real.sum(1, keepdim=True)
        scores = self.decide(torch.cat([mean, found.confidences], dim=1))
        return {
            "category": F.cross_entropy(scores, category),
            "concepts": concept_loss(found.scores, words).mean(),  # the one line that trains the detector
        }


def main(seed: int = 0) -> list[float]:
    """Learn sixteen made-up clips; returns the loss of every step."""
    torch.manual_seed(seed)
    model = CategoryModel(channels=12, grid=(2, 2), num_candidates=6, num_categories=3)
    category = torch.arange(16) % 3
    words = F.one_hot(category * 2, 6).float() + F.one_hot(category * 2 + 1, 6).float()
    maps = torch.randn(16, 5, 2, 2, 12) + 2 * F.one_hot(category, 12)[:, None, None, None].float()
    frame_is_real = torch.ones(16, 5, dtype=torch.bool)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    history = []
    for _ in range(40):
        optimiser.zero_grad()
        loss = torch.stack(list(model.losses(maps, frame_is_real, words, category).values())).sum()
        torch.autograd.backward(loss)
        optimiser.step()
        history.append(loss.item())
    print(f"loss {history[0]:.2f} -> {history[-1]:.2f}")
    return history


if __name__ == "__main__":
    main()
