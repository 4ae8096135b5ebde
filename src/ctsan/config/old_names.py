"""Settings of older versions: what they are called now, and what they amounted to where they are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Settings that settings.json of an older run lacks, with the value that the code of that time amounted to: a
# later default changes no older run.
BEFORE: Mapping[str, object] = {
    "decoding.skip_faulty": False,
    "detector.prior_weight": 0.0,
    "detector.random_words": "redrawn",
    "detector.tie_traces": False,
    "ensemble.standardise": True,
    "init.attention_gate": 0.1,
    "init.frame_memory": 20,
    "init.pca_regions": True,
    "init.standardise_channels": True,
    "init.word_frequencies": True,
    "loss.retrieval_negatives": "both",
    "retrieval.hidden_dim": 0,
    "retrieval.match_top_k": 0,
    "training.out_of_fold": False,
    "training.transfer": "shared",
}

# They have no effect any more.
REMOVED = frozenset(
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

RENAMED: Mapping[str, str] = {
    "attention.compares": "attention.contrastive_init",
    "decoding.expecting": "rerank.cider_weight",
    "decoding.repeats": "decoding.no_repeat_ngram",
    "decoding.suiting": "rerank.embedding_weight",
    "detector.pace": "detector.lr_scale",
    "detector.rank_by": "detector.prior_weight",
    "detector.weighted": "detector.confidence_weighted",
    "model.both_ways": "model.bidirectional",
    "model.say_from_words": "model.init_output_from_embeddings",
    "model.sees_clip": "model.use_video",
    "optimiser.averaging": "optimiser.ema_decay",
    "retrieval.more_words": "retrieval.extra_vocabulary",
    "retrieval.regression": "retrieval.ridge_init",
    "training.keep_clips": "training.freeze_clip_encoder",
    "training.mirror": "training.hflip",
}

# Values that are written otherwise now, by the setting's old name.
_VALUES: Mapping[str, Mapping[object, object]] = {
    "decoding.repeats": {True: 0, False: 2, "true": "0", "false": "2"},
    "detector.probe": {False: "none"},
    "detector.rank_by": {"confidence": 0.0, "lift": 1.0},
}


def current(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an older version, by their whole names, as they are called and written now."""
    found = {}
    for name, value in settings.items():
        if name not in REMOVED:
            found[RENAMED.get(name, name)] = current_value(name, value)
    return found


def current_value(name: str, value: Any) -> Any:
    """A value of a setting with an old name, or with a new one, as it is written now."""
    values = _VALUES.get(name, {})
    same = [new for old, new in values.items() if old == value and type(old) is type(value)]
    return same[0] if same else value
