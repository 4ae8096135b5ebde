"""A small model with each of the other decoders, clips and captions to read."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ctsan.baselines.mean_pooling import PooledDecoder, PooledEncoder
from ctsan.baselines.s2vt import S2VTDecoder, S2VTStack
from ctsan.baselines.temporal_attention import FrameEncoder, TemporalAttentionDecoder
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.description_model import DescriptionModel
from worked_out import numbers

B, N, H, C, D, E, WORDS, T = 2, 4, 2, 6, 8, 5, 11, 6
LENGTHS = [4, 2]  # the second clip has two frames, then padding
READ = torch.tensor([[3, 7, 1, 5, 9, 2], [4, 4, 10, 0, 6, 8]])


def s2vt() -> DescriptionModel:
    torch.manual_seed(0)
    stack = S2VTStack(hidden_dim=D, embedding_dim=E)
    encoder = ClipEncoder(
        channels=C,
        embedding=torch.randn(WORDS, E),
        candidate_words=torch.arange(3),
        hidden_dim=D,
        detector=None,
        num_concepts=2,
        video_encoder=stack,
    )
    decoder = S2VTDecoder(stack=stack, num_words=WORDS)
    return DescriptionModel(clip_encoder=encoder, hidden_dim=D, decoder=decoder).eval()


def temporal() -> DescriptionModel:
    torch.manual_seed(0)
    encoder = FrameEncoder(
        channels=C,
        embedding=torch.randn(WORDS, E),
        candidate_words=torch.arange(3),
        hidden_dim=D,
        num_concepts=2,
        max_frames=N + 3,
    )
    decoder = TemporalAttentionDecoder(num_words=WORDS, embedding_dim=E, hidden_dim=D)
    return DescriptionModel(clip_encoder=encoder, hidden_dim=D, decoder=decoder).eval()


def pooled() -> DescriptionModel:
    torch.manual_seed(0)
    encoder = PooledEncoder(
        channels=C, embedding=torch.randn(WORDS, E), candidate_words=torch.arange(3), hidden_dim=D
    )
    decoder = PooledDecoder(embedding=encoder.embedding, hidden_dim=D)
    return DescriptionModel(
        clip_encoder=encoder, hidden_dim=D, decoder=decoder, init_output_from_embeddings=True
    ).eval()


def reduced_frames(model: DescriptionModel, maps: Tensor) -> np.ndarray:
    """(B, N, D): the 3x3 convolution of each frame's map, cell by cell, averaged over the grid."""
    weight = numbers(model)["clip_encoder.reduce.conv.weight"]  # (D, C, 3, 3)
    padded = np.pad(maps.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0)))
    cells = [
        np.einsum("bnijc,dcij->bnd", padded[:, :, row : row + 3, column : column + 3], weight)
        for row in range(H)
        for column in range(H)
    ]
    averages: np.ndarray = np.mean(cells, axis=0)
    return averages
