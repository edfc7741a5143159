"""The server that judges clients: by what they send, and by what they understand.

It is the scripted server with a judge at each layer: `JudgingServer` judges handshakes, `JudgingCodec` frames
and Closes, `MessageRules` messages. Each judge notes what is wrong and passes everything on as if it were
right (a frame without a mask is read all the same), so that one error does not hide the next.

No message makes a client stop, so the end is observed: with `once` the run ends when no connection has been
open for a while, and for longer while a challenge waits for a client to reconnect.
"""

from __future__ import annotations

from importlib.metadata import version
from random import Random
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors.conformance.card import Card, Level
from lmos_actors.conformance.scripted import (
    NetworkServer,
    Out,
    RequestHead,
    SendClose,
    SendFrame,
    SendText,
    WebSocketCodec,
    is_close_code,
)
from lmos_actors.conformance.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    RawFrame,
    Recorder,
    close_payload,
)

from ._challenges import ChallengeConnection, ChallengePages, ChallengeServer
from ._log import ClientNotes, ConnectionLog
from ._rules import MessageRules, judge_handshake

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.card import Kind
    from lmos_actors.conformance.scripted import Reply, ScriptedConnection
    from lmos_actors.transport import Endpoint, Network

_VERSIONS: Final = ("lmos-actors", "trio", "h11")
_AWAY: Final = 3.0  # seconds at least, until a client is taken to have left for good
_RETURN: Final = 10.0  # the same, where it is to come back
_AGENTS: Final = 8  # kinds of clients that are named
_HIDDEN: Final = ("authorization", "cookie", "proxy-authorization")
_KINDS: Final[dict[int, Kind]] = {
    CONTINUATION: "continuation",
    TEXT: "text",
    BINARY: "binary",
    CLOSE: "close",
    PING: "ping",
    PONG: "pong",
}


class JudgingCodec(WebSocketCodec):
    """Judges the frames of a client, and pings it once it has sent something."""

    connection: ChallengeConnection

    def __init__(
        self,
        connection: ChallengeConnection,
        recorder: Recorder,
        used: dict[str, str],
        gone: Callable[[], object],
    ) -> None:
        super().__init__(connection)
        self._gone = gone
        self._recorder = recorder
        self._server = connection.challenges
        self._notes = connection.challenges.notes
        self._rules = MessageRules(self._notes, connection.log, connection.challenges.things, used)
        self._pings: list[bytes] = []
        self._pinged = False
        self._ended = False

    def _wrong(self, what: str, seen: str, key: str = "") -> None:
        self._notes.wrong(what, seen, self.connection.log, key)

    # ---- in

    def on_frame(self, frame: RawFrame) -> None:
        """Judge a frame; one without a mask is taken all the same."""
        self._recorder.keep(_KINDS.get(frame.opcode, "bytes"), frame.payload, sent=False)
        if self.received_close:
            self._wrong("nothing-after-close", f"a frame of opcode {frame.opcode} after its Close")
            return
        if self.deaf and frame.opcode != CLOSE:
            return
        self._notes.tried("masked")
        if not frame.masked:
            self._wrong("masked", f"a frame of opcode {frame.opcode} without a mask")
        self._notes.tried("frames")
        super().on_frame(attrs.evolve(frame, masked=True))

    def wrong_in(self, frame: RawFrame) -> str:
        """Judge how a frame is made."""
        wrong = super().wrong_in(frame)
        if wrong and not self.deaf:
            self._wrong("frames", wrong)
        return wrong

    def on_message(self, opcode: int, data: bytes) -> None:
        """Judge a message."""
        self._notes.tried("text")
        if opcode == BINARY:
            if len(data) < 12 or data[0] != 1:
                self._wrong("text", f"a binary message {data[:40].hex()}")
        else:
            self._text(data)
        super().on_message(opcode, data)
        if not self._pinged:
            self._pinged = True
            self.connection.put(SendFrame(PING, self._server.random.randbytes(8)))

    def _text(self, data: bytes) -> None:
        self._notes.tried("utf-8")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            self._wrong("utf-8", str(error))
            return
        self._rules.judge(text)

    def on_pong(self, payload: bytes) -> None:
        """Take a pong: it answers its ping, and those before."""
        if payload in self._pings:
            self._notes.tried("pongs")
            del self._pings[: self._pings.index(payload) + 1]

    def on_close(self, payload: bytes) -> None:
        """Judge a Close."""
        self._pings.clear()
        self._notes.tried("returns-close" if self.said_close else "close")
        self._notes.tried("nothing-after-close")
        if not self.said_close:
            self._judge_close(payload)
        super().on_close(payload)

    def _judge_close(self, payload: bytes) -> None:
        code = int.from_bytes(payload[:2], "big")
        if len(payload) == 1 or (payload and not is_close_code(code)):
            self._wrong("close", f"a Close with {payload[:2].hex()}, which is no code that may be sent")
        try:
            payload[2:].decode()
        except UnicodeDecodeError:
            self._wrong("close", "the reason of a Close is not UTF-8")

    def lost(self, *, by_peer: bool) -> None:
        """Judge how the connection has ended."""
        if by_peer and not self.received_close and not self.over and not self.deaf:
            if not self.said_close:
                self._wrong("close", "the stream ended without a Close", "ends-without-close")
            elif not self._ended:
                self._wrong("returns-close", "the stream ended, without a Close in answer")
        self._ended = True
        self._pings.clear()
        super().lost(by_peer=by_peer)
        self._gone()

    # ---- out

    def written(self, out: Out) -> bytes:
        """Write what goes out; note what is to be answered."""
        said_before = self.said_close
        data = super().written(out)
        if data:
            self._keep(out)
        if isinstance(out, SendFrame) and out.opcode == PING and data:
            self._pings.append(out.payload)
            self._server.after(self._server.patience, lambda: self._await_pong(out.payload))
        if self.said_close and not said_before and not self.received_close:
            self._pings.clear()
            self._server.after(self._server.patience, self._await_close)
        return data

    def _keep(self, out: Out) -> None:
        if isinstance(out, SendText):
            self._recorder.keep("text", out.text.encode(), sent=True)
        elif isinstance(out, SendFrame):
            self._recorder.keep(_KINDS[out.opcode], out.payload, sent=True)
        elif isinstance(out, SendClose):
            self._recorder.keep("close", close_payload(out.code, out.reason), sent=True)

    def _await_pong(self, payload: bytes) -> None:
        if payload in self._pings:
            self._pings.remove(payload)
            self._wrong("pongs", f"no pong with {payload.hex()} within {self._server.patience:g} s")

    def _await_close(self) -> None:
        if not self.received_close and not self._ended and not self.deaf:
            self._ended = True
            self._wrong("returns-close", f"no Close within {self._server.patience:g} s")


class JudgingServer(NetworkServer):
    """Serves the challenges, and judges handshakes. `left` is set once all clients have been away a while."""

    server: ChallengeServer

    def __init__(self, server: ChallengeServer) -> None:
        super().__init__(server, ChallengePages(server))
        self.left = trio.Event()
        self.agents: dict[str, None] = {}  # by their `User-Agent`
        self._used: dict[str, str] = {}
        self._open = 0
        self._number = 0
        self._visits = 0
        self._began = trio.current_time()

    def refused(self, head: RequestHead) -> Reply | None:
        """Judge a handshake that leads to nothing."""
        refused = super().refused(head)
        if refused is not None:
            self._met(head, ConnectionLog())
            self._open += 1
            self._gone()
        return refused

    def codec(self, connection: ScriptedConnection, head: RequestHead) -> WebSocketCodec:
        """Make the codec of a new connection, and judge its handshake."""
        assert isinstance(connection, ChallengeConnection)
        recorder = self._met(head, connection.log)
        self._open += 1
        return JudgingCodec(connection, recorder, self._used, self._gone)

    def _met(self, head: RequestHead, log: ConnectionLog) -> Recorder:
        self._number += 1
        recorder = Recorder(log.keep, self._number, self._began)
        shown = [(name, "…" if name.lower() in _HIDDEN else value) for name, value in head.headers]
        lines = [f"{head.method} {head.target}", *(f"{name}: {value}" for name, value in shown)]
        text = "\n".join(lines)
        recorder.note("head", text, len(text), sent=False)
        judge_handshake(head, self.server.notes, log)
        if (agent := head.header("user-agent")) and len(self.agents) < _AGENTS:
            self.agents[agent[:100]] = None
        return recorder

    def _gone(self) -> None:
        self._open -= 1
        self._visits += 1
        visits = self._visits

        def has_left() -> None:
            if not self._open and self._visits == visits:
                self.left.set()

        away = _RETURN if self.server.notes.is_open("reconnects") else _AWAY
        self.server.after(max(away, 2 * self.server.patience), has_left)


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
    the URL of the description once it is served. Raises ConfigError if the address cannot be used.
    """
    notes = ClientNotes(level)
    server = ChallengeServer(trio.current_time, Random(seed), notes, patience)
    serving = JudgingServer(server)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        base = await nursery.start(serving.run, network, endpoint)
        url = f"http{base.removeprefix('ws')}/agents/{server.main.name}"
        if announce is not None:
            announce(url)
        if stop is not None:
            nursery.start_soon(_end_with, stop, nursery.cancel_scope)
        if once:
            nursery.start_soon(_end_with, serving.left, nursery.cancel_scope)
    return Card(
        subject=", ".join(serving.agents) or "clients",
        role="client",
        title=str(server.describe(base)["title"]),
        thing=server.main.id,
        level=level,
        spoken=f"as the server at {url}",
        seed=seed,
        results=notes.results(),
        seconds=trio.current_time() - began,
        versions={name: version(name) for name in _VERSIONS},
    )


async def _end_with(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
