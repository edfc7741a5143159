"""Deadlines hold for every verb that waits, near and far alike; and what waits for an agent says what for."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from lmos_actors import (
    Agent,
    ChildSpec,
    DeadlineExceeded,
    Event,
    MailboxOptions,
    Node,
    NotAllowed,
    Pool,
    Progress,
    Property,
    Ref,
    SupervisorSpec,
    action,
    event,
    invoke_all,
    open_node,
    prop,
)
from lmos_actors.bindings import ConsumedThing, fetch, remote_ref
from lmos_actors.transport import MemoryNetwork
from lmos_actors.types import Waiting
from tests.bindings.client_connections import URL as SOCKET, scripted
from tests.bindings.http_client.test_link import web_only
from tests.discovery.fake import directory_at
from tests.matrix import some

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path


DIRECTORY = "http://directory:81"
THING = "http://server/agents/clerk"
SECONDS = 5.0
GRAIN = 0.011


class Clerk(Agent, serial=True, mailbox=MailboxOptions(size=2)):
    """Takes one thing in hand at a time, and is never done with the first."""

    units: Property[str] = prop(default="celsius")
    rung: Event[str] = event()

    @action(idempotent=True)
    async def hold(self) -> None:
        await trio.sleep_forever()

    @action(idempotent=True)
    def stamp(self) -> int:
        return 1

    @action
    async def report(self, progress: Progress[float]) -> None:
        await trio.sleep_forever()

    @action
    async def many(self) -> AsyncIterator[int]:
        await trio.sleep_forever()
        yield 1


# ---- what is asked


VERBS: dict[str, Callable[[Ref[Clerk]], Awaitable[Any]]] = {}


def verb(fn: Callable[[Ref[Clerk]], Awaitable[Any]]) -> Callable[[Ref[Clerk]], Awaitable[Any]]:
    VERBS[fn.__name__.strip("_")] = fn
    return fn


@verb
async def invoke(ref: Ref[Clerk]) -> None:
    await ref.invoke(Clerk.stamp)


@verb
async def invoke_a_run(ref: Ref[Clerk]) -> None:
    await ref.invoke(Clerk.hold)


@verb
async def read(ref: Ref[Clerk]) -> None:
    await ref.read(Clerk.units)


@verb
async def write(ref: Ref[Clerk]) -> None:
    await ref.write(Clerk.units, "x")


@verb
async def read_all(ref: Ref[Clerk]) -> None:
    await ref.read_all()


@verb
async def write_many(ref: Ref[Clerk]) -> None:
    await ref.write_many(Clerk.units.to("x"))


@verb
async def observe(ref: Ref[Clerk]) -> None:
    async with ref.observe(Clerk.units):
        raise AssertionError("entered")


@verb
async def subscribe(ref: Ref[Clerk]) -> None:
    async with ref.subscribe(Clerk.rung):
        raise AssertionError("entered")


@verb
async def subscribe_all(ref: Ref[Clerk]) -> None:
    async with ref.subscribe_all():
        raise AssertionError("entered")


@verb
async def result(ref: Ref[Clerk]) -> None:
    async with ref.begin(Clerk.report) as call:
        await call.result()


@verb
async def progress(ref: Ref[Clerk]) -> None:
    async with ref.begin(Clerk.report) as call:
        async for _ in call.progress:
            raise AssertionError("none is reported")
        await call.result()


@verb
async def query(ref: Ref[Clerk]) -> None:
    async with ref.begin(Clerk.report) as call:
        for _ in range(20):
            if (await call.query()).status == "failed":
                break
            await trio.sleep(0.5)
        await call.result()


@verb
async def stream(ref: Ref[Clerk]) -> None:
    async with ref.stream(Clerk.many) as items:
        async for _ in items:
            raise AssertionError("none is given")


@verb
async def gather(ref: Ref[Clerk]) -> None:
    await invoke_all([ref], Clerk.stamp)


@verb
async def retrying(ref: Ref[Clerk]) -> None:
    await ref.retrying(attempts=None, seconds=None).invoke(Clerk.stamp)


# ---- those who do not answer


@asynccontextmanager
async def held(node: Node, agent: Any = Clerk) -> AsyncGenerator[Ref[Clerk]]:
    """Have an agent that has taken something in hand which is never done."""
    ref = await node.start_child(ChildSpec("clerk", agent))
    async with ref.begin(Clerk.hold):
        await wait_all_tasks_blocked()
        yield ref


@asynccontextmanager
async def near(_: Path) -> AsyncGenerator[Ref[Clerk]]:
    async with open_node() as node, held(node) as ref:
        yield ref


@asynccontextmanager
async def pool(_: Path) -> AsyncGenerator[Ref[Clerk]]:
    async with open_node(SupervisorSpec("root", [Pool(Clerk, 1, name="clerks")])) as node:
        ref = node.find(Clerk, "clerks")
        async with ref.begin(Clerk.hold):
            await wait_all_tasks_blocked()
            yield ref


@asynccontextmanager
async def two(**options: Any) -> AsyncGenerator[tuple[Node, MemoryNetwork]]:
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://server", network=network) as server,
        held(server),
        open_node(network=network, **options) as client,
    ):
        yield client, network


@asynccontextmanager
async def socket(_: Path) -> AsyncGenerator[Ref[Clerk]]:
    async with two() as (client, _network):
        yield await client.consume(Clerk, THING)


async def consumed_by_web(client: Node, network: MemoryNetwork, path: Path) -> Ref[Clerk]:
    text, _ = await fetch(network, THING, None)
    found = json.loads(text)
    for each in found["actions"].values():
        assert each["forms"]
    await trio.Path(path / "clerk.td.json").write_text(without_sockets(text))
    return await client.consume(Clerk, path / "clerk.td.json")


def without_sockets(text: bytes) -> str:
    found = json.loads(text)
    found["actions"].setdefault("hours", {"forms": []})
    left = json.loads(web_only(json.dumps(found).encode()))
    left["actions"].pop("hours")
    many = {"href": f"{THING}/actions/many", "op": ["invokeaction"], "subprotocol": "sse"}
    left["actions"]["many"]["forms"] = left["actions"]["many"]["forms"] or [many]
    return json.dumps(left)


@asynccontextmanager
async def web(path: Path) -> AsyncGenerator[Ref[Clerk]]:
    async with two() as (client, network):
        yield await consumed_by_web(client, network, path)


@asynccontextmanager
async def found(_: Path) -> AsyncGenerator[Ref[Clerk]]:
    async with (
        directory_at(DIRECTORY),
        open_node(listen="ws://server:80", register=DIRECTORY) as server,
        held(server),
        open_node(lookup=DIRECTORY) as client,
    ):
        await trio.sleep(1)
        yield client.find(Clerk)


@asynccontextmanager
async def chosen(_: Path) -> AsyncGenerator[Ref[Clerk]]:
    async with (
        directory_at(DIRECTORY),
        open_node(listen="ws://server:80", register=DIRECTORY) as server,
        held(server),
        open_node(lookup=DIRECTORY) as client,
    ):
        await trio.sleep(1)
        yield client.find(Clerk, spread="round_robin")


@asynccontextmanager
async def hanging_directory(_: Path) -> AsyncGenerator[Ref[Clerk]]:
    async with directory_at(DIRECTORY) as directory, open_node(lookup=DIRECTORY) as node:
        directory.hangs = True
        yield node.find(Clerk)


@asynccontextmanager
async def mute_socket(_: Path) -> AsyncGenerator[Ref[Clerk]]:
    """A peer that takes the connection and whatever is said, and never says anything."""
    async with scripted() as (peers, _node):
        ref = remote_ref(peers, Clerk, SOCKET, THING)
        await ref.ready()
        yield ref


@asynccontextmanager
async def mute_web(path: Path) -> AsyncGenerator[Ref[Clerk]]:
    """A server that accepts connections, and answers nothing."""
    async with two() as (client, network):
        ref = await consumed_by_web(client, network, path)
        others: list[Any] = []

        async def connect(*_: Any, **__: Any) -> Any:
            ours, other = memory_stream_pair()
            others.append(other)
            await trio.lowlevel.checkpoint()
            return ours

        network.connect = connect  # type: ignore[method-assign]
        yield ref


WORLDS = [near, pool, socket, web, found, chosen, hanging_directory, mute_socket, mute_web]

OF_SEVERAL = ("observe", "subscribe", "subscribe_all", "read", "write", "read_all", "write_many")
AT_ONCE: dict[str, tuple[str, ...]] = {
    "pool": OF_SEVERAL,  # a pool refuses what each member has of its own, and is subscribed to at once
    "chosen": OF_SEVERAL,
}


@pytest.mark.parametrize(
    ("world", "asked"),
    some(product(WORLDS, VERBS), of=4, besides=lambda case: case == (pool, "observe")),
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
async def test_a_deadline_holds(autojump_clock: object, tmp_path: Path, world: Any, asked: str) -> None:
    async with world(tmp_path) as ref:
        begun = trio.current_time()
        with trio.fail_after(SECONDS * 10):
            if asked in AT_ONCE.get(world.__name__, ()):
                with pytest.raises((NotAllowed, AssertionError)):
                    await VERBS[asked](ref.within(SECONDS))
                assert trio.current_time() == begun
                return
            with pytest.raises(DeadlineExceeded, match="within 5 s"):
                await VERBS[asked](ref.within(SECONDS))
        assert SECONDS - GRAIN <= trio.current_time() - begun <= SECONDS + GRAIN


@pytest.mark.parametrize("world", [mute_socket, mute_web], ids=lambda world: world.__name__)
async def test_a_cancel_ends_with_its_call(autojump_clock: object, tmp_path: Path, world: Any) -> None:
    async with world(tmp_path) as ref, ref.within(SECONDS).begin(Clerk.report) as call:
        begun = trio.current_time()
        with trio.fail_after(SECONDS * 10):
            assert (await call.cancel("enough")).status == "failed"
        assert trio.current_time() - begun <= SECONDS + GRAIN


@pytest.mark.parametrize("world", [near, pool, found, hanging_directory], ids=lambda world: world.__name__)
async def test_telling_has_a_deadline(autojump_clock: object, tmp_path: Path, world: Any) -> None:
    async with world(tmp_path) as ref:
        begun = trio.current_time()
        with trio.fail_after(SECONDS * 10):
            for _ in range(10):  # as many as there are seats; one elsewhere may take more
                try:
                    await ref.within(SECONDS).tell(Clerk.stamp)
                except DeadlineExceeded:
                    break
        assert trio.current_time() - begun <= SECONDS + GRAIN


@pytest.mark.parametrize("by_name", [False, True])
async def test_telling_a_peer_that_reads_nothing_has_a_deadline(
    autojump_clock: object, by_name: bool
) -> None:
    async with scripted() as (peers, _):
        ref = remote_ref(peers, Clerk, SOCKET, THING)
        await ref.ready()
        peers.wire.stuck = True
        late = ref.within(SECONDS)
        link: Any = ref._link
        thing = ConsumedThing(link.far, late)

        async def tell_on() -> None:
            while True:  # until the outbox is full
                await (thing.tell("stamp") if by_name else late.tell(Clerk.stamp))

        with trio.fail_after(SECONDS * 10), pytest.raises(DeadlineExceeded):
            await tell_on()
        assert trio.current_time() <= SECONDS + GRAIN


@pytest.mark.parametrize("world", [mute_socket, hanging_directory], ids=lambda world: world.__name__)
async def test_entering_a_monitor_has_a_deadline(autojump_clock: object, tmp_path: Path, world: Any) -> None:
    async with world(tmp_path) as ref:
        begun = trio.current_time()
        with trio.fail_after(SECONDS * 10), pytest.raises(DeadlineExceeded):
            async with ref.within(SECONDS).monitor():
                raise AssertionError("entered")
        assert SECONDS - GRAIN <= trio.current_time() - begun <= SECONDS + GRAIN


async def tell(ref: Ref[Clerk]) -> None:
    await ref.tell(Clerk.stamp)


async def monitor(ref: Ref[Clerk]) -> None:
    async with ref.monitor():
        raise AssertionError("entered")


@pytest.mark.parametrize("asked", [*VERBS, "tell", "monitor"])
async def test_the_error_says_what_was_waited_for(autojump_clock: object, tmp_path: Path, asked: str) -> None:
    ask = {**VERBS, "tell": tell, "monitor": monitor}[asked]
    why = "within 5 s: no answer yet from http://directory:81$"
    async with hanging_directory(tmp_path) as ref:
        with trio.fail_after(SECONDS * 10), pytest.raises(DeadlineExceeded, match=why):
            await ask(ref.within(SECONDS))


async def test_what_is_heard_after_entering_has_no_deadline(autojump_clock: object) -> None:
    async with open_node() as node:
        ref = await node.start(Clerk)
        async with ref.within(1).observe(Clerk.units) as units:
            assert await units.receive() == "celsius"
            await trio.sleep(10)
            await ref.write(Clerk.units, "kelvin")
            assert await units.receive() == "kelvin"


# ---- a thing by names


THING_VERBS: dict[str, Callable[[ConsumedThing], Awaitable[Any]]] = {
    "invoke": lambda thing: thing.invoke("stamp"),
    "read": lambda thing: thing.read("units"),
    "write": lambda thing: thing.write("units", "x"),
    "read_all": lambda thing: thing.read_all(),
    "write_many": lambda thing: thing.write_many({"units": "x"}),
    "observe": lambda thing: _entered(thing.observe("units")),
    "subscribe": lambda thing: _entered(thing.subscribe("rung")),
    "subscribe_all": lambda thing: _entered(thing.subscribe_all()),
    "stream": lambda thing: _entered(thing.stream("many")),
    "begin": lambda thing: _entered(thing.begin("report")),
}


async def _entered(manager: Any) -> None:
    async with manager as entered:
        if hasattr(entered, "result"):
            await entered.result()
        raise AssertionError("entered")


@pytest.mark.parametrize("asked", THING_VERBS)
async def test_a_deadline_holds_for_a_consumed_thing(autojump_clock: object, asked: str) -> None:
    async with two() as (client, _):
        thing = await client.consume_thing(THING)
        begun = trio.current_time()
        with trio.fail_after(SECONDS * 10), pytest.raises(DeadlineExceeded):
            await THING_VERBS[asked](thing.within(SECONDS))
        assert SECONDS - GRAIN <= trio.current_time() - begun <= SECONDS + GRAIN


# ---- pools


async def test_a_pool_tries_another_member_within_the_deadline_too(autojump_clock: object) -> None:
    async with (
        open_node(SupervisorSpec("root", [Pool(Clerk, 2, name="clerks")])) as node,
        trio.open_nursery() as nursery,
    ):
        clerks = node.root.pool("clerks")
        first, second = clerks.members
        answers: list[int] = []

        async def ask(ref: Ref[Clerk]) -> None:
            answers.append(await ref.within(SECONDS).invoke(Clerk.stamp))

        async with second.begin(Clerk.hold):
            await wait_all_tasks_blocked()
            second.tell_nowait(Clerk.stamp)
            second.tell_nowait(Clerk.stamp)
            await ask(clerks)
            nursery.start_soon(ask, clerks)
            await wait_all_tasks_blocked()
            assert (second.mailbox_statistics().parked, answers) == (1, [1])
            nursery.start_soon(clerks.resize, 1)
            await wait_all_tasks_blocked()
            assert answers == [1, 1]
        assert first.statistics().handled == 2


async def test_a_pool_waits_for_its_size_within_the_deadline(autojump_clock: object) -> None:
    tree = SupervisorSpec("root", [Pool(Clerk, 2, name="clerks")])
    async with open_node(tree) as node:
        clerks = node.root.pool("clerks")
        async with clerks.members[1].begin(Clerk.hold):
            begun = trio.current_time()
            with pytest.raises(DeadlineExceeded):
                await clerks.within(SECONDS).resize(1)
            assert trio.current_time() - begun <= SECONDS + GRAIN
        assert clerks.size == 1


# ---- ready


@asynccontextmanager
async def nobody(_: Path) -> AsyncGenerator[tuple[Any, str]]:
    async with open_node() as node:
        yield (node, node.find(Clerk, "clerk")), "no agent 'clerk' on this node that is a Clerk"


@asynccontextmanager
async def down(_: Path) -> AsyncGenerator[tuple[Any, str]]:
    async with open_node() as node:
        ref = await node.start_child(ChildSpec("clerk", Clerk))
        await node.root.terminate_child("clerk")
        yield (node, ref), "it is down until it is started again"


@asynccontextmanager
async def no_directory(_: Path) -> AsyncGenerator[tuple[Any, str]]:
    async with open_node(lookup=DIRECTORY) as node:
        ref = node.find(Clerk)
        yield (node, ref), "it is not of this node, and cannot connect to http://directory:81"


@asynccontextmanager
async def slow_directory(_: Path) -> AsyncGenerator[tuple[Any, str]]:
    async with directory_at(DIRECTORY) as directory, open_node(lookup=DIRECTORY) as node:
        directory.hangs = True
        yield (node, node.find(Clerk)), "no answer yet from http://directory:81"


@asynccontextmanager
async def empty_directory(_: Path) -> AsyncGenerator[tuple[Any, str]]:
    async with directory_at(DIRECTORY), open_node(lookup=DIRECTORY) as node:
        yield (node, node.find(Clerk)), "no agent 'Clerk' on this node and in its directories"


@asynccontextmanager
async def no_server(_: Path) -> AsyncGenerator[tuple[Any, str]]:
    async with scripted(up=False) as (peers, node):
        ref = remote_ref(peers, Clerk, SOCKET, THING)
        yield (node, ref), "no connection to ws://server/ws: refused"


@asynccontextmanager
async def no_web(path: Path) -> AsyncGenerator[tuple[Any, str]]:
    network = MemoryNetwork()
    async with open_node(network=network) as client:
        async with open_node(listen="ws://server", network=network) as server, held(server):
            ref = await consumed_by_web(client, network, path)
        yield (client, ref), "cannot connect to http://server"


@asynccontextmanager
async def retrying_nobody(_: Path) -> AsyncGenerator[tuple[Any, str]]:
    async with open_node() as node:
        yield (node, node.find(Clerk, "clerk").retrying()), "no agent 'clerk' on this node"


@asynccontextmanager
async def no_member(_: Path) -> AsyncGenerator[tuple[Any, str]]:
    async with open_node(SupervisorSpec("root", [Pool(Clerk, 2, name="clerks")])) as node:
        await node.root.terminate_child("clerks")
        yield (node, node.root.pool("clerks")), "none of its 2 members is running"


MISSING = [
    nobody, down, no_directory, slow_directory, empty_directory, no_server, no_web, retrying_nobody,
    no_member,
]  # fmt: skip


@pytest.mark.parametrize("world", MISSING, ids=lambda world: world.__name__)
async def test_ready_says_what_it_waits_for(
    autojump_clock: object, tmp_path: Path, caplog: pytest.LogCaptureFixture, world: Any
) -> None:
    caplog.set_level(logging.WARNING, "lmos_actors")
    async with world(tmp_path) as ((node, ref), why), trio.open_nursery() as nursery:
        begun = trio.current_time()
        errors: list[BaseException] = []

        async def wait() -> None:
            try:
                with trio.fail_after(SECONDS * 10):
                    await ref.within(SECONDS).ready()
            except DeadlineExceeded as error:
                errors.append(error)
            errors.append(TimeoutError(trio.current_time() - begun))

        async def cancelled() -> None:
            try:
                await ref.ready()
            except BaseException as error:
                errors.append(error)
                raise

        scope = trio.CancelScope()

        async def given_up() -> None:
            with scope:
                await cancelled()

        nursery.start_soon(wait, name="patient")
        nursery.start_soon(given_up, name="short")
        await trio.sleep(0.9)
        assert not caplog.messages
        await trio.sleep(0.2)
        lines = [line for line in caplog.messages if "ready()" in line]
        assert len(lines) == 1  # both wait for the same
        assert why in lines[0]
        assert "(2 tasks)" in lines[0]
        edges = [edge for edge in node.waiting_graph().edges if edge.kind == "ready"]
        assert {edge.run for edge in edges} == {"patient", "short"}
        assert all(edge == Waiting(None, ref.path, "ready", "", edge.run, edge.why) for edge in edges)
        assert all(why in str(edge) for edge in edges)
        assert node.waiting_graph().cycles() == ()
        scope.cancel()
        await wait_all_tasks_blocked()
        assert why in errors[0].__notes__[0]
        await trio.sleep(SECONDS)
        assert isinstance(errors[1], DeadlineExceeded)
        assert str(errors[1]).startswith(f"{ref.path!r} was not ready within 5 s: ")
        assert why in str(errors[1]) or "no answer" in why
        assert errors[2].args[0] <= SECONDS + GRAIN
        assert [edge for edge in node.waiting_graph().edges if edge.kind == "ready"] == []


async def test_an_agent_that_waits_is_named_in_the_graph(autojump_clock: object) -> None:
    class Asker(Agent):
        @action
        async def go(self) -> None:
            await self.find(Clerk, "clerk").ready()

    async with open_node() as node:
        asker = await node.start(Asker)
        async with asker.begin(Asker.go):
            await wait_all_tasks_blocked()
            why = "no agent 'clerk' on this node that is a Clerk; "
            why += "this node asks no directory: open_node(lookup=URL) names one"
            assert Waiting("asker", "clerk", "ready", "", "go", why) in node.waiting_graph().edges
            assert f"asker (run of 'go') waits for clerk to be ready: {why}" in node.dump()
            await node.start_child(ChildSpec("clerk", Clerk))


async def test_an_agent_that_appears_here_is_not_held_up_by_a_directory(autojump_clock: object) -> None:
    async with directory_at(DIRECTORY) as directory, open_node(lookup=DIRECTORY) as node:
        directory.hangs = True
        begun = trio.current_time()

        async def later() -> None:
            await trio.sleep(2)
            await node.start(Clerk)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(later)
            await node.find(Clerk).ready()
        assert trio.current_time() - begun == 2


async def test_many_who_wait_write_few_lines(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "lmos_actors")
    async with open_node() as node, trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(node.find(Clerk, f"clerk-{number}").ready)
        await trio.sleep(3)
        assert len(caplog.messages) == 11
        assert caplog.messages[-1] == "ready() has waited 1 s for 990 more agents"
        nursery.cancel_scope.cancel()


async def test_each_wait_is_said_after_its_own_second(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "lmos_actors")
    async with open_node() as node, trio.open_nursery() as nursery:
        with trio.move_on_after(0.5):
            await node.find(Clerk, "first").ready()
        nursery.start_soon(node.find(Clerk, "second").ready)
        await trio.sleep(0.875)
        assert caplog.messages == []  # though a second has gone by since the first began
        await trio.sleep(0.25)
        assert [line.partition(":")[0] for line in caplog.messages] == ["ready() has waited 1 s for 'second'"]
        nursery.cancel_scope.cancel()


async def test_an_agent_that_runs_is_ready_without_a_wait(autojump_clock: object) -> None:
    async with open_node() as node:
        ref = await node.start(Clerk)
        assert ready_calls(ref) <= 3


def ready_calls(ref: Ref[Any]) -> int:
    """Count the functions written in Python that `ready()` calls of an agent that runs."""
    made = 0

    def profile(_frame: object, event: str, _arg: object) -> None:
        nonlocal made
        made += event == "call"

    waiting, before = ref.ready(), sys.getprofile()
    sys.setprofile(profile)
    try:
        waiting.send(None)
    except StopIteration:
        return made
    finally:
        sys.setprofile(before)
    raise AssertionError("it waits")


async def test_a_search_ends_when_it_is_cancelled(autojump_clock: object) -> None:
    async with directory_at(DIRECTORY) as directory, open_node(lookup=DIRECTORY) as node:
        directory.hangs = True
        with trio.move_on_after(SECONDS) as scope:
            await node.search(Clerk)
        assert scope.cancelled_caught
        assert trio.current_time() <= SECONDS + 1
