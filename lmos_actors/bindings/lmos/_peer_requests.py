"""Requests to things of other nodes, the things, and the interface of a peer that they need.

A request is described once: `PendingRequest` holds what is requested (verb, name, payload, trace, deadline)
and its state (whether it still waits in line, which protocol message carries it, where its answer goes). A
peer reads it and writes a protocol message; nothing else is made in between. These types refer to each other,
a request to its thing, a thing to its peer, a peer to requests: so they are in one file. Two classes are
peers, `Peer` over LMOS and `WebPeer` over HTTP; `RemotePeer` is the part of either that links need.

What this file guarantees: exactly one of `answer` and `fail` is called for a request, unless it is withdrawn
before that, and neither after `ended` is set. A request is posted to a peer; while the peer has no room it
stands in line; once its message is in the outbox it is open.

Nothing here blocks or awaits: answers arrive in the step of the connection's reader, which must go on
reading. A waiting task is therefore parked by its caller and woken here (`_wake`), not by events or memory
channels: an ask is the hot path, and needs one waiter, once. For the same reason requests are msgspec
structs, which are made without a call in Python.

The classes differ in the work that waits. A `PendingAsk` has one task that waits for a value. A `PendingTell`
has a sender that waits, but only while the message stands in line. A `TurnTell` has an agent in the middle of
a turn, which cannot be parked and gets no further turn until the message is out. A `RunQuestion` has any
number of tasks that query or cancel a run. Calls and streams are in `_remote_calls.py`. A one-way message
that has left the line no longer belongs to a request: it is only a `SentTell`, which is enough to report it
as a dead letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol
from zlib import crc32

import msgspec
from msgspec import UNSET
from trio.lowlevel import Abort, reschedule

from lmos_actors._core import NOT_NEEDED_YET
from lmos_actors.actors import CURRENT, CUT_OFF, comes_back, park_among, wake_all
from lmos_actors.errors import ActionCancelled, NotFound
from lmos_actors.protocol import lmos

from ..exposure._exposure import name_in_url, path_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import trio

    from lmos_actors._core import Budget
    from lmos_actors.actors import (
        Attempt,
        Going,
        ItemTarget,
        Runtime,
        TraceMembers,
        UnsentKind,
        UnsentMessage,
    )
    from lmos_actors.errors import AgentUnavailable, ConnectFailed
    from lmos_actors.protocol.lmos import ConsumerRequest, RunStatus
    from lmos_actors.protocol.td import Description

    from ._peer_backoff import Backoff
    from ._peer_listening import SharedListening, Variables

STREAM: Final = lmos.Credit(items=16, bytes=262_144)
"""The credit for a stream: how far an agent may be ahead of its consumer, in items and in bytes."""


# ---- things and their peers


class RemotePeer(Protocol):
    """One address that requests are sent to, over LMOS or HTTP, as links and requests use it."""

    @property
    def rt(self) -> Runtime:
        """The runtime of the node's agents."""
        ...

    @property
    def budget(self) -> Budget:
        """The memory that peers may hold, in which values wait for listeners."""
        ...

    @property
    def way(self) -> str:
        """The binding's name in metrics and traces."""
        ...

    @property
    def url(self) -> str:
        """The address as it was given."""
        ...

    @property
    def place(self) -> str:
        """The address without its query, as texts show it."""
        ...

    @property
    def origin(self) -> tuple[bool, str]:
        """Whether the address is reached over TLS, and the authority in it."""
        ...

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The headers that go with each request, or with the handshake."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether a request can be sent now, without waiting for a connection."""
        ...

    @property
    def heeds(self) -> bool:
        """Whether deadlines stand still while an agent there reports that it asks a person."""
        ...

    @property
    def takes_keys(self) -> bool:
        """Whether requests with keys can be sent; True without a connection, when that is not known."""
        ...

    @property
    def failure(self) -> ConnectFailed | None:
        """The reason why the last attempt to connect failed; None if it did not fail."""
        ...

    @property
    def tried(self) -> bool:
        """Whether a first attempt to connect has ended, successfully or not."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing more can be sent, because the node has ended or the last ref was released."""
        ...

    @property
    def open_requests(self) -> int:
        """The number of requests that wait for an answer or stand in line."""
        ...

    @property
    def tell_credit(self) -> tuple[lmos.Credit, lmos.Credit] | None:
        """The credit window for one-way messages, and its spent part; None if there is no window."""
        ...

    def unsent(self) -> Iterator[tuple[UnsentKind, UnsentMessage]]:
        """Return the messages in line; see `Outbox`."""
        ...

    async def run(self) -> None:
        """Carry requests until cancelled or stopped. Runs once."""
        ...

    def stop(self) -> None:
        """Stop this peer, because its last ref has been released."""
        ...

    def thing(self, thing_id: str) -> RemoteThing:
        """Return the thing with an id; the same id gives the same object."""
        ...

    def new_backoff(self) -> Backoff:
        """Return a new backoff that draws from this peer's random stream."""
        ...

    async def first(self) -> None:
        """Connect now, and wait for the connection. Raises ConnectFailed after a failed attempt."""
        ...

    async def connected(self, path: str) -> None:
        """Wait for the connection, however long it takes. Raises AgentUnavailable at the end of the node."""
        ...

    def unavailable(self, path: str) -> AgentUnavailable:
        """Return the error for a request that cannot be sent now."""
        ...

    def release(self) -> None:
        """Count one user fewer; when none is left, stop the peer."""
        ...

    def post(self, request: PendingRequest) -> None:
        """Send a request, or put it in line until there is room.

        Raises AgentUnavailable while there is no connection, InvalidInput for a payload that cannot be
        written or is too long, MailboxFull for a request of more messages than may ever be open.
        """
        ...

    def tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> bool:
        """Send a one-way message; return False without room or credit. Raises the same errors as `post`."""
        ...

    def holds_up(self, far: RemoteThing) -> bool:
        """Return whether messages to a thing already wait, for room or for credit."""
        ...

    def withdraw(self, request: PendingRequest) -> None:
        """Take a request out of the line, or cancel its run without waiting, because its caller is gone."""
        ...

    def follow(
        self, request: PendingRequest, asked: tuple[str, ...], then: Callable[[dict[str, Any]], None]
    ) -> None:
        """Ask what a request waits for; see `FarRequest`."""
        ...

    async def query(self, request: PendingRequest) -> RunStatus | None:
        """Query the status of a run; return None if there is no run, or it has ended meanwhile.

        Raises MailboxFull if 16 queries of this run are open.
        """
        ...

    async def cancel(self, request: PendingRequest, reason: str | None) -> RunStatus | None:
        """Cancel a request, and wait until its agent confirms; return None if it has ended meanwhile."""
        ...

    def taken(self, request: PendingRequest) -> None:
        """Note that the consumer has taken an item of a run, so that the agent may send more."""
        ...

    def target(self, request: PendingRequest, name: str) -> ItemTarget:
        """Return the target for the items of a request's input stream. Raises NotAllowed."""
        ...

    def listen(self, listening: SharedListening) -> None:
        """Request the values of a listening, now or when that is possible. Raises NotAllowed."""
        ...

    def unlisten(self, listening: SharedListening) -> None:
        """Stop listening, because the last listener here has left."""
        ...


def path_of(thing_id: str) -> str:
    """Return the path for an agent's errors: its path in the tree if the id contains one, else the id."""
    name = name_in_url(thing_id)
    return thing_id if name is None else path_named(name)


class RemoteThing:
    """One thing behind a peer; all refs to it are equal, and share its listenings and its path.

    The `path` is the agent's path, or is derived from the id; `variables` are values for URLs of requests
    over HTTP.
    """

    __slots__ = (
        "__weakref__", "description", "listenings", "number", "path", "peer", "rt", "thing_id", "unwell",
        "variables",
    )  # fmt: skip

    def __init__(
        self, peer: RemotePeer, thing_id: str, path: str | None = None, variables: Variables = ()
    ) -> None:
        self.peer = peer
        self.rt: Runtime = peer.rt
        self.thing_id = thing_id
        self.variables = variables
        self.path = path_of(thing_id) if path is None else path
        self.description: Description | None = None
        self.listenings: dict[tuple[str, str], SharedListening] = NOT_NEEDED_YET
        self.unwell = False
        """Whether the last answer about the agent was that it does not run."""
        # not the hash of the text, which differs in each process
        self.number: int = crc32(thing_id.encode("utf-8", "replace"))

    @property
    def identity(self) -> tuple[object, int]:
        """The equality key of refs: runtime, server, credentials and thing id, with a number to hash by.

        The peer itself is not part of it: a thing may be reached by more than one path of an address.
        """
        return (self.rt, self.peer.origin, self.peer.headers, self.thing_id, self.variables), self.number

    def withdraw(self, request: PendingRequest) -> bool:
        """Withdraw a request; return whether it was still open. A run is cancelled without waiting for it."""
        if request.ended:
            return False
        request.ended = True
        if request.question is not None:
            request.hear(None)
        self.peer.withdraw(request)
        return True

    def cancel(self, request: PendingRequest, reason: str | None) -> None:
        """Withdraw and fail a request whose run cannot be cancelled at the peer, unless it has ended."""
        if self.withdraw(request):
            request.fail(ActionCancelled(reason))


# ---- requests


class PendingRequest(msgspec.Struct, eq=False):
    """One request: what it asks for, and its state until it is answered."""

    far: RemoteThing
    verb: str
    """The verb, as near operations name it, or `query` or `cancel` of a run."""
    name: str
    payload: Any = UNSET
    """Plain data, UNSET where there is none."""
    names: tuple[str, ...] | None = None
    """The properties to read one by one where a peer cannot read all of them at once."""
    trace_context: TraceMembers = {}
    """The members of the message that carry the trace."""
    seconds: float | None = None
    """The timeout as the caller gave it, for the text of DeadlineExceeded; the peer sees what is left."""
    deadline: float | None = None
    going: Going | None = None
    """The instrument that measures or traces it, None without one."""
    attempt: Attempt | None = None
    credit: lmos.Credit | None = None
    streams: Mapping[str, str] | None = None
    """The content types of its input streams, by parameter."""
    binary: bool = False
    sent: SentTell | None = None
    """Set for a one-way message, which has no answer: the part that is kept once it has been sent."""
    singly: bool = False
    """Whether the peer has refused to read all properties at once."""
    pending: ConsumerRequest | None = None
    """The protocol's message that carries it, once it is in the outbox."""
    question: Any = None
    """Set while its run waits for the answer of a person: see `Approver.heard`."""
    simulated: Any = None
    """The message on a simulated network, with the envelope at the agent once it has arrived there."""
    ended: bool = False

    @property
    def path(self) -> str:
        """The path of the agent that the request goes to."""
        return self.far.path

    @property
    def affordance(self) -> str:
        """The name of the affordance that the request uses; like `path`, for the waiting graph."""
        return self.name

    @property
    def slot(self) -> RemoteThing:
        """The thing, under the name that deadlines and circles use for the slot of a near request."""
        return self.far

    @property
    def number_there(self) -> str | None:
        """See `FarRequest`."""
        return None if self.pending is None else self.pending.message_id

    @property
    def place(self) -> str:
        """The address of the node that the request goes to."""
        return self.far.peer.place

    def input_stream(self, name: str) -> Any:
        """Return an input stream of the request; None before it is sent or after the stream has ended."""
        carried: Any = self.simulated or self.pending
        return None if self.ended or carried is None else carried.inputs.get(name)

    def here(self) -> Any:
        """See `FarRequest`."""
        return None if self.simulated is None else self.simulated.far

    def follow(self, asked: tuple[str, ...], then: Callable[[dict[str, Any]], None]) -> None:
        """See `FarRequest`."""
        self.far.peer.follow(self, asked, then)

    def leaving(self) -> str | None:
        """Return the reason to give for cancelling the request if its caller leaves now."""
        return None

    def held_sender(self) -> Any:
        """Return the slot of the agent that gets no more turns until this is sent; None if there is none."""
        return None

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        """Return the tasks that are parked until this is sent, or answered."""
        return ()

    def held_sources(self) -> Iterable[trio.lowlevel.Task]:
        """Return the tasks whose sources wait for credit."""
        return ()

    def on_sent(self) -> None:
        """Note that a one-way message has left the line for the outbox."""

    def answer(self, value: Any) -> None:
        """Receive the value, as plain data; UNSET if the answer has no value."""

    def fail(self, error: Exception) -> None:
        """Receive the error that is the answer instead of a value."""

    def on_status(self, status: str, progress: Any, waits: dict[str, Any] | None) -> None:
        """Receive a new status or progress of the run, or the question to a person that it waits for."""
        if waits is not None or self.question is not None:
            self.hear(waits)

    def hear(self, waits: dict[str, Any] | None) -> None:
        """Receive the question to a person that the run waits for; None once it no longer waits."""
        approvals = self.far.rt.approvals
        if approvals is not None:
            self.question = approvals.heard(self, self.question, waits, heeds=self.far.peer.heeds)

    def item(self, output: Any) -> None:
        """Receive an item of the run's output."""

    def on_room(self) -> None:
        """Note that an input stream of the run has room again."""

    def on_stopped(self, name: str) -> None:
        """Note that the agent wants no more items of an input stream."""


class PendingAsk(PendingRequest, eq=False):
    """A request whose caller is parked until the answer comes; `bucket` is where its deadline is swept."""

    task: trio.lowlevel.Task | None = None
    bucket: Any = None
    value: Any = None
    error: Exception | None = None

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        return () if self.task is None else (self.task,)

    def leaving(self) -> str | None:
        return CUT_OFF if comes_back(CURRENT.get()) else None

    def abort(self, _: object) -> Abort:
        """Allow the caller's wait to be cancelled, so that an answer in this step does not wake it again."""
        self.task = None
        return Abort.SUCCEEDED

    def answer(self, value: Any) -> None:
        self.value = value
        self.ended = True
        if self.question is not None:
            self.hear(None)
        task, self.task = self.task, None
        if task is not None:  # as `_wake`, without the call
            self.far.rt.timers.woke = True
            reschedule(task)

    def fail(self, error: Exception) -> None:
        self.error = error
        self.ended = True
        if self.question is not None:
            self.hear(None)
        _wake(self)


class SentTell(msgspec.Struct, eq=False):
    """A one-way message that was sent: the content of a dead letter, if the peer answers with an error."""

    link: Any
    op: Any
    args: tuple[Any, ...]
    sender: Any

    @property
    def far(self) -> RemoteThing:
        """The thing that the message was sent to."""
        far: RemoteThing = self.link.far
        return far

    def fail(self, error: Exception) -> None:
        """Report the message as a dead letter."""
        self.link.rt.dead_letter(str(error), self.link, self.sender, self.op.name, self.args)


class PendingTell(PendingRequest, eq=False):
    """A one-way message whose sender is parked while it stands in line; it has no answer."""

    task: trio.lowlevel.Task | None = None
    lost: Exception | None = None

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        return () if self.task is None else (self.task,)

    def on_sent(self) -> None:
        self.ended = True
        _wake(self)

    def fail(self, error: Exception) -> None:
        """Raise the error in the parked sender; if it is no longer parked, report a dead letter."""
        if self.ended:
            assert self.sent is not None
            self.sent.fail(error)
        else:
            self.lost = error
            self.on_sent()


class TurnTell(PendingRequest, eq=False):
    """A one-way message that was sent within a `def` turn, which cannot wait.

    While the message stands in line, its agent gets no further turn.
    """

    holds: Any = None
    """The slot that is held back; a slot that ends releases its messages by setting None."""

    def held_sender(self) -> Any:
        return self.holds

    def on_sent(self) -> None:
        self.ended = True
        holds, self.holds = self.holds, None
        if holds is not None:
            holds.outgoing_admitted(self)

    def fail(self, error: Exception) -> None:
        assert self.sent is not None
        self.on_sent()
        self.sent.fail(error)


class RunQuestion(PendingRequest, eq=False):
    """A query or a cancel of a run, and the tasks that wait for its answer."""

    tasks: list[trio.lowlevel.Task] = []
    standing: RunStatus | None = None
    error: Exception | None = None

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        return self.tasks

    async def wait(self, request: PendingRequest, leave: Callable[[], object]) -> RunStatus | None:
        """Wait for the answer. Raises the error in the answer, unless `request` has ended.

        `leave` is called if all tasks that wait for the answer are cancelled.
        """
        try:
            while not self.ended:
                await park_among(self.tasks)
        except BaseException:
            if not self.ended and not self.tasks:
                self.ended = True
                leave()
            raise
        # NotFound: the run has ended there; its own answer, which says how, is on its way
        if self.error is not None and not request.ended and not isinstance(self.error, NotFound):
            raise self.error
        return self.standing

    def answer(self, value: Any) -> None:
        self.standing = value
        self.ended = True
        wake_all(self.far.rt.timers, self.tasks)

    def fail(self, error: Exception) -> None:
        self.error = error
        self.ended = True
        wake_all(self.far.rt.timers, self.tasks)


class WaitsQuestion(PendingRequest, eq=False, kw_only=True):
    """The question of what a run waits for; `then` is called with the answer, or with {} if there is none."""

    then: Callable[[dict[str, Any]], None]

    def answer(self, value: Any) -> None:
        self.ended = True
        self.then(value.waits or {})

    def fail(self, error: Exception) -> None:
        self.ended = True
        self.then({})


def _wake(request: PendingAsk | PendingTell) -> None:
    """Wake the task, if any, that is parked until something happens to a request."""
    task, request.task = request.task, None
    if task is not None:
        request.far.rt.timers.woke = True
        reschedule(task)
