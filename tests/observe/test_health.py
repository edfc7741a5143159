"""/healthz and /readyz: there for everybody, and for nothing but what they are for."""

from __future__ import annotations

from base64 import b64encode
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    Backoff,
    ChildSpec,
    ConfigError,
    DeadlineExceeded,
    SupervisorSpec,
    action,
    open_node,
)
from lmos_actors.errors import ConnectFailed, StoreFailed
from lmos_actors.persistence import MemoryStore, SimulatedStore
from lmos_actors.security import Access, Basic, Security
from lmos_actors.supervision import RESERVED
from lmos_actors.transport import endpoint_of
from tests.networks import default_network
from tests.observe.http_requests import ask, line_to, samples
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node

PROBES = ("/healthz", "/readyz")


class Slow(Agent):
    @action
    async def work(self, seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"


class Plain(Agent):
    """Starts in an instant: its start waits for nothing."""

    @action
    def crash(self) -> None:
        raise KeyError("a bug")


async def test_a_node_lives_and_is_ready(autojump_clock: Any) -> None:
    async with open_node(listen="ws://here") as node:
        for path, said in (("/healthz", "ok"), ("/readyz", "ready")):
            answer = await ask(node, path)
            assert (answer.status, answer.text) == (200, f"{said}\n")
            assert answer.headers["cache-control"] == "no-store"
            assert (await ask(node, path, "HEAD")).status == 200
            assert (await ask(node, path, "POST")).status == 405


async def test_a_node_that_drains_lives_and_is_not_ready(autojump_clock: Any) -> None:
    async with open_node(listen="ws://here") as node, trio.open_nursery() as nursery:
        await node.start(Slow)
        busy, quiet = [await default_network().connect(endpoint_of("ws://here"), None) for _ in range(2)]
        body = b'{"seconds": 10}'
        head = b"POST /agents/slow/actions/work HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        await busy.send_all(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await trio.sleep(1)
        nursery.start_soon(node.drain)
        await trio.sleep(1)
        with pytest.raises(ConnectFailed):  # nobody new is let in: who looks from outside sees that, too
            await line_to(node)
        await quiet.send_all(b"GET /readyz HTTP/1.1\r\nHost: here\r\n\r\n")
        second, first = await _all_of(quiet), await _all_of(busy)
    assert first.startswith(b"HTTP/1.1 200")
    assert first.endswith(b'"done"')
    assert second.startswith(b"HTTP/1.1 503")
    assert second.endswith(b"draining\n")


async def _all_of(stream: Any) -> bytes:
    said = b""
    while data := await stream.receive_some():
        said += data
    return said


async def test_their_names_are_no_agents_names(autojump_clock: Any) -> None:
    for path in (*PROBES, "/metrics"):
        assert path.removeprefix("/") in RESERVED
        async with open_node(listen="ws://here") as node:
            with pytest.raises(ConfigError):
                await node.root.start_child(ChildSpec(path.removeprefix("/"), Slow))


class Patient(Agent):
    """Takes some seconds to start, and to start again."""

    seconds: float = 8.0

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        await trio.sleep(self.seconds)
        yield

    @action
    def crash(self) -> None:
        raise RuntimeError("no")


async def said(node: Node) -> tuple[int, str]:
    """Return what a probe is told."""
    answer = await ask(node, "/readyz")
    return answer.status, answer.text.strip()


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("below", [False, True])
async def test_a_node_is_ready_once_its_permanent_agents_have_started(
    held: bool, below: bool, autojump_clock: Any
) -> None:
    """One after another takes 16 seconds; with `starting` there is no instant of readiness between them."""
    async with open_node(listen="ws://here") as node, trio.open_nursery() as nursery:
        children = [ChildSpec(name, Patient) for name in ("one", "two")]

        async def start() -> None:
            with node.starting() if held else nullcontext():
                if below:
                    await node.start_supervisor(SupervisorSpec("both", children))
                    return
                for each in children:
                    await node.start_child(each)

        nursery.start_soon(start)
        for seconds in (1, 6, 2, 6):
            await trio.sleep(seconds)
            assert await said(node) == (503, "starting")
        await trio.sleep(2)
        assert await said(node) == (200, "ready")


async def test_a_child_that_restarts_makes_a_node_degraded(autojump_clock: Any) -> None:
    """At once, with a pause before, and of a supervisor: each has run before."""
    backoff = Backoff(initial=3.0, max=3.0, jitter=0.0)
    async with open_node(listen="ws://here") as node:
        slow = await node.start_child(ChildSpec("slow", Patient))
        quick = await node.start_child(ChildSpec("quick", partial(Patient, seconds=0.0), backoff=backoff))
        for ref, seconds in ((slow, 7), (quick, 2)):
            with pytest.raises(AgentDied):
                await ref.invoke(Patient.crash)
            await trio.sleep(seconds)
            assert await said(node) == (200, "degraded")
            await trio.sleep(2)
            assert await said(node) == (200, "ready")


async def test_who_waits_for_a_change_hears_of_each(autojump_clock: Any) -> None:
    """At once, and only then: when a start goes on for long, when one waits, and when both are there."""
    backoff = Backoff(initial=3.0, max=3.0, jitter=0.0)
    told: list[tuple[float, list[str]]] = []

    async def listen() -> None:
        while True:
            now = node.degraded()
            if not told or told[-1][1] != now:
                told.append((trio.current_time() - began, now))
            await node.degraded_change()

    async with open_node(listen="ws://here") as node, trio.open_nursery() as nursery:
        slow = await node.start_child(ChildSpec("slow", Patient))
        quick = await node.start_child(ChildSpec("quick", partial(Patient, seconds=0.0), backoff=backoff))
        began = trio.current_time()
        nursery.start_soon(listen)
        plain = await node.start_child(ChildSpec("plain", Plain, backoff=backoff))
        for ref, crash in ((slow, Patient.crash), (quick, Patient.crash), (plain, Plain.crash)):
            await trio.sleep(20)
            with pytest.raises(AgentDied):
                await ref.invoke(crash)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    seen = [(round(at), down) for at, down in told]
    assert seen == [
        (0, []),
        (20, ["slow"]), (28, []),
        (40, ["quick"]), (43, []),
        (60, ["plain"]), (63, []),
    ]  # fmt: skip


async def test_what_was_stopped_while_it_waited_is_not_down(autojump_clock: Any) -> None:
    """Neither a child, nor one below a supervisor that is stopped."""
    spec = ChildSpec("a", Plain, backoff=Backoff(initial=9.0, max=9.0, jitter=0.0))
    async with open_node(SupervisorSpec("root", [spec, SupervisorSpec("sup", [spec])])) as node:
        for path in ("a", "sup/a"):
            with pytest.raises(AgentDied):
                await node.find(Plain, path).invoke(Plain.crash)
            await trio.sleep(1)
            assert node.degraded() == [path]
            await node.root.terminate_child(path.split("/")[0])
            assert node.degraded() == []


async def test_agents_that_come_later_do_not_make_a_node_unready(autojump_clock: Any) -> None:
    async with open_node(listen="ws://here") as node, trio.open_nursery() as nursery:
        assert await said(node) == (200, "ready")
        nursery.start_soon(node.start, Patient)
        await trio.sleep(1)
        assert await said(node) == (200, "ready")


async def test_an_agent_that_may_be_missing_is_not_waited_for(autojump_clock: Any) -> None:
    async with open_node(listen="ws://here") as node, trio.open_nursery() as nursery:
        nursery.start_soon(node.start_child, ChildSpec("once", Patient, restart="temporary"))
        await trio.sleep(1)
        assert await said(node) == (200, "ready")


class Keeps(Agent, durable=True):
    n: int = 0

    @action
    def add(self) -> int:
        self.n += 1
        return self.n


class Failing(MemoryStore):
    fails = False

    def commit(self, batches: Any, durability: Any) -> Any:
        if self.fails:
            raise StoreFailed(self.name, "the disk is full")
        return super().commit(batches, durability)


async def test_a_node_whose_store_fails_is_not_ready(autojump_clock: Any) -> None:
    store = Failing()
    async with open_node(listen="ws://here", store=store) as node:
        ref = await node.start_child(ChildSpec("keeps", Keeps))
        assert (await ask(node, "/readyz")).status == 200
        store.fails = True
        with pytest.raises(AgentDied):
            await ref.invoke(Keeps.add)
        answer = await ask(node, "/readyz")
        assert (answer.status, answer.text) == (503, "store fails\n")
        assert (await ask(node, "/healthz")).status == 200
        store.fails = False
        await ref.ready()
        assert (await ask(node, "/readyz")).status == 200


async def test_a_store_that_hangs_is_seen_and_holds_up_nobody_else(autojump_clock: Any) -> None:
    seconds = 0.0
    store = SimulatedStore(simulated_disk(1, lambda: seconds))
    async with open_node(listen="ws://here", store=store) as node, trio.open_nursery() as nursery:
        ref = await node.start_child(ChildSpec("keeps", Keeps))
        slow = await node.start(Slow)
        seconds = 30.0
        answers = list[int]()

        async def add() -> None:
            answers.append(await ref.invoke(Keeps.add))

        nursery.start_soon(add)
        await trio.sleep(1)
        assert (await ask(node, "/readyz")).status == 200
        with pytest.raises(DeadlineExceeded):
            await ref.within(2).invoke(Keeps.add)
        with trio.move_on_after(2) as scope:
            await ref.invoke(Keeps.add)
        assert scope.cancelled_caught
        assert await slow.within(2).invoke(Slow.work, 1) == "done"
        answer = await ask(node, "/readyz")
        assert (answer.status, answer.text) == (503, "store hangs\n")
        assert (await ask(node, "/healthz")).status == 200
        statistics = node.statistics().store
        assert statistics is not None
        assert statistics.waiting == 3
        assert statistics.waiting_seconds == pytest.approx(6, abs=0.1)
        seconds = 0.0
        await trio.sleep(25)
        assert answers == [1]
        assert await ref.invoke(Keeps.add) == 4
        assert (await ask(node, "/readyz")).status == 200


async def test_metrics_ask_for_credentials_and_health_does_not(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_PASSWORD", "p" * 20)
    monkeypatch.setenv("ALICE_PASSWORD", "a" * 20)
    basic = Basic({"prometheus": "env:PROMETHEUS_PASSWORD", "alice": "env:ALICE_PASSWORD"})
    security = Security(schemes=(basic,), access={"metrics": Access(read=("prometheus",))})
    async with open_node(listen="ws://here", metrics=True, security=security) as node:
        statuses = [(await ask(node, path)).status for path in ("/healthz", "/readyz", "/metrics")]
        assert statuses == [200, 200, 401]
        for name, status in (("prometheus", 200), ("alice", 403)):
            known = b64encode(f"{name}:{name[0] * 20}".encode()).decode()
            answer = await ask(node, "/metrics", Authorization=f"Basic {known}")
            assert answer.status == status
            if status == 200:
                assert samples(answer.text)["lmos_actors_not_let_in_total", "401"] == 1
        probe = await ask(node, "/healthz", Host="10.1.2.3:9", Authorization="nonsense")
        assert probe.status == 200
