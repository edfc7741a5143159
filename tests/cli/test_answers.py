"""How answers are printed: for people, as JSON lines, or values alone."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, AgentDied, AgentUnavailable, InvalidInput, MailboxFull, OutcomeUnknown
from lmos_actors.cli._answers import AnswerPrinter, OutputLine, error_members
from lmos_actors.cli._texts import explained
from lmos_actors.errors import ConnectFailed, RemoteProtocolError, Unauthorized
from lmos_actors.protocol.lmos import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOSTILE = "a\x1b[2J\x07\u202eb\x9b\r"
SHOWN = "a\\x1b[2J\\x07\\u202eb\\x9b\\r"


class Stream(io.TextIOWrapper):
    """A stream of bytes that says whether it is a terminal, and keeps what is written."""

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        self.kept = io.BytesIO()
        super().__init__(self.kept, encoding=encoding)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    @property
    def text(self) -> str:
        self.flush()
        return self.kept.getvalue().decode()


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stream]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def make(name: str = "stdout", *, terminal: bool = True, encoding: str = "utf-8") -> Stream:
        made = Stream(terminal=terminal, encoding=encoding)
        monkeypatch.setattr(sys, name, made)
        return made

    return make


async def said(stream: Callable[..., Stream], value: Any, *, whole: bool = True, **options: Any) -> str:
    terminal = options.pop("terminal", False)
    out = stream(terminal=terminal, encoding=options.pop("encoding", "utf-8"))
    await AnswerPrinter(**options).print(OutputLine({"output": value}, value, whole=whole))
    return out.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Bonn", "Bonn\n"),
        ("two\nlines\tand a tab", "two\nlines   and a tab\n"),
        (HOSTILE, f"{SHOWN}\n"),
        (3.5, "3.5\n"),
        (None, "null\n"),
        ({"a": [1]}, '{\n  "a": [\n    1\n  ]\n}\n'),
        ({HOSTILE: 1}, '{\n  "a\\u001b[2J\\u0007\\u202eb\\x9b\\r": 1\n}\n'),
        (b"\x00\x01", "<2 bytes>\n"),
        ("[bold]no markup[/]", "[bold]no markup[/]\n"),
        ("x" * 300, "x" * 300 + "\n"),
    ],
    ids=repr,
)  # fmt: skip
async def test_for_people(
    stream: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch, value: Any, text: str
) -> None:
    colourful = await said(stream, value, terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert await said(stream, value, terminal=True) == text
    assert (colourful == text) == isinstance(value, str | bytes)


async def test_on_one_line_for_people(stream: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert await said(stream, {"a": [1, "x"]}, whole=False, terminal=True) == '{"a": [1, "x"]}\n'
    assert await said(stream, "a\nb", whole=False, terminal=True) == "a\\nb\n"


@pytest.mark.parametrize(
    ("value", "data"),
    [("a\nb", "a\nb"), (HOSTILE, HOSTILE), ({"a": None}, {"a": None}), (b"\xff\x00", {"base64": "/wA="})],
    ids=repr,
)
async def test_as_json_lines(stream: Callable[..., Stream], value: Any, data: Any) -> None:
    piped = await said(stream, value)
    assert piped == await said(stream, value, terminal=True, json=True)
    assert piped.count("\n") == 1
    assert json.loads(piped) == {"output": data}
    assert json.loads(await said(stream, value, encoding="ascii")) == {"output": data}


async def test_halves_of_characters_are_escaped(stream: Callable[..., Stream]) -> None:
    assert json.loads(await said(stream, "\udc80")) == {"output": "\udc80"}


async def test_bytes_alone_are_the_bytes(stream: Callable[..., Stream]) -> None:
    out = stream(terminal=False)
    await AnswerPrinter(raw=True).print(*(OutputLine({}, part) for part in (b"\xff", b"\n\x00")))
    assert out.kept.getvalue() == b"\xff\n\x00"


async def test_extra_facts_are_in_json_only(stream: Callable[..., Stream]) -> None:
    gap = OutputLine({"gap": "lost"}, None, aside=True)
    for form, text in (({"json": True}, '{"gap": "lost"}\n'), ({"raw": True}, ""), ({}, "")):
        out = stream(terminal=True)
        await AnswerPrinter(**form).print(gap)
        assert out.text == text


async def test_progress_moves_on_a_terminal_and_is_taken_away(
    stream: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((30, 24)))
    out, err = stream(terminal=True), stream("stderr", terminal=True)
    monkeypatch.setattr(err, "fileno", lambda: 2, raising=False)
    answers = AnswerPrinter()
    await answers.progress("forecast", 0.5)
    await answers.progress("forecast", {"step": HOSTILE * 20})
    await answers.print(OutputLine({}, "done"))
    first, second, after = err.text.split("\r\x1b[2K")[1:]
    assert first == "forecast  #####..... 50%"
    assert second.startswith('forecast  {"step": "a\\u001b')
    assert len(second) == 29
    assert (after, out.text) == ("", "done\n")


async def test_a_terminal_without_a_width_gets_whole_lines(
    stream: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((0, 0)))
    err = stream("stderr", terminal=True)
    monkeypatch.setattr(err, "fileno", lambda: 2, raising=False)
    await AnswerPrinter().progress("forecast", 0.5)
    assert err.text == "\r\x1b[2Kforecast  #####..... 50%"


async def test_progress_elsewhere_is_a_line_now_and_then(
    stream: Callable[..., Stream], autojump_clock: object
) -> None:
    stream(terminal=False)
    err = stream("stderr", terminal=False)
    began = trio.current_time()
    await AnswerPrinter().progress("forecast", 0.25)
    assert (err.text, trio.current_time() - began) == ("forecast: 0.25\n", 1.0)


async def test_quiet_leaves_errors_alone_on_the_error_output(stream: Callable[..., Stream]) -> None:
    err = stream("stderr", terminal=True)
    answers = AnswerPrinter(quiet=True)
    await answers.progress("forecast", 0.25)
    answers.note("gap")
    assert err.text == ""
    answers.wrong(f"it broke {HOSTILE}")
    assert err.text == f"lmos-actors: it broke {SHOWN}\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, Any]]:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="utf-8") as out:
        yield reading, out


async def test_a_reader_that_does_not_read_delays_no_other(
    pipe: tuple[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, out = pipe
    monkeypatch.setattr(sys, "stdout", out)
    line = OutputLine({}, "x" * 1_000_000)
    with trio.move_on_after(0.1) as waiting:
        await AnswerPrinter(raw=True).print(line)
    assert waiting.cancelled_caught
    reader = threading.Thread(target=os.close, args=(reading,))
    reader.start()
    reader.join()
    with pytest.raises(BrokenPipeError):
        await AnswerPrinter(raw=True).print(line)


@pytest.mark.parametrize(
    ("error", "text", "members"),
    [
        (ActionFailed({"why": [1]}), 'the action failed: {"why": [1]}', {"output": {"why": [1]}}),
        (ActionFailed(), "action failed", {"output": None}),
        (InvalidInput("not a number", "$.days"), "not a number - at $.days", {"path": "$.days"}),
        (AgentDied("KeyError", started=True), "agent died (KeyError), request had begun", {"started": True}),
        (
            AgentUnavailable("weather"),
            "agent 'weather' is unavailable: not running; nothing was begun, so try again",
            {},
        ),
        (MailboxFull("w", 8), "mailbox of 'w' is full (8); nothing was begun, so try again later", {}),
        (
            OutcomeUnknown("w"),
            "what became of the request to 'w' is unknown: the connection ended before the answer; "
            "look before asking again",
            {},
        ),
        (
            Unauthorized("who are you?"),
            "who are you?; give credentials with --bearer env:NAME or --basic USER:env:NAME",
            {},
        ),
        (
            ConnectFailed("http://a", "it answered 401 Unauthorized: they are not accepted", status=401),
            "cannot connect to http://a: it answered 401 Unauthorized: they are not accepted; "
            "give credentials with --bearer env:NAME or --basic USER:env:NAME",
            {},
        ),
        (
            ConnectFailed("http://a", "it answered 404 Not Found", status=404),
            "cannot connect to http://a: it answered 404 Not Found; is the agent served there?",
            {},
        ),
        (
            ConnectFailed("http://a", "it answered 400 Bad Request: this port speaks TLS", status=400),
            "cannot connect to http://a: it answered 400 Bad Request: this port speaks TLS",
            {},
        ),
        (
            ConnectFailed("ws://a", "Connection refused"),
            "cannot connect to ws://a: Connection refused; is the agent served there?",
            {},
        ),
        (
            AgentUnavailable("a", "it speaks Omnia's chat protocol, not LMOS"),
            "agent 'a' is unavailable: it speaks Omnia's chat protocol, not LMOS; "
            "the command chat talks to it",
            {},
        ),
        (
            ConnectFailed("ws://a", "it answered 200 OK", status=200),
            "cannot connect to ws://a: it answered 200 OK; is the agent served there?",
            {},
        ),
        (
            ConnectFailed("wss://a", "the TLS handshake failed: what listens there does not speak TLS"),
            "cannot connect to wss://a: the TLS handshake failed: what listens there does not speak TLS",
            {},
        ),
        (
            RemoteProtocolError(Problem(type="about:blank", title="Odd", status=500, detail="it is")),
            "Odd: it is",
            {"title": "Odd", "detail": "it is"},
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_is_explained_in_text_and_members(
    error: Exception, text: str, members: dict[str, Any]
) -> None:
    assert explained(error) == text
    assert error_members(error) == {"type": type(error).__name__, "message": str(error), **members}
