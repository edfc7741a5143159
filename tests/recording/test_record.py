"""`record` between real servers and clients of three protocols: what it writes, and what comes of that."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import signal
import socket
import stat
import threading
import urllib.request
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from tests.commands import called, script_started, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.commands import RunningCommand

PATIENCE = 60.0

AGENTS = '''
from collections.abc import AsyncIterator

import trio

from lmos_actors import ActionFailed, Agent, Event, Property, Secret, action, event, prop
from lmos_actors.facades import ChatAgent, ChatTurn


class Store(Agent):
    """Holds goods."""

    stock: Property[int] = prop(default=10)
    pin: Property[str] = prop(default="", write_only=True)
    sold: Event[int] = event()

    @action
    async def take(self, count: int) -> int:
        """Take goods out, and return how many are left."""
        await trio.sleep(0.02)
        if count > self.stock:
            raise ActionFailed({"code": "TOO_MANY", "message": f"{count} are not there"})
        self.stock -= count
        self.sold.emit(count)
        return self.stock

    @action
    async def rows(self, count: int) -> AsyncIterator[int]:
        """Yield numbers."""
        for number in range(count):
            await trio.sleep(0.01)
            yield number

    @action
    async def unlock(self, word: Secret[str], door: str) -> str:
        """Open a door, and tell which word it was, which is no secret by its type."""
        return f"{door} opened by {word}"

    @action
    async def wait(self) -> None:
        """Wait for ever."""
        await trio.sleep_forever()


class Bot(ChatAgent):
    """Repeats what is said."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        if turn.text == "fail":
            raise ActionFailed({"code": "NOPE", "message": "not today"})
        for word in ("You said ", turn.text):
            await trio.sleep(0.01)
            yield word
'''

TALK = """
import os
import sys

import trio

from lmos_actors.facades import RelayMessage, open_relay, register_on_relay
from lmos_actors.security import BearerToken, Credentials

DIRECT, RECORDED = {direct!r}, {recorded!r}


async def let_in(url, name):
    made = await register_on_relay(url, name)
    os.environ[name] = made.token
    print(made.token, flush=True)
    return Credentials({{url.removesuffix("/arc"): BearerToken("env:" + name)}})


async def helper(credentials, *, task_status):
    async with open_relay(DIRECT, credentials=credentials) as relay:
        await relay.command("ping")
        task_status.started()
        async for heard in relay:
            if isinstance(heard, RelayMessage) and heard.type == "question":
                fault = {{"error": {{"code": "NO", "message": "not this"}}}}
                await relay.answer(heard, fault if heard.payload == "bad" else {{"echo": heard.payload}})
                await relay.say("I have answered", type="thought")


async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(helper, await let_in(DIRECT, "helper"))
        async with open_relay(RECORDED, credentials=await let_in(RECORDED, "asker")) as relay:
            await relay.command("ping")
            await relay.ask("how?", "helper")
            await relay.ask("all of you?", "*")
            await relay.ask("bad", "helper")
            await relay.say({{"n": 1, "password": "hunter2hunter2"}}, "*", type="data")
            await relay.say({{"n": 2}}, "helper", type="data")
            await relay.command("ping")
        nursery.cancel_scope.cancel()


trio.run(main)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    (tmp_path / "things.py").write_text(AGENTS, encoding="utf-8")
    return tmp_path


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[str]:
    """Serve, and yield the address as `HOST:PORT`."""
    where = () if "--listen" in words else ("--listen", "ws://127.0.0.1:0")
    with started((*words, *where), folder) as process:
        assert process.stdout is not None
        found = None
        while found is None:
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            found = re.search(r"127\.0\.0\.1:[0-9]+", line)
        yield found[0]
        process.terminate()
        process.communicate(PATIENCE)


@contextmanager
def recording(folder: Path, to: str, *words: str) -> Iterator[tuple[RunningCommand, str]]:
    """Record to `log.jsonl`, and yield the process and the address for clients."""
    with started(("record", "--to", to, "--out", "log.jsonl", *words), folder) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("recording "), (line, process.stderr.read() if process.stderr else "")
        yield process, re.findall(r"connect to (\S+);", line)[0]


def ended(process: RunningCommand, number: int = signal.SIGINT) -> tuple[int, str, str]:
    process.send_signal(number)
    out, err = process.communicate(PATIENCE)
    return process.wait(), out, err


def call(folder: Path, *words: str) -> tuple[int, str]:
    ran = called(words, folder, timeout=PATIENCE)
    return ran.returncode, ran.stdout + ran.stderr


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


# --- the same over three protocols


def talk_lmos(folder: Path, server: str, recorder: str) -> list[str]:
    url = f"{recorder}/agents/store"
    codes = [
        call(folder, "call", url, "take", "count=3")[0],
        call(folder, "read", url, "stock")[0],
        call(folder, "write", url, "pin", '"4711-0815"')[0],
        call(folder, "call", f"ws://{url.partition('://')[2]}", "rows", "count=3", "--many")[0],
        call(folder, "call", url, "unlock", "word=hunter2hunter2", "door=cellar")[0],
        call(folder, "call", url, "take", "count=99")[0],
    ]
    assert codes == [0, 0, 0, 0, 0, 1]
    return ["4711-0815", "hunter2hunter2"]


def talk_omnia(folder: Path, server: str, recorder: str) -> list[str]:
    url = f"ws://{recorder.partition('://')[2]}/?agent=bot&token=s3cr3t-of-omnia"
    codes = [call(folder, "chat", url, "--message", text)[0] for text in ("good morning", "fail")]
    assert codes == [0, 1]
    return ["s3cr3t-of-omnia"]


def talk_relay(folder: Path, server: str, recorder: str) -> list[str]:
    direct, recorded = f"ws://{server}/arc", f"ws://{recorder.partition('://')[2]}/arc"
    with script_started(TALK.format(direct=direct, recorded=recorded), folder) as script:
        out, err = script.communicate(PATIENCE)
        assert script.wait() == 0, err
    tokens = out.split()
    assert len(tokens) == 2
    return [*tokens, "hunter2hunter2"]


PROTOCOLS: dict[str, tuple[tuple[str, ...], Any, tuple[str, ...]]] = {
    "lmos": (("serve", "store=things.py:Store"), talk_lmos, ("do: invoke", "do: stream", "do: write")),
    "omnia": (("serve", "bot=things.py:Bot", "--omnia"), talk_omnia, ("speaks: omnia", "action: chat")),
    "relay": (("relay", "serve", "--extension", "receipts"), talk_relay, ("speaks: relay", "do: say")),
}


@pytest.mark.slow
@pytest.mark.parametrize("speaks", PROTOCOLS)
def test_what_is_recorded_plays_again_without_its_secrets(folder: Path, speaks: str) -> None:
    served, talk, steps = PROTOCOLS[speaks]
    with serving(folder, *served) as server, recording(folder, f"http://{server}") as (process, url):
        secrets = talk(folder, server, url)
        code, out, err = ended(process)
    assert (code, err) == (0, "")
    assert out.startswith("recorded ")
    log = folder / "log.jsonl"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    written = log.read_text(encoding="utf-8")
    assert [secret for secret in secrets if secret in written] == []
    assert call(folder, "diff", "log.jsonl", "log.jsonl")[0] == 0
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "recorded.yaml")
    assert code == 0, said
    story = (folder / "recorded.yaml").read_text(encoding="utf-8")
    assert [step for step in steps if step not in story] == []
    assert "do: expect" in story
    ran = called(("run", "recorded.yaml", "--json"), folder, timeout=PATIENCE)
    assert ran.returncode == 0, ran
    (found,) = json.loads(ran.stdout)["files"][0]["runs"]
    last = max(data["t"] for data in records(folder) if "t" in data)
    assert found["virtual"] == pytest.approx(last, abs=0.0001)  # of instants in whole microseconds


@pytest.mark.slow
@pytest.mark.parametrize("speaks", PROTOCOLS)
def test_a_changed_recording_is_noticed(folder: Path, speaks: str) -> None:
    served, talk, _ = PROTOCOLS[speaks]
    with serving(folder, *served) as server, recording(folder, f"ws://{server}") as (process, url):
        talk(folder, server, url.replace("ws://", "http://"))
        assert ended(process)[0] == 0
    assert call(folder, "replay", "log.jsonl", "--as-scenario", "recorded.yaml")[0] == 0
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    place = next(n for n, line in enumerate(lines) if is_changeable(json.loads(line)))
    change(folder, lines, place, '"value":"another"')
    code, said = call(folder, "run", "recorded.yaml", "--check-determinism", "off")
    assert (code, "was changed after it was written" in said) == (2, True), said
    with_digest(folder, lines, chunks=speaks != "omnia")
    code, said = call(folder, "run", "recorded.yaml", "--check-determinism", "off")
    assert (code, "another" in said) == (1, True), said


def is_changeable(data: dict[str, Any]) -> bool:
    """Whether a record is an answer that a step expects."""
    return data.get("kind") == "answered" and data.get("value") is not None and data["agent"] != "relay"


def change(folder: Path, lines: list[str], place: int, value: str) -> None:
    lines[place] = re.sub(r'"value":.*(?=\}$)', value, lines[place])
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def with_digest(folder: Path, lines: list[str], *, chunks: bool) -> None:
    """Write the lines with the last one that belongs to them, with or without parts of answers."""
    kept = [line for line in lines[:-1] if chunks or '"kind":"item"' not in line]
    text = "\n".join(kept) + "\n"
    end = {"end": len(kept) - 1, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    (folder / "log.jsonl").write_text(text + json.dumps(end) + "\n", encoding="utf-8")


@pytest.mark.slow
def test_a_description_leads_back_to_the_recorder(folder: Path) -> None:
    with (
        serving(folder, "serve", "store=things.py:Store") as server,
        recording(folder, f"http://{server}/agents/store") as (process, url),
    ):
        code, said = call(folder, "describe", url)
        assert code == 0, said
        assert call(folder, "discover", url)[0] == 0
        assert call(folder, "call", url, "take", "count=1") == (0, '{"action": "take", "output": 9}\n')
        assert ended(process)[0] == 0
    found = [data for data in records(folder) if data.get("kind") == "connected"]
    assert [(data["target"], data["speaks"], data["status"]) for data in found] == [("/ws", "lmos", 101)]


@pytest.mark.slow
def test_requests_over_http_are_requests_to_the_thing(folder: Path) -> None:
    import urllib.request

    def ask(url: str, method: str, data: bytes | None) -> bytes:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return b"%d" % error.code

    with (
        serving(folder, "serve", "store=things.py:Store") as server,
        recording(folder, f"http://{server}/agents/store") as (process, url),
    ):
        ask(url, "GET", None)
        assert ask(f"{url}/properties/stock", "GET", None) == b"10"
        assert ask(f"{url}/properties/stock", "PUT", b"7") == b""
        assert ask(f"{url}/properties/pin", "PUT", b'"4711-0815"') == b""
        assert ask(f"{url}/actions/take?count=2", "POST", b"") == b"5"
        assert ask(f"{url}/actions/unlock", "POST", b'{"word": "hunter22", "door": "A"}')
        assert ask(f"{url}/actions/take", "POST", b'{"count": 99}') == b"409"
        assert ended(process)[0] == 0
    asked = {data["id"]: data for data in records(folder) if data.get("kind") == "sent"}
    answers = {data["id"]: data for data in records(folder) if data.get("kind") == "answered"}
    assert [(each["verb"], each["affordance"], each.get("input")) for each in asked.values()] == [
        ("read", "stock", None),
        ("write", "stock", 7),
        ("write", "pin", "***"),
        ("invoke", "take", {"count": 2}),
        ("invoke", "unlock", {"word": "***", "door": "A"}),
        ("invoke", "take", {"count": 99}),
    ]
    assert [each.get("value") for each in answers.values()] == [10, None, None, 5, "A opened by ***", None]
    assert list(answers.values())[-1]["output"] == {"code": "TOO_MANY", "message": "99 are not there"}
    assert "hunter22" not in (folder / "log.jsonl").read_text(encoding="utf-8")


@contextmanager
def answering_at_once(*answers: tuple[str, bytes, int]) -> Iterator[str]:
    """Serve HTTP, and yield the address: each answer is sent before its request has come.

    An answer is its type, its bytes, and how many they are by its head. The first connection, by which the
    recorder looks whether there is a server, gets none.
    """

    def serve_each(listener: socket.socket) -> None:
        listener.accept()[0].close()
        for kind, body, length in answers:
            with listener.accept()[0] as connection:
                head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
                connection.sendall(head.encode() + body)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_each, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(PATIENCE)


def test_an_answer_that_comes_at_once_is_that_of_its_request(folder: Path) -> None:
    """Also where the recorder has the answer before it has read the request."""
    times = 10
    on, fade = [{"href": "/on", "op": "readproperty"}], [{"href": "/fade"}]
    forms: dict[str, Any] = {"properties": {"on": {"forms": on}}, "actions": {"fade": {"forms": fade}}}
    described = json.dumps({**LAMP, **forms}).encode()
    answers = [("application/td+json", described, len(described))]
    answers += [("application/json", b"10", 2), ("application/json", b'"ok"', 4)] * times
    answers += [("text/plain", b"10", 2), ("application/json", b"10", 3)]  # one of another type, one cut
    with answering_at_once(*answers) as server, recording(folder, server) as (process, url):
        authority = url.partition("://")[2]

        def ask(method: str, target: str, body: str | None = None) -> bytes:
            client = http.client.HTTPConnection(authority, timeout=PATIENCE)
            with closing(client):
                client.request(method, target, body)
                return client.getresponse().read()

        ask("GET", "/")
        for _ in range(times):
            assert ask("GET", "/on") == b"10"
            assert ask("POST", "/fade", '{"to": 3}') == b'"ok"'
        assert ask("GET", "/on") == b"10"
        with pytest.raises(http.client.IncompleteRead):
            ask("GET", "/on")
        code, out, _ = ended(process)
    assert (code, "1 cut by the server" in out, "1 not understood" in out) == (3, True, True), out
    found = [data for data in records(folder) if data.get("kind") in ("sent", "answered")]
    asked = [data["id"] for data in found if data["kind"] == "sent"]
    assert asked == list(range(1, 2 * times + 3))
    values = [(data["id"], data["value"]) for data in found if data["kind"] == "answered"]
    assert values == list(zip(asked, times * [10, "ok"], strict=False))


def test_a_body_that_comes_behind_its_answer_is_recorded(folder: Path) -> None:
    """Also a client that sends it once it has the whole answer."""
    described = json.dumps({**LAMP, "actions": {"fade": {"forms": [{"href": "/fade"}]}}}).encode()
    answers = [("application/td+json", described, len(described)), ("application/json", b'"ok"', 4)]
    answers += [("application/json", b"1", 1)]
    with answering_at_once(*answers) as server, recording(folder, server) as (process, url):
        with urllib.request.urlopen(f"{url}/", timeout=PATIENCE) as answer:
            assert answer.status == 200
        client = http.client.HTTPConnection(url.partition("://")[2], timeout=PATIENCE)
        with closing(client):
            client.putrequest("POST", "/fade")
            client.putheader("Content-Length", "9")
            client.endheaders()
            assert client.getresponse().read() == b'"ok"'
            client.send(b'{"to": 3}')
            client.request("GET", "/next")  # on the same connection, so what was sent has been read
            assert client.getresponse().read() == b"1"
        assert ended(process)[0] == 0
    found = [data for data in records(folder) if data.get("kind") in ("sent", "answered")]
    assert [(data.get("input"), data.get("value")) for data in found] == [({"to": 3}, None), (None, "ok")]


@pytest.mark.slow
def test_it_connects_over_tls_and_clients_do_not(folder: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    served = ("serve", "store=things.py:Store", "--cert", "server.pem", "--listen", "wss://127.0.0.1:0")
    with serving(folder, *served) as server:
        code, said = call(folder, "record", "--to", f"wss://{server}", "--out", "log.jsonl")
        assert (code, "--ca FILE" in said) == (3, True), said
        with recording(folder, f"wss://{server}", "--ca", "ca.pem") as (process, url):
            assert url.startswith("ws://127.0.0.1:")
            there = f"http://{url.partition('://')[2]}/agents/store"
            assert call(folder, "call", there, "take", "count=1") == (0, '{"action": "take", "output": 9}\n')
            assert ended(process)[0] == 0
    (found,) = [data for data in records(folder) if data.get("kind") == "connected"]
    assert (found["target"], found["status"]) == ("/ws", 101)


# --- how it ends


@pytest.mark.slow
def test_a_recording_that_was_killed_is_as_good_as_far_as_it_goes(folder: Path) -> None:
    with (
        serving(folder, "serve", "store=things.py:Store") as server,
        recording(folder, f"http://{server}") as (process, url),
    ):
        assert call(folder, "call", f"{url}/agents/store", "take", "count=3")[0] == 0
        process.kill()
        process.communicate(PATIENCE)
    log = folder / "log.jsonl"
    text = log.read_text(encoding="utf-8")
    assert '"end":' not in text.splitlines()[-1]
    log.write_text(text + '{"n":999,"t":9.0,"ki', encoding="utf-8")
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "recorded.yaml")
    assert code == 0, said
    code, said = call(folder, "run", "recorded.yaml", "--check-determinism", "off")
    assert code == 0, said


def test_it_ends_in_order_while_requests_are_open(folder: Path) -> None:
    with (
        serving(folder, "serve", "store=things.py:Store") as server,
        recording(folder, f"http://{server}") as (process, url),
        started(("call", f"{url}/agents/store", "wait"), folder) as client,
    ):
        while '"kind":"delivered"' not in (folder / "log.jsonl").read_text(encoding="utf-8"):
            assert client.poll() is None
        code, out, err = ended(process, signal.SIGTERM)
        client.communicate(PATIENCE)
        assert client.wait() == 3
    assert (code, err) == (0, "")
    assert "1 WebSocket, 1 HTTP request, 1 request to agents" in out
    kinds = [data.get("kind") for data in records(folder)]
    assert kinds[-3:] == ["cancelled", "closed", None]
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "recorded.yaml")
    assert code == 0, said
    assert call(folder, "run", "recorded.yaml", "--check-determinism", "off")[0] == 0


def test_once_ends_with_the_clients(folder: Path) -> None:
    with (
        serving(folder, "serve", "store=things.py:Store") as server,
        recording(folder, f"ws://{server}", "--once") as (process, url),
    ):
        assert call(folder, "call", f"{url}/agents/store", "take", "count=3")[0] == 0
        out, err = process.communicate(PATIENCE)
        assert (process.wait(), err) == (0, "")
    assert out.startswith("recorded 1 WebSocket, 0 HTTP requests, 1 request to agents")


def test_without_a_description_no_value_is_written(folder: Path) -> None:
    """A server that has none: the client needs none, and the recorder does not know what is secret."""
    description = call(folder, "describe", "things.py:Store")[1]
    (folder / "store.td.json").write_text(description, encoding="utf-8")
    for more, given in ((), "***"), (("--description", "store.td.json"), {"count": 3}):
        (folder / "log.jsonl").unlink(missing_ok=True)
        with nameless(folder) as server, recording(folder, server, *more) as (process, url):
            code, said = call(folder, "call", f"{url}", "take", "count=3", "--thing", thing_in(description))
            assert code == 0, said
            code, _, err = ended(process)
            assert code == 0
        asked = [data["input"] for data in records(folder) if data.get("kind") == "sent"]
        assert asked == [given]
        assert ("no description of" in err) == (given == "***")


def thing_in(description: str) -> str:
    found: str = json.loads(description)["id"]
    return found


@contextmanager
def nameless(folder: Path) -> Iterator[str]:
    """Answer requests of LMOS, and have no description."""

    def answer(connection: ServerConnection) -> None:
        for text in connection:
            asked = json.loads(text)
            status = {
                "messageType": "actionStatus",
                "thingID": asked["thingID"],
                "messageID": "1",
                "correlationID": asked["messageID"],
                "action": asked["action"],
                "status": "completed",
                "output": 7,
            }
            connection.send(json.dumps(status))

    with answering(answer, "lmosprotocol") as url:
        yield f"{url}/things"


@contextmanager
def answering(answer: Callable[[ServerConnection], None], *subprotocols: str) -> Iterator[str]:
    """Serve WebSockets by a function, and yield the address."""
    with serve(answer, "127.0.0.1", 0, subprotocols=subprotocols or None) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


LAMP = {
    "@context": "https://www.w3.org/2022/wot/td/v1.1",
    "id": "urn:lamp",
    "title": "My Lamp",
    "properties": {"on": {"type": "boolean"}},
    "actions": {"fade": {"input": {"type": "object"}, "output": {"type": "string"}}},
    "events": {"hot": {"data": {"type": "number"}}},
}

KOTLIN: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    (
        {"messageType": "readProperty", "messageId": "1", "property": "on"},
        [{"messageType": "propertyReading", "correlationId": "1", "property": "on", "data": True}],
    ),
    (
        {"messageType": "observeProperty", "messageId": "2", "property": "on"},
        [
            {"messageType": "propertyReading", "correlationId": "2", "property": "on", "data": True},
            {"messageType": "propertyReading", "correlationId": None, "property": "on", "data": False},
        ],
    ),
    (
        {"messageType": "subscribeevent", "messageId": "3", "event": "hot"},
        [
            {"messageType": "acknowledgement", "correlationId": "3", "message": "subscribeevent"},
            {"messageType": "event", "correlationId": "3", "event": "hot", "data": 7},
        ],
    ),
    (
        {"messageType": "invokeAction", "messageId": "4", "action": "fade", "input": {"to": 3}},
        [
            {
                "messageType": "actionStatus",
                "correlationId": "4",
                "action": "fade",
                "status": "completed",
                "output": "ok",
            }
        ],
    ),
    (
        {"messageType": "invokeAction", "messageId": "5", "action": "fade", "input": {"to": 4}},
        [
            {
                "messageType": "error",
                "correlationId": "5",
                "type": "about:blank",
                "title": "Internal Server Error",
                "status": 500,
                "detail": "boom",
                "instance": "x",
            }
        ],
    ),
    (
        {"messageType": "readAllProperties", "messageId": "6"},
        [{"messageType": "propertyReadings", "correlationId": "6", "data": {"on": False}}],
    ),
]
"""What a client of kotlin-wot sends, and what its server answers."""


def test_peers_of_kotlin_wots_habits_are_understood_without_a_subprotocol(folder: Path) -> None:
    def answer(connection: ServerConnection) -> None:
        for (_, answers), _ in zip(KOTLIN, connection, strict=False):
            for each in answers:
                connection.send(json.dumps({"thingId": "urn:lamp", "messageId": "x", **each}))

    (folder / "lamp.td.json").write_text(json.dumps(LAMP), encoding="utf-8")
    with (
        answering(answer) as server,
        recording(folder, server, "--description", "lamp.td.json") as (process, url),
        connect(url) as client,
    ):
        for asked, answers in KOTLIN:
            client.send(json.dumps({"thingId": "urn:lamp", **asked}))
            for _ in answers:
                client.recv(PATIENCE)
        client.close()
        assert ended(process)[0] == 0
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "lamp.yaml")
    assert (code, said) == (0, "wrote lamp.yaml: 6 requests to 1 agent\n")
    story = (folder / "lamp.yaml").read_text(encoding="utf-8")
    for part in ("sequence: [true, false]", "event: hot, sequence: [7]", "contains: boom", "equals: ok"):
        assert part in story
    code, said = call(folder, "run", "lamp.yaml", "--check-determinism", "off")
    assert code == 0, said


# --- mistakes


@pytest.mark.slow
def test_nothing_is_written_over(folder: Path) -> None:
    (folder / "log.jsonl").write_text("mine", encoding="utf-8")
    with serving(folder, "serve", "store=things.py:Store") as server:
        code, said = call(folder, "record", "--to", f"ws://{server}", "--out", "log.jsonl")
    assert (code, "is there already" in said) == (2, True), said
    assert (folder / "log.jsonl").read_text(encoding="utf-8") == "mine"
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "log.jsonl")
    assert code == 2
    (folder / "there.yaml").write_text("mine", encoding="utf-8")
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "there.yaml")
    assert (code, "is there already" in said) == (2, True), said
    assert (folder / "there.yaml").read_text(encoding="utf-8") == "mine"


WRONG: list[tuple[tuple[str, ...], int, str]] = [
    (("--to", "ftp://127.0.0.1", "--out", "log.jsonl"), 2, "the scheme 'ftp'"),
    (("--to", "ws://u:pw@127.0.0.1", "--out", "log.jsonl"), 2, "do not belong in a URL"),
    (("--to", "ws://127.0.0.1/?token=abcdefgh", "--out", "log.jsonl"), 2, "--to: a token does not belong"),
    (("--to", "ws://127.0.0.1:1", "--out", "log.jsonl", "--listen", "0.0.0.0:0"), 2, "--listen: recordings"),
    (("--to", "ws://127.0.0.1:1", "--out", "log.jsonl", "--listen", "wss://127.0.0.1:0"), 2, "without TLS"),
    (("--to", "ws://127.0.0.1:1", "--out", "log.jsonl", "--speaks", "morse"), 2, "morse"),
    (
        ("--to", "ws://127.0.0.1:1", "--out", "log.jsonl", "--description", "no.json"),
        2,
        "--description: cannot",
    ),
    (("--to", "ws://127.0.0.1:1", "--out", "log.jsonl", "--key", "k.pem"), 2, "--key: goes with --cert"),
    (("--to", "ws://127.0.0.1:1", "--out", "log.jsonl"), 3, "Connection refused"),
    (("--out", "log.jsonl"), 2, "--to"),
    (("--to", "ws://127.0.0.1:1"), 2, "--out"),
]


@pytest.mark.parametrize(("words", "code", "part"), WRONG, ids=lambda each: str(each)[:40])
def test_what_is_wrong_is_said_in_a_line(folder: Path, words: tuple[str, ...], code: int, part: str) -> None:
    ran = called(("record", *words), folder, timeout=PATIENCE)
    assert (ran.returncode, ran.stdout) == (code, ""), ran
    assert part in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "abcdefgh" not in ran.stderr
    assert "pw@" not in ran.stderr
    assert not (folder / "log.jsonl").exists()


def test_a_file_that_cannot_be_made(folder: Path) -> None:
    with serving(folder, "serve", "store=things.py:Store") as server:
        code, said = call(folder, "record", "--to", f"ws://{server}", "--out", "nowhere/log.jsonl")
    assert (code, "--out: nowhere/log.jsonl cannot be written" in said) == (2, True), said


def test_what_agents_alone_have_asked_for_is_no_scenario(folder: Path) -> None:
    head = {"schema": "lmos-actors/trace/v1", "seed": None, "run": {"watched": "http://127.0.0.1:8080"}}
    asked = {"n": 1, "t": 0.0, "kind": "sent", "agent": "store", "id": 1, "trace": 1, "affordance": "add"}
    lines = (head, {**asked, "verb": "invoke", "from": "clock", "input": {"count": 1}})
    (folder / "seen.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    code, said = call(folder, "replay", "seen.jsonl", "--as-scenario", "seen.yaml")
    assert (code, "has no request from outside" in said) == (2, True), said
    assert not (folder / "seen.yaml").exists()


@pytest.mark.slow
def test_a_recording_is_not_run_again_and_says_what_can_be_done(folder: Path) -> None:
    with (
        serving(folder, "serve", "store=things.py:Store") as server,
        recording(folder, f"ws://{server}") as (process, _),
    ):
        assert ended(process)[0] == 0
    code, said = call(folder, "replay", "log.jsonl")
    assert (code, "--as-scenario FILE makes a scenario" in said) == (2, True), said
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "it.yaml")
    assert (code, "has no request" in said) == (2, True), said
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "it.toml")
    assert (code, "ends in none of" in said) == (2, True), said
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "it.yaml", "--at", "1s")
    assert (code, "--at: goes with a run" in said) == (2, True), said
