"""The server that judges clients: by what they send, and by what they understand.

It is the scripted server with a judge at each layer: `ChallengeNetwork` judges handshakes, `JudgingCodec`
frames and Closes, `MessageRules` messages. Each judge notes what is wrong and passes everything on as if it
were right, so that one error does not hide the next.

No message makes a client stop, so the end is observed: with `once` the run ends when no connection has been
open for a while, and for longer while a challenge waits for a client to reconnect.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.conformance.card import LMOS_LEVELS, Card, Level, check_level, versions
from lmos_actors.conformance.scripted import NetworkServer, RequestHead, WebSocketCodec

from ._challenges import ChallengeConnection, ChallengePages, ChallengeServer
from ._codec import Judge, JudgingCodec
from ._log import ClientNotes, ConnectionLog
from ._rules import MessageRules, judge_subprotocol
from ._visits import Visits

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.scripted import Reply, ScriptedConnection, WebServer
    from lmos_actors.transport import Endpoint, Network

_RETURN: Final = 10.0  # seconds at least that a client is waited for that is to come back


class ChallengeNetwork(NetworkServer):
    """Serves the challenges, and judges handshakes."""

    server: ChallengeServer

    def __init__(self, server: ChallengeServer) -> None:
        super().__init__(server, ChallengePages(server))
        self.visits = Visits(server, lambda: _RETURN if server.notes.is_open("reconnects") else 0.0)
        self._used: dict[str, str] = {}

    def refused(self, head: RequestHead) -> Reply | None:
        """Judge a handshake that leads to nothing."""
        refused = super().refused(head)
        if refused is not None:
            log = ConnectionLog()
            self.visits.met(head, log)
            judge_subprotocol(head, self.server.notes, log)
            self.visits.gone()
        return refused

    def codec(self, connection: ScriptedConnection, head: RequestHead) -> WebSocketCodec:
        """Make the codec of a new connection, and judge its handshake."""
        assert isinstance(connection, ChallengeConnection)
        recorder = self.visits.met(head, connection.log)
        judge_subprotocol(head, self.server.notes, connection.log)
        rules = MessageRules(self.server.notes, connection.log, self.server.things, self._used)
        judge = Judge(
            server=self.server,
            recorder=recorder,
            text=rules.judge,
            binary=_wrong_in_binary,
            gone=self.visits.gone,
        )
        return JudgingCodec(connection, judge)


def _wrong_in_binary(data: bytes) -> tuple[str, str]:
    """Return what is wrong with a binary message: items of streams are such."""
    is_item = len(data) >= 12 and data[0] == 1
    return ("" if is_item else f"a binary message {data[:40].hex()}"), ""


async def judge_clients(
    network: Network,
    endpoint: Endpoint,
    *,
    level: Level = Level.LENIENT,
    patience: float = 2.0,
    seed: int = 0,
    once: bool = False,
    stop: trio.Event | None = None,
    announce: Callable[[str], object] | None = None,
) -> Card:
    """Serve the scripted thing with its challenges, judge the clients that connect, and return their card.

    It ends when `stop` is set, or with `once` when the clients that came have gone, and have been away for
    twice the `patience` in seconds, 3 at least, 10 where a challenge makes them reconnect. `announce` gets
    the URL of the description once it is served. Raises ConfigError if the address cannot be used, and for
    a level of relays.
    """
    check_level(level, LMOS_LEVELS, "clients of LMOS")
    notes = ClientNotes(level)
    server = ChallengeServer(trio.current_time, Random(seed), notes, patience)
    serving = ChallengeNetwork(server)
    began = trio.current_time()
    base = ""

    def found(address: str) -> None:
        nonlocal base
        base = address
        if announce is not None:
            announce(_description_at(base, server))

    await serve_until(serving, network, endpoint, found, stop, serving.visits.left if once else None)
    return Card(
        subject=", ".join(serving.visits.agents) or "clients",
        role="client",
        title=str(server.describe(base)["title"]),
        thing=server.main.id,
        level=level,
        spoken=f"as the server at {_description_at(base, server)}",
        seed=seed,
        results=notes.results(),
        seconds=trio.current_time() - began,
        versions=versions(),
    )


def _description_at(base: str, server: ChallengeServer) -> str:
    return f"http{base.removeprefix('ws')}/agents/{server.main.name}"


async def serve_until(
    serving: WebServer,
    network: Network,
    endpoint: Endpoint,
    found: Callable[[str], object],
    *ends: trio.Event | None,
) -> None:
    """Serve until one of some events; `found` is called with the address. Raises ConfigError."""
    async with trio.open_nursery() as nursery:
        found(await nursery.start(serving.run, network, endpoint))
        for event in ends:
            if event is not None:
                nursery.start_soon(_end_with, event, nursery.cancel_scope)


async def _end_with(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
