"""Signed tokens on connections that stay open, in a world whose time of day goes on with its clock."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import simulate
from lmos_actors.security import Jwt, Security
from tests.security.nodes.guarded import Desk, Secrets, ask, guarded_node, socket_to
from tests.security.sample_credentials import AUDIENCE, ISSUER, key_of, key_set, token

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors import Node

KEY, NEXT = key_of("k1"), key_of("k2")


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


def rules(secrets: Secrets, *keys: Any) -> Security:
    return Security(
        schemes=(Jwt(keys=secrets.put("keys", key_set(*keys)), issuer=ISSUER, audience=AUDIENCE, leeway=5.0),)
    )


def made(node: Node, seconds: float, key: Any = KEY, name: str = "alice") -> str:
    expires = node._rt.entropy.now() + timedelta(seconds=seconds)  # pyright: ignore[reportPrivateUsage]
    return f"Bearer {token(key, {'exp': int(expires.timestamp()), 'sub': name})}"


def test_a_connection_ends_when_its_token_expires(secrets: Secrets) -> None:
    """Also one on which nothing is said, at once; what is heard until then is heard."""

    async def main() -> None:
        async with guarded_node(rules(secrets, KEY)) as node:
            header = ("Authorization", made(node, 60))
            async with socket_to(node, header) as quiet, socket_to(node, header) as busy:
                await busy.asked(messageType="subscribeEvent", event="told", ack=True)
                for count in range(12):
                    await node.find(Desk).invoke(Desk.tell, f"{count}")
                    await trio.sleep(10)
                heard = [each["data"] for each in busy.heard if each["messageType"] == "event"]
                assert heard == ["0", "1", "2", "3", "4", "5", "6"]  # 60 s, and 5 s for clocks that differ
                for socket in (quiet, busy):
                    assert ((await socket.end()).code, socket.ended.reason) == (
                        3000,
                        "the credentials are no longer good",
                    )
                assert 64 < quiet.ended_at < 66  # and not when it is pinged next
                assert node.connections == 0
                answer = await ask(node, "/agents/desk", authorization=header[1])
                assert answer.status == 401

    simulate(main, seed=1)


def test_a_connection_ends_when_the_key_of_its_token_is_taken_away(secrets: Secrets) -> None:
    async def main() -> None:
        async with (
            guarded_node(rules(secrets, KEY, NEXT)) as node,
            socket_to(node, ("Authorization", made(node, 3600))) as old,
            socket_to(node, ("Authorization", made(node, 3600, NEXT))) as new,
        ):
            secrets.put("keys", key_set(NEXT))
            await trio.sleep(2)
            asked = {"messageType": "invokeAction", "action": "who"}
            assert (await old.asked(**asked))["status"] == "401"
            assert (await old.end()).code == 3000
            assert (await new.asked(**asked))["output"] == "alice"

    simulate(main, seed=1)


def test_no_forged_token_opens_anything(secrets: Secrets) -> None:
    async def main() -> None:
        async with guarded_node(rules(secrets, KEY)) as node:
            good = made(node, 60).removeprefix("Bearer ")
            head, said, sign = good.split(".")
            bare = token_part({"alg": "none", "typ": "JWT"})
            for forged in (
                made(node, 60, key_of("k1")),
                made(node, -60),
                f"Bearer {bare}.{said}.",
                f"Bearer {bare}.{said}.{sign}",
                f"Bearer {head}.{token_part({'sub': 'root'})}.{sign}",
                f"Bearer {good[:-2]}",
            ):
                assert (await ask(node, "/agents/desk", authorization=forged)).status == 401
            assert (await ask(node, "/agents/desk", authorization=f"Bearer {good}")).status == 200

    simulate(main, seed=1)


def token_part(value: Any) -> str:
    from tests.security.sample_credentials import part

    return part(json.dumps(value).encode())
