"""The types of the options of commands, and the panels of their help.

A type that several commands use is defined here, once: with its metavariable, its panel and its help.
"""

from __future__ import annotations

from contextlib import suppress
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from cyclopts import Group, Parameter

from lmos_actors.errors import ConfigError

MOST_SEEDS: Final = 100_000
MOST_WORKERS: Final = 1_000

WHICH: Final = Group("Selection of runs", sort_key=1)
HOW: Final = Group("Execution", sort_key=2)
WRITTEN: Final = Group("Output", sort_key=3)

REACHED: Final = Group("Connection", sort_key=1)
PRINTED: Final = Group("Output", sort_key=2)

PRESENTED: Final = Group("Outgoing connections", sort_key=1.3)


def _duration(_: Any, tokens: Any) -> float:
    from lmos_actors.files import Duration

    return float(Duration.parse(tokens[0].value))


def _positive_duration(kind: Any, tokens: Any) -> float:
    seconds = _duration(kind, tokens)
    if seconds <= 0:
        raise ConfigError("must be more than 0s", tokens[0].keyword)
    return seconds


def whole(_: Any, tokens: Any) -> int:
    """Return the value of an option as a whole number. Raise ValueError."""
    from lmos_actors._core import whole_number_of

    return whole_number_of(tokens[0].value)


def decimal(_: Any, tokens: Any) -> float:
    """Return the value of an option as a number. Raise ValueError."""
    from lmos_actors._core import number_of

    return number_of(tokens[0].value)


def _workers(_: Any, tokens: Any) -> int:
    text = tokens[0].value
    if text == "auto":
        return 0
    if not text.isascii() or not text.isdecimal() or not len(text) < 10 or int(text) > MOST_WORKERS:
        raise ValueError(f'"{text}" is not a number up to {MOST_WORKERS}, nor auto')
    return int(text)


def _shown_duration(value: float) -> str:
    return f"{value:g}s"


Files: TypeAlias = Annotated[
    list[Path],
    Parameter(
        negative=(),
        help="Scenario and simulation files: YAML, TOML or JSON. A folder stands for those in it, by name.",
    ),
]
Url: TypeAlias = Annotated[
    str,
    Parameter(
        name="URL",
        help="The URL of an agent or of its description, a file with the description, or a ws:// or wss:// "
        "URL.",
    ),
]
File: TypeAlias = Annotated[str | None, Parameter(metavar="FILE")]
Texts: TypeAlias = Annotated[list[str] | None, Parameter(negative=())]
Switch: TypeAlias = Annotated[bool, Parameter(negative=(), show_default=False)]
Force: TypeAlias = Annotated[
    Switch, Parameter(help="Write through links, and over files that no command of ours has written.")
]
Json: TypeAlias = Annotated[Switch, Parameter(help="Print what is found as JSON, and nothing else.")]
JsonLines: TypeAlias = Annotated[
    Switch, Parameter(group=PRINTED, help="Print JSON lines on a terminal too (the default elsewhere).")
]
Written: TypeAlias = Annotated[Path | None, Parameter(metavar="FILE", group=WRITTEN)]
Settings: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative=(),
        metavar="NAME=VALUE",
        group=WHICH,
        help="Give a variable, or narrow a key of the matrix or the sweep. May be given several times.",
    ),
]
Variables: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative=(),
        metavar="NAME=VALUE",
        help="Give a variable of the file. May be given several times.",
    ),
]
Time: TypeAlias = Annotated[
    float, Parameter(converter=_duration, metavar="DURATION", show_default=_shown_duration)
]
Limit: TypeAlias = Annotated[
    float, Parameter(converter=_positive_duration, metavar="DURATION", show_default=_shown_duration)
]
Within: TypeAlias = Annotated[
    Limit | None,
    Parameter(
        group=REACHED,
        show_default=False,
        help="Time limit for the whole command, such as 10s or 2m; exit code 124 when it has passed.",
    ),
]
TimeLimit: TypeAlias = Annotated[
    Limit | None,
    Parameter(
        group=HOW,
        show_default=False,
        help="How long one run may take in real time, such as 10s or 2m; if not given, 1m and a second "
        "for each 1,000 agents of populations.",
    ),
]
RunNumber: TypeAlias = Annotated[
    int | None,
    Parameter(converter=whole, name="--run", metavar="N", group=WHICH, help="Which run, counted from 1."),
]
Workers: TypeAlias = Annotated[int, Parameter(name=["-j", "--workers"], converter=_workers, metavar="N")]


def at_least(value: int | None, least: int, option: str) -> int | None:
    """Return a number if it is large enough. Raises ConfigError."""
    if value is not None and value < least:
        raise ConfigError(f"must be at least {least}", option)
    return value


def settings_of(pairs: list[str] | None, option: str = "--set") -> dict[str, str]:
    """Return the values of `--set`, or of another option, by name. Raises ConfigError."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f'"{pair}" is not NAME=VALUE', option)
        found[key] = value
    return found


def seeds_of(text: str) -> list[int]:
    """Read `7`, `1,7,42` or `1..500`. Raises ConfigError."""
    from lmos_actors._core import whole_number_of

    numbers: range | list[int] = []
    with suppress(ValueError):
        first, dots, last = text.partition("..")
        if dots:
            numbers = range(whole_number_of(first), whole_number_of(last) + 1)
        else:
            numbers = [whole_number_of(part) for part in text.split(",")]
    if not numbers[:1]:
        raise ConfigError(f'"{text}" is not 7, nor 1,7,42, nor 1..500', "--seeds")
    if numbers[MOST_SEEDS:]:
        raise ConfigError(f'"{text}" has more than {MOST_SEEDS} seeds', "--seeds")
    if len(set(numbers)) < len(numbers):
        raise ConfigError(f'"{text}" has a seed twice', "--seeds")
    return list(numbers)


def json_text(data: Any) -> str:
    """Return plain data as JSON text that people can also read."""
    return dumps(data, indent=2, ensure_ascii=False)
