"""Every setting with its type, its value in the paper and what it does.

Defaults are the paper's values. Where the paper is silent, the help text says so. Only builders see a
`Settings`: modules take keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_type_hints

T = TypeVar("T")


class ValueType(NamedTuple):
    """What the value of a setting may be."""

    base: type
    expected: str
    accepts: Callable[[Any], bool]


def _whole(least: int, most: int) -> ValueType:
    expected = f"a whole number from {least} to {most:,}"
    return ValueType(int, expected, lambda value: least <= value <= most)


def _one_of(*words: str) -> ValueType:
    return ValueType(str, f"one of {', '.join(words)}", lambda value: value in words)


Switch = Annotated[bool, ValueType(bool, "true or false", lambda value: value in (True, False))]
# Limits are far above any sensible value, and below what would take all memory, or a lifetime.
Layers = Annotated[int, _whole(1, 64)]
Size = Annotated[int, _whole(1, 16_384)]
Sketch = Annotated[int, _whole(1, 1_000_000)]
OptionalSize = Annotated[int, _whole(0, 16_384)]
Kernel = Annotated[
    int, ValueType(int, "an odd whole number from 1 to 31", lambda value: value in range(1, 32, 2))
]
Frames = Annotated[int, _whole(1, 10_000)]
Candidates = Annotated[int, _whole(1, 1_000_000)]
Entries = Annotated[int, _whole(0, 10_000_000)]
Batch = Annotated[int, _whole(1, 65_536)]
Captions = Annotated[int, _whole(1, 10_000)]
Count = Annotated[int, _whole(1, 1_000_000_000)]
Whole = Annotated[int, _whole(0, 1_000_000_000)]
Seed = Annotated[int, _whole(0, 2**32 - 1)]
Beam = Annotated[int, _whole(1, 1_000)]
CaptionLength = Annotated[int, _whole(1, 1_000)]
Ngram = Annotated[int, _whole(0, 1_000)]
Weight = Annotated[float, ValueType(float, "a number from 0 to 1,000,000", lambda value: 0 <= value <= 1e6)]
Power = Annotated[float, ValueType(float, "a number from 0 to 10", lambda value: 0 <= value <= 10)]
Positive = Annotated[
    float, ValueType(float, "a number above 0, at most 1,000,000", lambda value: 0 < value <= 1e6)
]
Share = Annotated[float, ValueType(float, "a number from 0 to below 1", lambda value: 0 <= value < 1)]
Schedule = Annotated[Literal["constant", "cosine", "halve"], _one_of("constant", "cosine", "halve")]
DetectorName = Literal["traces", "average", "decoupled", "nearest", "random"]  # see tasks/clip_encoders.py
DetectorKind = Annotated[DetectorName, _one_of(*get_args(DetectorName))]
DecoderKind = Annotated[
    Literal["semantic", "s2vt", "temporal", "pooled"],
    _one_of("semantic", "s2vt", "temporal", "pooled"),
]
Probe = Annotated[Literal["none", "mlp"], _one_of("none", "mlp")]
RandomWordsKind = Annotated[Literal["redrawn", "fixed"], _one_of("redrawn", "fixed")]
Negatives = Annotated[Literal["clips", "sentences", "both"], _one_of("clips", "sentences", "both")]
Transfer = Annotated[Literal["detector", "shared"], _one_of("detector", "shared")]
Precision = Annotated[Literal["auto", "float32", "bfloat16"], _one_of("auto", "float32", "bfloat16")]


def _setting(default: T, text: str) -> T:
    """A field with its help text."""
    value: T = field(default=default, metadata={"help": text})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    hidden_dim: Size = _setting(500, "Units of every LSTM, and channels of the regions.")
    embedding_dim: Size = _setting(300, "Dimensions of word vectors.")
    num_layers: Layers = _setting(2, "Layers of every LSTM.")
    dropout: Share = _setting(0.2, "Dropout of the language model and the video encoder.")
    channel_dropout: Share = _setting(
        0.0, "Share of feature channels dropped in training, the same ones in all frames of a clip."
    )
    region_kernel: Kernel = _setting(3, "Kernel of the convolution that reduces feature maps to regions.")
    init_output_from_embeddings: Switch = _setting(
        False, "W_y begins as tanh(E) W_β^T, so that a concept word raises its own score."
    )
    decoder: DecoderKind = _setting(
        "semantic", "Caption decoder: the paper's, S2VT, temporal attention, or mean pooling."
    )
    bidirectional: Switch = _setting(
        True, "Read both sides of a blank; false is the paper's Simple-LSTM (fill only)."
    )
    use_video: Switch = _setting(True, "Use the video encoder; false reads the sentence alone (fill only).")
    max_frames: Frames = _setting(40, "Frames of a clip; longer clips are subsampled evenly.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    enabled: Switch = _setting(True, "Detect concept words; false is the paper's Base-SAN.")
    kind: DetectorKind = _setting("traces", "Source of concept words; all but traces are baselines.")
    random_words: RandomWordsKind = _setting(
        "redrawn", "With kind=random: draw words at every step, or once for a clip."
    )
    num_concepts: Candidates = _setting(10, "K, concept words of a clip.")
    prior_weight: Weight = _setting(
        0.0,
        "w in p - w q, by which words are ranked: p is the confidence, q the share of training clips with "
        "the word. The paper has 0. Above 0, each lemma counts once.",
    )
    num_candidates: Candidates = _setting(2000, "V, concept candidates; fewer if the captions hold fewer.")
    attention_dim: Size = _setting(500, "Channels between the two convolutions of a trace's attention.")
    dropout: Share = _setting(0.2, "Dropout between the layers of the tracing LSTMs, and before W_p.")
    probe: Probe = _setting(
        "none",
        "mlp: a perceptron on the mean feature, fitted before training, adds its scores to the traces'. The "
        "paper has none.",
    )
    tie_traces: Switch = _setting(
        False, "Share W_p among all traces; in the paper each has its own part of it."
    )
    lr_scale: Positive = _setting(1.0, "Factor of the learning rate for the detector.")
    confidence_weighted: Switch = _setting(
        False,
        "Multiply concept embeddings by their confidence, so that the language loss trains the detector.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSettings:
    input: Switch = _setting(True, "Semantic attention on the words that are read.")
    output: Switch = _setting(True, "Semantic attention on the words that are generated.")
    contrastive_init: Switch = _setting(
        False, "For choose and rank: W_γ begins as the identity and w_{x,a} as -1."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InitSettings:
    """What a new model begins with. The paper: skip-gram word vectors, all other weights by Xavier."""

    standardise_channels: Switch = _setting(
        False, "Standardise feature channels by their mean and deviation in training clips."
    )
    pca_regions: Switch = _setting(
        False, "The region convolution begins as the principal directions of training clips."
    )
    word_frequencies: Switch = _setting(
        False, "The biases b_p and b_y begin as log-frequencies of the words; otherwise as 0."
    )
    attention_gate: Weight = _setting(
        0.0, "Initial value of the gates w_{x,a} and w_{h,a}; 0 draws them by Xavier, fan d."
    )
    frame_memory: Count = _setting(
        4, "Frames after which an LSTM over frames keeps a third: sets its initial gate biases."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    # The paper gives neither λ. Of g, for a caption of T words, only the part between T/√K and T can change,
    # and likelihood costs one to three a word: a hundredth spreads the attention without outweighing it.
    attention_weight: Weight = _setting(0.01, "λ1, of the attention regulariser. The paper gives no value.")
    concept_weight: Weight = _setting(
        1.0, "λ2, of the concept loss. The paper gives no value; this is the authors' early code's."
    )
    label_smoothing: Share = _setting(0.0, "Label smoothing of words. The paper has none.")
    choice_margin: Positive = _setting(1.0, "Δ of multiple choice.")
    retrieval_margin: Positive = _setting(3.0, "Δ of retrieval.")
    # Σ_k Σ_l of the paper's retrieval loss, where k is the query in one sentence and the clip in another.
    retrieval_negatives: Negatives = _setting(
        "clips", "Negatives of retrieval: other clips for a query, other sentences for a clip, or both."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    sketch_dim: Sketch = _setting(8000, "Dimensions of compact bilinear pooling.")
    joint_dim: Size = _setting(1500, "Columns of W_p; of the joint embedding, its dimensions.")
    captions_per_clip: Captions = _setting(1, "Captions of a clip in a step of rank.")
    dropout: Share = _setting(0.5, "Before the maxout; of the joint embedding, on clip features.")
    temperature: Positive = _setting(0.1, "Of the joint embedding's softmax over the clips of a batch.")
    hidden_dim: OptionalSize = _setting(
        0, "Units of a perceptron beside the joint embedding's linear map of clips; 0 for none."
    )
    ridge_init: Switch = _setting(False, "The joint embedding begins as a ridge regression.")
    phrases: Entries = _setting(0, "Phrases of the phrase probe beside the joint embedding; 0 for none.")
    extra_vocabulary: Entries = _setting(
        0, "Words of --vectors to know beyond the captions' vocabulary, for queries."
    )
    match_top_k: Whole = _setting(
        3, "Best clips whose mean score, plus that of all, tells whether a query has a match; 0: not judged."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserSettings:
    learning_rate: Positive = _setting(1e-4, "Of Adam.")
    weight_decay: Weight = _setting(0.0, "Decoupled weight decay (AdamW).")
    clip_norm: Positive = _setting(5.0, "Largest norm of the gradient. The paper is silent.")
    schedule: Schedule = _setting(
        "halve", "Of the learning rate after the warm-up. The authors' early code halves it."
    )
    halve_every: Count = _setting(50_000, "Steps; with schedule=halve.")
    ema_decay: Share = _setting(
        0.0, "Decay of an exponential moving average of the weights, which is evaluated and kept."
    )
    warmup_steps: Whole = _setting(0, "Steps over which the learning rate climbs to its value.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    batch_size: Batch = _setting(32, "Clips in a step, over all processes. The paper is silent.")
    captions_per_clip: Captions = _setting(
        20, "Captions of a clip in a step: the clip is encoded once. LSMDC has one."
    )
    epochs: Count = _setting(50, "Passes over the training clips; with steps=0.")
    steps: Whole = _setting(0, "Steps in place of epochs.")
    patience: Count = _setting(5, "Evaluations in a row without a better one, after which training stops.")
    seed: Seed = _setting(0, "Of weights, order and dropout.")
    freeze_clip_encoder: Switch = _setting(
        False, "With --from: freeze the clip encoder and the word embedding, for several runs to share."
    )
    transfer: Transfer = _setting(
        "detector", "With --from: take over the detector alone, or all that the two models share."
    )
    out_of_fold: Switch = _setting(
        False,
        "Choose concept words in training by five probes, each fitted without the clip's source, in place of "
        "the detector, which overfits its training clips.",
    )
    hflip: Switch = _setting(True, "Flip clips horizontally at random, where flipped features are stored.")
    evaluate_every: Count = _setting(1, "Epochs between two evaluations.")
    evaluations: Count = _setting(6, "Evaluations, evenly over the steps, where steps is set.")
    report_every: Count = _setting(50, "Steps between two rows of metrics.jsonl.")
    checkpoint_every: Count = _setting(500, "Steps between two checkpoints; every evaluation makes one too.")
    precision: Precision = _setting("auto", "auto: bfloat16 on CUDA, float32 elsewhere.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingSettings:
    beam: Beam = _setting(1, "Beam width; 1 is greedy.")
    max_words: CaptionLength = _setting(40, "Longest caption, in words.")
    length_penalty: Power = _setting(
        1.0, "A caption's score is its log-probability over length to this power."
    )
    no_repeat_ngram: Ngram = _setting(0, "No n-gram of this length occurs twice in a caption; 0 allows all.")
    skip_faulty: Switch = _setting(
        False,
        "Rank captions with a grammar fault after all others, with a beam above 1, and do not train on such "
        "captions where the clip has others.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankSettings:
    """score = 0.1 · log p + embedding_weight · embedding + cider_weight · expected CIDEr.

    Without a phrase probe there is no expected CIDEr: score = log p + embedding_weight · embedding.
    """

    embedding_weight: Weight = _setting(0.25, "Weight of the joint embedding in reranking captions.")
    cider_weight: Weight = _setting(1.6, "Weight of the CIDEr that the phrase probe expects, in reranking.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleSettings:
    standardise: Switch = _setting(
        False,
        "Bring each run's scores to mean 0 and deviation 1 on its validation clips before they are averaged; "
        "true in any run counts for all. The paper averages them as they are.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    model: ModelSettings = field(default_factory=ModelSettings)
    detector: DetectorSettings = field(default_factory=DetectorSettings)
    attention: AttentionSettings = field(default_factory=AttentionSettings)
    init: InitSettings = field(default_factory=InitSettings)
    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    rerank: RerankSettings = field(default_factory=RerankSettings)
    ensemble: EnsembleSettings = field(default_factory=EnsembleSettings)

    def to_json(self) -> dict[str, dict[str, Any]]:
        return asdict(self)


SECTIONS: dict[str, type] = get_type_hints(Settings)


def value_types(section: str) -> dict[str, ValueType]:
    """What each setting of a section may be; nothing for an unknown section."""
    if section not in SECTIONS:
        return {}
    hints = get_type_hints(SECTIONS[section], include_extras=True)
    return {setting.name: hints[setting.name].__metadata__[0] for setting in fields(SECTIONS[section])}


class DescribedSetting(NamedTuple):
    section: str
    name: str
    expected: str
    help: str


def described_settings() -> Iterator[DescribedSetting]:
    """Every setting with what it may be and what it does."""
    for section, kind in SECTIONS.items():
        types = value_types(section)
        for each in fields(kind):
            yield DescribedSetting(section, each.name, types[each.name].expected, each.metadata["help"])
