"""Vision towers of CLIP, SigLIP and DINOv2 through `transformers`; the patch tokens are the map.

Only safetensors weights are read, and no remote code runs. A NAME is downloaded from the hub by
`transformers`; a folder is read in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctsan.errors import UsageError
from ctsan.io.extras import extra
from ctsan.io.reading import DamagedFileError, read_json_object
from ctsan.video.backbones.registry import IMAGENET_MEAN, IMAGENET_STD
from ctsan.video.backbones.spec import Backbone, BackboneSpec, Colour
from ctsan.video.backbones.weights import files_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

GRID = 4  # the most cells per side of the pooled maps

_WEIGHTS, _SHARDS = "model.safetensors", "model.safetensors.index.json"
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")

_CLIP_MEAN, _CLIP_STD = (122.7709, 116.746, 104.0937), (68.5005, 66.6322, 70.3232)
_HALF = (127.5,) * 3


@dataclass(frozen=True, slots=True)
class _Family:
    tower: str  # the class of `transformers`
    mean: Colour
    std: Colour
    any_size: bool  # whether it accepts other image sizes than that of its configuration


_CLIP = _Family("CLIPVisionModel", _CLIP_MEAN, _CLIP_STD, any_size=False)
_SIGLIP = _Family("SiglipVisionModel", _HALF, _HALF, any_size=False)
FAMILIES = {  # by the model_type of config.json
    "clip": _CLIP,
    "clip_vision_model": _CLIP,
    "siglip": _SIGLIP,
    "siglip_vision_model": _SIGLIP,
    "dinov2": _Family("Dinov2Model", IMAGENET_MEAN, IMAGENET_STD, any_size=True),
    "dinov2_with_registers": _Family("Dinov2WithRegistersModel", IMAGENET_MEAN, IMAGENET_STD, any_size=True),
}


def hf_backbone(source: str) -> Backbone:
    """A vision tower, by the name of its model on the hub or by its folder.

    Raises:
        UsageError: `transformers` is not installed, or there is no such model.
    """
    folder = Path(source).expanduser()
    name = folder.resolve().name if folder.is_dir() else source
    if not folder.is_dir():
        folder = _fetch(source)
    config, family = _read_config(folder)
    vision: Mapping[str, Any] = config.get("vision_config") or config
    assumed: list[str] = []
    try:
        patch = int(vision.get("patch_size", _patch_size(family)))
        size, mean, std = _preprocessing(folder, vision, family, assumed)
        channels = int(vision.get("hidden_size", _default(family, "hidden_size")))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{folder}: its config.json or preprocessor_config.json is incomplete ({error!r}). Save the "
            "model and its image processor again with save_pretrained."
        ) from error
    side = size // patch
    pool = -(-side // GRID)
    if pool > 1:
        assumed.append(f"{pool}×{pool} patches are max-pooled into one, for {GRID}×{GRID} at most")
    spec = BackboneSpec(
        name=f"hf:{name}",
        image_size=size,
        map_size=(side, side),
        channels=channels,
        mean=mean,
        std=std,
        pool=pool,
        weights=str(folder),
        load=tower_loader(size),
    )
    return Backbone(spec, folder, files_digest(weights_files(folder)), tuple(assumed))


def weights_files(folder: Path) -> list[Path]:
    """config.json and the safetensors files.

    Raises:
        UsageError: there are no safetensors files.
    """
    config = folder / "config.json"
    if (folder / _WEIGHTS).is_file():
        return [config, folder / _WEIGHTS]
    try:
        names = sorted(set(read_json_object(folder / _SHARDS)["weight_map"].values()))
        shards = [folder / name for name in names]
        if all(path.parent == folder and path.is_file() for path in shards):
            return [config, *shards]
    except (OSError, DamagedFileError, KeyError, AttributeError, TypeError):
        pass
    raise UsageError(
        f"{folder}: there is no {_WEIGHTS}. Save the model with save_pretrained: weights in other formats "
        "are not read."
    )


def tower_loader(image_size: int) -> Callable[[Path], nn.Module]:
    return partial(_load_tower, image_size)


def _load_tower(image_size: int, folder: Path) -> nn.Module:
    """(N, 3, size, size) -> (N, C, h, w), the patch tokens after the last layer."""
    import torch
    from torch import nn

    transformers = _transformers()
    _, family = _read_config(folder)
    try:
        with _quiet(transformers):
            tower = getattr(transformers, family.tower).from_pretrained(
                folder,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                dtype=torch.float32,
                attn_implementation="sdpa",
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise UsageError(
            f"{folder}: not a model that transformers can read ({str(error).splitlines()[0]}). Save it again "
            "with save_pretrained."
        ) from error
    side = image_size // int(tower.config.patch_size)

    class PatchMap(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tower = tower

        def forward(self, x: Tensor) -> Tensor:
            tokens: Tensor = self.tower(pixel_values=x).last_hidden_state  # (N, T, C)
            patches = tokens[:, tokens.shape[1] - side * side :]  # without class and register tokens
            return patches.transpose(1, 2).reshape(-1, tokens.shape[2], side, side)

    return PatchMap().eval()


def _transformers() -> Any:
    with extra("hf", "A network of the hub"):
        import transformers
    return transformers


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Silence progress bars, and the warning about unused weights, which are those of the text tower."""
    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    had_progress_bar = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_progress_bar:
            logging.enable_progress_bar()


def _fetch(name: str) -> Path:
    """The folder of a hub model in the cache of `transformers`, downloaded if needed."""
    _transformers()
    from transformers.utils import cached_file

    optional = {"_raise_exceptions_for_missing_entries": False}
    try:
        config = cached_file(name, "config.json")
        for file in _PROCESSORS:
            cached_file(name, file, **optional)
        if cached_file(name, _WEIGHTS, **optional) is None:
            index = cached_file(name, _SHARDS, **optional)
            shards = read_json_object(Path(index))["weight_map"] if index else {}
            for file in sorted(set(shards.values())):
                cached_file(name, file)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"hf:{name}: neither a folder here nor a model that transformers finds "
            f"({str(error).splitlines()[0]}). Name a folder that save_pretrained wrote, or a model of the "
            "hub such as openai/clip-vit-base-patch32."
        ) from error
    return Path(config).parent


def _read_config(folder: Path) -> tuple[Mapping[str, Any], _Family]:
    path = folder / "config.json"
    config = _read_json(path)
    if config is None:
        raise UsageError(f"{path}: missing or damaged. Name a folder that save_pretrained wrote: hf:FOLDER")
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise UsageError(
            f"{folder}: a model of the type '{kind}'. The types that are read are: {', '.join(FAMILIES)}. "
            "Export another one to ONNX: --backbone onnx:FILE"
        )
    return config, FAMILIES[kind]


def _default(family: _Family, name: str) -> Any:
    """The default of `transformers` for a configuration value."""
    return getattr(getattr(_transformers(), family.tower).config_class(), name)


def _patch_size(family: _Family) -> int:
    return int(_default(family, "patch_size"))


def _preprocessing(
    folder: Path, vision: Mapping[str, Any], family: _Family, assumed: list[str]
) -> tuple[int, Colour, Colour]:
    """Image size, mean and std, from the configuration of the image processor."""
    config_size = int(vision.get("image_size", _default(family, "image_size")))
    processor = next(filter(None, (_read_json(folder / name) for name in _PROCESSORS)), None)
    if processor is None:
        size = 224 if family.any_size else config_size
        assumed.append(
            f"{size} pixels a side and the usual normalisation of {family.tower}: there is no "
            "preprocessor_config.json"
        )
        return size, family.mean, family.std
    processor = processor.get("image_processor", processor)
    size = config_size
    if family.any_size:
        crop = processor.get("crop_size") if processor.get("do_center_crop", True) else None
        size = _side(crop or processor.get("size") or config_size)
    scale = float(processor.get("rescale_factor", 1 / 255)) if processor.get("do_rescale", True) else 1.0
    if not processor.get("do_normalize", True):
        return size, (0.0,) * 3, (1 / scale,) * 3
    mean, std = (
        tuple(float(value) / scale for value in processor[key]) for key in ("image_mean", "image_std")
    )
    return size, (mean[0], mean[1], mean[2]), (std[0], std[1], std[2])


def _side(size: Any) -> int:
    if isinstance(size, int):
        return size
    return int(size.get("height") or size["shortest_edge"])


def _read_json(path: Path) -> Mapping[str, Any] | None:
    try:
        return read_json_object(path)
    except DamagedFileError:
        return None
