"""Hand-over: another agent has the conversation, hands it back, is not there, or breaks off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, open_node, simulate
from lmos_actors.errors import StartFailed
from lmos_actors.facades import (
    ChatAgent,
    ChatMedia,
    ChatPart,
    ChatTurn,
    MediaPiece,
    ToolCalled,
    ToolReturned,
    tool_of,
)
from lmos_actors.llm import ModelEnd, TextDelta, ToolMessage, UserMessage
from lmos_actors.thinking import Budget, ThinkingAgent, hand_back, hand_over
from lmos_actors.transport import MemoryNetwork
from tests.thinking.models import Log, Script, answered, said, wants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors import Node, Ref
    from lmos_actors.llm import ModelRequest


def count(n: int) -> int:
    """Count."""
    return n


class Billing(ChatAgent):
    """Knows bills."""

    crashes: bool = False

    async def reply(self, turn: ChatTurn) -> None:
        turn.memory["turns"] = turn.memory.get("turns", 0) + 1
        if "crash" in turn.text:
            await turn.say("I ")
            raise RuntimeError("bug")
        if "gone" in turn.text:
            raise RuntimeError("bug")
        if "fail" in turn.text:
            await turn.say("I ")
            raise ActionFailed({"code": "NO_BILL", "message": "there is none"})
        if "thanks" in turn.text:
            await turn.say("Good bye.")
            await turn.use(hand_back)
            return
        if "weather" in turn.text:
            await turn.use(hand_back, reason="not about bills")
            return
        if turn.parts:
            await turn.say(f"{len(await turn.read(turn.parts[0]))} bytes. ")
        turn.is_cut = "all" in turn.text
        if "picture" in turn.text:
            await turn.stream_media("image/png", b"bill")
        await turn.use(tool_of(count), n=1)
        reason = turn.metadata["handed_over"]["reason"]
        await turn.say(f"Bill {turn.memory['turns']} ({reason}).")


class Triage(ThinkingAgent):
    """You find out what people want."""

    tools = (hand_over(Billing, name="billing", description="For bills."),)


OVER = wants("billing", reason="a bill")


def play(answers: Sequence[Any], act: Any, *, billing: bool = True) -> Log:
    log = Log()

    async def main() -> None:
        async with open_node() as node:
            await node.start(Script, answers=tuple(answers), heard=log)
            if billing:
                await node.start(Billing)
            await act(node, await node.start(Triage))
            assert not log.open

    simulate(main)
    return log


def test_the_other_agent_answers_from_then_on() -> None:
    async def talk(node: Node, agent: Ref[Any]) -> None:
        session, items = await said(agent, "my bill?")
        assert items[-1].text == "Bill 1 (a bill)."
        assert [type(item) for item in items[1:3]] == [ToolCalled, ToolReturned]
        assert await answered(agent, "and the next?", session) == "Bill 2 ()."
        history = await agent.invoke(ChatAgent.history, session)
        assert [each.text for each in history] == [
            "my bill?",
            "Bill 1 (a bill).",
            "and the next?",
            "Bill 2 ().",
        ]
        assert await answered(agent, "my bill?") == "Bill 1 (a bill)."

    log = play([OVER], talk)
    assert len(log.asked) == 2
    (offer,) = log.asked[0].tools
    assert (offer.name, offer.description) == ("billing", "For bills.")


def test_an_answer_that_is_cut_is_so_for_the_user_too() -> None:
    async def talk(node: Node, agent: Ref[Any]) -> None:
        session, items = await said(agent, "all my bills?")
        assert items[-1].is_cut
        assert not (await said(agent, "my bill?", session))[1][-1].is_cut

    play([OVER], talk)


def test_media_of_an_agent_that_took_over_are_passed_on() -> None:
    async def talk(node: Node, agent: Ref[Any]) -> None:
        _, items = await said(agent, "a picture of my bill?")
        assert [item.data for item in items if isinstance(item, MediaPiece)] == [b"bill"]

    play([OVER], talk)


def test_it_hands_back_when_it_is_done() -> None:
    async def talk(node: Node, agent: Ref[Any]) -> None:
        session, _ = await said(agent, "my bill?")
        session, items = await said(agent, "thanks", session)
        assert items[-1].text == "Good bye."
        assert not any(isinstance(item, ToolCalled | ToolReturned) for item in items)
        assert await answered(agent, "hello?", session) == "Hello!"
        assert await answered(agent, "my bill?", session) == "Bill 3 (a bill)."

    log = play([OVER, "Hello!", OVER], talk)
    assert [each.text for each in log.asked[1].messages if isinstance(each, UserMessage)] == [
        "my bill?",
        "thanks",
        "hello?",
    ]


def test_a_message_that_it_hands_back_is_answered_in_the_same_turn() -> None:
    async def talk(node: Node, agent: Ref[Any]) -> None:
        session, _ = await said(agent, "my bill?")
        assert await answered(agent, "the weather?", session) == "Sunny."
        assert await answered(agent, "the weather?") == "No idea."

    log = play([OVER, "Sunny.", [OVER, wants("x", "2"), ModelEnd("tools")], "No idea."], talk)
    assert log.asked[1].messages[-1] == UserMessage("the weather?")
    assert log.asked[1].tools == []  # it may not come back to it in this turn
    assert log.asked[3].messages[-2:] == [
        ToolMessage("1", "billing", error="handed back: not about bills"),
        ToolMessage("2", "x", error="not called"),
    ]


def test_an_agent_that_is_not_there_hands_back() -> None:
    async def talk(node: Node, agent: Ref[Any]) -> None:
        assert await answered(agent, "my bill?") == "Later, please."

    log = play([OVER, "Later, please."], talk, billing=False)
    assert log.asked[1].messages[-1] == ToolMessage(
        "1", "billing", error="handed back: it cannot answer now (NotFound)"
    )


def test_an_agent_that_crashes() -> None:
    async def talk(node: Node, agent: Ref[Any]) -> None:
        session, _ = await said(agent, "my bill?")
        with pytest.raises(ActionFailed, match="INTERNAL_ERROR"):
            await said(agent, "crash", session)
        with pytest.raises(ActionFailed, match="NO_BILL"):
            await said(agent, "fail", session)
        assert await answered(agent, "again", session) == "Bill 2 ()."
        assert await answered(agent, "gone", session) == "I am back."
        assert await answered(agent, "again", session) == "And here."

    play([OVER, "I am back.", "And here."], talk)


def test_files_go_with_it() -> None:
    part = ChatPart("file", media=ChatMedia("text/plain", data="YWJj"))

    async def talk(node: Node, agent: Ref[Any]) -> None:
        assert await answered(agent, "my bill?", parts=[part]) == "3 bytes. Bill 1 (a bill)."

    play([OVER], talk)


def test_a_thinking_agent_hands_back_by_a_tool() -> None:
    first, second = Log(), Log()

    class Orders(ThinkingAgent):
        """You know orders."""

    class Front(ThinkingAgent):
        """You are the front."""

        tools = (hand_over(Orders),)

    class FirstModel(Script):
        pass

    async def main() -> None:
        async with open_node() as node:
            over = wants("hand_over_to_Orders", reason="an order")
            one = await node.start(FirstModel, answers=(over, "Bye."), heard=first)
            back = [TextDelta("Sent. "), wants("hand_back", reason="done"), ModelEnd("tools")]
            two = await node.start(Script, answers=("Which number?", back), heard=second)
            await node.start(Orders, model=two)
            front = await node.start(Front, model=one)
            session, items = await said(front, "my order?")
            assert items[-1].text == "Which number?"
            assert await answered(front, "17", session) == "Sent. "
            assert await answered(front, "thanks", session) == "Bye."
            assert [[each.name for each in request.tools] for request in second.asked] == [["hand_back"]] * 2
            assert [[each.name for each in request.tools] for request in first.asked] == [
                ["hand_over_to_Orders"]
            ] * 2
            assert second.asked[0].messages == [UserMessage("my order?\n\n[Handed over to you: an order]")]
            assert second.asked[1].messages[-1] == UserMessage("17")

    simulate(main)


def test_an_agent_elsewhere_has_the_conversation() -> None:
    network, log = MemoryNetwork(), Log()

    async def main() -> None:
        async with (
            open_node(listen="ws://far:80", network=network) as there,
            open_node(network=network) as here,
        ):
            await there.start(Billing)
            ref = await here.consume(Billing, "http://far/agents/billing")
            model = await here.start(Script, answers=(wants("hand_over_to_billing"),), heard=log)
            front = await here.start(
                ThinkingAgent, model=model, tools=[hand_over(ref)], instructions="You help."
            )
            session, items = await said(front, "my bill?")
            assert items[-1].text == "Bill 1 ()."
            assert await answered(front, "again", session) == "Bill 2 ()."

    simulate(main)


def test_agents_that_hand_over_to_each_other_come_to_an_end() -> None:
    log = Log()

    class Ping(ThinkingAgent):
        """You hand over."""

        def tools_for(self, turn: ChatTurn) -> list[Any]:
            return [hand_over(Pong, name="over")]

    class Pong(Ping):
        """You hand over, too."""

        def tools_for(self, turn: ChatTurn) -> list[Any]:
            return [hand_over(self.find(Ping, "ping"), name="over")]

    def answer(request: ModelRequest) -> Any:
        names = [each.name for each in request.tools]
        return [wants("over"), ModelEnd("tools")] if "over" in names else "It is me."

    async def main() -> None:
        async with open_node() as node:
            await node.start(Script, answers=(answer,), heard=log)
            ping, _ = await node.start(Ping), await node.start(Pong)
            assert await answered(ping) == "It is me."
            assert len(log.asked) == 5

    simulate(main)


@pytest.mark.parametrize("said_", [1, "x", {"depth": "x"}, {"depth": 10**9}, None, []])
def test_metadata_from_outside_may_be_anything(said_: Any) -> None:
    async def talk(node: Node, agent: Ref[Any]) -> None:
        assert await answered(agent, metadata={"handed_over": said_}) == "Hello."

    play(["Hello."], talk)


class Plain(ThinkingAgent):
    """You find out what people want."""


class Silent(ChatAgent):
    """Says nothing."""

    async def reply(self, turn: ChatTurn) -> None:
        await trio.sleep_forever()


def test_the_time_of_a_turn_holds_for_the_agent_that_answers() -> None:
    async def main() -> float:
        async with open_node() as node:
            await node.start(Script, answers=(wants("hand_over_to_Silent"),))
            await node.start(Silent)
            front = await node.start(Plain, tools=(hand_over(Silent),), budget=Budget(seconds=20))
            with pytest.raises(ActionFailed, match="BUDGET_EXCEEDED: the budget of 20 s is used up"):
                await answered(front)
            return trio.current_time()

    assert simulate(main) == pytest.approx(20)


def test_two_hand_overs_have_two_names() -> None:
    async def main() -> None:
        async with open_node() as node:
            with pytest.raises(StartFailed, match=r"Triage\.tools: two tools are named 'other'"):
                await node.start(
                    Triage, tools=tuple(hand_over(each, name="other") for each in (Billing, Triage))
                )

    simulate(main)


def test_what_cannot_have_a_conversation() -> None:
    with pytest.raises(TypeError, match="hand_over takes a ref or the class of a chat agent, not 17"):
        hand_over(17)  # type: ignore[arg-type]
    assert hand_over(Billing).description == "Hand the conversation over to Billing: Knows bills."
