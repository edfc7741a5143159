"""The limits of one model: requests at once, and requests and tokens per minute.

All requests to a model stand in one line, in the order in which they came. The first in the line begins when
all limits allow it; nothing overtakes it, so a large request is not kept waiting by small ones. Those that
wait are cancelled like all that their callers no longer want, and leave no gap in the line.

In no 60 seconds begin more requests than the limit. How many tokens a request takes is known at its end:
until then it counts with an estimate of its input, and what it takes in the end delays those that come after
it.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from ._failures import MODEL_BUSY, model_failure

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

MINUTE: Final = 60.0

CHARACTERS_OF_A_TOKEN: Final = 4
"""By which the tokens of a text are estimated: about right for English and for JSON."""


TOKENS_OF_A_FILE: Final = 1_000
"""As an estimate: about those of a picture, or of two pages."""


class Admission:
    """One request that has begun: when, and the tokens that it counts with."""

    __slots__ = ("at", "tokens")

    def __init__(self, at: float, tokens: int) -> None:
        self.at = at
        self.tokens = tokens


class RequestLimits:
    """The line in front of one model. A limit that is None does not limit."""

    def __init__(
        self, concurrency: int, waiting: int, requests_per_minute: int | None, tokens_per_minute: int | None
    ) -> None:
        self._concurrency = concurrency
        self._waiting = waiting
        self._requests = requests_per_minute
        self._tokens = tokens_per_minute
        self._line = trio.StrictFIFOLock()
        self._running = 0
        self._changed = trio.Event()
        self._begun: deque[Admission] = deque()  # in the last minute
        self._begun_tokens = 0
        self._paused_until = 0.0

    @property
    def counts_tokens(self) -> bool:
        """Whether the number of tokens matters."""
        return self._tokens is not None

    @asynccontextmanager
    async def admitted(self, tokens: int, deadline: float | None) -> AsyncGenerator[Admission]:
        """Wait until a request of an estimated number of tokens may begin; it ends with the block.

        `deadline` is that of its caller, in the clock's seconds. Raises MODEL_BUSY if too many wait, or if
        the wait would outlast the deadline.
        """
        if self._line.statistics().tasks_waiting >= self._waiting:
            raise model_failure(
                MODEL_BUSY, f"{self._waiting} requests to this model wait already", retry_after=1.0
            )
        async with self._line:
            while (wait := self._seconds_until_free(tokens)) > 0:
                self._check_deadline(wait, deadline)
                self._changed = trio.Event()
                with trio.move_on_after(wait):
                    await self._changed.wait()
            admission = self._begin(tokens)
        try:
            yield admission
        finally:
            self._running -= 1
            self._changed.set()

    def settle(self, admission: Admission, tokens: int) -> None:
        """Note how many tokens a request has taken."""
        if self._begun and admission.at >= self._begun[0].at:  # else it no longer counts
            self._begun_tokens += tokens - admission.tokens
            admission.tokens = tokens

    def pause(self, seconds: float) -> None:
        """Let no request begin for so long: the provider has asked for it."""
        self._paused_until = max(self._paused_until, trio.current_time() + seconds)

    def _begin(self, tokens: int) -> Admission:
        self._running += 1
        admission = Admission(trio.current_time(), tokens)
        if self._requests is not None or self._tokens is not None:
            self._begun.append(admission)
            self._begun_tokens += tokens
        return admission

    def _seconds_until_free(self, tokens: int) -> float:
        """Return the seconds until the first in the line may begin, 0 or less if it may now.

        It is `inf` where another one has to end before.
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

    def _check_deadline(self, wait: float, deadline: float | None) -> None:
        if deadline is not None and wait < inf and trio.current_time() + wait >= deadline:
            raise model_failure(
                MODEL_BUSY,
                f"the limits of this model let it begin in {wait:.1f} s, after its caller's deadline",
                retry_after=round(wait, 3),
            )
