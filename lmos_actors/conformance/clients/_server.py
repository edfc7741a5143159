"""The server that judges clients: by what they send, and by what they understand.

This is the scripted server with a judge at each layer: `ChallengeNetwork` judges handshakes, `JudgingCodec`
judges frames and Closes, `MessageRules` judges messages. Each judge notes errors and passes everything on as
if it were right, so that one error does not hide the next.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import attrs
import trio

from lmos_actors.conformance.card import LMOS_LEVELS
from lmos_actors.conformance.scripted import NetworkServer, RequestHead, WebSocketCodec

from ._cases import CASES
from ._challenges import ChallengeConnection, ChallengePages, ChallengeServer
from ._codec import Judge, JudgingCodec
from ._judge import ClientJudgingOptions
from ._log import ConnectionLog
from ._rules import MessageRules, judge_subprotocol
from ._visits import Visits

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Reply, ScriptedConnection

    from ._log import ClientNotes


class ChallengeNetwork(NetworkServer):
    """The network side of the server with challenges, which also judges handshakes."""

    server: ChallengeServer

    def __init__(self, server: ChallengeServer) -> None:
        super().__init__(server, ChallengePages(server))
        # a client that has to come back is waited for, ten seconds at least
        self.visits = Visits(server, lambda: 10.0 if server.notes.is_open("reconnects") else 0.0)
        self._used: dict[str, str] = {}

    def refused(self, head: RequestHead) -> Reply | None:
        """Return the reply that refuses a handshake, and judge the handshake; None if it is not refused."""
        refused = super().refused(head)
        if refused is not None:
            log = ConnectionLog()
            self.visits.met(head, log)
            judge_subprotocol(head, self.server.notes, log)
            self.visits.gone()
        return refused

    def codec(self, connection: ScriptedConnection, head: RequestHead) -> WebSocketCodec:
        """Return the codec of a new connection, and judge its handshake."""
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

    def place(self, base: str) -> str:
        """Return the URL of the description, from the server's address."""
        return f"http{base.removeprefix('ws')}/agents/{self.server.main.name}"

    def facts(self, base: str) -> dict[str, str]:
        """Return facts about the thing for the card, from the server's address."""
        title = str(self.server.describe(base)["title"])
        return {
            "spoken": f"as the server at {self.place(base)}",
            "title": title,
            "thing": self.server.main.id,
        }


def _wrong_in_binary(data: bytes) -> tuple[str, str]:
    """Return what is wrong with a binary message, or "" if it is an item of a stream.

    The second text, the key of a deviation, is always empty.
    """
    is_item = len(data) >= 12 and data[0] == 1
    return ("" if is_item else f"a binary message {data[:40].hex()}"), ""


@attrs.frozen(kw_only=True)
class ClientOptions(ClientJudgingOptions):
    """The options with which clients of LMOS are judged.

    `patience`: how long an answer may take, in seconds. With `once` the run is over when no client has been
    connected for twice the `patience`, or for 3 seconds if that is longer. While a challenge requires a
    client to reconnect, the time is at least 10 seconds. Raises ConfigError for a level of relays.
    """

    levels = LMOS_LEVELS
    judged = "clients of LMOS"
    cases = CASES

    def host(self, notes: ClientNotes) -> ChallengeNetwork:
        """Return a server that serves the scripted thing with its challenges."""
        return ChallengeNetwork(ChallengeServer(trio.current_time, Random(self.seed), notes, self.patience))
