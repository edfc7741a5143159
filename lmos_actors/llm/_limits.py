"""The limits of one model for requests at once, requests per minute and tokens per minute.

All requests to a model wait in one line, in the order in which they came. The first in the line begins when
all limits allow it; no request overtakes it, so a large request is not kept waiting by small ones. A waiting
request is cancelled when its caller leaves, and leaves no gap in the line.

In any 60 seconds, no more requests begin than the limit allows. The tokens of a request are known only at its
end. Until then it counts with an estimate of its input; its final count delays later requests.

A provider may count nothing, or only one direction, and counts nothing of an answer that breaks off. So
limits, budgets and metrics count by the `Tally` of a request: the provider's counts, or else estimates.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from functools import cached_property
from math import ceil, inf
from typing import TYPE_CHECKING, Final

import trio
from msgspec.json import encode

from lmos_actors.errors import ActionFailed, Forbidden, MailboxFull, NotFound, Unauthorized

from ._failures import (
    KEY_REFUSED,
    MODEL_BUSY,
    MODEL_UNAVAILABLE,
    NO_MODEL,
    REQUEST_REFUSED,
    model_failure,
)
from ._messages import (
    ModelEnd,
    ModelMessage,
    ModelRequest,
    TextDelta,
    ToolMessage,
    ToolRequest,
    Usage,
    UserMessage,
)
from ._texts import counted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ._messages import Message, ModelItem

MINUTE: Final = 60.0

CHARACTERS_OF_A_TOKEN: Final = 4
"""For ASCII: about right for English and for JSON."""

BYTES_OF_A_TOKEN: Final = 3
"""For all else, in UTF-8: so a token is 1.5 letters of Greek or Arabic, and one character of Chinese."""

TOKENS_OF_A_FILE: Final = 1_000
"""An estimate: about the tokens of a picture, or of two pages."""

TOKENS_OF_A_MESSAGE: Final = 4
"""An estimate of what providers put around a message."""

LEAST_OF_AN_ITEM: Final = 1 / CHARACTERS_OF_A_TOKEN
"""Tokens of an empty item: empty items may come without an end, too."""

REFUSALS: Final = frozenset({KEY_REFUSED, MODEL_BUSY, MODEL_UNAVAILABLE, NO_MODEL, REQUEST_REFUSED})
"""The failures of requests that took no tokens, if they come before the first item."""


def estimated_tokens(said: str | Message | ModelItem | ModelRequest) -> float:
    """Return an estimate of the tokens of a text, a message, an item of an answer, or a whole request.

    One token is assumed for four characters of ASCII, and for three bytes of UTF-8 in other scripts. A file
    counts 1,000 tokens in addition to those of its text.
    """
    more, tokens = 0, 0.0
    if isinstance(said, ModelRequest):
        tokens = sum(map(estimated_tokens, said.messages))
    elif isinstance(said, UserMessage | ModelMessage | ToolMessage):
        more = TOKENS_OF_A_MESSAGE
    if isinstance(said, UserMessage):
        more += TOKENS_OF_A_FILE * len(said.files)
    for text in [said] if isinstance(said, str) else _texts_of(said):
        if text.isascii():
            tokens += len(text) / CHARACTERS_OF_A_TOKEN
        else:
            plain = len(text.encode("ascii", "ignore"))
            others = len(text.encode("utf-8", "surrogatepass")) - plain
            tokens += plain / CHARACTERS_OF_A_TOKEN + others / BYTES_OF_A_TOKEN
    return more + tokens


def _texts_of(said: Message | ModelItem | ModelRequest) -> list[str]:
    """Return the texts in a value, except the messages of a request; plain data is returned as JSON."""
    if isinstance(said, ModelEnd):
        return []
    if isinstance(said, ToolMessage):
        return [said.error or encode(said.result).decode()]
    if isinstance(said, ToolRequest):
        return [said.name, said.unreadable or encode(said.arguments).decode()]
    if isinstance(said, ModelRequest):
        data = [said.tools, said.answer]
        return [said.instructions, *[encode(each).decode() for each in data if each]]
    texts = [said.text]
    if isinstance(said, UserMessage):
        files = [file.data for file in said.files if file.mime_type.startswith("text/")]
        texts += [data.decode(errors="replace") for data in files]
    elif isinstance(said, ModelMessage):
        texts += [each.text for each in said.reasoning]
        for request in said.tools:
            texts += _texts_of(request)
    return texts


class Tally:
    """The tokens of one request: the provider's counts, or estimates where there are none."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._counts = Usage()
        self.came = 0.0
        """Tokens of the answer so far, as an estimate."""
        self.began = False
        """Whether something of the answer has come."""

    @cached_property
    def expected(self) -> int:
        """The tokens of the input, as an estimate."""
        return ceil(estimated_tokens(self._request))

    def take(self, item: ModelItem) -> None:
        """Count an item of the answer."""
        self.began = True
        if type(item) is TextDelta and item.text.isascii():  # as nearly all items are
            self.came += len(item.text) / CHARACTERS_OF_A_TOKEN or LEAST_OF_AN_ITEM
        elif isinstance(item, ModelEnd):
            self._counts = item.usage
        else:
            self.came += estimated_tokens(item) or LEAST_OF_AN_ITEM

    @property
    def usage(self) -> Usage:
        """The tokens of the input, and of the output received so far."""
        counts = self._counts
        output = counted(counts.output_tokens) or ceil(self.came)
        return Usage(counted(counts.input_tokens) or self.expected, output, counted(counts.cached))

    def spent(self, error: BaseException | None) -> Usage:
        """Return the tokens of a request that has ended: none if it was refused before it began."""
        return Usage() if not self.began and _is_refused(error) else self.usage


def _is_refused(error: BaseException | None) -> bool:
    """Return whether a request that failed with this error has cost nothing, as far as is known."""
    if isinstance(error, ActionFailed):
        return error.code in REFUSALS
    is_barred = isinstance(error, NotFound | MailboxFull | Forbidden | Unauthorized)
    return is_barred or getattr(error, "started", True) is False


class Admission:
    """One request that has begun: its start time, and the number of tokens for which it counts."""

    __slots__ = ("at", "tokens")

    def __init__(self, at: float, tokens: int) -> None:
        self.at = at
        self.tokens = tokens


class RequestLimits:
    """The line of requests in front of one model. None means no limit."""

    def __init__(
        self, concurrency: int, waiting: int, requests_per_minute: int | None, tokens_per_minute: int | None
    ) -> None:
        self._concurrency = concurrency
        self._waiting = waiting
        self._requests = requests_per_minute
        self._tokens = tokens_per_minute
        self.count_tokens = tokens_per_minute is not None
        self._line = trio.StrictFIFOLock()
        self._running = 0
        self._changed = trio.Event()
        self._begun: deque[Admission] = deque()  # in the last minute
        self._begun_tokens = 0
        self._paused_until = 0.0

    @asynccontextmanager
    async def admitted(self, tally: Tally, deadline: float | None) -> AsyncGenerator[None]:
        """Wait until a request may begin, then run the block as that request.

        After the block the request counts with the tokens of its tally. `deadline` is the deadline of the
        caller, by `trio.current_time()`. Raise MODEL_BUSY if too many requests wait, or if the wait would
        outlast the deadline.
        """
        tokens = 0 if self._tokens is None else tally.expected
        if self._line.statistics().tasks_waiting >= self._waiting:
            raise model_failure(
                MODEL_BUSY, f"{self._waiting} requests to this model wait already", retry_after=1.0
            )
        async with self._line:
            while (wait := self._seconds_until_free(tokens)) > 0:
                if deadline is not None and wait < inf and trio.current_time() + wait >= deadline:
                    raise model_failure(
                        MODEL_BUSY,
                        f"the limits of this model let it begin in {wait:.1f} s, after its caller's deadline",
                        retry_after=round(wait, 3),
                    )
                self._changed = trio.Event()
                with trio.move_on_after(wait):
                    await self._changed.wait()
            self._running += 1
            admission = Admission(trio.current_time(), tokens)
            if self._requests is not None or self._tokens is not None:
                self._begun.append(admission)
                self._begun_tokens += tokens
        try:
            yield
        finally:
            if self._tokens is not None:
                self._settle(admission, tally.usage.tokens)
            self._running -= 1
            self._changed.set()

    def _settle(self, admission: Admission, tokens: int) -> None:
        """Replace the estimated tokens of a request by the tokens that it has used."""
        if self._begun and admission.at >= self._begun[0].at:  # else it no longer counts
            self._begun_tokens += tokens - admission.tokens
            admission.tokens = tokens

    def pause(self, seconds: float) -> None:
        """Let no request begin for some seconds, as requested by the provider."""
        self._paused_until = max(self._paused_until, trio.current_time() + seconds)

    def _seconds_until_free(self, tokens: int) -> float:
        """Return the seconds until the first request in the line may begin; 0 or less if it may begin now.

        Return `inf` if another request has to end first.
        """
        if self._running >= self._concurrency:
            return inf
        now = trio.current_time()
        begun = self._begun
        while begun and begun[0].at <= now - MINUTE:
            self._begun_tokens -= begun.popleft().tokens
        free_at = self._paused_until
        if self._requests is not None and len(begun) >= self._requests:
            free_at = max(free_at, begun[len(begun) - self._requests].at + MINUTE)
        if self._tokens is not None:
            free_at = max(free_at, self._tokens_free_at(self._tokens, min(tokens, self._tokens)))
        return free_at - now

    def _tokens_free_at(self, limit: int, wanted: int) -> float:
        over = self._begun_tokens + wanted - limit
        for admission in self._begun:
            if over <= 0:
                break
            over -= admission.tokens
            if over <= 0:
                return admission.at + MINUTE
        return 0.0
