"""Word vectors whose sums point where a sentence transformer's vectors of whole sentences do.

They are small and quick, and know what a large model knows of words that captions seldom hold or never.
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

Teacher = Callable[..., Tensor]  # sentences to vectors (n, D); `progress` is told how many were read

_BATCH = 256
_STEPS = 3000
_LEARNING_RATE = 5e-3
_UNHEARD = 0.03  # of a sentence's words are left out, for sentences to come have words that are not known
_MOST_WORDS = 48  # of a sentence
_TWICE = 2  # a word must be seen so often in text that is no caption: most others are misprints and names


def distil(
    captions: Sequence[str],
    others: Sequence[str],
    teacher: Teacher,
    *,
    dim: int,
    num_words: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Vectors:
    """Vectors of the words of captions and other text, the captions' own first, the most frequent first.

    They begin as the teacher's vectors of the words alone, the rarer the longer. Half of all sentences of a
    step are captions, if there is other text.

    Args:
        num_words: at most.

    Raises:
        UsageError: captions hold no word, or all the same ones.
    """
    texts = [*captions, *others]
    read = [tokenize(text)[:_MOST_WORDS] for text in texts]
    often = Counter(word for sentence in read[: len(captions)] for word in sentence)
    elsewhere = Counter(word for sentence in read[len(captions) :] for word in sentence)
    if not often:
        raise UsageError("The training captions hold no word. Write some: 'ctsan corpus check' shows them.")
    more = (word for word, count in elsewhere.most_common() if count >= _TWICE and word not in often)
    words = [*(word for word, _ in often.most_common()), *more][:num_words]
    numbers = {word: number for number, word in enumerate(words, start=1)}
    known = [[numbers[word] for word in sentence if word in numbers] for sentence in read]
    kept = [place for place, sentence in enumerate(known) if sentence]
    num_captions = sum(place < len(captions) for place in kept)
    on_read = partial(progress, "reading sentences") if progress else None
    taught = teacher([texts[place] for place in kept], progress=on_read)
    alone = teacher(words)
    counts = often + elsewhere
    rarity = torch.tensor([math.log(len(texts) / counts[word]) for word in words]).clamp(min=0)
    if not rarity.any():
        raise UsageError("The training captions are all alike, and teach nothing. Write others.")
    model = _Sums(F.normalize(alone - alone.mean(dim=0), dim=1) * rarity[:, None], dim=dim)
    _learn(
        model,
        pad_sequence([torch.tensor(known[place]) for place in kept], batch_first=True),
        taught - taught[:num_captions].mean(dim=0),
        num_captions=num_captions,
        seed=seed,
        progress=partial(progress, "learning") if progress else None,
    )
    return dict(zip(words, model.vectors().numpy(), strict=True))


class _Sums(nn.Module):
    """Sums of word vectors of few numbers, seen among a teacher's."""

    def __init__(self, begin: Tensor, *, dim: int) -> None:
        super().__init__()
        left, sizes, right = torch.linalg.svd(begin, full_matrices=False)
        self.words = nn.Embedding(len(begin) + 1, dim, padding_idx=0, sparse=True)
        self.as_taught = nn.Linear(dim, begin.shape[1], bias=False)
        nn.init.zeros_(self.words.weight)
        nn.init.zeros_(self.as_taught.weight)
        with torch.no_grad():
            self.words.weight[1:, : len(sizes)] = left[:, :dim] * sizes[:dim]
            self.as_taught.weight[:, : len(sizes)] = right[:dim].mT

    def forward(self, sentences: Tensor) -> Tensor:
        taught: Tensor = self.as_taught(self.words(sentences).sum(dim=1))
        return taught

    @torch.no_grad()
    def vectors(self) -> Tensor:
        """Of all words (words, dim), with the angles and lengths that they have among the teacher's."""
        _, sizes, right = torch.linalg.svd(self.as_taught.weight, full_matrices=False)
        found: Tensor = self.words.weight[1:] @ (right.mT * sizes)
        return found / found.std()


def _learn(
    model: _Sums,
    sentences: Tensor,
    taught: Tensor,
    *,
    num_captions: int,
    seed: int,
    progress: Callable[[int, int], object] | None,
) -> None:
    """Args:
    sentences: (n, T), padded with 0, captions first.
    taught: (n, D).
    """
    rng = torch.Generator().manual_seed(seed)
    others = len(sentences) - num_captions
    of_others = _BATCH // 2 if others else 0
    optimisers = (
        torch.optim.SparseAdam(model.words.parameters()),
        torch.optim.Adam(model.as_taught.parameters()),
    )
    for step in range(_STEPS):
        rate = _LEARNING_RATE * min(1.0, step / 100) * (1 - step / _STEPS)
        for optimiser, own in zip(optimisers, (rate, rate / 4), strict=True):
            optimiser.param_groups[0]["lr"] = own
            optimiser.zero_grad()
        drawn = torch.randint(num_captions, (_BATCH - of_others,), generator=rng)
        if others:
            more = num_captions + torch.randint(others, (of_others,), generator=rng)
            drawn = torch.cat([drawn, more])
        read = sentences[drawn]
        read = read * (torch.rand(read.shape, generator=rng) >= _UNHEARD)
        loss = 1 - F.cosine_similarity(model(read), taught[drawn], dim=1).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        for optimiser in optimisers:
            optimiser.step()  # type: ignore[no-untyped-call]
        if progress:
            progress(step + 1, _STEPS)


def save_vectors(file: Path, vectors: Vectors) -> None:
    """In GloVe's format: a line is a word and its numbers."""
    with replacing(file) as temporary, temporary.open("w", encoding="utf-8") as lines:
        for word, vector in vectors.items():
            lines.write(f"{word} {' '.join(f'{number:.4f}' for number in np.asarray(vector))}\n")
