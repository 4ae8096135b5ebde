"""One process or several: `torchrun` starts them, and this is all that the rest knows of them."""

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

# The others wait while the first prepares or evaluates.
_PATIENCE = timedelta(hours=24)


class OtherProcessError(CtsanError):
    """Another process failed and says why; this one has to end too, without a word."""


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
        """A block that all processes get through, or none: each waits here for the others.

        Raises:
            OtherProcessError: the block failed elsewhere. Where it failed in several, as it does when all
                read the same bad file, the error stays with the first of them: a person sees it once.
        """
        if self.count == 1:
            yield
            return
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # whatever it is, the others must not wait for ever
            failure = error
        speaker = torch.tensor(self.rank if failure else self.count, device=self.device)
        dist.all_reduce(speaker, dist.ReduceOp.MIN)
        if failure and speaker == self.rank:
            raise failure
        if speaker < self.count:
            raise OtherProcessError("another process failed")

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
    """Join the processes that `torchrun` started, and part from them at the end.

    Inside another such block, these are the processes that it joined.
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
        gc.collect()  # what still holds the group would keep its threads until Python ends, and abort it
        dist.destroy_process_group()


def _processor() -> torch.device:
    """The device that gloo knows, with this process' share of the cores.

    `torchrun` allows one thread, however many cores there are, where OMP_NUM_THREADS does not say another.
    """
    if os.environ.get("OMP_NUM_THREADS") == "1":
        torch.set_num_threads(max(1, usable_cores() // int(os.environ["LOCAL_WORLD_SIZE"])))
    return torch.device("cpu")
