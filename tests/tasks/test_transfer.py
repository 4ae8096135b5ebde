"""A model that starts from a trained one: what it takes over, and what it begins anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from ctsan.config import load_settings
from ctsan.data.corpus import Clip
from ctsan.errors import UsageError
from ctsan.extensions.dual_encoder import DualEncoder
from ctsan.extensions.mlp_probe import MLPProbe
from ctsan.model.caption_decoder import CaptionDecoder
from ctsan.model.choice_model import ChoiceModel
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.description_model import DescriptionModel
from ctsan.model.retrieval_model import RetrievalModel
from ctsan.tasks.building import Model, build_model, fit_probes, init_from_clips
from ctsan.tasks.transfer import init_from_model, parts_taken, settings_with
from ctsan.text.concepts import Concept, Concepts
from ctsan.text.vocabulary import Vocabulary
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore

SETTINGS = (
    "model.hidden_dim=8",
    "model.embedding_dim=8",
    "detector.attention_dim=4",
    "detector.num_concepts=3",
    "retrieval.sketch_dim=16",
    "retrieval.joint_dim=4",
)
TASKS: tuple[str, ...] = ("describe", "fill", "choose", "rank")
# Concept words as in the paper, and those of `laptop`.
PAPER_FORM = (
    "model.num_layers=2",
    "detector.probe=none",
    "detector.tie_traces=false",
    "detector.prior_weight=0",
)
LAPTOP_FORM = ("detector.probe=mlp", "detector.tie_traces=true", "detector.prior_weight=0.5")
forms = pytest.mark.parametrize("form", [PAPER_FORM, LAPTOP_FORM], ids=["paper", "laptop"])
PROBE_ROWS = {"clip_encoder.probe.name.weight", "clip_encoder.probe.name.bias"}


@pytest.fixture(scope="module")
def more(words: Words) -> Words:
    """The same words and two more, which the clips' captions do not hold."""
    vocabulary = Vocabulary((*words.vocabulary.words, "zebra", "flies"), (*words.vocabulary.counts, 4, 4))
    concepts = Concepts((*words.concepts.candidates, Concept("zebra", "noun", 4)))
    return Words(vocabulary, concepts, np.pad(words.embedding, ((0, 2), (0, 0)), constant_values=0.5))


def make(task: str, words: Words, store: FeatureStore, *overrides: str, seed: int = 0) -> Model:
    settings = load_settings("laptop", (*SETTINGS, *overrides))
    model: Model = build_model(task, settings, words, grid=store.grid, channels=store.channels, seed=seed)
    return model


def make_trained(task: str, words: Words, store: FeatureStore, *overrides: str) -> Model:
    """Every weight and every buffer has moved."""
    model = make(task, words, store, *overrides, seed=1)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point() and not name.endswith("_sign"):
                tensor.add_(0.25)
    return model


def weights(model: Model) -> dict[str, Tensor]:
    return {
        name.removeprefix("decode.").replace("read_forwards.", "lstm."): tensor.clone()
        for name, tensor in model.state_dict().items()
    }


@forms
@pytest.mark.parametrize("task", TASKS)
def test_all_of_the_same_task_is_taken_over_and_new_words_begin_anew(
    words: Words,
    more: Words,
    clips: Sequence[Clip],
    store: FeatureStore,
    task: str,
    form: tuple[str, ...],
) -> None:
    trained, model = make_trained(task, words, store, *form), make(task, more, store, *form)
    init_from_clips(model, clips, store, more, load_settings("laptop").init)
    fresh = weights(model)
    init_from_model(model, trained, transfer="shared")
    old, new = weights(trained), weights(model)
    assert new.keys() == old.keys()
    if form == LAPTOP_FORM:  # of the new clips, not of those that the trained model saw
        assert torch.equal(new.pop("clip_encoder.frequencies"), fresh["clip_encoder.frequencies"])
    grown = {name for name in new if new[name].shape != old[name].shape}
    assert grown == {
        "clip_encoder.embedding.weight",
        "clip_encoder.detector.name.weight",
        "clip_encoder.detector.name.bias",
        "clip_encoder.candidate_words",
        *(("say.weight", "say.bias") if task in ("describe", "fill") else ()),
        *(PROBE_ROWS if form == LAPTOP_FORM else ()),
    }
    for name in new.keys() - grown:
        assert torch.equal(new[name], old[name]), name
    for name in grown:
        assert torch.equal(new[name][: len(old[name])], old[name]), name
        assert torch.equal(new[name][len(old[name]) :], fresh[name][len(old[name]) :]), name
        assert len(new[name]) > len(old[name])


@forms
@pytest.mark.parametrize("task", TASKS[1:])
def test_another_task_takes_what_all_have_in_common(
    words: Words,
    more: Words,
    clips: Sequence[Clip],
    store: FeatureStore,
    task: str,
    form: tuple[str, ...],
) -> None:
    trained, model = make_trained("describe", words, store, *form), make(task, more, store, *form)
    init_from_clips(model, clips, store, more, load_settings("laptop").init)
    fresh = weights(model)
    init_from_model(model, trained, transfer="shared")
    old, new = weights(trained), weights(model)
    shared = {name for name in new if name.startswith(("clip_encoder.", "word_input.", "lstm."))}
    shared.discard("clip_encoder.frequencies")
    assert {"clip_encoder.channel_means", "clip_encoder.reduce.conv.weight"} < shared
    assert {"word_input.attention.relate", "clip_encoder.detector.attend.first.weight"} < shared
    assert ("lstm.layers.1.from_hidden.weight" in shared) == (form == PAPER_FORM)
    assert (shared >= PROBE_ROWS) == (form == LAPTOP_FORM)
    for name in shared:
        assert torch.equal(new[name][: len(old[name])], old[name]), name
    for name in new.keys() - shared:
        assert torch.equal(new[name], fresh[name]), name


@forms
@pytest.mark.parametrize("kind", ["traces", "average"])
@pytest.mark.parametrize("task", TASKS)
def test_the_detector_alone_is_taken_over_where_that_is_asked_for(
    words: Words,
    more: Words,
    clips: Sequence[Clip],
    store: FeatureStore,
    task: str,
    kind: str,
    form: tuple[str, ...],
) -> None:
    """As in the paper: with the regions that it sees and its probe, and nothing of the language."""
    settings = load_settings("paper", (*SETTINGS, f"detector.kind={kind}"))
    trained = make_trained("describe", words, store, *form, f"detector.kind={kind}")
    model = make(task, more, store, *form, f"detector.kind={kind}")
    init_from_clips(model, clips, store, more, load_settings("laptop").init)
    fresh = weights(model)
    init_from_model(model, trained, transfer=settings.training.transfer)
    old, new = weights(trained), weights(model)
    taken = {name for name in new if not torch.equal(new[name], fresh[name])}
    parts = parts_taken(trained, same_task=task == "describe", transfer="detector")
    assert parts[0] == "clip_encoder.detector"
    for name in new:
        is_taken = any(name == part or name.startswith(part + ".") for part in parts)
        assert is_taken == (name in taken), name
        if is_taken:
            rows = new[name][: len(old[name])] if old[name].dim() else new[name]
            assert torch.equal(rows, old[name]), name
    probe = {name for name in taken if name.startswith("clip_encoder.probe.")}
    assert (probe >= PROBE_ROWS) == (form == LAPTOP_FORM)
    assert {name for name in taken if not name.startswith("clip_encoder.detector.")} == probe | {
        "clip_encoder.reduce.conv.weight",
        "clip_encoder.channel_means",
        "clip_encoder.channel_scales",
    }
    regions = torch.randn(2, 3, *store.grid, store.channels)
    frame_is_real = torch.ones(2, 3, dtype=torch.bool)
    with torch.no_grad():
        theirs, ours = (
            each.clip_encoder.eval()(regions, frame_is_real).detection.scores for each in (trained, model)
        )
    torch.testing.assert_close(ours[:, : len(words.concepts)], theirs)  # it sees the same words


def test_what_has_learnt_no_detector_gives_none(words: Words, store: FeatureStore) -> None:
    for task, overrides in (
        ("embed", ()),
        ("fill", ("detector.enabled=false",)),
        ("fill", ("detector.kind=random",)),
        ("fill", ("detector.kind=nearest",)),
    ):
        trained = make(task, words, store, *overrides)
        assert parts_taken(trained, same_task=False, transfer="detector") == ()


def test_other_attentions_fit_a_detector() -> None:
    trained = load_settings("laptop", SETTINGS)
    overrides = ("attention.output=false", "model.use_video=false", "training.transfer=detector")
    given = load_settings("laptop", overrides)
    found = settings_with(given, trained, overrides=overrides, same_task=False)
    assert not found.attention.output
    wrong = (*overrides, "detector.attention_dim=5")
    with pytest.raises(UsageError, match="detector.attention_dim is 4 there and 5 here"):
        settings_with(load_settings("laptop", wrong), trained, overrides=wrong, same_task=False)


@pytest.mark.parametrize("task", ["choose", "rank"])
def test_a_comparison_begins_anew(words: Words, store: FeatureStore, task: str) -> None:
    """Words like a concept word are taken away; all else comes from the description."""
    trained, model = (
        make_trained("describe", words, store),
        make(task, words, store, "attention.contrastive_init=true"),
    )
    init_from_model(model, trained, transfer="shared")
    assert isinstance(model, ChoiceModel | RetrievalModel)
    assert isinstance(trained, DescriptionModel)
    assert isinstance(trained.decode, CaptionDecoder)
    attention, theirs = model.word_input.attention, trained.decode.word_input.attention
    assert attention is not None
    assert theirs is not None
    assert torch.equal(attention.relate, torch.eye(8))
    assert torch.equal(attention.gate, torch.full((8,), -1.0))
    assert torch.equal(attention.project.weight, theirs.project.weight)
    further = make(task, words, store, "attention.contrastive_init=true")
    with torch.no_grad():
        attention.gate.fill_(0.3)
    init_from_model(further, model, transfer="shared")
    assert isinstance(further, ChoiceModel | RetrievalModel)
    assert further.word_input.attention is not None
    assert torch.equal(further.word_input.attention.gate, attention.gate)


def test_a_description_starts_from_other_tasks_too(words: Words, store: FeatureStore) -> None:
    trained, model = make_trained("rank", words, store), make("describe", words, store)
    init_from_model(model, trained, transfer="shared")
    assert torch.equal(
        model.state_dict()["decode.word_input.attention.relate"],
        trained.state_dict()["word_input.attention.relate"],
    )
    assert parts_taken(trained, same_task=False, transfer="shared") == ("clip_encoder", "word_input", "lstm")
    everything = parts_taken(trained, same_task=True, transfer="shared")
    assert {"clip_encoder", "word_input", "lstm", "join"} < set(everything)


@pytest.mark.parametrize(
    "other",
    [
        "model.hidden_dim=9",
        "model.num_layers=1",
        "model.region_kernel=3",
        "detector.attention_dim=5",
        "detector.tie_traces=true",
        "detector.enabled=false",
        "attention.input=false",
    ],
)
def test_models_of_other_sizes_are_refused(words: Words, store: FeatureStore, other: str) -> None:
    trained = make("describe", words, store, *PAPER_FORM)
    for task in TASKS:
        with pytest.raises(UsageError, match="do not fit the new model: .*there.*here"):
            init_from_model(make(task, words, store, *PAPER_FORM, other), trained, transfer="shared")


@pytest.mark.parametrize("transfer", ["detector", "shared"])
@pytest.mark.parametrize("probes", [("none", "mlp"), ("mlp", "none")])
def test_a_probe_in_one_of_the_models_alone_is_refused(
    words: Words, store: FeatureStore, transfer: Literal["detector", "shared"], probes: tuple[str, str]
) -> None:
    """Traces beside a probe add to its scores, and traces without one name words by themselves."""
    trained, model = (make("describe", words, store, f"detector.probe={probe}") for probe in probes)
    with pytest.raises(UsageError, match="do not fit the new model: clip_encoder.probe.*there.*here"):
        init_from_model(model, trained, transfer=transfer)
    old, new = (load_settings("laptop", [f"detector.probe={probe}"]) for probe in probes)
    with pytest.raises(UsageError, match=f"detector.probe is {probes[0]} there and {probes[1]} here"):
        settings_with(new, old, overrides=[f"detector.probe={probes[1]}"], same_task=True)


def test_settings_of_the_trained_model_are_taken_unless_set() -> None:
    trained = load_settings("laptop", (*SETTINGS, "detector.dropout=0.1", "training.epochs=9"))
    overrides = ("detector.num_concepts=5", "training.batch_size=3", "model.hidden_dim=8")
    found = settings_with(
        load_settings("paper", overrides), trained, overrides=overrides, same_task=False
    ).to_json()
    assert found["model"] == trained.to_json()["model"]
    assert found["detector"] == trained.to_json()["detector"] | {"num_concepts": 5}
    given = load_settings("paper", overrides).to_json()
    for section in ("retrieval", "loss", "optimiser", "training"):  # of another task, and how it is trained
        assert found[section] == given[section]
    same = settings_with(load_settings("paper"), trained, overrides=(), same_task=True)
    assert same.retrieval == trained.retrieval


def test_settings_that_the_weights_do_not_fit_are_all_named() -> None:
    trained = load_settings("laptop", SETTINGS)
    overrides = (" model.hidden_dim = 16 ", "attention.input=false", "retrieval.joint_dim=5")
    given = load_settings("laptop", overrides)
    with pytest.raises(UsageError) as caught:
        settings_with(given, trained, overrides=overrides, same_task=True)
    message = str(caught.value)
    assert "model.hidden_dim is 8 there and 16 here" in message
    assert "attention.input is True there and False here" in message
    assert "retrieval.joint_dim is 4 there and 5 here" in message
    joint = settings_with(given, trained, overrides=overrides[2:], same_task=False).retrieval.joint_dim
    assert joint == 5  # a description has none


def test_probes_learn_new_clips_with_the_scales_that_were_taken_over(
    words: Words, more: Words, clips: Sequence[Clip], store: FeatureStore
) -> None:
    trained = make_trained("embed", words, store)
    model = make("embed", more, store, "retrieval.phrases=50")
    init_from_clips(model, clips, store, more, load_settings("laptop").init)
    fit_probes(model, clips, store, more)
    assert isinstance(model, DualEncoder)
    assert model.phrases is not None
    before = model.phrases.clip.clone()
    init_from_model(model, trained, transfer="shared")
    assert torch.equal(model.phrases.clip, before)  # nothing of phrases is taken over
    fit_probes(model, clips, store, more)
    assert not torch.allclose(model.phrases.clip, before)
    again = make("embed", more, store, "retrieval.phrases=50")
    assert isinstance(again, DualEncoder)
    assert again.phrases is not None
    again.clip_encoder.init_from(trained.clip_encoder.channel_means, trained.clip_encoder.channel_scales)
    fit_probes(again, clips, store, more)
    for name, tensor in again.phrases.state_dict().items():
        assert torch.equal(tensor, model.phrases.state_dict()[name]), name


@pytest.mark.parametrize("keep", [True, False])
def test_a_probe_of_concept_words_is_kept_or_learns_the_new_clips(
    more: Words, clips: Sequence[Clip], store: FeatureStore, keep: bool
) -> None:
    model = make("describe", more, store, "detector.probe=mlp")
    assert isinstance(model.clip_encoder, ClipEncoder)
    probe = model.clip_encoder.probe
    assert isinstance(probe, MLPProbe)
    probe.name.weight.fill_(7.0)
    rarest = probe.name.bias.clone()
    fit_probes(model, clips, store, more, keep_concept_probe=keep)
    assert bool((probe.name.weight == 7).all()) == keep
    assert bool((probe.name.bias > rarest + 1).any()) != keep


@torch.no_grad()
def test_a_probe_that_is_kept_expects_no_new_word(
    words: Words, more: Words, clips: Sequence[Clip], store: FeatureStore
) -> None:
    """It has learnt nothing of them: they must not come before the words that it knows."""
    trained, model = (make("describe", each, store, "detector.probe=mlp") for each in (words, more))
    fit_probes(trained, clips, store, words)
    init_from_model(model, trained, transfer="shared")
    fit_probes(model, clips, store, more, keep_concept_probe=True)
    seen = torch.from_numpy(store[clips[0].id].maps).float()[None]
    is_real = torch.ones(1, seen.shape[1], dtype=torch.bool)

    def probed(model: Model) -> Tensor:
        encoder = model.clip_encoder
        assert isinstance(encoder, ClipEncoder)
        assert isinstance(encoder.probe, MLPProbe)
        scores: Tensor = encoder.probe(encoder.means(seen, is_real))[0].sigmoid()
        return scores

    known, scores = probed(trained), probed(model)
    torch.testing.assert_close(scores[: len(known)], known)
    assert scores[len(known) :].max() < 0.01
