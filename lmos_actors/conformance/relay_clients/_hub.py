"""The hub that judges clients, and its connections, without sockets and tasks.

An agent that stays connected meets one act after another (`_acts`). Each act begins when the agent has sent
nothing for a second, so that a client that connects to send one message can leave undisturbed. If an agent
does not tolerate an act, its connection ends during the act; the next connection continues with the next act.
An agent that was cut off is expected to reconnect, or to stay away (`_absences`).
"""

from __future__ import annotations

import json
from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import Level
from lmos_actors.conformance.scripted import Out, Scheduler, SendClose, SendText, is_object

from ._absences import NEVER
from ._acts import USUAL, Act, End, canonical, challenge, program_of
from ._cases import JUDGE
from ._rules import RELAY, SIZE, FrameRules, Invalid

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from lmos_actors.conformance.clients import ClientNotes, ConnectionLog
    from lmos_actors.conformance.scripted import Reply

    from ._absences import Absence
    from ._rules import Frame

SETTLED: Final = 1.0
"""Seconds of silence of an agent before something happens to it."""

_AGENTS: Final = 256
_TOKENS: Final = 64  # refused tokens that are remembered
_REMEMBERED: Final = 4_096  # ids of sent messages
_WAITING: Final = 1_024  # frames that wait for one client
_FOLLOWED: Final = 1_024
_YEAR_2026: Final = 1_767_225_600


class JudgedAgent:
    """An agent: its connection, its step in its program, and what it is expected to do while it is away."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.step = 0
        self.follows: list[str] = []
        self.connection: RelayJudgeConnection | None = None
        self.absence: Absence | None = None
        self.was_greeted = False


class RelayJudge(Scheduler):
    """The hub: its agents, and the level of judgement, which also selects the relay that it imitates."""

    def __init__(
        self, clock: Callable[[], float], random: Random, notes: ClientNotes, patience: float
    ) -> None:
        super().__init__(clock)
        self.random = random
        self.notes = notes
        self.patience = patience
        self.agents: dict[str, JudgedAgent] = {}
        self._ids = count(1)
        self._refused: dict[str, ConnectionLog] = {}

    @property
    def level(self) -> Level:
        """The level at which clients are judged."""
        return self.notes.level

    @property
    def is_like_relays(self) -> bool:
        """Whether the hub behaves like both recorded relays: late refusals, silence, no limits."""
        return self.level in (Level.REFERENCE, Level.RAWK)

    def new_id(self) -> str:
        """Return a new id for a message."""
        return f"m-{next(self._ids)}"

    def now(self) -> int:
        """Return a Unix time in milliseconds for messages: the hub's clock, with its origin in 2026."""
        return int((_YEAR_2026 + self.clock()) * 1_000)

    def known(self) -> Frame:
        """Return the payload of a welcome."""
        found: Frame = {
            "relay": "conformance",
            "version": "0.1.0",
            "capabilities": ["broadcast", "direct", "subscribe"],
            "extensions": [],
        }
        return found if self.is_like_relays else {**found, "limits": {"max_message_size": SIZE}}

    def agent(self, id: str) -> JudgedAgent | None:
        """Return the agent with an id, which is made if necessary; None if there are too many agents."""
        if id not in self.agents and len(self.agents) >= _AGENTS:
            return None
        return self.agents.setdefault(id, JudgedAgent(id))

    # ---- agents that are away

    def awaited(self) -> float:
        """Return the seconds to wait at least for agents that are away, or 0.0 if none is awaited."""
        away = [agent.absence.seconds for agent in self.agents.values() if agent.absence is not None]
        away += [NEVER] if self._refused else []
        return max(away) + self.patience if away else 0.0

    def cut_off(self, agent: JudgedAgent, end: End, log: ConnectionLog) -> None:
        """Start the absence of an agent, which must then reconnect, or stay away, depending on `end`."""

        def over() -> None:
            agent.absence = None

        absence = agent.absence = end.absence(end.case, self.notes, log, over)
        self._watch(agent, absence)

    def _watch(self, agent: JudgedAgent, absence: Absence) -> None:
        attempts = absence.attempts

        def look() -> None:
            if agent.absence is absence and absence.attempts == attempts:
                absence.expired()

        self.after(absence.seconds, look)

    def attempt(self, agent: JudgedAgent) -> Reply | None:
        """Judge an agent's attempt to connect; return the reply that refuses it, or None to accept it."""
        absence = agent.absence
        if absence is None:
            return None
        reply = absence.attempt(self.clock())
        if agent.absence is absence:
            self._watch(agent, absence)
        return reply

    def refuse(self, token: str, log: ConnectionLog) -> None:
        """Note that a token was refused; a client that soon uses it again makes a mistake."""
        known = self._refused.get(token)
        if known is not None:
            self.notes.wrong("refused", f"another attempt within {NEVER:g} s", known)
            return
        if len(self._refused) >= _TOKENS:
            return
        self._refused[token] = log

        def over() -> None:
            del self._refused[token]
            self.notes.tried("refused")

        self.after(NEVER, over)

    # ---- messages

    def pass_on(self, sender: RelayJudgeConnection, frame: Frame) -> None:
        """Pass a message on to its receivers, and answer it if it is for the judge."""
        to, id = frame["to"], sender.agent.id
        kept = ("type", "ref") if self.level is Level.REFERENCE else tuple(frame)
        own = {"id": self.new_id(), "from": sender.rules.id, "to": to, "ts": self.now()}
        message = {**own, "payload": frame["payload"]}
        message |= {name: frame[name] for name in kept if name in frame and name not in message}
        if "*" in to:
            named = [other for other in self.agents if other != id or id in sender.agent.follows]
        else:
            named = list(dict.fromkeys(to))
        for name in named:
            target = sender.agent if name == sender.rules.id else self.agents.get(name)
            if target is not None and target.connection is not None:
                target.connection.send(message)
        if "*" in to or JUDGE in to:
            self._take(sender, message)

    def _take(self, sender: RelayJudgeConnection, message: Frame) -> None:
        """Handle a message to the judge: a question, or a proof."""
        kind, payload = message.get("type"), message["payload"]
        if kind == "question":
            token = challenge(sender, "asks")
            fitting: Frame = {**token, "type": "answer", "ref": message["id"]}
            other = sender.message(JUDGE, {"challenge": "asks", "token": "wrong"}, type="answer", ref="m-0")
            unfitting = sender.message(JUDGE, payload, type="thought")
            for each in (other, unfitting, fitting):
                sender.send(each)
        elif kind == "proof" and is_object(payload) and payload.get("challenge") in self.notes.challenges:
            self.notes.prove(str(payload["challenge"]), canonical(payload), False, sender.log)


class RelayJudgeConnection:
    """One connection of an agent: frames in, frames out, and the acts of its program."""

    def __init__(self, hub: RelayJudge, agent: JudgedAgent, log: ConnectionLog) -> None:
        self.hub = hub
        self.notes = hub.notes
        self.random = hub.random
        self.agent = agent
        self.log = log
        self.out: deque[Out] = deque()
        self.wake: Callable[[], object] = lambda: None
        self.rules = FrameRules(
            hub.notes,
            log,
            agent.id,
            limited=not hub.is_like_relays,
            demands_payloads=hub.level is Level.REFERENCE,
        )
        self.questions: dict[str, int] = {}
        self._case = ""  # the case of the act under way
        self._is_ended = False  # by the hub
        self._began = self._heard = hub.clock()

    def wrong(self, what: str, seen: str) -> None:
        """Note a mistake of the client."""
        self.notes.wrong(what, seen, self.log)

    # ---- out

    def put(self, out: Out) -> None:
        """Queue something to be sent."""
        self.out.append(out)
        self.wake()

    def end(self, out: Out) -> None:
        """End the connection from the hub's side with a last frame."""
        self._is_ended = True
        self.put(out)

    def send(self, frame: Frame) -> None:
        """Send a frame, unless too many are already queued."""
        if len(self.out) < _WAITING:
            self.remember(frame)
            self.put(SendText(json.dumps(frame)))

    def remember(self, frame: Frame) -> None:
        """Note the id of a message that was sent to the client, which may answer it."""
        sent = self.rules.sent
        if "id" in frame:
            sent[frame["id"]] = None
        if len(sent) > _REMEMBERED:
            del sent[next(iter(sent))]

    def known(self) -> Frame:
        """Return the payload of a welcome."""
        return self.hub.known()

    def message(self, sender: str, payload: Any, *, to: list[str] | None = None, **members: Any) -> Frame:
        """Return a message from a sender to this agent, and remember it as sent."""
        frame = {"id": self.hub.new_id(), "from": sender, "to": to or [self.rules.id], "payload": payload}
        frame |= {**members, "ts": self.hub.now()}
        self.remember(frame)
        return frame

    def own(self, type: str, payload: Any, **members: Any) -> Frame:
        """Return a frame from the relay itself to this agent."""
        return self.message(RELAY, payload, type=type, **members)

    # ---- what happens to it

    def open(self) -> None:
        """Welcome the agent, end its older connection, and continue its program."""
        older, self.agent.connection = self.agent.connection, self
        if older is not None:
            older.end(SendClose(4009, "replaced"))
        program, is_new = program_of(self.agent.id), not self.agent.was_greeted
        self.agent.was_greeted = True
        if program.at_once is not None and not is_new:  # it was too much: now it may go on
            program = USUAL
        welcome = program.welcome(self)
        if welcome is not None:
            self.send(welcome)
        if program.at_once is not None:
            self._begin(program.at_once)
        elif is_new:
            self.send(challenge(self, "behind-welcome"))
        self.hub.after(SETTLED, self._go_on)

    def _go_on(self) -> None:
        """Begin the agent's next act when the agent has been quiet for a while."""
        if self._is_ended or self.agent.connection is not self:
            return
        now, steps = self.hub.clock(), program_of(self.agent.id).steps
        quiet = min(now - self._heard - SETTLED, 0.0)
        # an agent that never stops talking gets its next step after ten seconds all the same
        if self._case or (quiet < 0 and now - self._began < 10.0):
            self.hub.after(max(-quiet, 0.1), self._go_on)
        elif self.agent.step < len(steps):
            step = steps[self.agent.step]
            self.agent.step += 1
            if isinstance(step, Act):
                self._begin(step)
                self.hub.after(step.seconds, self._go_on)
            else:
                self.end(step.out)
                self.hub.cut_off(self.agent, step, self.log)
                if self.agent.step == len(steps):
                    self.agent.step = 0

    def _begin(self, act: Act) -> None:
        self._case = act.case
        for out in act.out(self):
            self.put(out)
        self.hub.after(act.seconds, partial(self._over, act))

    def _over(self, act: Act) -> None:
        """Note that the agent has tolerated an act, and judge what it did meanwhile."""
        if self._case != act.case:
            return
        self._case = ""
        if act.then is not None:
            act.then(self)
        elif act.case in self.notes.watched and act.case != "pongs":
            self.notes.tried(act.case)

    def lost(self) -> None:
        """Handle the end of the connection, which is a mistake if the client has ended it during an act."""
        if self.agent.connection is self:
            self.agent.connection = None
        if self._case and not self._is_ended and self._case in self.notes.watched:
            self.wrong(self._case, "the client has ended the connection")
        self._case = ""

    # ---- in

    def text(self, text: str) -> None:
        """Handle a text message from the client."""
        self._heard = self.hub.clock()
        try:
            frame = self.rules.judge(text)
        except Invalid as why:
            self.send(self.own("error", {"code": "invalid_message", "message": str(why)}))
            return
        ref = frame.get("ref")
        if isinstance(ref, str) and ref in self.questions:
            self.questions[ref] += 1
        if RELAY in frame["to"]:
            self._command(frame.get("type"), frame.get("payload"))
        else:
            self.hub.pass_on(self, frame)

    def binary(self, data: bytes) -> None:
        """Handle a message in a binary frame from the client."""
        try:
            self.text(data.decode())
        except UnicodeDecodeError:
            self.end(SendClose(1007, "no UTF-8"))

    def _command(self, kind: Any, payload: Any) -> None:
        level = self.hub.level
        if kind == "ping":
            if level is not Level.REFERENCE:
                self.send(self.own("pong", {"timestamp": self.hub.now()} if level is Level.RAWK else None))
        elif kind == "list_subscriptions":
            self.send(self.own("subscriptions", {"agents": self.agent.follows}))
        elif kind in ("subscribe", "unsubscribe"):
            names, follows = payload["agents"], self.agent.follows
            left = [name for name in follows if name not in names]
            self.agent.follows = left if kind == "unsubscribe" else [*left, *names][-_FOLLOWED:]
            self.send(self.own(f"{kind}d", {"agents": names, "count": len(names)}))
        elif not self.hub.is_like_relays:
            self.send(self.own("error", {"code": "unknown_command", "message": f"no command {kind!r}"}))
