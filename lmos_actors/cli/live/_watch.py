"""The session of a command that watches a node: a live display on a terminal, otherwise one snapshot."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Protocol

import trio

from lmos_actors.errors import ConfigError
from lmos_actors.live import LiveClient, Wrong, open_live

from .._exit_codes import FAILED, OK
from ..remote._relay import run_within

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from rich.console import RenderableType

    from .._answers import AnswerPrinter
    from ..options._connection import Server
    from ..options._live import WatchOptions


class Screen(Protocol):
    """The screen of one command: the views of a node that it needs, and the forms in which it shows them."""

    def begin(self, client: LiveClient) -> None:
        """Open the views that the screen needs."""
        ...

    def is_whole(self, client: LiveClient) -> bool:
        """Return whether all data for a snapshot has arrived; may open more views."""
        ...

    def missing(self, client: LiveClient) -> str:
        """Return why there is nothing to show, or "" if there is something."""
        ...

    def picture(self, client: LiveClient) -> RenderableType:
        """Return the picture for a terminal."""
        ...

    def text(self, client: LiveClient) -> RenderableType:
        """Return a snapshot for people."""
        ...

    def data(self, client: LiveClient) -> list[dict[str, Any]]:
        """Return a snapshot as the JSON lines to print."""
        ...


def run_watch(url: str, options: WatchOptions, screen: Screen) -> int:
    """Show a node on a screen until the end, and return the exit code. Raises ConfigError, OSError."""
    server, answers = options.server.at(url), options.answers()
    moves = sys.stdout.isatty() and not options.once and answers.form == "text"

    async def work() -> int:
        async with live_at(server) as client:
            screen.begin(client)
            return await (_move(client, screen) if moves else _snapshot(client, screen, answers))

    return run_within(options.within, answers, work)


def live_at(server: Server) -> AbstractAsyncContextManager[LiveClient]:
    """Yield the viewer of a node, for a block. Raises ConfigError, ConnectFailed."""
    return open_live(server.url, headers=server.header_lines, credentials=server.credentials, tls=server.tls)


async def _snapshot(client: LiveClient, screen: Screen, answers: AnswerPrinter) -> int:
    while not client.errors and not screen.is_whole(client):
        await client.wait()
    missing = "" if client.errors else screen.missing(client)
    if missing:
        answers.wrong(missing)
        return FAILED
    if client.errors:
        answers.wrong(reason_of(client.errors[0]))
        return FAILED
    if answers.form == "json":
        lines = [json.dumps(line, ensure_ascii=False) for line in screen.data(client)]
        await answers.write("".join(f"{line}\n" for line in lines))
        return OK
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    with console.capture() as captured:
        console.print(screen.text(client), soft_wrap=True)
    await answers.write(captured.get())
    return OK


async def _move(client: LiveClient, screen: Screen) -> int:
    """Redraw the screen until Ctrl-C."""
    if os.environ.get("TERM") in ("dumb", "unknown", None):
        raise ConfigError("this terminal cannot move: give --once")
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout, highlight=False)
    reason = ""
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while not reason:
            if screen.is_whole(client):
                live.update(screen.picture(client), refresh=True)
            with trio.move_on_after(1.0):  # drawn again even without news: a picture may show ages
                await client.wait()
            reason = "" if not client.errors else reason_of(client.errors[0])
    print(f"lmos-actors: {reason}", file=sys.stderr)
    return FAILED


def reason_of(wrong: Wrong) -> str:
    """Return the node's reason for a refusal, in one line."""
    return f"{wrong.code}: {wrong.message}"
