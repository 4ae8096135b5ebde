"""Settings: plain frozen values with a name, a kind and a default, in two profiles.

`paper` holds the paper's values; where the paper is silent, the comment beside a value says what was chosen.
`laptop` is for two cores and minutes. Nobody but a builder sees a `Settings`: modules take keyword arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from ctsan.errors import OldRunError, UsageError, did_you_mean


class _Kind(NamedTuple):
    """What a setting may be."""

    base: type
    expected: str
    accepts: Callable[[Any], bool]


def _one_of(*words: str) -> _Kind:
    return _Kind(str, f"one of {', '.join(words)}", lambda value: value in words)


Switch = Annotated[bool, _Kind(bool, "true or false", lambda value: value in (True, False))]
Whole = Annotated[int, _Kind(int, "a whole number of at least 0", lambda value: value >= 0)]
Count = Annotated[int, _Kind(int, "a whole number of at least 1", lambda value: value >= 1)]
Odd = Annotated[int, _Kind(int, "an odd whole number", lambda value: value > 0 and value % 2 == 1)]
Weight = Annotated[float, _Kind(float, "a number of at least 0", lambda value: value >= 0)]
Positive = Annotated[float, _Kind(float, "a number above 0", lambda value: value > 0)]
Share = Annotated[float, _Kind(float, "a number from 0 to below 1", lambda value: 0 <= value < 1)]
Schedule = Annotated[Literal["constant", "cosine", "halve"], _one_of("constant", "cosine", "halve")]
DetectorKind = Annotated[
    Literal["traces", "average", "decoupled", "nearest", "random"],
    _one_of("traces", "average", "decoupled", "nearest", "random"),
]
DecoderKind = Annotated[
    Literal["semantic", "s2vt", "temporal", "pooled"],
    _one_of("semantic", "s2vt", "temporal", "pooled"),
]
Probe = Annotated[Literal["none", "mlp"], _one_of("none", "mlp")]
RandomWordsKind = Annotated[Literal["redrawn", "fixed"], _one_of("redrawn", "fixed")]
Negatives = Annotated[Literal["clips", "sentences", "both"], _one_of("clips", "sentences", "both")]
Transfer = Annotated[Literal["detector", "shared"], _one_of("detector", "shared")]
Precision = Annotated[Literal["auto", "float32", "bfloat16"], _one_of("auto", "float32", "bfloat16")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    hidden_dim: Count = 500
    embedding_dim: Count = 300
    num_layers: Count = 2
    dropout: Share = 0.2
    channel_dropout: Share = 0.0  # of a clip's feature channels, in all its frames at once
    region_kernel: Odd = 3  # of the convolution that reduces maps to regions
    say_from_words: Switch = False  # W_y begins as the words' vectors: a concept word raises its own score
    decoder: DecoderKind = "semantic"  # the paper's; others describe only
    both_ways: Switch = True  # False reads a sentence up to its blank only: the paper's Simple-LSTM
    sees_clip: Switch = True  # False leaves out the video encoder
    max_frames: Count = 40  # clips with more stored frames are thinned evenly


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    enabled: Switch = True  # without it neither attention has anything to attend to: the paper's Base-SAN
    kind: DetectorKind = "traces"  # where concept words come from; the others are what the paper compares
    random_words: RandomWordsKind = "redrawn"  # with kind=random, in training: at each step, or a clip's own
    num_concepts: Count = 10  # K
    # The K words with the highest p - w q: p is a word's confidence, q the share of training clips with the
    # word, w this weight. The paper ranks by p alone. Above 0, each lemma counts once.
    prior_weight: Weight = 0.0
    num_candidates: Count = 2000  # V; fewer if the words hold fewer
    attention_dim: Count = 500  # between the two convolutions of a trace's attention
    dropout: Share = 0.2
    # Concept words from the mean feature of a clip as well, by a probe that is fitted before training: a
    # perceptron, to whose scores the traces add theirs. The paper has none.
    probe: Probe = "none"
    tie_traces: Switch = False  # W_p is the same for all traces; in the paper each has its own part of it
    pace: Positive = 1.0  # times the learning rate, for the detector
    weighted: Switch = False  # concept embeddings times confidence: the language loss trains the detector


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSettings:
    input: Switch = True
    output: Switch = True
    compares: Switch = False  # to choose and to rank: W_γ begins as the identity and w as -1


@dataclass(frozen=True, slots=True, kw_only=True)
class InitSettings:
    """What a new model begins with. The paper: skip-gram word vectors, all other weights by Xavier."""

    standardise_channels: Switch = False  # features less their mean, over their deviation, in training clips
    pca_regions: Switch = False  # the reducing convolution begins as the principal directions of these clips
    word_frequencies: Switch = False  # b_p and b_y begin as how often each word is used; otherwise as 0
    attention_gate: Weight = 0.0  # w_{x,a} and w_{h,a} begin as this; 0 draws them by Xavier, fan d
    frame_memory: Count = 4  # frames after which an LSTM over frames keeps a third: its gates' first biases


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    # The paper gives neither. Of g, for a caption of T words, only the part between T/√K and T can change,
    # and likelihood costs one to three a word: a hundredth spreads the attention without outweighing it.
    attention_weight: Weight = 0.01  # λ1
    concept_weight: Weight = 1.0  # λ2, as in the authors' early code
    label_smoothing: Share = 0.0  # of the words; the paper has none
    choice_margin: Positive = 1.0  # Δ
    retrieval_margin: Positive = 3.0  # Δ
    # Σ_k Σ_l of the paper's retrieval loss, where k is the query in one sentence and the clip in another:
    # other clips for each query as it is tested, other sentences for each clip, or both sums.
    retrieval_negatives: Negatives = "clips"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    sketch_dim: Count = 8000  # of compact bilinear pooling
    joint_dim: Count = 1500  # columns of W_p
    captions_per_clip: Count = 1  # learnt at once: each is scored with every clip of the batch
    dropout: Share = 0.5  # before the maxout; of the joint embedding, of the clips' features
    temperature: Positive = 0.1  # of the joint embedding's softmax over the clips of a batch
    hidden_dim: Whole = 0  # of a perceptron in the joint embedding, beside its linear map of clips
    regression: Switch = False  # the joint embedding, which the paper does not have, begins as one
    phrases: Whole = 0  # that a probe beside the joint embedding knows
    more_words: Whole = 0  # of --vectors, which captions have too seldom or never: a query may


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserSettings:
    learning_rate: Positive = 1e-4
    weight_decay: Weight = 0.0
    clip_norm: Positive = 5.0  # the paper is silent
    schedule: Schedule = "halve"  # after the warm-up; the authors' early code halves every 50,000 steps
    halve_every: Count = 50_000  # steps; with schedule=halve
    averaging: Share = 0.0  # of a running mean of the weights, what a step keeps; the mean is evaluated
    warmup_steps: Whole = 0  # the rate climbs to its value over so many steps


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    batch_size: Count = 32  # clips, over all processes; the paper is silent
    captions_per_clip: Count = 20  # learnt at once, for the clip is encoded once; LSMDC has one a clip
    epochs: Count = 50
    steps: Whole = 0  # instead of epochs: a small corpus is then gone through as often as it takes
    patience: Count = 5  # evaluations in a row without a better one, after which training stops
    seed: Whole = 0
    keep_clips: Switch = False  # with --from: how clips are seen stays as it is, for several runs to share
    transfer: Transfer = "detector"  # with --from: it alone, or all that the two models share
    # Concept words in training are chosen by five probes, each fitted without the clip's source, not by the
    # detector, which knows its training clips by heart.
    out_of_fold: Switch = False
    mirror: Switch = True
    evaluate_every: Count = 1  # epochs
    evaluations: Count = 6  # instead, evenly over the steps, where training.steps is set
    report_every: Count = 50  # steps between two rows of losses
    checkpoint_every: Count = 500  # steps; every evaluation is followed by a checkpoint as well
    precision: Precision = "auto"  # bfloat16 where it helps: on CUDA


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingSettings:
    beam: Count = 1
    max_words: Count = 40
    length_penalty: Weight = 1.0  # a sentence's score is divided by its length to this power
    suiting: Weight = 0.25  # of a joint embedding that stands beside, in choosing among what a beam found
    expecting: Weight = 1.6  # of the CIDEr that its phrase probe expects, if it has one, in that choice
    repeats: Switch = True  # False never says the same two words in a row again
    # With a beam above 1, sentences with a grammar fault that a rule finds come after all others; and such
    # captions of people are not learnt from where the clip has others.
    skip_faulty: Switch = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleSettings:
    # False averages the scores of several runs as they are, as the paper does. True in any of the runs first
    # brings each one's scores to mean 0 and standard deviation 1 on its validation clips.
    standardise: Switch = False


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
    ensemble: EnsembleSettings = field(default_factory=EnsembleSettings)

    def to_json(self) -> dict[str, dict[str, Any]]:
        return asdict(self)


_SECTIONS: dict[str, type] = get_type_hints(Settings)

PROFILES: Mapping[str, Settings] = {
    "paper": Settings(),
    # Chosen by validation on a few thousand clips with 20 captions each.
    "laptop": Settings(
        model=ModelSettings(
            hidden_dim=256, num_layers=1, region_kernel=1, max_frames=10, dropout=0.3, say_from_words=True
        ),
        detector=DetectorSettings(
            prior_weight=0.5, attention_dim=32, dropout=0.5, probe="mlp", tie_traces=True, pace=0.5
        ),
        init=InitSettings(
            standardise_channels=True,
            pca_regions=True,
            word_frequencies=True,
            attention_gate=1.0,
            frame_memory=20,
        ),
        retrieval=RetrievalSettings(sketch_dim=2000, joint_dim=256, captions_per_clip=2),
        loss=LossSettings(
            attention_weight=0.0,
            concept_weight=100.0,
            label_smoothing=0.1,
            retrieval_negatives="both",
        ),
        optimiser=OptimiserSettings(learning_rate=2e-3, schedule="cosine", warmup_steps=20, averaging=0.98),
        training=TrainingSettings(
            batch_size=32,
            captions_per_clip=5,
            steps=1000,
            patience=6,
            transfer="shared",
            out_of_fold=True,
            mirror=False,
            report_every=10,
            checkpoint_every=100,
        ),
        decoding=DecodingSettings(max_words=20, repeats=False, skip_faulty=True),
        ensemble=EnsembleSettings(standardise=True),
    ),
}

# Settings that settings.json of an older run lacks, with the value that the code of that time amounted to: a
# later default changes no older run.
_BEFORE: Mapping[str, object] = {
    "detector.random_words": "redrawn",
    "decoding.skip_faulty": False,
    "detector.prior_weight": 0.0,
    "detector.tie_traces": False,
    "ensemble.standardise": True,
    "init.attention_gate": 0.1,
    "init.frame_memory": 20,
    "init.pca_regions": True,
    "init.standardise_channels": True,
    "init.word_frequencies": True,
    "loss.retrieval_negatives": "both",
    "retrieval.hidden_dim": 0,
    "training.out_of_fold": False,
    "training.transfer": "shared",
}
# In settings.json of older runs; they have no effect any more.
_REMOVED = frozenset(
    {
        "decoding.guiding",
        "decoding.hearing",
        "detector.trace_dropout",
        "init.concept_gain",
        "loss.choice_negatives",
        "loss.reward_from",
        "loss.reward_weight",
        "training.corrupt_concepts",
    }
)
# Settings and values in settings.json of older runs that have other names now.
_RENAMED: Mapping[tuple[str, object], tuple[str, object]] = {
    ("detector.probe", False): ("detector.probe", "none"),
    ("detector.rank_by", "confidence"): ("detector.prior_weight", 0.0),
    ("detector.rank_by", "lift"): ("detector.prior_weight", 1.0),
}


# What a task changes in every profile, as `overridden` takes it; one that changes nothing is there too.
TASK_DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "describe": (),
    "fill": (),
    "choose": (),
    "rank": (),
    # The negatives are the other clips of a batch, so batches are large; few steps are enough. The regression
    # that the embedding begins as and its phrase probe are solved in closed form, before the first step.
    "embed": (
        "training.batch_size=256",
        "training.steps=1500",
        "optimiser.learning_rate=1e-3",
        "optimiser.weight_decay=0.05",
        "retrieval.hidden_dim=1024",
        "retrieval.temperature=0.07",
        "retrieval.regression=true",
        "retrieval.phrases=16000",
        "retrieval.more_words=30000",
        "ensemble.standardise=true",
    ),
}


def load_settings(profile: str, overrides: Sequence[str] = (), *, task: str | None = None) -> Settings:
    """A profile with the defaults of a task, if one is named, and some settings changed: see `overridden`.

    Raises:
        UsageError: there is no such profile or task, or an override cannot be taken.
    """
    if profile not in PROFILES:
        hint = did_you_mean(profile, PROFILES) or f"There are {' and '.join(PROFILES)}. "
        raise UsageError(f"Unknown profile {profile!r}. {hint}".strip())
    if task is not None and task not in TASK_DEFAULTS:
        hint = did_you_mean(task, TASK_DEFAULTS) or f"There are {', '.join(TASK_DEFAULTS)}. "
        raise UsageError(f"Unknown task {task!r}. {hint}".strip())
    defaults = () if task is None else TASK_DEFAULTS[task]
    return overridden(PROFILES[profile], (*defaults, *overrides))


def overridden(settings: Settings, overrides: Sequence[str]) -> Settings:
    """Settings with some changed, each written as `detector.num_concepts=20`; the last one counts.

    Epochs take the place of steps.

    Raises:
        UsageError: names every override that cannot be taken, and why.
    """
    values = settings.to_json()
    malformed = []
    for override in overrides:
        name, equals, text = override.partition("=")
        section, dot, setting = name.strip().partition(".")
        if not (equals and dot):
            example = "Write section.setting=value, for example detector.num_concepts=20."
            malformed.append(f"{override!r} sets nothing. {example}")
            continue
        values.setdefault(section, {})[setting] = _read(kinds_of(section).get(setting), text.strip())
        if (section, setting) == ("training", "epochs"):  # which would count for nothing beside steps
            values["training"]["steps"] = 0
    return _checked(values, malformed)


def settings_from_json(value: object) -> Settings:
    """What `to_json` gave, be it of an older version, which had other settings.

    A setting that is missing has its value in `_BEFORE`, else its default.

    Raises:
        OldRunError: it is of a run with a ridge regression as its probe.
        UsageError: names every setting that is unknown or cannot have its value.
    """
    if not isinstance(value, dict) or not all(isinstance(section, dict) for section in value.values()):
        raise UsageError("Settings are an object of sections, each an object of settings.")
    known = _today(_flat(value))
    probe = known.get("detector.probe")
    if probe is True or probe == "ridge":
        raise OldRunError(
            "This run is of an older ctsan: its probe of concept words (detector.probe) is a ridge "
            "regression, which this version does not have. Train it again in another folder."
        )
    return _checked(_sections({**_BEFORE, **known}), [])


def check_resumable(file: Path, stored: Mapping[str, object], given: Mapping[str, object]) -> None:
    """Refuse to go on with other settings than those in `file`, except to train for longer.

    Both are sections as in `to_json`; `stored` may be of an older version, as in `settings_from_json`.

    Raises:
        UsageError: names every setting that differs.
    """
    now, defaults = _flat(given), _flat(Settings().to_json())
    kept = _today(_flat(stored))
    before = {name: _BEFORE.get(name, defaults[name]) for name in now if name in defaults} | kept
    longer = ("training.epochs", "training.steps", "training.patience")
    differing = [
        f"{name} is {before.get(name)} there and {now.get(name)} now"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
        and not (name in longer and name in before and name in now and now[name] > before[name])
    ]
    if differing:
        raise UsageError(
            f"{file}: this run was started with other settings: {'; '.join(differing)}. Give it the same "
            f"ones (only {', '.join(longer[:-1])} and {longer[-1]} may be raised), or name another folder "
            "for a new run."
        )


def _today(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an older version, by their names, as they are called now."""
    known = {name: value for name, value in settings.items() if name not in _REMOVED}
    for (name, value), (new_name, new_value) in _RENAMED.items():
        if name in known and known[name] == value and type(known[name]) is type(value):
            known.pop(name)
            known[new_name] = new_value
    return known


def _checked(values: Mapping[str, Mapping[str, object]], problems: list[str]) -> Settings:
    sections = {}
    for section, given in values.items():
        if section not in _SECTIONS:
            hint = did_you_mean(section, _SECTIONS) or f"There are {', '.join(_SECTIONS)}. "
            problems.append(f"Unknown section [{section}]. {hint}".strip())
            continue
        kinds, accepted = kinds_of(section), {}
        for name, value in given.items():
            if name not in kinds:
                hint = did_you_mean(name, kinds) or f"It has {', '.join(kinds)}. "
                problems.append(f"Unknown setting {name!r} in [{section}]. {hint}".strip())
            elif not _is_accepted(kinds[name], value):
                expected = kinds[name].expected
                problems.append(f"Setting {section}.{name} cannot be {value!r}. It must be {expected}.")
            else:
                accepted[name] = kinds[name].base(value)
        sections[section] = _SECTIONS[section](**accepted)
    settings = Settings(**sections)
    if settings.detector.num_concepts > settings.detector.num_candidates:
        most = settings.detector.num_candidates
        problems.append(f"Setting detector.num_concepts must be at most detector.num_candidates, {most}.")
    if problems:
        raise UsageError("\n".join(problems))
    return settings


def kinds_of(section: str) -> dict[str, _Kind]:
    """What each setting of a section may be; nothing for a section that there is not."""
    if section not in _SECTIONS:
        return {}
    hints = get_type_hints(_SECTIONS[section], include_extras=True)
    return {setting.name: hints[setting.name].__metadata__[0] for setting in fields(_SECTIONS[section])}


def _read(kind: _Kind | None, text: str) -> object:
    """Text as a value of its kind; the text itself where it is none, to be refused by the check."""
    try:
        if kind is None or kind.base is str:
            return text
        if kind.base is bool:
            return {"true": True, "false": False}.get(text.lower(), text)
        return kind.base(text)
    except ValueError:
        return text


def _is_accepted(kind: _Kind, value: object) -> bool:
    if kind.base is float and type(value) in (int, float):
        return math.isfinite(float(value)) and kind.accepts(value)  # type: ignore[arg-type]  # a number, see above
    return type(value) is kind.base and kind.accepts(value)


def _sections(flat: Mapping[str, object]) -> dict[str, dict[str, object]]:
    sections: dict[str, dict[str, object]] = {}
    for name, value in flat.items():
        section, _, setting = name.partition(".")
        sections.setdefault(section, {})[setting] = value
    return sections


def _flat(sections: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{section}.{name}": value for section, given in sections.items() for name, value in given.items()
    }
