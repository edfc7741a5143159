"""The consumer's session: the client's end of one LMOS connection. No I/O and no clock.

The session is a state machine. Its host calls a method for each request and gets an object: a
`ConsumerRequest`, `PendingRun` or `Feed`. The host takes frames to send from `frames`, and passes received
frames to `receive`, which returns the outcomes of requests, in order. Every request ends exactly once: by an
answer, by an error, by `forget`, or by `closed`, which returns all that are still open.

The work is divided by what an answer has to be matched with: `_requests` (one answer), `_runs` (statuses
until a final one, queries, cancels), `_feeds` (values until a stop), `_streams` (items under credit).
`_receiver` decides by type which of these modules handles a frame; `_connection` contains what all of them
need. Matching needs more than the correlation, because peers differ: kotlin-wot answers some requests without
one, or under another one. A frame that matches nothing is counted as a stray and has no other effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs
from msgspec import UNSET

from lmos_actors.errors import NotAllowed

from .._codec import Codec
from .._dialects import Dialect
from .._limits import FINITE, Limits
from .._messages import (
    InvokeAction,
    ReadAllProperties,
    ReadMultipleProperties,
    ReadProperty,
    WriteMultipleProperties,
    WriteProperty,
)
from .._outbox import within
from .._peer import SessionOptions
from .._pending import (
    ConsumerRequest,
    Feed,
    OneWayMessage,
    PendingRun,
    RunControl,
    SplitRequest,
    TraceMembers,
)
from ._connection import ConsumerConnection
from ._feeds import Feeds
from ._receiver import Receiver
from ._requests import Requests
from ._runs import Runs, controls_of
from ._streams import ConsumerStreams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

    from .._messages import Credit, Request
    from .._outbox import Sendable
    from .._streams import Outgoing
    from ._outcomes import Outcomes


@attrs.frozen(kw_only=True)
class ConsumerStatistics:
    """Counts of one session: `asked = answered + failed + forgotten + unanswered + open`, in messages.

    `unanswered` requests were open when the session was closed. `remembered` counts forgotten requests,
    one-way messages and ended feeds that the session still remembers. `waiting` frames are in the outbox.
    `strays` answered no request. `late` frames arrived after their request or feed had ended here.
    `unreadable` frames were not messages.
    """

    asked: int
    answered: int
    failed: int
    forgotten: int
    unanswered: int
    open: int
    listening: int
    remembered: int
    waiting: int
    strays: int
    late: int
    unreadable: int


@attrs.frozen
class UnfinishedWork:
    """The unfinished work at the end of a connection: feeds, and requests, each with whether it was sent."""

    pendings: tuple[tuple[ConsumerRequest, bool], ...]
    feeds: tuple[Feed, ...]


class ConsumerSession:
    """The client's side of one LMOS connection.

    `selected` is whether the server selected the subprotocol `lmosprotocol`; `auto` derives the habits from
    it. `new_id` returns UUIDv4 texts. `offers` are the extensions that the peer's description announces.
    `wake` is called from within a method when a frame is added to an empty outbox; it must not call the
    session.

    The methods that send a request put a message into the outbox and return an object, equal only to itself.
    `receive` returns its outcome; if it ends at once, the returned object shows this. `frames` returns the
    frames to send. No method blocks, and no message of a peer makes a method raise. Every method that sends a
    request raises LocalProtocolError once the session is closed, for an empty thing, for a payload without a
    JSON form, and for a message of more than `max_bytes`. It raises MailboxFull if the options allow no more
    open requests, or the outbox is full.
    """

    __slots__ = ("_connection", "_feeds", "_receiver", "_requests", "_runs", "_streams", "outbox")

    def __init__(
        self,
        *,
        selected: bool,
        new_id: Callable[[], str],
        habits: Literal["auto", "spec", "kotlin-wot"] = "auto",
        options: SessionOptions | None = None,
        offers: tuple[str, ...] = (),
        wake: Callable[[], object] | None = None,
    ) -> None:
        options = SessionOptions() if options is None else options
        limits = Limits(max_bytes=options.max_bytes, strict=options.strict)
        codec = Codec(Dialect.of_consumer(selected, habits), limits, longest=options.max_bytes)
        self._connection = ConsumerConnection(codec, new_id, options, offers, wake)
        self.outbox = self._connection.outbox
        """The frames that wait to be sent; `frames` takes from it."""
        self._requests = Requests(self._connection)
        self._feeds = Feeds(self._connection)
        self._streams = ConsumerStreams(
            encode=self._connection.encode, new_id=new_id, max_open=options.max_open
        )
        self._runs = Runs(self._connection, self._requests, self._streams)
        self._receiver = Receiver(self._connection, self._requests, self._feeds, self._runs, self._streams)

    # -- properties

    def read(self, thing: str, name: str, **trace: Unpack[TraceMembers]) -> ConsumerRequest:
        """Request the value of a property."""
        new_id = self._connection.new_id()
        request = ReadProperty(thing_id=thing, message_id=new_id, correlation_id=new_id, name=name, **trace)
        return self._requests.ask(ConsumerRequest(request), True)

    def read_many(self, thing: str, names: Iterable[str], **trace: Unpack[TraceMembers]) -> ConsumerRequest:
        """Request several properties, one message each; the answer has all values by name, or is an error."""
        new_id, known = self._connection.new_id, list(dict.fromkeys(names))
        request = ReadMultipleProperties(thing_id=thing, message_id=new_id(), properties=known)
        reads: list[Request] = []
        for name in known:
            one = new_id()
            reads.append(ReadProperty(thing_id=thing, message_id=one, correlation_id=one, name=name, **trace))
        return self._requests.ask_several(SplitRequest(request), reads)

    def read_all(self, thing: str, **trace: Unpack[TraceMembers]) -> ConsumerRequest:
        """Request the values of all properties.

        The message is kotlin-wot's and not in the specification. If the names are known, use `read_many`,
        which every peer supports.
        """
        new_id = self._connection.new_id()
        request = ReadAllProperties(thing_id=thing, message_id=new_id, correlation_id=new_id, **trace)
        return self._requests.ask(ConsumerRequest(request))

    def write(self, thing: str, name: str, value: Any, **trace: Unpack[TraceMembers]) -> ConsumerRequest:
        """Set a property; the answer is the value that the thing has stored."""
        new_id = self._connection.new_id()
        request = WriteProperty(
            thing_id=thing, message_id=new_id, correlation_id=new_id, name=name, data=value, **trace
        )
        return self._requests.ask(ConsumerRequest(request), type(value) in FINITE)

    def write_many(
        self, thing: str, values: Mapping[str, Any], **trace: Unpack[TraceMembers]
    ) -> ConsumerRequest:
        """Set several properties in one message, or in one each for a peer with kotlin-wot's habits."""
        new_id = self._connection.new_id()
        request = WriteMultipleProperties(
            thing_id=thing, message_id=new_id, correlation_id=new_id, data=dict(values), **trace
        )
        if not self._connection.kotlin:
            return self._requests.ask(ConsumerRequest(request))
        writes: list[Request] = []
        for name, value in request.data.items():
            one = self._connection.new_id()
            writes.append(
                WriteProperty(
                    thing_id=thing, message_id=one, correlation_id=one, name=name, data=value, **trace
                )
            )
        return self._requests.ask_several(SplitRequest(request), writes)

    # -- actions

    def invoke(
        self,
        thing: str,
        action: str,
        input: Any = UNSET,
        *,
        remaining: float | None = None,
        attempt: int | None = None,
        message_id: str | None = None,
        credit: Credit | None = None,
        streams: Mapping[str, str] | None = None,
        binary: bool = False,
        key: str | None = None,
        **trace: Unpack[TraceMembers],
    ) -> PendingRun:
        """Request a run of an action. By default `input` is absent, which differs from null.

        For a peer with kotlin-wot's habits null is sent instead, because its server refuses a request without
        the member.

        `remaining` (the seconds until the caller gives up) and `attempt` (from 1) are sent to peers that
        offer `deadlines` and `retries`; a retry repeats the `message_id`. `credit` asks peers that offer
        `streams` for a stream of items as the answer, with bytes in binary frames if `binary`; other peers
        send any number of items. `streams` opens input streams, and has their content types by parameter.

        `key` names the request: the thing keeps its answer, and repeats it for later requests with the same
        key.

        Raise NotAllowed for input streams or a key if the peer does not offer them.
        """
        connection = self._connection
        if key is not None and "keys" not in connection.known:
            raise NotAllowed(f"{thing!r} does not offer keys: it would carry a repeat out again")
        known, new_id = connection.known, message_id or connection.new_id()
        request = InvokeAction(
            thing_id=thing,
            message_id=new_id,
            correlation_id=new_id,
            action=action,
            input=None if input is UNSET and connection.kotlin else input,
            remaining=remaining if "deadlines" in known else None,
            attempt=attempt if "retries" in known else None,
            key=key,
            **trace,
        )
        run = PendingRun(request)
        if credit is None and not streams and not binary:
            return self._requests.ask(run, type(input) in FINITE)
        return self._runs.ask_streaming(run, credit, streams or {}, binary=binary)

    def tell(
        self, thing: str, action: str, input: Any = UNSET, *, host: Any = None, **trace: Unpack[TraceMembers]
    ) -> ConsumerRequest:
        """Send a one-way message for this `host`. `receive` returns `ForgottenFailed` if it does not begin.

        Raise MailboxFull if there is no credit, see `may_tell`; `TellRoom` follows when there may be some.
        """
        new_id = self._connection.new_id()
        number = self._requests.tells.next_number
        request = InvokeAction(
            thing_id=thing,
            message_id=new_id,
            correlation_id=new_id,
            action=action,
            input=None if input is UNSET and self._connection.kotlin else input,
            tell=number,
            **trace,
        )
        message = OneWayMessage(request, host=host, forgotten=True, number=number or 0)
        self._requests.tell(message, type(input) in FINITE)
        return message

    def may_tell(self, thing: str) -> bool:
        """Return whether a one-way message may be sent to a thing now. If not, `TellRoom` follows later.

        At first the connection has credit for 2 messages of 2 KiB in all that have not begun. The thing may
        raise it, up to 1,024 messages of 1 MiB. Each thing has half of that, at least the first 2 messages
        and at most 256 messages of 256 KiB in all. The final answers of peers that do not offer `tells`
        return credit.
        """
        return self._requests.tells.room(thing)

    @property
    def tell_credit(self) -> tuple[Credit, Credit]:
        """The credit for one-way messages on the whole connection, and the spent part of it."""
        return self._requests.tells.window, self._requests.tells.spent

    def query(self, pending: ConsumerRequest, asked: list[str] | None = None) -> ConsumerRequest:
        """Query the status of a run; the answer is a `RunStatus`.

        With `asked` the answer includes what the run waits for, and the query may be about another request,
        such as a read. If the peer does not report what its runs wait for, the answer is an error.

        A peer with kotlin-wot's habits supports no queries, and the status of an ended run is known here: in
        both cases the query is done when this returns. Raise MailboxFull if 16 queries of this run are open.
        """
        return self._runs.query(pending, asked)

    def cancel(self, pending: PendingRun, reason: str | None = None) -> ConsumerRequest:
        """Ask to end a run; the answer is a `RunStatus`. While a cancel of the run is open, return that one.

        A run that is still in the outbox is removed from it, and a run at a peer with kotlin-wot's habits is
        abandoned. Both have failed with ActionCancelled when this returns; no `RequestFailed` follows. Raise
        MailboxFull if 17 times `max_open` queries and cancels are unanswered.
        """
        return self._runs.cancel(pending, reason)

    def forget(self, pending: ConsumerRequest) -> None:
        """Stop waiting for an answer: a result is dropped, but an error is reported as `ForgottenFailed`.

        The last `max_open` forgotten requests are remembered. To end a run, cancel it first.
        """
        if pending.done or pending.forgotten:
            return
        self._requests.forget(pending)
        if isinstance(pending, PendingRun):
            self._runs.forget(pending)
        elif isinstance(pending, RunControl) and pending in controls_of(pending.run):
            controls_of(pending.run).remove(pending)

    # -- streams

    def room(self, stream: Outgoing) -> bool:
        """Return whether an item may be sent on a stream now. If not, `CreditArrived` follows later."""
        return stream.room

    def send(self, stream: Outgoing, item: Any) -> bool:
        """Send an item of an input stream; return False if the stream is over. Then its run reports why.

        Raise LocalProtocolError if there is no room, if an item is too long, and if an item on a stream of
        bytes is not bytes. A stream cannot continue after such an item: break it off.
        """
        self._connection.check_open()
        frame = self._streams.send(stream, item)
        if frame is not None:
            within(frame, self._connection.options.max_bytes)
            self._connection.outbox.put_frame(frame)
        return frame is not None

    def finish(self, stream: Outgoing, reason: str | None = None) -> None:
        """End an input stream, or break it off for a reason."""
        self._connection.check_open()
        frame = self._streams.finish(stream, reason)
        if frame is not None:
            self._connection.outbox.put_frame(frame)

    def consumed(self, pending: PendingRun) -> None:
        """Count a run's oldest item as consumed and return its credit, so that the thing may send more."""
        frame = None if pending.answer is None else self._streams.consumed(pending.answer)
        if frame is not None:
            self._connection.outbox.put_frame(frame)

    # -- observations and subscriptions

    def observe(self, thing: str, name: str, **trace: Unpack[TraceMembers]) -> Feed:
        """Observe a property: receive its present value, and every later one.

        Raise LocalProtocolError if this connection already observes the property.
        """
        return self._feeds.observe(thing, name, trace)

    def subscribe(self, thing: str, event: str, **trace: Unpack[TraceMembers]) -> Feed:
        """Subscribe to an event. The feed is `established` at once if the thing sends no confirmations.

        Raise LocalProtocolError if this connection is already subscribed to the event.
        """
        return self._feeds.subscribe(thing, event, trace)

    def subscribe_all(self, thing: str, **trace: Unpack[TraceMembers]) -> Feed:
        """Subscribe to all events of a thing.

        Raise LocalProtocolError if this connection is already subscribed to them, and NotAllowed if the peer
        has kotlin-wot's habits, which have no such subscription.
        """
        return self._feeds.subscribe_all(thing, trace)

    def stop(self, feed: Feed) -> None:
        """Stop a feed. It has `ended` at once, or when the thing confirms, which `FeedEnded` reports.

        Until then the feed counts towards `max_listening`.
        """
        self._feeds.stop(feed)

    # -- what comes and goes

    def receive(self, text: str | bytes) -> Outcomes:
        """Process a text frame; return its outcomes, or none once the session is closed."""
        return () if self._connection.closed else self._receiver.take(text)

    def receive_binary(self, data: bytes) -> Outcomes:
        """Process a binary frame: an item of bytes from a run. Any other frame closes the connection."""
        return () if self._connection.closed else self._receiver.take_binary(data)

    def frames(self, room: int = 65_536) -> list[Sendable]:
        """Remove and return frames to send, oldest first: about `room` bytes, but at least one frame if any
        waits.

        `Binary` objects are binary frames, other bytes are the UTF-8 of text frames. A frame that is removed
        counts as sent.
        """
        return self._connection.outbox.take(room)

    @property
    def full(self) -> bool:
        """Whether too much waits to be sent; requests are refused then."""
        return self._connection.outbox.full

    @property
    def waiting_bytes(self) -> int:
        """The bytes that wait to be sent."""
        return self.outbox.bytes

    @property
    def habits(self) -> str:
        """The habits by which the peer is treated: `spec` or `kotlin-wot`."""
        return self._connection.codec.dialect.habits

    def closed(self, *, drained: bool = False) -> UnfinishedWork:
        """End the session because its connection has ended; return the unfinished work, oldest first.

        A request that was sent may have run; an unsent one has not. `drained`: the close code was 1012, so
        the peer had answered everything that it had begun, and nothing counts as sent. Forgotten requests are
        included only if they were not sent, and one-way messages only if they are not known to have begun.
        Feeds that were being stopped are left out.
        """
        self._connection.closed = True
        pendings = tuple((pending, pending.sent and not drained) for pending in self._requests.close())
        feeds = tuple(self._feeds.close())
        self._streams.close()
        self._connection.outbox.clear()
        return UnfinishedWork(pendings, feeds)

    def statistics(self) -> ConsumerStatistics:
        """Return the counts of the session."""
        requests, feeds = self._requests, self._feeds
        return ConsumerStatistics(
            asked=requests.asked,
            answered=requests.answered,
            failed=requests.failed,
            forgotten=requests.forgotten,
            unanswered=requests.unanswered,
            open=len(requests),
            listening=len(feeds),
            remembered=requests.remembered + feeds.remembered,
            waiting=len(self._connection.outbox),
            strays=self._connection.strays,
            late=self._connection.late + self._streams.ignored,
            unreadable=self._receiver.unreadable,
        )
