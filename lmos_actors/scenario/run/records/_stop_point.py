"""Stop points of `replay`: an instant of virtual time, or a record of the log, at which a run is inspected.

The instrument adds no task and no message to the run, so everything before the stop point happens as it would
without the instrument.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, get_args

import attrs
import trio

from lmos_actors._core import Kind
from lmos_actors.errors import ConfigError
from lmos_actors.files import did_you_mean

from ._snapshot import Snapshot, take_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from lmos_actors._core import Timer
    from lmos_actors.node import Node
    from lmos_actors.simulation import TraceLog

KEYS: Final = ("agent", "action", "property", "event", "kind", "from", "verb", "id", "trace", "n", "nth")
KINDS: Final[tuple[str, ...]] = get_args(Kind)
"""All kinds of records."""

_AFFORDANCES: Final = ("action", "property", "event")
_NUMBERS: Final = ("id", "trace", "n", "nth")
_INSTANT: Final = 1e-6  # virtual time has whole microseconds


@attrs.frozen
class StopPoint:
    """The point at which a run stops: the instant `at`, or the first record that matches `wanted`.

    If `wanted` has the key `nth`, it is the record with that number among the matching ones.
    """

    at: float | None = None
    wanted: Mapping[str, str] = attrs.Factory(dict[str, str])


def read_break(text: str) -> StopPoint:
    """Parse a stop point such as `agent=weather action=getWeather`. Raises ConfigError.

    If `kind` is not given, it follows from the other keys. With `event` the record is about an event. With
    `from` or `verb` it is about a sent message. With `n`, or `agent` alone, it is of any kind. Otherwise it
    is about a delivered message.
    """
    wanted: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise ConfigError(f'"{word}" is not KEY=VALUE', "--break")
        if key not in KEYS:
            raise ConfigError(f'no key "{key}"{did_you_mean(key, KEYS)}: {", ".join(KEYS)}', "--break")
        if key in _NUMBERS and not value.isdecimal():
            raise ConfigError(f'"{word}": a whole number is expected', "--break")
        if key == "nth" and int(value) == 0:
            raise ConfigError(f'"{word}": it is counted from 1', "--break")
        if key == "kind" and value not in KINDS:
            raise ConfigError(f'no kind "{value}"{did_you_mean(value, KINDS)}', "--break")
        if key in wanted:
            raise ConfigError(f'"{key}" is given twice', "--break")
        wanted[key] = value
    if not wanted:
        raise ConfigError("nothing is given: agent=weather action=getWeather, for example", "--break")
    return StopPoint(wanted=wanted if "kind" in wanted else {**wanted, **_kind(wanted)})


def _kind(wanted: Mapping[str, str]) -> dict[str, str]:
    if "n" in wanted:
        return {}
    if "event" in wanted:
        return {"kind": "event"}
    if "from" in wanted or "verb" in wanted:
        return {"kind": "sent"}
    return {"kind": "delivered"} if "action" in wanted or "property" in wanted or "id" in wanted else {}


class StopInstrument:
    """An instrument that takes a snapshot at the stop point and ends the run there. One per run.

    It gets each record after the log. `snapshot` is None if the run never reached the point.
    """

    def __init__(self, point: StopPoint) -> None:
        self.point = point
        self.snapshot: Snapshot | None = None
        self._scope = trio.CancelScope()
        self._matches = 0
        self._node: Node | None = None
        self._log: TraceLog | None = None
        self._draw: Callable[[], Sequence[str]] = tuple
        self._timer: Timer | None = None

    def watch(self, log: TraceLog) -> None:
        """Store the log whose records are counted."""
        self._log = log

    def begin(self, node: Node, draw: Callable[[], Sequence[str]]) -> None:
        """Attach to an open node before anything happens on it; `draw` returns the tree as text."""
        self._node, self._draw = node, draw
        if self.point.at is not None:
            # after all events of that instant
            clock: Any = trio.lowlevel.current_clock()
            self._timer = clock.call_at(self.point.at + _INSTANT, self._take_snapshot)

    def follow(self, node: Node) -> None:
        """Use another node from now on, because the previous node was killed."""
        self._node = node

    @contextmanager
    def around(self) -> Generator[None]:
        """Run the block so that the stop point cancels it; at its end, cancel the timer of the stop point."""
        with self._scope:
            try:
                yield
            finally:
                if self._timer is not None:
                    self._timer.cancel()

    def record(self, kind: str, agent: str, fields: dict[str, object]) -> None:
        """Compare a record with the stop point; the record must already be in the log."""
        if self.point.at is not None or self.snapshot is not None or self._node is None:
            return
        wanted = self.point.wanted
        if all(self._matches_key(key, value, kind, agent, fields) for key, value in wanted.items()):
            self._matches += 1
            if self._matches >= int(wanted.get("nth", "1")):
                self._take_snapshot()

    def _matches_key(self, key: str, value: str, kind: str, agent: str, fields: Mapping[str, Any]) -> bool:
        if key == "nth":
            return True
        if key == "kind":
            return kind == value
        if key == "agent":
            return agent == value or agent.endswith(f"/{value}") or agent.startswith(f"{value}/")
        if key == "n":
            assert self._log is not None
            return len(self._log) == int(value)
        if key in _AFFORDANCES:
            return value in (fields.get("affordance"), fields.get("event"), fields.get("property"))
        return str(fields.get(key)) == value

    def _take_snapshot(self) -> None:
        assert self._node is not None
        assert self._log is not None
        at = self.point.at if self.point.at is not None else round(trio.current_time(), 6)
        self.snapshot = take_snapshot(
            self._node.root, at=at, n=len(self._log), tree=self._draw(), recent=self._log.lines()
        )
        self._scope.cancel("the run has come to where it is looked at")
