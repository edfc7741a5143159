"""Output of `conform`: lines during the run and at the end, and report files."""

from __future__ import annotations

import json
import os
import re
import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors._core import printable
from lmos_actors.conformance import (
    Verdict,
    card_data,
    card_html,
    card_json,
    card_junit,
    end_lines,
    group_lines,
)
from lmos_actors.errors import ConfigError

from .._texts import takes_all
from .._written_files import Target, opened_file, same_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lmos_actors.conformance import Card, Requirement, Result

    from ..options._cards import OutputOptions
    from ..run._live import Moving, Screen

INTERRUPTED_BY: Final = {"SIGINT": 130, "SIGTERM": 143}

_LABEL: Final = re.compile(r"(?:^   |\d )(FAILED|tolerated|not offered|not run|ok)(?= |,|$)")
_STYLES: Final = {"FAILED": "bold red", "tolerated": "yellow", "ok": "green"}


def group_of(case: Requirement | Result) -> str:
    """Return the group of a case: the part of its id before the first dot."""
    return case.id.partition(".")[0]


class CardPrinter:
    """The printer of case results, group by group; for JSON it only shows the progress on a terminal."""

    def __init__(self, cases: Sequence[Requirement], output: OutputOptions) -> None:
        self.results: list[Result] = []
        self._cases, self._json, self._verbose = cases, output.printed, output.verbose
        self._width = max(map(len, map(group_of, cases)), default=0)
        self._printed_count = 0
        self._out = sys.stderr if output.printed else sys.stdout
        self._moving: Moving | None = None
        self._screen: Screen | None = None
        if self._out.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
            from ..run._live import Screen

            self._screen = Screen(self._out)

    def begin(self, subject: str) -> None:
        """Show progress from now on."""
        if self._screen is not None:
            from ..run._live import Moving

            self._moving = Moving("cases")
            self._screen.begin(lambda _: self._head(subject), len("cases"))
            self._screen.add(self._moving)
            self._move()

    def _head(self, subject: str) -> str:
        failed = sum(result.verdict is Verdict.FAILED for result in self.results)
        return f" {subject}" + (f"  {failed} FAILED" if failed else "")

    def _move(self) -> None:
        done = len(self.results)
        if self._moving is not None and done < len(self._cases):
            self._moving(done, len(self._cases), self._cases[done].id)

    def result(self, result: Result) -> None:
        """Note a result; print the group if it is complete. Raises OSError."""
        self.results.append(result)
        self._move()
        done = len(self.results)
        if done == len(self._cases) or group_of(self._cases[done]) != group_of(result):
            self._print_groups()

    def _print_groups(self) -> None:
        new, self._printed_count = self.results[self._printed_count :], len(self.results)
        for _, results in groupby(new, group_of):
            self.print(group_lines(list(results), width=self._width, verbose=self._verbose))

    def end(self, card: Card, more: Iterable[str] = ()) -> None:
        """Print the remaining cases, the totals, and the given further lines. Raises OSError."""
        self.close()
        self._print_groups()
        self.print([*end_lines(card), *more])

    def print(self, lines: Iterable[str]) -> None:
        """Print lines; verdicts have a colour on a terminal. Raises OSError."""
        if self._json:
            return
        for line in lines:
            if self._screen is None:
                print(line, file=self._out, flush=True)
            else:
                self._screen.print(_painted(line))

    def close(self) -> None:
        """Remove the progress display. Lines printed later remain on the screen."""
        if self._screen is not None:
            self._screen.close()


def _painted(line: str) -> Any:
    from rich.text import Text

    shown = Text(line)
    for found in _LABEL.finditer(line):
        shown.stylize(_STYLES.get(found[1], "dim"), *found.span(1))
    return shown


def complain(text: str) -> None:
    """Print to standard error why there is no card, or only a part of one."""
    print(f"lmos-actors: {printable(text)}", file=sys.stderr, flush=True)


def print_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object, and nothing else. Raises OSError."""
    print(json.dumps(data, indent=2, ensure_ascii=not takes_all(sys.stdout)), flush=True)


def print_card(card: Card, code: int) -> None:
    """Print a card as JSON. Raises OSError."""
    print_json(card_data(card, exit_code=code))


@attrs.define
class CardFiles:
    """The files for a card: all are opened before the judging starts, and written at its end."""

    _force: bool
    _open: dict[str, Target] = attrs.field(factory=dict[str, Target])

    @classmethod
    def opened(cls, output: OutputOptions, inputs: Iterable[str]) -> CardFiles:
        """Open the files that the options name. Raises ConfigError if one must not or cannot be written."""
        card_files = cls(output.force)
        try:
            for option, path in output.card_files.items():
                if path is not None:
                    card_files._add(option, path, list(inputs))
        except ConfigError:
            card_files.close()
            raise
        return card_files

    def _add(self, option: str, path: str, inputs: Sequence[str]) -> None:
        if any(same_file(path, each) for each in inputs):
            raise ConfigError(f"is read: {option} would write over it", path)
        for other, there in self._open.items():
            if same_file(path, there.path):
                raise ConfigError(f"cannot be written by both {other} and {option}", path)
        self._open[option] = opened_file(path, force=self._force)

    def write(self, card: Card, code: int) -> None:
        """Write the card to all files. Raises OSError, which names the file."""
        made = {"--json": lambda: card_json(card, exit_code=code), "--junit": lambda: card_junit(card)}
        for option, file in self._open.items():
            file.write(made[option]() if option in made else card_html(card))

    def print_written(self) -> None:
        """Print which files were written."""
        for file in self._open.values():
            if file.is_regular:
                print(f"wrote {file.path}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close the files."""
        for file in self._open.values():
            file.close()
