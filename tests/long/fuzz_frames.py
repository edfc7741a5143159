"""python -m tests.long.fuzz_frames [--frames N] [--seed TEXT] [--resume FILE]: a server under fire.

A server in a process of its own, on TCP. Connections one after another, a few at a time, each with a burst of
frames: good requests, LMOS messages of every kind for agents that are there and for some that are not, the
same with damage, binary ones, messages in parts, pings. The last frame of many a burst breaks RFC 6455: no
mask, reserved bits and opcodes, a text that is no UTF-8, parts in the wrong order, lengths that are too long,
frames that are cut off. A burst counts when the server has answered the ping behind it, or has closed.

All the while another client, an ordinary one, books numbers, each of which must be the next. In the end the
server has to have written nothing to its standard error, and once nobody is connected it has to have as many
tasks, descriptors and listeners as before. Prints one line at the end. Default: a million frames.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import open_node
from tests.long.soak import RST, Process, more_than
from tests.long.soak_agents import Ledger, leaves_of
from tests.long.soak_server import WORKERS
from tests.long.state import State, parser_of, say, verdict
from tests.wire.machines import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FRAMES = 1_000_000
BURST = 150
AT_ONCE = 4
PATIENCE = 60.0
GROWTH_KB = 24_576  # of the server's memory, from a tenth of the frames on
END_PING = b"behind the burst"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
PLACES = ("/ws", "/", "/agents/ledger", "/agents/boss", *(f"/agents/crew.{name}" for name in WORKERS))
THINGS = ("ledger", "boss", *(f"crew.{name}" for name in WORKERS), "", "nobody", "urn:uuid:none")
AFFORDANCES = (
    "level",
    "done",
    "add",
    "work",
    "count",
    "refuse",
    "crash",
    "book",
    "total",
    "hire",
    "fire",
    "x",
)
INPUTS: dict[str, tuple[Any, ...]] = {
    "add": ({"a": 1, "b": 2}, {"a": "1", "b": 2}, {"a": 2**70, "b": 1}, None, [1, 2]),
    "work": ({"seconds": 0.001}, {"seconds": 3}, {"seconds": -1}, {"seconds": 1e300}, {}),
    "count": ({"to": 3}, {"to": 200}, {"to": -1}, {"to": 10**9}),
    "book": ({"who": "anybody"}, {"who": 3}),
    "total": ({"who": "anybody"},),
    "fire": ({"name": "guest-1"}, {"name": "guest-3"}),
}


def frame(
    opcode: int, payload: bytes, random: Random, *, fin: bool = True, rsv: int = 0, masked: bool = True
) -> bytes:
    """Write a frame as a client does."""
    length = len(payload)
    bit = 0x80 if masked else 0
    if length < 126:
        head = bytes((fin << 7 | rsv << 4 | opcode, bit | length))
    elif length < 65536:
        head = struct.pack(">BBH", fin << 7 | rsv << 4 | opcode, bit | 126, length)
    else:
        head = struct.pack(">BBQ", fin << 7 | rsv << 4 | opcode, bit | 127, length)
    if not masked:
        return head + payload
    key = random.randbytes(4)
    pad = (key * (length // 4 + 1))[:length]
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(pad, "big")
    return head + key + mixed.to_bytes(length, "big")


class Sender(Peer):
    """Messages for the agents of the server."""

    def _member(self, name: str) -> Any:
        random = self.random
        if name == "thing_id":
            return random.choice(THINGS)
        if name in ("name", "action", "event"):
            return random.choice(AFFORDANCES)
        if name == "input":
            return random.choice(random.choice(list(INPUTS.values())))
        return super()._member(name)

    def request(self) -> bytes:
        """Write a request that could be meant."""
        random = self.random
        head = {"thingID": random.choice(THINGS), "messageID": self.an_id()}
        kind = random.choice(
            (
                "invokeAction",
                "invokeAction",
                "readProperty",
                "writeProperty",
                "observeProperty",
                "subscribeEvent",
            )
        )
        name = random.choice(AFFORDANCES)
        body: dict[str, Any] = {"messageType": kind, **head, "name": name}
        if kind == "invokeAction":
            body["input"] = random.choice(INPUTS.get(name, (None,)))
        elif kind == "writeProperty":
            body["data"] = random.choice((1, 2**70, "x", None))
        return json.dumps(body).encode()

    def message_frames(self) -> list[bytes]:
        """Write one message that RFC 6455 allows, in one frame or several."""
        random = self.random
        what = random.random()
        if what < 0.04:
            return [frame(random.choice((PING, PONG)), random.randbytes(random.randrange(20)), random)]
        if what < 0.08:
            head = (
                1,
                random.randrange(2),
                0,
                0,
                0,
                0,
                0,
                random.randrange(1, 9),
                0,
                0,
                0,
                random.randrange(3),
            )
            return [frame(BINARY, bytes(head) + b"abc", random)]
        data: Any = self.request() if what < 0.35 else self.frame()
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogatepass")
        data = data.decode("utf-8", "replace").encode()  # what is no UTF-8 ends the connection: see `broken`
        if random.random() < 0.05:
            return self._in_parts(data)
        return [frame(TEXT, data, random)]

    def _in_parts(self, data: bytes) -> list[bytes]:
        random = self.random
        places = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(1, 4)))
        parts = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
        found = []
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            found.append(frame(0 if number else TEXT, part, random, fin=last))
            if not last and random.random() < 0.3:
                found.append(frame(PING, b"between", random))
        return found

    def broken(self) -> bytes:
        """Write a frame that RFC 6455 forbids, or that is cut off."""
        random, data = self.random, self.request()
        found: list[Callable[[], bytes]] = [
            lambda: frame(TEXT, data, random, masked=False),
            lambda: frame(TEXT, data, random, rsv=random.randrange(1, 8)),
            lambda: frame(random.choice((3, 4, 5, 6, 7, 11, 12, 13, 14, 15)), data, random),
            lambda: frame(TEXT, data[:5] + b"\xff\xfe" + data[5:], random),
            lambda: frame(TEXT, random.randbytes(9) + b"\xff", random),
            lambda: frame(BINARY, self.binary(), random),
            lambda: frame(0, data, random),
            lambda: frame(TEXT, data, random, fin=False) + frame(TEXT, data, random),
            lambda: frame(PING, b"p" * 126, random),
            lambda: frame(PING, b"p", random, fin=False),
            lambda: frame(CLOSE, random.choice((b"\x03", b"\x03\xed", b"\x00\x00", b"\x03\xe8\xff")), random),
            lambda: bytes((0x81, 0xFF)) + b"\xff" * 8 + b"abcd",
            lambda: bytes((0x81, 0xFF)) + (1 << 40).to_bytes(8, "big") + b"abcd" + data,
            lambda: frame(TEXT, data, random)[: random.randrange(1, len(data))],
            lambda: random.randbytes(random.randrange(1, 200)),
        ]
        return random.choice(found)()


class Burst:
    """One connection: its handshake, its frames, its end."""

    def __init__(self, stream: trio.SocketStream, random: Random) -> None:
        self.stream, self.random = stream, random
        self.sender = Sender(random)
        self.answered = 0
        self.closed_with: int | None = None
        self.why = ""
        self.reached = trio.Event()  # the end of what was sent, or of the connection
        self._held = b""

    async def shake(self, port: int) -> None:
        random = self.random
        lines = [f"GET {random.choice(PLACES)} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket"]
        lines += ["Connection: Upgrade", "Sec-WebSocket-Version: 13"]
        lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        if random.random() < 0.6:
            lines.append("Sec-WebSocket-Protocol: lmosprotocol")
        if random.random() < 0.3:
            lines.append(f"LMOS-Peer: {random.randrange(8):032x}")
        await self.stream.send_all(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self._held:
            chunk = await self.stream.receive_some()
            if not chunk:
                break
            self._held += chunk
        head, _, self._held = self._held.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101") and b" 404 " not in head.partition(b"\r\n")[0]:
            raise AssertionError(f"the handshake was answered {head[:200]!r}")
        if not head.startswith(b"HTTP/1.1 101"):
            raise trio.BrokenResourceError  # a place that takes LMOS by its subprotocol alone

    async def hear(self) -> None:
        """Read what comes, until the end of the connection."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            self._take(b"")
            async for chunk in self.stream:
                self._take(chunk)
        self.reached.set()

    def _take(self, chunk: bytes) -> None:
        data = self._held + chunk
        at = 0
        while len(data) - at >= 2:
            first, word = data[at], data[at + 1]
            if first & 0x70 or word & 0x80:
                raise AssertionError(f"the server sent {data[at : at + 20]!r}")
            size = {126: 2, 127: 8}.get(word, 0)
            start = at + 2 + size
            length = int.from_bytes(data[at + 2 : start], "big") if size else word
            if len(data) < start + length:
                break
            self._one(first & 15, data[start : start + length])
            at = start + length
        self._held = data[at:]

    def _one(self, opcode: int, payload: bytes) -> None:
        if opcode in (TEXT, BINARY):
            self.answered += 1
        elif opcode == PONG and payload == END_PING:
            self.reached.set()
        elif opcode == CLOSE:
            self.closed_with = int.from_bytes(payload[:2], "big") if payload else 1005
            self.why = payload[2:].decode()
            self.reached.set()

    async def fire(self, count: int) -> int:
        """Send so many frames, and wait until they have been read; give how many were."""
        frames: list[bytes] = []
        while len(frames) < count:
            frames += self.sender.message_frames()
        try:
            for number in range(0, len(frames), 10):
                await self.stream.send_all(b"".join(frames[number : number + 10]))
            await self.stream.send_all(frame(PING, END_PING, self.random))
            await self.reached.wait()
            if self.closed_with is None:
                return len(frames) + 1 + await self._end()
        except trio.BrokenResourceError:
            pass
        return 0

    async def _end(self) -> int:
        how, random = self.random.random(), self.random
        if how < 0.6:
            self.reached = trio.Event()
            await self.stream.send_all(self.sender.broken())
            if random.random() < 0.5:
                with suppress(trio.BrokenResourceError):
                    await self.stream.send_eof()
            with trio.move_on_after(0.5):  # what is cut off is waited for by the server
                await self.reached.wait()
            return 1
        if how < 0.8:
            await self.stream.send_all(frame(CLOSE, b"\x03\xe8", random))
            await self.reached.wait()
            return 1
        if how < 0.9:
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
        return 0


class Run:
    """The whole of it."""

    def __init__(self, state: State, folder: Path, given: Any) -> None:
        self.state, self.folder, self.given = state, folder, given
        self.wrong: list[str] = state["wrong"]
        self.codes: Counter[str] = Counter(state["codes"])
        self.slowest = 0.0
        self.full = () if given.quick else ("full",)
        self.at_tenth = 0

    @property
    def over(self) -> bool:
        return self.state["frames"] >= self.given.frames or len(self.wrong) > 10

    async def run(self) -> None:
        """Start a server, fire at it, look at it."""
        server = await Process.start(self.folder, "server", "tests.long.soak_server", "", *self.full)
        port = int((await server.hear()).rpartition(":")[2])
        before = await server.ask("sample")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._good_client, port)
            nursery.start_soon(self._look, server)
            async with trio.open_nursery() as fuzzers:
                for _ in range(AT_ONCE):
                    fuzzers.start_soon(self._fuzz, port)
            nursery.cancel_scope.cancel()
        await self._end(server, before)

    async def _fuzz(self, port: int) -> None:
        while not self.over:
            number = self.state["connections"]
            self.state["connections"] += 1
            random = Random(f"{self.state['seed']} {number}")
            try:
                with trio.fail_after(PATIENCE):
                    await self._connection(port, random)
            except* trio.TooSlowError:
                self.wrong.append(f"connection {number}: no answer for {PATIENCE:g} s")
            except* (OSError, trio.BrokenResourceError):
                self.codes["no connection"] += 1
            except* AssertionError as group:
                self.wrong += [f"connection {number}: {leaf}" for leaf in leaves_of(group)]

    async def _connection(self, port: int, random: Random) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            burst = Burst(stream, random)
            await burst.shake(port)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(burst.hear)
                read = await burst.fire(random.randrange(1, 2 * BURST))
                nursery.cancel_scope.cancel()
        self.state["frames"] += read
        self.state["answers"] += burst.answered
        self.codes[f"{burst.closed_with or 'we left'} {burst.why}"] += 1

    async def _good_client(self, port: int) -> None:
        async with open_node() as node:
            booked = 0
            while True:
                ref = await node.consume(Ledger, f"http://127.0.0.1:{port}/agents/ledger")
                for _ in range(200):
                    began = time.monotonic()
                    with trio.move_on_after(PATIENCE):
                        booked += 1
                        got = await ref.invoke(Ledger.book, f"good {os.getpid()}")
                        if got != booked:
                            self.wrong.append(f"the good client was told {got}, not {booked}")
                    self.slowest = max(self.slowest, time.monotonic() - began)
                    self.state["good"] += 1
                    await trio.sleep(0.05)
                node.release(ref)

    async def _look(self, server: Process) -> None:
        while True:
            await trio.sleep(self.given.every)
            seen = await server.ask("sample")
            self._judge(seen)
            self.state["codes"] = self.codes
            self.state["slowest"] = max(self.slowest, self.state["slowest"])
            self.state.save()
            say(
                f"{self.state['frames']:,} frames, {self.state['connections']:,} connections; server:"
                f" {seen['memory_kb']:,} kB, {seen['tasks']} tasks, {seen['descriptors']} descriptors,"
                f" {seen['restarts']:,} restarts; the good client waited {self.slowest:.2f} s at most"
            )

    def _judge(self, seen: dict[str, Any]) -> None:
        self.wrong += [*seen["imbalances"], *seen["failures"]]
        if not self.at_tenth and self.state["frames"] > self.given.frames / 10:
            self.at_tenth = seen["memory_kb"]
        if self.at_tenth and seen["memory_kb"] > self.at_tenth + GROWTH_KB:
            self.wrong.append(f"memory of the server: {self.at_tenth:,} kB, then {seen['memory_kb']:,} kB")

    async def _end(self, server: Process, before: dict[str, Any]) -> None:
        with trio.move_on_after(120):
            rest = await server.ask("sample")
            while more_than(before, rest):
                await trio.sleep(1)
                rest = await server.ask("sample")
        self._judge(rest)
        self.wrong += more_than(before, rest)
        self.state["slowest"] = max(self.slowest, self.state["slowest"])
        await server.ask("end")
        if (code := await server.wait()) or server.errors():
            self.wrong.append(f"the server ended with {code}: {server.errors()[:2000]}")


def main(args: Iterable[str] | None = None) -> int:
    """Be the command."""
    parser = parser_of(__doc__)
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two looks at the server")
    parser.add_argument("--seed", help="of the frames; chance without it")
    parser.add_argument("--quick", action="store_true", help="do not fill first what is bounded")
    parser.add_argument("--folder", type=Path, help="for what the server writes to standard error")
    given = parser.parse_args(None if args is None else list(args))
    folder = given.folder or Path(mkdtemp(prefix="fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    fresh = {"frames": 0, "connections": 0, "answers": 0, "good": 0, "slowest": 0.0, "wrong": [], "codes": {}}
    fresh["seed"] = given.seed or secrets.token_hex(8)
    state = State(given.resume, {"frames": given.frames}, fresh)
    if state["frames"] < given.frames:
        say(f"process {os.getpid()}, in {folder}, seed {state['seed']}")
        run = Run(state, folder, given)
        try:
            trio.run(run.run)
        except* RuntimeError as group:  # the server has ended, or is silent
            state["wrong"] += map(str, leaves_of(group))
        state.save()
    for text in state["wrong"]:
        print(text)
    told = f"{state['frames']:,} frames of seed {state['seed']} over {state['connections']:,} connections"
    told += f", {state['answers']:,} answers; {state['good']:,} requests of a good client, the slowest"
    told += f" {state['slowest']:.2f} s; {state.seconds:,.0f} s"
    return verdict(
        not state["wrong"], told if not state["wrong"] else f"{told}: {len(state['wrong'])} findings"
    )


if __name__ == "__main__":
    sys.exit(main())
