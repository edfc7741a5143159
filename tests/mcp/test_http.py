"""MCP servers in use over streamable HTTP: the official SDK's application, on trio, on loopback."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from mcp.server.lowlevel import Server
from mcp_types import ListResourcesResult, Resource
from starlette.responses import JSONResponse, Response

from lmos_actors import ActionFailed, open_node
from lmos_actors.errors import AgentDied, StartFailed
from lmos_actors.mcp import McpContent, McpProgress, McpResult, McpServer
from tests.mcp.serving import Door, by_hand, open_door, text_answer
from tests.mcp.using import asked, text_of
from tests.mcp.well_behaved import make_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


TWICE = '{"jsonrpc": "2.0", "id": %d, "result": {"content": [], "content": []}}'


@asynccontextmanager
async def application(note: Callable[[str], None] = print) -> AsyncIterator[Any]:
    server = make_server(note)
    app = server.streamable_http_app()
    async with server.session_manager.run():
        yield app


@asynccontextmanager
async def served(note: Callable[[str], None] = print) -> AsyncIterator[Door]:
    async with application(note) as app, open_door(app) as door:
        yield door


async def test_a_server_at_a_url_is_used() -> None:
    async with served() as door, open_node() as node:
        server = await node.start(McpServer, url=door.url)
        assert await asked(server, "add", a=1, b=2) == McpResult((McpContent(text="3"),), {"result": 3})
        assert (await asked(server, "fail", why="no")).code == "MCP_TOOL_FAILED"
        assert [each.text for each in await server.invoke(McpServer.read_resource, "note://x")] == [
            "the note x"
        ]
        async with server.observe(McpServer.tools) as changes:
            assert await text_of(server, "grow") == "grown"
            async for now in changes:
                if now[-1].name == "fail_again":
                    break
        assert not node.crash_reports


async def test_a_server_without_templates_of_resources_is_used() -> None:
    async def listed(*_: Any) -> ListResourcesResult:
        return ListResourcesResult(resources=[Resource(uri="note://x", name="x")])

    server: Server[Any] = Server("plain", on_list_resources=listed)
    app = server.streamable_http_app()
    async with server.session_manager.run(), open_door(app) as door, open_node() as node:
        used = await node.start(McpServer, url=door.url)
        assert [each.uri for each in await used.read(McpServer.resources)] == ["note://x"]


async def test_a_call_that_is_cancelled_is_cancelled_there() -> None:
    said: list[str] = []
    cancelled = trio.Event()

    def note(line: str) -> None:
        said.append(line)
        if line == "cancelled":
            cancelled.set()

    async with served(note) as door, open_node() as node:
        server = await node.start(McpServer, url=door.url)
        async with server.begin(McpServer.call, "wait") as call:
            async for progress in call.progress:
                assert progress == McpProgress(0.25, 1.0, "waiting")
                break
        await cancelled.wait()
        assert said == ["waiting", "cancelled"]
        assert await text_of(server, "greet", name="Ada") == "Hello Ada!"


async def test_the_token_is_sent_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOKEN", "tok-4711")
    async with served() as door, open_node() as node:
        server = await node.start(McpServer, url=door.url, bearer="env:MCP_TOKEN")
        await asked(server, "greet", name="Ada")
        assert {each.get("authorization") for each in door.headers} == {"Bearer tok-4711"}


def refusing(status: int) -> Any:
    return Response("tok-4711 is no good", status_code=status)


async def test_credentials_that_are_refused_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOKEN", "tok-4711")
    async with open_door(refusing(401)) as door, open_node() as node:
        with pytest.raises(StartFailed) as failed:
            await node.start(McpServer, url=door.url, bearer="env:MCP_TOKEN")
    assert "does not accept the credentials (status 401): see bearer=" in str(failed.value)
    assert "tok-4711" not in str(failed.value)


async def test_a_token_that_no_header_may_have_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOKEN", "tok-4711\nx-admin: yes")
    async with open_node() as node:
        with pytest.raises(
            StartFailed, match="env:MCP_TOKEN: has characters that no header may have"
        ) as failed:
            await node.start(McpServer, url="http://127.0.0.1:1/mcp", bearer="env:MCP_TOKEN")
    assert "tok-4711" not in str(failed.value)


async def test_a_token_that_has_changed_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    await trio.Path(token).write_text("old\n")
    async with application() as app, open_door(app) as door, open_node() as node:
        server = await node.start(McpServer, url=door.url, bearer=f"file:{token}")

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            new = (b"authorization", b"Bearer new") in scope["headers"]
            await (app if new else refusing(401))(scope, receive, send)

        await trio.Path(token).write_text("new\n")
        door.app = guarded
        assert await text_of(server, "greet", name="Ada") == "Hello Ada!"
        assert not node.crash_reports


async def test_a_server_that_is_not_there_is_named() -> None:
    async with open_node() as node:
        with pytest.raises(StartFailed, match=r"the MCP server at http://127.0.0.1:1 cannot be reached"):
            await node.start(McpServer, url="http://127.0.0.1:1/mcp")


async def test_a_page_that_is_no_mcp_server_says_so() -> None:
    async with open_door(Response("<html>", media_type="text/html")) as door, open_node() as node:
        with pytest.raises(StartFailed, match="refuses a session: Unexpected content type: text/html"):
            await node.start(McpServer, url=door.url)


async def test_connections_that_are_cut_in_mid_call_fail_the_call_and_the_next_one_is_answered() -> None:
    async with served() as door, open_node() as node:
        server = await node.start(McpServer, url=door.url)
        async with server.begin(McpServer.call, "wait") as call:
            async for _ in call.progress:  # so its answer has begun
                await door.cut()
            with pytest.raises(ActionFailed, match="broke off: it may have done its work or not"):
                await call.result()
        assert await text_of(server, "greet", name="Ada") == "Hello Ada!"


async def test_a_call_that_had_begun_on_a_server_that_is_gone_is_not_sent_again() -> None:
    waiting = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        waiting.set()
        await trio.sleep_forever()

    async with open_door(by_hand(lambda id: app)) as door, open_node() as node:
        server = await node.start(McpServer, url=door.url)
        errors: list[Any] = []

        async def call() -> None:
            errors.append(await asked(server, "work"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await waiting.wait()
            await door.cut()
        assert errors[0].code == "MCP_NO_ANSWER"
        assert "it may have done its work or not" in str(errors[0])
        assert len(door.headers) < 15
        assert not node.crash_reports


async def test_a_call_waits_for_a_server_that_is_restarted() -> None:
    app, texts = by_hand(lambda id: text_answer(id, "fine")), list[str]()
    async with open_node() as node:
        async with open_door(app) as door:
            server = await node.start(McpServer, url=door.url)

        async def call() -> None:
            texts.append(await text_of(server, "work"))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked(0.05)
            async with open_door(app, door.port):
                while len(texts) < 5:
                    await trio.testing.wait_all_tasks_blocked()
        assert texts == ["fine"] * 5
        assert not node.crash_reports


async def test_a_server_that_does_not_come_back_ends_its_agent() -> None:
    async with open_node() as node:
        async with open_door(by_hand(lambda id: text_answer(id, "fine"))) as door:
            server = await node.start(McpServer, url=door.url, start_seconds=0.2)
        assert isinstance(await asked(server, "work"), AgentDied)
        assert "cannot be reached" in str(node.crash_reports[0])


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (lambda id: text_answer(id, "x" * (9 << 20)), "MCP_RESULT_TOO_LARGE", "more bytes than are taken"),
        (
            lambda id: Response("{", media_type="application/json"),
            "MCP_RESULT_INVALID",
            "cannot be read: Input data was truncated",
        ),
        pytest.param(
            lambda id: Response("data: {,\n\n", media_type="text/event-stream"),
            "MCP_RESULT_INVALID",
            "cannot be read: JSON is malformed: ",
            marks=pytest.mark.filterwarnings("ignore:Exception ignored in"),  # generators that the SDK leaves
        ),
        (
            lambda id: Response(TWICE % id, media_type="application/json"),
            "MCP_RESULT_INVALID",
            "cannot be read: an object has the member 'content' twice",
        ),
        pytest.param(
            lambda id: Response(f"data: {TWICE % id}\n\n", media_type="text/event-stream"),
            "MCP_RESULT_INVALID",
            "cannot be read: an object has the member 'content' twice",
            marks=pytest.mark.filterwarnings("ignore:Exception ignored in"),
        ),
        (
            lambda id: JSONResponse({"jsonrpc": "2.0", "id": id, "error": {"code": 7}}),
            "MCP_RESULT_INVALID",
            "cannot be read: it is not of the protocol",
        ),
        (lambda id: Response("", media_type="text/event-stream"), "MCP_NO_ANSWER", "broke off"),
        (lambda id: Response("sorry", status_code=500), "MCP_REQUEST_REFUSED", "answers with status 500"),
        (lambda id: Response("too long", status_code=400), "MCP_REQUEST_REFUSED", "answers with status 400"),
        (lambda id: Response(status_code=202), "MCP_REQUEST_REFUSED", "202 Accepted"),
    ],
)
async def test_a_bad_answer_fails_that_call_alone(answer: Any, code: str, text: str) -> None:
    answers = [answer, lambda id: text_answer(id, "fine")]
    async with open_door(by_hand(lambda id: answers.pop(0)(id))) as door, open_node() as node:
        server = await node.start(McpServer, url=door.url)
        error = await asked(server, "work")
        assert error.code == code
        assert text in str(error)
        assert await text_of(server, "work") == "fine"
        assert not node.crash_reports


@pytest.mark.parametrize(
    "refusal",
    [
        lambda id: Response(status_code=404),
        lambda id: JSONResponse({"error": "Session not found"}, status_code=404),
        lambda id: Response("Bad Request: No valid session ID provided", status_code=400),
        lambda id: JSONResponse(
            {"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "Unknown session"}},
            status_code=400,
        ),
        lambda id: Response(status_code=401),
    ],
)
async def test_a_call_that_is_refused_for_the_sake_of_the_session_is_sent_again(refusal: Any) -> None:
    answers = [refusal, lambda id: text_answer(id, "fine")]
    async with open_door(by_hand(lambda id: answers.pop(0)(id))) as door, open_node() as node:
        server = await node.start(McpServer, url=door.url)
        assert await text_of(server, "work") == "fine"
        assert not node.crash_reports


async def test_sessions_that_end_under_load_cost_no_call() -> None:
    done, valid, refused = list[int](), 0, 0

    def answer(id: int) -> Any:
        nonlocal valid, refused
        if valid == 20:
            valid, refused = 0, refused + 1
            return Response(status_code=404)
        valid += 1
        done.append(id)
        return text_answer(id, "fine")

    async with open_door(by_hand(answer)) as door, open_node() as node:
        server = await node.start(McpServer, url=door.url)
        texts: list[str] = []

        async def call() -> None:
            found = await asked(server, "work")
            texts.append(getattr(found, "detail", None) or found.content[0].text)

        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(call)
        assert (texts, len(done), refused > 0) == (["fine"] * 60, 60, True)
        assert not node.crash_reports


async def test_a_server_that_compresses_unasked_ends_its_agent() -> None:
    packed = Response(b"x" * 99, headers={"content-encoding": "gzip"})
    async with open_door(by_hand(lambda id: packed)) as door, open_node() as node:
        server = await node.start(McpServer, url=door.url)
        assert "compresses its answers" in str(await asked(server, "work"))
        assert isinstance(await asked(server, "work"), AgentDied)
        assert len(node.crash_reports) == 1
        await server.ready()
