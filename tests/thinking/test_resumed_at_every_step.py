"""A turn that was resumed is cut off at every step: the next life goes on, and no tool is called twice.

A step is one that trio gives to any task. What cuts it off: its process is killed or ends in order, the agent
is stopped or crashes, the model crashes, or its caller forgets the session.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import SHUTDOWN, ChildSpec, ExitReason, SupervisorSpec, open_node, simulate
from lmos_actors.actors import slot_of
from lmos_actors.errors import LmosActorsError, StoreFailed
from lmos_actors.facades import ChatAgent
from lmos_actors.llm import Model, ModelEnd, ModelMessage, TextDelta, ToolMessage, UserMessage
from lmos_actors.persistence import MemoryStore
from lmos_actors.testing import settle
from lmos_actors.thinking import ThinkingAgent
from tests.matrix import few_or_all
from tests.thinking.models import wants
from tests.thinking.test_broken_off import AtStep, Bug

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lmos_actors import Node, Ref
    from lmos_actors.facades.chat import Said
    from lmos_actors.llm import ModelItem, ModelRequest
    from lmos_actors.persistence import Batch, Conflict, Durability

ROUNDS = ("ab", "cd", "e", "")
"""The tools that the model asks for, one letter each, the last of them the first to end; then it answers."""
NAMES = "".join(ROUNDS)


class Mortal(MemoryStore):
    """A store whose process can end: from then on it takes no more commits."""

    is_dead = False

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        if self.is_dead:
            raise StoreFailed(self.name, "its process has ended")
        return super().commit(batches, durability)


@attrs.define
class World:
    """What outlives the nodes of a test."""

    store: Mortal = attrs.field(factory=Mortal)
    did: list[str] = attrs.field(factory=list[str])
    told: list[str] = attrs.field(factory=list[str])
    """The tools of which the model was told that their outcome is unknown."""
    running: int = 0
    has_done: trio.Event = attrs.field(factory=trio.Event)

    async def dig(self, name: str) -> str:
        """Dig."""
        self.running += 1
        try:
            await trio.sleep(0.01)
            self.did.append(name)
            self.has_done.set()
            await trio.sleep(0.02 if name in "ac" else 0.01)
        finally:
            self.running -= 1
        return f"gold {name}"


class Script(Model):
    """Has tools called, two of them side by side, and answers what became of each."""

    world: World

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        await trio.sleep(0.01)
        yield TextDelta("I ")
        await trio.sleep(0.01)
        begin = max(place for place, each in enumerate(request.messages) if isinstance(each, UserMessage))
        asked = [each for each in request.messages[begin:] if isinstance(each, ModelMessage)]
        results = [each for each in request.messages[begin:] if isinstance(each, ToolMessage)]
        assert [each.id for each in results] == [each.id for one in asked for each in one.tools]
        self.world.told += [each.id for each in results if "OutcomeUnknown" in each.error]
        names = ROUNDS[len(asked)]
        for name in names:
            yield wants("dig", name, name=name)
        if not names:
            yield TextDelta(" ".join(str(each.result or "?") for each in results))
        yield ModelEnd("tools" if names else "stop")


class Digger(ThinkingAgent):
    """You dig."""


def tree(world: World) -> SupervisorSpec:
    agents: dict[str, Any] = {
        "script": partial(Script, world=world),
        "digger": partial(Digger, tools=[world.dig]),
    }
    children = [ChildSpec(name, each, shutdown="brutal") for name, each in agents.items()]
    return SupervisorSpec("root", children, max_restarts=1_000)


async def chat(digger: Ref[Any]) -> None:
    with suppress(LmosActorsError):
        async with digger.stream(ChatAgent.chat, "dig", "s", new=True) as items:
            async for _ in items:
                pass


def kill(node: Node, world: World) -> None:
    world.store.is_dead = True
    node.force_stop()


async def first_life(world: World) -> None:
    """Begin a turn, and be killed when two tools have had their effect and neither has a result."""
    async with open_node(tree(world), store=world.store) as node, trio.open_nursery() as nursery:
        digger = node.find(Digger)
        await digger.ready()
        nursery.start_soon(chat, digger)
        await world.has_done.wait()
        kill(node, world)
    world.store.is_dead = False


def cut_off(how: str, node: Node, world: World, whole: trio.CancelScope) -> None:
    deed, _, victim = how.partition(" ")
    if deed == "kill":
        kill(node, world)
    elif deed == "end":
        whole.cancel("cut off")
    for ref in node.agents():
        slot = slot_of(ref)
        if slot.label == victim and deed == "stop":
            slot.stop(SHUTDOWN, "brutal")
        elif slot.label == victim and deed == "crash":
            slot.die(ExitReason("error", error=Bug("from outside")))


async def said_in(digger: Ref[Any]) -> list[Said]:
    with trio.fail_after(1_000):
        return await digger.invoke(ChatAgent.history, "s", settled=True)  # type: ignore[no-any-return]


async def play(step: int, how: str) -> bool:
    """Cut the second life off at a step; return whether it came so far."""
    world, whole = World(), trio.CancelScope()
    await first_life(world)
    breaking = AtStep(step, lambda: cut_off(how, node, world, whole))
    with whole:
        async with open_node(tree(world), store=world.store) as node:
            trio.lowlevel.add_instrument(breaking)
            with suppress(LmosActorsError):
                await said_in(node.find(Digger))
                if how != "kill":
                    await settle()
            trio.lowlevel.remove_instrument(breaking)
    world.store.is_dead = False
    assert not world.running
    async with open_node(tree(world), store=world.store) as node:
        check(world, await said_in(node.find(Digger)), may_fail=how == "crash script")
        await settle()
        assert "turn-" not in node.tree()
    return breaking.left <= 0


async def forget(step: int) -> bool:
    """Forget the session at a step of the second life; return whether it came so far."""
    world = World()
    await first_life(world)
    async with open_node(tree(world), store=world.store) as node, trio.open_nursery() as nursery:
        digger: Ref[Any] = node.find(Digger)
        forgotten: list[bool] = []

        async def begin() -> None:
            await digger.ready()
            forgotten.append(await digger.invoke(ChatAgent.forget, "s"))

        breaking = AtStep(step, lambda: nursery.start_soon(begin))
        trio.lowlevel.add_instrument(breaking)
        with suppress(LmosActorsError):
            await said_in(digger)
        await settle()
        trio.lowlevel.remove_instrument(breaking)
    assert not world.running
    assert sorted(set(world.did)) == sorted(world.did), world.did
    if breaking.left <= 0:
        assert forgotten == [True]
        async with open_node(tree(world), store=world.store) as node:
            assert await node.find(Digger).invoke(ChatAgent.sessions) == []
    world.store.open()
    for space in ("chat turns", "chat steps", *(("chats", "chat messages") if forgotten else ())):
        assert world.store.scan(space, limit=9) == []
    return breaking.left <= 0


def check(world: World, history: list[Said], *, may_fail: bool) -> None:
    """The turn is in the history once, no tool was called twice, and the model knows what is not known."""
    assert sorted(set(world.did)) == sorted(world.did), world.did
    asked, answer = history
    assert (asked.text, answer.role) == ("dig", "agent")
    if answer.failed is not None:
        assert may_fail
        assert answer.failed.code in ("MODEL_UNAVAILABLE", "MODEL_CUT"), answer.failed
        return
    for name in NAMES:
        assert (f"gold {name}" in answer.text) is (name not in world.told)
        assert name in world.did or name in world.told


@pytest.mark.parametrize("how", ["kill", "end", "stop digger", "crash digger", "crash script"])
def test_a_resumed_turn_is_cut_off_at_every_step(how: str) -> None:
    step = 1
    while simulate(play, step, how):
        step += few_or_all(29, 1)
    assert step > 50


def test_the_session_of_a_resumed_turn_is_forgotten_at_every_step() -> None:
    step = 1
    while simulate(forget, step):
        step += few_or_all(29, 1)
    assert step > 50
