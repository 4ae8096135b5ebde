"""The models of a library: joint embeddings, which search, and models that name concept words.

They are loaded on first use, so a search for a sentence loads the joint embeddings alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctsan.errors import UsageError
from ctsan.inference.loaded_model import JointEmbedding, LoadedModel
from ctsan.inference.loading import load_models
from ctsan.runs.pack_folder import DEFAULT
from ctsan.runs.run_folder import weights_digest
from ctsan.runs.trained_run import detecting_concepts, run_folders
from ctsan.search.library_format import RunFingerprint


def load_search_models(folders: Sequence[Path]) -> list[LoadedModel]:
    """Load the models that search uses: joint embeddings, and models that name concepts.

    Raises:
        UsageError: there is no joint embedding.
        RunError: one of the folders has no usable run.
    """
    models = load_models(folders)
    embeddings = [model for model in models if isinstance(model, JointEmbedding)]
    if not embeddings:
        named = ", ".join(map(str, folders))
        raise UsageError(
            f"A library needs a run of 'embed', and there is none in {named}. Train one, in half a minute: "
            "ctsan train embed --corpus CORPUS --out RUN, then --model RUN"
        )
    return [*embeddings, *detecting_concepts(models)]


def run_fingerprints(models: Sequence[LoadedModel]) -> list[RunFingerprint]:
    return [
        RunFingerprint(str(model.folder.resolve()), model.task, weights_digest(model.folder))
        for model in models
    ]


def stored_folders(runs: Sequence[RunFingerprint]) -> list[Path]:
    """The folders of a library's runs.

    Another machine may have indexed it with the runs that ctsan carries, from another folder. Those of this
    machine are then taken, if they have the same weights.
    """
    folders = [Path(run.folder) for run in runs]
    if all(folder.exists() for folder in folders):
        return folders
    carried = {weights_digest(folder): folder for folder in run_folders(Path(DEFAULT))}
    return [
        folder if folder.exists() else carried.get(run.weights, folder)
        for run, folder in zip(runs, folders, strict=True)
    ]
