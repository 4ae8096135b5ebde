"""The HTML page of results for a newcomer: what was compared, on which data, with which conclusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from ctsan.experiments.example_selection import RULE, ComparedExample
from ctsan.experiments.formats import CLAIMS_READING, READING, compared, figure_text, number
from ctsan.experiments.layout import TASK_TITLES, Column
from ctsan.experiments.paper import COMPARED_BY, published_entries
from ctsan.experiments.plots import Line, curves, dot_plot
from ctsan.experiments.results import Cell, Checked, FilledTable, Results
from ctsan.experiments.style import STYLE
from ctsan.experiments.systems import ENSEMBLES, SYSTEMS, MeasuredTask, label_of
from ctsan.training import example_html
from ctsan.training.example_html import answer_html, concept_html, legend

_MARKS = {"holds": "✓", "does not hold": "✗", "cannot tell": "?"}
_QUESTIONS: Mapping[MeasuredTask, str] = {
    "describe": "Say in a sentence what happens in a clip.",
    "fill": "Fill in the word that is missing in a sentence about a clip.",
    "choose": "Choose which of five sentences was written for a clip.",
    "rank": "Find the clip that a sentence was written for among all test clips.",
}


def page(
    results: Results,
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    trainings: Mapping[MeasuredTask, tuple[str, Mapping[str, Line]]],
    examples: Mapping[MeasuredTask, Sequence[ComparedExample]],
) -> str:
    """Render the page as one self-contained file.

    Args:
        facts: corpus, budget and machine.
        trainings: by task, the validation metric and its curve for each system.
        examples: by task.
    """
    return "\n".join(
        [
            *_head(title, facts),
            *_conclusions(results),
            *(line for filled in results.tables for line in _table(filled)),
            *_claims(results.checked),
            *_curves(trainings),
            *_examples(examples),
            *_systems(results),
            "</body>\n</html>\n",
        ]
    )


def _head(title: str, facts: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title>\n<style>{example_html.STYLE}{STYLE}</style>"
    yield "</head>\n<body>\n<header>"
    yield f"<h1>{escape(title)}</h1>"
    yield (
        "<p>CT-SAN (Yu, Ko, Choi and Kim, CVPR 2017) first finds a few <em>concept words</em> in a clip, by "
        "traces that follow regions through its frames, and a language model then attends to these words. "
        "The paper compares it with versions of itself that lack one part each, and with other models. Here "
        "all of them are trained anew on one corpus, with the same features, words, steps and seeds, and "
        "measured on clips that none of them has seen.</p>\n<ul>"
    )
    yield from (f"<li><b>{TASK_TITLES[task]}</b>: {text}</li>" for task, text in _QUESTIONS.items())
    yield '</ul>\n<dl class="facts">'
    yield from (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    yield "</dl>\n</header>"


def _conclusions(results: Results) -> Iterator[str]:
    yield "<section>\n<h2>What to conclude</h2>"
    if not results.checked:
        yield "<p>No two systems that the paper compares are trained yet.</p>"
        yield f"<p>{escape(READING)}</p></section>"
        return
    counts = Counter(one.verdict for one in results.checked)
    total = len(results.checked)
    yield (
        f"<p>Of {total} orders of two systems in a task that the paper claims, <b>{counts['holds']}</b> hold "
        f"on these clips, <b>{counts['does not hold']}</b> do not, and of <b>{counts['cannot tell']}</b> "
        "these clips and seeds cannot tell.</p>"
    )
    pairs: dict[str, list[Checked]] = {}
    for one in results.checked:
        pairs.setdefault(compared(one), []).append(one)
    yield '<div class="wide"><table class="grid-of-claims"><thead><tr><th>The paper says</th>'
    yield "".join(f"<th>{title}</th>" for title in TASK_TITLES.values()) + "</tr></thead><tbody>"
    for pair, checked in pairs.items():
        by_task = {one.task: one for one in checked}
        cells = [_verdict_cell(by_task.get(task)) for task in TASK_TITLES]
        yield f"<tr><th>{escape(pair)}</th>{''.join(cells)}</tr>"
    yield "</tbody></table></div>\n<p>✓ holds, ✗ does not hold, ? cannot tell; with the difference.</p>"
    yield f"<p>{escape(READING)}</p></section>"


def _verdict_cell(one: Checked | None) -> str:
    if one is None:
        return "<td></td>"
    kind = one.verdict.replace(" ", "-")
    return f'<td class="{kind}">{_MARKS[one.verdict]} {one.difference:+.3f}</td>'


def _table(filled: FilledTable) -> Iterator[str]:
    table = filled.table
    if not filled.rows:
        return
    yield f"<section>\n<h2>{escape(table.title)}</h2>\n<p>{escape(table.about)}</p>"
    yield '<div class="wide"><table><thead><tr><th></th>'
    yield "".join(f"<th>{escape(column.title)}</th>" for column in table.columns) + "</tr></thead><tbody>"
    for row in filled.rows:
        cells = (_cell(cell, column) for cell, column in zip(row.cells, table.columns, strict=True))
        yield f"<tr><th>{escape(row.label)}</th>{''.join(cells)}</tr>"
    for name, figures in published_entries(*table.published).items():
        values = [figures.get(column.task, {}).get(column.metric) for column in table.columns]
        cells = (
            f"<td>{'' if value is None else number(value, column)}</td>"
            for value, column in zip(values, table.columns, strict=True)
        )
        yield f'<tr class="published"><th>{escape(name)} <small>LSMDC</small></th>{"".join(cells)}</tr>'
    yield "</tbody></table></div>"
    if table.published:
        yield "<p class='small'>Rows in grey are published entries of LSMDC 2016, on that corpus only.</p>"
    yield '<div class="plots">'
    for column in table.columns:
        if column.metric == COMPARED_BY[column.task]:
            yield f"<figure>{dot_plot(filled, column)}</figure>"
    yield "</div>\n</section>"


def _cell(cell: Cell | None, column: Column) -> str:
    if cell is None:
        return "<td></td>"
    mean, around, paper = figure_text(cell, column)
    mean_html = f"<b>{mean}</b>" if cell.is_best else mean
    below = "" if paper is None else f'<span class="paper">LSMDC {paper}</span>'
    return f'<td>{mean_html}<span class="around">{around}</span>{below}</td>'


def _claims(checked: Sequence[Checked]) -> Iterator[str]:
    if not checked:
        return
    yield f"<section>\n<h2>The paper's claims, one by one</h2>\n<p>{escape(CLAIMS_READING)}</p>"
    yield '<div class="wide"><table class="claims"><thead><tr><th>claim</th><th>task</th><th>metric</th>'
    yield "<th>difference</th><th>95 % interval</th><th>verdict</th><th>paper, LSMDC</th><th>said</th></tr>"
    yield "</thead><tbody>"
    for one in checked:
        low, high = one.interval
        paper = "" if one.in_paper is None else f"{one.in_paper:+.3f}"
        yield (
            f"<tr><th>{escape(compared(one))}</th><td>{TASK_TITLES[one.task]}</td><td>{one.metric}</td>"
            f"<td>{one.difference:+.3f}</td><td>{low:+.3f} to {high:+.3f}</td>"
            f'<td class="{one.verdict.replace(" ", "-")}">{_MARKS[one.verdict]} {one.verdict}</td>'
            f'<td class="paper">{paper}</td><td class="statement">{escape(one.claim.statement)}</td></tr>'
        )
    yield "</tbody></table></div></section>"


def _curves(trainings: Mapping[MeasuredTask, tuple[str, Mapping[str, Line]]]) -> Iterator[str]:
    yield "<section>\n<h2>Training</h2>\n<p>The metric on validation clips by which the weights were chosen, "
    yield 'over the steps, a mean over seeds.</p>\n<div class="plots">'
    for task, (metric, lines) in trainings.items():
        if lines:
            yield f"<figure>{curves(f'{TASK_TITLES[task]}: {metric} on validation', lines)}</figure>"
    yield "</div></section>"


def _examples(examples: Mapping[MeasuredTask, Sequence[ComparedExample]]) -> Iterator[str]:
    if not any(examples.values()):
        return
    yield f"<section>\n<h2>Examples</h2>\n<p>{escape(RULE)} Concept words marked ✓ are in the captions.</p>"
    for task, task_examples in examples.items():
        if task_examples:
            yield f"<h3>{TASK_TITLES[task].capitalize()}</h3>"
            if text := legend([compared_example.example for compared_example in task_examples]):
                yield f"<p>{escape(text)}</p>"
        for compared_example in task_examples:
            example = compared_example.example
            yield f"<article>{answer_html(example)}"
            if not example.choices and not example.ranked:
                truth = (
                    "People said" if task == "describe" else "✓ Right" if example.score == 1 else "✗ Right is"
                )
                yield f"<p class='small'>{truth}: {escape(example.references[0])}</p>"
            if example.concepts:
                yield f'<ul class="words">{"".join(map(concept_html, example.concepts))}</ul>'
            other_answers = "; ".join(
                f"{escape(name)}: {escape(text)}" for name, text in compared_example.answers
            )
            yield f"<p class='small'>{other_answers}</p></article>" if other_answers else "</article>"
    yield "</section>"


def _systems(results: Results) -> Iterator[str]:
    names = dict.fromkeys(row.name for filled in results.tables for row in filled.rows)
    yield '<section>\n<h2>The systems</h2>\n<dl class="systems">'
    for name in names:
        about = (SYSTEMS.get(name) or ENSEMBLES[name]).about
        settings = ", ".join(SYSTEMS[name].overrides) if name in SYSTEMS else ""
        yield f"<dt>{escape(label_of(name))}</dt><dd>{escape(about)}. <code>{escape(settings)}</code></dd>"
    yield "</dl>"
    yield from (f"<p>{escape(note)}</p>" for note in results.notes)
    yield "</section>"
