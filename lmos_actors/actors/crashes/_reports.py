"""Crash reports: made in a microsecond where the crash happens, rendered when they are read.

A report keeps the exception, the current message, and a copy of the fields at that moment. It is rendered on
demand, and within bounds: the values of a crashed agent may be of any size, and their `repr` may raise.
Values marked secret are never written.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from lmos_actors._core import printable
from lmos_actors.errors import text_of

from ..declaration._contract import outline_of
from ..values import Secrets
from ._report_values import Message, class_made_by, fields_given, fields_of, message_of
from ._traces import CAUSES, calls_of, causes_of, definition_of, notes_of, place_of
from ._value_text import LIMIT, show, show_quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from ..values import Secrecy
    from ._report_values import Values

SIZE: Final = 16_384  # bytes of a report as text
ROOM: Final = 12_000  # characters of values in it
EARLIER: Final = 16  # messages before the one in hand
FIELDS: Final = 64  # of one state, or arguments of one message
REASON: Final = 4096  # characters of a reason that is searched for secrets

FACTORY: Final = "its factory"
STARTED: Final = "started()"
ENTERING: Final = "its start, before started()"
RESTORING: Final = "its start, before its state was given back"

_MARK: Final = "__lmos_report__"  # among the attributes of an exception


class CrashReport:
    """The report of a crash. `str(report)` is for people, `report.data()` for programs.

    Both are bounded: the text to 16 kB, each value to 512 characters, 20 calls, 8 causes, 16 messages before
    the current one. Values marked `Secret` are `***` in both, also inside a text. `error`, the exception
    itself, still contains them.
    """

    later: tuple[BaseException, ...] = ()
    """Other exceptions, raised while the agent unwound."""

    restored: bool | None = None
    """Whether the incarnation had begun with state from the store; None for agents that are not durable."""

    kept: bool | None = None
    """Whether the next one begins with kept state; False where nothing was kept yet, None as above."""

    _last: dict[str, Any] | None = None
    """The fields after the agent had unwound, if it raised something meanwhile."""

    def __init__(self, slot: Any, error: BaseException, hand: Any, earlier: Iterable[Any] = ()) -> None:
        agent = slot.agent
        self._slot = slot
        self.error = error
        self.incarnation: int = slot.incarnation
        if type(hand) is str and hand in (FACTORY, ENTERING, RESTORING):
            self.incarnation += 1  # of a life that had not been counted yet
        if slot.output_gate is not None and hand not in (FACTORY, RESTORING):
            self.restored, self.kept = slot.output_gate.restored, slot.output_gate.state.has_state
        self.stamp: float = slot.rt.entropy.stamp()
        self._hand = hand
        self._earlier = earlier
        self._agent = agent
        self._class: Any = type(agent) if agent is not None else None
        # An agent without runs, tasks and lifespan changes no more. Looking into its `__dict__` makes that an
        # object of its own, which the garbage collector would look at as long as the exception is kept.
        self._kept: dict[str, Any] | None = (
            agent.__dict__.copy() if agent is not None and slot.extra else None
        )
        cls = self._class
        if cls is not None:
            self._guarded: bool = cls.__contract__.guarded
        else:  # whether an agent that its factory did not make would have had secrets
            contract = outline_of(self.agent_class)
            given = fields_given(slot.spec.factory).values()
            self._guarded = contract.guarded if contract is not None else any(secret for _, secret in given)
        if self._guarded:  # others that crash by this error do not know its secrets
            error.__dict__.setdefault(_MARK, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)  # wherever it is sent, with an exception or alone, it is its text

    @property
    def agent(self) -> str:
        """The path of the agent in the tree."""
        path: str = self._slot.path
        return path

    @property
    def time(self) -> datetime:
        """The time of the crash, in UTC."""
        when: datetime = self._slot.rt.entropy.time_of(self.stamp)
        return when

    @property
    def agent_class(self) -> type | None:
        """The class of the agent; None if a factory raised and the class is unknown."""
        cls: type | None = self._class if self._class is not None else class_made_by(self._slot.spec.factory)
        return cls

    @property
    def supervisors(self) -> tuple[tuple[str, str], ...]:
        """The name and the strategy of each supervisor above the agent, from the root down."""
        above: tuple[tuple[str, str], ...] = self._slot.owner.lineage
        return above

    @property
    def reason(self) -> str:
        """The exception in one line, as callers and monitors see it."""
        return self.line(self.error)

    def __repr__(self) -> str:
        return f"<CrashReport {self.agent} #{self.incarnation}: {self.short(self.error)}>"

    def __str__(self) -> str:
        return text_of_data(self.data())

    def data(self) -> dict[str, Any]:
        """Return the report as plain data: texts, numbers, lists and dicts.

        Members: agent, class, incarnation, time, supervisors, reason, where, calls, notes, causes, message,
        before, state, state_as_of, restored, kept, later.
        """
        return _Rendering(self, show).data()

    # ---- for the runtime

    def quiet_data(self) -> dict[str, Any]:
        """Return `data` without calling code of the values' own classes, to inspect a working node."""
        return _Rendering(self, show_quietly).data()

    def is_of(self, slot: object) -> bool:
        """Return whether the report is about the agent of a slot; a linked agent ends by another's report."""
        return self._slot is slot

    @property
    def is_first_start(self) -> bool:
        """Whether the report is about a first start, whose error its caller gets."""
        return self.incarnation == 1 and self.handler in (FACTORY, STARTED, ENTERING, RESTORING)

    def unwound(self, errors: tuple[BaseException, ...]) -> None:
        """Record the errors raised while the agent unwound; its fields may have changed since the crash."""
        self.later = errors
        self._last = self._agent.__dict__.copy() if self._agent is not None else None
        self.__dict__.pop("secrets", None)

    def line(self, error: BaseException) -> str:
        """Return an exception as text, without secrets."""
        text = self.text(error)
        return f"{type(error).__name__}: {text}" if text else type(error).__name__

    def text(self, error: BaseException) -> str:
        """Return the text of an exception without secrets; it is not searched if the agent has no secrets."""
        text = text_of(error)
        return self.secrets.clean(text, REASON) if self._guarded or _MARK in error.__dict__ else text

    def short(self, error: BaseException) -> str:
        """Return an exception as text for display.

        The text is bounded, without secrets and without control characters.
        """
        text = self.secrets.clean(text_of(error), LIMIT)
        return printable(f"{type(error).__name__}: {text}" if text else type(error).__name__, keep="\n")

    @property
    def trace(self) -> int | None:
        """The number of the first message of the trace; None without a trace or without numbers."""
        trace = getattr(self._hand, "trace", None)
        return (trace[1] or None) if trace else None

    # ---- what it is rendered from

    @property
    def hand(self) -> Message | None:
        """The message whose handling raised, or None if no message was being handled."""
        return message_of(self._hand)

    @property
    def handler(self) -> str:
        """The code that raised while no message was being handled: `lifespan()`, `started()` and the like."""
        return self._hand if isinstance(self._hand, str) else ""

    @property
    def _state(self) -> dict[str, Any] | None:
        agent = self._agent
        return self._kept if self._kept is not None or agent is None else dict(agent.__dict__)

    @property
    def _history(self) -> Iterable[Any]:
        state = self._state
        return state.get("_history") or () if state is not None else ()

    @cached_property
    def _entry(self) -> Any:
        """The entry in the agent's history for the current message."""
        hand = self.hand
        if hand is None:
            return None
        return next((e for e in tuple(self._history)[::-1] if e.is_of(hand.op, hand.fn, hand.args)), None)

    @cached_property
    def before(self) -> list[Message]:
        """The messages before the current one, the oldest first."""
        kept = [Message(e.op, e.fn, e.args, None, e) for e in self._history if e is not self._entry]
        batch = [] if kept else [m for m in map(message_of, self._earlier) if m is not None]
        return (kept or batch)[-EARLIER:]

    @property
    def state_as_of(self) -> str:
        """The moment from which the reported state dates, as text."""
        if self._state is None:
            return "that it was to have"
        return "before the message in hand" if self._entry is not None else "at the crash"

    @cached_property
    def state(self) -> Values:
        """The fields with their values and how secret they are."""
        return self._fields(self._entry.state if self._entry is not None else self._state)

    def _fields(self, values: dict[str, Any] | None) -> Values:
        if values is None:
            return fields_given(self._slot.spec.factory)
        return fields_of(self.agent_class, values)

    @cached_property
    def secrets(self) -> Secrets:
        """The secrets of the agent, and of the agents whose errors caused this one."""
        found = Secrets()
        errors = (self.error, *(cause for _, cause in causes_of(self.error)), *self.later)
        others = (report_of(error) for error in errors)
        for report in {id(each): each for each in (self, *others) if each is not None}.values():
            report._look_into(found)
        for error in errors:
            found.look(error)
        return found

    def _look_into(self, found: Secrets) -> None:
        """Add the secrets of this report's agent to `found`."""
        copies = (self._state if self._entry is not None else None, self._last)
        for values in (self.state, *(self._fields(copy) for copy in copies if copy is not None)):
            for value, secrecy in values.values():
                found.look(value, secrecy)
        for message in (self.hand, *self.before):
            if message is not None:
                for value, secrecy in message.values().values():
                    found.look(value, secrecy)


def report_of(error: BaseException) -> CrashReport | None:
    """Return the report of the first agent with secrets that crashed with this exception."""
    report = error.__dict__.get(_MARK)
    return report if isinstance(report, CrashReport) else None


class _Rendering:
    """One rendering of a report, in which all values together may take `ROOM` characters."""

    def __init__(self, report: CrashReport, show: Callable[..., str]) -> None:
        self._report = report
        self._show = show
        self._secrets = report.secrets
        self._room = ROOM

    def data(self) -> dict[str, Any]:
        report, error = self._report, self._report.error
        hand = report.hand
        fn = hand.op.fn if hand is not None and hand.op is not None else None
        cls = report.agent_class
        return {
            "agent": report.agent,
            "class": cls.__name__ if cls is not None else None,
            "incarnation": report.incarnation,
            "time": report.time.isoformat(),
            "supervisors": [{"name": name, "strategy": strategy} for name, strategy in report.supervisors],
            "reason": report.short(error),
            "where": place_of(error) or definition_of(fn) or None,
            "message": self._message(hand) if hand is not None else report.handler or None,
            "calls": [self._text(call) for call in calls_of(error)],
            "notes": [self._text(note) for note in notes_of(error)],
            "causes": [
                {"how": how, "reason": report.short(cause), "where": place_of(cause) or None}
                for how, cause in causes_of(error)
            ],
            "state": self._values(report.state),
            "state_as_of": report.state_as_of,
            "restored": report.restored,
            "kept": report.kept,
            "before": [self._message(message) for message in reversed(report.before)][::-1],
            "later": [report.short(error) for error in report.later[:CAUSES]],
        }

    def _message(self, message: Message) -> dict[str, Any]:
        fields: dict[str, Any] = {"verb": message.verb, "affordance": message.name}
        fields["arguments"] = self._values(message.values())
        if message.sender is not None:
            fields["from"] = message.sender.path
        if message.entry is not None:
            fields["time"] = message.entry.when.isoformat()
            fields["outcome"] = message.entry.outcome
        return fields

    def _values(self, values: dict[str, Any]) -> dict[str, str]:
        return {
            self._text(str(name)[:64]): self._value(value, secrecy)
            for name, (value, secrecy) in [*values.items()][:FIELDS]
        }

    def _value(self, value: Any, secrecy: Secrecy) -> str:
        if self._room <= 0:
            return "…"
        text = self._show(value, self._secrets, secrecy, min(LIMIT, max(self._room, 32)))
        self._room -= len(text)
        return text

    def _text(self, text: str) -> str:
        return printable(self._secrets.clean(text, LIMIT), keep="\n")


# ---- as text


def text_of_data(data: dict[str, Any]) -> str:
    """Return the data of a report (`CrashReport.data`) as text of at most 16 kB."""
    return _cut("\n".join(_lines(data)))


def _lines(data: dict[str, Any]) -> Iterator[str]:
    where = f" at {data['where']}" if data["where"] else ""
    yield f"agent {data['agent']!r} #{data['incarnation']} crashed{where}: {data['reason']}"
    yield f"  class {data['class']}, at {data['time']}"
    above = "".join(f"{each['name']} ({each['strategy']}) > " for each in data["supervisors"])
    yield f"  in the tree: {above}{data['agent'].rpartition('/')[2]}"
    if data["restored"] is not None:
        began = "with state from the store" if data["restored"] else "without stored state"
        begins = "with the last kept state" if data["kept"] else "anew, as nothing was kept yet"
        yield f"  durable: it had begun {began}; the next incarnation begins {begins}"
    yield from (f"  {note}" for note in data["notes"])
    yield f"message in hand: {_message_text(data['message'])}"
    yield from _section("calls, the last one last:", data["calls"])
    for cause in data["causes"]:
        yield f"{cause['how']} {cause['reason']}" + (f" at {cause['where']}" if cause["where"] else "")
    fields = [f"{name} = {text}" for name, text in data["state"].items()]
    yield from _section(f"state {data['state_as_of']}:", fields)
    yield from _section("messages before it, the last one last:", map(_message_text, data["before"]))
    yield from _section("raised while it ended:", data["later"])


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    for place, line in enumerate(lines):
        if not place:
            yield title
        yield f"  {line}"


def _message_text(message: Any) -> str:
    if not isinstance(message, dict):
        return f"none, it was {message}" if message else "none"
    fields: dict[str, Any] = message  # pyright: ignore[reportUnknownVariableType]
    arguments = ", ".join(f"{name}={text}" for name, text in fields["arguments"].items())
    sender = f" from {fields['from']}" if "from" in fields else ""
    outcome = f" at {fields['time']}: {fields['outcome']}" if "outcome" in fields else ""
    return f"{fields['verb']} {fields['affordance']}({arguments}){sender}{outcome}"


def _cut(text: str) -> str:
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= SIZE:
        return raw.decode()
    return raw[: SIZE - 64].decode("utf-8", "ignore") + "\n… the rest is left out"
