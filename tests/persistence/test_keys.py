"""Keys of stored state: one running agent has each, whether the key was chosen or is a path in the tree."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    ConfigError,
    Pool,
    StartFailed,
    SupervisorSpec,
    action,
    open_node,
)
from lmos_actors.errors import NameTaken
from lmos_actors.supervision import BulkSpec
from tests.persistence.stores import StoreOfTest


class Counter(Agent, durable=True):
    n: int = 0

    @action
    def add(self) -> int:
        self.n += 1
        return self.n


class Plain(Agent):
    @action
    def ping(self) -> None: ...


class Parent(Agent):
    @action
    async def start_counter(self, key: str) -> None:
        await self.start_child(ChildSpec("counter", Counter, key=key))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ChildSpec("a", Counter, key="42"), ChildSpec("b", Counter, key="42")),
        (ChildSpec("a", Counter), ChildSpec("b", Counter, key="a")),
        (ChildSpec("a", Counter, key="b"), ChildSpec("b", Counter)),
        (ChildSpec("a", Counter, key="42"), ChildSpec("b", lambda: Counter(), key="42")),
    ],
)
async def test_a_key_is_that_of_one_running_agent(
    first: ChildSpec[Counter], second: ChildSpec[Counter], autojump_clock: object
) -> None:
    key = first.key or first.name
    async with open_node(store="memory:") as node:
        ref = await node.start_child(first)
        assert await ref.invoke(Counter.add) == 1
        with pytest.raises(NameTaken, match=f"'b' cannot .* the key '{key}': 'a' runs") as caught:
            await node.start_child(second)
        assert (caught.value.name, caught.value.holder) == (key, "a")
        assert node.crash_reports == ()
        assert [info.name for info in node.root.which_children()] == ["a"]
        assert await ref.invoke(Counter.add) == 2
        parent = await node.start_child(ChildSpec("parent", Parent))
        with pytest.raises(AgentDied, match=f"'parent/counter' cannot .* '{key}': 'a' runs"):
            await parent.invoke(Parent.start_counter, key)
    tree = SupervisorSpec("root", [first, second])
    with pytest.raises(StartFailed, match=f"the key '{key}'") as failed:
        async with open_node(tree, store="memory:"):
            pass
    assert isinstance(failed.value.__cause__, NameTaken)


async def test_an_agent_that_is_stopped_leaves_its_key_once_its_state_is_kept() -> None:
    store = StoreOfTest()
    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        first = await node.start_child(ChildSpec("a", Counter, key="42", shutdown="brutal"))
        await first.invoke(Counter.add)
        store.may_commit.clear()
        for _ in range(2):  # the second commit waits for the first one
            nursery.start_soon(first.invoke, Counter.add)
            await wait_all_tasks_blocked()
        await node.root.terminate_child("a")

        async def start_second() -> None:
            second = await node.start_child(ChildSpec("b", Counter, key="42"))
            assert await second.invoke(Counter.add) == 4

        nursery.start_soon(start_second)
        await wait_all_tasks_blocked()
        assert node.find(Counter, "b").statistics().state != "running"
        store.may_commit.set()
    async with open_node(store="memory:") as node:
        await node.start_child(ChildSpec("a", Counter, key="42"))
        await node.root.terminate_child("a")
        second = await node.start_child(ChildSpec("b", Counter, key="42"))
        with pytest.raises(NameTaken, match="'a' cannot keep its state at the key '42': 'b' runs"):
            await node.root.restart_child("a")
        assert await second.invoke(Counter.add) == 1
        await node.root.terminate_child("b")
        await node.root.restart_child("a")
        assert await node.find(Counter, "a").invoke(Counter.add) == 2


async def test_a_name_that_is_made_up_is_refused(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        for factory in (Counter, partial(Counter, n=3)):
            with pytest.raises(ConfigError, match=r"Counter is durable.*start_child\(ChildSpec\(NAME"):
                await node.start(factory)
        with pytest.raises(StartFailed, match=r"Counter is durable.*start_child\(ChildSpec\(NAME"):
            await node.start(lambda: Counter(n=3))
        with pytest.raises(ConfigError, match="name='counter'"):
            await node.start_pool(Pool(Counter, 3))
        await node.start_pool(Pool(Counter, 3, name="counters"))
        await (await node.start(lambda: Plain())).invoke(Plain.ping)


async def test_a_key_that_cannot_be_one(autojump_clock: object) -> None:
    for key in ("", "a\x00b", "\ud800", "x" * 501, 5):
        with pytest.raises(ConfigError, match=r"a\.key: must be a text of 1 to 500 printable characters"):
            ChildSpec("a", Counter, key=key)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"a\.key: Plain is not durable, so it has no state .* durable=True"
    ):
        ChildSpec("a", partial(Plain), key="42")
    with pytest.raises(ConfigError, match=r"a\.key: a key belongs to one agent"):
        BulkSpec("many", member=ChildSpec("a", Counter, key="42"), count=3)
    async with open_node(store="memory:") as node:
        with pytest.raises(ConfigError, match=r"a\.key: is one agent's alone"):
            await node.root.start_many(ChildSpec("a", Counter, key="42"), 3)
