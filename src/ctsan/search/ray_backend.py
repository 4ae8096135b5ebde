"""Segment new clips on a Ray cluster.

Each task cuts and decodes one clip and runs the backbone. Results come back in the order of the clips, so
that this process encodes and stores them exactly as in a local run. Workers need the clips under the same
paths and the same version of ctsan; they need neither the runs' weights nor the store.
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
from functools import cache, partial
from pathlib import Path
from typing import Any

from ctsan import __version__
from ctsan.errors import CtsanError, UsageError
from ctsan.inference.featurizer import ClipFeaturizer, FeatureNeeds, NeedsFeatures
from ctsan.io.extras import extra
from ctsan.search.segments import NewClip, Segment, Segmenter, segment_clips


@contextmanager
def ray_segmenter(address: str, models: Sequence[NeedsFeatures], weights: Path | None) -> Iterator[Segmenter]:
    """Connect to a cluster and yield a function that segments clips on it.

    Args:
        address: HOST:PORT of a cluster, 'auto' for the cluster that this machine belongs to, or 'local' to
            start Ray here. Ignored if this process is already connected.
        weights: the backbone's weights, if they are not installed with ctsan; the same path on all nodes.

    Raises:
        UsageError: Ray is not installed, or the cluster cannot be reached.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telemetry
    with extra("ray", "--ray"):
        import ray
        import ray.data
    was_connected = ray.is_initialized()
    if not was_connected:
        try:
            _check_reachable(address)
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"There is no Ray cluster at {address!r} that can be used ({error}). Start one with: ray "
                "start --head --disable-usage-stats --include-dashboard=false, or give --ray no address."
            ) from error
    _configure_ray_data()
    needs = [FeatureNeeds(model.recipe, model.settings) for model in models]
    try:
        yield partial(_segment, models=needs, weights=weights.resolve() if weights else None)
    finally:
        if not was_connected:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Fail fast: Ray itself waits more than a minute for an address that does not answer.

    Raises:
        OSError: the address does not answer.
    """
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _configure_ray_data() -> None:
    from ray.data import DataContext

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray warns about its own deprecated settings
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True


def _segment(
    clips: Sequence[NewClip], models: Sequence[NeedsFeatures], weights: Path | None
) -> Iterator[Segment]:
    if not clips:
        return
    import ray.data
    from ray.exceptions import RayError

    items = [{"path": os.fsencode(clip.path), "seconds": clip.seconds} for clip in clips]
    results = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        _segment_on_worker, batch_size=1, fn_kwargs={"models": models, "weights": weights}, num_cpus=1
    )
    try:
        for row in results.iter_rows():
            yield _unpack(row)
    except RayError as error:
        raise CtsanError(
            f"Ray failed: {error} Finished files are stored: run the same command again to continue."
        ) from error


def _segment_on_worker(
    batch: Mapping[str, Any], *, models: Sequence[NeedsFeatures], weights: Path | None
) -> Iterator[dict[str, list[object]]]:
    """Runs on a worker: one row per segment of a clip. Errors are returned, because Ray would wrap them."""
    clip = NewClip(Path(os.fsdecode(batch["path"][0])), float(batch["seconds"][0]))
    for segment in _segments_or_error(clip, models, weights):
        yield {
            "segment": [pickle.dumps(segment)],
            "clip_exists": [clip.path.exists()],
            "node": [platform.node()],
            "version": [__version__],
        }


def _segments_or_error(
    clip: NewClip, models: Sequence[NeedsFeatures], weights: Path | None
) -> Iterator[Segment | UsageError]:
    try:
        yield from segment_clips([clip], models, _featurizer(weights))
    except UsageError as error:
        yield error


@cache
def _featurizer(weights: Path | None) -> ClipFeaturizer:
    """One per worker process. Ray starts one worker per core, so each uses one thread."""
    return ClipFeaturizer(weights, threads=1)


def _unpack(row: Mapping[str, Any]) -> Segment:
    """The segment of a row that a worker sent, if the worker runs the same version of ctsan.

    Raises:
        UsageError: the worker failed, lacks the clip, or runs another version of ctsan.
    """
    if row["version"] != __version__:
        raise UsageError(
            f"{row['node']}: it has ctsan {row['version']}, and this machine has {__version__}. Install the "
            "same version."
        )
    segment: Segment | UsageError = pickle.loads(row["segment"])
    if isinstance(segment, UsageError):
        raise segment
    if not row["clip_exists"] and segment.path.exists():
        raise UsageError(
            f"{segment.path}: there is no such file on {row['node']}. Put clips where all nodes have them, "
            "under the same path."
        )
    return segment
