"""Turns that survive their process: how they are kept, ended, and resumed by the next incarnation.

A turn's record is put into the store before its first item, and is removed by the batch that keeps the turn
(`persistence/_sessions.py`). Four things can end a turn:

- it comes to its end, or fails: the record is removed, and then its caller learns of it;
- its caller leaves: the record is removed at that instant (`on_caller_left`), and not when the turn has
  unwound, so an end of the incarnation meanwhile changes nothing. But if the caller is itself a resumable
  turn that will come back (`_asked_turns.py`), the record stays, and the turn is resumed at once;
- the incarnation ends: the record stays, whatever is raised while the turn unwinds. The turn writes nothing
  then: the checkpoint before each write raises, as the task is cancelled;
- the process is killed: the record stays, as nothing is there to remove it.

If the store fails, a record is removed once the store works again. A failed turn is still resumed if the
incarnation ends before that.

So a record that an incarnation finds at its start belongs to a turn to resume. Such a turn has its place in
the line of its session before the mailbox opens: a caller who comes back waits behind it. It has no client;
its answer goes to the history, and so does its failure, as nobody else hears of it.

Each resumption of a turn is counted, and the count committed, before it begins: a turn that ends the process
each time is given up after `MOST_RESUMPTIONS`. A resumption that has gone on for `STEADY_SECONDS` no longer
counts, as it is not what ends the process: a turn may wait for a person over many restarts.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import trio

from lmos_actors.actors import ENDING, current_run, is_cut_off, on_caller_left
from lmos_actors.errors import ActionFailed, StoreFailed
from lmos_actors.persistence import TOO_LARGE, KeptMessage, KeptTurn, OpenTurn

from ._failures import store_in_use
from ._items import GIVEN_UP, INTERNAL_ERROR, TurnFailure

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    from lmos_actors.actors import Slot
    from lmos_actors.persistence import Session, Sessions, Ticket

    from ._lines import Lines
    from ._turn import ChatTurn

MOST_RESUMPTIONS: Final = 3
"""Maximum resumptions of a turn by incarnations of the agent that end soon afterwards."""

STEADY_SECONDS: Final = 60.0
"""Seconds after which a resumption no longer counts."""

RESUMED_AT_ONCE: Final = 64
"""Maximum turns that may be in the first phase of their resumption."""

BEGINNING_SECONDS: Final = 1.0
"""Seconds of the first phase of a resumption: so a thousand long turns have begun after 16 s."""

T = TypeVar("T")


class KeptTurns:
    """The turns of a chat agent's incarnation that survive it.

    `is_on` is whether turns are kept at all. `make` creates a resumed turn from its session, its record and
    its steps; `run` runs a turn in a child, under a given name; `answer` creates the agent's message from a
    turn; `start_soon` starts a task that ends with the incarnation.
    """

    def __init__(
        self,
        slot: Slot,
        sessions: Sessions,
        lines: Lines,
        *,
        is_on: bool,
        make: Callable[[Session, OpenTurn, list[Any]], ChatTurn],
        run: Callable[[ChatTurn, OpenTurn, str], Awaitable[None]],
        answer: Callable[[ChatTurn | None], KeptMessage],
        start_soon: Callable[..., None],
    ) -> None:
        self._slot = slot
        self._sessions = sessions
        self._lines = lines
        self._is_on = is_on
        self._make = make
        self._run = run
        self._answer = answer
        self._start_soon = start_soon
        self._room = trio.CapacityLimiter(RESUMED_AT_ONCE)
        self._resumed: dict[tuple[str, str], trio.CancelScope] = {}

    @property
    def _has_ended(self) -> bool:
        """Whether the incarnation has ended, so that all its tasks unwind."""
        return self._slot.state >= ENDING

    def comes_back(self, turn: OpenTurn) -> bool:
        """Return whether a turn that ends now will ask its question again: not if its code gave up asking."""
        return self._sessions.is_open(turn) and (turn.goes_on or self._has_ended)

    # ---- a turn in progress

    @asynccontextmanager
    async def begun(
        self,
        session: Session,
        asked: KeptMessage,
        metadata: dict[str, Any] | None,
        *,
        wanted: bool,
        has_client: bool,
    ) -> AsyncGenerator[OpenTurn | None]:
        """Keep a record of a turn during a block; yield None if it is not `wanted`, or turns are not kept.

        If the caller carries out tools (`has_client`), the turn ends when the caller leaves.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        begun = None
        if self._is_on and wanted:
            kept = KeptTurn(
                text=asked.text, at=asked.at, parts=asked.parts, metadata=metadata or {}, key=asked.key,
                id=self._slot.rt.entropy.new_id(),
            )  # fmt: skip
            with store_in_use():
                begun = self._sessions.begin_turn(session, kept)
        if begun is None:
            yield None
            return
        turn, ticket = begun
        left = partial(self._remove, turn) if has_client else partial(self._left, turn, current_run())
        on_caller_left(left)  # no await since the checkpoint
        try:
            with store_in_use():
                await ticket.wait()
            yield turn
        except Exception:
            if not self._has_ended and (removed := self._remove(turn)) is not None:
                with suppress(StoreFailed):  # a caller that hears of the failure finds no other outcome
                    await removed.wait()
            raise

    def _left(self, turn: OpenTurn, run: Any) -> None:
        """Note that the caller has left: the turn goes on if its caller will come back for it."""
        if turn.kept.key and is_cut_off(run.envelope):
            turn.goes_on = True
            self._go_on(turn)
        else:
            self._remove(turn)

    def _go_on(self, turn: OpenTurn) -> None:
        place = self._lines.join(turn.owner, turn.id, is_next=turn.goes_on)
        self._start_soon(self._resume, turn, place, name=f"resumed turn of session {turn.id}")

    def _remove(self, turn: OpenTurn) -> Ticket | None:
        """Remove the record of a turn that has ended for its caller; if the store fails, try again later."""

        def later() -> None:
            if not self._has_ended:
                self._start_soon(self._once_store_works, partial(self._sessions.remove_turn, turn))

        return self._sessions.end_turn(turn, later)

    async def record(self, turn: OpenTurn, step: Any) -> None:
        """Keep a step of a turn, after the agent's earlier changes; see `ChatTurn.record`."""
        if self._slot.output_gate is not None:  # else a kill in between would leave the step without that
            await self._slot.output_gate.wait_kept()
        with store_in_use():
            await self._sessions.record(turn, step)

    # ---- the next life

    def resume(self) -> None:
        """Start tasks of the agent's nursery that resume all kept turns once the agent takes messages."""
        for turn in self._sessions.turns:
            self._go_on(turn)

    def forgotten(self, owner: str, id: str) -> None:
        """End the resumed turn of a session that was removed, if there is one."""
        scope = self._resumed.get((owner, id))
        if scope is not None:
            scope.cancel("its session is forgotten")

    async def _resume(self, turn: OpenTurn, place: trio.Event) -> None:
        try:
            await self._slot.wait_running()
            await place.wait()
            turn.goes_on = False
            if turn.keeping is not None:  # it was cut off while it was kept
                with suppress(StoreFailed):
                    await turn.keeping.wait()
            if not self._sessions.is_open(turn):
                return
            with trio.CancelScope() as scope:
                self._resumed[turn.owner, turn.id] = scope
                async with self._beginning():
                    await self._have_again(turn, await self._steps_of(turn))
        except Exception:
            await self.wait_if_ended()  # its end may have caused the error
            raise
        finally:
            self._resumed.pop((turn.owner, turn.id), None)
            self._lines.leave(turn.owner, turn.id, place)

    @asynccontextmanager
    async def _beginning(self) -> AsyncGenerator[None]:
        """Wait until fewer than `RESUMED_AT_ONCE` turns are beginning; count a turn as beginning in a block.

        A long turn, for example one that waits for a person, holds up no others.
        """
        turn = object()
        await self._room.acquire_on_behalf_of(turn)
        timers, holds = self._slot.rt.timers, True

        def leave() -> None:
            nonlocal holds
            if holds:
                holds = False
                timers.woke = True  # in a simulation: a task may go on now
                self._room.release_on_behalf_of(turn)

        timer = timers.call_after(BEGINNING_SECONDS, leave)
        try:
            yield
        finally:
            timer.cancel()
            leave()

    async def wait_if_ended(self) -> None:
        """If the incarnation has ended, wait for the cancellation of this task, which follows."""
        if self._has_ended:
            await trio.sleep_forever()

    async def _steps_of(self, turn: OpenTurn) -> list[Any]:
        """Count a resumption, and return the steps of a turn; if it cannot be resumed, set its `wrong`."""
        if not turn.wrong and not self._is_on:
            turn.wrong = "this agent resumes no turns any more"
        if not turn.wrong and turn.kept.is_too_large:
            turn.wrong = TOO_LARGE
        if not turn.wrong and turn.kept.resumed >= MOST_RESUMPTIONS:
            turn.wrong = f"it was resumed {turn.kept.resumed} times, and its agent ended soon each time"
        if turn.wrong:
            return []
        return await self._once_store_works(partial(self._sessions.resume_turn, turn))

    async def _have_again(self, turn: OpenTurn, steps: list[Any]) -> None:
        session = await self._read(turn)
        if session is None:
            return
        again = self._made(session, turn, steps)
        if again is None:
            text = f"the turn was cut off by the end of its agent, and {turn.wrong}"
            gave_up = ActionFailed({"code": GIVEN_UP, "message": text})
            await self._keep_failed(turn, failed_answer(self._answer(None), gave_up))
            return
        try:
            with self._counted(turn):
                await self._run(again, turn, name_of(session, turn))
        except ActionFailed as error:
            await self._keep_failed(turn, failed_answer(self._answer(again), error))
        else:
            session.head.memory = again.memory
            await self._keep(turn, session, self._answer(again))

    @contextmanager
    def _counted(self, turn: OpenTurn) -> Generator[None]:
        """Take back the count of a resumption once the block has run for `STEADY_SECONDS`.

        The block must end before the turn is kept, as writing the count later would restore the record.
        """
        uncount = partial(self._sessions.uncount_resumption, turn)
        timer = self._slot.rt.timers.call_after(STEADY_SECONDS, uncount)
        try:
            yield
        finally:
            timer.cancel()

    def _made(self, session: Session, turn: OpenTurn, steps: list[Any]) -> ChatTurn | None:
        """Return the turn to run again; None if its record is unusable (`wrong`)."""
        try:
            made = self._make(session, turn, steps)
        except msgspec.ValidationError as error:
            turn.kept.parts = []
            turn.wrong = turn.wrong or f"its record cannot be read: {error}"
            return None
        return None if turn.wrong else made

    async def _keep_failed(self, turn: OpenTurn, answer: KeptMessage) -> None:
        """Keep a failed turn, so that its caller, who has left, can find it in the history."""
        session = await self._read(turn)  # again: the turn may have changed the memory that it was given
        if session is not None:
            await self._keep(turn, session, answer)

    async def _keep(self, turn: OpenTurn, session: Session, answer: KeptMessage) -> None:
        await self.wait_if_ended()  # what has failed may have failed of that
        asked = KeptMessage("user", turn.kept.text, turn.kept.at, turn.kept.parts, key=turn.kept.key)
        await self._once_store_works(partial(self._sessions.keep, session, [asked, answer], turn))

    async def _read(self, turn: OpenTurn) -> Session | None:
        return await self._once_store_works(partial(self._sessions.read, turn.owner, turn.id))

    async def _once_store_works(self, act: Callable[[], Awaitable[T]]) -> T:
        """Call a function that uses the store; if the store fails, repeat the call once the store works."""
        while True:
            try:
                return await act()
            except StoreFailed:
                try:
                    await self._sessions.wait_ready()
                except StoreFailed:  # the node ends
                    await trio.sleep_forever()


def answer_under(session: Session, key: str) -> KeptMessage | None:
    """Return the answer to an earlier message with the same key; None if there was none."""
    messages = session.messages
    return next((after for asked, after in pairwise(messages) if asked.key == key), None)


def failed_answer(answer: KeptMessage, error: ActionFailed) -> KeptMessage:
    """Return the part of an answer that a failed turn has sent, with the reason for the failure."""
    words = error.code or INTERNAL_ERROR, error.detail or str(error)
    failed = TurnFailure(*(each.encode("utf-8", "replace").decode() for each in words))
    return msgspec.structs.replace(answer, failed=msgspec.to_builtins(failed))


def name_of(session: Session, turn: OpenTurn) -> str:
    """Return a name of a turn that is unique in its agent, also after a restart."""
    return f"turn {turn.owner}\n{turn.id}\n{turn.kept.at}\n{turn.kept.id}\n{len(session.written)}"
