"""`ctsan settings`: what can be set in a training, and to what."""

from __future__ import annotations

import click

from ctsan.cli.output import print_json, print_table


@click.command("settings")
@click.option("--profile", help="Only the values of this profile.")
@click.option("--task", help="With the defaults of this task, such as embed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(profile: str | None, task: str | None, as_json: bool) -> None:
    """List every setting of 'ctsan train' with its values in the profiles and what it may be.

    \b
    Examples:
      ctsan settings --profile paper
      ctsan settings --task embed
    """
    from ctsan.config import PROFILES, kinds_of, load_settings

    profiles = [profile] if profile is not None else sorted(PROFILES)
    values = {name: load_settings(name, task=task).to_json() for name in profiles}  # refuses unknown ones
    sections = values[profiles[0]]
    if as_json:
        print_json(
            {
                f"{section}.{setting}": {
                    "expected": kind.expected,
                    **{name: values[name][section][setting] for name in profiles},
                }
                for section in sections
                for setting, kind in kinds_of(section).items()
            }
        )
        return
    rows: list[tuple[str, ...]] = []
    for section in sections:
        rows += [
            (
                f"{section}.{setting}",
                *(_written(values[name][section][setting]) for name in profiles),
                kind.expected,
            )
            for setting, kind in kinds_of(section).items()
        ]
        rows.append(("",) * (len(profiles) + 2))
    print_table(rows[:-1], headers=("setting", *profiles, "may be"))
    click.echo("\nChange one with --set, for example: --set detector.num_concepts=20")


def _written(value: object) -> str:
    """As --set takes it."""
    return str(value).lower() if isinstance(value, bool) else f"{value}"
