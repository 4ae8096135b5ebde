"""`ctsan train`: learn from a corpus."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctsan.cli.features import BACKBONE, WEIGHTS, named_backbone
from ctsan.cli.output import count, print_json, progress_bar, warn

if TYPE_CHECKING:
    from ctsan.cli.preparing import TrainRequest
    from ctsan.config import Settings
    from ctsan.tasks.reliance import Reliance
    from ctsan.tasks.task import Task
    from ctsan.training.loop import Progress, Result
    from ctsan.video.backbones import Backbone

_PARTED = 0.15  # from this difference on, a detector is said to know its training clips by heart


class _Tasks(click.Group):
    """One command for each task of the registry, which brings PyTorch with it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        from ctsan.tasks.registry import TASKS

        return list(TASKS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command_for(cmd_name) if cmd_name in self.list_commands(ctx) else None


@click.group("train", cls=_Tasks)
def command() -> None:
    """Train a model on a corpus; stopped at any moment, the same command goes on."""


_EXAMPLES = """

\b
Examples:
  ctsan train {task} --corpus my-clips/ --out runs/mine
  ctsan train {task} --corpus my-clips/ --out runs/k20 --set detector.num_concepts=20
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
        from ctsan.cli.features import check_one_each
        from ctsan.cli.preparing import TrainRequest
        from ctsan.errors import UsageError
        from ctsan.runs.trained_run import run_to_start_from

        if transfer and source is None:
            raise UsageError("--transfer says what to take over from a run. Name one: --from RUN")
        each = "--corpus, then for each --external" if external else "corpus"
        check_one_each("--features", features, (*corpora, *external), each=each)
        if features and (backbone_name or weights):
            raise UsageError(
                "--features names maps that are made already, and --backbone and --weights a network to make "
                "some with. Leave out one."
            )
        source = source and run_to_start_from(source, task_name)
        taking = (f"training.transfer={transfer}",) if transfer else ()
        request = TrainRequest(
            task=task_name,
            corpora=corpora,
            external=external,
            profile=profile,
            overrides=(*overrides, *taking),
            features=features,
            source=source,
            vectors=vectors,
            backbone=None
            if features
            else _backbone(backbone_name, weights, out / "1" if ensemble else out, source),
        )
        _train(request, out, ensemble, as_json=as_json)

    return train


def _backbone(name: str | None, weights: Path | None, run: Path, source: Path | None) -> Backbone:
    """The network that a person names; else that of the run to go on with or to start from; else the default.

    Raises:
        UsageError: it is not there, or that run was trained on imported features.
    """
    from ctsan.errors import UsageError
    from ctsan.runs.run_folder import has_begun
    from ctsan.runs.trained_run import FEATURES_FILE, read_recipe
    from ctsan.video.backbones import DEFAULT_BACKBONE, backbone_of

    known = run if has_begun(run) else source
    if name or known is None or not (known / FEATURES_FILE).is_file():
        return named_backbone(name or DEFAULT_BACKBONE, weights)
    recipe = read_recipe(known)
    if recipe.details.get("imported"):
        raise UsageError(
            f"{known}: it was trained on imported features of {recipe.backbone}, which ctsan cannot compute. "
            "Give a folder of such: --features FOLDER"
        )
    return backbone_of(recipe, weights)


def _train(request: TrainRequest, out: Path, ensemble: int | None, *, as_json: bool) -> None:
    from ctsan.cli.preparing import check_splits, load_task, prepare, settings_for
    from ctsan.data.reading import read_corpora
    from ctsan.runs.run_folder import check_ensemble_folder, check_folder, training_alone
    from ctsan.training.processes import OtherProcessError, joined_processes

    runs = [out / str(number + 1) for number in range(ensemble)] if ensemble else [out]
    reports = []
    try:
        with joined_processes() as processes, ExitStack() as held:
            with processes.together():
                clips = read_corpora(request.corpora, external=request.external)
                settings = settings_for(request, runs)
                if processes.is_first:  # the others wait
                    check_splits(request, clips)
                    if ensemble:
                        check_ensemble_folder(out)
                    for run in runs:
                        check_folder(run)
                        held.enter_context(training_alone(run))
                    prepare(request, clips, runs, settings)
            for number, (run, own) in enumerate(zip(runs, settings, strict=True), start=1):
                if ensemble and processes.is_first:
                    warn(f"Member {number} of {ensemble}, in {run}:")
                if processes.is_first and request.task != "embed" and _fits_probes(run, own):
                    warn("Fitting probes of concept words to the training clips.")
                with processes.together():
                    task = load_task(request, clips, run, own)
                result = _train_visibly(task, run, own, is_first=processes.is_first)
                with processes.together():
                    if processes.is_first:
                        reports.append(_conclude(request.task, task, result, run, own, quiet=as_json))
    except OtherProcessError as error:
        raise SystemExit(error.exit_code) from None
    if processes.is_first and ensemble:
        _conclude_ensemble(request, out, runs, reports, as_json=as_json)
    elif processes.is_first and as_json:
        print_json(reports[0])


def _train_visibly(task: Task[Any], out: Path, settings: Settings, *, is_first: bool) -> Result:
    """Train, with a bar, a line for each evaluation, and a warning once the detector's precisions part."""
    from ctsan.training.loop import train

    if not is_first:
        return train(task, out, optimiser=settings.optimiser, training=settings.training)
    with progress_bar(0, what="training", unit="step") as bar:
        warned = False

        def show(progress: Progress) -> None:
            if bar.n == 0:  # steps of an earlier call say nothing of the pace of this one
                bar.initial = bar.n = progress.step
            bar.total = progress.total_steps
            losses = ", ".join(f"{name} {value:.2f}" for name, value in progress.losses.items())
            bar.set_postfix_str(f"{losses}, {progress.words_per_second:,.0f} words/s", refresh=False)
            bar.update(progress.step - bar.n)

        def tell(step: int, metrics: Mapping[str, float]) -> None:
            nonlocal warned
            values = ", ".join(f"{name} {value:.3f}" for name, value in metrics.items())
            bar.write(f"step {step:,}: {values}", file=sys.stderr)
            if not warned and (warning := _parting(metrics, settings)):
                bar.write(warning, file=sys.stderr)
                warned = True

        return train(
            task,
            out,
            optimiser=settings.optimiser,
            training=settings.training,
            on_progress=show,
            on_evaluation=tell,
        )


def _conclude(
    name: str, task: Task[Any], result: Result, out: Path, settings: Settings, *, quiet: bool
) -> dict[str, object]:
    """Draw the curves, show examples of the best weights, and say how it went; the report is for JSON."""
    from ctsan.runs.checkpoint import WEIGHTS_FILE, load_weights
    from ctsan.training.curves import draw_curves
    from ctsan.training.examples_page import write_examples_page
    from ctsan.training.metrics import METRICS_FILE, read_metrics

    draw_curves(out / METRICS_FILE, out / "curves.svg")
    load_weights(out / WEIGHTS_FILE, task.model)
    title = f"Examples of {out.name}"
    write_examples_page(out / "examples.html", task.examples(), title=title, metric=task.primary_metric)
    reliance = _measure_reliance(name, task, result, out, settings)
    best: dict[str, float] = next(
        row["metrics"]
        for row in read_metrics(out / METRICS_FILE)
        if row["step"] == result.best_step and "metrics" in row
    )
    if not quiet:
        if result.stopped_early:
            click.echo(f"Stopped early: {settings.training.patience} evaluations in a row were no better.")
        if task.primary_metric in best:
            click.echo(
                f"{count(result.steps, 'step')}; the best weights are those of step {result.best_step:,} "
                f"({task.primary_metric} {result.best_score:.3f} on validation)."
            )
        if "precision" in best:
            click.echo(
                f"Of their concept words, {best['precision on train']:.0%} are right on training clips and "
                f"{best['precision']:.0%} on validation clips."
            )
        if reliance is not None:
            click.echo(_reliance_line(reliance))
        click.echo(
            f"The curves are in {out / 'curves.svg'}, examples in {out / 'examples.html'}. "
            f"Measure it: ctsan evaluate {out} --corpus CORPUS --split test"
        )
    if task.primary_metric not in best:
        warn(
            "The validation clips' captions give no questions, so the last weights are kept, good or bad. "
            "Caption more clips of other sources, or give the split 'val' items of your own."
        )
    if warning := _parting(best, settings):
        warn(warning)
    metrics = {name: None if value is None else round(value, 4) for name, value in best.items()}
    told: dict[str, object] = {"run": str(out), "steps": result.steps, "best_step": result.best_step}
    return told | metrics | ({} if reliance is None else {"reliance": reliance.to_json()})


def _measure_reliance(
    name: str, task: Task[Any], result: Result, out: Path, settings: Settings
) -> Reliance | None:
    """How much the best weights rely on concept words on validation clips, written into the run folder.

    None of a model without concept words, or where there is nothing to ask.
    """
    from ctsan.io.atomic import write_json
    from ctsan.tasks.loaded_model import LoadedModel, reads_concepts
    from ctsan.tasks.reliance import QUICK_SOURCES, RELIANCE_FILE, measure_reliance

    if not reads_concepts(task.model):
        return None
    model: Any = task.model
    clips = task.clips
    member: LoadedModel[Any] = LoadedModel(model, clips.words, clips.max_frames, settings.decoding.max_words)
    reliance = measure_reliance(name, task, member, sources=QUICK_SOURCES)
    if reliance is not None:
        measured = {"task": name, "split": "val", "step": result.best_step, **reliance.to_json()}
        write_json(out / RELIANCE_FILE, measured)
    return reliance


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


def _conclude_ensemble(
    request: TrainRequest,
    out: Path,
    runs: Sequence[Path],
    reports: Sequence[dict[str, object]],
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json({"run": str(out), "members": reports})
        return
    measured, asked = " ".join(map(str, runs)), " ".join(f"--model {run}" for run in runs)
    click.echo(
        f"All {len(runs)} members are trained. Measure them as one: ctsan evaluate {measured} "
        f"--corpus CORPUS --split test\nAsk them as one: ctsan {request.task} … {asked}"
    )


def _parting(metrics: Mapping[str, float], settings: Settings) -> str | None:
    """What to say when the concept words are right much more often on clips that the detector has learnt."""
    known, new = metrics.get("precision on train"), metrics.get("precision")
    if known is None or new is None or known - new <= _PARTED:
        return None
    if settings.training.out_of_fold:
        done = "So that captions do not trust its words too much, they learn with words chosen out of fold"
    else:
        done = (
            "Captions learn to trust its words too much; --set training.out_of_fold=true gives them words "
            "that were chosen without the clip's captions"
        )
    return (
        f"The detector knows its training clips by heart: {known:.0%} of its words are right there, and "
        f"{new:.0%} on validation clips. {done} ('Words that deserve trust' in docs/training.md). More "
        "captioned clips help."
    )


def _fits_probes(run: Path, settings: Settings) -> bool:
    """Whether the detector's probe or those out of fold are fitted first, which takes up to minutes."""
    from ctsan.runs.checkpoint import CHECKPOINT_FILE

    detector, training = settings.detector, settings.training
    if not detector.enabled or detector.kind in ("nearest", "random"):
        return False
    has_probe = detector.probe == "mlp" and detector.kind != "decoupled"
    is_new = not (run / CHECKPOINT_FILE).exists()
    return training.out_of_fold or (has_probe and is_new and not training.freeze_clip_encoder)
