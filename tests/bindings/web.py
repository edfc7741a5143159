"""A client over HTTP that a test drives message by message, and a node for it, both in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import h11
import trio
from trio.testing import MockClock

from lmos_actors import (
    ActionFailed,
    Agent,
    ChildSpec,
    Event,
    MailboxOptions,
    Progress,
    Property,
    SupervisorSpec,
    action,
    current_request,
    event,
    open_node,
    prop,
)
from lmos_actors.transport import MemoryNetwork, endpoint_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors import Node, Ref

HERE = "ws://here:80"


class Weather(Agent, mailbox=MailboxOptions(size=4)):
    """Answers questions about the weather."""

    units: Property[str] = prop(default="celsius")
    station: Property[str] = prop(default="Bonn", read_only=True)
    code: Property[int] = prop(default=7, write_only=True)
    quiet: Property[int] = prop(default=0, observable=False)
    asked: Event[str] = event()
    warned: Event[int] = event()

    @action(safe=True)
    def tell(self, city: str, days: int = 1) -> str:
        """Tell it at once."""
        self.asked.emit(city)
        return f"{city} {days}"

    @action
    def warn(self, level: int, times: int = 1) -> None:
        """Warn everybody."""
        for _ in range(times):
            self.warned.emit(level)

    @action
    async def forecast(self, progress: Progress[float], city: str, seconds: float = 1.0) -> str:
        """Take some time for it."""
        await trio.sleep(seconds / 2)
        progress.report(0.5)
        await trio.sleep(seconds / 2)
        return f"sunny in {city}"

    @action(on_disconnect="finish")
    async def print_out(self, seconds: float = 1.0) -> None:
        """Go on though nobody waits."""
        await trio.sleep(seconds)
        self.units = "printed"

    @action(synchronous=False)
    async def order(self, seconds: float = 1.0) -> str:
        """Answer before it is done."""
        await trio.sleep(seconds)
        return "ordered"

    @action
    async def pour(self, count: int, seconds: float = 0.0) -> AsyncIterator[int]:
        """Give so many items."""
        for number in range(count):
            await trio.sleep(seconds)
            yield number

    @action
    def who(self) -> dict[str, str | None]:
        """Say who asks."""
        request = current_request()
        return {"consumer": request.consumer, "principal": request.principal, "trace": request.trace}

    @action
    def whole(self, anything: Any, /) -> Any:
        """Give it back."""
        return anything

    @action
    def fail(self, why: str) -> None:
        """Fail as declared."""
        raise ActionFailed({"why": why})

    @action
    def crash(self) -> None:
        """End with an error."""
        raise RuntimeError("boom")

    @action
    async def crash_later(self) -> None:
        """End with an error after a second."""
        await trio.sleep(1)
        raise RuntimeError("boom")

    @action
    def odd(self) -> float:
        """Give what JSON cannot say."""
        return float("inf")


@attrs.frozen
class Answer:
    """An answer, or its head alone."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> tuple[int, str]:
        """The status of a problem, and the last word of its type."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.data["status"] == self.status
        assert self.data["title"]
        assert self.data["detail"]
        return self.status, self.data["type"].rpartition("#")[2]


@attrs.frozen
class Heard:
    """One server-sent event."""

    name: str
    data: Any
    id: str | None


class Web:
    """One connection to a node."""

    def __init__(self, stream: trio.abc.Stream, place: str = "/agents/weather") -> None:
        self.stream = stream
        self.place = place
        self._http = h11.Connection(h11.CLIENT)
        self._rest = b""

    async def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        """Send a request; underscores in the names of headers stand for dashes."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        said = {"host": "here", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body:
            said.setdefault("content-type", "application/json")
            said["content-length"] = str(len(body))
        target = path if path.startswith(("/", "http")) else f"{self.place}/{path}".rstrip("/")
        request = h11.Request(method=method, target=target, headers=list(said.items()))
        parts = [self._http.send(request), self._http.send(h11.Data(data=body)) if body else None]
        parts.append(self._http.send(h11.EndOfMessage()))
        await self.stream.send_all(b"".join(part for part in parts if part))

    async def head(self) -> Answer:
        """Wait for the head of the answer."""
        event = await self._next()
        assert isinstance(event, h11.Response), event
        headers = {name.decode(): value.decode() for name, value in event.headers}
        return Answer(event.status_code, headers)

    async def answer(self) -> Answer:
        """Wait for the whole answer."""
        head, parts = await self.head(), list[bytes]()
        while isinstance(event := await self._next(), h11.Data):
            parts.append(bytes(event.data))
        return attrs.evolve(head, body=b"".join(parts))

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(bytes(await self.stream.receive_some(65536)))
        return event

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Ask for something, and wait for the answer. A body that is no bytes becomes JSON."""
        data: bytes = body if isinstance(body, bytes) else _json(body)
        await self.send(method, path, data, **headers)
        return await self.answer()

    async def listen(self, path: str, **headers: str) -> Answer:
        """Begin to hear a stream of events."""
        await self.send("GET", path, b"", **{"accept": "text/event-stream", **headers})
        return await self.head()

    async def line(self) -> bytes | None:
        """Wait for the next block of a stream of events; None at its end."""
        while b"\n\n" not in self._rest:
            event = await self._next()
            if not isinstance(event, h11.Data):
                return None
            self._rest += bytes(event.data)
        block, _, self._rest = self._rest.partition(b"\n\n")
        return block

    async def heard(self) -> Heard | None:
        """Wait for the next event; None at the end."""
        while (block := await self.line()) is not None:
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if line[0] != ":")
            if fields:
                data = json.loads(fields["data"])
                return Heard(fields.get("event", ""), data, fields.get("id"))
        return None

    async def leave(self) -> None:
        """Be gone."""
        await trio.aclose_forcefully(self.stream)


def _json(body: Any) -> bytes:
    return b"" if body is None else json.dumps(body).encode()


class World:
    """A node that serves the weather agent, in memory."""

    def __init__(self, node: Node, network: MemoryNetwork, ref: Ref[Weather]) -> None:
        self.node = node
        self.ref = ref
        self._network = network

    async def client(self, place: str = "/agents/weather") -> Web:
        """Connect."""
        return Web(await self._network.connect(endpoint_of(HERE), None), place)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Ask over a connection of its own."""
        web = await self.client()
        try:
            return await web.ask(method, path, body, **headers)
        finally:
            await web.leave()

    def check(self) -> None:
        """The accounts add up, and nothing went wrong that is nobody's request to answer for."""
        counts = self.ref.statistics()
        ends = counts.handled + counts.cancelled + counts.dropped + counts.dead_lettered
        assert counts.accepted == ends + counts.waiting + counts.running, counts
        assert self.node.connection_failures == ()


@asynccontextmanager
async def world(
    spec: SupervisorSpec | None = None, buffer: int = 65536, **options: Any
) -> AsyncGenerator[World]:
    """Serve the weather agent, or a tree that has one."""
    network = MemoryNetwork(buffer)
    async with open_node(spec or SupervisorSpec("root", []), listen=HERE, network=network, **options) as node:
        ref = node.find(Weather) if spec else await node.start_child(ChildSpec("weather", Weather))
        there = World(node, network, ref)
        yield there
        there.check()


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


def served(main: Callable[[World], Awaitable[Any]], **options: Any) -> Any:
    """Run a test against a world."""

    async def all_of_it() -> Any:
        async with world(**options) as there:
            return await main(there)

    return run(all_of_it)
