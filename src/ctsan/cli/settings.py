"""`ctsan settings`: list the training settings and their values."""

from __future__ import annotations

from itertools import groupby
from textwrap import wrap

import click

from ctsan.cli.output import print_json, print_line, print_table

_HELP_WIDTH = 60  # characters of a line


@click.command("settings")
@click.option("--profile", help="Only the values of this profile.")
@click.option("--task", help="With the defaults of this task, such as embed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(profile: str | None, task: str | None, as_json: bool) -> None:
    """List every setting of 'ctsan train' with its values in the profiles and what it does.

    \b
    Examples:
      ctsan settings --profile paper
      ctsan settings --task embed
    """
    from ctsan.config import PROFILES, described_settings, load_settings

    profiles = [profile] if profile is not None else sorted(PROFILES)
    values = {name: load_settings(name).to_json() for name in profiles}  # raises on unknown profiles
    if task is not None:
        from ctsan.tasks.registry import task_settings

        values = {name: task_settings(task, name).to_json() for name in profiles}
    if as_json:
        print_json(
            {
                f"{setting.section}.{setting.name}": {
                    "help": setting.help,
                    "expected": setting.expected,
                    **{name: values[name][setting.section][setting.name] for name in profiles},
                }
                for setting in described_settings()
            }
        )
        return
    rows: list[tuple[str, ...]] = []
    for section, settings in groupby(described_settings(), key=lambda setting: setting.section):
        for setting in settings:
            first, *more = wrap(setting.help, _HELP_WIDTH)
            shown = (_format_value(values[name][section][setting.name]) for name in profiles)
            rows.append((f"{section}.{setting.name}", *shown, first))
            rows += [("",) * (len(profiles) + 1) + (line,) for line in more]
        rows.append(("",) * (len(profiles) + 2))
    print_table(rows[:-1], headers=("setting", *profiles, "what it does"))
    print_line("\nChange one with --set, for example: --set detector.num_concepts=20")


def _format_value(value: object) -> str:
    """Format a value as --set accepts it."""
    return str(value).lower() if isinstance(value, bool) else f"{value}"
