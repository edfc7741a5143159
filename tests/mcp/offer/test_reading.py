"""Prompts, resources, content, completion, logs and questions of agents that are offered to MCP clients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import mcp_types as types
import pytest
import trio

from lmos_actors import ActionFailed, Agent, Property, action, open_node, prop
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.mcp import McpContent, McpMessage, McpOptions, McpResult, prompt, resource
from lmos_actors.testing import answer_approval
from tests.mcp.offering import client_of, error_of, lines_of, offered, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])
LOGGED = McpOptions(logs=True)
ALONE = McpOptions(agent="library")
SOON = McpOptions(answer_seconds=0.05, calls=1)
ELICIT, SAMPLE = "elicitation/create", "sampling/createMessage"
FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WHERE = {"message": "Where?", "requestedSchema": FORM}
TALK = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 9}


class Library(Agent):
    """Has books."""

    motto: Property[str] = prop(default="read", doc="What is written above the door.")

    @action(safe=True)
    def titles(self, typed: str, given: dict[str, str]) -> list[str]:
        """Return the titles that begin with a text."""
        kind = given.get("kind", "any")
        return [f"{typed}-{kind}-{number}" for number in range(120)]

    @action(safe=True)
    @prompt(complete={"title": titles})
    def review(self, title: str, kind: Literal["short", "sharp", "long"] = "short", stars: int = 3) -> str:
        """Ask for a review."""
        return f"A {kind} review of {title}, {stars + 1} stars at most."

    @action(safe=True)
    @prompt
    async def talk(self) -> list[McpMessage]:
        """Begin to talk."""
        hello, yes = McpContent(text="Hello"), McpContent(text="Yes?")
        return [McpMessage("user", hello), McpMessage("assistant", yes)]

    @action(safe=True)
    @resource("books://{shelf}/{number}", mime_type="text/plain")
    def book(self, shelf: str, number: int) -> str:
        """Return a book."""
        return f"book {number + 1} of {shelf}"

    @action(safe=True)
    @resource("books://cover")
    def cover(self) -> bytes:
        """Return the picture of the house."""
        return b"\x89PNG"

    @action(safe=True)
    @resource("books://facts")
    def facts(self) -> dict[str, int]:
        """Return facts."""
        return {"books": 2}

    @action(safe=True)
    @resource("books://motto", changes=motto)
    def motto_now(self) -> list[McpContent]:
        """Return the motto."""
        return [McpContent(text=self.motto), McpContent(text="!", uri="books://mark")]

    @action
    def picture(self) -> McpContent:
        """Return a picture."""
        return McpContent("image", data="aGk=", mime_type="image/png")

    @action
    def pieces(self, many: bool) -> list[McpContent] | None:
        """Return several pieces, or nothing."""
        link = McpContent("link", "a book", uri="books://a/1")
        return [McpContent("audio", data="aGk=", mime_type="audio/wav"), link] if many else None

    @action
    def both(self) -> McpResult:
        """Return content and data."""
        return McpResult((McpContent(text="two"),), {"count": 2})

    @action
    async def work(self) -> str:
        """Log as it works."""
        self.log.debug("begun")
        self.log.bind(shelf="a").info("sorted", books=2)
        self.log.warning("dusty")
        return "done"

    @action
    def count(self) -> int:
        """Log in a turn."""
        self.log.error("counted")
        return 2


class Asker(Agent):
    """Asks whoever asks it."""

    @action(concurrency=9)
    async def ask(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask the client; return what it says, or why it does not."""
        try:
            answer: dict[str, Any] = await self.ask_client(name, arguments)
        except ActionFailed as error:
            return {"failed": error.output["message"]}
        return answer

    @action(concurrency=9)
    async def agreed(self, what: str) -> bool:
        """Have somebody approve."""
        return await self.approve(f"Do {what}?", {"what": what}, key=what, expires=60)

    @action(safe=True)
    @prompt
    async def greet(self) -> str:
        """Ask for the name first."""
        said = await self.ask_client(ELICIT, {"message": "Who?", "requestedSchema": FORM})
        return f"Hello {said['content']['city']}"


class Between(Agent):
    """Has another agent ask."""

    @action
    async def ask(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Have it ask."""
        answer: dict[str, Any] = await self.find(Asker).invoke(Asker.ask, name, arguments)
        return answer


class Talker(ChatAgent):
    """Asks the client in a turn."""

    async def reply(self, turn: ChatTurn) -> str:
        said = await turn.ask_client(ELICIT, WHERE)
        return str(said["content"]["city"])


def answering(action: Any = "accept", content: Any = None) -> Callable[..., Any]:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action=action, content=content)

    return answer


async def model(context: Any, params: Any) -> types.CreateMessageResult:
    said = params.messages[0].content.text
    content = types.TextContent(type="text", text=f"you said {said}")
    return types.CreateMessageResult(role="assistant", content=content, model="small")


# ---- prompts


@MODES
async def test_prompts_are_listed_and_filled_in(mode: str) -> None:
    async with offered(Library) as node, client_of(node, mode=mode) as client:
        listed = {each.name: each for each in (await client.list_prompts()).prompts}
        assert list(listed) == ["library__review", "library__talk"]
        assert listed["library__review"].description == "Ask for a review."
        arguments = listed["library__review"].arguments or []
        assert [(each.name, each.required) for each in arguments] == [
            ("title", True), ("kind", False), ("stars", False),
        ]  # fmt: skip
        filled = await client.get_prompt("library__review", {"title": "Emma", "stars": "4"})
        assert [each.content.text for each in filled.messages] == [  # type: ignore[union-attr]
            "A short review of Emma, 5 stars at most."
        ]
        talk = (await client.get_prompt("library__talk")).messages
        assert [(each.role, text_of(types.CallToolResult(content=[each.content]))) for each in talk] == [
            ("user", "Hello"),
            ("assistant", "Yes?"),
        ]
        assert "library__review" not in [each.name for each in (await client.list_tools()).tools]


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("library__nothing", {}, "Unknown prompt"),
        ("library__both", {}, "Unknown prompt"),
        ("library__review", {}, "'title' is needed"),
        ("library__review", {"title": "x", "pages": "3"}, "no argument 'pages'"),
        ("library__review", {"title": "x", "kind": "dull"}, "at $.kind"),
        ("library__review", {"title": "x", "stars": "many"}, "at $.stars"),
    ],
)
async def test_wrong_arguments_of_prompts_are_named(name: str, given: dict[str, str], said: str) -> None:
    async with offered(Library) as node, client_of(node) as client:
        error = await error_of(client.get_prompt(name, given))
        assert said in str(error)
        assert error.error.code == types.INVALID_PARAMS


# ---- resources


READ: dict[str, tuple[list[Any], str | None]] = {
    "lmos://agents/library/a%20b/1": (["book 2 of a b"], "text/plain"),
    "lmos://agents/library/cover": (["iVBORw=="[:6]], "application/octet-stream"),
    "lmos://agents/library/facts": (['{"books":2}'], "application/json"),
    "lmos://agents/library/motto": (["read", "!"], None),
}


@MODES
@pytest.mark.parametrize("uri", READ)
async def test_resources_are_read(uri: str, mode: str) -> None:
    texts, mime_type = READ[uri]
    async with offered(Library) as node, client_of(node, mode=mode) as client:
        contents = (await client.read_resource(uri)).contents
        found = [getattr(each, "text", None) or each.blob[:6] for each in contents]  # type: ignore[union-attr]
        assert found == [text[:6] if uri.endswith("cover") else text for text in texts]
        assert contents[0].mime_type == mime_type


@pytest.mark.parametrize(
    "uri",
    [
        "lmos://agents/library/a b/1",  # another spelling
        "lmos://agents/library/a",
        "lmos://agents/library/a/1/2",
        "lmos://agents/library//1",
        "lmos://agents/nobody/cover",
        "books://cover",  # of one agent alone
    ],
)
async def test_other_resources_are_not_there(uri: str) -> None:
    async with offered(Library) as node, client_of(node) as client:
        assert "Resource not found" in str(await error_of(client.read_resource(uri)))


async def test_a_part_of_the_wrong_type_is_named() -> None:
    async with offered(Library) as node, client_of(node) as client:
        error = await error_of(client.read_resource("lmos://agents/library/a/first"))
        assert "at $.number" in str(error)


@MODES
async def test_resources_and_templates_are_listed_apart(mode: str) -> None:
    async with offered(Library) as node, client_of(node, mode=mode) as client:
        uris = [str(each.uri) for each in (await client.list_resources()).resources]
        assert [uri.rpartition("/")[2] for uri in uris] == ["cover", "facts", "motto", "motto"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [(each.uri_template, each.mime_type) for each in templates] == [
            ("lmos://agents/library/{shelf}/{number}", "text/plain")
        ]


async def test_one_agent_alone_has_names_without_its_own() -> None:
    async with offered(Library, Asker) as node, client_of(node, ALONE) as client:
        tools = [each.name for each in (await client.list_tools()).tools]
        assert tools == ["both", "count", "picture", "pieces", "set_motto", "titles", "work"]
        assert text_of(await client.call_tool("count")) == "2"
        assert [each.name for each in (await client.list_prompts()).prompts] == ["review", "talk"]
        book = (await client.read_resource("books://a/1")).contents[0]
        assert book.text == "book 2 of a"  # type: ignore[union-attr]
        assert "Unknown tool" in str(await error_of(client.call_tool("asker__agreed", {"what": "x"})))


async def test_whoever_subscribes_to_a_resource_hears_when_its_property_changes() -> None:
    send, receive = trio.open_memory_channel[str](10)

    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            await send.send(str(message.params.uri))

    uri = "lmos://agents/library/motto"
    async with offered(Library) as node, client_of(node, message_handler=hear) as client:
        await client.subscribe_resource(uri)
        await client.call_tool("library__set_motto", {"value": "think"})
        assert await receive.receive() == uri
        error = await error_of(client.subscribe_resource("lmos://agents/library/cover"))
        assert "not observable" in str(error)


# ---- content


@pytest.mark.parametrize(
    ("name", "given", "kinds", "data"),
    [
        ("library__picture", {}, ["image"], None),
        ("library__pieces", {"many": True}, ["audio", "resource_link"], None),
        ("library__pieces", {"many": False}, [], None),
        ("library__both", {}, ["text"], {"count": 2}),
    ],
)
async def test_a_result_is_content_as_it_is(name: str, given: Any, kinds: list[str], data: Any) -> None:
    async with offered(Library) as node, client_of(node) as client:
        tool = next(each for each in (await client.list_tools()).tools if each.name == name)
        assert tool.output_schema is None
        result = await client.call_tool(name, given)
        assert [each.type for each in result.content] == kinds
        assert result.structured_content == data


# ---- completion


@MODES
async def test_arguments_are_completed(mode: str) -> None:
    review = types.PromptReference(type="ref/prompt", name="library__review")
    book = types.ResourceTemplateReference(type="ref/resource", uri="lmos://agents/library/{shelf}/{number}")
    async with offered(Library) as node, client_of(node, mode=mode) as client:
        by_type = (await client.complete(review, {"name": "kind", "value": "SH"})).completion
        assert (sorted(by_type.values), by_type.has_more) == (["sharp", "short"], False)
        given = {"kind": "long"}
        by_action = (await client.complete(review, {"name": "title", "value": "E"}, given)).completion
        assert (by_action.values[0], len(by_action.values)) == ("E-long-0", 100)
        assert (by_action.total, by_action.has_more) == (120, True)
        assert (await client.complete(book, {"name": "shelf", "value": "a"})).completion.values == []
        for reference, name in ((review, "pages"), (types.PromptReference(name="x"), "kind")):
            error = await error_of(client.complete(reference, {"name": name, "value": ""}))
            assert error.error.code == types.INVALID_PARAMS


# ---- logs


@pytest.mark.parametrize(
    ("level", "lines"),
    [
        (None, ["info sorted", "warning dusty", "error counted"]),
        ("debug", ["debug begun", "info sorted", "warning dusty", "error counted"]),
        ("error", ["error counted"]),
    ],
)
async def test_a_client_gets_the_lines_of_its_requests(level: Any, lines: list[str]) -> None:
    heard = list[str]()

    async def hear(params: types.LoggingMessageNotificationParams) -> None:
        event = params.data["event"] if isinstance(params.data, dict) else params.data
        heard.append(f"{params.level} {event}")

    async with offered(Library) as node, client_of(node, LOGGED, logging_callback=hear) as client:
        if level is not None:
            await client.set_logging_level(level)
        await client.call_tool("library__work")
        await client.call_tool("library__count")
        await node.find(Library).invoke(Library.count)  # of nobody's request
        await client.send_ping()
        assert heard == lines


async def test_without_logs_there_are_no_lines() -> None:
    async with offered(Library) as node, client_of(node, logging_callback=answering()) as client:
        assert client.server_capabilities.logging is None
        error = await error_of(client.set_logging_level("debug"))
        assert error.error.code == types.METHOD_NOT_FOUND


# ---- questions to the client


@MODES
@pytest.mark.parametrize("agent", ["asker", "between"])
@pytest.mark.parametrize(
    ("name", "given", "client_has", "said"),
    [
        (ELICIT, WHERE, answering("accept", {"city": "Bonn"}), "Bonn"),
        (ELICIT, WHERE, answering("decline"), "decline"),
        (ELICIT, WHERE, answering("cancel"), "cancel"),
        (ELICIT, WHERE, answering("accept", {"city": 5}), "not fit"),
        (ELICIT, WHERE, None, "does not offer it"),
        (ELICIT, {"message": 5}, answering(), "arguments are not right"),
        ("elicitation/crate", {}, answering(), "did you mean 'elicitation/create'"),
        ("roots/list", {}, answering(), "does not carry this out"),
        (SAMPLE, TALK, model, "you said hi"),
    ],
)
async def test_an_agent_asks_its_client(
    name: str, given: dict[str, Any], client_has: Any, said: str, agent: str, mode: str
) -> None:
    more: dict[str, Any] = {"sampling_callback" if name == SAMPLE else "elicitation_callback": client_has}
    async with offered(Asker, Between) as node, client_of(node, mode=mode, **more) as client:
        result = await client.call_tool(f"{agent}__ask", {"name": name, "arguments": given})
        assert not result.is_error
        assert said in text_of(result)


@MODES
async def test_a_client_that_never_answers_is_waited_for_so_long_and_no_longer(mode: str) -> None:
    async def silent(context: Any, params: Any) -> types.ElicitResult:
        return await trio.sleep_forever()

    given = {"name": ELICIT, "arguments": WHERE}
    async with (
        offered(Asker) as node,
        client_of(node, SOON, mode=mode, elicitation_callback=silent) as client,
    ):
        if mode == "legacy":
            assert "within 0.05 s" in text_of(await client.call_tool("asker__ask", given))
        else:  # it does not come back: its request ends
            with trio.move_on_after(0.2):
                await client.call_tool("asker__ask", given)
        again = await client.call_tool("asker__ask", {"name": "nothing", "arguments": {}})
        assert "does not carry this out" in text_of(again)  # there is room again


@MODES
async def test_prompts_and_turns_of_chats_ask_too(mode: str) -> None:
    answer = answering("accept", {"city": "Bonn"})
    async with (
        offered(Asker, Talker) as node,
        client_of(node, mode=mode, elicitation_callback=answer) as client,
    ):
        filled = await client.get_prompt("asker__greet")
        assert filled.messages[0].content.text == "Hello Bonn"  # type: ignore[union-attr]
        assert text_of(await client.call_tool("talker__chat", {"content": "hi"})) == "Bonn"


async def test_code_without_a_client_is_told_so() -> None:
    async with open_node() as node:
        asker = await node.start(Asker)
        assert await asker.invoke(Asker.ask, ELICIT, {}) == {
            "failed": f"{ELICIT}: the client carries out no tools"
        }


# ---- what people approve


@MODES
@pytest.mark.parametrize(("said", "agreed"), [("accept", "true"), ("decline", "false")])
async def test_the_user_of_a_client_approves(said: str, agreed: str, mode: str) -> None:
    seen = list[str]()

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        seen.append(params.message)
        return types.ElicitResult(action=said, content={} if said == "accept" else None)  # type: ignore[arg-type]

    async with offered(Asker) as node, client_of(node, mode=mode, elicitation_callback=answer) as client:
        assert text_of(await client.call_tool("asker__agreed", {"what": "it"})) == agreed
        assert seen == ['asker asks: Do it?\n\n{"what":"it"}']


@MODES
async def test_somebody_else_may_decide_first(mode: str) -> None:
    asked, decided = trio.Event(), trio.Event()

    async def think(context: Any, params: Any) -> types.ElicitResult:
        asked.set()
        if mode == "legacy":
            await trio.sleep_forever()
        await decided.wait()
        return types.ElicitResult(action="decline")  # which is too late

    async def decide() -> None:
        await asked.wait()
        await answer_approval(node, True, key="it")
        decided.set()

    async with (
        offered(Asker) as node,
        client_of(node, mode=mode, elicitation_callback=think) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(decide)
        assert text_of(await client.call_tool("asker__agreed", {"what": "it"})) == "true"


@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"action": "accept", "content": {"city": "Bonn"}}},
        {"result": {"action": "accept", "content": {"town": 5}}},
        {"result": {"action": "perhaps"}},
        {"result": 5},
        {"error": {"code": -1, "message": "no"}},
    ],
)
async def test_a_client_that_answers_twice_is_heard_once(answer: dict[str, Any]) -> None:
    async with offered(Asker) as node, lines_of(node) as stream:
        received = messages_of(stream)

        async def say(**message: Any) -> None:
            await stream.send_all(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

        hello = {"protocolVersion": "2025-06-18", "clientInfo": {"name": "raw", "version": "1"}}
        await say(id=1, method="initialize", params={**hello, "capabilities": {"elicitation": {}}})
        assert (await anext(received))["id"] == 1
        await say(method="notifications/initialized")
        given = {"name": "asker__ask", "arguments": {"name": ELICIT, "arguments": WHERE}}
        await say(id=2, method="tools/call", params=given)
        question = await anext(received)
        assert question["method"] == ELICIT
        for _ in range(2):
            await say(id=question["id"], **answer)
        await say(id=3, method="ping")
        heard = [await anext(received) for _ in range(4 if answer == {"result": 5} else 2)]
        assert sorted(each["id"] for each in heard if each.get("id")) == [2, 3]  # once each


async def messages_of(stream: Any) -> AsyncGenerator[dict[str, Any]]:
    """Yield the messages that a stream brings."""
    buffer = b""
    while piece := await stream.receive_some():
        *lines, buffer = (buffer + bytes(piece)).split(b"\n")
        for line in lines:
            yield json.loads(line)
