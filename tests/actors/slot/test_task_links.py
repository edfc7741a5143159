"""`async with ref.link()`: a block of a task and an agent end together."""

# ruff: noqa: PT012 -- what is raised leaves the block

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from lmos_actors import SHUTDOWN, ActionFailed, Agent, AgentDied, ChildSpec, ExitReason, Ref, action
from lmos_actors.errors import LinkedAgentDied
from lmos_actors.testing import open_test_node, settle
from tests.actors.peers import (
    BUG,
    Peer,
    Slow,
    Trapper,
    agent_of,
    alive,
    cast,
    downs_of,
    links_of,
)


async def test_a_task_ends_with_the_agent(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer) as refs:
        refs["a"].tell_nowait(Peer.count)
        with pytest.raises(LinkedAgentDied, match="linked agent 'a' has ended: RuntimeError: bug") as caught:
            async with refs["a"].link(), trio.open_nursery() as tasks:
                tasks.start_soon(trio.sleep_forever)
                await trio.sleep(1)
                refs["a"].tell_nowait(Peer.fail)
                await trio.sleep(10)
        died = caught.value
        assert (died.agent, died.incarnation, died.reason.error) == ("a", 1, BUG)
        assert died.__cause__ is BUG
        assert trio.current_time() == 1


async def test_a_shutdown_ends_the_block_and_normal_does_not(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer, b=Peer) as refs:
        with pytest.raises(LinkedAgentDied) as caught:
            async with refs["a"].link():
                await refs["a"].invoke(Peer.close, "why")
                await trio.sleep_forever()
        assert caught.value.reason == ExitReason("shutdown", "why")
        assert caught.value.__cause__ is None
        async with refs["b"].link():
            await refs["b"].invoke(Peer.end)
            await trio.sleep(5)
        assert alive(refs) == ""


async def test_the_news_leaves_a_block_whose_body_had_no_time_to_notice(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer) as refs:
        with pytest.raises(LinkedAgentDied):
            async with refs["a"].link():
                await refs["a"].invoke(Peer.close, "")


async def test_a_failed_call_in_the_block_is_the_same_news(virtual_clock) -> None:
    class Lingers(Slow):
        pass

    async with open_test_node() as node, cast(node, a=Peer, b=Lingers) as refs:
        for name in ("a", "b"):  # b has still to leave its lifespan when the call fails
            with pytest.raises(LinkedAgentDied) as caught:
                async with refs[name].link():
                    await refs[name].invoke(Peer.fail)
            assert caught.value.reason.error is BUG
            assert isinstance(caught.value.__context__, AgentDied)


@pytest.mark.parametrize("nested", [False, True])
async def test_what_else_the_body_raises_is_not_lost(virtual_clock, nested) -> None:
    async def body() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("while cancelled")

    async with open_test_node() as node, cast(node, a=Peer) as refs:
        with pytest.raises(ExceptionGroup, match="a block linked to a raised too") as caught:
            async with refs["a"].link(), trio.open_nursery() as tasks:
                refs["a"].tell_nowait(Peer.fail)
                if nested:
                    tasks.start_soon(body)
                else:
                    await body()
        died, group = caught.value.exceptions
        assert isinstance(died, LinkedAgentDied)
        assert isinstance(group, ExceptionGroup)
        assert [str(exc) for exc in group.exceptions] == ["while cancelled"]


async def test_links_of_one_task_to_linked_agents_are_one_piece_of_news(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, "ab", a=Peer, b=Peer) as refs:
        with pytest.raises(LinkedAgentDied) as caught:
            async with refs["a"].link(), refs["b"].link(), refs["b"].link():
                refs["b"].tell_nowait(Peer.fail)
                await trio.sleep_forever()
        assert caught.value.agent == "a"


async def test_a_body_that_fails_ends_the_agent(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer) as refs, refs["a"].monitor() as downs:
        with pytest.raises(LookupError) as caught:
            async with refs["a"].link():
                raise LookupError("in the body")
        assert (await downs.receive()).reason == ExitReason("error", error=caught.value)


async def test_a_body_that_is_cancelled_shuts_the_agent_down(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer) as refs, refs["a"].monitor() as downs:
        with trio.move_on_after(1):
            async with refs["a"].link():
                await trio.sleep_forever()
        assert (await downs.receive()).reason == SHUTDOWN
        assert trio.current_time() == 1


async def test_a_body_that_returns_leaves_the_agent_alone(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer) as refs:
        async with refs["a"].link():
            assert links_of(refs["a"]) == 1
        assert links_of(refs["a"]) == 0
        assert alive(refs) == "a"


async def test_a_body_that_ends_while_the_agent_unwinds(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Slow, b=Slow) as refs:
        async with refs["a"].link():
            await refs["a"].invoke(Peer.close, "")
        assert refs["a"].statistics().state == "ending"  # the news has not come yet
        with pytest.raises(LookupError):  # and normal is none
            async with refs["b"].link():
                await refs["b"].invoke(Peer.end)
                raise LookupError


async def test_the_block_belongs_to_one_incarnation(virtual_clock) -> None:
    async with open_test_node() as node:
        a = await node.start_child(ChildSpec("a", Peer))
        with pytest.raises(LookupError):
            async with a.link():
                await a.invoke(Peer.end)  # and a new one begins
                await trio.sleep(1)
                raise LookupError
        await settle()
        assert a.statistics().incarnation == 2
        assert a.statistics().state == "running"


async def test_traps_hear_of_tasks_and_runs(virtual_clock) -> None:
    class Runs(Peer):
        @action
        async def work(self) -> None:
            async with self.find(Peer, "t").link():
                raise LookupError("in a run")

    async def task(ref: Ref[Any]) -> None:
        async with ref.link():
            await trio.sleep_forever()

    async with open_test_node() as node, cast(node, t=Trapper, r=Runs) as refs:
        async with trio.open_nursery() as tasks:
            tasks.start_soon(partial(task, refs["t"]), name="helper")
            await settle()
            tasks.cancel_scope.cancel()
        with pytest.raises(AgentDied):
            await refs["r"].invoke(Runs.work)
        await settle()
        assert downs_of(refs["t"]) == [
            ("task helper", "shutdown"),
            ("run work of r", "LookupError: in a run"),
        ]
        assert [down.incarnation for down in agent_of(refs["t"]).downs] == [0, 0]
        assert alive(refs) == "t"


async def test_a_run_may_be_linked_to_another_agent(virtual_clock) -> None:
    class Runs(Peer):
        @action
        async def work(self) -> None:
            async with self.find(Peer, "a").link():
                await trio.sleep_forever()

    async with open_test_node() as node, cast(node, a=Peer, r=Runs) as refs, trio.open_nursery() as tasks:
        tasks.start_soon(partial(refs["r"].tell, Runs.work))
        await settle()
        async with refs["r"].monitor() as downs:
            await refs["a"].invoke(Peer.fail_quietly)
            reason = (await downs.receive()).reason
        assert isinstance(reason.error, LinkedAgentDied)


async def test_cancelled_from_outside_and_by_the_agent_at_once(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer) as refs:
        with pytest.raises(LinkedAgentDied) as caught, trio.CancelScope() as scope:
            async with refs["a"].link():
                await refs["a"].invoke(Peer.close, "")
                scope.cancel()
                await trio.sleep_forever()
        assert isinstance(caught.value.__context__, trio.Cancelled)


async def test_a_def_turn_is_told_to_use_its_own_verb(virtual_clock) -> None:
    class Wrong(Peer):
        @action
        def tie_wrongly(self) -> str:
            with pytest.raises(RuntimeError, match=r"use self\.link\(ref\)"):
                self.find(Peer, "a").link()
            return "told"

    async with open_test_node() as node, cast(node, a=Peer, w=Wrong) as refs:
        assert await refs["w"].invoke(Wrong.tie_wrongly) == "told"


async def test_an_interrupt_in_the_body_arrives(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, t=Trapper) as refs:
        with pytest.raises(KeyboardInterrupt):
            async with refs["t"].link():
                raise KeyboardInterrupt
        await settle()
        assert downs_of(refs["t"]) == [("task " + trio.lowlevel.current_task().name, "KeyboardInterrupt")]


async def test_what_comes_round_to_the_block_it_left_is_no_news(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer, b=Peer) as refs:
        agent_of(refs["a"]).link(refs["b"])
        with pytest.raises(ActionFailed, match="mine"):
            async with refs["a"].link(), refs["b"].link():
                raise ActionFailed("mine")
        assert alive(refs) == ""


@pytest.mark.parametrize("in_task", [False, True])
async def test_the_shutdown_of_a_linked_agent_is_passed_on_as_shutdown(virtual_clock, in_task: bool) -> None:
    """L1: the same reason. A node that closes while runs hold links has no error."""

    class Holds(Agent):
        other: Any

        @action
        async def hold(self) -> None:
            async with self.other.link():
                await trio.sleep(100)

        @action
        def hold_in_task(self) -> None:
            self.nursery.start_soon(self.hold)

    async with open_test_node() as node:
        holds = await node.start(Holds, other=node.find(Peer))
        held = await node.start(Peer)
        async with holds.monitor() as downs:
            if in_task:
                await holds.invoke(Holds.hold_in_task)
            else:
                await holds.tell(Holds.hold)
            await trio.sleep(1)
            await node.root.terminate_child("peer")
            down = await downs.receive()
        assert down.reason.kind == "shutdown"
        assert held.statistics().state == "down"
        await holds.ready()
        await node.root.restart_child("peer")
        await holds.tell(Holds.hold)
        await trio.sleep(1)
    # leaving the node stops the peer first: no LinkedAgentDied comes out
