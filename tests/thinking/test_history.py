"""Earlier turns as the model gets them: with calls of tools and their results, whole and within a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors import ActionFailed, open_node, simulate
from lmos_actors.errors import OutcomeUnknown
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.llm import (
    ModelEnd,
    ModelMessage,
    Reasoning,
    TextDelta,
    ToolMessage,
    UserMessage,
    estimated_tokens,
    model_failure,
)
from lmos_actors.thinking import ThinkingAgent, ToolLimits, hand_back, hand_over
from tests.thinking.models import Log, Script, said, wants

if TYPE_CHECKING:
    from lmos_actors.llm import Message, ModelRequest


def look_up(number: int, size: int = 0) -> dict[str, Any]:
    """Return an order by its number."""
    return {"number": number, "state": "sent", **({"text": "x" * size} if size else {})}


def send() -> str:
    """Send something, and break off."""
    raise OutcomeUnknown("post", "it broke off")


class Desk(ChatAgent):
    """Answers the first message, and hands back the others."""

    async def reply(self, turn: ChatTurn) -> str | None:
        return "I have it." if turn.text == "m0" else await turn.use(hand_back) and None


class Assistant(ThinkingAgent):
    """You help people."""

    tools = (look_up, send, hand_over(Desk, name="over"))


class Noting(Assistant):
    """You help."""

    async def reply(self, turn: ChatTurn) -> None:
        turn.note({"role": "robot"})
        await super().reply(turn)


def asked(
    *answers: Any, turns: int = 2, cls: type[ThinkingAgent] = Assistant, **fields: Any
) -> list[ModelRequest]:
    """Have turns of a conversation, of which all but the last may fail; return the requests to the model."""
    log = Log()

    async def main() -> None:
        async with open_node() as node:
            await node.start(Script, answers=answers, heard=log)
            await node.start(Desk)
            agent = await node.start(cls, **fields)
            for number in range(turns):
                try:
                    await said(agent, f"m{number}", "s", new=True)
                except ActionFailed:
                    assert number < turns - 1

    simulate(main)
    return log.asked


SEVEN = wants("look_up", number=7)
FOUND = ToolMessage("1", "look_up", {"number": 7, "state": "sent"})
UNKNOWN = ToolMessage(
    "1",
    "send",
    error="OutcomeUnknown: the tool broke off, and may have done its work or not. Do not simply repeat it: "
    "find out, or say that it is not known.",
)
OVER = [wants("over"), wants("look_up", "2", number=7)]
HANDED = ToolMessage("1", "over", "done: the conversation is handed over")
I_LOOK = [TextDelta("I look."), SEVEN, ModelEnd("tools")]


def call(text: str = "", *requests: Any) -> ModelMessage:
    return ModelMessage(text, list(requests) or [SEVEN])


@pytest.mark.parametrize(
    ("answers", "turn"),
    [
        ([SEVEN, "Sent."], [call(), FOUND, ModelMessage("Sent.")]),
        (
            [[Reasoning("Well"), *I_LOOK], SEVEN, "Sent."],
            [call("I look."), FOUND, call(), FOUND, ModelMessage("Sent.")],
        ),
        ([I_LOOK, [ModelEnd()]], [call("I look."), FOUND]),
        (
            [SEVEN, model_failure("MODEL_BUSY", "not now")],
            [call(), FOUND, ModelMessage("[Not answered: not now]")],
        ),
        (
            [[*OVER, ModelEnd("tools")]],
            [
                call("", *OVER),
                HANDED,
                ToolMessage("2", "look_up", error="not called"),
                ModelMessage("I have it."),
            ],
        ),
        ([wants("send"), "Hm."], [call("", wants("send")), UNKNOWN, ModelMessage("Hm.")]),
    ],
)
def test_an_earlier_turn_has_its_calls_and_their_results(answers: list[Any], turn: list[Message]) -> None:
    assert asked(*answers, "fine")[-1].messages == [UserMessage("m0"), *turn, UserMessage("m1")]


def test_notes_that_cannot_be_read_are_passed_over() -> None:
    messages = asked(SEVEN, "Sent.", "fine", cls=Noting)[-1].messages
    assert messages == [UserMessage("m0"), ModelMessage("Sent."), UserMessage("m1")]


def test_what_is_unknown_of_one_turn_bars_no_call_of_the_next() -> None:
    again = asked(wants("send"), "Hm.", wants("send"), "Hm.")[-1].messages[-1]
    assert isinstance(again, ToolMessage)
    assert again.unknown, "it was called"


def test_a_large_result_is_cut_and_says_so() -> None:
    many = [wants("look_up", "0", number=0, size=9_000), SEVEN, ModelEnd("tools")]
    _, _, large, small, *_ = asked(many, "Two.", "fine", history_tokens=4_000)[-1].messages
    assert isinstance(large, ToolMessage)
    assert large.result.startswith('{"number":0,"state":"sent","text":"xxx')
    assert large.result.endswith("x ... [cut: 2000 of 9037 bytes]")
    assert small == FOUND


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6_000), min_size=1, max_size=5), max_size=6), st.integers(1, 12_000))
def test_no_call_is_without_its_result_and_the_last_ones_stay(rounds: list[list[int]], most: int) -> None:
    wanted = [[wants("look_up", f"{n}", number=n, size=each) for n, each in enumerate(one)] for one in rounds]
    answers = [[*requests, ModelEnd("tools")] for requests in wanted]
    limits = ToolLimits(result_bytes=3_000)
    kept = asked(*answers, "All.", "fine", history_tokens=most, limits=limits)[-1].messages
    calls = [each.tools for each in kept if isinstance(each, ModelMessage) and each.tools]
    results = [(each.id, each.name) for each in kept if isinstance(each, ToolMessage)]
    assert results == [(each.id, each.name) for requests in calls for each in requests]
    assert calls == wanted[len(wanted) - len(calls) :]
    assert sum(map(estimated_tokens, kept)) < most / 4 + 20 * len(kept) + 20


def test_what_is_too_old_goes_into_the_summary_with_its_results() -> None:
    answers = [SEVEN, "y" * 400, SEVEN, "y" * 400, "the sum", "fine"]
    *_, summary, last = asked(*answers, turns=3, history_tokens=250)
    (text,) = summary.messages
    assert isinstance(text, UserMessage)
    assert text.text.startswith(
        'user: m0\n\nyou: look_up({"number":7})\n\ntool look_up: {"number":7,"state":"sent"}\n\nyou: yyy'
    )
    assert last.messages[0] == UserMessage("[Summary of what we said before: the sum]")
