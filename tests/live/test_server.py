"""Viewers whose credentials end while they look; pages of others that would look with those of a visitor."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import open_node, simulate
from lmos_actors.security import Access, ClientCertificates, Jwt, Security, client_tls, server_tls
from lmos_actors.transport import ConnectFailed, MemoryNetwork
from tests.live.test_log_in import OWN, cookie_in, log_in, people, socket_status, viewer_of
from tests.live.watching import watching
from tests.security.nodes.guarded import PLACE, Desk, Secrets, guarded_node, network_of, tree
from tests.security.nodes.test_certificates import Files, print_of
from tests.security.sample_credentials import AUDIENCE, ISSUER, key_of, key_set, token

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from lmos_actors import Node

KEY, NEXT = key_of("k1"), key_of("k2")


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


def by_token(secrets: Secrets, *keys: Any) -> Security:
    jwt = Jwt(keys=secrets.put("keys", key_set(*keys)), issuer=ISSUER, audience=AUDIENCE, leeway=0.0)
    return Security(schemes=(jwt,), access={"*": Access(inspect=("alice",), operate=("alice",))})


def made(node: Node, seconds: float) -> str:
    expires = node._rt.entropy.now() + timedelta(seconds=seconds)  # pyright: ignore[reportPrivateUsage]
    return token(KEY, {"exp": int(expires.timestamp()), "sub": "alice"})


@pytest.mark.parametrize("way", ["header", "session"])
@pytest.mark.parametrize("ending", ["expires", "key"])
def test_a_signed_token_that_ends_closes_what_rests_on_it(secrets: Secrets, way: str, ending: str) -> None:
    async def main() -> None:
        async with guarded_node(by_token(secrets, KEY, NEXT)) as node:
            shown, headers = made(node, 60), ((b"origin", OWN.encode()),)
            if way == "header":
                headers += ((b"authorization", f"Bearer {shown}".encode()),)
            else:
                cookie = cookie_in(await log_in(node, {"token": shown}))
                headers += ((b"cookie", cookie.encode()),)
            async with watching(PLACE, network_of(node), headers) as watcher:
                watcher.look("tree")
                await watcher.until(lambda: watcher.views)
                began = trio.current_time()
                if ending == "key":
                    secrets.put("keys", key_set(NEXT))
                await watcher.until(lambda: watcher.end)
                assert watcher.end.code == 1008
                late = trio.current_time() - began
                assert (late < 11) if ending == "key" else (58 < late < 71)
            if way == "session":
                assert await viewer_of(node, cookie) == ""

    simulate(main, seed=1)


def test_nothing_is_carried_out_with_a_token_that_has_expired(secrets: Secrets) -> None:
    async def main() -> None:
        async with guarded_node(by_token(secrets, KEY)) as node:
            headers = ((b"authorization", f"Bearer {made(node, 5)}".encode()),)
            async with watching(PLACE, network_of(node), headers) as watcher:
                await trio.sleep(5.5)
                watcher.do("stop", "desk")
                await watcher.until(lambda: watcher.errors or watcher.end)
                assert not watcher.done
                assert await node.find(Desk, "desk").invoke(Desk.who) is None
                assert all(each["code"] == "FORBIDDEN" for each in watcher.errors)

    simulate(main, seed=1)


async def test_a_certificate_looks_until_it_is_taken_back_and_for_no_page_of_others(
    autojump_clock: MockClock, tmp_path: Path, secrets: Secrets
) -> None:
    files, network = Files(tmp_path), MemoryNetwork()
    mine, url = files.of("alice", "alice.example"), "wss://here"
    line = f"alice sha256:{print_of(mine)}"
    rules = Security(
        schemes=(ClientCertificates(secrets.put("known", line, "bob name:bob.example")),),
        access={"*": Access(inspect=("alice",))},
        origins=("https://app.example",),
    )
    tls, shown = server_tls(files.server, client_ca=files.ca), client_tls(files.ca, cert=mine)
    async with open_node(tree(), listen=url, network=network, tls=tls, security=rules):
        with pytest.raises(ConnectFailed, match="403"):
            async with watching(url, network, ((b"origin", b"https://app.example"),), tls=shown):
                pass
        own = ((b"origin", b"https://here"),)
        async with watching(url, network, own, tls=shown) as watcher:
            assert watcher.hello["viewer"] == "alice"
            watcher.look("tree")
            await watcher.until(lambda: watcher.views)
            secrets.put("known", "bob name:bob.example")
            await watcher.until(lambda: watcher.end)
            assert watcher.end.code == 1008


@pytest.mark.parametrize("origin", ["http://app.example", "http://evil.example", "null", "http://here:81"])
async def test_a_page_of_others_does_not_look_even_if_it_may_use_agents(
    autojump_clock: MockClock, secrets: Secrets, origin: str
) -> None:
    async with guarded_node(people(secrets, origins=["http://app.example"])) as node:
        token_a = ("authorization", "Bearer token-a")
        assert await socket_status(node, token_a, ("origin", OWN)) == 101
        assert await socket_status(node, token_a) == 101  # a program, and no page
        assert await socket_status(node, token_a, ("origin", origin)) == 403
    open_to_all = Security(origins=["http://app.example"])
    async with guarded_node(open_to_all, allow_operations=True) as node:
        assert await socket_status(node, ("origin", OWN)) == 101
        assert await socket_status(node, ("origin", origin)) == 403
