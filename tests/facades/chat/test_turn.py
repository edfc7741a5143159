"""What a chat agent remembers of its users, by their principals, and of those without a name."""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, open_node, simulate
from lmos_actors.facades import ChatAgent, ChatPart, ChatTurn, Sound, TextChunk, VoiceCall, open_chat
from lmos_actors.persistence import MemoryStore
from lmos_actors.security import Access, Bearer, BearerToken, Credentials, NoSec, Security
from lmos_actors.transport import MemoryNetwork
from tests.facades.chat.test_kept_turns import Book, Planner, ask, killed, life
from tests.facades.lives import Mortal
from tests.security.nodes.guarded import Secrets
from tests.thinking.models import answered

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from lmos_actors.facades import Chat

URL = "ws://desk:80"


class Waiter(ChatAgent):
    """Remembers what it is told behind a plus, and says all that it knows."""

    async def reply(self, turn: ChatTurn) -> str:
        word, _, rest = turn.text.partition(" ")
        if word == "+":
            return await turn.memories.remember(rest)
        if word == "-":
            return str(await turn.memories.forget(rest))
        return "; ".join(each.text for each in await turn.memories.recall(rest))

    async def talk(self, call: VoiceCall) -> None:
        await call.say("; ".join(each.text for each in await call.memories.recall()))
        await call.finish()


class Reception(Waiter):
    """Has guests whose names its client says."""

    def identity_for(self, turn: ChatTurn | VoiceCall) -> str | None:
        return f"{turn.principal}/{turn.metadata['guest']}" if "guest" in turn.metadata else None


def security(secrets: Secrets) -> Security:
    tokens = {name: secrets.put(name, f"token-{name}") for name in ("alice", "bob")}
    anybody = Access(read="anyone", invoke="anyone")
    return Security(schemes=(NoSec(), Bearer(tokens)), access={"*": anybody})


def chat_of(
    name: str | None, network: MemoryNetwork, secrets: Secrets, agent: str = "waiter"
) -> AbstractAsyncContextManager[Chat]:
    url = f"{URL}/agents/{agent}"
    if name is None:
        return open_chat(url, network=network)
    place = {"http://desk": BearerToken(secrets.put(f"{name}-out", f"token-{name}"))}
    return open_chat(url, network=network, credentials=Credentials(place, allow_insecure=True))


def guarded(secrets: Secrets, work: Any, kind: type[ChatAgent] = Waiter) -> None:
    """Run a test on a node that knows alice and bob, and lets others talk, too."""

    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(
            listen=URL, omnia=True, network=network, security=security(secrets), insecure=True
        ) as node:
            await node.start(kind)
            await work(node, network)

    simulate(main)


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


def test_each_principal_has_its_own(secrets: Secrets) -> None:
    async def work(_: Any, network: MemoryNetwork) -> None:
        async with chat_of("alice", network, secrets) as chat:
            id = (await chat.say("+ likes tea")).text
        async with chat_of("bob", network, secrets) as chat:
            assert (await chat.say("? tea")).text == ""
            assert (await chat.say("?")).text == ""
            assert (await chat.say(f"- {id}")).text == "False"
            await chat.say("+ likes coffee")
        async with chat_of("alice", network, secrets) as chat:
            assert (await chat.say("? likes")).text == "likes tea"
            async with chat.call() as call:
                call.hang_up()
                found = [item.text async for item in call if isinstance(item, TextChunk)]
                assert found == ["likes tea"]

    guarded(secrets, work)


def test_callers_without_a_name_have_none_on_a_guarded_node(secrets: Secrets) -> None:
    async def work(node: Any, network: MemoryNetwork) -> None:
        async with chat_of(None, network, secrets) as chat:
            for text in ("+ a secret", "? secret", "- 00"):
                with pytest.raises(ActionFailed, match="this caller has no name") as refused:
                    await chat.say(text)
                assert refused.value.code == "NO_IDENTITY"
        with pytest.raises(ActionFailed, match="NO_IDENTITY"):
            await answered(node.find(Waiter), "+ a secret")

    guarded(secrets, work)


def test_an_agent_may_decide_whose_memories_they_are(secrets: Secrets) -> None:
    async def work(_: Any, network: MemoryNetwork) -> None:
        async with chat_of("alice", network, secrets, "reception") as chat:
            await chat.say("+ likes tea", metadata={"guest": "ann"})
            assert (await chat.say("?", metadata={"guest": "ben"})).text == ""
            assert (await chat.say("?", metadata={"guest": "ann"})).text == "likes tea"
            with pytest.raises(ActionFailed, match="NO_IDENTITY"):
                await chat.say("?")
        async with chat_of("bob", network, secrets, "reception") as chat:
            assert (await chat.say("?", metadata={"guest": "ann"})).text == ""

    guarded(secrets, work, Reception)


async def test_without_security_all_callers_are_one() -> None:
    async with open_node() as node:
        waiter = await node.start(Waiter)
        await answered(waiter, "+ likes tea", "one", new=True)
        assert await answered(waiter, "? tea", "two", new=True) == "likes tea"
        assert await waiter.invoke(Waiter.forget, "one")
        assert await answered(waiter, "? tea", "two") == "likes tea", "a session is no memory"


async def test_a_turn_that_fails_takes_nothing_back() -> None:
    class Clumsy(Waiter):
        async def reply(self, turn: ChatTurn) -> str:
            found = await super().reply(turn)
            if turn.text.startswith("+"):
                raise ValueError("oh")
            return found

    async with open_node() as node:
        clumsy = await node.start(Clumsy)
        with pytest.raises(ActionFailed, match="INTERNAL_ERROR"):
            await answered(clumsy, "+ likes tea")
        assert await answered(clumsy, "?") == "likes tea"


class Noter(Planner):
    """Remembers a fact, and is killed before it has recorded that; in its next life it does so again."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart]:
        await turn.memories.remember("likes tea")
        if not turn.is_resumed:
            self.book.waits.set()
            await trio.sleep_forever()
        yield "; ".join(each.text for each in await turn.memories.recall())
        self.book.may_go_on.set()


async def test_a_resumed_turn_has_the_memories_of_its_user_and_no_fact_twice() -> None:
    store, book = Mortal(MemoryStore()), Book()
    async with killed(store, book, Noter) as noter, trio.open_nursery() as nursery:
        nursery.start_soon(ask, noter, "I like tea")
        await book.waits.wait()
        store.is_dead = True
        nursery.cancel_scope.cancel()
    async with life(store, book, Noter) as noter:
        await book.may_go_on.wait()
        said = await noter.invoke(Noter.history, "s", True)
    assert [each.text for each in said] == ["I like tea", "likes tea"]


def test_a_turn_without_an_agent_has_none() -> None:
    turn = ChatTurn("s", "hello", new_id=lambda: "1")
    with pytest.raises(RuntimeError, match="belong to an agent"):
        _ = turn.memories


async def sound() -> AsyncGenerator[bytes]:
    yield b"x"


async def test_a_call_near_has_them_too() -> None:
    async with open_node() as node:
        waiter = await node.start(Waiter)
        await answered(waiter, "+ likes tea")
        async with waiter.stream(Waiter.call, sound()) as items:
            found = [item async for item in items]
        assert [item.text for item in found if isinstance(item, TextChunk)] == ["likes tea"]
        assert not any(isinstance(item, Sound) for item in found)
