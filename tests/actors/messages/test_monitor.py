"""`self.monitor`: the ends of one agent as turns of another, without a task."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    Down,
    Monitor,
    NotFound,
    Ref,
    SupervisorSpec,
    action,
)
from lmos_actors.actors import slot_of
from lmos_actors.testing import open_test_node, settle
from tests.actors.peers import Peer, Slow, add_up, agent_of, alive, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Watcher(Agent):
    """Keeps the ends it hears of."""

    downs: list[tuple[str, int, str]] = attrs.field(factory=list)
    monitors: dict[str, Monitor] = attrs.field(factory=dict)

    @action
    def watch(self, name: str) -> None:
        self.monitors[name] = self.monitor(self.find(Peer, name), self.on_down)

    @action
    def let_be(self, name: str) -> None:
        self.monitors[name].cancel()

    @action
    def end(self) -> None:
        self.stop()

    @action
    async def wait(self, seconds: float) -> None:
        await trio.sleep(seconds)

    @action
    def idle(self) -> None: ...

    def on_down(self, down: Down) -> None:
        self.downs.append((down.agent, down.incarnation, str(down.reason)))


class Serial(Watcher, serial=True):
    """Takes no turn beside a run."""


def monitors_of(ref: Ref[Any]) -> int:
    more = slot_of(ref).extra
    return len(more.monitors or ()) if more is not None else 0


async def test_every_end_is_a_turn_with_its_reason(virtual_clock) -> None:
    tree = SupervisorSpec("root", [ChildSpec("a", Peer)], max_restarts=10)
    async with open_test_node(tree) as node:
        a, w = node.find(Peer, "a"), await node.start(Watcher)
        await w.invoke(Watcher.watch, "a")
        for verb in (Peer.end, Peer.fail_quietly):
            await a.invoke(verb)
            await settle()
        await a.invoke(Peer.close, "why")
        await settle()
        assert agent_of(w).downs == [
            ("a", 1, "normal"),
            ("a", 2, "RuntimeError: bug"),
            ("a", 3, "shutdown: why"),
        ]
        assert (w.statistics().accepted, w.statistics().handled) == (1, 1)


async def test_a_monitor_affects_neither_side(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer, b=Peer, w=Watcher) as refs:
        await refs["w"].invoke(Watcher.watch, "a")
        await refs["w"].invoke(Watcher.watch, "b")
        with pytest.raises(AgentDied):
            await refs["a"].invoke(Peer.fail)
        await refs["w"].invoke(Watcher.end)
        assert alive(refs) == "b"


async def test_it_ends_with_the_watchers_incarnation(virtual_clock) -> None:
    async with open_test_node() as node:
        w = await node.start(Watcher)
        async with cast(node, a=Peer) as refs:
            await w.invoke(Watcher.watch, "a")
            old = agent_of(w)
            await w.invoke(Watcher.end)
            await settle()
            assert w.statistics().incarnation == 2
            await refs["a"].invoke(Peer.end)
            await settle()
            assert old.downs == agent_of(w).downs == []
            old.monitors["a"].cancel()
            with pytest.raises(AgentUnavailable):
                old.monitor(refs["a"], old.on_down)


async def test_it_ends_when_the_monitored_is_gone_for_good_after_the_last_down(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer, w=Watcher) as refs:
        await refs["w"].invoke(Watcher.watch, "a")
        assert monitors_of(refs["w"]) == 1
        await refs["a"].invoke(Peer.end)
        await settle()
        assert agent_of(refs["w"]).downs == [("a", 1, "normal")]
        assert monitors_of(refs["w"]) == 0


async def test_every_monitor_of_one_agent_tells_on_its_own(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer, w=Watcher) as refs:
        for _ in range(3):
            await refs["w"].invoke(Watcher.watch, "a")
        await refs["w"].invoke(Watcher.let_be, "a")  # the last of them
        await refs["a"].invoke(Peer.end)
        await settle()
        assert agent_of(refs["w"]).downs == [("a", 1, "normal")] * 2


async def test_what_is_cancelled_gives_no_turn_even_if_one_was_waiting(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer, b=Peer, w=Watcher) as refs:
        await refs["w"].invoke(Watcher.watch, "a")
        await refs["w"].invoke(Watcher.watch, "b")
        refs["w"].tell_nowait(Watcher.let_be, "a")
        await refs["a"].invoke(Peer.end)
        await refs["b"].invoke(Peer.end)
        await settle()
        assert agent_of(refs["w"]).downs == [("b", 1, "normal")]
        assert monitors_of(refs["w"]) == 0


async def test_a_monitor_made_again_after_a_cancel_tells(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer, w=Watcher) as refs:
        for verb, monitors in (
            (Watcher.watch, 1),
            (Watcher.let_be, 0),
            (Watcher.let_be, 0),
            (Watcher.watch, 1),
        ):
            await refs["w"].invoke(verb, "a")
            assert monitors_of(refs["w"]) == monitors
        await refs["a"].invoke(Peer.end)
        await settle()
        assert agent_of(refs["w"]).downs == [("a", 1, "normal")]


async def test_one_seat_holds_all_ends_in_order(virtual_clock) -> None:
    tree = SupervisorSpec("root", [ChildSpec("a", Peer)], max_restarts=1_000)
    async with open_test_node(tree) as node, cast(node, w=Serial) as refs, trio.open_nursery() as tasks:
        a, w = node.find(Peer, "a"), refs["w"]
        await w.invoke(Watcher.watch, "a")
        tasks.start_soon(w.invoke, Watcher.wait, 1)
        await settle()
        for _ in range(64):
            w.tell_nowait(Watcher.idle)
        for _ in range(200):
            await a.invoke(Peer.end)
            await settle()
        assert agent_of(w).downs == []
        assert len(slot_of(w).queue) == 65
        await trio.sleep(2)
        assert agent_of(w).downs == [("a", number + 1, "normal") for number in range(200)]
        assert add_up(w)


async def test_one_that_does_not_run_now_is_told_at_once(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as tasks:
        w = await node.start(Watcher)
        tasks.start_soon(node.start_child, ChildSpec("slow", Slow))
        await settle()
        await w.invoke(Watcher.watch, "slow")  # starting
        await settle()
        assert agent_of(w).downs == [("slow", 0, "shutdown: not running")]
        await trio.sleep(1)
        tasks.start_soon(node.root.terminate_child, "slow")
        await settle()
        await w.invoke(Watcher.watch, "slow")  # ending: its end is still to come
        await trio.sleep(2)
        assert agent_of(w).downs[1:] == [("slow", 1, "shutdown")] * 2
        await w.invoke(Watcher.watch, "slow")  # down
        await settle()
        assert agent_of(w).downs[3:] == [("slow", 1, "shutdown: not running")]
        await node.root.restart_child("slow")
        await node.root.terminate_child("slow")
        assert agent_of(w).downs[4:] == [("slow", 2, "shutdown")] * 3
        assert monitors_of(w) == 3
        slow = node.find(Peer, "slow")
        assert slot_of(slow).path == "slow"  # found while it is there
        await node.root.delete_child("slow")
        assert monitors_of(w) == 0
        agent_of(w).monitor(slow, agent_of(w).on_down)  # gone
        await settle()
        assert agent_of(w).downs[7:] == [("slow", 2, "shutdown: not running")]
        assert monitors_of(w) == 0


async def test_a_name_nobody_has_is_not_found(virtual_clock) -> None:
    async with open_test_node() as node:
        w = await node.start(Watcher)
        with pytest.raises(NotFound):
            agent_of(w).monitor(node.find(Peer, "nobody"), agent_of(w).on_down)


async def test_only_a_def_can_be_a_turn(virtual_clock) -> None:
    class Wrong(Watcher):
        async def on_down_later(self, down: Down) -> None: ...

    async with open_test_node() as node, cast(node, w=Wrong) as refs:
        agent = agent_of(refs["w"])
        with pytest.raises(TypeError, match=r"monitor\(\) takes a def"):
            agent.monitor(refs["w"], agent.on_down_later)


async def test_a_bug_in_the_turn_is_a_crash(virtual_clock) -> None:
    class Fragile(Watcher):
        def on_down(self, down: Down) -> None:
            raise LookupError

    async with open_test_node() as node, cast(node, a=Peer, f=Fragile, w=Watcher) as refs:
        await refs["f"].invoke(Watcher.watch, "a")
        agent_of(refs["w"]).monitor(refs["f"], agent_of(refs["w"]).on_down)
        await refs["a"].invoke(Peer.end)
        await settle()
        assert agent_of(refs["w"]).downs == [("f", 1, "LookupError")]


async def test_monitors_are_made_in_started_lifespan_and_tasks(virtual_clock) -> None:
    class Early(Watcher):
        def started(self) -> None:
            self.watch("a")

        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            self.watch("a")
            await trio.sleep(1)
            self.nursery.start_soon(self.later)
            yield
            self.monitor(self.find(Peer, "b"), self.on_down)  # as it is ending, nothing

        async def later(self) -> None:
            self.watch("a")

    async with open_test_node() as node, cast(node, a=Peer, b=Peer, w=Early) as refs:
        await settle()
        await refs["a"].invoke(Peer.end)
        await settle()
        assert agent_of(refs["w"]).downs == [("a", 1, "normal")] * 3
        await refs["w"].invoke(Watcher.end)
        await settle()
        more = slot_of(refs["b"]).extra
        assert more is None or more.sinks is None


async def test_an_end_during_the_start_is_told_once_it_has_started(virtual_clock) -> None:
    class Early(Watcher):
        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            self.watch("a")
            await trio.sleep(2)
            yield

    async with open_test_node() as node, cast(node, a=Peer) as refs, trio.open_nursery() as tasks:
        tasks.start_soon(node.start_child, ChildSpec("w", Early))
        await trio.sleep(1)
        await refs["a"].invoke(Peer.end)
        await trio.sleep(2)
        assert agent_of(node.find(Watcher, "w")).downs == [("a", 1, "normal")]
