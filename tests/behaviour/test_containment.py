"""What the code of an agent raises ends that agent, and nothing else: by place, exception and door."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import pytest
import trio
import trio.lowlevel

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    Event,
    InvalidInput,
    Property,
    Ref,
    StartFailed,
    SupervisorSpec,
    action,
    event,
    every,
    open_node,
    prop,
    simulate,
)
from lmos_actors.bindings import fetch
from lmos_actors.errors import StopFailed
from lmos_actors.facades import ChatAgent, ChatTurn, RelayBridge, open_relay
from lmos_actors.security import Access, Security
from lmos_actors.transport import MemoryNetwork
from tests.bindings.http_client.test_link import web_only
from tests.facades.desk import opened_raw
from tests.facades.relay.test_bridge import asked, said
from tests.facades.relays import URL as HUB, hub_with
from tests.mcp.offering import client_of, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from lmos_actors import Node

THING = "http://server/agents/bad"
VIRTUAL = pytest.mark.usefixtures("virtual_clock")


class PanicException(BaseException):
    """What a panic of a Rust extension is in Python."""


_stray: list[trio.Cancelled] = []


async def keep_a_stray() -> None:
    """Keep a cancellation, so that code can raise it where nothing is cancelled."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as exc:
            _stray[:] = [exc]


RAISED: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "asyncio": lambda: asyncio.CancelledError(),
    "panic": lambda: PanicException("index out of bounds"),
    "generator": lambda: GeneratorExit(),
    "group": lambda: BaseExceptionGroup("two", [SystemExit(3), PanicException("x")]),
    "cancelled": lambda: _stray[0],
}
EACH = pytest.mark.parametrize("what", RAISED)


def fail(what: str) -> None:
    raise RAISED[what]()


class Grumpy(msgspec.Struct, frozen=True):
    """A value whose class raises."""

    what: str

    def __post_init__(self) -> None:
        if self.what:
            fail(self.what)


def converted(value: str) -> str:
    if value:
        fail(value)
    return value


class Unprintable:
    def __init__(self, what: str) -> None:
        self.what = what

    def __repr__(self) -> str:
        fail(self.what)
        raise AssertionError


class Bad(Agent):
    """Raises what it is told to."""

    mood: Property[str] = prop(default="")
    plan: str = attrs.field(default="", converter=converted)
    rang: Event[str] = event()
    held: Any = None

    @action
    def turn(self, what: str) -> int:
        fail(what)
        return 1

    @action
    async def run(self, what: str) -> int:
        await trio.sleep(0.1)
        fail(what)
        return 1

    @action
    async def of_thread(self) -> None:
        async def inner() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)

        await trio.to_thread.run_sync(asyncio.run, inner())

    @action
    async def stream(self, what: str) -> AsyncIterator[int]:
        yield 1
        fail(what)

    @action
    def take(self, grumpy: Grumpy) -> int:
        return 1

    @action
    def give(self, what: str) -> Grumpy:
        return Grumpy(what)

    @action
    def convert(self, what: str) -> None:
        self.plan = what

    @action
    def task(self, what: str) -> None:
        self.nursery.start_soon(self.late, what)

    @action
    def timer(self, what: str) -> None:
        self.after(0.1, self.turn_later, what)

    @action
    def hold(self, what: str) -> None:
        self.held = Unprintable(what)
        raise ValueError("its report shows what it holds")

    @action
    def follow_itself(self, what: str) -> None:
        self.follow(self.ref, Bad.rang, self.turn_later)
        self.after(0.1, self.ring, what)

    def ring(self, what: str) -> None:
        self.rang.emit(what)

    def turn_later(self, what: str) -> None:
        fail(what)

    async def late(self, what: str) -> None:
        await trio.sleep(0.1)
        fail(what)


class Other(Agent):
    @action
    def hi(self) -> str:
        return "hi"

    @action
    async def ask(self, bad: str, what: str) -> str:
        """Ask the bad one, as agents ask each other."""
        try:
            return str(await self.find(Bad).invoke(getattr(Bad, bad), what))
        except AgentDied as died:
            return f"died: {died.reason}"


TREE = SupervisorSpec("root", [ChildSpec("bad", Bad), ChildSpec("other", Other)], max_restarts=100)


async def goes_on(node: Node) -> None:
    """See that others have not noticed, and that the agent that ended is there again."""
    assert await node.find(Other).invoke(Other.hi) == "hi"
    with trio.fail_after(60):
        await node.find(Bad).ready()


# ---- doors


@asynccontextmanager
async def near(_: Path) -> AsyncGenerator[tuple[Node, Ref[Bad]]]:
    async with open_node(TREE) as node:
        yield node, node.find(Bad)


@asynccontextmanager
async def far(_: Path) -> AsyncGenerator[tuple[Node, Ref[Bad]]]:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen="ws://server", network=network) as node,
        open_node(network=network) as client,
    ):
        yield node, await client.consume(Bad, THING)


@asynccontextmanager
async def http(path: Path) -> AsyncGenerator[tuple[Node, Ref[Bad]]]:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen="ws://server", network=network) as node,
        open_node(network=network) as client,
    ):
        text, _ = await fetch(network, THING, None)
        await trio.Path(path / "bad.td.json").write_text(web_only(text))
        yield node, await client.consume(Bad, path / "bad.td.json")


DOORS = pytest.mark.parametrize("door", [near, far, http])


@VIRTUAL
@DOORS
@EACH
@pytest.mark.parametrize("place", ["turn", "run"])
async def test_a_caller_gets_agent_died(door: Any, place: str, what: str, tmp_path: Path) -> None:
    await keep_a_stray()
    async with door(tmp_path) as (node, bad):
        with pytest.raises(AgentDied):
            await bad.invoke(getattr(Bad, place), what)
        await goes_on(node)
        assert len(node.crash_reports) == 1


async def all_of(bad: Ref[Bad], what: str) -> list[int]:
    async with bad.stream(Bad.stream, what) as items:
        return [item async for item in items]


@VIRTUAL
@DOORS
@EACH
async def test_a_stream_ends_with_agent_died(door: Any, what: str, tmp_path: Path) -> None:
    await keep_a_stray()
    async with door(tmp_path) as (node, bad):
        with pytest.raises(AgentDied):
            await all_of(bad, what)
        await goes_on(node)


@VIRTUAL
@DOORS
@EACH
async def test_a_value_whose_class_raises_is_refused(door: Any, what: str, tmp_path: Path) -> None:
    await keep_a_stray()
    async with door(tmp_path) as (node, bad):
        with pytest.raises(InvalidInput):
            await bad.invoke(Bad.take, {"what": what})  # type: ignore[arg-type] # as JSON has it
        await goes_on(node)
        assert node.crash_reports == ()


@VIRTUAL
@EACH
@pytest.mark.parametrize("place", ["turn", "run", "give", "convert"])
async def test_an_agent_that_asks_another_learns_that_it_died(place: str, what: str) -> None:
    await keep_a_stray()
    async with open_node(TREE) as node:
        assert (await node.find(Other).invoke(Other.ask, place, what)).startswith("died: ")
        await goes_on(node)


@VIRTUAL
@EACH
@pytest.mark.parametrize("place", ["task", "timer", "hold", "follow_itself"])
async def test_what_an_agent_does_by_itself_ends_it_alone(place: str, what: str) -> None:
    await keep_a_stray()
    async with open_node(TREE) as node:
        bad = node.find(Bad)
        async with bad.monitor() as downs:
            await bad.tell(getattr(Bad, place), what)
            down = await anext(aiter(downs))
        assert down.reason.error is not None
        await goes_on(node)
        assert len(node.crash_reports) == 1
        assert "bad" in str(node.crash_reports[0])


@VIRTUAL
async def test_a_cancellation_of_asyncio_out_of_a_thread() -> None:
    async with open_node(TREE) as node:
        with pytest.raises(AgentDied, match="CancelledError"):
            await node.find(Bad).invoke(Bad.of_thread)
        await goes_on(node)


# ---- starts


class Unborn(Agent):
    at: str
    what: str

    def __attrs_post_init__(self) -> None:
        self.hit("constructor")

    def hit(self, place: str) -> None:
        if self.at == place:
            fail(self.what)

    def started(self) -> None:
        self.hit("started")

    def supervises(self) -> SupervisorSpec:
        self.hit("supervises")
        return SupervisorSpec("below", [])

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        self.hit("entering")
        yield
        self.hit("leaving")

    @every(1.0)
    def tick(self) -> None:
        self.hit("every")


@VIRTUAL
@EACH
@pytest.mark.parametrize("at", ["constructor", "started", "supervises", "entering"])
async def test_a_start_that_raises_fails_alone(at: str, what: str) -> None:
    await keep_a_stray()
    async with open_node(TREE) as node:
        with pytest.raises(StartFailed):
            await node.start(Unborn, at=at, what=what)
        await goes_on(node)


@VIRTUAL
@EACH
@pytest.mark.parametrize("at", ["leaving", "every"])
async def test_an_end_or_a_period_that_raises_ends_the_agent_alone(at: str, what: str) -> None:
    await keep_a_stray()
    async with open_node(TREE) as node:
        unborn = await node.start_child(
            ChildSpec("unborn", lambda: Unborn(at=at, what=what), restart="temporary")
        )
        async with unborn.monitor() as downs:
            if at == "leaving":
                with pytest.raises(StopFailed):
                    await node.root.terminate_child("unborn")
            down = await anext(aiter(downs))
        assert down.reason.error is not None
        await goes_on(node)


# ---- chat, relay, MCP


class Talker(ChatAgent):
    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        yield "so "
        if turn.text in RAISED:
            fail(turn.text)
        yield "far"


@VIRTUAL
@EACH
async def test_a_chat_ends_with_an_error(what: str) -> None:
    await keep_a_stray()
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [*TREE.children, ChildSpec("desk", Talker)], max_restarts=100)
    async with (
        open_node(tree, listen="ws://desk", network=network, omnia=True) as node,
        opened_raw(network, "agent=desk") as raw,
    ):
        raw.ask(what)
        assert (await raw.end())["error"]["code"] in ("INTERNAL_ERROR", "OUTCOME_UNKNOWN")
        await goes_on(node)
        with trio.fail_after(60):
            await node.find(Talker).ready()
        raw.ask("hello")
        assert (await raw.end())["type"] == "done"


@EACH
def test_a_relay_gets_an_answer_with_an_error(what: str) -> None:
    async def main() -> None:
        await keep_a_stray()
        security = Security(access={"bad": Access(invoke="anyone")})
        async with hub_with("bad", "stranger") as (network, tokens):
            bridge = RelayBridge(url=HUB, agent="bad", credentials=tokens["bad"])
            options: Any = {"network": network, "bridges": [bridge], "security": security}
            async with (
                open_relay(HUB, network=network, credentials=tokens["stranger"]) as stranger,
                open_node(listen="ws://place:80", **options) as node,
            ):
                for child in TREE.children:
                    await node.start_child(child)
                await said(stranger, "discovery")
                found = await asked(stranger, {"action": "run", "input": {"what": what}}, "bad")
                assert found["error"]["code"] == "failed"
                await goes_on(node)

    simulate(main)


@VIRTUAL
@EACH
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_an_mcp_client_gets_an_error(what: str) -> None:
    await keep_a_stray()
    async with open_node(TREE) as node, client_of(node) as client:
        assert text_of(await client.call_tool("bad__run", {"what": what})) == "Agent Died: error"
        await goes_on(node)


# ---- what passes


@VIRTUAL
async def test_ctrl_c_ends_the_node() -> None:
    class Interrupted(Agent):
        @action
        async def run(self) -> None:
            await trio.sleep(0.1)
            raise BaseExceptionGroup("as of a nursery", [KeyboardInterrupt()])

    async def main() -> None:
        async with open_node() as node:
            with pytest.raises(AgentDied):
                await (await node.start(Interrupted)).invoke(Interrupted.run)
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup, match="as of a nursery"):
        await main()


@VIRTUAL
async def test_node_stop_leaves_its_block() -> None:
    class Stopper(Agent):
        node: Any

        @action
        def stop_all(self) -> None:
            self.node.stop()

    async with open_node() as node:
        stopper = await node.start(Stopper, node=node)
        await stopper.tell(Stopper.stop_all)
        await trio.sleep_forever()


DELETED = """
import trio
from lmos_actors import Agent, action, open_node
class Held:
    def __del__(self): raise SystemExit(3)
class Bad(Agent):
    @action
    def drop(self) -> int:
        Held()
        return 1
async def main():
    async with open_node() as node:
        print(await (await node.start(Bad)).invoke(Bad.drop))
trio.run(main)
"""


def test_what_a_finalizer_raises_is_reported_with_its_class() -> None:
    ran = subprocess.run([sys.executable, "-c", DELETED], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "1\n")
    assert re.search(r"Exception ignored .*Held\.__del__", ran.stderr)
