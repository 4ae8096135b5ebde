"""Sample the examples of each step, and prefetch their batches.

Every random draw depends only on the seed and the number of the epoch or step, never on earlier draws, so
training can resume at any step.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")
ResultT = TypeVar("ResultT")

_PREFETCHED = 2  # batches made before they are needed
_ORDER, _MIRRORS, _NOISE = range(3)  # the kind of draw, part of its seed


def batches_of(epoch: int, *, buckets: Sequence[int], batch_size: int, seed: int) -> list[list[int]]:
    """Shuffle all examples into the batches of an epoch; each batch holds examples of one bucket."""
    generator = _generator(seed, _ORDER, epoch)
    order: list[int] = torch.randperm(len(buckets), generator=generator).tolist()
    of_kind: dict[int, list[int]] = {}
    for example in order:
        of_kind.setdefault(buckets[example], []).append(example)
    batches = [
        examples[start : start + batch_size]
        for _, examples in sorted(of_kind.items())
        for start in range(0, len(examples), batch_size)
    ]
    if len(of_kind) == 1:
        return batches
    return [batches[place] for place in torch.randperm(len(batches), generator=generator).tolist()]


def batches_in_epoch(buckets: Sequence[int], batch_size: int) -> int:
    return sum(math.ceil(number / batch_size) for number in Counter(buckets).values())


def mirrored_in(epoch: int, *, num_examples: int, seed: int) -> list[bool]:
    """Draw, for each example, whether it is mirrored in this epoch, with probability 0.5."""
    flips: list[bool] = (torch.rand(num_examples, generator=_generator(seed, _MIRRORS, epoch)) < 0.5).tolist()
    return flips


def draw_noise_for(step: int, *, rank: int, seed: int) -> None:
    """Seed torch for a step and a process, so that dropout and other noise are reproducible."""
    torch.manual_seed(_seed(seed, _NOISE, step, rank))


def read_ahead(make: Callable[[T], ResultT], items: Iterable[T]) -> Generator[ResultT, None, None]:
    """`map` that makes the next two items in a background thread."""
    coming: deque[Future[ResultT]] = deque()
    waiting = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as reader:
        try:
            coming.extend(reader.submit(make, item) for item in islice(waiting, _PREFETCHED))
            while coming:
                result = coming.popleft().result()
                coming.extend(reader.submit(make, item) for item in islice(waiting, 1))
                yield result
        finally:
            reader.shutdown(cancel_futures=True)


def move(batch: Any, device: torch.device) -> Any:
    """Move tensors, also inside dataclasses and tuples, to a device; return anything else unchanged."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, tuple):
        parts = [move(part, device) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if is_dataclass(batch) and not isinstance(batch, type):
        return replace(
            batch, **{part.name: move(getattr(batch, part.name), device) for part in fields(batch)}
        )
    return batch


def _seed(*numbers: int) -> int:
    """Hash several numbers into one seed, so that neighbouring inputs give unrelated seeds."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _generator(*numbers: int) -> torch.Generator:
    return torch.Generator().manual_seed(_seed(*numbers))
