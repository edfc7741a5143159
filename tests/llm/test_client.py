"""Clients of providers: the real SDKs, over real sockets, against a server that speaks both formats."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lmos_actors.llm import (
    ModelEnd,
    ModelFile,
    ModelMessage,
    Reasoning,
    TextDelta,
    ToolMessage,
    ToolOffer,
    ToolRequest,
    Usage,
    UserMessage,
)
from tests.llm.asking import END, HI, PROVIDERS, items, model_of
from tests.llm.provider_server import Reply, Tool


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_text_comes_in_pieces_and_the_end_says_what_was_used(provider: str) -> None:
    async with model_of(provider) as (server, model):
        server.reply(Reply(text=("Hel", "lo"), input_tokens=20, cached_tokens=8))
        end = ModelEnd("stop", Usage(20, 5, 8), "test-model-1")
        assert await items(model) == [TextDelta("Hel"), TextDelta("lo"), end]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_tools_are_put_together_from_pieces(provider: str) -> None:
    asked = (
        Tool("look_up", ('{"num', 'ber": 1', "7}")),
        Tool("nothing", ("",)),
        Tool("broken", ('{"number": ', "seven")),
        Tool("a_list", ("[1]",)),
    )
    async with model_of(provider) as (server, model):
        server.reply(Reply(text=(), tools=asked))
        got = await items(model, tools=[ToolOffer("look_up", "Look up an order.", {"type": "object"})])
    assert got == [
        ToolRequest("call-0", "look_up", {"number": 17}),
        ToolRequest("call-1", "nothing"),
        ToolRequest("call-2", "broken", {}, '{"number": seven'),
        ToolRequest("call-3", "a_list", {}, "[1]"),
        ModelEnd("tools", Usage(12, 5), "test-model-1"),
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("size", [1, 7, 1_000])
async def test_an_answer_is_the_same_however_its_bytes_are_cut(provider: str, size: int) -> None:
    asked = (Tool("grüßen", ('{"wen": "Zoë', '"}')),)
    async with model_of(provider) as (server, model):
        server.reply(Reply(text=("Grüß", " dich\n"), tools=asked, bytes_at_a_time=size))
        assert await items(model) == [
            TextDelta("Grüß"),
            TextDelta(" dich\n"),
            ToolRequest("call-0", "grüßen", {"wen": "Zoë"}),
            ModelEnd("tools", Usage(12, 5), "test-model-1"),
        ]


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
PICTURE, PDF = ModelFile("image/png", b"png"), ModelFile("application/pdf", b"pdf", name="a.pdf")
TALK = [
    UserMessage("See", [PICTURE, ModelFile("image/jpeg", url="https://x.example/a.jpg"), PDF]),
    ModelMessage("Hm", [ToolRequest("1", "look", {"n": 1}), ToolRequest("2", "see", {}, "[1")], []),
    ToolMessage("1", "look", {"found": True}),
    ToolMessage("2", "see", error="not that"),
    UserMessage("And", [ModelFile("text/plain", b"words", name="b.txt")]),
]


async def test_a_request_in_the_format_of_openai() -> None:
    async with model_of("openai", temperature=0.5, max_tokens=100, options={"seed": 7}) as (server, model):
        tools = [ToolOffer("look", "Look.", SCHEMA), ToolOffer("see")]
        assert (await items(model, TALK, instructions="Be brief.", tools=tools, answer=SCHEMA))[-1] == END
        await items(model, max_tokens=50, temperature=0.0)
        await items(model, max_tokens=5_000)
    (first, lower, higher) = (received.body for received in server.requests)
    assert first == {
        "model": "test",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 100,
        "temperature": 0.5,
        "seed": 7,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
                    {"type": "image_url", "image_url": {"url": "https://x.example/a.jpg"}},
                    {
                        "type": "file",
                        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"},
                    },
                    {"type": "text", "text": "See"},
                ],
            },
            {
                "role": "assistant",
                "content": "Hm",
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"n":1}'}},
                    {"id": "2", "type": "function", "function": {"name": "see", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": '{"found":true}'},
            {"role": "tool", "tool_call_id": "2", "content": "error: not that"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "b.txt:\nwords"}, {"type": "text", "text": "And"}],
            },
        ],
        "tools": [
            {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}},
            {
                "type": "function",
                "function": {
                    "name": "see",
                    "description": "",
                    "parameters": {"type": "object", "properties": {}},
                },
            },
        ],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
    }
    assert (lower["max_tokens"], lower["temperature"]) == (50, 0.0)
    assert higher["max_tokens"] == 100


async def test_a_request_in_the_format_of_anthropic() -> None:
    async with model_of("anthropic", temperature=0.5, max_tokens=100, options={"top_k": 7}) as (
        server,
        model,
    ):
        tools = [ToolOffer("look", "Look.", SCHEMA), ToolOffer("see")]
        assert (await items(model, TALK, instructions="Be brief.", tools=tools, answer=SCHEMA))[-1] == END
    (first,) = (received.body for received in server.requests)
    assert first == {
        "model": "test",
        "stream": True,
        "max_tokens": 100,
        "temperature": 0.5,
        "top_k": 7,
        "system": "Be brief.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"},
                    },
                    {"type": "image", "source": {"type": "url", "url": "https://x.example/a.jpg"}},
                    {
                        "type": "document",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
                    },
                    {"type": "text", "text": "See"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Hm"},
                    {"type": "tool_use", "id": "1", "name": "look", "input": {"n": 1}},
                    {"type": "tool_use", "id": "2", "name": "see", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": '{"found":true}'},
                    {
                        "type": "tool_result",
                        "tool_use_id": "2",
                        "content": "error: not that",
                        "is_error": True,
                    },
                    {"type": "text", "text": "b.txt:\nwords"},
                    {"type": "text", "text": "And"},
                ],
            },
        ],
        "tools": [
            {"name": "look", "description": "Look.", "input_schema": SCHEMA},
            {"name": "see", "description": "", "input_schema": {"type": "object", "properties": {}}},
        ],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    }


async def test_reasoning_goes_back_to_its_provider_with_what_it_has_signed() -> None:
    async with model_of("anthropic") as (server, model):
        server.reply(Reply(reasoning=("Let me", " see"), signature="s1", text=("Yes",)))
        got = await items(model)
        thoughts = [item for item in got if isinstance(item, Reasoning)]
        assert thoughts == [Reasoning("Let me"), Reasoning(" see"), Reasoning(state="s1")]
        hidden = [*thoughts, Reasoning(state="redacted:xyz"), Reasoning("of another model")]
        await items(model, [*HI, ModelMessage("Yes", [], hidden), UserMessage("Sure?")])
    assert server.requests[-1].body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Let me see", "signature": "s1"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "text", "text": "Yes"},
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("file", "said"),
    [
        (ModelFile("video/mp4", b"", name="a.mp4"), "a.mp4 is of type video/mp4, which this provider"),
        (ModelFile("text/plain", b"\xff", name="a.txt"), "a.txt is no text in UTF-8"),
        (ModelFile("text/plain", url="https://x.example/a.txt"), "is a file by URL of type text/plain"),
    ],
)
async def test_files_that_cannot_be_sent(provider: str, file: ModelFile, said: str) -> None:
    async with model_of(provider) as (server, model):
        (failed,) = await items(model, [UserMessage("See", [file])])
        assert failed.code == "MODEL_REQUEST_REFUSED"
        assert said in failed.detail
        assert (await items(model))[-1] == END
        assert len(server.requests) == 1


def events(*data: object) -> Reply:
    """Return an answer of these events, the last one without its end."""
    return Reply(raw=[b"\n\n".join(b"data: " + msgspec.json.encode(each) for each in data)])


def delta(finish: str | None = None, **members: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": members, "finish_reason": finish}]}


CALL = {"function": {"name": "look", "arguments": "{}"}}
ODD = [
    pytest.param(
        [delta(reasoning_content="Hm"), delta("stop", content="Yes")],
        [Reasoning("Hm"), TextDelta("Yes"), ModelEnd()],
        id="reasoning of vLLM",
    ),
    pytest.param(
        [delta(reasoning="Hm"), delta(reasoning={"text": "Hm"}), delta("stop", content="Yes")],
        [Reasoning("Hm"), TextDelta("Yes"), ModelEnd()],
        id="reasoning of others",
    ),
    pytest.param(
        [delta(refusal="I will "), delta(refusal="not."), delta("stop")],
        [TextDelta("I will "), TextDelta("not."), ModelEnd("refused")],
        id="a refusal",
    ),
    pytest.param(
        [delta("stop", tool_calls=[CALL])],
        [ToolRequest("call-0", "look"), ModelEnd("tools")],
        id="a tool without number and id, and the wrong reason",
    ),
    pytest.param(
        [{"choices": [{"index": 1, "delta": {"content": "No"}}]}, delta("stop", content="Yes")],
        [TextDelta("Yes"), ModelEnd()],
        id="two answers",
    ),
    pytest.param(
        [
            {"choices": None, "model": None, "usage": None},
            {"choices": [{"index": 0, "delta": None}]},
            {**delta("stop", content=None), "usage": {"prompt_tokens": 3, "completion_tokens": None}},
        ],
        [ModelEnd("stop", Usage(3, 0))],
        id="next to nothing",
    ),
]


@pytest.mark.parametrize(("data", "wanted"), ODD)
async def test_what_endpoints_with_the_format_of_openai_make_of_it(
    data: list[Any], wanted: list[Any]
) -> None:
    async with model_of("openai") as (server, model):
        server.reply(events(*data))
        assert await items(model) == wanted


async def test_blocks_of_anthropic_that_do_not_come_in_pieces() -> None:
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    async with model_of("anthropic") as (server, model):
        server.reply(
            events(
                {"type": "message_start", "message": {"model": "m-1"}},
                {"type": "content_block_start", "index": 0, "content_block": hidden},
                {"type": "content_block_stop", "index": 0},
                {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Yes"}},
                {"type": "one of later versions", "delta": {"type": "news"}},
                {"type": "content_block_stop", "index": 1},
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": "end_turn"},
                    "usage": {"output_tokens": 7},
                },
            )
        )
        end = ModelEnd("stop", Usage(0, 7), "m-1")
        assert await items(model) == [Reasoning(state="redacted:xyz"), TextDelta("Yes"), end]


async def test_sounds_go_to_openai_alone() -> None:
    spoken = [UserMessage(files=[ModelFile("audio/mpeg", b"mp3"), ModelFile("audio/x-wav", b"wav")])]
    async with model_of("openai") as (server, model):
        assert (await items(model, spoken))[-1] == END
        parts = server.requests[0].body["messages"][0]["content"]
    assert [part["input_audio"]["format"] for part in parts] == ["mp3", "wav"]
    async with model_of("anthropic") as (server, model):
        assert (await items(model, spoken))[-1].code == "MODEL_REQUEST_REFUSED"
