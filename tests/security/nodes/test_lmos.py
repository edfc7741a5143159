"""LMOS behind a guard: who is let in, what each may do, and what becomes of those let in before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import AgentDied, OutcomeUnknown, open_node
from lmos_actors.errors import Forbidden, Unauthorized
from lmos_actors.security import ANYONE, Access, Rate
from lmos_actors.transport import ConnectFailed, connect
from tests.security.nodes.guarded import (
    PLACE,
    Desk,
    Secrets,
    Vault,
    ask,
    basic,
    bearer,
    guarded_node,
    network_of,
    rules,
    socket_to,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


async def test_an_agent_sees_the_principal_of_a_request(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets)):
        for credentials, name in (
            (bearer(secrets.put("mine", "token-a")), "alice"),
            (bearer(secrets.put("mine", "token-b")), "bob"),
            (basic("carol", secrets.put("mine", "pass:word")), "carol"),
        ):
            async with open_node(credentials=credentials) as client:
                desk = await client.consume(Desk, f"{PLACE}/agents/desk")
                assert await desk.invoke(Desk.who) == name
                assert await desk.read(Desk.units) == "celsius"


async def test_nobody_is_asked_who_asks_from_near(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets)) as node:
        vault = node.find(Vault)
        assert await vault.invoke(Vault.who) is None


TOLD = [({}, "error"), ({"crash_details": True}, "KeyError: 'what nobody should be told'")]


@pytest.mark.parametrize(("more", "told"), TOLD)
async def test_crash_details_reach_only_clients_that_may_see_them(
    autojump_clock: Any, secrets: Secrets, more: Any, told: str
) -> None:
    async with guarded_node(rules(secrets, **more)) as node:
        near = node.find(Desk)
        async with open_node(credentials=bearer(secrets.put("mine", "token-a"))) as client:
            desk = await client.consume(Desk, f"{PLACE}/agents/desk")
            async with desk.monitor() as downs:
                with pytest.raises(AgentDied) as caught:
                    await desk.invoke(Desk.fall)
                assert (caught.value.reason, caught.value.started) == (told, True)
                assert str((await downs.receive()).reason) == told
        answer = await ask(node, "/agents/desk/actions/fall", "POST", authorization="Bearer token-a")
        assert (answer.status, answer.json["detail"]) == (500, told)
        with pytest.raises(AgentDied, match="what nobody should be told"):
            await near.invoke(Desk.fall)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Bearer token-c",
        "Bearer token-a token-a",
        "Basic Y2Fyb2w6cGFzcw==",
        "Basic dG9rZW4tYQ==",
        "Digest token-a",
        "token-a",
    ],
)
async def test_unauthenticated_clients_are_refused(
    autojump_clock: Any, secrets: Secrets, header: str | None
) -> None:
    headers = () if header is None else ((b"Authorization", header.encode()),)
    async with guarded_node(rules(secrets)) as node:
        for path in ("/ws", "/agents/desk", "/agents/nobody", "/elsewhere"):
            with pytest.raises(ConnectFailed, match=r"answered 40[01]"):
                await connect(network_of(node), f"{PLACE}{path}", headers=headers)
        await trio.sleep(2)  # refusals linger
        assert node.connections == 0


async def test_whoever_is_known_may_do_what_the_lists_say_and_no_more(
    autojump_clock: Any, secrets: Secrets
) -> None:
    lists = {
        "desk": Access(write=("alice",), subscribe=()),
        "vault": Access(read=("alice",), write=(), invoke=("alice",), subscribe=("alice",)),
    }
    async with (
        guarded_node(rules(secrets, access=lists)),
        open_node(credentials=bearer(secrets.put("mine", "token-b"))) as client,
    ):
        desk = await client.consume(Desk, f"{PLACE}/agents/desk")
        vault = await client.consume(Vault, f"{PLACE}/agents/vault")
        assert await desk.invoke(Desk.who) == "bob"
        assert await desk.read(Desk.units) == "celsius"
        async with desk.observe(Desk.units) as values:
            assert await anext(aiter(values)) == "celsius"
        for refused in (
            desk.write(Desk.units, "kelvin"),
            desk.write_many(Desk.units.to("kelvin")),
            vault.read(Vault.units),
            vault.invoke(Vault.who),
        ):
            with pytest.raises(Forbidden):
                await refused
        for opened in (
            desk.subscribe(Desk.told),
            desk.subscribe_all(),
            desk.monitor(),
            vault.observe(Vault.units),
        ):
            with pytest.raises(Forbidden):
                async with opened as feed:
                    await anext(aiter(feed))
        assert await desk.read(Desk.units) == "celsius"


async def test_what_is_not_there_and_what_is_not_allowed_look_alike(
    autojump_clock: Any, secrets: Secrets
) -> None:
    lists = {"desk": Access(), "*": Access(read=(), write=(), invoke=(), subscribe=())}
    async with (
        guarded_node(rules(secrets, access=lists)) as node,
        socket_to(node, ("Authorization", "Bearer token-b")) as socket,
    ):
        answers = [
            await socket.asked(messageType="readProperty", thingID=thing, property="units")
            for thing in (
                "vault",
                "vaults",
                "http://here/agents/vault",
                "http://here/agents/vaults",
                "urn:x:y",
            )
        ]
        for answer in answers:
            for name in ("messageID", "correlationID", "thingID", "instance"):
                del answer[name]
        assert all(answer == answers[0] for answer in answers)
        assert answers[0]["status"] == "403"


async def test_only_names_that_may_be_used_are_suggested(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets)) as node:
        for token, nearest in (("token-a", "vault"), ("token-b", None)):
            async with socket_to(node, ("Authorization", f"Bearer {token}")) as socket:
                answer = await socket.asked(messageType="readProperty", thingID="vaul", property="units")
                assert answer["about"].get("nearest") == nearest


async def test_who_presents_nothing_may_use_what_is_for_anyone(autojump_clock: Any, secrets: Secrets) -> None:
    lists = {"desk": Access(read=ANYONE, invoke=ANYONE)}
    async with guarded_node(rules(secrets, access=lists)), open_node() as client:
        desk = await client.consume(Desk, f"{PLACE}/agents/desk")
        vault = await client.consume(Vault, f"{PLACE}/agents/vault")
        assert await desk.invoke(Desk.who) is None
        for refused in (desk.write(Desk.units, "x"), vault.read(Vault.units)):
            with pytest.raises(Unauthorized):
                await refused
        assert await desk.read(Desk.units) == "celsius"  # and is still connected


# ---- what was good, and is no longer


async def test_a_token_that_is_taken_away_ends_the_connection_at_the_next_request(
    autojump_clock: Any, secrets: Secrets
) -> None:
    async with (
        guarded_node(rules(secrets)) as node,
        socket_to(node, ("Authorization", "Bearer token-b")) as socket,
    ):
        asked = {"messageType": "invokeAction", "action": "who"}
        assert (await socket.asked(**asked))["output"] == "bob"
        secrets.put("bob", "token-c")
        await trio.sleep(1.1)
        answer = await socket.asked(**asked)
        assert (answer["messageType"], answer["status"]) == ("error", "401")
        assert (await socket.end()).code == 3000
        assert node.find(Desk).statistics().handled == 1


async def test_nothing_is_answered_after_that_not_even_what_is_remembered(
    autojump_clock: Any, secrets: Secrets
) -> None:
    name = ("LMOS-Peer", "0123456789abcdef0123456789abcdef")
    asked = {"messageType": "invokeAction", "action": "who", "messageID": "the-same", "attempt": 1}
    async with (
        guarded_node(rules(secrets)) as node,
        socket_to(node, ("Authorization", "Bearer token-b"), name) as socket,
    ):
        assert (await socket.asked(**asked))["output"] == "bob"
        secrets.put("bob", "token-c")
        await trio.sleep(1.1)
        socket.heard.clear()
        first = socket.say(messageType="readProperty", property="units")
        socket.say(**{**asked, "attempt": 2})
        socket.say(messageType="readProperty", property="units")
        assert (await socket.end()).code == 3000
        assert [(each["correlationID"], each["status"]) for each in socket.heard] == [(first, "401")]


async def test_whoever_says_and_hears_nothing_is_gone_with_the_next_ping(
    autojump_clock: Any, secrets: Secrets
) -> None:
    async with (
        guarded_node(rules(secrets)) as node,
        socket_to(node, ("Authorization", "Bearer token-b")) as socket,
    ):
        await trio.sleep(5)
        secrets.put("bob", "token-c")
        assert (await socket.end()).code == 3000
        assert trio.current_time() < 60


async def test_whoever_only_listens_hears_nothing_once_the_token_is_taken_away(
    autojump_clock: Any, secrets: Secrets
) -> None:
    async with (
        guarded_node(rules(secrets)) as node,
        socket_to(node, ("Authorization", "Bearer token-b")) as socket,
    ):
        await socket.asked(messageType="subscribeEvent", event="told", ack=True)
        desk = node.find(Desk)
        await desk.invoke(Desk.tell, "one")
        await trio.sleep(2)
        secrets.put("bob", "token-c")
        await trio.sleep(2)
        await desk.invoke(Desk.tell, "two")
        assert (await socket.end()).code == 3000
        assert [each.get("data") for each in socket.heard if each["messageType"] == "event"] == ["one"]


async def test_an_answer_that_comes_too_late_is_not_given(autojump_clock: Any, secrets: Secrets) -> None:
    async with (
        guarded_node(rules(secrets)) as node,
        socket_to(node, ("Authorization", "Bearer token-b")) as socket,
    ):
        socket.say(messageType="invokeAction", action="wait", messageID="mine")
        await trio.sleep(5)
        secrets.put("bob", "token-c")
        assert (await socket.end()).code == 3000
        assert not any(each.get("status") == "completed" for each in socket.heard)
        await trio.sleep(1)
        assert node.find(Desk).statistics().running == 0


async def test_a_ref_goes_on_with_the_next_token_by_itself(autojump_clock: Any, secrets: Secrets) -> None:
    mine = secrets.put("mine", "token-b")
    async with guarded_node(rules(secrets)), open_node(credentials=bearer(mine)) as client:
        desk = await client.consume(Desk, f"{PLACE}/agents/desk")
        assert await desk.invoke(Desk.who) == "bob"
        secrets.put("bob", "token-c")
        secrets.put("mine", "token-c")
        await trio.sleep(1.1)
        with pytest.raises((Unauthorized, OutcomeUnknown)):
            await desk.invoke(Desk.who)
        await trio.sleep(0.1)
        await desk.ready()
        assert await desk.invoke(Desk.who) == "bob"


async def test_a_rate_limited_client_learns_when_to_retry(autojump_clock: Any, secrets: Secrets) -> None:
    async with (
        guarded_node(rules(secrets, rate=Rate(1.0, 2))) as node,
        socket_to(node, ("Authorization", "Bearer token-b")) as bob,
        socket_to(node, ("Authorization", "Bearer token-b")) as bob_again,
        socket_to(node, ("Authorization", "Bearer token-a")) as alice,
    ):
        asked = {"messageType": "readProperty", "property": "units"}
        assert (await bob.asked(**asked))["data"] == "celsius"
        assert (await bob_again.asked(**asked))["data"] == "celsius"
        assert (await bob.asked(**asked))["status"] == "429"
        assert (await alice.asked(**asked))["data"] == "celsius"
        await trio.sleep(1)
        assert (await bob.asked(**asked))["data"] == "celsius"


async def test_who_guesses_is_slowed_down(autojump_clock: Any, secrets: Secrets) -> None:
    async with guarded_node(rules(secrets, failures=Rate(0.1, 3))) as node:
        found: list[int | None] = []
        for _ in range(5):
            with pytest.raises(ConnectFailed) as caught:
                await connect(network_of(node), f"{PLACE}/ws", headers=((b"Authorization", b"Bearer no"),))
            found.append(caught.value.status)
        assert found == [401, 401, 401, 429, 429]
        # whoever is known is not let in from there either, for a while: that would tell which guess was good
        with pytest.raises(ConnectFailed, match="429"):
            await connect(network_of(node), f"{PLACE}/ws", headers=((b"Authorization", b"Bearer token-a"),))
        await trio.sleep(11)
        async with socket_to(node, ("Authorization", "Bearer token-a")):
            assert node.connections == 1


async def test_what_one_was_answered_is_remembered_for_no_other(
    autojump_clock: Any, secrets: Secrets
) -> None:
    name = ("LMOS-Peer", "0123456789abcdef0123456789abcdef")
    asked = {"messageType": "invokeAction", "action": "who", "messageID": "the-same", "attempt": 1}
    answers: list[Any] = []
    async with guarded_node(rules(secrets)) as node:
        for token in ("token-a", "token-b", "token-a"):
            async with socket_to(node, ("Authorization", f"Bearer {token}"), name) as socket:
                answers.append((await socket.asked(**asked))["output"])
                asked["attempt"] = 2
    assert answers == ["alice", "bob", "alice"]
    assert node.dead_letters == ()
