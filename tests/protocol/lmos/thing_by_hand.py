"""A thing by hand, for the tests of a consumer's session: reads plain objects, says plain objects."""

from __future__ import annotations

import json
from itertools import count
from typing import Any, Literal

from msgspec import UNSET

from lmos_actors.protocol.lmos import (
    Close,
    ConsumerSession,
    EventOccurred,
    FeedEnded,
    FeedEstablished,
    ForgottenFailed,
    PropertyRead,
    RequestAnswered,
    RequestFailed,
    RunItem,
    RunProgressed,
    SessionOptions,
    StrayMessage,
    ValuesMissed,
)

THING = "urn:thing"
TIME = "2026-01-02T03:04:05Z"
OURS = ("acks", "gaps", "streams", "deadlines", "retries")
PROBLEM = {"type": "about:blank", "title": "No", "status": "500", "detail": "no", "instance": "urn:x"}


class Hand:
    """The other end of a `ConsumerSession`, whose ids are c1, c2 and so on."""

    def __init__(
        self,
        habits: Literal["spec", "kotlin-wot"] = "spec",
        *,
        offers: tuple[str, ...] = (),
        options: SessionOptions | None = None,
    ) -> None:
        self.kotlin = habits == "kotlin-wot"
        numbers, self._numbers = count(1), count(1)
        self.session = ConsumerSession(
            selected=not self.kotlin, new_id=lambda: f"c{next(numbers)}", offers=offers, options=options
        )

    def sent(self) -> list[dict[str, Any]]:
        """Take what the session has sent."""
        return [json.loads(frame) for frame in self.session.frames(1 << 30)]

    def short(self) -> list[str]:
        """Take what the session has sent, each as its type, ids and members."""
        return [shortly(message) for message in self.sent()]

    def say(self, kind: str, correlation: str | None = None, **members: Any) -> list[tuple[Any, ...]]:
        """Send a message; give what happened, in short."""
        end = "Id" if self.kotlin else "ID"
        raw: dict[str, Any] = {
            "messageType": kind,
            f"thing{end}": THING,
            f"message{end}": f"t{next(self._numbers)}",
        }
        if correlation is not None:
            raw[f"correlation{end}"] = correlation
        if kind in ("propertyReading", "propertyReadings", "event"):
            raw["timestamp"] = TIME
        return self.raw(raw | members)

    def raw(self, raw: object) -> list[tuple[Any, ...]]:
        """Send any JSON; give what happened, in short."""
        return told(self.session.receive(raw if isinstance(raw, str | bytes) else json.dumps(raw)))

    def reading(self, correlation: str | None, name: str, value: Any) -> list[tuple[Any, ...]]:
        """Send a reading, by the habits."""
        if self.kotlin:
            return self.say("propertyReading", correlation, property=name, data=value)
        return self.say("propertyReading", correlation, name=name, value=value)

    def status(self, correlation: str | None, status: str, **members: Any) -> list[tuple[Any, ...]]:
        """Send a status of the action `go`."""
        return self.say("actionStatus", correlation, action="go", status=status, **members)

    def error(self, correlation: str | None, status: str = "500", **members: Any) -> list[tuple[Any, ...]]:
        """Send an error of a type that nobody knows."""
        return self.say("error", correlation, **(PROBLEM | {"status": status} | members))

    def adds_up(self) -> bool:
        """Whether every request that was made has one fate."""
        s = self.session.statistics()
        return s.asked == s.answered + s.failed + s.forgotten + s.unanswered + s.open


def shortly(message: dict[str, Any]) -> str:
    """Write a message as one line: type, id, correlation if it is another, the rest but the thing."""
    raw = {key.replace("Id", "ID"): value for key, value in message.items()}
    kind, own = raw.pop("messageType"), raw.pop("messageID")
    correlation = raw.pop("correlationID", "-")
    del raw["thingID"]
    words = [kind, own, *([] if correlation == own else [f"of={correlation}"])]
    return " ".join([*words, *(f"{key}={json.dumps(value)}" for key, value in raw.items())])


def told(happenings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Write what happened in short: identities left out, errors by their class."""
    return [_told(one) for one in happenings]


def _told(one: Any) -> tuple[Any, ...]:
    match one:
        case RequestAnswered():
            return "RequestAnswered", None if one.value is UNSET else one.value
        case RequestFailed() | ForgottenFailed() | FeedEnded():
            return type(one).__name__, None if one.error is None else type(one.error).__name__
        case RunProgressed():
            return (
                ("RunProgressed", one.status)
                if one.progress is UNSET
                else ("RunProgressed", one.status, one.progress)
            )
        case RunItem():
            return "RunItem", one.output
        case FeedEstablished():
            return ("FeedEstablished",)
        case PropertyRead():
            return "PropertyRead", one.value
        case EventOccurred():
            return "EventOccurred", one.event, one.data
        case ValuesMissed():
            return "ValuesMissed", one.reason, one.missed
        case StrayMessage():
            return ("StrayMessage",)
        case Close():
            return "Close", one.code
        case _:
            return (type(one).__name__,)
