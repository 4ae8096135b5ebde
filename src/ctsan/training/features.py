"""Locate, make and open the features of corpora; format the command that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctsan.data.corpus import Corpus, parts_of
from ctsan.io.messages import warn
from ctsan.io.paths import default_folder
from ctsan.io.progress import progress_bar
from ctsan.video.backbones import BACKBONES, Backbone, find_backbone
from ctsan.video.engine import load_engine
from ctsan.video.extraction import extract_features
from ctsan.video.store import FeatureStore, Recipe
from ctsan.video.store_union import open_stores

NOT_FOR_FILES = (
    "Imported features train and evaluate models. Such models cannot be asked about video files: ctsan does "
    "not have the network. If it can be exported to ONNX, give that instead: --backbone onnx:FILE"
)


def features_command(corpora: Sequence[Path], like: Recipe | None = None) -> str:
    """Format the command that makes the features of corpora, for messages.

    Args:
        like: recipe whose backbone the command names.
    """
    options = ""
    if like is not None:
        spec = BACKBONES.get(like.backbone)
        is_imported = bool(like.details.get("imported"))
        arrays = " --import ARRAYS" * len(corpora) if is_imported else ""
        weights = " --weights FILE" if spec and not spec.packaged and not is_imported else ""
        options = f"{arrays} --backbone {like.backbone}{weights}"
    return f"ctsan features {' '.join(map(str, corpora))}{options}{' --out FOLDER' * len(corpora)}"


def named_backbone(name: str, weights: Path | None = None) -> Backbone:
    """Find a backbone by name, and warn about each property that had to be assumed."""
    backbone = find_backbone(name, weights)
    for assumption in backbone.assumed:
        warn(f"{backbone.name}: assumed {assumption}.")
    return backbone


def features_of(
    corpora: Sequence[Path], clips: Corpus, folders: Sequence[Path], backbone: Backbone | None
) -> FeatureStore:
    """Open the features of corpora, one folder each; without folders, make them in the cache."""
    if not folders:
        assert backbone is not None  # callers give folders or a backbone
        folders = [features_folder(corpus, backbone, mirrored=False) for corpus in corpora]
        make_features(clips, folders, backbone, mirrored=False)
    return open_features(clips, folders)


def open_features(clips: Corpus, folders: Sequence[Path]) -> FeatureStore:
    """Open features as one store, from one folder per corpus that the clips come from."""
    return open_stores(folders, [part.ids for part in parts_of(clips)])


def features_folder(corpus: Path, backbone: Backbone, *, mirrored: bool) -> Path:
    name = backbone.folder_name
    return default_folder("features", corpus) / (f"{name}-mirrored" if mirrored else name)


def make_features(clips: Corpus, folders: Sequence[Path], backbone: Backbone, *, mirrored: bool) -> None:
    """Make or update the features of each corpus that the clips come from."""
    engine = load_engine(backbone)
    unreadable: list[str] = []
    with progress_bar(len(clips), what="features") as bar:
        for part, folder in zip(parts_of(clips), folders, strict=True):
            report = extract_features(
                [(clip.id, clip.path) for clip in part.corpus if clip.id in part.ids],
                folder,
                backbone=backbone,
                mirrored=mirrored,
                engine=engine,
                on_clip=lambda _: bar.update(),
            )
            unreadable += report.unreadable.values()
    for error in unreadable:
        warn(f"unreadable: {error}")
