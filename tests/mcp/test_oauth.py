"""OAuth for MCP servers at a URL: for the program itself, and for a person who signs in."""

from __future__ import annotations

import json
import stat
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import trio
from starlette.responses import Response

from lmos_actors import ConfigError, Node, Ref, open_node
from lmos_actors.approvals import Approvals
from lmos_actors.errors import AgentDied, StartFailed
from lmos_actors.mcp import McpOAuth, McpServer
from lmos_actors.testing import answer_approval
from tests.mcp.authorizing import SECRET, Authorizing, browse, sign_in
from tests.mcp.serving import open_door, text_answer
from tests.mcp.using import asked, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def secrets_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("O_SECRET", SECRET)
    monkeypatch.setenv("O_WRONG", "wrong")


@asynccontextmanager
async def opened(app: Authorizing) -> AsyncIterator[tuple[Node, str]]:
    async with open_door(app) as door, open_node(approvals=True) as node:
        app.base = door.url.removesuffix("/mcp")
        yield node, door.url


async def begun(server: Ref[McpServer]) -> None:
    """Wait until the server is there, behind the sign-in."""
    async with server.observe(McpServer.info) as infos:
        async for info in infos:
            if info.protocol:
                return


def as_program(app: Authorizing, **more: Any) -> McpOAuth:
    given = {"client_id": "me", "client_secret": "env:O_SECRET", "issuer": app.base, **more}
    return McpOAuth(**given)


async def test_a_program_gets_tokens_and_a_new_one_when_they_are_no_longer_good() -> None:
    app = Authorizing()
    async with opened(app) as (node, url):
        server = await node.start(McpServer, url=url, oauth=as_program(app))
        assert await text_of(server, "work") == "fine"
        assert app.asked == [{"grant_type": "client_credentials", "resource": url}]
        assert app.headers[0].startswith("Basic ")
        app.good.clear()
        assert [await text_of(server, "work") for _ in range(2)] == ["fine"] * 2
        assert not node.crash_reports
        app.good.clear()
    assert len(app.asked) == 2  # a session that ends needs no new one


async def test_a_server_that_refuses_its_own_tokens_ends_the_agent() -> None:
    app = Authorizing()
    async with opened(app) as (node, url):
        server = await node.start(McpServer, url=url, oauth=as_program(app))
        app.is_contrary = True
        app.good.clear()
        assert isinstance(await asked(server, "work"), AgentDied)
        assert "does not accept its own token (status 401): see oauth=" in str(node.crash_reports[0])
        assert len(app.asked) == 2


async def test_requests_with_a_good_token_do_not_wait_for_one_another() -> None:
    second = trio.Event()
    calls: list[Any] = []

    class Patient(Authorizing):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def held(message: Any) -> None:
                if message["type"] == "http.response.start" and len(calls) == 1:
                    await second.wait()
                await send(message)

            await super().__call__(scope, receive, held)

    def answer(id: Any) -> Any:
        calls.append(id)
        if len(calls) == 2:
            second.set()
        return text_answer(id, "fine")

    app = Patient(answer)
    async with opened(app) as (node, url), trio.open_nursery() as nursery:
        server = await node.start(McpServer, url=url, oauth=as_program(app))
        for _ in range(2):
            nursery.start_soon(text_of, server, "work")


async def test_a_token_that_has_ended_is_renewed_before_a_call_leaves() -> None:
    """Else a server that lets in everybody would carry the call out for nobody."""
    app = Authorizing()
    app.ends_in = -1
    async with opened(app) as (node, url):
        server = await node.start(McpServer, url=url, oauth=McpOAuth(ask=sign_in))
        await begun(server)
        app.is_public, app.unnamed, app.ends_in = True, 0, 3600
        assert await text_of(server, "work") == "fine"
        assert (app.unnamed, app.asked[-1]["grant_type"]) == (0, "refresh_token")


async def test_a_secret_that_is_refused_is_named_and_shown_nowhere(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    app = Authorizing()
    async with opened(app) as (node, url):
        oauth = as_program(app, client_secret="env:O_WRONG", auth_method="client_secret_post")
        with pytest.raises(StartFailed) as failed:
            await node.start(McpServer, url=url, oauth=oauth)
    assert "lets nobody in: Token exchange failed (401): not with ***" in str(failed.value)
    assert app.asked[0]["client_secret"] == "wrong"
    said = f"{failed.value} {oauth} {capsys.readouterr()} {caplog.text}"
    assert "with wrong" not in said


@pytest.mark.parametrize("place", ["http://elsewhere.example", "http://169.254.169.254"])
async def test_a_server_that_leads_to_a_place_without_tls_is_not_followed(place: str) -> None:
    app = Authorizing()
    async with opened(app) as (node, url):
        app.leads_to = place
        with pytest.raises(StartFailed, match=f"it leads to {place}, which is not asked without TLS"):
            await node.start(McpServer, url=url, oauth=as_program(app))
        assert app.asked == []


@pytest.mark.parametrize(("pleases", "codes"), [(True, ["fine"] * 3), (False, ["MCP_REQUEST_REFUSED"] * 3)])
async def test_a_call_that_wants_other_scopes_gets_them_once(pleases: bool, codes: list[str]) -> None:
    """With them it is sent again; if they do not please the server, they are not got again."""

    def answer(id: Any) -> Any:
        if pleases and "write" in app.asked[-1].get("scope", ""):
            return text_answer(id, "fine")
        challenge = 'Bearer error="insufficient_scope", scope="write"'
        return Response(status_code=403, headers={"www-authenticate": challenge})

    app = Authorizing(answer)
    async with opened(app) as (node, url):
        server = await node.start(McpServer, url=url, oauth=as_program(app))
        found = [await asked(server, "work") for _ in range(3)]
        assert [getattr(each, "code", "fine") for each in found] == codes
        assert [each.get("scope") for each in app.asked] == [None, "write"]
        assert not node.crash_reports


async def test_a_secret_goes_to_no_other_issuer() -> None:
    app = Authorizing()
    async with opened(app) as (node, url):
        oauth = as_program(app, issuer="https://login.example")
        with pytest.raises(StartFailed, match=r"issuer mismatch: .* != https://login\.example"):
            await node.start(McpServer, url=url, oauth=oauth)
        assert app.asked == []


async def test_a_person_signs_in_and_a_file_keeps_that(tmp_path: Path) -> None:
    app, kept, opened_urls = Authorizing(), tmp_path / "tokens.json", list[str]()

    async def ask(url: str) -> None:
        opened_urls.append(url)
        await sign_in(url)

    async with open_door(app) as door:
        app.base = door.url.removesuffix("/mcp")
        for grants in (["authorization_code"], ["refresh_token"], []):
            asked_before = len(app.asked)
            async with open_node() as node:
                server = await node.start(McpServer, url=door.url, oauth=McpOAuth(ask=ask, tokens=str(kept)))
                await begun(server)
                assert await text_of(server, "work") == "fine"
            assert [each["grant_type"] for each in app.asked[asked_before:]] == grants
            if "authorization_code" in grants:  # as if an hour had passed
                found = json.loads(await trio.Path(kept).read_bytes())
                await trio.Path(kept).write_bytes(json.dumps({**found, "ends": 1.0}).encode())
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert len(opened_urls) == len(app.registered) == 1
    assert "code_challenge_method=S256" in opened_urls[0]


async def test_a_person_is_asked_by_an_approval_and_may_give_the_last_address() -> None:
    app = Authorizing()
    async with opened(app) as (node, url):
        server = await node.start(McpServer, url=url, oauth=McpOAuth(ask="approve"), start_seconds=5.0)
        assert await server.read(McpServer.tools) == ()
        approvals = node.find(Approvals)
        async with approvals.observe(Approvals.waiting) as numbers:
            async for number in numbers:
                if number:
                    break
        (found,) = await approvals.invoke(Approvals.entries)
        assert (found.agent, found.text) == (
            "mcp-server",
            f"open the address, and sign in to the MCP server at {app.base}",
        )
        async with httpx2.AsyncClient() as stranger:  # whose state is not that of this sign-in
            back = await browse(found.data["address"])
            wrong = httpx2.URL(back).copy_set_param("state", "guessed")
            assert (await stranger.get(wrong)).status_code == 404
        await approvals.invoke(Approvals.accept, found.id, "", {"last_address": back})
        await begun(server)
        assert await text_of(server, "work") == "fine"
        assert not node.crash_reports


@pytest.mark.parametrize(
    ("approved", "seconds", "why"),
    [
        (False, 60.0, "lets nobody in: a person has refused to sign in"),
        (None, 0.2, "lets nobody in: nobody has signed in within 0.2 s"),
    ],
)
async def test_who_does_not_sign_in_ends_the_agent(approved: bool | None, seconds: float, why: str) -> None:
    app = Authorizing()
    async with opened(app) as (node, url):
        server = await node.start(McpServer, url=url, oauth=McpOAuth(ask="approve", seconds=seconds))
        async with trio.open_nursery() as nursery:
            if approved is not None:
                nursery.start_soon(answer_approval, node, approved)
            with pytest.raises(AgentDied):
                await server.invoke(McpServer.read_resource, "note://x")
        assert why in str(node.crash_reports[0])


async def test_a_sign_in_amid_a_call_has_time() -> None:
    app, urls = Authorizing(), list[str]()

    async def ask(url: str) -> None:
        urls.append(url)
        if len(urls) == 2:
            await trio.sleep(1.1)  # longer than the call may take
        await sign_in(url)

    async with opened(app) as (node, url):
        server = await node.start(McpServer, url=url, oauth=McpOAuth(ask=ask), call_seconds=1.0)
        await begun(server)
        app.good.clear()
        assert await text_of(server, "work") == "fine"
        assert len(urls) == 2


async def test_a_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_bytes(b'{"url": 7}')
    async with open_node() as node:
        oauth = McpOAuth(ask="approve", tokens=str(tmp_path / "tokens"))
        with pytest.raises(StartFailed, match=r"McpOAuth\.tokens: .*tokens is damaged: remove it"):
            await node.start(McpServer, url="http://127.0.0.1:1/mcp", oauth=oauth)


async def test_a_server_that_wants_a_sign_in_unasked_names_the_options() -> None:
    async with opened(Authorizing()) as (node, url):
        with pytest.raises(StartFailed, match=r"\(status 401\): see bearer= and oauth="):
            await node.start(McpServer, url=url)


PROGRAM = {"client_id": "me", "client_secret": "env:S", "issuer": "https://a.example"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "McpOAuth: says nobody who gets the tokens"),
        ({"client_id": "me"}, "McpOAuth: says nobody who gets the tokens"),
        ({**PROGRAM, "client_secret": "hunter2"}, "McpOAuth.client_secret: a reference to a secret"),
        ({**PROGRAM, "private_key": "env:K"}, "McpOAuth.private_key: is one of the two ways"),
        ({**PROGRAM, "issuer": ""}, "McpOAuth.issuer: is needed with a secret"),
        ({**PROGRAM, "issuer": "http://a.example"}, "McpOAuth.issuer: must be a https URL"),
        ({**PROGRAM, "issuer": "a.example"}, "McpOAuth.issuer: credentials need"),
        ({**PROGRAM, "auth_method": "none"}, "McpOAuth.auth_method: must be"),
        (
            {"ask": "approve", "client_id": "me", "private_key": "env:K"},
            "McpOAuth.private_key: is for",
        ),
        ({"ask": "always"}, 'McpOAuth.ask: must be "approve"'),
        ({"ask": "approve", "redirect_port": 70_000}, "McpOAuth.redirect_port: must be a port"),
        ({"ask": "approve", "seconds": 0}, "McpOAuth.seconds: must be a number of seconds"),
    ],
)
def test_mistakes_name_the_field(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        McpOAuth(**options)
    assert text in str(error.value)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"command": "any", "oauth": McpOAuth(ask="approve")}, "McpServer.oauth: is for servers at a url"),
        ({"url": "http://a.example", "oauth": McpOAuth(ask="approve")}, "would be sent without TLS"),
        ({"url": "https://a.example", "oauth": {"ask": "approve"}}, "McpServer.oauth: must be a McpOAuth"),
        (
            {"url": "https://a.example", "oauth": McpOAuth(ask="approve"), "bearer": "env:T"},
            "McpServer.oauth: must be a McpOAuth, in place of a bearer",
        ),
    ],
)
def test_mistakes_of_the_server_name_the_field(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        McpServer(**options)
    assert text in str(error.value)
