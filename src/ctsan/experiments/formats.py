"""Format results as Markdown, LaTeX, CSV and JSON, all with the same figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from ctsan.experiments.layout import TASK_TITLES, Column
from ctsan.experiments.paper import published_entries
from ctsan.experiments.results import FEWEST_SEEDS, Cell, Checked, FilledTable, Results
from ctsan.experiments.systems import label_of

READING = (
    "A figure is the mean over seeds ± half of its 95 % interval (Student's t over seeds; with one seed, and "
    "for ensembles, a bootstrap over clips). The best of a column is bold. 'LSMDC' marks what the paper "
    "printed for the same system on another corpus, LSMDC 2016: it is no target here, and only the order of "
    "systems can be compared."
)
CLAIMS_READING = (
    "Each line is an order of two systems that the paper's text claims, tested on this corpus by the metric "
    "that is named: the difference of the means over seeds, its 95 % interval by a paired bootstrap that "
    "draws test clips and seeds, and the verdict. It is 'cannot tell' where the interval holds 0 or a side "
    f"has fewer than {FEWEST_SEEDS} seeds; an ensemble is measured once, so it has one. That two are about "
    "the same holds where the whole interval is within a tenth of the figure. Both systems of a line start "
    "alike: the simple models of blanks, which start from no description model, are compared with CT-SAN "
    "from nothing."
)


_CSV_COLUMNS = (
    *("table", "system", "task", "metric", "mean", "half_width", "low", "high", "is_best"),
    *("paper_on_lsmdc", "values"),
)


def number(value: float, column: Column) -> str:
    if column.in_percent:
        return f"{100 * value:.1f}"
    return f"{value:.1f}" if column.is_lower_better else f"{value:.3f}"


def figure_text(cell: Cell, column: Column) -> tuple[str, str, str | None]:
    """Format a cell: its mean, the rest of the figure, and the paper's figure."""
    around = "" if cell.half_width is None else f" ± {number(cell.half_width, column)}"
    return number(cell.mean, column), around, None if cell.paper is None else number(cell.paper, column)


def compared(claim: Checked) -> str:
    """Format a claim: `CT-SAN above Base-SAN`, or `as good as`."""
    word = "above" if claim.claim.kind == "above" else "about the same as"
    return f"{label_of(claim.claim.better)} {word} {label_of(claim.claim.worse)}"


def markdown(results: Results, title: str, facts: list[tuple[str, str]]) -> str:
    return "\n".join(_markdown(results, title, facts)) + "\n"


def _markdown(results: Results, title: str, facts: list[tuple[str, str]]) -> Iterator[str]:
    yield f"# {title}\n"
    yield from (f"- {name}: {value}" for name, value in facts)
    yield f"\n{READING}\n"
    yield from (f"> {note}\n" for note in results.notes)
    for filled in results.tables:
        if not filled.rows:
            continue
        yield f"## {filled.table.title}\n\n{filled.table.about}\n"
        yield f"| system | {' | '.join(column.title for column in filled.table.columns)} |"
        yield f"|---|{'---:|' * len(filled.table.columns)}"
        for row in filled.rows:
            cells = [
                "" if cell is None else _markdown_cell(cell, column)
                for cell, column in zip(row.cells, filled.table.columns, strict=True)
            ]
            yield f"| {row.label} | {' | '.join(cells)} |"
        for name, figures in published_entries(*filled.table.published).items():
            cells = [
                "" if value is None else f"*{number(value, column)}*"
                for column in filled.table.columns
                for value in [figures.get(column.task, {}).get(column.metric)]
            ]
            yield f"| *{name} (published, LSMDC only)* | {' | '.join(cells)} |"
        yield ""
    yield f"## What the paper claims, here\n\n{CLAIMS_READING}\n"
    yield "| claim | task | metric | difference | 95 % interval | verdict | on LSMDC, paper |"
    yield "|---|---|---|---:|---|---|---:|"
    for claim in results.checked:
        low, high = claim.interval
        paper = "" if claim.in_paper is None else f"*{claim.in_paper:+.3f}*"
        yield (
            f"| {compared(claim)} | {TASK_TITLES[claim.task]} | {claim.metric} | {claim.difference:+.3f} | "
            f"{low:+.3f} to {high:+.3f} | **{claim.verdict}** | {paper} |"
        )


def _markdown_cell(cell: Cell, column: Column) -> str:
    mean, around, paper = figure_text(cell, column)
    text = f"**{mean}**{around}" if cell.is_best else f"{mean}{around}"
    return text if paper is None else f"{text}<br>*LSMDC {paper}*"


def latex(results: Results) -> str:
    """Format each table as a tabular; needs booktabs and xcolor. The paper's figures are grey."""
    notes = [f"% {note}" for note in results.notes]
    return "\n".join([*notes, *(line for filled in results.tables for line in _latex(filled))])


def _latex(filled: FilledTable) -> Iterator[str]:
    columns = filled.table.columns
    if not filled.rows:
        return
    yield f"% {filled.table.title}. {READING}"
    yield rf"\begin{{tabular}}{{l{'r' * len(columns)}}}" + "\n" + r"\toprule"
    yield " & ".join(["", *(_escaped(column.title) for column in columns)]) + r" \\ \midrule"
    for row in filled.rows:
        ours, papers = [], []
        for cell, column in zip(row.cells, columns, strict=True):
            mean, around, paper = ("", "", None) if cell is None else figure_text(cell, column)
            mean_text = rf"\textbf{{{mean}}}" if cell is not None and cell.is_best else mean
            ours.append(mean_text + around.replace("±", r"$\pm$"))
            papers.append("" if paper is None else _grey(paper))
        yield " & ".join([_escaped(row.label), *ours]) + r" \\"
        if any(papers):
            yield " & ".join([_grey(r"\quad paper, on LSMDC"), *papers]) + r" \\"
    for name, figures in published_entries(*filled.table.published).items():
        published = [
            "" if value is None else _grey(number(value, column))
            for column in columns
            for value in [figures.get(column.task, {}).get(column.metric)]
        ]
        yield " & ".join([_grey(f"{_escaped(name)} (published, LSMDC only)"), *published]) + r" \\"
    yield r"\bottomrule" + "\n" + r"\end{tabular}" + "\n"


def _grey(text: str) -> str:
    return rf"\textcolor{{gray}}{{\scriptsize {text}}}"


def _escaped(text: str) -> str:
    for sign in ("%", "&", "_"):
        text = text.replace(sign, rf"\{sign}")
    return text


def as_csv(results: Results) -> str:
    """Format one line per cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for filled in results.tables:
        for row in filled.rows:
            for cell, column in zip(row.cells, filled.table.columns, strict=True):
                if cell is not None:
                    low, high = cell.interval or ("", "")
                    figures = [cell.mean, cell.half_width, low, high, int(cell.is_best), cell.paper]
                    writer.writerow(
                        [filled.table.name, row.name, column.task, column.metric]
                        + ["" if one is None else one for one in figures]
                        + [" ".join(map(str, cell.values))]
                    )
    return file.getvalue()


def as_json(results: Results, facts: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "facts": dict(facts),
        "reading": READING,
        "notes": list(results.notes),
        "tables": {
            filled.table.name: {
                "title": filled.table.title,
                "rows": {
                    row.name: {
                        f"{column.task}: {column.metric}": {
                            "values": cell.values,
                            "mean": cell.mean,
                            "half_width": cell.half_width,
                            "interval_over_clips": cell.interval,
                            "is_best": cell.is_best,
                            "paper_on_lsmdc": cell.paper,
                        }
                        for cell, column in zip(row.cells, filled.table.columns, strict=True)
                        if cell is not None
                    }
                    for row in filled.rows
                },
                "published_on_lsmdc": published_entries(*filled.table.published),
            }
            for filled in results.tables
        },
        "claims": [
            {
                "better": one.claim.better,
                "worse": one.claim.worse,
                "kind": one.claim.kind,
                "statement": one.claim.statement,
                "task": one.task,
                "metric": one.metric,
                "difference": one.difference,
                "interval": one.interval,
                "verdict": one.verdict,
                "difference_in_paper_on_lsmdc": one.in_paper,
            }
            for one in results.checked
        ],
    }
