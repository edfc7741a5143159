"""Clients judged: ours solves every challenge; each broken one is caught by its case alone."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio

from lmos_actors import Agent, LmosActorsError, action, open_node
from lmos_actors.conformance import Card, Level, Verdict
from lmos_actors.conformance.clients import (
    CHALLENGES,
    CLIENT_CASES,
    ChallengeConnection,
    ChallengeServer,
    ClientNotes,
    ClientOptions,
    MessageRules,
    describe_challenges,
    describe_challenges_b,
    judge_clients,
)
from lmos_actors.conformance.scripted import ID, ID_B, REQUESTS, SendText
from lmos_actors.conformance.wire import RawFrame, close_payload, exchange, write_frame
from lmos_actors.protocol import td
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.conformance.broken_clients import ALL, BrokenClient
from tests.conformance.right_client import Client, GaveUp, Json
from tests.matrix import some

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.bindings import ConsumedThing

HERE = endpoint_of("ws://judge.example")


async def judged(client: Callable[[MemoryNetwork], Awaitable[object]], *, level: Level = Level.SPEC) -> Card:
    """Let a client be judged, and give its card once it has left."""
    network = MemoryNetwork()
    cards: list[Card] = []

    async def judge(task_status: trio.TaskStatus[str]) -> None:
        cards.append(
            await judge_clients(
                network, HERE, ClientOptions(level=level, once=True), announce=task_status.started
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


# --- our own client


async def solve(thing: ConsumedThing, beside: ConsumedThing) -> None:
    """Solve every challenge."""

    async def prove(challenge: str, token: str, **more: bool) -> None:
        assert (await thing.invoke("prove", {"challenge": challenge, "token": token, **more})) == {
            "right": True
        }

    async def invoked(challenge: str) -> None:
        output = await thing.invoke(f"challenge_{challenge.replace('-', '_')}")
        await prove(challenge, output["token"])

    await prove("read", await thing.read("challenge_read"))
    await prove("zoned-time", await thing.read("challenge_time"))
    await prove("other-thing", await beside.read("challenge_read"))
    await thing.write("challenge_slate", "chalk")
    await prove("write", await thing.read("challenge_slate"))
    for challenge in ("output", "pending", "progress", "unknown-members", "unknown-type", "stray-event",
                   "stray-answer", "stray-pong", "fragments", "long", "letters"):  # fmt: skip
        await invoked(challenge)
    for challenge in ("failure", "error", "numeric-status"):
        with pytest.raises(LmosActorsError) as failed:
            await thing.invoke(f"challenge_{challenge.replace('-', '_')}")
        await prove(challenge, str(failed.value), failed=True)
    async with thing.observe("challenge_changing") as values:
        received = aiter(values)
        assert await anext(received) == "not yet"
        await prove("observe", await anext(received))
    async with thing.subscribe("challenged") as events:
        await thing.invoke("challenge_event")
        await prove("event", (await anext(aiter(events)))["token"])
    tokens: dict[int, str] = {}

    async def one(which: int) -> None:
        tokens[which] = (await thing.invoke("challenge_reversed", {"which": which}))["token"]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, 1)
        nursery.start_soon(one, 2)
    await prove("reversed", f"{tokens[1]} {tokens[2]}")
    output = await thing.invoke("challenge_restart")
    await trio.sleep(0.1)
    await thing.ready()
    await prove("reconnects", output["token"])


class Token(msgspec.Struct):
    """What a challenge answers."""

    token: str


class Streamed(Agent):
    """What of the thing with challenges takes a stream."""

    @action
    async def challenge_stream(self, words: AsyncIterator[str]) -> Token:
        raise NotImplementedError


async def words() -> AsyncIterator[str]:
    for word in ("one", "two", "three", "four", "five"):
        yield word


async def ours(network: MemoryNetwork, **how: Any) -> None:
    async with open_node(network=network) as node:
        thing = await node.consume_thing("http://judge.example/agents/conformance", **how)
        if not how:  # a peer of other habits is sent no streams
            streamed = await node.consume(Streamed, "http://judge.example/agents/conformance")
            output = await streamed.invoke(Streamed.challenge_stream, words())
            await thing.invoke("prove", {"challenge": "stream", "token": output.token})
        await solve(thing, await node.consume_thing("http://judge.example/agents/conformance-b", **how))


async def test_our_client_solves_every_challenge(autojump_clock: trio.abc.Clock) -> None:
    card = await judged(ours)
    assert ids(card, Verdict.PASSED) == [case.id for case in CLIENT_CASES], told(card)
    assert card.role == "client"


async def test_with_the_habits_of_kotlin_wot_nothing_fails(autojump_clock: trio.abc.Clock) -> None:
    card = await judged(partial(ours, habits="kotlin-wot"), level=Level.KOTLIN_WOT)
    assert ids(card, Verdict.FAILED) == [], told(card)


# --- clients by hand


async def by_hand(network: MemoryNetwork, client: type[Client]) -> None:
    await client(network).run()


async def test_a_right_client_passes_everything(autojump_clock: trio.abc.Clock) -> None:
    card = await judged(partial(by_hand, client=Client))
    assert ids(card, Verdict.PASSED) == [case.id for case in CLIENT_CASES], told(card)


OF_THEIR_OWN = {
    "NoObject", "SpeaksBinary", "SpeaksOn", "Unmasked", "LeavesAtClose", "ClosesLate", "SameIds", "AllIsWell",
    "KeepsToNoCredit", "OneThing", "SaysWhatCannotBeSaid",
}  # fmt: skip
"""Clients whose faults have lines of their own in the kit."""


@pytest.mark.parametrize(
    "broken",
    some(ALL, of=6, besides=lambda broken: broken.what.__name__ in OF_THEIR_OWN),
    ids=lambda broken: broken.what.__name__,
)
async def test_a_broken_client_is_caught_by_its_case_and_no_other(
    broken: BrokenClient, autojump_clock: trio.abc.Clock
) -> None:
    card = await judged(partial(by_hand, client=broken.what))
    assert set(ids(card, Verdict.FAILED)) == {broken.caught_by, *broken.also}, told(card)


def test_every_case_has_a_client_that_it_catches() -> None:
    assert {broken.caught_by for broken in ALL} == {case.id for case in CLIENT_CASES}


# --- levels, and what is not tried


class Quiet(Client):
    """Does only what its steps say."""

    steps = ()


async def test_who_only_connects_is_not_judged_by_more(autojump_clock: trio.abc.Clock) -> None:
    card = await judged(partial(by_hand, client=Quiet))
    seen = {result.id: result for result in card.results}
    assert ids(card, Verdict.PASSED) == [
        "client.handshake",
        "client.subprotocol",
        "client.masked",
        "client.frames",
        "client.close",
        "client.nothing-after-close",
    ]
    assert ids(card, Verdict.FAILED) == []
    assert (
        seen["client.read"].seen == "no client has begun it. How: read challenge_read; its value is the token"
    )


class ProvesNothing(Client):
    steps = ("read", "output")

    async def prove(self, challenge: str, token: Any, **more: bool) -> None:
        pass


async def test_who_never_proves_anything_has_not_begun(autojump_clock: trio.abc.Clock) -> None:
    card = await judged(partial(by_hand, client=ProvesNothing))
    assert ids(card, Verdict.FAILED) == []
    seen = {result.id: result for result in card.results}
    assert seen["client.read"].seen == "no client has ever invoked prove"


class OneAtATime(Client):
    steps = ("read", "reversed")

    async def do_reversed(self) -> None:
        for which in (1, 2):
            await self.ask("invokeAction", action="challenge_reversed", input={"which": which})


async def test_a_challenge_of_two_is_begun_by_two(autojump_clock: trio.abc.Clock) -> None:
    card = await judged(partial(by_hand, client=OneAtATime))
    assert "client.reversed" in ids(card, Verdict.NOT_RUN)
    assert ids(card, Verdict.FAILED) == []


@pytest.mark.parametrize(
    ("client", "case"),
    [
        ("OffersNothing", "client.subprotocol"),
        ("SpelledAsInExamples", "client.spelling"),
        ("LowerCase", "client.types"),
        ("Counts", "client.ids"),
        ("JustLeaves", "client.close"),
    ],
)
async def test_what_works_all_the_same_is_tolerated(
    client: str, case: str, autojump_clock: trio.abc.Clock
) -> None:
    broken = next(each.what for each in ALL if each.what.__name__ == client)
    card = await judged(partial(by_hand, client=broken), level=Level.LENIENT)
    assert ids(card, Verdict.FAILED) == []
    assert ids(card, Verdict.TOLERATED) == [case]
    result = next(each for each in card.results if each.id == case)
    assert result.departures
    assert result.departures[0].title in result.seen


# --- what a card says


class WrongToken(Client):
    steps = ("read", "output")

    def value_of(self, reading: Json) -> Any:
        return "nothing of the kind"

    async def do_output(self) -> None:
        await self.invoke("output")


async def test_a_card_shows_what_went_by(autojump_clock: trio.abc.Clock) -> None:
    card = await judged(partial(by_hand, client=WrongToken))
    results = {result.id: result for result in card.results}
    wrong, unproven = results["client.read"], results["client.output"]
    assert "is not the token" in wrong.seen
    first, answer, *_ = wrong.traffic
    assert (first.sent, first.kind, answer.sent) == (False, "text", True)
    assert '"challenge_read"' in first.text
    assert unproven.seen == "it was begun 1x, and never proven"
    assert '"challenge_output"' in unproven.traffic[0].text
    assert card.subject == "clients"
    assert card.thing == ID


async def test_wrong_frames_are_shown(autojump_clock: trio.abc.Clock) -> None:
    broken = next(each.what for each in ALL if each.caught_by == "client.json")
    card = await judged(partial(by_hand, client=broken))
    result = next(each for each in card.results if each.id == "client.json")
    assert result.traffic[-1].text == "hello"
    assert result.seen.startswith("not JSON: ")


async def test_it_ends_on_a_signal(autojump_clock: trio.abc.Clock) -> None:
    stop = trio.Event()
    said: list[str] = []
    cards: list[Card] = []

    async def judge() -> None:
        card = await judge_clients(
            MemoryNetwork(), HERE, ClientOptions(seed=3), stop=stop, announce=said.append
        )
        cards.append(card)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(judge)
        await trio.sleep(1000)
        assert cards == []
        stop.set()
    assert said == ["http://judge.example/agents/conformance"]
    assert {result.verdict for result in cards[0].results} == {Verdict.NOT_RUN}
    assert cards[0].seed == 3


async def test_who_is_refused_is_judged_and_has_left(autojump_clock: trio.abc.Clock) -> None:
    async def options(network: MemoryNetwork) -> None:
        stream = await network.connect(HERE, None)
        await stream.send_all(b"GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nUser-Agent: x/1\r\n\r\n")
        assert (await stream.receive_some(12)) == b"HTTP/1.1 426"
        await stream.aclose()

    card = await judged(options)
    assert card.subject == "x/1"
    assert ids(card, Verdict.FAILED) == ["client.handshake", "client.subprotocol"]


async def test_a_client_gets_its_violations(autojump_clock: trio.abc.Clock) -> None:
    """Of a rule of frames, by 1002; of the rest, by an error, and it may go on."""
    answers: list[Any] = []

    class Told(Client):
        steps = ("last",)

        async def do_last(self) -> None:
            answers.append(await self.ask("readProperty", name="colour"))
            await self.stream.send_all(write_frame(0x1, b"x", rsv=1, key=b"abcd"))
            with pytest.raises(GaveUp):
                await self.next()

        async def on_close(self, payload: bytes) -> None:
            answers.append(payload[:2])
            await super().on_close(payload)

    await judged(partial(by_hand, client=Told))
    assert answers[0]["status"] == "404"
    assert answers[1:] == [close_payload(1002)]


async def test_a_thing_has_an_address_of_its_own_however_it_is_written(
    autojump_clock: trio.abc.Clock,
) -> None:
    answers: list[Any] = []

    class Direct(Client):
        path = "/agents/conform%61nce-b"
        steps = ("last",)

        async def do_last(self) -> None:
            answers.append(await self.ask("readProperty", thing="", name="challenge_read"))

    await judged(partial(by_hand, client=Direct))
    assert (answers[0]["messageType"], answers[0]["thingID"]) == ("propertyReading", ID_B)


class LatestPong(Client):
    """Answers the newest of two pings, which RFC 6455, 5.5.3, allows."""

    steps = ("fragments",)
    pings = 0

    async def on_ping(self, payload: bytes) -> None:
        self.pings += 1
        if self.pings == 2:
            await super().on_ping(payload)


class AsksAgain(Client):
    """Repeats a request, which the description offers as `retries`."""

    steps = ("last",)

    async def do_last(self) -> None:
        again = self.new_id()
        for _ in range(2):
            await self.ask("writeProperty", name="level", data=3, messageID=again)


class ComesBackLate(Client):
    steps = ("reconnects",)

    async def connect(self) -> None:
        if self.closed:
            await trio.sleep(6)
        await super().connect()


@pytest.mark.parametrize("client", [LatestPong, AsksAgain, ComesBackLate])
async def test_what_is_allowed_passes(client: type[Client], autojump_clock: trio.abc.Clock) -> None:
    card = await judged(partial(by_hand, client=client))
    assert ids(card, Verdict.FAILED) == [], told(card)
    wanted = {LatestPong: "pongs", AsksAgain: "fresh-ids", ComesBackLate: "reconnects"}[client]
    assert f"client.{wanted}" in ids(card, Verdict.PASSED)


async def test_clients_may_come_one_after_the_other(autojump_clock: trio.abc.Clock) -> None:
    visits: list[float] = []

    async def come_and_go(network: MemoryNetwork) -> None:
        for _ in range(3):
            client = Quiet(network)
            await client.connect()
            visits.append(trio.current_time())
            await client.say_goodbye()
            await client.stream.aclose()
            await trio.sleep(2.5)

    await judged(come_and_go)
    assert len(visits) == 3


async def test_credentials_are_not_shown(autojump_clock: trio.abc.Clock) -> None:
    class Knows(Quiet):
        def headers(self) -> dict[str, str]:
            headers = super().headers() | {"Authorization": "Bearer hush", "Cookie": "hush=1"}
            return {name: value for name, value in headers.items() if name != "Sec-WebSocket-Protocol"}

    card = await judged(partial(by_hand, client=Knows))
    head = next(result for result in card.results if result.id == "client.subprotocol").traffic[0].text
    assert "Authorization: …" in head
    assert "hush" not in head


async def test_parts_are_cut_within_a_letter(autojump_clock: trio.abc.Clock) -> None:
    frames: list[RawFrame] = []

    class Keeps(Client):
        steps = ("fragments",)

        async def on_frame(self, frame: RawFrame) -> Json | None:
            frames.append(frame)
            return await super().on_frame(frame)

    await judged(partial(by_hand, client=Keeps))
    first = frames[0]
    assert (first.opcode, first.fin) == (0x1, False)
    with pytest.raises(UnicodeDecodeError):
        first.payload.decode()
    assert [frame.opcode for frame in frames[1:4]] == [0x9, 0x0, 0x0]


@pytest.mark.parametrize("describe", [describe_challenges, describe_challenges_b])
def test_the_descriptions_have_nothing_wrong(describe: Any) -> None:
    assert td.check(describe("ws://127.0.0.1:8080"), strict=True) == ()


async def test_the_page_lists_the_challenges(autojump_clock: trio.abc.Clock) -> None:
    pages: list[bytes] = []

    async def look(network: MemoryNetwork) -> None:
        answer = await exchange(
            network, "GET", "http://judge.example/", headers=(("Accept", "text/html"),), patience=5
        )
        refused = await exchange(
            network, "POST", "http://judge.example/agents/conformance/actions/challenge_output", patience=5
        )
        assert refused.status == 405
        pages.append(answer.body)
        await Quiet(network).run()

    await judged(look)
    for case in CHALLENGES:
        assert f"<code>{case.challenge}</code>".encode() in pages[0]


def test_ids_of_cases_stay() -> None:
    """A client's card is compared with older ones by them."""
    watched = (
        "handshake subprotocol masked frames utf-8 text json types members spelling ids fresh-ids thing-id "
        "offered input pongs returns-close close nothing-after-close"
    )
    challenges = (
        "read write zoned-time output pending progress failure error numeric-status observe event "
        "other-thing reversed unknown-members unknown-type stray-event stray-answer stray-pong fragments "
        "long letters stream reconnects"
    )
    ids = [case.id for case in CLIENT_CASES]
    assert ids == [f"client.{each}" for each in (*watched.split(), *challenges.split())]


# --- nothing that a client sends raises

ODD: tuple[Any, ...] = (
    None, True, -1, 1.5, 10**400, math.inf, "", "x", "\ud800", [], {}, [1], {"\ud800": 1}, [[["x"]] * 3],
    {"items": 1, "bytes": 1}, {"items": 10**30, "bytes": 1e300}, {"text": "a", "times": 2.0}, {"which": 1.0},
    {"to": 5.0}, {"seconds": 0.0}, {"a": 10**400, "b": 1}, {"challenge": "read", "token": "\ud800"},
)  # fmt: skip
MEMBERS = (
    "thingID", "thingId", "messageID", "messageId", "correlationID", "correlationId", "name", "property",
    "data", "value", "action", "event", "input", "credit", "streams", "remaining", "attempt", "ack", "items",
    "bytes", "stream", "reason", "properties",
)  # fmt: skip


def test_nothing_that_a_client_sends_raises() -> None:
    random = Random(1)
    time = [0.0]
    server = ChallengeServer(lambda: time[0], Random(1), ClientNotes(Level.SPEC, ClientOptions.cases), 2.0)
    names = {
        "name": [*server.main.properties], "action": [*server.main.actions], "event": [*server.main.events],
        "thingID": [ID, ID_B], "messageID": [f"m{number}" for number in range(30)],
    }  # fmt: skip
    names |= {"property": names["name"], "thingId": names["thingID"], "correlationID": names["messageID"]}
    connections: list[ChallengeConnection] = []
    for _ in range(1500):
        if len(connections) < 3:
            made = server.connect(offered=random.random() < 0.5, peer=random.choice(["", "p" * 32]))
            assert isinstance(made, ChallengeConnection)
            connections.append(made)
        connection = random.choice(connections)
        kind = random.choice([*REQUESTS, "subscribeevent", "error", "x", 5])
        message: Json = {"messageType": kind}
        for member in ["thingID", "messageID", *REQUESTS.get(str(kind), ()), *random.sample(MEMBERS, 2)]:
            likely = names.get(member)
            message[member] = random.choice(likely if likely and random.random() < 0.8 else ODD)
        text = json.dumps(message)
        text = text[: random.randrange(len(text))] if random.random() < 0.02 else text
        MessageRules(server.notes, connection.log, server.things, {}).judge(text)
        connection.text(text)
        for out in connection.out:
            if isinstance(out, SendText):
                out.text.encode()
        connection.out.clear()
        if random.random() < 0.005:
            connections.remove(connection)
            connection.lost()
        time[0] += random.random() / 10
        server.tick()
    for result in server.notes.results():
        result.seen.encode()
