"""What a behaviour of the table is written with: a bench that gives refs, and words for what came of it."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
import trio

from lmos_actors import AgentError, Down, Gap, NotAllowed
from lmos_actors.types import Occurrence
from tests.wire_conformance.agents import Helper, Subject

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine

    from lmos_actors import Feed, Node, Ref

LIMIT = 20.0
"""Seconds that a behaviour may take, where time is real."""

TOLD: Final = (
    "path",
    "output",
    "reason",
    "started",
    "kind",
    "name",
    "nearest",
    "size",
    "seconds",
    "retry_in",
)
"""The attributes of errors that cross a connection."""


ACCOUNTS: Final = ("accepted", "handled", "cancelled", "dropped", "dead_lettered", "refused", "restarts")


class Bench:
    """An agent under test and the helper beside it, near or far."""

    def __init__(self, world: World, helper: Ref[Helper], name: str) -> None:
        self.world = world
        self.helper = helper
        self.name = name
        self.refused = ""
        """The last refusal of what is not carried."""

    async def subject(self, cls: type[Any] = Subject) -> Ref[Any]:
        """Give a ref to the agent under test, as one of a class."""
        return await self.world.ref(cls, self.name)

    # ---- the helper's side

    async def open(self, *gates: str) -> None:
        """Open gates of the agent."""
        for gate in gates:
            await self.helper.invoke(Helper.open, self.name, gate)

    async def until(self, word: str, times: int = 1) -> None:
        """Wait until something has happened to the agent so often."""
        await self.helper.invoke(Helper.until, self.name, word, times)

    async def standing(self, **wanted: Any) -> None:
        """Wait until the agent's accounts are such."""
        await self.helper.invoke(Helper.standing, self.name, wanted)

    async def handled(self, number: int) -> None:
        """Wait until so many messages are handled, where later ones could overtake them."""
        if not self.world.keeps_order:
            await self.standing(handled=number)

    async def crash(self) -> None:
        """End the agent's incarnation as a bug would."""
        await self.helper.invoke(Helper.crash, self.name)

    async def restarted(self) -> None:
        """Wait until the agent runs again, here and there."""
        await self.helper.invoke(Helper.ready, self.name)

    async def remove(self) -> None:
        """Take the agent away for good."""
        await self.helper.invoke(Helper.remove, self.name)

    async def noted(self, *words: str) -> dict[str, int]:
        """Say how often something has happened to the agent."""
        found = await self.helper.invoke(Helper.noted, self.name)
        return {word: found.get(word, 0) for word in words}

    async def dead(self) -> list[str]:
        """Give the reasons of its dead letters."""
        return await self.helper.invoke(Helper.dead, self.name)

    async def lost(self) -> list[str]:
        """Give the reasons of the dead letters here; those of far agents come, sooner or later (M5)."""
        while self.world.far and not self.world.node.dead_letters:  # noqa: ASYNC110 -- near there is none
            await trio.sleep(0.001)
        return [self.anonymous(letter.reason) for letter in self.world.node.dead_letters]

    async def accounts(self) -> str:
        """Give the agent's accounts, once nothing waits or runs."""
        found = await self.helper.invoke(Helper.accounts, self.name)
        for word in ("accepted", "handled"):  # but for what its binding listens to
            found[word] = found.get(word, 0) - self.world.listenings
        return " ".join(f"{word}={found[word]}" for word in ACCOUNTS if found.get(word))

    # ---- words

    async def said(self, asked: Awaitable[Any]) -> Any:
        """Wait for an answer; give it, or the error, in plain words."""
        try:
            return self.plain(await asked)
        except (AgentError, trio.WouldBlock) as error:
            if isinstance(error, NotAllowed):
                self.refused = self.error(error)
            return self.error(error)

    def error(self, error: BaseException) -> str:
        """Write an error: its class, its text, and the attributes that travel."""
        known = {word: getattr(error, word, None) for word in TOLD}
        about = ", ".join(f"{word}={value!r}" for word, value in known.items() if value is not None)
        return self.anonymous(f"{type(error).__name__}: {error} [{about}]")

    def plain(self, value: Any) -> Any:
        """Write what came as plain data, told apart by kind."""
        match value:
            case Gap():
                return f"Gap: {value.reason} ({value.missed})"
            case Occurrence():
                return f"{value.event}: {self.plain(value.data)!r}"
            case Down():
                return self.anonymous(f"Down: {value.agent} {value.incarnation} {value.reason}")
            case msgspec.Struct():
                return f"{type(value).__name__} {msgspec.to_builtins(value)}"
            case _ if attrs.has(type(value)):
                return f"{type(value).__name__} {attrs.astuple(value)}"
            case _:
                return value

    def anonymous(self, text: str) -> str:
        """Leave out what the agent is called here or there."""
        name = re.escape(self.name)
        text = re.sub(
            r", (did you mean '(subject|taker)-\d+'\?|nearest='(subject|taker)-\d+')", "", text
        )  # of another row
        return re.sub(rf"\w+://[^\s']*/agents/{name}\b|\b{name}\b", "IT", text)

    async def some(self, feed: Feed[Any], number: int) -> list[Any]:
        """Take so many values, or what there is before the end, which is told too."""
        taken: list[Any] = []
        try:
            while len(taken) < number:
                taken.append(self.plain(await feed.receive()))
        except trio.EndOfChannel:
            taken.append("END")
        return taken

    async def through(self, feed: Feed[Any], value: Any) -> list[Any]:
        """Take what comes until it is this value, with it."""
        taken: list[Any] = []
        while taken[-1:] != [value]:
            taken += await self.some(feed, 1)
        return taken

    def waiting(self, feed: Feed[Any]) -> list[Any]:
        """Take what is there now."""
        taken: list[Any] = []
        try:
            while True:
                taken.append(self.plain(feed.receive_nowait()))
        except (trio.WouldBlock, trio.EndOfChannel):
            return taken

    @asynccontextmanager
    async def asking(self, *asked: Coroutine[Any, Any, Any]) -> AsyncGenerator[Asked]:
        """Ask in the background; the answers are there once the block is left."""
        answers = Asked()
        async with trio.open_nursery() as nursery:

            async def ask(index: int, one: Coroutine[Any, Any, Any]) -> None:
                with answers.scopes[index]:
                    answers.by_index[index] = await self.said(one)

            for index, one in enumerate(asked):
                answers.by_index[index] = "cancelled"
                answers.scopes.append(trio.CancelScope())
                nursery.start_soon(ask, index, one)
                await self.world.settled()
            yield answers


class Asked:
    """Requests that are asked in the background."""

    def __init__(self) -> None:
        self.by_index: dict[int, Any] = {}
        self.scopes: list[trio.CancelScope] = []

    @property
    def answers(self) -> list[Any]:
        """What came of each, in the order in which they were asked."""
        return [self.by_index[index] for index in range(len(self.scopes))]


class World:
    """Where the agents are: here, or at the other end of a connection."""

    far = False
    keeps_order = True
    """Whether what is sent one way comes before what is asked later."""
    listenings = 0
    """The requests of the binding itself: it listens to the events that it broadcasts."""
    node: Node

    async def ref(self, cls: type[Any], name: str) -> Ref[Any]:
        """Give a ref to an agent as one of a class."""
        raise NotImplementedError

    async def settled(self) -> None:
        """Wait until a request that was just made is on its way, in order."""
        for _ in range(5):
            await trio.lowlevel.checkpoint()


@attrs.frozen
class Behaviour:
    """A row: what is done; what comes of it is in `results.json`."""

    verb: str
    outcome: str
    run: Callable[[Bench], Awaitable[Any]]
    kind: type[Subject]

    @property
    def title(self) -> str:
        """How the row is called in a report."""
        return f"{self.verb}: {self.outcome}"


TABLE: list[Behaviour] = []


def behaviour(
    verb: str, outcome: str, *, kind: type[Subject] = Subject
) -> Callable[[Callable[[Bench], Awaitable[Any]]], None]:
    """Put a row into the table, to be carried out with an agent of that class."""

    def add(run: Callable[[Bench], Awaitable[Any]]) -> None:
        TABLE.append(Behaviour(verb, outcome, run, kind))

    return add


RESULTS: Final[dict[str, dict[str, Any]]] = json.loads((Path(__file__).parent / "results.json").read_text())
"""What comes of each row, by its title: near, and where something else does, with the reason."""

COLUMNS: Final = {
    "near": "near", "memory": "far", "tcp": "far", "plain": "plain", "http": "http",
    "network": "network", "slow network": "network", "wires": "far", "slow wires": "far",
    "relay ours": "relay", "relay reference": "relay", "relay rawk": "relay", "relay seed-day": "relay",
}  # fmt: skip
"""The name under which a world's results stand, where they are not as near."""


def expected(row: Behaviour, world: str) -> Any:
    """Give what comes of a row in a world."""
    found = RESULTS[row.title]
    column = COLUMNS[world]
    if column not in found and column != "near":
        column = "far"
    return found.get(column, found["near"])
