"""From profiles, `--set` and settings.json to `Settings`, every value checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ctsan.config.old_names import BEFORE, RENAMED, current, current_value
from ctsan.config.profiles import PROFILES
from ctsan.config.settings import SECTIONS, Settings, ValueType, value_types
from ctsan.errors import OldRunError, UsageError, abridged, did_you_mean, warn_renamed

_SHOWN = 80  # letters of an unknown name in a message


def load_settings(profile: str, overrides: Sequence[str] = ()) -> Settings:
    """A profile with some settings changed: see `overridden`. `tasks.registry.task_settings` adds a task's.

    Raises:
        UsageError: there is no such profile, or an override cannot be taken.
    """
    if profile not in PROFILES:
        hint = did_you_mean(profile, PROFILES) or f"There are {' and '.join(PROFILES)}. "
        raise UsageError(f"Unknown profile {profile!r}. {hint}".strip())
    return overridden(PROFILES[profile], overrides)


def overridden(settings: Settings, overrides: Sequence[str]) -> Settings:
    """Settings with some changed, each written as `detector.num_concepts=20`; the last one counts.

    Epochs take the place of steps.

    Raises:
        UsageError: names every override that cannot be taken, and why.
    """
    values = settings.to_json()
    malformed = []
    for override in overrides:
        name, equals, text = override.partition("=")
        name, text = name.strip(), text.strip()
        if name in RENAMED:
            warn_renamed(name, RENAMED[name])
            name, text = RENAMED[name], str(current_value(name, text.lower()))
        section, dot, setting = name.partition(".")
        if not (equals and dot):
            example = "Write section.setting=value, for example detector.num_concepts=20."
            malformed.append(f"{override!r} sets nothing. {example}")
            continue
        values.setdefault(section, {})[setting] = _read(value_types(section).get(setting), text)
        if (section, setting) == ("training", "epochs"):  # which would count for nothing beside steps
            values["training"]["steps"] = 0
    return _checked(values, malformed)


def settings_from_json(value: object) -> Settings:
    """What `to_json` gave, be it of an older version, which had other settings.

    A setting that is missing has its value in `old_names.BEFORE`, else its default.

    Raises:
        OldRunError: it is of a run with a ridge regression as its probe.
        UsageError: names every setting that is unknown or cannot have its value.
    """
    if not isinstance(value, dict) or not all(isinstance(section, dict) for section in value.values()):
        raise UsageError("Settings are an object of sections, each an object of settings.")
    known = current(_flat(value))
    probe = known.get("detector.probe")
    if probe is True or probe == "ridge":
        raise OldRunError(
            "This run is of an older ctsan: its probe of concept words (detector.probe) is a ridge "
            "regression, which this version does not have. Train it again in another folder."
        )
    return _checked(_sections({**BEFORE, **known}), [])


def check_resumable(file: Path, stored: Mapping[str, object], given: Mapping[str, object]) -> None:
    """Refuse to go on with other settings than those in `file`, except to train for longer.

    Both are sections as in `to_json`; `stored` may be of an older version, as in `settings_from_json`.

    Raises:
        UsageError: names every setting that differs.
    """
    now, defaults = _flat(given), _flat(Settings().to_json())
    kept = current(_flat(stored))
    before = {name: BEFORE.get(name, defaults[name]) for name in now if name in defaults} | kept
    longer = ("training.epochs", "training.steps", "training.patience")
    differing = [
        f"{name} is {_shown(before.get(name))} there and {_shown(now.get(name))} now"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
        and not (name in longer and type(before.get(name)) is int and now.get(name, 0) > before[name])
    ]
    if differing:
        raise UsageError(
            f"{file}: this run was started with other settings: {'; '.join(differing)}. Give it the same "
            f"ones (only {', '.join(longer[:-1])} and {longer[-1]} may be raised), or name another folder "
            "for a new run."
        )


def _checked(values: Mapping[str, Mapping[str, object]], problems: list[str]) -> Settings:
    sections = {}
    for section, given in values.items():
        if section not in SECTIONS:
            hint = did_you_mean(section, SECTIONS) or f"There are {', '.join(SECTIONS)}. "
            problems.append(f"Unknown section [{section[:_SHOWN]}]. {hint}".strip())
            continue
        types, accepted = value_types(section), {}
        for name, value in given.items():
            if name not in types:
                hint = did_you_mean(name, types) or f"It has {', '.join(types)}. "
                problems.append(f"Unknown setting {abridged(name)} in [{section}]. {hint}".strip())
            elif not _is_accepted(types[name], value):
                expected = types[name].expected
                problems.append(
                    f"Setting {section}.{name} cannot be {abridged(value)}. It must be {expected}."
                )
            else:
                accepted[name] = types[name].base(value)
        sections[section] = SECTIONS[section](**accepted)
    settings = Settings(**sections)
    if settings.detector.num_concepts > settings.detector.num_candidates:
        most = settings.detector.num_candidates
        problems.append(f"Setting detector.num_concepts must be at most detector.num_candidates, {most}.")
    if problems:
        raise UsageError("\n".join(problems))
    return settings


def _shown(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= _SHOWN else abridged(value)


def _read(kind: ValueType | None, text: str) -> object:
    """Text as a value of its kind; the text itself where it is none, to be refused by the check."""
    try:
        if kind is None or kind.base is str:
            return text
        if kind.base is bool:
            return {"true": True, "false": False}.get(text.lower(), text)
        return kind.base(text)
    except ValueError:
        return text


def _is_accepted(kind: ValueType, value: object) -> bool:
    if kind.base is float and isinstance(value, int | float) and type(value) is not bool:
        return kind.accepts(value)  # which no infinite number is
    return type(value) is kind.base and kind.accepts(value)


def _sections(flat: Mapping[str, object]) -> dict[str, dict[str, object]]:
    sections: dict[str, dict[str, object]] = {}
    for name, value in flat.items():
        section, _, setting = name.partition(".")
        sections.setdefault(section, {})[setting] = value
    return sections


def _flat(sections: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{section}.{name}": value for section, given in sections.items() for name, value in given.items()
    }
