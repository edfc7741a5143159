"""Conversations that were handed over, over the end of their process: nothing is asked twice."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors import AgentDied, ChildSpec, open_node
from lmos_actors.errors import AgentUnavailable
from lmos_actors.facades import ChatAgent, TurnDone
from lmos_actors.llm import ModelMessage, ToolMessage
from lmos_actors.testing import settle
from lmos_actors.thinking import ThinkingAgent, hand_over
from tests.facades.lives import Mortal, in_memory, virtual
from tests.thinking.models import Log, Script, wants

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Ref


class Front(ThinkingAgent):
    """You pass people on."""


class Expert(ThinkingAgent):
    """You know."""


class Careless(Expert):
    """You know."""

    resumes = False


@attrs.define
class World:
    """What is asked of two models and done by a tool, over all lives."""

    front: list[Any]
    expert: list[Any]
    cls: type[ThinkingAgent] = Expert
    front_tools: tuple[Any, ...] = ()
    store: Mortal = attrs.field(factory=in_memory)
    effects: list[str] = attrs.field(factory=list[str])
    waits: trio.Event = attrs.field(factory=trio.Event)
    may_go_on: bool = False
    asked_front: Log = attrs.field(factory=Log)
    asked_expert: Log = attrs.field(factory=Log)

    async def act(self, what: str) -> str:
        """Act, and be killed."""
        self.effects.append(what)
        if not self.may_go_on:
            self.waits.set()
            await trio.sleep_forever()
        return f"{what} done"

    @asynccontextmanager
    async def life(self, *, is_killed: bool = False) -> AsyncGenerator[tuple[Ref[Any], Ref[Any]]]:
        """Have one life of a node with both agents; it is killed at the end of the block, or ends."""
        async with open_node(store=self.store) as node:
            scripts = ((self.front, self.asked_front), (self.expert, self.asked_expert))
            models = [
                await node.start_child(
                    ChildSpec(f"model-{number}", partial(Script, answers=tuple(answers), heard=log))
                )
                for number, (answers, log) in enumerate(scripts)
            ]
            made = partial(self.cls, model=models[1], tools=(self.act,))
            expert = await node.start_child(ChildSpec("expert", made, shutdown="brutal"))
            made = partial(Front, model=models[0], tools=(hand_over(expert), *self.front_tools))
            front = await node.start_child(ChildSpec("front", made, shutdown="brutal"))
            yield front, expert
            if is_killed:
                self.store.is_dead = True
                node.force_stop()
        self.store.is_dead = False

    async def cut_off(self, text: str = "hello") -> None:
        self.waits = trio.Event()
        async with trio.open_nursery() as nursery, self.life(is_killed=True) as (front, _):
            nursery.start_soon(ask, front, text)
            await self.waits.wait()
            await settle()


async def ask(front: Ref[Any], text: str) -> str:
    answer = ""
    with suppress(AgentDied, AgentUnavailable):
        async with front.stream(ChatAgent.chat, text, "s", new=True) as items:
            async for item in items:
                if isinstance(item, TurnDone):
                    answer = item.text
    return answer


async def said(agent: Ref[Any], session: str = "s") -> list[str]:
    found = await agent.invoke(ChatAgent.history, session, settled=True)
    return [each.text if each.failed is None else each.failed.code for each in found]


OVER = wants("hand_over_to_expert", reason="knows more")
ACT = wants("act", what="repair")


@virtual
async def test_the_answer_of_the_other_agent_is_taken_over() -> None:
    world = World([OVER], [ACT, "It may be repaired."])
    await world.cut_off()
    world.may_go_on = True
    async with world.life() as (front, expert):
        assert await said(front) == ["hello", "It may be repaired."]
        (session,) = await expert.invoke(ChatAgent.sessions)
        assert await said(expert, session.id) == ["hello", "It may be repaired."]
        assert await ask(front, "and now?") == "It may be repaired.", "it has the conversation"
        assert len(await expert.invoke(ChatAgent.sessions)) == 1
    assert (world.effects, len(world.asked_front.asked)) == (["repair"], 1)
    assert world.store.is_clean


@virtual
async def test_without_an_answer_there_the_outcome_is_unknown() -> None:
    world = World([OVER], [ACT, "It may be repaired."], Careless)
    await world.cut_off()
    world.may_go_on = True
    async with world.life() as (front, _):
        assert await said(front) == ["hello", "OUTCOME_UNKNOWN"]
    assert world.effects == ["repair"]
    assert world.store.is_clean


@virtual
async def test_an_earlier_answer_is_not_taken_for_this_one() -> None:
    """The second message is the same as the first."""
    world = World([OVER], ["Yes.", ACT, "It may be repaired."], Careless)
    async with world.life() as (front, _):
        assert await ask(front, "hello") == "Yes."
    await world.cut_off()
    world.may_go_on = True
    async with world.life() as (front, _):
        assert await said(front) == ["hello", "Yes.", "hello", "OUTCOME_UNKNOWN"]


@virtual
async def test_a_conversation_that_the_other_agent_has_goes_on_there() -> None:
    world = World([OVER], ["Yes.", ACT, "It may be repaired."])
    async with world.life() as (front, _):
        assert await ask(front, "hello") == "Yes."
    await world.cut_off("repair it")
    world.may_go_on = True
    async with world.life() as (front, _):
        assert await said(front) == ["hello", "Yes.", "repair it", "It may be repaired."]
    assert (world.effects, len(world.asked_front.asked)) == (["repair"], 1)


@virtual
async def test_what_was_handed_back_is_not_passed_on_again() -> None:
    world = World([OVER, ACT, "I have done it."], [wants("hand_back", reason="not mine")])

    world.front_tools = (world.act,)
    await world.cut_off()
    world.may_go_on = True
    async with world.life() as (front, _):
        assert await said(front) == ["hello", "I have done it."]
    assert len(world.asked_expert.asked) == 1
    _, over, back, again, result = world.asked_front.asked[-1].messages
    assert isinstance(over, ModelMessage)
    assert back == ToolMessage("1", "hand_over_to_expert", error="handed back: not mine")
    assert isinstance(again, ModelMessage)
    assert isinstance(result, ToolMessage)
    assert result.unknown
    assert world.effects == ["repair"]
