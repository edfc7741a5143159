"""What is known of a crash: made in a microsecond where it happens, written out where somebody looks.

A report holds on to the exception, the message in hand, and a copy of the fields as they were; it is rendered
when it is asked for, and then within bounds: the values of a crashed agent may be of any size, and their
`repr` may raise. What is marked secret is never written.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from lmos_actors._errors import text_of

from ._history import unwrapped
from ._mailbox import Envelope, Firing
from ._operation import Operation
from ._secrets import WHOLE, Discreet, Secrets, annotations_of_function, secrecy_of
from ._shown import LIMIT, printable, show
from ._traces import CAUSES, calls_of, causes_of, definition_of, notes_of, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from ._secrets import Secrecy

SIZE: Final = 16_384  # bytes of a report as text
ROOM: Final = 12_000  # characters of values in it
EARLIER: Final = 16  # messages before the one in hand
FIELDS: Final = 64  # of one state, or arguments of one message
REASON: Final = 4096  # characters of a reason that is searched for secrets

FACTORY: Final = "its factory"
STARTED: Final = "started()"
ENTERING: Final = "its start, before started()"

_UNSHOWN: Final = ("_slot", "_history")


class CrashReport:
    """How an agent came to crash. `str(report)` is for people, `report.data()` for programs.

    Both are bounded: the text to 16 kB, each value to 512 characters, 20 calls, 8 causes, 16 messages before
    the one in hand. Values marked `Secret` are `***` in both, also where they stand in a text. Not so in
    `error`, which is the exception itself.
    """

    later: tuple[BaseException, ...] = ()
    """What was raised besides, while the agent unwound."""

    def __init__(self, slot: Any, error: BaseException, hand: Any, earlier: Iterable[Any] = ()) -> None:
        agent = slot.agent
        self._slot = slot
        self.error = error
        self.incarnation: int = slot.incarnation
        if type(hand) is str and hand in (FACTORY, ENTERING):
            self.incarnation += 1  # of a life that had not been counted yet
        self.stamp: float = slot.rt.entropy.stamp()
        self._hand = hand
        self._earlier = earlier
        self._agent = agent
        self._class: Any = type(agent) if agent is not None else None
        # An agent without runs, tasks and lifespan changes no more. Looking into its `__dict__` makes that an
        # object of its own, which the garbage collector would look at as long as the exception is kept.
        self._kept: dict[str, Any] | None = agent.__dict__.copy() if agent is not None and slot.more else None

    @property
    def agent(self) -> str:
        """The path of the agent in the tree."""
        path: str = self._slot.path
        return path

    @property
    def time(self) -> datetime:
        """When it happened, in UTC."""
        when: datetime = self._slot.rt.entropy.time_of(self.stamp)
        return when

    @property
    def agent_class(self) -> type | None:
        """The class of the agent; None where a factory raised before there was one."""
        cls: type | None = self._class if self._class is not None else class_made_by(self._slot.spec.factory)
        return cls

    @property
    def supervisors(self) -> tuple[tuple[str, str], ...]:
        """The supervisors above it, from the root down: the name and the strategy of each."""
        above: tuple[tuple[str, str], ...] = self._slot.owner.lineage
        return above

    @property
    def reason(self) -> str:
        """The exception in one line, as callers and monitors are told it."""
        return self.line(self.error)

    def __repr__(self) -> str:
        return f"<CrashReport {self.agent} #{self.incarnation}: {self.short(self.error)}>"

    def __str__(self) -> str:
        return _cut("\n".join(_lines(self.data())))

    def data(self) -> dict[str, Any]:
        """Give the report as plain data: texts, numbers, lists and dicts.

        Members: agent, class, incarnation, time, supervisors, reason, where, calls, notes, causes, message,
        before, state, state_as_of, later.
        """
        return _Rendering(self).data()

    # ---- for the runtime

    def is_of(self, slot: object) -> bool:
        """Say whether it is about an agent of that slot; a linked one ends with another's reason."""
        return self._slot is slot

    @property
    def is_first_start(self) -> bool:
        """Say whether it is about a first start, which tells whoever asked for it."""
        return self.incarnation == 1 and self.handler in (FACTORY, STARTED, ENTERING)

    def line(self, error: BaseException) -> str:
        """Give an exception as text, without secrets."""
        cls = self._class
        plain = cls is not None and not cls.__contract__.guarded
        text = text_of(error) if plain else self.text(error)
        return f"{type(error).__name__}: {text}" if text else type(error).__name__

    def text(self, error: BaseException) -> str:
        """Give what an exception says, without secrets; nothing is looked for where nothing is secret."""
        text = text_of(error)
        contract: Any = getattr(self.agent_class, "__contract__", None)
        return self.secrets.clean(text, REASON) if contract is not None and contract.guarded else text

    def short(self, error: BaseException) -> str:
        """Give an exception as text to be shown: bounded, without secrets and without control characters."""
        text = self.secrets.clean(text_of(error), LIMIT)
        return printable(f"{type(error).__name__}: {text}" if text else type(error).__name__)

    # ---- what it is rendered from

    @property
    def hand(self) -> Message | None:
        """The message in hand, None where it was none that raised."""
        return _message(self._hand)

    @property
    def handler(self) -> str:
        """What raised, where it was no message: `lifespan()`, `started()` and the like."""
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
        """What the agent's history says of the message in hand."""
        hand = self.hand
        if hand is None:
            return None
        return next((e for e in tuple(self._history)[::-1] if e.is_of(hand.op, hand.fn, hand.args)), None)

    @cached_property
    def before(self) -> list[Message]:
        """The messages before the one in hand, the oldest first."""
        kept = [Message(e.op, e.fn, e.args, None, e) for e in self._history if e is not self._entry]
        batch = [] if kept else [m for m in map(_message, self._earlier) if m is not None]
        return (kept or batch)[-EARLIER:]

    @property
    def state_as_of(self) -> str:
        """Say which state is shown."""
        if self._state is None:
            return "that it was to have"
        return "before the message in hand" if self._entry is not None else "at the crash"

    @cached_property
    def state(self) -> dict[str, tuple[Any, int]]:
        """The fields with their values and how secret they are."""
        return self._fields(self._entry.state if self._entry is not None else self._state)

    def _fields(self, values: dict[str, Any] | None) -> dict[str, tuple[Any, int]]:
        contract: Any = getattr(self.agent_class, "__contract__", None)
        hidden: dict[str, int] = contract.hidden if contract is not None else {}
        if values is None:
            values = _given(self._slot.spec.factory)
        names = {name: _shown_name(name) for name in values if name not in _UNSHOWN}
        return {shown: (values[name], hidden.get(shown, 0)) for name, shown in names.items()}

    @cached_property
    def secrets(self) -> Secrets:
        """What must not be shown."""
        found = Secrets()
        then = self._fields(self._state) if self._entry is not None else {}
        for value, secrecy in (*self.state.values(), *then.values()):
            found.look(value, secrecy)
        for message in (self.hand, *self.before):
            if message is not None:
                for value, secret in message.values().values():
                    found.look(value, secret)
        return found


def _shown_name(name: str) -> str:
    return "behaviour" if name == "_behaviour" else name.removeprefix("_prop_")


def class_made_by(factory: Any) -> Any:
    """Give the class of the agents that a spec's factory makes, None if it does not tell."""
    while isinstance(factory, partial):
        factory = factory.func  # pyright: ignore[reportUnknownMemberType]
    return factory if isinstance(factory, type) else None


def _given(factory: Any) -> dict[str, Any]:
    """Give the fields that an agent was to be made with, as far as its spec tells."""
    fields: dict[str, Any] = {}
    while isinstance(factory, partial):
        made: partial[Any] = factory  # pyright: ignore[reportUnknownVariableType]
        fields = {**made.keywords, **fields}
        factory = made.func
    return fields


class Message:
    """One message as a report shows it."""

    def __init__(
        self, op: Operation | None, fn: Any, args: tuple[Any, ...], sender: Any, entry: Any = None
    ) -> None:
        self.op = op
        self.fn = fn
        self.args = args
        self.sender = sender
        self.entry = entry

    @property
    def name(self) -> str:
        """The affordance, or the method of a timer."""
        return self.op.name if self.op is not None else str(getattr(self.fn, "__qualname__", "a function"))

    @property
    def verb(self) -> str:
        """What is done with it."""
        return self.op.verb if self.op is not None else "turn"

    def values(self) -> dict[str, tuple[Any, Secrecy]]:
        """The arguments by name, each with how secret it is."""
        op = self.op
        if op is None:
            return _arguments(self.fn, self.args)
        if op.verb in ("observe", "subscribe", "subscribe to all"):
            return {}
        hidden: tuple[Secrecy, ...] = op.secrecies or (0,) * len(self.args)
        shown = zip(op.params, self.args, hidden, strict=False)
        return {p.wire_name: (value, secrecy) for p, value, secrecy in shown}


def _message(item: Any) -> Message | None:
    if isinstance(item, Envelope):
        return Message(item.op, None, item.args, item.sender)
    if isinstance(item, Firing):
        return Message(None, *unwrapped(item.fn, item.args), None)
    if isinstance(item, tuple):
        op, args, sender = item  # pyright: ignore[reportUnknownVariableType]
        if isinstance(op, Operation):
            return Message(op, None, args, sender)  # pyright: ignore[reportUnknownArgumentType]
    return None


def _arguments(fn: Any, args: tuple[Any, ...]) -> dict[str, tuple[Any, Secrecy]]:
    """Name the arguments of a timer's turn; of a function that tells no names they are numbered."""
    discreet = fn.secrecy if isinstance(fn, Discreet) else 0
    fn = fn.fn if isinstance(fn, Discreet) else fn
    code = getattr(fn, "__code__", None)
    names: tuple[str, ...] = ()
    if code is not None:
        names = code.co_varnames[hasattr(fn, "__self__") : code.co_argcount + code.co_kwonlyargcount]
    try:
        hints = annotations_of_function(getattr(fn, "__func__", fn))
        hidden = {name: secrecy_of(hints.get(name)) for name in names}
    except Exception:
        hidden = dict.fromkeys(names, WHOLE)
    numbers = (f"argument {place}" for place in range(1, len(args) + 1))
    shown = zip((*names, *numbers), args, strict=False)
    return {name: (value, discreet or hidden.get(name, 0)) for name, value in shown}


class _Rendering:
    """One writing of a report, with room for so many characters of values."""

    def __init__(self, report: CrashReport) -> None:
        self._report = report
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
            "before": [self._message(message) for message in reversed(report.before)][::-1],
            "later": [report.short(error) for error in report.later[:CAUSES]],
        }

    def _message(self, message: Message) -> dict[str, Any]:
        told: dict[str, Any] = {"verb": message.verb, "affordance": message.name}
        told["arguments"] = self._values(message.values())
        if message.sender is not None:
            told["from"] = message.sender.path
        if message.entry is not None:
            told["time"] = message.entry.when.isoformat()
            told["outcome"] = message.entry.outcome
        return told

    def _values(self, values: dict[str, Any]) -> dict[str, str]:
        return {
            self._text(str(name)[:64]): self._value(value, secrecy)
            for name, (value, secrecy) in [*values.items()][:FIELDS]
        }

    def _value(self, value: Any, secrecy: Secrecy) -> str:
        if self._room <= 0:
            return "…"
        text = show(value, self._secrets, secrecy, min(LIMIT, max(self._room, 32)))
        self._room -= len(text)
        return text

    def _text(self, text: str) -> str:
        return printable(self._secrets.clean(text, LIMIT))


# ---- as text


def _lines(data: dict[str, Any]) -> Iterator[str]:
    where = f" at {data['where']}" if data["where"] else ""
    yield f"agent {data['agent']!r} #{data['incarnation']} crashed{where}: {data['reason']}"
    yield f"  class {data['class']}, at {data['time']}"
    above = "".join(f"{each['name']} ({each['strategy']}) > " for each in data["supervisors"])
    yield f"  in the tree: {above}{data['agent'].rpartition('/')[2]}"
    yield from (f"  {note}" for note in data["notes"])
    yield f"message in hand: {_told(data['message'])}"
    yield from _section("calls, the last one last:", data["calls"])
    for cause in data["causes"]:
        yield f"{cause['how']} {cause['reason']}" + (f" at {cause['where']}" if cause["where"] else "")
    fields = [f"{name} = {text}" for name, text in data["state"].items()]
    yield from _section(f"state {data['state_as_of']}:", fields)
    yield from _section("messages before it, the last one last:", map(_told, data["before"]))
    yield from _section("raised while it ended:", data["later"])


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    for place, line in enumerate(lines):
        if not place:
            yield title
        yield f"  {line}"


def _told(message: Any) -> str:
    if not isinstance(message, dict):
        return f"none, it was {message}" if message else "none"
    told: dict[str, Any] = message  # pyright: ignore[reportUnknownVariableType]
    arguments = ", ".join(f"{name}={text}" for name, text in told["arguments"].items())
    sender = f" from {told['from']}" if "from" in told else ""
    outcome = f" at {told['time']}: {told['outcome']}" if "outcome" in told else ""
    return f"{told['verb']} {told['affordance']}({arguments}){sender}{outcome}"


def _cut(text: str) -> str:
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= SIZE:
        return raw.decode()
    return raw[: SIZE - 64].decode("utf-8", "ignore") + "\n… the rest is left out"
