"""The conversation of `chat`: on a terminal, from a pipe, or with a single message.

The answer is printed to standard output piece by piece; uses of tools and errors are printed to standard
error. Lines are read by a thread, which is abandoned if the command ends while it waits for a line.
"""

from __future__ import annotations

import json
import math
import mimetypes
import signal
import stat
import sys
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from lmos_actors._core import printable
from lmos_actors.errors import (
    ActionFailed,
    ConfigError,
    ConnectFailed,
    LmosActorsError,
    OutcomeUnknown,
)
from lmos_actors.facades import Said, TextChunk, ToolCalled, ToolReturned, TurnDone, open_chat, tool_of
from lmos_actors.protocol.omnia import MEDIA_NOT_ENABLED
from lmos_actors.system import import_function
from lmos_actors.transport import endpoint_of

from .._answers import AnswerPrinter
from .._exit_codes import FAILED, OK, TIME_LIMIT
from .._importing import from_here, importing
from .._loop import signals_received
from .._signals import signals
from .._start_up import code_of as code_of_signal
from .._texts import explained
from ._session import RemoteAgent, code_of, open_thing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Sequence

    from lmos_actors.facades import Chat, ChatPart, Tool

    from ..options._connection import Server
    from ..options._remote import ConversationOptions

PROMPT: Final = "> "

NOT_SERVED: Final = ("nothing is served over WebSocket", "Omnia's chat protocol")
"""Words in errors about a server without chat agents; a server with some names them."""

LARGEST_FILE: Final = 100 << 20
"""Maximum bytes of an attached file: the usual limit of servers."""

NO_UPLOADS: Final = "the server takes no files; one of serve does with --uploads FOLDER"

OF_OMNIA: Final = "chat agents are served to this command by serve --omnia, or open_node(omnia=True)"

LONGEST_SHOWN: Final = 300
"""Maximum characters of a tool's arguments or result that are printed."""


def file_at(path: str, place: str) -> Path:
    """Return the path of a file that can be attached. Raises ConfigError."""
    found = Path(path)
    try:
        status = found.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is no file", place)
        found.open("rb").close()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path} cannot be read: {why}", place) from None
    if not 0 < status.st_size <= LARGEST_FILE:
        most = f"an attached file has 1 to {LARGEST_FILE} bytes"
        raise ConfigError(f"{path} has {status.st_size} bytes: {most}", place)
    return found


def tools_at(targets: Sequence[str]) -> list[Tool] | int:
    """Import the functions of `--tool`. Returns the exit code if that fails. Raises ConfigError."""
    found: list[Tool] = []
    for target in targets:
        if ":" not in target:
            raise ConfigError(
                f'"{target}" is not path/file.py:function, nor package.module:function', "--tool"
            )
        place, root = from_here(target)
        function = importing(place, partial(import_function, place, root))
        if isinstance(function, int):
            return function
        try:
            found.append(tool_of(function))
        except TypeError as error:
            raise ConfigError(str(error), f"--tool {target}") from None
    return found


def run_chat(url: str, options: ConversationOptions) -> int:
    """Hold the conversation; return the exit code. Raises ConfigError, OSError."""
    tools = tools_at(options.tool or ())
    if isinstance(tools, int):
        return tools
    files = [file_at(path, "--attach") for path in options.attach or ()]
    server = options.server.at(url)
    endpoint_of(url)
    if options.message is not None and not (options.message.strip() or files):
        raise ConfigError("a message has some text, or a file that --attach names", "--message")
    with signals.in_order(), as_it_was():
        return trio.run(_Conversation(server, options, files, tools).run)


class _Conversation:
    def __init__(
        self, server: Server, options: ConversationOptions, files: list[Path], tools: Sequence[Tool]
    ) -> None:
        self._server, self._options, self._tools = server, options, tools
        self._printer = AnswerPrinter(json=options.json, quiet=options.quiet)
        self._is_terminal = sys.stdin.isatty() and options.message is None
        self._frames: list[str] = []
        self._said: list[tuple[str, str]] = []
        self._files = files  # for the next message
        self._at_start_of_line = True
        self._last = ""  # the last character that an agent has said
        self._is_cut_off = False  # whether the outcome of the last turn is not known
        self._all = trio.CancelScope()
        self._turn: trio.CancelScope | None = None  # of the answer that is awaited
        self._signal: int | None = None

    # ---- begin and end

    async def run(self) -> int:
        """Hold the conversation until its end; return the exit code."""
        code: int | None = None
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            await nursery.start(self._hear_signals)
            within = math.inf if self._options.within is None else self._options.within
            with self._all, trio.move_on_after(within):
                try:
                    code = await self._talk()
                except Exception as error:  # raised below, and not in a group of the nursery
                    failure = error
            nursery.cancel_scope.cancel("the chat has ended")
        if failure is not None:
            raise failure
        if self._signal is not None:
            return code_of_signal(self._signal)
        if code is None:
            self._break_line()
            self._printer.wrong(f"time limit: {within:g}s have passed")
            return TIME_LIMIT
        return code

    async def _hear_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """At Ctrl-C on a terminal, cancel the awaited answer; otherwise end the conversation."""
        with signals_received() as received:
            task_status.started()
            async for number in received:
                if number == signal.SIGINT and self._is_terminal and self._turn is not None:
                    self._turn.cancel("interrupted")
                else:
                    self._signal = number
                    self._all.cancel("interrupted")

    async def _talk(self) -> int:
        server, options = self._server, self._options
        async with open_chat(
            server.url,
            session=options.session,
            tools=self._tools,
            consent=self._consent,
            tls=server.tls,
            credentials=server.credentials,
            headers=server.headers,
            on_frame=self._frames.append if options.json else len,
        ) as chat:
            try:
                if options.message is not None:
                    return await self._do(chat, options.message.strip())
                if self._is_terminal and (code := await self._in_turn(chat.connect())) != OK:
                    return code
                return await self._say_lines(chat)
            finally:
                if (self._is_terminal or self._is_cut_off) and chat.session is not None:
                    self._note(f"session {chat.session}; to go on: --session {chat.session}")

    async def _say_lines(self, chat: Chat) -> int:
        """Process each line of the standard input; return the highest exit code."""
        worst = OK
        while (line := await self._line()) is not None:
            text = line.strip()
            if text:
                code = await self._do(chat, text)
                worst = worst if self._is_terminal else max(worst, code)
        if self._files:
            self._printer.wrong("nothing was said, so no file was sent: a file goes with a message")
            worst = max(worst, FAILED)
        return worst

    async def _do(self, chat: Chat, text: str) -> int:
        """Execute a command such as `/history`, or send the text to the agent; return the exit code."""
        if text == "/session":
            self._note(chat.session or "there is no session yet")
            return OK
        if text == "/history":
            return await self._in_turn(self._show_history(chat))
        if text.startswith("/attach "):
            return self._attach(text.removeprefix("/attach ").strip())
        self._said.append(("you", text))
        return await self._in_turn(self._answer(chat, text))

    def _attach(self, path: str) -> int:
        try:
            self._files.append(file_at(path, "/attach"))
        except ConfigError as error:
            self._wrong(error)
            return FAILED
        self._note(f"{path} goes with the next message")
        return OK

    async def _show_history(self, chat: Chat) -> None:
        """Print the history that the agent keeps or, if it is not available, the messages of this command.

        Our agents may continue a turn whose client was cut off. Its answer is only in the history, so wait
        until the turn is over.
        """
        said = self._said
        if chat.session is not None and self._server.url.startswith(("http:", "https:")):
            try:
                said = await self._kept_by_agent(chat.session)
            except (LmosActorsError, msgspec.ValidationError) as error:
                self._note(f"what was said here, as the agent does not say what it keeps: {error}")
        for who, what in said:
            line = f"{who}: {what}\n"
            await self._print(_for_terminal(line) if sys.stdout.isatty() else line)

    async def _kept_by_agent(self, session: str) -> list[tuple[str, str]]:
        async with open_thing(RemoteAgent(server=self._server)) as thing:
            kept = await thing.invoke("history", {"session": session, "settled": True})
        found: list[tuple[str, str]] = []
        for each in msgspec.convert(kept, list[Said]):
            text = each.text
            if each.failed is not None:
                text = f"{text} (failed: {each.failed.code}: {each.failed.message})".strip()
            found.append(("you" if each.role == "user" else "agent", text))
        return found

    # ---- one turn

    async def _in_turn(self, work: Awaitable[None]) -> int:
        """Await some work, which Ctrl-C cancels on a terminal; return the exit code."""
        code: int | None = None
        self._is_cut_off = False
        with trio.CancelScope() as self._turn:
            try:
                await work
                code = OK
            except ConfigError:
                raise
            except LmosActorsError as error:
                await self._flush()
                self._is_cut_off = isinstance(error, OutcomeUnknown)
                self._wrong(error)
                code = code_of(error)
        self._turn = None
        if not self._at_start_of_line:
            await self._print("\n")
        if code is None:
            self._note("cancelled")
            return FAILED
        return code

    async def _uploaded(self, chat: Chat) -> list[ChatPart]:
        """Upload the files for a message; return its parts. A failed upload is not tried again."""
        files, self._files = self._files, []
        parts: list[ChatPart] = []
        for file in files:
            try:
                data = await trio.to_thread.run_sync(file.read_bytes)
                kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
                parts.append(await chat.upload(data, kind, file.name))
            except ActionFailed as error:
                why = NO_UPLOADS if error.code == MEDIA_NOT_ENABLED else error.detail
                raise ActionFailed({"code": error.code, "message": f"{file}: {why}"}) from None
            except OSError as error:
                raise ConfigError(f"{file} cannot be read: {error.strerror}", "--attach") from None
        return parts

    async def _answer(self, chat: Chat, text: str) -> None:
        printed = False
        wanted = chat.session
        parts = await self._uploaded(chat)
        async with chat.stream(text, parts=parts) as items:
            async for item in items:
                if wanted is not None and chat.session != wanted:
                    self._note(f"there is no session {wanted!r}; this is a new one, {chat.session}")
                    wanted = chat.session
                if isinstance(item, TextChunk):
                    printed = printed or bool(item.text or item.parts)
                    await self._show(item.text, item.parts)
                elif isinstance(item, ToolCalled):
                    self._note(f"{item.name} {_short(item.arguments)}{'  (here)' if item.by_client else ''}")
                elif isinstance(item, ToolReturned):
                    self._note(
                        f"= {_short(item.result)}" if item.error is None else f"= failed: {item.error}"
                    )
                elif isinstance(item, TurnDone):
                    if not printed:
                        await self._show(item.text, item.parts)
                    self._said.append(("agent", item.text))
        await self._flush()

    async def _show(self, text: str, parts: Sequence[ChatPart]) -> None:
        if self._options.json:
            await self._flush()
            return
        media = [part for part in parts if part.media is not None]
        whole = text or "".join(part.text or "" for part in parts)
        whole += "".join(f"[{part.type}: {_place(part)}]" for part in media)
        if whole:
            shown = _for_terminal(whole, self._last) if sys.stdout.isatty() else whole
            self._last = whole[-1]
            await self._print(shown)

    async def _consent(self, call: ToolCalled) -> bool:
        if call.consent_message is None or self._options.yes:
            return True
        if not self._is_terminal:
            self._note(f"{call.name} asks for consent: use --yes")
            return False
        self._note(f"{call.consent_message} [y/N]")
        line = await self._line(prompt=False)
        return line is not None and line.strip().lower() in ("y", "yes")

    # ---- in and out

    async def _line(self, *, prompt: bool = True) -> str | None:
        """Wait for a line of the standard input and return it; return None at the end of the input."""
        shown = PROMPT if prompt and self._is_terminal else ""
        line = await trio.to_thread.run_sync(read_line, shown, abandon_on_cancel=True)
        if not line and self._is_terminal:
            await self._print("\n")
        return line or None

    async def _flush(self) -> None:
        """Print the frames received so far."""
        if self._frames:
            text = "".join(f"{frame.strip()}\n" for frame in self._frames)
            self._frames.clear()
            await self._printer.write(text)

    async def _print(self, text: str) -> None:
        self._at_start_of_line = text.endswith("\n")
        await self._printer.write(text)

    def _note(self, text: str) -> None:
        self._break_line()
        self._printer.note(text)

    def _wrong(self, error: LmosActorsError) -> None:
        self._break_line()
        text = explained(error)
        if isinstance(error, ActionFailed) and error.code is not None:
            text = f"{error.code}: {error.detail or 'the turn failed'}"
        elif isinstance(error, ConnectFailed) and any(words in error.why for words in NOT_SERVED):
            text = f"{error}; {OF_OMNIA}"
        elif self._is_cut_off and self._is_terminal:
            text += "; /history waits for an agent that goes on with it, and prints its answer"
        self._printer.wrong(text)

    def _break_line(self) -> None:
        """On a terminal, end the present line before something is printed on standard error."""
        if not self._at_start_of_line and sys.stdout.isatty():
            self._at_start_of_line = True
            print(flush=True)


def read_line(prompt: str) -> str:
    """Read a line and return it with its line end; return "" at the end of the input."""
    if not prompt:
        return sys.stdin.readline()
    try:
        return f"{input(prompt)}\n"
    except EOFError:
        return ""


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _place(part: ChatPart) -> str:
    media = part.media
    assert media is not None
    where = media.url or media.storage_ref or "embedded"
    return f"{media.filename or media.mime_type}, {where}"


def _for_terminal(text: str, before: str = "") -> str:
    """Return text without control characters except line ends and tabs; `before` as in `printable`."""
    return printable(text, keep="\n\t", before=before)


@contextmanager
def as_it_was() -> Generator[None]:
    """Allow line editing in a block, if possible, and restore the terminal afterwards.

    This is needed because a thread that is still reading a line cannot restore the terminal itself.
    """
    if not sys.stdin.isatty():
        yield
        return
    import termios

    with suppress(ImportError):
        import_module("readline")  # `input` edits lines with it
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
