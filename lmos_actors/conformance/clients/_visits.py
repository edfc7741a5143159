"""The visits of clients to a server that judges them: which have connected, and whether all have left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.conformance.wire import Recorder

from ._rules import judge_handshake

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.scripted import RequestHead

    from ._codec import JudgingServer
    from ._log import ConnectionLog

_AGENTS: Final = 8  # kinds of clients that the card names
_TOKEN: Final = re.compile(r"(?<=token=)[^&]*")
_HIDDEN: Final = ("authorization", "cookie", "proxy-authorization")


class Visits:
    """The visits of clients. `left` is set when no client has been connected for a while.

    `awaited` returns the least number of seconds to wait for clients that must reconnect, or 0.0 if there are
    none.
    """

    def __init__(self, server: JudgingServer, awaited: Callable[[], float]) -> None:
        self.left = trio.Event()
        self.agents: dict[str, None] = {}  # by their `User-Agent`
        self._server = server
        self._awaited = awaited
        self._open = 0
        self._number = 0
        self._visits = 0
        self._began = trio.current_time()

    def met(self, head: RequestHead, log: ConnectionLog) -> Recorder:
        """Judge the handshake of a new client, and return a recorder for its traffic."""
        self._number += 1
        self._open += 1
        recorder = Recorder(log.keep, self._number, self._began)
        shown = [(name, "…" if name.lower() in _HIDDEN else value) for name, value in head.headers]
        request = f"{head.method} {_TOKEN.sub('…', head.target)}"
        lines = [request, *(f"{name}: {value}" for name, value in shown)]
        text = "\n".join(lines)
        recorder.note("head", text, len(text), sent=False)
        judge_handshake(head, self._server.notes, log)
        if (agent := head.header("user-agent")) and len(self.agents) < _AGENTS:
            self.agents[agent[:100]] = None
        return recorder

    def gone(self) -> None:
        """Note that a client has left."""
        self._open -= 1
        self._visits += 1
        visits = self._visits

        def has_left() -> None:
            if not self._open and self._visits == visits:
                self.left.set()

        # then the client is taken to have left for good
        self._server.after(max(3.0, self._awaited(), 2 * self._server.patience), has_left)
