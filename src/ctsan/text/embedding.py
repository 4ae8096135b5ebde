"""The word embedding: skip-gram vectors learnt from the training captions, beside others' where given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ctsan.atomic import replacing
from ctsan.errors import UsageError
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
            that are learnt here, and zeros are of other words.

    Raises:
        UsageError: these vectors leave no room for others.
    """
    from gensim.models import Word2Vec

    if vectors:
        known = next(iter(vectors.values()))
        if len(known) >= dim:
            raise UsageError(
                f"Vectors of {len(known)} numbers leave no room in word vectors of {dim} for what captions "
                f"teach. Make these longer: --set model.embedding_dim={len(known) + 200}"
            )
        learnt = learn_embedding(sentences, vocabulary, dim=dim - len(known), seed=seed)
        rows = np.stack([vectors.get(word, np.zeros_like(known)) for word in vocabulary.words])
        spread = np.stack(list(vectors.values())).std()
        return np.concatenate([rows * (learnt.std() / spread), learnt], axis=1).astype(np.float32)
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
    learnt = skip_gram.wv[list(vocabulary.words[len(SPECIALS) :])]
    special = np.random.default_rng(seed).normal(scale=learnt.std(), size=(len(SPECIALS), dim))
    special[PAD] = 0
    return np.concatenate([special, learnt]).astype(np.float32)


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
