"""The messages of one LMOS connection, as requests and their answers.

Each side is read by a separate codec, which learns that side's spelling. An answer is matched to its request
by its correlation. Each event or value of a thing is recorded once: if several listeners to one property or
event are open, only the first of them counts.
"""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec import UNSET

from lmos_actors.errors import ActionFailed
from lmos_actors.protocol import lmos

from ._things import Thing
from ._transcript import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._things import Schema
    from ._transcript import Transcript

MOST: Final = 10_000
"""Maximum open requests of a connection; further ones are passed on, but not written."""

ENDED: Final = ("completed", "failed", "cancelled")
FRAME_HEADER: Final = 12
"""Bytes before the item in a binary frame of a stream."""


@attrs.define
class _Open:
    """A request that has no final answer yet, or that continues as a feed."""

    number: int
    agent: str
    affordance: str
    message: Any
    thing: Thing | None
    is_feed: bool = False
    is_told: bool = False
    stream: int | None = None


@attrs.define
class _Several:
    """A request about several properties, recorded as one numbered request for each property."""

    agent: str
    thing: Thing | None
    verb: str
    numbers: dict[str, int]


class LmosConversation:
    """One connection of LMOS.

    `offered`: whether the client offered the subprotocol. `selected`: whether the server selected it.
    """

    def __init__(self, transcript: Transcript, *, offered: bool, selected: bool) -> None:
        self._transcript = transcript
        self._requests = lmos.Codec(lmos.Dialect.of_thing(offered))
        self._answers = lmos.Codec(lmos.Dialect.of_consumer(selected))
        self._open: dict[str, _Open | _Several] = {}
        self._feeds: dict[tuple[str, str], list[_Open]] = {}
        self._asked: dict[type[Any], Callable[[Any], None]] = {
            lmos.ReadProperty: self._read,
            lmos.WriteProperty: self._write,
            lmos.WriteMultipleProperties: self._write_several,
            lmos.WriteAllProperties: self._write_several,
            lmos.ReadAllProperties: self._read_several,
            lmos.ReadMultipleProperties: self._read_several,
            lmos.ObserveProperty: self._observe,
            lmos.UnobserveProperty: self._unobserve,
            lmos.InvokeAction: self._invoke,
            lmos.SubscribeEvent: self._subscribe,
            lmos.UnsubscribeEvent: self._unsubscribe,
            lmos.SubscribeAllEvents: self._subscribe_all,
            lmos.UnsubscribeAllEvents: self._unsubscribe_all,
        }

    # ---- what the client says

    def from_client(self, content: str | bytes) -> None:
        """Record a text message of the client. Binary messages, which are items of streams, are ignored."""
        if isinstance(content, bytes):
            return
        message = self._requests.decode(content)
        if isinstance(message, lmos.Unreadable):
            self._transcript.unread += 1
            return
        take = self._asked.get(type(message))
        if take is not None and len(self._open) < MOST and self._key(message) not in self._open:
            take(message)

    @staticmethod
    def _key(message: Any) -> str:
        key: str = message.correlation_id or message.message_id
        return key

    def _place(self, message: Any) -> tuple[str, Thing | None]:
        return self._transcript.of_thing(message.thing_id)

    def _shown(self, value: Any, thing: Thing | None, schema: Callable[[Thing], Schema | None]) -> Any:
        return self._transcript.redaction.described(value, None if thing is None else schema(thing))

    def _ask(self, message: Any, verb: str, affordance: str, given: Any = MISSING) -> _Open:
        agent, thing = self._place(message)
        number = self._transcript.sent(agent, verb, affordance, given)
        request = _Open(number, agent, affordance, message, thing)
        self._open[self._key(message)] = request
        return request

    def _read(self, message: lmos.ReadProperty) -> None:
        self._ask(message, "read", message.name)

    def _write(self, message: lmos.WriteProperty) -> None:
        _, thing = self._place(message)
        given = self._shown(message.data, thing, partial(Thing.property_of, name=message.name))
        self._ask(message, "write", message.name, given)

    def _write_several(self, message: Any) -> None:
        agent, thing = self._place(message)
        several = _Several(agent, thing, "write", {})
        for name, value in message.data.items():
            shown = self._shown(value, thing, partial(Thing.property_of, name=name))
            several.numbers[name] = self._transcript.sent(agent, "write", name, shown)
        self._open[self._key(message)] = several

    def _read_several(self, message: Any) -> None:
        agent, thing = self._place(message)
        self._open[self._key(message)] = _Several(agent, thing, "read", {})

    def _observe(self, message: lmos.ObserveProperty) -> None:
        request = self._ask(message, "observe", message.name)
        self._listen(request, "property", message.name)

    def _subscribe(self, message: lmos.SubscribeEvent) -> None:
        request = self._ask(message, "subscribe", message.event)
        self._listen(request, "event", message.event)
        self._transcript.answered(request.agent, message.event, request.number, None)

    def _subscribe_all(self, message: Any) -> None:
        request = self._ask(message, "subscribe to all", "*")
        self._listen(request, "event", "*")
        self._transcript.answered(request.agent, "*", request.number, None)

    def _listen(self, request: _Open, kind: str, name: str) -> None:
        request.is_feed = True
        self._feeds.setdefault((f"{request.agent} {kind}", name), []).append(request)

    def _unobserve(self, message: Any) -> None:
        self._leave(message, "property", message.name)

    def _unsubscribe(self, message: Any) -> None:
        self._leave(message, "event", message.event)

    def _unsubscribe_all(self, message: Any) -> None:
        agent, _ = self._place(message)
        for key in [key for key in self._feeds if key[0] == f"{agent} event"]:
            self._drop(key)

    def _leave(self, message: Any, kind: str, name: str) -> None:
        agent, _ = self._place(message)
        self._drop((f"{agent} {kind}", name))

    def _drop(self, key: tuple[str, str]) -> None:
        for feed in self._feeds.pop(key, ()):
            self._open.pop(self._key(feed.message), None)

    def _invoke(self, message: lmos.InvokeAction) -> None:
        _, thing = self._place(message)
        given: Any = MISSING
        if message.input is not UNSET and message.input is not None:
            given = self._shown(message.input, thing, partial(Thing.input_of, action=message.action))
        verb = "invoke" if message.tell is None else "tell"
        request = self._ask(message, verb, message.action, given)
        request.is_told = message.tell is not None
        if request.is_told:  # it has no answer, unless that is an error
            del self._open[self._key(message)]

    def left(self) -> None:
        """Record that the client has left: its open requests are cancelled."""
        for request in list(self._open.values()):
            if isinstance(request, _Open) and isinstance(request.message, lmos.InvokeAction):
                self._settle(request)
                self._transcript.cancelled(request.agent, request.affordance, request.number)

    # ---- what the server says

    def from_server(self, content: str | bytes) -> None:
        """Record a message of the server: text, or a binary one as bytes."""
        if isinstance(content, bytes):
            self._item_of_bytes(content)
            return
        message = self._answers.decode(content)
        if isinstance(message, lmos.Unreadable):
            self._transcript.unread += 1
        elif isinstance(message, lmos.Event):
            self._event(message)
        elif isinstance(message, lmos.PropertyReading):
            self._reading(message)
        elif isinstance(message, lmos.PropertyReadings):
            self._readings(message)
        elif isinstance(message, lmos.ActionStatus):
            self._status(message)
        elif isinstance(message, lmos.Error):
            self._error(message)
        elif isinstance(message, lmos.StreamOpen):
            request = self._request_of(message)
            if request is not None:
                request.stream = message.stream

    def _request_of(self, message: Any) -> _Open | None:
        found = self._open.get(message.correlation_id or "")
        return found if isinstance(found, _Open) else None

    def _event(self, message: lmos.Event) -> None:
        agent, thing = self._place(message)
        listening = [
            feed for name in (message.event, "*") for feed in self._feeds.get((f"{agent} event", name), ())
        ]
        correlated = self._open.get(message.correlation_id or "")
        if correlated in listening[1:]:  # the same event, for another of its subscribers
            return
        data = self._shown(message.data, thing, partial(Thing.event_of, name=message.event))
        self._transcript.event(agent, message.event, data)

    def _reading(self, message: lmos.PropertyReading) -> None:
        agent, thing = self._place(message)
        value = self._shown(message.value, thing, partial(Thing.property_of, name=message.name))
        request = self._request_of(message)
        observing = self._feeds.get((f"{agent} property", message.name), [])
        if request is not None and not request.is_feed:
            is_write = isinstance(request.message, lmos.WriteProperty)
            self._settle(request)
            self._transcript.answered(agent, message.name, request.number, None if is_write else value)
        elif request is not None and not request.is_told:
            request.is_told = True
            self._transcript.answered(agent, message.name, request.number, value)
        elif request is None or request in observing[:1]:
            self._transcript.changed(agent, message.name, value)

    def _readings(self, message: lmos.PropertyReadings) -> None:
        several = self._open.pop(message.correlation_id or "", None)
        if not isinstance(several, _Several):
            return
        for name, value in message.data.items():
            if several.verb == "read":
                number = self._transcript.sent(several.agent, "read", name)
                shown = self._shown(value, several.thing, partial(Thing.property_of, name=name))
                self._transcript.answered(several.agent, name, number, shown)
            elif name in several.numbers:
                self._transcript.answered(several.agent, name, several.numbers.pop(name), None)

    def _status(self, message: lmos.ActionStatus) -> None:
        request = self._request_of(message)
        if request is None or not isinstance(request.message, lmos.InvokeAction):
            return
        status = lmos.canonical_status(message.status)
        agent, action, number, thing = request.agent, request.affordance, request.number, request.thing
        if message.progress is not UNSET and message.in_reply_to is None:
            shown = self._shown(message.progress, thing, partial(Thing.progress_of, action=action))
            self._transcript.progress(agent, action, number, shown)
        if status not in ENDED:
            if message.output is not UNSET and message.in_reply_to is None:
                self._transcript.item(agent, action, number, self._output(message.output, request))
            return
        self._settle(request)
        output = None if message.output is UNSET else message.output
        if message.cancelled or status == "cancelled":
            self._transcript.cancelled(agent, action, number)
        elif status == "failed":
            shown = self._output(output, request)
            self._transcript.failed(agent, action, number, ActionFailed(shown), shown)
        else:
            self._transcript.answered(agent, action, number, self._output(output, request))

    def _output(self, output: Any, request: _Open) -> Any:
        return self._shown(output, request.thing, partial(Thing.output_of, action=request.affordance))

    def _item_of_bytes(self, content: bytes) -> None:
        stream = int.from_bytes(content[4:8], "big")
        for request in self._open.values():
            if isinstance(request, _Open) and request.stream == stream and len(content) > FRAME_HEADER:
                value = base64.b64encode(content[FRAME_HEADER:]).decode()
                self._transcript.item(
                    request.agent, request.affordance, request.number, self._output(value, request)
                )
                return

    def _error(self, message: lmos.Error) -> None:
        found = self._open.get(message.correlation_id or "")
        if isinstance(found, _Several):
            del self._open[message.correlation_id or ""]
            error = lmos.error_of(message)
            for name, number in found.numbers.items():
                self._transcript.failed(found.agent, name, number, error, None)
        elif found is not None and message.in_reply_to is None:
            self._settle(found)
            error = lmos.error_of(message, found.message)
            output: Any = None
            if isinstance(error, ActionFailed):
                output = self._output(error.output, found)
                error = ActionFailed(output)
            self._transcript.failed(found.agent, found.affordance, found.number, error, output)

    def _settle(self, request: _Open) -> None:
        self._open.pop(self._key(request.message), None)
        for key, feeds in list(self._feeds.items()):
            if request in feeds:
                feeds.remove(request)
                if not feeds:
                    del self._feeds[key]
