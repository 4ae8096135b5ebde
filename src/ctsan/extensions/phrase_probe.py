"""What people would say of a clip, by its mean feature alone: phrases of one to four words.

Not in the paper. CIDEr (Vedantam et al., 2015) is the likeness of a sentence's phrases and those of a clip's
captions. Captions of a new clip are not known, but how much each phrase would weigh in them can be guessed by
a linear regression on its mean feature, and so can the CIDEr of any sentence: of several it tells the best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

LONGEST = 4  # words of a phrase

_RIDGE = 3000.0  # as much as so many clips that tell nothing
_OTHERS = 0.05  # of a clip's weight has one that others have captioned
_WORDS = 1 << 15  # four of so many words make one number for certain; with more, few phrases share theirs
_MOST_WORDS = 30  # of a caption
_NO_PHRASE = torch.iinfo(torch.long).max  # after all keys of phrases


class PhraseProbe(nn.Module):
    """Ridge regression of few directions, worked out before any training and left as it is.

    Args:
        channels: of the mean features.
        num_phrases: those that most clips have in their captions; there may be fewer.
        directions: in which what is said of clips differs most.
    """

    keys: Tensor
    rarity: Tensor
    often: Tensor
    phrase: Tensor
    clip: Tensor
    unheard: Tensor

    def __init__(self, *, channels: int, num_phrases: int, directions: int = 64) -> None:
        super().__init__()
        self.register_buffer("keys", torch.full((num_phrases,), _NO_PHRASE))  # sorted
        self.register_buffer("rarity", torch.zeros(num_phrases))  # CIDEr's weight of a phrase
        self.register_buffer("often", torch.zeros(num_phrases))  # its mean share in captions
        self.register_buffer("phrase", torch.zeros(num_phrases, directions))
        self.register_buffer("clip", torch.zeros(directions, channels))
        self.register_buffer("unheard", torch.ones(()))  # the rarity of all other phrases

    @torch.no_grad()
    def fit(self, means: Tensor, captions: Sequence[Sequence[Sequence[int]]], is_own: Tensor) -> None:
        """Learn from training clips.

        Args:
            means: (n, C), the clips' mean features as `forward` will get them.
            captions: of each clip, in numbers of words.
            is_own: (n,), False of clips that others have captioned, who use phrases as often as they like.
        """
        clip_of = torch.tensor([clip for clip, own in enumerate(captions) for _ in own])
        read = [torch.tensor(caption[:_MOST_WORDS]) for own in captions for caption in own]
        keys = self._keys(pad_sequence(read, batch_first=True))  # (M, 4, T)
        clips = clip_of[:, None, None].expand_as(keys)
        self._know_phrases(keys, clips, is_own)
        places, shares = self._shares(keys)
        known = places >= 0
        shares = shares / torch.bincount(clip_of)[clip_of][:, None, None]
        weights = torch.sparse_coo_tensor(  # of phrases in clips, of which most are 0
            torch.stack([places[known], clips[known]]),
            shares[known].double(),
            (len(self.keys), len(captions)),
            check_invariants=True,
        )
        seen = means.double()
        counts = torch.where(is_own, 1.0, _OTHERS).double()
        told = torch.sparse.mm(weights, seen * counts[:, None])  # (phrases, C)
        for some in (is_own, ~is_own):  # each are compared with the mean of their kind
            often = torch.sparse.mm(weights, some.double()[:, None]) / max(1, int(some.sum()))
            told -= often * (seen * (counts * some)[:, None]).sum(dim=0)
            if some is is_own:
                self.often.copy_(often[:, 0])
        spread = (seen * counts[:, None]).mT @ seen + _RIDGE * torch.eye(seen.shape[1], dtype=seen.dtype)
        root = torch.linalg.cholesky(spread)
        # W is the regression; in these directions what is guessed of clips differs most.
        fitted = torch.linalg.solve_triangular(root, told.mT, upper=False).mT  # W Σ^½, (phrases, C)
        said, sizes, clip = torch.linalg.svd(fitted, full_matrices=False)
        kept = min(len(sizes), len(self.clip))
        self.phrase[:, :kept] = said[:, :kept] * sizes[:kept]
        self.clip[:kept] = torch.linalg.solve_triangular(root.mT, clip[:kept].mT, upper=True).mT

    def _know_phrases(self, keys: Tensor, clips: Tensor, is_own: Tensor) -> None:
        """The phrases that most clips have, and how rare they are.

        Args:
            keys: (M, 4, T), of the phrases of captions.
            clips: of the same shape, whose captions they are.
        """
        own = (keys >= 0) & is_own[clips]
        phrases, places = torch.unique(keys[own], return_inverse=True)
        once = torch.unique(places * len(is_own) + clips[own])  # twice in a clip is once
        counts = (once // len(is_own)).bincount(minlength=len(phrases))
        common = counts.argsort(descending=True, stable=True)[: len(self.keys)].sort().values
        num_clips = max(int(is_own.sum()), 2)
        self.unheard.fill_(math.log(num_clips))
        self.keys.fill_(_NO_PHRASE)
        self.keys[: len(common)] = phrases[common]
        self.rarity[: len(common)] = (num_clips / counts[common]).log()

    def weigh(self, means: Tensor) -> Tensor:
        """How much each phrase should weigh in captions of clips with these mean features, (B, phrases)."""
        return self.often + means @ self.clip.mT @ self.phrase.mT

    def forward(self, words: Tensor, weights: Tensor) -> Tensor:
        """The CIDEr that sentences (B, M, T), padded with 0, should have for the clip in their row, (B, M).

        Args:
            weights: of all phrases in the clips, as of `weigh`.
        """
        clips, count, most = words.shape
        places, shares = self._shares(self._keys(words.reshape(-1, most)))
        known = weights.gather(1, places.clamp(min=0).view(clips, -1)).view_as(places) * (places >= 0)
        alike = (shares * known).sum(dim=(1, 2))
        return 10 / LONGEST * alike.view(clips, count)

    def _keys(self, words: Tensor) -> Tensor:
        """A number for each phrase of sentences (M, T), by length and first word, (M, 4, T); -1 for none.

        Words are numbered from 1 on, so phrases of different lengths have different numbers.
        """
        rows, most = words.shape
        keys = words.new_full((rows, LONGEST, most), -1)
        key = torch.zeros_like(words)
        for length in range(min(LONGEST, most)):
            last = words[:, length:]
            key = key[:, : most - length] * _WORDS + last
            keys[:, length, : most - length] = key.masked_fill(last == 0, -1)
        return keys

    def _shares(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Where the phrases of sentences are among the known ones, or -1, and CIDEr's weights of them.

        Those of a sentence are the parts of a vector of length one for each length of phrases. A phrase that
        is there twice counts twice, and twice as much.
        """
        places = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        is_known = (self.keys[places] == keys) & (keys >= 0)
        weights = torch.where(is_known, self.rarity[places], self.unheard).masked_fill(keys < 0, 0)
        alike = (keys[..., None] == keys[..., None, :]).sum(dim=-1)
        size = (weights.square() * alike).sum(dim=2, keepdim=True).sqrt().clamp(min=1e-9)
        return places.masked_fill(~is_known, -1), weights / size
