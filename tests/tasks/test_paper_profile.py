"""The `paper` profile against the paper: how a model begins, and its first step; and what `laptop` adds.

What is left different is listed in docs/paper.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from ctsan.baselines.nearest_words import NearestWords
from ctsan.config import Settings, load_settings
from ctsan.data.corpus import Clip, Corpus
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_detector import ConceptDetector
from ctsan.model.description_model import DescriptionModel
from ctsan.tasks.building import Model, build_model, build_task, init_from_clips
from ctsan.tasks.channel_statistics import channel_statistics
from ctsan.tasks.clips import CaptionBatch
from ctsan.tasks.description import DescriptionTask
from ctsan.text.vocabulary import PAD
from ctsan.text.words import Words
from ctsan.training.loop import train_loop
from ctsan.video.store import FeatureStore
from worked_out import Weights, attended_input, attended_output, run_lstm, sigmoid, softmax

D, A, K, GRID = 16, 8, 3, 2
SIZES = (
    f"model.hidden_dim={D}",
    "model.embedding_dim=8",
    f"detector.attention_dim={A}",
    f"detector.num_concepts={K}",
    "retrieval.sketch_dim=64",
    "retrieval.joint_dim=24",
)
TASKS: tuple[str, ...] = ("describe", "fill", "choose", "rank")


def begin(task: str, settings: Settings, words: Words, clips: Sequence[Clip], store: FeatureStore) -> Model:
    """A model as a training begins with it."""
    model: Model = build_model(task, settings, words, grid=store.grid, channels=store.channels, seed=0)
    init_from_clips(model, clips, store, words, settings.init)
    return model


@pytest.mark.parametrize("task", TASKS)
def test_a_paper_model_begins_with_xaviers_weights_and_nothing_of_the_clips(
    words: Words, clips: Sequence[Clip], store: FeatureStore, task: str
) -> None:
    model = begin(task, load_settings("paper", SIZES), words, clips, store)
    for name, tensor in model.named_parameters():
        values = tensor.detach()
        if name == "clip_encoder.embedding.weight":  # E
            assert torch.equal(values, torch.from_numpy(words.embedding))
        elif name.endswith("norm_input.bias"):  # the gates' biases: forget, input, output, content
            assert torch.equal(values[:D], torch.full((D,), math.log(3))), name
            assert not values[D:].any(), name
        elif name.endswith("bias"):  # b_p and b_y among them
            assert not values.any(), name
        elif ".norm_" in name:  # gains of layer normalisation
            assert torch.equal(values, torch.ones_like(values)), name
        else:  # every other weight, w_{x,a} and w_{h,a} as diagonals
            fans = torch.empty(len(values), len(values)) if name.endswith("gate") else values
            fan_in, fan_out = torch.nn.init._calculate_fan_in_and_fan_out(fans)
            bound = math.sqrt(6 / (fan_in + fan_out))
            assert values.abs().max() <= bound, name
            assert values.abs().max() > 0.75 * bound, name
            if values.numel() > 100:
                assert values.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.2), name
    encoder = model.clip_encoder
    assert not encoder.channel_means.any()
    assert torch.equal(encoder.channel_scales, torch.ones(store.channels))


def test_each_switch_of_init_changes_its_part_alone(
    words: Words, clips: Sequence[Clip], store: FeatureStore
) -> None:
    plain = begin("describe", load_settings("paper", SIZES), words, clips, store).state_dict()
    reached = {
        "init.standardise_channels=true": {"clip_encoder.channel_means", "clip_encoder.channel_scales"},
        "init.pca_regions=true": {"clip_encoder.reduce.conv.weight"},
        "init.word_frequencies=true": {"clip_encoder.detector.name.bias", "decode.say.bias"},
        "init.frame_memory=20": {
            f"clip_encoder.{part}.layers.{layer}.norm_input.bias"
            for part in ("detector.trace", "encode_video.lstm")
            for layer in range(2)
        },
    }
    for switch, names in reached.items():
        model = begin("describe", load_settings("paper", (*SIZES, switch)), words, clips, store)
        changed = {name for name, tensor in model.state_dict().items() if not tensor.equal(plain[name])}
        assert changed == names, switch


def test_a_laptop_model_begins_with_what_the_clips_tell(
    words: Words, clips: Sequence[Clip], store: FeatureStore
) -> None:
    own = (
        "model.num_layers=2",
        "detector.tie_traces=false",
        "detector.probe=none",
        "init.attention_gate=0.3",
    )
    model = begin("describe", load_settings("laptop", (*SIZES, *own)), words, clips, store)
    assert isinstance(model, DescriptionModel)
    encoder, detector = model.clip_encoder, model.clip_encoder.detector
    assert isinstance(encoder, ClipEncoder)
    assert isinstance(detector, ConceptDetector)
    means, scales, directions = channel_statistics(clips, store)
    assert torch.equal(encoder.channel_means, means)
    assert torch.equal(encoder.channel_scales, scales)
    rows = encoder.reduce.conv.weight[: len(directions), :, 0, 0]
    torch.testing.assert_close(rows / rows.norm(dim=1, keepdim=True), directions)
    animal, deed = 3 / 12, 4 / 12  # of the clips
    expected = torch.tensor([animal] * 4 + [deed] * 3).logit()
    torch.testing.assert_close(detector.name.bias.data, expected)
    torch.testing.assert_close(encoder.frequencies, expected.sigmoid())
    said = model.decode.say.bias.softmax(dim=0)
    share = {word: said[number].item() for number, word in enumerate(words.vocabulary.words)}
    assert share["dog"] / share["a"] == pytest.approx(6.1 / 12.1, rel=1e-4)  # of 24 captions, half with "a"
    state = model.state_dict()
    for gate in ("decode.word_input.attention.gate", "decode.output_attention.gate"):
        assert torch.equal(state[gate], torch.full_like(state[gate], 0.3))
    for layer in range(2):
        bias = state[f"clip_encoder.encode_video.lstm.layers.{layer}.norm_input.bias"]
        torch.testing.assert_close(bias[:D], torch.full((D,), math.log(19)))
        torch.testing.assert_close(bias[D : 2 * D], torch.full((D,), -math.log(5)))


def test_what_is_no_part_of_the_paper_is_standardised_in_its_profile_too(
    words: Words, clips: Sequence[Clip], store: FeatureStore
) -> None:
    for task, overrides in (
        ("embed", ()),
        ("describe", ("model.decoder=pooled", "detector.enabled=false")),
    ):
        model = begin(task, load_settings("paper", (*SIZES, *overrides)), words, clips, store)
        assert torch.equal(model.clip_encoder.channel_means, channel_statistics(clips, store).means)
    nearest = begin(
        "describe", load_settings("paper", (*SIZES, "detector.kind=nearest")), words, clips, store
    )
    assert isinstance(nearest.clip_encoder.detector, NearestWords)
    assert len(nearest.clip_encoder.detector.known_clips) == len(clips)


def convolve(x: np.ndarray, kernels: np.ndarray) -> np.ndarray:
    """(I, h, w) with (O, I, 3, 3) to (O, h, w), zeros outside."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    return np.array(
        [
            [
                [(kernel * padded[:, j : j + 3, k : k + 3]).sum() for k in range(x.shape[2])]
                for j in range(x.shape[1])
            ]
            for kernel in kernels
        ]
    )


def concept_scores(w: Weights, regions: Sequence[np.ndarray]) -> np.ndarray:
    """Equations 1 to 5 before the sigmoid, for the regions (D, h, w) of each frame of a clip."""
    p = "clip_encoder.detector."
    nothing, last = np.zeros((2, D)), []
    for trace in range(GRID * GRID):
        contexts: list[np.ndarray] = []
        for number, v in enumerate(regions):
            alpha = np.eye(GRID * GRID)[trace]
            if number:
                hidden = run_lstm(w, p + "trace", contexts, nothing, nothing)[0][-1]
                inner = convolve(v * hidden[:, None, None], w[p + "attend.first.weight"])
                inner = np.maximum(inner + w[p + "attend.first_bias"], 0)
                alpha = softmax(convolve(inner, w[p + "attend.second.weight"]).ravel())
            contexts.append(v.reshape(D, -1) @ alpha)
        last.append(run_lstm(w, p + "trace", contexts, nothing, nothing)[0][-1])
    scores: np.ndarray = w[p + "name.weight"] @ np.concatenate(last) + w[p + "name.bias"]
    return scores


def g(attention: np.ndarray) -> float:
    """Equation 15 for weights (T, K), p = 2 and q = 0.5."""
    over_steps = (attention.sum(axis=0) ** 2).sum() ** 0.5
    return float(over_steps + (attention.sum(axis=1) ** 0.5).sum() ** 2)


def paper_loss(w: Weights, batch: CaptionBatch, words: Words, *, lambda_1: float, lambda_2: float) -> float:
    """Equation 14, from the maps on: a mean over clips, of which each caption counts alike."""
    embedding = w["clip_encoder.embedding.weight"]
    total = 0.0
    for clip in range(len(batch.maps)):
        maps = batch.maps[clip][batch.frame_is_real[clip]].double().numpy()  # (N, h, w, C)
        regions = [convolve(frame.transpose(2, 0, 1), w["clip_encoder.reduce.conv.weight"]) for frame in maps]
        scores = concept_scores(w, regions)
        truth, p = batch.reference[clip].double().numpy(), sigmoid(scores)
        total += lambda_2 * -(truth * np.log(p) + (1 - truth) * np.log(1 - p)).mean()  # eq. 6
        best = np.argsort(-scores)[:K]
        a = embedding[words.vocabulary.encode([words.concepts.words[number] for number in best])]
        nothing = np.zeros((2, D))
        frames = [v.mean(axis=(1, 2)) for v in regions]
        _, hidden, cell = run_lstm(w, "clip_encoder.encode_video.lstm", frames, nothing, nothing)  # s_N
        captions = batch.captions[batch.clip_of_caption == clip].tolist()
        for caption in captions:
            sentence = [word for word in caption if word != PAD]
            x, gamma = zip(*(attended_input(w, embedding[word], a) for word in sentence[:-1]), strict=True)
            states, _, _ = run_lstm(w, "lstm", list(x), hidden, cell)
            said, beta = zip(*(attended_output(w, state, a) for state in states), strict=True)
            likelihood = sum(
                math.log(softmax(w["say.weight"] @ each + w["say.bias"])[word])
                for each, word in zip(said, sentence[1:], strict=True)
            )
            regularised = lambda_1 * (g(np.array(beta)) + g(np.array(gamma)))
            total += (-likelihood + regularised) / len(captions)
    return total / len(batch.maps)


def test_the_first_step_is_that_of_the_equations(
    words: Words, clips: Sequence[Clip], store: FeatureStore, tmp_path: Path
) -> None:
    """Loss and gradients of the model against NumPy and its differences, and the step against Adam's."""
    settings = load_settings(
        "paper",
        (*SIZES, "model.dropout=0", "detector.dropout=0", "training.batch_size=2", "training.steps=1"),
    )
    two = (clips[0], clips[4])  # of three and of four frames
    corpus = Corpus("animals", Path(), "own", two)

    def fresh() -> DescriptionTask:
        model = begin("describe", settings, words, two, store)
        task = build_task("describe", settings, words, store, corpus, model=model, split="train")
        assert isinstance(task, DescriptionTask)
        return task

    task = fresh()
    batch = task.batch([0, 1], mirrored=[False] * 2)
    model = task.model.double()
    batch = batch._replace(maps=batch.maps.double(), reference=batch.reference.double())
    loss = sum(task.losses(batch).values(), start=torch.zeros(()))
    torch.autograd.backward(loss)
    parameters = {name.removeprefix("decode."): each for name, each in model.named_parameters()}
    w: Weights = {name: each.detach().numpy().copy() for name, each in parameters.items()}
    weights = {
        "lambda_1": settings.loss.attention_weight,
        "lambda_2": settings.loss.concept_weight,
    }
    assert weights == {"lambda_1": 0.01, "lambda_2": 1.0}
    assert loss.item() == pytest.approx(paper_loss(w, batch, words, **weights), rel=1e-9)

    gradients = {name: each.grad for name, each in parameters.items() if each.grad is not None}
    assert gradients.keys() == parameters.keys()
    strongest = {name: int(each.abs().argmax()) for name, each in gradients.items()}
    for name, entry in strongest.items():
        place = np.unravel_index(entry, w[name].shape)
        slopes = []
        for step in (1e-5, -1e-5):
            moved = w | {name: w[name].copy()}
            moved[name][place] += step
            slopes.append(paper_loss(moved, batch, words, **weights))
        slope = (slopes[0] - slopes[1]) / 2e-5
        assert gradients[name].flatten()[entry].item() == pytest.approx(slope, rel=1e-4, abs=1e-8), name

    trained = fresh()
    train_loop(trained, tmp_path, optimiser=settings.optimiser, training=settings.training)
    norm = math.sqrt(sum(float(each.square().sum()) for each in gradients.values()))
    share = min(1.0, settings.optimiser.clip_norm / norm)
    for name, each in trained.model.named_parameters():
        known = name.removeprefix("decode.")
        entry = strongest[known]
        slope = share * gradients[known].flatten()[entry].item()
        step = each.detach().flatten()[entry].item() - w[known].ravel()[entry]
        assert step == pytest.approx(-1e-4 * slope / (abs(slope) + 1e-8), rel=2e-3), name
