"""Streams into an action from a shell: from files and the standard input, over LMOS and over HTTP."""

from __future__ import annotations

import json
import os
import pty
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, action, open_node
from lmos_actors.cli import main
from tests.cli.test_remote import Ran
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 40.0
WAYS = ("LMOS", "HTTP")


class Ledger(Agent):
    """Takes streams, and notes how they end."""

    notes: Any

    @action
    async def ingest(self, rows: AsyncIterator[int], account: str = "main") -> str:
        """Add up."""
        total = 0
        try:
            async for row in rows:
                total += row
        except BaseException as error:
            self.notes.put(f"{type(error).__name__}: {error}")
            raise
        return f"{account} {total}"

    @action
    async def running(self, rows: AsyncIterator[int], start: int = 0) -> AsyncIterator[int]:
        """Answer each row by the total so far."""
        try:
            async for row in rows:
                start += row
                yield start
        except trio.Cancelled:
            self.notes.put("cancelled")
            raise

    @action
    async def shout(self, words: AsyncIterator[str]) -> AsyncIterator[str]:
        """Answer in capitals."""
        async for word in words:
            yield word.upper()

    @action
    async def weigh(self, parts: AsyncIterator[bytes]) -> int:
        """Count bytes."""
        return sum([len(part) async for part in parts])

    @action
    async def merge(self, left: AsyncIterator[int], right: AsyncIterator[int]) -> int:
        """Take two."""
        return await anext(left) + await anext(right)

    @action
    async def slowly(self, rows: AsyncIterator[int]) -> None:
        """Take a while for each."""
        async for _ in rows:
            await trio.sleep(0.1)

    @action
    def total(self) -> int:
        """Take none."""
        return 0


class Place:
    """Where the agent is served; `notes` is what it has noted."""

    def __init__(self, url: str, notes: queue.SimpleQueue[str], folder: Path) -> None:
        self.url = url
        self.notes = notes
        self.folder = folder

    def way(self, name: str) -> str:
        """The target for LMOS; for HTTP a description that knows of nothing else."""
        if name != "HTTP":
            return self.url if name == "LMOS" else self.url.replace("http:", "ws:")
        path = self.folder / "ledger.td.json"
        if not path.exists():
            host, _, port = self.url.split("/")[2].partition(":")
            with socket.create_connection((host, int(port))) as asked:
                asked.sendall(b"GET /agents/ledger HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                body = b"".join(iter(lambda: asked.recv(65_536), b"")).partition(b"\r\n\r\n")[2]
            described = json.loads(body)
            del described["actions"]["merge"]  # which only LMOS carries
            for each in (described, *described["actions"].values()):
                each["forms"] = [form for form in each["forms"] if form["href"].startswith("http")]
            path.write_text(json.dumps(described))
        return str(path)


async def _serve(told: queue.SimpleQueue[Any], notes: queue.SimpleQueue[str]) -> None:
    over = trio.Event()
    async with open_node(listen="ws://127.0.0.1:0") as node:
        await node.start_child(ChildSpec("ledger", partial(Ledger, notes=notes)))
        told.put((node.urls[0], trio.lowlevel.current_trio_token(), over))
        await over.wait()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    notes: queue.SimpleQueue[str] = queue.SimpleQueue()
    thread = threading.Thread(target=trio.run, args=(_serve, told, notes))
    thread.start()
    url, token, over = told.get(timeout=PATIENCE)
    yield Place(f"{url.replace('ws:', 'http:')}/agents/ledger", notes, tmp_path_factory.mktemp("td"))
    token.run_sync_soon(over.set)
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.fixture
def call(
    place: Place, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """Call the command in this process; `given` is its standard input."""

    def call(way: str, *words: str, given: bytes = b"") -> Ran:
        ends = os.pipe()
        writer = threading.Thread(target=_write, args=(ends[1], given))
        writer.start()
        with os.fdopen(ends[0]) as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            capfd.readouterr()
            with pytest.raises(SystemExit) as ended:
                main(["call", place.way(way), *words])
        writer.join(PATIENCE)
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capfd.readouterr())

    return call


def _write(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as pipe, suppress(BrokenPipeError):
        pipe.write(data)


@contextmanager
def running(place: Place, way: str, *words: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command as a process."""
    command = [sys.executable, "-m", "lmos_actors", "call", place.way(way), *words]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()


@pytest.mark.parametrize("way", WAYS)
def test_items_come_from_a_file_or_the_standard_input(
    call: Callable[..., Ran], way: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"\xef\xbb\xbf1\r\n2\n\n 3")
    assert call(way, "ingest", "account=a b", "--stream", str(rows)).lines == [
        {"action": "ingest", "output": "a b 6"}
    ]
    assert call(way, "ingest", "--stream", "-", "--raw", given=b"1\n2\n") == Ran(0, "main 3\n", "")
    assert call(way, "ingest", "--stream", os.devnull, "--raw") == Ran(0, "main 0\n", "")
    assert call(way, "running", "start=5", "--stream", "-", "--raw", given=b"1\n2\n") == Ran(0, "6\n8\n", "")
    # texts as a shell has them, unless they are JSON
    given = b'hello there\n"quoted"\n7\n{"a": 1}\n'
    texts = call(way, "shout", "--stream", "-", "--raw", given=given)
    assert texts == Ran(0, 'HELLO THERE\nQUOTED\n7\n{"A": 1}\n', "")
    assert call(way, "weigh", "--stream", "-", "--raw", given=bytes(300_000)) == Ran(0, "300000\n", "")


@pytest.mark.parametrize("way", WAYS)
def test_a_bad_line_ends_the_run_and_names_its_place(
    call: Callable[..., Ran], place: Place, way: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    for text, wrong in {
        b"1\n\n  x\n4": ":3:3: not JSON: expecting value; it takes integer",
        b"1\n\xff\n": ":2: is not UTF-8 at byte 1",
        b"[1,\n": ":1:4: not JSON: expecting value; it takes integer",
        b"x" * (5 << 20): ":1: longer than 4 MiB",
    }.items():
        rows.write_bytes(text)
        ran = call(way, "ingest", "--stream", str(rows))
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.splitlines()[0] == f"lmos-actors: {rows}{wrong}"
        assert place.notes.get(timeout=PATIENCE).startswith("SourceFailed: ")
    # of another type: the agent refuses it, and the command says where it stands
    ran = call(way, "ingest", "--stream", "-", given=b'1\n\n"x"\n')
    assert (ran.code, ran.lines[0]["error"]["type"]) == (1, "InvalidInput")
    assert ran.err.splitlines()[-1] == "rows[1] is at standard input:3"
    place.notes.get(timeout=PATIENCE)


def test_what_does_not_fit_is_refused_before_anything_is_sent(
    call: Callable[..., Ran], place: Place, tmp_path: Path
) -> None:
    for words, wrong in (
        (("merge", "--stream", "-"), "merge: takes 2 streams (left, right), and a command sends one"),
        (("total", "--stream", "-"), "--stream: total takes no stream"),
        (("ingest",), "ingest: takes the stream rows: give its items with --stream FILE, or --stream -"),
        (("ingest", "--stream", "nowhere"), "nowhere: cannot be read: No such file or directory"),
        (("ingest", "--stream", str(tmp_path)), f"{tmp_path}: cannot be read: it is a directory"),
        (("ingest", "-", "--stream", "-"), "--stream: the standard input is read once"),
        (("ingest", "--steam", "-"), 'no option "--steam", did you mean "--stream"?'),
    ):
        ran = call("LMOS", *words)
        assert (ran.code, ran.out) == (2, ""), words
        assert ran.err.startswith(f"lmos-actors: {wrong}"), ran.err
    ran = call("bare", "ingest", "--stream", "-")
    assert ran.err.startswith("lmos-actors: --stream: needs a description of the agent, to name the stream\n")
    assert place.notes.empty()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_answers_are_printed_as_they_come_and_an_interrupt_cancels_the_run(place: Place, way: str) -> None:
    with running(place, way, "running", "--stream", "-") as process:
        assert process.stdin is not None
        for row in (1, 2):
            process.stdin.write(b"%d\n" % row)
            process.stdin.flush()
            assert json.loads(said(process.stdout)) == {"action": "running", "output": row * (row + 1) // 2}
        before = time.monotonic()
        process.send_signal(signal.SIGINT)  # while nothing comes, and nothing ends
        assert process.wait(PATIENCE) == 130
        assert time.monotonic() - before < 10
    assert place.notes.get(timeout=PATIENCE) == "cancelled"


@pytest.mark.slow
def test_a_reader_of_the_answers_that_leaves_ends_the_run(place: Place) -> None:
    with running(place, "LMOS", "running", "--stream", "-", "--raw") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"1\n")
        process.stdin.flush()
        assert said(process.stdout) == b"1\n"
        process.stdout.close()
        process.stdin.write(b"1\n")
        process.stdin.flush()
        assert process.wait(PATIENCE) == 1
        assert said(process.stderr) == b""
    assert place.notes.get(timeout=PATIENCE) == "cancelled"


@pytest.mark.slow
def test_a_terminal_shows_what_has_been_sent(place: Place, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"1\n" * 20)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with running(place, "LMOS", "slowly", "--stream", str(rows), stderr=theirs, env=environment) as process:
        os.close(theirs)
        assert process.wait(PATIENCE) == 0
        shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert "slowly  20 items, 40 B sent" in shown
