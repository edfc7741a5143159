"""Servers that do not bear messages as they should not be, or as they may well be."""

from __future__ import annotations

import json
import re
from typing import Any

from lmos_actors.conformance.scripted import (
    Json,
    Problem,
    ScriptedConnection,
    SendClose,
    SendFrame,
    WebSocketCodec,
    invalid,
)
from lmos_actors.conformance.wire import (
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    FrameReader,
    RawFrame,
)
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

SHELF = Shelf()


def read(text: str) -> Any:
    """Give the JSON of a text, None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def has(text: str, member: str) -> bool:
    """Whether a text is an object with a member."""
    found = read(text)
    return isinstance(found, dict) and member in found


class Touchy(ScriptedConnection):
    """Does something that it should not when it gets what it does not like."""

    def text(self, text: str) -> None:
        if self.dislikes(text):
            self.suffer()
        else:
            super().text(text)

    def dislikes(self, text: str) -> bool:
        """Whether a message is one that it cannot bear."""
        raise NotImplementedError

    def suffer(self) -> None:
        """Do what it does then: nothing at all."""


class Fragile(Touchy):
    """Closes the connection with an internal error."""

    def suffer(self) -> None:
        self.hang_up(1011, "internal error")


class Brittle(Touchy):
    """Ends the stream without a word."""

    def suffer(self) -> None:
        self.cut()


class Strict(Touchy):
    """Closes the connection with 1003, as kotlin-wot's server does."""

    def suffer(self) -> None:
        self.hang_up(1003, "Failed to read message")


@SHELF("closes-on-bad-json", "closes the connection on bad JSON", "frames.not-json")
class ClosesOnBadJson(Strict):
    def dislikes(self, text: str) -> bool:
        return text[:1].isalpha() and text not in ("true", "null")


@SHELF("is-silent-on-half-a-message", "says nothing to half a message", "frames.not-json")
class IsSilentOnHalfAMessage(Touchy):
    def dislikes(self, text: str) -> bool:
        return len(text) < 200 and text.startswith("{") and not text.endswith("}")


@SHELF("dies-of-an-array", "dies of a message that is an array", "frames.no-object")
class DiesOfAnArray(Fragile):
    def dislikes(self, text: str) -> bool:
        return text.startswith("[")


@SHELF("closes-on-null", "closes the connection on null", "frames.no-object")
class ClosesOnNull(Strict):
    def dislikes(self, text: str) -> bool:
        return text == "null"


@SHELF("dies-of-nothing", "dies of an empty message", "frames.empty")
class DiesOfNothing(Brittle):
    def dislikes(self, text: str) -> bool:
        return not text


@SHELF("mends-texts", "replaces what is not UTF-8", "frames.not-utf8")
class MendsTexts(WebSocketCodec):
    def on_message(self, opcode: int, data: bytes) -> None:
        super().on_message(opcode, data.decode(errors="replace").encode() if opcode == TEXT else data)


@SHELF("needs-no-type", "does not answer a message without messageType", "frames.no-type")
class NeedsNoType(Touchy):
    def dislikes(self, text: str) -> bool:
        return has(text, "messageID") and not has(text, "messageType")


@SHELF("dies-without-a-thing", "dies of a message without thingID", "frames.no-thing")
class DiesWithoutAThing(Fragile):
    def dislikes(self, text: str) -> bool:
        return has(text, "messageID") and not has(text, "thingID") and not has(text, "thingId")


@SHELF("closes-without-an-id", "closes the connection on a message without messageID", "frames.no-id")
class ClosesWithoutAnId(Strict):
    def dislikes(self, text: str) -> bool:
        return has(text, "thingID") and not has(text, "messageID")


@SHELF("waits-for-a-name", "does not answer who invokes nothing", "frames.no-name")
class WaitsForAName(Touchy):
    def dislikes(self, text: str) -> bool:
        return has(text, "messageType") and '"invokeAction"' in text and not has(text, "action")


@SHELF("dies-of-a-number", "dies of a messageType that is a number", "frames.member-types")
class DiesOfANumber(Fragile):
    def dislikes(self, text: str) -> bool:
        return has(text, "messageType") and isinstance(read(text)["messageType"], int)


@SHELF("reads-a-list", "reads the property whose name is an object", "frames.member-types")
class ReadsAList(ScriptedConnection):
    def check_members(self, kind: str, message: Json) -> None:
        if isinstance(message.get("name"), dict):
            message["name"] = "level"
        super().check_members(kind, message)


@SHELF("closes-on-unknown-types", "closes on a type that it does not know", "frames.unknown-type")
class ClosesOnUnknownTypes(Strict):
    def dislikes(self, text: str) -> bool:
        return has(text, "messageType") and read(text)["messageType"] == "noSuchType"


@SHELF("closes-on-readings", "closes when it is sent a propertyReading", "frames.thing-types")
class ClosesOnReadings(Strict):
    def dislikes(self, text: str) -> bool:
        return has(text, "messageType") and read(text)["messageType"] == "propertyReading"


@SHELF("is-silent-on-two-spellings", "says nothing to two spellings at once", "frames.two-spellings")
class IsSilentOnTwoSpellings(Touchy):
    def dislikes(self, text: str) -> bool:
        return has(text, "thingID") and has(text, "thingId")


@SHELF("dies-of-a-member-twice", "dies of a member that is there twice", "frames.duplicate-member")
class DiesOfAMemberTwice(Fragile):
    def dislikes(self, text: str) -> bool:
        return text.count('"name":') > 1 and has(text, "name")


@SHELF("dies-of-nesting", "dies of deep nesting", "frames.nesting")
class DiesOfNesting(Brittle):
    def dislikes(self, text: str) -> bool:
        return "[" * 1000 in text


@SHELF("dies-of-digits", "dies of a huge number", "frames.huge-number")
class DiesOfDigits(Brittle):
    def dislikes(self, text: str) -> bool:
        return re.search(r"\d{5000}", text) is not None


@SHELF("dies-of-surrogates", "dies of half a surrogate pair", "frames.surrogate")
class DiesOfSurrogates(Fragile):
    def dislikes(self, text: str) -> bool:
        return "\\ud800" in text


class Refusing(ScriptedConnection):
    """Answers some requests by an error that they do not deserve."""

    def check_members(self, kind: str, message: Json) -> None:
        if self.refuses(message):
            raise invalid("not allowed here")
        super().check_members(kind, message)

    def refuses(self, message: Json) -> bool:
        """Whether a message is one that it does not take."""
        raise NotImplementedError


@SHELF("knows-every-member", "refuses members that it does not know", "frames.unknown-members")
class KnowsEveryMember(Refusing):
    def refuses(self, message: Json) -> bool:
        return any(":" in member for member in message)


@SHELF("takes-no-trace", "refuses traceparent", "frames.trace-members")
class TakesNoTrace(Refusing):
    def refuses(self, message: Json) -> bool:
        return "traceparent" in message


@SHELF("cannot-read-lines", "cannot read a message on several lines", "frames.white-space")
class CannotReadLines(ScriptedConnection):
    def text(self, text: str) -> None:
        super().text("" if text.startswith(" ") else text)


@SHELF("searches-for-types", "looks for messageType in the text", "frames.escapes")
class SearchesForTypes(ScriptedConnection):
    def text(self, text: str) -> None:
        super().text("{}" if "\\u0054ype" in text else text)


# --- frames


@SHELF("takes-little", "takes no more than 32 kB", "frames.long-text")
class TakesLittle(WebSocketCodec):
    def on_message(self, opcode: int, data: bytes) -> None:
        if len(data) > 32_768 and data.endswith(b"  }"):
            self.on_violation(1009, "too long")
        else:
            super().on_message(opcode, data)


@SHELF(
    "takes-whole-messages",
    "takes messages in one frame alone",
    "frames.fragmented",
    "frames.empty-fragments",
    "frames.ping-between",
    "frames.split-character",
)
class TakesWholeMessages(WebSocketCodec):
    def wrong_in(self, frame: RawFrame) -> str:
        return super().wrong_in(frame) or ("" if frame.fin else "a message in parts")


@SHELF("begins-with-something", "takes no empty frame as the first", "frames.empty-fragments")
class BeginsWithSomething(WebSocketCodec):
    def wrong_in(self, frame: RawFrame) -> str:
        if frame.opcode == TEXT and not frame.fin and not frame.payload:
            return "an empty part"
        return super().wrong_in(frame)


@SHELF("decodes-frames", "decodes each frame of a message by itself", "frames.split-character")
class DecodesFrames(WebSocketCodec):
    def on_part(self, frame: RawFrame) -> None:
        if TEXT in (frame.opcode, self._opcode):
            try:
                frame.payload.decode()
            except UnicodeDecodeError:
                self.on_violation(1007, "a text that is not UTF-8")
                return
        super().on_part(frame)


@SHELF("is-not-pinged-between", "takes no ping between frames", "frames.ping-between")
class IsNotPingedBetween(WebSocketCodec):
    def on_ping(self, payload: bytes) -> None:
        if self._opcode:
            self.on_violation(1002, "a ping in the middle of a message")
        else:
            super().on_ping(payload)


@SHELF("takes-bare-frames", "takes frames without a mask", "frames.unmasked")
class TakesBareFrames(WebSocketCodec):
    def wrong_in(self, frame: RawFrame) -> str:
        return "" if not frame.masked else super().wrong_in(frame)


@SHELF("closes-bare-frames-in-peace", "closes with 1000 on a frame without a mask", "frames.unmasked")
class ClosesBareFramesInPeace(WebSocketCodec):
    def on_violation(self, code: int, reason: str) -> None:
        super().on_violation(1000 if "masked" in reason else code, reason)


@SHELF("ignores-reserved-bits", "passes over reserved bits", "frames.reserved-bits")
class IgnoresReservedBits(WebSocketCodec):
    def wrong_in(self, frame: RawFrame) -> str:
        wrong = super().wrong_in(frame)
        return "" if "reserved bit" in wrong else wrong


@SHELF("ignores-reserved-opcodes", "passes over reserved opcodes", "frames.reserved-opcodes")
class IgnoresReservedOpcodes(WebSocketCodec):
    def on_frame(self, frame: RawFrame) -> None:
        if frame.opcode not in range(0x3, 0x8) and frame.opcode < 0xB:
            super().on_frame(frame)


@SHELF("takes-long-pings", "takes pings of any length", "frames.long-control")
class TakesLongPings(WebSocketCodec):
    def wrong_in(self, frame: RawFrame) -> str:
        return "" if frame.opcode == PING and len(frame.payload) > 125 else super().wrong_in(frame)


@SHELF("takes-pings-in-parts", "takes pings in parts", "frames.fragmented-control")
class TakesPingsInParts(WebSocketCodec):
    def wrong_in(self, frame: RawFrame) -> str:
        return "" if frame.opcode == PING and not frame.fin else super().wrong_in(frame)


@SHELF("begins-anywhere", "takes a continuation for a beginning", "frames.stray-continuation")
class BeginsAnywhere(WebSocketCodec):
    def on_frame(self, frame: RawFrame) -> None:
        if frame.opcode == CONTINUATION and not self._opcode:
            frame = RawFrame(TEXT, frame.payload, frame.fin, frame.rsv, frame.masked)
        super().on_frame(frame)


@SHELF("begins-again", "begins again where a message begins within another", "frames.interrupted")
class BeginsAgain(WebSocketCodec):
    def on_frame(self, frame: RawFrame) -> None:
        if frame.opcode == TEXT and self._opcode:
            self._parts, self._opcode = [], 0
        super().on_frame(frame)


@SHELF("returns-any-close", "returns a Close as it came", "frames.wrong-close")
class ReturnsAnyClose(WebSocketCodec):
    def on_close(self, payload: bytes) -> None:
        self.connection.put(SendFrame(CLOSE, payload))


@SHELF("waits-for-ever", "waits for a frame of any length", "frames.oversize")
class WaitsForEver(WebSocketCodec):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._reader = FrameReader(1 << 63)


@SHELF("passes-over-binary", "passes over binary messages", "frames.binary")
class PassesOverBinary(ScriptedConnection):
    def binary(self, data: bytes) -> None:
        if data[:1] == b"\x01":
            super().binary(data)


@SHELF("closes-binary-in-peace", "closes with 1000 on a binary message", "frames.binary")
class ClosesBinaryInPeace(ScriptedConnection):
    def binary(self, data: bytes) -> None:
        if data[:1] == b"{":
            self.put(SendClose(1000))
        else:
            super().binary(data)


@SHELF("refuses-all-the-same", "answers an unknown type by a status of a run", "frames.unknown-type")
class RefusesAllTheSame(ScriptedConnection):
    def on_unreadable(self, message: Json, problem: Problem) -> None:
        if message.get("messageType") == "noSuchType":
            self.send("actionStatus", self.at.id, message["messageID"], {"action": "x", "status": "failed"})
        else:
            super().on_unreadable(message, problem)


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
