"""The line of one connection: requests that wait for room, and one-way messages that wait for credit.

Requests go out first come, first served: no request overtakes one that stands in `queue`. One-way messages
also need credit from their receiver. A message without credit waits in a line of its thing (`by_thing`), and
all requests to that thing wait behind it: so a slow agent holds up no other agent of the peer.

The line is the same over every carrier: an LMOS connection, a connection of a simulated network, and the
one-way messages over HTTP or over a relay. Only the carrier decides how much room and credit are left.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Protocol

from lmos_actors._core import NOT_NEEDED_YET
from lmos_actors.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.actors import UnsentKind, UnsentMessage

    from ._peer_requests import PendingRequest


class RequestCarrier(Protocol):
    """The sender of the requests of a line."""

    def put(self, request: PendingRequest) -> bool:
        """Send a request; return False if there is no room. Raises AgentError if it can never be sent."""
        ...

    def may_tell(self, thing_id: str) -> bool:
        """Return whether there is credit for a one-way message to a thing."""
        ...


class RequestLine:
    """The requests that a carrier has no room or no credit for; see the module docstring."""

    __slots__ = ("_carrier", "by_thing", "queue", "stalled")

    def __init__(self, carrier: RequestCarrier) -> None:
        self._carrier = carrier
        self.queue: dict[PendingRequest, None] = NOT_NEEDED_YET
        """Requests that wait for room."""
        self.by_thing: dict[str, OrderedDict[PendingRequest, None]] = NOT_NEEDED_YET
        """By thing: a one-way message that waits for credit, and the requests behind it."""
        self.stalled = False
        """Whether a message of `by_thing` that may have credit found no room."""

    def __len__(self) -> int:
        return len(self.queue) + sum(map(len, self.by_thing.values()))

    def holds_up(self, thing_id: str) -> bool:
        """Return whether requests to a thing already wait, for room or for credit."""
        return bool(self.queue) or thing_id in self.by_thing

    def unsent(self) -> Iterator[tuple[UnsentKind, UnsentMessage]]:
        """Return the messages in line; see `Outbox` of the actors."""
        for request in self.queue:
            yield "room", request
        for line in self.by_thing.values():
            for request in line:
                yield "credit", request

    def post(self, request: PendingRequest) -> None:
        """Send a request, or put it in line. Raises the errors of the carrier."""
        if self.queue or not self.try_send(request):
            self.wait(request)

    def wait(self, request: PendingRequest) -> None:
        """Put a request into the line, as there is no room for it."""
        if not self.queue:
            self.queue = OrderedDict()  # from its front a dict would be slow to empty
        self.queue[request] = None

    def try_send(self, request: PendingRequest) -> bool:
        """Send a request, or let it wait for credit; return False if there is no room for it."""
        thing = request.far.thing_id
        held = self.by_thing.get(thing) if self.by_thing else None
        if held is not None:
            held[request] = None
            return True
        if request.sent is None or self._carrier.may_tell(thing):
            return self._carrier.put(request)
        if not self.by_thing:
            self.by_thing = {}
        self.by_thing[thing] = OrderedDict({request: None})
        return True

    def leave(self, request: PendingRequest) -> bool:
        """Take a request out of the line and let the next ones go on; return whether it stood in line."""
        is_first = next(iter(self.queue), None) is request
        # the values of the lines are None, so `self`: the request was not there
        if self.queue.pop(request, self) is None:
            if is_first:
                self.send()  # the requests behind it may need less room
            return True
        thing = request.far.thing_id
        held = self.by_thing.get(thing)
        if held is None or held.pop(request, self) is not None:
            return False
        if not held:
            del self.by_thing[thing]
        self.send_credited()
        return True

    def send(self) -> None:
        """Send the requests that there is room for."""
        while self.queue:
            request = next(iter(self.queue))
            try:
                if not self.try_send(request):
                    return
            except AgentError as error:
                del self.queue[request]
                request.fail(error)
            else:
                del self.queue[request]
        if self.stalled:  # else credit alone is missing, and the carrier calls `send_credited` when it comes
            self.send_credited()

    def send_credited(self) -> None:
        """Send the messages that have credit: the waiting things take turns, with one message each."""
        self.stalled = False
        things = deque(self.by_thing)  # in turn: much credit of one does not starve others
        while things and self.by_thing:
            thing = things.popleft()
            held = self.by_thing[thing]
            request = next(iter(held))
            if request.sent is not None and not self._carrier.may_tell(thing):
                continue
            try:
                if self.queue or not self._carrier.put(request):
                    self.stalled = True
                    return
            except AgentError as error:
                request.fail(error)
            del held[request]
            if held:
                things.append(thing)
            else:
                del self.by_thing[thing]

    def end(self) -> tuple[PendingRequest, ...]:
        """Empty the line, and return its requests.

        The line must be empty before a sender is released, because this sender may look at it at once.
        """
        queue, self.queue = self.queue, NOT_NEEDED_YET
        held, self.by_thing = self.by_thing, NOT_NEEDED_YET
        return (*queue, *(request for each in held.values() for request in each))
