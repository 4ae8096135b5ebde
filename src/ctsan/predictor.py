"""A trained run, ready to be asked about video files: `Predictor.load(run).describe("clip.mp4")`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ctsan.atomic import write_json
from ctsan.config import Settings
from ctsan.data.batches import pad_maps, thin
from ctsan.errors import RunError, UsageError
from ctsan.model.description_model import ClipEncoding, DescriptionModel
from ctsan.tasks.building import build_description_model
from ctsan.tasks.description import NEVER_SAID
from ctsan.text.vocabulary import BOS, EOS
from ctsan.text.words import Words
from ctsan.training.checkpoint import WEIGHTS_FILE, load_weights
from ctsan.training.run_folder import open_run
from ctsan.video.backbone import Backbone, find_backbone
from ctsan.video.engine import Engine, load_engine
from ctsan.video.frames import sample_frames
from ctsan.video.store import Recipe

WORDS_FOLDER = "words"
FEATURES_FILE = "features.json"


@dataclass(frozen=True, slots=True)
class Concept:
    word: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Caption:
    text: str
    score: float  # mean log-probability of a word


@dataclass(frozen=True, slots=True)
class Description:
    """What a model says of a clip: captions from the best down, and the concept words it saw."""

    clip: str
    captions: tuple[Caption, ...]
    concepts: tuple[Concept, ...]

    @property
    def caption(self) -> str:
        return self.captions[0].text


class Predictor:
    """Answers questions about video files; loads the network that makes features only when it is needed."""

    def __init__(
        self, model: DescriptionModel, words: Words, settings: Settings, recipe: Recipe, weights: Path | None
    ) -> None:
        self.model = model.eval()
        self.words = words
        self.settings = settings
        self.recipe = recipe
        self.weights = weights
        self._engine: tuple[Backbone, Engine] | None = None

    @classmethod
    def load(cls, run: Path | str, *, weights: Path | None = None) -> Predictor:
        """A run folder; `weights` is the backbone's file where it is not installed with ctsan.

        Raises:
            RunError: there is no usable run in the folder.
        """
        folder = Path(run)
        opened = open_run(folder)
        recipe = read_recipe(folder)
        words = Words.load(folder / WORDS_FOLDER)
        model = build_description_model(
            opened.settings, words, grid=recipe.grid, channels=recipe.channels, seed=0
        )
        load_weights(folder / WEIGHTS_FILE, model)
        return cls(model, words, opened.settings, recipe, weights)

    def describe(self, clip: Path | str, *, beam: int = 5, n_best: int = 1) -> Description:
        """The best sentences for a clip, and its concept words.

        Raises:
            VideoError: the clip cannot be read.
        """
        encoding = self._encode(Path(clip))
        found = self.model.describe(
            encoding,
            begin=BOS,
            end=EOS,
            never=NEVER_SAID,
            beam=max(beam, n_best),
            n_best=n_best,
            max_words=self.settings.decoding.max_words,
            length_penalty=self.settings.decoding.length_penalty,
        )[0]
        captions = (
            Caption(" ".join(self.words.vocabulary.decode(sentence.words)), sentence.score)
            for sentence in found
        )
        return Description(str(clip), tuple(captions), self._concepts(encoding))

    def concepts(self, clip: Path | str) -> tuple[Concept, ...]:
        """The concept words of a clip, the surest first."""
        return self._concepts(self._encode(Path(clip)))

    @torch.inference_mode()
    def _encode(self, clip: Path) -> ClipEncoding:
        backbone, run = self._loaded_engine()
        maps = run(sample_frames(clip, size=backbone.image_size).pixels)
        return self.model.encode(*pad_maps([thin(maps, self.settings.model.max_frames)]))

    def _loaded_engine(self) -> tuple[Backbone, Engine]:
        if self._engine is None:
            if self.recipe.details.get("imported"):
                raise UsageError(
                    f"The model was trained on imported features ({self.recipe.backbone}), which ctsan "
                    "cannot compute. Train one on features of its own to ask about video files."
                )
            backbone = find_backbone(self.recipe.backbone, self.weights)
            if backbone.digest != self.recipe.details["weights"]:
                raise UsageError(
                    f"{backbone.weights}: not the weights that the model's features were made with. "
                    "Give the same file."
                )
            self._engine = backbone, load_engine(backbone)
        return self._engine

    def _concepts(self, encoding: ClipEncoding) -> tuple[Concept, ...]:
        numbers, confidences = encoding.concept_words[0].tolist(), encoding.confidences[0].tolist()
        return tuple(
            Concept(self.words.concepts.words[number], confidence)
            for number, confidence in zip(numbers, confidences, strict=True)
        )


def write_recipe(folder: Path, recipe: Recipe) -> None:
    write_json(folder / FEATURES_FILE, asdict(recipe))


def read_recipe(folder: Path) -> Recipe:
    """Raises:
    RunError: the file is missing or damaged.
    """
    file = folder / FEATURES_FILE
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        height, width = value["grid"]
        return Recipe(**{**value, "grid": (int(height), int(width))})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{file}: missing or damaged ({error}). Put it back from a copy, or train again."
        ) from error
