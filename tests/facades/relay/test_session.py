"""An agent on a relay: one table of behaviours over our hub and those that were recorded; and odd hubs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings, strategies as st

from lmos_actors import ActionFailed, OutcomeUnknown, StartFailed, open_node, simulate
from lmos_actors.errors import ConfigError, ConnectFailed
from lmos_actors.facades import (
    RelayAnswer,
    RelayMember,
    RelayMessage,
    RelayPeer,
    Welcomed,
    join_relay,
    open_relay,
    revoke_on_relay,
)
from lmos_actors.live import open_live
from lmos_actors.persistence import SimulatedStore
from lmos_actors.transport import Refuse
from tests.bindings.web_things import say, sites
from tests.facades.relays import URL, WORLDS, Script, hub_with, ours, scripted
from tests.matrix import examples
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.facades import Relay

every_relay = pytest.mark.parametrize("world", WORLDS)


def played(world: str, main: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with WORLDS[world]() as join:
            with trio.fail_after(1_000):
                return await main(join)

    return simulate(run)


async def heard(relay: Relay) -> RelayMessage:
    """Return the next message that is meant for an agent."""
    while not isinstance(event := await relay.__anext__(), RelayMessage) or not event.is_for(relay.id):
        pass
    return event


async def drained(relay: Relay) -> None:
    """Read to the end."""
    async for _ in relay:
        pass


@every_relay
def test_a_question_to_all_is_answered(world: str) -> None:
    async def main(join: Any) -> None:
        async with join("one") as one, join("two") as two, join("three") as three:

            async def answer() -> None:
                question = await heard(two)
                assert (question.sender, question.type, question.payload) == (
                    "one",
                    "question",
                    [1, {"a": None}],
                )
                await two.say("first", "one", type="answer", ref="something else")
                await two.answer(question, "second")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer)
                found = await one.ask([1, {"a": None}])
            assert (found.sender, found.payload) == ("two", "second")
            assert (await heard(three)).payload == [1, {"a": None}]
            assert (await heard(one)).payload == "first"  # the other answer is a message like any other
            assert one.way == {"ours": "receipts", "seed-day": "ref"}.get(world, "echo")

    played(world, main)


@every_relay
def test_direct_questions_side_by_side_find_their_answers(world: str) -> None:
    async def main(join: Any) -> None:
        async with join("one") as one, join("two") as two, join("three") as three:

            async def answer(relay: Relay) -> None:
                questions = [await heard(relay) for _ in range(10)]
                assert {each.to for each in questions} in (
                    {("*", relay.id)},
                    {(relay.id, "one")},
                    {(relay.id,)},
                )
                for each in reversed(questions):
                    await relay.answer(each, {"to": each.payload})

            found: dict[tuple[str, int], Any] = {}

            async def ask(name: str, number: int) -> None:
                found[name, number] = (await one.ask(number, name)).payload

            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer, two)
                nursery.start_soon(answer, three)
                for number in range(10):
                    nursery.start_soon(ask, "two", number)
                    nursery.start_soon(ask, "three", number)
            wanted = {(name, number): {"to": number} for name in ("two", "three") for number in range(10)}
            assert found == wanted

    played(world, main)


@every_relay
def test_a_question_that_is_given_up_leaves_nothing_behind(world: str) -> None:
    async def main(join: Any) -> None:
        async with join("one") as one, join("two") as two:
            for number in range(3):
                with trio.move_on_after(5):
                    await one.ask(number, "two")
            questions = [await heard(two) for _ in range(3)]
            for each in questions:
                await two.answer(each, "late")

            async def answer() -> None:
                await two.answer(await heard(two), "in time")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer)
                assert (await one.ask(3, "two")).payload == "in time"
            assert [(await heard(one)).payload for _ in range(3)] == ["late"] * 3
            left = [one._asked, one._flight, one._queue]
            assert not any(left)

    played(world, main)


@every_relay
def test_only_those_who_were_asked_answer(world: str) -> None:
    async def main(join: Any) -> None:
        async with join("one") as one, join("two") as two, join("three") as three:

            async def answer() -> None:
                question = await heard(two)
                await three.answer(question, "not mine")
                await trio.sleep(1)
                await two.answer(question, "mine")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer)
                assert (await one.ask("how are you?", "two")).payload == "mine"
            assert (await heard(one)).payload == "not mine"

    played(world, main)


@pytest.mark.parametrize(
    ("can", "has_direct"),
    [
        (["broadcast", "direct"], True),
        (["broadcast", "direct"], False),
        (["broadcast", "direct", "subscribe"], True),
    ],
)
def test_whether_there_are_direct_messages_is_found_out(can: list[str], *, has_direct: bool) -> None:
    targets: list[Any] = []

    async def script(hub: Script) -> None:
        payload = {"relay": "odd", "capabilities": can, "extensions": []}
        hub.send({"id": "w", "from": "relay", "to": ["me"], "type": "welcome", "payload": payload, "ts": 5})
        said = await hub.next()
        if said.get("type") == "probe":
            assert "subscribe" not in can
            if has_direct:
                hub.send({**said, "id": "p", "from": "me", "ts": 5})
            said = await hub.next()
        targets.append(said["to"])

    async def run() -> None:
        async with scripted(script) as (network, _), open_relay(URL, network=network) as relay:
            await relay.say("psst", "friend")
            assert relay.way == ("echo" if has_direct else "ref")
            await trio.sleep(1)

    simulate(run)
    assert targets == [["friend"] if has_direct else ["*", "friend"]]


@pytest.mark.parametrize("world", ["ours", "ours without extensions", "reference", "rawk"])
def test_following_and_commands(world: str) -> None:
    async def main(join: Any) -> None:
        async with join("one") as one, join("two") as two:
            await one.follow("two", "three")
            listed = await one.command("list_subscriptions")
            assert sorted(listed.payload["agents"]) == ["three", "two"]
            await one.unfollow("three")
            assert (await one.command("list_subscriptions")).payload == {"agents": ["two"]}
            await two.say("once", type="thought")
            await two.say("twice", type="thought")
            assert [(await heard(one)).payload for _ in range(2)] == ["once", "twice"]

    played(world, main)


def test_receipts_and_refusals() -> None:
    async def main(join: Any) -> None:
        async with join("one") as one, join("two") as two:
            receipt = await one.say(1, ["two", "nobody"])
            assert (receipt.delivered, receipt.unknown) == (1, ("nobody",))
            assert (await heard(two)).id == receipt.id
            with pytest.raises(ActionFailed) as refused:
                await one.ask("anybody?", "nobody")
            assert refused.value.code == "nobody"
            with pytest.raises(ActionFailed) as refused:
                await one.command("fly")
            assert refused.value.code == "unknown_command"
            with pytest.raises(ActionFailed) as refused:
                await one.say([], ["x"] * 300)
            assert refused.value.code == "invalid_message"
            with pytest.raises(ValueError, match="a message has targets"):
                await one.say(1, [])
            with pytest.raises(TypeError):
                await one.say(object())
            assert (await one.command("ping")).type == "pong"

    played("ours", main)


def test_a_connection_that_breaks_is_made_again_and_nothing_is_heard_twice() -> None:
    async def script(hub: Script) -> None:
        hub.welcome("me")
        if hub.number == 1:
            assert (await hub.next())["payload"] == {"agents": ["friend"]}
            hub.send({"id": "1", "from": "friend", "to": ["*"], "payload": "one", "ts": 5})
            hub.connection.close(1012, "restart")
            return
        hub.send({"id": "1", "from": "friend", "to": ["*"], "payload": "one", "ts": 5})
        hub.send({"id": "2", "from": "friend", "to": ["*"], "payload": "two", "ts": 5})
        assert (await hub.next())["payload"] == {"agents": ["friend"]}
        assert (await hub.next())["payload"] == "from me"
        hub.send({"id": "3", "from": "friend", "to": ["*"], "payload": "three", "ts": 5})

    async def run() -> list[Any]:
        async with (
            scripted(script) as (network, upgrades),
            open_relay(URL, network=network, follow=["friend"]) as relay,
        ):
            found = [(await heard(relay)).payload]
            await trio.sleep(0.05)
            await relay.say("from me")
            found += [(await heard(relay)).payload for _ in range(2)]
            assert len(upgrades) == relay.connections == 2
            return found

    assert simulate(run) == ["one", "two", "three"]


def test_what_was_sent_and_not_acknowledged_is_unknown() -> None:
    async def script(hub: Script) -> None:
        hub.welcome("me", "receipts")
        await hub.next()
        hub.connection.close(1011, "oh")

    async def run() -> None:
        async with scripted(script) as (network, _), open_relay(URL, network=network) as relay:
            for verb in (relay.say, relay.ask):
                with pytest.raises(OutcomeUnknown, match="the connection ended with 1011: oh"):
                    await verb("hello")
            with pytest.raises(OutcomeUnknown):
                await relay.command("ping")

    simulate(run)


def test_a_question_whose_id_is_known_is_unknown_too_once_the_connection_ends() -> None:
    async def script(hub: Script) -> None:
        hub.welcome("me", "receipts")
        asked = await hub.next()
        payload = {"receipt": asked["receipt"], "delivered": 1, "unknown": []}
        hub.send(
            {"id": "r", "from": "relay", "to": ["me"], "type": "receipt", "ref": "q-1", "payload": payload}
        )
        await trio.sleep(1)
        hub.connection.close(1012, "restart")

    async def run() -> None:
        async with scripted(script) as (network, _), open_relay(URL, network=network) as relay:
            with pytest.raises(OutcomeUnknown):
                await relay.ask("hello")

    simulate(run)


async def nothing(hub: Script) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("code", [1008, 4001, 4009])
def test_a_relay_that_takes_the_agent_no_more(code: int) -> None:
    async def script(hub: Script) -> None:
        hub.welcome()
        await trio.sleep(1)
        hub.connection.close(code, "because")

    async def run() -> None:
        async with scripted(script) as (network, upgrades), open_relay(URL, network=network) as relay:
            with pytest.raises(ConnectFailed, match=f"closed with {code}: because"):
                await drained(relay)
            for verb in (relay.say, relay.ask, relay.command):
                with pytest.raises(ConnectFailed, match="because"):
                    await verb("ping")
            await trio.sleep(100)
            assert len(upgrades) == 1

    simulate(run)


@pytest.mark.parametrize(
    ("refuse", "waits"),
    [
        (Refuse(503, "busy"), (0.1, 2)),
        (Refuse(429, "wait", ((b"retry-after", b"20"),)), (20, 22)),
        (Refuse(502, "bad gateway"), (0.1, 2)),
    ],
)
def test_a_relay_that_is_busy_is_asked_again(refuse: Refuse, waits: tuple[float, float]) -> None:
    async def script(hub: Script) -> None:
        hub.welcome()
        if hub.number == 1:
            await trio.sleep(40)
            hub.connection.close(1012, "restart")
        else:
            await trio.sleep_forever()

    async def run() -> None:
        async with (
            scripted(script, lambda number: refuse if number == 2 else None) as (network, upgrades),
            open_relay(URL, network=network) as relay,
        ):
            began = trio.current_time()
            while relay.connections < 2:
                await relay.__anext__()
            assert len(upgrades) == 3
            least, most = waits
            assert 40 + least < trio.current_time() - began < 40 + most

    simulate(run)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_relay_that_does_not_know_the_agent(status: int) -> None:
    async def script(hub: Script) -> None:
        hub.welcome()
        await trio.sleep(1)
        hub.connection.close(1012, "restart")

    async def run() -> None:
        refuse = Refuse(status, "no")
        async with scripted(nothing, lambda _: refuse) as (network, _):
            with pytest.raises(ConnectFailed) as failed:
                async with open_relay(URL, network=network):
                    raise AssertionError
            assert failed.value.status == status
        async with (
            scripted(script, lambda number: refuse if number == 2 else None) as (network, upgrades),
            open_relay(URL, network=network) as relay,
        ):
            with pytest.raises(ConnectFailed) as failed:
                await drained(relay)
            assert failed.value.status == status
            await trio.sleep(100)
            assert len(upgrades) == 2

    simulate(run)


def test_a_rate_is_waited_out() -> None:
    async def script(hub: Script) -> None:
        hub.welcome()
        if hub.number == 1:
            hub.connection.close(4029, "rate limit")
        else:
            await trio.sleep_forever()

    async def run() -> None:
        async with scripted(script) as (network, _), open_relay(URL, network=network) as relay:
            began = trio.current_time()
            await relay.__anext__()
            while relay.connections < 2:
                await relay.__anext__()
            assert 60 < trio.current_time() - began < 62

    simulate(run)


def test_a_relay_without_a_welcome() -> None:
    async def script(hub: Script) -> None:
        said = await hub.next()
        assert (said["from"], said["to"], said["payload"]) == ("me", ["*"], "hello")
        hub.send({"id": "1", "from": "friend", "to": ["*"], "payload": "hi", "ts": 5})

    async def run() -> float:
        async with scripted(script) as (network, _):
            began = trio.current_time()
            async with open_relay(URL, id="me", network=network) as relay:
                await relay.say("hello")
                assert (await heard(relay)).payload == "hi"
                assert (relay.welcome, relay.way) == (None, "ref")
                return trio.current_time() - began

    assert simulate(run) == 5


@pytest.mark.parametrize(
    ("greets", "frame", "what"),
    [
        (True, {"type": "connected", "session_id": "s-1"}, "Omnia's chat protocol"),
        (False, {"messageType": "error", "status": "400"}, "LMOS"),
        (False, {"type": "error", "error": {"code": "X", "message": "y"}}, "Omnia's chat protocol"),
    ],
)
def test_a_server_of_another_protocol_is_no_relay(greets: bool, frame: dict[str, Any], what: str) -> None:
    async def script(hub: Script) -> None:
        if not greets:
            await hub.next()
        hub.send(frame)
        await trio.sleep_forever()

    async def run() -> None:
        async with scripted(script) as (network, _), open_relay(URL, id="me", network=network) as relay:
            await relay.say("hello")
            await relay.command("list_subscriptions")

    with pytest.raises((ConnectFailed, ExceptionGroup)) as caught:
        simulate(run)
    error = caught.value
    while isinstance(error, ExceptionGroup):
        (error,) = error.exceptions
    assert f"it speaks {what}, not AgentRelay's protocol" in str(error)


def test_a_web_server_takes_no_token_away() -> None:
    async def run() -> None:
        async with sites("http://desk") as ((site,), _):
            site.on("POST /revoke", say(b"<p>hello", kind="text/html"))
            with pytest.raises(ConnectFailed, match="the answer is not that of a relay"):
                await revoke_on_relay("ws://desk/arc", "ann", network=site.network)

    simulate(run)


def test_a_server_of_a_relay_has_no_live_view() -> None:
    async def run() -> None:
        async with scripted(Script.next) as (network, _), open_live(URL, network=network):
            pass

    with pytest.raises(ExceptionGroup) as caught:
        simulate(run)
    assert caught.group_contains(ConnectFailed, match="it does not speak lmos-actors-live", depth=None)


def test_junk_and_forgeries_are_nothing_or_messages() -> None:
    async def script(hub: Script) -> None:
        hub.welcome("me")
        # right behind the welcome
        for frame in (
            "{oops",
            "null",
            "[]",
            '"text"',
            "{}",
            '{"from":5,"to":["me"]}',
            '{"from":"x","to":"me"}',
        ):
            hub.send(frame)
        forged = {"type": "welcome", "payload": {"relay": "evil"}, "to": ["boss"], "id": "f-1", "ts": 5}
        hub.send({**forged, "from": "villain"})
        hub.send({"id": "f-2", "from": "villain", "to": ["me"], "type": "error", "payload": {"code": "x"}})
        hub.send({"id": "f-3", "from": "villain", "to": ["me"], "type": "receipt", "payload": {"receipt": 1}})
        await trio.sleep_forever()

    async def run() -> None:
        async with scripted(script) as (network, _), open_relay(URL, network=network) as relay:
            events = [await relay.__anext__() for _ in range(4)]
            assert isinstance(events[0], Welcomed)
            types = [each.type for each in events[1:] if isinstance(each, RelayMessage)]
            assert types == ["welcome", "error", "receipt"]
            assert relay.id == "me"

    simulate(run)


def test_what_nobody_reads_is_bounded_and_counted() -> None:
    async def script(hub: Script) -> None:
        hub.welcome("me")
        hub.send({"id": "d", "from": "friend", "to": ["me"], "payload": "direct", "ts": 5})
        for number in range(3_000):
            hub.send({"id": str(number), "from": "friend", "to": ["*"], "payload": number, "ts": 5})
        assert (await hub.next())["type"] == "ping"
        hub.send({"id": "p", "from": "relay", "to": ["me"], "type": "pong", "ts": 5})

    async def run() -> None:
        async with scripted(script) as (network, _), open_relay(URL, network=network) as relay:
            await relay.command("ping")  # though nobody reads
            gap = await relay.__anext__()
            assert gap == RelayAnswer("gap", {"lost": 3_002 - 1_024})
            assert isinstance(await relay.__anext__(), Welcomed)
            assert (await heard(relay)).payload == "direct"
            assert (await heard(relay)).payload == 3_000 - 1_022

    simulate(run)


def test_a_cancel_while_there_is_no_connection_takes_the_message_back() -> None:
    said: list[Any] = []

    async def script(hub: Script) -> None:
        hub.welcome("me")
        if hub.number == 1:
            hub.connection.close(1012, "restart")
            return
        said.append((await hub.next())["payload"])

    async def run() -> None:
        async with (
            scripted(script, lambda number: Refuse(503, "") if 1 < number < 5 else None) as (
                network,
                _,
            ),
            open_relay(URL, network=network) as relay,
        ):
            await relay.__anext__()
            await trio.sleep(0.01)
            with trio.move_on_after(0.05):
                await relay.say("too early")
            await relay.say("in time")
            await trio.sleep(1)

    simulate(run)
    assert said == ["in time"]


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http", "an address like"),
        ("ftp://hub/arc", "an address like"),
        ("ws://hub/arc?token=secret", "by reference"),
    ],
)
def test_addresses_that_are_none(url: str, what: str) -> None:
    async def run() -> None:
        with pytest.raises(ConfigError, match=what):
            async with open_relay(url):
                raise AssertionError

    trio.run(run)


def test_a_second_connection_of_an_agent_ends_the_first() -> None:
    async def main() -> None:
        async with ours() as join, join("one") as one:
            first_credentials = one._credentials
            async with open_relay(URL, network=one._network, credentials=first_credentials) as again:
                with pytest.raises(ConnectFailed, match="4009: replaced"):
                    await drained(one)
                assert (await again.command("ping")).type == "pong"

    simulate(main)


# ---- as an agent of a node


def test_an_agent_of_a_node_joins_says_asks_hears_and_comes_back() -> None:
    async def main() -> None:
        async with hub_with("one", "two") as (network, tokens), open_node(network=network) as node:
            one = await join_relay(node, f"{URL}/arc", name="one", credentials=tokens["one"])
            two = await join_relay(node, f"{URL}/arc", name="two", credentials=tokens["two"], follow=["one"])

            async def answer() -> None:
                async with two.subscribe(RelayMember.heard) as messages:
                    ready.set()
                    async for message in messages:
                        if message.type == "question":
                            await two.invoke(RelayMember.answer, message, {"you asked": message.payload})

            ready = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer)
                await ready.wait()
                found = await one.invoke(RelayMember.ask, "how are you?", ["two"])
                assert (found.sender, found.payload) == ("two", {"you asked": "how are you?"})
                receipt = await one.invoke(RelayMember.say, "hello")
                assert receipt is not None
                assert receipt.delivered == 1
                pong = await one.invoke(RelayMember.command, "ping")
                assert pong.type == "pong"
                nursery.cancel_scope.cancel()

    simulate(main)


def test_an_agent_that_the_relay_takes_no_more_ends_with_the_reason() -> None:
    async def main() -> None:
        async with hub_with("one") as (network, tokens), open_node(network=network) as node:
            one = await join_relay(node, f"{URL}/arc", credentials=tokens["one"])
            async with (
                one.monitor() as downs,
                open_relay(URL, network=network, credentials=tokens["one"]),
            ):
                async for down in downs:
                    assert "closed with 4009: replaced" in str(down.reason)
                    break
            with pytest.raises(StartFailed):
                await join_relay(node, f"{URL}/nowhere", name="two", credentials=tokens["one"])

    simulate(main)


# ---- agents of the relay, as agents here


async def introduce(relay: Relay, payload: Any) -> None:
    await relay.say(payload, type="discovery")


def test_agents_that_introduce_themselves_are_agents_of_the_node() -> None:
    async def answer(relay: Relay) -> None:
        async for heard_ in relay:
            if isinstance(heard_, RelayMessage) and heard_.type == "question":
                failed = heard_.payload == "fail"
                await relay.answer(heard_, {"error": {"code": "NO", "message": "no"}} if failed else "fine")

    async def main() -> None:
        extensions = ("receipts", "presence")
        async with (
            hub_with("mine", "bot", extensions=extensions) as (network, tokens),
            open_node(listen="ws://place:80", network=network) as node,
        ):
            await join_relay(node, URL, credentials=tokens["mine"], peers=True, follow=["bot"])
            async with (
                open_relay(URL, network=network, credentials=tokens["bot"]) as bot,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(answer, bot)
                await introduce(bot, {"description": "Knows it.", "skills": ["weather", "no word", 5]})
                peer = node.find(RelayPeer, "bot")
                await peer.ready()
                assert peer.path == "member/bot"
                assert await peer.invoke(RelayPeer.ask, "how is it?") == "fine"
                with pytest.raises(ActionFailed) as failed:
                    await peer.invoke(RelayPeer.ask, "fail")
                assert failed.value.code == "NO"
                (found,) = await node.search(RelayPeer, capability="weather")
                assert found.name == "member/bot"
                async with peer.subscribe(RelayPeer.message) as messages:
                    await bot.say("to all")
                    assert (await messages.receive()).payload == "to all"
                thing = await node.consume_thing("http://place:80/agents/member.bot", local=True)
                assert await thing.invoke("ask", {"payload": "from afar"}) == "fine"
                await introduce(bot, {"description": "A flood."})  # too soon: it is the same still
                await bot.say("again")
                assert await peer.invoke(RelayPeer.ask, "and now?") == "fine"
                nursery.cancel_scope.cancel()
            await trio.sleep(1)
            assert [ref.path for ref in node.agents()] == ["member"]

    simulate(main)


@pytest.mark.parametrize(
    "payload", [None, 5, [], "a text", {"description": 5, "skills": "x"}, {"skills": [None, "x" * 100, "ok"]}]
)
def test_whatever_an_agent_says_about_itself(payload: Any) -> None:
    async def main() -> None:
        async with hub_with("mine", "bot") as (network, tokens), open_node(network=network) as node:
            await join_relay(node, URL, credentials=tokens["mine"], peers=True)
            async with open_relay(URL, network=network, credentials=tokens["bot"]) as bot:
                await introduce(bot, payload)
                peer = node.find(RelayPeer, "bot")
                await peer.ready()
                receipt = await peer.invoke(RelayPeer.say, "hello")
                assert receipt is not None
                assert (await heard(bot)).payload == "hello"

    simulate(main)


# ---- anything at all

NAMES = st.sampled_from(
    [
        "from", "to", "type", "payload", "ref", "id", "ts", "relay", "welcome", "error", "code", "message",
        "receipt", "delivered", "unknown", "subscribed", "pong", "agents", "capabilities", "extensions",
        "limits", "name", "mine", "*", "question", "lost", "gap", "",
    ]
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
FRAMES = st.dictionaries(NAMES, VALUES, max_size=7) | st.fixed_dictionaries(
    {"from": st.just("relay"), "to": st.just(["mine"]), "type": NAMES, "payload": VALUES},
    optional={"ref": VALUES, "id": VALUES},
)


@pytest.mark.slow
@given(st.lists(FRAMES, max_size=20))
@settings(max_examples=examples(200), deadline=None)
def test_whatever_a_relay_sends_the_agent_goes_on(frames: list[Any]) -> None:
    async def script(hub: Script) -> None:
        hub.welcome("mine", "receipts")
        asked = await hub.next()
        for frame in frames:
            hub.send(frame)
        payload = {"receipt": asked["receipt"], "delivered": 1, "unknown": []}
        hub.send(
            {"id": "r", "from": "relay", "to": ["mine"], "type": "receipt", "ref": "q", "payload": payload}
        )
        await trio.sleep_forever()

    async def run() -> None:
        async with scripted(script) as (network, _), open_relay(URL, network=network) as relay:
            with trio.fail_after(10):
                try:
                    receipt = await relay.say("hello")
                    assert receipt is not None
                    assert receipt.delivered == 1
                except ActionFailed:  # an error without a receipt is about the oldest message
                    assert any("error" in (*each, each.get("type")) for each in frames)
            assert relay.connections == 1

    simulate(run)


def test_an_answer_does_not_wait_for_the_disk_but_a_receipt_does() -> None:
    disk = simulated_disk(1, lambda: 0.5)
    hub = partial(ours, SimulatedStore(disk), extensions=("receipts", "history"))

    async def main() -> None:
        async with hub() as join, join("one") as one, join("two") as two, trio.open_nursery() as nursery:

            async def answer() -> None:
                question = await heard(two)
                await two.answer(question, "noon")

            nursery.start_soon(answer)
            began = trio.current_time()
            assert (await one.ask("what time is it?", "two")).payload == "noon"
            assert trio.current_time() - began < 0.5
            said = await one.say("thanks", "two")
            assert said is not None
            assert (said.delivered, trio.current_time() - began >= 0.5) == (1, True)
            disk.full = True
            with pytest.raises(ActionFailed, match="it was passed on, and the relay could not keep it"):
                await one.say("again", "two")

    simulate(main)
