"""How good generated sentences are: CIDEr and BLEU by pycocoevalcap, and how different they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ctsan.text.tokens import tokenize


def caption_scores(references: Mapping[str, Sequence[str]], captions: Mapping[str, str]) -> dict[str, float]:
    """CIDEr and BLEU-4 of one caption a clip, over our own tokens, and the share of different captions.

    Figures for publication also need the PTB tokeniser, which runs on Java; these choose checkpoints.
    """
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider

    said = {clip: [" ".join(tokenize(caption))] for clip, caption in captions.items()}
    truth = {clip: [" ".join(tokenize(caption)) for caption in references[clip]] for clip in captions}
    return {
        "CIDEr": float(Cider().compute_score(truth, said)[0]),
        "BLEU-4": float(Bleu(4).compute_score(truth, said, verbose=0)[0][3]),
        "different": len({sentences[0] for sentences in said.values()}) / max(len(said), 1),
    }
