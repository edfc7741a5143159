"""Conversations that are broken off at every step: whatever it is, nothing is left, and the next turn works.

A step is one that trio gives to any task. What breaks off: the caller leaves, the chat agent, the model or a
tool is stopped at once or crashes, or the whole node ends.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import SHUTDOWN, Agent, ChildSpec, ExitReason, SupervisorSpec, action, open_node, simulate
from lmos_actors.actors import slot_of
from lmos_actors.errors import LmosActorsError
from lmos_actors.facades import ChatAgent, ChatTurn, TurnDone
from lmos_actors.llm import ModelEnd, TextDelta
from lmos_actors.testing import settle
from lmos_actors.thinking import Budget, ThinkingAgent, hand_back, hand_over
from tests.matrix import few_or_all
from tests.thinking.models import Log, Script, answered, wants

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors import Node
    from lmos_actors.llm import ModelItem, ModelRequest

RUNNING: list[str] = []


class Bug(Exception):
    """What an agent crashes with."""


class Mine(Agent):
    """Digs."""

    @action(concurrency=4)
    async def dig(self, name: str) -> str:
        """Dig."""
        RUNNING.append(name)
        try:
            await trio.sleep(0.01)
            await trio.sleep(0.01)
        finally:
            RUNNING.remove(name)
        return "gold"


async def sift(name: str) -> str:
    """Sift."""
    RUNNING.append(name)
    try:
        await trio.sleep(0.01)
    finally:
        RUNNING.remove(name)
    return "sand"


class Dealer(ChatAgent):
    """Buys."""

    async def reply(self, turn: ChatTurn) -> None:
        await trio.sleep(0.01)
        if "sell" in turn.text:
            await turn.say("Sold.")
        await turn.use(hand_back, reason="done")


class Digger(ThinkingAgent):
    """You dig."""

    tools = (Mine, sift, hand_over(Dealer, name="deal"))
    budget = Budget(seconds=20)


def think_slowly(request: ModelRequest) -> Any:
    """Look, dig side by side, hand over in vain, and answer."""

    async def items() -> AsyncGenerator[ModelItem]:
        await trio.sleep(0.01)
        yield TextDelta("I ")
        await trio.sleep(0.01)
        done = len(request.messages)
        if done == 1:
            yield wants("dig", "1", name="a")
            yield wants("sift", "2", name="b")
            yield wants("dig", "3", name="c")
            yield ModelEnd("tools")
        elif done == 5:
            yield wants("deal", "4")
            yield ModelEnd("tools")
        else:
            yield TextDelta("have it.")
            yield ModelEnd()

    return items()


class AtStep(trio.abc.Instrument):
    """Does something before the step of that number."""

    def __init__(self, step: int, deed: Callable[[], None]) -> None:
        self.left = step
        self._deed = deed

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self._deed()


def break_off(node: Node, how: str, body: trio.CancelScope, whole: trio.CancelScope) -> None:
    deed, _, victim = how.partition(" ")
    if deed == "leave":
        body.cancel("broken off")
    elif deed == "end":
        whole.cancel("broken off")
    for ref in node.agents():
        slot = slot_of(ref)
        if slot.label == victim and deed == "stop":
            slot.stop(SHUTDOWN, "brutal")
        elif slot.label == victim and deed == "crash":
            slot.die(ExitReason("error", error=Bug("from outside")))


def tree(log: Log) -> SupervisorSpec:
    agents: dict[str, Any] = {
        "script": partial(Script, answers=(think_slowly,), heard=log),
        "mine": Mine,
        "dealer": Dealer,
        "digger": Digger,
    }
    return SupervisorSpec(
        "root", [ChildSpec(name, each) for name, each in agents.items()], max_restarts=1_000
    )


async def play(step: int, how: str) -> bool:
    """Break a conversation off at a step; return whether it came so far."""
    log, ends = Log(), list[str]()
    whole, body = trio.CancelScope(), trio.CancelScope()
    breaking = AtStep(step, lambda: break_off(node, how, body, whole))
    with whole:
        async with open_node(tree(log)) as node:
            digger = node.find(Digger)
            await digger.ready()
            trio.lowlevel.add_instrument(breaking)
            try:
                with body, trio.fail_after(100):  # else nobody answers
                    async with digger.stream(Digger.chat, "dig") as items:
                        async for item in items:
                            if isinstance(item, TurnDone):
                                ends.append(item.text)
            except LmosActorsError as error:
                ends.append(type(error).__name__)
            finally:
                trio.lowlevel.remove_instrument(breaking)
            assert len(ends) == 1 or body.cancelled_caught
            await settle()
            assert not RUNNING
            assert not log.open
            assert "turn-" not in node.tree()
            await trio.sleep(3)
            for ref in node.agents():
                with trio.fail_after(10):
                    await ref.ready()
            assert (await answered(digger)).endswith("I have it.")
    assert not RUNNING
    assert not log.open
    return breaking.left <= 0


@pytest.mark.parametrize("how", ["leave", "end"])
def test_left_at_every_step(how: str) -> None:
    for step in count(1, few_or_all(11, 1)):
        if not simulate(play, step, how):
            break
    assert step > 50


@pytest.mark.parametrize("victim", ["script", "mine", "dealer", "digger"])
@pytest.mark.parametrize("how", ["stop", "crash"])
def test_an_agent_ends_at_every_step(how: str, victim: str) -> None:
    for step in count(1, few_or_all(31, 1)):
        if not simulate(play, step, f"{how} {victim}"):
            break
    assert step > 50
