"""Teach a machine to describe, search and question your own videos (CT-SAN, Yu et al., CVPR 2017).

The public names are read when they are first used, so that importing the package takes no time:

    from ctsan import Predictor, Searcher, Settings, evaluate, train
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctsan.config import Settings
    from ctsan.experiments.evaluate import evaluate
    from ctsan.inference.predictor import Predictor
    from ctsan.search.search import Searcher
    from ctsan.training.train import train

__version__ = "0.1.0"
__all__ = ["Predictor", "Searcher", "Settings", "evaluate", "train"]

_MODULES = {
    "Predictor": "ctsan.inference.predictor",
    "Searcher": "ctsan.search.search",
    "Settings": "ctsan.config",
    "evaluate": "ctsan.experiments.evaluate",
    "train": "ctsan.training.train",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'ctsan' has no attribute {name!r}")
    from ctsan.io.extras import needed_packages

    with needed_packages(f"ctsan.{name}"):
        return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
