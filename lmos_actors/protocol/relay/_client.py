"""An agent's end of a connection to a relay. No socket, no clock.

Relays differ, and an agent has to work with all of them:

- Some send no welcome, and an old relay sends it without an envelope; frames that follow at once are valid.
  **The welcome names the agent's id**; without a welcome the agent keeps the id that it was created with.
- **Only frames `from` the relay are the relay's own.** A welcome, an error or an acknowledgement that another
  agent has written is an ordinary message.
- The oldest refuses frames without `from`, and the newest accept the sender's own id there. So the id is
  written once it is known.
- On one relay a follower receives a broadcast twice, and after a reconnection some messages are repeated:
  **each message id is accepted once**.
- A frame that cannot be read is only counted.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 -- types of events are read
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs

from lmos_actors._core import Bounded, read_json

from ._frames import (
    EVERYBODY,
    OWN,
    RELAY,
    Unreadable,
    read_members,
    write_members,
    write_value,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEN: Final = 1_024
"""Number of message ids that are remembered."""

DEPTH: Final = 1_000
"""Limit on the levels of arrays and objects in a frame that is read."""


@attrs.frozen
class Welcomed:
    """The relay's welcome: `id` is the agent's id, `relay` the name of the relay."""

    id: str
    relay: str
    extensions: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    limits: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen
class RelayMessage:
    """A message from another agent, or from this one. `members` has the private members by name."""

    id: str
    sender: str
    to: tuple[str, ...]
    payload: Any
    type: str = ""
    ref: str = ""
    ts: int = 0
    members: Mapping[str, Any] = attrs.field(factory=dict[str, Any])

    @property
    def is_broadcast(self) -> bool:
        """Whether the message went to everybody."""
        return EVERYBODY in self.to

    def is_for(self, agent: str) -> bool:
        """Return whether the message is meant for an agent: it names the agent, or is meant for everybody.

        On a relay without direct messages the message also names `*`; the other names are the intended
        agents. The sender's own name among them only requests an echo.
        """
        return agent in self.to or not set(self.to) - {EVERYBODY, self.sender}


@attrs.frozen
class RelayFault:
    """A refusal by the relay. `receipt` is the receipt of the refused frame, if the relay repeats it."""

    code: str
    message: str
    ref: str = ""
    receipt: str = ""


@attrs.frozen
class RelayAnswer:
    """A relay answer, of type `pong`, `subscribed`, `unsubscribed`, `subscriptions` or another type."""

    type: str
    payload: Any = None
    ref: str = ""


RelayEvent: TypeAlias = Welcomed | RelayMessage | RelayFault | RelayAnswer


class RelayClient:
    """One agent on a relay, over all its connections. `id` is the agent's id, or None while it is unknown.

    With `names_itself` its messages carry its own id, as the oldest relay demands.
    """

    def __init__(self, id: str | None = None, *, names_itself: bool = True) -> None:
        self.id = id
        self.unread = 0
        """Frames that could not be read."""
        self.repeated = 0
        """Messages that came again and were ignored."""
        self._names_itself = names_itself
        self._seen: Bounded[str, None] = Bounded(SEEN)

    # ---- to the relay

    def message(
        self,
        to: Sequence[str],
        payload: Any,
        *,
        type: str | None = None,
        ref: str | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return the frame of a message.

        Raise ValueError if there are no targets, and for members that senders may not set. Raise TypeError
        for a value that is not plain data.
        """
        if not to:
            raise ValueError("a message has targets")
        found: list[tuple[str, Any]] = []
        if self._names_itself and self.id is not None:
            found.append(("from", self.id))
        found.append(("to", list(to)))
        found += [(name, value) for name, value in (("type", type), ("ref", ref)) if value is not None]
        found.append(("payload", payload))
        known = {*OWN, "to", "type", "ref", "payload"}
        for name, value in (members or {}).items():
            if name in known:
                raise ValueError(f"{name!r} is no private member")
            found.append((name, value))
        return write_members((name, write_value(value)) for name, value in found)

    def command(self, type: str, payload: Any = None) -> bytes:
        """Return the frame of a command. It always has a payload, because one relay demands it."""
        return self.message((RELAY,), payload, type=type)

    # ---- from the relay

    def receive(self, data: bytes) -> RelayEvent | None:
        """Process a frame; return its meaning, or None if it cannot be read or is a repetition."""
        members = read_members(data, DEPTH)
        if isinstance(members, Unreadable):
            self.unread += 1
            return None
        try:
            found: dict[str, Any] = read_json(data)
        except (ValueError, RecursionError):
            self.unread += 1
            return None
        is_flat = found.get("type") == "welcome" or "error" in found
        if is_flat and "from" not in found:  # of a relay of the first days: its own members beside the type
            return self._of_relay(found)
        sender, to = found.get("from"), found.get("to")
        if not isinstance(sender, str) or sender == EVERYBODY or not isinstance(to, list):
            self.unread += 1  # an answer to "*", whom one relay lets anybody be, would go to everybody
            return None
        return self._of_relay(found) if sender == RELAY else self._heard(sender, found)

    def _heard(self, sender: str, found: dict[str, Any]) -> RelayMessage | None:
        id = _text(found.get("id"))
        if id:
            if id in self._seen:
                self.repeated += 1
                return None
            self._seen[id] = None
        ts = found.get("ts")
        known = (*OWN, "to", "type", "ref", "payload")
        return RelayMessage(
            id,
            sender,
            tuple(each for each in found["to"] if isinstance(each, str)),
            found.get("payload"),
            _text(found.get("type")),
            _text(found.get("ref")),
            ts if isinstance(ts, int) and not isinstance(ts, bool) else 0,
            {name: value for name, value in found.items() if name not in known},
        )

    def _of_relay(self, found: dict[str, Any]) -> RelayEvent:
        type, payload = _text(found.get("type")), found.get("payload")
        inner = cast("dict[str, Any]", payload) if isinstance(payload, dict) else found
        if type == "welcome":
            return self._welcomed(found, inner)
        if type == "error" or (not type and "error" in found):
            code = inner.get("code", inner.get("error"))
            return RelayFault(
                _text(code),
                _text(inner.get("message")),
                _text(found.get("ref")),
                _text(inner.get("receipt")),
            )
        return RelayAnswer(type, payload, _text(found.get("ref")))

    def _welcomed(self, found: dict[str, Any], inner: dict[str, Any]) -> Welcomed:
        to = found.get("to")
        named = [each for each in to if isinstance(each, str)] if isinstance(to, list) else []  # pyright: ignore[reportUnknownVariableType]
        if named and named[0] != EVERYBODY:
            self.id = named[0]
        extensions, limits = inner.get("extensions"), inner.get("limits")
        return Welcomed(
            self.id or "",
            _text(inner.get("relay")),
            _names(extensions),
            _names(inner.get("capabilities")),
            cast("dict[str, Any]", limits) if isinstance(limits, dict) else {},
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _names(value: Any) -> tuple[str, ...]:
    """Return the names of extensions from a list of texts or of objects with a name."""
    if not isinstance(value, list):
        return ()
    found: list[Any] = [
        cast("dict[str, Any]", each).get("name") if isinstance(each, dict) else each
        for each in value  # pyright: ignore[reportUnknownVariableType]
    ]
    return tuple(each for each in found if isinstance(each, str))
