"""Output of answers, events and errors: for people, as JSON lines, or only the values.

Answers go to standard output; progress, gaps and errors go to standard error. A slow reader holds back the
command, but not its connections: a thread writes to outputs that can block.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio

from lmos_actors._core import printable
from lmos_actors.errors import (
    ActionFailed,
    AgentDied,
    InvalidInput,
    RemoteProtocolError,
)
from lmos_actors.reports import bar

from ._texts import as_base64, for_people, takes_all

if TYPE_CHECKING:
    from typing import TextIO

Form: TypeAlias = Literal["text", "json", "raw"]

BETWEEN: Final = 0.1
"""Seconds between two updates of progress on a terminal; elsewhere ten times that."""


@attrs.frozen
class OutputLine:
    """One line of output: its members for JSON, its value, and the words before the value for people."""

    members: dict[str, Any]
    value: Any
    head: tuple[str, ...] = ()
    whole: bool = False
    """Whether the value may take several lines for people."""
    aside: bool = False
    """Whether text output shows it elsewhere, so that only JSON output prints it here."""


def now() -> str:
    """Return the present time as text, for lines with their time of arrival."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class AnswerPrinter:
    """A printer of answers to standard output, and of everything else to standard error."""

    def __init__(self, *, json: bool = False, raw: bool = False, quiet: bool = False) -> None:
        self._out, self._err = sys.stdout, sys.stderr
        self._quiet = quiet
        self.form: Form = "raw" if raw else "json" if json or not self._out.isatty() else "text"
        self._moves = self._err.isatty() and os.environ.get("TERM") not in ("dumb", "unknown", None)
        self._moving = False
        self._width = 0

    @property
    def is_moving_terminal(self) -> bool:
        """Whether progress is shown as a moving line on a terminal."""
        return self._moves and not self._quiet

    # ---- answers

    async def print(self, *lines: OutputLine) -> None:
        """Print lines, and wait until the reader has read them. Raises OSError."""
        data = b"".join(self._bytes(line) for line in lines if not line.aside or self.form == "json")
        self.clear_progress()
        if not data:
            return
        await self.write(data)

    async def write(self, data: str | bytes) -> None:
        """Write text unchanged, and wait until the reader has read it. Raises OSError."""
        if isinstance(data, str):
            data = data.encode(self._out.encoding or "utf-8", "backslashreplace")
        self._out.flush()
        descriptor = _that_may_block(self._out)
        if descriptor is not None:
            await trio.to_thread.run_sync(_write_all, descriptor, data, abandon_on_cancel=True)
            return
        buffer = getattr(self._out, "buffer", None)
        if buffer is None:
            self._out.write(data.decode(errors="backslashreplace"))
        else:
            buffer.write(data)
        self._out.flush()

    def _bytes(self, line: OutputLine) -> bytes:
        if self.form == "raw" and isinstance(line.value, bytes):
            return line.value
        text = {"raw": self._raw, "json": self._json, "text": self._text}[self.form](line)
        return text.encode(self._out.encoding or "utf-8", "backslashreplace")

    def _raw(self, line: OutputLine) -> str:
        return f"{line.value if isinstance(line.value, str) else self._dumped(line.value)}\n"

    def _json(self, line: OutputLine) -> str:
        return f"{self._dumped(line.members)}\n"

    def _dumped(self, data: Any) -> str:
        return json.dumps(data, ensure_ascii=not takes_all(self._out), default=as_base64)

    def _text(self, line: OutputLine) -> str:
        from rich.console import Console
        from rich.highlighter import JSONHighlighter
        from rich.text import Text

        console = Console(file=self._out, highlight=False, soft_wrap=True)
        shown = Text(for_people(line.value, whole=line.whole))
        head = [Text(f"{printable(part)}  ", "bold" if n else "dim") for n, part in enumerate(line.head)]
        if not isinstance(line.value, str | bytes):
            JSONHighlighter().highlight(shown)
        whole = Text.assemble(*head, shown)
        with console.capture() as captured:
            console.print(whole.plain if console.no_color else whole, markup=False)
        return captured.get()

    # ---- remarks and errors

    async def progress(self, name: str, value: Any) -> None:
        """Show the progress of a run, then wait until more progress may be shown."""
        if self._quiet:
            return
        if not self._moves:
            self._beside(f"{name}: {for_people(value)}")
            await trio.sleep(10 * BETWEEN)
            return
        columns = os.get_terminal_size(self._err.fileno()).columns or 80
        shown = for_people(value)
        if isinstance(value, float) and 0 <= value <= 1:
            shown = f"{bar(value, 1)} {value:.0%}"
        text = printable(f"{name}  {shown}")[: columns - 1]
        self._err.write(f"\r\x1b[2K{text}")
        self._err.flush()
        self._moving = True
        await trio.sleep(BETWEEN)

    def clear_progress(self) -> None:
        """Remove the progress line."""
        if self._moving:
            self._moving = False
            self._err.write("\r\x1b[2K")
            self._err.flush()

    def note(self, text: str) -> None:
        """Print a remark on standard error."""
        if not self._quiet:
            self._beside(text)

    def wrong(self, text: str) -> None:
        """Print an error on standard error."""
        self._beside(f"lmos-actors: {text}")

    def _beside(self, text: str) -> None:
        self.clear_progress()
        print(printable(text), file=self._err, flush=True)


def error_members(error: Exception) -> dict[str, Any]:
    """Return an error as the data of a line: its class, its text, and the other fields of its class."""
    members: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, ActionFailed):
        members["output"] = error.output
        if error.code is not None:
            members["code"] = error.code
    elif isinstance(error, InvalidInput):
        members["path"] = error.path
    elif isinstance(error, AgentDied):
        members["started"] = error.started
    elif isinstance(error, RemoteProtocolError):
        members["title"], members["detail"] = error.problem.title, error.problem.detail
    return members


def _that_may_block(out: TextIO) -> int | None:
    """Return the descriptor of an output that may block (pipe, terminal, socket); None for a file."""
    try:
        descriptor = out.fileno()
    except (OSError, ValueError):
        return None
    return None if stat.S_ISREG(os.fstat(descriptor).st_mode) else descriptor


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
