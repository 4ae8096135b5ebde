"""Word vectors distilled from a sentence transformer: their sums approximate its sentence vectors.

They are small and fast, and carry the large model's knowledge of words that are rare or absent in captions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from ctsan.errors import UsageError
from ctsan.io.atomic import replacing
from ctsan.text.known_vectors import Vectors
from ctsan.text.tokens import tokenize
from ctsan.text.words import Progress

Teacher = Callable[..., Tensor]  # sentences to vectors (n, D); takes `progress`, see `SentenceTeacher`

_BATCH = 256
_STEPS = 3000
_LEARNING_RATE = 5e-3
_WORD_DROPOUT = 0.03  # new sentences contain words without a vector
_MAX_WORDS = 48  # per sentence
_MIN_COUNT_ELSEWHERE = 2  # of words that no caption contains: most rarer ones are misprints and names


def distil(
    captions: Sequence[str],
    other_text: Sequence[str],
    teacher: Teacher,
    *,
    dim: int,
    num_words: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Vectors:
    """Distil vectors of the words of captions and other text: caption words first, each by frequency.

    They start as the teacher's vectors of the single words, scaled by inverse document frequency. Half of
    each batch are captions if there is other text.

    Args:
        num_words: the most words.

    Raises:
        UsageError: the captions contain no words, or are all the same.
    """
    texts = [*captions, *other_text]
    tokenised = [tokenize(text)[:_MAX_WORDS] for text in texts]
    caption_counts = Counter(word for sentence in tokenised[: len(captions)] for word in sentence)
    other_counts = Counter(word for sentence in tokenised[len(captions) :] for word in sentence)
    if not caption_counts:
        raise UsageError("The training captions contain no words. 'ctsan corpus check' counts them.")
    other_words = (
        word
        for word, count in other_counts.most_common()
        if count >= _MIN_COUNT_ELSEWHERE and word not in caption_counts
    )
    words = [*(word for word, _ in caption_counts.most_common()), *other_words][:num_words]
    word_ids = {word: word_id for word_id, word in enumerate(words, start=1)}
    encoded = [[word_ids[word] for word in sentence if word in word_ids] for sentence in tokenised]
    nonempty = [index for index, sentence in enumerate(encoded) if sentence]
    num_captions = sum(index < len(captions) for index in nonempty)
    on_read = partial(progress, "reading sentences") if progress else None
    targets = teacher([texts[index] for index in nonempty], progress=on_read)
    word_targets = teacher(words)
    counts = caption_counts + other_counts
    idf = torch.tensor([math.log(len(texts) / counts[word]) for word in words]).clamp(min=0)
    if not idf.any():
        raise UsageError("The training captions are all alike, so nothing can be learnt. Write others.")
    model = _BagOfWords(F.normalize(word_targets - word_targets.mean(dim=0), dim=1) * idf[:, None], dim=dim)
    _train(
        model,
        pad_sequence([torch.tensor(encoded[index]) for index in nonempty], batch_first=True),
        targets - targets[:num_captions].mean(dim=0),
        num_captions=num_captions,
        seed=seed,
        progress=partial(progress, "learning") if progress else None,
    )
    return dict(zip(words, model.vectors().numpy(), strict=True))


class _BagOfWords(nn.Module):
    """Sums of low-dimensional word vectors, projected to the teacher's dimension."""

    def __init__(self, initial: Tensor, *, dim: int) -> None:
        """Start from the truncated SVD of the initial vectors.

        Args:
            initial: (words, D), word vectors in the teacher's space; their truncated SVD is the start.
        """
        super().__init__()
        u, s, vh = torch.linalg.svd(initial, full_matrices=False)
        self.words = nn.Embedding(len(initial) + 1, dim, padding_idx=0, sparse=True)
        self.to_teacher = nn.Linear(dim, initial.shape[1], bias=False)
        nn.init.zeros_(self.words.weight)
        nn.init.zeros_(self.to_teacher.weight)
        with torch.no_grad():
            self.words.weight[1:, : len(s)] = u[:, :dim] * s[:dim]
            self.to_teacher.weight[:, : len(s)] = vh[:dim].mT

    def forward(self, sentences: Tensor) -> Tensor:
        projected: Tensor = self.to_teacher(self.words(sentences).sum(dim=1))
        return projected

    @torch.no_grad()
    def vectors(self) -> Tensor:
        """All word vectors (words, dim), with the angles and relative lengths of their projections."""
        _, s, vh = torch.linalg.svd(self.to_teacher.weight, full_matrices=False)
        vectors: Tensor = self.words.weight[1:] @ (vh.mT * s)
        return vectors / vectors.std()


def _train(
    model: _BagOfWords,
    sentences: Tensor,
    targets: Tensor,
    *,
    num_captions: int,
    seed: int,
    progress: Callable[[int, int], object] | None,
) -> None:
    """Minimise the cosine distance to the teacher's vectors.

    Args:
        sentences: (n, T), word ids padded with 0, captions first.
        targets: (n, D), the teacher's vectors.
    """
    rng = torch.Generator().manual_seed(seed)
    num_other = len(sentences) - num_captions
    other_batch = _BATCH // 2 if num_other else 0
    optimisers = (
        torch.optim.SparseAdam(model.words.parameters()),
        torch.optim.Adam(model.to_teacher.parameters()),
    )
    for step in range(_STEPS):
        rate = _LEARNING_RATE * min(1.0, step / 100) * (1 - step / _STEPS)
        for optimiser, lr in zip(optimisers, (rate, rate / 4), strict=True):
            optimiser.param_groups[0]["lr"] = lr
            optimiser.zero_grad()
        indices = torch.randint(num_captions, (_BATCH - other_batch,), generator=rng)
        if num_other:
            other_indices = num_captions + torch.randint(num_other, (other_batch,), generator=rng)
            indices = torch.cat([indices, other_indices])
        batch = sentences[indices]
        batch = batch * (torch.rand(batch.shape, generator=rng) >= _WORD_DROPOUT)
        loss = 1 - F.cosine_similarity(model(batch), targets[indices], dim=1).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        for optimiser in optimisers:
            optimiser.step()  # type: ignore[no-untyped-call]
        if progress:
            progress(step + 1, _STEPS)


def save_vectors(file: Path, vectors: Vectors) -> None:
    """Save in the GloVe format: one line per word, the word and its vector separated by spaces."""
    with replacing(file) as temporary, temporary.open("w", encoding="utf-8") as lines:
        for word, vector in vectors.items():
            lines.write(f"{word} {' '.join(f'{number:.4f}' for number in np.asarray(vector))}\n")
