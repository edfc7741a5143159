"""The hub that judges clients, on a network: registration and handshakes."""

from __future__ import annotations

import json
import re
from random import Random
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors.conformance.card import RELAY_LEVELS
from lmos_actors.conformance.clients import (
    ClientJudgingOptions,
    ConnectionLog,
    Judge,
    JudgingCodec,
    Visits,
)
from lmos_actors.conformance.scripted import Reply, RequestHead, SendClose, WebServer, refusal

from ._cases import CASES, JUDGE
from ._hub import JudgedAgent, RelayJudge, RelayJudgeConnection
from ._rules import RELAY, Invalid, judge_credentials, judge_registration, tokens_in, wrong_in_binary

if TYPE_CHECKING:
    from lmos_actors.conformance.clients import ClientNotes
    from lmos_actors.conformance.scripted import WebSocketCodec

PATH: Final = "/arc"
_TOKEN: Final = re.compile(r"tok_([a-z0-9][a-z0-9-]{1,62}[a-z0-9])")
_JSON: Final = (("Content-Type", "application/json"),)


class RelayJudgeCodec(JudgingCodec):
    """The codec of a relay's client, which also judges its frames."""

    def __init__(self, connection: RelayJudgeConnection, judge: Judge) -> None:
        super().__init__(connection, judge)
        self._peer = connection

    def on_violation(self, code: int, reason: str) -> None:
        """Close the connection, as the client broke the rules."""
        self.deaf = True
        self._peer.end(SendClose(code, reason))


class RelayJudgeServer(WebServer):
    """The network server of the hub. A token is `tok_` and an agent's id, so agents need not register."""

    def __init__(self, hub: RelayJudge) -> None:
        super().__init__(hub)
        self.visits = Visits(hub, hub.awaited)
        self._hub = hub

    # ---- HTTP

    def on_http(self, head: RequestHead, body: bytes) -> Reply:
        """Register agents, and return the hub's state; for any other path, a 404 names the hub's path."""
        if head.path == "/register" and head.method == "POST":
            return self._registered(body)
        if head.path in ("/health", "/stats"):
            return _answer(200, {"status": "ok", "connected": len(self._hub.agents)})
        return refusal(404, f"a hub of AgentRelay that judges clients is at {PATH}")

    def _registered(self, body: bytes) -> Reply:
        try:
            wanted = judge_registration(body, self._hub.notes, ConnectionLog())
        except Invalid as why:
            return _answer(400, {"error": "invalid_json", "message": str(why)})
        id = wanted or f"agent-{self._hub.random.getrandbits(40):010x}"
        if not _TOKEN.fullmatch(f"tok_{id}") or id in (RELAY, JUDGE):
            return _answer(400, {"error": "invalid_agent_id", "message": "3 to 64 of a-z, 0-9 and hyphens"})
        return _answer(200, {"agent_id": id, "token": f"tok_{id}"})

    # ---- handshakes

    def refused(self, head: RequestHead) -> Reply | None:
        """Return the reply that refuses a handshake, and judge the handshake; None if it is not refused."""
        wrong = super().refused(head)
        if wrong is None and head.path != PATH:
            wrong = refusal(404, f"the hub is at {PATH}")
        log = ConnectionLog()
        if wrong is None:
            wrong = self._turned_away(head, log)
        if wrong is not None:
            self.visits.met(head, log)
            judge_credentials(head, self._hub.notes, log)
            self.visits.gone()
        return wrong

    def _turned_away(self, head: RequestHead, log: ConnectionLog) -> Reply | None:
        """Return the reply that refuses an agent because of its token, its absence, or too many agents.

        Returns None if the agent is not refused here.
        """
        agent = self._agent(head)
        if agent is not None:
            return self._hub.attempt(agent)
        if _TOKEN.fullmatch(_token_in(head)):
            return refusal(503, "there are too many agents")
        if self._hub.is_like_relays:
            return None  # closed at once
        self._hub.refuse(_token_in(head), log)
        return refusal(401, "a token is tok_ and the id of its agent")

    def _agent(self, head: RequestHead) -> JudgedAgent | None:
        found = _TOKEN.fullmatch(_token_in(head))
        return None if found is None else self._hub.agent(found[1])

    def subprotocol(self, head: RequestHead) -> str:
        """Select `arc`, or at the levels of recorded relays the first subprotocol that is offered."""
        offered = head.words("sec-websocket-protocol")
        if self._hub.is_like_relays:
            return offered[0] if offered else ""
        return "arc" if "arc" in offered else ""

    def open(self, head: RequestHead) -> WebSocketCodec:
        """Return the codec of a new connection, and judge its handshake."""
        log, found = ConnectionLog(), self._agent(head)
        recorder = self.visits.met(head, log)
        judge_credentials(head, self._hub.notes, log)
        connection = RelayJudgeConnection(self._hub, found or JudgedAgent("nobody"), log)
        judge = Judge(
            server=self._hub,
            recorder=recorder,
            text=lambda _: None,  # the connection judges what it takes
            binary=wrong_in_binary,
            gone=self.visits.gone,
        )
        if found is None:
            self._hub.refuse(_token_in(head), log)
            connection.end(SendClose(4001, "Invalid or unregistered token"))
        else:
            connection.open()
        return RelayJudgeCodec(connection, judge)

    def place(self, base: str) -> str:
        """Return the URL of the hub, from the server's address."""
        return f"{base}{PATH}"

    def facts(self, base: str) -> dict[str, str]:
        """Return facts about the hub for the card, from the server's address."""
        return {"spoken": f"as the hub of AgentRelay at {self.place(base)}"}


def _token_in(head: RequestHead) -> str:
    in_header, in_address = tokens_in(head)
    return in_header or in_address


def _answer(status: int, found: dict[str, object]) -> Reply:
    return Reply(status, json.dumps(found).encode(), _JSON)


@attrs.frozen(kw_only=True)
class RelayClientOptions(ClientJudgingOptions):
    """The options with which clients of relays are judged; see also `ClientOptions`.

    At the levels `REFERENCE` and `RAWK` the hub behaves as those relays do. Raises ConfigError for the level
    of kotlin-wot, which is no relay.
    """

    levels = RELAY_LEVELS
    judged = "clients of relays"
    cases = CASES

    def host(self, notes: ClientNotes) -> RelayJudgeServer:
        """Return a hub of AgentRelay."""
        return RelayJudgeServer(RelayJudge(trio.current_time, Random(self.seed), notes, self.patience))
