"""The consumer's session: the client's end of one LMOS connection. No I/O and no clock.

The session is a state machine. Its host calls a method for each request and gets an object, a
`ConsumerRequest`, `PendingRun` or `Feed`; frames to be sent come out of `frames`, frames that came go into
`receive`, and the outcomes of requests come out of `receive`, in order. The promise: every request ends
exactly once: by an answer, by an error, by `forget`, or by `closed`, which returns all that are still open.

The work is divided by what an answer has to be matched with: `_requests` (one answer), `_runs` (statuses
until a final one, queries, cancels), `_feeds` (values until a stop), `_streams` (items under credit).
`_receiver` decides by type which of them a frame is for; `_connection` holds what all of them need. Matching
is more than a look at the correlation, as peers differ: kotlin-wot answers some requests without one, or
under another one. A frame that fits nothing is counted as a stray and changes nothing.
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
    one-way messages and ended feeds that are still known; `waiting` frames are in the outbox; `strays`
    answered nothing; `late` frames came for something that had ended here; `unreadable` frames were no
    messages.
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
    """The unfinished work at the end of a connection: requests, each with whether it was sent, and feeds."""

    pendings: tuple[tuple[ConsumerRequest, bool], ...]
    feeds: tuple[Feed, ...]


class ConsumerSession:
    """The client's side of one LMOS connection.

    `selected` is whether the server selected the subprotocol `lmosprotocol`, from which `auto` takes its
    habits; `new_id` returns UUIDv4 texts; `offers` are the extensions that the peer's description announces.
    `wake` is called from within a method when a frame waits and none did before; it must not call the
    session.

    The methods that ask put a message into the outbox and return an object, equal only to itself. Its outcome
    comes from `receive`; if it ends at once, the returned object says so. `frames` returns the frames to
    send. Nothing blocks, and nothing that a peer sends raises. Every method that asks raises
    LocalProtocolError once the session is closed, for an empty thing, for a payload without a JSON form, and
    for a message of more than `max_bytes`; and MailboxFull if the options allow no more open requests, or the
    outbox is full.
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
        """Ask for the value of a property."""
        new_id = self._connection.new_id()
        request = ReadProperty(thing_id=thing, message_id=new_id, correlation_id=new_id, name=name, **trace)
        return self._requests.ask(ConsumerRequest(request), True)

    def read_many(self, thing: str, names: Iterable[str], **trace: Unpack[TraceMembers]) -> ConsumerRequest:
        """Ask for several properties, one message each; the answer is all values by name, or an error."""
        new_id, known = self._connection.new_id, list(dict.fromkeys(names))
        request = ReadMultipleProperties(thing_id=thing, message_id=new_id(), properties=known)
        reads: list[Request] = []
        for name in known:
            one = new_id()
            reads.append(ReadProperty(thing_id=thing, message_id=one, correlation_id=one, name=name, **trace))
        return self._requests.ask_several(SplitRequest(request), reads)

    def read_all(self, thing: str, **trace: Unpack[TraceMembers]) -> ConsumerRequest:
        """Ask for the values of all properties.

        The message is kotlin-wot's and not in the specification: if the names are known, use `read_many`,
        which every peer understands.
        """
        new_id = self._connection.new_id()
        request = ReadAllProperties(thing_id=thing, message_id=new_id, correlation_id=new_id, **trace)
        return self._requests.ask(ConsumerRequest(request))

    def write(self, thing: str, name: str, value: Any, **trace: Unpack[TraceMembers]) -> ConsumerRequest:
        """Set a property; the answer is the value that the thing has taken."""
        new_id = self._connection.new_id()
        request = WriteProperty(
            thing_id=thing, message_id=new_id, correlation_id=new_id, name=name, data=value, **trace
        )
        return self._requests.ask(ConsumerRequest(request), type(value) in FINITE)

    def write_many(
        self, thing: str, values: Mapping[str, Any], **trace: Unpack[TraceMembers]
    ) -> ConsumerRequest:
        """Set several properties: in one message or, by kotlin-wot's habits, in one each."""
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
        """Ask for a run of an action; `input` is absent by default, which is not null.

        By kotlin-wot's habits null is sent for it: its server refuses a request without the member.

        `remaining` (the seconds until the caller gives up) and `attempt` (from 1) are sent to peers that
        offer `deadlines` and `retries`; a retry repeats the `message_id`. `credit` asks peers that offer
        `streams` for a stream of items as the answer, with bytes in binary frames if `binary`; others send as
        many items as they like. `streams` opens input streams: it has their content types by parameter.

        `key` names the request: the thing keeps its answer, and gives it to later requests with the same key.

        Raises NotAllowed for input streams or a key that the peer does not offer.
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
        """Send a one-way message with this `host`; `ForgottenFailed` comes if it does not begin.

        Raises MailboxFull without credit, see `may_tell`; `TellRoom` comes when there may be some.
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
        """Return whether a one-way message may be sent to a thing now; if not, `TellRoom` comes later.

        The connection has credit for 2 messages of 2 KiB in all that have not begun, until the thing raises
        it, for up to 1,024 messages of 1 MiB. Each thing has half of that, at least the first 2 messages
        and at most 256 messages of 256 KiB in all. Peers that do not offer `tells` give credit back by their
        final answers.
        """
        return self._requests.tells.room(thing)

    @property
    def tell_credit(self) -> tuple[Credit, Credit]:
        """The credit for one-way messages on the whole connection, and how much is spent."""
        return self._requests.tells.window, self._requests.tells.spent

    def query(self, pending: ConsumerRequest, asked: list[str] | None = None) -> ConsumerRequest:
        """Query the status of a run; the answer is a `RunStatus`. With `asked` it has what the run waits for.

        With `asked` the query may be about another request, such as a read. A peer that does not report what
        it waits for answers by an error.

        A peer of kotlin-wot's habits knows no queries, and the status of an ended run is known here: in both
        cases the query is done when this returns. Raises MailboxFull if 16 queries of this run are open.
        """
        return self._runs.query(pending, asked)

    def cancel(self, pending: PendingRun, reason: str | None = None) -> ConsumerRequest:
        """Ask to end a run; the answer is a `RunStatus`. While a cancel is open, return it again.

        A run that is still in the outbox is removed from it, and a run at a peer of kotlin-wot's habits is
        given up here: both have failed with ActionCancelled when this returns; no `RequestFailed` follows.
        Raises MailboxFull if 17 times `max_open` queries and cancels are unanswered.
        """
        return self._runs.cancel(pending, reason)

    def forget(self, pending: ConsumerRequest) -> None:
        """Stop waiting for an answer: it is dropped, but an error comes as `ForgottenFailed`.

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
        """Return whether an item may be sent on a stream now; if not, `CreditArrived` comes later."""
        return stream.room

    def send(self, stream: Outgoing, item: Any) -> bool:
        """Send an item of an input stream; return False if the stream is over: its run reports why.

        Raises LocalProtocolError without room, for an item that is too long, and for an item other than bytes
        on a stream of bytes. A stream that was given such an item cannot go on: break it off.
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
        """Renew the credit of a run's oldest item, which is used up: its thing may send more."""
        frame = None if pending.answer is None else self._streams.consumed(pending.answer)
        if frame is not None:
            self._connection.outbox.put_frame(frame)

    # -- observations and subscriptions

    def observe(self, thing: str, name: str, **trace: Unpack[TraceMembers]) -> Feed:
        """Listen to a property: to its value now, and to every later one.

        Raises LocalProtocolError if this connection listens to it already.
        """
        return self._feeds.observe(thing, name, trace)

    def subscribe(self, thing: str, event: str, **trace: Unpack[TraceMembers]) -> Feed:
        """Listen to an event. If the thing does not confirm, the feed is `established` at once.

        Raises LocalProtocolError if this connection listens to it already.
        """
        return self._feeds.subscribe(thing, event, trace)

    def subscribe_all(self, thing: str, **trace: Unpack[TraceMembers]) -> Feed:
        """Listen to all events of a thing.

        Raises LocalProtocolError if this connection listens to them already, NotAllowed if the peer has
        kotlin-wot's habits, which have no such subscription.
        """
        return self._feeds.subscribe_all(thing, trace)

    def stop(self, feed: Feed) -> None:
        """Stop listening. The feed has `ended` at once, or when the thing confirms: `FeedEnded` reports it.

        Until then it counts towards `max_listening`.
        """
        self._feeds.stop(feed)

    # -- what comes and goes

    def receive(self, text: str | bytes) -> Outcomes:
        """Take a text frame; return its outcomes, none once the session is closed."""
        return () if self._connection.closed else self._receiver.take(text)

    def receive_binary(self, data: bytes) -> Outcomes:
        """Take a binary frame: an item of bytes that a run sends. Any other closes the connection."""
        return () if self._connection.closed else self._receiver.take_binary(data)

    def frames(self, room: int = 65_536) -> list[Sendable]:
        """Take frames to send, oldest first: about `room` bytes, one frame at least if any waits.

        `Binary` ones are binary frames, others the UTF-8 of text frames. A frame that is taken counts as
        sent.
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
        """End the session, as its connection has ended; return what is unfinished, oldest first.

        A request that was sent may have run, an unsent one has not. `drained`: the close code was 1012, so
        the peer had answered everything that it had begun, and nothing counts as sent. Forgotten requests are
        included only if they were not sent, one-way messages only if they are not known to have begun; feeds
        that were being stopped are left out.
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
