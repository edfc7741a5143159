"""What a relay says is taken to be about the right message: by receipts, else by its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, OutcomeUnknown, simulate
from lmos_actors.errors import ConnectFailed
from lmos_actors.facades import RelayAnswer, RelayMessage, Welcomed, open_relay
from tests.facades.relays import URL, Script, ours, scripted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.facades import Relay


def own(type: str, payload: Any = None, **members: Any) -> dict[str, Any]:
    """Return a frame of the relay."""
    return {"id": "r", "from": "relay", "to": ["me"], "type": type, "payload": payload, "ts": 5, **members}


def played(
    script: Callable[[Script], Awaitable[None]], main: Callable[[Relay], Awaitable[None]], **options: Any
) -> None:
    async def run() -> None:
        with trio.fail_after(1_000):
            async with scripted(script) as (network, _), open_relay(URL, network=network, **options) as relay:
                await main(relay)

    simulate(run)


def words(relay: Relay) -> Callable[[], Awaitable[Any]]:
    """Return what waits for the next event that is no welcome."""

    async def following() -> Any:
        while isinstance(event := await relay.__anext__(), Welcomed):
            pass
        return event

    return following


def test_a_command_that_the_relay_passes_over_is_in_nobodys_way() -> None:
    async def script(hub: Script) -> None:
        hub.welcome()
        while True:
            asked = await hub.next()
            if asked["type"] == "list_subscriptions":
                hub.send(own("subscriptions", {"agents": []}))
            elif asked["type"] == "wrong":
                hub.send(own("error", {"code": "unknown_command", "message": "no"}))

    async def main(relay: Relay) -> None:
        for _ in range(1_000):
            with trio.move_on_after(0.001):
                await relay.command("ping")
        assert (await relay.command("list_subscriptions")).payload == {"agents": []}
        with pytest.raises(ActionFailed, match="unknown_command"):
            await relay.command("wrong")
        assert not len(relay._flight)

    played(script, main)


def test_a_question_that_was_refused_is_in_no_other_questions_way() -> None:
    async def script(hub: Script) -> None:
        hub.welcome()
        for number in range(4):
            asked = await hub.next()
            if number == 0:
                hub.send(own("error", {"code": "refused", "message": "no"}))
            elif number != 1:  # which is lost
                hub.send({**asked, "id": f"q-{number}", "ts": 5})
                answer = {"from": "you", "to": ["me"], "type": "answer", "payload": number, "ts": 5}
                hub.send({**answer, "id": f"a-{number}", "ref": f"q-{number}"})
        await trio.sleep_forever()

    async def main(relay: Relay) -> None:
        assert relay.way == "echo"
        with pytest.raises(ActionFailed, match="refused: no"):
            await relay.ask("first", "you")
        async with trio.open_nursery() as nursery:

            async def lost() -> None:
                with pytest.raises(OutcomeUnknown, match="what came after it"):
                    await relay.ask("second", "you")

            nursery.start_soon(lost)
            await trio.sleep(1)
            assert (await relay.ask("third", "you")).payload == 2
        assert (await relay.ask("fourth", "you")).payload == 3
        assert not len(relay._flight)

    played(script, main)


def test_an_error_that_may_be_about_a_message_without_an_answer_fails_no_question() -> None:
    async def script(hub: Script) -> None:
        hub.welcome()
        await hub.next()
        asked = await hub.next()
        hub.send(own("error", {"code": "refused", "message": "no"}))
        hub.send({**asked, "id": "q", "ts": 5})
        hub.send(
            {"id": "a", "from": "you", "to": ["me"], "type": "answer", "ref": "q", "payload": 1, "ts": 5}
        )
        await trio.sleep_forever()

    async def main(relay: Relay) -> None:
        assert await relay.say("hello", "you") is None
        assert (await relay.ask("how are you?", "you")).payload == 1

    played(script, main)


def test_what_comes_about_a_message_that_nobody_waits_for_is_about_nothing_else() -> None:
    async def script(hub: Script) -> None:
        hub.welcome("me", "receipts")
        first, second = await hub.next(), await hub.next()
        assert (await hub.next())["type"] == "ping"
        hub.send(own("error", {"code": "refused", "message": "no", "receipt": first["receipt"]}))
        hub.send(own("receipt", {"receipt": second["receipt"], "delivered": 1, "unknown": []}, ref="m"))
        hub.send(own("pong"))
        hub.send({"id": "x", "from": "you", "to": ["me"], "payload": "the next", "ts": 5})
        await trio.sleep_forever()

    async def main(relay: Relay) -> None:
        for _ in range(2):
            with trio.move_on_after(1):
                await relay.say("hello", "you")
        assert (await relay.command("ping")).type == "pong"
        event = await words(relay)()
        assert isinstance(event, RelayMessage)
        assert event.payload == "the next"
        assert not len(relay._flight)

    played(script, main)


def test_beyond_a_rate_every_message_has_an_outcome() -> None:
    async def main() -> list[str]:
        outcomes: list[str] = []
        async with (
            ours(extensions=("receipts",), rates=((5, 60.0),)) as join,
            join("one") as one,
            join("two"),
        ):

            async def say(number: int) -> None:
                try:
                    receipt = await one.say(number, "two")
                    assert receipt is not None
                    outcomes.append(f"{receipt.delivered}")
                except ActionFailed as refused:
                    outcomes.append(str(refused.code))
                except OutcomeUnknown as unknown:
                    outcomes.append(unknown.why)

            with trio.fail_after(10):
                async with trio.open_nursery() as nursery:
                    for number in range(8):
                        nursery.start_soon(say, number)
                began = trio.current_time()
                for _ in range(2):
                    await say(8)  # each is refused by itself
                assert trio.current_time() - began < 5
            assert not len(one._flight)
        return outcomes

    found = simulate(main)
    unknown = "the relay has refused messages beyond its rate, and not said which"
    assert sorted(found) == sorted(["1"] * 5 + ["rate_limit"] * 3 + [unknown] * 2)


def test_what_is_nested_too_deep_for_the_relay_is_refused() -> None:
    async def main() -> None:
        deep: Any = 1
        for _ in range(200):
            deep = [deep]
        async with ours(extensions=("receipts",)) as join, join("one") as one, join("two"):
            with trio.fail_after(10), pytest.raises(ActionFailed, match="nested deeper"):
                await one.say(deep, "two")
            receipt = await one.say("hello", "two")
            assert receipt is not None

    simulate(main)


def test_what_is_too_long_for_the_relay_is_refused_and_the_connection_stays() -> None:
    async def main() -> None:
        async with (
            ours(extensions=("receipts",), max_message=1_000) as join,
            join("one") as one,
            join("two"),
        ):
            for verb in (one.say, one.ask):
                with trio.fail_after(10), pytest.raises(ActionFailed, match=r"too_large: .* 1000 at most"):
                    await verb("x" * 1_000, "two")
            assert not one._queue
            assert await one.say("x", "two") is not None
            assert one.connections == 1

    simulate(main)


def test_what_could_not_be_followed_is_not_followed_later() -> None:
    asked: list[Any] = []

    async def script(hub: Script) -> None:
        hub.welcome()
        for _ in range(2 if hub.number == 1 else 1):
            agents = (await hub.next())["payload"]["agents"]
            asked.append(agents)
            if len(agents) > 1:
                hub.send(own("error", {"code": "invalid_message", "message": "too many"}))
            else:
                hub.send(own("subscribed", {"agents": agents, "count": 1}))
        hub.connection.close(1012, "restart") if hub.number == 1 else await trio.sleep_forever()

    async def main(relay: Relay) -> None:
        await relay.follow("a")
        with pytest.raises(ActionFailed, match="too many"):
            await relay.follow("a", "b")
        assert relay.follows == ("a",)
        await trio.sleep(10)
        assert asked == [["a"], ["a", "b"], ["a"]]

    played(script, main)


def test_nobody_is_everybody() -> None:
    async def script(hub: Script) -> None:
        hub.welcome()
        hub.send({"id": "1", "from": "*", "to": ["me"], "type": "question", "payload": "hello", "ts": 5})
        hub.send({"id": "2", "from": "you", "to": ["me"], "payload": "hello", "ts": 5})
        await trio.sleep_forever()

    async def main(relay: Relay) -> None:
        event = await words(relay)()
        assert isinstance(event, RelayMessage)
        assert event.sender == "you"

    played(script, main)


@pytest.mark.parametrize("code", [1000, 1011, 1012])
def test_a_relay_that_closes_before_it_welcomes_takes_nobody(code: int) -> None:
    async def script(hub: Script) -> None:
        hub.connection.close(code, "no")

    async def run() -> None:
        async with scripted(script) as (network, upgrades):
            with pytest.raises(ConnectFailed, match=f"ended with {code}: no, before there was a welcome"):
                async with open_relay(URL, network=network):
                    raise AssertionError
            assert len(upgrades) == 1

    simulate(run)


def test_a_relay_that_breaks_again_and_again_leaves_nothing_behind() -> None:
    async def script(hub: Script) -> None:
        can = {"relay": "odd", "capabilities": ["broadcast", "direct"]}
        if hub.number == 1:
            hub.welcome()
            await trio.sleep(1)
        else:
            hub.send(own("welcome", can))
        hub.connection.close(1012, "again")
        await trio.sleep(1)

    async def main(relay: Relay) -> None:
        await trio.sleep(500)
        assert relay.connections > 10
        assert len(relay._queue) + len(relay._flight) <= 2

    played(script, main, follow=["a"])


def test_an_answer_that_nobody_awaits_is_heard() -> None:
    async def script(hub: Script) -> None:
        hub.welcome()
        hub.send(own("joined", {"agent": "you"}))
        await trio.sleep_forever()

    async def main(relay: Relay) -> None:
        assert await words(relay)() == RelayAnswer("joined", {"agent": "you"})

    played(script, main)
