"""Look at new clips on a Ray cluster.

Workers cut, decode and run the backbone, a clip each; what they see comes back in the order of the clips, so
that this process encodes and stores it just as if it had looked itself. Workers need the clips, under the
same paths, and the same ctsan; they see neither the runs' weights nor the store.
"""

from __future__ import annotations

import logging
import os
import pickle
import platform
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ctsan import __version__
from ctsan.errors import CtsanError, UsageError
from ctsan.inference.featurizer import ClipFeaturizer
from ctsan.runs.trained_run import TrainedRun
from ctsan.search.segments import LookAt, NewClip, Part, look_at_clips


@contextmanager
def looking_on_ray(address: str, runs: Sequence[TrainedRun], weights: Path | None) -> Iterator[LookAt]:
    """What looks at clips on a cluster, for as long as it is needed.

    Args:
        address: HOST:PORT of a cluster, 'auto' for the one that this machine is part of, or 'local' for a
            Ray of its own here; where this process is connected already, that connection is used.
        weights: the backbone's file where it is not installed with ctsan, under the same path everywhere.

    Raises:
        UsageError: Ray is not installed, or there is no cluster.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is sent anywhere
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise UsageError(
            f"--ray needs packages that are not installed ({error.name}). Get them with: "
            "pip install 'ctsan[ray]'"
        ) from error
    was_connected = ray.is_initialized()
    if not was_connected:
        try:
            _knock(address)
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"There is no Ray cluster at {address!r} that can be used ({error}). Start one with: ray "
                "start --head --disable-usage-stats --include-dashboard=false, or give --ray no address."
            ) from error
    _set_up_data()
    slim = [replace(run) for run in runs]  # without their models, which workers have no use for
    try:
        yield partial(_look_at, runs=slim, weights=weights.resolve() if weights else None)
    finally:
        if not was_connected:
            ray.shutdown()


def _knock(address: str) -> None:
    """Ray itself waits more than a minute for an address where nobody is.

    Raises:
        OSError: nobody answers.
    """
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _set_up_data() -> None:
    from ray.data import DataContext

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray warns of its own deprecated settings
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True


def _look_at(clips: Sequence[NewClip], runs: Sequence[TrainedRun], weights: Path | None) -> Iterator[Part]:
    if not clips:
        return
    import ray.data
    from ray.exceptions import RayError

    rows = [{"path": os.fsencode(clip.path), "seconds": clip.seconds} for clip in clips]
    parts = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        _rows_of, batch_size=1, fn_kwargs={"runs": runs, "weights": weights}, num_cpus=1
    )
    try:
        for row in parts.iter_rows():
            yield _received(row)
    except RayError as error:
        raise CtsanError(
            f"Ray could not go on: {error} What is done stays done: run the same command again."
        ) from error


def _rows_of(
    batch: Mapping[str, Any], *, runs: Sequence[TrainedRun], weights: Path | None
) -> Iterator[dict[str, list[object]]]:
    """On a worker: what is in one clip, a row a part. Nothing is raised, as Ray would wrap it."""
    clip = NewClip(Path(os.fsdecode(batch["path"][0])), float(batch["seconds"][0]))
    for part in _parts_or_error(clip, runs, weights):
        yield {
            "part": [pickle.dumps(part)],
            "is_seen": [clip.path.exists()],
            "node": [platform.node()],
            "version": [__version__],
        }


def _parts_or_error(
    clip: NewClip, runs: Sequence[TrainedRun], weights: Path | None
) -> Iterator[Part | UsageError]:
    try:
        yield from look_at_clips([clip], runs, _featurizer(weights))
    except UsageError as error:
        yield error


@cache
def _featurizer(weights: Path | None) -> ClipFeaturizer:
    """One for all clips that a worker looks at; there is a worker for each core."""
    return ClipFeaturizer(weights, threads=1)


def _received(row: Mapping[str, Any]) -> Part:
    """Raises:
    UsageError: the worker could not do its work, or not in the same way as this process.
    """
    if row["version"] != __version__:
        raise UsageError(
            f"{row['node']}: it has ctsan {row['version']}, and here is {__version__}. Install the same one."
        )
    part: Part | UsageError = pickle.loads(row["part"])
    if isinstance(part, UsageError):
        raise part
    if not row["is_seen"] and part.path.exists():
        raise UsageError(
            f"{part.path}: there is no such file on {row['node']}. Put clips where all nodes have them, "
            "under the same path."
        )
    return part
