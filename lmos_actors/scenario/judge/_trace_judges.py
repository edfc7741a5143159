"""Judges of traces: numbers that messages carry in the log show which message caused which.

A message carries its own number (`id`) and the number of the message that began its trace (`trace`). Judges
keep a few facts for each trace, and for each message under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from ._judge import Judge, Offenders, instant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.reports import CheckResult

    from ..model import Causal, Message, Trace
    from ._judge import AgentDirectory, View

_SHOWN: Final = 8
_KEPT: Final = 10_000
_ENDED: Final = ("crashed", "stopped")
_OVER: Final = ("answered", "cancelled", "dropped", "refused")
_VERBS: Final = {"action": ("invoke", "tell", "stream"), "property": ("read", "write", "observe")}


def fits(
    message: Message, directory: AgentDirectory, kind: str, path: str, fields: Mapping[str, Any]
) -> bool:
    """Return whether a record (`sent` or `event`) fits a pattern.

    An event goes to all subscribers, so it fits no pattern with `to`.
    """
    if kind == "event" or message.event is not None:
        return (
            kind == "event"
            and message.event is not None
            and message.event == fields.get("event")
            and message.to is None
            and (message.from_ is None or directory.is_called(path, message.from_))
        )
    sender = fields.get("from")
    if message.from_ is not None and not (
        isinstance(sender, str) and directory.is_called(sender, message.from_)
    ):
        return False
    if message.to is not None and not directory.is_called(path, message.to):
        return False
    for key, verbs in _VERBS.items():
        wanted = getattr(message, key)
        if wanted is not None and (fields.get("affordance") != wanted or fields.get("verb") not in verbs):
            return False
    return True


class CausalJudge(Judge):
    """The judge of `causal`: each message `after` needs a message `before`, sent earlier in its trace."""

    records = ("sent", "event")
    check: Causal

    def __init__(self, check: Causal, name: str, place: str, directory: AgentDirectory) -> None:
        super().__init__(check, name, place)
        self.directory = directory
        self.caused: dict[object, None] = {}
        self.count = 0
        self.offenders = Offenders()

    @property
    def so_far(self) -> bool | None:
        """False once the check has been broken; None until then."""
        return False if self.offenders else None

    def record(self, kind: str, path: str, fields: Mapping[str, Any], now: float) -> None:
        trace = fields.get("trace")
        if trace is not None and fits(self.check.before, self.directory, kind, path, fields):
            self.caused[trace] = None
        if fits(self.check.after, self.directory, kind, path, fields):
            self.count += 1
            if trace not in self.caused:
                self.offenders.add(path, _described(kind, fields), now)

    def result(self) -> CheckResult:
        expected = f"{describe(self.check.before)} before each {describe(self.check.after)}"
        if not self.count:
            return self.verdict(False, expected, f"no message {describe(self.check.after)}")
        if self.offenders:
            return self.verdict(False, expected, f"none before that {self.offenders}", self.offenders.at)
        return self.verdict(True, expected, f"so for all {self.count}")


def _described(kind: str, fields: Mapping[str, Any]) -> str:
    if kind == "event":
        return f"event {fields.get('event')}"
    return f"{fields.get('verb')} {fields.get('affordance')} from {fields.get('from')}"


def describe(message: Message) -> str:
    """Return a message pattern as text."""
    words = [message.action or message.property or message.event or "message"]
    words += [f"from {message.from_}"] if message.from_ else []
    words += [f"to {message.to}"] if message.to else []
    return " ".join(words)


@attrs.define
class _Root:
    """A message that began a new trace; `inside` has the traces of messages its sender was handling then."""

    text: str
    now: float
    inside: tuple[int, ...]


class TraceJudge(Judge):
    """The judge of `trace`: which agents the trace of a step reaches, and whether it stays unbroken.

    With `single_trace`, no agent may begin a new trace, except by messages that steps send in its name. If
    `of` is given too, this holds only while the agent handles a message of the step's trace.
    """

    records = ("sent", "delivered", *_OVER, *_ENDED)
    check: Trace

    def __init__(self, check: Trace, name: str, place: str, view: View, directory: AgentDirectory) -> None:
        super().__init__(check, name, place)
        self.view = view
        self.directory = directory
        self.single = check.single_trace is True
        self.through: tuple[str, ...] = check.through if isinstance(check.through, tuple) else ()
        self.messages: dict[int, int] = {}
        self.in_hand: dict[str, dict[int, int]] = {}
        self.visits: dict[int, list[str]] = {}
        self.passed: dict[int, int] = {}
        self.roots: dict[int, _Root] = {}
        self.more_roots = 0

    def record(self, kind: str, path: str, fields: Mapping[str, Any], now: float) -> None:
        if kind in _ENDED:
            self.in_hand.pop(path, None)
            return
        number = fields.get("id")
        if not isinstance(number, int):
            return
        if kind == "sent":
            self._sent(number, path, fields, now)
        elif kind == "delivered":
            self._delivered(number, path)
        else:
            self.messages.pop(number, None)
            self.in_hand.get(path, {}).pop(number, None)

    def _sent(self, number: int, path: str, fields: Mapping[str, Any], now: float) -> None:
        trace = fields.get("trace")
        if not isinstance(trace, int):
            return
        self.messages[number] = trace
        sender = str(fields.get("from"))
        if number != trace or sender == "user" or not self.single:
            return
        if len(self.roots) == _KEPT:
            self.more_roots += 1
            return
        inside = tuple(dict.fromkeys(self.in_hand.get(sender, {}).values()))
        text = f"{sender}: {fields.get('verb')} {path}.{fields.get('affordance')}"
        self.roots[number] = _Root(text, now, inside)

    def _delivered(self, number: int, path: str) -> None:
        trace = self.messages.get(number)
        if trace is None:
            return
        self.in_hand.setdefault(path, {})[number] = trace
        if not self.through:
            return
        visited = self.visits.setdefault(trace, [])
        if len(visited) < _SHOWN and (not visited or visited[-1] != path):
            visited.append(path)
        passed = self.passed.get(trace, 0)
        if passed < len(self.through) and self.directory.is_called(path, self.through[passed]):
            self.passed[trace] = passed + 1

    def result(self) -> CheckResult:
        sent = tuple(self.view.messages_of(self.check.of))
        expected = " and ".join(self._expected())
        if not sent:
            what = f"step {self.check.of}" if self.check.of else "no step"
            return self.verdict(
                False, expected, f"{what} sent " + ("nothing" if self.check.of else "anything")
            )
        fine = f"so for {len(sent)} messages of {self.check.of or 'all steps'}"
        strayed = self._strayed(sent, expected) or self._missed(sent, expected)
        return strayed or self.verdict(True, expected, fine)

    def _expected(self) -> list[str]:
        expected = ["every message in the trace of the step that caused it"] if self.single else []
        return [*expected, f"a trace through {' > '.join(self.through)}"] if self.through else expected

    def _strayed(self, sent: tuple[int, ...], expected: str) -> CheckResult | None:
        of_step = dict.fromkeys(sent)
        own = of_step if self.check.of is None else dict.fromkeys(self.view.messages_of(None))
        strays = [
            root
            for number, root in self.roots.items()
            if number not in own and (self.check.of is None or any(trace in of_step for trace in root.inside))
        ]
        if not strays:
            return None
        first, count = strays[0], len(strays) + self.more_roots
        saw = f"{count} in a trace of their own, the first {first.text} at {instant(first.now)}"
        return self.verdict(False, expected, saw, first.now)

    def _missed(self, sent: tuple[int, ...], expected: str) -> CheckResult | None:
        for number in sent:
            if self.passed.get(number, 0) < len(self.through):
                went = " > ".join(self.visits.get(number, [])) or "no agent"
                return self.verdict(False, expected, f"message {number} came to {went}")
        return None
