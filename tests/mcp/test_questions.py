"""Questions of MCP servers to the user: as approvals, bounded, and never for secrets."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, ConfigError, Node, Ref, open_node
from lmos_actors.approvals import Approval, Approvals
from lmos_actors.facades import ChatAgent, ChatTurn, open_chat
from lmos_actors.mcp import McpServer
from lmos_actors.security import Access, Bearer, BearerToken, Credentials, Security
from lmos_actors.testing import answer_approval
from lmos_actors.transport import MemoryNetwork
from tests.mcp.using import HERE, asked, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ASKING = [sys.executable, "-S", "-E", str(HERE / "asking.py")]
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION = {"message": "Who flies?", "requestedSchema": NAME}


@asynccontextmanager
async def asking(**options: Any) -> AsyncIterator[tuple[Node, Ref[McpServer]]]:
    async with open_node(approvals=True) as node:
        given = {"command": ASKING, "elicitation": "approve", **options}
        yield node, await node.start(McpServer, **given)


async def outcome(server: Ref[McpServer], name: str = "ask", /, **arguments: Any) -> Any:
    """Return what the server got for its questions."""
    return json.loads(await text_of(server, name, **{"params": QUESTION, **arguments}))


async def entries(node: Node, state: str = "all") -> list[Approval]:
    return await node.find(Approvals).invoke(Approvals.entries, state)


async def waiting(node: Node, number: int) -> list[Approval]:
    """Wait until so many questions wait."""
    async with node.find(Approvals).observe(Approvals.waiting) as numbers:
        async for each in numbers:
            if each == number:
                return await entries(node, "waiting")
    raise AssertionError("the node has ended")


async def declined(server: Ref[McpServer], number: int) -> None:
    """Wait until so many questions were declined."""
    async with server.observe(McpServer.declined) as numbers:
        async for each in numbers:
            if each == number:
                return


async def test_a_person_fills_in_the_form_that_a_server_asks_for() -> None:
    async with asking() as (node, server), trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await outcome(server))

        nursery.start_soon(call)
        (found,) = await waiting(node, 1)
        assert (found.agent, found.text) == ("mcp-server", "the MCP server asks: Who flies?")
        assert (found.data, found.once) == ({"during": ["the tool ask"]}, True)
        assert found.form == {**NAME, "additionalProperties": False}
        approve = partial(node.find(Approvals).invoke, Approvals.accept, found.id)
        for wrong in (None, {"name": 7}, {"name": "Ann", "age": 3}, {"name": "x" * 70_000}):
            with pytest.raises(ActionFailed) as refused:
                await approve("", wrong)
            assert refused.value.code == "ANSWER_INVALID"
        kept = await approve("by phone", {"name": "Ann"})
        assert (kept.state, kept.answer, kept.note) == ("approved", {"name": "Ann"}, "by phone")
        with pytest.raises(ActionFailed, match="approved it already"):
            await approve("", {"name": "Bob"})
    assert answers == [{"action": "accept", "content": {"name": "Ann"}}]


async def test_a_server_of_the_newest_protocol_asks_too_and_its_call_has_time() -> None:
    command = [sys.executable, str(HERE / "asking_modern.py")]
    async with asking(command=command, call_seconds=5.0) as (node, server), trio.open_nursery() as nursery:
        texts: list[str] = []

        async def call() -> None:
            texts.append(await text_of(server, "book"))

        nursery.start_soon(call)
        (found,) = await waiting(node, 1)
        assert found.form is not None
        assert found.form["properties"]["seat"]["enum"] == ["aisle", "window"]
        with pytest.raises(ActionFailed, match="greater than the maximum"):
            await node.find(Approvals).invoke(Approvals.accept, found.id, "", {"name": "Ann", "age": 200})
        await node.find(Approvals).invoke(Approvals.accept, found.id, "", {"name": "Ann", "age": 7})
    assert texts == ["Ann, 7, aisle"]


async def test_a_refusal_and_silence_are_told_apart() -> None:
    async with asking(elicitation_seconds=0.2, call_seconds=0.1) as (node, server):
        assert await outcome(server) == {"action": "cancel"}  # the limit of the call stood still
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_approval, node, False)
            assert await outcome(server) == {"action": "decline"}
        assert [each.state for each in await entries(node)] == ["expired", "refused"]
        assert await server.read(McpServer.declined) == 0


WIDE_PIN = "\uff30\uff29\uff2e"
FIELD = {"type": "string", "title": "Name"}


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"message": "Your password, please"}, "secret"),
        ({"message": "Your API-Key"}, "secret"),
        ({"requestedSchema": {"type": "object", "properties": {"api_key": FIELD}}}, "secret"),
        ({"requestedSchema": {"type": "object", "properties": {"accessToken": FIELD}}}, "secret"),
        (
            {
                "requestedSchema": {
                    "type": "object",
                    "properties": {"a": {**FIELD, "title": "\uff30\uff29\uff2e"}},
                }
            },
            "secret",
        ),
        (
            {"requestedSchema": {"type": "object", "properties": {"a": {**FIELD, "format": "password"}}}},
            "secret",
        ),
        ({"mode": "url", "url": "https://evil.example", "elicitationId": "1"}, "URL"),
        ({"message": " \n"}, "says nothing"),
        ({"requestedSchema": {"type": "object", "properties": {"a": {"type": "object"}}}}, "none of"),
        (
            {"requestedSchema": {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}},
            "none of",
        ),
        ({"requestedSchema": {"type": "object", "properties": {"a": {"type": "array"}}}}, "choices"),
        ({"requestedSchema": {"type": "object", "properties": {"a\u202e": FIELD}}}, "nobody can read"),
        (
            {"requestedSchema": {"type": "object", "properties": {"a": {**FIELD, "minLength": "x"}}}},
            "wrong type",
        ),
        (
            {"requestedSchema": {"type": "object", "properties": {"a": {**FIELD, "minLength": -1}}}},
            "not right",
        ),
        ({"requestedSchema": {"type": "object", "properties": {"a": {**FIELD, "enum": []}}}}, "choices"),
        ({"requestedSchema": {"type": "object", "properties": {"a": {**FIELD, "enum": [1]}}}}, "choices"),
        ({"requestedSchema": {"type": "object", "properties": {}, "required": ["b"]}}, "does not have"),
        (
            {"requestedSchema": {"type": "object", "properties": {f"f{n}": FIELD for n in range(51)}}},
            "at most 50",
        ),
        (
            {
                "requestedSchema": {
                    "type": "object",
                    "properties": {f"f{n}": {**FIELD, "default": "x" * 999} for n in range(40)},
                }
            },
            "bytes",
        ),
    ],
)
async def test_what_nobody_is_asked(
    params: dict[str, Any], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asking() as (node, server):
        assert await outcome(server, params={**QUESTION, **params}) == {"action": "decline"}
        assert await entries(node) == []
        assert await server.read(McpServer.declined) == 1
    assert why in capsys.readouterr().out.partition(" why=")[2]


@pytest.mark.parametrize("schema", [{"type": "array"}, {"type": "object", "properties": []}, 7, None])
async def test_a_question_that_is_not_of_the_protocol_is_an_error(schema: Any) -> None:
    async with asking() as (node, server):
        assert (await outcome(server, params={**QUESTION, "requestedSchema": schema}))["code"] == -32602
        assert await entries(node) == []


async def test_the_format_of_a_text_counts() -> None:
    field = {"type": "string", "format": "date"}
    schema = {"type": "object", "properties": {"on": field}}
    async with asking() as (node, server), trio.open_nursery() as nursery:
        nursery.start_soon(partial(outcome, server, params={**QUESTION, "requestedSchema": schema}))
        (found,) = await waiting(node, 1)
        with pytest.raises(ActionFailed, match="date"):
            await node.find(Approvals).invoke(Approvals.accept, found.id, "", {"on": "tomorrow"})
        await node.find(Approvals).invoke(Approvals.accept, found.id, "", {"on": "2026-12-01"})


async def test_a_schema_with_more_in_it_is_written_anew() -> None:
    field = {"type": "string", "title": "\x1b[2JName", "pattern": "(a+)+$", "$ref": "file:///etc/passwd"}
    given = {"type": "object", "properties": {"name": field}, "allOf": [{"$ref": "http://evil.example"}]}
    async with asking() as (node, server), trio.open_nursery() as nursery:
        nursery.start_soon(partial(outcome, server, params={**QUESTION, "requestedSchema": given}))
        (found,) = await waiting(node, 1)
        assert found.form == {
            "type": "object",
            "properties": {"name": {"type": "string", "title": "\\x1b[2JName"}},
            "additionalProperties": False,
            "required": [],
        }
        await node.find(Approvals).invoke(Approvals.refuse, found.id)


DEFAULTS: dict[str, Any] = {
    "name": {"type": "string", "default": "Ann"},
    "age": {"type": "integer", "default": 7},
    "weight": {"type": "number", "default": 0.5},
    "window": {"type": "boolean", "default": False},
    "meal": {"type": "string", "enum": ["soup", "bread"], "default": "soup"},
    "extras": {"type": "array", "items": {"type": "string", "enum": ["wifi", "sleep"]}, "default": ["wifi"]},
    "bags": {"type": "integer"},
}
DEFAULTED = {name: each["default"] for name, each in DEFAULTS.items() if "default" in each}


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (None, {}),
        ({"age": 8, "window": True, "bags": 2}, {"age": 8, "window": True, "bags": 2}),
    ],
)
async def test_a_field_that_is_left_out_has_its_default(answer: Any, content: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": DEFAULTS, "required": ["name", "meal"]}
    async with asking() as (node, server), trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await outcome(server, params={**QUESTION, "requestedSchema": schema}))

        nursery.start_soon(call)
        (found,) = await waiting(node, 1)
        kept = await node.find(Approvals).invoke(Approvals.accept, found.id, "", answer)
    assert answers[0]["content"] == kept.answer == {**DEFAULTED, **content}


async def test_a_default_that_does_not_fit_is_none() -> None:
    fields: dict[str, Any] = {
        "short": {"type": "string", "minLength": 1, "default": ""},
        "mail": {"type": "string", "format": "email", "default": "nobody"},
        "large": {"type": "integer", "maximum": 3, "default": 4},
        "other": {"type": "string", "enum": ["a"], "default": "b"},
        "others": {"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": ["b"]},
    }
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    async with asking() as (node, server), trio.open_nursery() as nursery:
        nursery.start_soon(partial(outcome, server, params={**QUESTION, "requestedSchema": schema}))
        (found,) = await waiting(node, 1)
        assert found.form is not None
        assert not any("default" in each for each in found.form["properties"].values())
        assert found.form["required"] == list(fields)
        await node.find(Approvals).invoke(Approvals.refuse, found.id)


async def test_one_that_asks_too_much_is_declined() -> None:
    async with asking() as (node, server), trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def call() -> None:
            answers.extend(await outcome(server, "flood", count=30))

        nursery.start_soon(call)
        await declined(server, 26)
        for each in await waiting(node, 4):
            await node.find(Approvals).invoke(Approvals.refuse, each.id)
    assert answers == [{"action": "decline"}] * 30
    async with asking() as (node, server):
        await node.find(Approvals).ready()
        async with trio.open_nursery() as nursery:

            async def refuse() -> None:
                for _ in range(20):
                    await answer_approval(node, False)

            nursery.start_soon(refuse)
            assert await outcome(server, "again", count=25) == [{"action": "decline"}] * 25
        assert await server.read(McpServer.declined) == 5


async def test_questions_go_with_the_call_and_with_the_server() -> None:
    async with asking() as (node, server):
        assert await outcome(server, "leave") == "left"
        await waiting(node, 0)
        assert await entries(node) == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outcome, server)
            (found,) = await waiting(node, 1)
            nursery.cancel_scope.cancel()
        await waiting(node, 0)
        with pytest.raises(ActionFailed, match="no approval"):
            await node.find(Approvals).invoke(Approvals.accept, found.id, "", {"name": "Ann"})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked, server, "ask")
            await node.root.terminate_child("mcp-server")
        assert await entries(node) == []


async def test_the_question_of_a_server_that_dies_meanwhile_goes_with_it() -> None:
    async with asking() as (node, server):
        assert (await asked(server, "die", params=QUESTION)).code == "MCP_NO_ANSWER"
        await waiting(node, 0)
        assert await entries(node) == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_approval, node, False)
            assert await outcome(server) == {"action": "decline"}


async def test_a_question_outside_a_call_is_declined() -> None:
    async with asking() as (node, server):
        assert await outcome(server, "later") == "done"
        await declined(server, 1)
        assert await entries(node) == []


async def test_the_agent_approvals_may_crash_meanwhile() -> None:
    async with asking() as (node, server), trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await outcome(server))

        nursery.start_soon(call)
        (before,) = await waiting(node, 1)
        await node.root.terminate_child("approvals")
        await node.root.restart_child("approvals")
        (after,) = await waiting(node, 1)
        assert after.id == before.id
        await node.find(Approvals).invoke(Approvals.accept, after.id, "", {"name": "Ann"})
    assert answers == [{"action": "accept", "content": {"name": "Ann"}}]


class Travel(ChatAgent):
    """Books what the user says."""

    async def reply(self, turn: ChatTurn) -> str:
        result = await self.find(McpServer).invoke(McpServer.call, "ask", {"params": QUESTION})
        return result.content[0].text


async def test_the_user_of_a_chat_answers_what_their_call_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("alice", "bob"):
        monkeypatch.setenv(f"E_{name.upper()}", f"{name}-token")
    tokens = {name: f"env:E_{name.upper()}" for name in ("alice", "bob")}
    rules = Security(
        schemes=(Bearer(tokens),),
        access={"mcp-server": Access(approve=("alice",))},
    )
    network = MemoryNetwork()
    asked_for: list[dict[str, Any]] = []

    async def approve(agent: str, text: str, expires: float, form: Any, data: Any = None) -> dict[str, Any]:
        asked_for.append(form)
        return {"approved": True, "answer": {"name": "Ann"}}

    def chat(name: str) -> Any:
        credentials = Credentials({"http://desk": BearerToken(tokens[name])}, allow_insecure=True)
        url = "ws://desk:80/agents/travel"
        return open_chat(url, network=network, credentials=credentials, tools=[approve])

    options: Any = {"listen": "ws://desk:80", "omnia": True, "network": network, "insecure": True}
    async with open_node(security=rules, **options) as node:
        await node.start(McpServer, command=ASKING, elicitation="approve")
        await node.start(Travel)
        async with chat("alice") as alice:
            answer = json.loads((await alice.say("book")).text)
        assert answer == {"action": "accept", "content": {"name": "Ann"}}
        assert [form["required"] for form in asked_for] == [["name"]]
        (kept,) = await entries(node, "decided")
        assert (kept.by, kept.answer) == ("alice", {"name": "Ann"})
        async with chat("bob") as bob, trio.open_nursery() as nursery:
            nursery.start_soon(answer_approval, node, False)
            assert json.loads((await bob.say("book")).text) == {"action": "decline"}
        assert len(asked_for) == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"elicitation": "accept"}, 'must be "decline" or "approve"'),
        ({"elicitation_seconds": 0}, "elicitation_seconds"),
        ({"elicitation_seconds": float("inf")}, "elicitation_seconds"),
    ],
)
def test_wrong_options(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        McpServer(command="any", **options)
