"""The log-in at the page: credentials once, a cookie from then on; and all that others try with it."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.security import Access, Security
from lmos_actors.transport import endpoint_of
from tests.live.watching import watching
from tests.security.nodes.guarded import (
    PLACE,
    Answer,
    Desk,
    Secrets,
    ask,
    guarded_node,
    network_of,
    rules,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from lmos_actors import Node

SESSION = "/live/session"
OWN = "http://here"
ALICE = {"token": "token-a"}
CAROL = {"name": "carol", "password": "pass:word"}


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


def people(secrets: Secrets, **more: Any) -> Security:
    """Alice and carol may look, bob may not."""
    return rules(secrets, access={"*": Access(inspect=("alice", "carol"), operate=("alice",))}, **more)


async def log_in(node: Node, said: Any = ALICE, *, body: bytes | None = None, **headers: str) -> Answer:
    given = {"origin": OWN, "content_type": "application/json", **headers}
    sent = {name: value for name, value in given.items() if value}
    return await ask(node, SESSION, "POST", body=json.dumps(said).encode() if body is None else body, **sent)


def cookie_in(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


async def logged_in(node: Node, said: Any = ALICE, **headers: str) -> str:
    answer = await log_in(node, said, **headers)
    assert answer.status == 200, answer
    return cookie_in(answer)


async def viewer_of(node: Node, cookie: str, **headers: str) -> str:
    return (await ask(node, SESSION, cookie=cookie, **headers)).json["viewer"]


async def socket_status(node: Node, *headers: tuple[str, str], path: str = "/live") -> int:
    """Ask for a WebSocket; return 101, or the status of the refusal."""
    given = {
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "sec-websocket-protocol": "lmos-actors-live",
    }
    lines = [("host", "here"), ("connection", "upgrade"), *given.items(), *headers]
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    async with await network_of(node).connect(endpoint_of(PLACE), None) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        return int((await stream.receive_some()).split()[1])


# ---- in and out


async def test_a_cookie_stands_for_the_credentials(autojump_clock: MockClock, secrets: Secrets) -> None:
    async with guarded_node(people(secrets)) as node:
        for said, name in ((ALICE, "alice"), (CAROL, "carol")):
            answer = await log_in(node, said)
            assert answer.json == {"viewer": name, "looks": True, "schemes": ["basic", "bearer"]}
            cookie = cookie_in(answer)
            assert await viewer_of(node, cookie) == name
            assert await viewer_of(node, f"other=1; {cookie}; more=2") == name
            assert await socket_status(node, ("origin", OWN), ("cookie", cookie)) == 101
            asked = await ask(node, "/agents/desk/actions/who", "POST", cookie=cookie, origin=OWN)
            assert asked.json == name
        assert (await log_in(node, {"token": "token-b"})).json["looks"] is False


async def test_the_page_says_whether_its_visitor_may_look(
    autojump_clock: MockClock, secrets: Secrets
) -> None:
    async with guarded_node(people(secrets)) as node:
        cookie, tags = await logged_in(node), set[str]()
        bob = await logged_in(node, {"token": "token-b"})
        for headers, word in (({}, "no"), ({"cookie": cookie}, "yes"), ({"cookie": bob}, "no")):
            page = await ask(node, "/", accept="text/html", **headers)
            assert f'data-looks="{word}"' in page.body.decode()
            tags.add(page.headers["etag"])
            kept = await ask(node, "/", accept="text/html", **{"if-none-match": page.headers["etag"]})
            assert kept.status == (304 if word == "no" else 200)  # what is kept is not for another visitor
        assert len(tags) == 2


async def test_no_script_and_no_other_site_gets_the_cookie(
    autojump_clock: MockClock, secrets: Secrets
) -> None:
    async with guarded_node(people(secrets)) as node:
        words = (await log_in(node)).headers["set-cookie"].split("; ")
        assert words[0].startswith("lmos-actors-80=")
        assert set(words[1:]) == {"Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"}
        assert "token-a" not in " ".join(words)


async def test_behind_tls_the_cookie_is_for_tls_alone(autojump_clock: MockClock, secrets: Secrets) -> None:
    async with guarded_node(people(secrets), public_url="https://weather.example") as node:
        answer = await log_in(node, origin="https://weather.example", host="weather.example")
        words = answer.headers["set-cookie"].split("; ")
        assert words[0].startswith("__Host-lmos-actors-443=")
        assert "Secure" in words
        assert await viewer_of(node, cookie_in(answer)) == "alice"


async def test_a_log_out_ends_the_session_and_what_stands_on_it(
    autojump_clock: MockClock, secrets: Secrets
) -> None:
    async with guarded_node(people(secrets)) as node:
        cookie, other = await logged_in(node), await logged_in(node)
        headers = ((b"origin", OWN.encode()), (b"cookie", cookie.encode()))
        async with watching(PLACE, network_of(node), headers) as watcher:
            watcher.look("tree")
            answer = await ask(node, SESSION, "DELETE", cookie=cookie, origin=OWN)
            assert answer.status == 204
            assert "Max-Age=0" in answer.headers["set-cookie"]
            assert await viewer_of(node, cookie) == ""
            assert await viewer_of(node, other) == "alice"
            assert (await watcher.until(lambda: watcher.end)).code == 1008


# ---- what ends a session


async def test_a_session_ends_with_its_credentials(autojump_clock: MockClock, secrets: Secrets) -> None:
    async with guarded_node(people(secrets)) as node:
        alice, carol = await logged_in(node), await logged_in(node, CAROL)
        headers = ((b"origin", OWN.encode()), (b"cookie", alice.encode()))
        async with watching(PLACE, network_of(node), headers) as watcher:
            watcher.look("tree")
            secrets.put("alice", "another")
            await trio.sleep(2)
            assert await viewer_of(node, alice) == ""
            assert await viewer_of(node, carol) == "carol"
            assert (await watcher.until(lambda: watcher.end)).code == 1008


async def test_sessions_are_bounded_and_nobody_ends_those_of_others(
    autojump_clock: MockClock, secrets: Secrets
) -> None:
    async with guarded_node(people(secrets)) as node:
        first, carol = await logged_in(node), await logged_in(node, CAROL)
        later = [await logged_in(node) for _ in range(16)]
        assert await viewer_of(node, first) == ""
        assert [await viewer_of(node, each) for each in later] == ["alice"] * 16
        assert await viewer_of(node, carol) == "carol"


# ---- those who try


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": ""},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "http://here:3000"},
        {"origin": "https://here"},
        {"origin": "http://here.evil.example"},
        {"origin": "http://app.example"},  # allowed to use the agents, but not the page
    ],
)
async def test_no_other_page_logs_in_or_out(
    autojump_clock: MockClock, secrets: Secrets, headers: dict[str, str]
) -> None:
    async with guarded_node(people(secrets), origins=["http://app.example"]) as node:
        cookie = await logged_in(node)
        assert (await log_in(node, **headers)).status == 403
        sent = {name: value for name, value in headers.items() if value}
        assert (await ask(node, SESSION, "DELETE", cookie=cookie, **sent)).status == 403
        assert await viewer_of(node, cookie) == "alice"
        # nor does its request count as that of the person whose cookie comes with it
        asked = await ask(node, "/agents/desk/actions/who", "POST", cookie=cookie, **sent)
        assert asked.status in (401, 403)
        assert await socket_status(node, ("cookie", cookie), *sent.items()) in (401, 403)
        assert node.find(Desk).statistics().handled == 0


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "same-origin, cross-site"])
async def test_what_another_page_embeds_is_not_read_with_the_cookie(
    autojump_clock: MockClock, secrets: Secrets, site: str
) -> None:
    async with guarded_node(people(secrets)) as node:
        cookie = await logged_in(node)
        for own in ("same-origin", "none"):
            assert (await ask(node, "/agents/desk", cookie=cookie, sec_fetch_site=own)).status == 200
        for path in ("/agents/desk", SESSION):
            assert (await ask(node, path, cookie=cookie, sec_fetch_site=site)).status == 403


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""]
)
async def test_forms_do_not_log_in(autojump_clock: MockClock, secrets: Secrets, kind: str) -> None:
    async with guarded_node(people(secrets)) as node:
        answer = await log_in(node, content_type=kind)
        assert (answer.status, "set-cookie" in answer.headers) == (415, False)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'"token-a"', 400),
        (b'{"token": 1}', 400),
        (b'{"token": "token-a", "name": "carol"}', 400),
        (b'{"token": "token-a", "more": 1}', 400),
        (b"\xff\xfe", 400),
        (b'{"token": "' + b"x" * 20_000 + b'"}', 413),
        (b'{"token": "' + b"x" * 9_000 + b'"}', 400),
        (b'{"token": "token-a\\r\\nset-cookie: x=1"}', 403),
        (b'{"token": "token-a\\u0000"}', 403),
        (b'{"token": "t\\u00f6ken"}', 403),
        (b'{"token": "null"}', 403),
        (b'{"name": "carol", "password": "\\r\\n"}', 403),
        (b'{"name": "car:ol", "password": "pass"}', 403),
    ],
)
async def test_hostile_log_ins(autojump_clock: MockClock, secrets: Secrets, body: bytes, status: int) -> None:
    async with guarded_node(people(secrets)) as node:
        answer = await log_in(node, body=body)
        assert (answer.status, "set-cookie" in answer.headers) == (status, False)
        assert "www-authenticate" not in answer.headers  # browsers would ask with a window of their own
        assert answer.headers["content-type"] == "application/problem+json"
        assert node.connection_failures == ()


async def test_a_flood_of_log_ins_is_slowed(autojump_clock: MockClock, secrets: Secrets) -> None:
    async with guarded_node(people(secrets)) as node:
        wrong = [(await log_in(node, {"token": f"guess-{n}"})).status for n in range(12)]
        assert wrong == [403] * 10 + [429] * 2
        answer = await log_in(node)
        assert (answer.status, int(answer.headers["retry-after"]) > 0) == (429, True)
        await trio.sleep(float(answer.headers["retry-after"]))
        assert (await log_in(node)).status == 200


async def test_a_refused_log_in_does_not_say_what_was_wrong(
    autojump_clock: MockClock, secrets: Secrets
) -> None:
    async with guarded_node(people(secrets)) as node:
        wrong = [{"token": "x"}, {"name": "carol", "password": "x"}, {"name": "nobody", "password": "x"}]
        assert (
            len({(answer.status, answer.body) for answer in [await log_in(node, each) for each in wrong]})
            == 1
        )


async def test_a_session_is_never_one_that_was_put_there(autojump_clock: MockClock, secrets: Secrets) -> None:
    async with guarded_node(people(secrets)) as node:
        planted = f"lmos-actors-80={'ab' * 32}"
        fresh = await logged_in(node, cookie=planted)
        assert fresh != planted
        assert await viewer_of(node, planted) == ""
        again = await logged_in(node, CAROL, cookie=fresh)
        assert again != fresh
        assert await viewer_of(node, fresh) == ""  # who logs in anew leaves no session behind
        evil = await logged_in(node)
        assert await viewer_of(node, f"{evil}; {again}") == ""  # one of the two was put there


async def test_cookies_that_are_none(autojump_clock: MockClock, secrets: Secrets) -> None:
    async with guarded_node(people(secrets)) as node:
        cookie = await logged_in(node)
        name, _, id = cookie.partition("=")
        for wrong in (
            f"lmos-actors-8080={id}",  # of another node of this machine
            f"{name}={id[:-1]}",
            f"{name}={id}0",
            f"{name}={id.upper()}" if id.upper() != id else f"{name}=",
            f'{name}="{id}"',
            f"{name}=",
            name,
            f"x{cookie}",
            ";" * 4_000,
        ):
            assert await viewer_of(node, wrong) == "", wrong[:80]
        flood = "; ".join(f"c{n}={n}" for n in range(1_000))
        assert await viewer_of(node, f"{flood}; {cookie}") == "alice"


async def test_a_cookie_of_another_node_opens_nothing(autojump_clock: MockClock, secrets: Secrets) -> None:
    async with guarded_node(people(secrets)) as node:
        cookie = await logged_in(node)
    async with guarded_node(people(secrets)) as node:  # nor of one before, at the same port
        assert await viewer_of(node, cookie) == ""
        assert await socket_status(node, ("origin", OWN), ("cookie", cookie)) == 401


async def test_an_authorization_header_counts_before_a_cookie(
    autojump_clock: MockClock, secrets: Secrets
) -> None:
    async with guarded_node(people(secrets)) as node:
        cookie = await logged_in(node)
        asked = {"path": "/agents/desk/actions/who", "method": "POST", "cookie": cookie, "origin": OWN}
        assert (await ask(node, **asked, authorization="Bearer token-b")).json == "bob"
        assert (await ask(node, **asked, authorization="Bearer wrong")).status == 401
        assert (await ask(node, **asked)).json == "alice"


async def test_who_may_not_look_does_not(autojump_clock: MockClock, secrets: Secrets) -> None:
    async with guarded_node(people(secrets)) as node:
        bob = await logged_in(node, {"token": "token-b"})
        assert await socket_status(node, ("origin", OWN), ("cookie", bob)) == 403
        assert await socket_status(node, ("origin", OWN)) == 401


async def test_no_token_in_an_address(autojump_clock: MockClock, secrets: Secrets) -> None:
    async with guarded_node(people(secrets)) as node:
        cookie = await logged_in(node)
        assert await socket_status(node, ("origin", OWN), path="/live?token=token-a") == 401
        assert await socket_status(node, ("origin", OWN), path=f"/live?{cookie}") == 401
        assert (await ask(node, "/agents/desk?token=token-a")).status == 401


async def test_a_log_in_on_an_open_node_is_refused(autojump_clock: MockClock) -> None:
    async with guarded_node(None) as node:
        assert (await log_in(node)).status == 403
        assert (await ask(node, SESSION)).json == {"viewer": "", "looks": True, "schemes": []}


async def test_nothing_that_was_typed_is_shown_again(autojump_clock: MockClock, secrets: Secrets) -> None:
    async with guarded_node(people(secrets)) as node:
        word = b64encode(b"a secret of somebody").decode()
        for said in (
            {"token": word},
            {"name": "carol", "password": word},
            {"token": word, "name": "x"},
            {word: 1},
        ):
            answer = await log_in(node, said)
            assert word.encode() not in answer.body
            assert word not in repr(answer.headers)
