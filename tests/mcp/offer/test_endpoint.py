"""Agents offered to MCP clients over HTTP: the official SDK's client, our own, and bare requests."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import httpx2
import pytest
import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from lmos_actors import Agent, ChildSpec, action, open_node
from lmos_actors.mcp import McpOptions, McpProgress, McpServer
from lmos_actors.security import Access, Bearer, Jwt, Rate, Security
from tests.matrix import some
from tests.mcp.offering import Hidden, Marks, Support, Weather, error_of, text_of
from tests.mcp.using import asked
from tests.security.sample_credentials import AUDIENCE, ISSUER, key_of, key_set, token, write

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors import Node

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    # the client of the SDK leaves its streams to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

UNITS = "lmos://agents/weather/properties/units"
MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])
NAMES = ("alice", "bob", "carol")
ACCESS = {
    "weather": Access(invoke=("alice",), read=("alice", "bob"), write=("alice",), subscribe=("alice",)),
    "approvals": Access(approve=("alice",)),
    "support": Access(invoke=("bob",), read=()),
    "*": Access(read=(), write=(), invoke=(), subscribe=()),
}
LISTEN = "ws://127.0.0.1:0"
BOTH = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@asynccontextmanager
async def serving(*agents: Any, **options: Any) -> AsyncIterator[tuple[Node, str]]:
    """A node that offers agents, and the address for MCP clients."""
    async with open_node(listen=LISTEN, **{"mcp": True, **options}) as node:
        for each in agents or (Weather,):
            await node.start(each)
        yield node, f"http://{node.urls[0].partition('://')[2]}/mcp"
        assert node.connection_failures == ()


@pytest.fixture
def security(tmp_path: Path) -> Security:
    """Access rules for three principals, each with their own name as the token, in a file."""
    places = {}
    for name in NAMES:
        (tmp_path / name).write_text(f"{name}-token\n")
        places[name] = f"file:{tmp_path / name}"
    return Security(schemes=(Bearer(places),), access=ACCESS)


# no certificates are read, which takes 20 ms, as nothing here is https
http_client = partial(httpx2.AsyncClient, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


@asynccontextmanager
async def client_at(url: str, who: str = "", *, mode: Any = "legacy", **more: Any) -> AsyncIterator[Client]:
    """A client of the official SDK."""
    headers = {"authorization": f"Bearer {who}-token"} if who else {}
    async with (
        http_client(headers=headers, timeout=30.0) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, **more) as client,
    ):
        yield client


async def post(url: str, message: Any, session: str = "", who: str = "", **headers: str) -> httpx2.Response:
    """Send one message, or any bytes."""
    sent = message if isinstance(message, bytes) else json.dumps(message).encode()
    async with http_client(timeout=30.0) as http:
        return await http.post(url, content=sent, headers={**BOTH, **_known(session, who), **headers})


def _known(session: str, who: str) -> dict[str, str]:
    found = {"mcp-session-id": session} if session else {}
    return found | ({"authorization": f"Bearer {who}-token"} if who else {})


def request(method: str, params: Any = None, number: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}


async def session_at(url: str, who: str = "") -> str:
    """Begin a session; return its id."""
    answer = await post(url, request("initialize", HELLO), who=who)
    assert answer.status_code == 200, answer.text
    session: str = answer.headers["mcp-session-id"]
    done = await post(url, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session, who)
    assert done.status_code == 202
    return session


def answer_in(response: httpx2.Response) -> Any:
    """The message in a response, which may be a stream of one event."""
    text = response.text
    return json.loads(text.split("data: ", 1)[1].split("\r\n")[0] if "data: " in text else text)


# ---- use


@MODES
async def test_agents_are_used_over_http(mode: str) -> None:
    reported: list[Any] = []

    async def report(*progress: Any) -> None:
        reported.append(progress)

    async with serving(Weather, Support) as (_, url), client_at(url, mode=mode) as client:
        assert "weather__forecast" in [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("weather__forecast", {"city": "Bonn"}, progress_callback=report)
        assert text_of(result) == "Bonn: sunny for 1 days, 25 degrees celsius"
        assert sorted(reported) == [(0.25, None, None), (0.5, None, None)]
        assert text_of(await client.call_tool("weather__crash")) == "Agent Died: error"
        assert text_of(await client.call_tool("support__chat", {"content": "hi"})) == "You said hi, 0 before."
        assert (await client.read_resource(UNITS)).contents[0].text == '"celsius"'  # type: ignore[union-attr]


async def test_a_session_is_notified() -> None:
    send, receive = trio.open_memory_channel[Any](10)

    async def hear(message: Any) -> None:
        await send.send(message.method)

    async with serving() as (node, url), client_at(url, message_handler=hear) as client:
        await client.session.subscribe_resource(UNITS)
        with trio.fail_after(10):
            while not receive.statistics().current_buffer_used:  # the SDK opens its stream when it likes
                await client.call_tool("weather__set_units", {"value": "kelvin"})
                await client.call_tool("weather__set_units", {"value": "celsius"})
            assert await receive.receive() == "notifications/resources/updated"
            await node.start(Support)
            while await receive.receive() != "notifications/tools/list_changed":
                pass


async def test_without_a_session_changes_are_listened_for() -> None:
    async with (
        serving() as (_, url),
        client_at(url, mode="auto") as client,
        client.listen(resource_subscriptions=[UNITS], tools_list_changed=True) as changes,
    ):
        await client.call_tool("weather__set_units", {"value": "kelvin"})
        async for change in changes:
            assert change.uri == UNITS  # type: ignore[union-attr]
            break


async def test_our_own_client_uses_it(security: Security, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "alice-token")
    async with serving(security=security) as (node, url):
        server = await node.start(McpServer, url=url, bearer="env:TOKEN")
        tools = {tool.name for tool in await server.read(McpServer.tools)}
        assert "weather__forecast" in tools
        async with server.begin(McpServer.call, "weather__forecast", {"city": "Bonn"}) as call:
            assert await call.progress.receive() == McpProgress(0.25)
            assert (await call.result()).structured == {
                "result": "Bonn: sunny for 1 days, 25 degrees celsius"
            }
        assert (await asked(server, "weather__refuse")).code == "MCP_TOOL_FAILED"
        assert str(await asked(server, "weather__refuse")) == "MCP_TOOL_FAILED: FULL: no seat is left"
        assert [each.text for each in await server.invoke(McpServer.read_resource, UNITS)] == ['"celsius"']


# ---- rights


@MODES
async def test_lists_have_what_the_client_may_use(security: Security, mode: str) -> None:
    async with serving(Weather, Support, Hidden, security=security, directory=True) as (_, url):
        async with client_at(url, "alice", mode=mode) as alice:
            tools = [tool.name for tool in (await alice.list_tools()).tools]
            assert {name.partition("__")[0] for name in tools} == {"weather"}
            assert len((await alice.list_resources()).resources) == 3
        async with client_at(url, "bob", mode=mode) as bob:
            assert [tool.name for tool in (await bob.list_tools()).tools] == ["support__chat"]
            assert len((await bob.list_resources()).resources) == 2
        async with client_at(url, "carol", mode=mode) as carol:
            assert not (await carol.list_tools()).tools
            assert not (await carol.list_resources()).resources


SPELLINGS = (
    "weather__look", "weather__nothing", "weather.look", "weather/look", "weather__look ", " weather__look",
    "Weather__look", "weather__LOOK", "weather__lo%6fk", "weather__l\u03bfok", "\uff57eather__look",
    "weather__look\0",
    "weather___look", "weather____look", "weather_look", "__weather__look", "weather__look__",
    "weather__?units",
    "weather__=units", "weather__set_count", "weather__hear", "weather__password", "hidden__secret",
    "approvals__decide", "approvals__approve", "approvals__list", "directory__register", "directory__search",
    "support__converse", "support__forget", "", "_", "__", "a" * 10_000, "weather___0123456789",
)  # fmt: skip
OF_ALICE = ("weather__look",)


@MODES
@pytest.mark.parametrize("who", ["alice", "carol"])
async def test_every_other_spelling_of_a_tool_is_unknown(security: Security, who: str, mode: str) -> None:
    options: Any = {"security": security, "directory": True, "approvals": True}
    async with (
        serving(Weather, Support, Hidden, **options) as (_, url),
        client_at(url, who, mode=mode) as client,
    ):
        for name in some(SPELLINGS, of=3):
            if who == "alice" and name in OF_ALICE:
                assert not (await client.call_tool(name, {"name": "x"})).is_error
                continue
            error = await error_of(client.session.call_tool(name, {"name": "x"}))
            assert (error.error.code, error.error.message) == (-32602, "Unknown tool"), name


URIS = (
    UNITS, "lmos://agents/weather/properties/units/", "lmos://agents/weather/properties/%75nits",
    "LMOS://agents/weather/properties/units", "lmos://Agents/weather/properties/units",
    "lmos://agents/weather/properties/units?x", "lmos://agents/weather/properties/units#x",
    "lmos://agents//weather/properties/units", "lmos://agents/./weather/properties/units",
    "lmos://agents/../agents/weather/properties/units", "lmos://agents/weather/properties/password",
    "lmos://agents/weather/properties/nothing", "lmos://agents/weather/actions/look",
    "lmos://agents/weather/events/asked", "lmos://agents/weather/events/units",
    "lmos://agents/approvals/properties/x", "lmos://agents/directory/properties/count", "file:///etc/passwd",
    "http://127.0.0.1/", "", "lmos:", "lmos://agents/" + "a" * 10_000 + "/properties/x",
)  # fmt: skip
OF_BOB = (UNITS,)


@MODES
@pytest.mark.parametrize("who", ["bob", "carol"])
async def test_every_other_spelling_of_a_resource_is_unknown(security: Security, who: str, mode: str) -> None:
    async with (
        serving(Weather, security=security, directory=True, approvals=True) as (_, url),
        client_at(url, who, mode=mode) as client,
    ):
        for uri in some(URIS, of=3):
            if who == "bob" and uri in OF_BOB:
                assert (await client.read_resource(uri)).contents
                continue
            error = await error_of(client.read_resource(uri))
            assert error.error.message == "Resource not found", uri
            if mode == "legacy":
                error = await error_of(client.session.subscribe_resource(uri))
                assert error.error.message == "Resource not found", uri


async def test_a_session_is_of_no_use_to_others(security: Security) -> None:
    async with serving(security=security) as (_, url):
        session = await session_at(url, "alice")
        call = request("tools/call", {"name": "weather__look", "arguments": {"name": "x"}})
        for who in ("bob", "carol"):
            assert (await post(url, call, session, who)).status_code == 404
            async with http_client(headers={**BOTH, **_known(session, who)}) as http:
                assert (await http.get(url)).status_code == 404
                assert (await http.delete(url)).status_code == 404
        assert (await post(url, call, session)).status_code == 401
        assert (await post(url, call, "0" * 32, "alice")).status_code == 404
        assert answer_in(await post(url, call, session, "alice"))["result"]["isError"] is False


async def test_the_rights_of_each_request_count(security: Security, tmp_path: Path) -> None:
    """A token that is taken away ends what was begun with it: calls, and streams of notifications."""
    async with serving(security=security) as (_, url):
        session = await session_at(url, "alice")
        async with http_client(headers={**BOTH, **_known(session, "alice")}, timeout=30) as http:
            async with http.stream("GET", url) as stream:
                assert stream.status_code == 200
                subscribed = await http.post(url, json=request("resources/subscribe", {"uri": UNITS}))
                assert "result" in answer_in(subscribed)
                (tmp_path / "alice").write_text("another\n")
                with trio.fail_after(10):
                    while (await http.post(url, json=request("ping"))).status_code != 401:  # noqa: ASYNC110
                        await trio.sleep(0.02)  # files are looked at once a second
            assert (await post(url, request("ping"), session, "bob")).status_code == 404


async def test_the_scopes_of_each_request_count(tmp_path: Path) -> None:
    """One principal with two tokens: what the one may do that began the session is nothing to the other."""
    key = key_of()
    jwt = Jwt(keys=write(tmp_path / "keys", key_set(key)), issuer=ISSUER, audience=AUDIENCE)
    access = {"*": Access(invoke=("scope:ask",), read=("scope:look",), write=(), subscribe=())}
    until = time.time() + 600
    whole, part = (token(key, {"exp": until, "scope": scope}) for scope in ("ask look", "look"))
    async with serving(security=Security(schemes=(jwt,), access=access)) as (_, url):
        begun = await post(url, request("initialize", HELLO), authorization=f"Bearer {whole}")
        session = begun.headers["mcp-session-id"]

        async def ask(bearer: str, method: str, **params: Any) -> Any:
            answer = await post(url, request(method, params), session, authorization=f"Bearer {bearer}")
            return answer_in(answer)

        look = {"name": "weather__look", "arguments": {"name": "x"}}
        assert (await ask(whole, "tools/call", **look))["result"]["structuredContent"]["name"] == "x"
        assert (await ask(part, "tools/call", **look))["error"]["message"] == "Unknown tool"
        assert (await ask(whole, "tools/list"))["result"]["tools"]
        assert (await ask(part, "tools/list"))["result"]["tools"] == []
        assert (await ask(part, "resources/read", uri=UNITS))["result"]["contents"]


async def test_a_rate_holds_for_all_requests(security: Security) -> None:
    limited = Security(schemes=security.schemes, access=security.access, rate=Rate(per_second=0.001, burst=3))
    async with serving(security=limited) as (_, url), client_at(url, "alice") as client:
        for _ in range(3):
            await client.session.list_tools()
        for each in (
            client.session.list_tools(), client.session.call_tool("weather__look", {}),
            client.session.read_resource(UNITS), client.session.subscribe_resource(UNITS),
        ):  # fmt: skip
            assert str(await error_of(each)).startswith("too many requests")


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"host": "evil.example"}])
async def test_pages_of_others_and_other_names_are_refused(headers: dict[str, str]) -> None:
    async with serving() as (_, url):
        assert (await post(url, request("initialize", HELLO), **headers)).status_code == 403


async def test_pages_that_are_allowed_may_begin_sessions() -> None:
    page = {"origin": "https://app.example"}
    async with serving(origins=["https://app.example"]) as (_, url):
        wanted = {"access-control-request-method": "POST", "access-control-request-headers": "mcp-session-id"}
        async with http_client(headers={**page, **wanted}) as http:
            before = await http.options(url)
        assert before.status_code == 204
        assert "Mcp-Session-Id" in before.headers["access-control-allow-headers"]
        begun = await post(url, request("initialize", HELLO), **page)
        assert "Mcp-Session-Id" in begun.headers["access-control-expose-headers"]
        assert begun.headers["mcp-session-id"]


# ---- bad requests


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"", {}, 400),
        (b"\xff\xfe", {}, 400),
        (b"[]", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"a":' * 100_000, {}, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"a":1}}', {"mcp-session-id": "x"}, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1e400}}', {"mcp-session-id": "x"}, 400),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', {}, 400),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', {}, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', {}, 400),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', {}, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {}, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize"}', {"accept": "text/html"}, 406),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize"}', {"accept": "application/json"}, 406),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize"}', {"content-type": "text/plain"}, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"mcp-session-id": "x"}, 404),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"mcp-session-id": "x" * 5_000}, 404),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"mcp-protocol-version": "1999-01-01"}, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"mcp-protocol-version": "2026-07-28"}, 400),
        (b"[" * 100_000, {"mcp-protocol-version": "2026-07-28"}, 400),
    ],
)
async def test_bad_requests(body: bytes, headers: dict[str, str], status: int) -> None:
    async with serving() as (_, url):
        assert (await post(url, body, **headers)).status_code == status
        assert await session_at(url)


async def test_other_methods_and_huge_bodies() -> None:
    async with serving() as (_, url), http_client(headers=BOTH, timeout=30) as http:
        for method in ("PUT", "PATCH", "HEAD"):
            answer = await http.request(method, url)
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST, DELETE")
        for method in ("GET", "DELETE"):
            assert (await http.request(method, url)).status_code == 400
        assert (await http.post(url, content=b" " * (5 << 20))).status_code == 413
        assert (await http.post(f"{url}/x", content=b"{}")).status_code == 405
        assert await session_at(url)


async def test_unknown_methods_and_wrong_parameters() -> None:
    async with serving() as (_, url):
        session = await session_at(url)
        for method, params, code in (
            ("tools/nothing", {}, -32601),
            ("logging/setLevel", {"level": "debug"}, -32601),
            ("sampling/createMessage", {}, -32601),
            ("subscriptions/listen", {"notifications": {}}, -32601),
            ("tools/call", {}, -32602),
            ("tools/call", {"name": 5}, -32602),
            ("tools/call", {"name": "weather__look", "arguments": []}, -32602),
            ("tools/list", {"cursor": 5}, -32602),
            ("tools/list", {"cursor": "x"}, -32602),
            ("resources/read", {}, -32602),
        ):
            answer = answer_in(await post(url, request(method, params), session))
            assert answer["error"]["code"] == code, (method, answer)


# ---- clients that leave, and the end


@pytest.mark.parametrize("version", ["", "2026-07-28"])
@pytest.mark.parametrize("tool", ["wait", "finish"])
async def test_a_client_that_vanishes_in_mid_call(tool: str, version: str) -> None:
    """Its run is cancelled, unless the action is declared to finish."""
    marks = Marks()
    async with serving(partial(Weather, marks=marks)) as (node, url):
        message = request("tools/call", {"name": f"weather__{tool}", "arguments": {}})
        headers = dict(BOTH)
        if version:
            meta = {
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            message["params"]["_meta"] = meta
            headers |= {
                "mcp-protocol-version": version,
                "mcp-method": "tools/call",
                "mcp-name": f"weather__{tool}",
            }
        else:
            headers["mcp-session-id"] = await session_at(url)
        await _vanish(url, message, headers, marks)
        with trio.fail_after(5):
            await marks.ended.wait()
        assert node.crash_reports == ()


async def _vanish(url: str, message: Any, headers: dict[str, str], marks: Marks) -> None:
    place, body = httpx2.URL(url), json.dumps(message).encode()
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(
        [f"POST {place.path} HTTP/1.1", f"host: {place.host}", *lines, f"content-length: {len(body)}"]
    )
    stream = await trio.open_tcp_stream(place.host, place.port or 0)
    await stream.send_all(head.encode() + b"\r\n\r\n" + body)
    with trio.fail_after(5):
        await marks.began.wait()
    assert not marks.ended.is_set()
    await trio.aclose_forcefully(stream)


async def test_a_call_without_a_session_lasts_as_long_as_it_takes() -> None:
    """The time in which a session begins is not that of a call; nor does one need room for a session."""
    marks = Marks(seconds=2.1)
    options = McpOptions(sessions=1, opening_seconds=2.0)
    async with serving(partial(Weather, marks=marks), mcp=options) as (_, url):
        await session_at(url)  # the only one
        async with client_at(url, mode="auto") as client:
            with trio.fail_after(10):
                result = await client.call_tool("weather__finish")
        assert not result.is_error


async def test_a_session_that_takes_too_long_to_begin_is_answered_so() -> None:
    async with serving(mcp=McpOptions(opening_seconds=0.01)) as (_, url):
        place = httpx2.URL(url)
        stream = await trio.open_tcp_stream(place.host, place.port or 0)
        fields = "".join(f"{name}: {value}\r\n" for name, value in BOTH.items())
        head = f"POST /mcp HTTP/1.1\r\nhost: {place.host}\r\n{fields}content-length: 100\r\n\r\n{{"
        async with stream:
            await stream.send_all(head.encode())
            with trio.fail_after(10):
                answer = bytes(await stream.receive_some())
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5" in answer


async def test_a_request_with_the_id_of_another_in_progress_is_refused_at_once() -> None:
    """The SDK would never end the answer to the first, and a node that drains would wait for it."""
    marks = Marks()
    async with serving(partial(Weather, marks=marks)) as (node, url):
        session = await session_at(url)
        call = {"name": "weather__finish", "arguments": {}}
        answers: list[int] = []

        async def ask() -> None:
            answers.append((await post(url, request("tools/call", call, 7), session)).status_code)

        waiting = {"name": "weather__wait", "arguments": {}}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post, url, request("tools/call", waiting, 5), session)
            await marks.began.wait()
            for number in (5, "5"):
                with trio.fail_after(5):
                    refused = await post(url, request("ping", number=number), session)
                assert refused.status_code == 400
                assert refused.json()["error"]["message"] == "the id '5' is that of a request in progress"
            other = await session_at(url)
            assert (await post(url, request("ping", number=5), other)).status_code == 200
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
        assert sorted(answers) == [200, 400, 400]
        with trio.fail_after(5):
            await node.drain()


class Pages(Agent):
    """Has much to say."""

    marks: Any = attrs.field(factory=Marks)

    @action
    async def endless(self) -> AsyncIterator[str]:
        yield "x" * 3_000_000
        self.marks.began.set()
        await trio.sleep_forever()

    @action
    def page(self) -> str:
        return "x" * 3_000_000


@pytest.mark.slow  # its lines: the tests around it, test_offer.py
async def test_results_that_wait_for_clients_are_bounded_over_all() -> None:
    marks = Marks()
    async with serving(partial(Pages, marks=marks), mcp=McpOptions(waiting_bytes=4_000_000)) as (_, url):
        page = {"name": "pages__page", "arguments": {}}
        endless = {"name": "pages__endless", "arguments": {}}
        session = await session_at(url)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post, url, request("tools/call", endless), session)
            with trio.fail_after(5):
                await marks.began.wait()
            result = answer_in(await post(url, request("tools/call", page, 2), session))["result"]
            assert result["isError"]
            assert "clients have not read yet have 4000000 bytes together" in result["content"][0]["text"]
            nursery.cancel_scope.cancel()
        for number in range(3, 6):
            result = answer_in(await post(url, request("tools/call", page, number), session))["result"]
            assert not result["isError"]


async def test_a_call_that_is_cancelled_is_cancelled_there() -> None:
    marks = Marks()
    async with open_node(listen=LISTEN, mcp=True) as node:
        await node.start(Weather, marks=marks)
        url = f"http://{node.urls[0].partition('://')[2]}/mcp"
        for mode in ("legacy", "auto"):
            async with client_at(url, mode=mode) as client:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.call_tool, "weather__wait")
                    await marks.began.wait()
                    nursery.cancel_scope.cancel()
                with trio.fail_after(5):
                    await marks.ended.wait()
            marks.began, marks.ended = trio.Event(), trio.Event()


async def test_the_end_of_a_session_in_mid_call_cancels_it() -> None:
    marks = Marks()
    async with open_node(listen=LISTEN, mcp=True) as node, trio.open_nursery() as nursery:
        await node.start(Weather, marks=marks)
        url = f"http://{node.urls[0].partition('://')[2]}/mcp"
        session = await session_at(url)
        nursery.start_soon(post, url, request("tools/call", {"name": "weather__wait"}), session)
        await marks.began.wait()
        async with http_client(headers=_known(session, "")) as http:
            assert (await http.delete(url)).status_code == 200
        with trio.fail_after(5):
            await marks.ended.wait()
        assert (await post(url, request("ping"), session)).status_code == 404


async def test_a_call_that_comes_as_its_session_ends_is_answered() -> None:
    """The SDK answers some of them with nothing; `serving` holds that nothing failed for that."""
    async with serving() as (_, url), http_client(headers=BOTH, timeout=30) as http:
        for _ in range(20):
            known = _known(await session_at(url), "")
            async with trio.open_nursery() as nursery:
                for method in ("ping", "tools/list"):
                    nursery.start_soon(partial(http.post, url, json=request(method), headers=known))
                assert (await http.delete(url, headers=known)).status_code == 200
            assert (await http.post(url, json=request("ping"), headers=known)).status_code == 404


async def test_a_stream_goes_on_without_the_events_before() -> None:
    """Events have no ids: a client that names one gets those from now on."""
    async with serving() as (_, url):
        headers = {**BOTH, **_known(await session_at(url), ""), "Last-Event-ID": "7"}
        async with http_client(headers=headers) as http, http.stream("GET", url) as stream:
            assert stream.status_code == 200
            async for piece in stream.aiter_bytes():
                assert piece == b": listening\r\n\r\n"
                break


async def test_a_node_that_stops_ends_calls_and_streams() -> None:
    marks = Marks()
    answers: list[Any] = []

    async def call(url: str, session: str) -> None:
        answers.append(answer_in(await post(url, request("tools/call", {"name": "weather__wait"}), session)))

    async with trio.open_nursery() as nursery, AsyncExitStack() as left:
        async with open_node(listen=LISTEN, mcp=True) as node:
            await node.start_child(ChildSpec("weather", partial(Weather, marks=marks), shutdown=0.1))
            url = f"http://{node.urls[0].partition('://')[2]}/mcp"
            session = await session_at(url)
            http = await left.enter_async_context(http_client(headers={**BOTH, **_known(session, "")}))
            stream = await left.enter_async_context(http.stream("GET", url, timeout=30))
            nursery.start_soon(call, url, session)
            await marks.began.wait()
            before = trio.current_time()
        assert trio.current_time() - before < 5
        assert await stream.aread() == b": listening\r\n\r\n"
    assert answers[0]["result"]["isError"]
    assert "weather" not in json.dumps(answers[0])


async def test_a_node_that_drains_answers_what_it_has_begun() -> None:
    marks = Marks()
    async with open_node(listen=LISTEN, mcp=True) as node, trio.open_nursery() as nursery:
        await node.start(Weather, marks=marks)
        url = f"http://{node.urls[0].partition('://')[2]}/mcp"
        session = await session_at(url)
        answers: list[Any] = []

        async def call() -> None:
            message = request("tools/call", {"name": "weather__finish"})
            answers.append(answer_in(await post(url, message, session)))

        nursery.start_soon(call)
        await marks.began.wait()
        with trio.fail_after(5):
            await node.drain()
        assert answers[0]["result"]["isError"] is False


# ---- bounds


async def test_sessions_are_bounded_and_expire() -> None:
    options = McpOptions(sessions=2, idle_seconds=0.3)
    async with serving(mcp=options) as (_, url):
        sessions = [await session_at(url), await session_at(url)]
        refused = await post(url, request("initialize", HELLO))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        with trio.fail_after(10):
            while (await post(url, request("initialize", HELLO))).status_code != 200:  # noqa: ASYNC110
                await trio.sleep(0.02)
        assert (await post(url, request("ping"), sessions[0])).status_code == 404


async def test_one_caller_has_half_of_the_sessions(security: Security) -> None:
    async with serving(security=security, mcp=McpOptions(sessions=4)) as (_, url):
        for _ in range(2):
            last = await session_at(url, "alice")
        assert (await post(url, request("initialize", HELLO), who="alice")).status_code == 503
        assert await session_at(url, "bob")
        async with http_client(headers=_known(last, "alice")) as http:
            assert (await http.delete(url)).status_code == 200
        with trio.fail_after(5):
            assert await session_at(url, "alice")


async def test_requests_that_open_no_session_leave_none() -> None:
    async with serving(mcp=McpOptions(sessions=1)) as (_, url):
        for body in (b"{", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"ping"}') * 3:
            assert (await post(url, body)).status_code == 400
        assert await session_at(url)


async def test_calls_are_bounded() -> None:
    marks = Marks()
    async with open_node(listen=LISTEN, mcp=McpOptions(calls=1)) as node:
        await node.start(Weather, marks=marks)
        url = f"http://{node.urls[0].partition('://')[2]}/mcp"
        session = await session_at(url)
        look = request("tools/call", {"name": "weather__look", "arguments": {"name": "x"}}, 3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post, url, request("tools/call", {"name": "weather__wait"}), session)
            await marks.began.wait()
            answer = answer_in(await post(url, look, session))["result"]
            assert answer["isError"]
            assert answer["content"][0]["text"] == "too many calls are in progress: try again later"
            nursery.cancel_scope.cancel()
        await marks.ended.wait()
        with trio.fail_after(10):
            while answer_in(await post(url, look, session))["result"]["isError"]:
                pass


@pytest.mark.slow  # its lines: the tests around it
async def test_a_stream_that_is_not_read_holds_up_nobody_else() -> None:
    async with serving() as (_, url):
        place = httpx2.URL(url)
        session = await session_at(url)
        stream = await trio.open_tcp_stream(place.host, place.port or 0)
        head = f"GET {place.path} HTTP/1.1\r\nhost: {place.host}\r\naccept: text/event-stream\r\n"
        await stream.send_all(f"{head}mcp-session-id: {session}\r\n\r\n".encode())
        assert b" 200 " in await stream.receive_some()
        assert "result" in answer_in(await post(url, request("resources/subscribe", {"uri": UNITS}), session))
        async with client_at(url) as client:
            with trio.fail_after(20):
                for number in range(60):
                    await client.call_tool("weather__set_units", {"value": f"{number}" * 10})
        await trio.aclose_forcefully(stream)
