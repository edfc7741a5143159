"""python -m tests.long.soak [--minutes N] [--resume FILE] [--folder DIR]: agents in use for an hour.

A server, a client that stays, and a client that is killed (SIGKILL) every few minutes and comes back are
processes of their own. Between them stands a proxy that cuts connections at random. The clients invoke,
stream, cancel, observe, subscribe, monitor, ask over HTTP, hire agents and let them go, and crash the agents.

Every minute the server and the client that stays are measured: memory, objects, tasks, descriptors, timers,
listeners. A measure is flat if its maximum in the last quarter of the time, without the first twelfth, is at
most that of the first quarter plus 5 % plus the slack in SLACK. In the end, when the clients have gone, the
server has to have as many tasks, descriptors and listeners as before they came.

Prints one line at the end. A run that was killed goes on with --resume: a new server, for the time that is
left; each part is judged by itself.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import trio

from tests.long.soak_agents import leaves_of
from tests.long.state import State, parser_of, say, verdict

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

SLACK = {
    "memory_kb": 4096,
    "objects": 4000,
    "ours": 300,
    "tasks": 20,
    "descriptors": 12,
    "listeners": 12,
    "feeds": 30,
    "timers": 60,
    "agents": 3,
    "connections": 8,
}
SHARE = 0.05
FEWEST = 8  # samples of a part that can be judged
RST = struct.pack("ii", 1, 0)
ANSWER = 120.0  # seconds until a process must have answered


def trends(samples: list[dict[str, Any]]) -> list[str]:
    """Say which measures are not flat."""
    steady = samples[-(-len(samples) // 12) :]
    quarter = max(1, len(steady) // 4)
    found = []
    for name, slack in SLACK.items():
        first = max(sample[name] for sample in steady[:quarter])
        last = max(sample[name] for sample in steady[-quarter:])
        if last > first * (1 + SHARE) + slack:
            found.append(f"{name} {first:,} -> {last:,}")
    return found


def more_than(before: dict[str, Any], rest: dict[str, Any]) -> list[str]:
    """Say of what a server that is at rest has more than before anybody came.

    At most 64 tasks of a supervisor that have carried runs are parked for the next ones.
    """
    names = ("descriptors", "listeners", "agents", "connections", "open")
    found = [f"{name} of the server at rest: {rest[name]}" for name in names if rest[name] > before[name]]
    tasks = Counter(name for name in rest["at_work"] if not name.startswith("runner of "))
    tasks -= Counter(before["at_work"])
    return [*found, *(f"{count} more tasks {name!r} of the server at rest" for name, count in tasks.items())]


class Process:
    """One of the processes, which answers a line of text by a line of JSON."""

    def __init__(self, process: trio.Process, errors: Path) -> None:
        self._process = process
        self._errors = errors
        self._lines: list[bytes] = []
        self._held = b""
        self._lock = trio.Lock()

    @classmethod
    async def start(cls, folder: Path, name: str, module: str, *args: str) -> Process:
        errors = folder / f"{name}.stderr"
        with errors.open("wb") as stderr:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", module, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        return cls(process, errors)

    async def hear(self) -> Any:
        """Give the next line of it. Raises RuntimeError if it has ended, or is silent."""
        assert self._process.stdout is not None
        with trio.move_on_after(ANSWER):
            while not self._lines:
                chunk = await self._process.stdout.receive_some()
                if not chunk:
                    raise RuntimeError(f"{self._errors.stem} has ended: {self.errors()[-2000:]}")
                *self._lines, self._held = (self._held + chunk).split(b"\n")
            return json.loads(self._lines.pop(0))
        raise RuntimeError(f"{self._errors.stem} is silent: {self.errors()[-2000:]}")

    async def ask(self, word: str) -> Any:
        """Order something, and give the answer."""
        assert self._process.stdin is not None
        async with self._lock:
            try:
                await self._process.stdin.send_all(f"{word}\n".encode())
            except trio.BrokenResourceError:
                raise RuntimeError(f"{self._errors.stem} has ended: {self.errors()[-2000:]}") from None
            return await self.hear()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        with trio.fail_after(ANSWER):
            return await self._process.wait()

    def errors(self) -> str:
        """Give what it has written to its standard error."""
        return self._errors.read_text(errors="replace")


class Proxy:
    """Stands before the server, and cuts what goes through it."""

    def __init__(self, listener: trio.SocketListener, random: Random) -> None:
        self._listener = listener
        self._random = random
        self._open: dict[tuple[trio.SocketStream, trio.SocketStream], None] = {}
        self.port: int = listener.socket.getsockname()[1]
        self.target = 0
        self.cuts = self.carried = 0

    async def run(self) -> None:
        await trio.serve_listeners(self._carry, [self._listener])

    async def _carry(self, near: trio.SocketStream) -> None:
        try:
            far = await trio.open_tcp_stream("127.0.0.1", self.target)
        except OSError:
            await near.aclose()
            return
        self.carried += 1
        pair = (near, far)
        self._open[pair] = None
        try:
            async with near, far, trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, near, far)
                nursery.start_soon(self._pump, far, near)
        finally:
            del self._open[pair]

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for chunk in source:
                await sink.send_all(chunk)
            await sink.send_eof()
            return
        await trio.aclose_forcefully(source)
        await trio.aclose_forcefully(sink)

    async def cut_often(self, seconds: float) -> None:
        """Cut one connection or all of them, in order or by force."""
        while True:
            await trio.sleep(self._random.expovariate(1 / seconds))
            pairs = list(self._open)
            if not pairs:
                continue
            for pair in pairs if self._random.random() < 0.1 else [self._random.choice(pairs)]:
                self.cuts += 1
                for stream in pair:
                    with suppress(OSError):  # it has ended by itself meanwhile
                        if self._random.random() < 0.5:
                            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
                    await trio.aclose_forcefully(stream)


class Part:
    """One stretch of the soak: from the start of a server to its end."""

    def __init__(self, state: State, folder: Path, given: Any) -> None:
        self.state, self.folder, self.given = state, folder, given
        self.random = Random()
        self.samples: list[dict[str, Any]] = []
        self.kills = 0
        self.full = () if given.quick else ("full",)
        self.wrong: list[str] = []

    @asynccontextmanager
    async def _proxy(self) -> AsyncGenerator[Proxy]:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            proxy = Proxy(listener, self.random)
            nursery.start_soon(proxy.run)
            nursery.start_soon(proxy.cut_often, self.given.cut)
            yield proxy
            nursery.cancel_scope.cancel()

    async def run(self) -> None:
        """Run it until the time is over, and judge it into the state."""
        record: dict[str, Any] = {"samples": self.samples, "wrong": self.wrong, "ended": False}
        self.state["parts"].append(record)
        async with self._proxy() as proxy:
            origin = f"127.0.0.1:{proxy.port}"
            server = await Process.start(
                self.folder, "server", "tests.long.soak_server", f"ws://{origin}", *self.full
            )
            proxy.target = int((await server.hear()).rpartition(":")[2])
            before = await server.ask("sample")
            steady = await self._client("steady", origin, "1100" if self.full else "0")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._victims, origin)
                await self._watch(server, steady, proxy)
                nursery.cancel_scope.cancel()
            await self._end(server, steady, before)
        record["ended"] = True

    async def _client(self, name: str, origin: str, crashes: str = "0") -> Process:
        return await Process.start(
            self.folder, name, "tests.long.soak_client", f"http://{origin}", name, crashes
        )

    async def _victims(self, origin: str) -> None:
        number = 0
        while True:
            number += 1
            victim = await self._client(f"victim-{number}", origin)
            try:
                await trio.sleep(self.random.uniform(0.5, 1.5) * self.given.kill)
            finally:
                victim.kill()
                with trio.CancelScope(shield=True):
                    await victim.wait()
            self.kills += 1
            if victim.errors():
                self.wrong.append(f"victim-{number}: {victim.errors()[:2000]}")
            (self.folder / f"victim-{number}.stderr").unlink()

    async def _watch(self, server: Process, steady: Process, proxy: Proxy) -> None:
        await steady.hear()
        began, every = time.monotonic(), self.given.every
        while self.state["minutes"] < self.given.minutes:
            await trio.sleep(max(0.0, began + (len(self.samples) + 1) * every - time.monotonic()))
            of_server, of_client = await server.ask("sample"), await steady.ask("sample")
            self.samples.append(
                {"server": of_server, "client": of_client, "kills": self.kills, "cuts": proxy.cuts}
            )
            self.state["minutes"] += every / 60
            self._look_at(server, of_server, of_client)
            self.state.save()

    def _look_at(self, server: Process, of_server: dict[str, Any], of_client: dict[str, Any]) -> None:
        self.wrong[:] = [*self.wrong, *of_server["imbalances"], *of_client["imbalances"]]
        self.wrong += [*of_server["failures"], *of_client["failures"]]
        self.wrong += [text for text in of_client["wrong"] if text not in self.wrong]
        del self.wrong[50:]
        done = sum(number for name, number in of_client["counts"].items() if name.endswith(" ok"))
        say(
            f"{self.state['minutes']:.1f} min: server {of_server['memory_kb']:,} kB,"
            f" {of_server['objects']:,} objects, {of_server['tasks']} tasks,"
            f" {of_server['descriptors']} descriptors, {of_server['accepted']:,} accepted,"
            f" {of_server['restarts']:,} restarts;"
            f" client {of_client['memory_kb']:,} kB, {of_client['objects']:,} objects, {done:,} done;"
            f" {self.samples[-1]['cuts']:,} cuts, {self.kills} kills, {len(self.wrong)} wrong"
        )

    async def _end(self, server: Process, steady: Process, before: dict[str, Any]) -> None:
        """End the client, see the server come to rest, end it."""
        await steady.ask("end")
        left = await steady.hear()
        self._expect("tasks of the client at its end", left, lambda tasks: tasks <= 4)
        self._expect("exit code of the client", await steady.wait(), lambda code: code == 0)
        self._expect("standard error of the client", steady.errors(), lambda text: text == "")
        with trio.move_on_after(90):  # for so long runs are kept for whom has gone
            rest = await server.ask("sample")
            while more_than(before, rest):
                await trio.sleep(1)
                rest = await server.ask("sample")
        self.wrong += more_than(before, rest)
        await server.ask("end")
        self._expect("exit code of the server", await server.wait(), lambda code: code == 0)
        self._expect("standard error of the server", server.errors(), lambda text: text == "")

    def _expect(self, what: str, value: Any, fits: Any) -> None:
        if not fits(value):
            self.wrong.append(f"{what}: {str(value)[:2000]}")


def judge(state: State) -> int:
    """Print the verdict over all parts."""
    wrong, judged = [], 0
    total = {"cuts": 0, "kills": 0, "accepted": 0, "restarts": 0, "done": 0}
    for part in state["parts"]:
        wrong += part["wrong"]
        samples = part["samples"]
        if len(samples) >= FEWEST:
            judged += 1
            for who in ("server", "client"):
                wrong += [f"{who} {text}" for text in trends([sample[who] for sample in samples])]
        for sample in samples[-1:]:
            total["cuts"] += sample["cuts"]
            total["kills"] += sample["kills"]
            total["accepted"] += sample["server"]["accepted"]
            total["restarts"] += sample["server"]["restarts"]
    if not judged:
        wrong.append("no part was long enough to be judged")
    for text in wrong:
        print(text)
    told = f"{state['minutes']:.0f} minutes, {total['accepted']:,} messages"
    told += f", {total['restarts']:,} crashes of agents, {total['cuts']:,} connections cut"
    told += f", {total['kills']} clients killed"
    return verdict(not wrong, f"{told}: " + ("flat" if not wrong else f"{len(wrong)} findings"))


def main(args: Iterable[str] | None = None) -> int:
    """Be the command."""
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two samples")
    parser.add_argument("--cut", type=float, default=6.0, help="seconds between two cuts, on average")
    parser.add_argument("--kill", type=float, default=180.0, help="seconds that a client lives, on average")
    parser.add_argument("--quick", action="store_true", help="do not fill first what is bounded")
    parser.add_argument("--folder", type=Path, help="for what the processes write to standard error")
    given = parser.parse_args(None if args is None else list(args))
    folder = given.folder or Path(mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"minutes": given.minutes, "every": given.every}
    state = State(given.resume, settings, {"minutes": 0.0, "parts": []})
    if state["minutes"] < given.minutes:
        say(f"process {os.getpid()}, in {folder}")
        part = Part(state, folder, given)
        try:
            trio.run(part.run)
        except* RuntimeError as group:  # of a process that has ended, or is silent
            part.wrong += map(str, leaves_of(group))
        state.save()
    return judge(state)


if __name__ == "__main__":
    sys.exit(main())
