"""Profiles: named sets of settings."""

from __future__ import annotations

from collections.abc import Mapping

from ctsan.config.settings import (
    DecodingSettings,
    DetectorSettings,
    EnsembleSettings,
    InitSettings,
    LossSettings,
    ModelSettings,
    OptimiserSettings,
    RetrievalSettings,
    Settings,
    TrainingSettings,
)

PROFILES: Mapping[str, Settings] = {
    "paper": Settings(),
    # Chosen by validation on a few thousand clips with 20 captions each, for two cores and minutes.
    "laptop": Settings(
        model=ModelSettings(
            hidden_dim=256,
            num_layers=1,
            region_kernel=1,
            max_frames=10,
            dropout=0.3,
            init_output_from_embeddings=True,
        ),
        detector=DetectorSettings(
            prior_weight=0.5, attention_dim=32, dropout=0.5, probe="mlp", tie_traces=True, lr_scale=0.5
        ),
        init=InitSettings(
            standardise_channels=True,
            pca_regions=True,
            word_frequencies=True,
            attention_gate=1.0,
            frame_memory=20,
        ),
        retrieval=RetrievalSettings(sketch_dim=2000, joint_dim=256, captions_per_clip=2),
        loss=LossSettings(
            attention_weight=0.0,
            concept_weight=100.0,
            label_smoothing=0.1,
            retrieval_negatives="both",
        ),
        optimiser=OptimiserSettings(learning_rate=2e-3, schedule="cosine", warmup_steps=20, ema_decay=0.98),
        training=TrainingSettings(
            batch_size=32,
            captions_per_clip=5,
            steps=1000,
            patience=6,
            transfer="shared",
            out_of_fold=True,
            hflip=False,
            report_every=10,
            checkpoint_every=100,
        ),
        decoding=DecodingSettings(max_words=20, no_repeat_ngram=2, skip_faulty=True),
        ensemble=EnsembleSettings(standardise=True),
    ),
}
