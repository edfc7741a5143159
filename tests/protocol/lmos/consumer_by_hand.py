"""A consumer by hand, for the tests of a thing's session: sends plain objects, reads plain objects."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any

from lmos_actors.protocol.lmos import AnswerMemory, SessionOptions, ThingSession

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TIME = "2026-01-02T03:04:05Z"
THING = "urn:thing"


class Talk:
    """One connection to a `ThingSession`; `habits` as its first frame will show them."""

    def __init__(
        self,
        habits: str = "spec",
        *,
        options: SessionOptions | None = None,
        memory: AnswerMemory | None = None,
        ids: str = "s",
    ) -> None:
        numbers, self.woken = count(1), 0
        self.kotlin = habits == "kotlin-wot"
        self.session = ThingSession(
            offered=not self.kotlin,
            new_id=lambda: f"{ids}{next(numbers)}",
            options=options,
            memory=memory,
            wake=self._wake,
        )
        self.now = 0.0

    def _wake(self) -> None:
        self.woken += 1

    def say(self, kind: str, number: object = 1, **members: Any) -> tuple[Any, ...]:
        """Send a message with the id `m<number>`; give the session's demands."""
        end = "Id" if self.kotlin else "ID"
        named = {"correlation": f"correlation{end}", "thing": f"thing{end}"}
        raw = {"messageType": kind, f"thing{end}": THING, f"message{end}": f"m{number}"}
        return self.raw(raw | {named.get(key, key): value for key, value in members.items()})

    def raw(self, raw: object) -> tuple[Any, ...]:
        """Send any JSON."""
        return self.session.receive(json.dumps(raw), self.now)

    def ask(self, kind: str, number: object = 1, **members: Any) -> Any:
        """Send a request that the host is to answer; give it."""
        *_, asked = self.say(kind, number, **members)
        return asked

    def heard(self) -> list[dict[str, Any]]:
        """Take what the session has sent, as written."""
        return [json.loads(frame) for frame in self.session.frames(1 << 30)]

    def short(self) -> list[str]:
        """Take what the session has sent, each as `type correlation rest`, ids and times left out."""
        return [shortly(message) for message in self.heard()]

    def adds_up(self) -> bool:
        """Whether every frame that came has one fate."""
        s = self.session.statistics()
        fates = (s.answered, s.refused, s.merged, s.abandoned, s.streamed, s.strays, s.unreadable, s.open)
        return s.received == sum(fates)


_LEFT_OUT = ("messageType", "messageID", "messageId", "thingID", "thingId", "timestamp", "instance", "detail")
_LEFT_OUT += ("correlationID", "correlationId", "title", "about", "started")


def shortly(message: dict[str, Any]) -> str:
    """Write a message as one line."""
    correlation = message.get("correlationID", message.get("correlationId", "-"))
    rest = [f"{key}={json.dumps(value)}" for key, value in message.items() if key not in _LEFT_OUT]
    words = [message["messageType"], str(correlation), *rest]
    return (
        " ".join(words)
        .replace("https://eclipse.dev/lmos/protocol/v1/errors#", "")
        .replace("urn:lmos-actors:errors#", "")
    )
