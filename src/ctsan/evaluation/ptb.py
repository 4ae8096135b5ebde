"""The Penn Treebank tokeniser of Stanford CoreNLP as pycocoevalcap uses it, the one of published figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctsan.evaluation.java import run_java
from ctsan.io.extras import extra

_SECONDS = 300
_SECONDS_PER_SENTENCE = 0.02


def ptb_tokens(sentences: Sequence[str], java: Path) -> list[str]:
    """Lower-case tokens of each sentence without punctuation, joined by spaces.

    Raises:
        JavaError: the tokeniser failed.
    """
    with extra("train", "Measuring captions"):
        from pycocoevalcap.tokenizer import ptbtokenizer

    lines = run_java(
        java,
        [
            *("-cp", ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR),
            *("edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"),
        ],
        [" ".join(sentence.split()) for sentence in sentences],
        folder=Path(ptbtokenizer.__file__).absolute().parent,
        seconds=_SECONDS + _SECONDS_PER_SENTENCE * len(sentences),
    )
    dropped = frozenset(ptbtokenizer.PUNCTUATIONS)
    # Split at plain spaces only: tokens such as "1 1/2" contain a no-break space.
    return [" ".join(token for token in line.rstrip().split(" ") if token not in dropped) for line in lines]
