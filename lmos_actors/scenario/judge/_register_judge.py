"""Judge of registers: the history of their reads and writes, and whether one order explains it.

The history is recorded at the agents that form the register: an operation begins when a request reaches one
of them, and is over when that agent has answered. Without an answer, or with an error, the operation may have
happened at any later time, or not at all. If it was refused, or never left the mailbox, it has not happened.
Requests among agents of the register are its implementation, and not operations on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from lmos_actors._core import plain

from ._judge import Judge, instant
from ._linearizability import MOST_LOOKED_AT, UNKNOWN, Operation, linearize, smallest_failing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lmos_actors.reports import CheckResult

    from ..model import Linearizable
    from ._judge import AgentDirectory, Slot, View
    from ._linearizability import Sort

MOST_OPERATIONS: Final = 100_000
"""Maximum number of operations that are kept of one run."""

_ROWS: Final = 12
_LONGEST_VALUE: Final = 40
_UNBEGUN: Final = ("refused", "cancelled", "dropped")
_VERBS: Final = ("invoke", "tell")


@attrs.define(eq=False)
class _Request:
    """A request for an operation; `call` and `end` are positions among the records of all operations."""

    sort: Sort
    key: str
    value: str
    expected: str
    call: int
    at: float
    path: str
    caller: str
    is_tell: bool
    has_begun: bool = False
    is_set: bool = True
    end: float = UNKNOWN
    until: float | None = None

    def operation(self) -> Operation:
        return Operation(self.sort, self.value, self.call, self.end, self.expected, self.is_set)

    def row(self) -> tuple[str, ...]:
        """Return the cells of this request's row in a table."""
        until = "-" if self.until is None else instant(self.until)
        return instant(self.at), until, self.caller, self.path, self._what()

    def _what(self) -> str:
        if self.sort == "read":
            return f"read {_short(self.value)}"
        if self.sort == "write":
            return f"write {_short(self.value)}" + ("" if self.until is not None else ", outcome unknown")
        text = f"set {_short(self.value)} where it is {_short(self.expected)}"
        if self.until is None:
            return f"{text}, outcome unknown"
        return text if self.is_set else f"{text}: it is not"


class RegisterJudge(Judge):
    """The judge of `linearizable`: it judges each key separately, when the run is over."""

    records = ("sent", "delivered", "answered", *_UNBEGUN)
    check: Linearizable

    def __init__(
        self, check: Linearizable, name: str, place: str, view: View, directory: AgentDirectory
    ) -> None:
        super().__init__(check, name, place)
        self.view = view
        self.directory = directory
        self.of: tuple[str, ...] = (check.of,) if isinstance(check.of, str) else check.of
        self.sorts: dict[str, Sort] = {check.read: "read", check.write: "write"}
        if check.compare_and_set is not None:
            self.sorts[check.compare_and_set] = "compare_and_set"
        self.initial = _canonical(check.initial)
        self.requests: dict[str, list[_Request]] = {}
        self.open: dict[int, _Request] = {}
        self.answered: dict[int, _Request] = {}
        self.events = 0
        self.count = 0
        self.is_full = False

    def concerns(self, path: str) -> bool | None:
        found = self.directory.find(path)
        return found is not None and self._is_of(path)

    def _is_of(self, path: str) -> bool:
        return any(self.directory.is_called(path, name) for name in self.of)

    # ---- the history

    def record(self, kind: str, path: str, fields: Mapping[str, Any], now: float) -> None:
        number = fields.get("id")
        if not isinstance(number, int):
            return
        if kind == "sent":
            self._sent(number, path, fields, now)
            return
        request = self.open.get(number)
        if request is None:
            if kind == "answered" and number in self.answered:
                self._take_back(number)  # a durable agent could not store the state behind the answer
            return
        if kind == "delivered":
            request.has_begun = True
            return
        del self.open[number]
        if kind == "answered":
            self._answered(request, fields, now)
            self.answered[number] = request
        elif not request.has_begun:
            self.requests[request.key].remove(request)
            self.count -= 1

    def _sent(self, number: int, path: str, fields: Mapping[str, Any], now: float) -> None:
        sort = self.sorts.get(str(fields.get("affordance")))
        caller = str(fields.get("from"))
        if sort is None or fields.get("verb") not in _VERBS or self._is_of(caller):
            return
        if self.count == MOST_OPERATIONS:
            self.is_full = True
            return
        self.count += 1
        self.events += 1
        given = fields.get("input")
        arguments: dict[str, Any] = dict(given) if isinstance(given, dict) else {}  # pyright: ignore[reportUnknownArgumentType]
        key = "" if self.check.key is None else _canonical(arguments.pop(self.check.key, None))
        values = [_canonical(value) for value in arguments.values()]
        request = _Request(
            sort=sort,
            key=key,
            value=values[-1] if values and sort != "read" else "",
            expected=values[0] if sort == "compare_and_set" and values else "",
            call=self.events,
            at=now,
            path=path,
            caller=caller,
            is_tell=fields.get("verb") == "tell",
        )
        self.open[number] = request
        self.requests.setdefault(key, []).append(request)

    def _answered(self, request: _Request, fields: Mapping[str, Any], now: float) -> None:
        if fields.get("error") is not None or request.is_tell:
            return  # its outcome is unknown
        self.events += 1
        request.end, request.until = self.events, now
        if request.sort == "read":
            request.value = _canonical(fields.get("value"))
        elif request.sort == "compare_and_set":
            request.is_set = fields.get("value") is True

    def _take_back(self, number: int) -> None:
        request = self.answered.pop(number)
        request.end, request.until, request.is_set = UNKNOWN, None, True

    def node_ends(self, slots: Collection[Slot] | None = None) -> None:
        for name in self.of:
            for slot in self.view.slots(name):
                if slots is not None and slot not in slots:
                    continue
                for number in () if slot.output_gate is None else slot.output_gate.held_answers():
                    if number in self.answered:
                        self._take_back(number)

    # ---- the verdict

    def result(self) -> CheckResult:
        whom = ", ".join(self.of)
        expected = f"an order of what {whom} did in which each read returns what was written last"
        if self.is_full:
            saw = f"not decided: there are more than {MOST_OPERATIONS} operations"
            return self.verdict(False, expected, saw)
        answered = sum(request.until is not None for each in self.requests.values() for request in each)
        if not answered:
            return self.verdict(False, expected, "no read or write that was answered")
        for key, requests in self.requests.items():
            found = linearize([request.operation() for request in requests], self.initial)
            if found is None:
                saw = f"not decided{self._of_key(key)}: more than {MOST_LOOKED_AT} states had to be looked at"
                return self.verdict(False, expected, saw)
            if not found:
                return self._failure(expected, key, requests)
        keys = "" if self.check.key is None else f" of {len(self.requests)} keys"
        return self.verdict(True, expected, f"one for all {self.count} operations{keys}")

    def _of_key(self, key: str) -> str:
        return "" if self.check.key is None else f" for {self.check.key} {_short(key)}"

    def _failure(self, expected: str, key: str, requests: Sequence[_Request]) -> CheckResult:
        small = smallest_failing([request.operation() for request in requests], self.initial)
        by_call = {request.call: request for request in requests}
        chosen = [by_call[operation.call] for operation in small]
        failed_at = max(request.until for request in chosen if request.until is not None)
        head = ("from", "until", "asked by", "at", "operation")
        rows = [head, *(request.row() for request in chosen[:_ROWS])]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines += [f"and {len(chosen) - _ROWS} more"] if len(chosen) > _ROWS else []
        what = "this operation allows" if len(chosen) == 1 else f"these {len(chosen)} operations allow"
        initial = f"{_short(self.initial)} at first"
        saw = f"{what} none{self._of_key(key)}, out of {len(requests)} ({initial})"
        return self.verdict(False, expected, "\n".join([saw, *lines]), failed_at)


def _canonical(value: object) -> str:
    """Return a value as JSON text; equal values give the same text."""
    found = plain(value)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    return msgspec.json.encode(found, order="sorted").decode()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
