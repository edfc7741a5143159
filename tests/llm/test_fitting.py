"""Answers as endpoints send them: trifles that cost nothing. Each row is bytes, and what is said in them.

What is said is the text, then what is thought in brackets, then the names of tools, the tokens, the end.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from lmos_actors import ActionFailed
from lmos_actors.llm import ModelEnd, Reasoning, TextDelta, ToolRequest
from tests.llm.asking import END, PROVIDERS, items, model_of
from tests.llm.provider_server import Reply, Tool, anthropic_whole, openai_whole


def chunk(content: object = None, finish: object = None, **members: object) -> bytes:
    """A chunk of OpenAI's format, as JSON; `members` are of the chunk."""
    delta = {} if content is None else {"content": content}
    said = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **members}
    return json.dumps(said, ensure_ascii=False).encode()


def lines(*chunks: bytes, before: bytes = b"data: ", after: bytes = b"\n\n") -> bytes:
    return b"".join(before + each + after for each in chunks)


def choice(**members: object) -> bytes:
    return json.dumps({"choices": [members]}).encode()


YES, STOP = chunk("Yes"), chunk(finish="stop")
WHOLE = {
    "choices": [{"message": {"content": "Yes"}, "finish_reason": "stop"}],
    "usage": {"completion_tokens": 2},
}
OPENAI: dict[str, tuple[bytes, str]] = {
    # ---- how events are written
    "comments, other fields, no space": (
        b": OPENROUTER PROCESSING\n\nid: 7\nretry: 3\nevent: chunk\n"
        + lines(YES, before=b"data:")
        + lines(STOP),
        "Yes||0+0 stop",
    ),
    "data that is empty": (b"data:\n\ndata: \n\n\n\n" + lines(YES, STOP) + b"data\n\n", "Yes||0+0 stop"),
    "CR LF": (lines(YES, STOP, after=b"\r\n\r\n"), "Yes||0+0 stop"),
    "CR alone": (lines(YES, STOP, b"[DONE]", after=b"\r\r"), "Yes||0+0 stop"),
    "lines that end in three ways": (
        lines(YES, after=b"\n\r\n") + lines(chunk("!"), after=b"\r\n\n") + lines(STOP, after=b"\r\r\n"),
        "Yes!||0+0 stop",
    ),
    "a BOM": (b"\xef\xbb\xbf" + lines(YES, STOP), "Yes||0+0 stop"),
    "a BOM and a blank line": (b"\xef\xbb\xbf\n\n" + lines(YES, STOP), "Yes||0+0 stop"),
    "data in several lines": (
        b"data: " + YES.replace(b": [", b":\ndata: [") + b"\n\n" + lines(STOP),
        "Yes||0+0 stop",
    ),
    "data in several lines, with CR LF": (
        b"data: " + YES.replace(b": [", b":\r\ndata: [") + b"\r\n\r\n" + lines(STOP),
        "Yes||0+0 stop",
    ),
    "no blank line between": (lines(YES, STOP, b"[DONE]", after=b"\n"), "Yes||0+0 stop"),
    "no end of the last line": (lines(YES, STOP)[:-2], "Yes||0+0 stop"),
    "lines of JSON": (YES + b"\n" + STOP + b"\n", "Yes||0+0 stop"),
    "more after DONE": (lines(YES, STOP, b"[DONE] bye"), "Yes||0+0 stop"),
    # ---- what is in them
    "nothing in it": (lines(b"{}", b'{"choices": []}', b'{"choices": [null]}', YES, STOP), "Yes||0+0 stop"),
    "null for all": (
        lines(b'{"id":null,"choices":null,"usage":null,"model":null,"error":null}')
        + lines(
            choice(index=None, delta=None, finish_reason=None),
            choice(delta={"content": None, "tool_calls": None}),
        )
        + lines(YES, STOP),
        "Yes||0+0 stop",
    ),
    "a filter without a delta": (  # Azure
        lines(YES, STOP, choice(index=0, content_filter_offsets={"check_offset": 9}, finish_reason=None)),
        "Yes||0+0 stop",
    ),
    "a reason that is empty until the end": (  # Ollama
        lines(chunk("Yes", "", model="m"), chunk("!", "stop", model="")),
        "Yes!||0+0 stop",
    ),
    "a reason, and then more": (lines(chunk("Yes", "stop"), chunk("!")), "Yes!||0+0 stop"),
    "content in parts": (  # Mistral
        lines(
            chunk([{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]),
            chunk(
                [{"type": "thinking", "thinking": "m"}, {"type": "text", "text": "Ye"}, {"type": "reference"}]
            ),
            chunk([{"type": "text", "text": "s"}, "!"]),
            chunk([]),
            STOP,
        ),
        "Yes!|Hmm|0+0 stop",
    ),
    "content that is one part": (lines(chunk({"type": "text", "text": "Yes"}), STOP), "Yes||0+0 stop"),
    "content that is a number": (lines(chunk(4), chunk(2.5), STOP), "42.5||0+0 stop"),
    "content that is nothing": (lines(chunk(True), chunk({"a": 1}), YES, STOP), "Yes||0+0 stop"),
    "reasoning in parts": (
        lines(choice(delta={"reasoning_content": [{"text": "Hm"}]}), YES, STOP),
        "Yes|Hm|0+0 stop",
    ),
    "numbers as texts": (
        lines(
            choice(index="0", delta={"content": "Yes"}),
            chunk(finish="stop", usage={"prompt_tokens": "12", "completion_tokens": 5.0}),
        ),
        "Yes||12+5 stop",
    ),
    "usage that is none": (
        lines(
            chunk("Yes", usage=[]),
            chunk(usage="?"),
            chunk(usage={}),
            chunk(finish="stop", usage={"prompt_tokens": {}}),
        ),
        "Yes||0+0 stop",
    ),
    "usage that is odd": (
        lines(
            YES,
            b'{"choices":[],"usage":{"prompt_tokens":NaN,"completion_tokens":-3,"prompt_tokens_details":[]}}',
            chunk(finish="stop", usage={"prompt_tokens": 7.9, "completion_tokens": None, "cost": {}}),
        ),
        "Yes||7+0 stop",
    ),
    "a call of numbers and texts": (
        lines(
            choice(
                delta={
                    "tool_calls": {"index": "0", "id": 17, "function": {"name": "look", "arguments": None}}
                }
            ),
            chunk(finish="tool_calls"),
        ),
        "||look(17) 0+0 tools",
    ),
    "a call as it once was": (
        lines(
            choice(delta={"function_call": {"name": "look", "arguments": ""}}),
            choice(delta={"function_call": {"arguments": "{}"}}, finish_reason="function_call"),
        ),
        "||look(call-0) 0+0 tools",
    ),
    "an error that is none": (lines(chunk("Yes", error={}), chunk(finish="stop", error="")), "Yes||0+0 stop"),
    # ---- texts
    "halves of a character": (
        lines(
            b'{"choices":[{"delta":{"content":"Yes \\ud83d"}}]}',
            b'{"choices":[{"delta":{"content":"\\ude00!"}}]}',
            STOP,
        ),
        "Yes \U0001f600!||0+0 stop",
    ),
    "half a character": (
        lines(
            b'{"choices":[{"delta":{"content":"\\ude00Yes\\ud83d"}}]}',
            YES,
            b'{"choices":[{"delta":{"content":"\\ud83d"}}]}',
            STOP,
        ),
        "\ufffdYes\ufffdYes\ufffd||0+0 stop",
    ),
    "halves in reasoning": (
        lines(
            b'{"choices":[{"delta":{"reasoning":"\\ud83d"}}]}',
            b'{"choices":[{"delta":{"reasoning":"\\ude00"}}]}',
            YES,
            STOP,
        ),
        "Yes|\U0001f600|0+0 stop",
    ),
    "bytes that are no UTF-8": (
        lines(YES.replace(b"Yes", b"Y\xff\xfes \xef\xbf\xbd"), STOP),
        "Y\ufffd\ufffds \ufffd||0+0 stop",
    ),
    # ---- whole answers
    "a whole answer": (json.dumps(WHOLE).encode(), "Yes||0+2 stop"),
    "a whole answer in many lines": (
        b"\n  " + json.dumps(WHOLE, indent=2).encode() + b"\n\n",
        "Yes||0+2 stop",
    ),
    "a whole answer as an event": (lines(json.dumps(WHOLE).encode(), b"[DONE]"), "Yes||0+2 stop"),
    "a whole answer, and the end of a stream": (  # 9router
        json.dumps(WHOLE).encode() + b"\n\ndata: [DONE]\n\n",
        "Yes||0+2 stop",
    ),
    "a whole answer with tools": (
        json.dumps(openai_whole(Reply(text=(), tools=[Tool("look"), Tool("see")]))).encode(),
        "||look(call-0) see(call-1) 12+5 tools",
    ),
}


def told(*data: object, names: bool = True) -> bytes:
    """Events of Anthropic's format, with or without their names."""
    out = b""
    for each in data:
        assert isinstance(each, dict)
        out += f"event: {each['type']}\n".encode() * names + b"data: " + json.dumps(each).encode() + b"\n\n"
    return out


HEAD = {
    "type": "message_start",
    "message": {"model": "m", "usage": {"input_tokens": 3, "output_tokens": None}},
}
ENDS = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}


def said(**delta: object) -> dict[str, object]:
    return {"type": "content_block_delta", "index": 0, "delta": delta}


NAMELESS = b"".join(
    b"event: "
    + each["type"].encode()
    + b"\ndata: "
    + json.dumps({**each, "type": None}).encode()
    + b"\r\n\r\n"
    for each in (HEAD, said(text="Yes"), ENDS)
)
ANTHROPIC: dict[str, tuple[bytes, str]] = {
    "no names of events": (told(HEAD, said(text="Yes"), ENDS, names=False), "Yes||3+2 stop"),
    "the end of another format": (
        told(HEAD, said(text="Yes"), ENDS, {"type": "message_stop"}) + b"data: [DONE]\n\n",
        "Yes||3+2 stop",
    ),
    "names and no types": (NAMELESS, "Yes||3+2 stop"),
    "null for all": (
        told(
            {"type": "message_start", "message": {"model": None, "usage": None}, "index": None},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": None}},
            said(type="text_delta", text="Yes", thinking=None),
            {"type": "content_block_delta", "delta": None},
            {"type": "message_delta", "delta": None, "usage": {"input_tokens": None, "output_tokens": "4"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": []},
        ),
        "Yes||0+4 stop",
    ),
    "a head without a message": (told({"type": "message_start"}, said(text="Yes"), ENDS), "Yes||0+2 stop"),
    "events that nobody knows": (
        told(HEAD, {"type": "vendor", "delta": 7}, said(text="Yes"), ENDS),
        "Yes||3+2 stop",
    ),
    "thinking whole at the start": (
        told(
            HEAD,
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "thinking", "thinking": "Hm"},
            },
            ENDS,
        ),
        "|Hm|3+2 stop",
    ),
    "halves of a character": (
        told(
            HEAD,
            said(text="\ud83d"),
            said(text="\ude00"),
            said(thinking="\ud83d"),
            said(thinking="\ude00"),
            ENDS,
        ),
        "\U0001f600|\U0001f600|3+2 stop",
    ),
    "half a character": (told(HEAD, said(text="Yes\ud83d"), ENDS), "Yes\ufffd||3+2 stop"),
    "CR alone and a BOM": (
        b"\xef\xbb\xbf" + told(HEAD, said(text="Yes"), ENDS).replace(b"\n", b"\r"),
        "Yes||3+2 stop",
    ),
    "a whole answer": (
        json.dumps(anthropic_whole(Reply(text=("Yes",), tools=[Tool("look"), Tool("see")]))).encode(),
        "Yes||look(call-0) see(call-1) 12+5 tools",
    ),
    "a whole answer with thinking": (
        json.dumps(
            {
                "type": "message",
                "content": [
                    {"type": "thinking", "thinking": "Hm", "signature": "s"},
                    {"type": "text", "text": "Yes"},
                ],
                "stop_reason": "end_turn",
                "usage": None,
            }
        ).encode(),
        "Yes|Hm[s]|0+0 stop",
    ),
}


def shown(got: list[Any]) -> str:
    """Return an answer in short."""
    end = got[-1]
    if isinstance(end, ActionFailed):
        return f"{end.code}: {end.detail}"
    assert isinstance(end, ModelEnd)
    text = "".join(item.text for item in got if isinstance(item, TextDelta))
    thought = "".join(
        item.text + f"[{item.state}]" * bool(item.state) for item in got if isinstance(item, Reasoning)
    )
    tools = "".join(f"{tool.name}({tool.id}) " for tool in got if isinstance(tool, ToolRequest))
    return f"{text}|{thought}|{tools}{end.usage.input_tokens}+{end.usage.output_tokens} {end.reason}"


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize(("provider", "rows"), [("openai", OPENAI), ("anthropic", ANTHROPIC)])
async def test_a_trifle_costs_no_answer(provider: str, rows: dict[str, tuple[bytes, str]], size: int) -> None:
    got: dict[str, str] = {}
    async with model_of(provider) as (server, model):
        for name, (data, _) in rows.items():
            server.reply(Reply(raw=[data], bytes_at_a_time=size))
            got[name] = shown(await items(model))
        assert len(server.requests) == len(rows), "none was asked for twice"
    assert got == {name: wanted for name, (_, wanted) in rows.items()}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_bytes_that_are_no_utf_8_are_counted(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "lmos_actors")
    data = lines(YES.replace(b"Yes", b"Y\xffs\xfe"), STOP)
    if provider == "anthropic":
        data = told(HEAD, said(text="YES"), ENDS).replace(b"YES", b"Y\xffs\xfe")
    async with model_of(provider) as (server, model):
        server.reply(*[Reply(raw=[data])] * 2)
        assert [shown(await items(model))[:5] for _ in range(2)] == ["Y\ufffds\ufffd|"] * 2
        assert (await items(model))[-1] == END
    assert [record.getMessage() for record in caplog.records] == [
        "127.0.0.1 (for test) sends answers with bytes that are no UTF-8: 2 were replaced so far"
    ]
