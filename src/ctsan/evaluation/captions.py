"""How good generated sentences are: CIDEr and BLEU by pycocoevalcap, and how different they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ctsan.text.tokens import tokenize

Sentences = dict[str, list[str]]  # by clip


def caption_scores(references: Mapping[str, Sequence[str]], captions: Mapping[str, str]) -> dict[str, float]:
    """CIDEr and BLEU-4 of one caption a clip, over our own tokens, and the share of different captions.

    Figures for publication also need the PTB tokeniser, which runs on Java; these choose checkpoints.
    """
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider

    truth, said = _tokenized(references, captions)
    return {
        "CIDEr": float(Cider().compute_score(truth, said)[0]),
        "BLEU-4": float(Bleu(4).compute_score(truth, said, verbose=0)[0][3]),
        "different": len({sentences[0] for sentences in said.values()}) / max(len(said), 1),
    }


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
