"""What an agent does beside its turns and runs is the agent's: tasks, its lifespan, threads, portals."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from lmos_actors import Agent, ChildSpec, Event, action, current_request, event, open_node
from lmos_actors.transport import MemoryNetwork
from lmos_actors.types import Waiting

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Desk(Agent):
    """Takes notes, and knows who asks."""

    rang: Event[str] = event()

    @action
    def note(self, text: str) -> str | None:
        return current_request().consumer

    @action
    async def hold(self) -> None:
        await trio.sleep_forever()


class Clerk(Agent):
    """Asks the desk from wherever it has code."""

    node: Any = None

    def desk(self) -> Any:
        return self.find(Desk)

    async def ask(self, text: str = "asked") -> None:
        await self.desk().invoke(Desk.note, text)

    @action
    def in_turn(self) -> None:
        self.nursery.start_soon(self.ask)

    @action
    async def in_run(self) -> None:
        self.nursery.start_soon(self.ask)

    @action
    async def started_in_run(self) -> None:
        async def ready(task_status: trio.TaskStatus[None]) -> None:
            await self.ask()
            task_status.started()
            await self.ask()

        await self.nursery.start(ready)
        await self.ask()

    @action
    async def nested(self) -> None:
        async def outer() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.ask)
            self.nursery.start_soon(self.ask)

        self.nursery.start_soon(outer)

    @action
    async def one_way(self) -> None:
        async def tell() -> None:
            await self.desk().tell(Desk.note, "told")
            self.desk().tell_nowait(Desk.note, "told")
            self.send(self.desk(), Desk.note, "sent")
            self.group("desks", Desk).broadcast(Desk.note, "all")

        self.nursery.start_soon(tell)

    @action
    async def publish(self) -> None:
        async def publish() -> None:
            self.topic("news", str).publish("new")

        self.nursery.start_soon(publish)

    @action
    async def by_thread(self) -> None:
        def work() -> None:
            trio.from_thread.run(self.ask)
            trio.from_thread.run_sync(lambda: self.desk().tell_nowait(Desk.note, "told"))

        await self.to_thread(work)

    @action
    async def by_thread_of_a_task(self) -> None:
        async def work() -> None:
            await self.to_thread(trio.from_thread.run, self.ask)
            await trio.to_thread.run_sync(trio.from_thread.run, self.ask)
            done.set()

        done = trio.Event()
        self.nursery.start_soon(work)
        await done.wait()

    @action
    async def by_portal(self) -> None:
        portal, desk = self.node().portal(), self.desk()

        def work() -> None:
            portal.invoke(desk, Desk.note, "asked")
            portal.tell(desk, Desk.note, "told")
            portal.run(self.ask)

        await self.to_thread(work)

    @action
    async def by_asyncio(self) -> None:
        portal, desk = self.node().portal(), self.desk()

        async def work() -> None:
            await portal.aio.invoke(desk, Desk.note, "asked")
            await asyncio.gather(portal.aio.invoke(desk, Desk.note, "asked"))

        await self.to_thread(lambda: asyncio.run(work()))

    @action
    async def who(self) -> list[str]:
        """Give what tasks know of the request that they were started by."""
        found: list[str] = []

        async def look() -> None:
            found.append(current_request().affordance)

        self.nursery.start_soon(look)
        while not found:
            await trio.lowlevel.checkpoint()
        return found


class Holder(Clerk):
    """Asks while it is entered, while it lives, and while it is left."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        await self.ask("entering")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.ask, "living")
            yield
        await self.ask("leaving")


class Eager(Clerk):
    """Starts a task of its own at once."""

    def started(self) -> None:
        self.nursery.start_soon(self.ask)


class Log:
    """Keeps every record."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def record(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
        self.records.append({"kind": kind, "agent": agent, **fields})


def senders(log: Log, affordance: str = "note") -> list[tuple[str, str]]:
    """Give who has sent each message, and in which trace."""
    return [
        (record["from"], record["trace"])
        for record in log.records
        if record["kind"] == "sent" and record["affordance"] == affordance and "trace" in record
    ]


WAYS = [
    "in_turn", "in_run", "started_in_run", "nested", "one_way", "by_thread", "by_thread_of_a_task",
    "by_portal", "by_asyncio",
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_what_its_tasks_send_is_the_agents(way: str) -> None:
    log = Log()
    async with open_node(instrument=log) as node:
        await node.start(Desk)
        clerk = await node.start(Clerk, node=lambda: node)
        await clerk.invoke(getattr(Clerk, way))
        await wait_all_tasks_blocked()
    found = senders(log)
    assert found
    assert {who for who, _ in found} == {"clerk"}
    (began,) = [trace for _, trace in senders(log, way)]
    assert {trace for _, trace in found} == {began}, "it is in the trace of the message that began it"


async def test_what_it_publishes_is_the_agents() -> None:
    log = Log()
    async with open_node(instrument=log) as node, node.topic("news", str).subscribe() as news:
        clerk = await node.start(Clerk)
        await clerk.invoke(Clerk.publish)
        assert await news.receive() == "new"
    assert [record["agent"] for record in log.records if record.get("topic") == "news"] == ["clerk"]


@pytest.mark.parametrize("cls", [Holder, Eager])
async def test_what_is_sent_before_the_first_message_and_after_the_last_is_the_agents(cls: Any) -> None:
    log = Log()
    async with open_node(instrument=log) as node:
        await node.start(Desk)
        await node.start_child(ChildSpec("clerk", cls))
        await wait_all_tasks_blocked()
        await node.root.terminate_child("clerk")
    found = senders(log)
    assert [who for who, _ in found] == ["clerk"] * (3 if cls is Holder else 1)
    assert len({trace for _, trace in found}) == len(found), "nothing began them: each begins a trace"


async def test_without_an_instrument_the_agent_is_the_sender_too() -> None:
    async with open_node() as node:
        desk = await node.start(Desk)
        await node.start(Clerk)
        heard: list[str | None] = []

        class Eye(Clerk):
            @action
            def look(self) -> None:
                async def look() -> None:
                    heard.append(await self.desk().invoke(Desk.note, "x"))

                self.nursery.start_soon(look)

        eye = await node.start(Eye)
        await eye.invoke(Eye.look)
        await wait_all_tasks_blocked()
        assert heard == ["eye"]
        assert await desk.invoke(Desk.note, "x") is None


async def test_a_far_desk_is_told_who_asks() -> None:
    log, network = Log(), MemoryNetwork()
    async with (
        open_node(listen="ws://server", network=network, instrument=log) as server,
        open_node(network=network, instrument=Log()) as node,
    ):
        await server.start(Desk)
        far = await node.consume(Desk, "http://server/agents/desk")

        class Distant(Clerk):
            def desk(self) -> Any:
                return far

        clerk = await node.start_child(ChildSpec("clerk", Distant))
        async with clerk.subscribe_all():
            await clerk.invoke(Distant.in_turn)
            await clerk.invoke(Distant.one_way)
            while len(senders(log)) < 4:
                await trio.lowlevel.checkpoint()
    assert {who for who, _ in senders(log)} == {"clerk"}


async def test_a_task_that_waits_is_the_agents_in_the_waiting_graph() -> None:
    async with open_node() as node:
        desk = await node.start(Desk)

        class Patient(Clerk):
            @action
            def wait(self) -> None:
                self.nursery.start_soon(self.desk().invoke, Desk.hold, name="waiting")

            @action
            async def wait_in_run(self) -> None:
                self.nursery.start_soon(self.desk().invoke, Desk.hold, name="waiting too")

        clerk = await node.start_child(ChildSpec("clerk", Patient))
        await clerk.invoke(Patient.wait)
        await wait_all_tasks_blocked()
        await clerk.invoke(Patient.wait_in_run)
        await wait_all_tasks_blocked()
        graph = node.waiting_graph()
        assert graph.edges == (
            Waiting("clerk", "desk", "answer", "hold", "waiting", own_task=True),
            Waiting("clerk", "desk", "concurrency", "hold", "waiting too", own_task=True),
        )
        assert str(graph.edges[0]) == "clerk (its task 'waiting') waits for the answer to 'hold' from desk"
        assert desk.statistics().running == 1


async def test_a_run_whose_task_waits_for_it_is_in_no_circle() -> None:
    """The run goes on while its agent's task waits for an answer that the run will help to give."""

    class One(Agent):
        @action
        async def begin(self) -> None:
            self.nursery.start_soon(self.find(Two).invoke, Two.ask_back)
            await trio.sleep_forever()

    class Two(Agent):
        @action
        async def ask_back(self) -> None:
            await self.find(One).invoke(One.begin)

    async with open_node() as node:
        one = await node.start(One)
        await node.start(Two)
        async with one.begin(One.begin):
            await wait_all_tasks_blocked()
            assert node.waiting_graph().cycles() == ()


async def test_a_dead_letter_of_a_task_names_the_agent() -> None:
    async with open_node() as node:
        await node.start(Desk)
        clerk = await node.start(Clerk)
        await node.root.terminate_child("desk")

        class Late(Clerk):
            @action
            def tell(self) -> None:
                async def tell() -> None:
                    self.send(self.desk(), Desk.note, "late")

                self.nursery.start_soon(tell)

        del clerk
        late = await node.start(Late)
        await late.invoke(Late.tell)
        await wait_all_tasks_blocked()
        assert [letter.sender for letter in node.dead_letters] == ["late"]


async def test_a_task_knows_the_request_of_the_run_that_started_it() -> None:
    async with open_node() as node:
        await node.start(Desk)
        clerk = await node.start(Clerk)
        assert await clerk.invoke(Clerk.who) == ["who"]

        class Nobody(Clerk):
            def started(self) -> None:
                self.nursery.start_soon(self.look)

            async def look(self) -> None:
                with pytest.raises(LookupError, match="not started by a run"):
                    current_request()

        await node.start(Nobody)
        await wait_all_tasks_blocked()


async def test_a_portal_of_another_node_does_not_know_the_caller() -> None:
    log = Log()
    async with open_node(instrument=log) as node, open_node() as other:
        desk = await node.start(Desk)

        class Stranger(Clerk):
            @action
            async def ask_there(self) -> None:
                portal = node.portal()
                await self.to_thread(lambda: portal.invoke(desk, Desk.note, "x"))

        stranger = await other.start(Stranger)
        await stranger.invoke(Stranger.ask_there)
    assert [who for who, _ in senders(log)] == ["user"]


async def test_a_task_that_is_started_while_the_starter_is_cancelled_leaves_its_mark_alone(
    autojump_clock: object,
) -> None:
    """`nursery.start` gives its caller back who it was, whatever way it ends."""

    class Starter(Clerk):
        @action
        async def go(self) -> list[str]:
            async def never(task_status: trio.TaskStatus[None]) -> None:
                await trio.sleep_forever()

            with trio.move_on_after(1):
                await self.nursery.start(never)
            return [current_request().affordance]

    async with open_node() as node:
        starter = await node.start(Starter)
        assert await starter.invoke(Starter.go) == ["go"]
