"""What somebody who is known, and may do little, finds out or does by ways around."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ChildSpec, Pool, SupervisorSpec, open_node
from lmos_actors.security import ANYONE, AUTHENTICATED, Access, Rate
from tests.security.nodes.guarded import PLACE, Desk, Secrets, ask, guarded_node, rules, socket_to

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors import Node

ALICE, BOB = "Bearer token-a", "Bearer token-b"
NONE = Access(read=("alice",), write=("alice",), invoke=("alice",), subscribe=("alice",))
PLAIN_SOCKET: dict[str, Any] = {  # without the subprotocol it is the path alone that says what is wanted
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec_websocket_version": "13",
    "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


# ---- what is there, and may not be seen


@pytest.mark.parametrize("method", ["DELETE", "POST", "BREW", "OPTIONS"])
async def test_methods_that_there_are_not_tell_nothing(
    autojump_clock: Any, secrets: Secrets, method: str
) -> None:
    async with guarded_node(rules(secrets, access={"v*": NONE})) as node:
        told = [
            await ask(node, f"/agents/{path}", method, authorization=BOB)
            for path in (
                "vault/properties/units",
                "vault/properties/nothing",
                "vaults/properties/units",
                "vault/properties/units/observable",
            )
        ]
        assert {(each.status, each.headers.get("allow"), each.json["detail"]) for each in told} == {
            (403, None, told[0].json["detail"])
        }
        allowed = await ask(node, "/agents/vault/properties/units", "BREW", authorization=ALICE)
        assert (allowed.status, allowed.headers["allow"]) == (405, "GET, HEAD, PUT, OPTIONS")


async def test_no_socket_reveals_whether_an_agent_exists(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets, access={"v*": NONE})) as node:
        for name in ("vault", "vaults"):
            assert (await ask(node, f"/agents/{name}", authorization=BOB, **PLAIN_SOCKET)).status == 404
        assert (await ask(node, "/agents/desk", authorization=BOB, **PLAIN_SOCKET)).status == 101
        async with socket_to(node, ("Authorization", ALICE), url=f"{PLACE}/agents/vault") as socket:
            assert "value" in await socket.asked(messageType="readProperty", name="units", thingID=None)


async def test_a_socket_at_an_address_does_not_tell_the_id_that_is_there(
    autojump_clock: Any, secrets: Secrets
) -> None:
    async with guarded_node(rules(secrets, access={"v*": NONE})) as node:
        for name in ("vault", "vaults"):
            url = f"{PLACE}/agents/{name}"
            async with socket_to(node, ("Authorization", BOB), url=url) as socket:
                answer = await socket.asked(messageType="readProperty", name="units", thingID=None)
                assert (answer["status"], answer["thingID"]) == ("403", name)


NEAR = "did you mean"


async def test_only_what_may_be_seen_is_suggested(autojump_clock: Any, secrets: Secrets) -> None:
    tree = SupervisorSpec(
        "root",
        [
            SupervisorSpec("cellar", [ChildSpec("vault", Desk), ChildSpec("bell", Desk)]),
            Pool(Desk, 2, name="crew"),
        ],
    )
    security = rules(secrets, access={"cellar.vault": NONE, "crew": NONE})
    async with open_node(tree, listen=PLACE, security=security) as node:

        async def suggested(name: str, who: str) -> set[str]:
            """Return what is suggested in place of a name, by each way to ask for it."""
            place = f"/agents/{name}"
            told = [(await ask(node, path, authorization=who)).json["detail"]
                    for path in (place, f"{place}/properties/units", f"/{name}")]  # fmt: skip
            told.append((await ask(node, place, authorization=who, **PLAIN_SOCKET)).body.decode())
            async with socket_to(node, ("Authorization", who)) as socket:
                for thing in (name, place, f"{PLACE}{place}"):
                    asked = {"messageType": "readProperty", "name": "units", "thingID": thing}
                    told.append((await socket.asked(**asked))["detail"])
            return {text.partition(NEAR)[2].strip(" ?'\"}\n") for text in told}

        assert await suggested("bell", BOB) == {"/agents/cellar.bell", "cellar.bell"}
        assert await suggested("vault", ALICE) == {"/agents/cellar.vault", "cellar.vault"}
        assert await suggested("crew-1", ALICE) == {"/agents/crew.crew-1", "crew.crew-1"}
        for name in ("vault", "crew-1", "cellar.vaul", "crw"):
            assert not {each for each in await suggested(name, BOB) if "vault" in each or "crew" in each}


# ---- what was good when it was asked


@pytest.mark.parametrize("path", ["/agents/desk/actions/wait", "/agents/desk/events/told"])
async def test_no_answer_goes_to_a_client_whose_credentials_expired(
    autojump_clock: Any, secrets: Secrets, path: str
) -> None:
    async with guarded_node(rules(secrets)) as node, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def take_away() -> None:
            await trio.sleep(2)
            secrets.put("bob", "token-c")
            await trio.sleep(2)
            await node.find(Desk).invoke(Desk.tell, "something")

        answer = await ask(node, path, "POST" if "actions" in path else "GET", authorization=BOB)
        assert (answer.status, answer.json["detail"]) == (401, "the credentials are not accepted")
        assert "www-authenticate" in answer.headers
        assert node.connection_failures == ()


# ---- rates


@pytest.mark.parametrize(
    "path", ["/", "/agents", "/agents/desk", "/openapi.json", "/.well-known/wot", "/desk"]
)
async def test_descriptions_cost_as_well(autojump_clock: Any, secrets: Secrets, path: str) -> None:
    security = rules(secrets, rate=Rate(per_second=0.1, burst=2), public_descriptions=True)
    async with guarded_node(security) as node:
        known: dict[str, Any] = {"authorization": BOB}
        for who in (known, {}) if path != "/desk" else (known,):
            told = [await ask(node, path, **who) for _ in range(3)]
            assert [each.status for each in told][1:] == [told[0].status, 429]
            assert int(told[2].headers["retry-after"]) >= 1


# ---- pools


async def test_a_list_for_a_pool_holds_for_its_members(autojump_clock: Any, secrets: Secrets) -> None:
    open_to_all = Access(read=ANYONE, write=ANYONE, invoke=ANYONE, subscribe=ANYONE)
    tree = SupervisorSpec("root", [Pool(Desk, 2, name="crew"), ChildSpec("desk", Desk)])
    security = rules(secrets, access={"crew": NONE, "*": open_to_all})
    async with open_node(tree, listen=PLACE, security=security) as node:
        for path in ("", "/properties/units", "/properties", "/events/told"):
            for name in ("crew", "crew.crew-1", "crew%2Fcrew-2", "crew.crew-3"):
                place = f"/agents/{name}{path}"
                assert (await ask(node, place, authorization=BOB)).status == 403
                assert (await ask(node, place)).status == 401
        assert (await ask(node, "/agents/crew.crew-1/properties/units", authorization=ALICE)).status == 200
        assert b"crew" not in (await ask(node, "/openapi.json", authorization=BOB)).body
        async with socket_to(node, ("Authorization", BOB)) as socket:
            asked: dict[str, Any] = {"messageType": "readProperty", "name": "units"}
            for name in ("crew.crew-1", "crew/crew-1", "/agents/crew.crew-1", "ws://x/agents/crew%2Fcrew-1"):
                assert (await socket.asked(thingID=name, **asked))["status"] == "403"


# ---- a directory


@pytest.mark.parametrize(
    ("access", "may"),
    [
        (Access(write=("alice",)), False),
        (Access(read=("alice",)), False),
        (Access(write=("alice",), invoke=AUTHENTICATED), False),
        (Access(read=ANYONE, write=AUTHENTICATED), True),
        (Access(write=("alice", "bob"), invoke=("alice",)), False),
    ],
)
async def test_whoever_may_not_write_to_a_directory_invokes_no_action_of_it(
    autojump_clock: Any, secrets: Secrets, access: Access, may: bool
) -> None:
    """They would do by its actions what the lists keep them from at /things."""
    security = rules(secrets, access={"directory": access})
    async with open_node(listen=PLACE, security=security, directory=True) as node:
        assert await _listed(node, ALICE) == 200
        assert await _listed(node, BOB) == (200 if may else 403)
        async with socket_to(node, ("Authorization", BOB)) as socket:
            answer = await socket.asked(
                messageType="invokeAction", thingID="directory", action="listThings", input={}
            )
            assert answer["status"] == ("completed" if may else "403")


async def _listed(node: Node, who: str) -> int:
    path = "/agents/directory/actions/listThings"
    return (await ask(node, path, "POST", authorization=who)).status
