"""`ctsan features`: compute and store the feature maps of a corpus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.output import print_json, print_line
from ctsan.errors import UsageError, warn_renamed
from ctsan.io.messages import count, listed, warn
from ctsan.io.progress import progress_bar

if TYPE_CHECKING:
    from ctsan.video.extraction import Outcome, Report


BACKBONE = click.option(
    "--backbone",
    "backbone_name",
    metavar="NAME",
    help="Network of 'ctsan backbone list', onnx:FILE, or hf:NAME for CLIP, SigLIP or DINOv2.",
)
WEIGHTS = click.option("--weights", type=click.Path(path_type=Path), help="Weights file; a ResNet needs one.")


@click.command("features")
@click.argument("corpora", metavar="CORPUS...", nargs=-1, required=True, type=click.Path(path_type=Path))
@BACKBONE
@WEIGHTS
@click.option(
    "--out",
    "outs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Folder for the features, one a corpus [default: in the cache].",
)
@click.option(
    "--hflip", is_flag=True, help="Also store maps of horizontally flipped frames (the paper's augmentation)."
)
@click.option("--mirror", is_flag=True, hidden=True)
@click.option("--engine", help="onnxruntime, openvino or torch [default: the fastest here].")
@click.option("--workers", type=click.IntRange(min=1), help="Clips at a time [default: the number of cores].")
@click.option(
    "--import",
    "arrays",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Take maps from this folder's .npy files, named like the clips, instead of computing them; one a "
    "corpus.",
)
@click.option("--pool", is_flag=True, help="With --import: apply the 2x2 max-pool that our own features get.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as a JSON object, one a corpus.")
def command(
    corpora: tuple[Path, ...],
    backbone_name: str | None,
    weights: Path | None,
    outs: tuple[Path, ...],
    hflip: bool,
    mirror: bool,
    engine: str | None,
    workers: int | None,
    arrays: tuple[Path, ...],
    pool: bool,
    as_json: bool,
) -> None:
    """Turn the clips of CORPUS into feature maps and store them.

    Only clips that are new or changed are computed, so the same command resumes after an interruption. Clips
    that cannot be read are skipped and listed at the end. Each corpus has a folder of its own.

    \b
    Examples:
      ctsan features my-clips/
      ctsan features LSMDC16/ --backbone resnet152 --weights resnet152.pth --hflip
      ctsan features my-clips/ --backbone onnx:net.onnx
      ctsan features my-clips/ --backbone hf:openai/clip-vit-base-patch32
      ctsan features my-clips/ --import my-arrays/ --backbone slowfast --out features/
      ctsan features my-clips/ MSR-VTT/
      ctsan features my-clips/ MSR-VTT/ --out features/mine --out features/msr-vtt
    """
    from ctsan.data.reading import read_corpus
    from ctsan.io.paths import default_folder
    from ctsan.training.features import NOT_FOR_FILES, features_folder, named_backbone
    from ctsan.video.backbones import DEFAULT_BACKBONE
    from ctsan.video.engine import check_engine, load_engine
    from ctsan.video.extraction import extract_features
    from ctsan.video.imported import arrays_of, import_features

    check_one_per_corpus("--out", outs, corpora)
    check_one_per_corpus("--import", arrays, corpora)
    if len({out.resolve() for out in outs}) < len(outs):
        raise UsageError(f"{outs[0]}: one --out for two corpora. Give each corpus a folder of its own.")
    if not arrays and pool:
        raise UsageError("--pool goes with --import: computed features are always pooled.")
    if mirror:
        warn_renamed("--mirror", "--hflip")
        hflip = True
    if arrays and (hflip or weights or engine):
        raise UsageError("--hflip, --weights and --engine do not go with --import: nothing is computed.")
    name = backbone_name or ("imported" if arrays else DEFAULT_BACKBONE)
    clips_of_corpora = [read_corpus(corpus) for corpus in corpora]
    fill: Callable[..., Report]
    if arrays:
        warn(NOT_FOR_FILES)
        folders = outs or [default_folder("features", corpus) / name for corpus in corpora]
        sources = [
            arrays_of([clip.id for clip in clips], folder)
            for clips, folder in zip(clips_of_corpora, arrays, strict=True)
        ]
        fill = partial(import_features, name=name, pool=pool)
    else:
        sources = [[(clip.id, clip.path) for clip in clips] for clips in clips_of_corpora]
        backbone = named_backbone(name, weights)
        name = backbone.name
        folders = outs or [features_folder(corpus, backbone, mirrored=hflip) for corpus in corpora]
        run = load_engine(backbone, engine=check_engine(engine) if engine else None)
        fill = partial(extract_features, backbone=backbone, mirrored=hflip, engine=run)
    reports = []
    for corpus, corpus_sources, folder in zip(corpora, sources, folders, strict=True):
        what = f"features of {corpus.name}" if len(corpora) > 1 else "features"
        report = _fill_with_progress(
            partial(fill, corpus_sources, folder, workers=workers), len(corpus_sources), what
        )
        _print_report(report, folder, name, as_json=as_json)
        reports.append(report)
    if not any(report.done + report.kept for report in reports):
        raise UsageError(f"Not one clip of {listed(corpora)} could be read.")


def _fill_with_progress(fill: Callable[..., Report], clips: int, what: str) -> Report:
    unreadable = 0
    with progress_bar(clips, what=what) as bar:

        def show(outcome: Outcome) -> None:
            nonlocal unreadable
            if outcome.error:
                unreadable += 1
                bar.set_postfix_str(f"{unreadable} unreadable", refresh=False)
            bar.update()

        return fill(on_clip=show)


def _print_report(report: Report, folder: Path, name: str, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "features": str(folder),
                "backbone": name,
                "clips": report.done + report.kept,
                "new": report.done,
                "frames": report.frames,
                "seconds": round(report.seconds, 3),
                "unreadable": report.unreadable,
            }
        )
    else:
        rate = f", {report.frames / report.seconds:,.0f} frames/s" if report.frames else ""
        print_line(
            f"{count(report.done + report.kept, 'clip')} with {name} features in {folder}\n"
            f"{report.done:,} done now ({count(report.frames, 'frame')} in {report.seconds:,.1f} s{rate}), "
            f"{report.kept:,} were there already"
        )
    if report.unreadable:
        warn(f"{count(len(report.unreadable), 'clip')} could not be read:")
        for error in report.unreadable.values():
            warn(f"  {error}")


def check_one_per_corpus(
    option: str, folders: Sequence[Path], corpora: Sequence[Path], *, unit: str = "corpus"
) -> None:
    """Check that an option is given once per corpus, or not at all.

    Args:
        unit: what the option is given once for, in messages.

    Raises:
        UsageError: the option is given more or fewer times than there are corpora.
    """
    if folders and len(folders) != len(corpora):
        raise UsageError(
            f"{option} is given {count(len(folders), 'time')}, and there are {len(corpora)} corpora. Give it "
            f"once for each {unit}, in the same order."
            if len(corpora) > 1
            else f"{option} is given {len(folders)} times, and there is one corpus. Give it once."
        )
