"""Challenges that clients solve: the thing that has them, and the connection that poses them.

What a client sends can be judged at once; what it understands cannot be observed from outside. So each
challenge has a random token, in the one place that a client must read to pass: after a pending status, in the
detail of an error, in the third frame of a message. The client invokes `prove` with the token, and
`ClientNotes` compares it. A challenge that was begun and never proven has failed; one that was never begun
was not run.

Tokens are random, so that no client passes by guessing. Every challenge ends within `patience`, so that a
client that waits for the wrong thing is not stuck. A challenge that needs more than its plain output is
answered by a method named `put_` and its action; `on_outcome` finds this method.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.scripted import (
    ABSENT,
    Done,
    Input,
    Json,
    Out,
    Outcome,
    Problem,
    Request,
    Run,
    ScriptedConnection,
    ScriptedPages,
    ScriptedServer,
    ScriptedThing,
    SendFrame,
    SendText,
    Taking,
    completed,
    not_allowed,
)
from lmos_actors.conformance.wire import (
    CONTINUATION,
    PING,
    PONG,
    TEXT,
)

from ._cases import CHALLENGES
from ._challenge_descriptions import CHALLENGE_OF, describe_challenges, describe_challenges_b
from ._log import ConnectionLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from lmos_actors.conformance.scripted import HttpRequest, Reply

    from ._log import ClientNotes

READ: Final = {"challenge_read": "read", "challenge_time": "zoned-time"}
NOT_YET: Final = "not yet"
A_WHILE: Final = 0.3
"""Seconds that a slow challenge takes."""

_SMALL: Final = (2, 65_536)
"""The window of a stream that is a challenge: items and bytes."""
_PROBLEM: Final = "urn:lmos-actors:errors#challenge"
_LETTERS: Final = ' Grüße \u00a0 \u2028 \U0001f70a \U0001f469\u200d\U0001f680 "quoted" \\ \t e\u0301 \u05d0'


class ChallengeThing(ScriptedThing):
    """A thing whose challenges have tokens, which are recorded in the server's `notes`."""

    server: ChallengeServer
    slate = ""

    def token(self, challenge: str, more: str = "") -> str:
        """Return a new token for a challenge, followed by `more`."""
        return self.server.notes.give(challenge, f"{self.server.random.randbytes(6).hex()}{more}")

    def value(self, name: str) -> Any:
        """Return the value of a property; the value of a challenge is its token."""
        if name == "challenge_slate":
            return self.slate
        if name == "challenge_changing":
            return NOT_YET
        if name in READ:
            return self.token("other-thing" if self is self.server.beside else READ[name])
        return super().value(name)

    def write(self, values: Mapping[str, Any]) -> None:
        """Set properties. A text written to the challenge's slate is stored with a token after it."""
        values = dict(values)
        if "challenge_slate" in values:
            text = values.pop("challenge_slate")
            self.slate = self.server.notes.give("write", f"{text} {self.server.random.randbytes(6).hex()}")
        super().write(values)

    def act(self, name: str, value: Any) -> Outcome:
        """Carry an action out; the output of a challenge is its token."""
        challenge = CHALLENGE_OF.get(name)
        if challenge is None:
            return Done() if name == "prove" else super().act(name, value)
        if challenge == "stream":
            return self._taking()
        if challenge == "reversed":
            return Done({"token": self.server.random.randbytes(6).hex()})
        return Done({"token": self.token(challenge, _LETTERS if challenge == "letters" else "")})

    def _taking(self) -> Taking:
        words: list[str] = []

        def take(word: str) -> list[Any]:
            words.append(word)
            return []

        def end() -> Done:
            missing = 5 - len(words)
            return Done({"token": f"{missing} words are missing" if missing > 0 else self.token("stream")})

        return Taking(take, end)


class ChallengeConnection(ScriptedConnection):
    """A connection that poses challenges: by the form of an answer, or by other messages sent with it."""

    def __init__(
        self, server: ChallengeServer, *, offered: bool, at: ScriptedThing, fixed: bool, peer: str = ""
    ) -> None:
        super().__init__(server, offered=offered, at=at, fixed=fixed, peer=peer)
        self.challenges = server
        self.log = ConnectionLog()
        self._in_parts = False
        self._held: list[tuple[Run, str]] = []
        self._restarted = False

    def take(self, request: Request) -> None:
        """Carry a request out, unless a challenge has closed the connection."""
        if not self._restarted:
            super().take(request)

    # ---- properties

    def do_readProperty(self, request: Request) -> None:
        """Read a property; note the beginning of a challenge if the property belongs to one."""
        if request.name in READ and request.name in request.thing.properties:
            beside = request.thing is self.challenges.beside
            self.challenges.notes.begin("other-thing" if beside else READ[request.name], self.log)
        super().do_readProperty(request)

    def reading(self, name: str, value: Any) -> Json:
        """Return the members of a reading; in one challenge the timestamp has a time zone."""
        members = super().reading(name, value)
        if name == "challenge_time":
            members["timestamp"] = "2026-11-21T10:30:00.25+01:00[Europe/Berlin][u-ca=iso8601]"
        return members

    def do_writeProperty(self, request: Request) -> None:
        """Write a property; note the beginning of a challenge if the property belongs to one."""
        super().do_writeProperty(request)
        if request.name == "challenge_slate":
            self.challenges.notes.begin("write", self.log)

    def do_observeProperty(self, request: Request) -> None:
        """Observe a property; the property of a challenge changes after a while."""
        super().do_observeProperty(request)
        if request.name == "challenge_changing":
            self.challenges.notes.begin("observe", self.log)
            listening = self.listenings[request.thing.id, "property", request.name]
            thing = request.thing
            assert isinstance(thing, ChallengeThing)

            def change() -> None:
                if self.listenings.get(listening.key) is listening:
                    self.deliver_change(listening, thing.token("observe"))

            self.challenges.after(A_WHILE, change)

    # ---- actions

    def on_outcome(self, run: Run, outcome: Outcome) -> None:
        """Answer a challenge in its own way, `prove` with a verdict on the proof, others as usual."""
        name = run.request.name
        if name == "prove":
            self.proof(run)
            return
        challenge = CHALLENGE_OF.get(name)
        if challenge == "stream" and run.request.thing is self.challenges.main:
            self.challenges.notes.begin(challenge, self.log)
        if (
            challenge is None
            or not isinstance(outcome, Done)
            or run.request.thing is not self.challenges.main
        ):
            super().on_outcome(run, outcome)
            return
        if challenge != "reversed" and (challenge != "event" or self._is_subscribed("challenged")):
            self.challenges.notes.begin(challenge, self.log)
        put = getattr(self, f"put_{name.removeprefix('challenge_')}", None)
        if put is None:
            super().on_outcome(run, outcome)
        else:
            put(run, outcome, outcome.output["token"])

    def open_inputs(self, request: Request, offers: Any) -> dict[int, Input]:
        """Open input streams; the stream of a challenge has a small window."""
        inputs = super().open_inputs(request, offers)
        if CHALLENGE_OF.get(request.name) == "stream":
            for stream in inputs.values():
                stream.window, stream.used = _SMALL, list(_SMALL)
        return inputs

    def grant_input(self, run: Run, stream: Input) -> None:
        """Grant credit to a stream; in a challenge, only a while after all its credit has been used."""
        if stream.window != _SMALL or not stream.next:
            super().grant_input(run, stream)
        elif min(stream.credit) <= 0:

            def grant() -> None:
                if run.final is None and not stream.is_over:
                    super(ChallengeConnection, self).grant_input(run, stream)

            run.timers.append(self.challenges.after(A_WHILE, grant))

    def proof(self, run: Run) -> None:
        """Answer `prove` with whether the proof is right."""
        given: Json = run.request.payload
        wrong = self.challenges.notes.prove(
            given["challenge"], given["token"], given.get("failed", False), self.log
        )
        self.end(run, completed({"right": False, "why": wrong} if wrong else {"right": True}))

    def _is_subscribed(self, event: str) -> bool:
        keys = [(self.challenges.main.id, "event", event), (self.challenges.main.id, "all", "")]
        return any(key in each.listenings for each in self.challenges.connections for key in keys)

    def put_pending(self, run: Run, outcome: Done, token: str) -> None:
        run.timers.append(self.challenges.after(A_WHILE, lambda: self.end(run, completed(outcome.output))))

    def put_progress(self, run: Run, outcome: Done, token: str) -> None:
        def go_on() -> None:
            for part in (0.3, 0.6):
                if not self.kotlin and run.final is None:
                    run.status = "in progress"
                    self.send_status(run, {"status": "in progress", "progress": {"part": part}})

        run.timers.append(self.challenges.after(A_WHILE / 2, go_on))
        self.put_pending(run, outcome, token)

    def put_failure(self, run: Run, outcome: Done, token: str) -> None:
        self.end(run, ("actionStatus", {"status": "failed", "output": outcome.output}))

    def put_error(self, run: Run, outcome: Done, token: str) -> None:
        self.end(run, Problem(_PROBLEM, "A Challenge", 500, f"the token is {token}"))

    def put_numeric_status(self, run: Run, outcome: Done, token: str) -> None:
        problem = Problem(_PROBLEM, "A Challenge", 500, f"the token is {token}")
        problem.more["status"] = problem.status  # in place of the text, as a number
        self.end(run, problem)

    def put_event(self, run: Run, outcome: Done, token: str) -> None:
        self.challenges.happened(self.challenges.main, "challenged", outcome.output)
        self.end(run, completed(ABSENT))

    def put_reversed(self, run: Run, outcome: Done, token: str) -> None:
        """Hold an answer until the other one of two is requested; then send the two in reverse order."""
        self._held.append((run, token))
        run.timers.append(self.challenges.after(self.challenges.patience, lambda: self._alone(run, token)))
        which = {each.request.payload["which"]: (each, text) for each, text in self._held}
        if len(which) < 2:
            return
        self._held.clear()
        self.challenges.notes.begin("reversed", self.log)
        self.challenges.notes.give("reversed", f"{which[1][1]} {which[2][1]}")
        for held in sorted(which, reverse=True):
            self.end(which[held][0], completed({"token": which[held][1]}))

    def _alone(self, run: Run, token: str) -> None:
        self._held = [each for each in self._held if each[0] is not run]
        self.end(run, completed({"token": token}))

    def put_unknown_members(self, run: Run, outcome: Done, token: str) -> None:
        unknown: Json = {"mood": {"deep": [{"er": None}]}, "lmosy:count": 3, "status_": 1}
        self.end(run, ("actionStatus", {**unknown, "status": "completed", "output": outcome.output}))

    def put_unknown_type(self, run: Run, outcome: Done, token: str) -> None:
        self.send("weatherReport", self.challenges.main.id, None, {"data": {"sky": "blue"}})
        self.end(run, completed(outcome.output))

    def put_stray_event(self, run: Run, outcome: Done, token: str) -> None:
        data = {"note": "unsolicited", "number": 1}
        members = {"event": "rang", "data": data, "timestamp": self.timestamp()}
        self.send("event", self.challenges.main.id, self.new_id(), members)
        self.end(run, completed(outcome.output))

    def put_stray_answer(self, run: Run, outcome: Done, token: str) -> None:
        members = {"action": run.request.name, "status": "completed", "output": {"token": "not this one"}}
        self.send("actionStatus", self.challenges.main.id, self.new_id(), members)
        self.end(run, completed(outcome.output))

    def put_stray_pong(self, run: Run, outcome: Done, token: str) -> None:
        self.put(SendFrame(PONG, b"unsolicited"))
        self.end(run, completed(outcome.output))

    def put_fragments(self, run: Run, outcome: Done, token: str) -> None:
        self._in_parts = True
        self.end(run, completed({"remark": "größer", **outcome.output}))
        self._in_parts = False

    def put_long(self, run: Run, outcome: Done, token: str) -> None:
        self.end(run, completed({"filler": "x" * 70_000, **outcome.output}))

    def put_restart(self, run: Run, outcome: Done, token: str) -> None:
        self.end(run, completed(outcome.output))
        self._restarted = True
        self.hang_up(1012, "a challenge")

    def put(self, out: Out) -> None:
        """Send a frame or message; if the challenge is about fragments, send a message in several frames."""
        if not self._in_parts or not isinstance(out, SendText):
            super().put(out)
            return
        data = out.text.encode()
        cut = data.index("ö".encode()) + 1  # in the middle of a letter
        super().put(SendFrame(TEXT, data[:cut], fin=False))
        super().put(SendFrame(PING, b"in between"))
        super().put(SendFrame(CONTINUATION, data[cut : cut + 9], fin=False))
        super().put(SendFrame(CONTINUATION, data[cut + 9 :]))


class ChallengeServer(ScriptedServer):
    """A server whose main thing has challenges. `notes` records them; `patience` is in seconds."""

    connection_class = ChallengeConnection
    thing_class = ChallengeThing

    def __init__(
        self, clock: Callable[[], float], random: Random, notes: ClientNotes, patience: float
    ) -> None:
        self.notes = notes
        self.patience = patience
        super().__init__(clock, random)

    def add(self, name: str, describe: Callable[[str], Json]) -> ScriptedThing:
        """Add a thing."""
        thing = super().add(name, describe)
        assert isinstance(thing, ChallengeThing)
        thing.server = self
        return thing

    def describe(self, base: str) -> Json:
        """Return the description of the thing."""
        return describe_challenges(base)

    def describe_b(self, base: str) -> Json:
        """Return the description of the second thing."""
        return describe_challenges_b(base)


class ChallengePages(ScriptedPages):
    """The pages for browsers, which list the challenges; clients can begin them only over LMOS."""

    def page(self, base: str) -> str:
        """Return the page for browsers, which lists the challenges."""
        rows = "".join(
            f"<tr><td><code>{case.challenge}</code><td>{html.escape(case.how)}<td>{html.escape(case.title)}"
            for case in CHALLENGES
        )
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>LMOS conformance</title>'
            f"<h1>A server that judges LMOS clients</h1><p>Its description is at "
            f'<a href="/agents/conformance">/agents/conformance</a>, its socket at {html.escape(base)}/ws.'
            "<p>Everything a client sends is judged. Challenges show what it understands: it follows the "
            "instructions and invokes <code>prove</code> with the challenge's name and the token that it "
            "found. A challenge that was begun must be proven.<table>"
            f"<tr><th>challenge<th>what to do<th>what it shows{rows}</table></html>"
        )

    def action(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        """Invoke an action, unless it is a challenge."""
        if name in CHALLENGE_OF or name == "prove":
            raise not_allowed("challenges are put over LMOS only")
        return super().action(method, thing, name, request)
