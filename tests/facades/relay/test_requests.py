"""Refs to agents on a relay: calls, events, deadlines, breaks, and what a relay cannot carry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    Event,
    InvalidInput,
    MailboxOptions,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    Progress,
    Property,
    action,
    event,
    open_node,
    prop,
    simulate,
)
from lmos_actors.errors import ActionCancelled, AgentError, RemoteProtocolError
from lmos_actors.facades import RelayBridge, RelayMember, RelayMessage, RelayPeer, join_relay, open_relay
from lmos_actors.security import Access, Security
from tests.facades.relays import HUBS, URL, Script, hub_with, scripted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors import Node, Ref
    from lmos_actors.facades import Relay

PLACE = "ws://place:80"
OPEN = Security(access={"weather": Access(invoke="anyone")})


class Weather(Agent, mailbox=MailboxOptions(size=1_000)):
    """Answers questions about the weather."""

    units: Property[str] = prop(default="celsius")
    warned: Event[str] = event(broadcast=True)
    noted: Event[str] = event()
    seen: int = 0
    left: int = 0
    kept: list[int] = attrs.field(factory=list)

    @action
    def forecast(self, city: str, days: int = 1) -> dict[str, Any]:
        """Forecast."""
        self.seen += 1
        if city == "Atlantis":
            raise ActionFailed({"code": "NO_CITY", "message": "there is no such city", "near": "Athens"})
        if city == "Pompeii":
            raise KeyError("a secret of the house")
        return {"city": city, "days": days}

    @action(concurrency=8)
    async def wait(self, seconds: float) -> float:
        """Wait."""
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            self.left += 1
            raise
        return seconds

    @action
    async def work(self, progress: Progress[int]) -> str:
        """Report."""
        progress.report(1)
        return "worked"

    @action
    async def hours(self, count: int) -> AsyncIterator[int]:
        """Count."""
        for number in range(count):
            yield number

    @action
    async def total(self, numbers: AsyncIterator[int]) -> int:
        """Add."""
        return sum([number async for number in numbers])

    @action
    def warn(self, text: str) -> None:
        """Warn."""
        self.noted.emit(text)
        self.warned.emit(text)

    @action
    def note(self, number: int) -> None:
        """Keep a number."""
        self.kept.append(number)

    @action
    def notes(self) -> list[int]:
        """Return the numbers."""
        return self.kept

    @action
    def counts(self) -> list[int]:
        """Return how many calls there were, and how many were left."""
        return [self.seen, self.left]


class Elsewhere(Weather):
    """A class that the agent is not of: it has more, and other types."""

    @action
    def tides(self) -> str:
        """Tides."""
        return ""

    @action
    def counts(self) -> str:  # type: ignore[override]
        """Count."""
        return ""


every_relay = pytest.mark.parametrize("world", HUBS)


@asynccontextmanager
async def refs(world: str) -> AsyncGenerator[tuple[Node, Ref[Weather], Node]]:
    """Open a relay, a node whose agent is on it, and a node with a ref to that."""
    async with HUBS[world]("weather", "mine") as (network, tokens):
        bridge = RelayBridge(url=URL, credentials=tokens["weather"])
        async with (
            open_node(listen=PLACE, network=network, bridges=[bridge], security=OPEN) as there,
            open_node(network=network) as here,
        ):
            await there.start(Weather)
            await join_relay(here, URL, id="mine", credentials=tokens["mine"], peers=True)
            weather = here.find(Weather, "weather")
            await weather.ready()
            yield here, weather, there


def played(world: str, body: Callable[[Node, Ref[Weather], Node], Awaitable[None]]) -> None:
    async def main() -> None:
        async with refs(world) as (here, weather, there):
            with trio.fail_after(1_000):
                await body(here, weather, there)
            assert here.connection_failures == there.connection_failures == ()

    simulate(main)


@every_relay
def test_a_call_has_its_result_and_its_errors(world: str) -> None:
    async def body(here: Node, weather: Ref[Weather], there: Node) -> None:
        assert weather.path == "weather"
        assert await weather.invoke(Weather.forecast, "Bonn", days=2) == {"city": "Bonn", "days": 2}
        assert await weather.invoke(Weather.wait, 2.5) == 2.5
        with pytest.raises(ActionFailed) as failed:
            await weather.invoke(Weather.forecast, "Atlantis")
        output = {"code": "NO_CITY", "message": "there is no such city", "near": "Athens"}
        assert failed.value.output == output
        with pytest.raises(InvalidInput, match=r"Expected `int`, got `str` - at \$\.days"):
            await weather.invoke(Weather.forecast, "Bonn", "two")  # type: ignore[arg-type]
        with pytest.raises(AgentDied) as died:
            await weather.invoke(Weather.forecast, "Pompeii")
        assert (died.value.started, died.value.agent) == (True, "weather")
        assert "secret" not in str(died.value)
        await there.find(Weather).ready()
        other = here.find(Elsewhere, "weather")
        with pytest.raises(NotFound, match="no action 'tides' on weather"):
            await other.invoke(Elsewhere.tides)
        with pytest.raises(RemoteProtocolError, match="answered 'counts' with what is no str"):
            await other.invoke(Elsewhere.counts)
        assert here.find(Weather, "weather") == weather
        assert hash(here.find(Weather, "member/weather")) == hash(weather)

    played(world, body)


@every_relay
def test_deadlines_and_cancels_end_the_run_there(world: str) -> None:
    async def body(here: Node, weather: Ref[Weather], there: Node) -> None:
        with pytest.raises(DeadlineExceeded, match="no answer from 'weather' within 3 s"):
            await weather.within(3).invoke(Weather.wait, 100)
        with trio.move_on_after(3):
            await weather.invoke(Weather.wait, 100)
        await trio.sleep(0.1)
        assert await weather.invoke(Weather.counts) == [0, 2]
        async with weather.begin(Weather.wait, 100) as call:
            await trio.sleep(1)
            assert (await call.cancel("enough")).cancelled
            with pytest.raises(ActionCancelled, match="enough"):
                await call.result()
        async with weather.begin(Weather.wait, 100):
            await trio.sleep(1)
        await trio.sleep(0.1)
        assert await weather.invoke(Weather.counts) == [0, 4]

    played(world, body)


def test_the_time_that_a_question_has_and_who_may_take_it_back() -> None:
    async def asked(relay: Relay, payload: Any) -> Any:
        return (await relay.ask(payload, "weather")).payload["error"]

    async def main() -> None:
        async with hub_with("weather", "asker", "other") as (network, tokens):
            bridge = RelayBridge(url=URL, credentials=tokens["weather"])
            async with (
                open_relay(URL, network=network, credentials=tokens["asker"]) as asker,
                open_relay(URL, network=network, credentials=tokens["other"]) as other,
                open_node(listen=PLACE, network=network, bridges=[bridge], security=OPEN) as node,
            ):
                await node.start(Weather)
                await trio.sleep(1)
                wait = {"action": "wait", "input": {"seconds": 100}}
                began = trio.current_time()
                assert (await asked(asker, {**wait, "within": 3}))["code"] == "deadline"
                assert 3 <= trio.current_time() - began < 3.1
                assert (await asked(asker, {**wait, "within": -1}))["code"] == "deadline"
                for odd in ("3", True, None):
                    with trio.move_on_after(10) as patience:
                        await asked(asker, {**wait, "within": odd})
                    assert patience.cancelled_caught
                receipt = await asker.say(wait, "weather", type="question")
                assert receipt is not None
                for relay, reason in ((other, {"reason": "mine"}), (asker, {"reason": "enough"})):
                    await relay.say(reason, "weather", type="cancel", ref=receipt.id)
                    await trio.sleep(1)
                answers = [each.payload async for each in until_quiet(asker) if each.type == "answer"]
                cancelled = {"code": "cancelled", "message": "enough", "about": {"reason": "enough"}}
                assert answers == [{"error": cancelled}]

    simulate(main)


async def until_quiet(relay: Relay) -> AsyncIterator[RelayMessage]:
    """Yield the messages that are there."""
    while True:
        found: list[Any] = []
        with trio.move_on_after(1):
            found.append(await relay.__anext__())
        if not found:
            return
        if isinstance(found[0], RelayMessage):
            yield found[0]


@every_relay
def test_what_is_for_one_agent_is_not_for_another(world: str) -> None:
    async def main() -> None:
        async with HUBS[world]("weather", "second", "mine") as (network, tokens):
            bridges = [
                RelayBridge(url=URL, agent=name, credentials=tokens[name]) for name in ("weather", "second")
            ]
            async with (
                open_node(listen=PLACE, network=network, bridges=bridges, security=Security()) as there,
                open_node(network=network) as here,
            ):
                for name in ("weather", "second"):
                    await there.start_child(ChildSpec(name, Plain))
                member = await join_relay(here, URL, id="mine", credentials=tokens["mine"], peers=True)
                first, second = here.find(RelayPeer, "weather"), here.find(RelayPeer, "second")
                await first.ready()
                await second.ready()
                async with member.subscribe(RelayMember.heard) as heard:
                    assert await first.invoke(RelayPeer.ask, "you?") == "weather you?"
                    assert await second.invoke(RelayPeer.ask, "you?") == "second you?"
                    with trio.move_on_after(5):
                        async for message in heard:  # no answer that nobody waits for
                            assert message.type == "discovery"

    simulate(main)


class Plain(Agent):
    """Answers in plain words."""

    @action(answers=True)
    def answer(self, question: str) -> str:
        """Say who it is."""
        return f"{self.path} {question}"


@every_relay
def test_a_call_that_is_left_at_once_is_taken_back(world: str) -> None:
    async def body(here: Node, weather: Ref[Weather], there: Node) -> None:
        for _ in range(3):
            with trio.move_on_after(0.0001):
                await weather.invoke(Weather.wait, 100)
        async with weather.begin(Weather.wait, 100):
            pass  # its id is not known yet
        await trio.sleep(0.1)
        near = there.find(Weather).statistics()
        assert near.running == near.waiting == 0

    played(world, body)


@every_relay
def test_one_way_messages_come_in_order(world: str) -> None:
    async def body(here: Node, weather: Ref[Weather], there: Node) -> None:
        for number in range(400):  # more than are open at a time
            await weather.tell(Weather.note, number)
        assert await weather.invoke(Weather.notes) == list(range(400))
        await weather.tell(Weather.forecast, "Atlantis")
        await trio.sleep(1)
        assert [letter.reason for letter in here.dead_letters] == ["NO_CITY: there is no such city"]

    played(world, body)


@every_relay
def test_events_that_are_broadcast(world: str) -> None:
    async def body(here: Node, weather: Ref[Weather], there: Node) -> None:
        near = there.find(Weather)
        async with weather.subscribe(Weather.warned) as warnings, weather.subscribe_all() as events:
            await near.invoke(Weather.warn, "storm")
            assert await warnings.receive() == "storm"
            heard = await events.receive()
            assert (heard.event, heard.data) == ("warned", "storm")
        with pytest.raises(
            NotAllowed, match=r"does not broadcast 'noted' there: event\(broadcast=True\) does"
        ):
            async with weather.subscribe(Weather.noted):
                raise AssertionError

    played(world, body)


@every_relay
def test_what_a_relay_cannot_carry(world: str) -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    async def body(here: Node, weather: Ref[Weather], there: Node) -> None:
        async def refused(asked: Any) -> str:
            with pytest.raises(NotAllowed) as error:
                await (entered(asked) if hasattr(asked, "__aenter__") else asked)
            return str(error.value)

        reached = "'weather' is reached over a relay, which "
        assert await refused(weather.read(Weather.units)) == f"{reached}carries no properties"
        assert await refused(weather.write(Weather.units, "kelvin")) == f"{reached}carries no properties"
        assert await refused(weather.read_all()) == f"{reached}carries no properties"
        assert await refused(weather.observe(Weather.units)) == f"{reached}carries no properties"
        assert await refused(weather.monitor()) == f"{reached}does not report exits"
        assert "it carries no streams" in await refused(weather.stream(Weather.hours, 3))
        assert "cannot carry the input stream 'numbers'" in await refused(
            weather.invoke(Weather.total, numbers())
        )
        assert "it can be neither linked nor monitored" in await refused(weather.link())
        async with weather.begin(Weather.work) as call:
            assert await refused(call.progress.receive()) == f"{reached}carries no progress of a call"
            assert await call.result() == "worked"
        async with weather.begin(Weather.wait, 1) as waits:
            assert await refused(waits.query()) == f"{reached}does not say how a call stands"
        with pytest.raises(NotAllowed, match="keeps its counts there"):
            weather.statistics()

    played(world, body)


async def entered(context: Any) -> None:
    async with context as items:
        await anext(items)


def test_a_connection_that_breaks() -> None:
    """What was asked is unknown, what is asked now is unavailable; then all is well again."""
    introduction = {"title": "Weather", "actions": {"forecast": {}}, "events": ["warned"]}

    async def script(hub: Script) -> None:
        hub.welcome("mine", "receipts")
        agent = {"from": "weather", "ts": 5}
        while True:
            said = await hub.next()
            if said.get("type") == "discover":
                made = {**agent, "id": f"d-{hub.number}", "to": ["mine"], "type": "discovery"}
                hub.send({**made, "payload": introduction})
            receipt = {"receipt": said.get("receipt"), "delivered": 1, "unknown": []}
            own = {"id": "r", "from": "relay", "to": ["mine"], "type": "receipt", "ref": f"q-{hub.number}"}
            hub.send({**own, "payload": receipt})
            if said.get("type") == "question" and hub.number == 1:
                await trio.sleep(1)
                hub.connection.close(1012, "restart")
            elif said.get("type") == "question":
                hub.send(
                    {
                        **agent,
                        "id": "e",
                        "to": ["*"],
                        "type": "data",
                        "payload": {"event": "warned", "data": "x"},
                    }
                )
                answer = {**agent, "id": "a", "to": ["mine"], "type": "answer", "ref": f"q-{hub.number}"}
                hub.send({**answer, "payload": {"city": "Bonn"}})

    async def main() -> None:
        async with scripted(script) as (network, _), open_node(network=network) as node:
            await join_relay(node, URL, peers=True)
            weather = node.find(Weather, "weather")
            await weather.ready()
            async with weather.subscribe(Weather.warned, gaps=True) as warnings:
                with pytest.raises(
                    OutcomeUnknown, match=r"the request to 'weather' is unknown: .*1012: restart"
                ):
                    await weather.invoke(Weather.forecast, "Bonn")
                with pytest.raises(AgentUnavailable, match="there is no connection to ws://hub"):
                    await weather.invoke(Weather.forecast, "Bonn")
                with pytest.raises(AgentUnavailable, match="there is no connection"):
                    await weather.tell(Weather.forecast, "Bonn")
                await weather.within(60).ready()
                assert await weather.invoke(Weather.forecast, "Bonn") == {"city": "Bonn"}
                heard = [await warnings.receive(), await warnings.receive()]
                assert [str(getattr(each, "reason", each)) for each in heard] == ["connection lost", "x"]

    simulate(main)


def test_an_agent_that_is_gone_and_a_member_that_ends() -> None:
    async def main() -> None:
        async with hub_with("weather", "mine") as (network, tokens), open_node(network=network) as here:
            weather = here.find(Weather, "weather")
            with pytest.raises(NotFound):
                await weather.invoke(Weather.counts)
            await join_relay(here, URL, credentials=tokens["mine"], peers=True)
            bridge = RelayBridge(url=URL, credentials=tokens["weather"])
            async with open_node(listen=PLACE, network=network, bridges=[bridge], security=OPEN) as there:
                await there.start(Weather)
                await weather.within(60).ready()  # it introduces itself when it comes
                assert await weather.invoke(Weather.counts) == [0, 0]
            with pytest.raises(AgentUnavailable, match="nobody got the question"):
                await weather.invoke(Weather.counts)
            async with open_relay(URL, network=network, credentials=tokens["mine"]):
                await trio.sleep(1)  # the member was replaced, and has ended
                with pytest.raises(NotFound):
                    await weather.invoke(Weather.counts)

    simulate(main)


def test_an_agent_that_is_known_to_have_left_is_not_found() -> None:
    async def main() -> None:
        extensions = ("receipts", "presence")
        async with (
            hub_with("weather", "mine", extensions=extensions) as (network, tokens),
            open_node(network=network) as here,
        ):
            await join_relay(here, URL, credentials=tokens["mine"], peers=True, follow=["weather"])
            weather = here.find(Weather, "weather")
            for _ in range(2):
                bridge = RelayBridge(url=URL, credentials=tokens["weather"])
                async with open_node(listen=PLACE, network=network, bridges=[bridge], security=OPEN) as there:
                    await there.start(Weather)
                    await weather.within(60).ready()
                    assert await weather.invoke(Weather.counts) == [0, 0]
                await trio.sleep(1)
                with pytest.raises(NotFound):
                    await weather.invoke(Weather.counts)

    simulate(main)


def test_an_agent_of_this_node_comes_first_and_strangers_are_of_no_class() -> None:
    async def main() -> None:
        async with hub_with("weather", "mine") as (network, tokens), open_node(network=network) as node:
            member = await join_relay(node, URL, credentials=tokens["mine"], peers=True)
            async with open_relay(URL, network=network, credentials=tokens["weather"]) as stranger:
                await stranger.say({"description": "I am a stranger."}, type="discovery")
                async with member.subscribe(RelayMember.heard) as heard:
                    await stranger.say("hello")
                    await heard.receive()
                with pytest.raises(NotFound):
                    await node.find(Weather, "weather").invoke(Weather.counts)
                await node.start_child(ChildSpec("weather", Weather))
                assert await node.find(Weather, "weather").invoke(Weather.counts) == [0, 0]

    simulate(main)


@every_relay
def test_a_class_is_enough_to_find_one(world: str) -> None:
    async def body(here: Node, weather: Ref[Weather], there: Node) -> None:
        assert await here.find(Weather).invoke(Weather.counts) == [0, 0]
        with pytest.raises(NotFound):
            await here.find(Elsewhere).invoke(Weather.counts)

    played(world, body)


FAULTS: list[Any] = [
    {}, {"code": 5}, {"code": "busy", "about": 5}, {"code": "busy", "about": {"size": "x"}},
    {"code": "not_found", "about": {"kind": 5}}, {"code": "deadline", "about": {"seconds": -1}},
    {"code": "failed", "about": {"started": "x"}}, {"code": "invalid_input", "message": 5, "about": {}},
    {"code": "unavailable", "about": {"retry_in": None}}, {"output": None},
    {"code": "rate_limit", "about": {}},
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_whatever_error_a_stranger_sends_is_an_error_of_an_agent(fault: Any) -> None:
    async def answer(stranger: Any) -> None:
        async for heard in stranger:
            if getattr(heard, "type", "") == "question":
                await stranger.answer(heard, {"error": fault})

    async def main() -> None:
        async with hub_with("weather", "mine") as (network, tokens), open_node(network=network) as node:
            await join_relay(node, URL, credentials=tokens["mine"], peers=True)
            async with (
                open_relay(URL, network=network, credentials=tokens["weather"]) as stranger,
                trio.open_nursery() as nursery,
            ):
                await stranger.say({"actions": {}}, type="discovery")
                nursery.start_soon(answer, stranger)
                weather = node.find(Weather, "weather")
                await weather.ready()
                with pytest.raises(AgentError):
                    await weather.invoke(Weather.counts)
                nursery.cancel_scope.cancel()

    simulate(main)
