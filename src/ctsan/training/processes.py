"""One process or several: `torchrun` starts them, and this is all that the loop knows of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from ctsan.device import best_device

# The others wait while the first evaluates.
_PATIENCE = timedelta(hours=6)


def is_first_process() -> bool:
    """Whether this process writes and reports; alone, it does."""
    return int(os.environ.get("RANK", "0")) == 0


@dataclass(frozen=True, slots=True)
class Processes:
    rank: int
    count: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def shard(self, batch: Sequence[int]) -> tuple[list[int], float]:
        """This process' examples of a batch, and their share of it.

        A process that gets none takes the first with a share of nothing, for all must work in step.
        """
        mine = list(batch[self.rank :: self.count])
        return mine or list(batch[:1]), len(mine) / len(batch)

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def from_first(self, value: float) -> float:
        """The first process' value, for all."""
        if self.count == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(shared, src=0)
        return float(shared.item())


@contextmanager
def joined_processes() -> Iterator[Processes]:
    """Join the processes that `torchrun` started, and part from them at the end."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device(best_device())
    if count == 1:
        yield Processes(0, 1, device)
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")  # gloo knows no other
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_PATIENCE)
    try:
        yield Processes(dist.get_rank(), count, device)
    finally:
        dist.destroy_process_group()
