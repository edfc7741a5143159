"""One-way messages to far agents: they wait where those to near agents wait, and none is lost unseen."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    MailboxFull,
    MailboxOptions,
    Node,
    Pool,
    Ref,
    SupervisorSpec,
    action,
    open_node,
    simulate,
)
from lmos_actors.errors import ActionCancelled
from lmos_actors.transport import ConnectionOptions, MemoryNetwork, connect
from lmos_actors.types import Waiting
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

BROKEN: Final = "the connection ended while it waited for a seat"
SPENT: Final = "its connection has ended, and all peers together hold too much memory"


class Counter(Agent, serial=True):
    """Counts what it is told, in order; while it is held it takes nothing."""

    gate: trio.Event = attrs.field(factory=trio.Event)
    came: list[Any] = attrs.field(factory=list)

    @action
    def take(self, word: int | str) -> None:
        self.came.append(word)

    @action
    def burn(self) -> None:
        raise KeyError("fire")

    @action
    async def hold(self) -> None:
        await self.gate.wait()


class Small(Counter, serial=True, mailbox=MailboxOptions(size=2)):
    """Has two seats."""


class Sender(Agent):
    """Sends from its turns."""

    to: Ref[Counter]
    turns: int = 0

    @action
    def send_some(self, number: int) -> None:
        for n in range(number):
            self.send(self.to, Counter.take, n)
        self.turns += 1

    @action
    async def tell_one(self) -> None:
        await self.to.tell(Counter.take, -1)


@attrs.frozen
class There:
    """A server with agents of which a test holds the lists and gates, and its clients."""

    network: MemoryNetwork
    server: Node
    clients: list[Node]
    came: dict[str, list[Any]]
    gates: dict[str, trio.Event]

    async def far(self, name: str = "counter", client: int = 0, cls: type[Counter] = Counter) -> Ref[Counter]:
        return await self.clients[client].consume(cls, f"ws://server/agents/{name}")

    def near(self, name: str = "counter") -> Ref[Any]:
        return next(ref for ref in self.server.agents() if ref.path == name)

    async def held(self, name: str = "counter") -> None:
        """Have an agent take nothing until its gate is opened."""
        await self.near(name).tell(Counter.hold)
        await trio.sleep(0.1)

    def letters(self, client: int = 0) -> list[str]:
        return [letter.reason for letter in self.clients[client].dead_letters]

    async def quiet(self) -> None:
        """Wait until everything has arrived, begun, and has its credit back."""
        await trio.sleep(5)


@asynccontextmanager
async def there(
    *names: str,
    cls: type[Counter] = Counter,
    clients: int = 1,
    connection: ConnectionOptions | None = None,
    **spec: Any,
) -> AsyncGenerator[There]:
    came: dict[str, list[Any]] = {}
    gates: dict[str, trio.Event] = {}
    network = MemoryNetwork()
    root = SupervisorSpec("root", [], max_restarts=1000)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            open_node(root, listen="ws://server", network=network, connection=connection)
        )
        for name in names or ("counter",):
            came[name], gates[name] = [], trio.Event()
            await server.start_child(ChildSpec(name, partial(cls, gate=gates[name], came=came[name]), **spec))
        nodes = [await stack.enter_async_context(open_node(network=network)) for _ in range(clients)]
        yield There(network, server, nodes, came, gates)
        for node in (server, *nodes):
            assert node.connection_failures == ()


def simulated(main: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        simulate(main)

    run.__name__ = main.__name__
    return run


# ---- nothing is lost


@simulated
async def test_a_loop_of_tells_to_an_agent_with_the_default_mailbox() -> None:
    async with there() as it:
        far = await it.far()
        for n in range(2_000):
            await far.tell(Counter.take, n)
        await it.quiet()
        assert it.came["counter"] == list(range(2_000))
        assert not it.letters()
        counts = it.near().statistics()
        assert (counts.accepted, counts.handled, counts.refused) == (2_000, 2_000, 0)


@simulated
async def test_a_turn_that_sends_more_than_fits_holds_its_agent_back() -> None:
    async with there() as it:
        sender = await it.clients[0].start(Sender, to=await it.far())
        await it.held()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(sender.tell, Sender.send_some, 400)
        await trio.sleep(1)
        assert sender.statistics().handled == 1  # what is left of its messages waits, and so do its turns
        it.gates["counter"].set()
        await it.quiet()
        assert it.came["counter"] == [*range(400)] * 3
        assert not it.letters()


@simulated
async def test_more_than_an_agent_may_keep_is_refused_in_its_turn() -> None:
    async with there() as it:
        sender = await it.clients[0].start(Sender, to=await it.far())
        await it.held()
        with pytest.raises(AgentDied, match="mailbox of 'counter' is full"):
            await sender.invoke(Sender.send_some, 1 + 256 + 1024)


@pytest.mark.slow
@simulated
async def test_many_connections_to_many_agents_one_stopped_one_broken() -> None:
    names = [f"counter-{n}" for n in range(10)]
    async with there(*names, clients=6) as it:
        await it.held("counter-3")
        told = [0] * 6

        async def tell(client: int) -> None:
            refs = [await it.far(name, client) for name in names]
            for n in range(few_or_all(100, 300)):
                for ref in refs:
                    try:
                        with trio.move_on_after(1) as scope:
                            await ref.tell(Counter.take, f"{client} {n}")
                        told[client] += not scope.cancelled_caught
                    except AgentUnavailable:
                        await ref.ready()

        async with trio.open_nursery() as nursery:
            for client in range(6):
                nursery.start_soon(tell, client)
            await trio.sleep(20)
            assert it.network.sever("server", 80) > 0
            await trio.sleep(300)
            it.gates["counter-3"].set()
        await it.quiet()
        letters = [letter for node in (it.server, *it.clients) for letter in node.dead_letters]
        handled = sum(map(len, it.came.values()))
        assert handled + len(it.server.dead_letters) <= sum(told)
        assert sum(told) <= handled + len(letters)
        assert len(letters) <= 2 * 6 * 1024
        for name in names:
            for client in range(6):
                mine = [int(word.split()[1]) for word in it.came[name] if word.startswith(f"{client} ")]
                assert mine == sorted(set(mine))
        server = it.server._connections._server
        assert server is not None
        assert server.statistics().open == 0


# ---- credit


@simulated
async def test_a_sender_without_credit_waits_and_the_agent_takes_all_in_order() -> None:
    async with there() as it:
        far = await it.far()
        await it.held()
        told: list[int] = []

        async def tell() -> None:
            for n in range(400):
                await far.tell(Counter.take, n)
                told.append(n)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell)
            await trio.sleep(10)
            assert len(told) == 256
            with pytest.raises(trio.WouldBlock):
                far.tell_nowait(Counter.take, -1)
            assert it.near().mailbox_statistics().parked == 1
            assert it.near().statistics().waiting == 64
            it.gates["counter"].set()
        await it.quiet()
        assert it.came["counter"] == list(range(400))


@simulated
async def test_an_agent_that_takes_nothing_holds_up_nobody_who_tells_or_asks_others() -> None:
    async with there("slow", "quick") as it:
        slow, quick = await it.far("slow"), await it.far("quick")
        await it.held("slow")
        async with trio.open_nursery() as nursery:
            for n in range(300):
                nursery.start_soon(slow.tell, Counter.take, n)
            await trio.sleep(1)
            for n in range(1_000):
                await quick.tell(Counter.take, n)
            await quick.read_all()
            assert len(it.came["quick"]) == 1_000
            it.gates["slow"].set()


@simulated
async def test_seats_go_round_by_connection() -> None:
    async with there(cls=Small, clients=3) as it:
        await it.held()
        fars = [await it.far(client=n) for n in range(3)]
        for client, far in enumerate(fars):
            for _ in range(20 if client else 200):
                await far.tell(Counter.take, client)
        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(it.near().tell, Counter.take, f"near {n}")
            await trio.sleep(1)
            it.gates["counter"].set()
        await it.quiet()
        first = it.came["counter"][2:65]  # two were seated before the others came
        assert [first.count(client) for client in range(3)] == [20, 20, 20]
        assert sorted(word for word in first[:8] if isinstance(word, str)) == ["near 0", "near 1", "near 2"]
        assert len(it.came["counter"]) == 243


@simulated
async def test_a_request_behind_parked_messages_is_refused_and_a_cancel_overtakes_them() -> None:
    async with there() as it:
        far = await it.far()
        async with far.begin(Counter.hold) as call:
            await trio.sleep(1)
            for n in range(100):
                await far.tell(Counter.take, n)
            with pytest.raises(MailboxFull):
                await far.read_all()
            assert (await call.cancel()).cancelled
            with pytest.raises(ActionCancelled):
                await call.result()
        await it.quiet()
        assert it.came["counter"] == list(range(100))


@simulated
async def test_a_request_takes_no_seat_of_others_before_the_parked_messages_of_its_connection() -> None:
    async with there(cls=Small, clients=2) as it:
        far, greedy = await it.far(), await it.far(client=1)
        await it.held()
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(greedy.read_all)
            await trio.sleep(1)
            for n in range(3):
                await far.tell(Counter.take, n)
            with pytest.raises(MailboxFull):
                await far.read_all()
            it.gates["counter"].set()
        await it.quiet()
        assert it.came["counter"] == [0, 1, 2]


@simulated
async def test_a_request_behind_messages_without_credit_keeps_its_place() -> None:
    async with there() as it:
        far = await it.far()
        await it.held()
        async with trio.open_nursery() as nursery:
            for n in range(300):
                nursery.start_soon(far.tell, Counter.take, n)
            await trio.sleep(1)
            refused: list[Exception] = []

            async def ask() -> None:
                try:
                    await far.read_all()
                except MailboxFull as error:
                    refused.append(error)

            nursery.start_soon(ask)
            await trio.sleep(1)
            assert not refused  # it has not been sent
            it.gates["counter"].set()
        assert len(it.came["counter"]) + it.near().mailbox_statistics().depth >= 64


@simulated
async def test_a_policy_other_than_wait_parks_nothing() -> None:
    class Strict(Counter, serial=True, mailbox=MailboxOptions(size=2, when_full="reject")):
        """Refuses."""

    async with there(cls=Strict) as it:
        far = await it.far()
        await it.held()
        for n in range(5):
            await far.tell(Counter.take, n)
        await trio.sleep(1)
        assert it.letters() == ["mailbox of 'counter' is full (2)"] * 3
        it.gates["counter"].set()
        await it.quiet()
        assert it.came["counter"] == [0, 1]


@simulated
async def test_credit_comes_back_in_bytes_too() -> None:
    async with there() as it:
        far = await it.far()
        await it.held()
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(far.tell, Counter.take, "x" * 100_000)
            await trio.sleep(1)
            assert it.near().statistics().waiting == 3
            it.gates["counter"].set()
        await it.quiet()
        assert len(it.came["counter"]) == 20


@pytest.mark.slow
@simulated
async def test_honest_connections_to_slow_agents_wait_and_none_is_closed_for_the_memory_of_all() -> None:
    narrow = ConnectionOptions(total_bytes=8 << 20)
    names = [f"counter-{n}" for n in range(4)]
    async with there(*names, clients=20, connection=narrow) as it:
        for name in names:
            await it.held(name)

        async def tell(client: int) -> None:
            fars = [await it.far(name, client) for name in names]
            for n in range(100):
                for far in fars:
                    await far.tell(Counter.take, f"{client} {n}")

        async with trio.open_nursery() as nursery:
            for client in range(20):
                nursery.start_soon(tell, client)
            await trio.sleep(60)
            memory = it.server.statistics().memory
            assert memory.bytes + memory.granted > memory.limit // 4
            assert 0 < memory.granted < memory.limit // 2
            for gate in it.gates.values():
                gate.set()
        await it.quiet()
        assert it.server.statistics().memory.gave_way == 0
        assert it.server.statistics().memory.bytes == 0
        for name in names:
            for client in range(20):
                mine = [int(word.split()[1]) for word in it.came[name] if word.split()[0] == str(client)]
                assert mine == list(range(100))
        assert not any(it.letters(client) for client in range(20))


@simulated
async def test_what_waits_counts_against_the_memory_of_all_peers() -> None:
    network = MemoryNetwork()
    gate = trio.Event()
    narrow = ConnectionOptions(total_bytes=1 << 20)
    async with (
        open_node(listen="ws://server", network=network, connection=narrow) as server,
        open_node(network=network) as client,
    ):
        names = [f"counter-{n}" for n in range(12)]
        for name in names:
            await server.start_child(ChildSpec(name, partial(Counter, came=[], gate=gate)))
        fars = [await client.consume(Counter, f"ws://server/agents/{name}") for name in names]
        for far in fars:
            await far.tell(Counter.hold)
        for far in fars[:2]:
            await far.tell(Counter.take, "x" * 200_000)
        await trio.sleep(1)
        assert not client.dead_letters
        for far in fars[2:]:
            with suppress(AgentUnavailable):
                await far.tell(Counter.take, "x" * 200_000)
            await trio.sleep(1)
        assert client.dead_letters  # what it had sent is unknown: it was closed, as the greediest of all
        gate.set()
        await trio.sleep(60)
        await fars[0].tell(Counter.take, "y")
        await trio.sleep(1)
        lost = [letter.reason for letter in server.dead_letters]  # with what had seats, as it gave way
        assert lost == [SPENT] * len(lost)
        assert lost
        assert server.statistics().memory.bytes == 0


@simulated
async def test_large_messages_with_seats_count_when_their_connection_has_ended() -> None:
    async with there(connection=ConnectionOptions(total_bytes=1 << 20), clients=3) as it:
        await it.held()
        await (await it.far()).tell(Counter.take, "a" * 450_000)
        await trio.sleep(1)
        it.network.sever("server", 80)
        await trio.sleep(5)
        assert 450_000 < it.server.statistics().memory.bytes < 460_000
        assert not it.server.dead_letters
        for client in (1, 2):  # more than there is room for: the greediest is who has left
            await (await it.far(client=client)).tell(Counter.take, "b" * 320_000)
            await trio.sleep(1)
        assert it.server.statistics().memory.gave_way == 1
        assert [letter.reason for letter in it.server.dead_letters] == [SPENT]
        it.gates["counter"].set()
        await it.quiet()
        assert [word[:1] for word in it.came["counter"]] == ["b", "b"]
        assert it.server.statistics().memory.bytes == 0


@simulated
async def test_large_messages_with_seats_are_carried_out_when_their_connection_has_ended() -> None:
    async with there() as it:
        await it.held()
        await (await it.far()).tell(Counter.take, "a" * 450_000)
        await trio.sleep(1)
        it.network.sever("server", 80)
        await trio.sleep(5)
        assert it.server.statistics().memory.bytes > 450_000
        it.gates["counter"].set()
        await it.quiet()
        assert len(it.came["counter"]) == 1
        assert it.server.statistics().memory.bytes == 0
        assert not it.server.dead_letters


class Rude:
    """Sends one-way messages as if there were no credit; `answers` are the errors that come back."""

    def __init__(self, messages: int) -> None:
        self.left = list(range(1, messages + 1))
        self.answers: list[dict[str, Any]] = []

    def text(self, text: str) -> None:
        self.answers.append(json.loads(text))

    def binary(self, data: bytes) -> None:
        raise AssertionError(data)

    def frames(self, room: int) -> list[bytes]:
        now, self.left = self.left[:100], self.left[100:]
        frame = {"messageType": "invokeAction", "thingID": "counter", "action": "take", "input": {"word": 0}}
        return [json.dumps({**frame, "messageID": f"m{number}", "tell": number}).encode() for number in now]


@simulated
async def test_a_peer_that_ignores_its_credit_is_refused_by_name_and_holds_up_nobody() -> None:
    async with there("counter", "other") as it:
        await it.held()
        rude = Rude(3_000)
        connection = await connect(it.network, "ws://server/ws")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run, rude)
            connection.wake()
            await trio.sleep(5)
            errors = [each for each in rude.answers if each["messageType"] == "error"]
            assert len(errors) == 3_000 - 256
            assert {(each["status"], each["detail"]) for each in errors} == {
                ("400", "a one-way message came without credit")
            }
            other = await it.far("other")
            await other.tell(Counter.take, "still there")
            it.gates["counter"].set()
            await it.quiet()
            nursery.cancel_scope.cancel()
        assert len(it.came["counter"]) == 256
        assert it.came["other"] == ["still there"]


# ---- deadlines and cancellation


@simulated
async def test_a_deadline_holds_for_a_message_that_waits_for_credit() -> None:
    async with there() as it:
        far = await it.far()
        await it.held()
        for n in range(256):
            await far.tell(Counter.take, n)
        began = trio.current_time()
        with pytest.raises(DeadlineExceeded):
            await far.within(2.0).tell(Counter.take, "late")
        assert trio.current_time() - began == 2.0
        it.gates["counter"].set()
        await it.quiet()
        assert it.came["counter"] == list(range(256))


@simulated
async def test_a_thing_known_by_names_is_told_as_an_agent_is() -> None:
    async with there() as it:
        thing = await it.clients[0].consume_thing("ws://server/agents/counter")
        await it.held()
        for n in range(128):
            await thing.tell("take", {"word": n})
            await thing.within(2.0).tell("take", {"word": 1000 + n})
        began = trio.current_time()
        with pytest.raises(DeadlineExceeded):
            await thing.within(2.0).tell("take", {"word": "late"})
        assert trio.current_time() - began == 2.0
        it.gates["counter"].set()
        await it.quiet()
        assert it.came["counter"] == [item for n in range(128) for item in (n, 1000 + n)]


@pytest.mark.parametrize("seed", few_or_all(range(1), range(3)))
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 11, 24])
def test_a_waiting_message_that_is_cancelled_is_sent_whole_or_not_at_all(seed: int, steps: int) -> None:
    async def main() -> None:
        async with there(cls=Small) as it:
            far = await it.far()
            await it.held()
            sent: list[int] = []

            async def tell(n: int, scope: trio.CancelScope) -> None:
                with scope:
                    await far.tell(Counter.take, n)
                    sent.append(n)

            scopes = [trio.CancelScope() for _ in range(300)]
            async with trio.open_nursery() as nursery:
                for n, scope in enumerate(scopes):
                    nursery.start_soon(tell, n, scope)
                await trio.sleep(1)
                it.gates["counter"].set()
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                for scope in scopes[::2]:
                    scope.cancel()
            await it.quiet()
            assert sorted(it.came["counter"]) == sorted(sent)
            assert it.clients[0]._connections.peers.statistics()["open"] == 0
            assert not it.letters()

    simulate(main, seed=seed)


# ---- ends


@simulated
async def test_what_waits_for_an_agent_that_crashes_comes_back() -> None:
    async with there(cls=Small) as it:
        far = await it.far()
        await it.held()
        await far.tell(Counter.burn)
        for n in range(50):
            await far.tell(Counter.take, n)
        it.gates["counter"].set()
        await it.quiet()
        reasons = it.letters()
        assert len(reasons) == 51
        assert reasons[0] == "agent counter died (KeyError: 'fire'), request had begun"
        assert reasons.count("agent 'counter' is unavailable: KeyError: 'fire'") == 49
        assert not it.came["counter"]
        await far.tell(Counter.take, "again")
        await it.quiet()
        assert it.came["counter"] == ["again"]


@simulated
async def test_what_waits_for_an_agent_that_is_removed_comes_back() -> None:
    async with there(cls=Small, shutdown=1.0) as it:
        far = await it.far()
        await it.held()
        for n in range(256):
            await far.tell(Counter.take, n)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(far.tell, Counter.take, "waits for credit")
            await trio.sleep(1)
            await it.server.root.terminate_child("counter")
            await it.server.root.delete_child("counter")
        await it.quiet()
        assert len(it.letters()) == 257
        assert not it.came["counter"]


@simulated
async def test_a_node_that_drains_handles_what_waits_or_refuses_it_by_name() -> None:
    network = MemoryNetwork()
    came: list[Any] = []
    gate = trio.Event()
    async with open_node(network=network) as client:
        async with open_node(listen="ws://server", network=network) as server:
            await server.start_child(ChildSpec("counter", partial(Small, came=came, gate=gate)))
            far = await client.consume(Counter, "ws://server/agents/counter")
            await far.tell(Counter.hold)
            for n in range(100):
                await far.tell(Counter.take, n)
            await trio.sleep(1)
            gate.set()
        assert came + [letter.message for letter in client.dead_letters] == [
            *range(len(came)),
            *(f"({n},)" for n in range(len(came), 100)),
        ]
        assert not server.dead_letters
        with pytest.raises(AgentUnavailable):
            await far.tell(Counter.take, "too late")


@simulated
async def test_a_connection_that_breaks_in_mid_credit_loses_nothing_unseen() -> None:
    async with there(cls=Small) as it:
        far = await it.far()
        await it.held()
        for n in range(256):
            await far.tell(Counter.take, n)
        await trio.sleep(1)
        waiting: list[str] = []

        async def tell(n: int) -> None:
            try:
                await far.tell(Counter.take, n)
            except AgentUnavailable as error:
                waiting.append(str(error))

        async with trio.open_nursery() as nursery:
            for n in range(5):
                nursery.start_soon(tell, n)
            await trio.sleep(1)
            it.network.sever("server", 80)
        assert len(waiting) == 5
        it.gates["counter"].set()
        await it.quiet()
        assert it.came["counter"] == [0, 1]  # they had seats
        parked = it.server.dead_letters
        assert [letter.reason for letter in parked] == [BROKEN] * 254
        assert all("unknown" in reason for reason in it.letters())
        assert len(it.letters()) == 256
        for n in range(300):  # a new connection has new credit
            await far.tell(Counter.take, n)
        await it.quiet()
        assert len(it.came["counter"]) == 302


@simulated
async def test_what_was_carried_out_is_not_unknown_after_a_break() -> None:
    async with there() as it:
        far = await it.far()
        for n in range(100):
            await far.tell(Counter.take, n)
        await trio.sleep(1.1)
        it.network.sever("server", 80)
        await it.quiet()
        assert len(it.came["counter"]) == 100
        assert not it.letters()


@simulated
async def test_a_member_of_a_pool_that_goes_leaves_its_messages_to_the_others() -> None:
    network = MemoryNetwork()
    came: list[Any] = []
    gates: list[trio.Event] = []

    def make() -> Counter:
        gates.append(trio.Event())
        return Small(came=came, gate=gates[-1])

    async with (
        open_node(listen="ws://server", network=network) as server,
        open_node(network=network) as client,
    ):
        pool = await server.start_pool(Pool(make, 2, name="counter", shutdown=1.0))
        for _ in range(2):
            await pool.tell(Counter.hold)
        far = await client.consume(Counter, "ws://server/agents/counter")
        for n in range(200):
            await far.tell(Counter.take, n)
        await trio.sleep(1)
        await pool.resize(1)
        gates[0].set()
        await trio.sleep(5)
        assert len(came) + len(client.dead_letters) == 200
        assert len(came) >= 198


# ---- what is seen of those that wait


@simulated
async def test_what_waits_for_credit_is_in_the_waiting_graph() -> None:
    async with there() as it:
        node, far = it.clients[0], await it.far()
        make = partial(Sender, to=far)
        sender, teller = [await node.start_child(ChildSpec(name, make)) for name in ("sender", "teller")]
        await it.held()
        await sender.tell(Sender.send_some, 258)
        await trio.sleep(1)
        await teller.tell(Sender.tell_one)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(far.tell, Counter.take, -2, name="a loop")
            await trio.sleep(1)
            nursery.start_soon(far.read_all, name="behind it")
            await trio.sleep(1)
            graph = node.waiting_graph()
            credit = partial(Waiting, target="counter", kind="credit", why="ws://server/agents/counter")
            assert tuple(dict.fromkeys(graph.edges)) == (
                credit("sender", affordance="take"),
                credit("teller", affordance="take", run="tell_one"),
                credit(None, affordance="take", run="a loop"),
                credit(None, affordance="*", run="behind it"),
            )
            assert graph.cycles() == ()
            held = (
                "sender (its turns) waits for credit to send 'take' to counter (ws://server/agents/counter)"
            )
            assert held in str(graph)
            assert held in node.dump()
            nursery.cancel_scope.cancel()
        it.gates["counter"].set()
        await it.quiet()
        assert node.waiting_graph().edges == ()
