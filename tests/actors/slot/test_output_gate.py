"""Every verb by which code of a durable agent puts something out: nothing leaves before its state is kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    AgentError,
    ChildSpec,
    Event,
    InvalidInput,
    Pool,
    Progress,
    Property,
    Ref,
    action,
    ephemeral,
    event,
    open_node,
    prop,
)
from lmos_actors.bindings import fetch
from lmos_actors.transport import MemoryNetwork
from tests.persistence.stores import StoreOfTest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from lmos_actors import Node

SEEN: list[str] = []
"""What others have seen of the agent."""


class Witness(Agent):
    level: Property[int] = prop(default=0)

    def started(self) -> None:
        self.join_group("witnesses")

    @action
    def take(self, rows: list[int] | None = None) -> int:
        SEEN.append("taken" if rows is None else f"taken {rows}")
        return 1

    @action
    async def gather(self, rows: AsyncIterator[int]) -> int:
        async for row in rows:
            SEEN.append(f"row {row}")
        return 1

    @action
    async def count(self) -> AsyncIterator[int]:
        SEEN.append("counting")
        yield 1


class Child(Agent):
    def started(self) -> None:
        SEEN.append("child")


class Putter(Agent, durable=True, behaviours=("open", "shut")):
    n: int = 0
    rows: list[int] = attrs.field(factory=list)
    level: Property[int] = prop(default=0)
    done: Event[int] = event()
    to: dict[str, Any] = ephemeral(factory=dict)

    @action
    def turn(self, verb: str) -> int:
        self.n += 1
        TURNS[verb][0](self)
        return self.n

    @action(snapshot_safe=True)
    async def run(self, verb: str) -> int:
        await trio.lowlevel.checkpoint()
        self.n += 1
        await RUNS[verb][0](self)
        return self.n

    @action(snapshot_safe=True)
    async def report(self, progress: Progress[int]) -> None:
        await trio.lowlevel.checkpoint()
        self.n += 1
        progress.report(1)
        await trio.sleep_forever()

    @action(snapshot_safe=True)
    async def items(self) -> AsyncIterator[int]:
        self.n += 1
        yield 1
        await trio.sleep_forever()

    @action(snapshot_safe=True)
    async def take_numbers(self, rows: AsyncIterator[int]) -> None:
        self.n += 1
        async for _ in rows:
            pass

    @action(when="open")
    def knock(self) -> None: ...

    @action(snapshot_safe=True)
    async def give_later(self, name: str) -> int:
        return await self.to[name].invoke(Witness.gather, self.rows_later())  # type: ignore[no-any-return]

    async def rows_later(self) -> AsyncIterator[int]:
        yield 1
        await self.to["go on"].wait()
        self.n += 1
        yield 2

    def later(self) -> None:
        self.n += 1
        self.done.emit(1)

    def send_rows(self, ref: Ref[Witness]) -> None:
        """Send what a later turn changes before the message leaves."""
        self.rows = [1]
        self.send(ref, Witness.take, self.rows)
        self.rows.append(2)

    async def rows_one_by_one(self) -> AsyncIterator[int]:
        for row in (1, 2):
            self.n += 1
            yield row


def publish(agent: Putter) -> None:
    agent.topic("news", int).publish(1)


def fail(agent: Putter) -> None:
    raise ActionFailed("no")


def shut(agent: Putter) -> None:
    agent.become("shut")


TURNS: dict[str, tuple[Callable[[Putter], None], str]] = {
    "answer": (lambda a: None, "answered"),
    "failure": (fail, "ActionFailed"),
    "event": (lambda a: a.done.emit(1), "event"),
    "property": (lambda a: setattr(a, "level", 1), "level"),
    "send": (lambda a: a.send(a.to["near"], Witness.take), "taken"),
    "send to pool": (lambda a: a.send(a.to["pool"], Witness.take), "taken"),
    "send to found": (lambda a: a.send(a.find(Witness, "witness"), Witness.take), "taken"),
    "send to a neighbour node": (lambda a: a.send(a.to["neighbour"], Witness.take), "taken"),
    "tell_nowait to a neighbour node": (lambda a: a.to["neighbour"].tell_nowait(Witness.take), "taken"),
    "send by retrying": (lambda a: a.send(a.to["near"].retrying(), Witness.take), "taken"),
    "send over frames": (lambda a: a.send(a.to["far"], Witness.take), "taken"),
    "send over HTTP": (lambda a: a.send(a.to["http"], Witness.take), "taken"),
    "send what is changed": (lambda a: a.send_rows(a.to["near"]), "taken [1]"),
    "send far what is changed": (lambda a: a.send_rows(a.to["far"]), "taken [1]"),
    "send over HTTP what is changed": (lambda a: a.send_rows(a.to["http"]), "taken [1]"),
    "send to pool what is changed": (lambda a: a.send_rows(a.to["pool"]), "taken [1]"),
    "send_after": (lambda a: a.send_after(0, a.to["near"], Witness.take) and None, "taken"),
    "send_after far": (lambda a: a.send_after(0, a.to["far"], Witness.take) and None, "taken"),
    "tell_nowait": (lambda a: a.to["near"].tell_nowait(Witness.take), "taken"),
    "tell_nowait to pool": (lambda a: a.to["pool"].tell_nowait(Witness.take), "taken"),
    "tell_nowait to found": (lambda a: a.find(Witness, "witness").tell_nowait(Witness.take), "taken"),
    "tell_nowait over frames": (lambda a: a.to["far"].tell_nowait(Witness.take), "taken"),
    "tell_nowait over HTTP": (lambda a: a.to["http"].tell_nowait(Witness.take), "taken"),
    "publish": (publish, "published"),
    "broadcast": (lambda a: a.group("witnesses", Witness).broadcast(Witness.take) and None, "taken"),
    "timer": (lambda a: a.after(0, a.later) and None, "event"),
    "stop": (lambda a: a.stop(), "down"),
    "shut": (shut, "answered"),
}
"""What turns put out, and what others see of it."""


async def open_call(agent: Putter, name: str) -> None:
    async with agent.to[name].begin(Witness.take) as call:
        await call.result()


async def open_stream(agent: Putter, name: str) -> None:
    async with agent.to[name].stream(Witness.count) as items:
        async for _ in items:
            pass


async def open_call_of_thing(agent: Putter) -> None:
    async with agent.to["thing"].begin("take") as call:
        await call.result()


async def own_task(agent: Putter) -> None:
    agent.nursery.start_soon(agent.to["near"].invoke, Witness.take)


async def sync(verb: Callable[[Putter], Any], agent: Putter) -> None:
    verb(agent)
    await trio.sleep(3600)


RUNS: dict[str, tuple[Callable[[Putter], Awaitable[Any]], str]] = {
    "invoke": (lambda a: a.to["near"].invoke(Witness.take), "taken"),
    "invoke found": (lambda a: a.find(Witness, "witness").invoke(Witness.take), "taken"),
    "invoke a neighbour node": (lambda a: a.to["neighbour"].invoke(Witness.take), "taken"),
    "tell a neighbour node": (lambda a: a.to["neighbour"].tell(Witness.take), "taken"),
    "begin at a neighbour node": (lambda a: open_call(a, "neighbour"), "taken"),
    "write at a neighbour node": (lambda a: a.to["neighbour"].write(Witness.level, 1), "written"),
    "tell_nowait to a neighbour node in a run": (
        lambda a: sync(TURNS["tell_nowait to a neighbour node"][0], a),
        "taken",
    ),
    "invoke pool": (lambda a: a.to["pool"].invoke(Witness.take), "taken"),
    "invoke over frames": (lambda a: a.to["far"].invoke(Witness.take), "taken"),
    "invoke over HTTP": (lambda a: a.to["http"].invoke(Witness.take), "taken"),
    "invoke by retrying": (lambda a: a.to["near"].retrying().invoke(Witness.take), "taken"),
    "invoke by name": (lambda a: a.to["thing"].invoke("take"), "taken"),
    "begin by name": (open_call_of_thing, "taken"),
    "tell by name": (lambda a: a.to["thing"].tell("take"), "taken"),
    "write": (lambda a: a.to["near"].write(Witness.level, 1), "written"),
    "write far": (lambda a: a.to["far"].write(Witness.level, 1), "written"),
    "begin": (lambda a: open_call(a, "near"), "taken"),
    "begin over frames": (lambda a: open_call(a, "far"), "taken"),
    "begin over HTTP": (lambda a: open_call(a, "http"), "taken"),
    "stream": (lambda a: open_stream(a, "near"), "counting"),
    "stream over frames": (lambda a: open_stream(a, "far"), "counting"),
    "tell": (lambda a: a.to["near"].tell(Witness.take), "taken"),
    "tell pool": (lambda a: a.to["pool"].tell(Witness.take), "taken"),
    "tell over frames": (lambda a: a.to["far"].tell(Witness.take), "taken"),
    "tell over HTTP": (lambda a: a.to["http"].tell(Witness.take), "taken"),
    "source": (lambda a: a.to["near"].invoke(Witness.gather, a.rows_one_by_one()), "row 2"),
    "source over frames": (lambda a: a.to["far"].invoke(Witness.gather, a.rows_one_by_one()), "row 2"),
    "start_child": (lambda a: a.start_child(ChildSpec("child", Child)), "child"),
    "start": (lambda a: a.start(Child), "child"),
    "children": (lambda a: a.children.start_child(ChildSpec("child", Child)), "child"),
    "to_thread": (lambda a: a.to_thread(SEEN.append, "thread"), "thread"),
    "own task": (own_task, "taken"),
    "send in a run": (lambda a: sync(TURNS["send"][0], a), "taken"),
    "event in a run": (lambda a: sync(TURNS["event"][0], a), "event"),
    "tell_nowait in a run": (lambda a: sync(TURNS["tell_nowait"][0], a), "taken"),
    "tell_nowait over frames in a run": (lambda a: sync(TURNS["tell_nowait over frames"][0], a), "taken"),
    "publish in a run": (lambda a: sync(publish, a), "published"),
    "broadcast in a run": (lambda a: sync(TURNS["broadcast"][0], a), "taken"),
}
"""What runs put out."""


@attrs.define
class World:
    """A node with agents to put things out to, near and elsewhere, and its store."""

    store: StoreOfTest
    node: Node
    nursery: trio.Nursery
    to: dict[str, Any]

    async def putter(self, number: int) -> Ref[Putter]:
        """Start an agent that puts things out, which others listen to; what it does next is not kept."""
        self.store.may_commit.set()
        ref = await self.node.start_child(
            ChildSpec(f"putter-{number}", lambda: Putter(to=self.to), shutdown=0.1)
        )
        for entered, word, first in (
            (ref.subscribe(Putter.done), "event", False),
            (ref.observe(Putter.level), "level", True),
            (ref.monitor(), "down", False),
        ):
            await self.nursery.start(partial(listen, entered, word, first=first))
        await wait_all_tasks_blocked()
        SEEN.clear()
        self.store.may_commit.clear()
        return ref

    async def ask(self, ref: Ref[Putter], handle: Any, *args: Any) -> None:
        try:
            await ref.invoke(handle, *args)
            SEEN.append("answered")
        except AgentError as error:
            SEEN.append(type(error).__name__)

    async def seen(self, word: str) -> None:
        """Let the store commit, and wait until others have seen something."""
        self.store.may_commit.set()
        with trio.fail_after(5):
            while word not in SEEN:
                await trio.lowlevel.checkpoint()


async def listen(entered: Any, word: str, *, first: bool, task_status: trio.TaskStatus[None]) -> None:
    async with entered as feed:
        if first:
            await anext(aiter(feed))
        task_status.started()
        async for _ in feed:
            SEEN.append(word)


@asynccontextmanager
async def world(folder: Path, **options: Any) -> AsyncGenerator[World]:
    SEEN.clear()
    store, network = StoreOfTest(), MemoryNetwork()
    async with (
        open_node(listen="ws://server", network=network) as server,
        open_node(store=store, network=network, **options) as node,
        trio.open_nursery() as nursery,
    ):
        elsewhere = await server.start_child(ChildSpec("witness", Witness))
        near = await node.start_child(ChildSpec("witness", Witness))
        to: dict[str, Any] = {
            "near": near,
            "pool": await node.start_pool(Pool(Witness, 1, name="witnesses")),
            "neighbour": elsewhere,
            "far": await node.consume(Witness, "http://server/witness"),
            "http": await node.consume(Witness, await by_http_alone(network, folder)),
            "thing": await node.consume_thing("http://server/witness"),
        }
        for entered, word, first in (
            (near.observe(Witness.level), "written", True),
            (elsewhere.observe(Witness.level), "written", True),
            (node.topic("news", int).subscribe(), "published", False),
        ):
            await nursery.start(partial(listen, entered, word, first=first))
        try:
            yield World(store, node, nursery, to)
        finally:
            store.may_commit.set()
            nursery.cancel_scope.cancel()


async def by_http_alone(network: MemoryNetwork, folder: Path) -> trio.Path:
    """Return a file with the description of the witness elsewhere that has only forms for HTTP."""
    text, _ = await fetch(network, "http://server/agents/witness", None)
    found = json.loads(text)
    members: list[dict[str, Any]] = [found.get(kind, {}) for kind in ("properties", "actions", "events")]
    for owner in (found, *(each for member in members for each in member.values())):
        owner["forms"] = [
            each for each in owner.get("forms", ()) if each.get("subprotocol") != "lmosprotocol"
        ]
    for name, each in found["actions"].items():  # streams have none for HTTP
        href = f"{found['id']}/actions/{name}"
        each["forms"] = each["forms"] or [{"href": href, "op": ["invokeaction"], "subprotocol": "sse"}]
    path = trio.Path(folder / "witness.td.json")
    await path.write_text(json.dumps(found))
    return path


async def test_what_turns_put_out_waits_for_their_state(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        for number, (verb, (_, word)) in enumerate(TURNS.items()):
            ref = await at.putter(number)
            at.nursery.start_soon(at.ask, ref, Putter.turn, verb)
            await wait_all_tasks_blocked(0.002)
            assert SEEN == [], verb
            await at.seen(word)


@pytest.mark.slow
async def test_what_runs_put_out_waits_for_their_state(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        for number, (verb, (_, word)) in enumerate(RUNS.items()):
            ref = await at.putter(number)
            at.nursery.start_soon(at.ask, ref, Putter.run, verb)
            await wait_all_tasks_blocked(0.002)
            assert SEEN == [], verb
            await at.seen(word)


async def test_what_a_run_puts_out_to_its_caller_waits_for_its_state(tmp_path: Path) -> None:
    async def see_progress(ref: Ref[Putter]) -> None:
        async with ref.begin(Putter.report) as call:
            await anext(aiter(call.progress))
            SEEN.append("progress")

    async def see_items(ref: Ref[Putter]) -> None:
        async with ref.stream(Putter.items) as items:
            await anext(aiter(items))
            SEEN.append("item")

    async def see_status(ref: Ref[Putter]) -> None:
        async with ref.begin(Putter.run, "send in a run") as call:
            await wait_all_tasks_blocked(0.002)
            SEEN.append((await call.query()).status)

    async def wrong_numbers() -> AsyncIterator[Any]:
        yield "one"

    async def see_refusal(ref: Ref[Putter]) -> None:
        with pytest.raises(InvalidInput):
            await ref.invoke(Putter.take_numbers, wrong_numbers())
        SEEN.append("refused")

    async with world(tmp_path) as at:
        for number, (see, word) in enumerate(
            ((see_progress, "progress"), (see_items, "item"), (see_refusal, "refused"))
        ):
            ref = await at.putter(number)
            at.nursery.start_soon(see, ref)
            await wait_all_tasks_blocked(0.002)
            assert SEEN == [], word
            await at.seen(word)
        await see_status(await at.putter(5))
        assert SEEN == ["in progress"]


async def test_a_refusal_by_a_behaviour_that_is_not_kept_yet_waits(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        ref = await at.putter(1)
        at.nursery.start_soon(at.ask, ref, Putter.turn, "shut")
        await wait_all_tasks_blocked(0.002)
        at.nursery.start_soon(at.ask, ref, Putter.knock)
        await wait_all_tasks_blocked(0.002)
        assert SEEN == []
        await at.seen("NotAllowed")


async def test_each_item_of_a_source_waits_for_what_was_changed_before_it(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        for number, name in enumerate(("near", "far")):
            ref, go_on = await at.putter(number), trio.Event()
            at.to["go on"] = go_on
            at.nursery.start_soon(at.ask, ref, Putter.give_later, name)
            await at.seen("row 1")
            at.store.may_commit.clear()
            go_on.set()
            await wait_all_tasks_blocked(0.002)
            assert SEEN == ["row 1"], name
            await at.seen("row 2")


class Unwinding(Agent, durable=True):
    """An agent that puts something out while it unwinds."""

    n: int = 0
    done: Event[int] = event()
    witness: Ref[Witness] | None = ephemeral(default=None)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            if self.witness is not None:
                self.send(self.witness, Witness.take)

    @action(snapshot_safe=True)
    async def wait(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.n += 1
            self.done.emit(1)

    @action
    def crash(self) -> None:
        self.n += 100
        raise KeyError

    @action
    def look(self) -> int:
        return self.n


async def test_what_a_crash_has_left_is_not_kept_by_what_unwinds(autojump_clock: object) -> None:
    SEEN.clear()
    async with open_node(store="memory:") as node, trio.open_nursery() as nursery:
        witness = await node.start_child(ChildSpec("witness", Witness))
        ref = await node.start_child(ChildSpec("unwinding", lambda: Unwinding(witness=witness)))
        await nursery.start(partial(listen, ref.subscribe(Unwinding.done), "event", first=False))
        async with ref.begin(Unwinding.wait):
            await wait_all_tasks_blocked()
            with pytest.raises(AgentDied):
                await ref.invoke(Unwinding.crash)
            await ref.ready()
        await trio.sleep(1)
        assert await ref.invoke(Unwinding.look) == 0
        assert SEEN == ["taken"]  # what its lifespan sends to clean up leaves
        nursery.cancel_scope.cancel()
