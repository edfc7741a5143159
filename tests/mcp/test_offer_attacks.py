"""What is offered to MCP clients, under attack: odd agents, and clients that do not what they should."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
import trio
from mcp_types import PromptReference

from lmos_actors import Agent, Progress, Property, action, prop
from lmos_actors.mcp import McpContent, McpMessage, McpOptions, McpResult, prompt, resource
from tests.mcp.offering import client_of, error_of, offered, text_of

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])


class NoText:
    def __str__(self) -> str:
        raise ValueError("no text")


class Logging(Agent):
    """Logs whatever comes."""

    @action
    def log_one(self, kind: str) -> None:
        fields: dict[str, Any] = {
            "surrogates": {"a\ud800": "b\udc00"},
            "no text": {"value": NoText()},
            "long": {f"field{number}": "x" * 10_000 for number in range(100)},
        }[kind]
        self.log.info(kind, **fields)

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

    async def report(*progress: Any) -> None:
        reported.append(progress)

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
        ref = PromptReference(name="odd__completed")
        call = client.complete(ref, {"name": name, "value": ""})
        assert (await error_of(call)).message == text
        assert node.connection_failures == ()


async def test_what_completes_takes_what_is_typed() -> None:
    @action
    def nothing(self: Any) -> list[str]:
        return []

    with pytest.raises(TypeError, match="completes by an action of one or two parameters, not <action"):
        prompt(complete={"name": nothing})
