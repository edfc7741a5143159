"""What is sent to each family of endpoints, against a provider that refuses what strict ones refuse."""

from __future__ import annotations

from typing import Any

import pytest

from lmos_actors import ConfigError
from lmos_actors.llm import (
    Message,
    ModelFile,
    ModelMessage,
    OpenAIModel,
    Reasoning,
    TextDelta,
    ToolMessage,
    ToolOffer,
    ToolRequest,
    UserMessage,
)
from tests.llm.asking import END, HI, items, model_of
from tests.llm.provider_server import Reply, Tool
from tests.llm.strict import refusal, strict
from tests.rows import each_row

FAMILIES = ("openai", "anthropic", "gemini", "mistral", "ollama")
LONG = "x" * 100
PAIR = [ToolRequest("call_1", "look"), ToolRequest("call_2", "see")]


def called(*calls: ToolRequest, text: str = "") -> list[Message]:
    """Return a turn in which tools were called, with their results."""
    results = [ToolMessage(call.id, call.name, "found") for call in calls]
    return [*HI, ModelMessage(text, list(calls)), *results]


HISTORIES: dict[str, list[Message]] = {
    "a plain one": called(ToolRequest("call_1", "look")),
    "a made-up name": called(ToolRequest("call_1", "look it up!")),
    "no name": called(ToolRequest("call_1", "")),
    "a name in Chinese": called(ToolRequest("call_1", "天气"), ToolRequest("call_2", "时间")),
    "a name that begins with a digit": called(ToolRequest("call_1", "7zip")),
    "a long name": called(ToolRequest("call_1", LONG), ToolRequest("call_2", f"{LONG}y")),
    "a long id": called(ToolRequest(LONG, "look"), ToolRequest(f"{LONG}y", "look")),
    "no id": called(ToolRequest("", "look"), ToolRequest("", "see")),
    "an id with dots and colons": called(ToolRequest("functions.look:0", "look")),
    "an id with spaces and umlauts": called(ToolRequest("größe 1", "look")),
    "ids of each family": called(
        *(ToolRequest(each, "look") for each in ("call_abcdef", "toolu_01", "AbCdEfGh9", "0"))
    ),
    "ids that come again": [
        *called(ToolRequest("call-0", "look")),
        *called(ToolRequest("call-0", "see")),
        *called(ToolRequest("call-0", "see")),
    ],
    "a result that comes late": [
        *HI,
        ModelMessage("", PAIR),
        ToolMessage("call_2", "see", 2),
        UserMessage("Well?"),
        ToolMessage("call_1", "look", 1),
    ],
    "no result": [*HI, ModelMessage("", PAIR), ToolMessage("call_1", "look", 1), UserMessage("Well?")],
    "no result at the end": [*HI, ModelMessage("", PAIR)],
    "a result without a call": [ToolMessage("call_1", "look", "found"), *HI],
    "two results of a call": [*called(PAIR[0]), ToolMessage("call_1", "look", "again")],
    "a blank result": [*HI, ModelMessage("", PAIR[:1]), ToolMessage("call_1", "look", " ")],
    "a blank text": [UserMessage(" \n")],
    "a blank text with a file": [UserMessage(" ", [ModelFile("image/png", b"png")])],
    "a blank answer": [*HI, ModelMessage(""), UserMessage("Well?")],
    "an answer of spaces behind results": [*called(PAIR[0]), ModelMessage(" "), UserMessage("Well?")],
    "spaces before a call": called(PAIR[0], text="\n"),
    "thoughts alone": [*HI, ModelMessage("", [], [Reasoning("Hm"), Reasoning(state="s")]), *HI],
    "two of the user": [*HI, *HI, *HI],
    "two of the model": [*HI, ModelMessage("One."), ModelMessage("Two.", PAIR[:1]), *HI],
    "a greeting": [ModelMessage("Welcome."), *HI],
    "the model last": [*HI, ModelMessage("Hello.")],
    "the user behind results": [*called(PAIR[0]), UserMessage("Well?")],
}


async def sent(provider: str, messages: list[Message], **options: Any) -> dict[str, Any]:
    """Return the request that a strict provider has taken."""
    more = {name: options.pop(name) for name in ("tools", "instructions") if name in options}
    async with model_of(provider, **options) as (server, model):
        server.default = strict(options.get("family", "anthropic"))
        got = await items(model, messages, **more)
        assert got[-1] == END, got
        return server.requests[0].body


@pytest.mark.parametrize("family", [*FAMILIES, None])
async def test_any_history_is_taken_by_each_family(family: str | None) -> None:
    options = {"family": family} if family else {}
    async with model_of("openai" if family else "anthropic", **options) as (server, model):
        server.default = strict(family or "anthropic")
        got = {name: (await items(model, history))[-1] for name, history in HISTORIES.items()}
    assert {name: end for name, end in got.items() if end != END} == {}


def spoken(body: dict[str, Any]) -> list[Any]:
    """Return what was said, in short: a role with its text, or with its calls."""
    return [
        (each["role"], [(call["id"], call["function"]["name"]) for call in each["tool_calls"]])
        if "tool_calls" in each
        else (each["role"], each["content"])
        for each in body["messages"]
    ]


async def test_what_fits_stays_as_it_is() -> None:
    calls = ToolRequest("call_1", "look"), ToolRequest("functions.see:1", "see")
    body = await sent("openai", called(*calls), family="openai")
    assert spoken(body)[1] == ("assistant", [("call_1", "look"), ("functions.see:1", "see")])


async def test_results_go_with_their_calls_and_ids_stay_when_more_is_said() -> None:
    history = [*called(ToolRequest("call-0", "look!")), *HISTORIES["a result that comes late"]]
    first = spoken(await sent("openai", history[:3], family="mistral"))
    second = await sent("openai", history, family="mistral")
    assert spoken(second)[:3] == first
    results = [each for each in second["messages"] if each["role"] == "tool"]
    calls = [call["id"] for each in second["messages"] for call in each.get("tool_calls", ())]
    assert [each["tool_call_id"] for each in results] == calls
    assert [(each["name"], each["content"]) for each in results] == [
        ("look_", "found"),
        ("look", "1"),
        ("see", "2"),
    ]
    assert spoken(second)[3:5] == [("assistant", "(no text)"), ("user", "hi")]


async def test_nothing_that_was_said_is_lost() -> None:
    async def texts(name: str) -> list[Any]:
        return spoken(await sent("openai", HISTORIES[name], family="anthropic"))

    assert await texts("two of the user") == [("user", "hi\n\nhi\n\nhi")]
    assert await texts("the model last") == [("user", "hi"), ("assistant", "Hello."), ("user", "Go on.")]
    assert await texts("a greeting") == [("user", "(no text)"), ("assistant", "Welcome."), ("user", "hi")]
    assert await texts("a result without a call") == [("user", "The result of the tool look: found\n\nhi")]
    assert (await texts("two results of a call"))[2:] == [
        ("tool", "found"),
        ("user", "The result of the tool look: again"),
    ]
    assert (await texts("no result"))[2:4] == [("tool", "1"), ("tool", "error: there is no result of it")]
    body = await sent("openai", HISTORIES["two of the model"], family="openai")
    assert body["messages"][1]["content"] == "One.\n\nTwo."
    body = await sent("anthropic", HISTORIES["two of the user"], instructions="  ")
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}] * 3}]
    assert "system" not in body


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_names_of_tools_go_there_and_back(provider: str) -> None:
    names = ["look up", "look_up", LONG, f"{LONG}y", "天气", "look"]
    made: list[str] = []

    def answer(received: Any) -> Reply:
        tools = received.body["tools"]
        made[:] = [tool["name"] if provider == "anthropic" else tool["function"]["name"] for tool in tools]
        return strict("openai", Reply(text=(), tools=[Tool(name) for name in [*made, "made up"]]))(received)

    async with model_of(provider) as (server, model):
        server.default = answer
        got = await items(model, tools=[ToolOffer(name, "A tool.") for name in names])
    assert [item.name for item in got if isinstance(item, ToolRequest)] == [*names, "made up"]
    assert made[1] == "look_up"
    assert made[0].startswith("look_up_")
    assert made[5] == "look"


@each_row(
    ("model", "url", "family"),
    [
        ("gpt-5", "https://api.openai.com/v1", "openai"),
        ("gpt-5", "https://us.openai.azure.com/openai/v1", "openai"),
        ("Qwen/Qwen3-8B", "http://127.0.0.1:8000/v1", "openai"),
        ("mistralai/Mistral-Small", "https://openrouter.ai/api/v1", "mistral"),
        ("codestral-latest", "http://127.0.0.1:11434/v1", "mistral"),
        ("any", "https://api.mistral.ai/v1", "mistral"),
        ("any", "https://mistral.ai/v1", "mistral"),
        ("any", "https://notmistral.ai/v1", "openai"),
        ("any", "https://generativelanguage.googleapis.com/v1beta/openai", "gemini"),
        ("google/gemini-2.5-pro", "https://openrouter.ai/api/v1", "gemini"),
        ("gemma3", "http://127.0.0.1:8080/v1", "openai"),
        ("anthropic/claude-sonnet-4", "https://openrouter.ai/api/v1", "anthropic"),
        ("any", "https://api.anthropic.com/v1", "anthropic"),
        ("qwen3", "http://127.0.0.1:11434/v1", "ollama"),
    ],
)
def test_the_family_is_found_out(model: str, url: str, family: str) -> None:
    assert OpenAIModel(model=model, url=url, key=None).family == family


async def test_the_family_of_the_name_of_a_model_and_one_that_is_none() -> None:
    async with model_of("openai", model="mistralai/devstral-small") as (server, model):
        server.default = strict("mistral")
        assert (await items(model, called(PAIR[0])))[-1] == END
    with pytest.raises(ConfigError, match="family: must be one of openai, anthropic, gemini"):
        OpenAIModel(model="any", key=None, family="google")


def body_of(*messages: Any, **members: Any) -> dict[str, Any]:
    return {"messages": list(messages), **members}


def call(number: str = "call_1", name: str = "look") -> dict[str, Any]:
    return {"id": number, "function": {"name": name, "arguments": "{}"}}


USER = {"role": "user", "content": "hi"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [call()]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "found"}


@each_row(
    ("family", "body", "why"),
    [
        ("openai", body_of(CALLED, RESULT), "the first message"),
        ("openai", body_of(USER, CALLED, USER), "no result behind"),
        ("openai", body_of(USER, CALLED), "no result behind"),
        ("openai", body_of(USER, RESULT), "without a call"),
        ("openai", body_of(USER, {**CALLED, "tool_calls": [call(LONG)]}), "the id 'xxx"),
        ("openai", body_of(USER, {**CALLED, "tool_calls": [call(name="a b")]}), "the name 'a b'"),
        ("openai", body_of(USER, CALLED, RESULT, CALLED, RESULT), "ids must be unique"),
        ("openai", body_of(USER, tools=[{"function": {"name": "a b"}}]), "the name 'a b' of a tool"),
        ("openai", body_of({"role": "user", "content": " "}), "blank content"),
        ("openai", body_of(USER, USER), "must alternate"),
        ("mistral", body_of(USER, {**CALLED, "content": ""}, RESULT), "the id 'call_1'"),
        ("mistral", body_of(USER, {"role": "assistant", "content": "Hello."}), "the last message"),
        ("gemini", body_of(USER, CALLED, RESULT), "the name cannot be empty"),
        ("ollama", body_of(USER, CALLED, RESULT), "<nil>"),
        ("anthropic", body_of(USER, {**CALLED, "content": ""}, RESULT), "non-empty"),
        ("anthropic", body_of(USER, CALLED, RESULT), "tools must be defined"),
        ("openai", body_of(USER, CALLED, RESULT, USER), None),
    ],
)
def test_the_provider_is_strict(family: str, body: dict[str, Any], why: str | None) -> None:
    said = refusal(family, body)
    assert said == why if why is None else why in (said or "")


async def test_text_and_tools_of_an_answer_are_otherwise_as_they_came() -> None:
    async with model_of("openai", family="mistral") as (server, model):
        server.reply(Reply(text=("Hm",), tools=(Tool("look", id="AbCdEfGh9"),)))
        got = await items(model, called(ToolRequest("call_1", "look")))
    assert got[:2] == [TextDelta("Hm"), ToolRequest("AbCdEfGh9", "look")]
