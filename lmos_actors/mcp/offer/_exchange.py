"""The carrier of requests: one HTTP request, or the streams of a client that started this process.

Requests end with their carrier. The SDK passes a request over HTTP to a task of its session, which goes on
when the client has left, although nobody would read the answer.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lmos_actors.security import Admission

KEY = "lmos_actors.mcp"
"""The key of an `Exchange` in the state of an ASGI scope."""


class Exchange:
    """One carrier of requests. `admission` decides what its client may do; None permits everything."""

    def __init__(self, label: str, admission: Admission | None, headers: dict[str, str]) -> None:
        self.label = label
        self.admission = admission
        self.headers = headers
        self.is_over = False
        self.asked: set[str] = set()
        """The ids of requests in progress, if it carries many."""
        self._held: dict[str, Callable[[], None]] = {}
        self._scopes: dict[trio.CancelScope, None] = {}

    @property
    def principal(self) -> str | None:
        """The name of the client, None if it has none."""
        who = None if self.admission is None else self.admission.principal
        return None if who is None else who.name

    @property
    def owner(self) -> str:
        """The name that sessions and calls are counted under: the client's principal, else its address."""
        return f"@{self.principal}" if self.principal is not None else self.label.rpartition(":")[0]

    def end(self) -> None:
        """End all requests of this carrier, as its client is gone."""
        self.is_over = True
        for scope in self._scopes:
            scope.cancel("the client is gone")
        for key in tuple(self._held):
            self.sent(key)

    def holds(self, key: str, release: Callable[[], None]) -> None:
        """Call `release` once the answer to a request has been sent, or can no longer be sent."""
        if self.is_over:
            release()
        else:
            self._held[key] = release

    def sent(self, key: str) -> None:
        """Release what is held for a request whose answer has been sent, or never will be."""
        self.asked.discard(key)
        release = self._held.pop(key, None)
        if release is not None:
            release()

    @contextmanager
    def carries(self) -> Generator[None]:
        """Cancel the block when the carrier ends."""
        with trio.CancelScope() as scope:
            if self.is_over:
                scope.cancel("the client is gone")
            self._scopes[scope] = None
            try:
                yield
            finally:
                del self._scopes[scope]


def exchange_of(request: Any) -> Exchange | None:
    """Return the carrier of a request that came over HTTP."""
    return None if request is None else request.scope["state"].get(KEY)
