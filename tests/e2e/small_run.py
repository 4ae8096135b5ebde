"""A model that is trained in seconds."""

from __future__ import annotations

SMALL = [
    f"--set={setting}"
    for setting in (
        "model.hidden_dim=24",
        "model.embedding_dim=16",
        "detector.attention_dim=8",
        "detector.num_concepts=4",
        "training.batch_size=4",
        "training.epochs=2",
        "training.hflip=false",
        "decoding.max_words=12",
    )
]
