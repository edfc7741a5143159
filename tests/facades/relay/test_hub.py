"""The hub of a node: who is let in, what passes, what nobody can do to it. In virtual time, over frames."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, action, open_node, simulate
from lmos_actors.conformance.wire import exchange
from lmos_actors.errors import ActionFailed, ConfigError, ConnectFailed
from lmos_actors.facades import RelayOptions, register_on_relay
from lmos_actors.persistence import SimulatedStore
from lmos_actors.protocol.relay.extensions import History
from lmos_actors.security import Access, Bearer, Security
from lmos_actors.transport import MemoryNetwork, TcpNetwork, connect
from tests.persistence.stores import every_place
from tests.seeded import simulated_disk
from tests.transport.peer import TEXT, Steps, frame, mask

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from lmos_actors.conformance.wire import HttpAnswer
    from lmos_actors.node import Node
    from lmos_actors.persistence import Store
    from tests.persistence.stores import Place

HOST = "hub:80"
COMMIT = 0.5
"""Seconds of a commit of a slow store."""

URL = f"ws://{HOST}"


class Calm(Agent):
    """An agent beside the hub."""

    @action
    def hello(self) -> str:
        return "hello"


class Peer:
    """An agent on the relay, by hand."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.waiting: list[bytes] = []
        self.heard, self._news = trio.open_memory_channel[dict[str, Any]](10_000)
        self.ended: Any = None
        self.over = trio.Event()

    def text(self, text: str) -> None:
        self.heard.send_nowait(json.loads(text))

    def binary(self, data: bytes) -> None:
        raise AssertionError(data)

    def frames(self, room: int) -> list[bytes]:
        taken, self.waiting = self.waiting, []
        return taken

    def is_behind(self) -> bool:
        return False

    def say(self, frame: Any = None, **members: Any) -> None:
        text = frame if isinstance(frame, str) else json.dumps(members if frame is None else frame)
        self.waiting.append(text.encode())
        self.connection.wake()

    async def next(self) -> dict[str, Any]:
        return await self._news.receive()

    async def of_type(self, type: str) -> dict[str, Any]:
        while (frame := await self.next()).get("type") != type:
            pass
        return frame

    async def run(self) -> None:
        self.ended = await self.connection.run(self)
        self.heard.close()
        self.over.set()


@asynccontextmanager
async def opened(
    network: Any, token: str, *, query: bool = False, url: str = URL, welcomed: bool = True
) -> AsyncGenerator[Peer]:
    headers = () if query else ((b"authorization", f"Bearer {token}".encode()),)
    target = f"{url}/arc?token={token}" if query else f"{url}/arc"
    peer = Peer(await connect(network, target, subprotocols=(), headers=headers))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run)
        if welcomed:
            assert (await peer.next())["type"] == "welcome"
        yield peer
        peer.connection.close()
        nursery.cancel_scope.deadline = trio.current_time() + 5


async def registered(network: Any, id: str | None = None, url: str = URL) -> tuple[str, str]:
    found = await asked(network, "POST", "/register", {} if id is None else {"agent_id": id}, url)
    assert found.status == 200, found.text
    return found.json()["agent_id"], found.json()["token"]


def bearer(token: str) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"authorization", f"Bearer {token}".encode()),)


async def asked(
    network: Any, method: str, path: str, body: Any = None, url: str = URL, *, headers: Any = ()
) -> HttpAnswer:
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    place = f"{url.replace('ws', 'http', 1)}{path}"
    return await exchange(
        network, method, place, headers=headers, body=data, tls=None, patience=5, record=lambda _: None
    )


def told(
    body: Callable[[Node, MemoryNetwork], Awaitable[None]],
    *,
    store: Store | str | None = None,
    security: Security | None = None,
    **options: Any,
) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(
            listen=URL, relay=RelayOptions(**options), network=network, store=store, security=security
        ) as node:
            await node.start(Calm)
            with trio.fail_after(10_000):
                await body(node, network)

    simulate(main)


def test_agents_register_meet_and_talk() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        id, token = await registered(network, "agent-one")
        other, second = await registered(network)
        assert (id, other.startswith("agent-")) == ("agent-one", True)
        async with opened(network, token) as one, opened(network, second, query=True) as two:
            one.say(to=["*"], type="thought", payload={"n": 12345678901234567890})
            thought = await two.next()
            assert (thought["from"], thought["payload"]) == (id, {"n": 12345678901234567890})
            two.say(to=[id], type="answer", ref=thought["id"], payload="yes", x=1)
            answer = await one.next()
            assert (answer["from"], answer["ref"], answer["x"]) == (other, thought["id"], 1)
            one.say(to=["relay"], type="ping")
            assert (await one.next())["type"] == "pong"
            stats = (await asked(network, "GET", "/stats")).json()
            assert stats == {"connected": 2, "registered": 2, "messages": 2, "deliveries": 2, "dropped": 0}
        assert (await asked(network, "GET", "/health")).json() == {"status": "ok"}
        assert await node.find(Calm).invoke(Calm.hello) == "hello"

    told(body)


@pytest.mark.parametrize(("limit", "most"), [("max_targets", 1), ("max_followed", 1)])
def test_how_many_one_reaches_is_an_option(limit: str, most: int) -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        tokens = [(await registered(network, name))[1] for name in ("one", "two", "three")]
        async with opened(network, tokens[0]) as one:
            for to in (["two"], ["two", "three"]):
                if limit == "max_targets":
                    one.say(to=to, type="thought", payload=1)
                else:
                    one.say(to=["relay"], type="subscribe", payload={"agents": to})
            error = await one.of_type("error")
            assert str(most) in str(error["payload"])

    options: dict[str, Any] = {limit: most}
    told(body, **options)


@every_place
async def test_the_same_over_sockets(place: Place, tmp_path: Path) -> None:
    store = place(tmp_path)
    network = TcpNetwork()
    async with open_node(listen="ws://127.0.0.1:0", relay=True, store=store) as node:
        url = node.urls[0].removesuffix("/ws")
        one, two = await registered(network, "one", url), await registered(network, "two", url)
        async with opened(network, one[1], url=url) as first, opened(network, two[1], url=url) as second:
            first.say(to=["two"], payload=1)
            assert (await second.next())["payload"] == 1
    async with open_node(listen="ws://127.0.0.1:0", relay=True, store=store) as node:
        url = node.urls[0].removesuffix("/ws")
        async with opened(network, one[1], url=url) as first:  # the token outlives the process
            first.say(to=["one"], payload="me")
            assert (await first.next())["from"] == "one"
        taken = await asked(network, "POST", "/register", {"agent_id": "two"}, url)
        assert (taken.status, taken.json()["error"]) == (409, "agent_id_taken")


async def test_many_hear_a_broadcast_over_sockets() -> None:
    """The hub sends to all of them in one step; one is in the midst of a message, another is leaving."""
    network = TcpNetwork()
    async with open_node(listen="ws://127.0.0.1:0", relay=True) as node, AsyncExitStack() as stack:
        url = node.urls[0].removesuffix("/ws")
        names = [f"agent-{number}" for number in range(5)]
        tokens = [(await registered(network, name, url))[1] for name in names]
        first, *others = [
            await stack.enter_async_context(opened(network, token, url=url)) for token in tokens
        ]
        half = frame(TEXT, json.dumps({"to": ["agent-0"], "payload": "whole"}).encode())
        cut = len(half) // 2
        stream = others[0].connection._stream
        await stream.send_all(mask(half)[:cut])
        others[-1].connection.close()
        for number in range(200):
            first.say(to=["*"], payload=number)
        for other in others[:-1]:
            assert [(await other.next())["payload"] for _ in range(200)] == list(range(200))
        await stream.send_all(mask(half)[cut:])
        assert (await first.next())["payload"] == "whole"
        await node.root.terminate_child("relay")
        for peer in (first, *others[:-1]):
            await peer.over.wait()
            assert peer.ended.code == 1012


async def test_a_message_alone_is_sent_in_the_step_that_takes_it() -> None:
    network, steps, counts = TcpNetwork(), Steps(), list[int]()
    async with open_node(listen="ws://127.0.0.1:0", relay=True) as node, AsyncExitStack() as stack:
        url = node.urls[0].removesuffix("/ws")
        tokens = [(await registered(network, name, url))[1] for name in ("one", "two")]
        one, two = [await stack.enter_async_context(opened(network, token, url=url)) for token in tokens]
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(steps)
        for number in range(40):
            before = steps.count
            one.waiting.append(json.dumps({"to": ["two", "*"][number % 2 :][:1], "payload": number}).encode())
            one.connection.flush()
            assert (await two.next())["payload"] == number
            counts.append(steps.count - before)
        trio.lowlevel.remove_instrument(steps)
    assert min(counts[::2]) == min(counts[1::2]) == 3  # the readers of both ends, and this task


REGISTRATIONS: list[tuple[Any, int, str]] = [
    (b"{", 400, "invalid_json"),
    (b"null", 400, "invalid_json"),
    (b"[]", 400, "invalid_json"),
    (b"\xff", 400, "invalid_json"),
    (b"[" * 4_000, 400, "invalid_json"),
    (b"x" * 10_000, 413, "too_large"),
    ({"agent_id": 5}, 400, "invalid_agent_id"),
    ({"agent_id": ["xyz"]}, 400, "invalid_agent_id"),
    ({"agent_id": "relay"}, 400, "invalid_agent_id"),
    ({"agent_id": "*"}, 400, "invalid_agent_id"),
    ({"agent_id": "Ab-"}, 400, "invalid_agent_id"),
]


@pytest.mark.parametrize(("body", "status", "error"), REGISTRATIONS)
def test_registrations_that_are_refused(body: Any, status: int, error: str) -> None:
    async def main(node: Node, network: MemoryNetwork) -> None:
        found = await asked(network, "POST", "/register", body)
        assert (found.status, found.json()["error"]) == (status, error)
        assert found.json()["message"]
        await registered(network)

    told(main)


def test_registrations_of_an_address_are_bounded_and_may_be_closed() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        for _ in range(5):
            await registered(network)
        found = await asked(network, "POST", "/register")
        assert (found.status, found.header("retry-after")) == (429, "13")
        with pytest.raises(ActionFailed, match="too many registrations: try again in 13 s"):
            await register_on_relay(URL, network=network)
        await trio.sleep(13)
        await registered(network)

    async def closed(node: Node, network: MemoryNetwork) -> None:
        found = await asked(network, "POST", "/register")
        assert (found.status, found.json()["error"]) == (403, "not_allowed")

    told(body, registrations_per_minute=5)
    told(closed, registration="closed")


def test_ids_that_are_made_up_are_the_same_in_each_run_of_a_simulation_and_tokens_are_not() -> None:
    made: list[tuple[str, str]] = []

    async def body(node: Node, network: MemoryNetwork) -> None:
        made.append(await registered(network))

    told(body)
    told(body)
    assert made[0][0] == made[1][0]
    assert made[0][1] != made[1][1]


def test_so_many_identities_and_no_more() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        await registered(network, "one")
        await registered(network, "two")
        assert (await asked(network, "POST", "/register")).status == 503
        await trio.sleep(3_600)  # they never connected
        _, token = await registered(network)
        async with opened(network, token):
            pass

    told(body, identities=2)


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ((), "", 401),
        (((b"authorization", b"Bearer tok_nonsense"),), "", 401),
        (((b"authorization", b"Basic YTpi"),), "", 401),
        (((b"authorization", b"Bearer tok_nonsense"),), "?token=GOOD", 401),
        ((), "?token=nonsense", 401),
        (((b"origin", b"https://evil.example"),), "?token=GOOD", 403),
    ],
)
def test_who_is_not_let_in(headers: Any, query: str, status: int) -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        _, token = await registered(network)
        target = f"{URL}/arc{query.replace('GOOD', token)}"
        with pytest.raises(ConnectFailed) as refused:
            await connect(network, target, subprotocols=(), headers=headers)
        assert refused.value.status == status

    told(body)


def test_an_address_that_guesses_has_to_wait_and_its_agents_do_not() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        _, token = await registered(network)

        async def status(shown: str) -> int | None:
            try:
                async with opened(network, shown):
                    return 101
            except ConnectFailed as refused:
                return refused.status

        assert [await status("wrong") for _ in range(25)].count(429) == 15
        assert await status(token) == 101
        await trio.sleep(5)
        assert [await status(each) for each in ("wrong", "wrong")] == [401, 429]

    told(body)


def test_a_newer_connection_of_an_agent_takes_over() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        id, token = await registered(network)
        async with opened(network, token) as old, opened(network, token) as new:
            await old.over.wait()
            assert (old.ended.code, old.ended.reason) == (4009, "replaced")
            new.say(to=[id], payload=1)
            assert (await new.next())["payload"] == 1

    told(body)


def test_a_token_that_is_taken_away_closes_its_connection() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        id, token = await registered(network)
        async with opened(network, token) as peer:
            found = await asked(network, "POST", "/revoke", headers=bearer(token))
            assert (found.status, found.json()) == (200, {"agent_id": id})
            await peer.over.wait()
            assert peer.ended.code == 4001
        with pytest.raises(ConnectFailed):
            await connect(network, f"{URL}/arc?token={token}", subprotocols=())

    told(body)


def test_who_may_take_tokens_away(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("chief-secret")
    (tmp_path / "clerk").write_text("clerk-secret")
    places = {"chief": (f"file:{tmp_path / 'tokens'}",), "clerk": (f"file:{tmp_path / 'clerk'}",)}

    async def body(node: Node, network: MemoryNetwork) -> None:
        async def revoked(shown: str | None, id: str | None) -> int:
            headers = () if shown is None else bearer(shown)
            asks = {} if id is None else {"agent_id": id}
            return (await asked(network, "POST", "/revoke", asks, headers=headers)).status

        tokens = {id: (await registered(network, id))[1] for id in ("one", "two", "three")}
        assert await revoked(None, "one") == 401
        assert await revoked("wrong", "one") == 401
        assert await revoked(tokens["two"], "one") == 403
        assert await revoked("clerk-secret", "one") == 403
        assert await revoked("chief-secret", None) == 400
        assert await revoked("chief-secret", "nobody") == 404
        assert await revoked("chief-secret", "one") == 200
        assert await revoked(tokens["one"], None) == 401
        assert await revoked(tokens["two"], "two") == 200
        assert await revoked(tokens["three"], None) == 200

    access = {"relay": Access(invoke=("chief",))}
    told(body, security=Security(schemes=(Bearer(places),), access=access), registration="open")


def test_tokens_of_the_hub_open_the_hub_alone_and_the_nodes_do_not(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("chief-secret")

    async def body(node: Node, network: MemoryNetwork) -> None:
        _, token = await registered(network, "one")
        assert (await asked(network, "GET", "/", headers=bearer(token))).status == 401
        assert (await asked(network, "GET", "/", headers=bearer("chief-secret"))).status == 200
        with pytest.raises(ConnectFailed) as refused:
            await connect(network, f"{URL}/arc", subprotocols=(), headers=bearer("chief-secret"))
        assert refused.value.status == 401
        async with opened(network, token):
            for shown, names in ((token, ["one"]), ("chief-secret", ["one"]), (None, None)):
                headers = () if shown is None else bearer(shown)
                found = (await asked(network, "GET", "/stats", headers=headers)).json()
                assert (found["connected"], found.get("agents")) == (1, names)
        assert (await asked(network, "GET", "/stats", headers=bearer("wrong"))).status == 401

    security = Security(schemes=(Bearer({"chief": (f"file:{tmp_path / 'tokens'}",)}),))
    told(body, security=security, registration="open")


def test_an_invitation_is_good_once_and_stays_used(tmp_path: Path) -> None:
    place = tmp_path / "invitations"
    place.write_text("first-one\nsecond-one\n")

    async def body(node: Node, network: MemoryNetwork) -> None:
        async def status(**members: Any) -> tuple[int, str]:
            found = await asked(network, "POST", "/register", members)
            return found.status, found.json().get("message", "")

        assert await status(agent_id="one") == (403, "an invitation is needed: the member `invitation`")
        assert await status(agent_id="one", invitation="nonsense") == (403, "this is no invitation")
        assert await status(agent_id="one", invitation=["first-one"]) == (403, "this is no invitation")
        assert await status(agent_id="one", invitation="first-one") == (200, "")
        assert await status(agent_id="one", invitation="second-one") == (409, "this id is taken")
        assert await status(agent_id="two", invitation="first-one") == (403, "this invitation has been used")
        await node.root.terminate_child("relay")
        await node.root.restart_child("relay")
        assert await status(agent_id="two", invitation="first-one") == (403, "this invitation has been used")
        place.write_text("second-one\nthird-one\n")
        await trio.sleep(2)
        assert await status(agent_id="two", invitation="first-one") == (403, "this is no invitation")
        assert await status(agent_id="two", invitation="third-one") == (200, "")
        for _ in range(20):
            last = await status(agent_id="ten", invitation="guess")
        assert last == (429, "too many wrong invitations")

    told(body, invitations=f"file:{place}")


def test_an_identity_does_not_end_while_its_agent_is_connected() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        id, token = await registered(network)
        async with opened(network, token) as peer:
            await trio.sleep(7_200)
            assert (await asked(network, "GET", "/stats")).json()["registered"] == 1
            peer.say(to=[id], payload=1)
            assert (await peer.next())["payload"] == 1
        await trio.sleep(900)
        assert (await asked(network, "GET", "/stats")).json()["registered"] == 1
        await trio.sleep(101)
        assert (await asked(network, "GET", "/stats")).json()["registered"] == 0

    told(body, identity_seconds=1_000.0)


def test_a_frame_that_is_too_long_ends_the_connection_and_nothing_else() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        _, token = await registered(network)
        _, second = await registered(network)
        async with opened(network, token) as one, opened(network, second) as two:
            one.say(to=["*"], payload="x" * 70_000)
            await one.over.wait()
            assert one.ended.code == 1009
            two.say(to=["relay"], type="ping")
            assert (await two.next())["type"] == "pong"

    told(body)


def test_junk_is_refused_and_the_hub_goes_on() -> None:
    junk = [
        "null",
        "{oops",
        "[]",
        '{"to":[{"toString":1}],"payload":1}',
        '{"to":["*"],"payload":' + "[" * 50_000,
    ]

    async def body(node: Node, network: MemoryNetwork) -> None:
        id, token = await registered(network)
        async with opened(network, token) as peer:
            for text in junk:
                peer.say(text)
                error = await peer.next()
                assert (error["type"], error["payload"]["code"]) == ("error", "invalid_message")
            peer.say(to=[id], payload="still here")
            assert (await peer.next())["payload"] == "still here"
        assert node.crash_reports == ()

    told(body)


def test_an_agent_that_does_not_read_costs_the_others_nothing() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        _, token = await registered(network)
        _, silent = await registered(network)
        _, third = await registered(network)
        async with opened(network, token) as one, opened(network, third) as reader:
            peer = await connect(network, f"{URL}/arc?token={silent}", subprotocols=())  # and it never reads
            for number in range(300):
                one.say(to=["*"], payload=f"{number:05}" + "x" * 10_000)
                assert (await reader.next())["payload"].startswith(f"{number:05}")
            stats = (await asked(network, "GET", "/stats")).json()
            assert 250 < stats["dropped"] < 300
            assert stats["deliveries"] == 600
            await peer.aclose()

    told(body, outbox_bytes=100_000, rates=(), write_seconds=60)


def test_the_end_of_a_node_tells_its_agents_to_come_back() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen=URL, relay=True, network=network) as node:
            _, token = await registered(network)
            async with opened(network, token) as peer:
                await node.drain()
                await peer.over.wait()
                assert peer.ended.code == 1012

    simulate(main)


def test_a_hub_that_crashes_is_restarted_and_knows_its_agents() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        id, token = await registered(network)
        async with opened(network, token) as peer:
            await node.root.terminate_child("relay")
            await node.root.restart_child("relay")
            await peer.over.wait()
            assert peer.ended.code == 1012
        await trio.sleep(1)
        async with opened(network, token) as peer:
            peer.say(to=[id], payload="again")
            assert (await peer.next())["payload"] == "again"

    told(body)


def test_a_vote_and_what_was_said_outlive_the_hub() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        _, token = await registered(network, "one")
        _, second = await registered(network, "two")
        async with opened(network, token) as one, opened(network, second):
            one.say(to=["one"], payload="what time is it?", no_store=True)
            deadline = (await one.next())["ts"] + 100_000
            one.say(to=["*"], payload="shall we?", type="proposal", deadline=deadline, receipt="mine")
            ref = (await one.of_type("receipt"))["ref"]
            one.say(to=["relay"], payload={"approve": True}, type="vote", ref=ref, receipt="mine")
            await one.of_type("receipt")
            await trio.sleep(1)
            await node.root.terminate_child("relay")
            await node.root.restart_child("relay")
        async with opened(network, token) as one, opened(network, second) as two:
            two.say(to=["relay"], payload={"command": "history"}, type="command")
            (message,) = (await two.of_type("command_result"))["payload"]["messages"]
            assert (message["id"], message["payload"]) == (ref, "shall we?")
            began = trio.current_time()
            result = await two.of_type("vote_result")
            assert (result["ref"], result["payload"]["status"]) == (ref, "expired")
            assert 95 < trio.current_time() - began < 101

    told(body, extensions=("receipts", "voting", History))


def test_the_receipt_of_a_vote_comes_once_it_is_kept() -> None:
    async def body(_: Node, network: MemoryNetwork) -> None:
        tokens = [(await registered(network, name))[1] for name in ("one", "two", "three")]
        async with AsyncExitStack() as stack:
            one, *_ = [await stack.enter_async_context(opened(network, token)) for token in tokens]
            await trio.sleep(10 * COMMIT)  # what the agents' coming has written is kept
            began = trio.current_time()
            one.say(to=["*"], payload="shall we?", type="proposal", receipt="mine")
            ref = (await one.of_type("passed"))["ref"]
            assert trio.current_time() == began
            assert (await one.of_type("receipt"))["ref"] == ref
            one.say(to=["relay"], payload={"approve": True}, type="vote", ref=ref, receipt="vote")
            await one.of_type("receipt")
            assert trio.current_time() - began == 2 * COMMIT  # the proposal's commit, and its own

    disk = simulated_disk(1, lambda: COMMIT)
    told(body, extensions=("receipts", "voting"), store=SimulatedStore(disk))


def test_bad_options() -> None:
    with pytest.raises(ConfigError, match=r"RelayOptions\.connections: must be a whole number"):
        RelayOptions(connections=0)
    with pytest.raises(ConfigError, match="no extension 'votin', did you mean 'voting'"):
        RelayOptions(extensions=("votin",))
    with pytest.raises(ConfigError, match="the extension 'history' is named twice"):
        RelayOptions(extensions=("history", History))
    with pytest.raises(ConfigError, match="needs invitations"):
        RelayOptions(registration="invite")
    with pytest.raises(ConfigError, match="a reference to a secret"):
        RelayOptions(invitations="/etc/invitations")

    async def main() -> None:
        with pytest.raises(ConfigError, match="relay="):
            async with open_node(relay=True):
                pass

    trio.run(main)
