"""The words of a corpus, prepared before training: vocabulary, concept candidates and embedding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from ctsan.errors import abridged
from ctsan.io.atomic import replacing_folder
from ctsan.text.concepts import Concepts
from ctsan.text.embedding import Embedding, learn_embedding, load_embedding, save_embedding
from ctsan.text.files import problem_with
from ctsan.text.known_vectors import read_vectors
from ctsan.text.tagging import load_tagger
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import SPECIALS, Vocabulary

VOCABULARY_FILE = "vocabulary.json"
CONCEPTS_FILE = "concepts.json"
EMBEDDING_FILE = "embedding.safetensors"

Progress = Callable[[str, int, int], None]  # the name of the step, how much is done, the total


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no plain equality
class Words:
    vocabulary: Vocabulary
    concepts: Concepts
    embedding: Embedding  # (V, E), one row per word of the vocabulary

    def extended_by(self, new: Words) -> Words:
        """These words with the new words of another corpus appended; ids and indices do not change."""
        new_counts = zip(new.vocabulary.words, new.vocabulary.counts, strict=True)
        added = {word: count for word, count in new_counts if word not in self.vocabulary}
        old_concepts = frozenset(self.concepts.words)
        added_concepts = (concept for concept in new.concepts.candidates if concept.word not in old_concepts)
        lemmas = {concept.word: concept.lemma for concept in new.concepts.candidates}
        kept_concepts = (  # those of an older version have no lemma
            concept if concept.lemma else replace(concept, lemma=lemmas.get(concept.word, ""))
            for concept in self.concepts.candidates
        )
        return Words(
            Vocabulary((*self.vocabulary.words, *added), (*self.vocabulary.counts, *added.values())),
            Concepts((*kept_concepts, *added_concepts)),
            np.concatenate([self.embedding, self._aligned_vectors(list(added), new)]),
        )

    def with_vectors_of(self, other: Words) -> Words:
        """These words with the vectors of another corpus; words that it lacks keep theirs, aligned to it."""
        union = other.extended_by(self)
        return replace(self, embedding=union.embedding[union.vocabulary.encode(self.vocabulary.words)])

    def _aligned_vectors(self, added: list[str], new: Words) -> Embedding:
        """The vectors of another corpus' words, aligned to this embedding.

        Embeddings that are learnt independently differ by an arbitrary rotation. It is estimated from the
        words that both have (orthogonal Procrustes), and the scale from the norm of their vectors.
        """
        shared = [word for word in new.vocabulary.words[len(SPECIALS) :] if word in self.vocabulary]
        target = self.embedding[self.vocabulary.encode(shared)].astype(np.float64)  # (shared, E)
        source = new.embedding[new.vocabulary.encode(shared)].astype(np.float64)
        u, _, vh = np.linalg.svd(source.T @ target)
        scale = np.linalg.norm(target) / np.linalg.norm(source) if shared else 1.0
        vectors: Embedding = new.embedding[new.vocabulary.encode(added)] @ (scale * u @ vh)
        return vectors.astype(np.float32)

    def save(self, folder: Path) -> None:
        """Write the three files, all or none, creating the folder if needed; twice gives the same bytes."""
        with replacing_folder(folder) as temporary:
            self.vocabulary.save(temporary / VOCABULARY_FILE)
            self.concepts.save(temporary / CONCEPTS_FILE)
            save_embedding(temporary / EMBEDDING_FILE, self.embedding, self.vocabulary)

    @classmethod
    def load(cls, folder: Path, *, embedding: Embedding | None = None) -> Self:
        """Read what `save` wrote.

        Args:
            embedding: replaces that of the folder, whose file may then be missing.

        Raises:
            WordsError: files are missing, damaged or inconsistent.
        """
        names = [VOCABULARY_FILE, CONCEPTS_FILE, *([EMBEDDING_FILE] if embedding is None else [])]
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise problem_with(folder, f"it does not contain {' or '.join(missing)}")
        vocabulary = Vocabulary.load(folder / VOCABULARY_FILE)
        concepts = Concepts.load(folder / CONCEPTS_FILE)
        if unknown := [word for word in concepts.words if word not in vocabulary]:
            what = f"{len(unknown)} candidates, such as {abridged(unknown[0])}, are not in {VOCABULARY_FILE}"
            raise problem_with(folder / CONCEPTS_FILE, what)
        if embedding is None:
            embedding = load_embedding(folder / EMBEDDING_FILE, vocabulary)
        elif len(embedding) != len(vocabulary):
            what = f"it has {len(vocabulary):,} words, and the weights have vectors of {len(embedding):,}"
            raise problem_with(folder / VOCABULARY_FILE, what, remedy="Put it back from a copy")
        return cls(vocabulary, concepts, embedding)


def prepare_words(
    captions: Iterable[str],
    *,
    num_concepts: int = 2000,
    min_count: int = 4,
    embedding_dim: int = 300,
    seed: int = 0,
    vectors: Path | None = None,
    extra_vocabulary: int = 0,
    progress: Progress | None = None,
) -> Words:
    """Prepare the words of a corpus from its training captions, and from pretrained vectors if given.

    Pass captions of the training split only; captions of other splits would leak into the vocabulary, the
    concept candidates and the embedding.

    Args:
        vectors: a file of word vectors: see `read_vectors`.
        extra_vocabulary: how many further words of that file to add, for queries that contain them.

    Raises:
        UsageError: no word occurs `min_count` times, or the vectors are longer than `embedding_dim`.
        WordsError: the file of vectors cannot be used.
    """
    sentences = [tokenize(caption) for caption in captions]
    vocabulary = Vocabulary.build(sentences, min_count=min_count)
    pretrained = read_vectors(vectors, vocabulary.words, extra=extra_vocabulary) if vectors else None
    concepts = Concepts.build(
        sentences,
        vocabulary,
        load_tagger(),
        num_concepts=num_concepts,
        progress=partial(progress, "tagging sentences") if progress else None,
    )
    if progress:
        progress("learning the embedding", 0, 1)
    vocabulary = vocabulary.with_words(pretrained or ())
    embedding = learn_embedding(sentences, vocabulary, dim=embedding_dim, seed=seed, vectors=pretrained)
    if progress:
        progress("learning the embedding", 1, 1)
    return Words(vocabulary, concepts, embedding)
