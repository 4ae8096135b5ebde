"""Rows and columns of the paper's tables, and of the table of reliance on concept words."""

from __future__ import annotations

from dataclasses import dataclass

from ctsan.experiments.systems import MeasuredTask
from ctsan.tasks.registry import TASKS
from ctsan.tasks.reliance import WordSource

TASK_TITLES: dict[MeasuredTask, str] = {
    "describe": "description",
    "fill": "blank",
    "choose": "choice",
    "rank": "retrieval",
}


@dataclass(frozen=True, slots=True)
class Column:
    task: MeasuredTask  # whose runs it evaluates
    metric: str
    title: str
    in_percent: bool = False
    is_lower_better: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    name: str
    title: str
    about: str
    rows: tuple[str, ...]  # systems and ensembles
    columns: tuple[Column, ...]
    published: tuple[MeasuredTask, ...] = ()  # tasks whose other published entries are listed below


_CAPTIONS = (
    *(Column("describe", f"BLEU-{n}", f"B{n}") for n in range(1, 5)),
    Column("describe", "METEOR", "METEOR"),
    Column("describe", "ROUGE-L", "ROUGE-L"),
    Column("describe", "CIDEr", "CIDEr"),
)
_BLANK = Column("fill", "accuracy", "blank %", in_percent=True)
_CHOICE = Column("choose", "accuracy", "choice %", in_percent=True)
_RANKS = (
    *(Column("rank", f"R@{k}", f"R@{k} %", in_percent=True) for k in (1, 5, 10)),
    Column("rank", "median rank", "median rank", is_lower_better=True),
)
_WORDS = (
    Column("describe", "precision", "words right %", in_percent=True),
    Column("describe", "mean average precision", "words MAP"),
)
_DIFFERENT = Column("describe", "different", "different %", in_percent=True)


def reliance_metric(metric: str, source: WordSource) -> str:
    """Name a metric of answers that were given with concept words from a source."""
    return f"{metric}, words: {source}"


def changed_metric(source: WordSource) -> str:
    """Name the metric for the share of answers that differ from those with the clips' own words."""
    return f"changed, words: {source}"


def _reliance_columns(task: MeasuredTask, title: str, *, in_percent: bool = False) -> tuple[Column, ...]:
    metric = TASKS[task].primary_metric
    sources: dict[WordSource, str] = {
        "own": title,
        "another": f"{title}, another's",
        "none": f"{title}, none",
    }
    changed = Column(task, changed_metric("another"), f"{TASKS[task].answer_noun} changed %", in_percent=True)
    return (
        *(
            Column(task, reliance_metric(metric, source), text, in_percent)
            for source, text in sources.items()
        ),
        changed,
    )


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            name="description-blank",
            title="Description and fill-in-the-blank",
            about="The paper's table 1. 'different' is the share of clips with a sentence of their own.",
            rows=(
                "ct-san",
                "ct-san-ensemble",
                "ct-san-alone",
                "base-san",
                "base-san-ensemble",
                "s2vt",
                "temporal-attention",
                "simple-lstm",
                "simple-blstm",
                "simple-lstm-clip",
                "simple-blstm-clip",
            ),
            columns=(*_CAPTIONS, _DIFFERENT, _BLANK),
            published=("describe", "fill"),
        ),
        Table(
            name="choice-retrieval",
            title="Multiple choice and retrieval",
            about="The paper's table 2.",
            rows=(
                "ct-san",
                "ct-san-ensemble",
                "ct-san-alone",
                "base-san",
                "base-san-ensemble",
                "dual-encoder",
            ),
            columns=(_CHOICE, *_RANKS),
            published=("choose", "rank"),
        ),
        Table(
            name="concept-words",
            title="How good the concept words are",
            about="The paper's tables of more baselines: systems that differ only in where concept words "
            "come from. 'words right' is how many of a test clip's concept words are in its captions.",
            rows=(
                "ct-san",
                "ct-san-weighted",
                "decoupled",
                "no-att-san",
                "nn-san",
                "rand-san",
                "rand-san-fixed",
                "base-san",
            ),
            columns=(*_WORDS, *_CAPTIONS, _BLANK, _CHOICE, *_RANKS),
        ),
        Table(
            name="number-of-words",
            title="How many concept words",
            about="The paper's table of K.",
            rows=("ct-san-k5", "ct-san", "ct-san-k20"),
            columns=(_WORDS[0], *_CAPTIONS, _BLANK, _CHOICE),
        ),
        Table(
            name="attention",
            title="Attention on words read, words generated, or both",
            about="The paper's ablation of semantic attention.",
            rows=("only-input", "only-output", "ct-san"),
            columns=(*_CAPTIONS, _BLANK),
        ),
        Table(
            name="reliance",
            title="Reliance on concept words",
            about="Not in the paper: each model with the clips' own concept words, with another clip's in "
            "their place, and with none. 'changed' is the share of answers that differ with another clip's "
            "words. A model that loses nothing by them does not use its words.",
            rows=(
                "ct-san",
                "ct-san-weighted",
                "ct-san-alone",
                "decoupled",
                "no-att-san",
                "nn-san",
                "rand-san",
                "rand-san-fixed",
                "ct-san-k5",
                "ct-san-k20",
                "only-input",
                "only-output",
            ),
            columns=(
                *_reliance_columns("describe", "CIDEr"),
                *_reliance_columns("fill", "blank %", in_percent=True),
                *_reliance_columns("choose", "choice %", in_percent=True),
                *_reliance_columns("rank", "MRR"),
            ),
        ),
    )
}
