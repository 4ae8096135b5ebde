"""`ctsan train`: train a model on a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.features import BACKBONE, WEIGHTS
from ctsan.cli.output import print_json, print_line
from ctsan.io.messages import count

if TYPE_CHECKING:
    from ctsan.tasks.reliance import Reliance
    from ctsan.training.train import TrainResult


class _Tasks(click.Group):
    """One command per task of the registry, imported late because it imports PyTorch."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        from ctsan.tasks.registry import TASKS

        return list(TASKS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        from ctsan.tasks.registry import task_spec

        return _command_for(task_spec(cmd_name).name)  # or "Did you mean …?"


@click.group("train", cls=_Tasks)
def command() -> None:
    """Train a model on a corpus; stopped at any moment, the same command goes on."""


_EXAMPLES = """

\b
Examples:
  ctsan train {task} --corpus my-clips/ --out runs/mine
  ctsan train {task} --corpus my-clips/ --out runs/seed1 --set training.seed=1
  ctsan train {task} --corpus my-clips/ --out runs/net --backbone onnx:net.onnx
  ctsan train {task} --corpus LSMDC16/ --out runs/paper --profile paper --features features/
  ctsan train {task} --corpus my-clips/ --out runs/tuned --from runs/described
  ctsan train {task} --corpus my-clips/ --out runs/tuned --from default
  ctsan train {task} --corpus my-clips/ --out runs/three --ensemble 3
  ctsan train {task} --corpus my-clips/ --corpus MSR-VTT/ --out runs/both
  ctsan train {task} --corpus my-clips/ --external captioned-pictures/ --out runs/more
  torchrun --nproc-per-node 2 -m ctsan train {task} --corpus my-clips/ --out runs/mine
"""


def _command_for(task_name: str) -> click.Command:
    from ctsan.tasks.registry import TASKS

    @click.command(task_name, help=TASKS[task_name].help + _EXAMPLES.format(task=task_name))
    @click.option(
        "--corpus",
        "corpora",
        type=click.Path(path_type=Path),
        multiple=True,
        required=True,
        help="Captioned clips. May be repeated: several are used as one.",
    )
    @click.option(
        "--external",
        type=click.Path(path_type=Path),
        multiple=True,
        help="Clips or pictures that others captioned, to learn from beside --corpus. May be repeated.",
    )
    @click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the run.")
    @click.option(
        "--profile", default="laptop", show_default=True, help="laptop, or paper for the model of the paper."
    )
    @click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="SECTION.SETTING=VALUE",
        help=f"May be repeated; 'ctsan settings --task {task_name}' lists them all.",
    )
    @click.option(
        "--features",
        type=click.Path(path_type=Path),
        multiple=True,
        help="Folder that 'ctsan features' filled, one for each --corpus, then one for each --external "
        "[default: in the cache, made if need be].",
    )
    @BACKBONE
    @WEIGHTS
    @click.option(
        "--from",
        "source",
        type=click.Path(path_type=Path),
        help="Run whose weights, words and sizes to start from; it may be of another task or corpus. "
        "'default' is the model that ctsan carries.",
    )
    @click.option(
        "--transfer",
        type=click.Choice(["detector", "shared"]),
        help="With --from: take over the concept word detector alone, as the paper does, or all that the two "
        "models share [default: detector in the profile paper, shared in laptop]. Short for --set "
        "training.transfer=….",
    )
    @click.option(
        "--vectors",
        type=click.Path(path_type=Path),
        help="Word vectors of others, as GloVe's, to begin with beside those learnt from the captions.",
    )
    @click.option(
        "--ensemble",
        type=click.IntRange(min=2),
        metavar="N",
        help="Train N models one after the other, into folders 1, 2, … of --out.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
    def train(
        corpora: tuple[Path, ...],
        external: tuple[Path, ...],
        out: Path,
        profile: str,
        overrides: tuple[str, ...],
        features: tuple[Path, ...],
        backbone_name: str | None,
        weights: Path | None,
        source: Path | None,
        transfer: str | None,
        vectors: Path | None,
        ensemble: int | None,
        as_json: bool,
    ) -> None:
        from ctsan.cli.features import check_one_per_corpus
        from ctsan.errors import UsageError
        from ctsan.training.processes import OtherProcessError
        from ctsan.training.train import train as run_training

        if transfer and source is None:
            raise UsageError("--transfer says what to take over from a run. Name one: --from RUN")
        unit = "--corpus, then for each --external" if external else "corpus"
        check_one_per_corpus("--features", features, (*corpora, *external), unit=unit)
        if features and (backbone_name or weights):
            raise UsageError(
                "--features names maps that are made already, and --backbone and --weights a network to make "
                "some with. Leave out one."
            )
        try:
            results = run_training(
                task_name,
                corpora,
                out,
                external=external,
                profile=profile,
                overrides=(*overrides, *((f"training.transfer={transfer}",) if transfer else ())),
                features=features,
                backbone=backbone_name,
                weights=weights,
                init_from=source,
                vectors=vectors,
                ensemble=ensemble,
            )
        except OtherProcessError as error:
            raise SystemExit(error.exit_code) from None
        if not results:  # under torchrun, in every process but the first
            return
        if as_json:
            members = [result.to_json() for result in results]
            print_json({"run": str(out), "members": members} if ensemble else members[0])
            return
        for result in results:
            _print_result(result)
        if ensemble:
            _print_ensemble(task_name, [result.run for result in results])

    return train


def _print_result(result: TrainResult) -> None:
    best = result.metrics
    if result.stopped_early:
        print_line("Stopped early: too many evaluations in a row were no better (training.patience).")
    if result.primary_metric in best:
        print_line(
            f"{count(result.steps, 'step')}; the best weights are those of step {result.best_step:,} "
            f"({result.primary_metric} {best[result.primary_metric]:.3f} on validation)."
        )
    if "precision" in best:
        print_line(
            f"Of their concept words, {best['precision on train']:.0%} are right on training clips and "
            f"{best['precision']:.0%} on validation clips."
        )
    if result.reliance is not None:
        print_line(_reliance_line(result.reliance))
    print_line(
        f"The curves are in {result.run / 'curves.svg'}, examples in {result.run / 'examples.html'}. "
        f"Measure it: ctsan evaluate {result.run} --corpus CORPUS --split test"
    )


def _reliance_line(reliance: Reliance) -> str:
    """`Reliance on concept words: CIDEr 0.256 with the clip's own, 0.225 with another clip's (…), …`."""
    from ctsan.tasks.registry import TASKS
    from ctsan.tasks.reliance import SOURCE_LABELS

    noun = TASKS[reliance.task].answer_noun
    parts = [
        f"{score.value:.3f} with {SOURCE_LABELS[source]}"
        + ("" if score.difference is None else f" ({score.changed:.0%} of the {noun} change)")
        for source, score in reliance.sources.items()
    ]
    return f"Reliance on concept words: {reliance.metric} {', '.join(parts)}."


def _print_ensemble(task: str, runs: Sequence[Path]) -> None:
    folders, options = " ".join(map(str, runs)), " ".join(f"--model {run}" for run in runs)
    print_line(
        f"All {len(runs)} members are trained. Measure the ensemble: ctsan evaluate {folders} "
        f"--corpus CORPUS --split test\nUse the ensemble: ctsan {task} … {options}"
    )
