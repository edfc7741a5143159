"""A chat agent of another server as an agent of this node: sessions, tools, files, every failure there."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, ChildSpec, open_node, simulate
from lmos_actors.facades import (
    ChatAgent,
    ChatMedia,
    ChatPart,
    OmniaOptions,
    RemoteChat,
    TextChunk,
    ToolCalled,
    ToolReturned,
    TurnBegan,
    TurnDone,
    open_chat,
)
from lmos_actors.security import Bearer, BearerToken, Credentials, Security
from lmos_actors.transport import MemoryNetwork
from tests.facades.desk import Desk, opened_desk
from tests.facades.omnia.test_client import Facade, opened_facade
from tests.facades.omnia.test_outgoing_call import HEARD, STORY, plain
from tests.facades.test_calls import Leaver, Parrot
from tests.facades.test_uploads import Clerk
from tests.security.nodes.guarded import Secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from lmos_actors import Ref

FAR = "ws://desk:80/?agent=desk"


async def items_of(far: Ref[Any], text: str, session: str = "s") -> list[Any]:
    async with far.stream(ChatAgent.chat, text, session, new=True) as items:
        return [item async for item in items if not isinstance(item, TurnBegan)]


async def said(far: Ref[Any], text: str, session: str = "s") -> str:
    return "".join(item.text for item in await items_of(far, text, session) if isinstance(item, TurnDone))


def talked(script: Any, main: Callable[[Ref[Any]], Awaitable[Any]], **fields: Any) -> Any:
    """Have a bridge to a script, and talk to it."""

    async def run() -> Any:
        async with opened_facade(script) as (network, _), open_node(network=network) as node:
            made = partial(RemoteChat, url="ws://desk:80", **fields)
            return await main(await node.start_child(ChildSpec("far", made)))

    return simulate(run)


def test_it_is_used_like_an_agent_of_this_node() -> None:
    async def main() -> list[Any]:
        async with opened_desk() as (_, network), open_node(network=network) as node:
            far = await node.start_child(ChildSpec("far", partial(RemoteChat, url=FAR)))
            found: list[Any] = [
                await said(far, "hello"),
                await said(far, "again"),
                await said(far, "other", "t"),
            ]
            called, returned, chunk, done = await items_of(far, "add 2")
            assert isinstance(called, ToolCalled)
            assert (called.name, called.arguments) == ("add", {"a": 1, "b": 2})
            assert returned == ToolReturned(called.id, 3)
            assert (chunk, done) == (TextChunk("sum 3"), TurnDone("sum 3"))
            found.append([each.text for each in await far.invoke(ChatAgent.history, "s")])
            return found

    assert simulate(main) == [
        "1: hello",
        "2: again",
        "1: other",
        ["hello", "1: hello", "again", "2: again", "add 2", "sum 3"],
    ]


async def test_its_sessions_outlive_the_process(tmp_path: Path) -> None:
    async with open_node(listen="ws://127.0.0.1:0", omnia=True) as there:
        await there.start(Desk)
        url = f"{there.urls[0]}/?agent=desk"
        for number in (1, 2):
            async with open_node(store=f"sqlite:{tmp_path / 'chats.db'}") as node:
                far = await node.start_child(ChildSpec("far", partial(RemoteChat, url=url)))
                assert await said(far, "hello") == f"{number}: hello"


def test_what_the_other_server_has_forgotten_begins_anew() -> None:
    async def forgetful(facade: Facade, number: int) -> None:
        facade.announce(f"new-{number}")
        message = await facade.message()
        if "session_id" in message:
            facade.error("SESSION_EXPIRED", "start anew", session_id=message["session_id"])
            return
        facade.done(f"in new-{number}", f"new-{number}")

    async def main(far: Ref[Any]) -> list[str]:
        return [await said(far, "hello") for _ in range(3)]

    assert talked(forgetful, main) == ["in new-1", "in new-3", "in new-5"]


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("error", "TIRED"),
        ("cut", "PROVIDER_ERROR"),
        ("silence", "PROVIDER_ERROR"),
        ("expired", "SESSION_EXPIRED"),
    ],
)
def test_a_failure_there_is_one_here_and_the_next_turn_may_succeed(what: str, code: str) -> None:
    async def fails(facade: Facade, number: int) -> None:
        await facade.message()
        if number > 1:
            facade.done("here again")
        elif what == "error":
            facade.chunk("well")
            facade.error("TIRED", "no more", session_id="s-1")
        elif what == "expired":
            facade.error("SESSION_EXPIRED", "not yours", session_id="s-1")
        elif what == "cut":
            facade.chunk("well")
            await trio.sleep(1)
            facade.connection.close(1011, "")
        else:
            await trio.sleep_forever()

    async def main(far: Ref[Any]) -> tuple[Any, str]:
        with pytest.raises(ActionFailed) as caught:
            await said(far, "hello")
        return caught.value.code, await said(far, "hello")

    assert talked(fails, main, silence=30.0) == (code, "here again")


@pytest.mark.parametrize("taken", [1, 3])
def test_a_caller_that_leaves_between_two_items_leaves_nothing_open(taken: int) -> None:
    left: list[int] = []

    async def floods(facade: Facade, number: int) -> None:
        await facade.message()
        for _ in range(1_000):
            facade.chunk("x")
        await facade.over.wait()
        left.append(number)

    async def main(far: Ref[Any]) -> list[int]:
        async with far.stream(ChatAgent.chat, "hello", "s", new=True) as items:
            for _ in range(taken):
                await anext(items)
            await trio.sleep(1)  # until `reply` waits for room, at its yield
        await trio.sleep(5)
        return list(left)

    assert talked(floods, main) == [1]


def test_a_server_that_forgets_and_then_is_gone() -> None:
    async def forgets(facade: Facade, number: int) -> None:
        message = await facade.message()
        if number == 1:
            facade.done("first")
        elif "session_id" in message:
            facade.error("SESSION_EXPIRED", "start anew", session_id="s-1")
        else:
            facade.connection.close(1011, "gone")

    async def main(far: Ref[Any]) -> Any:
        await said(far, "hello")
        with pytest.raises(ActionFailed) as caught:
            await said(far, "hello")
        return caught.value.code

    assert talked(forgets, main) == "PROVIDER_ERROR"


def test_nobody_is_there() -> None:
    async def main() -> Any:
        async with open_node(network=MemoryNetwork()) as node:
            far = await node.start_child(ChildSpec("far", partial(RemoteChat, url=FAR)))
            with pytest.raises(ActionFailed) as caught:
                await said(far, "hello")
            assert node.crash_reports == ()
            return caught.value.code

    assert simulate(main) == "PROVIDER_ERROR"


def test_a_facade_that_sends_the_whole_answer_alone() -> None:
    async def brief(facade: Facade, _: int) -> None:
        await facade.message()
        facade.done("all of it")

    async def main(far: Ref[Any]) -> list[Any]:
        return await items_of(far, "hello")

    assert talked(brief, main) == [TextChunk("all of it"), TurnDone("all of it")]


def test_files_are_passed_on(tmp_path: Path) -> None:
    async def main() -> str:
        network = MemoryNetwork()
        there = open_node(
            listen="ws://desk:80", omnia=OmniaOptions(uploads=str(tmp_path / "there")), network=network
        )
        here = open_node(
            listen="ws://here:80", omnia=OmniaOptions(uploads=str(tmp_path / "here")), network=network
        )
        async with there as far_node, here as node:
            await far_node.start(Clerk)
            made = partial(RemoteChat, url="ws://desk:80/?agent=clerk")
            await node.start_child(ChildSpec("far", made))
            async with open_chat("ws://here:80/?agent=far", network=network) as chat:
                part = await chat.upload(b"the text", "text/plain", "a.txt")
                embedded = ChatPart("file", media=ChatMedia("text/plain", data="aGk="))
                return (await chat.say(parts=[part, embedded])).text

    assert simulate(main) == "file:the text file:hi "


def test_a_caller_that_leaves_ends_the_turn_there() -> None:
    ended: list[float] = []

    async def endless(facade: Facade, _: int) -> None:
        await facade.message()
        try:
            while True:
                facade.chunk("x")
                await trio.sleep(1)
        finally:
            ended.append(trio.current_time())

    async def main(far: Ref[Any]) -> float:
        with trio.move_on_after(5):
            await said(far, "hello")
        left = trio.current_time()
        await trio.sleep(30)
        return left

    left = talked(endless, main)
    assert ended
    assert ended[0] - left < 10


def position(accuracy: str) -> str:
    """Return where this is."""
    return f"Bonn, {accuracy}"


def add(a: int, b: int) -> int:
    """Return anything but the sum."""
    return -1


async def consent(call: ToolCalled) -> bool:
    await trio.lowlevel.checkpoint()
    return call.arguments != {"accuracy": "none"}


@pytest.mark.parametrize(
    ("text", "tools", "wanted"),
    [
        ("ask high", [position], "found Bonn, high"),
        ("ask none", [position], "TOOL_ERROR: the tool 'position' failed"),
        ("ask high", [], "TOOL_ERROR: the tool 'position' failed"),
        ("add 2", [add], "sum 3"),  # what the other server only shows
    ],
)
def test_tools_of_clients_pass_through(text: str, tools: list[Any], wanted: str) -> None:
    async def main() -> str:
        async with (
            opened_desk() as (_, network),
            open_node(listen="ws://here:80", omnia=True, network=network) as node,
        ):
            await node.start_child(ChildSpec("far", partial(RemoteChat, url=FAR)))
            chat = open_chat("ws://here:80/?agent=far", network=network, tools=tools, consent=consent)
            async with chat as opened:
                began = trio.current_time()
                try:
                    return (await opened.say(text)).text
                except ActionFailed as error:
                    return str(error)
                finally:
                    assert trio.current_time() - began < 1, "nobody waits for a client in vain"

    assert simulate(main) == wanted


@pytest.mark.parametrize("has_credentials", [True, False])
def test_it_presents_credentials_of_its_own(tmp_path: Path, has_credentials: bool) -> None:
    secrets = Secrets(tmp_path)
    own = Credentials({"http://desk": BearerToken(secrets.put("out", "token-alice"))}, allow_insecure=True)

    async def main() -> str:
        security = Security(schemes=(Bearer({"alice": secrets.put("alice", "token-alice")}),))
        async with (
            opened_desk(security=security, insecure=True) as (_, network),
            open_node(network=network) as node,
        ):
            made = partial(RemoteChat, url=FAR, credentials=own if has_credentials else None)
            far = await node.start_child(ChildSpec("far", made))
            try:
                return await said(far, "who")
            except ActionFailed as error:
                return f"{error.code} {'401' in str(error)}"

    assert simulate(main) == ("alice" if has_credentials else "PROVIDER_ERROR True")


def test_a_call_is_passed_on_in_both_directions() -> None:
    async def main() -> None:
        async with opened_desk() as (there, network), open_node(network=network) as node:
            for cls in (Parrot, Leaver):
                await there.start(cls)

            numbers = count()

            async def spoken(agent: str, *frames: bytes) -> list[Any]:
                async def sound() -> AsyncIterator[bytes]:
                    for frame in frames:
                        yield frame

                made = partial(RemoteChat, url=f"ws://desk:80/?agent={agent}")
                far = await node.start_child(ChildSpec(f"far-{next(numbers)}", made))
                async with far.stream(ChatAgent.call, sound(), "s", new=True) as items:
                    return plain([item async for item in items][1:])

            assert await spoken("parrot", *STORY) == [*HEARD[:-1], TurnDone()]
            assert await spoken("parrot", b"what?") == HEARD[1:5]
            for agent, code in (("desk", "MEDIA_NOT_ENABLED"), ("leaver", "UNSATISFIABLE_FORMAT")):
                with pytest.raises(ActionFailed, match=code):
                    await spoken(agent, b"one")
            with pytest.raises(ActionFailed, match="PROVIDER_ERROR"):
                await spoken("nobody", b"one")
            with pytest.raises(ActionFailed, match="INTERNAL_ERROR"):
                await spoken("parrot", b"crash")

    simulate(main)
