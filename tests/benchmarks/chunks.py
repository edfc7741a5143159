"""What one more chunk of an answer costs in the server: `python -m tests.benchmarks.chunks`.

A chat agent says its chunks itself, and another one thinks, with a scripted model in the same node. A client
on a bare socket has an answer of few chunks over Omnia's protocol, and one of many. The difference is printed
for each chunk: calls of functions of this package, as `counting.py` counts them, and steps of tasks. Chunks
come `slowly`, after a pause each, or `quickly`, without any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from lmos_actors import ChildSpec, open_node
from lmos_actors.facades import ChatAgent, OmniaOptions
from lmos_actors.llm import Model, ModelEnd, ModelRequest, TextDelta, UserMessage
from lmos_actors.thinking import ThinkingAgent
from tests.benchmarks.chat import PACE, PIECE, Client, Talker
from tests.benchmarks.counting import Walk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.llm import ModelItem

FEW, MANY = 10, 160


class Scripted(Model):
    """A model that says as many pieces as a `Talker` would."""

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        asked = request.messages[-1]
        assert isinstance(asked, UserMessage)
        pace, _, count = asked.text.partition(" ")
        for _ in range(int(count)):
            if pace == "slowly":
                await trio.sleep(PACE)
            yield TextDelta(PIECE)
        yield ModelEnd()


class Thinker(ThinkingAgent):
    """You are brief."""


class Steps(trio.abc.Instrument):
    """A counter of the steps of tasks."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def counted(agent: type[ChatAgent], pace: str) -> tuple[float, float]:
    """Return the calls and the steps of one more chunk."""
    found: list[tuple[int, int]] = []
    async with open_node(listen="ws://127.0.0.1:0", omnia=OmniaOptions()) as node:
        await node.start(Scripted)
        await node.start_child(ChildSpec("talker", agent))
        client = await trio.to_thread.run_sync(Client, node.urls[0])
        for count in (FEW, FEW, MANY):  # the first one warms up
            walk, steps = Walk(), Steps()
            trio.lowlevel.add_instrument(steps)
            with walk.counting():
                client.say(f"{pace} {count}")
                assert await trio.to_thread.run_sync(client.count) == count
            trio.lowlevel.remove_instrument(steps)
            found.append((walk.calls, steps.count))
        client.sock.close()
    (few_calls, few_steps), (many_calls, many_steps) = found[1:]
    more = MANY - FEW
    return (many_calls - few_calls) / more, (many_steps - few_steps) / more


if __name__ == "__main__":
    print(f"{'one more chunk':<34}{'calls':>8}{'steps':>8}")
    for pace in ("quickly", "slowly"):
        for name, agent in (("a chat", Talker), ("an agent that thinks", Thinker)):
            calls, steps = trio.run(counted, agent, pace)
            print(f"{f'of {name}, {pace}':<34}{calls:>8.1f}{steps:>8.1f}")
