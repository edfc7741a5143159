"""Two connections of one peer that share a memory, ids used again and again, and a host that makes mistakes.

What must hold: the host ends every request exactly once (it answers, or is told that it need not), and of
every request that came the peer reads exactly one final answer, unless it is one that has none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from lmos_actors.errors import ActionFailed, LocalProtocolError
from lmos_actors.protocol import lmos
from tests.wire.machines import AT, ERRORS, VALUES, ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

KINDS = (
    "readProperty", "writeProperty", "writeMultipleProperties", "readAllProperties", "observeProperty",
    "unobserveProperty", "subscribeEvent", "unsubscribeEvent", "subscribeAllEvents", "unsubscribeAllEvents",
    "invokeAction", "invokeAction", "invokeAction", "queryAction", "cancelAction",
    "streamItem", "streamEnd", "streamCredit",
)  # fmt: skip
RING: list[Any] = []
RING.append(RING)
UNWRITABLE: tuple[Any, ...] = (object(), "\ud800", {(1,): 1}, RING)
UNDERWAY = ("pending", "in progress")
STREAMING = ("streamOpen", "streamEnd", "streamCredit")


class Connection:
    """One of them: its session, and the answers that its peer has read, or has to do without."""

    def __init__(self, random: Random, memory: lmos.AnswerMemory, new_id: Callable[[], str]) -> None:
        self.kotlin = random.random() < 0.4
        self.acks = random.random() < 0.3
        options = lmos.SessionOptions(max_open=6, max_listening=5, remembered_runs=3, acks=self.acks)
        self.session = lmos.ThingSession(
            offered=not self.kotlin, new_id=new_id, memory=memory, options=options
        )
        self.streams = 0  # numbers used
        self.read = self.spared = 0

    def frame(self, random: Random) -> dict[str, Any]:
        """Make a frame of good form, with an id out of three."""
        kind, end = random.choice(KINDS), "Id" if self.kotlin else "ID"
        raw: dict[str, Any] = {
            "messageType": kind,
            f"thing{end}": random.choice("tu"),
            f"message{end}": random.choice("123"),
        }
        if random.random() < 0.4:
            raw[f"correlation{end}"] = random.choice("123")
        if kind.startswith("stream"):
            return raw | self._streamed(random, kind)
        if kind.endswith("Property"):
            raw["property" if self.kotlin else "name"] = random.choice("ab")
        if kind.startswith("write"):
            raw["data"] = random.randrange(2) if kind == "writeProperty" else {"a": random.randrange(2)}
        if kind.endswith("Action"):
            raw["action"] = random.choice("xy")
        if kind.endswith("Event"):
            raw["event"] = random.choice("ef")
        return raw | self._invoked(random) if kind == "invokeAction" else raw

    def _invoked(self, random: Random) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if random.random() < 0.4:
            found["input"] = random.randrange(2)
        if random.random() < 0.2:
            found["credit"] = {"items": random.randrange(3), "bytes": random.randrange(300)}
        if random.random() < 0.2:
            self.streams += random.choice((1, 2, 2, 3))
            kind = random.choice(("application/json", "audio/pcm"))
            found["streams"] = {"p": {"stream": self.streams, "contentType": kind}}
        return found | ({"binary": True} if random.random() < 0.2 else {})

    def _streamed(self, random: Random, kind: str) -> dict[str, Any]:
        stream = {"stream": random.randrange(self.streams + 2)}
        if kind == "streamCredit":
            stream = stream if random.random() < 0.3 else {}
            return stream | {
                "items": random.choice((0, 1, 2**63 - 1)),
                "bytes": random.choice((0, 2**63 - 1)),
            }
        return stream | {"sequence": random.randrange(2)} | ({"data": 1} if kind == "streamItem" else {})

    def listen(self) -> None:
        """Read what was sent, and count the final answers."""
        for frame in self.session.frames():
            raw = {} if isinstance(frame, lmos.Binary) else json.loads(frame)
            kind = raw.get("messageType", STREAMING[0])
            underway = raw.get("status") in UNDERWAY and "inReplyTo" not in raw
            self.read += kind not in STREAMING and not underway

    def adds_up(self) -> bool:
        """Whether all that has its answer was read, or has none to be read."""
        while self.session.statistics().waiting:
            self.listen()
        counts = self.session.statistics()
        told = counts.answered + counts.refused + counts.strays + counts.unreadable
        return self.read + self.spared == told


class TwoConnections:
    """Both, and the host."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.memory = lmos.AnswerMemory(max_answers=4, max_bytes=5_000)
        self.new_id = ids()
        self.connections = [self._connect(), self._connect()]
        self.live: dict[lmos.IncomingRequest, lmos.ThingSession] = {}

    def _connect(self) -> Connection:
        return Connection(self.random, self.memory, self.new_id)

    def step(self) -> None:
        """Let one thing happen."""
        random = self.random
        self.now += random.choice((0.0, 0.0, 0.1, 40.0))
        choice, connection = random.random(), random.choice(self.connections)
        if choice < 0.5:
            self._receive(connection)
        elif choice < 0.93 and self.live:
            self._host(random.choice(list(self.live)))
        elif choice > 0.97:
            self._break(connection)
        else:
            connection.listen()
        assert all(asked.open for asked in self.live)

    def _receive(self, connection: Connection) -> None:
        raw, session = connection.frame(self.random), connection.session
        demands = session.receive(json.dumps(raw), self.now)
        silent = session.habits == "spec" and not connection.acks
        connection.spared += silent and raw["messageType"].startswith("un")
        for demand in demands:
            if isinstance(demand, lmos.IncomingRequest):
                self.live[demand] = session
            elif isinstance(demand, lmos.RequestWithdrawn):
                del self.live[demand.request]
                # one frame for the run and its cancel
                connection.spared += session.habits == "spec" and raw["messageType"] == "cancelAction"

    def _host(self, asked: lmos.IncomingRequest) -> None:
        random, session = self.random, self.live[asked]
        for stream in (asked.streams or {}).values():
            act = random.choice((session.ready, session.consumed, None))
            if act is not None:
                act(stream)
            elif random.random() < 0.2:
                session.stop(stream, "enough")
        bad = random.random() < 0.1
        try:
            self._answer(asked, session, random.choice(UNWRITABLE if bad else VALUES))
        except LocalProtocolError:
            assert bad
            assert asked.open
        if not asked.open:
            del self.live[asked]

    def _answer(self, asked: lmos.IncomingRequest, session: lmos.ThingSession, value: Any) -> None:
        match self.random.choice(asked.verb.answers):
            case "answer":
                one = isinstance(asked.message, lmos.ReadProperty | lmos.WriteProperty)
                session.answer(asked, value if one else {"a": value}, AT)
            case "accept":
                observed = isinstance(asked.message, lmos.ObserveProperty)
                session.accept(asked, value if observed else UNSET, AT)
                self._spare(session, silent=not observed)
            case "complete":
                session.complete(asked, value)
            case "fail":
                error = ActionFailed()
                error.output = value
                session.fail(asked, error)
            case "item":
                if session.room(asked):
                    session.item(asked, value)
            case "progress":
                session.progress(asked, True)
            case "asks":
                session.asks(asked, self.random.choice([None, {"id": "q", "key": "k", "expires": 9.0}]))
            case by:
                getattr(session, by)(asked)

    def _spare(self, session: lmos.ThingSession, *, silent: bool) -> None:
        """Count an answer that is none, if the peer still is there and is not told of its success."""
        for one in self.connections:
            if one.session is session:
                one.spared += silent and session.habits == "spec" and not one.acks

    def _break(self, connection: Connection) -> None:
        """End a connection, and make another in its place; some of what it asked for goes on."""
        assert connection.adds_up()
        for left in connection.session.closed(lambda _: self.random.random() < 0.5):
            if isinstance(left, lmos.IncomingRequest):
                del self.live[left]
        assert connection.session.closed() == ()
        self.connections[self.connections.index(connection)] = self._connect()

    def finish(self) -> None:
        """Let the host answer all that is left, and look whether everything adds up."""
        for asked, session in self.live.items():
            session.fail(asked, ERRORS[0])
        assert self.memory.running == 0
        for connection in self.connections:
            assert connection.adds_up(), connection.session.statistics()
            counts = connection.session.statistics()
            assert (counts.open, counts.streams) == (0, 0)
