"""The commands over real sockets: with an agent of ours, with somebody else's, with nobody; as processes."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import threading
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import trio
from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.sync.server import Server, ServerConnection, serve

from lmos_actors import open_node
from lmos_actors.cli import main
from tests.cli import served_agent
from tests.cli.served_agent import Weather
from tests.cli.test_remote import Ran
from tests.commands import RunningCommand, started
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 40.0


async def _serve(told: queue.SimpleQueue[Any]) -> None:
    over = trio.Event()
    async with open_node(listen="ws://127.0.0.1:0") as node:
        await node.start(partial(Weather, pace=0.02))
        told.put((node.urls[0], trio.lowlevel.current_trio_token(), over))
        await over.wait()


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """Where an agent of ours is served: `127.0.0.1:PORT`."""
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    thread = threading.Thread(target=trio.run, args=(_serve, told))
    thread.start()
    url, token, over = told.get(timeout=PATIENCE)
    yield url.partition("://")[2]
    token.run_sync_soon(over.set)
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Call the command in this process."""

    def call(*words: str) -> Ran:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capfd.readouterr())

    return call


# --- an agent of ours


@pytest.mark.parametrize("url", ["http://{}/agents/weather", "http://{}", "ws://{}/agents/weather"])
def test_every_kind_of_url(call: Callable[..., Ran], place: str, url: str) -> None:
    there = url.format(place)
    assert call("read", there, "units", "--raw") == Ran(0, "celsius\n", "")
    ran = call("call", there, "forecast", "city=Bonn", "-q")
    assert (ran.code, ran.lines) == (0, [{"action": "forecast", "output": "Bonn is sunny for 1"}])


def test_a_file_with_the_description(call: Callable[..., Ran], place: str, tmp_path: Any) -> None:
    with socket.create_connection(tuple(place.split(":"))) as asked:
        asked.sendall(f"GET /agents/weather HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n".encode())
        head, _, body = b"".join(iter(lambda: asked.recv(65536), b"")).partition(b"\r\n\r\n")
    assert b" 200 " in head
    (tmp_path / "weather.td.json").write_bytes(body)
    assert call("read", str(tmp_path / "weather.td.json"), "level").lines == [
        {"property": "level", "value": 3}
    ]


def test_without_a_description(call: Callable[..., Ran], place: str) -> None:
    there = f"ws://{place}/agents/weather"
    assert len(call("call", there, "hours", "count=3", "--many").lines) == 3
    unknown = call("call", there, "forcast", "city=Bonn")
    assert (unknown.code, unknown.lines[0]["error"]["type"]) == (1, "NotFound")
    assert call("write", there, "units", "kelvin").code == 2
    assert sorted(line["property"] for line in call("read", there).lines) == ["level", "place", "units"]
    many = call("read", f"ws://{place}/ws")
    assert (many.code, "--thing" in many.err) == (2, True)
    assert call("read", f"ws://{place}/ws", "--thing", "weather", "level", "--raw").out == "3\n"


def test_nobody_is_there(call: Callable[..., Ran]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{taken.getsockname()[1]}/agents/weather"
        for scheme in ("http", "ws"):
            ran = call("read", f"{scheme}://{url}", "units")
            assert (ran.code, ran.lines[0]["error"]["type"]) == (3, "ConnectFailed")
            assert ran.err.startswith(f"lmos-actors: cannot connect to {scheme}://{url}: ")
            assert "Connection refused" in ran.err
            assert ran.err.endswith("; is the agent served there?\n")


def test_a_refusal_shows_the_reason_and_no_more(call: Callable[..., Ran], place: str) -> None:
    ran = call("read", f"http://{place}/agents/wether")
    assert ran.code == 3
    assert ran.err.endswith("404 Not Found: no agent 'wether', did you mean '/agents/weather'?\n")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("wss:/127.0.0.1/agents/weather", "no URL"),
        ("htp://127.0.0.1/agents/weather", "did you mean 'http'?"),
        ("http://", "http://"),
    ],
)
def test_urls_that_are_none(call: Callable[..., Ran], url: str, said: str) -> None:
    ran = call("read", url)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize("url", ["http://{}/agents/weather", "http://{}"])
def test_a_description_that_is_served(call: Callable[..., Ran], place: str, url: str) -> None:
    there = url.format(place)
    weather = f"{ROOT}/tests/cli/served_agent.py:Weather"
    ran = call("describe", there, "--strict", "--against", weather)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        f"{there}: Weather, 4 properties, 10 actions, 2 events: ok; against {weather}: nothing differs\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["http://{}/nowhere"],
            3,
            "lmos-actors: cannot connect to http://{}/nowhere: it answered 404 Not Found",
        ),
        (["ws://{}/agents/weather"], 2, "descriptions are read by http:// or https://"),
        (["http://{}/agents/weather", "--base", "ws://x"], 2, "--base: goes with a class"),
        (["htp://{}"], 2, "did you mean 'http'?"),
        (["near.py:Weather", "--header", "a: b"], 2, "--header: goes with a URL"),
        (["near.py:Weather", "--bearer", "env:TOKEN"], 2, "--bearer: goes with a URL"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_no_description(call: Callable[..., Ran], place: str, words: list[str], code: int, said: str) -> None:
    ran = call("describe", *[word.format(place) for word in words])
    assert (ran.code, ran.out) == (code, "")
    assert said.format(place) in ran.err


# --- somebody else's


THING = "urn:uuid:3f1d3a7a-4f97-4e6b-845f-f3c2e1c84c77"


def description(port: int) -> dict[str, Any]:
    form = {"href": f"ws://127.0.0.1:{port}/socket", "subprotocol": "lmosprotocol"}
    return {
        "@context": ["https://www.w3.org/2022/wot/td/v1.1", {"lmos": "https://eclipse.dev/lmos/protocol/v1"}],
        "@type": "lmos:Agent",
        "id": THING,
        "title": "Oracle",
        "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
        "security": "nosec_sc",
        "properties": {"mood": {"type": "string", "observable": True, "forms": [form]}},
        "actions": {
            "ask": {
                "input": {"type": "object", "properties": {"question": {"type": "string"}}},
                "forms": [form],
            }
        },
    }


class Oracle:
    """A server that speaks the messages of the specification, and nothing of ours."""

    def __init__(self) -> None:
        self.silent = False
        self.running = threading.Event()
        self.cancelled = threading.Event()
        self.headers: list[Headers] = []
        self.asked: list[dict[str, Any]] = []

    def http(self, connection: ServerConnection, request: Any) -> Response | None:
        self.headers.append(request.headers)
        if request.path == "/socket":
            return None
        port = connection.local_address[1]
        body = json.dumps(description(port)).encode()
        headers = Headers({"Content-Type": "application/td+json", "Content-Length": str(len(body))})
        return Response(HTTPStatus.OK, "OK", headers, body)

    def talk(self, connection: ServerConnection) -> None:
        for text in connection:
            for answer in self.answers(json.loads(text)):
                connection.send(json.dumps(answer))

    def answers(self, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.asked.append(asked)
        message = asked.get("messageID") or asked["messageId"]
        base = {"thingID": THING, "messageID": str(uuid4()), "correlationID": message}
        match asked["messageType"]:
            case "readProperty":
                yield {**base, "messageType": "propertyReading", "name": "mood", "value": "calm"}
            case "observeProperty":
                yield {**base, "messageType": "propertyReading", "name": "mood", "value": "moved"}
            case "invokeAction" if asked["input"]["question"] == "when?":
                self.running.set()
            case "invokeAction":
                status = {**base, "messageType": "actionStatus", "action": "ask"}
                yield {**status, "status": "pending"}
                yield {**status, "status": "completed", "output": f"no, {asked['input']['question']}"}
            case "cancelAction":
                self.cancelled.set()
                if self.silent:
                    return
                yield {**base, "messageType": "actionStatus", "action": "ask", "status": "cancelled"}
            case _:
                yield {**base, "messageType": "error", "type": "about:blank", "title": "Odd", "status": 400}


@pytest.fixture(params=["lmosprotocol"])
def oracle(request: pytest.FixtureRequest) -> Iterator[tuple[Oracle, str]]:
    made = Oracle()
    offered: Any = [request.param] if request.param else None

    def run(server: Server) -> None:
        with server:
            server.serve_forever()

    server = serve(made.talk, "127.0.0.1", 0, subprotocols=offered, process_request=made.http)  # type: ignore[arg-type]
    thread = threading.Thread(target=run, args=(server,))
    thread.start()
    yield made, f"127.0.0.1:{server.socket.getsockname()[1]}"
    server.shutdown()
    thread.join(PATIENCE)


def test_somebody_elses_agent(call: Callable[..., Ran], oracle: tuple[Oracle, str]) -> None:
    made, there = oracle
    asked = call("call", f"http://{there}/oracle", "ask", "question=7", "--header", "X-Who: me")
    assert asked == Ran(0, '{"action": "ask", "output": "no, 7"}\n', "")
    assert [headers["X-Who"] for headers in made.headers] == ["me", "me"]
    assert call("read", f"http://{there}/oracle", "mood", "--raw").out == "calm\n"
    assert call("read", f"ws://{there}/socket", "mood", "--thing", THING, "--raw").out == "calm\n"
    seen = call("observe", f"http://{there}/oracle", "mood", "--count", "1")
    assert (seen.code, seen.lines) == (0, [{"property": "mood", "value": "moved"}])


@pytest.mark.slow
def test_somebody_elses_action_is_cancelled(call: Callable[..., Ran], oracle: tuple[Oracle, str]) -> None:
    made, there = oracle
    ran = call("call", f"http://{there}/oracle", "ask", "question=when?", "--within", "1s")
    assert (ran.code, ran.out) == (124, "")
    assert made.cancelled.is_set()


@pytest.mark.parametrize("oracle", [None], indirect=True, ids=["no subprotocol"])
@pytest.mark.parametrize(("habits", "id_"), [("auto", "messageId"), ("spec", "messageID")])
def test_habits_can_be_chosen(
    call: Callable[..., Ran], oracle: tuple[Oracle, str], habits: str, id_: str
) -> None:
    made, there = oracle
    ran = call("read", f"ws://{there}/socket", "mood", "--thing", THING, "--raw", "--habits", habits)
    assert ran == Ran(0, "calm\n", "")
    assert [id_ in asked for asked in made.asked] == [True]


# --- processes


def process(*words: str) -> RunningCommand:
    return started(words, Path.cwd())


def test_an_interrupted_process_has_cancelled_its_action(place: str) -> None:
    served_agent.SAID.clear()
    words = ["call", f"http://{place}/agents/weather", "hours", "count=100000"]
    with process(*words) as ran:
        assert ran.stdout is not None
        ran.stdout.readline()
        ran.send_signal(signal.SIGINT)
        out, err = ran.communicate(timeout=PATIENCE)
    assert (ran.returncode, err) == (130, "")
    assert all(json.loads(line)["action"] == "hours" for line in out.splitlines())


def test_a_second_interrupt_ends_at_once(oracle: tuple[Oracle, str]) -> None:
    made, there = oracle
    made.silent = True
    with process("call", f"http://{there}/oracle", "ask", "question=when?") as ran:
        assert made.running.wait(PATIENCE)
        ran.send_signal(signal.SIGINT)
        assert made.cancelled.wait(PATIENCE)
        ran.send_signal(signal.SIGINT)
        out, err = ran.communicate(timeout=PATIENCE)
    assert (ran.returncode, out, err) == (130, "", "interrupted\n")


def test_nobody_reads_any_more(place: str) -> None:
    words = ["call", f"http://{place}/agents/weather", "hours", "count=100000"]
    with process(*words) as ran:
        assert ran.stdout is not None
        ran.stdout.readline()
        ran.stdout.close()
        assert ran.stderr is not None
        assert ran.stderr.read() == ""
        assert ran.wait(PATIENCE) == 1


@pytest.mark.slow
def test_on_a_terminal(place: str) -> None:
    mine, theirs = os.openpty()
    environment = {"TERM": "xterm-256color", "COLUMNS": "80", "PATH": os.environ["PATH"]}
    words = ["call", f"http://{place}/agents/weather", "echo", 'value={"a": 1}']
    progress = ["call", f"http://{place}/agents/weather", "forecast", "city=Bonn"]
    texts: list[str] = []
    for each in (words, progress):
        with started(each, Path.cwd(), stdout=theirs, stderr=theirs, environment=environment) as ran:
            assert ran.wait(PATIENCE) == 0
        os.write(theirs, b"\0")  # what has been written comes before it, in its own time
        texts.append("")
        while not texts[-1].endswith("\0"):
            texts[-1] += os.read(mine, 65536).decode()
    os.close(theirs)
    os.close(mine)
    assert "\x1b[" in texts[0]
    assert "forecast  #" in texts[1]
    assert texts[1].endswith("\r\x1b[2KBonn is sunny for 1\r\n\0")
