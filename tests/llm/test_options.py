"""Members of requests that an endpoint refuses, and those that it has other names for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from lmos_actors import ConfigError
from lmos_actors.llm import AnthropicModel, OpenAIModel, ToolRequest
from tests.llm.asking import END, HI, items, model_of
from tests.llm.provider_server import Received, Reply, Tool
from tests.rows import each_row

CLASSES = (OpenAIModel, AnthropicModel)


def refusing(*names: str) -> Any:
    """Return the answers of an endpoint that takes no member of these names."""

    def judge(received: Received) -> Reply:
        wrong = sorted(set(names) & set(received.body))
        return Reply(status=422, error=f"{wrong}: Extra inputs are not permitted") if wrong else Reply()

    return judge


@pytest.mark.parametrize(
    ("provider", "refused", "options", "wanted"),
    [
        ("openai", "stream_options", {"options": {"stream_options": None}}, {"max_tokens": 8_192}),
        ("openai", "max_tokens", {"options": {"max_tokens": None}}, {}),
        (
            "openai",
            "max_tokens",
            {"rename": {"max_tokens": "max_completion_tokens"}},
            {"max_completion_tokens": 8_192},
        ),
        ("openai", "temperature", {"temperature": 0.5, "options": {"temperature": None}}, {}),
        ("openai", "seed", {"options": {"seed": None, "user": "me"}}, {"user": "me"}),
        ("openai", "none", {"options": {"max_tokens": 7}}, {"max_tokens": 7}),
        ("anthropic", "max_tokens", {"options": {"max_tokens": None}}, {}),
        ("anthropic", "temperature", {"temperature": 0.5, "options": {"temperature": None}}, {}),
        ("anthropic", "temperature", {"temperature": 0.5, "rename": {"temperature": "heat"}}, {"heat": 0.5}),
    ],
)
async def test_members_are_taken_out_and_renamed(
    provider: str, refused: str, options: dict[str, Any], wanted: dict[str, Any]
) -> None:
    async with model_of(provider, **options) as (server, model):
        server.default = refusing(refused)
        assert (await items(model))[-1] == END
        body = server.requests[0].body
    assert {name: body.get(name) for name in wanted} == wanted
    assert body["messages"]
    assert body["stream"] is True


async def test_a_member_of_another_name_is_of_each_request() -> None:
    async with model_of("openai", rename={"max_tokens": "max_new", "tools": "functions"}) as (server, model):
        await items(model, HI, max_tokens=50)
        await items(model)
    assert [received.body["max_new"] for received in server.requests] == [50, 8_192]
    assert "functions" not in server.requests[0].body


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("stream", [None, False])
async def test_a_whole_answer_is_asked_for(provider: str, stream: bool | None) -> None:
    async with model_of(provider, options={"stream": stream, "stream_options": None}) as (server, model):
        server.reply(Reply(tools=(Tool("look", ('{"a": 1}',), "c-1"),)))
        assert (await items(model))[1:] == [
            ToolRequest("c-1", "look", {"a": 1}),
            replace(END, reason="tools"),
        ]
        body = server.requests[0].body
    assert body["stream"] is False
    assert "stream_options" not in body


@each_row(("cls", "rename"), [(cls, wrong) for cls in CLASSES for wrong in ([], {"a": 1}, {"a": None}, "ab")])
def test_names_that_are_none(cls: Any, rename: Any) -> None:
    with pytest.raises(ConfigError, match="rename: must be a dict of names"):
        cls(model="any", key=None, rename=rename)
