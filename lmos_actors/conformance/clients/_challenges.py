"""The riddles that clients solve: the thing that has them, and how a connection puts them."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.scripted import (
    ABSENT,
    Done,
    Json,
    Out,
    Outcome,
    Problem,
    Raw,
    Request,
    Run,
    Say,
    ScriptedConnection,
    ScriptedPages,
    ScriptedServer,
    ScriptedThing,
    completed,
    not_allowed,
)
from lmos_actors.conformance.wire import (
    CONTINUATION,
    PING,
    PONG,
    TEXT,
)

from ._cases import RIDDLES
from ._challenge_descriptions import RIDDLE_OF, puzzling, puzzling_b
from ._log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from lmos_actors.conformance.scripted import HttpRequest, Reply

    from ._log import Book

READ: Final = {"riddle_read": "read", "riddle_time": "zoned-time"}
NOT_YET: Final = "not yet"
A_WHILE: Final = 0.3
"""Seconds that riddles take that take a while."""

_PROBLEM: Final = "urn:lmos-actors:errors#riddle"
_LETTERS: Final = ' Grüße \u00a0 \u2028 \U0001f70a \U0001f469\u200d\U0001f680 "quoted" \\ \t e\u0301 \u05d0'


class RiddleThing(ScriptedThing):
    """A thing whose riddles have tokens. `book` is where they are noted."""

    server: RiddleServer
    slate = ""

    def token(self, riddle: str, more: str = "") -> str:
        """Make a token, good for a riddle."""
        return self.server.book.give(riddle, f"{self.server.random.randbytes(6).hex()}{more}")

    def value(self, name: str) -> Any:
        """Return the value of a property; of a riddle's its token."""
        if name == "riddle_slate":
            return self.slate
        if name == "riddle_changing":
            return NOT_YET
        if name in READ:
            return self.token("other-thing" if self is self.server.beside else READ[name])
        return super().value(name)

    def write(self, values: Mapping[str, Any]) -> None:
        """Set properties. Who reads a slate finds a token behind what was written."""
        values = dict(values)
        if "riddle_slate" in values:
            text = values.pop("riddle_slate")
            self.slate = self.server.book.give("write", f"{text} {self.server.random.randbytes(6).hex()}")
        super().write(values)

    def act(self, name: str, value: Any) -> Outcome:
        """Carry an action out; a riddle's output is its token."""
        riddle = RIDDLE_OF.get(name)
        if riddle is None:
            return Done() if name == "prove" else super().act(name, value)
        if riddle == "reversed":
            return Done({"token": self.server.random.randbytes(6).hex()})
        return Done({"token": self.token(riddle, _LETTERS if riddle == "letters" else "")})


class NumericProblem(Problem):
    """A problem whose status is told as a number."""


class RiddleConnection(ScriptedConnection):
    """A connection that puts riddles: by what it says beside the answer, or how it says that."""

    def __init__(
        self, server: RiddleServer, *, offered: bool, at: ScriptedThing, fixed: bool, peer: str = ""
    ) -> None:
        super().__init__(server, offered=offered, at=at, fixed=fixed, peer=peer)
        self.riddles = server
        self.log = Log()
        self._in_parts = False
        self._held: list[tuple[Run, str]] = []
        self._restarted = False

    def take(self, request: Request) -> None:
        """Carry a request out, unless the connection is closed for a riddle."""
        if not self._restarted:
            super().take(request)

    # ---- properties

    def do_readProperty(self, request: Request) -> None:
        """Note that a riddle has begun."""
        if request.name in READ and request.name in request.thing.properties:
            beside = request.thing is self.riddles.beside
            self.riddles.book.begin("other-thing" if beside else READ[request.name], self.log)
        super().do_readProperty(request)

    def reading(self, name: str, value: Any) -> Json:
        """Return the members of a reading; of one riddle its time has a zone."""
        members = super().reading(name, value)
        if name == "riddle_time":
            members["timestamp"] = "2026-11-21T10:30:00.25+01:00[Europe/Berlin][u-ca=iso8601]"
        return members

    def do_writeProperty(self, request: Request) -> None:
        """Note that a riddle has begun."""
        super().do_writeProperty(request)
        if request.name == "riddle_slate":
            self.riddles.book.begin("write", self.log)

    def do_observeProperty(self, request: Request) -> None:
        """Let a riddle change, after a while."""
        super().do_observeProperty(request)
        if request.name == "riddle_changing":
            self.riddles.book.begin("observe", self.log)
            listening = self.listenings[request.thing.id, "property", request.name]
            thing = request.thing
            assert isinstance(thing, RiddleThing)

            def change() -> None:
                if self.listenings.get(listening.key) is listening:
                    self.deliver_change(listening, thing.token("observe"))

            self.riddles.after(A_WHILE, change)

    # ---- actions

    def come(self, run: Run, outcome: Outcome) -> None:
        """Answer a riddle in its way, `prove` by whether it is right, others as they are."""
        name = run.request.name
        if name == "prove":
            self.proof(run)
            return
        riddle = RIDDLE_OF.get(name)
        if riddle is None or not isinstance(outcome, Done) or run.request.thing is not self.riddles.main:
            super().come(run, outcome)
            return
        if riddle != "reversed" and (riddle != "event" or self._is_heard("riddled")):
            self.riddles.book.begin(riddle, self.log)
        put = getattr(self, f"put_{name.removeprefix('riddle_')}", None)
        if put is None:
            super().come(run, outcome)
        else:
            put(run, outcome, outcome.output["token"])

    def proof(self, run: Run) -> None:
        """Answer whether a proof is right."""
        given: Json = run.request.payload
        wrong = self.riddles.book.prove(given["riddle"], given["token"], given.get("failed", False), self.log)
        self.end(run, completed({"right": False, "why": wrong} if wrong else {"right": True}))

    def _is_heard(self, event: str) -> bool:
        keys = [(self.riddles.main.id, "event", event), (self.riddles.main.id, "all", "")]
        return any(key in each.listenings for each in self.riddles.connections for key in keys)

    def put_pending(self, run: Run, outcome: Done, token: str) -> None:
        run.timers.append(self.riddles.after(A_WHILE, lambda: self.end(run, completed(outcome.output))))

    def put_progress(self, run: Run, outcome: Done, token: str) -> None:
        def go_on() -> None:
            for part in (0.3, 0.6):
                if not self.kotlin and run.final is None:
                    run.status = "in progress"
                    self.say_status(run, {"status": "in progress", "progress": {"part": part}})

        run.timers.append(self.riddles.after(A_WHILE / 2, go_on))
        self.put_pending(run, outcome, token)

    def put_failure(self, run: Run, outcome: Done, token: str) -> None:
        self.end(run, ("actionStatus", {"status": "failed", "output": outcome.output}))

    def put_error(self, run: Run, outcome: Done, token: str) -> None:
        self.end(run, Problem(_PROBLEM, "A Riddle", 500, f"the token is {token}"))

    def put_numeric_status(self, run: Run, outcome: Done, token: str) -> None:
        self.end(run, NumericProblem(_PROBLEM, "A Riddle", 500, f"the token is {token}"))

    def error(self, problem: Problem) -> Json:
        """Return the members of an error."""
        members = super().error(problem)
        return {**members, "status": problem.status} if isinstance(problem, NumericProblem) else members

    def put_event(self, run: Run, outcome: Done, token: str) -> None:
        self.riddles.happened(self.riddles.main, "riddled", outcome.output)
        self.end(run, completed(ABSENT))

    def put_reversed(self, run: Run, outcome: Done, token: str) -> None:
        """Hold an answer until the other is asked for, and give that first."""
        self._held.append((run, token))
        run.timers.append(self.riddles.after(self.riddles.patience, lambda: self._alone(run, token)))
        which = {each.request.payload["which"]: (each, text) for each, text in self._held}
        if len(which) < 2:
            return
        self._held.clear()
        self.riddles.book.begin("reversed", self.log)
        self.riddles.book.give("reversed", f"{which[1][1]} {which[2][1]}")
        for held in sorted(which, reverse=True):
            self.end(which[held][0], completed({"token": which[held][1]}))

    def _alone(self, run: Run, token: str) -> None:
        self._held = [each for each in self._held if each[0] is not run]
        self.end(run, completed({"token": token}))

    def put_unknown_members(self, run: Run, outcome: Done, token: str) -> None:
        unknown: Json = {"mood": {"deep": [{"er": None}]}, "lmosy:count": 3, "status_": 1}
        self.end(run, ("actionStatus", {**unknown, "status": "completed", "output": outcome.output}))

    def put_unknown_type(self, run: Run, outcome: Done, token: str) -> None:
        self.say("weatherReport", self.riddles.main.id, None, {"data": {"sky": "blue"}})
        self.end(run, completed(outcome.output))

    def put_stray_event(self, run: Run, outcome: Done, token: str) -> None:
        data = {"note": "nobody asked", "number": 1}
        members = {"event": "rang", "data": data, "timestamp": self.timestamp()}
        self.say("event", self.riddles.main.id, self.new_id(), members)
        self.end(run, completed(outcome.output))

    def put_stray_answer(self, run: Run, outcome: Done, token: str) -> None:
        members = {"action": run.request.name, "status": "completed", "output": {"token": "not this one"}}
        self.say("actionStatus", self.riddles.main.id, self.new_id(), members)
        self.end(run, completed(outcome.output))

    def put_stray_pong(self, run: Run, outcome: Done, token: str) -> None:
        self.put(Raw(PONG, b"nobody asked"))
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
        self.hang_up(1012, "a riddle")

    def put(self, out: Out) -> None:
        """Let something go out; a message in parts, if that is the riddle."""
        if not self._in_parts or not isinstance(out, Say):
            super().put(out)
            return
        data = out.text.encode()
        cut = data.index("ö".encode()) + 1  # within a letter
        super().put(Raw(TEXT, data[:cut], fin=False))
        super().put(Raw(PING, b"in between"))
        super().put(Raw(CONTINUATION, data[cut : cut + 9], fin=False))
        super().put(Raw(CONTINUATION, data[cut + 9 :]))


class RiddleServer(ScriptedServer):
    """A server whose main thing has riddles. `book`: where they are noted; `patience` in seconds."""

    connection_class = RiddleConnection
    thing_class = RiddleThing

    def __init__(self, clock: Callable[[], float], random: Random, book: Book, patience: float) -> None:
        self.book = book
        self.patience = patience
        super().__init__(clock, random)

    def add(self, name: str, describe: Callable[[str], Json]) -> ScriptedThing:
        """Add a thing."""
        thing = super().add(name, describe)
        assert isinstance(thing, RiddleThing)
        thing.server = self
        return thing

    def describe(self, base: str) -> Json:
        """Describe the thing."""
        return puzzling(base)

    def describe_b(self, base: str) -> Json:
        """Describe the thing beside it."""
        return puzzling_b(base)


class RiddlePages(ScriptedPages):
    """The pages: riddles are told to browsers, and put over LMOS alone."""

    def page(self, base: str) -> str:
        """Write the page for browsers: the riddles."""
        rows = "".join(
            f"<tr><td><code>{case.riddle}</code><td>{html.escape(case.how)}<td>{html.escape(case.title)}"
            for case in RIDDLES
        )
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>LMOS conformance</title>'
            f"<h1>A server that judges LMOS clients</h1><p>Its description is at "
            f'<a href="/agents/conformance">/agents/conformance</a>, its socket at {html.escape(base)}/ws.'
            "<p>A client is watched whatever it does. What it understands it shows by riddles: it does what "
            "one says, and invokes <code>prove</code> with the riddle's word and the token that it "
            "found. A riddle that is begun is to be proven.<table>"
            f"<tr><th>riddle<th>what to do<th>what it shows{rows}</table></html>"
        )

    def action(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        """Invoke an action, but for riddles."""
        if name in RIDDLE_OF or name == "prove":
            raise not_allowed("riddles are put over LMOS only")
        return super().action(method, thing, name, request)
