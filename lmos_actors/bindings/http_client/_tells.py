"""One-way messages over HTTP: for each thing one after another, so that they arrive in order."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from lmos_actors.errors import AgentError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..lmos._peer_requests import PendingRequest, SentTell
    from ._invocations import HttpInvocation

SEATS: Final = 256
"""Messages that are accepted for sending and wait."""


class OutgoingTells:
    """The one-way messages to one thing. `start` starts a task with `run` when there are some.

    `failed` receives an exception of this package's own code, by which one message was lost.
    """

    def __init__(self, start: Callable[[], None], failed: Callable[[BaseException], object]) -> None:
        self.line: OrderedDict[PendingRequest, HttpInvocation] = OrderedDict()
        """Messages that wait for a seat, while their senders are held back."""
        self._start = start
        self._failed = failed
        self._seated: deque[tuple[SentTell, HttpInvocation]] = deque()
        self._runs = False

    def put(self, sent: SentTell, invocation: HttpInvocation) -> bool:
        """Accept a message for sending; return False if there is no room."""
        if self.line or len(self._seated) >= SEATS:
            return False
        self._seated.append((sent, invocation))
        if not self._runs:
            self._runs = True
            self._start()
        return True

    def post(self, request: PendingRequest, invocation: HttpInvocation) -> None:
        """Accept a message for sending, or put it in line for room."""
        assert request.sent is not None
        if self.put(request.sent, invocation):
            request.on_sent()
        else:
            self.line[request] = invocation

    async def run(self) -> None:
        """Send all accepted messages."""
        while self._seated:
            sent, invocation = self._seated.popleft()
            self._go_on()
            try:
                await invocation.run(None)
            except AgentError as error:
                sent.fail(error)
            except Exception as error:
                self._failed(error)
                sent.fail(OutcomeUnknown(sent.far.path, f"{type(error).__name__} here"))
        self._runs = False

    def _go_on(self) -> None:
        if self.line:
            request, invocation = self.line.popitem(last=False)
            assert request.sent is not None
            self._seated.append((request.sent, invocation))
            request.on_sent()

    def end(self, error: Callable[[PendingRequest | SentTell], Exception]) -> None:
        """Fail what has not been sent, at the end of the node."""
        for request in tuple(self.line):
            del self.line[request]
            request.fail(error(request))
        while self._seated:
            sent, _ = self._seated.popleft()
            sent.fail(error(sent))
