"""The Penn Treebank tokeniser of Stanford CoreNLP, as pycocoevalcap uses it: published figures rest on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctsan.evaluation.java import run_java

_SECONDS = 300
_SECONDS_PER_SENTENCE = 0.02


def ptb_tokens(sentences: Sequence[str], java: Path) -> list[str]:
    """Lower-case tokens of each sentence without punctuation, with spaces between.

    Raises:
        JavaError: the tokeniser failed.
    """
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
    # A blank alone parts tokens: some, such as "1 1/2", hold another kind of space.
    return [" ".join(token for token in line.rstrip().split(" ") if token not in dropped) for line in lines]
