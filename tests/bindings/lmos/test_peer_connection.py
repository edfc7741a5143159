"""What peers hold on to and let go of: the line for room, one-way messages, tasks, connections and names."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.lowlevel import Task, current_root_task

from lmos_actors import Agent, ChildSpec, ConfigError, MailboxFull, action, open_node
from lmos_actors.actors import CURRENT
from lmos_actors.bindings import ContractWarning, fetch
from lmos_actors.bindings.consumed._consume import headers_for
from lmos_actors.bindings.consumed._target import Target
from lmos_actors.bindings.lmos._peer import Peer
from lmos_actors.errors import ConnectFailed
from lmos_actors.protocol import lmos
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.bindings.client_connections import Weather, peers_of, quiet, scripted, two_nodes, weather
from tests.bindings.lmos.test_peer_listening import confirm
from tests.bindings.lmos.test_peer_requests import Later

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS = "ws://server/agents/weather"


def narrow(open_requests: int) -> lmos.SessionOptions:
    return lmos.SessionOptions(max_open=open_requests, max_waiting=8)


# ---- the line


async def test_a_cancelled_call_that_was_not_sent_makes_room_at_once(autojump_clock: Any) -> None:
    async with scripted(session=narrow(1)) as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        peers.wire.stuck = True
        async with ref.begin(Weather.sleep) as call:
            later = Later(nursery, ref.invoke(Weather.turn, "Bonn"))
            await quiet()
            await call.cancel()
            assert b'"turn"' in b"".join(peers.wire.handler.frames(65_536))
        later.scope.cancel()


async def test_a_call_that_is_given_up_here_makes_room_at_once(autojump_clock: Any) -> None:
    async with scripted(session=narrow(1), offers=None, kotlin=True) as (peers, _):
        ref = await weather(peers)
        async with trio.open_nursery() as nursery, ref.begin(Weather.sleep) as call:
            later = Later(nursery, ref.invoke(Weather.turn, "Bonn"))
            await quiet()
            await call.cancel()  # which such a peer does not know
            await quiet()
            assert [message["action"] for message in peers.wire.sent] == ["sleep", "turn"]
            later.scope.cancel()


async def test_a_writer_that_finds_nothing_is_given_what_has_found_room(autojump_clock: Any) -> None:
    async with scripted(session=narrow(1)) as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        peers.wire.stuck = True
        peer: Any = next(iter(peers._peers.values()))
        pending = peer.connection.session.read("somebody", "units")
        later = Later(nursery, ref.invoke(Weather.turn, "Bonn"))
        await quiet()
        peer.connection.session._requests.drop(pending)  # so there is room, of which the peer was not told
        peer.connection.session.forget(pending)
        assert b'"turn"' in b"".join(peers.wire.handler.frames(65_536))
        later.scope.cancel()


async def test_what_can_never_have_room_is_refused_and_holds_up_nobody(autojump_clock: Any) -> None:
    async with scripted(session=narrow(1), offers=None) as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)  # a foreign peer, so that all properties are two messages
        with pytest.raises(MailboxFull):
            await ref.read_all()
        running = Later(nursery, ref.invoke(Weather.sleep))
        await quiet()
        in_line = Later(nursery, ref.invoke(Weather.turn, "Bonn"))
        await quiet()
        behind = Later(nursery, ref.read_all())
        await quiet()
        peers.wire.status(peers.wire.last("invokeAction"), "completed")
        await quiet()
        peers.wire.status(peers.wire.last("invokeAction"), "completed", output="Bonn 1")
        await quiet()
        assert (running.value, in_line.value) == (None, "Bonn 1")
        assert isinstance(behind.error, MailboxFull)


async def test_one_that_leaves_the_line_lets_those_behind_go_on(autojump_clock: Any) -> None:
    async with scripted(session=narrow(2), offers=None) as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        async with ref.begin(Weather.sleep):
            wide = Later(nursery, ref.read_all())
            await quiet()
            behind = Later(nursery, ref.invoke(Weather.turn, "Bonn"))
            await quiet()
            assert peers.wire.kinds() == ["invokeAction"]
            wide.scope.cancel()
            await quiet()
            assert [message["action"] for message in peers.wire.sent] == ["sleep", "turn"]
            behind.scope.cancel()


# ---- what is kept


async def test_one_way_messages_that_have_arrived_are_not_kept(autojump_clock: Any) -> None:
    async with two_nodes() as (_, client):
        ref = await client.consume(Weather, ADDRESS)
        for _ in range(20):
            await ref.tell(Weather.turn, "Bonn")
        await trio.sleep(1.1)  # credit of less than half of the window goes back after a second
        (peer,) = peers_of(client)._peers.values()
        assert isinstance(peer, Peer)
        assert peer.connection is not None
        assert peer.connection.session.statistics().remembered == 0
        assert not [name for name in vars(peer) if "tell" in name]


async def test_connections_that_did_not_come_to_be_leave_nothing(autojump_clock: Any) -> None:
    async with open_node(network=MemoryNetwork()) as node:
        before = len(node._connections._stage._scopes)
        for _ in range(5):
            with pytest.raises(ConnectFailed):
                await node.consume(Weather, ADDRESS)
        await quiet()
        assert len(node._connections._stage._scopes) == before
        assert peers_of(node).statistics()["peers"] == 0


async def test_what_cannot_be_consumed_lets_go_of_its_connection(autojump_clock: Any) -> None:
    class Other(Agent):
        @action
        def unknown(self) -> None:
            pass

    async with two_nodes() as (_, client):
        nobody: Any = int
        with pytest.raises(TypeError, match="as a class of agents"):
            await client.consume(nobody, ADDRESS)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ContractWarning)
            with pytest.raises(ContractWarning):
                await client.consume(Other, "http://server/agents/weather")
        await quiet()
        assert peers_of(client).statistics()["peers"] == 0


# ---- whose tasks


def below(task: Task) -> Iterator[Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from below(child)


async def test_a_connection_that_a_run_has_asked_for_is_the_nodes(autojump_clock: Any) -> None:
    async with two_nodes() as (_, client):

        class Caller(Agent):
            @action
            async def go(self) -> str:
                ref = await client.consume(Weather, ADDRESS)
                return await ref.invoke(Weather.turn, "Bonn")

        caller = await client.start(Caller)
        assert await caller.invoke(Caller.go) == "Bonn 1"
        root = current_root_task()
        assert root is not None
        (task,) = [task for task in below(root) if task.name.startswith("peer ")]
        assert task.context.get(CURRENT) is None


# ---- where to


async def test_refs_to_one_thing_are_equal_whatever_led_there(autojump_clock: Any) -> None:
    async with two_nodes() as (server, client):
        sources = ("http://server/agents/weather", ADDRESS, "http://server", "http://server/weather")
        refs = [await client.consume(Weather, source) for source in sources]
        things = [await client.consume_thing(source) for source in sources]
        assert len(set(refs)) == len(set(things)) == 1
        await server.start_child(ChildSpec("other", Weather))
        other = await client.consume(Weather, "ws://server/agents/other")
        assert other not in refs
        async with open_node(network=client._connections.network) as third:
            assert await third.consume(Weather, ADDRESS) != refs[0]


async def test_consuming_does_not_wait_for_the_back_off_of_others(autojump_clock: Any) -> None:
    network = MemoryNetwork()
    async with open_node(network=network) as client:
        async with open_node(network=network, listen="ws://server") as server:
            await server.start_child(ChildSpec("weather", Weather))
            await client.consume(Weather, ADDRESS)
        await trio.sleep(200.0)
        with pytest.raises(ConnectFailed):
            await client.consume(Weather, ADDRESS)
        async with open_node(network=network, listen="ws://server") as server:
            await server.start_child(ChildSpec("weather", Weather))
            before = trio.current_time()
            await client.consume(Weather, ADDRESS)
            assert trio.current_time() == before


async def test_a_redirect_to_another_server_takes_no_headers_along(autojump_clock: Any) -> None:
    network, got = MemoryNetwork(), dict[str, bytes]()

    async def serve(host: str, answer: bytes) -> None:
        listener = await network.listen(endpoint_of(f"http://{host}"))
        stream, _ = await listener.accept()
        got[host] = await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 " + answer)
        await stream.aclose()

    secrets = ((b"Authorization", b"Bearer one"), (b"X-Api-Key", b"two"))
    async with trio.open_nursery() as nursery:
        moved = b"Location: http://there/x\r\nContent-Length: 0\r\n\r\n"
        nursery.start_soon(serve, "here", b"302 Found\r\n" + moved)
        told = b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        nursery.start_soon(serve, "there", b"200 OK\r\n" + told)
        await quiet()
        assert await fetch(network, "http://here/", None, secrets) == (b"{}", "http://there/x")
    assert b"Bearer one" in got["here"]
    assert b"two" in got["here"]
    assert b"Bearer one" not in got["there"]
    assert b"two" not in got["there"]


async def test_a_redirect_to_what_is_no_address_is_a_failure_to_connect(autojump_clock: Any) -> None:
    network = MemoryNetwork()

    async def serve() -> None:
        listener = await network.listen(endpoint_of("http://here"))
        stream, _ = await listener.accept()
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 302 Found\r\nLocation: ftp://x/y\r\nContent-Length: 0\r\n\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await quiet()
        with pytest.raises(ConnectFailed, match="the scheme 'ftp'"):
            await fetch(network, "http://here/", None)


def description_at(place: str) -> bytes:
    """Give an answer with the description of a thing whose LMOS is spoken elsewhere."""
    form = {"href": f"{place}/ws", "op": ["readproperty"], "subprotocol": "lmosprotocol"}
    described: dict[str, Any] = {
        "@context": "https://www.w3.org/2022/wot/td/v1.1",
        "id": "urn:uuid:1f0c2f3e-6f0c-4b06-8d5b-2d5f3c1c9d10",
        "title": "Weather",
        "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
        "security": "nosec_sc",
        "properties": {"units": {"type": "string", "forms": [form]}},
    }
    text = json.dumps(described).encode()
    return b"200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


@pytest.mark.parametrize(
    ("redirect", "socket", "told"),
    [
        (None, "there", True),  # whoever was asked may say whom to turn to
        ("there", "there", False),  # but nobody else
        ("there", "here", True),
    ],
)
async def test_headers_go_where_the_one_who_was_asked_has_said(
    autojump_clock: Any, redirect: str | None, socket: str, told: bool
) -> None:
    network, asked, got = MemoryNetwork(), list[bytes](), list[bytes]()

    async def serve(host: str, answer: bytes) -> None:
        listener = await network.listen(endpoint_of(f"http://{host}"))
        while True:
            stream, _ = await listener.accept()
            head = await stream.receive_some()
            (got if b"websocket" in head else asked).append(head)
            await stream.send_all(b"HTTP/1.1 " + (b"404 No\r\n\r\n" if b"websocket" in head else answer))
            await stream.aclose()

    moved = b"302 Found\r\nLocation: http://there/x\r\nContent-Length: 0\r\n\r\n"
    described = description_at(f"ws://{socket}")
    async with open_node(network=network) as node, trio.open_nursery() as nursery:
        nursery.start_soon(serve, "here", described if redirect is None else moved)
        nursery.start_soon(serve, "there", described)
        await quiet()
        with pytest.raises(ConnectFailed, match="404"):
            await node.consume_thing("http://here/x", headers={"Authorization": "Bearer one"})
        assert b"Bearer one" in asked[0]
        assert (b"Bearer one" in got[0]) is told
        nursery.cancel_scope.cancel()


async def test_what_is_listened_to_is_bounded_and_one_more_is_told(autojump_clock: Any) -> None:
    async with scripted(confirm, session=lmos.SessionOptions(max_listening=1)) as (peers, _):
        ref = await weather(peers)
        async with ref.observe(Weather.units):
            with pytest.raises(MailboxFull, match="'weather'"):
                async with ref.subscribe(Weather.asked):
                    raise AssertionError
        await quiet()
        async with ref.subscribe(Weather.asked):
            assert peers.wire.kinds() == ["observeProperty", "unobserveProperty", "subscribeEvent"]


async def test_in_memory_everywhere_is_a_name_like_others(autojump_clock: Any) -> None:
    async with open_node(listen="ws://0.0.0.0:80") as node:
        assert node.urls == ("ws://0.0.0.0",)  # and not one that tells of this machine
        await node.start_child(ChildSpec("weather", Weather))
        async with open_node() as client:
            ref = await client.consume(Weather, f"{node.urls[0]}/agents/weather")
            assert await ref.read(Weather.units) == "celsius"


def test_headers_do_not_leave_tls() -> None:
    target = Target("ws://here/ws", "x", source_url="https://here/x")
    assert headers_for(target, "https://here/x", ()) == ()
    with pytest.raises(ConfigError, match="would go to ws://here/ws, which is not secure"):
        headers_for(target, "https://here/x", ((b"Authorization", b"Bearer one"),))


@pytest.mark.parametrize(
    "headers", [{"A": "secret\n"}, {"A": "secr\u00e9t"}, {"A b": "secret"}, {"": "secret"}, {"A": "secret "}]
)
@pytest.mark.parametrize("source", [ADDRESS, "http://server/agents/weather"])
async def test_a_header_that_is_none_is_named_without_its_value(
    autojump_clock: Any, headers: dict[str, str], source: str
) -> None:
    async with two_nodes() as (_, client):
        with pytest.raises(ConfigError) as caught:
            await client.consume(Weather, source, headers=headers)
        assert "secr" not in str(caught.value)


async def test_fetching_tells_no_values_of_headers(autojump_clock: Any) -> None:
    async with two_nodes() as (server, _):
        with pytest.raises(ConfigError, match=r"cannot be sent: Illegal header value$"):
            await fetch(server._connections.network, "http://server/", None, ((b"A", b"secret\n"),))


async def test_what_waits_for_a_server_that_does_not_read_counts_as_held(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        peers.wire.stuck = True
        later = [Later(nursery, ref.invoke(Weather.turn, "Bonn" * 10_000)) for _ in range(3)]
        await quiet()
        assert 120_000 < peers.wire.account.bytes < 125_000
        peers.wire.go_on()
        await quiet()
        assert peers.wire.account.bytes == 0
        for each in later:
            each.scope.cancel()
