"""What one more chunk of an answer costs in the server: `python -m tests.benchmarks.chunks [--functions]`.

A chat agent says its chunks itself, and another one thinks, with a scripted model in the same node. A client
on a bare socket has an answer of few chunks over Omnia's protocol, and one of many. The difference is printed
for each chunk: calls of functions of this package, as `counting.py` counts them, and steps of tasks. Chunks
come `slowly`, after a pause each, or `quickly`, without any.
"""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING

import trio

from lmos_actors import ChildSpec, open_node
from lmos_actors.facades import ChatAgent, ChatTurn, OmniaOptions
from lmos_actors.llm import Model, ModelEnd, ModelRequest, TextDelta, UserMessage
from lmos_actors.thinking import ThinkingAgent
from tests.benchmarks.chat import PIECE, Client
from tests.benchmarks.counting import Walk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from types import FrameType

    from lmos_actors.llm import ModelItem

FEW, MANY = 10, 160
PACE = 0.002


async def pieces(text: str) -> AsyncGenerator[str]:
    """Yield as many pieces as a text asks for, `quickly` or `slowly`."""
    pace, _, count = text.partition(" ")
    for _ in range(int(count)):
        if pace == "slowly":
            await trio.sleep(PACE)
        yield PIECE


class Talker(ChatAgent):
    """Says its pieces itself."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        async with aclosing(pieces(turn.text)) as said:
            async for piece in said:
                yield piece


class Scripted(Model):
    """A model that says the pieces."""

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        asked = request.messages[-1]
        assert isinstance(asked, UserMessage)
        async with aclosing(pieces(asked.text)) as said:
            async for piece in said:
                yield TextDelta(piece)
        yield ModelEnd()


class Thinker(ThinkingAgent):
    """You are brief."""


class Steps(trio.abc.Instrument):
    """A counter of the steps of tasks."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


class NamedWalk(Walk):
    """A walk that also counts the calls of each function."""

    def __init__(self) -> None:
        super().__init__()
        self.named = Counter[str]()

    def see(self, frame: FrameType, event: str, _: object) -> None:
        before = self.calls
        super().see(frame, event, _)
        if self.calls > before:
            self.named[f"{self._at} {frame.f_code.co_qualname}"] += 1


async def counted(agent: type[ChatAgent], pace: str) -> tuple[float, float, Counter[str]]:
    """Return the calls and the steps of one more chunk, and the calls by function."""
    found: list[tuple[int, int, Counter[str]]] = []
    async with open_node(listen="ws://127.0.0.1:0", omnia=OmniaOptions()) as node:
        await node.start(Scripted)
        await node.start_child(ChildSpec("talker", agent))
        client = await trio.to_thread.run_sync(Client, node.urls[0])
        for count in (FEW, FEW, MANY):  # the first one warms up
            walk, steps = NamedWalk(), Steps()
            trio.lowlevel.add_instrument(steps)
            with walk.counting():
                client.say(f"{pace} {count}")
                assert await trio.to_thread.run_sync(client.count) == count
            trio.lowlevel.remove_instrument(steps)
            found.append((walk.calls, steps.count, walk.named))
        client.sock.close()
    (calls, steps_, named), (more, more_steps, more_named) = found[1:]
    more_named.subtract(named)
    n = MANY - FEW
    return (more - calls) / n, (more_steps - steps_) / n, more_named


def main() -> None:
    """Print a row for each kind of agent and pace."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.chunks", description=__doc__)
    parser.add_argument("--functions", action="store_true", help="also the calls of each function")
    options = parser.parse_args()
    print(f"{'one more chunk':<30}{'calls':>8}{'steps':>8}")
    kinds: list[tuple[str, type[ChatAgent]]] = [("a chat", Talker), ("a thinking agent", Thinker)]
    for pace in ("quickly", "slowly"):
        for name, agent in kinds:
            calls, steps, named = trio.run(counted, agent, pace)
            print(f"{f'of {name}, {pace}':<30}{calls:>8.1f}{steps:>8.1f}")
            for function, times in named.most_common() if options.functions else ():
                if (each := times / (MANY - FEW)) >= 0.05:
                    print(f"    {each:>6.2f} {function}")


if __name__ == "__main__":
    main()
