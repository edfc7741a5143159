"""What endpoints report as failures, in all their shapes: a row is bytes, and what comes of them.

That is the code, how often was asked where one more attempt is allowed, and the text behind the name of the
provider.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmos_actors import ActionFailed
from lmos_actors.llm import ModelEnd, TextDelta, ToolRequest, Usage
from tests.llm.asking import PROVIDERS, items, model_of, shown
from tests.llm.provider_server import Reply, Tool, refused

pytestmark = pytest.mark.usefixtures("no_waits")


def body(said: object) -> Reply:
    """An answer behind status 200 that is one JSON text."""
    return Reply(raw=[json.dumps(said).encode()])


def stream(*events: object, before: str = "data: ") -> Reply:
    return Reply(
        raw=[b"".join(f"{before}{json.dumps(each)}\n\n".encode() for each in events), b"data: [DONE]\n\n"]
    )


def error(**members: object) -> dict[str, object]:
    return {"error": members}


def minimax(number: object) -> Reply:
    return body({"choices": None, "base_resp": {"status_code": number, "status_msg": "No"}})


def ended(reason: str, **more: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": reason, **more}]}


def retry_in(text: str) -> dict[str, object]:
    kind = "type.googleapis.com/google.rpc.RetryInfo"
    return error(
        code=429, status="RESOURCE_EXHAUSTED", message="Later", details=[{"@type": kind, "retryDelay": text}]
    )


EXTRA = {"type": "extra_forbidden", "loc": ["body", "store"], "msg": "Extra inputs are not permitted"}
REFUSALS: dict[str, tuple[Reply, str]] = {
    # ---- the shapes of words
    "OpenAI": (
        refused(429, error(message="Slow down", type="requests", param=None, code="rate_limit_exceeded")),
        "MODEL_BUSY 2: answered 429: Slow down",
    ),
    "Gemini, in a list": (
        refused(503, [error(code=503, message="Overloaded", status="UNAVAILABLE")]),
        "MODEL_UNAVAILABLE 2: answered 503: Overloaded",
    ),
    "FastAPI": (refused(404, {"detail": "Not Found"}), "MODEL_REQUEST_REFUSED 1: answered 404: Not Found"),
    "FastAPI, with places": (
        refused(422, {"detail": [EXTRA, {**EXTRA, "loc": ["body", 1]}]}),
        "MODEL_REQUEST_REFUSED 1: answered 422: body.store: Extra inputs are not permitted; "
        "body.1: Extra inputs are not permitted",
    ),
    "Mistral, with places": (
        refused(422, {"object": "error", "message": {"detail": [EXTRA]}, "type": "invalid_request_error"}),
        "MODEL_REQUEST_REFUSED 1: answered 422: body.store: Extra inputs are not permitted",
    ),
    "OpenRouter, with another's": (
        refused(
            502,
            error(
                message="Provider returned error",
                code=502,
                metadata={"raw": json.dumps(error(message="Worker limit reached"))},
            ),
        ),
        "MODEL_UNAVAILABLE 2: answered 502: Provider returned error; Worker limit reached",
    ),
    "a text": (refused(500, {"error": "EOF"}), "MODEL_UNAVAILABLE 2: answered 500: EOF"),
    "no JSON": (refused(504, b"<h1>Timeout</h1>"), "MODEL_UNAVAILABLE 2: answered 504: <h1>Timeout</h1>"),
    "half a character": (
        refused(400, b'{"error": {"message": "No\\ud83d"}}'),
        "MODEL_REQUEST_REFUSED 1: answered 400: No\ufffd",
    ),
    "nested without end": (
        refused(400, b'{"error":' * 20_000 + b"1" + b"}" * 20_000),
        "MODEL_REQUEST_REFUSED 1: answered 400: " + ('{"error":' * 60)[:495] + "...",
    ),
    # ---- the class, where status and name say two things
    "llama.cpp, too long": (
        refused(500, error(code=500, message="Too long", type="exceed_context_size_error", n_ctx=256)),
        "MODEL_REQUEST_REFUSED 1: answered 500: Too long",
    ),
    "OpenAI, an empty account": (
        refused(429, error(message="Pay", type="insufficient_quota", code="insufficient_quota")),
        "MODEL_KEY_REFUSED 1: says that the account of the key (none) has no quota left: 429: Pay",
    ),
    "DeepSeek, an empty account": (
        refused(402, error(message="Pay", type="unknown_error")),
        "MODEL_KEY_REFUSED 1: says that the account of the key (none) has no quota left: 402: Pay",
    ),
    "Moonshot, an empty account": (
        refused(429, error(message="Pay", type="exceeded_current_quota_error")),
        "MODEL_KEY_REFUSED 1: says that the account of the key (none) has no quota left: 429: Pay",
    ),
    "DashScope, an empty account": (
        refused(400, error(message="Pay", type="Arrearage", code="Arrearage")),
        "MODEL_KEY_REFUSED 1: says that the account of the key (none) has no quota left: 400: Pay",
    ),
    "Z.ai, an empty account": (
        refused(429, error(message="Pay", code="1113")),
        "MODEL_KEY_REFUSED 1: says that the account of the key (none) has no quota left: 429: Pay",
    ),
    "Z.ai, a rate": (
        refused(429, error(message="Slow down", code="1302")),
        "MODEL_BUSY 2: answered 429: Slow down",
    ),
    "Z.ai, a locked account": (
        refused(429, error(message="Locked", code=1112)),
        "MODEL_KEY_REFUSED 1: refuses the key (none) for this: 429: Locked",
    ),
    "Z.ai, too long": (
        refused(500, error(message="Too long", code="1261")),
        "MODEL_REQUEST_REFUSED 1: answered 500: Too long",
    ),
    "Mistral, overload": (
        refused(429, {"object": "error", "message": "Busy", "type": "invalid_request_error", "code": None}),
        "MODEL_BUSY 2: answered 429: Busy",
    ),
    "Gemini, no key": (
        refused(400, [error(status="INVALID_ARGUMENT", details=[{"reason": "API_KEY_INVALID"}])]),
        "MODEL_KEY_REFUSED 1: refuses the key (none), with status 400",
    ),
    "OpenAI, no right": (
        refused(403, error(message="Not here", code="unsupported_country")),
        "MODEL_KEY_REFUSED 1: refuses the key (none) for this: 403: Not here",
    ),
}
CHUNK = ended("stop")
OPENAI: dict[str, tuple[Reply, str]] = {
    "vLLM, in place of a chunk": (
        stream({"object": "error", "message": "Too long", "type": "BadRequestError", "code": 400}, CHUNK),
        "MODEL_REQUEST_REFUSED 1: answered 400: Too long",
    ),
    "SGLang": (
        stream(error(object="error", message="Too long", type="BadRequestError", param=None, code=400)),
        "MODEL_REQUEST_REFUSED 1: answered 400: Too long",
    ),
    "LiteLLM, a number as text": (
        stream(error(message="Slow down", type="None", param="None", code="429")),
        "MODEL_BUSY 2: answered 429: Slow down",
    ),
    "OpenRouter": (
        stream({**ended("error"), **error(code=502, message="Gone")}),
        "MODEL_UNAVAILABLE 2: answered 502: Gone",
    ),
    "OpenRouter, in a choice": (
        stream(ended("error", error={"code": 403, "message": "Flagged"})),
        "MODEL_KEY_REFUSED 1: refuses the key (none) for this: 403: Flagged",
    ),
    "OpenRouter, a call of Gemini": (
        body({"choices": [{"finish_reason": "error", "native_finish_reason": "MALFORMED_FUNCTION_CALL"}]}),
        "MODEL_MALFORMED 1: answered MALFORMED_FUNCTION_CALL: a failure without a text",
    ),
    "Ollama, a line of JSON": (
        stream(error(message="EOF", type="api_error"), before=""),
        "MODEL_UNAVAILABLE 2: answered api_error: EOF",
    ),
    "llama.cpp, a field of its own": (
        stream({"code": 400, "message": "Too long", "type": "exceed_context_size_error"}, before="error: "),
        "MODEL_REQUEST_REFUSED 1: answered 400: Too long",
    ),
    "FastAPI": (body({"detail": "Unavailable"}), "MODEL_UNAVAILABLE 2: answered Unavailable"),
    "Gemini, in a list": (
        body([error(code=403, message="No", status="PERMISSION_DENIED")]),
        "MODEL_KEY_REFUSED 1: refuses the key (none) for this: 403: No",
    ),
    "Gemini, in a text": (
        body(error(message=json.dumps(error(message="Later", status="RESOURCE_EXHAUSTED")), code="x")),
        "MODEL_BUSY 2: answered x: Later",
    ),
    "MiniMax, the key": (
        minimax(1004),
        "MODEL_KEY_REFUSED 1: refuses the key (none), with status 1004",
    ),
    "MiniMax, a rate": (minimax(1002), "MODEL_BUSY 2: answered 1002: No"),
    "MiniMax, an empty account": (
        minimax(1008),
        "MODEL_KEY_REFUSED 1: says that the account of the key (none) has no quota left: 1008: No",
    ),
    "MiniMax, a wrong request": (minimax("2013"), "MODEL_REQUEST_REFUSED 1: answered 2013: No"),
    "MiniMax, a failure of its own": (minimax(1000), "MODEL_UNAVAILABLE 2: answered 1000: No"),
    "MiniMax, in an event": (
        stream({"choices": None, "base_resp": {"status_code": 1002, "status_msg": "No"}}),
        "MODEL_BUSY 2: answered 1002: No",
    ),
    "Z.ai, in an event": (stream(error(code="1305", message="No")), "MODEL_BUSY 2: answered 1305: No"),
    "several events without an end between": (
        Reply(raw=[b'data: {"model": "m"}\ndata: {"error": {"message": "No", "code": 402}}\n\n']),
        "MODEL_KEY_REFUSED 1: says that the account of the key (none) has no quota left: 402: No",
    ),
    "half a character": (
        stream(error(message="No", code="\ud83d")),
        "MODEL_UNAVAILABLE 2: answered \ufffd: No",
    ),
    "DeepSeek": (
        stream(ended("insufficient_system_resource")),
        "MODEL_BUSY 2: answered insufficient_system_resource: a failure without a text",
    ),
}


def failed(kind: str, words: str = "No") -> Reply:
    said = {"type": "error", "error": {"type": kind, "message": words}, "request_id": "r"}
    return Reply(raw=[f"event: error\ndata: {json.dumps(said)}\n\n".encode()])


ANTHROPIC: dict[str, tuple[Reply, str]] = {
    "overload": (failed("overloaded_error"), "MODEL_BUSY 2: answered overloaded_error: No"),
    "a failure of its own": (failed("api_error"), "MODEL_UNAVAILABLE 2: answered api_error: No"),
    "a wrong request": (
        failed("invalid_request_error"),
        "MODEL_REQUEST_REFUSED 1: answered invalid_request_error: No",
    ),
    "no key": (
        failed("authentication_error"),
        "MODEL_KEY_REFUSED 1: refuses the key (none), with status authentication_error",
    ),
    "behind status 200": (
        body({"type": "error", **error(type="request_too_large", message="No")}),
        "MODEL_REQUEST_REFUSED 1: answered request_too_large: No",
    ),
    "the shape of another format": (
        body({"object": "error", "message": "No", "code": 429}),
        "MODEL_BUSY 2: answered 429: No",
    ),
    "FastAPI": (body({"detail": "No"}), "MODEL_UNAVAILABLE 2: answered No"),
}


async def outcome(server: Any, model: Any, reply: Reply) -> str:
    """Return how one request went, if the provider answered each attempt in this way."""
    asked, server.default = len(server.requests), reply
    (last,) = await items(model)
    assert isinstance(last, ActionFailed)
    said = (last.detail or "").removeprefix("127.0.0.1 (for test) ")
    return f"{last.code} {len(server.requests) - asked}: {said}"


@pytest.mark.parametrize(
    ("provider", "rows"),
    [
        *(pytest.param(provider, REFUSALS, id=f"refusals, {provider}") for provider in PROVIDERS),
        pytest.param("openai", OPENAI, id="answers, openai"),
        pytest.param("anthropic", ANTHROPIC, id="answers, anthropic"),
    ],
)
async def test_a_failure_is_told_in_the_words_of_its_provider(
    provider: str, rows: dict[str, tuple[Reply, str]]
) -> None:
    async with model_of(provider, retries=1) as (server, model):
        got = {name: await outcome(server, model, reply) for name, (reply, _) in rows.items()}
    assert got == {name: wanted for name, (_, wanted) in rows.items()}


WAITS: list[tuple[Reply, float | None]] = [
    (refused(429, {}, "retry-after-ms: 40", "retry-after: 7"), 0.04),
    (refused(429, {}, "retry-after-ms: soon", "retry-after: 0.01"), 0.01),
    (refused(429, [retry_in("0.03s")]), 0.03),
    (body(retry_in("0.02s")), 0.02),
    (refused(503, retry_in("soon")), None),
    *((refused(429, {}, f"retry-after: {text}"), None) for text in ("soon", "nan", "-1", "inf", "")),
]


async def test_the_wait_that_a_provider_names() -> None:
    async with model_of("openai", retries=0) as (server, model):
        for reply, seconds in WAITS:
            server.reply(reply)
            (last,) = await items(model)
            assert last.data.get("retry_after") == (None if seconds is None else pytest.approx(seconds))


LOOK, CUT = [Tool("look")], [Tool("look", ['{"a'])]
REASONS: dict[str, list[tuple[Reply, str]]] = {
    "openai": [
        (Reply(ends="length"), "Hello there|length"),
        (Reply(ends="MAX_TOKENS"), "Hello there|length"),
        (Reply(ends="model_length"), "Hello there|length"),
        (Reply(ends="content_filter"), "Hello there|refused"),
        (Reply(ends="SAFETY", text=()), "|refused"),
        (Reply(ends="eos"), "Hello there|stop"),
        (Reply(ends="stop", tools=LOOK), "Hello there|tools"),
        (Reply(ends="stop", text=()), "|stop"),
        (Reply(ends="abort"), "Hello there|MODEL_CUT"),
        (Reply(ends="malformed_function_call", tools=LOOK), "Hello there|MODEL_CUT"),
        (Reply(ends="MALFORMED_FUNCTION_CALL", text=(), tools=LOOK), "|MODEL_MALFORMED"),
        (Reply(ends="network_error", text=()), "|MODEL_UNAVAILABLE"),
    ],
    "anthropic": [
        (Reply(ends="max_tokens"), "Hello there|length"),
        (Reply(ends="refusal", text=()), "|refused"),
        (Reply(ends="sensitive"), "Hello there|refused"),
        (Reply(ends="stop_sequence"), "Hello there|stop"),
        (Reply(ends="error"), "Hello there|MODEL_CUT"),
        (Reply(ends="error", text=()), "|MODEL_UNAVAILABLE"),
    ],
}
UNKNOWN = [
    (Reply(ends="odd_one"), "Hello there|stop"),
    (Reply(ends="odd_one", text=(), tools=LOOK), "|tools"),
    (Reply(ends="odd_one", text=()), "|MODEL_MALFORMED"),
    (Reply(ends="odd_one", text=(), reasoning=["Hm"]), "Hm|MODEL_MALFORMED"),
    (Reply(ends="odd_one", tools=CUT), "Hello there|MODEL_MALFORMED"),
    (Reply(ends="odd_one\ud83d"), "Hello there|stop"),
]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_reason_of_an_end(provider: str) -> None:
    rows = [*REASONS[provider], *UNKNOWN]
    async with model_of(provider, retries=0) as (server, model):
        for reply, wanted in rows:
            server.reply(reply)
            got = await items(model)
            assert shown(got) == wanted, reply.ends
            if isinstance(got[-1], ModelEnd):
                odd = (reply.ends or "").startswith("odd_one")
                assert got[-1].said == ((reply.ends or "").replace("\ud83d", "\ufffd") if odd else "")


# ---- streams that are cut


def talk(*events: dict[str, Any]) -> bytes:
    data = [json.dumps(each, ensure_ascii=False) for each in events]
    return "".join(f"data: {each}\n\n" for each in data).encode()


def delta(index: int, **members: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": members}


CALL = {"id": "a", "function": {"name": "look", "arguments": '{"a":'}}
TALKS = {
    "openai": talk(
        {"model": "m", "choices": [{"delta": {"content": "Grüß"}}]},
        {"choices": [{"delta": {"content": " dich"}}]},
        {"choices": [{"delta": {"tool_calls": [CALL]}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": " 1}"}}]}}]},
        {"choices": [{"finish_reason": "tool_calls"}]},
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 22}},
    ),
    "anthropic": talk(
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 1}}},
        delta(0, text="Grüß"),
        delta(0, text=" dich"),
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "a", "name": "look"},
        },
        delta(1, partial_json='{"a":'),
        delta(1, partial_json=" 1}"),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 22}},
        {"type": "message_stop"},
    ),
}
WHOLE = [TextDelta("Grüß"), TextDelta(" dich"), ToolRequest("a", "look", {"a": 1})]
CUT_OFF = {"MODEL_CUT", "MODEL_MALFORMED", "MODEL_UNAVAILABLE"}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
async def test_no_part_of_an_answer_is_taken_for_all_of_it(provider: str, step: int) -> None:
    data, cut_off = TALKS[provider], 0
    async with model_of(provider, retries=0) as (server, model):
        for length in (*range(1, len(data), step), len(data)):
            server.default = Reply(raw=[data[:length]])
            got = await items(model)
            if isinstance(got[-1], ActionFailed):
                assert got[-1].code in CUT_OFF
                cut_off += 1
            else:  # the tokens alone may come behind the end
                assert [*got[:-1], got[-1].reason] == [*WHOLE, "tools"]
    assert got == [*WHOLE, ModelEnd("tools", Usage(1, 22), "m")]
    assert cut_off * step > len(data) * 0.7
