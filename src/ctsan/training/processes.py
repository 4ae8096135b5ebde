"""Distributed training: the only module that handles the processes of `torchrun`."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from ctsan.errors import CtsanError
from ctsan.io.device import best_device, usable_cores

# The other processes wait while the first prepares or evaluates.
_PATIENCE = timedelta(hours=24)


class OtherProcessError(CtsanError):
    """Another process failed and reports the error; this one must exit silently."""


@dataclass(frozen=True, slots=True)
class Processes:
    rank: int
    count: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Synchronise at the end of a block: it succeeds in all processes or fails in all.

        Raises:
            OtherProcessError: the block failed in another process. If it fails in several, for example
                because all read the same bad file, only the first of them raises the original error.
        """
        if self.count == 1:
            yield
            return
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # any error: the others must not wait forever
            failure = error
        speaker = torch.tensor(self.rank if failure else self.count, device=self.device)
        dist.all_reduce(speaker, dist.ReduceOp.MIN)
        if failure and speaker == self.rank:
            raise failure
        if speaker < self.count:
            raise OtherProcessError("another process failed")

    def shard(self, batch: Sequence[int]) -> tuple[list[int], float]:
        """Return this process' examples of a batch, and their share of it.

        All processes must run every step, so one without examples takes the first, with share 0.
        """
        mine = list(batch[self.rank :: self.count])
        return mine or list(batch[:1]), len(mine) / len(batch)

    def total(self, values: Tensor) -> Tensor:
        """Sum values over all processes, in place."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def from_first(self, value: float) -> float:
        """Broadcast the first process' value."""
        if self.count == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(shared, src=0)
        return float(shared.item())


@contextmanager
def joined_processes() -> Iterator[Processes]:
    """Join the process group of `torchrun`, and leave it at the end.

    Reentrant: a nested block uses the group of the outer one.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device(best_device())
    if count == 1:
        yield Processes(0, 1, device)
        return
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if device.type == "cuda" else _processor()
    if dist.is_initialized():
        yield Processes(dist.get_rank(), count, device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_PATIENCE)
    try:
        yield Processes(dist.get_rank(), count, device)
    finally:
        gc.collect()  # references to the group would keep its threads alive and abort Python at exit
        dist.destroy_process_group()


def _processor() -> torch.device:
    """Return the CPU, with the number of threads set to this process' share of the cores.

    `torchrun` sets OMP_NUM_THREADS=1 unless the user sets it, however many cores there are.
    """
    if os.environ.get("OMP_NUM_THREADS") == "1":
        torch.set_num_threads(max(1, usable_cores() // int(os.environ["LOCAL_WORLD_SIZE"])))
    return torch.device("cpu")
