"""Optional children: started once their supervisor runs, and tried again without an end of anything else."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    Backoff,
    ChildSpec,
    ConfigError,
    SupervisorSpec,
    action,
    open_node,
)
from lmos_actors.supervision import BulkSpec
from tests.observe.http_requests import ask
from tests.supervision.world import run, settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node


class Server:
    """A server of others: it is there from some instant on, and a connection takes a while."""

    def __init__(self, since: float, takes: float = 0.0) -> None:
        self.since = since
        self.takes = takes
        self.attempts: list[float] = []


class Client(Agent):
    server: Server

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        self.server.attempts.append(trio.current_time())
        await trio.sleep(self.server.takes)
        if trio.current_time() < self.server.since:
            raise ConnectionRefusedError(111, "refused")
        yield

    @action
    def ping(self) -> str:
        return "pong"

    @action
    def crash(self) -> None:
        raise RuntimeError("no")


class Plain(Agent):
    @action
    def crash(self) -> None:
        raise RuntimeError("no")


EVENLY = Backoff(initial=10.0, max=10.0, jitter=0.0)


def optional(server: Server, **options: Any) -> ChildSpec[Client]:
    """Return the spec of an optional client."""
    return ChildSpec(
        "client", partial(Client, server=server), optional=True, **{"backoff": EVENLY, **options}
    )


def incarnations(node: Node) -> dict[str, int]:
    """Return how often each agent has been started."""
    return {child.name: child.incarnation for child in node.root.which_children()}


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_nothing_waits_for_a_server_that_is_away(strategy: Any, later: bool) -> None:
    """It is tried again and again, whatever the limit of its supervisor, and no sibling is restarted."""

    async def main() -> None:
        server = Server(since=45.0, takes=1.0)
        listed = [ChildSpec("first", Plain), *([] if later else [optional(server)]), ChildSpec("last", Plain)]
        tree = SupervisorSpec("root", listed, strategy=strategy, max_restarts=1, max_seconds=1000.0)
        async with open_node(tree, listen="ws://here") as node:
            if later:
                await node.start_child(optional(server))
            assert trio.current_time() == 0.0
            client = node.find(Client)
            for seconds in (0.5, 20, 20):
                await trio.sleep(seconds)
                answer = await ask(node, "/readyz")
                assert (answer.status, answer.text) == (200, "degraded\n")
            await client.ready()
            assert await client.invoke(Client.ping) == "pong"
            assert server.attempts == [0.0, 11.0, 22.0, 33.0, 44.0]
            assert incarnations(node) == {"first": 1, "client": 1, "last": 1}
            assert (await ask(node, "/readyz")).text == "ready\n"

    run(main)


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_an_end_of_one_is_no_end_of_the_others(strategy: Any) -> None:
    async def main() -> None:
        tree = SupervisorSpec(
            "root", [optional(Server(0.0)), ChildSpec("plain", Plain)], strategy=strategy, max_restarts=1
        )
        async with open_node(tree) as node:
            client, plain = node.find(Client), node.find(Plain)
            await client.ready()
            for _ in range(3):
                with pytest.raises(AgentDied):
                    await client.invoke(Client.crash)
                await trio.sleep(11)
            assert incarnations(node) == {"client": 4, "plain": 1}
            with pytest.raises(AgentDied):
                await plain.invoke(Plain.crash)
            await settled()
            assert incarnations(node) == {"client": 4, "plain": 2}

    run(main)


def test_without_a_backoff_of_its_own_it_is_tried_less_and_less_often() -> None:
    async def main() -> None:
        server = Server(since=1_000.0)
        async with open_node(SupervisorSpec("root", [optional(server, backoff=None)])):
            await trio.sleep(100)
        pauses = [later - earlier for earlier, later in pairwise(server.attempts)]
        assert 5 < len(pauses) < 12
        assert 0.8 <= pauses[0] <= 1.2
        assert max(pauses) <= 30.0

    run(main)


def test_it_ends_with_its_supervisor_and_can_be_stopped_and_started() -> None:
    async def main() -> None:
        server = Server(since=1_000.0)
        async with open_node(SupervisorSpec("root", [optional(server)])) as node:
            await trio.sleep(5)
            await node.root.terminate_child("client")
            await trio.sleep(100)
            assert server.attempts == [0.0]
            server.since = 0.0
            await node.root.restart_child("client")
            assert server.attempts == [0.0, 105.0]
        async with open_node(SupervisorSpec("root", [optional(Server(since=2_000.0))])):
            await trio.sleep(5)

    run(main)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChildSpec("one", Plain, optional=True, restart="temporary"),
        lambda: ChildSpec("one", Plain, optional=True, restart="transient", significant=True),
        lambda: BulkSpec("many", member=ChildSpec("one", Plain, optional=True), count=2),
    ],
)
def test_what_cannot_be_optional(make: Any) -> None:
    with pytest.raises(ConfigError, match=r"one\.optional: "):
        make()
