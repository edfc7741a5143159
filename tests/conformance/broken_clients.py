"""Clients that are wrong in one way."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs
import trio

from lmos_actors.conformance.scripted import ID
from lmos_actors.conformance.wire import (
    BINARY,
    CLOSE,
    PING,
    TEXT,
    RawFrame,
    close_payload,
    write_frame,
)
from tests.conformance.right_client import Client, GaveUp, Json


@attrs.frozen
class BrokenClient:
    """A client that is wrong: `caught_by` is the case that is meant for it, `also` fail with it."""

    caught_by: str
    what: type[Client]
    also: tuple[str, ...] = ()


ALL: list[BrokenClient] = []


def caught_by(case: str, *also: str) -> Any:
    def add(cls: type[Client]) -> type[Client]:
        ALL.append(BrokenClient(f"client.{case}", cls, tuple(f"client.{each}" for each in also)))
        return cls

    return add


# --- handshake and frames


@caught_by("handshake")
class ShortKey(Client):
    def key(self) -> bytes:
        return b"dG9vIHNob3J0"


@caught_by("subprotocol")
class OffersNothing(Client):
    def headers(self) -> dict[str, str]:
        headers = super().headers()
        del headers["Sec-WebSocket-Protocol"]
        return headers


@caught_by("masked")
class Unmasked(Client):
    def frame(self, opcode: int, payload: bytes) -> bytes:
        return write_frame(opcode, payload)


class LastFrame(Client):
    wrong = b""

    async def do_last(self) -> None:
        await self.stream.send_all(self.wrong)


@caught_by("frames")
class ReservedBit(LastFrame):
    wrong = write_frame(PING, b"", rsv=4, key=b"abcd")


@caught_by("frames")
class LongPing(LastFrame):
    wrong = write_frame(PING, b"x" * 200, key=b"abcd")


@caught_by("frames")
class PartOfNothing(LastFrame):
    wrong = write_frame(0, b"x", key=b"abcd")


@caught_by("utf-8")
class Latin1(LastFrame):
    wrong = write_frame(TEXT, '{"messageType": "größer"}'.encode("latin-1"), key=b"abcd")


@caught_by("text")
class SpeaksBinary(LastFrame):
    wrong = write_frame(BINARY, b'{"messageType": "readProperty"}', key=b"abcd")


@caught_by("pongs")
class NoPongs(Client):
    async def on_ping(self, payload: bytes) -> None:
        pass


@caught_by("pongs")
class OtherPongs(Client):
    async def on_ping(self, payload: bytes) -> None:
        await self.send(0xA, payload[:-1])


@caught_by("returns-close")
class LeavesAtClose(Client):
    async def on_close(self, payload: bytes) -> None:
        self.closed = True


@caught_by("returns-close")
class ClosesLate(Client):
    async def on_close(self, payload: bytes) -> None:
        await trio.sleep(2.5)
        await super().on_close(payload)


@caught_by("close")
class JustLeaves(Client):
    async def say_goodbye(self) -> None:
        pass


@caught_by("close")
class SaysWhatCannotBeSaid(Client):
    async def say_goodbye(self) -> None:
        await self.send(CLOSE, close_payload(1005))


@caught_by("nothing-after-close")
class SpeaksOn(Client):
    async def say_goodbye(self) -> None:
        await self.stream.send_all(self.frame(CLOSE, close_payload(1000)) + self.frame(PING, b"still here"))


# --- messages


class LastText(Client):
    wrong = ""

    async def do_last(self) -> None:
        await self.send(TEXT, self.wrong.encode())


@caught_by("json")
class NoJson(LastText):
    wrong = "hello"


@caught_by("json")
class NoObject(LastText):
    wrong = '["hello"]'


@caught_by("types")
class SaysWhatThingsSay(Client):
    async def do_last(self) -> None:
        await self.say("propertyReading", name="level", value=1, timestamp="2025-01-20T19:00:00Z")


@caught_by("types")
class LowerCase(Client):
    def subscribing(self) -> str:
        return "subscribeevent"

    def takes(self, message: Json) -> bool:
        return bool(message["messageType"] != "acknowledgement")


@caught_by("members")
class NoMessageId(Client):
    async def do_last(self) -> None:
        message = self.message("readProperty", ID, {"name": "level"})
        del message["messageID"]
        await self.send(TEXT, str(message).replace("'", '"').encode())


@caught_by("members")
class NameIsNumber(Client):
    async def do_last(self) -> None:
        await self.say("invokeAction", action=3)


@caught_by("spelling")
class SpelledAsInExamples(Client):
    def message(self, kind: str, thing: str, members: Json) -> Json:
        return {"messageType": kind, "thingId": thing, "messageId": self.new_id(), **members}

    def is_answer(self, message: Json, to: Json) -> bool:
        return bool(message.get("correlationId") == to["messageId"])

    async def do_reversed(self) -> None:
        pass

    async def do_stream(self) -> None:
        pass


@caught_by("ids")
class Counts(Client):
    number = 0

    def new_id(self) -> str:
        self.number += 1
        return f"message-{self.number}"


@caught_by("fresh-ids")
class SameIds(Client):
    async def do_last(self) -> None:
        same = self.new_id()
        await self.say("readProperty", name="level", messageID=same)
        await self.say("readProperty", name="label", messageID=same)


@caught_by("thing-id")
class OtherThing(Client):
    async def do_last(self) -> None:
        await self.say("readProperty", "urn:uuid:3f1d3a7a-4f97-4e6b-845f-f3c2e1c84c77", name="level")


@caught_by("offered")
class ReadsWhatIsNotThere(Client):
    async def do_last(self) -> None:
        await self.say("readProperty", name="colour")


@caught_by("offered")
class WritesWhatIsReadOnly(Client):
    async def do_last(self) -> None:
        await self.say("writeProperty", name="version", data="2.0")


@caught_by("offered")
class ObservesWhatIsNotObservable(Client):
    async def do_last(self) -> None:
        await self.say("observeProperty", name="settings")


@caught_by("input")
class SendsText(Client):
    async def do_last(self) -> None:
        await self.say("invokeAction", action="add", input={"a": "1", "b": 2})


@caught_by("input")
class WritesTooMuch(Client):
    async def do_last(self) -> None:
        await self.say("writeMultipleProperties", data={"level": 101})


# --- challenges


@caught_by("read")
class ReadsTheTime(Client):
    def value_of(self, reading: Json) -> Any:
        return reading["timestamp"]


@caught_by("write")
class BelievesWhatItWrote(Client):
    async def do_write(self) -> None:
        await self.ask("writeProperty", name="challenge_slate", data="chalk")
        await self.prove("write", "chalk")


@caught_by("zoned-time")
class PlainTimes(Client):
    def takes(self, message: Json) -> bool:
        try:
            datetime.fromisoformat(message.get("timestamp", "2025-01-20T19:00:00Z"))
        except ValueError:
            return False
        return True


@caught_by("other-thing")
class OneThing(Client):
    def message(self, kind: str, thing: str, members: Json) -> Json:
        return super().message(kind, ID, members)


@caught_by("output")
class StatusForOutput(Client):
    async def do_output(self) -> None:
        await self.prove("output", (await self.invoke("output"))["status"])


@caught_by("pending", "progress")
class FirstStatus(Client):
    def is_final(self, message: Json) -> bool:
        return True

    def token_of(self, status: Json) -> Any:
        return status.get("output", {}).get("token", "nothing")


@caught_by("progress")
class ProgressIsTheEnd(Client):
    def is_final(self, message: Json) -> bool:
        return message.get("status") != "pending"

    def token_of(self, status: Json) -> Any:
        return status.get("output", {}).get("token", "nothing")


@caught_by("failure")
class AllIsWell(Client):
    def has_failed(self, status: Json) -> bool:
        return False


@caught_by("error", "numeric-status")
class TitlesForDetails(Client):
    def detail_of(self, error: Json) -> Any:
        return error["title"]


@caught_by("numeric-status")
class TextStatus(Client):
    def takes(self, message: Json) -> bool:
        return isinstance(message.get("status", ""), str)


@caught_by("observe")
class FirstValue(Client):
    def wanted(self) -> int:
        return 1


@caught_by("event")
class NamesOfEvents(Client):
    def takes(self, message: Json) -> bool:
        if message["messageType"] == "event" and isinstance(message["data"], dict):
            message["data"]["token"] = message["event"]
        return True


@caught_by("reversed")
class InOrder(Client):
    def is_answer(self, message: Json, to: Json) -> bool:
        if message.get("action") == "challenge_reversed":
            return True
        return super().is_answer(message, to)


@caught_by("stray-answer")
class AnyAnswer(Client):
    def is_answer(self, message: Json, to: Json) -> bool:
        if len(self.open) == 1 and message["messageType"] == "actionStatus":
            return bool(message["action"] == to.get("action"))
        return super().is_answer(message, to)


@caught_by("unknown-members")
class KnownMembers(Client):
    def takes(self, message: Json) -> bool:
        return "mood" not in message


class Leaves(Client):
    """Leaves the connection at something, and comes back for the rest."""

    async def leave(self) -> None:
        await self.send(CLOSE, close_payload(1002))
        await self.stream.aclose()
        await self.connect()
        raise GaveUp


@caught_by("unknown-type")
class KnownTypes(Leaves):
    async def on_frame(self, frame: RawFrame) -> Json | None:
        message = await super().on_frame(frame)
        if message is not None and message["messageType"] == "weatherReport":
            await self.leave()
        return message


@caught_by("stray-event")
class KnownEvents(Leaves):
    async def on_frame(self, frame: RawFrame) -> Json | None:
        message = await super().on_frame(frame)
        if message is not None and message.get("event") == "rang":
            await self.leave()
        return message


@caught_by("stray-pong")
class KnownPongs(Leaves):
    async def on_pong(self, payload: bytes) -> None:
        await self.leave()


@caught_by("fragments")
class WholeFrames(Client):
    async def on_frame(self, frame: RawFrame) -> Json | None:
        if frame.opcode == 0 or not frame.fin:
            return None
        return await super().on_frame(frame)


@caught_by("long")
class ShortFrames(Client):
    async def on_frame(self, frame: RawFrame) -> Json | None:
        return None if len(frame.payload) > 65535 else await super().on_frame(frame)


@caught_by("letters")
class Ascii(Client):
    def token_of(self, status: Json) -> Any:
        return super().token_of(status).encode("ascii", "replace").decode()


@caught_by("stream")
class KeepsToNoCredit(Client):
    def waits_for_credit(self) -> bool:
        return False

    def token_of(self, status: Json) -> Any:
        return super().token_of(status) if "output" in status else "none"


@caught_by("stream")
class Miscounts(KeepsToNoCredit):
    def waits_for_credit(self) -> bool:
        return True

    def counted(self, sent: int) -> int:
        return sent + 1


@caught_by("reconnects")
class StaysAway(Client):
    async def do_reconnects(self) -> None:
        await self.invoke("restart")
        await self.wait_for_the_end()


@caught_by("reconnects")
class ProvesTooSoon(Client):
    async def do_reconnects(self) -> None:
        token = self.token_of(await self.invoke("restart"))
        told = {"challenge": "reconnects", "token": token}
        await self.say("invokeAction", action="prove", input=told)
        await self.wait_for_the_end()
