"""Crowds that come and leave: the CPU of a node between the bytes of a caller and the answer, meanwhile.

The caller has a connection of its own, and asks again and again while many others come at once: listeners of
an event, or devices that register at a directory; or while all listeners leave. The longest is what counts.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors import Agent, Event, action, event, open_node
from lmos_actors.transport import raise_descriptor_limit
from tests.benchmarks.limits_wire import HOST, other_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Request = Callable[[int], bytes]

ASK: Final = (
    b"POST /agents/open/actions/show HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)
LISTEN: Final = (
    b"GET /agents/open/events/told HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
)
CALLS: Final = 5
"""Calls after all have left."""


class Open(Agent):
    """Has listeners."""

    told: Event[str] = event()

    @action
    def show(self) -> str:
        return "here"


async def serve(told: Callable[[object], object]) -> None:
    """Serve the agent and a directory until killed; tell the URL."""
    raise_descriptor_limit(20_000)
    async with open_node(listen=f"ws://{HOST}:0", directory=True) as node:
        await node.start(Open)
        told({"url": node.urls[0], "pid": os.getpid()})
        await trio.sleep_forever()


def registration(number: int) -> bytes:
    """Return the registration of a device."""
    described = {
        "@context": "https://www.w3.org/2022/wot/td/v1.1",
        "id": f"urn:dev:{number}",
        "title": f"Device {number}",
        "securityDefinitions": {"none": {"scheme": "nosec"}},
        "security": "none",
        "properties": {"on": {"type": "boolean", "forms": [{"href": f"http://dev.example/{number}"}]}},
    }
    body = json.dumps(described).encode()
    head = (
        f"PUT /things/urn:dev:{number} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/td+json\r\n"
    )
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Crowd:
    """Connections to a node, and a caller that asks it meanwhile."""

    def __init__(self, port: int, pid: int) -> None:
        self._where = HOST, port
        self._clock = ~pid << 3 | 2  # the clock of the CPU of a process, as of Linux
        self._poll = select.epoll()
        self.all: dict[int, socket.socket] = {}
        self.milliseconds: list[float] = []
        self._closed_at_end = ExitStack()
        self._connect()

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.all.values():
            one.close()
        self._closed_at_end.close()
        self._poll.close()

    def _connect(self) -> None:
        """Connect, and ask once: a caller that is new waits for its turn among those that come."""
        self._caller = self._closed_at_end.enter_context(socket.create_connection(self._where))
        self._caller.sendall(ASK)
        self._caller.recv(65_536)
        self._poll.register(self._caller, select.EPOLLIN)

    def ask(self) -> None:
        """Begin to ask."""
        self._began = time.clock_gettime(self._clock)
        self._caller.sendall(ASK)

    def answered(self) -> None:
        """Take the answer, and note the CPU that it has cost."""
        if self._caller.recv(65_536).startswith(b"HTTP/1.1 200"):
            self.milliseconds.append(1_000 * (time.clock_gettime(self._clock) - self._began))
        else:  # the node has closed an idle connection, as it may
            self._poll.unregister(self._caller)
            self._connect()

    def come(self, requests: Iterable[bytes]) -> None:
        """Connect for each request at once, and ask until each has its answer."""
        left: dict[int, bytes] = {}
        for request in requests:
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(self._where)
            self.all[one.fileno()], left[one.fileno()] = one, request
            self._poll.register(one, select.EPOLLOUT)
        self.ask()
        while left:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._caller.fileno():
                    self.answered()
                    self.ask()
                elif left[descriptor]:
                    self.all[descriptor].send(left[descriptor])
                    left[descriptor] = b""
                    self._poll.modify(descriptor, select.EPOLLIN)
                else:
                    del left[descriptor]
                    self._poll.unregister(descriptor)

    def leave(self) -> None:
        """Close all connections at once, and ask."""
        for one in self.all.values():
            one.close()
        for _ in range(CALLS):
            self.ask()
            self._poll.poll()
            self.answered()


def _crowd(told: Any) -> Crowd:
    raise_descriptor_limit(20_000)
    return Crowd(int(told["url"].rpartition(":")[2].strip("/")), told["pid"])


def come(request: Request, n: int) -> float:
    """Milliseconds of CPU for the caller that waits longest while as many come."""
    with other_process("bulk") as told, _crowd(told) as crowd:
        crowd.come(map(request, range(n)))
        return max(crowd.milliseconds, default=0.0)  # all came before one call was answered


def listeners_come(n: int) -> float:
    """Milliseconds, while listeners come."""
    return come(lambda number: LISTEN, n)


def registrations_come(n: int) -> float:
    """Milliseconds, while devices register."""
    return come(registration, n)


def listeners_leave(n: int) -> float:
    """Milliseconds, while listeners leave."""
    with other_process("bulk") as told, _crowd(told) as crowd:
        crowd.come([LISTEN] * n)
        time.sleep(1)  # they have all come
        crowd.milliseconds.clear()
        crowd.leave()
        return max(crowd.milliseconds)
