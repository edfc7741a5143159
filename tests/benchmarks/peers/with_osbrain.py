"""osBrain: each agent is a process, and messages go through ZeroMQ."""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import osbrain

if TYPE_CHECKING:
    from collections.abc import Iterator


def _same(agent: Any, message: Any) -> Any:
    return message


def _take(agent: Any, message: Any) -> None:
    agent.count += 1


def _ask(agent: Any, n: int) -> float:
    """Ask as the agent, in its process."""
    agent.send("echo", 0)
    agent.recv("echo")
    began = clock()
    for i in range(n):
        agent.send("echo", i)
        assert agent.recv("echo") == i
    return clock() - began


def _tell(agent: Any, n: int) -> None:
    for i in range(n):
        agent.send("take", i)


@contextmanager
def _agents() -> Iterator[tuple[Any, Any]]:
    names = osbrain.run_nameserver()
    try:
        yield osbrain.run_agent("server"), osbrain.run_agent("client")
    finally:
        names.shutdown()


def far_ask(n: int) -> float:
    with _agents() as (server, client):
        client.connect(server.bind("REP", alias="same", handler=_same), alias="echo")
        seconds: float = client.execute_as_method(_ask, n)
        return seconds


def far_tell(n: int) -> float:
    with _agents() as (server, client):
        server.set_attr(count=0)
        client.connect(server.bind("PULL", alias="taken", handler=_take), alias="take")
        began = clock()
        client.execute_as_method(_tell, n)
        while server.get_attr("count") < n:
            pass
        return clock() - began
