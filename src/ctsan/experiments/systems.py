"""The systems compared: name, description, and the settings in which each differs from CT-SAN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

MeasuredTask = Literal["describe", "fill", "choose", "rank"]
ALL: tuple[MeasuredTask, ...] = get_args(MeasuredTask)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A system that is trained with every seed and evaluated."""

    name: str
    label: str
    about: str
    measured: tuple[MeasuredTask, ...]
    overrides: tuple[str, ...] = ()
    learns: str | None = None  # one training task for all evaluated tasks; by default one each

    def training(self, measured: MeasuredTask) -> str:
        """Return the task to train for an evaluated task."""
        return self.learns or measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """All seeds of a system as an ensemble."""

    name: str
    label: str
    about: str
    measured: tuple[MeasuredTask, ...]
    of: str


_SIMPLE = ("detector.enabled=false", "model.num_layers=1")

SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        System(
            name="ct-san",
            label="CT-SAN",
            about="traces find ten concept words, both semantic attentions use them, all is learnt together",
            measured=ALL,
        ),
        System(
            name="base-san",
            label="Base-SAN",
            about="CT-SAN without concept words and without semantic attention",
            measured=ALL,
            overrides=("detector.enabled=false",),
        ),
        System(
            name="rand-san",
            label="rand-SAN",
            about="CT-SAN with concept words drawn at random from the candidates",
            measured=ALL,
            overrides=("detector.kind=random",),
        ),
        System(
            name="rand-san-fixed",
            label="rand-SAN, fixed words",
            about="the other reading of rand-SAN: a clip's random words are the same in every step",
            measured=ALL,
            overrides=("detector.kind=random", "detector.random_words=fixed"),
        ),
        System(
            name="no-att-san",
            label="no-ATT-SAN",
            about="one LSTM over frames averaged over the picture finds the words, in place of the traces",
            measured=ALL,
            overrides=("detector.kind=average",),
        ),
        System(
            name="nn-san",
            label="NN-SAN",
            about="the concept words are those of the nearest training clip",
            measured=ALL,
            overrides=("detector.kind=nearest",),
        ),
        System(
            name="ct-san-alone",
            label="CT-SAN, from nothing",
            about="CT-SAN without transfer: it does not start from the description model",
            measured=("fill", "choose", "rank"),
        ),
        System(
            name="decoupled",
            label="Decoupled CT-SAN",
            about="the detector is trained first, for as many steps, and stays so while the rest learns",
            measured=ALL,
            overrides=("detector.kind=decoupled", "detector.probe=none"),
        ),
        System(
            name="ct-san-weighted",
            label="CT-SAN, weighted words",
            about="the other reading of end-to-end: concept words count by their confidence, so that the "
            "language loss trains the detector",
            measured=ALL,
            overrides=("detector.confidence_weighted=true",),
        ),
        System(
            name="ct-san-k5",
            label="CT-SAN (K = 5)",
            about="CT-SAN with five concept words",
            measured=("describe", "fill", "choose"),
            overrides=("detector.num_concepts=5",),
        ),
        System(
            name="ct-san-k20",
            label="CT-SAN (K = 20)",
            about="CT-SAN with twenty concept words",
            measured=("describe", "fill", "choose"),
            overrides=("detector.num_concepts=20",),
        ),
        System(
            name="only-input",
            label="only input",
            about="CT-SAN whose semantic attention works on words that are read only",
            measured=("describe", "fill"),
            overrides=("attention.output=false",),
        ),
        System(
            name="only-output",
            label="only output",
            about="CT-SAN whose semantic attention works only on words that are generated",
            measured=("describe", "fill"),
            overrides=("attention.input=false",),
        ),
        System(
            name="simple-lstm",
            label="Simple-LSTM",
            about="one layer reads the sentence up to the blank, and no clip",
            measured=("fill",),
            overrides=(*_SIMPLE, "model.bidirectional=false", "model.use_video=false"),
        ),
        System(
            name="simple-blstm",
            label="Simple-BLSTM",
            about="one layer reads the sentence from both ends, and no clip",
            measured=("fill",),
            overrides=(*_SIMPLE, "model.use_video=false"),
        ),
        System(
            name="simple-lstm-clip",
            label="Simple-LSTM with the clip",
            about="Simple-LSTM that starts from the video encoder's state",
            measured=("fill",),
            overrides=(*_SIMPLE, "model.bidirectional=false"),
        ),
        System(
            name="simple-blstm-clip",
            label="Simple-BLSTM with the clip",
            about="Simple-BLSTM that starts from the video encoder's state",
            measured=("fill",),
            overrides=_SIMPLE,
        ),
        System(
            name="s2vt",
            label="S2VT",
            about="one stack of two LSTMs watches, then speaks (Venugopalan et al., 2015)",
            measured=("describe",),
            overrides=("model.decoder=s2vt", "detector.enabled=false"),
        ),
        System(
            name="temporal-attention",
            label="Temporal attention",
            about="the decoder looks at the frames anew before each word (Yao et al., 2015)",
            measured=("describe",),
            overrides=("model.decoder=temporal", "detector.enabled=false"),
        ),
        System(
            name="dual-encoder",
            label="Dual encoder",
            about="order-free: a bag of words against the mean of all frames; one training for both tasks",
            measured=("choose", "rank"),
            overrides=("retrieval.phrases=0",),  # phrases rerank captions; this system generates none
            learns="embed",
        ),
    )
}

ENSEMBLES: dict[str, Ensemble] = {
    ensemble.name: ensemble
    for ensemble in (
        Ensemble(
            name="ct-san-ensemble",
            label="CT-SAN (ensemble)",
            about="all seeds of CT-SAN as one; in retrieval one model of multiple choice joins them",
            measured=("fill", "choose", "rank"),
            of="ct-san",
        ),
        Ensemble(
            name="base-san-ensemble",
            label="Base-SAN (ensemble)",
            about="all seeds of Base-SAN as one, likewise",
            measured=("fill", "choose", "rank"),
            of="base-san",
        ),
    )
}


def label_of(name: str) -> str:
    return (SYSTEMS.get(name) or ENSEMBLES[name]).label
