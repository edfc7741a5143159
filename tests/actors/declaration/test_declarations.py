"""What people get wrong on their first day is refused where it is written, in words that help."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    Event,
    InvalidInput,
    NotAllowed,
    NotFound,
    Progress,
    Property,
    Ref,
    action,
    event,
    open_node,
    prop,
)
from lmos_actors.testing import open_test_node
from lmos_actors.transport import MemoryNetwork


class Counter(Agent):
    count: Property[int] = prop(default=0)
    steps: int = 0

    passed: Event[int] = event()

    @action
    def add(self, number: int) -> int:
        self.count += number
        return self.count

    def unseen(self) -> int:
        return self.count


# ---- classes


def test_progress_in_a_def_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.f: Progress is for an async def"):

        class Wrong(Agent):
            @action
            def f(self, progress: Progress[int]) -> None: ...


def test_a_lifespan_that_is_no_context_manager_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.lifespan needs @asynccontextmanager"):

        class Wrong(Agent):
            async def lifespan(self) -> AsyncIterator[None]:
                yield


def test_a_field_of_dataclasses_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.seen: use attrs\.field\(\.\.\.\), not that of dataclasses"):

        class Wrong(Agent):
            seen: dict[str, int] = dataclasses.field(default_factory=dict)


def test_a_ref_in_a_message_is_refused_with_the_way_out() -> None:
    with pytest.raises(TypeError, match="an agent gets refs by its constructor"):

        class Wrong(Agent):  # pyright: ignore[reportUnusedClass]
            @action
            def f(self, who: Ref[Counter]) -> None: ...


# ---- verbs


class Clumsy(Agent):
    @action
    def send_to(self, case: int) -> None:
        ref: Any = self if case == 1 else self.ref
        handle: Any = self.send_to if case == 2 else Clumsy.send_to
        self.send(ref, handle, case)

    @action
    def overdo(self) -> None:
        send: Any = self.send
        send(self.ref, Clumsy.ring, 1)

    @action
    def ring(self) -> None:
        self.after(1, self.noise())

    def noise(self) -> Any:
        return None

    @action
    async def forget(self) -> None:
        self.to_thread(int)


@pytest.mark.parametrize("case", [1, 2])
async def test_what_cannot_be_sent_to_is_named(virtual_clock: object, case: int) -> None:
    async with open_test_node() as node:
        clumsy = await node.start(Clumsy)
        with pytest.raises(AgentDied, match="send takes a ref and an action's handle, not "):
            await clumsy.invoke(Clumsy.send_to, case)


async def test_a_turn_that_was_called_is_no_turn(virtual_clock: object) -> None:
    async with open_test_node() as node:
        clumsy = await node.start(Clumsy)
        with pytest.raises(AgentDied, match=r"after\(\) takes a turn and its arguments, not None"):
            await clumsy.invoke(Clumsy.ring)


async def test_the_crash_report_of_wrong_arguments_tells_no_inner_story(virtual_clock: object) -> None:
    async with open_test_node() as node:
        clumsy = await node.start(Clumsy)
        with pytest.raises(AgentDied, match="takes 0 positional arguments, not 1"):
            await clumsy.invoke(Clumsy.overdo)
        assert "while handling" not in str(node.crash_reports[-1])


def test_a_forgotten_await_names_the_verb() -> None:
    async def main() -> None:
        async with open_node() as node:
            await (await node.start(Clumsy)).invoke(Clumsy.forget)

    with pytest.warns(RuntimeWarning, match=r"'self\.to_thread' was never awaited"):
        trio.run(main)


# ---- refs


async def refusal(counter: Ref[Counter], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        await counter.invoke(Counter.add, *args, **kwargs)
    return caught.value.message


async def test_arguments_that_do_not_fit_are_named(virtual_clock: object) -> None:
    async with open_test_node() as node:
        counter = await node.start(Counter)
        assert (
            await refusal(counter, nmber=1) == "Counter.add has no parameter 'nmber', did you mean 'number'?"
        )
        assert await refusal(counter) == "Counter.add needs 'number'"
        assert await refusal(counter, 1, 2) == "Counter.add takes 1 positional argument, not 2"
        assert counter.statistics().handled == counter.statistics().accepted


async def test_the_wrong_verb_names_the_right_one(virtual_clock: object) -> None:
    async with open_test_node() as node:
        counter: Any = await node.start(Counter)
        with pytest.raises(NotAllowed, match="'count' of counter is a property: read it"):
            await counter.invoke(Counter.count)
        with pytest.raises(TypeError, match="a field that is no property is the agent's own"):
            await counter.read(Counter.steps)
        with pytest.raises(TypeError, match=r"not 'count'$"):
            await counter.read("count")
        with pytest.raises(TypeError, match=r"the method Counter\.unseen; write @action above it"):
            await counter.invoke(Counter.unseen)
        with pytest.raises(TypeError, match=r"of a property, ref\.read gives the value, and ref\.observe"):
            counter.subscribe(Counter.count)
        with pytest.raises(TypeError, match=r"events come from ref\.subscribe"):
            counter.observe(Counter.passed)
        with pytest.raises(TypeError, match=r"an action is carried out by ref\.invoke or ref\.tell"):
            counter.observe(Counter.add)


def test_a_node_that_is_not_opened_as_a_block_says_how_it_is() -> None:
    usage = r"open_node\(\) opens a block: async with open_node\(\.\.\.\) as node:"
    opened: Any = open_node()
    with pytest.raises(AttributeError, match=usage):
        opened.start(Counter)
    with pytest.raises(TypeError, match=usage):
        opened.__await__()
    with pytest.raises(TypeError, match=usage), opened:
        pass


async def test_who_is_sought_on_a_node_without_a_directory_is_told_so(virtual_clock: object) -> None:
    async with open_test_node() as node:
        with pytest.raises(NotFound, match=r"this node asks no directory: open_node\(lookup=URL\) names one"):
            await node.find(Counter).invoke(Counter.add, 1)


class Ticker(Agent):
    @action
    async def ticks(self, number: int) -> AsyncIterator[int]:
        for tick in range(number):
            yield tick


@pytest.mark.parametrize("far", [False, True])
async def test_a_stream_is_neither_invoked_nor_iterated_at_once(virtual_clock: object, far: bool) -> None:
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://there:80", network=network) as there,
        open_node(network=network) as here,
    ):
        ticker: Any = await there.start(Ticker)
        if far:
            ticker = await here.consume(Ticker, "http://there/agents/ticker")
        with pytest.raises(TypeError, match=r"ticks.* has many outputs.* async with ref\.stream"):
            await ticker.invoke(Ticker.ticks, 3)
        with pytest.raises(TypeError, match=r"a stream is entered.*: async with ref\.stream"):
            [tick async for tick in ticker.stream(Ticker.ticks, 3)]
        async with ticker.stream(Ticker.ticks, 3) as items:
            assert [item async for item in items] == [0, 1, 2]


async def test_what_is_looked_for_in_the_wrong_way_is_named(virtual_clock: object) -> None:
    async with open_test_node() as node:
        counter, find = await node.start(Counter), node.find
        with pytest.raises(TypeError, match="find takes an agent class, then perhaps a name, not 'counter'"):
            await find("counter").invoke(Counter.add, 1)
        with pytest.raises(NotFound, match="no agent 'ben' on this node that is a Counter"):
            await find(Counter, "ben").invoke(Counter.add, 1)
        with pytest.raises(TypeError, match="a supervisor knows its children by name"):
            await node.root.terminate_child(counter)


async def test_who_is_not_there_is_told_of_in_words(virtual_clock: object) -> None:
    async with open_test_node() as node:
        counter = await node.start(Counter)
        await node.root.terminate_child("counter")
        with pytest.raises(AgentUnavailable, match=r"'counter' .*: down until it is started again"):
            await counter.invoke(Counter.add, 1)


# ---- nodes


def test_a_node_without_trio_says_where_it_goes() -> None:
    async def main() -> None:
        async with open_node():
            pass

    with pytest.raises(RuntimeError, match=r"open_node needs trio\.run"):
        asyncio.run(main())


def test_a_ref_in_another_thread_is_refused_and_hangs_nobody() -> None:
    def outside(counter: Ref[Counter]) -> None:
        with pytest.raises(RuntimeError, match=r"others use node\.portal"):
            counter.tell_nowait(Counter.add, 1)

    async def main() -> None:
        async with open_node() as node:
            counter = await node.start(Counter)
            await trio.testing.wait_all_tasks_blocked()
            await trio.to_thread.run_sync(outside, counter)
            with trio.fail_after(10):
                await counter.invoke(Counter.add, 1)
            counts = counter.statistics()
            assert (counts.accepted, counts.handled) == (2, 2)

    trio.run(main)
