"""CT-SAN for retrieval (appendix A.2): scores a query and a clip."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.choice_model import Scored
from ctsan.model.clip_encoder import ClipEncoder, ClipEncoding
from ctsan.model.compact_bilinear import CompactBilinear
from ctsan.model.lstm import LayerNormLSTM
from ctsan.model.score_scale import ScoreScale
from ctsan.model.word_input import WordInput

_PAIRS_AT_ONCE = 1024  # pairs per block whose sketches are computed
_NUMBERS_AT_ONCE = 2**26  # elements per block of clip matrices


class RetrievalModel(ScoreScale):
    """Without detector and attention this is the paper's Base-SAN.

    The paper does not specify the initial state of the query's LSTM. It is zero here.

    Differs from the paper: it prints W_p as 8000x1500 and W_s as 1500x1, which leaves the maxout with one
    piece. Here W_p consists of `pieces` maps of that size, and the maxout takes the maximum of their outputs.
    As in Goodfellow et al. (2013), dropout is applied to the inputs of these maps, not to those of the
    maximum, where a dropped value of 0 would exceed negative ones.

    Args:
        gate: initial value of the attention's gate; None for Xavier initialisation.
    """

    def __init__(
        self,
        *,
        clip_encoder: ClipEncoder,
        hidden_dim: int,
        sketch_dim: int = 8000,
        joint_dim: int = 1500,
        pieces: int = 2,
        input_attention: bool = True,
        contrastive_init: bool = False,
        gate: float | None = None,
        num_layers: int = 2,
        dropout: float = 0.2,
        joint_dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.pieces = pieces
        self.dropout = dropout
        self.joint_dropout = joint_dropout
        self.clip_encoder = clip_encoder
        self.word_input = WordInput(
            embedding_dim=clip_encoder.embedding.embedding_dim,
            hidden_dim=hidden_dim,
            attention=input_attention and clip_encoder.detector is not None,
            contrastive_init=contrastive_init,
            gate=gate,
        )
        self.lstm = LayerNormLSTM(
            input_dim=hidden_dim, hidden_dim=hidden_dim, num_layers=num_layers, dropout=dropout
        )
        self.pool = CompactBilinear(first_dim=hidden_dim, second_dim=hidden_dim, out_dim=sketch_dim, seed=0)
        self.join = nn.Linear(sketch_dim, pieces * joint_dim, bias=False)  # W_p
        self.rate = nn.Linear(joint_dim, 1, bias=False)  # W_s
        nn.init.xavier_uniform_(self.join.weight)
        nn.init.xavier_uniform_(self.rate.weight)

    def forward(self, words: Tensor, is_real: Tensor, encoding: ClipEncoding) -> Scored:
        """S = W_s · maxout(W_p ν(s_N, h_T)) for each query and the clip in its row.

        Args:
            words: (M, T), queries with padding at the end.
            is_real: (M, T), True where a word is not padding; padding has no effect.
            encoding: one row per query, that of its clip.
        """
        queries, input_weights = self.encode_query(words, is_real, encoding.concepts)
        return Scored(self.score(self.sketch_clip(encoding), queries), input_weights)

    def encode_query(self, words: Tensor, is_real: Tensor, concepts: Tensor) -> tuple[Tensor, Tensor | None]:
        """Queries (M, T) and concept words (M, K, E) of their clips to h_T (M, D) and weights γ."""
        embedded = F.dropout(self.clip_encoder.embedding(words), self.dropout, self.training)
        x, input_weights = self.word_input(embedded, concepts)
        _, last = self.lstm(x, is_real=is_real)
        return F.dropout(last.top, self.dropout, self.training), input_weights

    def sketch_clip(self, encoding: ClipEncoding) -> Tensor:
        """The clip factor of ν, (B, sketch // 2 + 1), complex, shared by all queries."""
        return self.pool.sketch_first(encoding.state.top)

    def score(self, clips: Tensor, queries: Tensor) -> Tensor:
        """Sketched clips (..., sketch // 2 + 1) and queries h_T (..., D), with broadcasting, to S (...)."""
        joint = self.pool.combine(clips, self.pool.sketch_second(queries))  # ν, (..., sketch)
        joint = F.dropout(joint, self.joint_dropout, self.training)
        return self.score_joint(self.join(joint))

    def score_all(self, clips: Tensor, queries: Tensor, reading: Tensor) -> Tensor:
        """Clips s_N (C, D), each with all queries, to S (Q, C), without dropout.

        Args:
            queries: h_T (Q, R, D), read with R different sets of concept words.
            reading: (C,), index of each clip's set among the R.
        """
        num_queries, _, dim = queries.shape
        scores = clips.new_empty(num_queries, len(clips))
        every = torch.arange(len(clips), device=clips.device)
        # A clip matrix costs D² row operations, which run at half the speed.
        if num_queries * self.pool.out_dim < 2 * dim * dim:
            for some in torch.split(every, max(1, _PAIRS_AT_ONCE // num_queries)):
                joint = self.pool(clips[some], queries[:, reading[some]])  # ν, (Q, c, sketch)
                scores[:, some] = self.score_joint(self.join(joint))
            return scores
        weight = self.join.weight.mT.contiguous()
        for some in torch.split(every, max(1, _NUMBERS_AT_ONCE // (dim * weight.shape[1]))):
            matrices = self.pool.applied(weight, clips[some])  # W_p ν(s_N, ·), (D, c, pieces joint)
            for clip, matrix in zip(some.tolist(), matrices.unbind(1), strict=True):
                scores[:, clip] = self.score_joint(queries[:, reading[clip]] @ matrix)
        return scores

    def score_joint(self, joined: Tensor) -> Tensor:
        """W_p ν (..., pieces joint) to S (...)."""
        pieces = joined.view(*joined.shape[:-1], self.pieces, -1)  # (..., pieces, joint)
        scores: Tensor = self.rate(pieces.amax(dim=-2))[..., 0]
        return scores


def pairwise_margin_loss(
    scores: Tensor,
    same_clip: Tensor | None = None,
    *,
    margin: float = 3.0,
    negatives: Literal["clips", "sentences", "both"] = "clips",
) -> Tensor:
    """Max-margin loss over a batch of pairs, (B,), each the other pairs' negative.

    For each pair: Σ_l max(0, S_l - S_l* + Δ) over other clips for its sentence, or other sentences for its
    clip. As in `margin_loss`, the pair itself is omitted.

    Args:
        scores: (B, B), clips in rows and sentences in columns; the matching pairs are on the diagonal.
        same_clip: (B, B), True where row and column belong to one clip, including the diagonal. Other
            captions of a clip are not negatives. None if all clips are different.
        negatives: what l runs over. The paper has one sum, and is ambiguous: its S_{k,l} is of clip k and
            sentence l in the definition, and of query k and clip l in the evaluation.
    """
    if same_clip is None:
        same_clip = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    right = scores.diagonal()
    sentences = (scores - right[:, None] + margin).relu().masked_fill(same_clip, 0).sum(dim=1)
    clips = (scores - right + margin).relu().masked_fill(same_clip, 0).sum(dim=0)
    match negatives:
        case "clips":
            return clips
        case "sentences":
            return sentences
        case "both":
            return sentences + clips
