"""Expected CIDEr of a sentence for a clip without captions, from the clip's mean feature.

Not in the paper. CIDEr (Vedantam et al., 2015) is the mean cosine between the tf-idf vectors of a sentence's
n-grams (here: phrases, n = 1 to 4) and those of the reference captions. It is linear in the references'
vectors, so a ridge regression from mean features to these vectors predicts the CIDEr of any sentence. The
prediction ranks several hypotheses for one clip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

LONGEST = 4  # most words in a phrase

_RIDGE = 3000.0  # penalty
_RANK = 64  # of the regression
_EXTERNAL_WEIGHT = 0.05  # of an external clip; own clips have 1
_WORDS = 1 << 15  # base of phrase keys: four words fit into 60 bits; word ids above it may cause collisions
_MOST_WORDS = 30  # captions are truncated to this length
_NO_PHRASE = torch.iinfo(torch.long).max  # fills unused keys; sorts after all phrases


class PhraseProbe(nn.Module):
    """Low-rank ridge regression, solved in closed form before training and then fixed.

    Args:
        channels: size of the mean features.
        num_phrases: size of the phrase vocabulary: the phrases used for most clips. There may be fewer.
    """

    keys: Tensor
    rarity: Tensor
    often: Tensor
    phrase: Tensor
    clip: Tensor
    unheard: Tensor

    def __init__(self, *, channels: int, num_phrases: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.full((num_phrases,), _NO_PHRASE))  # sorted
        self.register_buffer("rarity", torch.zeros(num_phrases))  # idf
        self.register_buffer("often", torch.zeros(num_phrases))  # mean tf-idf weight over own clips
        self.register_buffer("phrase", torch.zeros(num_phrases, _RANK))
        self.register_buffer("clip", torch.zeros(_RANK, channels))
        self.register_buffer("unheard", torch.ones(()))  # idf of all other phrases

    @torch.no_grad()
    def fit(self, means: Tensor, captions: Sequence[Sequence[Sequence[int]]], is_own: Tensor) -> None:
        """Fit to training clips.

        Args:
            means: (n, C), mean features of the clips, preprocessed as for `weigh`.
            captions: word ids of the captions of each clip.
            is_own: (n,), False for external clips, whose phrase frequencies may differ.
        """
        clip_of = torch.tensor([clip for clip, clip_captions in enumerate(captions) for _ in clip_captions])
        word_ids = [
            torch.tensor(caption[:_MOST_WORDS]) for clip_captions in captions for caption in clip_captions
        ]
        keys = self._keys(pad_sequence(word_ids, batch_first=True))  # (M, 4, T)
        clips = clip_of[:, None, None].expand_as(keys)
        self._fit_vocabulary(keys, clips, is_own)
        places, shares = self._shares(keys)
        is_known = places >= 0
        shares = shares / torch.bincount(clip_of)[clip_of][:, None, None]
        weights = torch.sparse_coo_tensor(  # mean tf-idf weights, (phrases, clips)
            torch.stack([places[is_known], clips[is_known]]),
            shares[is_known].double(),
            (len(self.keys), len(captions)),
            check_invariants=True,
        )
        features = means.double()
        counts = torch.where(is_own, 1.0, _EXTERNAL_WEIGHT).double()
        cross = torch.sparse.mm(weights, features * counts[:, None])  # (phrases, C)
        for group in (is_own, ~is_own):  # own and external clips are centred separately
            often = torch.sparse.mm(weights, group.double()[:, None]) / max(1, int(group.sum()))
            cross -= often * (features * (counts * group)[:, None]).sum(dim=0)
            if group is is_own:
                self.often.copy_(often[:, 0])
        gram = (features * counts[:, None]).mT @ features + _RIDGE * torch.eye(
            features.shape[1], dtype=features.dtype
        )
        root = torch.linalg.cholesky(gram)
        # W is the ridge solution. The truncated SVD of W Σ^½ keeps the directions of largest variance of W x.
        fitted = torch.linalg.solve_triangular(root, cross.mT, upper=False).mT  # W Σ^½, (phrases, C)
        left, sizes, right = torch.linalg.svd(fitted, full_matrices=False)
        rank = min(len(sizes), len(self.clip))
        self.phrase[:, :rank] = left[:, :rank] * sizes[:rank]
        self.clip[:rank] = torch.linalg.solve_triangular(root.mT, right[:rank].mT, upper=True).mT

    def _fit_vocabulary(self, keys: Tensor, clips: Tensor, is_own: Tensor) -> None:
        """Set the phrase vocabulary, i.e. the phrases used for most own clips, and its idf.

        Args:
            keys: (M, 4, T), phrase keys of the captions.
            clips: (M, 4, T), the clip that each belongs to.
        """
        is_own_phrase = (keys >= 0) & is_own[clips]
        phrases, places = torch.unique(keys[is_own_phrase], return_inverse=True)
        once = torch.unique(places * len(is_own) + clips[is_own_phrase])  # (phrase, clip) pairs, each once
        counts = (once // len(is_own)).bincount(minlength=len(phrases))
        common = counts.argsort(descending=True, stable=True)[: len(self.keys)].sort().values
        num_clips = max(int(is_own.sum()), 2)
        self.unheard.fill_(math.log(num_clips))
        self.keys.fill_(_NO_PHRASE)
        self.keys[: len(common)] = phrases[common]
        self.rarity[: len(common)] = (num_clips / counts[common]).log()

    def weigh(self, means: Tensor) -> Tensor:
        """Predicted tf-idf weights of all phrases for clips with mean features (B, C): (B, phrases)."""
        return self.often + means @ self.clip.mT @ self.phrase.mT

    def forward(self, words: Tensor, weights: Tensor) -> Tensor:
        """Expected CIDEr (B, M) of sentences (B, M, T), padded with 0, for the clip in their row.

        Args:
            weights: (B, phrases), the result of `weigh`.
        """
        clips, count, most = words.shape
        places, shares = self._shares(self._keys(words.reshape(-1, most)))
        clip_weights = weights.gather(1, places.clamp(min=0).view(clips, -1)).view_as(places) * (places >= 0)
        alike = (shares * clip_weights).sum(dim=(1, 2))
        return 10 / LONGEST * alike.view(clips, count)

    def _keys(self, words: Tensor) -> Tensor:
        """Integer keys of the phrases of sentences (M, T), by length and position: (M, 4, T); -1 for none.

        Word ids start at 1, so phrases of different lengths have different keys.
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
        """Indices of phrases in the vocabulary, -1 if unknown, and their tf-idf weights, both (M, 4, T).

        For each phrase length, the tf-idf vector of a sentence is normalised to length one. A phrase that
        occurs c times has c entries of idf / norm, which add up to tf · idf / norm.
        """
        places = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        is_known = (self.keys[places] == keys) & (keys >= 0)
        weights = torch.where(is_known, self.rarity[places], self.unheard).masked_fill(keys < 0, 0)
        alike = (keys[..., None] == keys[..., None, :]).sum(dim=-1)
        size = (weights.square() * alike).sum(dim=2, keepdim=True).sqrt().clamp(min=1e-9)
        return places.masked_fill(~is_known, -1), weights / size
