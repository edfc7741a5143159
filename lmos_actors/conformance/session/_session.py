"""A session with a server: requests in a dialect, answers parsed as tolerantly as possible.

A case judges one subject. So a session accepts whatever may be meant as an answer: another spelling, a
`correlationID` that is missing or is the message's own, any of the kinds in `ANSWERS`. Otherwise a server
with wrong correlation would fail every case instead of those about correlation.

Two lists make that possible. `received` has all messages, for cases about what must not be sent. `_unclaimed`
has the messages that no wait has returned yet: `answer`, `event` and `reading` each search it first and then
read on, so that an event that arrives before an answer is still available afterwards. Whether a message
answers a request is decided by its correlation. If it has no known correlation, this is decided by
elimination: the message may be the answer if no other request is open. Therefore `_open` has only requests
for which the specification has an answer, and `forget` removes requests for which a case no longer waits.

Nothing is read in the background: a message counts as received when a wait has read it. `CaseContext.flush`
sends a request and waits for its answer before a case concludes that something did not arrive.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

import attrs
import trio

from lmos_actors.conformance.wire import ConnectionGone

from ._messages import parse_message
from ._probe import NoAnswer

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from lmos_actors.conformance.target import Call
    from lmos_actors.conformance.wire import ConnectionEnd, Socket

    from ._messages import ReceivedMessage

ANSWERS: Final[dict[str, tuple[str, ...]]] = {
    "readProperty": ("propertyReading", "error"),
    "readAllProperties": ("propertyReadings", "error"),
    "readMultipleProperties": ("propertyReadings", "error"),
    "writeProperty": ("propertyReading", "propertyReadings", "acknowledgement", "error"),
    "writeMultipleProperties": ("propertyReadings", "propertyReading", "acknowledgement", "error"),
    "writeAllProperties": ("propertyReadings", "acknowledgement", "error"),
    "observeProperty": ("propertyReading", "acknowledgement", "error"),
    "unobserveProperty": ("acknowledgement", "error"),
    "invokeAction": ("actionStatus", "error"),
    "queryAction": ("actionStatus", "error"),
    "cancelAction": ("actionStatus", "error"),
    "subscribeEvent": ("acknowledgement", "error"),
    "unsubscribeEvent": ("acknowledgement", "error"),
    "subscribeAllEvents": ("acknowledgement", "error"),
    "unsubscribeAllEvents": ("acknowledgement", "error"),
}
"""The kinds of messages that may answer a request, as widely as possible."""

SILENT: Final = (
    "unobserveProperty",
    "subscribeEvent",
    "unsubscribeEvent",
    "subscribeAllEvents",
    "unsubscribeAllEvents",
)
"""Requests for which the text defines no answer."""

_PROPERTY: Final = ("readProperty", "writeProperty", "observeProperty", "unobserveProperty")
_SAME: Final = "the same as messageID"


@attrs.frozen
class Dialect:
    """The dialect that the kit uses: the spelling of ids, property names and `subscribeEvent`.

    `offered`: whether `lmosprotocol` is offered in the handshake.
    """

    ids: Literal["ID", "Id"] = "ID"
    names: Literal["name", "property"] = "name"
    subscribing: Literal["subscribeEvent", "subscribeevent"] = "subscribeEvent"
    offered: bool = True

    def __str__(self) -> str:
        offered = "lmosprotocol offered" if self.offered else "no subprotocol offered"
        return f"thing{self.ids}, {self.names}, {self.subscribing}; {offered}"

    @property
    def is_kotlin(self) -> bool:
        """Whether acknowledgements are expected, as kotlin-wot sends them."""
        return not self.offered or self.names == "property" or self.subscribing == "subscribeevent"


AS_WRITTEN: Final = Dialect()
AS_IN_EXAMPLES: Final = Dialect(ids="Id")
AS_KOTLIN: Final = Dialect("Id", "property", "subscribeevent", offered=False)


@attrs.frozen(eq=False)
class Sent:
    """A request that was sent. `after`: the number of messages received before that."""

    kind: str
    name: str | None
    message_id: str
    correlation: str | None
    text: str
    after: int


class Session:
    """One connection on which the kit sends requests to a thing. Waits end after `patience` seconds."""

    def __init__(self, socket: Socket, dialect: Dialect, thing: str, random: Random, patience: float) -> None:
        self.socket = socket
        self.dialect = dialect
        self.thing = thing
        self.patience = patience
        self.received: list[ReceivedMessage] = []  # everything that came
        self._random = random
        self._unclaimed: list[ReceivedMessage] = []
        self._open: list[Sent] = []
        self._sent: list[Sent] = []
        self._feeds: list[Sent] = []

    # --- out

    def new_id(self) -> str:
        """Return a new UUID of version 4."""
        return str(UUID(bytes=self._random.randbytes(16), version=4))

    async def send(
        self,
        kind: str,
        *,
        name: str | None = None,
        thing: str | None = None,
        message_id: str | None = None,
        correlation: str | None = _SAME,
        **members: Any,
    ) -> Sent:
        """Send a request about `name`, in the spelling of this session. Raises ConnectionGone.

        The correlation is the request's id unless one is given; with None there is no correlation. `members`
        are sent unchanged: `data`, `input`, `reason`, `ack`. Messages other than requests can be sent, too.
        """
        message_id = self.new_id() if message_id is None else message_id
        correlation = message_id if correlation == _SAME else correlation
        text = self.text(
            kind, name=name, thing=thing, message_id=message_id, correlation=correlation, **members
        )
        sent = Sent(kind, name, message_id, correlation, text, len(self.received))
        self._sent.append(sent)
        if kind in ANSWERS and (kind not in SILENT or self.dialect.is_kotlin or members.get("ack")):
            self._open.append(sent)
        if kind in ("observeProperty", "subscribeEvent", "subscribeAllEvents"):
            self._feeds.append(sent)
        await self.socket.send_text(text)
        return sent

    async def begin(self, call: Call, **members: Any) -> Sent:
        """Send the `invokeAction` of a call. Raises ConnectionGone."""
        return await self.send("invokeAction", name=call.action, **{**call.members(), **members})

    def text(
        self,
        kind: str,
        *,
        name: str | None = None,
        thing: str | None = None,
        message_id: str | None = None,
        correlation: str | None = None,
        **members: Any,
    ) -> str:
        """Return the text of a request without sending it."""
        ids, named = self.dialect.ids, _member(kind, self.dialect)
        data: dict[str, Any] = {
            f"thing{ids}": self.thing if thing is None else thing,
            f"message{ids}": self.new_id() if message_id is None else message_id,
            "messageType": self.dialect.subscribing if kind == "subscribeEvent" else kind,
        }
        if correlation is not None:
            data[f"correlation{ids}"] = correlation
        if name is not None and named is not None:
            data[named] = name
        if kind == "invokeAction" and self.dialect.is_kotlin:
            data["input"] = None  # its clients always write it, even if there is none
        return json.dumps(data | members, ensure_ascii=False)

    # --- in

    async def next(self, within: float | None = None) -> ReceivedMessage | None:
        """Wait for the next unclaimed message; return None if none arrives. Raises ConnectionGone."""
        if not self._unclaimed:
            await self._receive(self.patience if within is None else within)
        return self._unclaimed.pop(0) if self._unclaimed else None

    async def _receive(self, within: float) -> bool:
        text = await self.socket.next_message(within)
        if text is None:
            return False
        received = parse_message(text, trio.current_time(), len(self.received))
        self.received.append(received)
        self._unclaimed.append(received)
        return True

    async def answer(self, sent: Sent, within: float | None = None) -> ReceivedMessage:
        """Wait for the next answer to a request. Raises NoAnswer and ConnectionGone.

        The correlation of an answer is the request's correlation or the request's id. If no other request is
        open, the next possible answer counts, whatever its correlation.
        """
        received = await self._claim(lambda each: self._answers(each, sent), within)
        if received is None:
            raise NoAnswer(f"no answer to {sent.kind} within {self._seconds(within):g} s")
        if received.is_final and sent in self._open:
            self._open.remove(sent)
        return received

    async def answers(self, sent: Sent, within: float | None = None) -> list[ReceivedMessage]:
        """Wait for all answers to a request, up to the final one. Raises NoAnswer, and ConnectionGone."""
        found = [await self.answer(sent, within)]
        while not found[-1].is_final:
            found.append(await self.answer(sent, within))
        return found

    async def final(self, sent: Sent, within: float | None = None) -> ReceivedMessage:
        """Wait for the final answer to a request. Raises NoAnswer, and ConnectionGone."""
        return (await self.answers(sent, within))[-1]

    async def ask(self, kind: str, *, within: float | None = None, **members: Any) -> ReceivedMessage:
        """Send a request, and wait for its final answer. Raises NoAnswer, and ConnectionGone."""
        return await self.final(await self.send(kind, **members), within)

    def forget(self, sent: Sent) -> None:
        """Stop expecting answers to a request, so that the next message may answer another one."""
        if sent in self._open:
            self._open.remove(sent)

    async def event(self, name: str | None = None, within: float | None = None) -> ReceivedMessage | None:
        """Wait for an event, with any name if none is given; return None if none arrives."""
        return await self._claim(
            lambda each: each.kind == "event" and name in (None, each.data.get("event", name)), within
        )

    async def reading(self, name: str | None = None, within: float | None = None) -> ReceivedMessage | None:
        """Wait for a reading that was not claimed as an answer; return None if none arrives."""

        def fits(received: ReceivedMessage) -> bool:
            return received.kind == "propertyReading" and (name is None or received.name in (None, name))

        return await self._claim(fits, within)

    async def drain(self, within: float | None = None) -> list[ReceivedMessage]:
        """Wait until no message has arrived for `within` seconds; return the unclaimed messages.

        The wait also ends with the connection, or after ten times `within` if messages never stop.
        """
        deadline = trio.current_time() + 10 * self._seconds(within)
        try:
            while trio.current_time() < deadline and await self._receive(self._seconds(within)):
                pass
        except ConnectionGone:
            pass
        found, self._unclaimed = self._unclaimed, []
        return found

    async def closed(self, within: float | None = None) -> ConnectionEnd | None:
        """Wait for the end of the connection, and return it, or None if the connection stays open."""
        return await self.socket.end(self._seconds(within))

    async def _claim(
        self, fits: Callable[[ReceivedMessage], bool], within: float | None
    ) -> ReceivedMessage | None:
        deadline = trio.current_time() + self._seconds(within)
        looked = 0
        while True:
            for received in self._unclaimed[looked:]:
                if fits(received):
                    self._unclaimed.remove(received)
                    return received
            looked = len(self._unclaimed)
            if not await self._receive(max(0.0, deadline - trio.current_time())):
                return None

    def _answers(self, received: ReceivedMessage, sent: Sent) -> bool:
        if received.kind and received.kind not in ANSWERS.get(sent.kind, (received.kind,)):
            return False
        if received.number < sent.after:
            return False
        if received.correlation in (sent.message_id, sent.correlation) and received.correlation is not None:
            return True
        others = [each for each in self._sent if each is not sent]
        if any(
            received.correlation in (each.message_id, each.correlation)
            for each in others
            if received.correlation
        ):
            return False
        observing = any(each.kind == "observeProperty" for each in self._feeds)
        if observing and received.kind == "propertyReading" and received.name not in (None, sent.name):
            return False  # the reading of an observed property
        return not any(each is not sent for each in self._open)

    def _seconds(self, within: float | None) -> float:
        return self.patience if within is None else within


def _member(kind: str, dialect: Dialect) -> str | None:
    if kind in _PROPERTY:
        return dialect.names
    if kind.endswith("Action"):
        return "action"
    return "event" if kind.endswith("Event") else None
