"""What is offered to MCP clients, under attack: odd agents, and clients that do not what they should."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import mcp_types as types
import msgspec
import pytest
import structlog
import trio

from lmos_actors import ActionFailed, Agent, Pool, Progress, Property, Secret, action, open_node, prop
from lmos_actors.errors import ConfigError
from lmos_actors.mcp import McpContent, McpMessage, McpOptions, McpResult, prompt, resource
from tests.mcp.offer.test_endpoint import BOTH, HELLO, answer_in, http_client, post, request, serving
from tests.mcp.offering import client_of, error_of, offered, text_of

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])


class NoText:
    def __str__(self) -> str:
        raise ValueError("no text")


class Credentials(msgspec.Struct):
    """What a log may not show."""

    user: str
    password: Secret[str]


class NoMore(structlog.BoundLogger):
    """Loggers of a user's own."""

    def __init_subclass__(cls, **_: Any) -> None:
        raise RuntimeError("there are no others below")


class Logging(Agent):
    """Logs whatever comes."""

    @action
    def log_one(self, kind: str) -> None:
        fields: dict[str, dict[str, Any]] = {
            "surrogates": {"a\ud800": "b\udc00"},
            "no text": {"value": NoText()},
            "a secret": {"value": Credentials("alice", "4711")},
            "long": {f"field{number}": "x" * 10_000 for number in range(100)},
        }
        self.log.info(kind, **fields[kind])

    @action
    async def log_in_a_thread(self) -> str:
        log = self.log
        await trio.to_thread.run_sync(lambda: log.info("in a thread"))
        return "done"

    @action
    @prompt
    def hello(self) -> str:
        self.log.info("in a prompt")
        return "hello"


@pytest.fixture
def quiet_log() -> Any:
    """Nothing is written by structlog, which could not write some of it."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), processors=[lambda *_: "line"])
    yield None
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("surrogates", {"event": "surrogates", "a?": "b?"}),
        ("no text", {"event": "no text", "value": "<NoText>"}),
        ("a secret", {"event": "a secret", "value": "{'user': 'alice', 'password': '***'}"}),
        ("long", {"event": "long", "field0": "x" * 10_000, "field1": "x" * 6_374}),
    ],
)
async def test_any_line_of_a_log_is_sent(kind: str, shown: dict[str, str], quiet_log: None) -> None:
    lines: list[Any] = []

    async def log(params: Any) -> None:
        lines.append(params.data)

    async with (
        offered(Logging) as node,
        client_of(node, McpOptions(logs=True), logging_callback=log) as client,
    ):
        assert not (await client.call_tool("logging__log_one", {"kind": kind})).is_error
        assert lines == [shown]


async def test_a_thread_logs_to_the_client(quiet_log: None) -> None:
    lines: list[Any] = []
    came = trio.Event()

    async def log(params: Any) -> None:
        lines.append(params.data)
        came.set()

    options = McpOptions(logs=True)
    async with offered(Logging) as node, client_of(node, options, logging_callback=log) as client:
        with trio.fail_after(5):
            assert text_of(await client.call_tool("logging__log_in_a_thread")) == "done"
            await came.wait()
    assert lines == ["in a thread"]


async def test_a_logger_of_the_users_own_goes_on_as_it_is(quiet_log: None) -> None:
    structlog.configure(wrapper_class=NoMore)
    async with offered(Logging) as node, client_of(node, McpOptions(logs=True)) as client:
        assert not (await client.call_tool("logging__log_one", {"kind": "a secret"})).is_error


@pytest.mark.parametrize("agent", [None, 5, Logging, "\ud800"])
def test_an_agent_is_offered_by_its_name(agent: Any) -> None:
    with pytest.raises(ConfigError, match="agent: must be the public name of an agent, not "):
        McpOptions(agent=agent)


async def test_what_is_logged_for_a_prompt_is_sent(quiet_log: None) -> None:
    lines: list[Any] = []

    async def log(params: Any) -> None:
        lines.append(params.data)

    options = McpOptions(logs=True)
    async with offered(Logging) as node, client_of(node, options, logging_callback=log) as client:
        await client.get_prompt("logging__hello")
        assert lines == ["in a prompt"]


class Odd(Agent):
    """Returns odd things."""

    units: Property[str] = prop(default="celsius")

    @action
    async def report(self, progress: Progress[int], number: str) -> str:
        progress.report(int(number))
        await trio.sleep(0.01)
        return "done"

    @action
    def none(self) -> list[McpContent]:
        return []

    @action
    def content(self, kind: str, data: str, uri: str) -> McpContent:
        return McpContent(kind, data=data, uri=uri)  # type: ignore[arg-type]

    @action
    def structured(self, value: Any) -> McpResult:
        return McpResult(structured=value)

    @action
    @prompt
    def silent(self) -> list[McpMessage]:
        return []

    # ---- resources

    @action
    @resource("odd://{a}-{b}-{c}-{d}-{e}/end")
    def parts(self, a: str, b: str, c: str, d: str, e: str) -> list[str]:
        return [a, b, c, d, e]

    @action
    @resource("odd://properties/{name}")
    def of_the_same_place(self, name: str) -> str:
        return f"mine: {name}"

    @action
    @resource("odd://rooms/{name}")
    def room(self, name: str) -> str:
        return f"the room {name}"

    @action
    @resource("odd://rooms/blue")
    def blue(self) -> str:
        return "blue"

    @action
    @resource("odd://units", changes=units)
    def its_units(self) -> str:
        return self.units

    # ---- completion

    @action
    def wrong(self, typed: str) -> int:
        return 5

    @action
    def large(self, typed: str) -> list[str]:
        return ["x" * 1_000]

    @action
    @prompt(complete={"first": wrong, "second": large})
    def completed(self, first: str, second: str) -> str:
        return ""


@MODES
async def test_a_number_of_any_size_is_progress(mode: str) -> None:
    reported: list[Any] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total, message))

    async with offered(Odd) as node, client_of(node, mode=mode) as client:
        number = "1" + "0" * 400
        result = await client.call_tool("odd__report", {"number": number}, progress_callback=report)
        assert text_of(result) == "done"
        assert reported == [(1.0, None, number)]


@pytest.mark.parametrize(
    ("tool", "arguments", "content", "structured"),
    [
        ("none", {}, [], None),
        ("content", {"kind": "image", "data": "**", "uri": ""}, "data that is not Base64", None),
        ("content", {"kind": "link", "data": "", "uri": ""}, "a link without a uri", None),
        ("content", {"kind": "resource", "data": "", "uri": ""}, "a resource without a uri", None),
        ("structured", {"value": [1]}, [], {"result": [1]}),
        ("structured", {"value": {}}, [], {}),
        ("structured", {"value": None}, [], None),
    ],
)
async def test_odd_content(tool: str, arguments: dict[str, Any], content: Any, structured: Any) -> None:
    async with offered(Odd) as node, client_of(node) as client:
        result = await client.call_tool(f"odd__{tool}", arguments)
        assert result.structured_content == structured
        if result.is_error:
            assert text_of(result) == f"the agent returns {content}"
        else:
            assert result.content == content


async def test_a_prompt_may_say_nothing() -> None:
    async with offered(Odd) as node, client_of(node) as client:
        assert (await client.get_prompt("odd__silent")).messages == []


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("1-2-3-4-5/end", '["1","2","3","4","5"]'),
        ("1-2-3-4-5-6/end", '["1","2","3","4","5-6"]'),
        ("-" * 1_000 + "/no", None),
        ("properties/units", '"celsius"'),
        ("properties/others", "mine: others"),
        ("rooms/blue", "blue"),
        ("rooms/red", "the room red"),
    ],
)
async def test_odd_resources(uri: str, text: str | None) -> None:
    async with offered(Odd) as node, client_of(node) as client:
        with trio.fail_after(5):
            read = client.read_resource(f"lmos://agents/odd/{uri}")
            if text is None:
                assert (await error_of(read)).message == "Resource not found"
            else:
                assert (await read).contents[0].text == text  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("first", "'wrong' completes with a list of texts, and has none"),
        ("second", "the value has more than 100 bytes"),
    ],
)
async def test_odd_completion(name: str, text: str) -> None:
    async with offered(Odd) as node, client_of(node, McpOptions(result_bytes=100)) as client:
        ref = types.PromptReference(name="odd__completed")
        call = client.complete(ref, {"name": name, "value": ""})
        assert (await error_of(call)).message == text
        assert node.connection_failures == ()


async def test_changes_of_a_pool_are_nothing_to_subscribe_to() -> None:
    async with open_node() as node, client_of(node) as client:
        await node.start_pool(Pool(Odd, 2, name="team"))
        uri = "lmos://agents/team/units"
        assert (await client.read_resource(uri)).contents[0].text == "celsius"  # type: ignore[union-attr]
        error = await error_of(client.subscribe_resource(uri))
        assert error.message == "changes of this resource are not observable"


async def test_what_completes_takes_what_is_typed() -> None:
    @action
    def nothing(self: Any) -> list[str]:
        return []

    with pytest.raises(TypeError, match="completes by an action of one or two parameters, not <action"):
        prompt(complete={"name": nothing})


# ---- clients that are asked

FORM: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ANSWER = types.ElicitResult(action="accept", content={"n": 1})


class Notes:
    """What an agent has found out."""

    def __init__(self) -> None:
        self.asks = trio.Event()
        self.asked = 0
        self.said = ""
        self.done = trio.Event()


class Asking(Agent):
    """Asks its client."""

    notes: Any = attrs.field(factory=Notes)

    @action(concurrency=10)
    async def ask(self, form: Any = None, size: int = 0) -> str:
        said = await self._asked({"message": "n?", "requestedSchema": form or FORM})
        self.notes.asked += 1
        if self.notes.asked == 2:
            self.notes.done.set()
        return said + "x" * size

    @action
    async def refer(self) -> str:
        place = {"url": "https://example.org", "elicitationId": "1"}
        return await self._asked({"mode": "url", "message": "go there", **place})

    @action
    async def half(self) -> str:
        return await self._asked({"message": "\ud800", "requestedSchema": FORM})

    @action(on_disconnect="finish", concurrency=10)
    async def finish(self) -> str:
        said = await self._asked({"message": "n?", "requestedSchema": FORM})
        self.notes.said = said
        self.notes.done.set()
        return said

    @action
    async def work_and_ask(self) -> str:
        async def work() -> None:
            await self.notes.asks.wait()
            self.log.info("meanwhile")

        self.log.info("begin")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            said = await self._asked({"message": "n?", "requestedSchema": FORM})
        self.log.info("end")
        return said

    async def _asked(self, params: dict[str, Any]) -> str:
        self.notes.asks.set()
        try:
            return str((await self.ask_client("elicitation/create", params))["action"])
        except ActionFailed as error:
            return str(error.output["message"]).partition(": ")[2]


async def accept(_: Any, params: Any) -> types.ElicitResult:
    return ANSWER


@MODES
@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("ask", {}, "accept"),
        ("ask", {"form": {"type": 5}}, "requestedSchema is an object with properties"),
        ("ask", {"form": {"type": "object"}}, "requestedSchema is an object with properties"),
        ("ask", {"form": [1]}, "requestedSchema is an object with properties"),
        ("half", {}, "its arguments are not plain data"),
    ],
)
async def test_what_is_asked_is_looked_at_first(
    mode: str, tool: str, arguments: dict[str, Any], text: str
) -> None:
    async with offered(Asking) as node, client_of(node, mode=mode, elicitation_callback=accept) as client:
        with trio.fail_after(5):
            result = await client.call_tool(f"asking__{tool}", arguments)
        assert text in text_of(result)


def in_rounds(tool: str, arguments: Any = None, who: Any = None, **more: Any) -> tuple[Any, dict[str, str]]:
    """A call by a client without a session, and its headers."""
    version, prefix = "2026-07-28", "io.modelcontextprotocol"
    message = request("tools/call", {"name": f"asking__{tool}", "arguments": arguments or {}, **more})
    message["params"]["_meta"] = {
        f"{prefix}/protocolVersion": version,
        f"{prefix}/clientCapabilities": {"elicitation": {} if who is None else who},
    }
    headers = {"mcp-method": "tools/call", "mcp-name": f"asking__{tool}"}
    return message, {"mcp-protocol-version": version, **headers}


async def call(url: str, tool: str, arguments: Any = None, who: Any = None, **more: Any) -> Any:
    """The result of such a call, or its error."""
    message, headers = in_rounds(tool, arguments, who, **more)
    found = answer_in(await post(url, message, **headers))
    return found.get("result", found.get("error"))


@pytest.mark.parametrize(
    ("can", "tool", "text"),
    [
        ({"url": {}}, "ask", "the client does not offer it"),
        ({"form": {}}, "refer", "the client does not offer it"),
        ({}, "refer", "the client does not offer it"),
        ({"form": {}, "url": {}}, "refer", None),
        ({}, "ask", None),
    ],
)
async def test_a_client_is_asked_in_the_ways_it_has(can: Any, tool: str, text: str | None) -> None:
    async with serving(Asking) as (_, url):
        result = await call(url, tool, who=can)
        if text is None:
            assert result["requestState"]
        else:
            assert result["content"][0]["text"] == text


async def test_a_result_that_waits_for_its_client_is_counted() -> None:
    notes = Notes()
    options = McpOptions(answer_seconds=0.2, calls=2, waiting_bytes=1_500)
    async with serving(partial(Asking, notes=notes), mcp=options) as (_, url):
        states = [(await call(url, "ask", {"size": 1_000}))["requestState"] for _ in range(2)]
        with trio.fail_after(5):
            await notes.done.wait()  # nobody has answered
        assert "too many calls" in (await call(url, "ask"))["content"][0]["text"]
        texts = [
            (await call(url, "ask", {"size": 1_000}, requestState=state))["content"][0]["text"]
            for state in states
        ]
        assert sorted(text[:35] for text in texts) == [
            "Action Cancelled: results that clie", "the client did not answer within 0.",
        ]  # fmt: skip
        assert (await call(url, "ask"))["requestState"]


async def test_who_asks_a_client_that_has_left_goes_on() -> None:
    notes = Notes()
    async with serving(partial(Asking, notes=notes)) as (_, url):
        begun = await post(url, request("initialize", {**HELLO, "capabilities": {"elicitation": {}}}))
        headers = {"mcp-session-id": begun.headers["mcp-session-id"]}
        message = request("tools/call", {"name": "asking__finish", "arguments": {}})
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(post, url, message, **headers))
                await notes.asks.wait()
                nursery.cancel_scope.cancel()
            await notes.done.wait()
        assert notes.said == "the client is gone"


async def test_lines_of_a_log_wait_for_the_next_round() -> None:
    lines: list[Any] = []

    async def log(params: Any) -> None:
        lines.append(params.data)

    async with (
        offered(Asking) as node,
        client_of(
            node, McpOptions(logs=True), mode="auto", elicitation_callback=accept, logging_callback=log
        ) as client,
    ):
        meta: Any = {types.LOG_LEVEL_META_KEY: "info"}
        result = await client.call_tool("asking__work_and_ask", meta=meta)
        assert text_of(result) == "accept"
        assert lines == ["begin", "meanwhile", "end"]


async def test_a_node_does_not_wait_for_clients_that_cannot_come_back() -> None:
    notes = Notes()
    async with serving(partial(Asking, notes=notes)) as (_, url):
        assert (await call(url, "finish"))["requestState"]
        began = trio.current_time()
    assert trio.current_time() < began + 2
    assert notes.said == "the node is shutting down"


async def test_answers_that_come_while_a_session_ends() -> None:
    async with serving(Asking) as (node, url), http_client(timeout=30) as http:
        for _ in range(5):
            begun = await post(url, request("initialize", HELLO))
            session = {"mcp-session-id": begun.headers["mcp-session-id"]}
            answer = {"jsonrpc": "2.0", "id": 1, "result": {"action": "decline"}}
            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:
                    for _ in range(4):
                        nursery.start_soon(partial(http.post, url, json=answer, headers={**BOTH, **session}))
                    nursery.start_soon(partial(http.delete, url, headers=session))
        assert node.connection_failures == ()
