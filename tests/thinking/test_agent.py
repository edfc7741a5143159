"""Thinking agents as their callers see them: answers, tools, history, files, budgets, failures."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
import trio
from msgspec import Struct

from lmos_actors import ActionFailed, Agent, Progress, action, open_node, sibling, simulate
from lmos_actors.errors import StartFailed
from lmos_actors.facades import (
    ChatAgent,
    ChatMedia,
    ChatPart,
    ChatTurn,
    OmniaOptions,
    SessionOptions,
    TextChunk,
    ToolCalled,
    ToolReturned,
    VoiceCall,
    open_chat,
)
from lmos_actors.llm import ModelEnd, ModelFile, ModelMessage, TextDelta, ToolMessage, Usage, UserMessage
from lmos_actors.testing import settle
from lmos_actors.thinking import Account, Budget, Spent, ThinkingAgent, ToolLimits, think
from lmos_actors.transport import MemoryNetwork
from tests.commands import called
from tests.thinking.models import Log, Script, answered, said, wants

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from lmos_actors import Ref
    from lmos_actors.llm import Message, ModelItem, ModelRequest


class Weather(Agent, tool=True):
    """Knows the weather."""

    @action(safe=True)
    def forecast(self, city: str, days: int = 1) -> str:
        """Forecast the weather of a city."""
        return f"{city}: sun for {days}"

    @action
    async def measure(self, progress: Progress[float], city: str) -> float:
        """Measure the temperature."""
        progress.report(0.5)
        await trio.sleep(1)
        return 21.5


def look_up(number: int) -> dict[str, Any]:
    """Return an order by its number."""
    return {"number": number, "state": "sent"}


class Assistant(ThinkingAgent):
    """You help people.

    Be brief.
    """

    tools = (Weather, look_up)


class Plain(ThinkingAgent):
    """You talk."""


def play(answers: Any, act: Any, *agents: Any, cls: type[ThinkingAgent] = Assistant, **fields: Any) -> Any:
    """Have `act` talk to an agent whose model gives these answers; return the log and what it returns."""
    log = Log()

    async def main() -> Any:
        async with open_node() as node:
            await node.start(Script, answers=tuple(answers), heard=log)
            for agent in agents:
                await node.start(agent)
            result = await act(await node.start(cls, **fields))
            assert not log.open
            assert not node.crash_reports
            assert "turn-" not in node.tree()
            return result

    return log, simulate(main)


def test_an_answer_comes_in_pieces() -> None:
    model, (_, items) = play([[TextDelta("Hel"), TextDelta("lo"), ModelEnd()]], said)
    assert [item.text for item in items if isinstance(item, TextChunk)] == ["Hel", "lo"]
    assert items[-1].text == "Hello"
    (request,) = model.asked
    assert request.instructions == "You help people.\n\nBe brief."
    assert request.messages == [UserMessage("hello")]
    assert [offer.name for offer in request.tools] == ["forecast", "measure", "look_up"]


CUT = [TextDelta("Once upon a"), ModelEnd("length")]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "Once upon a\n\n[This answer is cut off: it has reached the limit of its length.]"),
        ({"cut_off": "[...]"}, "Once upon a\n\n[...]"),
        ({"cut_off": ""}, "Once upon a"),
    ],
)
def test_an_answer_that_is_cut_says_so(fields: dict[str, str], text: str) -> None:
    async def go_on(agent: Ref[Any]) -> tuple[list[Any], list[Any]]:
        session, items = await said(agent)
        return items, (await said(agent, "Go on.", session))[1]

    model, (first, second) = play([CUT, "time."], go_on, cls=Plain, **fields)
    assert (first[-1].text, first[-1].is_cut) == (text, True)
    assert "".join(item.text for item in first if isinstance(item, TextChunk)) == text
    assert model.asked[1].messages[1] == ModelMessage(text)
    assert (second[-1].text, second[-1].is_cut) == ("time.", False)


def test_a_structured_answer_that_is_cut_is_asked_for_again_but_shorter() -> None:
    class Town(Struct):
        name: str

    async def failed(agent: Ref[Any]) -> Any:
        with pytest.raises(ActionFailed, match="ANSWER_INVALID") as caught:
            await said(agent)
        return caught.value

    cut = [TextDelta('{"name": "Bo'), ModelEnd("length")]
    model, error = play([cut], failed, cls=Plain, answer=Town)
    assert "it was cut off at its most tokens: raise max_tokens" in str(error)
    assert (
        model.asked[1]
        .messages[-1]
        .text.startswith("Your answer was cut off, as it was too long: be shorter. ")
    )
    whole, (_, items) = play([cut, '{"name": "Bonn"}'], said, cls=Plain, answer=Town)
    assert (items[-1].text, items[-1].is_cut, len(whole.asked)) == ('{"name":"Bonn"}', False, 2)


def test_tools_are_actions_of_agents_and_functions() -> None:
    answers = [[wants("forecast", city="Bonn"), wants("look_up", "2", number=17), ModelEnd("tools")], "Fine."]
    model, (_, items) = play(answers, said, Weather)
    first, second = model.asked
    offers = {offer.name: offer for offer in first.tools}
    assert set(offers) == {"forecast", "measure", "look_up"}
    assert offers["forecast"].description == "Forecast the weather of a city."
    assert offers["forecast"].schema == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert second.messages[1:] == [
        ModelMessage("", [wants("forecast", city="Bonn"), wants("look_up", "2", number=17)]),
        ToolMessage("1", "forecast", "Bonn: sun for 1"),
        ToolMessage("2", "look_up", {"number": 17, "state": "sent"}),
    ]
    assert sum(isinstance(item, ToolCalled) for item in items) == 2
    assert sum(isinstance(item, ToolReturned) for item in items) == 2
    assert items[-1].text == "Fine."


def test_an_action_with_progress_is_a_tool() -> None:
    model, answer = play([wants("measure", city="Bonn"), "Warm."], answered, Weather)
    assert answer == "Warm."
    assert model.asked[1].messages[-1] == ToolMessage("1", "measure", 21.5)


def test_text_of_several_rounds_is_parted() -> None:
    answers = [[TextDelta("I look."), wants("look_up", number=17), ModelEnd("tools")], "It is sent."]
    log, (_, items) = play(answers, said)
    assert items[-1].text == "I look.\n\nIt is sent."
    assert isinstance(log.asked[1].messages[1], ModelMessage)
    assert log.asked[1].messages[1].text == "I look."


def test_a_conversation_has_its_history() -> None:
    async def talk(agent: Ref[Any]) -> None:
        session, _ = await said(agent, "one")
        await said(agent, "two", session)

    log, _ = play(["1", "2"], talk)
    assert log.asked[1].messages == [UserMessage("one"), ModelMessage("1"), UserMessage("two")]


def test_a_long_conversation_is_summarised() -> None:
    async def talk(agent: Ref[Any]) -> None:
        session = None
        for word in ("one", "two", "three", "four"):
            session, _ = await said(agent, f"{word} " + "x" * 400, session)

    def answer(request: ModelRequest) -> Any:
        return "the sum of all" if request.instructions.startswith("Summarize") else "y" * 400

    log, _ = play([answer], talk, cls=Plain, history_tokens=450)
    summaries = [each for each in log.asked if each.instructions.startswith("Summarize")]
    (summary,) = summaries
    (text,) = summary.messages
    assert isinstance(text, UserMessage)
    assert text.text.startswith("user: one xxx")
    assert "two" in text.text
    assert "three" not in text.text
    last = log.asked[-1].messages
    assert last[0] == UserMessage("[Summary of what we said before: the sum of all]")
    assert [each.text[:5] for each in last[1:] if not isinstance(each, ToolMessage)] == [
        "three",
        "yyyyy",
        "four ",
    ]


def test_a_summary_goes_into_the_next_one_and_nothing_is_lost_or_twice_in_it() -> None:
    class Counter(Plain):
        """You talk."""

        async def summarize(self, older: Sequence[Message], summary: str, account: Account) -> str:
            words = [each.text.split()[0] for each in older if isinstance(each, UserMessage)]
            return " ".join([summary, *words]).strip()

    async def talk(agent: Ref[Any]) -> None:
        session = None
        for number in range(12):
            session, _ = await said(agent, f"m{number} " + "x" * 400, session)

    log, _ = play(["y" * 400], talk, cls=Counter, history_tokens=450)
    last = log.asked[-1].messages
    words = [
        each.text.removeprefix("[Summary of what we said before: ")
        for each in last
        if isinstance(each, UserMessage)
    ]
    first, *rest = words
    assert [*first.rstrip("]").split(), *(word.split()[0] for word in rest)] == [f"m{n}" for n in range(12)]
    assert len(log.asked) == 12


def test_messages_of_less_than_a_token_are_summarised_too() -> None:
    async def talk(agent: Ref[Any]) -> None:
        session = None
        for _ in range(30):
            session, _ = await said(agent, "ok?", session)

    log, _ = play(["yes"], talk, cls=Plain, history_tokens=20)
    assert sum(request.instructions.startswith("Summarize") for request in log.asked) > 1


def test_a_summary_that_is_far_too_long_is_cut() -> None:
    """As a whole it would not fit in the memory of the session, and each turn would fail."""

    async def talk(agent: Ref[Any]) -> str:
        session = None
        for _ in range(4):
            session, _ = await said(agent, "x" * 400, session)
        return await answered(agent, "again", session)

    def answer(request: ModelRequest) -> Any:
        return "z" * 200_000 if request.instructions.startswith("Summarize") else "y" * 400

    log, _ = play([answer], talk, cls=Plain, history_tokens=450)
    first = log.asked[-1].messages[0]
    assert isinstance(first, UserMessage)
    assert 1_000 < len(first.text) < 10_000


def test_what_a_model_says_of_its_tokens_breaks_no_count() -> None:
    async def talk(agent: Ref[Any]) -> tuple[int, int]:
        session, _ = await said(agent)
        await said(agent, "again", session)
        more = await agent.read(ThinkingAgent.spent)
        await said(agent, "and again", session)
        with pytest.raises(ActionFailed, match="BUDGET_EXCEEDED"):
            await said(agent, "and again", session)
        return more.tokens, more.calls

    answers = [
        [TextDelta("a"), ModelEnd("stop", Usage(-(10**9), 5))],
        [TextDelta("b"), ModelEnd("stop", Usage(0, 2))],
        [TextDelta("c"), ModelEnd("stop", Usage(10**900, 0))],
    ]
    _, (tokens, calls) = play(answers, talk, cls=Plain, session_budget=Budget(tokens=100_000, calls=9))
    assert 0 < tokens < 100
    assert calls == 2


def test_the_only_request_of_a_budget_is_for_the_answer() -> None:
    async def talk(agent: Ref[Any]) -> str:
        session, _ = await said(agent, "one " + "x" * 400)
        return await answered(agent, "two", session)

    log, answer = play(["fine"], talk, cls=Plain, history_tokens=20, budget=Budget(calls=1))
    assert answer == "fine"
    assert log.asked[1].messages == [UserMessage("two")]


def test_what_is_older_may_just_be_left_out() -> None:
    class Forgetful(Plain):
        """You talk."""

        async def summarize(self, older: Sequence[Message], summary: str, account: Account) -> str:
            return ""

    async def talk(agent: Ref[Any]) -> None:
        session = None
        for number in range(5):
            session, _ = await said(agent, f"m{number} " + "x" * 400, session)

    log, _ = play(["y" * 400], talk, cls=Forgetful, history_tokens=250)
    assert [each.text[:2] for each in log.asked[-1].messages if isinstance(each, UserMessage)][-1] == "m4"
    assert len(log.asked[-1].messages) <= 3


def test_files_of_a_message_are_given_to_the_model() -> None:
    image = ChatPart(
        "image", media=ChatMedia("image/png", data=b64encode(b"cat").decode(), filename="cat.png")
    )
    link = ChatPart("file", media=ChatMedia("application/pdf", url="https://example.org/a.pdf"))
    text = ChatPart("text", text="And this?")

    async def talk(agent: Ref[Any]) -> None:
        session, _ = await said(agent, "What is it?", parts=[image, link, text])
        await said(agent, "Sure?", session)

    log, _ = play(["A cat.", "Yes."], talk)
    files = [
        ModelFile("image/png", b"cat", name="cat.png"),
        ModelFile("application/pdf", url="https://example.org/a.pdf"),
    ]
    assert log.asked[0].messages == [UserMessage("What is it?\n\nAnd this?", files)]
    first = log.asked[1].messages[0]
    assert first == UserMessage("What is it?\n[image: cat.png]\n[file: without a name]\nAnd this?")


@pytest.mark.parametrize(
    "media",
    [
        ChatMedia("image/png", data="?"),
        ChatMedia("image/png", storage_ref="gone"),
        ChatMedia("image/png"),
        ChatMedia("image/png", data="AAAA" * (7 << 20)),
    ],
)
def test_a_file_that_cannot_be_read_is_the_mistake_of_the_caller(media: ChatMedia) -> None:
    async def talk(agent: Ref[Any]) -> None:
        with pytest.raises(ActionFailed, match="INVALID_MESSAGE"):
            await said(agent, "hello", parts=[ChatPart("image", media=media)])

    log, _ = play(["no"], talk)
    assert log.asked == []


class Plan(Struct):
    """A plan."""

    steps: list[str]


class Planner(ThinkingAgent):
    """You plan."""

    answer = Plan


def test_a_structured_answer_is_sent_as_a_whole() -> None:
    log, (_, items) = play(["no plan", '```\n{"steps": ["go"]}\n```'], said, cls=Planner)
    assert [type(item).__name__ for item in items] == ["TurnBegan", "TextChunk", "TurnDone"]
    assert items[-1].text == '{"steps":["go"]}'
    assert len(log.asked) == 2


def test_fields_may_stand_in_the_class_and_be_given() -> None:
    class Tuned(ThinkingAgent):
        """Not this."""

        instructions = "You are a pirate."
        tools = [look_up]  # noqa: RUF012 -- a list, as people write it
        budget = Budget(calls=3)
        temperature = 0.5

    log, _ = play([wants("look_up", number=1)], _exceeds, cls=Tuned)
    assert len(log.asked) == 3
    assert log.asked[0].instructions == "You are a pirate."
    assert log.asked[0].temperature == 0.5
    log, _ = play(
        [wants("look_up", number=1)], _exceeds, cls=Tuned, budget=Budget(calls=2), instructions="Be."
    )
    assert len(log.asked) == 2
    assert log.asked[0].instructions == "Be."


@pytest.mark.slow
def test_fields_may_be_given_by_a_file(tmp_path: Path) -> None:
    """Of their types also where the body of a subclass has them, whose module does not know the types."""
    (tmp_path / "desks.py").write_text(
        "from lmos_actors.thinking import ThinkingAgent, Budget as Most\n"
        "def look() -> str:\n"
        "    return 'nothing'\n"
        "class Desk(ThinkingAgent):\n"
        "    'You help.'\n"
        "    tools = (look,)\n"
        "    budget = Most(calls=5)\n"
    )
    (tmp_path / "desk.yaml").write_text(
        """\
lmos: scenario/v1
name: desk
agents:
  model:
    from: mock
    speaks: model
    rules:
      - {when: {contains: hello}, reply: [{call: {tool: look, arguments: {}}}]}
      - {when: {after: look}, reply: [{call: {tool: look, arguments: {}}}]}
  desk:
    from: agent
    use: desks:Desk
    args: {budget: {calls: 2}, limits: {seconds: 5}}
steps:
  - do: stream
    id: said
    target: desk
    action: chat
    input: {content: hello}
    error: {is: ActionFailed, contains: BUDGET_EXCEEDED}
checks:
  - {check: budget, of: said, calls: {equals: 2}}
"""
    )
    done = called(["run", "desk.yaml"], tmp_path, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr


async def _exceeds(agent: Ref[Any]) -> None:
    with pytest.raises(ActionFailed, match="BUDGET_EXCEEDED"):
        await said(agent)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"tools": (3,)}, "Plain.tools: a tool is a function, a Tool, an agent's class, a ref or"),
        ({"tools": (lambda x: x,)}, "the type of 'x' of the tool '<lambda>' is not known: annotate it"),
        ({"answer": object()}, "Plain.answer is the type of the answers"),
        ({"model": "gpt-5-mini"}, "Plain.model is a ref to a model, not 'gpt-5-mini'"),
        ({"history_tokens": -1}, "Plain.history_tokens is a whole number of at least 0, not -1"),
    ],
)
def test_mistakes_in_fields_are_found_at_the_start(fields: dict[str, Any], text: str) -> None:
    async def main() -> None:
        async with open_node() as node:
            with pytest.raises(StartFailed) as failure:
                await node.start(Plain, **fields)
            assert text in str(failure.value)

    simulate(main)


def test_tools_and_instructions_may_depend_on_the_turn() -> None:
    class Careful(ThinkingAgent):
        """You help."""

        def tools_for(self, turn: ChatTurn) -> Sequence[Any]:
            return [look_up] if turn.metadata.get("trusted") else []

        def instructions_for(self, turn: ChatTurn) -> str:
            return f"You talk with {turn.metadata.get('name', 'somebody')}."

    async def talk(agent: Ref[Any]) -> None:
        await said(agent)
        await said(agent, metadata={"trusted": True, "name": "Ada"})

    log, _ = play(["1"], talk, cls=Careful)
    assert [[each.name for each in request.tools] for request in log.asked] == [[], ["look_up"]]
    assert [each.instructions for each in log.asked] == ["You talk with somebody.", "You talk with Ada."]


def test_a_loop_of_ones_own() -> None:
    class Own(ThinkingAgent):
        """You help."""

        async def reply(self, turn: ChatTurn) -> None:
            thought = await think(self.find(Script), turn.text, tools=[look_up], say=turn.say, use=turn.use)
            await turn.say(f" ({thought.spent.calls})")

    _, (_, items) = play([wants("look_up", number=17), "Sent."], said, cls=Own)
    assert [type(item).__name__ for item in items[1:4]] == ["ToolCalled", "ToolReturned", "TextChunk"]
    assert items[-1].text == "Sent. (2)"


# ---- budgets


USED = [TextDelta("x"), ModelEnd(usage=Usage(input_tokens=90, output_tokens=10))]


def test_a_session_has_a_budget() -> None:
    async def talk(agent: Ref[Any]) -> None:
        session, _ = await said(agent)
        for _ in range(2):
            await said(agent, session=session)
        with pytest.raises(
            ActionFailed, match="budget of the session, 3 calls, is used up; begin a new session"
        ):
            await said(agent, session=session)
        await said(agent)
        assert await agent.read(ThinkingAgent.spent) == Spent(400, 4, 0, 0.0)

    log, _ = play([USED], talk, session_budget=Budget(tokens=None, calls=3, tools=None, seconds=None))
    assert len(log.asked) == 4


def test_turns_that_fail_count_too() -> None:
    async def talk(agent: Ref[Any]) -> None:
        session, _ = await said(agent)
        for _ in range(2):
            with pytest.raises(ActionFailed, match="ANSWER_INVALID"):
                await said(agent, session=session)
        for _ in range(3):
            with pytest.raises(ActionFailed, match="BUDGET_EXCEEDED"):
                await said(agent, session=session)

    log, _ = play([USED, [ModelEnd()]], talk, session_budget=Budget(calls=5))
    assert len(log.asked) == 5


def test_turns_of_many_sessions_go_on_side_by_side() -> None:
    def slow(request: ModelRequest) -> Any:
        async def items() -> AsyncGenerator[ModelItem]:
            await trio.sleep(10)
            yield TextDelta("done")

        return items()

    async def talk(agent: Ref[Any]) -> float:
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(said, agent)
        return trio.current_time()

    _, time = play([slow], talk)
    assert time == pytest.approx(10)


def test_a_caller_that_leaves_between_call_and_result_leaves_nothing_running() -> None:
    running: list[str] = []

    async def dig(city: str) -> str:
        """Dig."""
        running.append(city)
        try:
            await trio.sleep(100)
        finally:
            running.remove(city)
        return "gold"

    async def talk(agent: Ref[Any]) -> None:
        async with agent.stream(ThinkingAgent.chat, "hello") as items:
            async for item in items:
                if isinstance(item, ToolCalled):
                    break
            await settle()
            assert running
        await settle()
        assert not running
        assert await answered(agent) == "ok"

    play(
        [[wants("dig", city="Bonn"), wants("dig", "2", city="Ulm"), ModelEnd("tools")], "ok"],
        talk,
        tools=(dig,),
    )


# ---- what a chat agent is beside


def test_history_begins_with_the_user_and_has_no_empty_answers() -> None:
    class Short(ThinkingAgent):
        """You talk."""

        session_options = SessionOptions(messages=3)

    class Silent(ThinkingAgent):
        """You talk."""

        async def reply(self, turn: ChatTurn) -> None:
            if turn.text != "quiet":
                await super().reply(turn)

    async def talk(agent: Ref[Any]) -> None:
        session, _ = await said(agent, "one")
        await said(agent, "quiet", session)
        await said(agent, "three", session)

    log, _ = play(["yes"], talk, cls=Short)
    assert log.asked[2].messages == [UserMessage("quiet"), ModelMessage("yes"), UserMessage("three")]
    log, _ = play(["yes"], talk, cls=Silent)
    texts = [each.text for each in log.asked[1].messages if not isinstance(each, ToolMessage)]
    assert texts == ["one", "yes", "quiet", "three"]


def test_a_url_that_is_not_https_is_not_given_to_a_provider() -> None:
    part = ChatPart("image", media=ChatMedia("image/png", url="http://127.0.0.1/secret"))

    async def talk(agent: Ref[Any]) -> None:
        with pytest.raises(ActionFailed, match="INVALID_MESSAGE: the provider of the model reads files"):
            await said(agent, parts=[part])

    log, _ = play(["no"], talk)
    assert log.asked == []


def test_instructions_are_those_of_the_nearest_class_that_has_some() -> None:
    class Polite(Assistant):
        pass

    log, _ = play(["yes"], said, cls=Polite)
    assert log.asked[0].instructions == "You help people.\n\nBe brief."
    log, _ = play(["yes"], said, cls=ThinkingAgent)
    assert log.asked[0].instructions == ""


def test_uploaded_files_are_read(tmp_path: Path) -> None:
    network, log = MemoryNetwork(), Log()

    async def main() -> None:
        omnia = OmniaOptions(uploads=str(tmp_path / "files"))
        async with open_node(listen="ws://desk:80", omnia=omnia, network=network) as node:
            await node.start(Script, answers=("A text.",), heard=log)
            await node.start(Plain)
            async with open_chat("ws://desk:80/agents/plain", network=network) as chat:
                part = await chat.upload(b"the text", "text/plain", "a.txt")
                assert (await chat.say("What is it?", parts=[part])).text == "A text."

    simulate(main)
    assert log.asked[0].messages == [
        UserMessage("What is it?", [ModelFile("text/plain", b"the text", name="a.txt")])
    ]


def test_one_that_speaks_has_its_voice() -> None:
    class Speaker(ThinkingAgent):
        """You speak."""

        async def talk(self, call: VoiceCall) -> None:
            async for sound in call.sound:
                thought = await think(self.find(Script), sound.decode(), say=call.say, use=call.use)
                await call.understood(sound.decode())
                assert thought.answer == "Hello."

    async def talk(agent: Ref[Any]) -> list[str]:
        async def sound() -> AsyncGenerator[bytes]:
            yield b"hello"

        async with agent.stream(ChatAgent.call, sound()) as items:
            return [item.text async for item in items if isinstance(item, TextChunk)]

    assert not ThinkingAgent.has_voice()
    assert play(["Hello."], talk, cls=Speaker)[1] == ["Hello.", "hello"]


def test_a_session_goes_on_after_a_restart_of_the_node(tmp_path: Path) -> None:
    log = Log()

    async def main() -> None:
        session = None
        for text in ("one", "two"):
            async with open_node(store=f"sqlite:{tmp_path}/chats.db") as node:
                await node.start(Script, answers=(wants("look_up", number=7), "yes"), heard=log)
                agent = await node.start(Plain, tools=(look_up,), session_budget=Budget(calls=3))
                session, _ = await said(agent, text, session)
                if text == "two":
                    with pytest.raises(ActionFailed, match="BUDGET_EXCEEDED"):
                        await said(agent, "three", session)

    trio.run(main)
    assert log.asked[-1].messages == [
        UserMessage("one"),
        ModelMessage("", [wants("look_up", number=7)]),
        ToolMessage("1", "look_up", {"number": 7, "state": "sent"}),
        ModelMessage("yes"),
        UserMessage("two"),
    ]


# ---- mistakes in the body of a class


def untyped(number):  # type: ignore[no-untyped-def] # a mistake of users
    return number


class NoAgent:
    pass


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"tool": (look_up,)}, r"X\.tool is no field of a ThinkingAgent, did you mean 'tools'\?"),
        ({"instruction": "Be brief."}, r"X\.instruction is no field .* did you mean 'instructions'"),
        ({"limit": ToolLimits()}, r"X\.limit is no field .* did you mean 'limits'"),
        ({"tools": look_up}, r"X\.tools is a tuple of tools"),
        ({"tools": (untyped,)}, r"X\.tools: the type of 'number' of the tool 'untyped' is not known"),
        ({"tools": (NoAgent,)}, r"X\.tools: a tool is .*NoAgent.* a subclass of Agent"),
        ({"tools": (sibling("orders"),)}, r"X\.tools: .* a sibling stands in the partial of a ChildSpec"),
        ({"answer": 5}, r"X\.answer is the type of the answers"),
        ({"instructions": 5}, r"X\.instructions is a text, not 5"),
        ({"budget": 5}, r"X\.budget is a Budget, not 5"),
        ({"max_tokens": "x"}, r"X\.max_tokens is a whole number or None"),
        ({"model": "gpt"}, r"X\.model is a ref to a model, not 'gpt'"),
    ],
)
def test_mistakes_of_a_class_are_refused_when_it_is_made(body: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        type("X", (ThinkingAgent,), body)


def test_a_class_may_have_more_than_the_fields() -> None:
    class Fine(ThinkingAgent):
        """You help."""

        tool: str = "hammer"
        model_name = "best"
        TOOLS = (look_up,)

        def tools_of(self) -> None: ...

    class Finer(Fine):
        tools = ()
        temperature = 0

    assert Finer(tool="saw").tool == "saw"
