"""`chat`: one message, lines from a pipe, a terminal. Real processes, a real server in a thread."""

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
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, open_node
from lmos_actors.facades import ChatAgent, ChatMedia, ChatPart, ChatTurn, OmniaOptions
from tests.commands import called, surroundings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence
    from pathlib import Path

PATIENCE = 60.0
TOOLS = '''
def where_am_i(detail: str) -> str:
    """Return the place."""
    return f"Bonn, {detail}"


def fails(detail: str) -> str:
    raise KeyError(detail)


def untyped(detail):
    return detail


NUMBER = 3
'''


async def look_up(order: int) -> dict[str, Any]:
    """Look up an order."""
    return {"order": order, "state": "sent"}


class Desk(ChatAgent):
    """Answers by rules."""

    async def reply(self, turn: ChatTurn) -> AsyncGenerator[str | ChatPart]:
        word, _, rest = turn.text.partition(" ")
        turn.memory["turns"] = turn.memory.get("turns", 0) + 1
        if word == "order":
            found = await turn.use(look_up, order=int(rest))
            yield f"Order {rest} is {found['state']}."
        elif word == "where":
            yield await turn.ask_client("where_am_i", {"detail": rest}, consent_message="May I know?")
        elif word == "fail":
            yield await turn.ask_client("fails", {"detail": rest})
        elif word == "crash":
            raise KeyError(rest)
        elif word == "refuse":
            raise ActionFailed({"code": "CLOSED", "message": "come back tomorrow"})
        elif word == "picture":
            yield ChatPart("image", media=ChatMedia("image/png", url="https://example.org/a.png"))
        elif word == "slow":
            yield "well, "
            await trio.sleep_forever()
        elif word == "read":
            for part in turn.parts:
                assert part.media is not None
                text = (await turn.read(part)).decode()
                yield f"{part.media.filename}: {text if part.type == 'file' else part.media.mime_type}. "
        elif word == "bell":
            yield "\x1b[31m\x07bell"
        else:
            yield f"{turn.memory['turns']}: "
            yield turn.text


async def _serve(told: queue.SimpleQueue[Any], omnia: bool | OmniaOptions) -> None:
    over = trio.Event()
    async with open_node(listen="ws://127.0.0.1:0", omnia=omnia) as node:
        await node.start(Desk)
        told.put((node.urls[0], trio.lowlevel.current_trio_token(), over))
        await over.wait()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    uploads = tmp_path_factory.mktemp("uploads")
    with served(omnia=OmniaOptions(uploads=str(uploads), upload_bytes=100)) as address:
        yield address


@contextmanager
def served(*, omnia: bool | OmniaOptions) -> Iterator[str]:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    thread = threading.Thread(target=trio.run, args=(_serve, told, omnia))
    thread.start()
    address, token, over = told.get(timeout=PATIENCE)
    yield f"{address.replace('ws:', 'http:')}/agents/desk"
    token.run_sync_soon(over.set)
    thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    (tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")
    (tmp_path / "a.txt").write_text("Hello", encoding="utf-8")
    for name, size in (("b.png", 50), ("empty", 0), ("large", 101), ("huge", (100 << 20) + 1)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    return tmp_path


def chat(folder: Path, url: str, *words: str) -> tuple[int, str, str]:
    ran = called(("chat", url, *words), folder, timeout=PATIENCE)
    return ran.returncode, ran.stdout, ran.stderr


SHOWN = 'order 17\nlook_up {"order": 17}\n= {"order": 17, "state": "sent"}\n'
WHERE = 'where_am_i {"detail": "north"}  (here)\n'

ONE: list[tuple[Sequence[str], int, str, str]] = [
    (["--message", "hello"], 0, "1: hello\n", ""),
    (["-m", "order 17"], 0, "Order 17 is sent.\n", SHOWN.partition("\n")[2]),
    (["-m", "order 17", "-q"], 0, "Order 17 is sent.\n", ""),
    (["-m", "crash x"], 1, "", "lmos-actors: INTERNAL_ERROR: internal server error\n"),
    (["-m", "refuse"], 1, "", "lmos-actors: CLOSED: come back tomorrow\n"),
    (["-m", "picture"], 0, "[image: image/png, https://example.org/a.png]\n", ""),
    (["-m", "where north", "--tool", "tools.py:where_am_i", "--yes"], 0, "Bonn, north\n", WHERE),
    (
        ["-m", "where north", "--tool", "tools.py:where_am_i"],
        1,
        "",
        f"{WHERE}where_am_i asks for consent: use --yes\n"
        "lmos-actors: TOOL_ERROR: the tool 'where_am_i' failed\n",
    ),
    (
        ["-m", "fail x", "--tool", "tools.py:fails"],
        1,
        "",
        'fails {"detail": "x"}  (here)\nlmos-actors: TOOL_ERROR: the tool \'fails\' failed\n',
    ),
    (
        ["-m", "where north"],
        1,
        "",
        'where_am_i {"detail": "north"}\nlmos-actors: TOOL_ERROR: the tool \'where_am_i\' failed\n',
    ),
    (["-m", "read", "--attach", "a.txt", "--attach", "b.png"], 0, "a.txt: Hello. b.png: image/png. \n", ""),
    (["-m", "", "--attach", "a.txt"], 0, "1: \n", ""),
    (
        ["-m", " "],
        2,
        "",
        "lmos-actors: --message: a message has some text, or a file that --attach names\n"
        "lmos-actors chat --help explains the command\n",
    ),
]


@pytest.mark.parametrize(("words", "code", "out", "err"), ONE, ids=[" ".join(each[0]) for each in ONE])
def test_one_message(url: str, folder: Path, words: Sequence[str], code: int, out: str, err: str) -> None:
    assert chat(folder, url, *words) == (code, out, err)


@pytest.mark.slow
def test_a_message_is_answered_within_a_time_limit(url: str, folder: Path) -> None:
    told = chat(folder, url, "-m", "slow", "--within", "2s")
    assert told == (124, "well, ", "lmos-actors: time limit: 2s have passed\n")


def test_frames_as_they_come(url: str, folder: Path) -> None:
    code, out, err = chat(folder, url, "-m", "hello", "--json")
    frames = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [each["type"] for each in frames] == ["connected", "connected", "chunk", "chunk", "done"]
    assert frames[-1]["content"] == "1: hello"
    code, out, _ = chat(folder, url, "-m", "goodbye", "--session", frames[-1]["session_id"])
    assert (code, out) == (0, "2: goodbye\n")


NO_UPLOADS = "the server takes no files; one of serve does with --uploads FOLDER"

WRONG: list[tuple[str, Sequence[str], int, str]] = [
    ("{}k", [], 3, "there is no chat agent 'deskk', did you mean 'desk'?"),
    ("http://127.0.0.1:1/agents/desk", [], 3, "Connection refused"),
    ("desk", [], 2, "the scheme '' of 'desk' is not known"),
    ("{}", ["--tool", "tools.py"], 2, '"tools.py" is not path/file.py:function'),
    ("{}", ["--tool", "tools.py:where"], 2, 'no function "where" in tools.py, did you mean "where_am_i"?'),
    ("{}", ["--tool", "tools.py:untyped"], 2, "the type of 'detail' of the tool 'untyped' is not known"),
    ("{}", ["--tool", "tools.py:NUMBER"], 2, '"NUMBER" in tools.py is not a function'),
    ("{}", ["--attach", "none.txt"], 2, "none.txt cannot be read: No such file or directory"),
    ("{}", ["--attach", "."], 2, ". is no file"),
    ("{}", ["--attach", "empty"], 2, "empty has 0 bytes: an attached file has 1 to 104857600 bytes"),
    ("{}", ["--attach", "huge"], 2, "huge has 104857601 bytes"),
    ("{}", ["--attach", "large"], 1, "UPLOAD_FAILED: large: a file has at most 100 bytes"),
    ("{}", ["--bearer", "token"], 2, "--bearer"),
    ("{}", ["--mesage", "x"], 2, "Did you mean --message?"),
]


@pytest.mark.parametrize(("place", "words", "code", "err"), WRONG, ids=[each[3] for each in WRONG])
def test_mistakes(url: str, folder: Path, place: str, words: Sequence[str], code: int, err: str) -> None:
    found = chat(folder, place.format(url), "-m", "hello", *words)
    assert (found[0], found[1]) == (code, "")
    assert err in found[2]
    assert "Traceback" not in found[2]


def test_a_server_without_the_protocol_of_chats(folder: Path) -> None:
    with served(omnia=False) as url:
        code, _, err = chat(folder, url, "-m", "hello")
    assert code == 3
    assert err.endswith(
        "; chat agents are served to this command by serve --omnia, or open_node(omnia=True)\n"
    )


def test_a_server_that_takes_no_files(folder: Path) -> None:
    with served(omnia=True) as url:
        code, out, err = chat(folder, url, "-m", "read", "--attach", "a.txt")
    assert (code, out) == (1, "")
    assert err == f"lmos-actors: MEDIA_NOT_ENABLED: a.txt: {NO_UPLOADS}\n"


@pytest.mark.parametrize(
    ("lines", "code", "out", "err"),
    [
        ("/attach a.txt\nread\nread", 0, "a.txt: Hello. \n", "a.txt goes with the next message\n"),
        ("/attach none\nhello", 1, "1: hello\n", "none cannot be read"),
        ("", 1, "", "nothing was said, so no file was sent"),
    ],
)
def test_files_go_with_the_next_message(
    url: str, folder: Path, lines: str, code: int, out: str, err: str
) -> None:
    words = () if lines else ("--attach", "a.txt")
    ran = subprocess.run(
        command(url, *words), input=lines, cwd=folder, env=surroundings(), text=True,
        capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (code, out), ran.stderr
    assert err in ran.stderr


def command(url: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "lmos_actors", "chat", url, *words]


@pytest.mark.slow  # its lines: the tests around it, test_deciders.py
def test_each_line_of_a_pipe_is_a_message_of_one_conversation(url: str, folder: Path) -> None:
    ran = subprocess.run(
        command(url),
        input="hello\n\norder 17\nrefuse\n/history\nbye",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=folder,
        env=surroundings(),
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stdout.splitlines() == [
        "1: hello",
        "Order 17 is sent.",
        "you: hello",
        "agent: 1: hello",
        "you: order 17",
        "agent: Order 17 is sent.",
        "you: refuse",
        "agent: (failed: CLOSED: come back tomorrow)",
        "3: bye",
    ]
    assert "CLOSED: come back tomorrow" in ran.stderr


def test_a_client_that_comes_back_finds_what_was_said(url: str, folder: Path) -> None:
    frames = [json.loads(line) for line in chat(folder, url, "-m", "hello", "--json")[1].splitlines()]
    session = frames[-1]["session_id"]
    code, out, _ = chat(folder, url, "-m", "/history", "--session", session)
    assert (code, out) == (0, "you: hello\nagent: 1: hello\n")
    code, out, err = chat(folder, url, "-m", "/history", "--session", "unknown")
    assert (code, out) == (0, "")
    assert "SESSION_EXPIRED" in err


def test_a_session_that_is_not_there_is_named(url: str, folder: Path) -> None:
    code, out, err = chat(folder, url, "-m", "hello", "--session", "summer")
    assert (code, out) == (0, "1: hello\n")
    assert err.startswith("there is no session 'summer'; this is a new one, ")


SLOW = '''
import trio
from lmos_actors.facades import ChatAgent


class Desk(ChatAgent):
    """Takes long."""

    async def reply(self, turn):
        yield "well, "
        await trio.sleep_forever()
'''


@pytest.mark.slow  # its lines run in processes alone; test_kept_turns.py
def test_a_client_that_is_cut_off_learns_how_to_come_back(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW, encoding="utf-8")
    serving = [*command("")[:-2], "serve", "slow.py:Desk", "--omnia", "--listen", "ws://127.0.0.1:0"]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, cwd=folder, env=surroundings()) as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            while json.loads(server.stdout.readline())["event"] != "ready":
                pass
            with subprocess.Popen(
                command(url, "-m", "slow"),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=surroundings(),
            ) as client:
                assert client.stdout is not None
                assert client.stdout.read(6) == b"well, "
                server.kill()
                _, err = client.communicate(timeout=PATIENCE)
        finally:
            server.kill()
    assert client.returncode == 3
    assert re.search(r"; to go on: --session [0-9a-f-]{36}\n", err.decode())


# ---- on a terminal


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes], ours: int) -> None:
        self.process = process
        self._ours = ours
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, words: str) -> str:
        """Read until the words are shown; return what was shown before them."""
        while words not in self.shown:
            self.shown += os.read(self._ours, 65_536).decode()
        before, _, self.shown = self.shown.partition(words)
        return before


@contextmanager
def terminal(folder: Path, url: str, *words: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    environment = {**surroundings(), "TERM": "dumb", "COLUMNS": "80"}
    process = subprocess.Popen(
        command(url, *words),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.slow  # its lines: test_all_own.py, test_offers.py
def test_a_conversation_on_a_terminal(url: str, folder: Path) -> None:
    with terminal(folder, url, "--tool", "tools.py:where_am_i") as shown:
        shown.until("> ")
        shown.type("hello\n")
        shown.until("1: hello\r\n> ")
        shown.type("slow\n")
        shown.until("well, ")
        shown.process.send_signal(signal.SIGINT)  # cancels the answer alone
        shown.until("cancelled\r\n> ")
        shown.type("where south\n")
        shown.until("May I know? [y/N]\r\n")
        shown.type("n\n")
        shown.until("TOOL_ERROR")
        shown.until("> ")
        shown.type("where west\n")
        shown.until("May I know? [y/N]\r\n")
        shown.type("y\n")
        shown.until("Bonn, west\r\n> ")
        shown.type("bell\n")
        assert "\x1b[31m" not in shown.until("bell\r\n> ")
        shown.type("/session\n")
        (session,) = re.findall(r"[0-9a-f-]{36}", shown.until("> "))
        shown.type("\x04")
        assert shown.until("to go on: --session ").endswith(f"session {session}; ")
        assert shown.process.wait(PATIENCE) == 0


@pytest.mark.slow  # its lines: test_all_own.py; test_signals.py has the signals
def test_an_interrupt_at_the_prompt_ends_the_chat(url: str, folder: Path) -> None:
    with terminal(folder, url) as shown:
        shown.until("> ")
        shown.process.send_signal(signal.SIGINT)
        assert shown.process.wait(PATIENCE) == 130
