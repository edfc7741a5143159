"""A conversation with an agent behind an Omnia facade, on a node of this package or on another server.

One connection carries the turns of one conversation, one after another. If it breaks between two turns, the
next turn connects again and continues the same session. If it breaks during a turn, that turn is repeated
only if its message had not been sent. Otherwise its outcome is unknown, and the caller gets `OutcomeUnknown`.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlsplit, urlunsplit

import attrs
import msgspec
import trio

from lmos_actors._core import for_async_with
from lmos_actors.errors import ConnectFailed, DeadlineExceeded, OutcomeUnknown, ToolFailed
from lmos_actors.protocol import omnia
from lmos_actors.transport import ConnectionOptions, connect, default_network

from ..chat import (
    ChatMedia,
    ChatPart,
    ClientAnswer,
    MediaPiece,
    SoundFormat,
    TextChunk,
    Tool,
    ToolCalled,
    TurnDone,
    shown_reason,
    tool_of,
)
from ._line import ChatEvent, Line, event_of, failure_of, parts_of
from ._outgoing_call import OutgoingCall
from ._put import put_file
from ._spans import agent_at, turn_going_out

if TYPE_CHECKING:
    import ssl
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Mapping,
        Sequence,
    )

    from lmos_actors.protocol.omnia import ServerSaid
    from lmos_actors.security import Credentials
    from lmos_actors.transport import Network

    from ..chat import PartType

    Headers = tuple[tuple[bytes, bytes], ...]
    HandOn = Callable[[ToolCalled, Callable[[], object]], Awaitable[ClientAnswer]]

SILENCE: Final = 120.0
"""Seconds without a frame after which a turn is given up, as in Omnia's own runtime."""

FIRST_PAUSE: Final = 0.05
"""Seconds before a message is sent again that the server refused as one too many; they double each time."""

ATTEMPTS: Final = 8
"""Maximum attempts to have a message accepted."""

MAX_MESSAGE: Final = 16 << 20

_AGENT_PATH: Final = re.compile(r"(.*)/agents/([^/]+)/?")


async def _always(_: ToolCalled) -> bool:
    """Consent to every call."""
    await trio.lowlevel.checkpoint()
    return True


def chat_url(url: str, *, binary: bool = False, resume: str | None = None) -> str:
    """Return the WebSocket address of the facade for a URL from a user, which may be an agent's URL.

    `http://HOST/agents/NAME` becomes `ws://HOST/api/agents/NAME/ws`; other paths are not changed.
    """
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    named = None if "/api/agents/" in parts.path else _AGENT_PATH.fullmatch(parts.path)
    path = parts.path if named is None else f"{named[1]}/api/agents/{named[2]}/ws"
    more = ["binary=true"] if binary else []
    resumed = [] if resume is None else [f"resume={quote(resume, safe='')}"]
    query = "&".join([*filter(None, [parts.query]), *more, *resumed])
    return urlunsplit((scheme, parts.netloc, path, query, ""))


@attrs.frozen
class ChatAnswer:
    """The whole answer to a message."""

    text: str
    parts: tuple[ChatPart, ...] = ()


class Chat:
    """A conversation with an agent; made by `open_chat`. Its turns run one after another."""

    def __init__(
        self,
        url: str,
        nursery: trio.Nursery,
        *,
        network: Network,
        tls: ssl.SSLContext | None,
        credentials: Credentials | None,
        headers: Mapping[str, str],
        session: str | None,
        tools: Sequence[Tool],
        consent: Callable[[ToolCalled], Awaitable[bool]],
        silence: float,
        binary: bool,
        on_frame: Callable[[str], object],
    ) -> None:
        self.url = url
        self.session = session
        """The id of the conversation; None until the agent has named one."""
        self._target = chat_url(url, binary=binary)
        self._agent = agent_at(self._target)
        self._nursery = nursery
        self._network = network
        self._tls = tls
        self._credentials = credentials
        self._headers = tuple((name.encode(), value.encode()) for name, value in headers.items())
        self.hand_on: HandOn | None = None
        """Answers calls of tools that are not here; set by `RemoteChat`."""
        self._tools = {tool.name: tool for tool in tools}
        self._consent = consent
        self._silence = silence
        self._on_frame = on_frame
        self._line: Line | None = None
        self._turn = trio.Lock()

    async def say(
        self, text: str = "", *, parts: Sequence[ChatPart] = (), metadata: Mapping[str, str] | None = None
    ) -> ChatAnswer:
        """Send a message and return the whole answer. Raises what `stream` does."""
        async with self.stream(text, parts=parts, metadata=metadata) as items:
            async for item in items:
                if isinstance(item, TurnDone):
                    return ChatAnswer(item.text, tuple(item.parts))
        raise OutcomeUnknown(self.url, "the turn has no end")  # not reached: the last item is a TurnDone

    async def connect(self) -> None:
        """Connect now, instead of with the first message. Raise ConnectFailed."""
        async with self._turn:
            await self._connected()

    @asynccontextmanager
    async def stream(
        self, text: str = "", *, parts: Sequence[ChatPart] = (), metadata: Mapping[str, str] | None = None
    ) -> AsyncGenerator[AsyncIterator[ChatEvent]]:
        """Send a message; the items are the answer, piece by piece, and the last item is a TurnDone.

        Leaving the block early closes the connection, which cancels the turn; the conversation continues with
        the next message. Raises ConnectFailed; ActionFailed with the `code` and `message` of an error of the
        server; DeadlineExceeded if the server is silent for too long; OutcomeUnknown if the connection, or
        the agent itself, ended during the turn. In the last case the agent may continue the turn later.
        """
        async with self._turn:
            with turn_going_out(self._agent, self.session) as trace:
                line = await self._begin(text, parts, {**trace, **(metadata or {})})
                items = self._items(line)
                try:
                    yield items
                finally:
                    await items.aclose()
                    if line.wire.stage != "none":
                        line.connection.close()
                        self._line = None

    async def _begin(self, text: str, parts: Sequence[ChatPart], metadata: Mapping[str, Any]) -> Line:
        """Send a message until the server accepts it; repeat it if it exceeded the server's rate limit."""
        sent = [msgspec.convert(msgspec.to_builtins(part), omnia.Part) for part in parts]
        pause = FIRST_PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            line = await self._connected()
            line.wire.send_message(text, parts=sent, metadata=metadata)
            if self.session is None:  # the oldest announces only new ones
                line.expect_greeting()
            first = await self._next(line)
            while isinstance(first, omnia.ServerSaid) and isinstance(first.message, omnia.OF_NO_TURN):
                first = await self._next(line)
            if first is None:
                if line.wire.stage == "unsent":
                    self._line = None
                    continue
                raise OutcomeUnknown(self.url, line.why or "the connection ended before the answer")
            if isinstance(first, MediaPiece) or first.ends != "refused":
                line.put_back(first)
                return line
            assert isinstance(first.message, omnia.ErrorFrame)
            failure = failure_of(first.message, self.url)
            if (
                isinstance(failure, OutcomeUnknown)
                or failure.code != omnia.RATE_LIMITED
                or attempt == ATTEMPTS
            ):
                raise failure
            await trio.sleep(pause)
            pause *= 2
        raise ConnectFailed(self.url, "the connection ends again and again before a message is sent")

    async def upload(self, data: bytes, mime_type: str, filename: str = "file") -> ChatPart:
        """Upload a file for the conversation; return the part by which a message refers to it.

        Raises what `stream` does, and ActionFailed if the server accepts no files, or refuses this one.
        """
        async with self._turn:
            line = await self._connected()
            line.wire.request_upload(filename, mime_type, len(data))
            while True:
                said = await self._next(line)
                if said is None:
                    raise OutcomeUnknown(self.url, line.why or "the connection ended before the answer")
                message = None if isinstance(said, MediaPiece) else said.message
                if isinstance(message, omnia.ErrorFrame):
                    raise failure_of(message, self.url)
                if isinstance(message, omnia.UploadReady):
                    break
            ticket = message.upload_ready
        await put_file(self._network, ticket.upload_url, data, mime_type, self._tls, self._headers_for)
        kind = mime_type.partition("/")[0]
        return ChatPart(
            cast("PartType", kind) if kind in ("image", "audio", "video") else "file",
            media=ChatMedia(
                mime_type, storage_ref=ticket.storage_ref, filename=filename, size_bytes=len(data)
            ),
        )

    @asynccontextmanager
    async def call(
        self, format: SoundFormat | None = None, *, resume_seconds: float = 15.0
    ) -> AsyncGenerator[OutgoingCall]:
        """Speak with the agent during a block, over a separate connection; leaving the block hangs up.

        `format` is a proposal, which the agent's format may replace. If the connection breaks, reconnection
        is tried for `resume_seconds`, and the call continues. Raises ConnectFailed; see `OutgoingCall`.
        """
        async with self._turn:
            call = OutgoingCall(
                self.url, self.session, format or SoundFormat(), resume_seconds, self._dialled
            )
            await call.connect()
            self._nursery.start_soon(call.run)
            try:
                yield call
            finally:
                self.session = call.session or self.session
                with trio.CancelScope(shield=True):
                    await call.close()

    async def _dialled(self, session: str | None) -> Line:
        """Connect for a call; with a session, the call continues in that session."""
        line = await self._line_to(chat_url(self.url, binary=True, resume=session), session)
        self._nursery.start_soon(line.run)
        return line

    def _headers_for(self, url: str) -> Headers:
        """Return the headers of a request; the user's headers go only to the conversation's server."""
        same = urlsplit(url).netloc == urlsplit(self._target).netloc
        headers = self._headers if same else ()
        if self._credentials is not None:
            headers = (*headers, *self._credentials.headers_for(url, trio.current_time()))
        return headers

    async def _next(self, line: Line) -> ServerSaid | MediaPiece | None:
        with trio.move_on_after(self._silence):
            said = await line.next()
            self.session = line.wire.session_id or self.session
            return said
        line.connection.close()
        self._line = None
        raise DeadlineExceeded(self.url, self._silence)

    async def _connected(self) -> Line:
        line = self._line
        if line is not None and line.why is None:
            return line
        line = self._line = await self._line_to(self._target, self.session)
        self._nursery.start_soon(line.run)
        if self._tools:  # calls of tools are answered only where one came unasked
            with trio.move_on_after(1.0):
                await line.announced.wait()
        return line

    async def _line_to(self, url: str, session: str | None) -> Line:
        connection = await connect(
            self._network,
            url,
            subprotocols=(),
            headers=self._headers_for(url),
            tls=self._tls,
            options=ConnectionOptions(max_message_bytes=MAX_MESSAGE),
        )
        return Line(url, connection, session, self._on_frame)

    async def _items(self, line: Line) -> AsyncGenerator[ChatEvent]:
        """Yield the items of a turn until its end."""
        while True:
            said = await self._next(line)
            if said is None:
                raise OutcomeUnknown(self.url, line.why or "the connection ended before the answer")
            if isinstance(said, MediaPiece):
                yield said
                continue
            if said.ends == "done" and isinstance(said.message, omnia.Done):
                yield TurnDone(said.message.content or "", parts_of(said.message.parts))
                return
            if isinstance(said.message, omnia.ErrorFrame) and said.ends is not None:
                raise failure_of(said.message, self.url)
            item = self._item(said, line)
            if item is not None:
                yield item

    def _item(self, said: ServerSaid, line: Line) -> ChatEvent | None:
        item = event_of(said)
        if said.asks and isinstance(item, ToolCalled):
            answer = self._carried_out if item.name in self._tools else self.hand_on
            if answer is None:
                line.wire.refuse_call(item.id, f"there is no tool {item.name!r} here")
            else:
                item = msgspec.structs.replace(item, by_client=True)
                self._nursery.start_soon(_answer, line, item, answer)
        return None if isinstance(item, TextChunk) and item.role == "user" else item

    async def _carried_out(self, call: ToolCalled, accept: Callable[[], object]) -> ClientAnswer:
        """Carry out a call of one of the client's tools, if the user consents."""
        accept()
        try:
            if not await self._consent(call):
                return ClientAnswer(call.id, "refused", error="the user does not consent")
            return ClientAnswer(call.id, "result", await self._tools[call.name].call(call.arguments))
        except ToolFailed as error:
            return ClientAnswer(call.id, "error", error=shown_reason(error))


async def _answer(line: Line, call: ToolCalled, answer: HandOn) -> None:
    """Send the answer to a call of a tool."""
    given = await answer(call, partial(line.wire.accept_call, call.id))
    if given.kind == "refused":
        line.wire.refuse_call(call.id, given.error)
    elif given.kind == "error":
        line.wire.answer_call(call.id, error=given.error)
    else:
        line.wire.answer_call(call.id, given.result)


@for_async_with
@asynccontextmanager
async def open_chat(
    url: str,
    *,
    session: str | None = None,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    consent: Callable[[ToolCalled], Awaitable[bool]] = _always,
    silence: float = SILENCE,
    binary: bool = False,
    network: Network | None = None,
    tls: ssl.SSLContext | None = None,
    credentials: Credentials | None = None,
    headers: Mapping[str, str] | None = None,
    on_frame: Callable[[str], object] = len,
) -> AsyncGenerator[Chat]:
    """Open a conversation with an agent that speaks Omnia's chat protocol, for a block.

    `url` is the URL of the facade, such as `ws://127.0.0.1:8080/?agent=support`, or the URL of an agent on a
    node of this package; the first message opens the connection. `session` is the id of a conversation to
    continue. `tools` are functions that the agent may call on this side; `consent` is called before each of
    these calls. A turn without a frame for `silence` seconds is given up. When connecting, `credentials` are
    presented as a node presents them, together with `headers`. `binary` requests media in binary frames,
    which are shorter. `on_frame` gets the text of every incoming frame.

    Raises ConfigError for a URL of another scheme. An exception of the body is raised unchanged; an exception
    of `consent` ends the block, in an ExceptionGroup.
    """
    failure: BaseException | None = None
    async with trio.open_nursery(strict_exception_groups=True) as nursery:
        chat = Chat(
            url,
            nursery,
            network=default_network() if network is None else network,
            tls=tls,
            credentials=credentials,
            headers=headers or {},
            session=session,
            tools=[tool if isinstance(tool, Tool) else tool_of(tool) for tool in tools],
            consent=consent,
            silence=silence,
            binary=binary,
            on_frame=on_frame,
        )
        try:
            yield chat
        except BaseException as error:  # noqa: ASYNC103 -- raised below, and not in a group of the nursery
            failure = error
        nursery.cancel_scope.cancel("the conversation is left")
    if failure is not None:
        raise failure
