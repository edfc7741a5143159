"""Sources of callers on their way to agents of another node, whose server a test answers by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    InvalidInput,
    NotAllowed,
    OutcomeUnknown,
    action,
    open_node,
)
from lmos_actors.bindings import remote_ref
from lmos_actors.errors import RemoteProtocolError
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.transport import MemoryNetwork
from tests.bindings.client_connections import THING, URL, Weather, quiet, scripted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Ref
    from tests.bindings.client_connections import Scripted, Wire


class Talker(Weather):
    @action(idempotent=True)
    async def total(self, numbers: AsyncIterator[int], start: int = 0) -> int:
        return start

    @action
    async def texts(self, lines: AsyncIterator[str]) -> AsyncIterator[str]:
        async for line in lines:
            yield line


class Adder(Agent):
    @action
    async def add(self, numbers: AsyncIterator[int]) -> int:
        return sum([number async for number in numbers])


class Tap:
    """A source that notes what becomes of it."""

    def __init__(self, *items: Any, waits: bool = True) -> None:
        self.given = 0
        self.fate = "untouched"
        self._items = items
        self._waits = waits

    async def __aiter__(self) -> AsyncGenerator[Any]:
        task = trio.lowlevel.current_task()
        try:
            for item in self._items:
                self.given += 1
                yield item
            if self._waits:
                await trio.sleep_forever()
            self.fate = "ended"
        except BaseException as exc:
            self.fate = type(exc).__name__
            raise
        finally:
            assert task is trio.lowlevel.current_task()


class Later:
    """A call in the background, and what came of it."""

    def __init__(self, nursery: trio.Nursery, asked: Any) -> None:
        self.value: Any = None
        self.error: Exception | None = None
        self.done = trio.Event()
        nursery.start_soon(self._ask, asked)

    async def _ask(self, asked: Any) -> None:
        try:
            self.value = await asked
        except Exception as exc:
            self.error = exc
        self.done.set()


async def talker(peers: Scripted) -> Ref[Talker]:
    ref = remote_ref(peers, Talker, URL, THING)
    await ref.ready()
    await quiet()
    return ref


def credit(wire: Wire, run: dict[str, Any], items: int = 16, size: int = 262_144, stream: int = 1) -> None:
    wire.say("streamCredit", run, stream=stream, items=items, bytes=size)


async def test_items_are_sent_under_the_credit_of_the_agent_alone(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref, tap = await talker(peers), Tap(*range(5), waits=False)
        asked = Later(nursery, ref.invoke(Talker.total, tap, start=7))
        await quiet()
        run = peers.wire.last("invokeAction")
        assert run["streams"] == {"numbers": {"stream": 1, "contentType": "application/json"}}
        assert run["input"] == {"start": 7}
        assert tap.given == 0
        credit(peers.wire, run, items=3, size=1)
        await quiet()
        assert tap.given == 1  # its bytes are spent with the first
        credit(peers.wire, run, items=0, size=10_000)
        await quiet()
        assert tap.given == 3
        sent = peers.wire.sent[-3:]
        assert [(each["stream"], each["sequence"], each["data"]) for each in sent] == [
            (1, number, number) for number in range(3)
        ]
        credit(peers.wire, run)
        await quiet()
        end = peers.wire.last("streamEnd")
        assert (end["stream"], end["sequence"], end.get("reason")) == (1, 5, None)
        peers.wire.status(run, "completed", output=17)
        await asked.done.wait()
        assert (asked.value, tap.fate) == (17, "ended")


async def test_a_stream_that_the_agent_stops_is_closed_and_the_call_goes_on(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref, tap = await talker(peers), Tap(1)
        asked = Later(nursery, ref.invoke(Talker.total, tap))
        await quiet()
        run = peers.wire.last("invokeAction")
        credit(peers.wire, run)
        await quiet()
        peers.wire.say("streamEnd", run, stream=1, sequence=1, reason="enough")
        await quiet()
        assert tap.fate == "Cancelled"
        assert not asked.done.is_set()
        peers.wire.status(run, "completed", output=1)
        await asked.done.wait()
        assert asked.value == 1
        assert "streamEnd" not in peers.wire.kinds()


async def test_the_answer_closes_a_source_that_waits_for_credit(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref, untouched, begun = await talker(peers), Tap(1), Tap(1, 2, 3)
        first = Later(nursery, ref.invoke(Talker.total, untouched))
        await quiet()
        second = Later(nursery, ref.invoke(Talker.total, begun))
        await quiet()
        runs = [each for each in peers.wire.sent if each["messageType"] == "invokeAction"]
        credit(peers.wire, runs[1], items=1, stream=3)
        await quiet()
        for run in runs:
            peers.wire.status(run, "completed", output=0)
        await first.done.wait()
        await second.done.wait()
        assert (untouched.fate, begun.fate, begun.given) == ("untouched", "GeneratorExit", 1)


@pytest.mark.parametrize("way", ["invoke", "begin", "stream"])
async def test_a_connection_that_breaks_closes_the_source_and_the_outcome_is_unknown(
    way: str, autojump_clock: Any
) -> None:
    async def ask(ref: Ref[Talker], tap: Tap) -> Any:
        if way == "invoke":
            return await ref.invoke(Talker.total, tap)
        if way == "begin":
            async with ref.begin(Talker.total, tap) as call:
                return await call.result()
        async with ref.stream(Talker.texts, tap) as items:
            return [item async for item in items]

    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        tap = Tap("a" if way == "stream" else 1)
        asked = Later(nursery, ask(await talker(peers), tap))
        await quiet()
        credit(peers.wire, peers.wire.last("invokeAction"))
        await quiet()
        peers.wire.break_off()
        await asked.done.wait()
        assert isinstance(asked.error, OutcomeUnknown)
        assert tap.fate == "Cancelled"


async def test_after_a_drain_the_request_has_not_begun(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        tap = Tap(1)
        asked = Later(nursery, (await talker(peers)).invoke(Talker.total, tap))
        await quiet()
        peers.wire.drain()
        await asked.done.wait()
        assert isinstance(asked.error, AgentUnavailable)
        assert tap.fate == "untouched"


async def test_a_repeating_ref_does_not_repeat_it(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        asked = Later(nursery, (await talker(peers)).retrying().invoke(Talker.total, Tap(1)))
        await quiet()
        assert "attempt" not in peers.wire.last("invokeAction")
        peers.wire.break_off()
        await asked.done.wait()
        assert isinstance(asked.error, OutcomeUnknown)


async def test_a_deadline_is_sent_and_ends_the_call_here(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        tap = Tap(1)
        asked = Later(nursery, (await talker(peers)).within(2).invoke(Talker.total, tap))
        await quiet()
        run = peers.wire.last("invokeAction")
        assert run["remaining"] == pytest.approx(2)
        credit(peers.wire, run)
        await asked.done.wait()
        assert isinstance(asked.error, DeadlineExceeded)
        assert tap.fate == "Cancelled"
        await quiet()
        assert peers.wire.kinds()[-1] == "cancelAction"


async def test_an_item_that_is_too_long_is_the_callers_mistake(autojump_clock: Any) -> None:
    async with (
        scripted(session=SessionOptions(max_bytes=10_000)) as (peers, _),
        trio.open_nursery() as nursery,
    ):
        tap = Tap("short", "x" * 20_000)

        async def ask(ref: Ref[Talker]) -> list[str]:
            async with ref.stream(Talker.texts, tap) as items:
                return [item async for item in items]

        asked = Later(nursery, ask(await talker(peers)))
        await quiet()
        run = peers.wire.last("invokeAction")
        credit(peers.wire, run)
        await quiet()
        end = peers.wire.last("streamEnd")
        assert end["reason"].startswith("InvalidInput")
        peers.wire.error(run, "urn:lmos-actors:errors#invalid-input", 400, path="$.lines")
        await asked.done.wait()
        assert isinstance(asked.error, InvalidInput)
        assert asked.error.path == "$.lines"
        assert tap.fate == "GeneratorExit"


async def test_a_violation_of_the_peer_ends_the_call(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        tap = Tap(1)
        asked = Later(nursery, (await talker(peers)).invoke(Talker.total, tap))
        await quiet()
        run = peers.wire.last("invokeAction")
        credit(peers.wire, run)
        await quiet()
        peers.wire.handler.binary(bytes.fromhex("01000000 00000001 00000000"))  # it goes the other way
        await asked.done.wait()
        assert isinstance(asked.error, RemoteProtocolError)
        assert tap.fate == "Cancelled"


@pytest.mark.parametrize("offers", [(), ("tells",)])
async def test_a_peer_that_offers_no_streams_is_sent_none(
    offers: tuple[str, ...], autojump_clock: Any
) -> None:
    async with scripted(offers=offers) as (peers, _):
        ref, tap = await talker(peers), Tap(1)
        with pytest.raises(NotAllowed, match="takes no input streams"):
            await ref.invoke(Talker.total, tap)
        with pytest.raises(NotAllowed, match="takes no input streams"):
            async with ref.stream(Talker.texts, tap):
                pass
        assert (tap.fate, peers.wire.sent) == ("untouched", [])


async def test_a_peer_of_kotlin_wots_habits_is_sent_none(autojump_clock: Any) -> None:
    async with scripted(offers=None, kotlin=True) as (peers, _):
        ref = await talker(peers)
        with pytest.raises(NotAllowed, match="takes no input streams"):
            await ref.invoke(Talker.total, Tap(1))


async def test_without_a_connection_the_source_is_untouched(autojump_clock: Any) -> None:
    async with scripted(up=False) as (peers, _):
        tap = Tap(1)
        with pytest.raises(AgentUnavailable):
            await remote_ref(peers, Talker, URL, THING).invoke(Talker.total, tap)
        assert tap.fate == "untouched"


@pytest.mark.parametrize(("items", "outcome"), [(3, "6"), (1000, "AgentDied")])
async def test_a_node_that_drains_lets_a_source_come_to_its_end(
    items: int, outcome: str, autojump_clock: Any
) -> None:
    network = MemoryNetwork()
    leave = trio.Event()

    async def numbers() -> AsyncIterator[int]:
        for number in range(1, items + 1):
            yield number
            await trio.sleep(0.5)

    async def serve(*, task_status: trio.TaskStatus[str]) -> None:
        async with open_node(listen="ws://server", network=network) as server:
            await server.start_child(ChildSpec("talker", Adder, shutdown=3.0))
            task_status.started(server.urls[0])
            await leave.wait()

    async with open_node(network=network) as client, trio.open_nursery() as nursery:
        url = await nursery.start(serve)
        ref = await client.consume(Adder, f"{url}/agents/talker")
        asked = Later(nursery, ref.invoke(Adder.add, numbers()))
        await quiet()
        leave.set()
        await asked.done.wait()
        assert outcome == (str(asked.value) if asked.error is None else type(asked.error).__name__)
    assert trio.current_time() < 10


async def test_one_way_a_stream_is_refused(autojump_clock: Any) -> None:
    async with scripted() as (peers, _):
        ref = await talker(peers)
        with pytest.raises(TypeError, match="one-way"):
            await ref.tell(Talker.total, Tap(1))
        with pytest.raises(TypeError, match="one-way"):
            ref.tell_nowait(Talker.total, Tap(1))
        assert peers.wire.sent == []


async def test_a_thing_without_a_class_takes_sources_by_name(autojump_clock: Any) -> None:
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://server", network=network) as server,
        open_node(network=network) as client,
    ):
        await server.start_child(ChildSpec("adder", Adder))
        thing = await client.consume_thing("http://server/agents/adder")
        assert await thing.within(5).invoke("add", streams={"numbers": Tap(1, 2, waits=False)}) == 3
        async with thing.begin("add", {}, streams={"numbers": Tap(4, waits=False)}) as call:
            assert await call.result() == 4
        with pytest.raises(InvalidInput, match="needs the input stream 'numbers'"):
            await thing.invoke("add")
        with pytest.raises(InvalidInput, match="no parameter 'number', did you mean 'numbers'"):
            await thing.invoke("add", streams={"number": Tap(1)})
