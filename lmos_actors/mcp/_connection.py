"""The common part of connections to MCP servers: their end, and a bound on incoming messages.

The SDK reads as fast as a server writes, and starts a task for each notification and request. So a server is
cut off if it sends messages at a higher rate, and for longer, than any progress report needs. Messages are
counted here, below the SDK. The end of a connection is detected here too, as the SDK shows it only to
requests in progress.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from pydantic import ValidationError

RATE: Final = 500.0
"""Messages per second of one server that are not answers, in the long run."""

BURST: Final = 5_000.0
"""Messages that one server may send at once."""

SHOWN: Final = 300
"""Maximum characters shown of a server's text."""


Report: TypeAlias = "Callable[[float, float | None, str], None]"
"""Receives progress: how much, of how much, a message."""


class Connection:
    """One connection to a server: whether and why it is lost, and the count of its messages.

    `secrets` are texts that are never shown; more may be added later.
    """

    def __init__(self, name: str, secrets: Sequence[str] = ()) -> None:
        self.name = name
        self.lost = trio.Event()
        self.why = ""
        self.is_at_fault = False
        self.is_final = False
        self.status = 0
        """The last status of an HTTP failure, 0 for none."""
        self.owed = 0
        """The number of requests without an answer yet; their answers are not counted as messages."""
        self._secrets = secrets
        self._reports: dict[str, Report] = {}
        self._tokens = count()
        self._left = BURST
        self._counted_at = -math.inf

    def lose(self, why: str, *, at_fault: bool = False, final: bool = False) -> None:
        """Mark the connection as lost; the first of several reasons is kept.

        A server `at_fault` is cut off. If it is at fault, or if the loss is `final`, no session is begun
        again.
        """
        if not self.lost.is_set():
            self.why = f"the MCP server {self.name} {why}"
            self.is_at_fault = at_fault
            self.is_final = at_fault or final
            self.lost.set()

    def admit(self, *, answer: bool) -> bool:
        """Count a message; return whether it is allowed. Mark the connection as lost if it is not.

        Requests on a connection lost for another reason may still be answered.
        """
        if answer and self.owed:
            self.owed -= 1
            return not self.is_at_fault
        now = trio.current_time()
        self._left = min(BURST, self._left + RATE * (now - self._counted_at)) - 1
        self._counted_at = now
        if self._left < 0:
            self.lose(f"floods: more than {RATE:g} messages a second that nobody asked for", at_fault=True)
        return not self.is_at_fault

    @contextmanager
    def reports(self, heard: Report) -> Generator[str]:
        """Yield a progress token for a request, whose reports are passed to `heard` during the block."""
        token = f"progress-{next(self._tokens)}"
        self._reports[token] = heard
        try:
            yield token
        finally:
            del self._reports[token]

    def take_report(self, item: Any) -> bool:
        """Pass on a message that is a progress report; return False for any other message.

        Reports are passed on here so that they arrive before the result. The SDK starts a task for each,
        possibly late and in any order.
        """
        message: Any = getattr(item, "message", None)
        if getattr(message, "method", None) != "notifications/progress":
            return False
        said: dict[str, Any] = message.params or {}
        token, progress, total = said.get("progressToken"), _number(said.get("progress")), said.get("total")
        heard = self._reports.get(token) if isinstance(token, str) else None
        if heard is not None and progress is not None:
            text = said.get("message")
            heard(progress, _number(total), text if isinstance(text, str) else "")
        return True

    def shown(self, text: str) -> str:
        """Return the beginning of a server's text, with secrets replaced."""
        text = self.hidden(text)
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."

    def hidden(self, text: str) -> str:
        """Return a server's text with secrets replaced."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


class CountedStream:
    """The read stream of an SDK transport with its messages counted; it ends if the server is at fault."""

    def __init__(self, inner: Any, connection: Connection) -> None:
        self._inner = inner
        self._connection = connection

    async def __aenter__(self) -> CountedStream:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._inner.__aexit__(*exc_info)

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._inner.aclose()

    async def receive(self) -> Any:
        """Return the next message."""
        return await self._inner.receive()

    def __aiter__(self) -> CountedStream:
        return self

    async def __anext__(self) -> Any:
        while True:
            try:
                item = await self._inner.__anext__()
            except StopAsyncIteration:
                self._connection.lose("has closed the connection")
                raise
            if not self._connection.admit(answer=is_answer(item)):
                raise StopAsyncIteration
            if not self._connection.take_report(item):
                return item


def _number(value: Any) -> float | None:
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def place_of(error: ValidationError) -> str:
    """Return the place of the first mistake in a message, as a dotted path."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return ".".join(map(str, first["loc"][-3:]))


def is_answer(item: Any) -> bool:
    """Return whether an item is the answer to a request: a message without a method."""
    message = getattr(item, "message", None)
    return message is not None and not hasattr(message, "method")
