"""`ctsan features`: a corpus' clips to stored feature maps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.output import count, print_json, progress_bar, warn

if TYPE_CHECKING:
    from ctsan.data.corpus import Corpus
    from ctsan.video.backbones import Backbone
    from ctsan.video.store import FeatureStore


NOT_FOR_FILES = (
    "Imported features train and evaluate models. Such models cannot be asked about video files: ctsan does "
    "not have the network. If it can be exported to ONNX, give that instead: --backbone onnx:FILE"
)

BACKBONE = click.option(
    "--backbone",
    "backbone_name",
    metavar="NAME",
    help="Network of 'ctsan backbone list', onnx:FILE, or hf:NAME for CLIP, SigLIP or DINOv2.",
)
WEIGHTS = click.option("--weights", type=click.Path(path_type=Path), help="Weights file; a ResNet needs one.")


@click.command("features")
@click.argument("corpus", type=click.Path(path_type=Path))
@BACKBONE
@WEIGHTS
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the features [default: in the cache]."
)
@click.option(
    "--mirror", is_flag=True, help="Also store maps of the mirrored frames (the paper's augmentation)."
)
@click.option("--engine", help="onnxruntime, openvino or torch [default: the fastest here].")
@click.option("--workers", type=click.IntRange(min=1), help="Clips at a time [default: the number of cores].")
@click.option(
    "--import",
    "arrays",
    type=click.Path(path_type=Path),
    help="Take maps from this folder's .npy files, named like the clips, instead of computing them.",
)
@click.option("--pool", is_flag=True, help="With --import: apply the 2x2 max-pool that our own features get.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
def command(
    corpus: Path,
    backbone_name: str | None,
    weights: Path | None,
    out: Path | None,
    mirror: bool,
    engine: str | None,
    workers: int | None,
    arrays: Path | None,
    pool: bool,
    as_json: bool,
) -> None:
    """Turn the clips of CORPUS into feature maps and store them.

    Stopped at any moment, the same command goes on where it was; run again, it does only clips that are
    new or changed. Clips that cannot be read are listed at the end and stop nothing.

    \b
    Examples:
      ctsan features my-clips/
      ctsan features LSMDC16/ --backbone resnet152 --weights resnet152.pth --mirror
      ctsan features my-clips/ --backbone onnx:net.onnx
      ctsan features my-clips/ --backbone hf:openai/clip-vit-base-patch32
      ctsan features my-clips/ --import my-arrays/ --backbone slowfast --out features/
    """
    from ctsan.data.reading import read_corpus
    from ctsan.errors import UsageError
    from ctsan.folders import default_folder
    from ctsan.video.backbones import DEFAULT_BACKBONE
    from ctsan.video.engine import check_engine, load_engine
    from ctsan.video.extraction import Outcome, Report, extract_features
    from ctsan.video.imported import arrays_of, import_features

    if arrays is None and pool:
        raise UsageError("--pool goes with --import: computed features are always pooled.")
    if arrays is not None and (mirror or weights or engine):
        raise UsageError("--mirror, --weights and --engine do not go with --import: nothing is computed.")
    name = backbone_name or ("imported" if arrays else DEFAULT_BACKBONE)
    clips = read_corpus(corpus)
    fill: Callable[..., Report]
    if arrays is not None:
        warn(NOT_FOR_FILES)
        folder = out or default_folder("features", corpus) / name
        sources = arrays_of([clip.id for clip in clips], arrays)
        fill = partial(import_features, sources, folder, name=name, pool=pool)
    else:
        sources = [(clip.id, clip.path) for clip in clips]
        backbone = named_backbone(name, weights)
        folder = out or features_folder(corpus, backbone, mirrored=mirror)
        run = load_engine(backbone, engine=check_engine(engine) if engine else None)
        fill = partial(extract_features, sources, folder, backbone=backbone, mirrored=mirror, engine=run)
    unreadable = 0
    with progress_bar(len(clips), what="features") as bar:

        def show(outcome: Outcome) -> None:
            nonlocal unreadable
            if outcome.error:
                unreadable += 1
                bar.set_postfix_str(f"{unreadable} unreadable", refresh=False)
            bar.update()

        report = fill(workers=workers, on_clip=show)
    if as_json:
        print_json(
            {
                "features": str(folder),
                "backbone": name if arrays else backbone.name,
                "clips": report.done + report.kept,
                "new": report.done,
                "frames": report.frames,
                "seconds": round(report.seconds, 3),
                "unreadable": report.unreadable,
            }
        )
    else:
        rate = f", {report.frames / report.seconds:,.0f} frames/s" if report.frames else ""
        click.echo(
            f"{count(report.done + report.kept, 'clip')} with {name} features in {folder}\n"
            f"{report.done:,} done now ({count(report.frames, 'frame')} in {report.seconds:,.1f} s{rate}), "
            f"{report.kept:,} were there already"
        )
    if report.unreadable:
        warn(f"{count(len(report.unreadable), 'clip')} could not be read:")
        for error in report.unreadable.values():
            warn(f"  {error}")
        if not report.done + report.kept:
            raise UsageError("Not one clip of the corpus could be read.")


def named_backbone(name: str, weights: Path | None = None) -> Backbone:
    """The backbone that a person names; what had to be assumed of their own network is said."""
    from ctsan.video.backbones import find_backbone

    backbone = find_backbone(name, weights)
    for assumption in backbone.assumed:
        warn(f"{backbone.name}: assumed {assumption}.")
    return backbone


def features_of(corpus: Path, clips: Corpus, folder: Path | None, backbone: Backbone | None) -> FeatureStore:
    """The features in a folder; without one, the corpus' own of a backbone in the cache, made if need be."""
    from ctsan.video.store import FeatureStore

    if folder is None:
        assert backbone is not None  # one of the two is known
        folder = features_folder(corpus, backbone, mirrored=False)
        make_features(clips, folder, backbone, mirrored=False)
    return FeatureStore(folder)


def features_folder(corpus: Path, backbone: Backbone, *, mirrored: bool) -> Path:
    from ctsan.folders import default_folder

    name = backbone.folder_name
    return default_folder("features", corpus) / (f"{name}-mirrored" if mirrored else name)


def make_features(clips: Corpus, folder: Path, backbone: Backbone, *, mirrored: bool) -> None:
    """Make the features of a corpus in the cache, or bring them up to date."""
    from ctsan.video.extraction import extract_features

    with progress_bar(len(clips), what="features") as bar:
        report = extract_features(
            [(clip.id, clip.path) for clip in clips],
            folder,
            backbone=backbone,
            mirrored=mirrored,
            on_clip=lambda _: bar.update(),
        )
    for error in report.unreadable.values():
        warn(f"unreadable: {error}")
