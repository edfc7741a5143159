"""Sessions under fire: good, damaged and misplaced frames at every state, and what must hold after each.

`random` decides everything, so Hypothesis, a fuzzer that follows coverage and a loop over seeds can all use
these. What a step finds wrong is an AssertionError; any other exception is a bug, too.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
from msgspec import UNSET

from lmos_actors.errors import (
    ActionCancelled,
    ActionFailed,
    AgentDied,
    AgentError,
    AgentUnavailable,
    InvalidInput,
    LocalProtocolError,
    MailboxFull,
    NotAllowed,
    NotFound,
)
from lmos_actors.protocol import lmos
from tests.wire.mutations import mutated

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

AT = datetime(2026, 1, 20, 19, tzinfo=UTC)
VALUES: tuple[Any, ...] = (None, True, 0, 2**70, 1.5, "", "é😀", [1, [2]], {"a": {"b": []}}, b"bytes")
ERRORS: tuple[AgentError, ...] = (
    NotFound("property", "unit", known=("units",)),
    InvalidInput("Expected `str`", "$.city"),
    NotAllowed("read-only"),
    ActionFailed({"why": "rain"}),
    ActionFailed(),
    ActionCancelled("enough"),
    MailboxFull("weather", 64),
    AgentUnavailable("weather", retry_in=1.5),
    AgentDied("error(KeyError)", started=True),
)
THINGS = ("urn:uuid:6f1d3a7a-1f97-4e6b-b45f-f3c2e1c84c77", "chatagent")
NAMES = ("units", "asked", "forecast")
OPTIONS = lmos.SessionOptions(
    max_open=8, max_listening=8, remembered_runs=4, max_bytes=100_000, max_waiting=64
)


def ids() -> Callable[[], str]:
    """Give a source of ids that repeats for nobody."""
    number = 0

    def new_id() -> str:
        nonlocal number
        number += 1
        return f"00000000-0000-4000-8000-{number:012x}"

    return new_id


class Peer:
    """Frames as a peer may send them: spelt in either way, sometimes damaged, with ids used before."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.known: deque[str] = deque(["m-1"], maxlen=16)
        self.new_id = ids()
        self.codec = lmos.Codec(self._dialect())
        self.kinds = list(lmos.message_types().values())

    def _dialect(self) -> lmos.Dialect:
        return lmos.Dialect.of_consumer(
            self.random.random() < 0.5, self.random.choice(("spec", "kotlin-wot"))
        )

    def an_id(self) -> str:
        """Give a new id, or one that was used before."""
        if self.random.random() < 0.3:
            return self.random.choice(self.known)
        self.known.append(self.new_id())
        return self.known[-1]

    def message(self) -> lmos.Message:
        """Make a message of any type, with members of the right types."""
        struct = self.random.choice(self.kinds)
        members = {f.name: self._member(f.name) for f in msgspec.structs.fields(struct) if self._wanted(f)}
        return struct(**members)  # type: ignore[return-value]

    def _wanted(self, field: msgspec.structs.FieldInfo) -> bool:
        return field.required or self.random.random() < 0.4

    def _member(self, name: str) -> Any:
        random = self.random
        match name:
            case "thing_id":
                return random.choice(THINGS)
            case "message_id" | "correlation_id" | "in_reply_to":
                return self.an_id()
            case "name" | "action" | "event":
                return random.choice(NAMES)
            case "status":
                return random.choice(
                    ("pending", "in progress", "completed", "failed", "cancelled", "odd", "500")
                )
            case "type":
                return lmos.problem_of(random.choice(ERRORS)).type
            case "streams":
                offer = lmos.StreamOffer(stream=random.randrange(9), content_type="application/octet-stream")
                return {random.choice(NAMES): offer}
            case "credit":
                return lmos.Credit(items=random.randrange(4), bytes=random.randrange(100))
            case "stream" | "sequence" | "items" | "bytes" | "missed" | "attempt":
                return random.choice((0, 1, 2, 3, 5, 2**40))
            case "remaining" | "retry_in":
                return random.choice((0.0, -1.0, 1e300))
            case "properties":
                return list(NAMES[: random.randrange(4)])
            case "timestamp":
                return AT
            case "ack" | "gaps" | "binary" | "cancelled" | "started":
                return random.random() < 0.5
            case "value" | "output" | "input" | "progress":
                return random.choice(VALUES)
        return self._payload(name)

    def _payload(self, name: str) -> Any:
        if name == "data" or name == "about":
            return {self.random.choice(NAMES): self.random.choice(VALUES)}
        return self.random.choice(("text", "", "é"))

    def frame(self) -> str | bytes:
        """Make a frame: two in three are good."""
        text = self.codec.encode(self.message()).decode()
        return mutated(self.random, text) if self.random.random() < 0.34 else text

    def binary(self) -> bytes:
        """Make a binary frame: of some stream, or none at all."""
        random = self.random
        head = bytes(
            (1, random.choice((0, 0, 1, 4)), 0, 0, 0, 0, 0, random.randrange(6), 0, 0, 0, random.randrange(3))
        )
        return random.choice((head + b"abc", head, head[: random.randrange(12)], random.randbytes(20)))


def drained(session: lmos.ThingSession | lmos.ConsumerSession, reader: lmos.Codec) -> list[Any]:
    """Take all that is to be sent, and read it as a strict peer would."""
    found: list[Any] = []
    while frames := session.frames():
        for frame in frames:
            if not isinstance(frame, lmos.Binary):
                message = reader.decode(frame)
                assert not isinstance(message, lmos.Unreadable), (frame, message)
                found.append(message)
    return found


class ThingUnderFire:
    """A thing's session with a host that answers at random."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.peer = Peer(random)
        self.memory = lmos.AnswerMemory(max_answers=8, max_bytes=10_000) if random.random() < 0.7 else None
        self.now = 0.0
        self.new_id = ids()
        self._connect()

    def _connect(self) -> None:
        offered = self.random.random() < 0.5
        offers = lmos.OFFERS if self.random.random() < 0.7 else ()
        options = attrs.evolve(OPTIONS, offers=offers, strict=self.random.random() < 0.1)
        self.session = lmos.ThingSession(
            offered=offered, new_id=self.new_id, options=options, memory=self.memory
        )
        self.reader = lmos.Codec(lmos.Dialect.of_consumer(offered))
        self.asked: list[lmos.IncomingRequest] = []
        self.listenings: list[lmos.Listening] = []
        self.finals: dict[str, int] = {}

    def step(self) -> None:
        """Let one thing happen, and look whether everything still adds up."""
        self.now += self.random.choice((0.0, 0.1, 30.0))
        choice = self.random.random()
        if choice < 0.6:
            self._take(self.session.receive(self.peer.frame(), self.now))
        elif choice < 0.65:
            self._take(self.session.receive_binary(self.peer.binary()))
        elif choice < 0.98:
            self._host()
        else:
            self.session.closed()
            assert self.session.receive(self.peer.frame(), self.now) == ()
            self._check()
            self._connect()
        if self.random.random() < 0.3 or self.session.full:
            drained(self.session, self.reader)
        self._check()

    def _take(self, demands: tuple[Any, ...]) -> None:
        for demand in demands:
            if isinstance(demand, lmos.IncomingRequest):
                self.asked.append(demand)
            elif isinstance(demand, lmos.Close):
                self.session.closed()
                self._check()
                self._connect()

    def _host(self) -> None:
        random, session = self.random, self.session
        if self.listenings and random.random() < 0.4:
            listening = random.choice(self.listenings)
            tell = session.reading if listening.kind == "property" else session.event
            act = random.choice((tell, tell, session.gap, session.end))
            arguments: dict[Any, tuple[Any, ...]] = {
                session.reading: (random.choice(VALUES), AT),
                session.event: (listening.name or random.choice(NAMES), random.choice(VALUES), AT),
                session.gap: ("restarted", 3),
                session.end: (random.choice(ERRORS),),
            }
            act(listening, *arguments[act])
        elif self.asked:
            asked = self.asked.pop(random.randrange(len(self.asked)))
            self._answer(asked, random.choice(asked.verb.answers))

    def _answer(self, asked: lmos.IncomingRequest, by: str) -> None:
        random, session = self.random, self.session
        match by:
            case "answer":
                several = not isinstance(asked.message, lmos.ReadProperty | lmos.WriteProperty)
                session.answer(asked, {"units": 1} if several else random.choice(VALUES), AT)
            case "accept":
                observed = isinstance(asked.message, lmos.ObserveProperty)
                self.listenings.append(
                    session.accept(asked, random.choice(VALUES) if observed else UNSET, AT)
                )
                del self.listenings[:-16]
            case "complete":
                session.complete(asked, random.choice((UNSET, *VALUES)))
            case "fail":
                session.fail(asked, random.choice(ERRORS))
            case "item":
                if session.room(asked):
                    session.item(asked, random.choice(VALUES))
                self.asked.append(asked)
            case "asks":
                session.asks(asked, random.choice([None, {"id": "q", "key": "k", "expires": 9.0}]))
                self.asked.append(asked)
            case "progress":
                session.progress(asked, random.choice(VALUES))
                self.asked.append(asked)
            case _:
                getattr(session, by)(asked)
                self.asked.append(asked)
        if not asked.open and by in ("answer", "complete", "fail", "accept"):
            self._answered_once(asked, by)

    def _answered_once(self, asked: lmos.IncomingRequest, by: str) -> None:
        if asked.state is lmos.State.ANSWERED:
            with suppress(LocalProtocolError):
                self.session.fail(asked, ERRORS[0])
                raise AssertionError(f"{asked.verb.word} was answered by {by}, and again")

    def _check(self) -> None:
        counts = self.session.statistics()
        ended = counts.answered + counts.refused + counts.merged + counts.abandoned + counts.streamed
        assert counts.received == ended + counts.strays + counts.unreadable + counts.open, counts
        assert counts.open <= OPTIONS.max_open
        assert counts.listening <= OPTIONS.max_listening
        assert counts.remembered <= OPTIONS.remembered_runs
        if self.memory is not None:
            assert len(self.memory) <= 8
            assert self.memory.bytes <= 10_000


class ConsumerUnderFire:
    """A consumer's session that asks at random, and is answered by what came to mind."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.peer = Peer(random)
        self.new_id = ids()
        self._connect()

    def _connect(self) -> None:
        random = self.random
        self.session = lmos.ConsumerSession(
            selected=random.random() < 0.5,
            habits=random.choice(("auto", "spec", "kotlin-wot")),
            new_id=self.new_id,
            options=OPTIONS,
            offers=lmos.OFFERS if random.random() < 0.5 else (),
        )
        self.reader = lmos.Codec(lmos.Dialect.of_thing(offered=True))
        self.runs: list[lmos.PendingRun] = []
        self.pendings: list[lmos.ConsumerRequest] = []
        self.feeds: list[lmos.Feed] = []
        self.ended: dict[int, Any] = {}

    def step(self) -> None:
        """Let one thing happen, and look whether everything still adds up."""
        choice = self.random.random()
        if choice < 0.5:
            self._take(self.session.receive(self.peer.frame()))
        elif choice < 0.55:
            self._take(self.session.receive_binary(self.peer.binary()))
        elif choice < 0.98:
            with suppress(MailboxFull, NotAllowed, LocalProtocolError):
                self._ask()
        else:
            self.session.closed(drained=self.random.random() < 0.5)
            self._connect()
        if self.random.random() < 0.3 or self.session.full:
            for message in drained(self.session, self.reader):
                self.peer.known.append(message.message_id)
                if isinstance(message, lmos.InvokeAction):
                    self._grant(message)
        self._check()

    def _grant(self, message: lmos.InvokeAction) -> None:
        for offer in (message.streams or {}).values():
            credit = lmos.StreamCredit(
                thing_id=message.thing_id,
                message_id=self.peer.new_id(),
                correlation_id=message.message_id,
                stream=offer.stream,
                items=self.random.randrange(4),
                bytes=1000,
            )
            self._take(self.session.receive(self.peer.codec.encode(credit)))

    def _take(self, happenings: tuple[Any, ...]) -> None:
        for happening in happenings:
            if isinstance(happening, lmos.RequestAnswered | lmos.RequestFailed):
                assert id(happening.pending) not in self.ended, happening
                self.ended[id(happening.pending)] = happening.pending
            elif isinstance(happening, lmos.Close):
                self.session.closed()
                self._connect()

    def _ask(self) -> None:
        random, session = self.random, self.session
        thing, name = random.choice(THINGS), random.choice(NAMES)
        match random.randrange(17):
            case 0:
                self.pendings.append(session.read(thing, name))
            case 1:
                self.pendings.append(session.read_many(thing, NAMES))
            case 2:
                self.pendings.append(session.write_many(thing, {"units": 1, "asked": None}))
            case 3:
                self.pendings.append(session.write(thing, name, random.choice(VALUES)))
            case 4 | 5 | 6:
                streams = {"sound": "audio/pcm"} if random.random() < 0.3 else None
                credit = lmos.Credit(items=2, bytes=100) if random.random() < 0.3 else None
                self.runs.append(session.invoke(thing, name, credit=credit, streams=streams))
            case 7:
                self.feeds.append(session.observe(thing, name))
            case 8:
                self.feeds.append(session.subscribe(thing, name))
            case 9:
                self.feeds.append(session.subscribe_all(thing))
            case 10 if self.feeds:
                session.stop(random.choice(self.feeds))
            case 11 if self.runs:
                run = random.choice(self.runs)
                self.pendings.append(random.choice((session.query, session.cancel))(run))
            case 12:
                self.pendings.append(session.read_all(thing))
            case 13 | 14 if self.runs:
                self._stream(random.choice(self.runs))
            case 15:
                session.write_many(thing, {"units": 1, "asked": object()})
                raise AssertionError("that cannot be written")
            case _ if self.pendings or self.runs:
                session.forget(random.choice(self.pendings + self.runs))
            case _:
                pass
        del self.runs[:-16], self.pendings[:-16], self.feeds[:-16]

    def _stream(self, run: Any) -> None:
        for stream in run.inputs.values():
            if self.session.room(stream):
                self.session.send(stream, b"sound")
            elif self.random.random() < 0.2:
                self.session.finish(stream, self.random.choice((None, "broken")))
        self.session.consumed(run)

    def _check(self) -> None:
        counts = self.session.statistics()
        ended = counts.answered + counts.failed + counts.forgotten + counts.unanswered
        assert counts.asked == ended + counts.open, counts
        # a run has room of its own for a cancel and 16 queries (DECISIONS B1)
        assert counts.open <= OPTIONS.max_open * 18
        assert counts.listening <= OPTIONS.max_listening
        assert counts.remembered <= 2 * OPTIONS.max_open + 256  # and ids of former feeds
