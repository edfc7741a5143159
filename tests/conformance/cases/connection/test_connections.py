"""Servers that do not treat their connections as they should."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.scripted import (
    Disconnect,
    NetworkServer,
    Out,
    RequestHead,
    ScriptedConnection,
    ScriptedServer,
    SendText,
    WebSocketCodec,
    refusal,
)
from lmos_actors.conformance.wire import (
    TEXT,
    FrameTooLong,
    RawFrame,
    write_frame,
)
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Listening, Reply, Request

SHELF = Shelf()


@SHELF("shortens-pongs", "shortens what it was pinged with", "connection.ping")
class ShortensPongs(WebSocketCodec):
    def on_ping(self, payload: bytes) -> None:
        super().on_ping(payload[:100])


@SHELF("answers-no-ping", "answers no ping", "connection.ping", "connection.pings", "frames.ping-between")
class AnswersNoPing(WebSocketCodec):
    def on_ping(self, payload: bytes) -> None:
        return


@SHELF("answers-first-pings", "answers the first of many pings alone", "connection.pings")
class AnswersFirstPings(WebSocketCodec):
    answered = 0

    def receive(self, data: bytes) -> None:
        self.answered = 0
        super().receive(data)

    def on_ping(self, payload: bytes) -> None:
        self.answered += 1
        if self.answered <= 3:
            super().on_ping(payload)


@SHELF("minds-pongs", "closes on a pong that it has not asked for", "connection.pong")
class MindsPongs(WebSocketCodec):
    def on_pong(self, payload: bytes) -> None:
        self.on_violation(1002, "nobody has asked")


@SHELF("has-no-patience", "closes a connection that says nothing for a second", "connection.idle")
class HasNoPatience(ScriptedConnection):
    spoke = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server.after(1.0, self.wonder)

    def text(self, text: str) -> None:
        self.spoke = True
        super().text(text)

    def wonder(self) -> None:
        if not self.spoke:
            self.hang_up(1001, "nothing was said")


@SHELF("masks-its-frames", "has a mask on its frames", "connection.unmasked")
class MasksItsFrames(WebSocketCodec):
    def frames_of(self, text: str) -> bytes:
        return write_frame(TEXT, text.encode(), key=b"mask")


@SHELF("uses-reserved-bits", "sets a reserved bit", "connection.unmasked")
class UsesReservedBits(WebSocketCodec):
    def frames_of(self, text: str) -> bytes:
        return write_frame(TEXT, text.encode(), rsv=4)


@SHELF("returns-no-close", "ends the stream in place of a Close", "connection.close")
class ReturnsNoClose(WebSocketCodec):
    def on_close(self, payload: bytes) -> None:
        self.connection.put(Disconnect())


@SHELF("holds-on", "leaves the stream open after both Closes", "connection.close-ends")
class HoldsOn(WebSocketCodec):
    def is_done(self) -> bool:
        return self.over


@SHELF("has-the-last-word", "answers what comes behind a Close", "connection.after-close")
class HasTheLastWord(WebSocketCodec):
    def on_frame(self, frame: RawFrame) -> None:
        if self.received_close and frame.opcode == TEXT:
            self.connection.text(frame.payload.decode())
        else:
            super().on_frame(frame)

    def written(self, out: Out) -> bytes:
        if self.said_close and isinstance(out, SendText):
            return self.frames_of(out.text)
        return super().written(out)


class Midway(WebSocketCodec):
    """Lets its connection know of itself."""

    def __init__(self, connection: ScriptedConnection) -> None:
        super().__init__(connection)
        setattr(connection, "wire", self)  # noqa: B010 -- only here


class FallsWithOthers(ScriptedConnection):
    wire: Midway
    deaf = False

    def text(self, text: str) -> None:
        if not self.deaf:
            super().text(text)

    def lost(self) -> None:
        super().lost()
        if self.wire._reader._buffer and not self.wire.deaf:
            for other in self.server.connections:
                setattr(other, "deaf", True)  # noqa: B010 -- of this class, too


class TellsTheNext(ScriptedServer):
    """Keeps subscriptions that nothing was said to, and gives them to who comes next."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.left: list[Listening] = []

    def connect(self, **how: Any) -> ScriptedConnection:
        made = super().connect(**how)
        for listening in self.left:
            made.listenings[listening.key] = listening
        self.left = []
        return made


class Leaves(ScriptedConnection):
    told = False

    def deliver_event(self, listening: Listening, name: str, data: Any) -> None:
        self.told = True
        super().deliver_event(listening, name, data)

    def lost(self) -> None:
        if not self.over and not self.told and isinstance(self.server, TellsTheNext):
            self.server.left = [each for each in self.listenings.values() if each.kind == "event"]
        super().lost()


class Forgetful(ScriptedConnection):
    """Does not answer who comes back for the fifth time, having asked for one property each time."""

    received = 0
    reads = 0
    ignored = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.server, Counting)
        self.ignored = self.server.visits == 4

    def text(self, text: str) -> None:
        self.received += 1
        if not self.ignored:
            super().text(text)

    def take(self, request: Request) -> None:
        self.reads += request.kind == "readProperty"
        super().take(request)

    def lost(self) -> None:
        server = self.server
        if not self.over and isinstance(server, Counting):
            server.visits = server.visits + 1 if self.received == self.reads == 1 else 0
        super().lost()


class Counting(ScriptedServer):
    visits = 0


@SHELF("takes-few", "takes no more than 15 connections", "connection.many")
class TakesFew(NetworkServer):
    def refused(self, head: RequestHead) -> Reply | None:
        if len(self.server.connections) >= 15:
            return refusal(503, "no room")
        return super().refused(head)


@SHELF("reads-one-at-a-time", "drops the second of two messages in one piece", "connection.two-at-once")
class ReadsOneAtATime(WebSocketCodec):
    def receive(self, data: bytes) -> None:
        try:
            found = self._reader.feed(data)
        except FrameTooLong:
            self.on_violation(1009, "too long")
            return
        asks = [b'"noSuchProperty"' in frame.payload for frame in found]
        for frame in found[:1] if asks == [True, True] else found:
            self.on_frame(frame)


@SHELF("needs-a-whole-head", "needs the head of a frame in one piece", "connection.small-pieces")
class NeedsAWholeHead(WebSocketCodec):
    def receive(self, data: bytes) -> None:
        if len(data) == 1 and not self._reader._buffer:
            self.on_violation(1002, "half a head")
        else:
            super().receive(data)


BROKEN = (
    *SHELF.all(),
    Broken(
        id="falls-with-others",
        what="hears nobody any more once a connection was cut in the middle of a message",
        caught_by="connection.cut",
        parts={"connection": FallsWithOthers, "wire": Midway},
    ),
    Broken(
        id="comes-back-four-times",
        what="does not answer who comes back for the fifth time",
        caught_by="connection.reconnect",
        parts={"connection": Forgetful, "server": Counting},
    ),
    Broken(
        id="tells-the-next",
        what="gives the subscriptions of who has left to who comes next",
        caught_by="connection.forgets",
        parts={"connection": Leaves, "server": TellsTheNext},
    ),
)


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
