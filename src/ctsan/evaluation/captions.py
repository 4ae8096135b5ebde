"""How good generated sentences are, quickly and without Java: what training chooses its checkpoints by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ctsan.evaluation.diversity import diversity
from ctsan.text.tokens import tokenize

Sentences = dict[str, list[str]]  # by clip, tokens with spaces between, as pycocoevalcap takes them


def caption_scores(references: Mapping[str, Sequence[str]], captions: Mapping[str, str]) -> dict[str, float]:
    """CIDEr, BLEU-4 and ROUGE-L of one caption a clip, over our own tokens, and how different they are.

    Figures for publication need the tokeniser that others use: see `official`.
    """
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.rouge.rouge import Rouge

    truth, said = _tokenized(references, captions)
    different = diversity(references, captions)
    return {
        "CIDEr": sum(ciders := cider_scores(truth, said)) / max(len(ciders), 1),
        "BLEU-4": float(Bleu(4).compute_score(truth, said, verbose=0)[0][3]),
        "ROUGE-L": float(Rouge().compute_score(truth, said)[0]),
        "different": different["different"],
        "different and right": different["different and right"],
    }


def cider_of_each(references: Mapping[str, Sequence[str]], captions: Mapping[str, str]) -> dict[str, float]:
    """Every clip's own CIDEr, of which the mean is that of `caption_scores`.

    How much a word counts depends on the other clips' references: the rarer there, the more.
    """
    truth, said = _tokenized(references, captions)
    return dict(zip(truth, cider_scores(truth, said), strict=True))


def cider_scores(truth: Sentences, said: Sentences) -> list[float]:
    """The CIDEr of each clip, over tokens."""
    from pycocoevalcap.cider.cider import Cider

    if not any(sentence.split() for sentences in truth.values() for sentence in sentences):
        return [0.0] * len(truth)  # of which pycocoevalcap knows nothing
    return [float(score) for score in Cider().compute_score(truth, said)[1]]


def _tokenized(
    references: Mapping[str, Sequence[str]], captions: Mapping[str, str]
) -> tuple[Sentences, Sentences]:
    """References and captions, clips in one order."""
    said = {clip: [" ".join(tokenize(caption))] for clip, caption in captions.items()}
    truth = {clip: [" ".join(tokenize(caption)) for caption in references[clip]] for clip in captions}
    return truth, said
