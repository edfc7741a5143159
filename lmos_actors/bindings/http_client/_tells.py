"""One-way messages over HTTP: for each thing one after another, so that they arrive in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from lmos_actors.errors import AgentError, OutcomeUnknown

from ..lmos._request_line import RequestLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..lmos._peer_requests import PendingRequest, SentTell
    from ._invocations import HttpInvocation

SEATS: Final = 256
"""Limit on the messages that are accepted for sending and wait."""


class OutgoingTells:
    """The one-way messages to one thing, and the line of messages whose senders are held back.

    `invocation` makes the HTTP request of a message. `start` starts a task with `run` when there are messages
    to send. `failed` receives an exception of this package's own code, by which one message was lost.
    """

    def __init__(
        self,
        invocation: Callable[[PendingRequest], HttpInvocation],
        start: Callable[[], None],
        failed: Callable[[BaseException], object],
    ) -> None:
        self.line = RequestLine(self)
        self._invocation = invocation
        self._start = start
        self._failed = failed
        self._seated: deque[tuple[SentTell, HttpInvocation]] = deque()
        self._runs = False

    def put(self, request: PendingRequest) -> bool:
        """Accept a message for sending; return False if there is no room."""
        assert request.sent is not None
        if len(self._seated) >= SEATS:
            return False
        self._seated.append((request.sent, self._invocation(request)))
        if not self._runs:
            self._runs = True
            self._start()
        request.on_sent()
        return True

    def may_tell(self, thing_id: str) -> bool:
        """Return True, because over HTTP no message needs credit."""
        return True

    async def run(self) -> None:
        """Send all accepted messages."""
        while self._seated:
            sent, invocation = self._seated.popleft()
            self.line.send()
            try:
                await invocation.run(None)
            except AgentError as error:
                sent.fail(error)
            except Exception as error:
                self._failed(error)
                sent.fail(OutcomeUnknown(sent.far.path, f"{type(error).__name__} here"))
        self._runs = False

    def end(self, error: Callable[[PendingRequest | SentTell], Exception]) -> None:
        """Fail the messages that have not been sent, at the end of the node."""
        for request in self.line.end():
            request.fail(error(request))
        while self._seated:
            sent, _ = self._seated.popleft()
            sent.fail(error(sent))
