"""Requests over sockets that send directly, broken off at the first, second, third ... step.

The asker sends in its own step, the reader carries out the turn and answers in its step. What breaks that
off: the asker is cancelled, one of the two nodes is, the connection is cut, or the agent crashes or stops.
Every request has exactly one end, which is true; the agent took each number once at most; the accounts add
up; and where both nodes still stand, the next request is answered.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from lmos_actors import (
    SHUTDOWN,
    ActionFailed,
    Agent,
    AgentUnavailable,
    ChildSpec,
    ExitReason,
    LmosActorsError,
    MailboxFull,
    MailboxOptions,
    Node,
    Ref,
    SupervisorSpec,
    action,
    open_node,
)
from lmos_actors.actors import slot_of
from lmos_actors.errors import ConnectFailed
from lmos_actors.transport import DirectStream
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.transport import Endpoint

LARGE = 600_000
"""Characters that no buffer of a socket takes at once."""

WAYS = ("asker", "client", "server", "cut", "crash", "stop")


class SocketListener:
    addresses = (("server", 80),)

    def __init__(self) -> None:
        self.put, self._take = trio.open_memory_channel[trio.abc.Stream](100)
        self._numbers = count(1)

    async def accept(self) -> tuple[trio.abc.Stream, str]:
        try:
            return await self._take.receive(), f"client:{next(self._numbers)}"
        except trio.EndOfChannel:
            raise trio.ClosedResourceError from None

    async def aclose(self) -> None:
        self.put.close()
        await self._take.aclose()


class SocketPairs:
    """A `Network` with one listener, of pairs of sockets: they send directly, on any clock."""

    def __init__(self) -> None:
        self._listener = SocketListener()
        self._ends: list[socket.socket] = []

    async def listen(self, endpoint: Endpoint) -> SocketListener:
        return self._listener

    async def connect(self, endpoint: Endpoint, tls: object) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        ours, theirs = socket.socketpair()
        try:
            self._listener.put.send_nowait(DirectStream(theirs))
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            ours.close()
            theirs.close()
            raise ConnectFailed(endpoint.url, "nothing is listening there") from None
        self._ends += (ours, theirs)
        return DirectStream(ours)

    def cut(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Taker(Agent, mailbox=MailboxOptions(size=8)):
    took: list[int] = attrs.field(factory=list)

    @action
    def take(self, number: int) -> int:
        self.took.append(number)
        return number

    @action
    async def take_later(self, number: int) -> int:
        self.took.append(number)
        await trio.lowlevel.checkpoint()
        return number

    @action
    def refuse(self, number: int) -> int:
        self.took.append(number)
        raise ActionFailed({"number": number})

    @action
    def take_large(self, number: int, text: str) -> str:
        self.took.append(number)
        return text


@attrs.define
class Asker:
    """What was asked, by how it ended."""

    far: Ref[Taker]
    asked: int = 0
    carried_out: list[int] = attrs.field(factory=list)
    unknown: list[int] = attrs.field(factory=list)
    not_begun: list[int] = attrs.field(factory=list)
    cancelled: list[int] = attrs.field(factory=list)
    told: list[int] = attrs.field(factory=list)

    async def ask(self, handle: Any, *more: Any, seconds: float = 1000) -> None:
        self.asked = number = self.asked + 1
        try:
            value: object = await self.far.within(seconds).invoke(handle, number, *more)
        except ActionFailed:
            self.carried_out.append(number)
        except (AgentUnavailable, MailboxFull):
            self.not_begun.append(number)
        except LmosActorsError:
            self.unknown.append(number)
        except trio.Cancelled:
            self.cancelled.append(number)
            raise
        else:
            assert value == (more[0] if more else number)
            self.carried_out.append(number)

    async def tell(self) -> None:
        self.asked = number = self.asked + 1
        self.told.append(number)
        with suppress(LmosActorsError):
            await self.far.tell(Taker.take, number)

    async def ask_all(self) -> None:
        for handle in (Taker.take, Taker.take, Taker.refuse, Taker.take_later):
            await self.ask(handle)
        await self.tell()
        await self.ask(Taker.take_large, "x" * LARGE)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(self.ask, Taker.take)
                nursery.start_soon(self.tell)
            nursery.start_soon(partial(self.ask, Taker.take_large, "y" * LARGE, seconds=5))
        await self.ask(Taker.take, seconds=5)


class AtStep(trio.abc.Instrument):
    """Does something before a step of any task."""

    def __init__(self, step: int, deed: Callable[[], object]) -> None:
        self.left = step
        self._deed = deed

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if not self.left:
            self._deed()


class Play:
    """Two nodes, and requests between them that are broken off in one way."""

    def __init__(self, way: str, step: int) -> None:
        self._way = way
        self._network: Any = SocketPairs()
        self._scopes = {name: trio.CancelScope() for name in ("asker", "client", "server")}
        self._at_step = AtStep(step, self._break_off)
        self._took: list[int] = []
        self._asker: Asker | None = None
        self._agent: Ref[Taker] | None = None

    def _break_off(self) -> None:
        assert self._agent is not None
        if self._way == "cut":
            self._network.cut()
        elif self._way == "crash":
            slot_of(self._agent).die(ExitReason("error", error=KeyError("from outside")))
        elif self._way == "stop":
            slot_of(self._agent).stop(SHUTDOWN, "brutal")
        else:
            self._scopes[self._way].cancel()

    async def run(self) -> bool:
        """Return whether all was over before the step came."""
        async with trio.open_nursery() as nursery:
            node = await nursery.start(self._serve)
            with self._scopes["client"]:
                async with open_node(network=self._network) as client:
                    await self._ask(client)
                    assert client.connection_failures == ()
            await trio.sleep(200)
            if self._way != "server":
                self._check_served(node)
            nursery.cancel_scope.cancel()
        self._check_ends()
        return self._at_step.left > 0

    async def _serve(self, task_status: trio.TaskStatus[Node]) -> None:
        taker = ChildSpec("taker", partial(Taker, took=self._took))
        tree = SupervisorSpec("root", [taker], max_restarts=1000)
        with self._scopes["server"]:
            async with open_node(tree, listen="ws://server", network=self._network, insecure=True) as node:
                self._agent = node.find(Taker)
                task_status.started(node)
                await trio.sleep_forever()

    async def _ask(self, client: Node) -> None:
        far = await client.consume(Taker, "http://server/agents/taker")
        await far.ready()
        await trio.sleep(1)
        asker = self._asker = Asker(far)
        trio.lowlevel.add_instrument(self._at_step)
        try:
            with self._scopes["asker"]:
                await asker.ask_all()
        finally:
            trio.lowlevel.remove_instrument(self._at_step)
        if self._way in ("asker", "cut", "crash"):
            await trio.sleep(10)
            await asker.ask(Taker.take)
            assert asker.carried_out[-1] == asker.asked

    def _check_served(self, node: Node) -> None:
        assert self._agent is not None
        counts = slot_of(self._agent).statistics()
        assert counts.running == counts.waiting == 0
        assert counts.accepted == counts.handled + counts.cancelled + counts.dropped + counts.dead_lettered
        assert node.connection_failures == ()
        memory = node.statistics().memory
        assert memory.bytes == memory.granted == 0

    def _check_ends(self) -> None:
        asker, took = self._asker, self._took
        assert asker is not None
        ends = asker.carried_out + asker.unknown + asker.not_begun + asker.cancelled + asker.told
        assert sorted(ends) == [*range(1, asker.asked + 1)]
        assert len(took) == len(set(took))
        assert set(asker.carried_out) <= set(took)
        assert not set(asker.not_begun) & set(took)
        if self._at_step.left > 0:
            assert sorted(took) == sorted(ends)


def play(way: str, step: int) -> bool:
    try:
        return trio.run(Play(way, step).run, clock=MockClock(autojump_threshold=0))
    except BaseException as error:
        error.add_note(f"{way} broken off at step {step}")
        raise


@pytest.mark.parametrize("way", WAYS)
def test_broken_off_at_every_step(way: str) -> None:
    steps = count(1 + WAYS.index(way), few_or_all(29, 1))
    assert next(step for step in steps if play(way, step)) > 30
