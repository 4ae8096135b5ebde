"""The word embedding: skip-gram vectors learnt from the training captions, and pretrained ones if given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import UsageError
from ctsan.io.arrays import check_finite, header_of, open_tensors
from ctsan.io.atomic import replacing
from ctsan.io.extras import extra
from ctsan.io.reading import DamagedFileError
from ctsan.text.files import VERSION, check_format, problem_with
from ctsan.text.known_vectors import Vectors
from ctsan.text.vocabulary import PAD, SPECIALS, Vocabulary

Embedding = NDArray[np.float32]  # (V, E): row i is the vector of word i of the vocabulary

_KIND = "ctsan-embedding"
_WINDOW = 2  # captions are short; close neighbours separate "man" from "guitar" better than distant ones
_TRAINING_WORDS = 900_000  # over all epochs: fewer underfit a small corpus, many more overfit it
_EPOCHS = (5, 50)  # fewest and most


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
    special tokens are drawn from a normal distribution with the standard deviation of the rest.

    Args:
        vectors: pretrained vectors by word. If shorter than `dim`, they are the first columns, scaled to the
            standard deviation of the skip-gram columns, and words without one have zeros there. If of length
            `dim`, they are the rows, and words without one have random rows.

    Raises:
        UsageError: the pretrained vectors are longer than `dim`.
    """
    rng = np.random.default_rng(seed)
    if not vectors:
        return _with_specials(_skip_gram(sentences, vocabulary, dim=dim, seed=seed), rng)
    zeros = np.zeros_like(next(iter(vectors.values())))
    vector_dim = len(zeros)
    if vector_dim > dim:
        raise UsageError(
            f"Pretrained vectors of length {vector_dim} do not fit into word vectors of length {dim}. Make "
            f"the word vectors as long, or longer to add skip-gram columns: --set model.embedding_dim="
            f"{vector_dim + 200}; for 'ctsan words' --dim {vector_dim + 200}"
        )
    words = vocabulary.words[len(SPECIALS) :]
    rows = np.stack([vectors.get(word, zeros) for word in words])
    std = np.stack(list(vectors.values())).std()
    if vector_dim == dim:  # zero rows would make sentences of such words indistinguishable
        missing = [index for index, word in enumerate(words) if word not in vectors]
        rows[missing] = rng.normal(scale=std, size=(len(missing), dim))
    else:
        columns = _skip_gram(sentences, vocabulary, dim=dim - vector_dim, seed=seed)
        rows = np.concatenate([rows * (_std_of_nonzero(columns) / std), columns], axis=1)
    return _with_specials(rows, rng)


def _with_specials(vectors: Embedding, rng: np.random.Generator) -> Embedding:
    special = rng.normal(scale=_std_of_nonzero(vectors), size=(len(SPECIALS), vectors.shape[1]))
    special[PAD] = 0
    return np.concatenate([special, vectors]).astype(np.float32)


def _std_of_nonzero(rows: Embedding) -> float:
    """The standard deviation of all values, without rows of zeros."""
    return float(rows[rows.any(axis=1)].std())


def _skip_gram(
    sentences: Sequence[Sequence[str]], vocabulary: Vocabulary, *, dim: int, seed: int
) -> Embedding:
    """Vectors of all words but the special tokens; zeros for words that are in no caption."""
    with extra("train", "Learning word vectors"):
        from gensim.models import Word2Vec

    in_vocabulary = [[word for word in sentence if word in vocabulary] for sentence in sentences]
    fewest, most = _EPOCHS
    skip_gram = Word2Vec(
        in_vocabulary,
        sg=1,
        vector_size=dim,
        window=_WINDOW,
        min_count=1,  # the vocabulary already excludes rare words
        epochs=min(max(_TRAINING_WORDS // sum(map(len, in_vocabulary)), fewest), most),
        seed=seed,
        workers=1,  # several workers race, which makes the result nondeterministic
    )
    vectors, zeros = skip_gram.wv, np.zeros(dim, dtype=np.float32)
    words = vocabulary.words[len(SPECIALS) :]
    return np.stack([vectors[word] if word in vectors.key_to_index else zeros for word in words])


def save_embedding(file: Path, embedding: Embedding, vocabulary: Vocabulary) -> None:
    from safetensors.numpy import save

    # A single metadata key, because safetensors writes several in random order.
    header = {"format": _KIND, "version": VERSION, "vocabulary": _digest(vocabulary)}
    with replacing(file) as temporary:
        temporary.write_bytes(save({"embedding": embedding}, metadata={"ctsan": json.dumps(header)}))


def load_embedding(file: Path, vocabulary: Vocabulary) -> Embedding:
    """Read what `save_embedding` wrote for the same vocabulary.

    Raises:
        WordsError: the file is missing, damaged, of another format, or belongs to another vocabulary.
    """
    try:
        with open_tensors(file) as content:
            header = check_format(file, _KIND, header_of(content))
            embedding: Embedding = content.get_tensor("embedding")
        check_embedding(embedding, vocabulary)
    except DamagedFileError as error:
        raise problem_with(file, str(error)) from None
    if header.get("vocabulary") != _digest(vocabulary):
        raise problem_with(file, "it was learnt for another vocabulary than the one beside it")
    return embedding


def check_embedding(embedding: Embedding, vocabulary: Vocabulary) -> None:
    """Check that an embedding is one finite vector per word of a vocabulary.

    Raises:
        DamagedFileError: it is not.
    """
    if embedding.dtype != np.float32 or embedding.ndim != 2 or 0 in embedding.shape:
        shape = "×".join(map(str, embedding.shape))
        raise DamagedFileError(f"its word vectors are {embedding.dtype} of the shape {shape}")
    if len(embedding) != len(vocabulary):
        raise DamagedFileError(f"it has {len(embedding):,} word vectors for {len(vocabulary):,} words")
    check_finite(embedding)


def _digest(vocabulary: Vocabulary) -> str:
    return hashlib.sha256("\n".join(vocabulary.words).encode("utf-8")).hexdigest()
