"""A client of relays by hand, right in all that is judged, of small methods that a wrong one overrides."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors.conformance.relay_clients import JUDGE, PARTS
from lmos_actors.conformance.scripted import is_deep
from lmos_actors.conformance.wire import (
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    FrameReader,
    close_payload,
    write_frame,
)
from lmos_actors.transport import endpoint_of

if TYPE_CHECKING:
    from lmos_actors.conformance.wire import RawFrame
    from lmos_actors.transport import MemoryNetwork

HERE = endpoint_of("ws://judge.example")
FINAL = (
    4001,
    4009,
    4029,
)  # after the last one it would come back in a minute: as another agent it does at once

Frame = dict[str, Any]


class Leaves(Exception):
    """The client ends its connection."""


class RelayClient:
    """Is each of the agents to which something happens, one after the other."""

    parts: tuple[str, ...] = ("kit-client", *PARTS)

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.random = Random(1)
        self.stream: trio.abc.Stream
        self.id = self.named = ""
        self.seen: set[str] = set()
        self.asked = False
        self.code = 0

    async def run(self) -> None:
        await self.register()
        await self.try_a_bad_token()
        for part in self.parts:
            await self.visit(part)
        await self.drop_in()

    # ---- visits

    async def register(self) -> None:
        body = json.dumps(self.registration()).encode()
        stream = await self.network.connect(HERE, None)
        head = f"POST /register HTTP/1.1\r\nHost: judge.example\r\nContent-Length: {len(body)}\r\n\r\n"
        await stream.send_all(head.encode() + body)
        assert b"HTTP/1.1" in await stream.receive_some(65536)
        await stream.aclose()

    def registration(self) -> Any:
        return {"agent_id": "kit-client"}

    async def try_a_bad_token(self) -> None:
        if await self.connect("a bad one") == 101:
            self.named = ""
            with suppress(Leaves):
                await self.stay()
            await self.stream.aclose()

    async def visit(self, id: str) -> None:
        """Be an agent until the relay takes it no more."""
        self.id, self.asked = id, False
        while True:
            status = await self.connect(f"tok_{id}")
            if status == 101:
                code = await self.talk()
                await self.stream.aclose()
                if self.is_final(code):
                    return
                await trio.sleep(self.pause())
            else:
                await self.refused(status)

    def is_final(self, code: int) -> bool:
        return code in FINAL

    def pause(self) -> float:
        return 0.3

    async def refused(self, status: int) -> None:
        await trio.sleep(self.retry_after if status == 429 else self.pause())

    async def drop_in(self) -> None:
        """Connect, say one thing, and leave."""
        self.id, self.asked = "kit-guest", True
        await self.connect("tok_kit-guest")
        await self.greet()
        await self.say_goodbye()
        await self.stream.aclose()

    async def say_goodbye(self) -> None:
        await self.send(CLOSE, close_payload(1000))
        with trio.move_on_after(3):
            while await self.stream.receive_some(65536):
                pass

    # ---- the handshake

    def headers(self, token: str) -> dict[str, str]:
        return {
            "Host": "judge.example",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": self.key().decode(),
            "Authorization": f"Bearer {token}",
        }

    def key(self) -> bytes:
        return base64.b64encode(self.random.randbytes(16))

    def path(self, token: str) -> str:
        return "/arc"

    async def connect(self, token: str) -> int:
        self.stream = await self.network.connect(HERE, None)
        lines = [f"{name}: {value}" for name, value in self.headers(token).items()]
        await self.stream.send_all("\r\n".join([f"GET {self.path(token)} HTTP/1.1", *lines, "", ""]).encode())
        data = bytearray()
        while b"\r\n\r\n" not in data:
            data += await self.stream.receive_some(65536)
        head, _, rest = bytes(data).partition(b"\r\n\r\n")
        self.named = self.id
        self.retry_after = 2.0 if b"Retry-After: 2" in head else 0.0
        self.reader = FrameReader()
        self.frames = self.reader.feed(rest)
        self.parts_of = b""
        return int(head.split(b" ")[1])

    # ---- what comes

    async def talk(self) -> int:
        """Stay until the connection ends; return the code of the Close, 0 if there was none."""
        self.code = 0
        async with trio.open_nursery() as nursery:
            if not self.asked:
                self.asked = True
                nursery.start_soon(self.greet)
            with suppress(Leaves):
                await self.stay()
            nursery.cancel_scope.cancel()
        return self.code

    async def greet(self) -> None:
        """Do what the relay is judged by: once, when it had the time to welcome the agent."""
        await trio.sleep(0.1)
        await self.say("hello", "*", type="thought")
        await self.command("subscribe", {"agents": [JUDGE]})
        await self.command("ping", None)
        await self.say("how are you?", JUDGE, type="question")

    async def stay(self) -> None:
        while True:
            while self.frames:
                await self.on_frame(self.frames.pop(0))
            data = await self.stream.receive_some(65536)
            if not data:
                raise Leaves
            self.frames += self.reader.feed(bytes(data))

    async def on_frame(self, frame: RawFrame) -> None:
        if frame.opcode == PING:
            await self.on_ping(frame.payload)
        elif frame.opcode == CLOSE:
            self.code = int.from_bytes(frame.payload[:2], "big")
            await self.on_close(frame.payload)
            raise Leaves
        elif frame.opcode in (TEXT, CONTINUATION):
            await self.on_part(frame)
        else:
            await self.on_binary(frame.payload)

    async def on_part(self, frame: RawFrame) -> None:
        self.parts_of += frame.payload
        if frame.fin:
            text, self.parts_of = self.parts_of.decode(), b""
            await self.on_text(text)

    async def on_ping(self, payload: bytes) -> None:
        await self.send(0xA, payload)

    async def on_close(self, payload: bytes) -> None:
        await self.send(CLOSE, payload[:2])

    async def on_binary(self, data: bytes) -> None:
        """Take a binary message."""

    async def on_text(self, text: str) -> None:
        try:
            frame = self.read(text)
            if is_deep([frame]):  # how deep `json` itself reads is not the same in all versions of Python
                raise RecursionError
        except (ValueError, RecursionError):
            await self.on_no_json()
            return
        if isinstance(frame, dict) and (isinstance(frame.get("from"), str) or frame.get("type") == "welcome"):
            await self.on_message(frame)
        else:
            await self.on_no_message()

    def read(self, text: str) -> Any:
        return json.loads(text)

    async def on_no_json(self) -> None:
        """Pass over a frame that is no JSON."""

    async def on_no_message(self) -> None:
        """Pass over a frame that is no message."""

    async def on_message(self, frame: Frame) -> None:
        if frame.get("from", "relay") == "relay":
            await self.on_relay(frame)
        elif self.is_new(frame["id"]):
            await self.hear(frame)

    async def on_relay(self, frame: Frame) -> None:
        to = frame.get("to")
        if frame.get("type") == "welcome" and isinstance(to, list) and self.takes_the_name():
            self.named = to[0]

    def takes_the_name(self) -> bool:
        return True

    def is_new(self, id: str) -> bool:
        known = id in self.seen
        self.seen.add(id)
        return not known

    async def hear(self, frame: Frame) -> None:
        kind = frame.get("type")
        if kind == "question" and frame["from"] == JUDGE:
            await self.answer(frame)
        elif kind == "challenge" or (kind == "answer" and self.is_mine(frame)):
            await self.prove(frame["payload"])

    def is_mine(self, frame: Frame) -> bool:
        """Return whether an answer is to a question of its own: its id is not known, but the other's is."""
        return bool(frame.get("ref") != "m-0")

    async def answer(self, question: Frame) -> None:
        await self.say("kit", question["from"], type="answer", ref=question["id"])

    async def prove(self, payload: Any) -> None:
        await self.say(payload, JUDGE, type="proof")

    # ---- what goes out

    def frame(self, to: Any, payload: Any, members: Frame) -> Frame:
        return {"from": self.named, "to": to, "payload": payload, **members}

    async def say(self, payload: Any, *to: str, **members: Any) -> None:
        await self.send_frame(self.frame(list(to), payload, members))

    async def command(self, kind: str, payload: Any) -> None:
        await self.send_frame(self.frame(["relay"], payload, {"type": kind}))

    async def send_frame(self, frame: Frame) -> None:
        await self.send(TEXT, json.dumps(frame, ensure_ascii=False).encode())

    async def send(self, opcode: int, payload: bytes) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            await self.stream.send_all(self.masked(opcode, payload))

    def masked(self, opcode: int, payload: bytes) -> bytes:
        return write_frame(opcode, payload, key=self.random.randbytes(4))

    async def leave(self) -> None:
        """End the connection, as a client does that cannot go on."""
        await self.send(CLOSE, close_payload(1000))
        raise Leaves
