"""Datagrams of a simulated network: each message is sent alone, and may be lost, duplicated or overtaken."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio
from msgspec import UNSET
from trio.lowlevel import checkpoint_if_cancelled

from lmos_actors._core import NOT_NEEDED_YET
from lmos_actors.bindings import (
    RemoteThing,
    as_near_error,
)
from lmos_actors.errors import (
    AgentUnavailable,
    ConnectFailed,
    NotAllowed,
)

from ._peer import NetworkParts, NodePeer, requested, told
from ._requests import HEAD, Served, ServedTell
from ._serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmos_actors.actors import (
        ItemTarget,
        TraceMembers,
        UnsentKind,
        UnsentMessage,
    )
    from lmos_actors.bindings import PendingRequest, SentTell, SharedListening
    from lmos_actors.links import Line
    from lmos_actors.protocol.lmos import RunStatus


ALONE: Final = "a network of datagrams carries single messages: {} needs `delivery: stream`"


class DatagramPeer(NodePeer):
    """The messages from one node to another, each sent alone; see the module docstring.

    A duplicated request is carried out once. One-way messages have no credit: a message that arrives at a
    full mailbox becomes a dead letter, whatever the policy.
    """

    is_connected = True
    failure: ConnectFailed | None = None

    __slots__ = ("_line", "_open", "_serving")

    def __init__(self, network: NetworkParts, source: str, target: str) -> None:
        super().__init__(network, source, target)
        self._open: dict[PendingRequest, Served] = NOT_NEEDED_YET
        self._serving: Serving | None = None
        self._line: Line | None = None  # to the other node, once something has been sent

    def look_at_lines(self) -> None:
        """Do nothing: each message uses the lines in their state at the time it is sent."""

    def _go(self, served: ServedTell, size: int, arrive: Callable[[], None], *, back: bool = False) -> None:
        network, links, line = self.network, self.network.links, self._line
        if back:
            line = links.line(self.target_node, self.source)
        elif line is None or line.version != links.version:
            line = self._line = links.line(self.source, self.target_node)
        if line.source in network.away:
            return  # what a node does that has ended reaches nobody
        now = network.now()
        arrivals = links.send_alone(line, size, now)
        if network.on_sent is not None:
            network.on_sent(line, served.name, now, arrivals, False)
        if not arrivals:
            network.note("lost", line, served)
            return
        if len(arrivals) > 1:
            network.note("doubled", line, served)
        if line.is_overtaken:
            network.note("overtaken", line, served)
        for when in arrivals:
            network.rt.timers.call_at(when, arrive)

    # ---- a node that ends; see `Pair`

    def source_ended(self) -> None:
        """Drop the requests sent from here, because their sender ends too."""
        self._open = NOT_NEEDED_YET

    def target_ended(self) -> None:
        """Close the receiving end at the other node."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.close()

    def begin_again(self) -> None:
        """Do nothing: there is no connection."""

    def post(self, request: PendingRequest) -> None:
        """Send a request. Raises NotAllowed if it is not a single message, or would wait for ever."""
        if hasattr(request, "feed"):
            raise NotAllowed(ALONE.format("begin() or stream()"))
        if request.deadline is None and math.isinf(trio.current_effective_deadline()):
            raise NotAllowed(
                f"{request.name!r} of {request.path} may get lost, and is waited for without a deadline: "
                "use within(...), or a trio scope"
            )
        served = requested(request)
        if not self._open:
            self._open = {}
        self._open[request] = served
        served.host = request
        self._go(served, served.weight, partial(self._arrived, served))

    def _arrived(self, served: ServedTell) -> None:
        if self.target_node in self.network.away:
            self.network.note("lost", self.network.links.line(self.source, self.target_node), served)
            return
        if self._serving is None:
            back: Any = self
            self._serving = Serving(back, self.network.limits, alone=True)
        if served.has_come and served.told is not None:  # doubled: it is a message of its own
            served = msgspec.structs.replace(served, open=True, has_come=False)
        self._serving.take(served)

    def tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> bool:
        """Send a one-way message."""
        served = told(sent, name, payload, trace)
        self._go(served, served.weight, partial(self._arrived, served))
        return True

    def withdraw(self, request: PendingRequest) -> None:
        """Report to the other node that the caller is gone; the report may get lost."""
        served = self._open.pop(request, None)
        if served is not None:
            self._go(served, HEAD, partial(self._withdraw_there, served))

    def _withdraw_there(self, served: Served) -> None:
        if self._serving is not None:
            self._serving.withdraw(served)

    def go_back(self, size: int, arrive: Callable[[], None], served: ServedTell) -> None:
        """Call `arrive` at the caller's end of a request, unless the message gets lost."""
        self._go(served, size, arrive, back=True)

    def answered(self, served: Served, text: bytes) -> None:
        """Answer the caller with a value."""
        request = served.host
        if self._open.pop(request, None) is not None:
            request.far.unwell = False
            request.answer(msgspec.json.decode(text) if text else UNSET)

    def refused(self, served: ServedTell, error: Exception) -> None:
        """Answer the caller with an error."""
        request, path = served.host, served.target.path
        if self._open.pop(request, None) is not None:
            request.fail(as_near_error(error, path, path, request.seconds))

    def report(self, served: ServedTell, status: str, progress: Any, question: Any = UNSET) -> None:
        """Do nothing: nobody can see the state of a run."""

    def unavailable(self, path: str) -> AgentUnavailable:
        """Return an error for a request that cannot be sent because the network has ended."""
        return AgentUnavailable(path, "the network has ended")

    async def first(self) -> None:
        """Return at once: there is no connection to wait for."""
        await checkpoint_if_cancelled()

    async def connected(self, path: str) -> None:
        """Return at once: there is no connection to wait for."""
        await checkpoint_if_cancelled()

    @property
    def open_requests(self) -> int:
        """The number of requests that wait for an answer."""
        return len(self._open)

    def unsent(self) -> Iterator[tuple[UnsentKind, UnsentMessage]]:
        """Return no requests: every message is sent at once."""
        return iter(())

    def holds_up(self, far: RemoteThing) -> bool:
        """Return False: messages are never queued."""
        return False

    async def query(self, request: PendingRequest) -> RunStatus | None:
        """Return None: there are no runs to ask about."""
        await checkpoint_if_cancelled()
        return None

    async def cancel(self, request: PendingRequest, reason: str | None) -> RunStatus | None:
        """Return None: there are no runs to cancel."""
        await checkpoint_if_cancelled()
        return None

    def taken(self, request: PendingRequest) -> None:
        """Do nothing: there are no streams."""

    def target(self, request: PendingRequest, name: str) -> ItemTarget:
        """Raise NotAllowed: there are no streams."""
        raise NotAllowed(ALONE.format("a stream"))

    def listen(self, listening: SharedListening) -> None:
        """Refuse to listen: there are no subscriptions."""
        listening.on_refused(NotAllowed(ALONE.format("a subscription or a monitor")))

    def unlisten(self, listening: SharedListening) -> None:
        """Do nothing: there are no subscriptions."""
