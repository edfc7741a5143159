"""An agent on LMOS, HTTP and a relay at once: the same slot, and what strangers may do to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    ChildSpec,
    Event,
    action,
    current_request,
    event,
    open_node,
    simulate,
)
from lmos_actors.errors import ConfigError
from lmos_actors.facades import RelayBridge, RelayMessage, open_relay
from lmos_actors.security import Access, Bearer, NoSec, Rate, Security
from tests.facades.relays import URL, Shown, hub_with

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors.facades import Relay
    from lmos_actors.node import Node

PLACE = "ws://place:80"


class Weather(Agent):
    """Answers questions about the weather.

    And nothing else.
    """

    warned: Event[str] = event(broadcast=True)
    noted: Event[str] = event()
    asked: int = 0

    @action(answers=True, concurrency=8)
    async def answer(self, question: str) -> str:
        """Answer in plain words."""
        self.asked += 1
        if "slow" in question:
            await trio.sleep(10)
        if "crash" in question:
            raise KeyError("a secret of the house")
        if "long" in question:
            return "x" * 100_000
        return f"{question} It is fine."

    @action
    def forecast(self, city: str, days: int = 1) -> dict[str, Any]:
        """Forecast."""
        self.asked += 1
        if city == "Atlantis":
            raise ActionFailed({"code": "NO_CITY", "message": "there is no such city"})
        return {"city": city, "days": days, "big": 12345678901234567890}

    @action
    async def hours(self, count: int) -> AsyncIterator[int]:
        """Count."""
        for number in range(count):
            yield number

    @action
    def traced(self) -> tuple[str | None, str | None]:
        request = current_request()
        return (None, None) if request is None else (request.trace, request.principal)

    @action
    def warn(self, text: str) -> None:
        self.noted.emit(text)
        self.warned.emit(text)


OPEN = Security(access={"weather": Access(invoke="anyone")})


@asynccontextmanager
async def bridged(security: Security | None = None, **options: Any) -> AsyncGenerator[tuple[Node, Relay]]:
    """Open a hub, a node with an agent that is on it, and a stranger there."""
    async with hub_with("weather", "stranger", **options) as (network, tokens):
        bridge = RelayBridge(url=URL, credentials=tokens["weather"])
        async with (
            open_relay(URL, network=network, credentials=tokens["stranger"]) as stranger,
            open_node(listen=PLACE, network=network, bridges=[bridge], security=security) as node,
        ):
            await node.start(Weather)
            await said(stranger, "discovery")
            yield node, stranger


async def said(relay: Relay, type: str) -> RelayMessage:
    async for heard in relay:
        if isinstance(heard, RelayMessage) and heard.type == type:
            return heard
    raise AssertionError


def played(body: Callable[[Node, Relay], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with bridged(**options) as (node, stranger):
            with trio.fail_after(1_000):
                await body(node, stranger)
            assert node.connection_failures == ()

    simulate(main)


async def asked(stranger: Relay, payload: Any, to: str = "weather") -> Any:
    return (await stranger.ask(payload, to)).payload


def test_a_question_in_plain_words_and_a_call() -> None:
    async def body(node: Node, stranger: Relay) -> None:
        assert await asked(stranger, "How is it?") == "How is it? It is fine."
        assert await asked(stranger, "How is it?", "*") == "How is it? It is fine."
        call = {"action": "forecast", "input": {"city": "Bonn", "days": 2}}
        assert await asked(stranger, call) == {"city": "Bonn", "days": 2, "big": 12345678901234567890}
        assert await asked(stranger, {"action": "hours", "input": {"count": 3}}) == [0, 1, 2]
        assert await asked(stranger, {"action": "warn", "input": {"text": "storm"}}) is None
        # the same slot as for all others: one account
        near = node.find(Weather)
        assert (await near.invoke(Weather.forecast, "Kiel"))["city"] == "Kiel"
        assert near.statistics().handled == 7  # and the subscription of the bridge

    played(body, security=OPEN)


FAULTS: list[tuple[Any, str, str]] = [
    ({"action": "forecast", "input": {"city": 5}}, "invalid_input", "city"),
    ({"action": "forecast", "input": {"town": "Bonn"}}, "invalid_input", "city"),
    ({"action": "forecast"}, "invalid_input", "city"),
    ({"action": "forcast", "input": {}}, "not_found", "forcast"),
    ({"action": "forecast", "input": {"city": "Atlantis"}}, "NO_CITY", "no such city"),
    ("crash please", "failed", "the agent has failed"),
    ("a long one", "too_large", "does not fit"),
    (5, "invalid_input", "question"),
]


@pytest.mark.parametrize(("payload", "code", "text"), FAULTS, ids=[str(each[0])[:40] for each in FAULTS])
def test_what_goes_wrong_is_an_answer_with_an_error(payload: Any, code: str, text: str) -> None:
    async def body(node: Node, stranger: Relay) -> None:
        found = await asked(stranger, payload)
        assert (list(found), found["error"]["code"]) == (["error"], code)
        assert text in found["error"]["message"]
        assert "secret of the house" not in str(found)
        with trio.fail_after(60):
            await node.find(Weather).ready()
            assert await asked(stranger, "Still there?") == "Still there? It is fine."

    played(body, security=OPEN)


def test_one_trace_and_the_name_of_the_stranger() -> None:
    async def body(node: Node, stranger: Relay) -> None:
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        parent = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        answer = await stranger.ask({"action": "traced"}, "weather", members=parent)
        assert answer.payload == [trace, "relay:hub:80/stranger"]
        for odd in ("nonsense", 5, None):
            answer = await stranger.ask({"action": "traced"}, "weather", members={"traceparent": odd})
            assert answer.payload[1] == "relay:hub:80/stranger"

    played(body, security=OPEN)


def test_a_broadcast_that_is_for_others_is_passed_over() -> None:
    async def body(node: Node, stranger: Relay) -> None:
        with trio.move_on_after(20) as waited:
            await stranger.ask({"action": "cook", "input": {}})
        assert waited.cancelled_caught
        with trio.move_on_after(20) as waited:
            await stranger.ask(5)
        assert waited.cancelled_caught

    played(body, security=OPEN)


def test_without_a_list_only_the_action_that_answers_is_open() -> None:
    async def body(node: Node, stranger: Relay) -> None:
        assert await asked(stranger, "How is it?") == "How is it? It is fine."
        refused = await asked(stranger, {"action": "forecast", "input": {"city": "Bonn"}})
        assert refused["error"]["code"] == "forbidden"
        assert refused["error"]["message"] == "relay:hub:80/stranger may not invoke 'forecast' here"

    played(body)
    played(body, security=Security(access={"weather": Access(read="anyone")}))


@pytest.mark.parametrize(
    ("invoke", "is_open"),
    [
        ("anyone", True),
        ("authenticated", False),
        (("relay:hub:80/stranger",), True),
        (("relay:hub:80/other", "relay:elsewhere/stranger"), False),
        ((), False),
    ],
)
def test_a_list_decides_and_authenticated_means_no_stranger(
    invoke: Any, *, is_open: bool, tmp_path: Any
) -> None:
    (tmp_path / "token").write_text("chief-secret")
    schemes = (NoSec(), Bearer({"chief": (f"file:{tmp_path / 'token'}",)}))

    async def body(node: Node, stranger: Relay) -> None:
        for payload in ("How is it?", {"action": "forecast", "input": {"city": "Bonn"}}):
            found = await asked(stranger, payload)
            assert ("error" not in found) == is_open, found

    played(body, security=Security(schemes=schemes, access={"weather": Access(invoke=invoke)}))


def test_a_rate_holds_for_each_stranger() -> None:
    async def body(node: Node, stranger: Relay) -> None:
        found = [await asked(stranger, "How is it?") for _ in range(4)]
        assert [each for each in found if "error" not in each] == ["How is it? It is fine."] * 2
        assert found[-1]["error"]["code"] == "rate_limit"
        assert await node.find(Weather).invoke(Weather.answer, "And now?") == "And now? It is fine."

    played(body, security=Security(rate=Rate(0.01, 2)))


def test_events_that_the_class_names_are_said_to_all() -> None:
    async def body(node: Node, stranger: Relay) -> None:
        await trio.sleep(1)
        await node.find(Weather).invoke(Weather.warn, "storm")
        heard = await said(stranger, "data")
        assert (heard.sender, heard.payload) == ("weather", {"event": "warned", "data": "storm"})
        with pytest.raises(Exception, match="secret"):
            await node.find(Weather).invoke(Weather.answer, "crash")
        await trio.sleep(10)
        await node.find(Weather).invoke(Weather.warn, "sun")
        assert (await said(stranger, "data")).payload == {"event": "warned", "data": "sun"}

    played(body)


def test_what_an_agent_says_about_itself() -> None:
    async def main() -> None:
        async with hub_with("weather", "stranger") as (network, tokens):
            bridge = RelayBridge(url=URL, credentials=tokens["weather"], agent="desk")
            async with (
                open_relay(URL, network=network, credentials=tokens["stranger"]) as stranger,
                open_node(listen=PLACE, network=network, bridges=[bridge]) as node,
            ):
                await node.start(Weather)  # not the one that is on the relay
                with trio.move_on_after(5) as waited:
                    await said(stranger, "discovery")
                assert waited.cancelled_caught
                assert await asked_or_none(stranger) is None
                await node.start_child(ChildSpec("desk", Weather))
                found = (await said(stranger, "discovery")).payload
                assert found["name"] == "desk"
                assert found["description"] == "Answers questions about the weather."
                assert found["skills"] == ["answer", "forecast", "hours", "traced", "warn"]
                assert found["actions"]["forecast"] == {"description": "Forecast."}
                assert (found["answers"], found["events"], found["available"]) == ("answer", ["warned"], True)

    async def asked_or_none(stranger: Relay) -> Any:
        with trio.move_on_after(5):
            return await stranger.ask("anybody?", "weather")
        return None

    simulate(main)


def test_questions_in_progress_are_answered_while_the_node_drains() -> None:
    async def body(node: Node, stranger: Relay) -> None:
        found: list[Any] = []

        async def ask(question: str) -> None:
            found.append(await asked(stranger, question))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "slow, please")
            await trio.sleep(1)
            await node.drain()
            await ask("too late")
        assert found[0] == "slow, please It is fine."
        assert found[1]["error"]["code"] == "unavailable"

    played(body)


def test_a_bridge_comes_back_and_gives_up_where_it_is_not_taken() -> None:
    async def main() -> None:
        async with hub_with("weather") as (network, tokens):
            good = RelayBridge(url=URL, credentials=tokens["weather"])
            wrong: Any = Shown("tok_wrong")
            bad = RelayBridge(url=URL, credentials=wrong)
            async with open_node(listen=PLACE, network=network, bridges=[good, bad]) as node:
                await node.start(Weather)
                await trio.sleep(5)
                async with open_relay(URL, network=network, credentials=tokens["weather"]) as again:
                    assert again.id == "weather"  # and so the bridge has been replaced: it stays away
                    await trio.sleep(100)
                    assert (await again.command("ping")).type == "pong"

    simulate(main)


def test_bad_bridges() -> None:
    with pytest.raises(ConfigError, match="a relay has an address like"):
        RelayBridge(url="nonsense")

    async def main() -> None:
        with pytest.raises(ConfigError, match="bridges="):
            async with open_node(bridges=[RelayBridge(url=URL)]):
                pass

    trio.run(main)

    with pytest.raises(TypeError, match="one action answers questions, not one and two"):

        class Two(Agent):
            @action(answers=True)
            def one(self) -> None: ...

            @action(answers=True)
            def two(self) -> None: ...

    with pytest.raises(TypeError, match="no parameter 'mod' for answers="):

        class Wrong(Agent):
            @action(answers={"mod": "text"})
            def one(self, question: str, mode: str) -> None: ...

    with pytest.raises(TypeError, match="it needs one argument: give the others"):

        class Needy(Agent):
            @action(answers=True)
            def one(self, a: str, b: str) -> None: ...
