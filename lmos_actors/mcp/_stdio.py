"""An MCP server as a process: JSON lines on its standard input and output.

The SDK's own transport reads lines of any length, and copies the line so far with each new piece. What this
module guarantees:

1. **The process ends with its connection**, however that ends: its input is closed, which asks a server to
   leave; then its process group gets SIGTERM, then SIGKILL, a second apart. None of that can be cancelled. If
   this process itself is killed, the kernel closes the pipe, and servers that read their input leave.
2. **No partial message is ever written.** One task writes; senders may be cancelled.
3. **Memory is bounded**: a line that is too long is skipped as it comes. If its beginning or its end names
   the request that it answers, that request fails, and the connection goes on.
4. **Lines without a message are counted and skipped**: many servers greet on standard output.
5. **The server gets few of our variables**: variables that the SDK finds harmless, and variables that its
   agent names.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence  # noqa: TC003 -- read by readers only
from contextlib import asynccontextmanager, suppress
from subprocess import PIPE
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import trio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from lmos_actors._core import read_json

from ._connection import is_answer, place_of
from ._failures import UNREADABLE, McpServerLost
from ._messages import ENDS, PIECE, EndlessLine, LongLine, MessageReader, MessageStream

if TYPE_CHECKING:
    from ._connection import Connection

GRACE: Final = 1.0
"""Seconds between one way of ending a process and the next."""

MOST_SKIPPED: Final = 64 << 20
"""Bytes of a too long line that are skipped before the server is cut off."""

WAITING: Final = 256
"""Messages that may wait to be written; a server that reads too slowly is cut off."""

# Members of the message itself, and of nothing in it: nothing but another member stands before or behind.
_ID_FIRST: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,')
_ID_LAST: Final = re.compile(rb',\s*"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"\s*")

TOO_LARGE: Final = "the answer has more bytes than are taken"
"""The text of the failure in place of an answer that is too long."""


@asynccontextmanager
async def open_process(
    command: Sequence[str], env: Mapping[str, str], cwd: str | None, most: int, connection: Connection
) -> AsyncGenerator[tuple[Any, Any]]:
    """Run a server; yield the read stream and the write stream for the SDK.

    A message has at most `most` bytes. Raises McpServerLost if the process cannot be started.
    """
    try:
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**get_default_environment(), **env},
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise McpServerLost(f"the MCP server {connection.name} cannot be started: {why}") from None
    stderr = _Tail()
    try:
        async with trio.open_nursery() as nursery:
            writer = _Writer(process, connection)
            nursery.start_soon(writer.run)
            nursery.start_soon(stderr.read, process.stderr)
            yield _Lines(process, most, connection, stderr), writer
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await _end(process)


async def _end(process: trio.Process) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError, trio.BrokenResourceError):
                await stream.aclose()
    with trio.move_on_after(GRACE):
        await process.wait()
    if process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        with trio.move_on_after(GRACE):
            await process.wait()
    _signal(process.pid, signal.SIGKILL)  # also what a server that has ended has left behind
    with trio.move_on_after(GRACE):
        await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Tail:
    """The last part of the standard error of a server."""

    def __init__(self) -> None:
        self.text = ""
        self.ended = trio.Event()

    async def read(self, stream: Any) -> None:
        """Read to the end, so that the server never waits for a reader."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while piece := await stream.receive_some(PIECE):
                self.text = (self.text + piece.decode(errors="replace"))[-2_000:]
        self.ended.set()


class _Writer(MessageStream):
    """The standard input of a server."""

    def __init__(self, process: trio.Process, connection: Connection) -> None:
        assert process.stdin is not None
        self._stdin = process.stdin
        self._connection = connection
        self._out, self._in = trio.open_memory_channel[bytes](0)

    async def aclose(self) -> None:
        """Stop sending."""
        await self._out.aclose()

    async def send(self, item: SessionMessage) -> None:
        """Send a message. If the server has ended, the message is lost, and the reader reports the end."""
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if self._out.statistics().tasks_waiting_send >= WAITING:
            self._connection.lose("does not read what is sent to it", at_fault=True)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._out.send(data)

    async def run(self) -> None:
        """Write the messages passed to `send`."""
        async with self._in:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                async for data in self._in:
                    await self._stdin.send_all(data)


class _Lines(MessageReader):
    """The messages on the standard output of a server."""

    def __init__(self, process: trio.Process, most: int, connection: Connection, stderr: _Tail) -> None:
        assert process.stdout is not None
        super().__init__(process.stdout, most, MOST_SKIPPED)
        self._process = process
        self._connection = connection
        self._stderr = stderr
        self._ready: deque[SessionMessage] = deque()

    async def __anext__(self) -> SessionMessage:
        while True:
            while self._ready:
                message = self._ready.popleft()
                if not self._connection.admit(answer=is_answer(message)):
                    raise StopAsyncIteration
                if not self._connection.take_report(message):
                    return message
            try:
                line = await self.next_line()
            except EndlessLine:
                self._connection.lose("sends a message without an end", at_fault=True)
                raise StopAsyncIteration from None
            if line is None:
                await self._ended()
                raise StopAsyncIteration
            if isinstance(line, LongLine):
                answered = _id_in(line.beginning, line.end)
                self._ready += [] if answered is None else [_failure(answered, TOO_LARGE)]
            elif line.strip():
                self._ready += _messages_in(line)
                if not self._ready and not self._connection.admit(answer=False):
                    raise StopAsyncIteration

    async def _ended(self) -> None:
        """Mark the connection as lost, with the exit status of the process and its last line of errors."""
        with trio.move_on_after(GRACE):
            await self._process.wait()
            await self._stderr.ended.wait()
        status = self._process.returncode
        how = "has closed its output" if status is None else f"has ended with status {status}"
        words = self._stderr.text.strip()
        last = words.splitlines()[-1] if words else ""
        self._connection.lose(f"{how}: {self._connection.shown(last)}" if last else how)


def _messages_in(line: bytes) -> list[SessionMessage]:
    """Return the message in a line; for an invalid line, a failure of each request that it answers."""
    try:
        said = read_json(line)  # which knows no NaN, no endless nesting and no member twice
        return [SessionMessage(jsonrpc_message_adapter.validate_python(said, by_name=False))]
    except ValidationError as error:
        why = f"it is not of the protocol: {place_of(error)}"
    except (ValueError, RecursionError) as error:
        why = f"{error}"
    return [_failure(id, f"{UNREADABLE}{why}") for id in _answered_in(line)]


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    """An answer of which only the id is checked."""

    id: int | str
    jsonrpc: Any = None
    result: Any = None
    error: Any = None


def _answered_in(line: bytes) -> list[int | str]:
    """Return the ids of the requests that a line answers, however malformed it is."""
    text, at = line.decode("utf-8", "replace").removeprefix("\ufeff"), 0
    found: list[int | str] = []
    try:
        while at < len(text):
            value, at = _DECODER.raw_decode(text, at)
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            values: list[Any] = cast("Any", value) if isinstance(value, list) else [value]
            for each in values:
                with suppress(msgspec.ValidationError):
                    found.append(msgspec.convert(each, _Answer).id)
    except (ValueError, RecursionError):
        named = _id_in(line[:ENDS], line[-ENDS:])
        found += [] if named is None else [named]
    return found


def _id_in(beginning: bytes, end: bytes) -> int | None:
    """Return the id at the beginning or at the end of an unreadable line, None if there is none."""
    found = _ID_FIRST.match(beginning) or _ID_LAST.search(end)
    return None if found is None else int(found[1])


def _failure(id: int | str, text: str) -> SessionMessage:
    error = ErrorData(code=INTERNAL_ERROR, message=text)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id, error=error))
