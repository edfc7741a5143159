"""`relay`: a hub as a process, and the commands that are agents on it."""

from __future__ import annotations

import json
import os
import pty
import queue
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import open_node
from lmos_actors.facades import RelayMessage, RelayOptions, open_relay, register_on_relay
from lmos_actors.security import BearerToken, Credentials
from lmos_actors.transport import Accept, Endpoint, FrontDoor, TcpNetwork
from tests.commands import called, started, surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors.transport import Connection

PATIENCE = 60.0


async def _serve(ready: queue.SimpleQueue[Any]) -> None:
    over = trio.Event()
    options = RelayOptions(extensions=("receipts", "history"))
    async with open_node(listen="ws://127.0.0.1:0", relay=options) as node, trio.open_nursery() as nursery:
        url = f"{node.urls[0]}/arc"
        made = await register_on_relay(url, "echo")
        os.environ["ECHO_TOKEN"] = made.token
        nursery.start_soon(_echo, url)
        ready.put((url, trio.lowlevel.current_trio_token(), over))
        await over.wait()
        nursery.cancel_scope.cancel()


async def _echo(url: str) -> None:
    """Answer questions, and say everything again that is sent to it."""
    credentials = Credentials({url.removesuffix("/arc"): BearerToken("env:ECHO_TOKEN")})
    async with open_relay(url, credentials=credentials) as relay:
        async for heard in relay:
            if isinstance(heard, RelayMessage) and heard.sender != "echo":
                if heard.type == "question" or not heard.is_broadcast:
                    await relay.answer(heard, heard.payload)
                else:
                    await relay.say(heard.payload, type="thought", ref=heard.id)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    thread = threading.Thread(target=trio.run, args=(_serve, ready))
    thread.start()
    address, token, over = ready.get(timeout=PATIENCE)
    yield address
    token.run_sync_soon(over.set)
    thread.join()


def relay(folder: Path, *words: str, token: str = "") -> tuple[int, str, str]:
    environment = {**surroundings(), "ARC_TOKEN": token}
    ran = called(("relay", *words), folder, timeout=PATIENCE, environment=environment)
    return ran.returncode, ran.stdout, ran.stderr


def registered(folder: Path, url: str, *words: str) -> dict[str, str]:
    code, out, err = relay(folder, "register", url, *words)
    assert code == 0, err
    found: dict[str, str] = json.loads(out)
    return found


def test_an_agent_registers_sends_and_is_refused(url: str, tmp_path: Path) -> None:
    made = registered(tmp_path, url, "sender")
    token = made["token"]
    assert made["agent_id"] == "sender"
    code, _, err = relay(tmp_path, "register", url.removesuffix("/arc").replace("ws", "http"), "sender")
    assert (code, err) == (1, "lmos-actors: agent_id_taken: this id is taken\n")
    code, out, err = relay(tmp_path, "send", url, "hello", token=token)
    assert (code, json.loads(out)["delivered"]) == (0, 1), err
    words = ("send", url, '{"n": 1}', "--json-payload", "--to", "echo", "--to", "ghost", "--type", "data")
    code, out, err = relay(tmp_path, *words, "--ref", "m-1", token=token)
    assert (code, json.loads(out)["unknown"]) == (0, ["ghost"]), err
    code, out, err = relay(tmp_path, "send", url, "fly", "--to", "relay", token=token)
    assert (code, out) == (1, "")
    assert err.startswith("lmos-actors: unknown_command: ")
    code, out, err = relay(tmp_path, "send", url, "hello", token="tok_wrong")
    assert (code, out) == (3, "")
    assert "401" in err


def test_ping_says_what_the_relay_is(url: str, tmp_path: Path) -> None:
    made = registered(tmp_path, url)
    code, out, err = relay(tmp_path, "ping", url, token=made["token"])
    assert code == 0, err
    found = json.loads(out)
    assert (found["agent"], found["answered"]) == (made["agent_id"], "pong")
    assert found["extensions"] == ["receipts", "history"]


class Hostile:
    """A relay that answers nothing but with what a terminal would obey."""

    obeyed = "\x1b]0;obeyed\x07\x1b[2J"

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        said = {"relay": self.obeyed, "capabilities": [self.obeyed], "extensions": [self.obeyed]}
        refused = {"code": self.obeyed, "message": self.obeyed}
        frame = {"id": "r", "from": "relay", "to": ["me"], "ts": 5}
        self.waiting = [
            json.dumps({**frame, "type": "welcome", "payload": said}).encode(),
            json.dumps({**frame, "type": "error", "payload": refused}).encode(),
        ]

    def text(self, text: str) -> None:
        pass

    def binary(self, data: bytes) -> None:
        pass

    def frames(self, room: int) -> list[bytes]:
        taken, self.waiting = self.waiting, []
        return taken

    def is_behind(self) -> bool:
        return False


@pytest.fixture
def hostile() -> Iterator[str]:
    """A relay that answers no command, and that would have a terminal obey it."""
    ready: queue.Queue[Any] = queue.Queue()

    async def say(connection: Connection) -> None:
        await connection.run(Hostile(connection))

    async def serve() -> None:
        listener = await TcpNetwork().listen(Endpoint(False, "127.0.0.1", 0))
        door = FrontDoor(
            listener,
            route=lambda _: Accept(None, say),
            on_failure=lambda error: None,
        )
        over = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(door.serve)
            _, port = listener.addresses[0][:2]
            ready.put((f"ws://127.0.0.1:{port}/arc", trio.lowlevel.current_trio_token(), over))
            await over.wait()
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    address, token, over = ready.get(timeout=PATIENCE)
    yield address
    token.run_sync_soon(over.set)
    thread.join()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
@pytest.mark.parametrize(
    ("words", "typed", "code"), [(("ping",), "", 1), (("join",), "/help\r/quit\r", 0)], ids=["ping", "join"]
)
def test_a_terminal_obeys_no_relay_and_a_relay_that_answers_nothing_is_no_wait(
    hostile: str, words: tuple[str, ...], typed: str, code: int, tmp_path: Path
) -> None:
    surround = {**surroundings(), "ARC_TOKEN": "any", "TERM": "xterm-256color"}
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "lmos_actors", "relay", *words, hostile]
    with subprocess.Popen(
        command, cwd=tmp_path, env=surround, stdin=follower, stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        seen = b""
        with suppress(OSError):
            while data := os.read(leader, 4_096):
                seen += data
                if typed and b"obeyed" in seen:
                    os.write(leader, typed.encode())
                    typed = ""
        assert process.wait(PATIENCE) == code, seen
    os.close(leader)
    assert b"\\x1b]0;obeyed" in seen
    assert Hostile.obeyed.encode() not in seen
    assert (b"no answer" in seen) == (words == ("ping",))


@pytest.mark.slow
def test_a_message_that_a_relay_says_nothing_about_is_not_confirmed(hostile: str, tmp_path: Path) -> None:
    code, out, err = relay(tmp_path, "send", hostile, "hello", token="any")
    assert (code, json.loads(out)) == (3, {"confirmed": False})
    assert "not confirmed: the relay did not answer within 2 s" in err


@pytest.mark.slow
def test_text_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    for text in ("NaN", '"\\ud800"', "[" * 5_000):
        code, _, err = relay(tmp_path, "send", "ws://127.0.0.1:1/arc", text, "--json-payload")
        assert (code, "--json-payload: is no JSON" in err) == (2, True), err
    for words in (("\udcff",), ("text", "--to", "\udcff"), ("text", "--type", "\udcff")):
        code, _, err = relay(tmp_path, "send", "ws://127.0.0.1:1/arc", *words)
        assert (code, err.splitlines()[0]) == (2, "lmos-actors: relay send: is no UTF-8: \\udcff"), err


@pytest.mark.slow
def test_listen_prints_lines_and_ends_after_a_count(url: str, tmp_path: Path) -> None:
    listener, sender = registered(tmp_path, url, "listener"), registered(tmp_path, url, "speaker")
    surround = {**surroundings(), "ARC_TOKEN": listener["token"]}
    command = [sys.executable, "-m", "lmos_actors", "relay", "listen", url, "--count", "1"]
    command += ["--follow", "speaker"]
    with subprocess.Popen(command, cwd=tmp_path, env=surround, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(100):  # until it is there
            code, out, err = relay(tmp_path, "send", url, "psst", "--to", "listener", token=sender["token"])
            assert code == 0, err
            if json.loads(out)["delivered"]:
                break
        line = json.loads(process.stdout.readline())
        assert (line["from"], line["to"], line["payload"]) == ("speaker", ["listener"], "psst")
        assert process.wait(PATIENCE) == 0


@pytest.mark.slow
def test_revoke_takes_ones_own_token_away(url: str, tmp_path: Path) -> None:
    token = registered(tmp_path, url)["token"]
    code, _, err = relay(tmp_path, "revoke", url, "echo", token=token)
    assert (code, err) == (1, "lmos-actors: not_allowed: an agent may take away its own token alone\n")
    assert relay(tmp_path, "revoke", url, token=token)[0] == 0
    assert relay(tmp_path, "ping", url, token=token)[0] == 3


WRONG = [
    (("send", "nonsense", "x"), "a relay has an address like ws://HOST/arc, not 'nonsense'"),
    (("send", "ws://127.0.0.1:1/arc?token=t", "x"), "by reference"),
    (("send", "ws://127.0.0.1:1/arc", "{", "--json-payload"), "--json-payload: is no JSON"),
    (("listen", "ws://127.0.0.1:1/arc", "--count", "0"), "--count: must be at least 1"),
    (("serve", "--rate", "5/x"), '--rate: "5/x" is not N/DURATION'),
    (("serve", "--rate", "0/1m"), "is not N/DURATION"),
    (("serve", "--extension", "votin"), "--extension: no extension 'votin', did you mean 'voting'?"),
    (("serve", "--registration", "invite"), "needs invitations"),
    (("serve", "--weights", "weights"), "--weights: goes with --extension voting"),
    (("serve", "--extension", "voting", "--weights", "weights"), 'weights:2: "chair many" is not ID WEIGHT'),
    (("serve", "--extension", "voting", "--weights", "none"), "--weights: none: No such file"),
    (("serve", "--extension", "voting", "--weights", "twice"), "twice:2: chair has two weights"),
    (("serve", "--invitations", "secret"), "a reference to a secret is needed"),
    (("register", "ws://127.0.0.1:1/arc", "a", "--invitation", "env:NOT_THERE"), "the variable is not set"),
    (("ping", "ws://127.0.0.1:1/arc", "--header", "a:b"), "--header"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "text"), WRONG, ids=[" ".join(words)[:40] for words, _ in WRONG])
def test_wrong_usage(words: tuple[str, ...], text: str, tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("clerk 2  # two\nchair many\n", encoding="utf-8")
    (tmp_path / "twice").write_text("chair 2\nchair 3\n", encoding="utf-8")
    code, out, err = relay(tmp_path, *words)
    assert (code, out) == (2, "")
    assert text in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_nobody_is_there(tmp_path: Path) -> None:
    for words in (("ping",), ("listen",), ("register",), ("revoke",)):
        code, _, err = relay(tmp_path, *words, "ws://127.0.0.1:1/arc", token="tok")
        assert code == 3
        assert "Connection refused" in err


@contextmanager
def hub(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a hub as a process; yield it, and its address."""
    command = [sys.executable, "-m", "lmos_actors", "relay", "serve", "--listen", "ws://127.0.0.1:0", *words]
    with subprocess.Popen(
        command, cwd=folder, env=surroundings(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = (json.loads(line) for line in process.stdout)
        address = next(line["url"] for line in lines if line["event"] == "relay")
        try:
            yield process, address
        finally:
            process.kill()


@pytest.mark.slow
def test_a_hub_outlives_kill_9_and_ends_in_order(tmp_path: Path) -> None:
    words = (
        "--store",
        "sqlite:hub.db",
        "--extension",
        "history",
        "--rate",
        "off",
        "--registration-rate",
        "off",
    )
    with hub(tmp_path, *words) as (process, url):
        token = registered(tmp_path, url, "one")["token"]
        assert relay(tmp_path, "send", url, "remember me", token=token)[0] == 0
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    with hub(tmp_path, *words) as (process, url):
        assert relay(tmp_path, "ping", url, token=token)[0] == 0
        code, _, err = relay(tmp_path, "register", url, "one")
        assert (code, "agent_id_taken" in err) == (1, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
def test_join_on_a_terminal(url: str, tmp_path: Path) -> None:
    token = registered(tmp_path, url, "person")["token"]
    surround = {**surroundings(), "ARC_TOKEN": token, "TERM": "xterm-256color"}
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "lmos_actors", "relay", "join", url]
    seen = ""
    with subprocess.Popen(
        command, cwd=tmp_path, env=surround, stdin=follower, stdout=follower, stderr=follower
    ) as process:
        os.close(follower)

        def until(pattern: str) -> str:
            nonlocal seen
            while (found := re.search(pattern, seen, re.DOTALL)) is None:
                seen += os.read(leader, 4_096).decode(errors="replace")
            seen = seen[found.end() :]
            return found[0]

        def type_(text: str) -> None:
            os.write(leader, f"{text}\r".encode())

        until("you are person")
        type_("?how are you")
        until(r"#1 .*echo .*answer.*: .*how are you")
        type_("good morning")
        until(r"#2 .*echo .*thought.*: .*good morning")
        type_("#1 thank you")
        until(r"#3 .*echo .*answer.*: .*thank you")
        type_("/who")
        until("echo, person")
        type_("@ghost are you there")
        until("not there: ghost")
        type_("#77 hm")
        until("there is no message #77")
        type_("/fly")
        until("no command /fly")
        type_("/follow echo")
        until("followed: echo")
        type_("/quit")
        assert process.wait(PATIENCE) == 0
    os.close(leader)


@pytest.mark.slow
def test_join_from_a_pipe(url: str, tmp_path: Path) -> None:
    token = registered(tmp_path, url)["token"]
    command = [sys.executable, "-m", "lmos_actors", "relay", "join", url]
    environment = {**surroundings(), "ARC_TOKEN": token}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, input="/who\n\nhi\n", capture_output=True, text=True,
        check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "echo" in ran.stderr


AGENT = '''
from lmos_actors import Agent, action


class Weather(Agent):
    """Answers questions about the weather."""

    @action(answers=True)
    def answer(self, question: str) -> str:
        return f"{question} It is fine."
'''


@pytest.mark.slow
def test_an_agent_is_served_on_a_relay_too(url: str, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    bot, person = registered(tmp_path, url, "weather-bot"), registered(tmp_path, url, "asker")
    (tmp_path / "token").write_text(bot["token"], encoding="utf-8")
    listen = ("--listen", "ws://127.0.0.1:0")
    command = ("serve", "weather=agent.py:Weather", *listen, "--relay", f"weather={url}")
    environment = {**surroundings(), "ARC_TOKEN": person["token"]}
    heard = [sys.executable, "-m", "lmos_actors", "relay", "join", url]
    with subprocess.Popen(
        heard,
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as joined:
        assert joined.stdin is not None
        assert joined.stdout is not None
        assert joined.stderr is not None
        assert "you are asker" in joined.stderr.readline()
        with started((*command, "--relay-bearer", "weather=file:token"), tmp_path) as served:
            for line in joined.stdout:  # it introduces itself
                if (said := json.loads(line)).get("type") == "discovery":
                    break
            assert (said["from"], said["payload"]["answers"]) == ("weather-bot", "answer")
            joined.stdin.write("@weather-bot ?How is it?\n")
            joined.stdin.flush()
            for line in joined.stdout:
                if (said := json.loads(line)).get("type") == "answer":
                    break
            assert (said["from"], said["payload"]) == ("weather-bot", "How is it? It is fine.")
            served.terminate()
            assert served.wait(PATIENCE) == 0
        joined.kill()


def test_the_agents_of_a_relay_are_served(url: str, tmp_path: Path) -> None:
    """As a user would: a bot is on the relay, a gateway serves what is there, a shell calls it."""
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    for name in ("rain-bot", "gateway"):
        (tmp_path / name).write_text(registered(tmp_path, url, name)["token"], encoding="utf-8")
    listen = ("--listen", "ws://127.0.0.1:0")
    bot = ("serve", "agent.py:Weather", *listen, "--relay", url, "--relay-bearer", "file:rain-bot")
    gateway = ("serve", *listen, "--relay-peers", f"hub={url}", "--relay-peers-bearer", "hub=file:gateway")
    with (
        started(bot, tmp_path) as first,
        started((*gateway, "--relay-from", "never", "--json"), tmp_path) as second,
    ):
        assert second.stdout is not None
        lines = (json.loads(line) for line in second.stdout)
        place = next(line["url"] for line in lines if line["event"] == "peers")
        assert place.endswith("/agents/hub.ID")
        words = ("call", place.replace("ID", "rain-bot"), "ask", "payload=How is it?")
        for _ in range(100):  # until it has introduced itself there
            asked = called(words, tmp_path, timeout=PATIENCE)
            if asked.returncode == 0:
                break
        assert asked.returncode == 0, asked.stderr
        assert json.loads(asked.stdout)["output"] == "How is it? It is fine."
        call = 'payload={"action": "answer", "input": {"question": "And now?"}}'
        asked = called((*words[:3], call), tmp_path, timeout=PATIENCE)
        assert json.loads(asked.stdout)["output"] == "And now? It is fine."
        for each in (first, second):
            each.terminate()
            assert each.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--relay-peers", "nonsense"), "a relay has an address like ws://HOST/arc, not 'nonsense'"),
        (("--relay-peers", "ws://127.0.0.1:1/arc"), "--relay-peers-bearer: env:ARC_TOKEN: is empty"),
        (("--relay-peers-bearer", "env:TOKEN"), "--relay-peers-bearer: goes with --relay-peers"),
        (
            ("--relay-peers", "ws://127.0.0.1:1/arc", "--relay-peers-bearer", "x=file:token"),
            "env:ARC_TOKEN: is empty",
        ),
        (("--relay-from", "sometimes"), "sometimes"),
        (("--relay", "nonsense"), "a relay has an address like ws://HOST/arc, not 'nonsense'"),
        (("--relay", "ws://127.0.0.1:1/arc"), "--relay-bearer: env:ARC_TOKEN: is empty"),
        (("--relay", "ws://hub.example/arc", "--relay-bearer", "file:token"), "would be sent without TLS"),
        (("--relay-bearer", "env:TOKEN"), "--relay-bearer: goes with --relay"),
        (
            ("--relay", "ws://127.0.0.1:1/arc", "--relay-bearer", "x=env:T"),
            "env:ARC_TOKEN: is empty",
        ),
        (
            ("--relay", "ws://127.0.0.1:1/arc", "--relay-bearer", "secret"),
            "a reference to a secret is needed",
        ),
    ],
)
def test_wrong_options_of_serve(words: tuple[str, ...], text: str, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    (tmp_path / "token").write_text("tok", encoding="utf-8")
    environment = {**surroundings(), "ARC_TOKEN": ""}
    ran = called(("serve", "agent.py:Weather", *words), tmp_path, timeout=PATIENCE, environment=environment)
    assert ran.returncode == 2
    assert text in ran.stderr
    assert "Traceback" not in ran.stderr
