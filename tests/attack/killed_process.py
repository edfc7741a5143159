"""A process that is killed in the middle of requests: a server of a tally, or a client of one.

`server FILE` prints its address and writes each number to the file when the tally takes it. `client URL FILE`
asks and tells without end, and writes `a` before a request, `b` behind its answer.
"""

from __future__ import annotations

import os
import sys
from itertools import count

import attrs
import trio

from lmos_actors import Agent, ChildSpec, MailboxOptions, SupervisorSpec, action, open_node


class Tally(Agent, mailbox=MailboxOptions(size=1024)):
    """Takes numbers: by requests, and by one-way messages."""

    file: int = -1
    took: list[str] = attrs.field(factory=list)

    def _take(self, word: str) -> None:
        self.took.append(word)
        if self.file >= 0:
            os.write(self.file, f"{word}\n".encode())

    @action
    def take(self, number: int) -> int:
        self._take(f"ask {number}")
        return number

    @action
    async def take_later(self, number: int) -> int:
        self._take(f"ask {number}")
        await trio.lowlevel.checkpoint()
        return number

    @action
    def note(self, number: int) -> None:
        self._take(f"tell {number}")


def opened(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


async def serve(path: str) -> None:
    tree = SupervisorSpec("root", [ChildSpec("tally", lambda: Tally(file=opened(path)))])
    async with open_node(tree, listen="ws://127.0.0.1:0") as node:
        print(node.urls[0], flush=True)
        await trio.sleep_forever()


async def ask(url: str, path: str) -> None:
    file = opened(path)
    async with open_node() as node:
        tally = await node.consume(Tally, url, thing="tally")
        for number in count():
            os.write(file, f"a {number}\n".encode())
            if number % 3 == 2:
                await tally.tell(Tally.note, number)
            else:
                assert await tally.invoke(Tally.take, number) == number
                os.write(file, f"b {number}\n".encode())


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    trio.run({"server": serve, "client": ask}[what], *arguments)
