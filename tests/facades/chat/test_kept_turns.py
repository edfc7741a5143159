"""Turns that survive the end of their agent: what is resumed, what is not, and what a caller finds.

A life of a program here is a node. It is killed as by SIGKILL: nothing that its agents do from that instant
on reaches the store (`Mortal`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import pytest
import trio

from lmos_actors import ActionFailed, AgentDied, ChildSpec, action, open_node, simulate
from lmos_actors.errors import AgentUnavailable
from lmos_actors.facades import ChatAgent, ChatPart, ChatTurn
from lmos_actors.facades.chat import Said, SessionEntry, TurnBegan, TurnDone, TurnFailure
from lmos_actors.persistence import SessionOptions, SimulatedStore
from lmos_actors.testing import settle
from tests.facades.lives import STORES, Mortal, every_store, in_memory, virtual
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from lmos_actors import Ref


@pytest.fixture
def store(kind: str, tmp_path: Path) -> Mortal:
    return Mortal(STORES[kind](tmp_path))


@attrs.define
class Book:
    """What the planners of a test have done, over all their lives."""

    did: list[str] = attrs.field(factory=list[str])
    turns: list[ChatTurn] = attrs.field(factory=list[ChatTurn])
    waits: trio.Event = attrs.field(factory=trio.Event)
    """A plan has come to the word `wait`."""
    may_go_on: trio.Event = attrs.field(factory=trio.Event)

    @property
    def resumed(self) -> int:
        return sum(turn.is_resumed for turn in self.turns)


class Planner(ChatAgent):
    """Does the words of a message one after the other, each once."""

    resumes: ClassVar[bool] = True
    book: Book

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart]:
        book = self.book
        book.turns.append(turn)
        assert turn.history == turn.history  # read now, and not when it has grown
        turn.memory["turns"] = turn.memory.get("turns", 0) + 1
        for number, word in enumerate(turn.text.split()):
            if number >= len(turn.steps):
                if word == "wait":
                    book.waits.set()
                    await book.may_go_on.wait()
                elif word == "crash":
                    raise RuntimeError("secret: 4711")
                elif word == "fail":
                    raise ActionFailed({"code": "NO_ROOM", "message": "all is taken"})
                book.did.append(word)
                await turn.record(word)
            yield f"{word} "
        yield f"({turn.memory['turns']})"

    @action
    def die(self) -> None:
        """Crash."""
        raise RuntimeError("as it was told")


class Forgetful(Planner):
    resumes = False


@asynccontextmanager
async def life(store: Any, book: Book, cls: type[ChatAgent] = Planner) -> AsyncGenerator[Ref[Any]]:
    """Have one life of a node with a planner."""
    async with open_node(store=store) as node:
        child: ChildSpec[Any] = ChildSpec("planner", partial(cls, book=book), shutdown="brutal")
        yield await node.start_child(child)


@asynccontextmanager
async def killed(store: Mortal, book: Book, cls: type[ChatAgent] = Planner) -> AsyncGenerator[Ref[Any]]:
    """Have one life that is killed at the end of the block."""
    async with open_node(store=store) as node:
        planner = await node.start_child(ChildSpec("planner", partial(cls, book=book)))
        yield planner
        store.is_dead = True
        node.force_stop()
    store.is_dead = False


async def ask(planner: Ref[Any], text: str, session: str = "s", **more: Any) -> str:
    """Say something; return the whole answer, empty if the agent ends before it is there."""
    answer = ""
    with suppress(AgentDied, AgentUnavailable):
        async with planner.stream(ChatAgent.chat, text, session, new=True, **more) as items:
            async for item in items:
                if isinstance(item, TurnDone):
                    answer = item.text
    return answer


async def cut_off(store: Mortal, book: Book, text: str, session: str = "s", **more: Any) -> None:
    """Have a life in which a turn begins, and which is killed while it waits."""
    book.waits = trio.Event()
    async with trio.open_nursery() as nursery, killed(store, book) as planner:
        nursery.start_soon(partial(ask, planner, text, session, **more))
        await book.waits.wait()


async def settled(planner: Ref[Any], session: str = "s") -> list[tuple[str, str]]:
    """Return what was said in a session in which no turn is in progress any more, with its failures."""
    said: list[Said] = await planner.invoke(ChatAgent.history, session, settled=True)
    return [(each.role, each.text if each.failed is None else each.failed.code) for each in said]


# ---- the next life goes on


@every_store
@virtual
async def test_a_turn_goes_on_and_nothing_is_done_twice(store: Mortal) -> None:
    book = Book()
    await cut_off(store, book, "one two wait three")
    assert book.did == ["one", "two"]
    book.may_go_on.set()
    async with life(store, book) as planner:
        answer = "one two wait three (1)"
        assert await settled(planner) == [("user", "one two wait three"), ("agent", answer)]
        assert await ask(planner, "four") == "four (2)"
    assert book.did == ["one", "two", "wait", "three", "four"]
    first, again, _ = book.turns
    assert (first.is_resumed, first.steps, first.is_kept) == (False, (), True)
    assert (again.is_resumed, again.steps, again.is_new) == (True, ("one", "two"), True)
    assert store.is_clean


@every_store
@virtual
async def test_a_turn_goes_on_over_several_lives(store: Mortal) -> None:
    book = Book()
    await cut_off(store, book, "one wait two")
    for _ in range(2):
        book.waits = trio.Event()
        async with killed(store, book):
            await book.waits.wait()
    book.may_go_on.set()
    async with life(store, book) as planner:
        assert await settled(planner) == [("user", "one wait two"), ("agent", "one wait two (1)")]
    assert (book.did, book.resumed) == (["one", "wait", "two"], 3)


@virtual
async def test_message_and_caller_are_those_of_the_first_life() -> None:
    store, book = in_memory(), Book()
    parts = [ChatPart("text", text="more")]
    await cut_off(store, book, "wait", parts=parts, metadata={"locale": "de"})
    book.may_go_on.set()
    async with life(store, book) as planner:
        await settled(planner)
        (said, _) = await planner.invoke(ChatAgent.history, "s")
        assert said.parts == parts
    first, again = book.turns
    for name in ("session", "text", "parts", "metadata", "principal", "history", "is_new"):
        assert getattr(first, name) == getattr(again, name), name
    assert not again.has_client_tools


@virtual
async def test_a_caller_who_comes_back_waits_behind_the_resumed_turn() -> None:
    store, book = in_memory(), Book()
    await cut_off(store, book, "one wait")
    book.waits = trio.Event()
    answers: list[str] = []
    async with life(store, book) as planner, trio.open_nursery() as nursery:

        async def come_back() -> None:
            answers.append(await ask(planner, "two"))

        nursery.start_soon(come_back)
        await book.waits.wait()
        (entry,) = await planner.invoke(ChatAgent.sessions)
        assert isinstance(entry, SessionEntry)
        assert entry.in_progress
        assert not answers
        assert await planner.invoke(ChatAgent.history, "s") == []
        book.may_go_on.set()
    assert answers == ["two (2)"]
    assert book.did == ["one", "wait", "two"]


@virtual
async def test_many_turns_are_resumed_side_by_side() -> None:
    store, book = in_memory(), Book()
    async with trio.open_nursery() as nursery, killed(store, book) as planner:
        for number in range(20):
            nursery.start_soon(ask, planner, f"{number} wait", f"s{number}")
        while len(book.did) < 20:
            await trio.lowlevel.checkpoint()
        await settle()
    book.may_go_on.set()
    async with life(store, book) as planner:
        for number in range(20):
            assert (await settled(planner, f"s{number}"))[1] == ("agent", f"{number} wait (1)")
    assert sorted(book.did) == sorted([*map(str, range(20)), *["wait"] * 20])


# ---- what ends a turn for good


@virtual
async def test_a_client_that_leaves_a_living_agent_cancels_and_nothing_is_resumed() -> None:
    store, book = in_memory(), Book()
    async with killed(store, book) as planner:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, planner, "one wait two")
            await book.waits.wait()
            nursery.cancel_scope.cancel()
        assert await settled(planner) == []
    assert store.is_clean
    async with life(store, book) as planner:
        assert await settled(planner) == []
    assert (book.did, book.resumed) == (["one"], 0)


@pytest.mark.parametrize(("text", "code"), [("one fail", "NO_ROOM"), ("one crash", "INTERNAL_ERROR")])
@virtual
async def test_a_turn_that_fails_is_kept_and_not_resumed_as_its_caller_knows(text: str, code: str) -> None:
    store, book = in_memory(), Book()
    async with killed(store, book) as planner:
        with pytest.raises(ActionFailed, match=code):
            await ask(planner, text)
    assert store.is_clean
    async with life(store, book) as planner:
        assert await settled(planner) == [("user", text), ("agent", code)]


@pytest.mark.parametrize("text", ["wait fail", "wait crash"])
@virtual
async def test_a_resumed_turn_that_fails_is_found_in_the_history(text: str) -> None:
    store, book = in_memory(), Book()
    await cut_off(store, book, f"one {text}")
    book.may_go_on.set()
    async with life(store, book) as planner:
        await settled(planner)
        asked, answer = await planner.invoke(ChatAgent.history, "s")
        assert asked.text == f"one {text}"
        failure = (
            ("NO_ROOM", "all is taken") if "fail" in text else ("INTERNAL_ERROR", "internal server error")
        )
        assert answer.failed == TurnFailure(*failure)
        assert "one wait" in answer.text
        assert await ask(planner, "two") == "two (1)", "the memory of the failed turn is not kept"
    assert store.is_clean


@virtual
async def test_an_end_in_order_leaves_the_turn_to_the_next_life() -> None:
    store, book = in_memory(), Book()
    async with trio.open_nursery() as nursery, life(store, book) as planner:
        nursery.start_soon(ask, planner, "one wait two")
        await book.waits.wait()
    assert not store.is_clean
    book.may_go_on.set()
    async with life(store, book) as planner:
        assert (await settled(planner))[1] == ("agent", "one wait two (1)")
    assert book.did == ["one", "wait", "two"]


@virtual
async def test_a_restart_by_the_supervisor_resumes_in_the_same_node() -> None:
    store, book = in_memory(), Book()
    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        planner = await node.start_child(ChildSpec("planner", partial(Planner, book=book)))
        nursery.start_soon(ask, planner, "one wait two")
        await book.waits.wait()
        book.waits = trio.Event()
        with pytest.raises(AgentDied):
            await planner.invoke(Planner.die)
        await book.waits.wait()
        book.may_go_on.set()
        assert (await settled(planner))[1] == ("agent", "one wait two (1)")
    assert (book.did, book.resumed) == (["one", "wait", "two"], 1)


class Slow(Planner):
    """Has unwound only when it may go on."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart]:
        try:
            async for piece in super().reply(turn):
                yield piece  # noqa: ASYNC119 -- the runtime closes what it runs
        finally:
            with trio.CancelScope(shield=True):
                await self.book.may_go_on.wait()


@pytest.mark.parametrize("leaves_first", [True, False])
@virtual
async def test_what_comes_first_counts_a_caller_that_leaves_or_the_end_of_the_agent(
    leaves_first: bool,
) -> None:
    """Both happen before the turn has unwound."""
    store, book = in_memory(), Book()
    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        child = ChildSpec("planner", partial(Slow, book=book), shutdown="brutal")
        planner = await node.start_child(child)
        scope = trio.CancelScope()

        async def leave_at_once() -> None:
            with scope:
                await ask(planner, "one wait two")

        nursery.start_soon(leave_at_once)
        await book.waits.wait()

        async def stop() -> None:
            await node.root.terminate_child("planner")

        if leaves_first:
            scope.cancel()
            await settle()
            nursery.start_soon(stop)
        else:
            nursery.start_soon(stop)
            await settle()
            scope.cancel()
        await settle()
        book.may_go_on.set()
    assert store.is_clean is leaves_first


@attrs.define
class Caller:
    """Has one turn, and notes what it sees of it."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    began: bool = False
    done: bool = False
    ended: bool = False
    """The turn has ended for the caller, or the caller has left."""

    async def ask(self, planner: Ref[Any]) -> None:
        with self.scope, suppress(AgentDied, AgentUnavailable):
            async with planner.stream(ChatAgent.chat, "one two three", "s", new=True) as items:
                async for item in items:
                    self.began |= isinstance(item, TurnBegan)
                    self.done |= isinstance(item, TurnDone)
        self.ended = True


@pytest.mark.parametrize("how", ["leave", "kill", "leave and stop", "stop and leave"])
def test_at_each_step_of_a_turn_what_ends_it_decides(how: str) -> None:
    """`leave and stop` happen in one step, the caller's first; so no other order may decide."""

    async def ended_after(steps: int) -> bool:
        store, book, caller = in_memory(), Book(), Caller()
        book.may_go_on.set()
        async with open_node(store=store) as node, trio.open_nursery() as nursery:
            planner = await node.start_child(ChildSpec("planner", partial(Planner, book=book)))
            nursery.start_soon(caller.ask, planner)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            was_over = caller.ended
            # what the scope of a caller does when its task gets to it, done at once
            if how in ("leave", "leave and stop"):
                caller.scope.cancel()
                while how == "leave and stop" and not caller.ended:
                    await trio.lowlevel.checkpoint()
            store.is_dead = how == "kill"
            if how != "leave":
                node.force_stop()
            caller.scope.cancel()
        store.is_dead = False
        has_left = how.startswith("leave") and not was_over
        records = len(store.at_rest())
        begun = store.has_sessions
        async with life(store, book) as planner:
            history = [] if not begun else await settled(planner)
        whole = [("user", "one two three"), ("agent", "one two three (1)")]
        assert history in ([], whole)
        if has_left:
            assert (records, book.resumed) == (0, 0)
        else:
            assert book.resumed == records
            assert history == whole or not caller.began
        if caller.done:
            assert (history, records) == (whole, 0)
        if how != "kill":
            assert len(book.did) <= 3 + (book.resumed > 0)
        assert store.is_clean
        return was_over

    async def main() -> int:
        steps = 0
        while not await ended_after(steps):
            steps += 1
        return steps

    assert simulate(main) > 20


# ---- bounds, and what is wrong


@virtual
async def test_a_turn_that_ends_its_process_each_time_is_given_up() -> None:
    store, book = in_memory(), Book()
    await cut_off(store, book, "one wait")
    for _ in range(3):
        book.waits = trio.Event()
        async with killed(store, book):
            await book.waits.wait()
    async with life(store, book) as planner:
        assert await settled(planner) == [("user", "one wait"), ("agent", "GIVEN_UP")]
        _, answer = await planner.invoke(ChatAgent.history, "s")
        assert "resumed 3 times" in answer.failed.message
        book.may_go_on.set()
        assert await ask(planner, "two") == "two (1)"
    assert (book.did, book.resumed) == (["one", "two"], 3)


@virtual
async def test_a_turn_that_waits_long_is_resumed_as_often_as_its_node_begins() -> None:
    """Such as one that waits for a person, over many deployments."""
    store, book = in_memory(), Book()
    await cut_off(store, book, "one wait")
    for _ in range(5):
        async with killed(store, book):
            await trio.sleep(61)
    book.may_go_on.set()
    async with life(store, book) as planner:
        assert (await settled(planner))[1] == ("agent", "one wait (1)")
    assert book.resumed == 6


@virtual
async def test_a_resumed_turn_that_is_kept_late_in_its_first_minute_leaves_no_record() -> None:
    """Its resumption would be counted no more while the batch that removes the record is written."""
    disk, book = simulated_disk(1), Book()
    async with trio.open_nursery() as nursery, life(SimulatedStore(disk), book) as planner:
        nursery.start_soon(ask, planner, "one wait")
        await book.waits.wait()
    async with life(SimulatedStore(disk), book) as planner:
        await trio.sleep(59)
        seconds = iter([0.0, 2.0])  # of the commit of the step, and of that which keeps the turn
        disk.seconds = lambda: next(seconds, 0.0)
        book.may_go_on.set()
        assert await settled(planner) == [("user", "one wait"), ("agent", "one wait (1)")]
    async with life(SimulatedStore(disk), book) as planner:
        await trio.sleep(1)
        assert len(await settled(planner)) == 2
    assert (book.did, book.resumed) == (["one", "wait"], 1)


@virtual
async def test_forgetting_a_session_ends_its_resumed_turn() -> None:
    store, book = in_memory(), Book()
    await cut_off(store, book, "one wait two")
    book.waits = trio.Event()
    async with life(store, book) as planner:
        await book.waits.wait()
        assert await planner.invoke(ChatAgent.forget, "s")
        await settle()
        assert await planner.invoke(ChatAgent.sessions) == []
        book.may_go_on.set()
        assert await ask(planner, "three") == "three (1)"
    assert book.did == ["one", "three"]
    assert store.is_clean


class Brief(Planner):
    session_options = SessionOptions(seconds=100.0)


@virtual
async def test_a_session_that_is_forgotten_or_expires_during_a_turn_leaves_nothing() -> None:
    for forgets in (True, False):
        store, book = in_memory(), Book()
        async with life(store, book, Brief) as planner, trio.open_nursery() as nursery:
            nursery.start_soon(ask, planner, "one wait two")
            await book.waits.wait()
            if forgets:
                assert await planner.invoke(ChatAgent.forget, "s")
            else:
                await trio.sleep(101)
                assert await planner.invoke(ChatAgent.sessions) == []
            book.may_go_on.set()
        assert book.did == ["one", "wait", "two"], "its caller waits"
        assert store.is_clean
        assert not store.has_sessions


@virtual
async def test_an_agent_that_resumes_no_turns_any_more_gives_up_what_it_finds() -> None:
    store, book = in_memory(), Book()
    await cut_off(store, book, "one wait")
    async with life(store, book, Forgetful) as planner:
        assert await settled(planner) == [("user", "one wait"), ("agent", "GIVEN_UP")]
    assert book.resumed == 0
    assert store.is_clean


@virtual
async def test_without_resumption_nothing_is_written_before_the_end() -> None:
    store, book = in_memory(), Book()
    async with trio.open_nursery() as nursery, life(store, book, Forgetful) as planner:
        nursery.start_soon(ask, planner, "one wait")
        await book.waits.wait()
        assert not store.commits
        book.may_go_on.set()
    assert not book.turns[0].is_kept


@virtual
async def test_a_node_without_a_store_keeps_no_turns() -> None:
    book = Book()
    book.may_go_on.set()
    async with life(None, book) as planner:
        assert await ask(planner, "one wait") == "one wait (1)"
    assert not book.turns[0].is_kept


class Talkative(Planner):
    """Records much."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart]:
        self.book.turns.append(turn)
        await turn.record("x" * (1 << 20))
        for _ in range(40):
            await turn.record("x" * (1 << 20))
        self.book.waits.set()
        await self.book.may_go_on.wait()
        yield "done"


@virtual
async def test_a_turn_that_records_too_much_goes_on_and_is_given_up_if_it_is_cut_off() -> None:
    store, book = in_memory(), Book()
    async with trio.open_nursery() as nursery, killed(store, book, Talkative) as planner:
        nursery.start_soon(ask, planner, "hello")
        await book.waits.wait()
    assert sum(len(value) for _, value in store.at_rest(space="chat steps")) == 0
    async with life(store, book, Talkative) as planner:
        assert await settled(planner) == [("user", "hello"), ("agent", "GIVEN_UP")]
        book.may_go_on.set()
        assert await ask(planner, "again") == "done"
    assert book.resumed == 0
    assert store.is_clean


class Odd(Planner):
    async def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart]:
        try:
            await turn.record(object())
        except TypeError as error:
            yield str(error)


@virtual
async def test_a_step_is_plain_data() -> None:
    async with life(in_memory(), Book(), Odd) as planner:
        assert (await ask(planner, "hello")).startswith("a step of a turn is plain data: ")


@virtual
async def test_a_store_that_fails_is_the_failure_of_a_turn_before_it_does_more() -> None:
    store, book = in_memory(), Book()
    async with life(store, book) as planner, trio.open_nursery() as nursery:
        has_failed = trio.Event()

        async def fail() -> None:
            with pytest.raises(ActionFailed, match="INTERNAL_ERROR"):
                await ask(planner, "one wait two three")
            has_failed.set()

        nursery.start_soon(fail)
        await book.waits.wait()
        store.fails = True
        book.may_go_on.set()
        await has_failed.wait()
        store.fails = False
        assert book.did == ["one", "wait"], "what could not be recorded is the last thing that was done"
        await trio.sleep(10)
        assert await ask(planner, "four") == "four (1)"
    assert store.is_clean
