"""Compact bilinear pooling ν (appendix A.2; Fukui et al., 2016): a sketch of an outer product."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class CompactBilinear(nn.Module):
    """Count sketch of the outer product of two vectors, without computing the product.

    A count sketch adds every entry, with a random sign, to a random one of `out_dim` sums. The sketch of an
    outer product, whose entry (i, j) goes to h_1(i) + h_2(j) with the sign s_1(i) s_2(j), is the circular
    convolution of the two vectors' sketches, i.e. a product of their Fourier transforms. Inner products of
    sketches equal those of the outer products, in expectation over the random hashes and signs.

    Hashes and signs follow from the seed. They are saved with the weights, which depend on them.
    """

    first_hash: Tensor
    first_sign: Tensor
    second_hash: Tensor
    second_sign: Tensor

    def __init__(self, *, first_dim: int, second_dim: int, out_dim: int, seed: int) -> None:
        super().__init__()
        self.out_dim = out_dim
        generator = torch.Generator().manual_seed(seed)
        for name, dim in (("first", first_dim), ("second", second_dim)):
            self.register_buffer(f"{name}_hash", torch.randint(out_dim, (dim,), generator=generator))
            sign = 2 * torch.randint(2, (dim,), generator=generator) - 1
            self.register_buffer(f"{name}_sign", sign.to(torch.get_default_dtype()))

    def sketch_first(self, x: Tensor) -> Tensor:
        """First vectors (..., first) to the transforms of their sketches, (..., out // 2 + 1), complex."""
        return self._sketch(x, self.first_hash, self.first_sign)

    def sketch_second(self, x: Tensor) -> Tensor:
        """The same for second vectors (..., second)."""
        return self._sketch(x, self.second_hash, self.second_sign)

    def combine(self, first: Tensor, second: Tensor) -> Tensor:
        """Transformed sketches, with broadcasting, to sketches of the outer products (..., out)."""
        sketch: Tensor = torch.fft.irfft(first * second, n=self.out_dim)
        return sketch

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Vectors (..., first) and (..., second) to ν, (..., out)."""
        return self.combine(self.sketch_first(first), self.sketch_second(second))

    def applied(self, weight: Tensor, first: Tensor) -> Tensor:
        """The linear maps ν(first, ·) @ weight as matrices, (second, C, rows), for first vectors (C, first).

        Cheaper than the transforms if many second vectors share a first one, because a sketch is far larger
        than a vector.

        Args:
            weight: (out, rows).
        """
        signed = first * self.first_sign
        matrices = signed.new_empty(len(self.second_hash), len(first), weight.shape[1])
        for matrix, place in zip(matrices.unbind(0), self.second_hash, strict=True):
            torch.mm(signed, weight.index_select(0, (self.first_hash + place) % self.out_dim), out=matrix)
        return matrices.mul_(self.second_sign[:, None, None])

    def _sketch(self, x: Tensor, places: Tensor, signs: Tensor) -> Tensor:
        signed = (
            x * signs
        )  # in the signs' precision: under autocast x may be bfloat16, which has no transform
        sums = signed.new_zeros(*x.shape[:-1], self.out_dim)
        transform: Tensor = torch.fft.rfft(sums.scatter_add(-1, places.expand_as(x), signed))
        return transform
