"""The connection behind refs: shared, kept for ever, made again after every break."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio

from lmos_actors import AgentDied, AgentUnavailable, ConfigError, OutcomeUnknown, open_node
from lmos_actors.bindings import remote_ref, remote_thing
from lmos_actors.protocol import lmos
from lmos_actors.simulation import TraceLog, simulate
from lmos_actors.transport import ConnectFailed, MemoryNetwork
from tests.bindings.client_connections import (
    THING,
    URL,
    Weather,
    peers_of,
    quiet,
    scripted,
    two_nodes,
    weather,
)
from tests.bindings.lmos.test_peer_requests import Later, complete, failing


async def test_refs_to_one_address_share_one_connection(autojump_clock: Any) -> None:
    async with scripted(complete) as (peers, _):
        one, other = (remote_ref(peers, Weather, URL, name) for name in (THING, "other"))
        again = remote_ref(peers, Weather, URL, THING)
        await one.ready()
        assert await other.read(Weather.units) == await again.read(Weather.units)
        assert len(peers.wires) == 1
        assert one == again
        assert hash(one) == hash(again)
        assert one != other
        assert one.within(1) == again
        secret = remote_ref(peers, Weather, URL, THING, headers=((b"Authorization", b"Bearer x"),))
        await secret.ready()
        assert len(peers.wires) == 2
        assert secret != one
        assert remote_thing(peers, URL, THING).id == THING


@pytest.mark.parametrize(
    ("url", "thing", "expected"),
    [
        ("ws://server/agents/desk.weather", None, "http://server/agents/desk.weather desk/weather"),
        ("wss://server:444/agents/a%20b", None, "https://server:444/agents/a%20b a b"),
        ("ws://server/ws", "weather", "weather weather"),
        ("ws://server/agents/weather", "urn:uuid:1", "urn:uuid:1 urn:uuid:1"),
    ],
)
async def test_an_address_says_which_thing_is_meant(
    autojump_clock: Any, url: str, thing: str | None, expected: str
) -> None:
    async with scripted() as (peers, _):
        found = remote_thing(peers, url, thing)
        assert f"{found.id} {found.path}" == expected


async def test_addresses_that_are_none_are_refused(autojump_clock: Any) -> None:
    async with scripted() as (peers, _):
        with pytest.raises(ConfigError, match="of many things: say which one by thing="):
            remote_ref(peers, Weather, URL)
        with pytest.raises(ConfigError, match="the scheme 'wx'"):
            remote_ref(peers, Weather, "wx://server/ws", "weather")
        assert peers.statistics()["peers"] == 0


async def test_without_a_connection_requests_fail_at_once(autojump_clock: Any) -> None:
    async with scripted(up=False) as (peers, _):
        ref = await weather(peers, ready=False)
        assert await refused(ref.read(Weather.units)) == "no connection to ws://server/ws"
        await trio.sleep(10)
        begin = trio.current_time()
        error = await failing(ref.invoke(Weather.turn, "Bonn"))
        assert trio.current_time() == begin
        assert isinstance(error, AgentUnavailable)
        assert error.why == "no connection to ws://server/ws: refused"
        assert isinstance(error.__cause__, ConnectFailed)
        assert error.started is False
        assert error.retry_in is not None
        assert 0 < error.retry_in < 30
        for ask in (ref.tell(Weather.turn, "x"), entered(ref.begin(Weather.turn, "x"))):
            assert await refused(ask) == error.why
        for enters in (ref.observe(Weather.units), ref.monitor(), ref.stream(Weather.hours, 3)):
            assert await refused(entered(enters)) == error.why
        with pytest.raises(AgentUnavailable):
            ref.tell_nowait(Weather.turn, "x")


async def refused(ask: Any) -> str:
    """Give why a request was refused."""
    error = await failing(ask)
    assert isinstance(error, AgentUnavailable)
    return error.why


async def entered(manager: Any) -> None:
    async with manager:
        pass


async def test_tries_go_on_for_ever_with_full_jitter(autojump_clock: Any) -> None:
    async with scripted(up=False) as (peers, _):
        await weather(peers, ready=False)
        await trio.sleep(1_000)
        waits = [after - before for before, after in zip(peers.tries, peers.tries[1:], strict=False)]
        for number, wait in enumerate(waits):
            assert 0 <= wait <= min(30.0, 0.1 * 2**number) + 1e-6
        late = waits[12:]
        assert len(late) > 30
        assert 10 < sum(late) / len(late) < 20  # half of thirty
        assert max(late) > 25
        assert min(late) < 5


def test_the_waits_follow_from_the_seed() -> None:
    async def main() -> list[float]:
        async with scripted(up=False) as (peers, _):
            await weather(peers, ready=False)
            await trio.sleep(100)
            return peers.tries

    tries = simulate(main, seed=3)
    assert simulate(main, seed=3) == tries
    assert simulate(main, seed=4) != tries


async def test_waits_begin_anew_after_a_connection_that_stood(autojump_clock: Any) -> None:
    async with scripted(complete, up=False) as (peers, _):
        ref = await weather(peers, ready=False)
        await trio.sleep(300)
        peers.up = True
        await ref.ready()
        await trio.sleep(5)
        peers.up, before = False, len(peers.tries)
        peers.wire.break_off()
        await trio.sleep(0.11)
        assert len(peers.tries) > before


async def test_who_breaks_off_at_once_is_tried_ever_later(autojump_clock: Any) -> None:
    async with scripted() as (peers, _):
        ref = await weather(peers)
        for _ in range(12):
            peers.wire.break_off()
            await quiet()
            await ref.ready()
        waits = [after - before for before, after in zip(peers.tries, peers.tries[1:], strict=False)]
        assert max(waits[8:]) > 1


async def test_ready_waits_for_the_connection(autojump_clock: Any) -> None:
    async with scripted(complete, up=False) as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers, ready=False)
        later = Later(nursery, ref.ready())
        await trio.sleep(50)
        assert not later.done.is_set()
        peers.up = True
        await later.done.wait()
        assert await ref.read(Weather.units) == "celsius"


async def test_a_broken_connection_is_made_again(autojump_clock: Any) -> None:
    async with scripted(complete) as (peers, _):
        ref = await weather(peers)
        for number in range(3):
            assert await ref.invoke(Weather.turn, "Bonn") == "Bonn 1"
            peers.wire.break_off()
            await quiet()
            assert (await refused(ref.read(Weather.units))).startswith("no connection")
            await ref.ready()
            assert len(peers.wires) == number + 2


async def test_answers_on_the_old_connection_are_not_for_the_new_one(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        lost = Later(nursery, ref.invoke(Weather.turn, "Bonn"))
        await quiet()
        old, asked = peers.wire, peers.wire.last("invokeAction")
        old.break_off()
        await lost.done.wait()
        await ref.ready()
        old.status(asked, "completed", output="late")
        assert old.handler.frames(65_536) == []
        assert isinstance(lost.error, OutcomeUnknown)


async def test_a_mistake_of_ours_ends_one_connection_and_is_told(autojump_clock: Any) -> None:
    async with scripted(complete, failures=True) as (peers, _):
        ref = await weather(peers)
        boom = RuntimeError("boom")

        async def run(handler: Any) -> Any:
            raise boom

        original, wires = peers.connect, peers.wires

        async def connect(url: str, headers: Any) -> Any:
            wire = await original(url, headers)
            if len(wires) == 2:
                wire.run = run
            return wire

        peers.connect = connect  # type: ignore[method-assign]
        peers.wire.break_off()
        await trio.sleep(10)
        assert peers.failures == [boom]
        assert await ref.read(Weather.units) == "celsius"
        assert len(wires) == 3


async def test_the_handshake_tells_what_is_offered_and_who_asks() -> None:
    network = MemoryNetwork()
    heads: list[bytes] = []

    async def serve(stream: Any) -> None:
        heads.append(await stream.receive_some(65_536))
        await trio.aclose_forcefully(stream)

    async with open_node(network=network) as node, trio.open_nursery() as nursery:
        from lmos_actors.transport import endpoint_of

        places = [await network.listen(endpoint_of(url)) for url in ("ws://a", "ws://b")]
        peers = peers_of(node)
        for url in ("ws://a/ws", "ws://a/agents/weather", "ws://b/ws"):
            remote_ref(peers, Weather, url, "weather")
        for listener in (places[0], places[0], places[1]):
            stream, _ = await listener.accept()
            nursery.start_soon(serve, stream)
        await trio.sleep(0.01)
        await quiet()
        names = [line for head in heads for line in head.split(b"\r\n") if line.startswith(b"LMOS-Peer: ")]
        assert len(names) >= 3
        assert len(set(names)) == 2  # one of them for each server
        assert all(len(name) == len(b"LMOS-Peer: ") + 32 for name in names)
        for listener in places:
            await listener.aclose()


async def test_nobody_is_left_waiting_when_the_node_ends(autojump_clock: Any) -> None:
    errors: list[BaseException] = []

    async def note(ask: Any) -> None:
        errors.append(await failing(ask))

    one = lmos.SessionOptions(max_open=1)
    async with trio.open_nursery() as nursery, scripted(session=one) as (peers, _):
        ref = await weather(peers)
        nursery.start_soon(note, ref.invoke(Weather.turn, "sent"))
        await quiet()
        nursery.start_soon(note, ref.invoke(Weather.turn, "in line"))
        await quiet()
    assert sorted(type(error).__name__ for error in errors) == ["AgentUnavailable", "OutcomeUnknown"]
    assert await refused(ref.read(Weather.units)) == "the node has ended"
    assert await refused(ref.ready()) == "the node has ended"


async def note_outcome(outcomes: list[str], ask: Any) -> None:
    try:
        outcomes.append(await ask)
    except AgentUnavailable:
        outcomes.append("not begun")


async def test_a_server_that_restarts_loses_nothing_it_had_taken(autojump_clock: Any) -> None:
    network = MemoryNetwork()
    outcomes: list[str] = []
    async with open_node(network=network) as client:
        ref: Any = None
        for _ in range(3):
            async with (
                open_node(listen="ws://server", network=network) as server,
                trio.open_nursery() as nursery,
            ):
                await server.start(Weather)
                if ref is None:
                    ref = remote_ref(peers_of(client), Weather, "ws://server/agents/weather")
                await ref.ready()

                for number in range(20):
                    nursery.start_soon(note_outcome, outcomes, ref.invoke(Weather.turn, str(number)))
                await trio.lowlevel.checkpoint()
        assert len(outcomes) == 60  # and no OutcomeUnknown, which would have ended the test
        assert outcomes.count("not begun") < 60


async def test_a_connection_that_is_cut_is_mended_behind_the_ref(autojump_clock: Any) -> None:
    async with two_nodes() as (server, client):
        peers = peers_of(client)
        ref = remote_ref(peers, Weather, "ws://server/agents/weather")
        await ref.ready()
        network: Any = client._connections.network
        for _ in range(3):
            assert await ref.invoke(Weather.turn, "Bonn") == "Bonn 1"
            assert network.sever("server", 80) == 1
            await quiet()
            await ref.ready()
        assert server.connections == 1


async def test_consume_tells_what_went_wrong(autojump_clock: Any) -> None:
    from lmos_actors.bindings import consume

    async with scripted(up=False) as (peers, _):
        with pytest.raises(ConnectFailed, match="cannot connect to ws://server/ws: refused"):
            await consume(peers, Weather, URL, thing=THING)
        await trio.sleep(100)
        assert len(peers.tries) == 1  # nobody uses it: it is not tried again
        assert peers.statistics()["peers"] == 0
        held = await weather(peers, ready=False)
        await trio.sleep(1)
        with pytest.raises(ConnectFailed):
            await consume(peers, Weather, URL, thing=THING)
        before = len(peers.tries)
        await trio.sleep(100)
        assert len(peers.tries) > before
        peers.up = True
        await held.ready()
        assert await consume(peers, Weather, URL, thing=THING) == held


async def test_over_real_sockets_all_is_the_same() -> None:
    async with open_node(listen="ws://127.0.0.1:0") as server, open_node() as client:
        await server.start(Weather)
        (url,) = server.urls
        ref = await client.consume(Weather, url.replace("ws://", "http://"))
        assert await ref.invoke(Weather.turn, "Bonn") == "Bonn 1"
        async with ref.stream(Weather.hours, 100) as hours:
            assert [hour async for hour in hours] == list(range(100))
        async with ref.observe(Weather.units) as units, ref.monitor() as downs:
            assert await units.receive() == "celsius"
            await ref.write(Weather.units, "kelvin")
            assert await units.receive() == "kelvin"
            with pytest.raises(AgentDied):
                await ref.invoke(Weather.crash)
            assert (await downs.receive()).reason.kind == "error"
            await ref.retrying().read(Weather.units)
    assert client.connection_failures == ()


def test_a_simulated_world_repeats_what_it_did_over_the_wire() -> None:
    async def main(log: TraceLog) -> None:
        async with (
            open_node(listen="ws://server") as server,
            open_node() as client,
            trio.open_nursery() as nursery,
        ):
            await server.start(Weather)
            ref = await client.consume(Weather, "ws://server/agents/weather")
            for number in range(5):
                nursery.start_soon(ref.invoke, Weather.forecast, str(number))
            network: Any = client._connections.network
            await trio.sleep(0.95)
            async with ref.monitor() as downs:
                with suppress(AgentDied):
                    await ref.retrying().invoke(Weather.crash)
                await downs.receive()
            network.sever("server", 80)
            await trio.sleep(0.01)
            await ref.retrying().read(Weather.units)

    digests = []
    for _ in range(2):
        log = TraceLog()
        with suppress(ExceptionGroup):
            simulate(main, log, seed=7, log=log)
        digests.append(log.digest())
    assert digests[0] == digests[1]


async def test_what_goes_wrong_in_connecting_ends_no_more_than_the_try(autojump_clock: Any) -> None:
    async with two_nodes() as (_, client):
        bad = ((b"X", b"one\r\ntwo"),)
        ref = remote_ref(peers_of(client), Weather, "ws://server/agents/weather", headers=bad)
        await trio.sleep(1)
        assert "no connection to ws://server/agents/weather: " in await refused(ref.read(Weather.units))
    async with scripted(complete, failures=True) as (peers, _):
        boom, original = OSError("boom"), peers.connect

        async def connect(url: str, headers: Any) -> Any:
            if not peers.failures:
                raise boom
            return await original(url, headers)

        peers.connect = connect  # type: ignore[method-assign]
        ref = await weather(peers)
        assert await ref.read(Weather.units) == "celsius"
        assert peers.failures == [boom]
