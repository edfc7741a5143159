"""The selection of runs by words and by labels, and an earlier end of a run (`--until`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs
from msgspec.structs import replace

from lmos_actors.errors import ConfigError
from lmos_actors.files import Duration

from ..model import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._resolve import Cell, Resolved

MOST_WORDS = 100
"""Maximum length of `-k`, in characters."""

MOST_SHOWN = 5

_WORD = re.compile(r"\s*(\(|\)|\band\b|\bor\b|\bnot\b|[^\s()]+)")
_LABEL = re.compile(r"(?P<name>[^=!]+?)\s*(?:(?P<sign>!?=)\s*(?P<value>.*))?")


@attrs.frozen
class Label:
    """A condition on the labels of a file: a name and, if `value` is given, its value.

    The condition is negated unless `wanted`.
    """

    name: str
    value: str | None
    wanted: bool

    def fits(self, cell: Cell) -> bool:
        """Return whether the file of a cell meets the condition."""
        labels = cell.scenario.labels
        has = self.name in labels and self.value in (None, _shown(labels[self.name]))
        return has is self.wanted


def label_of(text: str) -> Label:
    """Parse `team=travel`, `team!=travel` or `team`. Raises ConfigError."""
    found = _LABEL.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f'"{text}" is not NAME=VALUE, nor NAME!=VALUE, nor NAME', "--label")
    return Label(found["name"], found["value"], found["sign"] != "!=")


@attrs.frozen
class Selection:
    """A selection of runs: all conditions must hold. `words` is the compiled expression of `-k`."""

    words: str | None
    labels: tuple[Label, ...]
    _fits: Callable[[str], bool]

    def fits(self, cell: Cell) -> bool:
        """Return whether a cell is chosen."""
        line = f"{cell.scenario.name} {cell.label}"
        return self._fits(line) and all(label.fits(cell) for label in self.labels)

    def check(self, found: Sequence[tuple[str, Resolved]]) -> None:
        """Raise ConfigError with the possible choices if no cell is chosen."""
        cells = [cell for _, resolved in found for cell in resolved.cells]
        if any(self.fits(cell) for cell in cells):
            return
        labelled = [cell for cell in cells if all(label.fits(cell) for label in self.labels)]
        if not labelled:
            wanted = " and ".join(
                ("" if label.wanted else "not ")
                + label.name
                + ("" if label.value is None else f"={label.value}")
                for label in self.labels
            )
            there = dict.fromkeys(
                f"{name}={_shown(value)}" for cell in cells for name, value in cell.scenario.labels.items()
            )
            hint = f"there are {_some(list(there), ', ')}" if there else "there are no labels in these files"
            raise ConfigError(f"no file has {wanted}; {hint}", "--label")
        lines = [f"{cell.scenario.name} {cell.label}" for cell in labelled]
        raise ConfigError(f'no run has the words "{self.words}"; there are {_some(lines, "; ")}', "-k")


def _shown(value: object) -> str:
    """Return the value of a label in the form that files use."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def _some(texts: Sequence[str], between: str) -> str:
    more = f"{between}{len(texts) - MOST_SHOWN} more" if len(texts) > MOST_SHOWN else ""
    return between.join(texts[:MOST_SHOWN]) + more


def selection(words: str | None, labels: Sequence[str]) -> Selection:
    """Return the selection for the options `-k` and `--label`. Raises ConfigError."""
    return Selection(words, tuple(map(label_of, labels)), expression(words))


# ---- -k


def expression(words: str | None) -> Callable[[str], bool]:
    """Compile the expression of `-k`: words, `and`, `or`, `not`, parentheses. Raises ConfigError."""
    if words is None:
        return lambda line: True
    tokens = _WORD.findall(words)
    if len(tokens) > MOST_WORDS:
        raise ConfigError(f"has more than {MOST_WORDS} words", "-k")
    found, rest = _either(tokens)
    if rest:
        raise ConfigError(f'cannot be read at "{rest[0]}"', "-k")
    return found


def _either(tokens: list[str]) -> tuple[Callable[[str], bool], list[str]]:
    left, rest = _both(tokens)
    if rest[:1] != ["or"]:
        return left, rest
    right, rest = _either(rest[1:])
    return lambda line: left(line) or right(line), rest


def _both(tokens: list[str]) -> tuple[Callable[[str], bool], list[str]]:
    left, rest = _single(tokens)
    if rest[:1] != ["and"]:
        return left, rest
    right, rest = _both(rest[1:])
    return lambda line: left(line) and right(line), rest


def _single(tokens: list[str]) -> tuple[Callable[[str], bool], list[str]]:
    word, rest = (tokens[0], tokens[1:]) if tokens else ("", [])
    if word == "not":
        inner, rest = _single(rest)
        return lambda line: not inner(line), rest
    if word == "(":
        inner, rest = _either(rest)
        if rest[:1] != [")"]:
            raise ConfigError('")" is missing', "-k")
        return inner, rest[1:]
    if word in ("", "and", "or", ")"):
        raise ConfigError(
            f'a word is missing{f""" before "{word}" """.rstrip() if word else " at the end"}', "-k"
        )
    return lambda line: word in line, rest


def with_end_at(resolved: Resolved, seconds: float | None) -> Resolved:
    """Return the simulation with its end set to a virtual instant, in seconds; None leaves it unchanged.

    Raises ConfigError for a file that is not a simulation.
    """
    if seconds is None:
        return resolved
    cells: list[Cell] = []
    before, after = None, resolved.cells[0].scenario
    for cell in resolved.cells:  # cells of one combination share the struct
        if cell.scenario is not before:
            before = cell.scenario
            if not isinstance(before, Simulation):
                raise ConfigError(f"{resolved.document.name} is no simulation", "--until")
            after = replace(before, stop=replace(before.stop, at=Duration(seconds)))
        cells.append(attrs.evolve(cell, scenario=after))
    return attrs.evolve(resolved, cells=tuple(cells))
