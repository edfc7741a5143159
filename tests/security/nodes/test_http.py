"""Plain HTTP behind a guard: pages, descriptions and forms of agents, for programs and for browsers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import open_node
from lmos_actors.protocol.td import check
from lmos_actors.security import ANYONE, Access, Rate, Security
from lmos_actors.transport import ConnectFailed, connect, endpoint_of
from tests.security.nodes.guarded import (
    PLACE,
    Answer,
    Desk,
    Secrets,
    Vault,
    all_of,
    answer_in,
    ask,
    guarded_node,
    network_of,
    rules,
    socket_to,
)

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors import Node

ALICE, BOB = "Bearer token-a", "Bearer token-b"
APP = "https://app.example"


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


async def statuses(node: Node, *asked: tuple[str, str], **headers: str) -> list[int]:
    return [(await ask(node, path, method, **headers)).status for method, path in asked]


EVERYTHING = [
    ("GET", "/"),
    ("HEAD", "/"),
    ("GET", "/agents"),
    ("GET", "/.well-known/wot"),
    ("GET", "/agents/desk"),
    ("GET", "/agents/nobody"),
    ("GET", "/desk"),
    ("GET", "/nobody"),
    ("GET", "/openapi.json"),
    ("GET", "/metrics"),
    ("OPTIONS", "/agents/desk"),
    ("POST", "/agents/desk/actions/who"),
    ("PUT", "/agents/desk/properties/units"),
    ("DELETE", "/nothing/here"),
]


# ---- who is let in


async def test_whoever_is_not_known_learns_nothing(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets)) as node:
        assert await statuses(node, *EVERYTHING) == [401] * len(EVERYTHING)
        assert await statuses(node, *EVERYTHING[:3], authorization="Bearer token-x") == [401] * 3
        assert node.find(Desk).statistics().handled == 0


async def test_a_refusal_names_the_schemes_and_not_the_fault(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets)) as node:
        wrong = [
            await ask(node, "/agents/desk", authorization=said)
            for said in ("Bearer token-x", "Bearer token-aa", "Basic Y2Fyb2w6eA==", "Basic eDp4")
        ]
        assert len({(each.status, each.body) for each in wrong}) == 1
        answer = wrong[0]
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["cache-control"] == "no-store"
        assert "www-authenticate" in answer.headers
        assert answer.json["status"] == 401
        assert not any(word in answer.body.decode() for word in ("token", "carol", "alice", "desk"))


async def test_two_credentials_are_none(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets)) as node:
        stream = await network_of(node).connect(endpoint_of(PLACE), None)
        twice = f"Authorization: {BOB}\r\n" * 2
        await stream.send_all(
            f"GET /agents/desk HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{twice}\r\n".encode()
        )
        assert answer_in(await all_of(stream)).status == 400


async def test_an_agent_sees_the_principal_of_an_http_request(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets)) as node:
        for said, name in ((ALICE, "alice"), (BOB, "bob"), ("Basic Y2Fyb2w6cGFzczp3b3Jk", "carol")):
            answer = await ask(node, "/agents/desk/actions/who", "POST", authorization=said)
            assert (answer.status, answer.json) == (200, name)


async def test_lists_count_over_http_too(autojump_clock: Any, secrets: Secrets) -> None:
    asked = [
        ("GET", "/agents/vault/properties/units"),
        ("GET", "/agents/vault/properties"),
        ("GET", "/agents/vault/properties/units/observable"),
        ("PUT", "/agents/vault/properties/units"),
        ("PUT", "/agents/vault/properties"),
        ("POST", "/agents/vault/actions/who"),
        ("GET", "/agents/vault/actions"),
        ("GET", "/agents/vault/events/told"),
        ("GET", "/agents/vault/events"),
        ("GET", "/agents/vault"),
        ("GET", "/vault"),
    ]
    async with guarded_node(rules(secrets)) as node:
        assert await statuses(node, *asked, authorization=BOB) == [403] * len(asked)
        assert node.find(Vault).statistics().accepted == 0
        assert (await ask(node, "/agents/vault", authorization=ALICE)).status == 200
        answer = await ask(node, "/agents/vault/actions/who", "POST", authorization=ALICE)
        assert answer.json == "alice"


async def test_what_is_not_there_looks_like_what_is_not_allowed(
    autojump_clock: Any, secrets: Secrets
) -> None:
    lists = {"desk": Access(), "*": Access(read=(), write=(), invoke=(), subscribe=())}
    async with guarded_node(rules(secrets, access=lists)) as node:
        for form in ("/agents/{}", "/{}", "/agents/{}/properties/units", "/agents/{}/actions/who"):
            there, not_there = [
                await ask(node, form.format(name), authorization=BOB) for name in ("vault", "vaults")
            ]
            assert there.status == not_there.status
            assert _plain(there) == _plain(not_there)


def _plain(answer: Answer) -> Any:
    return {key: value for key, value in answer.json.items() if key != "instance"}


async def test_only_what_may_be_used_is_listed(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets), page=False) as node:
        for said, names in ((ALICE, ["desk", "vault"]), (BOB, ["desk"])):
            listed = (await ask(node, "/", authorization=said)).json
            assert [each["id"].rpartition("/")[2] for each in listed] == names
            page = await ask(node, "/", authorization=said, accept="text/html")
            assert ("vault" in page.body.decode()) == ("vault" in names)
            known = (await ask(node, "/.well-known/wot", authorization=said)).json
            assert known["title"] == ("Desk" if names == ["desk"] else "lmos_actors node")
            near = (await ask(node, "/agents/vaul", authorization=said)).json
            assert near["about"].get("nearest") == ("vault" if "vault" in names else None)


async def test_descriptions_can_be_for_anyone(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets, public_descriptions=True)) as node:
        seen = [("GET", "/"), ("GET", "/agents"), ("GET", "/.well-known/wot"), ("HEAD", "/agents/vault")]
        assert await statuses(node, *seen) == [200] * 4
        rest = [("POST", "/agents/desk"), ("GET", "/agents/desk/properties"), ("GET", "/metrics")]
        assert await statuses(node, *rest) == [401] * 3
        assert (await ask(node, "/agents/desk", authorization="Bearer token-x")).status == 401


async def test_probes_need_no_credentials(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets), metrics=True) as node:
        assert await statuses(node, ("GET", "/healthz"), ("GET", "/readyz"), host="10.1.2.3") == [200, 200]
        assert await statuses(node, ("GET", "/metrics"), ("GET", "/metrics/x")) == [401, 401]


async def test_rates_count_over_both_ways_together(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets, rate=Rate(0.5, 2))) as node:
        async with socket_to(node, ("Authorization", BOB)) as socket:
            assert "data" in await socket.asked(messageType="readProperty", property="units")
        path = "/agents/desk/properties/units"
        assert (await ask(node, path, authorization=BOB)).status == 200
        answer = await ask(node, path, authorization=BOB)
        assert (answer.status, answer.headers.get("retry-after")) == (429, "2")
        assert (await ask(node, path, authorization=ALICE)).status == 200


async def test_an_answer_in_parts_ends_when_the_credentials_do(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets)) as node:
        stream = await network_of(node).connect(endpoint_of(PLACE), None)
        lines = f"Host: here\r\nConnection: close\r\nAccept: text/event-stream\r\nAuthorization: {BOB}"
        await stream.send_all(f"GET /agents/desk/events/told HTTP/1.1\r\n{lines}\r\n\r\n".encode())
        await trio.sleep(1)
        desk = node.find(Desk)
        await desk.invoke(Desk.tell, "one")
        await trio.sleep(2)
        secrets.put("bob", "token-c")
        await trio.sleep(2)
        await desk.invoke(Desk.tell, "two")
        answer = answer_in(await all_of(stream))
        assert (answer.status, b'"one"' in answer.body, b"two" in answer.body) == (200, True, False)
        assert node.connection_failures == ()


# ---- pages in browsers


async def test_no_page_of_others_reaches_a_node_without_security(autojump_clock: Any) -> None:
    """The page of the guide that could use every node on 127.0.0.1; also after DNS rebinding."""
    async with guarded_node(None) as node:
        for origin in ("https://evil.example", "null", "http://here.evil.example", "http://here:81", "x"):
            with pytest.raises(ConnectFailed, match="403"):
                await connect(network_of(node), f"{PLACE}/ws", headers=((b"Origin", origin.encode()),))
            answer = await ask(
                node, "/agents/desk/actions/who", "POST", origin=origin, content_type="text/plain"
            )
            assert answer.status == 403
            assert "access-control-allow-origin" not in answer.headers
        for host in ("evil.example", "evil.example:80", "here.evil.example", "xhere"):
            assert await statuses(node, ("GET", "/"), ("GET", "/agents/desk"), host=host) == [403, 403]
        assert node.find(Desk).statistics().accepted == 0


@pytest.mark.parametrize(
    "host", ["here", "HERE", "here:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]:80", "localhost", "10.0.0.7"]
)
async def test_own_pages_are_allowed_under_every_name_of_the_node(autojump_clock: Any, host: str) -> None:
    async with guarded_node(None) as node:
        assert (await ask(node, "/agents/desk", host=host)).status == 200
        assert (await ask(node, "/agents/desk", host=host, origin=f"http://{host.lower()}")).status == 200
        assert (await ask(node, "/agents/desk", host=host, origin=f"https://{host.lower()}")).status == 403


async def test_a_socket_of_a_page_from_here_is_opened(autojump_clock: Any) -> None:
    async with (
        guarded_node(None) as node,
        socket_to(node, ("Origin", "http://here")) as socket,
    ):
        assert (await socket.asked(messageType="readProperty", property="units"))["data"] == "celsius"


async def test_pages_of_configured_origins_are_allowed(autojump_clock: Any) -> None:
    async with guarded_node(None, origins=[APP]) as node:
        async with socket_to(node, ("Origin", APP)) as socket:
            assert (await socket.asked(messageType="readProperty", property="units"))["data"] == "celsius"
        answer = await ask(node, "/agents/desk/properties/units", origin=APP)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, APP)
        assert answer.headers["vary"].split(", ")[-1] == "Origin"
        assert "access-control-allow-credentials" not in answer.headers
        assert (await ask(node, "/agents/desk", origin="https://app.example.evil")).status == 403
        without = await ask(node, "/agents/desk")
        assert "access-control-allow-origin" not in without.headers


async def test_a_browser_that_asks_beforehand_needs_no_credentials(
    autojump_clock: Any, secrets: Secrets
) -> None:
    asks: dict[str, str] = {
        "access_control_request_method": "PUT",
        "access_control_request_headers": "authorization,content-type",
    }
    async with guarded_node(rules(secrets), origins=[APP]) as node:
        answer = await ask(node, "/agents/desk/properties/units", "OPTIONS", origin=APP, **asks)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, APP)
        assert "PUT" in answer.headers["access-control-allow-methods"]
        assert "authorization" in answer.headers["access-control-allow-headers"].lower()
        refused = await ask(node, "/agents/desk", "OPTIONS", origin="https://other.example", **asks)
        assert refused.status == 403
        assert "access-control-allow-origin" not in refused.headers
        assert (await ask(node, "/agents/desk", "OPTIONS", origin=APP)).status == 401
        # a refusal can be read by the page that was refused, so that it can ask for credentials
        missing = await ask(node, "/agents/desk", origin=APP)
        assert (missing.status, missing.headers["access-control-allow-origin"]) == (401, APP)


async def test_another_host_name_can_be_configured(autojump_clock: Any) -> None:
    async with guarded_node(
        Security(hosts=("agents.example", "*.lan")), public_url="wss://out.example"
    ) as node:
        for host in ("agents.example", "desk.lan", "out.example", "here"):
            assert (await ask(node, "/agents/desk", host=host)).status == 200
        for host in ("example", "lan", "x.agents.example", "evil.example"):
            assert (await ask(node, "/agents/desk", host=host)).status == 403


# ---- descriptions


async def test_descriptions_name_the_security_schemes(autojump_clock: Any, secrets: Secrets) -> None:
    lists = {"desk": Access(read=ANYONE), "vault": Access(read=("alice",))}
    async with guarded_node(rules(secrets, access=lists)) as node:
        desk, vault = [
            (await ask(node, f"/agents/{name}", authorization=ALICE)).json for name in ("desk", "vault")
        ]
        for described in (desk, vault):
            assert [each for each in check(json.dumps(described)) if each.severity == "error"] == []
            assert set(described["securityDefinitions"]) == {"bearer_sc", "basic_sc", "any_sc", "nosec_sc"}
            assert described["security"] == "any_sc"
        opened = [form.get("security") for form in desk["properties"]["units"]["forms"]]
        assert ["nosec_sc"] in opened
        for form in desk["properties"]["units"]["forms"]:
            reads = all(op not in form["op"] for op in ("writeproperty",))
            assert form.get("security") == (["nosec_sc"] if reads else None)
        assert "nosec_sc" not in json.dumps([desk["actions"], desk["events"], vault["properties"]])


async def test_a_description_of_an_open_node_asks_for_nothing(autojump_clock: Any) -> None:
    async with guarded_node(None) as node:
        described = (await ask(node, "/agents/desk")).json
        assert described["securityDefinitions"] == {"nosec_sc": {"scheme": "nosec"}}
        assert described["security"] == "nosec_sc"
        async with open_node() as client:
            assert await (await client.consume(Desk, "http://here/agents/desk")).invoke(Desk.who) is None
