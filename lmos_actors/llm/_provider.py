"""A provider of models, as its clients here see it: retries, outages, time limits, failures.

The SDKs send requests and report refusals. What this module guarantees:

1. **The key is in no object of an SDK.** The SDKs get a placeholder; the key is put into the header when a
   request leaves (`KeyAuth`). So none of their logs, reprs or tracebacks contains it. If a provider sends it
   back, it is removed from texts made here, and from lines that the SDKs and the HTTP libraries log
   (`hide_keys`).
2. **Answers are read here, below the SDKs.** An SDK reads through half a dozen nested async generators. All
   but the outermost are left to the garbage collector when a caller leaves, and one SDK does so after each
   answer; trio then finishes them in tasks of its own. The SDKs also read lines of any length, and answers
   without an end. `Body` is not a generator, counts bytes, and ends the generators below it.
3. **Nothing is requested twice once an item has arrived.** Before that, a failure that may pass by itself is
   retried, with growing waits or with the wait that the provider asks for (`Retry-After`), and never past the
   caller's deadline.
4. **While the provider cannot be reached, requests fail at once.** After a request that could not connect in
   any of its attempts, only one request a second tries, and only once. The first that succeeds ends this.
5. **No exception of an SDK leaves this file**, because it holds the request, and so its headers.
6. **Outages are logged, requests are not.** `OutageLog` writes one line when requests begin to fail for a
   reason that an operator has to know, and one when the provider answers again.
"""

from __future__ import annotations

import logging
from contextlib import aclosing, asynccontextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import attrs
import httpx2
import trio

from lmos_actors._core import trusted_certificates
from lmos_actors.errors import ActionFailed

from ._failures import (
    KEY_REFUSED,
    MODEL_BUSY,
    MODEL_CUT,
    MODEL_MALFORMED,
    MODEL_UNAVAILABLE,
    model_failure,
)
from ._keys import CLOSING, hide_keys
from ._reports import NO_QUOTA, NO_RIGHT, ErrorEvent, report_of, words_in

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from ._families import Sendable
    from ._keys import Fields, ProviderKey
    from ._messages import ModelItem, ModelRequest

PLACEHOLDER: Final = "set-when-sent"
"""The text that SDKs get in place of a key."""

TOKEN_BYTES: Final = 4_096
"""Bytes on the wire of one token, at most: with its event around it they are some hundreds."""

REFUSAL_BYTES: Final = 1 << 20
"""Bytes of the body of a refusal, such as an error with a page around it."""

FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 8.0
LONGEST_ASKED_WAIT: Final = 60.0
"""Seconds: a provider that asks for more gets its request back as a failure."""

PAUSE: Final = 1.0
"""Seconds between two attempts to reach a provider that could not be reached."""

DRAINING: Final = 0.25
"""Seconds from the last event of an answer to the end of its body: some gateways never send that."""

OUTAGES: Final = frozenset({KEY_REFUSED, MODEL_BUSY, MODEL_UNAVAILABLE})
"""The codes of failures that are logged: those that other requests will have, too."""

MOST_LEFT_OUT: Final = 1_000
"""Tools and arguments that are logged as left out: their names come from anywhere."""

LOG_PAUSE: Final = 60.0
"""Seconds between two lines of the log with one code."""

UNREADABLE: Final = (ValueError, RecursionError)
"""The exceptions that answers of an unknown form cause."""

FOREIGN: Final = frozenset({"anthropic", "httpcore2", "httpx2", "openai", "pydantic"})
"""The packages whose exceptions are about what a provider sent, if nothing more is known."""


class KeyAuth(httpx2.Auth):
    """Authentication that replaces the SDK's placeholder in a header by the key when a request leaves."""

    def __init__(self, key: ProviderKey) -> None:
        self._key = key

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Set the header that has the placeholder, or remove it if there is no key."""
        key = self._key.current
        for name, value in list(request.headers.items()):
            if PLACEHOLDER in value:
                del request.headers[name]
                if key is not None:
                    request.headers[name] = value.replace(PLACEHOLDER, key.decode("ascii"))
        yield request


class TooLong(httpx2.StreamError):
    """Raised if an answer exceeds its limit of bytes."""


class TooSlow(httpx2.ReadTimeout):
    """Raised if an answer exceeds its limit of seconds, although pieces of it keep arriving."""


class Body(httpx2.AsyncByteStream):
    """The body of an answer, bounded in bytes and seconds, that can be cut off anywhere."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int, waits: Waits) -> None:
        self._inner = inner
        self._pieces: AsyncIterator[bytes] | None = None
        self._left = most
        self._until = trio.current_time() + waits.answer
        self._idle_until = self._until - waits.idle  # until then, silence ends the answer first
        self._waits = waits
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._closed:
            raise httpx2.StreamClosed
        if self._pieces is None:
            self._pieces = aiter(self._inner)
        if trio.current_time() < self._idle_until:
            piece = await anext(self._pieces)
        else:
            try:
                with trio.fail_at(self._until):
                    piece = await anext(self._pieces)
            except trio.TooSlowError:
                raise TooSlow(f"did not end its answer in {self._waits.answer:g} s") from None
        self._left -= len(piece)
        if self._left < 0:
            raise TooLong("the answer has no end")
        return piece

    async def drain(self) -> None:
        """Read on for a short time after the end of an answer, so that the connection can be used again."""
        with suppress(Exception), trio.move_on_after(DRAINING):
            async for _ in self:
                pass

    async def aclose(self) -> None:
        """Close the connection, or keep it for reuse if the body has been read to its end."""
        if self._closed:
            return
        self._closed = True
        await self._inner.aclose()
        if self._pieces is not None:
            with suppress(Exception, StopAsyncIteration):
                while True:
                    await anext(self._pieces)


@attrs.frozen
class Problem:
    """The failure of one attempt; `passes` is whether it may pass by itself."""

    code: str
    text: str
    passes: bool = False
    retry_after: float | None = None
    unreachable: bool = False

    def failure(self) -> ActionFailed:
        """Return the problem as the failure of a request."""
        more = {} if self.retry_after is None else {"retry_after": self.retry_after}
        return model_failure(self.code, self.text, **more)


@attrs.frozen
class Waits:
    """Limits of one provider: retries; seconds to connect, of silence, and of one answer."""

    retries: int
    connect: float
    idle: float
    answer: float


class OutageLog:
    """A log of when a provider begins to fail and when it answers again; a `with` block is one request."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._logger = logging.getLogger("lmos_actors")
        self._code: str | None = None  # of the last line, None: it answers
        self._due: dict[str, float] = {}
        self._unlogged = 0
        self._left_out: set[tuple[str, str]] = set()
        self._replaced = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ActionFailed) and error.code in OUTAGES:
            self._failed(error.code, error.detail or "")

    def answers(self) -> None:
        """Note that an answer has begun."""
        if self._code is not None:
            self._logger.warning("%s answers again%s", self._name, self._others())
            self._code = None

    def left_out(self, found: Mapping[str, str]) -> None:
        """Log, once each, the parts of a request that the provider would not accept, with the reasons."""
        for what, why in found.items():
            if (what, why) not in self._left_out and len(self._left_out) < MOST_LEFT_OUT:
                self._left_out.add((what, why))
                self._logger.warning("%s is not told of %s: %s", self._name, what[:300], why[:300])

    def replaced(self, count: int) -> None:
        """Count the bytes of an answer that were not UTF-8. Log them, but not again within LOG_PAUSE."""
        self._replaced += count
        now = trio.current_time()
        if count and now >= self._due.get("", now):
            said = "%s sends answers with bytes that are no UTF-8: %d were replaced so far"
            self._logger.warning(said, self._name, self._replaced)
            self._due[""] = now + LOG_PAUSE

    def _failed(self, code: str, text: str) -> None:
        now = trio.current_time()
        if code == self._code or now < self._due.get(code, now):
            self._unlogged += 1
            return
        shown = "".join(each if each.isprintable() else " " for each in text)
        named = shown if self._name in shown else f"{self._name}: {shown}"
        self._logger.warning("%s: %s%s", code, named, self._others())
        self._code, self._due[code] = code, now + LOG_PAUSE

    def _others(self) -> str:
        count, self._unlogged = self._unlogged, 0
        return f" ({count} more {'request has' if count == 1 else 'requests have'} failed)" if count else ""


class Provider:
    """One provider, reached under one key.

    `name` is its name in failures, `draw` a source of numbers from 0 to 1, `now` the wall clock. `pause` lets
    no request of the model begin for some seconds.
    """

    def __init__(
        self,
        name: str,
        key: ProviderKey,
        waits: Waits,
        draw: Callable[[], float],
        now: Callable[[], datetime],
        pause: Callable[[float], None],
    ) -> None:
        self.name = name
        self.key = key
        self._waits = waits
        self._draw = draw
        self._now = now
        self._pause = pause
        self._unreachable: str | None = None  # why it could not be reached, the last time
        self._next_try = 0.0
        self._outages = OutageLog(name)

    def http_client(self, most_tokens: int, connections: int) -> httpx2.AsyncClient:
        """Return the HTTP client for an SDK. The first one blocks for some 20 ms, to read certificates."""
        most = TOKEN_BYTES * (most_tokens + 256)

        async def bound(response: httpx2.Response) -> None:
            if isinstance(response.stream, httpx2.AsyncByteStream):
                response.stream = Body(
                    response.stream, most if response.is_success else REFUSAL_BYTES, self._waits
                )
            response.headers.pop("content-encoding", None)  # none was asked for; a bomb is not unpacked
            response.encoding = "utf-8"  # whatever it says: some codecs of Python decode no text

        client = httpx2.AsyncClient(
            auth=KeyAuth(self.key),
            verify=trusted_certificates(),
            headers={"accept-encoding": "identity"},
            event_hooks={"response": [bound]},
            timeout=httpx2.Timeout(self._waits.idle, connect=self._waits.connect, pool=None),
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
        )
        hide_keys(self.key, FOREIGN)  # now that all of them are imported
        return client

    def note_replaced(self, count: int) -> None:
        """Note how many bytes of an answer were not UTF-8."""
        self._outages.replaced(count)

    async def answer(
        self,
        attempt: Callable[[ModelRequest], AsyncGenerator[ModelItem]],
        sent: Sendable,
        deadline: float | None,
    ) -> AsyncGenerator[ModelItem]:
        """Answer a request in one or several attempts. Raises failures of models."""
        tries, key_read_again = 0, False
        self._outages.left_out(sent.left_out)
        with self._outages:
            self._check_reachable()
            while True:
                self.key.value()  # read again if it has changed; fails if there is none
                begun = False
                try:
                    async with aclosing(attempt(sent.request)) as items:
                        async for item in items:
                            if not begun:
                                self._outages.answers()
                            begun = True
                            self._unreachable = None
                            yield sent.back(item)  # noqa: ASYNC119 -- the model asked closes what it is given
                    return
                except ActionFailed:
                    raise
                except Exception as error:
                    problem = self._problem_of(error, begun)
                if not problem.unreachable:
                    self._unreachable = None
                if problem.code == KEY_REFUSED and not key_read_again and self.key.has_changed():
                    key_read_again = True
                    continue
                tries += 1
                await self._wait_to_retry(problem, tries, deadline)

    def _check_reachable(self) -> None:
        """Fail at once if the provider could not be reached, except for one request a second."""
        if self._unreachable is None:
            return
        now = trio.current_time()
        if now < self._next_try:
            wait = round(self._next_try - now, 3)
            raise model_failure(MODEL_UNAVAILABLE, self._unreachable, retry_after=wait)
        self._next_try = now + PAUSE

    async def _wait_to_retry(self, problem: Problem, tries: int, deadline: float | None) -> None:
        """Wait before the next attempt. Raise the failure if there is to be no further attempt."""
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (tries - 1)) * (0.75 + 0.5 * self._draw())
        asked = problem.retry_after
        if asked is not None:
            wait = asked if asked <= LONGEST_ASKED_WAIT else inf
            if problem.code == MODEL_BUSY:
                self._pause(min(asked, LONGEST_ASKED_WAIT))
        late = deadline is not None and trio.current_time() + wait >= deadline
        if not problem.passes or tries > self._waits.retries or wait == inf or late:
            if problem.unreachable:
                self._unreachable, self._next_try = problem.text, trio.current_time() + PAUSE
            raise problem.failure() from None
        await trio.sleep(wait)

    # ---- what went wrong

    def _problem_of(self, error: Exception, begun: bool) -> Problem:
        status = getattr(error, "status_code", None)
        cause = error.__cause__ if isinstance(error.__cause__, httpx2.TransportError) else error
        if isinstance(error, TooLong):
            return Problem(MODEL_MALFORMED, f"{self.name} sent an answer without an end: it was cut off")
        if isinstance(error, ErrorEvent) or (type(status) is int and status >= 300):
            return self._reported(error, status, begun)
        if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout):
            text = f"{self.name} cannot be reached: {self._shown(cause)}"
            return Problem(MODEL_UNAVAILABLE, text, passes=self._unreachable is None, unreachable=True)
        if isinstance(cause, httpx2.TimeoutException):
            silent = f"was silent for {self._waits.idle:g} s"
            text = f"{self.name} {cause if isinstance(cause, TooSlow) else silent}"
            return Problem(MODEL_CUT if begun else MODEL_UNAVAILABLE, text)
        if isinstance(cause, httpx2.TransportError):
            text = f"{self.name} broke the connection off: {self._shown(cause)}"
            return Problem(MODEL_CUT if begun else MODEL_UNAVAILABLE, text, passes=not begun)
        if isinstance(error, UNREADABLE) or type(error).__module__.partition(".")[0] in FOREIGN:
            text = f"{self.name} sent what is no answer: {type(error).__name__}: {self._shown(error)}"
            return Problem(MODEL_MALFORMED, text)
        raise error

    def _reported(self, error: Exception, status: int | None, begun: bool) -> Problem:
        headers: Any = getattr(getattr(error, "response", None), "headers", {})
        report = report_of(getattr(error, "body", None), status, headers, self._now)
        said = self.key.without(f"{report.label}: {report.words or _answer_to(error)}".removeprefix(": "))
        if begun:
            return Problem(MODEL_CUT, f"{self.name} broke the answer off: {said}")
        where = self.key.reference or "none"
        if report.kind == NO_QUOTA:
            text = f"{self.name} says that the account of the key ({where}) has no quota left: {said}"
            return Problem(KEY_REFUSED, text)
        if report.kind == NO_RIGHT:
            return Problem(KEY_REFUSED, f"{self.name} refuses the key ({where}) for this: {said}")
        if report.kind == KEY_REFUSED:  # without the provider's words, which may repeat a part of the key
            label = self.key.without(report.label)
            return Problem(KEY_REFUSED, f"{self.name} refuses the key ({where}), with status {label}")
        text = f"{self.name} answered {said}"
        if report.kind in (MODEL_BUSY, MODEL_UNAVAILABLE):
            return Problem(report.kind, text, passes=True, retry_after=report.retry_after)
        return Problem(report.kind, text)

    def _shown(self, error: BaseException) -> str:
        text, seen = str(error), error.__cause__ or error.__context__
        while not text and seen is not None:  # as with certificates, which only a cause names
            text, seen = str(seen), seen.__cause__ or seen.__context__
        return self.key.without(text or type(error).__name__)


def _answer_to(error: Exception) -> str:
    """Return the whole answer that an SDK reports, else the text of the error; never an empty text."""
    response: Any = getattr(error, "response", None)
    text = ""
    with suppress(httpx2.ResponseNotRead):
        text = "" if response is None else str(response.text).strip()
    return text or str(error)


def provider_of(
    model: Fields,
    key: ProviderKey,
    draw: Callable[[], float],
    now: Callable[[], datetime],
    pause: Callable[[float], None],
) -> Provider:
    """Return the provider of a model; see `Provider`."""
    waits = Waits(model.retries, model.connect_seconds, model.idle_seconds, model.answer_seconds)
    return Provider(f"{urlsplit(model.url).hostname} (for {model.model})", key, waits, draw, now, pause)


class BrokenOff(httpx2.RemoteProtocolError):
    """Raised if the bytes of an answer end before the answer does."""

    def __init__(self) -> None:
        super().__init__("the answer ended before its end")


def unfinished(beside: object, *, begun: bool) -> Exception:
    """Return the error for an answer without an end.

    The provider has reported a failure, the answer broke off, or it never began.
    """
    if words_in(beside):
        return ErrorEvent(beside)
    return BrokenOff() if begun else ValueError("there is no answer in it")


@asynccontextmanager
async def body_of(stream: Any) -> AsyncGenerator[Body]:
    """Yield the body of the answer that an SDK would read, and close the connection after the block.

    If the body has been read to its end, the connection is kept for reuse.
    """
    response: httpx2.Response = stream.response
    try:
        yield cast("Body", response.stream)
    finally:
        with trio.move_on_after(CLOSING, shield=True):
            await response.aclose()
