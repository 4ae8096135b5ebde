"""Settings to models: here, and nowhere else, a setting becomes an argument."""

from __future__ import annotations

import torch

from ctsan.config import Settings
from ctsan.model.concept_detector import ConceptDetector
from ctsan.model.description_model import DescriptionModel
from ctsan.text.words import Words

_RECOMPUTE_ABOVE = 10_000  # hidden x attention dimensions: beyond, what traces share is made twice


def build_description_model(
    settings: Settings, words: Words, *, grid: tuple[int, int], channels: int, seed: int
) -> DescriptionModel:
    """A fresh model; the same seed gives the same weights."""
    model, detector = settings.model, settings.detector
    candidates = words.concepts.words[: detector.num_candidates]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return DescriptionModel(
            channels=channels,
            embedding=torch.from_numpy(words.embedding),
            candidate_words=torch.tensor(words.vocabulary.encode(candidates)),
            hidden_dim=model.hidden_dim,
            detector=ConceptDetector(
                hidden_dim=model.hidden_dim,
                grid=grid,
                num_candidates=len(candidates),
                attention_dim=detector.attention_dim,
                num_layers=model.num_layers,
                dropout=model.dropout,
                recompute_attention=model.hidden_dim * detector.attention_dim > _RECOMPUTE_ABOVE,
            ),
            num_concepts=min(detector.num_concepts, len(candidates)),
            weighted=detector.weighted,
            input_attention=settings.attention.input,
            output_attention=settings.attention.output,
            region_kernel=model.region_kernel,
            num_layers=model.num_layers,
            dropout=model.dropout,
        )
