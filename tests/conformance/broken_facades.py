"""Facades that are wrong in one way, and the cases that are meant for them."""

from __future__ import annotations

from typing import Any

import attrs

from lmos_actors.conformance.scripted import Reply, SendClose, SendFrame, SendText
from lmos_actors.conformance.wire import BINARY, PONG, TEXT, RawFrame
from tests.conformance.facade import (
    FacadeCodec,
    FacadeConnection,
    FacadeServer,
    Frame,
    Wrong,
    closed,
)


@attrs.frozen
class BrokenFacade:
    """A facade that is wrong in one way. `caught_by`: the case that is meant for it; `also` fail with it."""

    id: str
    caught_by: str
    connection: type[FacadeConnection] = FacadeConnection
    server: type[FacadeServer] = FacadeServer
    wire: type[FacadeCodec] = FacadeCodec
    also: tuple[str, ...] = ()

    def make(self) -> FacadeServer:
        """Return a fresh one."""
        made = self.server()
        made.connection_class = self.connection
        made.wire_class = self.wire
        return made


# ---- the connection


class Silent(FacadeConnection):
    def announce_first(self) -> None:
        pass


class Unnamed(FacadeConnection):
    def announce(self, *, resumed: bool = False) -> None:
        self.send("connected", None, connected={"capabilities": self.capabilities()})


class NoCapabilities(FacadeConnection):
    def announce(self, *, resumed: bool = False) -> None:
        self.send("connected", self.session, connected={"resumed": True} if resumed else {})


class TextVersion(FacadeConnection):
    def capabilities(self) -> Frame:
        return {**super().capabilities(), "protocol_version": "1"}


class OneForAll(FacadeConnection):
    def first_session(self) -> str:
        return "11111111-1111-4111-8111-111111111111"


class ShortIds(FacadeConnection):
    def first_session(self) -> str:
        return super().first_session()[:6]


class AnyAgent(FacadeServer):
    def on_unknown_agent(self) -> Reply | None:
        return None


class NoAgentNeeded(FacadeServer):
    def on_no_agent(self) -> Reply | None:
        return None


class AnyOrigin(FacadeServer):
    def on_origin(self) -> Reply | None:
        return None


class Unasked(FacadeServer):
    def subprotocol(self, head: Any) -> str:
        return "chat"


class WrongAccept(FacadeServer):
    def switching_headers(self, head: Any) -> list[tuple[str, str]]:
        return [
            (name, value + "x" * name.endswith("Accept")) for name, value in super().switching_headers(head)
        ]


# ---- turns


class Mute(FacadeConnection):
    """Says nothing more once it has said hello to somebody."""

    def answer(self, said: str, session: str) -> None:
        self.error("INTERNAL_ERROR", "I cannot speak", session)
        self.freed()


class HalfDone(FacadeConnection):
    def done(self, text: str, session: str) -> None:
        super().done(text[: len(text) // 2], session)


class TwoEnds(FacadeConnection):
    def done(self, text: str, session: str) -> None:
        super().done(text, session)
        super().done(text, session)


class LateChunk(FacadeConnection):
    def done(self, text: str, session: str) -> None:
        super().done(text, session)
        self.facade.after(0.5, lambda: self.send("chunk", session, content="one more"))


class Undated(FacadeConnection):
    def date(self) -> Frame:
        return {}


class OddDate(FacadeConnection):
    def date(self) -> Frame:
        return {"timestamp": "31.1.2026"}


class NoSessionInTurns(FacadeConnection):
    def finish(self, text: str, session: str) -> None:
        self.send("chunk", None, content=text)
        self.done(text, session)
        self.freed()


class FreedLate(FacadeConnection):
    def freed(self) -> None:
        self.facade.after(0.02, super().freed)

    def on_message(self, frame: Frame) -> None:
        if self.is_busy:
            self.error("RATE_LIMITED", "too many in-flight requests", self.session)
        else:
            super().on_message(frame)


class Drops(FacadeConnection):
    """Forgets what is too many, in place of refusing it."""

    def error(self, code: str, message: str, session: str | None = None) -> None:
        if code != "RATE_LIMITED":
            super().error(code, message, session)

    def freed(self) -> None:
        self.facade.after(0.01, super().freed)


class SecondRefused(FacadeConnection):
    def on_message(self, frame: Frame) -> None:
        if self.is_busy:
            self.error("RATE_LIMITED", "too many in-flight requests", self.session)
        else:
            super().on_message(frame)


class CodeNumber(FacadeConnection):
    def error(self, code: str, message: str, session: str | None = None) -> None:
        if code == "PROVIDER_ERROR":
            self.send("error", session, error={"code": 502, "message": message})
        else:
            super().error(code, message, session)


class NoMetadata(FacadeConnection):
    def on_message(self, frame: Frame) -> None:
        if "metadata" in frame:
            raise Wrong("no metadata here")
        super().on_message(frame)


class Strict(FacadeConnection):
    def on_message(self, frame: Frame) -> None:
        if set(frame) - {"type", "content", "parts", "session_id", "metadata"}:
            raise Wrong("an unknown member")
        super().on_message(frame)


class NoParts(FacadeConnection):
    def on_message(self, frame: Frame) -> None:
        if "parts" in frame and "session_id" not in frame:
            raise Wrong("no parts here")
        super().on_message(frame)


# ---- sessions


class SessionEach(FacadeConnection):
    def session_of_connection(self) -> str:
        self.session = self.facade.new_id()
        self.announce()
        return self.session


class Forgets(FacadeConnection):
    def on_message(self, frame: Frame) -> None:
        named = frame.get("session_id")
        if named and named != self.session:
            frame = {**frame, "session_id": self.in_place_of(named)}
        super().on_message(frame)


class ForgetsTheLost(FacadeConnection):
    """Forgets the session of a connection that ended in the middle of an answer."""

    def lost(self) -> None:
        super().lost()
        if self.is_busy:
            self.facade.sessions.discard(self.session)

    def freed(self) -> None:
        self.facade.after(0.05, super().freed)


class Expires(FacadeConnection):
    def in_place_of(self, unknown: str) -> str:
        raise Wrong("expired")

    def on_wrong(self, why: str) -> None:
        self.error("SESSION_EXPIRED" if why == "expired" else "INVALID_MESSAGE", why)


class AnySession(FacadeConnection):
    def in_place_of(self, unknown: str) -> str:
        return unknown


class Broadcasts(FacadeConnection):
    def done(self, text: str, session: str) -> None:
        for each in self.facade.open:
            if each is self or session in self.facade.sessions:
                each.send("done", session, content=text)


# ---- bad frames


class Deaf(FacadeConnection):
    def text(self, text: str) -> None:
        if text != '{"type":"message"':
            super().text(text)


class Touchy(FacadeConnection):
    """Closes at what is no object."""

    def on_wrong(self, why: str) -> None:
        if why == "no object":
            closed(self, 1003)
        else:
            super().on_wrong(why)


def reads(before: str, after: str) -> type[FacadeConnection]:
    """Return a connection that takes one text for another."""

    class Reading(FacadeConnection):
        def text(self, text: str) -> None:
            super().text(after if text == before else text)

    return Reading


def answers(text: str, code: str) -> type[FacadeConnection]:
    """Return a connection that refuses a text with another code."""

    class Answering(FacadeConnection):
        def text(self, came: str) -> None:
            if came == text:
                self.error(code, "not this")
            else:
                super().text(came)

    return Answering


HELLO = '{"type":"message","content":"x"}'


class FaultOfSession(FacadeConnection):
    def on_wrong(self, why: str) -> None:
        self.error("INVALID_MESSAGE", why, self.session)


class AnyResult(FacadeConnection):
    def on_tool_result(self, frame: Frame) -> None:
        if self.open_call is None:
            self.send("done", self.session, content="thanks")
        else:
            super().on_tool_result(frame)


class EndsAtMany(FacadeConnection):
    wrongs = 0

    def on_wrong(self, why: str) -> None:
        self.wrongs += 1
        if self.wrongs > 100:
            closed(self, 1008)
        else:
            super().on_wrong(why)


# ---- tools, uploads, calls


class HidesTools(FacadeConnection):
    def use_tool(self, session: str) -> None:
        pass


class NoResult(FacadeConnection):
    def use_tool(self, session: str) -> None:
        self.send("tool_call", session, tool_call={"id": "t-1", "name": "find"})


class NeverAsks(FacadeConnection):
    def answer(self, said: str, session: str) -> None:
        super().answer("x" if said == "client" else said, session)


class GivesUp(FacadeConnection):
    def on_tool_call_nack(self, frame: Frame) -> None:
        closed(self, 1011)


class NoReference(FacadeConnection):
    def send(self, type: str, session: str | None = None, **members: Any) -> None:
        if type == "upload_ready":
            members = {type: {name: x for name, x in members[type].items() if name != "storage_ref"}}
            members[type]["storage_ref"] = 5
        super().send(type, session, **members)


class Unreported(FacadeConnection):
    def uploaded(self, id: str, size: int) -> None:
        pass


class AnyLength(FacadeServer):
    def on_wrong_size(self) -> Reply:
        return Reply(204, b"", ())


class AnyUpload(FacadeServer):
    def on_http(self, head: Any, body: bytes) -> Reply:
        found = super().on_http(head, body)
        return Reply(204, b"", ()) if found.status == 404 else found


class AnySize(FacadeConnection):
    def on_upload_request(self, frame: Frame) -> None:
        order = {**frame["upload_request"]}
        order["size_bytes"] = order["size_bytes"] or 1
        super().on_upload_request({**frame, "upload_request": order})


class NoRate(FacadeConnection):
    def configure(self) -> None:
        self.send("session_config", self.session, session_config={"codec": "pcm"})


class Film(FacadeConnection):
    def on_film(self) -> None:
        self.configure()


class NotParked(FacadeConnection):
    def park(self, session: str) -> None:
        pass


class Tired(FacadeConnection):
    def on_sound(self, number: int, sound: bytes) -> None:
        if number:
            self.error("INVALID_MESSAGE", "EOF", self.session)
        else:
            super().on_sound(number, sound)


class NeverHangsUp(FacadeConnection):
    def on_hangup(self, frame: Frame) -> None:
        pass


# ---- bytes


class OddPong(FacadeCodec):
    def on_ping(self, payload: bytes) -> None:
        self.connection.put(SendFrame(PONG, b""))


class NoFragments(FacadeCodec):
    def on_part(self, frame: RawFrame) -> None:
        if frame.fin and frame.opcode != 0:
            super().on_part(frame)
        elif frame.fin:
            self.connection.put(SendText('{"type":"error","error":{"code":"X","message":"no parts"}}'))


class OtherClose(FacadeCodec):
    def on_close(self, payload: bytes) -> None:
        code = int.from_bytes(payload[:2], "big")
        self.connection.put(SendClose(1001 if code == 1000 else 1002))


class AnyCloseCode(FacadeCodec):
    def on_close(self, payload: bytes) -> None:
        self.connection.put(SendClose(1000))


class TakesUnmasked(FacadeCodec):
    def wrong_in(self, frame: RawFrame) -> str:
        return "" if frame.opcode == TEXT and not frame.masked else super().wrong_in(frame)


class AnyText(FacadeCodec):
    def on_message(self, opcode: int, data: bytes) -> None:
        super().on_message(opcode, data.decode(errors="replace").encode() if opcode == TEXT else data)


class AnyLarge(FacadeCodec):
    def on_message(self, opcode: int, data: bytes) -> None:
        super().on_message(opcode, data[:20] + b'"}' if len(data) > 100_000 else data)


class OtherCode(FacadeCodec):
    def on_violation(self, code: int, reason: str) -> None:
        super().on_violation(1008 if code == 1009 else code, reason)


class ReadsBinary(FacadeCodec):
    def on_message(self, opcode: int, data: bytes) -> None:
        super().on_message(TEXT if opcode == BINARY and data[:1] == b"{" else opcode, data)


class AnyHeader(FacadeConnection):
    def binary(self, data: bytes) -> None:
        if data[:5] == b"OMNI\x02":
            self.send("done", self.session, content="heard")
        else:
            super().binary(data)


B = BrokenFacade

ALL: tuple[BrokenFacade, ...] = (
    B("wrong-accept", "omniaopen.upgrade", server=WrongAccept),
    B("chooses-unasked", "omniaopen.subprotocol", server=Unasked),
    B("silent", "omniaopen.announced", Silent, also=("omniacall.resumed",)),
    B("unnamed", "omniaopen.announced", Unnamed, also=("omniacall.resumed",)),
    B("no-capabilities", "omniaopen.capabilities", NoCapabilities),
    B("version-text", "omniaopen.capabilities", TextVersion),
    B("one-session-for-all", "omniaopen.own-session", OneForAll, also=("omniacall.hung-up",)),
    B("short-ids", "omniaopen.own-session", ShortIds),
    B("any-agent", "omniaopen.unknown-agent", server=AnyAgent),
    B("no-agent-needed", "omniaopen.no-agent", server=NoAgentNeeded),
    B("any-origin", "omniaopen.origin", server=AnyOrigin),
    B("mute", "omniaturn.done", Mute),
    B("half-done", "omniaturn.whole-text", HalfDone),
    B("two-ends", "omniaturn.one-end", TwoEnds),
    B("late-chunk", "omniaturn.one-end", LateChunk),
    B("undated", "omniaturn.dated", Undated),
    B("odd-date", "omniaturn.dated", OddDate),
    B("chunk-without-session", "omniaturn.session", NoSessionInTurns),
    B("freed-late", "omniaturn.next-at-once", FreedLate, also=("omniaturn.second-waits",)),
    B("drops", "omniaturn.all-end", Drops),
    B("second-refused", "omniaturn.second-waits", SecondRefused),
    B("code-number", "omniaturn.fails", CodeNumber),
    B("no-metadata", "omniaturn.metadata", NoMetadata),
    B("no-unknown-members", "omniaturn.unknown-members", Strict),
    B("no-parts", "omniaturn.parts", NoParts),
    B("session-each", "omniasession.kept", SessionEach),
    B("forgets", "omniasession.resumed", Forgets, also=("omniasession.after-leaving",)),
    B("forgets-the-lost", "omniasession.after-leaving", ForgetsTheLost),
    B("expires", "omniasession.unknown", Expires),
    B("any-session", "omniasession.unknown", AnySession),
    B("broadcasts", "omniasession.asker", Broadcasts),
    B("deaf", "omniabad.json", Deaf),
    B("closes", "omniabad.no-object", Touchy, also=("omniabad.null",)),
    B("empty-is-hello", "omniabad.empty", reads("", HELLO)),
    B("null-is-hello", "omniabad.null", reads("null", HELLO)),
    B("two-are-one", "omniabad.two", reads('{"type":"message","content":"a"}{}', HELLO)),
    B("type-5", "omniabad.type", reads('{"type":5,"content":"x"}', HELLO)),
    B("content-5", "omniabad.content", reads('{"type":"message","content":5}', HELLO)),
    B("session-7", "omniabad.session", reads('{"type":"message","session_id":7,"content":"x"}', HELLO)),
    B("other-type", "omniabad.unknown-type", reads('{"type":"no_such_type","content":"x"}', HELLO)),
    B("no-type", "omniabad.no-type", reads('{"content":"x"}', HELLO)),
    B("no-content", "omniabad.no-content", reads('{"type":"message"}', HELLO)),
    B("other-code", "omniabad.no-content", answers('{"type":"message"}', "INTERNAL_ERROR")),
    B("fault-of-session", "omniabad.of-no-session", FaultOfSession),
    B("any-result", "omniabad.no-such-call", AnyResult),
    B("ends-at-many", "omniabad.many", EndsAtMany),
    B("hides-tools", "omniatool.shown", HidesTools),
    B("no-result", "omniatool.shown", NoResult),
    B("never-asks", "omniatool.asked", NeverAsks, also=("omniatool.refused",)),
    B("gives-up", "omniatool.refused", GivesUp),
    B("no-reference", "omniaupload.ready", NoReference),
    B("unreported", "omniaupload.stored", Unreported),
    B("any-length", "omniaupload.longer", server=AnyLength),
    B("any-upload", "omniaupload.unknown", server=AnyUpload),
    B("any-size", "omniaupload.wrong-order", AnySize),
    B("no-rate", "omniacall.begins", NoRate),
    B("film", "omniacall.format", Film),
    B("not-parked", "omniacall.resumed", NotParked),
    B("tired", "omniacall.resumed", Tired),
    B("never-hangs-up", "omniacall.hung-up", NeverHangsUp),
    B("odd-pong", "omniabytes.ping", wire=OddPong),
    B("no-fragments", "omniabytes.fragments", wire=NoFragments),
    B("other-close", "omniabytes.close", wire=OtherClose),
    B("any-close-code", "omniabytes.close-code", wire=AnyCloseCode),
    B("takes-unmasked", "omniabytes.unmasked", wire=TakesUnmasked),
    B("any-text", "omniabytes.utf8", wire=AnyText),
    B("any-large", "omniabytes.too-large", wire=AnyLarge),
    B("other-close-code", "omniabytes.too-large", wire=OtherCode),
    B("reads-binary", "omniabytes.binary-text", wire=ReadsBinary),
    B("any-header", "omniabytes.binary-header", AnyHeader),
)
