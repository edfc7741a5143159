"""Requests that have one answer: which are open, which answer belongs to which, and how they end."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import UNSET

from lmos_actors.errors import LocalProtocolError, MailboxFull

from .._messages import (
    Credit,
    PropertyReading,
    PropertyReadings,
    ReadAllProperties,
    ReadMultipleProperties,
    ReadProperty,
    TellWindow,
    WriteMultipleProperties,
    WriteProperty,
    name_in,
)
from .._pending import ConsumerRequest, OneWayMessage, RunControl, SplitRequest
from .._problems import error_of
from .._tells import TELLS, SentTells
from ._outcomes import ForgottenFailed, RequestAnswered, RequestFailed, TellRoom

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.errors import LmosActorsError

    from .._messages import Error, Request, TellCredit
    from ._connection import ConsumerConnection
    from ._outcomes import Outcomes

P = TypeVar("P", bound=ConsumerRequest)

_WINDOW: Final = "window"  # the key in the outbox of the latest window to confirm
MAX_QUERIES: Final = 16  # open queries about one run
ASIDES: Final = MAX_QUERIES + 1  # and one cancel


class Requests:
    """The open requests of one connection, by `messageID`.

    `asked = answered + failed + forgotten + unanswered + len(self)`, counted in messages. The last `max_open`
    forgotten requests are remembered, so that their answers do not count as strays.
    """

    __slots__ = (
        "_connection",
        "_controls",
        "_forgotten",
        "_open",
        "answered",
        "asked",
        "failed",
        "forgotten",
        "tells",
        "unanswered",
    )

    def __init__(self, connection: ConsumerConnection) -> None:
        self._connection = connection
        self._open: dict[str, ConsumerRequest] = {}
        self._controls: dict[str, RunControl] = {}
        self._forgotten: OrderedDict[str, ConsumerRequest] = OrderedDict()
        self.tells = SentTells(numbered="tells" in connection.known)
        self.asked = self.answered = self.failed = self.forgotten = self.unanswered = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._controls)

    @property
    def remembered(self) -> int:
        """The number of forgotten requests, and of one-way messages not known to have begun."""
        return len(self._forgotten) + len(self.tells)

    # -- asking

    def ask(self, pending: P, checked: bool = False) -> P:
        """Send a request of the host; see `Encode` for `checked`.

        Raises:
            LocalProtocolError: an open request has the same id, or the request cannot be encoded.
            MailboxFull: too many are open, or too much is waiting to be sent.
        """
        request, connection, opened = pending.request, self._connection, self._open
        outbox, message_id = connection.outbox, request.message_id
        if (
            connection.closed
            or not request.thing_id
            or len(opened) >= connection.options.max_open
            or outbox.full
            or message_id in opened
            or message_id in self._controls
        ):
            self.check_room(pending)  # raises: asked in one step first, as nearly always there is room
        outbox.put_frame(connection.encode(request, checked), pending)
        self.asked += 1
        opened[message_id] = pending
        return pending

    def tell(self, message: OneWayMessage, checked: bool) -> None:
        """Send a one-way message. Raise what `ask` raises, and MailboxFull if there is no credit."""
        request, connection, tells = message.request, self._connection, self.tells
        thing, outbox = request.thing_id, connection.outbox
        if connection.closed or not thing or outbox.full:
            connection.admit(thing, 0, 1)  # raises
        if not tells.room(thing):
            raise MailboxFull(thing, TELLS.items)
        tells.add(message, outbox.put_frame(connection.encode(request, checked), message))
        self.asked += 1
        self.forgotten += 1

    def check_room(self, pending: ConsumerRequest, more: int = 1) -> None:
        """Raise what `ask` would raise for lack of room, or for an id that is already in use."""
        request, connection = pending.request, self._connection
        connection.admit(request.thing_id, len(self._open), connection.options.max_open, more)
        if request.message_id in self._open or request.message_id in self._controls:
            raise LocalProtocolError(f"the request {request.message_id!r} is still open")

    def ask_several(self, whole: SplitRequest, requests: list[Request]) -> SplitRequest:
        """Send several requests as parts of one request of the host.

        None is sent if there is no room for all, or if one cannot be encoded.
        """
        self.check_room(whole, len(requests))
        frames = [self._connection.encode(request) for request in requests]
        for request, frame in zip(requests, frames, strict=True):
            part = ConsumerRequest(request, whole)
            self._connection.outbox.put_frame(frame, part)
            self.asked += 1
            self._open[part.message_id] = part
            whole.parts[part.message_id] = part
        if not requests:
            whole.done, whole.value = True, {}
        return whole

    def ask_control(self, control: RunControl) -> None:
        """Send a query or a cancel. At most `ASIDES` times `max_open` of them may be unanswered.

        Raises:
            MailboxFull: that many are unanswered; a peer may never answer those about ended runs.
        """
        limit = ASIDES * self._connection.options.max_open
        if len(self._controls) >= limit:
            raise MailboxFull(control.thing_id, limit)
        self._connection.outbox.put(control.request, control)
        self.asked += 1
        self._controls[control.message_id] = control

    # -- finding

    def find(self, correlation: str | None) -> ConsumerRequest | None:
        """Return the open request with this id, or None."""
        if correlation is None:
            return None
        return self._open.get(correlation) or self._controls.get(correlation)

    def find_control(self, message_id: str | None) -> RunControl | None:
        """Return the open query or cancel with this id, or None."""
        return None if message_id is None else self._controls.get(message_id)

    def controls_of(self, pending: ConsumerRequest) -> list[RunControl]:
        """Return the open queries about a request that is not a run and so has no list of them."""
        return [control for control in self._controls.values() if control.run is pending]

    def find_forgotten(self, correlation: str | None) -> ConsumerRequest | None:
        """Return the one-way message, or the still remembered forgotten request, with this id; else None."""
        if correlation is None:
            return None
        return self.tells.get(correlation) or self._forgotten.get(correlation)

    def guess(self, fits: Callable[[ConsumerRequest], bool]) -> ConsumerRequest | None:
        """Return the only open request that fits an answer without a correlation.

        Return None if two fit, if more than 64 are open, and for peers that always send a correlation.
        """
        if self._connection.ours or self._connection.kotlin or len(self._open) > 64:
            return None
        found = [pending for pending in self._open.values() if fits(pending)]
        return found[0] if len(found) == 1 else None

    # -- ending

    def answer(self, pending: ConsumerRequest, value: Any) -> Outcomes:
        """End a request with its value."""
        if self._open.pop(pending.request.message_id, None) is None:
            self._take_out(pending)
        self.answered += 1
        whole = pending.whole
        if whole is None:
            pending.done, pending.value = True, value
            return (RequestAnswered(pending, value),)
        del whole.parts[pending.message_id]
        whole.values[name_in(pending.request)] = value
        if whole.parts:
            return ()
        whole.done, whole.value = True, whole.values
        return (RequestAnswered(whole, whole.values),)

    def fail(self, pending: ConsumerRequest, error: LmosActorsError) -> Outcomes:
        """End a request with an error. A part of a split request also ends the whole and its other parts."""
        self._take_out(pending)
        self.failed += 1
        whole = pending.whole
        if whole is None:
            pending.done, pending.error = True, error
            return (RequestFailed(pending, error),)
        del whole.parts[pending.message_id]
        self._forget_parts(whole)
        whole.done, whole.error = True, error
        return (RequestFailed(whole, error),)

    def _take_out(self, pending: ConsumerRequest) -> None:
        message_id = pending.request.message_id
        if self._open.pop(message_id, None) is None:
            self._controls.pop(message_id, None)

    def forget(self, pending: ConsumerRequest) -> None:
        """Stop waiting for a request. Only an error for it is still reported, as `ForgottenFailed`."""
        pending.forgotten = True
        if isinstance(pending, SplitRequest):
            self._forget_parts(pending)
        elif self.find(pending.message_id) is pending:
            self._take_out(pending)
            self.forgotten += 1
            self.expect_late(pending)

    def _forget_parts(self, whole: SplitRequest) -> None:
        for part in whole.parts.values():
            self._take_out(part)
            self.forgotten += 1
            self.expect_late(part)
        whole.parts.clear()

    def expect_late(self, pending: ConsumerRequest) -> None:
        """Remember a request that has ended here before its answer came."""
        self._forgotten[pending.request.message_id] = pending
        if len(self._forgotten) > self._connection.options.max_open:
            self._forgotten.popitem(last=False)

    def drop(self, pending: ConsumerRequest) -> bool:
        """Remove a request from the outbox; return whether it was still there."""
        return self._connection.outbox.drop(pending)

    def come_for_forgotten(self, pending: ConsumerRequest, error: LmosActorsError | None) -> Outcomes:
        """Process the answer to a request that ended here; report an error if the host forgot the request."""
        room: Outcomes = ()
        if isinstance(pending, OneWayMessage):
            self.tells.end(pending)
            room = self._room()
        else:
            del self._forgotten[pending.message_id]
        if error is None or pending.done or pending.whole is not None:
            return (*self._connection.come_late(), *room)
        pending.done, pending.error = True, error
        return (ForgottenFailed(pending, error), *room)

    def _room(self) -> Outcomes:
        return (TellRoom(),) if self.tells.has_come() else ()

    def take_credit(self, message: TellCredit) -> Outcomes:
        """Recover the credit of one-way messages that have begun."""
        self.tells.begun(message.begun)
        return self._room()

    def take_window(self, message: TellWindow) -> Outcomes:
        """Apply another window of one-way messages; confirm it to the thing if it is lower."""
        if self.tells.next_number is None:
            return self._connection.stray(message, "one-way messages have no numbers here")
        if self.tells.resize(Credit(items=message.messages, bytes=message.bytes)):
            confirmation = TellWindow(
                thing_id=message.thing_id,
                message_id=self._connection.new_id(),
                messages=message.messages,
                bytes=message.bytes,
            )
            self._connection.outbox.put_latest(_WINDOW, confirmation)
        return self._room()

    def take_unnamed(self, thing: str, action: str | None) -> ConsumerRequest | None:
        """Return the one-way message for an answer without correlation; None if the peer always sends one."""
        return None if self._connection.ours else self.tells.oldest(thing, action)

    def close(self) -> list[ConsumerRequest]:
        """End all requests because the connection has ended; return the host's open ones, oldest first.

        Forgotten requests are included if they were never sent, and one-way messages if they are not known to
        have begun.
        """
        unsent = [p for p in self._forgotten.values() if not p.sent and not p.done and p.whole is None]
        self.unanswered += len(self)
        opened = (pending.whole or pending for pending in (*self._open.values(), *self._controls.values()))
        found = list(dict.fromkeys([*opened, *unsent, *self.tells.close()]))
        for pending in found:
            if isinstance(pending, SplitRequest):
                pending.parts.clear()
        self._open.clear()
        self._controls.clear()
        self._forgotten.clear()
        return found

    # -- what comes in

    def take_reading(self, message: PropertyReading | PropertyReadings) -> Outcomes:
        """Return the outcomes of a reading that answers a request, or a stray if it answers none."""
        correlation = message.correlation_id
        pending = self.find(correlation) or self._guess_of(message)
        if pending is None:
            forgotten = self.find_forgotten(correlation)
            if forgotten is not None:
                return self.come_for_forgotten(forgotten, None)
            return self._connection.stray(message, "no request of this correlation is open")
        value = value_in(pending.request, message)
        if value is UNSET:
            return self._connection.stray(message, f"no answer to {pending.verb}")
        return self.answer(pending, value)

    def _guess_of(self, message: PropertyReading | PropertyReadings) -> ConsumerRequest | None:
        if message.correlation_id is not None:
            return None
        thing = message.thing_id
        return self.guess(
            lambda pending: pending.thing_id == thing and value_in(pending.request, message) is not UNSET
        )

    def take_error(self, pending: ConsumerRequest, message: Error) -> Outcomes:
        """Process an error as the answer to an open request."""
        return self.fail(pending, error_of(message, pending.request))


def value_in(request: Request, message: PropertyReading | PropertyReadings) -> Any:
    """Return the value in a reading of either form for a request; UNSET if the reading does not answer it."""
    one = isinstance(message, PropertyReading)
    values = {message.name: message.value} if isinstance(message, PropertyReading) else message.data
    if isinstance(request, ReadProperty | WriteProperty):
        return values.get(request.name, UNSET)
    if isinstance(request, WriteMultipleProperties):
        return UNSET if one and not request.data.keys() >= values.keys() else values
    several = isinstance(request, ReadAllProperties | ReadMultipleProperties)
    return values if several and not one else UNSET
