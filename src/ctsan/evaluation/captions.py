"""Fast caption metrics without Java, by which training selects its best checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ctsan.evaluation.diversity import diversity
from ctsan.io.extras import extra
from ctsan.text.tokens import tokenize

Sentences = dict[str, list[str]]  # by clip; tokens joined by spaces, as pycocoevalcap expects them


def caption_scores(references: Mapping[str, Sequence[str]], captions: Mapping[str, str]) -> dict[str, float]:
    """CIDEr, BLEU-4, ROUGE-L and diversity of one caption per clip, over the tokens of `tokenize`.

    Published figures use the PTB tokeniser: see `coco_metrics`.
    """
    with extra("train", "Measuring captions"):
        from pycocoevalcap.bleu.bleu import Bleu
        from pycocoevalcap.rouge.rouge import Rouge

    reference_tokens, caption_tokens = _tokenized(references, captions)
    shares = diversity(references, captions)
    return {
        "CIDEr": sum(ciders := cider_scores(reference_tokens, caption_tokens)) / max(len(ciders), 1),
        "BLEU-4": float(Bleu(4).compute_score(reference_tokens, caption_tokens, verbose=0)[0][3]),
        "ROUGE-L": float(Rouge().compute_score(reference_tokens, caption_tokens)[0]),
        "different": shares["different"],
        "different and right": shares["different and right"],
    }


def cider_by_clip(references: Mapping[str, Sequence[str]], captions: Mapping[str, str]) -> dict[str, float]:
    """The CIDEr of every clip; `caption_scores` reports their mean.

    CIDEr weights n-grams by their inverse document frequency over the references of all clips.
    """
    reference_tokens, caption_tokens = _tokenized(references, captions)
    return dict(zip(reference_tokens, cider_scores(reference_tokens, caption_tokens), strict=True))


def cider_scores(references: Sentences, captions: Sentences) -> list[float]:
    """The CIDEr of each clip from tokenised references and captions."""
    with extra("train", "Measuring captions"):
        from pycocoevalcap.cider.cider import Cider

    if not any(sentence.split() for sentences in references.values() for sentence in sentences):
        return [0.0] * len(references)  # pycocoevalcap fails without any reference token
    return [float(score) for score in Cider().compute_score(references, captions)[1]]


def _tokenized(
    references: Mapping[str, Sequence[str]], captions: Mapping[str, str]
) -> tuple[Sentences, Sentences]:
    """Tokenised references and captions, clips in the same order."""
    caption_tokens = {clip: [" ".join(tokenize(caption))] for clip, caption in captions.items()}
    reference_tokens = {
        clip: [" ".join(tokenize(reference)) for reference in references[clip]] for clip in captions
    }
    return reference_tokens, caption_tokens
