"""Which K of the candidates are a clip's concept words: those with the highest p - w q."""

from __future__ import annotations

import torch

from ctsan.baselines.average_detector import AverageDetector
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_detector import Detection

# man, plays, playing, piano, guitar; the second and the third are forms of one word
FREQUENCIES = torch.tensor([0.6, 0.1, 0.1, 0.01, 0.02])
LEMMAS = torch.tensor([0, 1, 1, 2, 3])
CONFIDENCES = torch.tensor([[0.65, 0.4, 0.5, 0.3, 0.02], [0.9, 0.12, 0.1, 0.0, 0.3]])


def encoder(prior_weight: float = 1.0, *, num_concepts: int = 3) -> ClipEncoder:
    torch.manual_seed(0)
    made = ClipEncoder(
        channels=6,
        embedding=torch.randn(5, 4),
        candidate_words=torch.arange(5),
        hidden_dim=8,
        detector=AverageDetector(hidden_dim=8, num_layers=1, num_candidates=5),
        num_concepts=num_concepts,
        prior_weight=prior_weight,
        lemmas=LEMMAS,
    )
    made.init_from(prior=FREQUENCIES)
    return made.eval()


def detection() -> Detection:
    return Detection(CONFIDENCES.logit(eps=1e-6), torch.zeros(2, 1, 0, 1, 1), torch.zeros(2, 0, 1))


def test_without_a_prior_the_surest_words_are_taken() -> None:
    words, confidences = encoder(0.0).top(detection().scores)
    assert words.tolist() == [[0, 2, 1], [0, 4, 1]]
    torch.testing.assert_close(confidences[0], torch.tensor([0.65, 0.5, 0.4]))


def test_the_prior_is_taken_away_and_a_lemma_counts_once() -> None:
    """Of "playing" (.4) and "plays" (.3) the first is kept; "man" rises by .05 only."""
    words, confidences = encoder().top(detection().scores)
    assert words.tolist() == [[2, 3, 0], [0, 4, 1]]
    torch.testing.assert_close(confidences[0], torch.tensor([0.5, 0.3, 0.65]))


def test_half_of_the_prior_prefers_sure_words_more() -> None:
    """ "man" has .65 - .3 = .35, behind "playing" with .45 and before "piano" with .295."""
    words, _ = encoder(0.5).top(detection().scores)
    assert words[0].tolist() == [2, 0, 3]


def test_a_second_form_comes_only_where_lemmas_run_out() -> None:
    words, _ = encoder(num_concepts=5).top(detection().scores)
    assert words[0].tolist() == [2, 3, 0, 4, 1]


def test_words_of_training_can_be_chosen_by_other_scores_than_the_detectors() -> None:
    made = encoder()
    maps, frame_is_real = torch.randn(2, 3, 2, 2, 6), torch.ones(2, 3, dtype=torch.bool)
    scores = torch.full((2, 5), -9.0)
    scores[0, [1, 3]] = scores[1, [4, 0]] = 9.0
    encoding = made(maps, frame_is_real, scores)
    assert encoding.concept_words[:, :2].tolist() == [[3, 1], [4, 0]]
    torch.testing.assert_close(encoding.concepts[0, 0], made.embedding.weight[3])
    own = made(maps, frame_is_real)
    assert encoding.detection is not None
    assert own.detection is not None
    torch.testing.assert_close(encoding.detection.scores, own.detection.scores)  # what it learns by stays
    none = made(maps, frame_is_real, torch.zeros(2, 0))
    assert torch.equal(none.concept_words, own.concept_words)


def test_what_is_no_word_comes_after_words_below_their_frequency() -> None:
    """As in NN-SAN, whose neighbour has few words: confidence 0 is none, not a small lift."""
    confidences = torch.tensor([[0.4, 0.0, 0.0, 0.5, 0.0]])
    words, found = encoder(num_concepts=2).top(confidences.logit())
    assert words.tolist() == [[3, 0]]
    assert (found > 0).all()
