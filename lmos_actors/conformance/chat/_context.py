"""The context of a case for a facade: conversations with its agent, parsed as tolerantly as possible.

A case judges only its own subject. So a conversation accepts what facades of any version are known to send:
it takes the session from any frame, it does not wait for an announcement if the facade never sends one, and
it repeats a message that was refused because of a rate limit.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import attrs
import msgspec
import trio

from lmos_actors.conformance.session import JudgedServer, NoAnswer, Probe
from lmos_actors.conformance.wire import BINARY, TEXT, read_json
from lmos_actors.files import load

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from random import Random

    from lmos_actors.conformance.wire import Headers, Socket

ANSWER: Final = 30.0
"""Least seconds that an agent has for its answer, which may take longer than one of a protocol."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 3.2

Frame: TypeAlias = dict[str, Any]


class ChatHints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages to the agent with which cases can be tried.

    `say`: a message that the agent answers. `slow`: one whose answer takes a second or more. `fails`: one
    that ends in an error. `tool`: one for which the agent uses its own tool; `client_tool`: one for which it
    uses a tool of the client.
    """

    say: str = "Hello."
    slow: str | None = None
    fails: str | None = None
    tool: str | None = None
    client_tool: str | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ChatHints:
        """Read a YAML, TOML or JSON file of hints. Blocks on the disk. Raises FileError with all mistakes."""
        return load(path, cls).value


@attrs.define(kw_only=True)
class Facade(JudgedServer["ChatContext"]):
    """The facade of an agent. `announces`: whether it announces a session before it gets any message."""

    url: str
    hints: ChatHints
    announces: bool = True

    @property
    def spoken(self) -> str:
        """The name of the protocol that the kit uses with the facade."""
        return "Omnia's chat protocol"

    def context(self, random: Random) -> ChatContext:
        """Return a new context of a case, without any open connection."""
        return ChatContext(self, random)

    async def connect(self, context: ChatContext) -> Talk:
        """Open a connection in a context. Raises Unreachable and Refused."""
        return await context.talk(announced=False)

    def places(self) -> Sequence[str]:
        """Return the URLs to which the kit has sent credentials."""
        return (self.url,)


def facade_url(url: str) -> str:
    """Return the WebSocket URL of a facade for a user's URL, which may be that of an agent of lmos_actors."""
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    before, mark, name = parts.path.rstrip("/").rpartition("/agents/")
    path = parts.path
    if mark and "/" not in name and not before.endswith("/api"):
        path = f"{before}/api/agents/{name}/ws"
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def with_query(url: str, **members: str | None) -> str:
    """Return a URL with members of its query set, or removed where they are None."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name, value in members.items():
        query.pop(name, None)
        if value is not None:
            query[name] = value
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(query), ""))


@attrs.define
class Turn:
    """The frames of one answer; `end` is the last of them, a `done` or an `error`."""

    frames: list[Frame]
    end: Frame

    @property
    def code(self) -> str:
        """The code of the error at the end of the answer; "" for a `done`."""
        return code_of(self.end)

    @property
    def text(self) -> str:
        """The text of the answer's chunks."""
        chunks = [frame for frame in self.frames if frame.get("type") == "chunk" and not frame.get("role")]
        return "".join(text for frame in chunks if isinstance(text := frame.get("content"), str))


def inside(frame: Frame | None, *names: str) -> Frame:
    """Return the object at a path of names inside a frame, or an empty object if there is none."""
    found: Any = frame
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def code_of(frame: Frame) -> str:
    """Return the code of an error frame, or "" for any other frame."""
    code = inside(frame, "error").get("code")
    return code if isinstance(code, str) else ""


class Talk:
    """One connection, on which a client sends messages and a facade answers them."""

    def __init__(self, context: ChatContext, socket: Socket) -> None:
        self.socket = socket
        self.session: str | None = None
        """The session of the newest frame that names one."""
        self.announcement: Frame | None = None
        self.frames: list[Frame] = []
        """The text frames that came."""
        self._context = context
        self._patience = context.patience

    async def send(self, frame: Frame | str) -> None:
        """Send an object as JSON, or a text unchanged. Raises ConnectionGone."""
        await self.socket.send_text(frame if isinstance(frame, str) else json.dumps(frame))

    async def say(self, text: str | None = None, **members: Any) -> None:
        """Send a message with the given text, or with the text of the hint `say`. Raises ConnectionGone."""
        content = self._context.shared.hints.say if text is None else text
        await self.send({"type": "message", "content": content, **members})

    async def next(self, within: float | None = None) -> Frame | bytes | None:
        """Wait for the next frame; return None if none arrives in time. Raises ConnectionGone, Failed."""
        found = await self.socket.next_message(self._patience if within is None else within)
        if found is None or isinstance(found, bytes):
            return found
        try:
            came = read_json(found)
        except ValueError as error:
            self._context.fail(f"a frame is no JSON: {error}")
        if not isinstance(came, dict) or not isinstance(came.get("type"), str):  # pyright: ignore[reportUnknownMemberType]
            self._context.fail(f"a frame is no object with a type: {found[:100]}")
        frame = cast("Frame", came)
        session = frame.get("session_id")
        if isinstance(session, str) and session:
            self.session = session
        self.frames.append(frame)
        return frame

    async def of_type(self, *types: str, within: float | None = None) -> Frame:
        """Wait for a frame of one of the given types, and skip others. Raises NoAnswer, ConnectionGone."""
        within = self._patience if within is None else within
        deadline = trio.current_time() + within
        while True:
            frame = await self.next(max(0.0, deadline - trio.current_time()))
            if frame is None:
                raise NoAnswer(f"no {' or '.join(types)} came within {within:g} s")
            if isinstance(frame, dict) and frame["type"] in types:
                return frame

    async def turn(self) -> Turn:
        """Wait for the end of an answer, and return its frames. Raises NoAnswer, ConnectionGone."""
        began = len(self.frames)
        end = await self.of_type("done", "error", within=max(ANSWER, self._patience))
        return Turn([each for each in self.frames[began:] if each["type"] != "connected"], end)

    async def ask(self, text: str | None = None, **members: Any) -> Turn:
        """Send a message and wait for the whole answer; repeat it if it is refused by a rate limit."""
        pause = FIRST_PAUSE
        while True:
            await self.say(text, **members)
            turn = await self.turn()
            if turn.code != "RATE_LIMITED" or pause > LONGEST_PAUSE:
                return turn
            await trio.sleep(pause)
            pause *= 2

    async def answered(self, text: str | None = None, **members: Any) -> Turn:
        """Send a message like `ask`, and fail unless the answer ends with `done`."""
        turn = await self.ask(text, **members)
        if turn.end["type"] != "done":
            self._context.fail(f"{text or self._context.shared.hints.say!r} is answered by {shown(turn.end)}")
        return turn

    async def refusal(self) -> Frame:
        """Wait for an error; return it or the frame sent in its place. Raises NoAnswer, ConnectionGone."""
        return await self.of_type("error", "done", "chunk")

    async def must_go_on(self, after: str) -> None:
        """Fail unless a message is answered on this connection."""
        try:
            await self.answered()
        except NoAnswer as why:
            self._context.fail(f"after {after}: {why}")

    async def sound(self, data: bytes) -> None:
        """Send a binary frame. Raises ConnectionGone."""
        await self.socket.send_frame(BINARY, data)

    async def parts(self, *parts: bytes) -> None:
        """Send a text message in several frames. Raises ConnectionGone."""
        for number, part in enumerate(parts):
            await self.socket.send_frame(TEXT if number == 0 else 0, part, fin=number == len(parts) - 1)


def shown(frame: Frame | bytes | None) -> str:
    """Return a frame as text, for reports of what was seen."""
    if frame is None:
        return "nothing"
    return f"{len(frame)} bytes" if isinstance(frame, bytes) else json.dumps(frame, ensure_ascii=False)[:300]


class ChatContext(Probe):
    """The context of one case, which opens conversations, closes them at its end, and records findings."""

    def __init__(self, shared: Facade, random: Random) -> None:
        super().__init__(shared.options.access(shared.network), random)
        self.shared = shared
        self.url = shared.url

    async def talk(self, *, announced: bool = True, headers: Headers = (), **query: str | None) -> Talk:
        """Open a connection, and receive its announcement if the facade sends one.

        Raises Unreachable, and Refused for any answer but 101.
        """
        talk = Talk(self, await self.open(with_query(self.url, **query), headers=headers))
        if announced and self.shared.announces:
            frame = await talk.next()
            if isinstance(frame, dict) and frame["type"] == "connected":
                talk.announcement = frame
            elif frame is not None:
                self.fail(f"the first frame of a connection is {shown(frame)}")
        return talk

    def hint(self, name: str) -> str:
        """Return the message of a hint. Raises NotRun if the hint is not given."""
        text: str | None = getattr(self.shared.hints, name)
        if text is None:
            self.not_run(f"nothing is known to say for it: name it under {name}, --hints")
        return text

    def capabilities(self, talk: Talk) -> Frame:
        """Return the announced capabilities, or an empty object if there are none."""
        return inside(talk.announcement, "connected", "capabilities")
