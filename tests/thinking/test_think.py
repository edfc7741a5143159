"""The loop by itself: one answer or one failure, whatever a model does, and within its budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import attrs
import pytest
import trio
from msgspec import Meta, Struct

from lmos_actors import ActionFailed, Agent, action, open_node, simulate
from lmos_actors.facades import tool_of
from lmos_actors.llm import (
    Model,
    ModelEnd,
    ModelFile,
    ModelItem,
    ModelMessage,
    ModelRequest,
    Reasoning,
    TextDelta,
    ToolMessage,
    ToolRequest,
    Usage,
    UserMessage,
    model_failure,
)
from lmos_actors.testing import fake, in_turn, settle
from lmos_actors.thinking import Account, Budget, Spent, Thought, think
from tests.thinking.models import Log, Script, wants

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def thinking(answers: Any, prompt: str = "hello", **options: Any) -> tuple[Log, Thought[Any]]:
    """Have a scripted model think; return the log and the thought."""
    log = Log()

    async def main() -> Thought[Any]:
        async with open_node() as node:
            model = await node.start(Script, answers=tuple(answers), heard=log)
            return await think(model, prompt, **options)

    return log, simulate(main)


def failing(answers: Any, code: str, **options: Any) -> tuple[Log, ActionFailed]:
    """As `thinking`, where it fails with a code."""
    log = Log()

    async def main() -> ActionFailed:
        async with open_node() as node:
            model = await node.start(Script, answers=tuple(answers), heard=log)
            with pytest.raises(ActionFailed) as failed:
                await think(model, "hello", **options)
            await settle()
            assert not log.open
            return failed.value

    failure = simulate(main)
    assert failure.code == code
    return log, failure


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# ---- what a model does


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([TextDelta("Yes."), ModelEnd()], "stop"),
        ([TextDelta("Yes.")], "stop"),  # without an end
        ([TextDelta("Yes."), ModelEnd(), ModelEnd("refused"), TextDelta("No.")], "stop"),
        ([TextDelta("Yes."), ModelEnd(), *[TextDelta("No.")] * 1_000], "stop"),
        ([TextDelta("Yes."), ModelEnd(), wants("add", a=1, b=2)], "stop"),
        ([TextDelta("Yes."), ModelEnd("length")], "length"),
        ([TextDelta("Yes."), ModelEnd("refused")], "refused"),
        ([Reasoning("Well ..."), TextDelta("Yes."), ModelEnd("tools")], "tools"),  # and asks for none
    ],
)
def test_one_answer_whatever_a_model_sends(items: list[Any], reason: str) -> None:
    said: list[str] = []

    async def say(text: str) -> None:
        said.append(text)

    log, thought = thinking([items], say=say, tools=[add])
    assert (thought.answer, thought.text, thought.reason, said) == ("Yes.", "Yes.", reason, ["Yes."])
    assert len(log.asked) == 1


def test_a_model_that_does_not_end_is_left_after_its_end() -> None:
    log = Log()

    async def endless(request: ModelRequest) -> AsyncGenerator[ModelItem]:
        yield TextDelta("Yes.")
        yield ModelEnd()
        await trio.sleep_forever()

    async def main() -> None:
        async with open_node() as node:
            model = await node.start(Script, answers=(endless,), heard=log)
            assert (await think(model, "hello")).answer == "Yes."
            assert trio.current_time() == pytest.approx(1)
            await settle()
            assert not log.open

    simulate(main)


def test_an_empty_answer_is_asked_for_again_once() -> None:
    log, thought = thinking([[ModelEnd()], "Yes."])
    assert thought.answer == "Yes."
    assert log.asked[1].messages == [
        UserMessage("hello"),
        UserMessage("Your answer is empty. Answer the user."),
    ]
    log, _ = failing([[ModelEnd()]], "ANSWER_INVALID")
    assert len(log.asked) == 2
    failing([[]], "ANSWER_INVALID")
    failing([[ModelEnd("refused")]], "ANSWER_REFUSED")
    failing([[ModelEnd("length")]], "ANSWER_INVALID")


def test_what_was_said_before_the_tools_is_an_answer() -> None:
    async def say(text: str) -> None:
        pass

    answers = [[TextDelta("I add them."), wants("add", a=1, b=2), ModelEnd("tools")], [ModelEnd()]]
    _, thought = thinking(answers, tools=[add], say=say)
    assert thought.answer == "I add them."


def test_failures_of_the_model_are_passed_on() -> None:
    for code in ("MODEL_BUSY", "MODEL_KEY_REFUSED", "MODEL_UNAVAILABLE"):
        log, _ = failing([model_failure(code, "no")], code)
        assert len(log.asked) == 1

    def cut(request: ModelRequest) -> Any:
        async def items() -> AsyncGenerator[ModelItem]:
            yield TextDelta("I ")
            raise model_failure("MODEL_CUT", "the connection broke off")

        return items()

    failing([cut], "MODEL_CUT")


def test_a_crash_of_the_model_is_asked_again_if_nothing_was_heard() -> None:
    log, thought = thinking([RuntimeError("bug"), "Yes."])
    assert thought.answer == "Yes."
    assert thought.spent.calls == 2
    log, _ = failing([RuntimeError("bug")], "MODEL_UNAVAILABLE")
    assert len(log.asked) == 3

    def crash(request: ModelRequest) -> Any:
        async def items() -> AsyncGenerator[ModelItem]:
            yield TextDelta("I ")
            raise RuntimeError("bug")

        return items()

    log, failure = failing([crash, "Yes."], "MODEL_CUT")
    assert len(log.asked) == 1
    assert "bug" not in str(failure)


def test_no_model_says_so() -> None:
    async def main() -> None:
        async with open_node() as node:
            with pytest.raises(ActionFailed, match="NO_MODEL"):
                await think(node.find(Model), "hello")
            model = await node.start(Model)
            with pytest.raises(ActionFailed, match="NO_MODEL"):
                await think(model, "hello")
            await node.root.terminate_child("model")
            with pytest.raises(ActionFailed, match=r"NO_MODEL|MODEL_UNAVAILABLE"):
                await think(model, "hello")

    simulate(main)


def test_what_a_model_gets() -> None:
    history = [UserMessage("I am Ada."), ModelMessage("Hello Ada.")]
    files = [ModelFile("image/png", b"...", name="cat.png")]
    log, thought = thinking(
        ["A cat."],
        "What is it?",
        instructions="Be brief.",
        history=history,
        files=files,
        max_tokens=100,
        temperature=0.0,
    )
    assert log.asked == [
        ModelRequest(
            [*history, UserMessage("What is it?", files)], "Be brief.", max_tokens=100, temperature=0.0
        )
    ]
    assert thought.messages == (UserMessage("What is it?", files), ModelMessage("A cat."))


def test_reasoning_goes_back_to_the_model() -> None:
    reasoning = [Reasoning("Two numbers."), Reasoning(state="signed")]
    log, _ = thinking([[*reasoning, wants("add", a=1, b=2), ModelEnd("tools")], "3"], tools=[add])
    assert log.asked[1].messages[1] == ModelMessage("", [wants("add", a=1, b=2)], reasoning)


# ---- structured answers


class Plan(Struct, frozen=True):
    """A plan."""

    steps: list[str]
    days: Annotated[int, Meta(ge=1)] = 1


@attrs.frozen
class Point:
    x: int
    y: int


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [
        (Plan, '{"steps": ["go"]}', Plan(["go"])),
        (Plan, '```json\n{"steps": ["go"], "days": 2}\n```', Plan(["go"], 2)),
        (Plan, ' \n```\n{"steps": ["go"]}```\n\n', Plan(["go"])),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (list[Plan], '{"answer": [{"steps": []}]}', [Plan([])]),
        (int, '{"answer": 17}', 17),
        (bool, '{"answer": false}', False),
    ],
)
def test_an_answer_of_a_type(wanted: Any, text: str, value: Any) -> None:
    async def say(piece: str) -> None:
        raise AssertionError("a structured answer is not said as it comes")

    log, thought = thinking([text], answer=wanted, say=say)
    assert thought.answer == value
    schema = log.asked[0].answer
    assert schema is not None
    assert schema["type"] == "object"


def test_a_broken_answer_is_repaired_once() -> None:
    log, thought = thinking(['{"steps": "go"}', '{"steps": ["go"]}'], answer=Plan)
    assert thought.answer == Plan(["go"])
    again = log.asked[1].messages[-1]
    assert isinstance(again, UserMessage)
    assert "Expected `array`, got `str` - at `$.steps`" in again.text
    endless = "```json" + "\n" * 100_000  # which a pattern may take minutes for
    for broken in ("no JSON", endless, '{"steps": [], "days": 0}', "[]", "{}", "[" * 5_000):
        log, _ = failing([broken], "ANSWER_INVALID", answer=Plan)
        assert len(log.asked) == 2
    failing(["{}"], "ANSWER_INVALID", answer=int)
    _, failure = failing([[TextDelta("I will not."), ModelEnd("refused")]], "ANSWER_REFUSED", answer=Plan)
    assert failure.detail == "I will not."


def test_a_type_without_a_schema_is_a_mistake() -> None:
    for wanted in (object(), type("X", (), {})):
        with pytest.raises(TypeError):
            thinking(["{}"], answer=wanted)


def test_a_tool_whose_arguments_were_cut_off_is_not_called() -> None:
    calls: list[str] = []

    def clear(place: str = "everything") -> None:
        """Clear."""
        calls.append(place)

    log, _ = thinking([[ToolRequest("1", "clear"), ModelEnd("length")], "Fine."], tools=[clear])
    result = log.asked[1].messages[-1]
    assert isinstance(result, ToolMessage)
    assert result.error == "the arguments are no JSON object: the answer was cut off before them"
    assert not calls


@pytest.mark.parametrize(("given", "ids"), [(["x", "x"], ["x", "0"]), (["0", "", "0"], ["0", "1", "2"])])
def test_requests_of_one_answer_have_different_ids(given: list[str], ids: list[str]) -> None:
    """Else a turn that is resumed could take the result of one for that of another."""
    asked = [wants("add", id, a=1, b=place) for place, id in enumerate(given)]
    log, _ = thinking([[*asked, ModelEnd("tools")], "Three."], tools=[add])
    said, *results = log.asked[1].messages[1:]
    assert isinstance(said, ModelMessage)
    assert [each.id for each in said.tools] == ids
    assert results == [ToolMessage(id, "add", 1 + place) for place, id in enumerate(ids)]


def test_a_tool_and_one_that_ends_have_different_names() -> None:
    with pytest.raises(ValueError, match="two tools are named 'add': one of them ends the thinking"):
        thinking(["x"], tools=[add], ending=[tool_of(add)])


# ---- budgets


def test_a_thousand_calls_are_refused_before_they_are_made() -> None:
    calls: list[int] = []

    def count(n: int) -> int:
        """Count."""
        calls.append(n)
        return n

    log, failure = failing([wants("count", n=1)], "BUDGET_EXCEEDED", tools=[count], budget=Budget(calls=5))
    assert "5 requests" in str(failure)
    assert len(log.asked) == 5
    assert len(calls) == 4, "the last request was to have none"
    assert all("cannot call tools any more" not in request.instructions for request in log.asked[:4])
    assert "cannot call tools any more" in log.asked[4].instructions

    def obedient(request: ModelRequest) -> Any:
        return (
            "I give up." if "any more" in request.instructions else [wants("count", n=1), ModelEnd("tools")]
        )

    _, thought = thinking([obedient], tools=[count], budget=Budget(calls=5))
    assert thought.answer == "I give up."
    assert thought.spent == Spent(thought.spent.tokens, 5, 4, 0.0)


def test_too_many_tools_are_told_to_the_model() -> None:
    calls: list[int] = []

    def count(n: int) -> int:
        """Count."""
        calls.append(n)
        return n

    many = [wants("count", str(n), n=n) for n in range(1_000)]
    log, thought = thinking([[*many, ModelEnd("tools")], "Enough."], tools=[count], budget=Budget(tools=10))
    assert thought.answer == "Enough."
    assert sorted(calls) == list(range(10))
    results = log.asked[1].messages[2:]
    assert [each.id for each in results if isinstance(each, ToolMessage)] == [str(n) for n in range(1_000)]
    assert results[9] == ToolMessage("9", "count", 9)
    assert results[10] == ToolMessage(
        "10", "count", error="not called: the budget of 10 calls of tools is used up"
    )


def test_tokens_are_counted_and_bounded() -> None:
    used = [TextDelta("x"), ModelEnd(usage=Usage(input_tokens=40, output_tokens=10))]
    _, thought = thinking([used])
    assert thought.spent.tokens == 50
    tool = [wants("add", a=1, b=2), ModelEnd("tools", usage=Usage(900, 100))]
    log, failure = failing([tool], "BUDGET_EXCEEDED", tools=[add], budget=Budget(tokens=2_500))
    assert len(log.asked) == 2, "a third one would take as much as the second"
    assert "2500 tokens" in str(failure)
    log, _ = failing(["x"], "BUDGET_EXCEEDED", instructions="x" * 4_000, budget=Budget(tokens=1_000))
    assert log.asked == []


def test_an_answer_without_an_end_is_broken_off() -> None:
    def endless(request: ModelRequest) -> Any:
        async def items() -> AsyncGenerator[ModelItem]:
            while True:
                yield TextDelta("and " * 1_000)

        return items()

    def empty(request: ModelRequest) -> Any:
        return [TextDelta("")] * 100_000

    failing([empty], "BUDGET_EXCEEDED", budget=Budget(tokens=1_000))
    long = [wants("add", str(n), text="x" * 1_000) for n in range(100)]
    failing([[*long, ModelEnd("tools")]], "BUDGET_EXCEEDED", budget=Budget(tokens=10_000))
    failing([endless], "BUDGET_EXCEEDED", budget=Budget(tokens=10_000))
    failing([endless], "BUDGET_EXCEEDED", budget=Budget(tokens=None))


def test_time_has_a_budget() -> None:
    def slow(request: ModelRequest) -> Any:
        async def items() -> AsyncGenerator[ModelItem]:
            for _ in range(100):
                await trio.sleep(1)
                yield TextDelta("well ")

        return items()

    _, failure = failing([slow], "BUDGET_EXCEEDED", budget=Budget(seconds=10))
    assert "10 s" in str(failure)


def test_a_model_knows_when_the_time_is_over() -> None:
    async def main() -> tuple[Any, float]:
        async with open_node() as node:
            model = await node.start(Script, answers=("Yes.",), requests_per_minute=1)
            await think(model, "hello")
            began = trio.current_time()
            with pytest.raises(ActionFailed) as failure:
                await think(model, "hello", budget=Budget(seconds=10))
            return failure.value, trio.current_time() - began

    failure, seconds = simulate(main)
    assert (failure.code, failure.data["retry_after"], seconds) == ("MODEL_BUSY", 60.0, 0)


def test_several_calls_share_an_account() -> None:
    log = Log()

    async def main() -> None:
        async with open_node() as node:
            model = await node.start(Script, answers=("Yes.",), heard=log)
            account = Account(Budget(calls=2))
            assert (await think(model, "one", budget=account)).spent.calls == 1
            assert (await think(model, "two", budget=account)).spent.calls == 1
            assert account.spent.calls == 2
            with pytest.raises(ActionFailed, match="BUDGET_EXCEEDED"):
                await think(model, "three", budget=account)

    simulate(main)


def test_the_deadline_of_the_caller_ends_it() -> None:
    class Thinker(Agent):
        @action
        async def answer(self) -> str:
            return (await think(self.find(Model), "hello")).answer

    log = Log()

    def slow(request: ModelRequest) -> Any:
        async def items() -> AsyncGenerator[ModelItem]:
            await trio.sleep(100)
            yield TextDelta("late")

        return items()

    async def main() -> None:
        async with open_node() as node:
            await node.start(Script, answers=(slow,), heard=log)
            thinker = await node.start(Thinker)
            with pytest.raises(TimeoutError):
                await thinker.within(5).invoke(Thinker.answer)
            await settle()
            assert (trio.current_time(), log.open) == (pytest.approx(5, abs=0.1), 0)

    simulate(main)


def test_schemas_for_models_have_no_notes_for_others() -> None:
    class Rating(Struct):
        stars: int | None = None

    log, _ = thinking(['{"stars": 3}'], answer=Rating)
    assert "2^53" not in str(log.asked[0].answer)
    assert "stars" in str(log.asked[0].answer)


def test_a_failed_answer_is_reported_in_words_for_the_caller() -> None:
    _, failure = failing(["{}"], "ANSWER_INVALID", answer=int)
    assert str(failure) == (
        "ANSWER_INVALID: the model gave no int that meets the schema, twice: it has no member 'answer'"
    )
    _, failure = failing([[ModelEnd()]], "ANSWER_INVALID")
    assert str(failure) == "ANSWER_INVALID: the model gave an empty answer, twice"


def test_a_fake_without_a_further_answer_says_so_and_is_not_asked_again() -> None:
    async def main() -> None:
        async with open_node() as node:
            answers = in_turn([wants("clock"), ModelEnd("tools")])
            model = await node.start(fake(Model, generate=answers))
            with pytest.raises(ActionFailed, match=r"NotFaked: the fake of Model .* has no more answers"):
                await think(model, "hello", tools=[clock])
            assert len(node.crash_reports) == 1

    def clock() -> str:
        """Return the time."""
        return "noon"

    trio.run(main)
