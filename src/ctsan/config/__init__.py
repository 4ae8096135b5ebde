"""Settings: frozen dataclasses with a help text each, two profiles, and the names that settings once had."""

from ctsan.config.profiles import PROFILES
from ctsan.config.reading import check_resumable, load_settings, overridden, settings_from_json
from ctsan.config.settings import (
    AttentionSettings,
    DecodingSettings,
    DetectorSettings,
    EnsembleSettings,
    InitSettings,
    LossSettings,
    ModelSettings,
    Negatives,
    OptimiserSettings,
    Precision,
    RerankSettings,
    RetrievalSettings,
    Settings,
    TrainingSettings,
    Transfer,
    described_settings,
)

__all__ = [
    "PROFILES",
    "AttentionSettings",
    "DecodingSettings",
    "DetectorSettings",
    "EnsembleSettings",
    "InitSettings",
    "LossSettings",
    "ModelSettings",
    "Negatives",
    "OptimiserSettings",
    "Precision",
    "RerankSettings",
    "RetrievalSettings",
    "Settings",
    "TrainingSettings",
    "Transfer",
    "check_resumable",
    "described_settings",
    "load_settings",
    "overridden",
    "settings_from_json",
]
