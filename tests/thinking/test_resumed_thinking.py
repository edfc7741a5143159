"""Plans of thinking agents over the end of their process: what is done once, and what the model is told."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio

from lmos_actors import AgentDied, ChildSpec, open_node, simulate
from lmos_actors.errors import AgentUnavailable
from lmos_actors.facades import ChatAgent, tool_of
from lmos_actors.llm import ModelEnd, ModelMessage, ModelRequest, TextDelta, ToolMessage, UserMessage
from lmos_actors.testing import settle
from lmos_actors.thinking import ThinkingAgent
from tests.facades.lives import Mortal, in_memory
from tests.thinking.models import Log, Script, answered, wants

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lmos_actors import Ref
    from lmos_actors.llm import ModelItem


@attrs.define
class World:
    """What happens outside of a program, and is not undone by its end."""

    effects: list[str] = attrs.field(factory=list[str])
    waits: trio.Event = attrs.field(factory=trio.Event)
    """Something waits to be killed."""
    is_over: bool = False
    """Nothing waits any more."""
    model: Log = attrs.field(factory=Log)

    async def wait_here(self) -> None:
        if not self.is_over:
            self.waits.set()
            await trio.sleep_forever()

    def send(self, to: str) -> str:
        """Send something."""
        self.effects.append(to)
        return f"sent to {to}"

    async def send_and_wait(self, to: str) -> str:
        """Send something, and be killed."""
        self.effects.append(to)
        await self.wait_here()
        return f"sent to {to}"

    async def look_up(self, to: str) -> str:
        """Look something up, and be killed."""
        self.effects.append(to)
        await self.wait_here()
        return f"found {to}"


class Sender(ThinkingAgent):
    """You send."""


@asynccontextmanager
async def life(
    store: Mortal, world: World, answers: Sequence[Any], *, is_killed: bool = False, **fields: Any
) -> AsyncGenerator[Ref[Any]]:
    """Have one life of a node with a model and an agent; it is killed at the end of the block, or ends."""
    look_up = tool_of(world.look_up, repeatable=True)
    fields = {"tools": (world.send, world.send_and_wait, look_up), **fields}
    async with open_node(store=store) as node:
        await node.start(Script, answers=tuple(answers), heard=world.model)
        child = ChildSpec("sender", partial(Sender, **fields), shutdown="brutal")
        yield await node.start_child(child)
        if is_killed:
            store.is_dead = True
            node.force_stop()
    store.is_dead = False


async def cut_off(store: Mortal, world: World, answers: Sequence[Any], **fields: Any) -> None:
    """Have a life in which a turn begins, which is killed once something waits for that."""
    world.waits = trio.Event()
    async with (
        trio.open_nursery() as nursery,
        life(store, world, answers, is_killed=True, **fields) as sender,
    ):

        async def ask() -> None:
            with suppress(AgentDied, AgentUnavailable):
                async with sender.stream(ChatAgent.chat, "hello", "s", new=True) as items:
                    async for _ in items:
                        pass

        nursery.start_soon(ask)
        await world.waits.wait()
        await settle()


async def settled(sender: Ref[Any]) -> str:
    """Return the answer in the history, once it is there; or the code of its failure."""
    asked, answer = await sender.invoke(ChatAgent.history, "s", settled=True)
    assert (asked.role, asked.text, answer.role) == ("user", "hello", "agent")
    return answer.text if answer.failed is None else answer.failed.code


def after_kill(*answers: Any, first: Sequence[Any] | None = None, **fields: Any) -> tuple[World, str]:
    """Have a turn in a life that is killed, and another life; return the world and the answer."""
    world, store = World(), in_memory()

    async def main() -> str:
        await cut_off(store, world, answers, **fields)
        world.is_over = True
        async with life(store, world, answers, **fields) as sender:
            answer = await settled(sender)
        assert store.is_clean
        return answer

    return world, simulate(main)


async def cut(request: ModelRequest) -> AsyncGenerator[ModelItem]:
    """The model says something, and is killed in the middle of it."""
    yield TextDelta("I wi")
    await trio.sleep_forever()


UNKNOWN = ToolMessage(
    "1",
    "send_and_wait",
    error="OutcomeUnknown: the tool broke off, and may have done its work or not. Do not simply repeat it: "
    "find out, or say that it is not known.",
    unknown=True,
)


def test_what_was_under_way_is_not_called_again_and_the_model_is_told() -> None:
    world, answer = after_kill(wants("send_and_wait", to="Ann"), "It may be sent.")
    assert (world.effects, answer) == (["Ann"], "It may be sent.")
    assert world.model.asked[1].messages == [
        UserMessage("hello"),
        ModelMessage("", [wants("send_and_wait", to="Ann")]),
        UNKNOWN,
    ]


def test_what_was_finished_is_not_called_again_and_its_result_is_there() -> None:
    answers = [
        [TextDelta("First Ann."), wants("send", to="Ann"), ModelEnd("tools")],
        wants("send_and_wait", "2", to="Bob"),
        "All is sent.",
    ]
    world, answer = after_kill(*answers)
    assert world.effects == ["Ann", "Bob"]
    assert answer == "First Ann.\n\nAll is sent."
    messages = world.model.asked[2].messages
    assert messages[2] == ToolMessage("1", "send", "sent to Ann")
    assert messages[4] == msgspec.structs.replace(UNKNOWN, id="2")


def test_the_next_turn_has_what_was_done_in_both_lives() -> None:
    world, store = World(), in_memory()
    answers = [wants("send", to="Ann"), wants("send_and_wait", "2", to="Bob"), "All is sent.", "fine"]

    async def main() -> None:
        await cut_off(store, world, answers)
        world.is_over = True
        async with life(store, world, answers) as sender:
            await settled(sender)
            await answered(sender, "And now?", "s")

    simulate(main)
    assert world.model.asked[-1].messages[1:-1] == [
        ModelMessage("", [wants("send", to="Ann")]),
        ToolMessage("1", "send", "sent to Ann"),
        ModelMessage("", [wants("send_and_wait", "2", to="Bob")]),
        msgspec.structs.replace(UNKNOWN, id="2", unknown=False),
        ModelMessage("All is sent."),
    ]


def test_results_of_one_answer_are_kept_one_by_one_and_in_the_order_of_the_requests() -> None:
    requests = [
        wants("send_and_wait", "1", to="Ann"),
        wants("send", "2", to="Bob"),
        wants("look_up", "3", to="Cid"),
        wants("send", "4", to="Dan"),
    ]
    world, _ = after_kill([*requests, ModelEnd("tools")], "Done.")
    assert sorted(world.effects) == ["Ann", "Bob", "Cid", "Dan"]
    results = world.model.asked[1].messages[2:]
    assert results[0] == UNKNOWN
    assert results[1] == ToolMessage("2", "send", "sent to Bob")
    assert isinstance(results[2], ToolMessage)
    assert results[2].error.endswith("It may be called again.")
    assert not results[2].unknown
    assert results[3] == ToolMessage("4", "send", "sent to Dan")


def test_the_same_call_is_barred_in_the_next_life_too_unless_it_is_repeatable() -> None:
    again = [
        wants("send_and_wait", "2", to="Ann"),
        wants("look_up", "3", to="Cid"),
        wants("send_and_wait", "4", to="Bob"),
        ModelEnd("tools"),
    ]
    first = [wants("send_and_wait", to="Ann"), wants("look_up", "9", to="Cid"), ModelEnd("tools")]
    world, _ = after_kill(first, again, "Done.")
    assert sorted(world.effects) == ["Ann", "Bob", "Cid", "Cid"]
    refused = world.model.asked[2].messages[-3]
    assert isinstance(refused, ToolMessage)
    assert "not called again" in refused.error


def test_the_bar_holds_over_a_second_kill() -> None:
    world, store = World(), in_memory()
    answers = [
        wants("send_and_wait", to="Ann"),
        wants("send_and_wait", "2", to="Bob"),
        wants("send_and_wait", "3", to="Ann"),
        "Done.",
    ]

    async def main() -> str:
        await cut_off(store, world, answers)
        world.waits = trio.Event()
        async with life(store, world, answers, is_killed=True):
            await world.waits.wait()
        world.is_over = True
        async with life(store, world, answers) as sender:
            return await settled(sender)

    assert simulate(main) == "Done."
    assert world.effects == ["Ann", "Bob"]


def test_the_text_of_a_request_that_was_cut_is_dropped() -> None:
    def dying(request: ModelRequest) -> Any:
        world.waits.set()
        return cut(request)

    world, store = World(), in_memory()
    answers = [
        [TextDelta("I look."), wants("send", to="Ann"), ModelEnd("tools")],
        dying,
        "I will not.",
    ]

    async def main() -> str:
        await cut_off(store, world, answers)
        async with life(store, world, answers) as sender:
            return await settled(sender)

    assert simulate(main) == "I look.\n\nI will not."
    assert world.effects == ["Ann"]
