"""A client by hand, right in all that the kit judges, of small methods that a wrong one overrides."""

from __future__ import annotations

import base64
import json
import uuid
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors.conformance.scripted import ID, ID_B
from lmos_actors.conformance.wire import (
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    FrameReader,
    RawFrame,
    close_payload,
    write_frame,
)
from lmos_actors.transport import endpoint_of

if TYPE_CHECKING:
    from lmos_actors.transport import MemoryNetwork

HERE = endpoint_of("ws://judge.example")
PATIENCE = 3.0
Json = dict[str, Any]


class GaveUp(Exception):
    """No answer has come."""


class Client:
    """Solves all challenges, over one connection and one more."""

    steps: tuple[str, ...] = (
        "read", "write", "zoned_time", "other_thing", "output", "pending", "progress", "failure", "error",
        "numeric_status", "observe", "event", "reversed", "unknown_members", "unknown_type", "stray_event",
        "stray_answer", "stray_pong", "fragments", "long", "letters", "stream", "reconnects", "last",
    )  # fmt: skip

    path = "/ws"

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.random = Random(1)
        self.stream: trio.abc.Stream
        self.closed = False
        self.open: list[Json] = []  # what was asked and not answered

    async def run(self) -> None:
        await self.connect()
        for step in self.steps:
            try:
                await getattr(self, f"do_{step}")()
            except GaveUp:
                self.open.clear()
        with suppress(GaveUp):
            while True:
                await self.next()
        if not self.closed:
            await self.say_goodbye()
        await self.stream.aclose()

    # ---- connections

    def key(self) -> bytes:
        return base64.b64encode(self.random.randbytes(16))

    def headers(self) -> dict[str, str]:
        return {
            "Host": "judge.example",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": self.key().decode(),
            "Sec-WebSocket-Protocol": "lmosprotocol",
        }

    async def connect(self) -> None:
        self.stream = await self.network.connect(HERE, None)
        lines = [f"{name}: {value}" for name, value in self.headers().items()]
        await self.stream.send_all("\r\n".join([f"GET {self.path} HTTP/1.1", *lines, "", ""]).encode())
        data = bytearray()
        while b"\r\n\r\n" not in data:
            data += await self.stream.receive_some(65536)
        self.closed = False
        self.reader = FrameReader()
        self.frames = self.reader.feed(bytes(data.partition(b"\r\n\r\n")[2]))
        self.parts = b""

    async def say_goodbye(self) -> None:
        await self.send(CLOSE, close_payload(1000))

    async def send(self, opcode: int, payload: bytes) -> None:
        await self.stream.send_all(self.frame(opcode, payload))

    def frame(self, opcode: int, payload: bytes) -> bytes:
        return write_frame(opcode, payload, key=self.random.randbytes(4))

    # ---- what comes

    async def next(self) -> Json:
        """Give the next message. Raises GaveUp where none comes, or the connection is closed."""
        with trio.move_on_after(PATIENCE):
            while True:
                if self.closed:
                    raise GaveUp
                while not self.frames:
                    data = await self.stream.receive_some(65536)
                    if not data:
                        self.closed = True
                        raise GaveUp
                    self.frames += self.reader.feed(bytes(data))
                message = await self.on_frame(self.frames.pop(0))
                if message is not None and self.takes(message):
                    return message
        raise GaveUp

    async def on_frame(self, frame: RawFrame) -> Json | None:
        if frame.opcode == PING:
            await self.on_ping(frame.payload)
        elif frame.opcode == CLOSE:
            await self.on_close(frame.payload)
        elif frame.opcode in (TEXT, CONTINUATION):
            self.parts += frame.payload
            if frame.fin:
                text, self.parts = self.parts.decode(), b""
                return self.read(text)
        else:
            await self.on_pong(frame.payload)
        return None

    async def on_ping(self, payload: bytes) -> None:
        await self.send(0xA, payload)

    async def on_pong(self, payload: bytes) -> None:
        """Take a pong."""

    async def on_close(self, payload: bytes) -> None:
        self.closed = True
        await self.send(CLOSE, payload[:2])

    def read(self, text: str) -> Json | None:
        found: Json = json.loads(text)
        return found

    def takes(self, message: Json) -> bool:
        return True

    def is_answer(self, message: Json, to: Json) -> bool:
        return bool(message.get("correlationID") == to["messageID"])

    def is_final(self, message: Json) -> bool:
        if message["messageType"] == "streamCredit":
            return False
        return message["messageType"] != "actionStatus" or message["status"] in ("completed", "failed")

    # ---- what goes out

    def new_id(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def message(self, kind: str, thing: str, members: Json) -> Json:
        return {"messageType": kind, "thingID": thing, "messageID": self.new_id(), **members}

    async def say(self, kind: str, thing: str = ID, **members: Any) -> Json:
        message = self.message(kind, thing, members)
        self.open.append(message)
        await self.send(TEXT, json.dumps(message, ensure_ascii=False).encode())
        return message

    async def answer(self, to: Json) -> Json:
        """Wait for the final answer to a message, pass the others over."""
        while True:
            message = await self.next()
            if self.is_answer(message, to) and self.is_final(message):
                self.open.remove(to)
                return message

    async def ask(self, kind: str, thing: str = ID, **members: Any) -> Json:
        return await self.answer(await self.say(kind, thing, **members))

    async def invoke(self, action: str) -> Json:
        return await self.ask("invokeAction", action=f"challenge_{action}")

    async def prove(self, challenge: str, token: Any, **more: bool) -> None:
        await self.ask(
            "invokeAction", action="prove", input={"challenge": challenge, "token": str(token), **more}
        )

    # ---- challenges

    def value_of(self, reading: Json) -> Any:
        return reading["value"]

    def token_of(self, status: Json) -> Any:
        return status["output"]["token"]

    def detail_of(self, error: Json) -> Any:
        return error["detail"]

    async def output(self, challenge: str) -> None:
        await self.prove(challenge.replace("_", "-"), self.token_of(await self.invoke(challenge)))

    async def do_read(self) -> None:
        await self.prove("read", self.value_of(await self.ask("readProperty", name="challenge_read")))

    async def do_write(self) -> None:
        await self.ask("writeProperty", name="challenge_slate", data="chalk")
        await self.prove("write", (await self.ask("readProperty", name="challenge_slate"))["value"])

    async def do_zoned_time(self) -> None:
        await self.prove("zoned-time", (await self.ask("readProperty", name="challenge_time"))["value"])

    async def do_other_thing(self) -> None:
        await self.prove(
            "other-thing", (await self.ask("readProperty", ID_B, name="challenge_read"))["value"]
        )

    async def do_output(self) -> None:
        await self.output("output")

    async def do_pending(self) -> None:
        await self.output("pending")

    async def do_progress(self) -> None:
        await self.output("progress")

    async def do_unknown_members(self) -> None:
        await self.output("unknown_members")

    async def do_unknown_type(self) -> None:
        await self.output("unknown_type")

    async def do_stray_event(self) -> None:
        await self.output("stray_event")

    async def do_stray_answer(self) -> None:
        await self.output("stray_answer")

    async def do_stray_pong(self) -> None:
        await self.output("stray_pong")

    async def do_fragments(self) -> None:
        await self.output("fragments")

    async def do_long(self) -> None:
        await self.output("long")

    async def do_letters(self) -> None:
        await self.output("letters")

    async def do_stream(self) -> None:
        streams = {"words": {"stream": 1}}
        invoked = await self.say("invokeAction", action="challenge_stream", streams=streams)
        room, sent = 0, 0
        while sent < 5:
            while room == 0 and self.waits_for_credit():
                room += self.room_in(await self.received(invoked))
            room -= 1
            await self.say_of(invoked, "streamItem", sequence=sent, data="word")
            sent += 1
        await self.say_of(invoked, "streamEnd", sequence=self.counted(sent))
        while not self.is_final(status := await self.received(invoked)):
            pass
        self.open.remove(invoked)
        await self.prove("stream", self.token_of(status))

    def waits_for_credit(self) -> bool:
        return True

    def counted(self, sent: int) -> int:
        """How many items the end of a stream says there were."""
        return sent

    def room_in(self, message: Json) -> int:
        if message["messageType"] != "streamCredit":
            raise GaveUp
        return int(message["items"])

    async def say_of(self, invoked: Json, kind: str, **members: Any) -> None:
        members |= {"correlationID": invoked["messageID"], "stream": 1}
        message = self.message(kind, ID, members)
        await self.send(TEXT, json.dumps(message).encode())

    async def do_failure(self) -> None:
        status = await self.invoke("failure")
        await self.prove("failure", status["output"]["token"], failed=self.has_failed(status))

    def has_failed(self, status: Json) -> bool:
        return bool(status["status"] == "failed")

    async def do_error(self) -> None:
        await self.prove("error", self.detail_of(await self.invoke("error")), failed=True)

    async def do_numeric_status(self) -> None:
        await self.prove("numeric-status", self.detail_of(await self.invoke("numeric_status")), failed=True)

    async def do_observe(self) -> None:
        observed = await self.say("observeProperty", name="challenge_changing")
        values = [(await self.received(observed))["value"] for _ in range(self.wanted())]
        await self.prove("observe", values[-1])

    def wanted(self) -> int:
        """How many values are waited for."""
        return 2

    async def received(self, listening: Json) -> Json:
        while not self.is_answer(message := await self.next(), listening):
            pass
        return message

    async def do_event(self) -> None:
        subscribed = await self.say(self.subscribing(), event="challenged")
        invoked = await self.say("invokeAction", action="challenge_event")
        event = await self.received(subscribed)
        await self.answer(invoked)
        await self.prove("event", event["data"]["token"])

    def subscribing(self) -> str:
        return "subscribeEvent"

    async def do_reversed(self) -> None:
        asked = [
            await self.say("invokeAction", action="challenge_reversed", input={"which": which})
            for which in (1, 2)
        ]
        tokens: dict[str, str] = {}
        while len(tokens) < 2:
            message = await self.next()
            for each in asked:
                if each["messageID"] not in tokens and self.is_answer(message, each):
                    tokens[each["messageID"]] = message["output"]["token"]
                    break
        self.open.clear()
        await self.prove("reversed", " ".join(tokens[each["messageID"]] for each in asked))

    async def do_reconnects(self) -> None:
        token = self.token_of(await self.invoke("restart"))
        while not self.closed:
            await self.wait_for_the_end()
        await self.stream.aclose()
        await self.connect()
        await self.prove("reconnects", token)

    async def wait_for_the_end(self) -> None:
        try:
            await self.next()
        except GaveUp:
            self.closed = True

    async def do_last(self) -> None:
        """Do something wrong, in a broken client."""
