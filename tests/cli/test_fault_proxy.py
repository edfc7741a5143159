"""The command `fault-proxy`: its lines, its faults on real connections, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.cli import main
from tests.commands import called, started
from tests.docs.test_documents import DOCS, blocks, commands

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.commands import RunningCommand
    from tests.docs.test_documents import Command

PATIENCE = 60.0
NOWHERE = ("--to", "127.0.0.1:1")
FROM_FIFO = "import os; os.dup2(os.open('faults', os.O_RDWR), 0)"


class Proxied:
    """A proxy that runs, with its faults in a FIFO, and the server behind it, which the test is."""

    def __init__(self, process: RunningCommand, server: socket.socket, folder: Path) -> None:
        self.process = process
        self.server = server
        self._faults = os.open(folder / "faults", os.O_WRONLY)
        self.listening = self.said("listening")

    def said(self, event: str) -> dict[str, Any]:
        """Return the next line, which is of an event."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line)
        assert found.pop("event") == event, line
        return found

    def order(self, line: str) -> None:
        """Write a line to its standard input."""
        os.write(self._faults, f"{line}\n".encode())

    def client(self) -> socket.socket:
        """Connect to the proxy."""
        place = self.listening["host"], self.listening["port"]
        return socket.create_connection(place, PATIENCE)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a connection through the proxy."""
        client = self.client()
        server, _ = self.server.accept()
        server.settimeout(PATIENCE)
        return client, server

    def close(self) -> None:
        """Let go of the FIFO."""
        os.close(self._faults)


@contextmanager
def proxied(folder: Path, *words: str) -> Generator[Proxied]:
    os.mkfifo(folder / "faults")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        to = f"127.0.0.1:{server.getsockname()[1]}"
        with started(("fault-proxy", "--to", to, *words), folder, first=FROM_FIFO) as process:
            found = Proxied(process, server, folder)
            assert found.listening["to"] == to
            try:
                yield found
            finally:
                found.close()


def test_faults_come_from_the_standard_input_and_are_said(tmp_path: Path) -> None:
    with proxied(tmp_path, "--latency", "lognormal:1ms:3ms") as it:
        client, server = it.pair()
        with client, server:
            client.sendall(b"ping")
            assert server.recv(99) == b"ping"
            it.order("cut one-way in for 100ms")
            fault = it.said("fault")
            assert fault == {
                "id": 1, "fault": "cut", "words": "cut one-way in for 100ms", "way": "in", "duration": 0.1
            }  # fmt: skip
            client.sendall(b"late")
            server.sendall(b"pong")
            assert client.recv(99) == b"pong"
            assert it.said("healed") == {"id": 1, "fault": "cut"}
            assert server.recv(99) == b"late"
            client.shutdown(socket.SHUT_WR)
            assert server.recv(99) == b""
            server.sendall(b"bye")
            server.shutdown(socket.SHUT_WR)
            assert client.recv(99) == b"bye"
            assert client.recv(99) == b""
        client, server = it.pair()
        with client, server:
            client.sendall(b"!")
            assert server.recv(99) == b"!"
            it.order("hang\n\n latency  exponential:5ms\nheal")
            assert [it.said("fault")["words"] for _ in range(2)] == ["hang", "latency exponential:5ms"]
            assert [it.said("healed")["fault"] for _ in range(2)] == ["hang", "latency"]
            it.order("reset")
            assert it.said("reset") == {"connections": 1}
            for end in (client, server):
                with pytest.raises(ConnectionResetError):
                    end.recv(99)
        it.process.send_signal(signal.SIGINT)
        assert it.said("stopped") == {
            "connections": 2, "unreachable": 0, "reset": 1, "bytes_in": 9, "bytes_out": 7
        }  # fmt: skip
        assert (it.process.communicate(PATIENCE), it.process.wait()) == (("", ""), 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_end_closes_all_connections(tmp_path: Path, number: int) -> None:
    with proxied(tmp_path) as it:
        client, server = it.pair()
        with client, server:
            client.sendall(b"ping")
            assert server.recv(99) == b"ping"
            it.order("cut")
            it.said("fault")
            it.process.send_signal(number)
            assert it.said("stopped")["bytes_in"] == 4
            assert it.process.wait(PATIENCE) == 0
            assert (client.recv(99), server.recv(99)) == (b"", b"")


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    with proxied(tmp_path) as it:
        it.order("cut")
        it.said("fault")
        with it.client() as client:
            it.server.close()
            it.order("heal")
            it.said("healed")
            with pytest.raises(ConnectionResetError):
                client.recv(99)
        assert it.said("unreachable") == {"why": "Connection refused", "times": 1}
        it.process.send_signal(signal.SIGINT)
        assert it.said("stopped")["unreachable"] == 1


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = called(("fault-proxy", *NOWHERE, "--listen", place), tmp_path, timeout=PATIENCE)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith(f"lmos-actors: cannot listen at {place}: ")


def test_what_is_wrong_at_a_terminal_is_explained_and_the_end_of_the_input_is_not_the_end(
    tmp_path: Path,
) -> None:
    ours, its = os.openpty()
    first = f"import os; os.dup2(os.open({os.ttyname(its)!r}, os.O_RDWR | os.O_NOCTTY), 0)"
    with started(("fault-proxy", *NOWHERE), tmp_path, first=first) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "listening" in process.stdout.readline()
        os.write(ours, b"cot\n")
        assert process.stderr.readline() == 'lmos-actors: no fault "cot", did you mean "cut"?\n'
        os.write(ours, b"heal\n")
        assert process.stderr.readline() == "there is nothing to heal\n"
        os.write(ours, b"reset\n\x04")
        assert "reset" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert "stopped" in process.stdout.readline()
        assert process.wait(PATIENCE) == 0
    os.close(ours)
    os.close(its)


def test_a_standard_input_that_is_closed(tmp_path: Path) -> None:
    with started(
        ("fault-proxy", *NOWHERE), tmp_path, first="import os, sys; sys.stdin = None; os.close(0)"
    ) as it:
        assert it.stdout is not None
        assert "listening" in it.stdout.readline()
        it.send_signal(signal.SIGINT)
        assert "stopped" in it.stdout.readline()
        assert it.wait(PATIENCE) == 0


# ---- what is wrong


WRONG: list[tuple[tuple[str, ...], str]] = [
    ((), "--to"),
    (("--to", "127.0.0.1"), "--to: '127.0.0.1' is not HOST:PORT: it has no port"),
    (
        ("--to", "http://127.0.0.1:80/agents/weather"),
        "--to: 'http://127.0.0.1:80/agents/weather' is not HOST",
    ),
    (("--to", "127.0.0.1:80/x"), "is not HOST:PORT"),
    (("--to", "127.0.0.1:99999"), "is not HOST:PORT"),
    (("--to", "127.0.0.1:0"), "--to: port 0"),
    (("--to", "localhost:9000", "--listen", "9000"), "--to: leads back to the proxy itself"),
    ((*NOWHERE, "--listen", "0.0.0.0:0"), "--listen: other machines would reach 127.0.0.1:1"),
    ((*NOWHERE, "--latency", "20"), "--latency: '20' has no unit, did you mean '20s'?"),
    ((*NOWHERE, "--latency", "lognorm:1ms:2ms"), '"lognorm", did you mean "lognormal"?'),
    ((*NOWHERE, "--latency", "erlang:1ms"), '"erlang": one of constant, uniform,'),
    ((*NOWHERE, "--latency", "lognormal:25ms"), '--latency: "lognormal" is written lognormal:MEDIAN:P99'),
    ((*NOWHERE, "--latency", "uniform:2ms:1ms"), '"max" is less than "min": 1ms and 2ms'),
    ((*NOWHERE, "--jitter", "normal:1ms:1ms"), "--jitter: below zero in its tail"),
    ((*NOWHERE, "--jitter", "empirical:1ms:2"), "--jitter: '2' has no unit"),
    ((*NOWHERE, "--jitter", "empirical:@no.txt"), "no.txt: no such file"),
    ((*NOWHERE, "--jitter", "empirical:@bad.txt"), "bad.txt:2:1: 7 has no unit"),
    ((*NOWHERE, "--loss", "1"), "--loss: 1.0 is no share"),
    ((*NOWHERE, "--corrupt", "-0.1"), "--corrupt: -0.1 is no share"),
    ((*NOWHERE, "--bandwidth", "1MB"), "--bandwidth: '1MB' is not a size"),
    ((*NOWHERE, "--bandwidth", "0B"), "--bandwidth: a line without bandwidth carries nothing"),
]


def ended(words: tuple[str, ...], ran: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as raised:
        main(["fault-proxy", *words])
    found = ran.readouterr()
    assert isinstance(raised.value.code, int)
    return raised.value.code, found.out, found.err


@pytest.mark.parametrize(("words", "part"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_usage_that_is_wrong(
    words: tuple[str, ...],
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.txt").write_text("5ms\n7\n")
    code, out, err = ended(words, capfd)
    assert (code, out) == (2, "")
    assert part in err
    assert "Traceback" not in err


LINES = [
    ("cot", 'standard input:2:1: no fault "cot", did you mean "cut"?'),
    ("partition", 'no fault "partition": one of cut, hang, reset, latency, loss, heal'),
    ("cut one-wy in", 'standard input:2:5: unexpected "one-wy", did you mean "one-way"?'),
    ("cut one-way", "standard input:2:12: a way, in or out, is missing"),
    ("cut one-way up", 'standard input:2:13: no way "up": one of in, out'),
    ("  cut for", "standard input:2:10: a duration such as 5s or 40ms is missing"),
    ("cut for 5", "standard input:2:9: '5' has no unit, did you mean '5s'?"),
    ("cut for 5s more", 'standard input:2:12: unexpected "more"'),
    ("reset for 5s", 'standard input:2:7: "reset" happens at once, for no time'),
    ("heal for 5s", '"heal" happens at once, for no time'),
    ("latency", "a delay, such as 200ms is missing"),
    ("latency fast", "standard input:2:9: 'fast' is not a duration"),
    ("loss 2", "standard input:2:6: 2 is no share, from 0 to below 1"),
    ("loss some", "some is no share"),
]


@pytest.mark.parametrize(("line", "part"), LINES, ids=[line for line, _ in LINES])
def test_a_line_that_is_wrong_ends_what_no_one_types(
    line: str,
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    lines = tmp_path / "lines"
    lines.write_text(f"loss 0.5 for 1h\n{line}\nheal\n")
    with lines.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        code, out, err = ended(NOWHERE, capfd)
    assert code == 2
    assert [json.loads(each)["event"] for each in out.splitlines()] == ["listening", "fault", "stopped"]
    assert part in err
    assert "Traceback" not in err


# ---- the guide


@pytest.mark.slow
def test_the_guide(tmp_path: Path) -> None:
    """The commands of the page are run as they stand, at free ports."""
    page = blocks((DOCS / "guides/break-connections.md").read_text(encoding="utf-8"))
    (agent,) = [block for block in page if block.title == "weather.py"]
    (tmp_path / "weather.py").write_text(agent.body, encoding="utf-8")
    serve, proxy, read = (
        command
        for block in page
        if "tests/cli/test_fault_proxy.py" in block.marker
        for command in commands(block)
    )
    ports = {"9000": free_port(), "8080": free_port()}

    def words_of(command: Command) -> list[str]:
        return [re.sub("9000|8080", lambda found: ports[found[0]], word) for word in command.arguments]

    os.mkfifo(tmp_path / "faults")
    served = (*words_of(serve), "--listen", f"ws://127.0.0.1:{ports['8080']}")
    with started(served, tmp_path) as server, started(words_of(proxy), tmp_path, first=FROM_FIFO) as between:
        assert server.stdout is not None
        assert between.stdout is not None
        while json.loads(server.stdout.readline())["event"] != "ready":
            pass
        listening = json.loads(between.stdout.readline())
        assert f"127.0.0.1:{listening['port']} leads to {listening['to']}, Ctrl-C ends" == re.sub(
            "9000|8080", lambda found: ports[found[0]], proxy.listing.strip()
        )
        ran = called(words_of(read), tmp_path, timeout=PATIENCE)
        assert json.loads(ran.stdout)["value"] == read.listing.strip(), ran
        with (tmp_path / "faults").open("w") as faults:
            print("hang for 30s", file=faults, flush=True)
            assert json.loads(between.stdout.readline())["words"] == "hang for 30s"
            ran = called((*words_of(read), "--within", "500ms"), tmp_path, timeout=PATIENCE)
            assert (ran.returncode, ran.stdout) == (124, "")
        for process in (between, server):
            process.send_signal(signal.SIGINT)
            process.communicate(PATIENCE)
            assert process.wait() == 0


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return str(found.getsockname()[1])
