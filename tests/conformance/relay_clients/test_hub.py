"""Clients of relays judged: ours passes everything; each broken one is caught by its case."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.conformance import (
    RELAY_CLIENT_CASES,
    Card,
    Level,
    RelayClientOptions,
    Verdict,
    judge_clients,
)
from lmos_actors.conformance.card import RELAY_LEVELS
from lmos_actors.conformance.relay_clients import JUDGE, PARTS
from lmos_actors.conformance.wire import TEXT
from lmos_actors.errors import ConfigError, ConnectFailed
from lmos_actors.facades import RelayMessage, open_relay, register_on_relay
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.commands import called, started, surroundings
from tests.conformance.broken_relay_clients import ALL, BrokenRelayClient
from tests.conformance.relay_client import RelayClient
from tests.facades.relays import Shown as Token
from tests.matrix import few_or_all, some

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

HERE = "ws://judge.example"
Shown: Any = Token
IDS = [case.id for case in RELAY_CLIENT_CASES]


async def judged(client: Callable[[MemoryNetwork], Awaitable[object]], *, level: Level = Level.SPEC) -> Card:
    """Let a client be judged, and return its card once it has left."""
    network = MemoryNetwork()
    cards: list[Card] = []

    async def judge(task_status: trio.TaskStatus[str]) -> None:
        cards.append(
            await judge_clients(
                network,
                endpoint_of(HERE),
                RelayClientOptions(level=level, once=True),
                announce=task_status.started,
            )
        )

    async with trio.open_nursery() as nursery:
        await nursery.start(judge)
        await client(network)
    return cards[0]


def ids(card: Card, verdict: Verdict) -> list[str]:
    return [result.id for result in card.results if result.verdict is verdict]


def told(card: Card) -> str:
    return "\n".join(f"{each.verdict.value:10} {each.id}: {each.seen}" for each in card.results)


async def by_hand(network: MemoryNetwork, client: type[RelayClient]) -> None:
    await client(network).run()


@pytest.mark.parametrize("level", RELAY_LEVELS, ids=lambda level: level.value)
async def test_a_right_client_passes_everything(level: Level, autojump_clock: trio.abc.Clock) -> None:
    card = await judged(partial(by_hand, client=RelayClient), level=level)
    unlimited = ["relayclient.size"] if level in (Level.REFERENCE, Level.RAWK) else []
    assert ids(card, Verdict.NOT_RUN) == unlimited, told(card)
    assert ids(card, Verdict.PASSED) == [id for id in IDS if id not in unlimited], told(card)
    assert card.role == "client"


OF_THEIR_OWN = {
    "RegistersAList", "NeedsAPayload", "NoJson", "ReservedBit", "AnswersNothing", "InAHurry",
    "FollowsNobody", "TriesAgain", "GivesUp", "TwoTokens", "TooLong", "DoesNotWait", "HearsTwice",
    "Hammers",
}  # fmt: skip
"""Clients whose faults have lines of their own in the kit."""


@pytest.mark.parametrize(
    "broken",
    some(ALL, of=6, besides=lambda broken: broken.what.__name__ in OF_THEIR_OWN),
    ids=lambda broken: broken.what.__name__,
)
async def test_a_broken_client_is_caught_by_its_case_and_no_other(
    broken: BrokenRelayClient, autojump_clock: trio.abc.Clock
) -> None:
    card = await judged(partial(by_hand, client=broken.what))
    assert set(ids(card, Verdict.FAILED)) == {broken.caught_by, *broken.also}, told(card)


def test_every_case_has_a_client_that_it_catches() -> None:
    assert {broken.caught_by for broken in ALL} == set(IDS)


# ---- our own client


async def be(network: MemoryNetwork, id: str, *, asks: bool = True) -> None:
    """Be an agent that answers, proves what it hears, and stays for as long as the relay takes it."""
    with suppress(ConnectFailed):
        async with open_relay(f"{HERE}/arc", network=network, credentials=Shown(f"tok_{id}")) as relay:
            if asks:
                await relay.follow(JUDGE)
                await relay.say((await relay.ask("how are you?", JUDGE)).payload, JUDGE, type="proof")
            async for event in relay:
                if isinstance(event, RelayMessage) and event.type == "challenge":
                    await relay.say(event.payload, JUDGE, type="proof")
                elif isinstance(event, RelayMessage) and event.type == "question":
                    await relay.answer(event, "kit")


async def ours(network: MemoryNetwork) -> None:
    found = await register_on_relay(f"{HERE}/arc", "weather-bot", network=network)
    assert (found.id, found.token) == ("weather-bot", "tok_weather-bot")
    with pytest.raises(ConnectFailed):
        async with open_relay(f"{HERE}/arc", network=network, credentials=Shown("a bad one")):
            pass
    await be(network, "weather-bot")
    for part in PARTS:
        if part != "hurried":
            await be(network, part, asks=part == "renamed")
    with trio.move_on_after(8):
        await be(network, "hurried")


@pytest.mark.parametrize("level", RELAY_LEVELS, ids=lambda level: level.value)
async def test_our_client_passes(level: Level, autojump_clock: trio.abc.Clock) -> None:
    card = await judged(ours, level=level)
    assert not ids(card, Verdict.FAILED) + ids(card, Verdict.TOLERATED), told(card)
    assert set(ids(card, Verdict.NOT_RUN)) <= {"relayclient.close", "relayclient.size"}, told(card)


# ---- levels, and what is not tried


async def test_who_only_says_one_thing_is_not_judged_by_more(autojump_clock: trio.abc.Clock) -> None:
    async def drops_in(network: MemoryNetwork) -> None:
        await RelayClient(network).drop_in()

    card = await judged(drops_in)
    assert not ids(card, Verdict.FAILED), told(card)
    passed = {id.partition(".")[2] for id in ids(card, Verdict.PASSED)}
    assert passed >= {"handshake", "credentials", "from", "to", "payload", "commands", "close"}
    assert not passed & {"strange", "no-json", "restart", "replaced", "refused", "renamed"}
    seen = {result.id: result.seen for result in card.results}
    assert "How: connect as expired, whose token is tok_expired" in seen["relayclient.expired"]
    assert seen["relayclient.long"] == "no client has begun it. How: " + HOW["relayclient.long"]


HOW = {case.id: case.how for case in RELAY_CLIENT_CASES}


@pytest.mark.parametrize(
    ("client", "case"), [("DecidesTheId", "own-members"), ("SpeaksBinary", "text"), ("JustLeaves", "close")]
)
async def test_what_works_all_the_same_is_tolerated(
    client: str, case: str, autojump_clock: trio.abc.Clock
) -> None:
    broken = next(each.what for each in ALL if each.what.__name__ == client)
    card = await judged(partial(by_hand, client=broken), level=Level.LENIENT)
    assert not ids(card, Verdict.FAILED), told(card)
    assert ids(card, Verdict.TOLERATED) == [f"relayclient.{case}"]


class BareCommands(RelayClient):
    """Sends commands without a payload, as the documents have it."""

    async def command(self, kind: str, payload: Any) -> None:
        frame = self.frame(["relay"], payload, {"type": kind})
        if payload is None:
            del frame["payload"]
        await self.send_frame(frame)


@pytest.mark.parametrize("level", [Level.SPEC, Level.REFERENCE, Level.RAWK], ids=lambda level: level.value)
async def test_the_reference_takes_no_command_without_a_payload(
    level: Level, autojump_clock: trio.abc.Clock
) -> None:
    card = await judged(partial(by_hand, client=BareCommands), level=level)
    wrong = ["relayclient.payload"] if level is Level.REFERENCE else []
    assert ids(card, Verdict.FAILED) == wrong, told(card)


async def test_a_level_of_lmos_is_none_of_theirs() -> None:
    with pytest.raises(
        ConfigError, match='"kotlin-wot" is a level for LMOS; clients of relays are judged by'
    ):
        RelayClientOptions(level=Level.KOTLIN_WOT)


# ---- clients that mean no good


async def test_no_client_is_so_odd_that_the_hub_ends(autojump_clock: trio.abc.Clock) -> None:
    odd: list[Any] = [
        None,
        True,
        -1,
        1e300,
        "",
        "x",
        [],
        {},
        [[{}]],
        {"agents": [{}]},
        ["relay"],
        ["*"],
        "\ud800",
    ]

    class Odd(RelayClient):
        async def greet(self) -> None:
            await super().greet()
            for _ in range(few_or_all(100, 3_000)):
                names = self.random.sample(("from", "to", "type", "ref", "payload", "id", "kit"), 4)
                frame = {name: self.random.choice(odd) for name in names}
                text = json.dumps(self.random.choice((frame, frame, frame, self.random.choice(odd))))
                await self.send(self.random.choice((TEXT, TEXT, 2)), text.encode())

    card = await judged(partial(by_hand, client=Odd))
    assert len(card.results) == len(IDS)
    assert not [id for id in ids(card, Verdict.FAILED) if HOW[id].startswith("a second after")], told(card)


async def test_agents_without_end_are_turned_away(autojump_clock: trio.abc.Clock) -> None:
    async def many(network: MemoryNetwork) -> None:
        client = RelayClient(network)
        found = []
        for number in range(300):
            found.append(await client.connect(f"tok_kit-{number:03}"))
            await client.stream.aclose()
        assert found == [101] * 256 + [503] * 44

    await judged(many)


async def test_two_connections_of_one_agent(autojump_clock: trio.abc.Clock) -> None:
    async def twice(network: MemoryNetwork) -> None:
        first, second = RelayClient(network), RelayClient(network)
        assert await first.connect("tok_kit-1") == 101
        assert await second.connect("tok_kit-1") == 101
        with trio.fail_after(1):
            assert await first.talk() == 4009
        await second.say_goodbye()

    assert not ids(await judged(twice), Verdict.FAILED)


async def test_clients_speak_with_each_other(autojump_clock: trio.abc.Clock) -> None:
    async def both(network: MemoryNetwork) -> None:
        async with (
            open_relay(f"{HERE}/arc", network=network, credentials=Shown("tok_kit-1")) as one,
            open_relay(f"{HERE}/arc", network=network, credentials=Shown("tok_kit-2")) as other,
        ):
            await one.say("hello", "kit-2", members={"kit_x": 1})
            while not isinstance(heard := await anext(other), RelayMessage) or heard.sender != "kit-1":
                pass
            assert (heard.payload, heard.to, heard.members) == ("hello", ("kit-2",), {"kit_x": 1})

    assert not ids(await judged(both), Verdict.FAILED)


# ---- the command


@pytest.mark.slow
def test_our_commands_are_judged_as_a_user_judges_them(tmp_path: Path) -> None:
    words = (
        "conform",
        "--serve",
        "127.0.0.1:0",
        "--relay",
        "--once",
        "--level",
        "spec",
        "--json",
        "card.json",
    )
    with started(words, tmp_path) as judge:
        assert judge.stdout is not None
        url = judge.stdout.readline().split()[3].rstrip(";")
        tokens = {
            f"TOKEN_{number}": token for number, token in enumerate(("bad", "tok_expired", "tok_guest"))
        }
        call = partial(called, folder=tmp_path, timeout=60, environment={**surroundings(), **tokens})
        assert call(("relay", "register", url, "guest")).returncode == 0
        ends = {
            ("relay", "ping", url, "--bearer", "env:TOKEN_0"): (3, "401"),
            ("relay", "listen", url, "--bearer", "env:TOKEN_1", "--follow", "judge"): (
                3,
                "4001: token expired",
            ),
            ("relay", "ping", url, "--bearer", "env:TOKEN_2"): (0, ""),
            ("relay", "send", url, "hello", "--to", "judge", "--bearer", "env:TOKEN_2"): (0, ""),
        }
        for line, (code, error) in ends.items():
            ran = call(line)
            assert ran.returncode == code, ran.stderr
            assert error in ran.stderr
        assert judge.wait(60) == 0
    card = json.loads((tmp_path / "card.json").read_text("utf-8"))
    passed = {each["id"].partition(".")[2] for each in card["results"] if each["verdict"] == "passed"}
    assert card["counts"]["failed"] == card["counts"]["tolerated"] == 0
    assert passed >= {"register", "credentials", "from", "payload", "commands", "close", "expired", "refused"}
    assert "tok_guest" not in (tmp_path / "card.json").read_text("utf-8")
