"""CSS of the tables page; follows the system's light or dark theme."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1d232b; --soft: #5b6673; --paper: #f6f5f2; --card: #ffffff;
  --line: #e2e0da; --right: #0b6b4f; --right-paper: #e1f2ea; --wrong: #a3261c; --wrong-paper: #fbe6e3;
  --accent: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #a3adb8; --paper: #14171b; --card: #1e2227; --line: #343a42;
    --right: #7fd6b4; --right-paper: #173329; --wrong: #ff9c90; --wrong-paper: #3b1d1a; --accent: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 92rem; padding: 2.5rem 1.25rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .8rem; }
h2 { font-size: 1.35rem; margin: 0 0 .5rem; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
header p, header ul, section > p { max-width: 56rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .7rem; padding: 1.3rem;
  margin-top: 1.6rem; }
.facts { display: flex; flex-wrap: wrap; gap: .6rem 2rem; margin: 1rem 0 0; }
.facts dt { color: var(--soft); font-size: .8rem; }
.facts dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .35rem .5rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap;
  vertical-align: top; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--card); }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: 600; }
.around, .paper, .published, .small, small { color: var(--soft); font-size: .8rem; font-weight: 400; }
td .paper { display: block; font-style: italic; }
.published th { font-weight: 400; }
.claims .statement { text-align: left; white-space: normal; min-width: 18rem; color: var(--soft); }
.holds { color: var(--right); background: var(--right-paper); }
.does-not-hold { color: var(--wrong); background: var(--wrong-paper); }
.cannot-tell { color: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem;
  margin-top: 1rem; }
figure { margin: 0; }
svg { width: 100%; height: auto; max-width: 46rem; font-size: 12px; fill: var(--ink); }
svg .strong { font-weight: 700; font-size: 13px; }
svg .grid { stroke: var(--line); }
svg .interval { stroke: var(--accent); stroke-width: 3; opacity: .45; }
svg .mean { stroke: var(--accent); stroke-width: 3; }
svg .seed { fill: none; stroke: var(--ink); stroke-width: 1.3; }
article { border-top: 1px solid var(--line); padding: 1rem 0; overflow-wrap: anywhere; }
.says { font-size: 1.1rem; font-weight: 600; margin: .6rem 0 .2rem; }
article .small { margin: .2rem 0; }
.words { display: flex; flex-wrap: wrap; gap: .35rem; list-style: none; margin: .4rem 0; padding: 0; }
.words li { border: 1px solid var(--line); border-radius: 1rem; padding: .05rem .65rem; color: var(--soft); }
.words .right { color: var(--right); background: var(--right-paper); border-color: currentColor;
  font-weight: 600; }
.systems dt { font-weight: 600; margin-top: .5rem; }
.systems dd { margin: 0; color: var(--soft); }
code { font-size: .8rem; }
@media (max-width: 40rem) { .plots { grid-template-columns: 1fr; } }
"""
