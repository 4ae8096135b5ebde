"""How good generated sentences are: metrics of pycocoevalcap, and how many are different and right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from ctsan.text.tokens import tokenize

Sentences = dict[str, list[str]]  # by clip


def caption_scores(references: Mapping[str, Sequence[str]], captions: Mapping[str, str]) -> dict[str, float]:
    """CIDEr, BLEU-4 and ROUGE-L of one caption a clip, over our own tokens, and how different they are.

    `different` is the share of clips that would be left if every sentence were said once; for `different and
    right` only those sentences count of which every pair of neighbouring words is in the clip's references.

    Figures for publication also need the PTB tokeniser, which runs on Java; these choose checkpoints.
    """
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    truth, said = _tokenized(references, captions)
    right = {
        sentence
        for clip, [sentence] in said.items()
        if _pairs(sentence) and _pairs(sentence) <= set().union(*map(_pairs, truth[clip]))
    }
    return {
        "CIDEr": float(Cider().compute_score(truth, said)[0]),
        "BLEU-4": float(Bleu(4).compute_score(truth, said, verbose=0)[0][3]),
        "ROUGE-L": float(Rouge().compute_score(truth, said)[0]),
        "different": len({sentence for [sentence] in said.values()}) / max(len(said), 1),
        "different and right": len(right) / max(len(said), 1),
    }


def _pairs(sentence: str) -> set[tuple[str, str]]:
    return set(pairwise(sentence.split()))


def cider_of_each(references: Mapping[str, Sequence[str]], captions: Mapping[str, str]) -> dict[str, float]:
    """Every clip's own CIDEr, of which the mean is that of `caption_scores`.

    How much a word counts depends on the other clips' references: the rarer there, the more.
    """
    from pycocoevalcap.cider.cider import Cider

    truth, said = _tokenized(references, captions)
    return dict(zip(truth, map(float, Cider().compute_score(truth, said)[1]), strict=True))


def _tokenized(
    references: Mapping[str, Sequence[str]], captions: Mapping[str, str]
) -> tuple[Sentences, Sentences]:
    """References and captions as pycocoevalcap takes them, clips in one order."""
    said = {clip: [" ".join(tokenize(caption))] for clip, caption in captions.items()}
    truth = {clip: [" ".join(tokenize(caption)) for caption in references[clip]] for clip in captions}
    return truth, said
