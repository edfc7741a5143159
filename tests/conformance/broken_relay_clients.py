"""Clients of relays that are wrong in one way."""

from __future__ import annotations

import json
from typing import Any

import attrs
import trio

from lmos_actors.conformance.wire import BINARY, CLOSE, PING, TEXT, RawFrame, close_payload, write_frame
from tests.conformance.relay_client import Frame, RelayClient


@attrs.frozen
class BrokenRelayClient:
    """A client that is wrong: `caught_by` is the case that is meant for it, `also` fail with it."""

    caught_by: str
    what: type[RelayClient]
    also: tuple[str, ...] = ()


ALL: list[BrokenRelayClient] = []


def caught_by(case: str, *also: str) -> Any:
    def add(cls: type[RelayClient]) -> type[RelayClient]:
        others = tuple(f"relayclient.{each}" for each in also)
        ALL.append(BrokenRelayClient(f"relayclient.{case}", cls, others))
        return cls

    return add


# --- handshakes, registration, frames


@caught_by("handshake")
class ShortKey(RelayClient):
    def key(self) -> bytes:
        return b"dG9vIHNob3J0"


@caught_by("credentials")
class TwoTokens(RelayClient):
    def path(self, token: str) -> str:
        return "/arc?token=tok_another"


@caught_by("register")
class RegistersANumber(RelayClient):
    def registration(self) -> Any:
        return {"agent_id": 5}


@caught_by("register")
class RegistersAList(RelayClient):
    def registration(self) -> Any:
        return ["kit-client"]


@caught_by("masked")
class Unmasked(RelayClient):
    def masked(self, opcode: int, payload: bytes) -> bytes:
        return write_frame(opcode, payload)


class DropsInWith(RelayClient):
    """Sends a frame when it drops in."""

    wrong = b""

    async def drop_in(self) -> None:
        await self.connect("tok_kit-guest")
        await self.stream.send_all(self.wrong)
        await self.say_goodbye()


@caught_by("frames")
class ReservedBit(DropsInWith):
    wrong = write_frame(PING, b"", rsv=4, key=b"abcd")


@caught_by("frames")
class PartOfNothing(DropsInWith):
    wrong = write_frame(0, b"x", key=b"abcd")


@caught_by("utf-8")
class Latin1(DropsInWith):
    wrong = write_frame(TEXT, '{"to":["*"],"payload":"größer"}'.encode("latin-1"), key=b"abcd")


@caught_by("text")
class SpeaksBinary(RelayClient):
    async def send_frame(self, frame: Frame) -> None:
        await self.send(BINARY if frame.get("type") == "thought" else TEXT, json.dumps(frame).encode())


# --- messages


class SaysOneThingWrong(RelayClient):
    """Sends one text more, when it drops in."""

    wrong = ""

    async def greet(self) -> None:
        await super().greet()
        if self.id == "kit-guest":
            await self.send(TEXT, self.wrong.encode())


@caught_by("json")
class NoJson(SaysOneThingWrong):
    wrong = "{oops"


@caught_by("json")
class NotANumber(SaysOneThingWrong):
    wrong = '{"to":["*"],"payload":NaN}'


@caught_by("json")
class NoObject(SaysOneThingWrong):
    wrong = '["hello"]'


@caught_by("to")
class ToAText(SaysOneThingWrong):
    wrong = '{"to": "*", "payload": 1}'


@caught_by("to")
class ToNobody(SaysOneThingWrong):
    wrong = '{"to": [], "payload": 1}'


@caught_by("to")
class ToNumbers(SaysOneThingWrong):
    wrong = '{"to": [5], "payload": 1}'


@caught_by("payload")
class NoPayload(SaysOneThingWrong):
    wrong = '{"to": ["*"]}'


@caught_by("from")
class SpeaksAsAnother(SaysOneThingWrong):
    wrong = '{"from": "judge", "to": ["*"], "payload": 1}'


@caught_by("from")
class SpeaksAsNumber(SaysOneThingWrong):
    wrong = '{"from": 5, "to": ["*"], "payload": 1}'


@caught_by("own-members")
class DecidesTheId(SaysOneThingWrong):
    wrong = '{"to": ["*"], "payload": 1, "id": "m-1"}'


@caught_by("own-members")
class DecidesTheTime(SaysOneThingWrong):
    wrong = '{"to": ["*"], "payload": 1, "ts": 5}'


@caught_by("types")
class TypeNull(SaysOneThingWrong):
    wrong = '{"to": ["*"], "payload": 1, "type": null}'


@caught_by("types")
class RefNumber(SaysOneThingWrong):
    wrong = '{"to": ["*"], "payload": 1, "ref": 5}'


@caught_by("commands")
class FollowsNobody(SaysOneThingWrong):
    wrong = '{"to": ["relay"], "type": "subscribe", "payload": null}'


@caught_by("commands")
class FollowsByAnotherName(SaysOneThingWrong):
    wrong = '{"to": ["relay"], "type": "subscribe", "payload": {"subscribe_to": ["judge"]}}'


@caught_by("size")
class TooLong(SaysOneThingWrong):
    wrong = json.dumps({"to": ["*"], "payload": "x" * 70_000})


@caught_by("answer")
class AnswersNothing(RelayClient):
    async def answer(self, question: Frame) -> None:
        await self.say("kit", question["from"], type="answer", ref="m-none")


# --- pings and Closes


@caught_by("pongs")
class NoPongs(RelayClient):
    async def on_ping(self, payload: bytes) -> None:
        pass


@caught_by("returns-close")
class LeavesAtClose(RelayClient):
    async def on_close(self, payload: bytes) -> None:
        pass


@caught_by("close")
class JustLeaves(RelayClient):
    async def say_goodbye(self) -> None:
        pass


@caught_by("nothing-after-close")
class SpeaksOn(RelayClient):
    async def say_goodbye(self) -> None:
        await self.stream.send_all(self.masked(CLOSE, close_payload(1000)) + self.masked(PING, b"still here"))


# --- what it cannot bear


@caught_by("strange")
class KnowsEveryType(RelayClient):
    async def on_message(self, frame: Frame) -> None:
        if frame.get("type") == "no-such-type-of-anybody":
            await self.leave()
        await super().on_message(frame)


@caught_by("control-types")
class BelievesAnybody(RelayClient):
    """Takes the id of the next welcome, whoever it is from, and no other name then."""

    async def on_message(self, frame: Frame) -> None:
        if frame.get("type") == "welcome":
            self.named = frame["to"][0] if isinstance(frame.get("to"), list) else self.named
        await super().on_message(frame)


@caught_by("control-types")
class LeavesAtAnyError(RelayClient):
    async def on_message(self, frame: Frame) -> None:
        if frame.get("type") == "error" and frame.get("from") != "relay":
            await self.leave()
        await super().on_message(frame)


@caught_by("error")
class LeavesAtErrors(RelayClient):
    async def on_relay(self, frame: Frame) -> None:
        if frame.get("type") == "error":
            await self.leave()
        await super().on_relay(frame)


@caught_by("notice")
class KnowsEveryWord(RelayClient):
    async def on_relay(self, frame: Frame) -> None:
        if frame.get("type") == "gap":
            await self.leave()
        await super().on_relay(frame)


@caught_by("no-json")
class LeavesAtNoJson(RelayClient):
    async def on_no_json(self) -> None:
        if not self.is_deep:
            await self.leave()

    async def on_text(self, text: str) -> None:
        self.is_deep = "[[[" in text
        await super().on_text(text)


@caught_by("nesting")
class LeavesAtDepth(LeavesAtNoJson):
    async def on_no_json(self) -> None:
        if self.is_deep:
            await self.leave()


@caught_by("no-object")
class LeavesAtNoMessage(RelayClient):
    async def on_no_message(self) -> None:
        await self.leave()


@caught_by("binary")
class LeavesAtBinary(RelayClient):
    async def on_binary(self, data: bytes) -> None:
        await self.leave()


@caught_by("repeated")
class HearsTwice(RelayClient):
    def is_new(self, id: str) -> bool:
        return True


class Impatient(RelayClient):
    """Ends a connection on which it is not welcomed as it knows it."""

    async def is_welcomed(self) -> bool:
        return True

    async def talk(self) -> int:
        if not await self.is_welcomed():
            await self.say_goodbye()
            self.asked = False
            return 4009
        return await super().talk()


@caught_by("no-welcome")
class NeedsAWelcome(Impatient):
    async def is_welcomed(self) -> bool:
        while not self.frames:
            with trio.move_on_after(5) as waiting:
                self.frames += self.reader.feed(bytes(await self.stream.receive_some(65536)))
            if waiting.cancelled_caught:
                return False
        return True


@caught_by("flat-welcome")
class NeedsAPayload(RelayClient):
    async def on_message(self, frame: Frame) -> None:
        if frame.get("type") == "welcome" and "payload" not in frame:
            await self.leave()
        await super().on_message(frame)


@caught_by("renamed")
class KeepsItsName(RelayClient):
    def takes_the_name(self) -> bool:
        return False


# --- whether it comes back


@caught_by("restart")
class ComesBackLate(RelayClient):
    """Takes too long the first time."""

    is_slow = True

    def pause(self) -> float:
        slow, self.is_slow = self.is_slow, False
        return 31.0 if slow else 0.3


@caught_by("lost")
class EndsWhenLost(RelayClient):
    def pause(self) -> float:
        return 31.0 if self.code == 0 else 0.3


@caught_by("retry-after")
class DoesNotWait(RelayClient):
    async def refused(self, status: int) -> None:
        await trio.sleep(self.pause())


@caught_by("unavailable")
class Hammers(RelayClient):
    async def refused(self, status: int) -> None:
        await trio.sleep(0.05 if status == 503 else self.retry_after)


@caught_by("unavailable")
class GivesUp(RelayClient):
    async def refused(self, status: int) -> None:
        await trio.sleep(31.0 if status == 503 else self.retry_after)


class ComesBackOnce(RelayClient):
    """Comes back once after an end for good."""

    code_of_it = 0
    came_back = False

    def is_final(self, code: int) -> bool:
        if code == self.code_of_it and not self.came_back:
            self.came_back = True
            return False
        return super().is_final(code)


@caught_by("replaced")
class DrivesOut(ComesBackOnce):
    code_of_it = 4009
    parts = ("kit-client", "expired", "hurried", "renamed", "flat", "unwelcomed")


@caught_by("expired")
class TriesItsOldToken(ComesBackOnce):
    code_of_it = 4001


@caught_by("hurried")
class InAHurry(ComesBackOnce):
    code_of_it = 4029


@caught_by("refused")
class TriesAgain(RelayClient):
    async def try_a_bad_token(self) -> None:
        for _ in range(2):
            await super().try_a_bad_token()


# --- what it does not hear


class Deaf(RelayClient):
    """Does not hear some challenge."""

    challenge = ""

    async def hear(self, frame: Frame) -> None:
        payload = frame["payload"]
        if not (isinstance(payload, dict) and payload.get("challenge") == self.challenge):
            await super().hear(frame)


@caught_by("behind-welcome")
class LosesWhatComesBehind(Deaf):
    challenge = "behind-welcome"


@caught_by("fragments")
class WholeMessagesOnly(RelayClient):
    async def on_part(self, frame: RawFrame) -> None:
        if frame.fin and frame.opcode == TEXT:
            await super().on_part(frame)


@caught_by("long")
class ShortMessagesOnly(Deaf):
    challenge = "long"


@caught_by("letters")
class Rounds(RelayClient):
    def read(self, text: str) -> Any:
        return json.loads(text, parse_int=lambda digits: int(float(digits)))


@caught_by("letters")
class Latin(RelayClient):
    def read(self, text: str) -> Any:
        return json.loads(text.replace("\\u2028", " "))


@caught_by("asks")
class TakesAnyAnswer(RelayClient):
    def is_mine(self, frame: Frame) -> bool:
        return True
