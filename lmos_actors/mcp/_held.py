"""A session with an MCP server that outlasts its connections: a lost session is begun again.

Servers are restarted, and drop sessions at any time: a program ends, or a URL answers 404, or 400 with a text
of its own. That is not the fault of their agent, which goes on. What keeps outcomes certain:

1. **A request that had not begun is sent again**, in the new session, as it never left, or was refused
   because of the session. A request that does no harm when repeated, such as reading a resource, is sent
   again, too.
2. **Any other lost request fails with MCP_NO_ANSWER**: its work may be done or not.
3. **Requests of a session that is over have a second to be answered.** Over HTTP each of them has its own
   connection, and a server that drops a session may still answer the requests that it had begun.
4. **A lasting failure ends the agent**: a server that floods, one that is not back within `start_seconds`,
   and one that is lost a fourth time within a minute. Then its supervisor takes over, with its limits.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from lmos_actors.supervision import Backoff

from ._failures import NO_ANSWER, McpServerLost, SessionLost, mcp_failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._connection import Connection
    from ._session import Session

T = TypeVar("T")

GRACE: Final = 1.0
"""Seconds in which requests may still be answered once their session is over."""

MOST_LOSSES: Final = 3
LOSSES_WITHIN: Final = 60.0
"""The number of sessions that may be lost, and within how many seconds."""

REPEATS: Final = 2
"""Number of later sessions in which a request may be sent again."""

BEGIN_AGAIN: Final = Backoff(initial=0.25, max=5.0)


class Opened:
    """A connection that is about to be opened; `session` opens it, and begins a session over it."""

    def __init__(self, connection: Connection, session: Callable[[], Any]) -> None:
        self.connection = connection
        self.session = session


class HeldSession:
    """The session with one server, held as long as `run` runs.

    `prepare` returns the connection to open. `serve` runs for each session from its beginning to its end: it
    reads what the server offers, calls its second argument, and then follows changes. `note` is called with
    the reason for each loss of a session. `draw` is a source of numbers from 0 to 1.
    """

    def __init__(
        self,
        prepare: Callable[[], Awaitable[Opened]],
        serve: Callable[[Session, Callable[[], None]], Awaitable[None]],
        note: Callable[[str], None],
        seconds: float,
        draw: Callable[[], float],
    ) -> None:
        self._prepare = prepare
        self._serve = serve
        self._note = note
        self._seconds = seconds
        self._draw = draw
        self._session: Session | None = None
        self._changed = trio.Event()
        self._failure: Exception | None = None
        self._over = trio.Event()
        self._stopped = trio.Event()
        self._asks = False

    async def run(self) -> None:
        """Hold a session until `stop`, or until a lasting failure, which `watch` and `check` raise."""
        try:
            await self._hold_for_ever()
        except Exception as error:
            self._failure = error
        finally:
            self._over.set()
            self._let_in(None)

    async def begun(self) -> bool:
        """Wait until a session has begun or a person must sign in; return False if `run` has ended."""
        while self._session is None and not self._over.is_set() and not self._asks:
            await self._changed.wait()
        return not self._over.is_set()

    def ask_first(self) -> None:
        """Let `begun` return without a first session, as a person has to sign in first."""
        self._asks = True
        self._changed.set()
        self._changed = trio.Event()

    async def watch(self) -> None:
        """Wait until no further session can begin. Raises McpServerLost, or any error of `prepare`."""
        await self._over.wait()
        self.check()

    def check(self) -> None:
        """Raise the error that has ended `run`, if there is one."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> bool:
        """End the session in order, and begin no other; return whether there was one."""
        self._stopped.set()
        return self._session is not None

    async def _hold_for_ever(self) -> None:
        losses: deque[float] = deque(maxlen=MOST_LOSSES)
        lost = await self._hold()
        while not self._stopped.is_set():
            now = trio.current_time()
            too_often = len(losses) == MOST_LOSSES and now - losses[0] < LOSSES_WITHIN
            if lost.is_final or too_often:
                raise McpServerLost(lost.why)
            losses.append(now)
            self._note(lost.why)
            lost = await self._hold_again(now + self._seconds)

    async def ask(self, request: Callable[[Session], Awaitable[T]], *, again: bool) -> T:
        """Send a request and return its answer. With `again` a request that had begun may be repeated.

        Raises ActionFailed.
        """
        for left in range(REPEATS, -1, -1):
            while (session := self._session) is None or session.is_lost:
                await self._changed.wait()
            try:
                return await request(session)
            except SessionLost as lost:
                if not left or (lost.begun and not again):
                    text = "it may have done its work or not" if lost.begun else "it was not sent"
                    raise mcp_failure(NO_ANSWER, f"{lost}: {text}") from None
        raise AssertionError("the last attempt returns or raises")

    async def _hold_again(self, until: float) -> Connection:
        for attempt in count(1):
            wait = BEGIN_AGAIN.delay(attempt, self._draw())
            try:
                return await self._hold()
            except McpServerLost:
                if trio.current_time() + wait > until:
                    raise
            await trio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    async def _hold(self) -> Connection:
        """Hold one session until it is lost; return its connection. Raises McpServerLost if it does not
        begin.
        """
        opened = await self._prepare()
        connection, has_begun = opened.connection, False

        def begin() -> None:
            nonlocal has_begun
            has_begun = True
            self._let_in(session)

        scope = trio.CancelScope()
        try:
            with scope:
                async with opened.session() as session:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._serve, session, begin)
                        nursery.start_soon(_cancel_after, self._stopped, nursery.cancel_scope)
                        await connection.lost.wait()
                        self._let_in(None)
                        with trio.move_on_after(GRACE):
                            await session.settled()
                        nursery.cancel_scope.cancel("the session is lost")
                    if not self._stopped.is_set():  # else it is left in order, and the server with it
                        scope.cancel("the session is lost")
        except (McpServerLost, SessionLost) as error:
            if not has_begun:
                raise McpServerLost(str(error)) from None
            connection.lose("has broken the session off")
        finally:
            self._let_in(None)
        if not has_begun:
            raise McpServerLost(connection.why)
        return connection

    def _let_in(self, session: Session | None) -> None:
        self._session = session
        self._changed.set()
        self._changed = trio.Event()


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel("the agent is ending")
