"""Chats behind a guard: who is let in, whose a session is, what ends a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import simulate
from lmos_actors.facades import OmniaOptions, open_chat
from lmos_actors.security import Access, Bearer, BearerToken, Credentials, NoSec, Rate, Security
from lmos_actors.transport import ConnectFailed, MemoryNetwork, connect
from tests.facades.desk import URL, Desk, opened_desk, opened_raw
from tests.facades.test_calls import Parrot, speak
from tests.security.nodes.guarded import Secrets

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from lmos_actors.facades import Chat


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


def rules(secrets: Secrets, **more: Any) -> Security:
    """Alice, bob and eve by token; eve may look at the desk, and not talk to it."""
    talkers = ("alice", "bob")
    tokens = {name: secrets.put(name, f"token-{name}") for name in (*talkers, "eve")}
    access = {"desk": Access(read=("alice", "bob", "eve"), invoke=talkers)}
    given: dict[str, Any] = {"schemes": (Bearer(tokens),), "access": access}
    return Security(**{**given, **more})


def header(name: str) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"authorization", f"Bearer token-{name}".encode()),)


def chat_of(
    name: str, network: MemoryNetwork, secrets: Secrets, **more: Any
) -> AbstractAsyncContextManager[Chat]:
    place = {"http://desk": BearerToken(secrets.put(f"{name}-out", f"token-{name}"))}
    credentials = Credentials(place, allow_insecure=True)
    return open_chat(f"{URL}/agents/desk", network=network, credentials=credentials, **more)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((), 401),
        (((b"authorization", b"Bearer nonsense"),), 401),
        (header("eve"), 403),
        ((*header("alice"), (b"origin", b"https://evil.example")), 403),
    ],
)
def test_who_is_not_let_in(secrets: Secrets, headers: Any, status: int) -> None:
    async def main() -> None:
        async with opened_desk(security=rules(secrets), insecure=True) as (_, network):
            with pytest.raises(ConnectFailed) as refused:
                await connect(network, f"{URL}/?agent=desk", subprotocols=(), headers=headers)
            assert refused.value.status == status

    simulate(main)


def test_a_token_in_the_query_is_none(secrets: Secrets) -> None:
    async def main() -> None:
        async with opened_desk(security=rules(secrets), insecure=True) as (_, network):
            for query in (
                "token=token-alice",
                "access_token=token-alice",
                "authorization=Bearer token-alice",
            ):
                with pytest.raises(ConnectFailed) as refused:
                    await connect(network, f"{URL}/?agent=desk&{query.replace(' ', '%20')}", subprotocols=())
                assert refused.value.status == 401

    simulate(main)


def test_a_session_of_another_looks_like_an_unknown_one(secrets: Secrets) -> None:
    async def main() -> list[str]:
        async with opened_desk(security=rules(secrets), insecure=True) as (node, network):
            async with chat_of("alice", network, secrets) as chat:
                found = [(await chat.say("my secret")).text]
                session = chat.session
            for name in ("bob", "alice"):
                async with chat_of(name, network, secrets, session=session) as chat:
                    found.append((await chat.say("history")).text)
                    found.append(f"{name} {'goes on' if chat.session == session else 'is new'}")
            assert [each.messages for each in await node.find(Desk, "desk").invoke(Desk.sessions)] == []
            return found

    assert simulate(main) == [
        "1: my secret",
        "",
        "bob is new",
        "user: my secret; agent: 1: my secret",
        "alice goes on",
    ]


def test_an_agent_knows_who_talks_to_it(secrets: Secrets) -> None:
    async def main() -> list[str]:
        found: list[str] = []
        async with opened_desk(security=rules(secrets), insecure=True) as (_, network):
            for name in ("alice", "bob"):
                async with chat_of(name, network, secrets) as chat:
                    found.append((await chat.say("who")).text)
        async with opened_desk() as (_, network), open_chat(f"{URL}/agents/desk", network=network) as chat:
            found.append((await chat.say("who")).text)
        return found

    assert simulate(main) == ["alice", "bob", "None"]


def test_nobody_watches_the_session_of_another(secrets: Secrets) -> None:
    async def main() -> None:
        guarded = opened_desk(security=rules(secrets), insecure=True)
        async with guarded as (_, network), opened_raw(network, headers=header("alice")) as raw:
            session = (await raw.next())["session_id"]
            query = f"agent=desk&watch=true&resume={session}"
            async with (
                opened_raw(network, query, headers=header("bob")) as bob,
                opened_raw(network, query, headers=header("alice")) as own,
            ):
                await bob.next()
                await own.next()
                raw.ask("hello")
                await raw.end()
                assert (await own.end())["content"] == "1: hello"
                with trio.move_on_after(5) as scope:
                    await bob.next()
                assert scope.cancelled_caught

    simulate(main)


def test_credentials_that_are_withdrawn_end_the_connection(secrets: Secrets) -> None:
    async def main() -> None:
        guarded = opened_desk(security=rules(secrets), insecure=True)
        async with guarded as (_, network), opened_raw(network, headers=header("alice")) as raw:
            raw.ask("hello")
            assert (await raw.end())["type"] == "done"
            secrets.put("alice", "another token")
            await trio.sleep(10)
            raw.ask("hello")
            await raw.over.wait()
            assert raw.ended.code == 3000

    simulate(main)


def test_a_limit_of_requests_refuses_one_message_and_loses_nothing(secrets: Secrets) -> None:
    async def main() -> list[str]:
        guarded = opened_desk(security=rules(secrets, rate=Rate(0.05, 3)), insecure=True)
        async with guarded as (_, network), opened_raw(network, headers=header("alice")) as raw:
            found: list[str] = []
            for _ in range(4):
                raw.ask("hello")
                end = await raw.end()
                found.append(end.get("content") or end["error"]["code"])
            await trio.sleep(60)
            raw.ask("hello")
            found.append((await raw.end())["content"])
            return found

    said = simulate(main)
    assert "RATE_LIMITED" in said
    assert said[-1] == f"{len([each for each in said if each != 'RATE_LIMITED'])}: hello"


def test_agents_that_are_not_to_be_seen_are_not_there(secrets: Secrets) -> None:
    only = ("alice",)
    hidden = rules(secrets, access={"desk": Access(read=only, write=only, invoke=only, subscribe=only)})

    async def main() -> None:
        async with opened_desk(security=hidden, insecure=True) as (_, network):
            for agent in ("desk", "dsek"):
                with pytest.raises(ConnectFailed) as refused:
                    await connect(network, f"{URL}/?agent={agent}", subprotocols=(), headers=header("bob"))
                assert refused.value.status == 404
                assert "did you mean" not in str(refused.value)

    simulate(main)


def test_without_schemes_everybody_is_the_same_caller() -> None:
    async def main() -> list[str]:
        async with opened_desk(security=Security(schemes=(NoSec(),)), insecure=True) as (_, network):
            found: list[str] = []
            session = None
            for _ in range(2):
                async with open_chat(f"{URL}/agents/desk", network=network, session=session) as chat:
                    found.append((await chat.say("hello")).text)
                    session = chat.session
            return found

    assert simulate(main) == ["1: hello", "2: hello"]


def test_a_call_of_another_is_not_resumed_and_no_caller_takes_all_places(secrets: Secrets) -> None:
    async def main() -> None:
        people = ("alice", "bob")
        access = {"parrot": Access(read=people, invoke=people)}
        options = OmniaOptions(calls=3)
        guarded = opened_desk(security=rules(secrets, access=access), insecure=True, omnia=options)
        query = "agent=parrot&binary=true"
        async with guarded as (node, network):
            await node.start(Parrot)
            async with opened_raw(network, query, headers=header("alice")) as raw:
                session = (await raw.next())["session_id"]
                speak(raw, 0, b"one")
                await raw.next("session_config")
            resumed = f"{query}&resume={session}"
            async with opened_raw(network, resumed, headers=header("bob")) as bob:
                assert "resumed" not in (await bob.next())["connected"]
                speak(bob, 0, b"two")  # begins a call of his own, in a session of his own
                assert (await bob.next("connected"))["session_id"] != session
                await bob.next("session_config")
                async with (
                    opened_raw(network, query, headers=header("bob")) as second,
                    opened_raw(network, query, headers=header("bob")) as third,
                ):
                    speak(second, 0, b"one")
                    await second.next("session_config")
                    speak(third, 0, b"one")
                    assert (await third.next("error"))["error"]["code"] == "RATE_LIMITED"
            async with opened_raw(network, resumed, headers=header("alice")) as raw:
                assert (await raw.next())["connected"]["resumed"]

    simulate(main)


def test_no_caller_takes_all_connections(secrets: Secrets) -> None:
    async def main() -> None:
        options = OmniaOptions(connections=4)
        guarded = opened_desk(security=rules(secrets), insecure=True, omnia=options)
        alice, bob = header("alice"), header("bob")
        async with (
            guarded as (_, network),
            opened_raw(network, headers=alice),
            opened_raw(network, headers=alice),
        ):
            with pytest.raises(ConnectFailed) as refused:
                await connect(network, f"{URL}/?agent=desk", subprotocols=(), headers=alice)
            assert refused.value.status == 503
            async with opened_raw(network, headers=bob) as raw:
                raw.ask("hello")
                assert (await raw.end())["content"] == "1: hello"

    simulate(main)
