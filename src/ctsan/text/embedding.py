"""The word embedding: skip-gram vectors learnt from the training captions, beside others' where given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import UsageError
from ctsan.io.atomic import replacing
from ctsan.text.files import VERSION, check_format, problem_with
from ctsan.text.known_vectors import Vectors
from ctsan.text.vocabulary import PAD, SPECIALS, Vocabulary

Embedding = NDArray[np.float32]  # (V, E): the row of a word is its number in the vocabulary

_KIND = "ctsan-embedding"
_WINDOW = 2  # captions are short, and near neighbours tell a man from a guitar better than far ones
_WORDS_TO_READ = 900_000  # fewer leave a small corpus unlearnt, many more learn its accidents by heart
_EPOCHS = (5, 50)


def learn_embedding(
    sentences: Sequence[Sequence[str]],
    vocabulary: Vocabulary,
    *,
    dim: int = 300,
    seed: int = 0,
    vectors: Vectors | None = None,
) -> Embedding:
    """Skip-gram vectors of the vocabulary's words, from tokenised training captions.

    The same captions in the same order and the same seed give the same bytes. `<pad>` is zero; the other
    special tokens, which captions do not hold, are drawn from a normal distribution as wide as the rest.

    Args:
        vectors: of words, learnt elsewhere: they are the first numbers of these words' rows, as wide as those
            that are learnt here, and zeros are of other words; or whole rows, and others are drawn.

    Raises:
        UsageError: these vectors are too long.
    """
    rng = np.random.default_rng(seed)
    if not vectors:
        return _with_specials(_skip_gram(sentences, vocabulary, dim=dim, seed=seed), rng)
    nothing = np.zeros_like(next(iter(vectors.values())))
    if len(nothing) > dim:
        raise UsageError(
            f"Vectors of {len(nothing)} numbers do not fit into word vectors of {dim}. Make these as long, "
            f"or longer for what captions teach: --set model.embedding_dim={len(nothing) + 200}; for 'ctsan "
            f"words' --dim {len(nothing) + 200}"
        )
    words = vocabulary.words[len(SPECIALS) :]
    rows = np.stack([vectors.get(word, nothing) for word in words])
    spread = np.stack(list(vectors.values())).std()
    if len(nothing) == dim:  # sentences of words that the file has not would be nothing at all
        strange = [place for place, word in enumerate(words) if word not in vectors]
        rows[strange] = rng.normal(scale=spread, size=(len(strange), dim))
    else:
        learnt = _skip_gram(sentences, vocabulary, dim=dim - len(nothing), seed=seed)
        rows = np.concatenate([rows * (_spread(learnt) / spread), learnt], axis=1)
    return _with_specials(rows, rng)


def _with_specials(learnt: Embedding, rng: np.random.Generator) -> Embedding:
    special = rng.normal(scale=_spread(learnt), size=(len(SPECIALS), learnt.shape[1]))
    special[PAD] = 0
    return np.concatenate([special, learnt]).astype(np.float32)


def _spread(rows: Embedding) -> float:
    """How wide vectors are, without those of words of which nothing is known."""
    return float(rows[rows.any(axis=1)].std())


def _skip_gram(
    sentences: Sequence[Sequence[str]], vocabulary: Vocabulary, *, dim: int, seed: int
) -> Embedding:
    """Of all words but the special ones; zeros of those that captions do not hold."""
    from gensim.models import Word2Vec

    read = [[word for word in sentence if word in vocabulary] for sentence in sentences]
    fewest, most = _EPOCHS
    skip_gram = Word2Vec(
        read,
        sg=1,
        vector_size=dim,
        window=_WINDOW,
        min_count=1,  # the vocabulary has already left rare words out
        epochs=min(max(_WORDS_TO_READ // sum(map(len, read)), fewest), most),
        seed=seed,
        workers=1,  # two would race, and every run would differ
    )
    learnt, nothing = skip_gram.wv, np.zeros(dim, dtype=np.float32)
    words = vocabulary.words[len(SPECIALS) :]
    return np.stack([learnt[word] if word in learnt.key_to_index else nothing for word in words])


def save_embedding(file: Path, embedding: Embedding, vocabulary: Vocabulary) -> None:
    from safetensors.numpy import save

    # One key of metadata: safetensors writes several in no fixed order.
    header = {"format": _KIND, "version": VERSION, "vocabulary": _digest(vocabulary)}
    with replacing(file) as temporary:
        temporary.write_bytes(save({"embedding": embedding}, metadata={"ctsan": json.dumps(header)}))


def load_embedding(file: Path, vocabulary: Vocabulary) -> Embedding:
    """Read what `save_embedding` wrote for the same vocabulary.

    Raises:
        WordsError: the file is missing, damaged, something else, or belongs to another vocabulary.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as content:
            header = check_format(file, _KIND, json.loads((content.metadata() or {}).get("ctsan", "{}")))
            embedding: Embedding = content.get_tensor("embedding")
    except FileNotFoundError:
        raise problem_with(file, "there is no such file") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise problem_with(file, f"this is not a whole safetensors file ({error})") from None
    if header.get("vocabulary") != _digest(vocabulary):
        raise problem_with(file, "it was learnt for another vocabulary than the one beside it")
    return embedding


def _digest(vocabulary: Vocabulary) -> str:
    return hashlib.sha256("\n".join(vocabulary.words).encode("utf-8")).hexdigest()
