"""Execution of `relay join`, which connects a terminal to a relay.

Speakers and message types have colours, and threads have numbers. Lines are read by a thread, which is
abandoned if the command ends while it waits for a line. Messages that arrive meanwhile are printed above the
line that is being typed.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors._core import printable
from lmos_actors.errors import ActionFailed, LmosActorsError, OutcomeUnknown
from lmos_actors.facades import RelayAnswer, RelayFault, RelayMessage, agents_on_relay

from .._exit_codes import OK
from ._chat import as_it_was, read_line
from ._relay import clock, line_of, line_of_relay, reason_of, run_on_relay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.facades import Relay

    from .._answers import AnswerPrinter
    from ..options._connection import Server
    from ..options._relay import AgentOptions

PROMPT: Final = "> "

NUMBERED: Final = 1_000
"""Maximum messages that can be answered by number."""

LONGEST: Final = 2_000
"""Maximum characters of a payload that are shown."""

HELP: Final = """text            says it to everybody
@ID text        says it to an agent; several: @ID @ID text
?text           asks everybody; @ID ?text asks an agent
#N text         answers message N
/who            lists who is there
/follow ID      follows an agent, /unfollow ID no more
/quit           ends"""

COLOURS: Final[Mapping[str, str]] = {
    "question": "yellow",
    "answer": "green",
    "thought": "blue",
    "discovery": "cyan",
    "alert": "bold red",
    "proposal": "magenta",
    "vote": "magenta",
    "vote_result": "bold magenta",
}


def run_join(url: str, options: AgentOptions, follow: Sequence[str]) -> int:
    """Join a relay from a terminal or a pipe; return the exit code. Raises ConfigError, OSError."""

    server = options.at(url)

    async def work(relay: Relay, answers: AnswerPrinter) -> int:
        return await _Terminal(server, answers, relay).run()

    with as_it_was():
        return run_on_relay(server, options, work, follow)


class _Terminal:
    def __init__(self, server: Server, answers: AnswerPrinter, relay: Relay) -> None:
        self._server, self._answers, self._relay = server, answers, relay
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._messages: OrderedDict[int, RelayMessage] = OrderedDict()
        self._numbers: dict[str, int] = {}
        self._next = 1

    async def run(self) -> int:
        """Print received messages and send typed ones, until the end of the input."""
        relay = self._relay
        await self._note(f"you are {relay.id or 'not named'}; /help explains, Ctrl-D ends")
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            while (line := await self._line()) is not None and line.strip() != "/quit":
                try:
                    await self._carry_out(line.strip())
                except (ActionFailed, OutcomeUnknown, TypeError, ValueError) as error:
                    text = reason_of(error) if isinstance(error, LmosActorsError) else str(error)
                    await self._note(text)
                except LmosActorsError as error:
                    failure = error
                    break
            nursery.cancel_scope.cancel("the end of the input")
        if failure is not None:
            raise failure
        return OK

    # ---- what is typed

    async def _line(self) -> str | None:
        prompt = PROMPT if self._is_terminal else ""
        line = await trio.to_thread.run_sync(read_line, prompt, abandon_on_cancel=True)
        return line or None

    async def _carry_out(self, line: str) -> None:
        if not line:
            return
        if line.startswith("/"):
            await self._command(line)
            return
        to, ref, kind, text = self._parsed(line)
        receipt = await self._relay.say(text, to or "*", type=kind, ref=ref)
        if receipt is not None and receipt.unknown:
            await self._note(f"not there: {', '.join(receipt.unknown)}")

    def _parsed(self, line: str) -> tuple[list[str], str | None, str | None, str]:
        """Parse a line into its targets, the id of the answered message, the type, and the text.

        Raises ValueError.
        """
        to: list[str] = []
        ref = kind = None
        while line.startswith(("@", "#")):
            word, _, line = line.partition(" ")
            line = line.lstrip()
            if word.startswith("@"):
                to.append(word[1:])
                continue
            number = word[1:]
            found = self._messages.get(int(number)) if number.isascii() and number.isdigit() else None
            if found is None:
                raise ValueError(f"there is no message {word}")
            ref, kind = found.id, "answer"
            to = to or [found.sender]
        if line.startswith("?"):
            kind, line = "question", line[1:].lstrip()
        if not line:
            raise ValueError("there is nothing to say: /help explains")
        return to, ref, kind, line

    async def _command(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "/help":
            await self._note(*HELP.splitlines())
        elif word == "/who":
            await self._who()
        elif word in ("/follow", "/unfollow") and rest.split():
            await (self._relay.follow if word == "/follow" else self._relay.unfollow)(*rest.split())
            await self._note(f"followed: {', '.join(self._relay.follows) or 'nobody'}")
        else:
            raise ValueError(f"no command {line}: /help explains")

    async def _who(self) -> None:
        server, found = self._server, None
        with suppress(LmosActorsError):
            found = await agents_on_relay(server.url, credentials=server.credentials, tls=server.tls)
        text = "this relay does not say who is there" if found is None else ", ".join(sorted(found))
        await self._note(text or "nobody")

    # ---- what is heard

    async def _listen(self) -> None:
        async for event in self._relay:
            if isinstance(event, RelayMessage):
                await self._show(event)
            elif isinstance(event, RelayFault):
                await self._note(f"{event.code}: {event.message}")
            elif isinstance(event, RelayAnswer):
                await self._show_relay(event)
            elif self._relay.connections > 1:
                await self._note("connected again")

    async def _show(self, message: RelayMessage) -> None:
        number, self._next = self._next, self._next + 1
        self._messages[number] = message
        self._numbers[message.id] = number
        if len(self._messages) > NUMBERED:
            _, oldest = self._messages.popitem(last=False)
            self._numbers.pop(oldest.id, None)
        if self._answers.form == "json":
            await self._answers.print(line_of(message))
            return
        thread = self._numbers.get(message.ref) if message.ref else None
        about = f" to #{thread}" if thread is not None else ""
        direct = "" if message.is_broadcast else " to you"
        head = f"#{number} {clock(message.ts)} "
        what = f"{message.type or 'says'}{about}{direct}: "
        await self._print(
            [(head, "dim"), (f"{message.sender} ", "bold"), (what, COLOURS.get(message.type, ""))],
            message.payload,
        )

    async def _show_relay(self, answer: RelayAnswer) -> None:
        if self._answers.form == "json":
            await self._answers.print(line_of_relay(answer))
            return
        thread = self._numbers.get(answer.ref) if answer.ref else None
        about = f" to #{thread}" if thread is not None else ""
        await self._print(
            [(f"relay {answer.type}{about}: ", COLOURS.get(answer.type, "dim"))], answer.payload
        )

    async def _print(self, head: list[tuple[str, str]], payload: Any) -> None:
        """Print a line above the one that is being typed."""
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False, soft_wrap=True)
        line = Text.assemble(*((printable(text), style) for text, style in head))
        line.append(printable(line_text(payload)))
        with console.capture() as captured:
            console.print(line)
        await self._above(captured.get())

    async def _note(self, *lines: str) -> None:
        for each in lines:
            if self._is_terminal:
                await self._above(f"{printable(each)}\n")
            else:
                self._answers.note(each)

    async def _above(self, text: str) -> None:
        if self._is_terminal:
            text = f"\r\x1b[2K{text}{PROMPT}{_typed()}"
        await self._answers.write(text)


def line_text(payload: Any) -> str:
    """Return a payload in one line, of a bounded length."""

    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _typed() -> str:
    """Return the part of the current line that has been typed so far."""
    with suppress(ImportError):
        import readline

        return readline.get_line_buffer()
    return ""
