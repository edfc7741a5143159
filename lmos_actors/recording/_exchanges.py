"""The requests to agents in a message log, from which a scenario is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.files import mapped
from lmos_actors.protocol.relay import EVERYBODY

from ._transcript import USER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmos_actors.scenario.judge import LogLine

MISSING: Final[Any] = object()


@attrs.define
class LoggedRequest:
    """A request with its input and its outcome.

    It was sent at the instant `at`, and the agent began it at `begun`, None if it did not. At `end` it was
    answered or cancelled, None if neither. `error` is the text of an error. `more` are the members that only
    recordings have.
    """

    number: int
    agent: str
    verb: str
    name: str
    given: Any
    at: float
    more: dict[str, Any]
    items: list[Any] = attrs.Factory(list[Any])
    begun: float | None = None
    end: float | None = None
    value: Any = None
    error: str | None = None
    is_cancelled: bool = False

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer, or an error."""
        return self.end is not None and not self.is_cancelled


@attrs.frozen
class LoggedChange:
    """An event of an agent, or a new value of a property."""

    agent: str
    name: str
    value: Any
    at: float


@attrs.define
class LoggedExchanges:
    """The requests in a log that a scenario can make, and the events and property changes, in order."""

    requests: list[LoggedRequest] = attrs.Factory(list[LoggedRequest])
    events: list[LoggedChange] = attrs.Factory(list[LoggedChange])
    changes: list[LoggedChange] = attrs.Factory(list[LoggedChange])
    end: float = 0.0


def exchanges_in(lines: Iterable[LogLine], *, recorded: bool) -> LoggedExchanges:
    """Return the exchanges in a log: of a recording all requests, of a run only the requests of `user`."""
    found = LoggedExchanges()
    begun: dict[int, LoggedRequest] = {}
    for line in lines:
        if line.sort == "record":
            _take(line.data, found, begun, recorded=recorded)
    return found


def _take(
    data: dict[str, Any], found: LoggedExchanges, begun: dict[int, LoggedRequest], *, recorded: bool
) -> None:
    kind, agent, now = data.get("kind"), str(data.get("agent", "")), float(data.get("t", 0.0))
    found.end = max(found.end, now)
    if kind == "sent" and (recorded or data.get("from") == USER):
        own = ("n", "t", "kind", "agent", "affordance", "from", "id", "input", "trace", "verb")
        more = {name: value for name, value in data.items() if name not in own}
        given = data.get("input", MISSING)
        request = LoggedRequest(
            int(data["id"]), agent, str(data["verb"]), str(data["affordance"]), given, now, more
        )
        if data.get("from") != USER:
            more["asker"] = data.get("from")
        begun[request.number] = request
        found.requests.append(request)
    elif kind == "event":
        found.events.append(LoggedChange(agent, str(data.get("event")), data.get("data"), now))
    elif kind == "changed":
        found.changes.append(LoggedChange(agent, str(data.get("property")), data.get("value"), now))
    elif data.get("id") in begun:
        _go_on(begun[data["id"]], str(kind), data, now)


def _go_on(request: LoggedRequest, kind: str, data: dict[str, Any], now: float) -> None:
    if kind == "delivered":
        request.begun = now
    elif kind == "item":
        request.items.append(data.get("value"))
    elif kind == "cancelled":
        request.end, request.is_cancelled = now, True
    elif kind == "answered":
        request.end, request.value = now, data.get("value")
        request.error = None if data.get("error") is None else str(data["error"])


def is_text_alone(request: LoggedRequest) -> bool:
    """Return whether the log has the input only as text, which happens if it was too long for a viewer."""
    return "input" in request.more.get("text", ())


def speech_of(request: LoggedRequest) -> str:
    """Return the protocol of a recorded request."""
    if "session" in request.more:
        return "omnia"
    return "relay" if "asker" in request.more or request.agent == EVERYBODY else "lmos"


def is_fault(value: Any) -> bool:
    """Return whether the payload of an answer on a relay is an error."""
    return list(mapped(value)) == ["error"] and isinstance(mapped(value)["error"], dict)
