"""Agents of ours over HTTP alone: the same verbs, values and errors as near, as far as HTTP goes."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme
from trio.testing import wait_all_tasks_blocked

from lmos_actors import (
    Agent,
    AgentDied,
    AgentError,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    Gap,
    NotAllowed,
    Ref,
    action,
    open_node,
)
from lmos_actors.bindings import fetch
from lmos_actors.errors import ActionCancelled
from lmos_actors.transport import MemoryNetwork, TcpNetwork
from tests.bindings.client_connections import Weather
from tests.bindings.lmos.test_peer_streams import Later, Tap

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from lmos_actors import Node
    from lmos_actors.transport import Network


def web_only(text: bytes) -> str:
    """Give a description without its forms for LMOS."""
    found = json.loads(text)
    for owner in (found, *(each for kind in KINDS for each in found.get(kind, {}).values())):
        owner["forms"] = [
            form for form in owner.get("forms", ()) if form.get("subprotocol") != "lmosprotocol"
        ]
    if not found["forms"]:
        del found["forms"]
    if "hours" in found["actions"]:
        hours = {"href": f"{found['id']}/actions/hours", "op": ["invokeaction"], "subprotocol": "sse"}
        found["actions"]["hours"]["forms"] = found["actions"]["hours"]["forms"] or [hours]
    return json.dumps(found)


KINDS = ("properties", "actions", "events")


async def consumed(
    node: Node, network: Network, url: str, path: Path, tls: Any = None, cls: Any = Weather
) -> Ref[Any]:
    """Consume an agent by a copy of its description that has only forms for HTTP."""
    text, _ = await fetch(network, url, tls)
    await trio.Path(path).write_text(web_only(text))
    ref: Ref[Any] = await node.consume(cls, path)
    assert type(ref._link).__name__ == "HttpLink"
    return ref


@asynccontextmanager
async def far_and_near(tmp_path: Path, **spec: Any) -> AsyncGenerator[tuple[Ref[Weather], Ref[Weather], Any]]:
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://server", network=network) as server,
        open_node(network=network) as client,
    ):
        near = await server.start_child(ChildSpec("weather", Weather, **spec))
        far = await consumed(client, network, "http://server/agents/weather", tmp_path / "weather.td.json")
        yield far, near, (server, client, network)
        assert server.connection_failures == ()
        assert client.connection_failures == ()


async def _write_and_read(ref: Ref[Weather]) -> Any:
    await ref.write(Weather.units, "kelvin")
    return await ref.read(Weather.units)


async def _write_many(ref: Ref[Weather]) -> Any:
    await ref.write_many(Weather.units.to("x"), Weather.limit.to(9))
    return await ref.read_all()


async def _result(ref: Ref[Weather]) -> Any:
    async with ref.begin(Weather.forecast, "Bonn") as call:
        result, status = await call.result(), await call.query()
    return result, status, await call.cancel()


async def _cancelled(ref: Ref[Weather]) -> Any:
    async with ref.begin(Weather.sleep) as call:
        await trio.sleep(1)
        status = await call.cancel("enough")
        try:
            await call.result()
        except ActionCancelled as error:
            return status, error.reason


async def _items(ref: Ref[Weather]) -> Any:
    async with ref.stream(Weather.hours, 40) as items:
        return [item async for item in items]


async def _observed(ref: Ref[Weather]) -> Any:
    async with ref.observe(Weather.units) as feed:
        first = await feed.receive()
        await ref.write(Weather.units, "kelvin")
        return first, await feed.receive()


async def _heard(ref: Ref[Weather]) -> Any:
    async with ref.subscribe(Weather.asked) as feed, ref.subscribe_all() as everything:
        await ref.invoke(Weather.turn, "Bonn", days=3)
        return await feed.receive(), await everything.receive()


async def _told(ref: Ref[Weather]) -> Any:
    async with ref.subscribe(Weather.asked) as feed:
        for city in ("a", "b", "c"):
            await ref.tell(Weather.turn, city)
        return [await feed.receive() for _ in range(3)]


async def _late(ref: Ref[Weather]) -> Any:
    await ref.within(0.5).invoke(Weather.sleep)


async def _too_much(ref: Ref[Weather]) -> Any:
    await ref.invoke(Weather.turn, "Bonn", 1, 2)  # type: ignore[call-arg]


async def _wrong(ref: Ref[Weather]) -> Any:
    await ref.write(Weather.units, 3)  # type: ignore[arg-type]


CASES: dict[str, Any] = {
    "read": lambda ref: ref.read(Weather.units),
    "read what is read-only": lambda ref: ref.read(Weather.station),
    "write": _write_and_read,
    "write a wrong type": _wrong,
    "write many": _write_many,
    "read all": lambda ref: ref.read_all(),
    "invoke": lambda ref: ref.invoke(Weather.turn, "Köln", days=2),
    "invoke with too much": _too_much,
    "invoke what fails": lambda ref: ref.invoke(Weather.fail),
    "invoke what crashes": lambda ref: ref.invoke(Weather.crash),
    "invoke what takes time": lambda ref: ref.invoke(Weather.forecast, "Bonn"),
    "begin": _result,
    "cancel": _cancelled,
    "stream": _items,
    "observe": _observed,
    "subscribe": _heard,
    "tell": _told,
    "within": _late,
    "retrying": lambda ref: ref.retrying().invoke(Weather.turn, "Bonn"),
    "ready": lambda ref: ref.ready(),
}


async def outcome(ask: Any, ref: Ref[Weather]) -> Any:
    """Give what comes of it: a value, or the class and the text of an error."""
    try:
        return await ask(ref)
    except AgentError as error:
        return type(error), str(error)


@pytest.mark.parametrize("case", CASES)
async def test_over_http_it_is_as_near(autojump_clock: object, tmp_path: Path, case: str) -> None:
    async with far_and_near(tmp_path) as (_, near, _):
        expected = await outcome(CASES[case], near)
    async with far_and_near(tmp_path) as (far, _, _):
        with trio.fail_after(100):
            assert await outcome(CASES[case], far) == expected


async def test_what_does_not_go_over_http_is_not_allowed_by_name(
    autojump_clock: object, tmp_path: Path
) -> None:
    async with far_and_near(tmp_path) as (far, _, _):
        with pytest.raises(NotAllowed, match="no form to read 'limit' over HTTP"):
            await far.read(Weather.limit)
        with pytest.raises(NotAllowed, match="does not report exits"):
            async with far.monitor():
                pass
        with pytest.raises(NotAllowed, match="cannot be linked"):
            far.link()
        for count in (far.statistics, far.mailbox_statistics):
            with pytest.raises(NotAllowed, match="keeps its counts"):
                count()


async def test_a_caller_that_leaves_cancels_the_run(autojump_clock: object, tmp_path: Path) -> None:
    async with far_and_near(tmp_path) as (far, near, _):
        with trio.move_on_after(1):
            await far.invoke(Weather.sleep)
        await trio.sleep(1)
        assert near.statistics().running == 0
        async with far.begin(Weather.sleep) as call:
            await call.query()
            assert near.statistics().running == 1
        await trio.sleep(1)
        assert near.statistics().running == 0
        with pytest.raises(DeadlineExceeded):
            await far.within(0.1).invoke(Weather.sleep)
        await trio.sleep(1)
        assert near.statistics().running == 0


async def test_an_observation_goes_on_over_a_crash_and_a_break(
    autojump_clock: object, tmp_path: Path
) -> None:
    async with (
        far_and_near(tmp_path) as (far, near, (_, _, network)),
        far.observe(Weather.units, gaps=True) as feed,
    ):
        assert await feed.receive() == "celsius"
        await near.write(Weather.units, "kelvin")
        assert await feed.receive() == "kelvin"
        with pytest.raises(AgentDied):
            await near.invoke(Weather.crash)
        gap = await feed.receive()
        assert isinstance(gap, Gap)
        assert "boom" in gap.reason
        assert await feed.receive() == "celsius"
        network.sever("server", 80)
        assert await feed.receive() == Gap("connection lost")
        found = await feed.receive()
        while isinstance(found, Gap):
            found = await feed.receive()
        assert found == "celsius"


async def test_the_end_of_an_agent_is_the_end_of_what_is_heard_of_it(
    autojump_clock: object, tmp_path: Path
) -> None:
    async with far_and_near(tmp_path) as (far, _, (server, _, _)):
        async with far.subscribe(Weather.asked) as feed:
            await server.root.terminate_child("weather")
            await server.root.delete_child("weather")
            with trio.fail_after(100), pytest.raises(trio.EndOfChannel):
                await feed.receive()
        with pytest.raises(AgentError, match="weather"):
            await far.read(Weather.units)


async def test_a_server_that_ends_is_not_there(autojump_clock: object, tmp_path: Path) -> None:
    network = MemoryNetwork()
    async with open_node(network=network) as client:
        async with open_node(listen="ws://server", network=network) as server:
            await server.start(Weather)
            far = await consumed(client, network, "http://server/agents/weather", tmp_path / "td.json")
            assert await far.read(Weather.units) == "celsius"
        with pytest.raises(
            AgentUnavailable, match="no connection to http://server: nothing is listening there"
        ):
            await far.read(Weather.units)


async def test_over_real_sockets(tmp_path: Path) -> None:
    async with open_node(listen="ws://127.0.0.1:0") as server, open_node() as client:
        await server.start(Weather)
        url = server.urls[0].replace("ws://", "http://")
        far = await consumed(client, TcpNetwork(), f"{url}/agents/weather", tmp_path / "weather.td.json")
        with trio.fail_after(20):
            for _ in range(3):
                assert await _observed(far) == ("celsius", "kelvin")
                await far.write(Weather.units, "celsius")
            assert await _items(far) == list(range(40))
        assert server.connections <= 6


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Give the contexts of a client and a server that it trusts."""
    authority = trustme.CA()
    ours, theirs = ssl.create_default_context(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.configure_trust(ours)
    authority.issue_cert("localhost").configure_cert(theirs)
    return ours, theirs


async def test_over_tls(tmp_path: Path) -> None:
    ours, theirs = contexts()
    async with (
        open_node(listen="wss://localhost:0", tls=theirs) as server,
        open_node(client_tls=ours) as client,
    ):
        await server.start(Weather)
        url = server.urls[0].replace("wss://", "https://")
        far = await consumed(
            client, TcpNetwork(), f"{url}/agents/weather", tmp_path / "weather.td.json", ours
        )
        with trio.fail_after(20):
            for number in range(3):
                assert await far.invoke(Weather.turn, "Bonn", number) == f"Bonn {number}"


# ---- sources


class Echo(Agent):
    @action
    async def back(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for part in parts:
            yield part

    @action
    async def add(self, numbers: AsyncIterator[int]) -> int:
        return sum([number async for number in numbers])


@pytest.mark.slow
async def test_both_directions_are_full_at_once_over_tls(tmp_path: Path) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for number in range(60):
            yield bytes([number]) * 100_000

    ours, theirs = contexts()
    async with (
        open_node(listen="wss://localhost:0", tls=theirs) as server,
        open_node(client_tls=ours) as client,
    ):
        await server.start_child(ChildSpec("echo", Echo))
        url = f"{server.urls[0].replace('wss://', 'https://')}/agents/echo"
        far = await consumed(client, TcpNetwork(), url, tmp_path / "echo.td.json", ours, Echo)
        with trio.fail_after(20):
            async with far.stream(Echo.back, parts()) as answers:
                await trio.sleep(0.5)  # until nothing fits any more, in either direction
                got = [(len(part), part[0]) async for part in answers]
        assert got == [(100_000, number) for number in range(60)]
        assert server.connection_failures == client.connection_failures == ()


async def test_a_cancel_at_every_step_leaves_nothing_behind(tmp_path: Path, autojump_clock: Any) -> None:
    network, fates = MemoryNetwork(), set[str]()
    async with (
        open_node(listen="ws://server", network=network) as server,
        open_node(network=network) as client,
    ):
        near = await server.start_child(ChildSpec("echo", Echo))
        far = await consumed(
            client, network, "http://server/agents/echo", tmp_path / "echo.td.json", cls=Echo
        )
        for steps in range(60):
            tap = Tap(*range(20), waits=False)
            async with trio.open_nursery() as nursery:
                Later(nursery, far.invoke(Echo.add, tap))
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            await wait_all_tasks_blocked()
            fates.add(tap.fate)
            counts = near.statistics()
            assert counts.accepted == counts.handled + counts.cancelled + counts.dropped, (steps, counts)
            assert server.statistics().memory.bytes == 0, steps
        # trio shuffles tasks, so a step may hit the third one or not
        assert {"untouched", "ended"} <= fates <= {"untouched", "GeneratorExit", "ended"}
        assert await far.invoke(Echo.add, Tap(1, 2, waits=False)) == 3
        assert server.connection_failures == client.connection_failures == ()
