"""Agents whose turns take time: one server and its queue, checked against a simulation of just that."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    ConfigError,
    DeadlineExceeded,
    ExitReason,
    MailboxFull,
    MailboxOptions,
    Property,
    Ref,
    TraceLog,
    action,
    event,
    every,
    open_node,
    prop,
    simulate,
)
from lmos_actors.actors import hold, release, service_time, set_service_time, slot_of, waiting_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors import Event, Node


class Server(Agent):
    count: Property[int] = prop(default=0)
    done: Event[int] = event()
    order: tuple[int, ...] = ()
    ticks: tuple[float, ...] = ()

    @action
    def serve(self, n: int = 0) -> int:
        self.count += 1
        self.order += (n,)
        self.done.emit(n)
        return n

    @action(concurrency=2)
    async def work(self, seconds: float) -> None:
        await trio.sleep(seconds)

    @action
    async def send_later(self, seconds: float, to: str) -> None:
        await trio.sleep(seconds)
        for n in range(2):
            self.send(self.find(Server, to), Server.serve, n)

    @action
    def set_own(self, seconds: float) -> None:
        set_service_time(self.ref, seconds)

    @action
    def fussy(self) -> int:
        if not self.count:
            self.stash()
        return self.count

    @action
    def content(self) -> None:
        self.count = 7
        self.unstash_all()

    @action
    def crash(self) -> None:
        raise ValueError("broken")

    @action
    def remind(self, n: int) -> None:
        self.send(self.ref, Server.serve, n)


class Serial(Server, serial=True):
    pass


class Ticking(Server):
    @every(1.0)
    def tick(self) -> None:
        self.ticks += (trio.current_time(),)


@pytest.fixture(params=["plain", "traced"])
def play(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Play a story with one server, on either kind of slot; the accounts add up at its end."""

    def run(story: Any, cls: type[Server] = Server, **options: Any) -> None:
        async def main() -> None:
            async with open_node() as node:
                ref = await node.start_child(ChildSpec("server", cls, **options))
                await story(node, ref)
                add_up(ref)

        simulate(main, log=TraceLog() if request.param == "traced" else None)

    return run


def add_up(ref: Ref[Any]) -> None:
    n = ref.statistics()
    assert n.accepted == n.handled + n.cancelled + n.dropped + n.dead_lettered + n.waiting + n.running
    assert n.waiting == ref.mailbox_statistics().depth


class Came:
    """Who came when, and how it ended: the value or the error, at which instant."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.ends: dict[int, tuple[Any, float]] = {}

    def at(self, when: float, n: int, ask: Any) -> None:
        """Have somebody ask at that instant; what was asked is told by `n`."""

        async def come() -> None:
            await trio.sleep_until(when)
            try:
                value: Any = await ask()
            except Exception as error:  # it is looked at
                value = type(error)
            self.ends[n] = value, trio.current_time()

        self._nursery.start_soon(come)


# --- against the reference: one server, a fixed time for each, a line of limited length

MILLI = 1_000
SERVICE = st.integers(1, 60).map(lambda n: n * MILLI + 1)  # microseconds; never done when somebody comes
ARRIVALS = st.lists(st.integers(0, 300), min_size=1, max_size=25, unique=True).map(
    lambda times: [time * MILLI for time in sorted(times)]
)


def reference(arrivals: list[int], service: int, size: int, policy: str) -> dict[int, tuple[str, int]]:
    """Simulate the queue by hand; times are whole microseconds. Give how each ended, and when."""
    ends: dict[int, tuple[str, int]] = {}
    line: deque[int] = deque()
    parked: deque[int] = deque()
    free_at: int | None = None  # when what is worked on is done
    served: int | None = None

    def advance(to: float) -> None:
        nonlocal free_at, served
        while free_at is not None and free_at <= to:
            assert served is not None
            ends[served] = "served", free_at
            begin, served, free_at = free_at, None, None
            start(begin)

    def start(now: int) -> None:
        nonlocal free_at, served
        if served is None and line:
            served, free_at = line.popleft(), now + service
            if parked:
                line.append(parked.popleft())

    for n, when in enumerate(arrivals):
        advance(when)
        if len(line) < size:
            line.append(n)
        elif policy == "wait":
            parked.append(n)
        elif policy == "drop_oldest":
            ends[line.popleft()] = "full", when
            line.append(n)
        else:
            ends[n] = "full", when
        start(when)
    advance(float("inf"))
    return ends


@given(
    ARRIVALS,
    SERVICE,
    st.sampled_from([1, 2, 3, 100]),
    st.sampled_from(["wait", "reject", "drop_oldest", "drop_newest"]),
    st.booleans(),
)
def test_it_is_the_queue_of_the_books(
    arrivals: list[int], service: int, size: int, policy: Any, traced: bool
) -> None:
    async def main() -> dict[int, tuple[str, int]]:
        async with open_node() as node:
            spec = ChildSpec("server", Server, mailbox=MailboxOptions(size, policy))
            ref = await node.start_child(spec)
            set_service_time(ref, service / 1e6)
            async with trio.open_nursery() as nursery:
                came = Came(nursery)
                for n, when in enumerate(arrivals):
                    came.at(when / 1e6, n, lambda n=n: ref.invoke(Server.serve, n))
            add_up(ref)
            words = {n: "full" if value is MailboxFull else "served" for n, (value, _) in came.ends.items()}
            return {n: (words[n], round(at * 1e6)) for n, (_, at) in came.ends.items()}

    log = TraceLog() if traced else None
    assert simulate(main, log=log) == reference(arrivals, service, size, policy)


@given(ARRIVALS, SERVICE, st.integers(1, 25))
def test_one_way_messages_are_served_as_requests_are(arrivals: list[int], service: int, size: int) -> None:
    async def main() -> list[tuple[int, int]]:
        served: list[tuple[int, int]] = []
        async with open_node() as node:
            spec = ChildSpec("server", Server, mailbox=MailboxOptions(size, "drop_oldest"))
            ref = await node.start_child(spec)
            set_service_time(ref, service / 1e6)
            async with trio.open_nursery() as nursery, ref.subscribe(Server.done) as done:

                async def listen() -> None:
                    async for n in done:
                        served.append((n, round(trio.current_time() * 1e6)))

                nursery.start_soon(listen)
                for n, when in enumerate(arrivals):
                    await trio.sleep_until(when / 1e6)
                    await ref.tell(Server.serve, n)
                await trio.sleep(100)
                add_up(ref)
                nursery.cancel_scope.cancel("enough")
        return served

    wanted = reference(arrivals, service, size, "drop_oldest")
    # the subscription is a message too, and the first to be served
    first = reference([0, *arrivals], service, size, "drop_oldest") if arrivals[0] else None
    served = simulate(main)
    if first is None:
        assert [n for n, _ in served] == sorted(n for n, _ in served)
        assert len(served) >= sum(word == "served" for word, _ in wanted.values()) - 1
