"""A trained run, ready to be asked about video files: `Predictor.load(run).describe("clip.mp4")`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ctsan.atomic import write_json
from ctsan.config import Settings
from ctsan.data.batches import pad_maps, thin
from ctsan.errors import RunError, UsageError, did_you_mean
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.description_model import DescriptionModel
from ctsan.model.search import Sentence
from ctsan.tasks.building import build_model
from ctsan.tasks.description import NEVER_SAID
from ctsan.text.vocabulary import BOS, EOS
from ctsan.text.words import CONCEPTS_FILE, Words
from ctsan.training.checkpoint import WEIGHTS_FILE, load_weights
from ctsan.training.run_folder import open_run
from ctsan.video.backbone import Backbone, find_backbone
from ctsan.video.engine import Engine, load_engine
from ctsan.video.frames import sample_frames
from ctsan.video.store import Recipe

WORDS_FOLDER = "words"
FEATURES_FILE = "features.json"

_CELL = 64  # pixels of the backbones' input that a cell of their map covers: a stride of 32, pooled by two


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


@dataclass(frozen=True, slots=True)
class Tracing:
    """Where the traces of the detector looked in a clip, and what came of it."""

    times: NDArray[np.float64]  # (N,), seconds in the source, of the frames that the model saw
    attention: NDArray[np.float32]  # (N, L, h, w); adds up to one over the grid
    rows: NDArray[np.float64]  # (h + 1,), from 0 to 1: where the grid's cells begin and end in the picture
    columns: NDArray[np.float64]  # (w + 1,); upright, as a player shows it
    concepts: tuple[Concept, ...]  # K, the surest first
    raised: tuple[Concept, ...]  # the same, and last the one that was asked for if it is not among them
    shares: NDArray[np.float32]  # (raised, L): what each trace adds to the score of each of them
    caption: Caption
    output_weights: NDArray[np.float32] | None  # β, (words, K): attention on the concepts in saying a word
    input_weights: NDArray[np.float32] | None  # γ, (words, K): and in reading it, before the next is said

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.caption.text.split())


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
        if opened.task != "describe":
            raise RunError(
                f"{folder}: a run of {opened.task!r}, which cannot describe. Name one of 'describe'."
            )
        model = build_model(
            "describe", opened.settings, words, grid=recipe.grid, channels=recipe.channels, seed=0
        )
        assert isinstance(model, DescriptionModel)
        load_weights(folder / WEIGHTS_FILE, model)
        return cls(model, words, opened.settings, recipe, weights)

    def describe(self, clip: Path | str, *, beam: int = 5, n_best: int = 1) -> Description:
        """The best sentences for a clip, and its concept words.

        Raises:
            VideoError: the clip cannot be read.
        """
        encoding, _ = self._encode(Path(clip))
        captions = (self._caption(sentence) for sentence in self._sentences(encoding, beam, n_best))
        return Description(str(clip), tuple(captions), self._concepts(encoding))

    def concepts(self, clip: Path | str) -> tuple[Concept, ...]:
        """The concept words of a clip, the surest first."""
        return self._concepts(self._encode(Path(clip))[0])

    @torch.inference_mode()
    def trace(self, clip: Path | str, *, concept: str | None = None, beam: int = 5) -> Tracing:
        """Where the model looked and which concept words it used for its best sentence.

        Args:
            concept: a concept word to follow too, whether the model sees it in the clip or not.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: the model has no detector, or does not know the concept.
        """
        detector, candidates = self.model.clip_encoder.detector, self.words.concepts.words
        if detector is None:
            raise UsageError("The model has no concept detector, so no traces. Name a run that has one.")
        if concept is not None and concept not in candidates:
            raise UsageError(
                f"Unknown concept word '{concept}'. {did_you_mean(concept, candidates)}"
                f"{WORDS_FOLDER}/{CONCEPTS_FILE} of the run lists the {len(candidates):,} that it knows."
            )
        encoding, times = self._encode(Path(clip))
        detection = encoding.detection
        assert detection is not None  # there is a detector
        raised = encoding.concept_words[0].tolist()
        if concept is not None and candidates.index(concept) not in raised:
            raised.append(candidates.index(concept))
        numbers = torch.tensor([raised], device=detection.scores.device)
        best = self._sentences(encoding, beam, 1)[0]
        # One pass over the sentence as in training. Step t reads word t - 1 and says word t, the last step
        # says the end: so words are said in all steps but the last, and read in all but the first.
        decoded = self.model(torch.tensor([[BOS, *best.words]], device=numbers.device), encoding)
        said, read = decoded.output_weights, decoded.input_weights
        height, width = detection.attention.shape[-2:]
        image_size = self._loaded_engine()[0].image_size
        return Tracing(
            times=times,
            attention=detection.attention[0].cpu().numpy(),
            rows=_cell_borders(height, image_size),
            columns=_cell_borders(width, image_size),
            concepts=self._concepts(encoding),
            raised=tuple(Concept(candidates[n], float(detection.confidences[0, n])) for n in raised),
            shares=detector.shares(detection.states, numbers)[0].cpu().numpy(),
            caption=self._caption(best),
            output_weights=None if said is None else said[0, :-1].cpu().numpy(),
            input_weights=None if read is None else read[0, 1:].cpu().numpy(),
        )

    @torch.inference_mode()
    def _encode(self, clip: Path) -> tuple[ClipEncoding, NDArray[np.float64]]:
        """What the model makes of a clip, and the times of the frames that it saw."""
        backbone, run = self._loaded_engine()
        frames = sample_frames(clip, size=backbone.image_size)
        maps = thin(run(frames.pixels), self.settings.model.max_frames)
        times = frames.times[np.arange(len(maps)) * len(frames.times) // len(maps)]  # thinned likewise
        return self.model.clip_encoder(*pad_maps([maps])), times

    def _sentences(self, encoding: ClipEncoding, beam: int, n_best: int) -> list[Sentence]:
        return self.model.describe(
            encoding,
            begin=BOS,
            end=EOS,
            never=NEVER_SAID,
            beam=max(beam, n_best),
            n_best=n_best,
            max_words=self.settings.decoding.max_words,
            length_penalty=self.settings.decoding.length_penalty,
        )[0]

    def _caption(self, sentence: Sentence) -> Caption:
        return Caption(" ".join(self.words.vocabulary.decode(sentence.words)), sentence.score)

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


def _cell_borders(cells: int, image_size: int) -> NDArray[np.float64]:
    """Frames are squashed whole, so cells cover all of the picture; the last may be cut off by its border."""
    return np.minimum(np.arange(cells + 1) * _CELL, image_size) / image_size


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
