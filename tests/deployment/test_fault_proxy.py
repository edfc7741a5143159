"""A proxy with faults between clients and a server: what arrives, when, and how connections end."""

from __future__ import annotations

import functools
import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from hypothesis import given, settings, strategies as st
from trio.testing import MockClock

from lmos_actors import Agent, AgentUnavailable, OutcomeUnknown, Property, action, open_node, prop
from lmos_actors.deployment.faults import FaultProxy, links_with
from lmos_actors.errors import ConfigError, ConnectFailed
from lmos_actors.links import LinkFault, LinkRules, between_sides
from lmos_actors.transport import MemoryNetwork, TcpNetwork, endpoint_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors.transport import Network

HERE, THERE = endpoint_of("ws://proxy:1"), endpoint_of("ws://server:1")
GONE = (trio.BrokenResourceError, trio.ClosedResourceError)
MIB = 1 << 20
PERFECT = LinkRules()


def always(seconds: float) -> Callable[[Any], float]:
    return lambda _: seconds


SLOW = LinkRules(latency=always(0.1))


def on_virtual_time(main: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on virtual time."""

    @functools.wraps(main)
    def run(**params: Any) -> None:
        trio.run(functools.partial(main, **params), clock=MockClock(autojump_threshold=0))

    return run


@attrs.define
class World:
    """A proxy between the two ends of connections that a test holds."""

    proxy: FaultProxy
    network: Network
    listener: Any
    failures: list[ConnectFailed]
    streams: list[Any] = attrs.Factory(list[Any])

    async def client(self) -> Any:
        """Connect a client to the proxy."""
        host, port = self.proxy.addresses[0]
        self.streams.append(await self.network.connect(attrs.evolve(HERE, host=host, port=port), None))
        return self.streams[-1]

    async def server(self) -> Any:
        """Return the server's end of the next connection, once it is made."""
        stream, _ = await self.listener.accept()
        self.streams.append(stream)
        return stream

    async def has_open(self, count: int) -> None:
        """Wait until so many connections are open."""
        while self.proxy.statistics().open != count:  # noqa: ASYNC110 - the kernel's word comes when it does
            await trio.sleep(0.001)

    async def pair(self) -> tuple[Any, Any]:
        """Return both ends of a new connection."""
        client = await self.client()
        return client, await self.server()


@asynccontextmanager
async def world(
    rules: LinkRules = PERFECT, seed: int = 1, network: Network | None = None, **options: Any
) -> AsyncGenerator[World]:
    network = MemoryNetwork() if network is None else network
    failures: list[ConnectFailed] = []
    is_real = isinstance(network, TcpNetwork)
    here, there = (endpoint_of("ws://127.0.0.1:0"),) * 2 if is_real else (HERE, THERE)
    listener = await network.listen(there)
    host, port = listener.addresses[0]
    to, links = attrs.evolve(there, host=host, port=port), links_with(rules, seed)
    options |= {"network": network, "on_unreachable": failures.append}
    async with FaultProxy(here, to, links, **options) as proxy:
        made = World(proxy, network, listener, failures)
        try:
            yield made
        finally:
            await listener.aclose()
            for stream in made.streams:
                await trio.aclose_forcefully(stream)


async def all_of(stream: Any) -> bytes:
    """Return what comes until the end."""
    found = b""
    while data := await stream.receive_some():
        found += data
    return found


async def exactly(stream: Any, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = await stream.receive_some(size - len(found))
        assert data
        found += data
    return found


NETWORKS = pytest.mark.parametrize("network", [None, TcpNetwork()], ids=["memory", "tcp"])


# ---- bytes and ends


@NETWORKS
async def test_everything_arrives_in_order_and_each_end_by_itself(network: Network | None) -> None:
    there, back = os.urandom(3 * MIB), os.urandom(2 * MIB)
    async with world(network=network) as it:
        client, server = await it.pair()

        async def ask() -> None:
            await client.send_all(there)
            await client.send_eof()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            assert await all_of(server) == there
        assert it.proxy.statistics().open == 1
        async with trio.open_nursery() as nursery:  # the other way is still open
            nursery.start_soon(server.send_all, back)
            assert await exactly(client, len(back)) == back
        await server.send_eof()
        assert await all_of(client) == b""
        await it.has_open(0)
        found = it.proxy.statistics()
        assert (found.connections, found.bytes_in, found.bytes_out) == (1, len(there), len(back))
        assert (found.reset, found.unreachable) == (0, 0)


@NETWORKS
@pytest.mark.parametrize("who", ["client", "server"])
async def test_a_reset_is_passed_on_as_one_behind_what_was_said_before(
    network: Network | None, who: str
) -> None:
    async with world(network=network) as it:
        client, server = await it.pair()
        one, other = (client, server) if who == "client" else (server, client)
        await one.send_all(b"last words")
        assert await exactly(other, 10) == b"last words"
        one.break_now()
        with pytest.raises(trio.BrokenResourceError):
            await other.receive_some()
        await it.has_open(0)
        assert it.proxy.statistics().reset == 0


@NETWORKS
async def test_a_side_that_is_gone_is_noticed_by_what_is_said_to_it(network: Network | None) -> None:
    async with world(network=network) as it:
        client, server = await it.pair()
        await client.aclose()
        assert await server.receive_some() == b""

        async def ask() -> None:
            while True:
                await server.send_all(b"are you there?")
                await trio.sleep(0.001)

        with pytest.raises(trio.BrokenResourceError):
            await ask()
        await it.has_open(0)


async def test_a_reset_that_is_noticed_by_writing_comes_behind_what_was_said_before() -> None:
    """The kernel says so once: then reading from that side finds an end as any other."""
    async with world(network=TcpNetwork()) as it:
        client, server = await it.pair()
        with trio.move_on_after(0.2):  # until the proxy reads no more, as its client does not
            while True:
                await server.send_all(bytes(65_536))
        server.break_now()
        await client.send_all(b"are you there?")
        await trio.sleep(0.05)
        with pytest.raises(trio.BrokenResourceError):
            await all_of(client)


@on_virtual_time
async def test_more_connections_than_there_may_be_wait_until_one_has_ended() -> None:
    async with world(most=2) as it:
        (first, server), _ = await it.pair(), await it.pair()
        third = await it.client()
        await third.send_all(b"third")
        with trio.move_on_after(60) as waited:
            await it.server()
        assert waited.cancelled_caught
        assert it.proxy.statistics().open == 2
        await first.aclose()
        await server.aclose()
        assert await exactly(await it.server(), 5) == b"third"


async def test_a_reader_that_is_slow_holds_the_sender_back() -> None:
    sent = 0
    async with world(network=TcpNetwork()) as it:
        client, server = await it.pair()
        with trio.move_on_after(0.5) as stuck:
            while True:
                await client.send_all(bytes(65_536))
                sent += 65_536
        assert stuck.cancelled_caught
        assert MIB // 2 < sent < 40 * MIB  # with what two kernels hold
        assert len(await exactly(server, sent)) == sent


@NETWORKS
async def test_a_server_that_is_not_there_resets_its_clients(network: Network | None) -> None:
    async with world(LinkRules(latency=always(0.02)), network=network) as it:
        await it.listener.aclose()
        began = trio.current_time()
        client = await it.client()
        with pytest.raises(trio.BrokenResourceError):
            await client.receive_some()
        assert trio.current_time() - began >= 0.039
        assert (it.proxy.statistics().unreachable, len(it.failures)) == (1, 1)
        assert "server" in str(it.failures[0]) or "127.0.0.1" in str(it.failures[0])


# ---- time: what `Links` say, of the same seed


@attrs.frozen
class Case:
    rules: LinkRules
    sent: tuple[tuple[float, int], ...] = ((100.0, 10), (100.001, 2_000), (100.5, 70_000), (103.0, 1))
    """When the client sends, whose connection stands by then, and how many bytes."""


CASES = {
    "perfect": Case(PERFECT),
    "latency": Case(SLOW),
    "jitter": Case(LinkRules(latency=always(0.01), jitter=lambda random: random.random())),
    "loss": Case(LinkRules(latency=always(0.01), loss=0.5)),
    "bandwidth": Case(LinkRules(latency=always(0.01), bandwidth=10_000.0)),
}


def expected(case: Case, seed: int) -> list[tuple[float, int]]:
    """Return when how many bytes have arrived at the server."""
    links = links_with(case.rules, seed)
    there, back = links.line("client", "server"), links.line("server", "client")
    last, total = links.send_in_order(there, 40, 0.0), 0
    links.send_in_order(back, 40, last)
    found: list[tuple[float, int]] = []
    for at, size in case.sent:
        step = size if case.rules.bandwidth is None else 1_460
        for read in range(0, size, 65_536):
            end = min(size, read + 65_536)
            for start in range(read, end, step):
                piece = min(step, end - start)
                last = links.send_in_order(there, 40 + piece, at, after=last)
                total += piece
                found.append((last, total))
    return found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_said_arrives_when_the_links_say(case: Case, seed: int) -> None:
    arrivals: list[tuple[float, int]] = []

    async def main() -> None:
        async with world(case.rules, seed, MemoryNetwork(MIB)) as it:
            client = await it.client()

            async def say() -> None:
                for at, size in case.sent:
                    await trio.sleep_until(at)
                    await client.send_all(bytes(size))
                await client.send_eof()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(say)
                server, total = await it.server(), 0
                while data := await server.receive_some():
                    total += len(data)
                    arrivals.append((trio.current_time(), total))

    trio.run(main, clock=MockClock(autojump_threshold=0))
    wanted = dict(expected(case, seed))  # of several at one instant the last
    by_time = dict(arrivals)
    assert list(by_time.values()) == list(wanted.values())
    assert list(by_time) == pytest.approx(list(wanted))


# ---- faults


async def heard(stream: Any, *, within: float) -> bytes | None:
    """Return what comes first within so many seconds, None if that is nothing."""
    with trio.move_on_after(within):
        return bytes(await stream.receive_some())
    return None


@pytest.mark.parametrize(
    ("way", "there", "back"), [(None, None, None), ("in", None, b"pong"), ("out", b"ping", None)]
)
@on_virtual_time
async def test_a_cut_lets_nothing_through_until_it_is_healed(
    way: Any, there: bytes | None, back: bytes | None
) -> None:
    async with world() as it:
        client, server = await it.pair()
        it.proxy.cut(way)
        await client.send_all(b"ping")
        await server.send_all(b"pong")
        assert await heard(server, within=60) == there
        assert await heard(client, within=1) == back
        it.proxy.heal()
        if there is None:  # it is sent again, by a timer that waits longer each time
            assert await heard(server, within=60) == b"ping"
        if back is None:
            assert await heard(client, within=60) == b"pong"
        await client.send_all(b"once more")
        assert await heard(server, within=1) == b"once more"


@on_virtual_time
async def test_what_is_under_way_arrives_and_what_is_held_comes_in_order() -> None:
    async with world(SLOW) as it:
        client, server = await it.pair()
        await trio.sleep(1)
        await client.send_all(b"a")
        await trio.sleep(0.05)
        first, second = it.proxy.cut("in"), it.proxy.cut()
        await client.send_all(b"b")
        assert await heard(server, within=1) == b"a"
        it.proxy.heal(first)
        assert await heard(server, within=1) is None
        it.proxy.heal(second)
        await client.send_all(b"c")
        await client.send_eof()
        assert await all_of(server) == b"bc"
        it.proxy.heal(second)  # once more: nothing happens


@on_virtual_time
async def test_connections_are_half_open_when_they_are_made_during_a_cut() -> None:
    async with world() as it:
        it.proxy.cut()
        client = await it.client()
        await client.send_all(b"hello")
        assert await heard(client, within=60) is None
        assert it.proxy.statistics().open == 1
        it.proxy.heal()
        server = await it.server()
        assert await heard(server, within=1) == b"hello"


@on_virtual_time
async def test_proxies_that_share_links_have_the_faults_of_one_network() -> None:
    """A partition of nodes cuts those lines that lead from one side to another, and no others."""
    network = MemoryNetwork()
    listener = await network.listen(THERE)
    links = links_with(PERFECT)
    names = ("a", "b"), ("a", "c"), ("b", "c")
    places = {ends: attrs.evolve(HERE, port=10 + number) for number, ends in enumerate(names)}
    async with AsyncExitStack() as stack:
        proxies: list[FaultProxy] = []
        pairs: dict[tuple[str, str], tuple[Any, Any]] = {}
        for ends, place in places.items():
            made = FaultProxy(place, THERE, links, source=ends[0], target=ends[1], network=network)
            proxies.append(await stack.enter_async_context(made))
            client = await network.connect(place, None)
            pairs[ends] = client, (await listener.accept())[0]
        number = links.begin(LinkFault(selects=between_sides([["a"], ["b", "c"]]), cuts=True), 0.0)
        for proxy in proxies:
            proxy.look_at_lines()
        for client, _ in pairs.values():
            await client.send_all(b"!")
        found = {ends: await heard(server, within=1) for ends, (_, server) in pairs.items()}
        assert found == {("a", "b"): None, ("a", "c"): None, ("b", "c"): b"!"}
        links.heal(number)
        for proxy in proxies:
            proxy.look_at_lines()
        assert [await heard(pairs[ends][1], within=60) for ends in names[:2]] == [b"!", b"!"]


@on_virtual_time
async def test_latency_that_is_added_for_a_while() -> None:
    async with world() as it:
        client, server = await it.pair()
        number = it.proxy.begin(LinkFault(selects=lambda source, target: True, latency=always(3.0)))
        began = trio.current_time()
        await client.send_all(b"a")
        assert await heard(server, within=60) == b"a"
        assert trio.current_time() - began == 3.0
        it.proxy.heal(number)
        await client.send_all(b"b")
        assert await heard(server, within=0.1) == b"b"


@NETWORKS
async def test_a_reset_ends_all_connections_at_once_and_no_later_one(network: Network | None) -> None:
    async with world(network=network) as it:
        pairs = [await it.pair() for _ in range(3)]
        for client, server in pairs:
            await client.send_all(b"!")
            assert await exactly(server, 1) == b"!"
        it.proxy.cut()
        half_open = await it.client()
        await it.has_open(4)
        assert (it.proxy.reset(), it.proxy.reset()) == (4, 0)
        for stream in (half_open, *(stream for pair in pairs for stream in pair)):
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
        it.proxy.heal()
        client, server = await it.pair()
        await client.send_all(b"again")
        assert await exactly(server, 5) == b"again"
        assert it.proxy.statistics().reset == 4


@on_virtual_time
async def test_what_is_held_is_bounded() -> None:
    sent = 0
    async with world() as it:
        client, server = await it.pair()
        it.proxy.cut()
        with trio.move_on_after(60):
            while True:
                await client.send_all(bytes(65_536))
                sent += 65_536
        assert sent < MIB + 4 * 65_536
        it.proxy.heal()
        assert len(await exactly(server, sent)) == sent


@pytest.mark.slow  # its lines: the test above
@on_virtual_time
async def test_what_is_held_is_bounded_if_it_comes_in_single_bytes() -> None:
    sent = 0
    async with world(network=MemoryNetwork(16)) as it:
        client, server = await it.pair()
        it.proxy.cut()
        with trio.move_on_after(60):
            while True:
                await client.send_all(b"x")
                sent += 1
                await trio.sleep(0.001)
        assert sent < 4_096 + 32
        it.proxy.heal()
        assert await exactly(server, sent) == b"x" * sent


@on_virtual_time
async def test_a_byte_is_changed_now_and_then() -> None:
    async with world(LinkRules(corrupt=0.5)) as it:
        client, server = await it.pair()
        found: list[bytes] = []
        for _ in range(50):
            await client.send_all(b"abc")
            found.append(await exactly(server, 3))
        assert 10 < found.count(b"abc") < 40
        assert all(sum(a != b for a, b in zip(each, b"abc", strict=True)) <= 1 for each in found)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 3_000)),
        st.tuples(st.sampled_from(["cut", "heal"]), st.sampled_from([None, "in", "out"])),
        st.tuples(st.just("wait"), st.sampled_from([0.001, 0.2, 5.0])),
    ),
    max_size=20,
)


@given(
    steps=STEPS,
    loss=st.sampled_from([0.0, 0.5]),
    bandwidth=st.sampled_from([None, 10_000.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=25)
def test_nothing_is_lost_or_overtaken(
    steps: list[tuple[str, Any]], loss: float, bandwidth: float | None, seed: int
) -> None:
    """Whatever happens, what is said arrives, both ways, once the faults are healed."""
    rules = LinkRules(latency=lambda random: random.random(), loss=loss, bandwidth=bandwidth)

    async def main() -> None:
        async with world(rules, seed, MemoryNetwork(MIB)) as it:
            said, cuts = b"", dict[Any, int]()
            client, server = await it.pair()
            for what, value in steps:
                if what == "say":
                    piece = bytes(len(said) % 251 for _ in range(value))
                    said += piece
                    await client.send_all(piece)
                    await server.send_all(piece)
                elif what == "wait":
                    await trio.sleep(value)
                elif what == "cut":
                    cuts[value] = it.proxy.cut(value)
                elif value in cuts:
                    it.proxy.heal(cuts.pop(value))
            it.proxy.heal()
            await client.send_eof()
            await server.send_eof()
            assert await all_of(server) == await all_of(client) == said
            await trio.sleep(1)
            assert it.proxy.statistics().open == 0

    trio.run(main, clock=MockClock(autojump_threshold=0))


# ---- the end


@NETWORKS
async def test_an_error_in_the_block_comes_out_as_itself(network: Network | None) -> None:
    async def fail() -> None:
        async with world(network=network) as it:
            await it.pair()
            raise KeyError("oops")

    with pytest.raises(KeyError, match="oops"):
        await fail()


async def test_an_address_that_is_taken() -> None:
    async with world(network=TcpNetwork()) as it:
        host, port = it.proxy.addresses[0]
        taken = endpoint_of(f"ws://{host}:{port}")
        with pytest.raises(ConfigError, match="cannot listen"):
            async with FaultProxy(taken, taken, links_with(PERFECT)):
                raise AssertionError


@pytest.mark.parametrize("after", [0.0, 0.05, 0.15, 0.25, 0.35, 1.0, 5.0])
def test_it_can_be_cancelled_at_any_time_and_leaves_nothing(after: float) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        streams: list[Any] = []
        with trio.move_on_after(after):
            async with world(SLOW, network=network) as it, trio.open_nursery() as nursery:

                async def serve() -> None:
                    while True:
                        server = await it.server()
                        nursery.start_soon(server.send_all, bytes(3 * MIB))

                nursery.start_soon(serve)
                for _ in range(3):
                    client = await it.client()
                    streams.append(client)
                    nursery.start_soon(client.send_all, bytes(3 * MIB))
                    await trio.sleep(0.1)
                it.proxy.cut("in")
                await trio.sleep_forever()
        assert trio.current_time() == after
        listener = await network.listen(HERE)  # the address is free
        await listener.aclose()

    trio.run(main, clock=MockClock(autojump_threshold=0))


# ---- LMOS through it


class Desk(Agent):
    open: Property[bool] = prop(default=True, read_only=True)

    @action
    async def wait(self) -> None:
        await trio.sleep_forever()


@asynccontextmanager
async def desk() -> AsyncGenerator[tuple[FaultProxy, Any]]:
    """A proxy, and a far ref to a desk behind it."""
    async with (
        open_node(listen="ws://desk:80", public_url="ws://proxy:80") as theirs,
        FaultProxy(endpoint_of("ws://proxy:80"), endpoint_of("ws://desk:80"), links_with(SLOW)) as proxy,
        open_node() as ours,
    ):
        await theirs.start(Desk)
        yield proxy, await ours.consume(Desk, "ws://proxy:80/agents/desk")


@on_virtual_time
async def test_a_call_over_a_half_open_connection_ends_within_seconds() -> None:
    async with desk() as (proxy, far):
        assert await far.read(Desk.open) is True
        proxy.cut()
        began = trio.current_time()
        with pytest.raises(OutcomeUnknown):
            await far.read(Desk.open)
        assert 5 <= trio.current_time() - began <= 7
        with pytest.raises(AgentUnavailable):
            await far.read(Desk.open)
        proxy.heal()
        await far.ready()
        assert await far.read(Desk.open) is True


@on_virtual_time
async def test_a_call_over_a_connection_that_is_reset() -> None:
    async with desk() as (proxy, far), trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(OutcomeUnknown):
                await far.invoke(Desk.wait)

        nursery.start_soon(wait)
        await trio.sleep(1)
        assert proxy.reset() == 1
        await trio.sleep(0.01)
        with pytest.raises(AgentUnavailable):
            await far.read(Desk.open)
        await far.ready()
        assert await far.read(Desk.open) is True
