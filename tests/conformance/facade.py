"""A right facade of Omnia's chat protocol, written by hand: the cases for facades are tried on it.

It shares the frames of a WebSocket with the scripted server of LMOS, and nothing with our own facade. A wrong
one overrides one small method.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import trio

from lmos_actors.conformance.scripted import (
    Reply,
    Scheduler,
    SendClose,
    SendFrame,
    SendText,
    WebServer,
    WebSocketCodec,
    refusal,
)
from lmos_actors.conformance.wire import BINARY

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.scripted import RequestHead

MAX_PAYLOAD: Final = 100_000
WAITING: Final = 8
HEADER: Final = struct.Struct(">4sBBHIII12s")
GRACE: Final = 15.0
TYPES: Final = ("message", "upload_request", "tool_result", "tool_call_ack", "tool_call_nack", "hangup")

Frame = dict[str, Any]


class Wrong(Exception):
    """A frame of a client that cannot be understood."""


class Facade(Scheduler):
    """The agent and its sessions; what is scheduled."""

    def __init__(self) -> None:
        super().__init__(trio.current_time)
        self.sessions: set[str] = set()
        self.uploads: dict[str, FacadeConnection] = {}
        self.parked: dict[str, float] = {}
        self.open: list[FacadeConnection] = []
        self._random = Random(7)

    def new_id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


class FacadeConnection:
    """One connection: frames in, frames out."""

    def __init__(self, facade: Facade, query: dict[str, str]) -> None:
        self.facade = facade
        self.out: deque[Any] = deque()
        self.wake: Callable[[], object] = lambda: None
        self.query = query
        self.binary_out = query.get("binary") == "true"
        self.session = self.first_session()
        self.call: str | None = None
        self.has_hung_up = False
        self.waiting: deque[tuple[Frame, str]] = deque()
        self.is_busy = False
        self.open_call: tuple[str, str] | None = None
        facade.open.append(self)
        self.announce_first()

    def first_session(self) -> str:
        return self.facade.new_id()

    def announce_first(self) -> None:
        resumed = self.query.get("resume", "")
        if resumed in self.facade.parked:
            del self.facade.parked[resumed]
            self.session = self.call = resumed
            self.announce(resumed=True)
        else:
            self.announce()

    # ---- out

    def put(self, out: Any) -> None:
        self.out.append(out)
        self.wake()

    def send(self, type: str, session: str | None = None, **members: Any) -> None:
        frame = {"type": type, **({} if session is None else {"session_id": session}), **members}
        self.put(SendText(json.dumps({**frame, **self.date()})))

    def date(self) -> Frame:
        return {"timestamp": "2026-01-31T08:15:00.123456789Z"}

    def announce(self, *, resumed: bool = False) -> None:
        more = {"resumed": True} if resumed else {}
        self.send("connected", self.session, connected={"capabilities": self.capabilities(), **more})

    def capabilities(self) -> Frame:
        return {"binary_frames": self.binary_out, "max_payload_size": MAX_PAYLOAD, "protocol_version": 1}

    def error(self, code: str, message: str, session: str | None = None) -> None:
        self.send("error", session, error={"code": code, "message": message})

    # ---- in

    def text(self, text: str) -> None:
        try:
            frame = self.read(text)
            self.take(frame)
        except Wrong as wrong:
            self.on_wrong(str(wrong))

    def on_wrong(self, why: str) -> None:
        self.error("INVALID_MESSAGE", why)

    def read(self, text: str) -> Frame:
        try:
            frame = json.loads(text)
        except ValueError:
            raise Wrong("invalid message format") from None
        if not isinstance(frame, dict):
            raise Wrong("no object")
        if not isinstance(frame.get("type"), str) or not isinstance(frame.get("session_id", ""), str):
            raise Wrong("a member of a wrong type")
        return frame

    def take(self, frame: Frame) -> None:
        kind = frame["type"]
        if kind not in TYPES:
            raise Wrong("unknown type")
        getattr(self, f"on_{kind}")(frame)

    def on_message(self, frame: Frame) -> None:
        content, parts = frame.get("content"), frame.get("parts")
        if not isinstance(content, str | None) or not (content or parts):
            raise Wrong("no content")
        session = frame.get("session_id")
        if not session:
            session = self.session_of_connection()
        elif session != self.session and session not in self.facade.sessions:
            session = self.in_place_of(session)
        if len(self.waiting) >= WAITING:
            self.error("RATE_LIMITED", "too many", session)
            return
        self.waiting.append((frame, session))
        self.go_on()

    def session_of_connection(self) -> str:
        self.announce()
        return self.session

    def in_place_of(self, unknown: str) -> str:
        self.session = self.facade.new_id()
        self.announce()
        return self.session

    def go_on(self) -> None:
        if not self.is_busy and self.waiting:
            self.is_busy = True
            frame, session = self.waiting.popleft()
            self.facade.sessions.add(session)
            parts = frame.get("parts") or [{}]
            self.answer(frame.get("content") or parts[0].get("text") or "", session)

    # ---- the agent

    def answer(self, said: str, session: str) -> None:
        if said == "slow":
            self.facade.after(1.5, lambda: self.finish("at last", session))
        elif said == "fail":
            self.error("PROVIDER_ERROR", "no", session)
            self.freed()
        elif said == "tool":
            self.use_tool(session)
            self.finish("used", session)
        elif said == "client":
            self.open_call = ("call-1", session)
            self.send("tool_call", session, tool_call={"id": "call-1", "name": "position", "arguments": {}})
        else:
            self.finish(f"You said {said}", session)

    def use_tool(self, session: str) -> None:
        self.send("tool_call", session, tool_call={"id": "t-1", "name": "find", "arguments": {"n": 1}})
        self.send("tool_result", session, tool_result={"id": "t-1", "result": [1]})

    def finish(self, text: str, session: str) -> None:
        half = len(text) // 2
        for piece in (text[:half], text[half:]):
            self.send("chunk", session, content=piece)
        self.done(text, session)
        self.freed()

    def done(self, text: str, session: str) -> None:
        self.send("done", session, content=text)

    def freed(self) -> None:
        self.is_busy = False
        self.go_on()

    # ---- tools of the client

    def on_tool_call_ack(self, frame: Frame) -> None:
        pass

    def on_tool_result(self, frame: Frame) -> None:
        if self.open_call is None or frame["tool_result"]["call_id"] != self.open_call[0]:
            raise Wrong("no pending tool call")
        (_, session), self.open_call = self.open_call, None
        self.finish("thanks", session)

    def on_tool_call_nack(self, frame: Frame) -> None:
        if self.open_call is not None:
            (_, session), self.open_call = self.open_call, None
            self.finish("then not", session)

    # ---- uploads

    def on_upload_request(self, frame: Frame) -> None:
        order = frame.get("upload_request") or {}
        if not order.get("size_bytes"):
            raise Wrong("size_bytes must be positive")
        id = self.facade.new_id()
        self.facade.uploads[id] = self
        ticket = {"upload_id": id, "upload_url": f"http://kit.example:80/media/upload/{id}"}
        self.send("upload_ready", self.session, upload_ready={**ticket, "storage_ref": f"omnia://{id}"})

    def uploaded(self, id: str, size: int) -> None:
        stored = {"upload_id": id, "storage_ref": f"omnia://{id}", "size_bytes": size}
        self.send("upload_complete", self.session, upload_complete=stored)

    # ---- calls

    def binary(self, data: bytes) -> None:
        if len(data) < HEADER.size or data[:5] != b"OMNI\x01":
            self.error("INVALID_MESSAGE", "no binary frame")
            return
        _, _, _, _, meta, _, number, _ = HEADER.unpack_from(data)
        info = json.loads(data[HEADER.size : HEADER.size + meta])
        if not info["mime_type"].startswith("audio/"):
            self.on_film()
            return
        if self.call is None:
            self.call = self.session
            self.configure()
        self.on_sound(number, data[HEADER.size + meta :])

    def on_film(self) -> None:
        self.error("UNSATISFIABLE_FORMAT", "no film", self.session)

    def configure(self) -> None:
        config = {"codec": "pcm", "sample_rate": 16_000, "channels": 1}
        self.send("session_config", self.session, session_config=config)

    def on_sound(self, number: int, sound: bytes) -> None:
        meta = b'{"mime_type":"audio/pcm"}'
        head = HEADER.pack(b"OMNI", 1, 0, 1, len(meta), len(sound), number, b"")
        self.put(SendFrame(BINARY, head + meta + sound))

    def on_hangup(self, frame: Frame) -> None:
        self.has_hung_up = True

    def lost(self) -> None:
        if self in self.facade.open:
            self.facade.open.remove(self)
        if self.call is not None and not self.has_hung_up:
            self.park(self.call)

    def park(self, session: str) -> None:
        self.facade.parked[session] = trio.current_time()


class FacadeCodec(WebSocketCodec):
    """Frames, with the limit that is announced."""

    def on_message(self, opcode: int, data: bytes) -> None:
        if len(data) > MAX_PAYLOAD:
            self.on_violation(1009, "too large")
        else:
            super().on_message(opcode, data)


class FacadeServer(WebServer):
    """A facade on a network."""

    connection_class: type[FacadeConnection] = FacadeConnection
    wire_class = FacadeCodec

    def __init__(self) -> None:
        self.facade = Facade()
        super().__init__(self.facade)

    def refused(self, head: RequestHead) -> Reply | None:
        agent = query_of(head).get("agent")
        if not agent:
            return self.on_no_agent()
        if agent != "demo":
            return self.on_unknown_agent()
        if head.header("origin") not in (None, "http://kit.example:80"):
            return self.on_origin()
        return None

    def on_no_agent(self) -> Reply | None:
        return refusal(400, "agent parameter is required")

    def on_unknown_agent(self) -> Reply | None:
        return refusal(404, "no such agent")

    def on_origin(self) -> Reply | None:
        return refusal(403, "not from here")

    def subprotocol(self, head: RequestHead) -> str:
        return ""

    def open(self, head: RequestHead) -> WebSocketCodec:
        return self.wire_class(self.connection_class(self.facade, query_of(head)))

    def on_http(self, head: RequestHead, body: bytes) -> Reply:
        connection = self.facade.uploads.get(head.path.rpartition("/")[2])
        if connection is None:
            return refusal(404, "no such upload")
        if len(body) != 8:
            return self.on_wrong_size()
        connection.uploaded(head.path.rpartition("/")[2], len(body))
        return Reply(204, b"", ())

    def on_wrong_size(self) -> Reply:
        return refusal(400, "not as long as announced")


def query_of(head: RequestHead) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(head.target).query))


def closed(connection: FacadeConnection, code: int) -> None:
    """Close a connection from the facade's side."""
    connection.put(SendClose(code))
