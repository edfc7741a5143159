"""Agents that end in every way, and a cast of them whose members are not restarted."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors import (
    Agent,
    ChildSpec,
    Down,
    ExitReason,
    Ref,
    action,
)
from lmos_actors.actors import slot_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node

BUG = RuntimeError("bug")
LOST = ExitReason("error", error=BUG)


class Peer(Agent):
    """Links, ends, and counts what it is told."""

    counted: int = 0

    @action
    def tie(self, name: str) -> None:
        self.link(self.find(Peer, name))

    @action
    def untie(self, name: str) -> None:
        self.unlink(self.find(Peer, name))

    @action
    def end(self) -> None:
        self.stop()

    @action
    def close(self, detail: str) -> None:
        self.stop(ExitReason("shutdown", detail or None))

    @action
    def fail(self) -> None:
        raise BUG

    @action
    def fail_quietly(self) -> None:
        self.stop(LOST)

    @action
    def count(self) -> int:
        self.counted += 1
        return self.counted

    @action(concurrency=8)
    async def wait(self, seconds: float) -> str:
        await trio.sleep(seconds)
        return "waited"


class Trapper(Peer, trap_exits=True):
    """Keeps what it was told."""

    downs: list[Down] = attrs.field(factory=list)

    def on_exit(self, down: Down) -> None:
        self.downs.append(down)


def agent_of(ref: Ref[Any]) -> Any:
    return slot_of(ref).agent


def downs_of(ref: Ref[Any]) -> list[tuple[str, str]]:
    return [(down.agent, str(down.reason)) for down in agent_of(ref).downs]


def links_of(ref: Ref[Any]) -> int:
    more = slot_of(ref).extra
    return len(more.links or ()) if more is not None else 0


@asynccontextmanager
async def cast(node: Node, *links: str, **agents: Any) -> AsyncGenerator[dict[str, Ref[Any]]]:
    """Start agents that are not restarted, and link them: `"ab"` links a to b."""
    refs: dict[str, Ref[Any]] = {}
    for name, made in agents.items():
        refs[name] = await node.start_child(ChildSpec(name, made, restart="temporary"))
    for first, second in links:
        await refs[first].invoke(Peer.tie, second)
    yield refs


def add_up(*refs: Ref[Any]) -> bool:
    for ref in refs:
        n = ref.statistics()
        parts = n.handled + n.cancelled + n.dropped + n.dead_lettered + n.waiting + n.running
        if n.accepted != parts:
            return False
    return True


def tie_in_a_row(refs: list[Ref[Any]], *, ring: bool) -> None:
    for first, second in zip(refs, [*refs[1:], *refs[:ring]], strict=False):
        agent_of(first).link(second)


def alive(refs: dict[str, Ref[Any]]) -> str:
    return "".join(name for name, ref in refs.items() if ref.statistics().state == "running")


class Slow(Peer):
    """Takes its time to begin and to end."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        await trio.sleep(1)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
