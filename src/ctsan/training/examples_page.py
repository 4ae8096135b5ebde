"""An HTML page of validation clips after training: concept words and answers next to reference captions.

The page is one self-contained file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from ctsan.io.atomic import replacing
from ctsan.tasks.task import Example
from ctsan.training import example_html
from ctsan.training.example_html import answer_html, concept_html, legend

NUM_EXAMPLES, NUM_REFERENCES = 12, 3

_STYLE = """
:root { color-scheme: light dark; --ink: #1d232b; --soft: #5b6673; --paper: #f6f5f2; --card: #ffffff;
  --line: #e2e0da; --right: #0b6b4f; --right-paper: #e1f2ea; --wrong: #a3261c; --accent: #7a4a00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #a3adb8; --paper: #14171b; --card: #1e2227; --line: #343a42;
    --right: #7fd6b4; --right-paper: #173329; --wrong: #ff9c90; --accent: #f0b862; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 2.5rem 1.25rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .6rem; }
header p { color: var(--soft); max-width: 46rem; margin: .4rem 0; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .7rem; margin-top: 1.6rem;
  padding: 1.1rem; overflow-wrap: anywhere; }
.frames, article > .gone { margin-bottom: .9rem; }
.says { font-size: 1.3rem; font-weight: 600; line-height: 1.3; margin: 0; }
h2 { font-size: .8rem; font-weight: 600; color: var(--soft); margin: .9rem 0 .25rem; }
.facts { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .2rem 1.5rem;
  color: var(--soft); font-size: .85rem; margin: .15rem 0 0; }
.facts b { color: var(--accent); font-variant-numeric: tabular-nums; }
.words { display: flex; flex-wrap: wrap; gap: .35rem; list-style: none; margin: 0; padding: 0; }
.words li { border: 1px solid var(--line); border-radius: 1rem; padding: .05rem .65rem; color: var(--soft); }
.words .right { color: var(--right); background: var(--right-paper); border-color: currentColor;
  font-weight: 600; }
.words small { font-variant-numeric: tabular-nums; font-weight: 400; }
.people { margin: 0; padding-left: 1.1rem; }
"""


def write_examples_page(out: Path, examples: Sequence[Example], *, title: str, metric: str) -> None:
    """Write the page. Deterministic: the same examples give the same bytes.

    Args:
        metric: name of the examples' score.
    """
    page = "\n".join([*_head(title, metric, examples), *_body(_evenly_spaced(examples), metric), ""])
    with replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")  # for names that are not UTF-8


def _evenly_spaced(examples: Sequence[Example]) -> list[Example]:
    """Select examples evenly spaced from best to worst, so that both successes and failures show."""
    ranked = sorted(examples, key=lambda example: (-example.score, example.clip))
    count = min(NUM_EXAMPLES, len(ranked))
    return [ranked[place * (len(ranked) - 1) // max(1, count - 1)] for place in range(count)]


def _head(title: str, metric: str, examples: Sequence[Example]) -> Iterator[str]:
    total = len(examples)
    how_many = f"{min(NUM_EXAMPLES, total)} of {total:,}" if total > NUM_EXAMPLES else f"All {total}"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title>\n<style>{example_html.STYLE}{_STYLE}</style>\n</head>\n<body>"
    yield f"<header>\n<h1>{escape(title)}</h1>"
    yield (
        f"<p>{how_many} validation clips, from which the model has not learnt, with what it says of them. "
        f"They are evenly spaced over all clips sorted by their own {escape(metric)}: the first is the best "
        "of all, the last is the worst.</p>"
    )
    about_words = "Concept words marked ✓ are in the captions that people wrote of the clip."
    yield f"<p>{escape(legend(examples))}{about_words}</p>\n</header>"


def _body(examples: Sequence[Example], metric: str) -> Iterator[str]:
    yield "<main>"
    for example in examples:
        yield f"<article>\n{answer_html(example)}"
        yield (
            f'<p class="facts"><span>{escape(example.clip)}</span>'
            f"<span>{escape(metric)} <b>{example.score:.2f}</b></span></p>"
        )
        if example.concepts:
            whose = " of the right clip" if example.ranked else ""
            yield f'<h2>Concept words{whose}</h2>\n<ul class="words">'
            yield from map(concept_html, example.concepts)
            yield "</ul>"
        if not example.choices and not example.ranked:
            yield from _references(example.references)
        yield "</article>"
    yield "</main>\n</body>\n</html>"


def _references(references: Sequence[str]) -> Iterator[str]:
    yield '<h2>What people said</h2>\n<ul class="people">'
    yield from (f"<li>{escape(sentence)}</li>" for sentence in references[:NUM_REFERENCES])
    yield "</ul>"
    if (more := len(references) - NUM_REFERENCES) > 0:
        yield f'<p class="facts">and {more} more</p>'
