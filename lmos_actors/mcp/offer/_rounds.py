"""Requests in rounds: how a client of 2026-07-28 is asked something during its own request.

Such a client has no session, so it cannot be sent a request. Its own request is answered by the questions,
with a token; it sends the request again, with the token and its answers. The run of the agent goes on:

    client                 Round                               run of the agent
    request         ->     next() waits, work() begins   ->    ask() waits
    questions       <-     next() returns them
    answers         ->     give(), next() waits          ->    ask() returns, and it goes on
    result          <-     next() returns it             <-    ends

Nobody else can guess the token, and it is valid only for this request of this client. If a waiting request is
cancelled, or none comes in time after the questions, the client is gone and the run is cancelled.
"""

from __future__ import annotations

import math
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final, Protocol

import mcp_types as types
import trio
from mcp import MCPError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._exchange import Exchange
    from ._results import HeldResult

GONE: Final = "the client is gone"


class RoundCaller(Protocol):
    """The interface to the client of a request that its rounds need; see `Caller`."""

    @property
    def held(self) -> HeldResult:
        """The bytes held for the request's result."""
        ...

    async def flush(self) -> None:
        """Send the waiting log lines."""
        ...

    def take_up(self, ctx: Any, exchange: Exchange) -> None:
        """Continue with the request of the next round."""
        ...


class Round:
    """One request over all its rounds: `owner` is the client, `about` the request's content in each round."""

    def __init__(self, owner: str, about: Any) -> None:
        self.token = token_urlsafe(18)
        self.owner = owner
        self.about = about
        self.scope = trio.CancelScope()
        self.caller: RoundCaller
        self.is_waited_for = False
        self._questions: dict[str, Any] = {}
        self._answers: dict[str, Any] = {}
        self._count = 0
        self._over = ""
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._news = trio.Event()
        self._answered = trio.Event()
        self._taken = trio.Event()

    async def ask(self, request: Any) -> Any:
        """Ask the client to carry out a request; return its answer. Raises MCPError if the client is gone."""
        self._count += 1
        key = f"q{self._count}"
        self._questions[key] = request
        self._news.set()
        try:
            while key not in self._answers:
                if self._over:
                    raise MCPError(types.CONNECTION_CLOSED, self._over)
                await self._answered.wait()
            return self._answers.pop(key)
        finally:
            del self._questions[key]

    def give(self, answers: dict[str, Any]) -> None:
        """Accept the client's answers; ignore answers without a question."""
        self._answers |= {key: each for key, each in answers.items() if key in self._questions}
        self._answered.set()
        self._answered = trio.Event()

    def wake(self) -> None:
        """Wake the task that waits in `next`, so that it looks for news."""
        self._news.set()

    def ask_no_more(self, why: str) -> None:
        """Refuse all present and later questions of the agent."""
        self._over = self._over or why
        self._answered.set()

    async def work(self, done: Callable[[], Awaitable[Any]]) -> None:
        """Carry out the request, and keep the outcome."""
        with self.scope:
            try:
                self._outcome = (await done(), None)
            except Exception as error:
                self._outcome = (None, error)
            finally:
                self.ask_no_more(GONE)  # an agent may go on without its client
        self._news.set()

    @property
    def is_taken(self) -> bool:
        """Whether the client has been sent the result."""
        return self._taken.is_set()

    async def taken(self) -> None:
        """Wait until the client has fetched the result, if there is one."""
        if self._outcome is not None:
            await self._taken.wait()

    async def next(self, seconds: float) -> Any:
        """Wait for the result or a question; return the answer to the client. Raise the request's error.

        If this is cancelled, the client has left, and the request is cancelled, too.
        """
        self.is_waited_for, self.scope.deadline = True, math.inf
        try:
            while True:
                await self.caller.flush()
                if self._outcome is not None:
                    break
                asked = {key: each for key, each in self._questions.items() if key not in self._answers}
                if asked:
                    # beyond the seconds for the answers, 5 s to fetch the result
                    self.scope.deadline = trio.current_time() + seconds + 5.0
                    return types.InputRequiredResult(input_requests=asked, request_state=self.token)
                self._news = trio.Event()
                await self._news.wait()
        except BaseException:
            self.scope.cancel(GONE)
            raise
        finally:
            self.is_waited_for = False
        self._taken.set()
        value, error = self._outcome
        if error is not None:
            raise error
        return value


class Rounds:
    """The requests of a node that are carried out in rounds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[str, Round] = {}

    def found(self, params: types.InputResponseRequestParams, exchange: Exchange) -> Round | None:
        """Return the round that a request continues, None for a new request. Raises MCPError."""
        if params.request_state is None:
            return None
        found = self._open.get(params.request_state)
        if found is None or found.owner != exchange.owner or found.about != _about(params):
            raise MCPError(types.INVALID_PARAMS, "this request state is not known, or no longer")
        if found.is_waited_for:
            raise MCPError(types.INVALID_PARAMS, "this request state is in use")
        found.give(dict(params.input_responses or {}))
        return found

    def end_asking(self, why: str) -> None:
        """Refuse present and later questions of the requests in progress, as clients can no longer answer."""
        for each in self._open.values():
            each.ask_no_more(why)

    def begun(self, params: types.InputResponseRequestParams, exchange: Exchange) -> Round:
        """Return the first round of a request."""
        return Round(exchange.owner, _about(params))

    async def run(self, made: Round, done: Callable[[], Awaitable[Any]]) -> None:
        """Carry out a request, and wait some seconds for the client to fetch the result.

        Clients can continue the request until this returns.
        """
        self._open[made.token] = made
        try:
            await made.work(done)
            with trio.move_on_after(self._seconds):
                await made.taken()
        finally:
            del self._open[made.token]


def _about(params: types.InputResponseRequestParams) -> Any:
    """Return the content of a request, which is the same in each of its rounds."""
    return params.model_dump(exclude={"input_responses", "request_state", "meta"})
