"""One connection of an Omnia client: messages become turns of a chat agent, and items become frames.

One task handles the messages, one after another. A turn is a stream of the agent's action `converse`, as any
client may carry out tools. An item of a near agent becomes a frame in the same step in which the agent
outputs it (`pour`), and is sent in that step if the connection is quiet. Leaving the connection leaves the
stream, which cancels the turn at its await; a call by sound continues for a while (`_calls.py`). A client
that reads slowly slows its agent down: at most `waiting_bytes` wait for the client.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import trio
from msgspec import UNSET

from lmos_actors.actors import Invocation, Outlet, pour
from lmos_actors.bindings import Arrival, principal_of
from lmos_actors.errors import (
    ActionFailed,
    AgentError,
    Forbidden,
    RateLimited,
    Unauthorized,
)
from lmos_actors.protocol import omnia
from lmos_actors.protocol.omnia import (
    CallAccepted,
    CallAnswered,
    MediaReceived,
    MessageReceived,
    ServerConnection,
    UploadWanted,
)

from ..chat import (
    ChatPart,
    ClientAnswer,
    MediaPiece,
    TextChunk,
    ToolCalled,
    ToolReturned,
    TurnBegan,
    TurnDone,
)
from ._faults import fault_of
from ._spans import WAY, turn_attributes
from ._uploads import UploadRefused

if TYPE_CHECKING:
    from lmos_actors.bindings import Exposed
    from lmos_actors.protocol.omnia import (
        MediaFrame,
        ServerEvent,
        ServerMessage,
        ServerOptions,
        ServerTurn,
        StoredUpload,
    )
    from lmos_actors.security import Admission, Verb
    from lmos_actors.transport import Connection

    from ..chat import ChatAgent
    from ._calls import Call, Calls
    from ._context import OmniaContext, SessionKey

STEP: Final = 32 << 10
"""Step, in bytes, in which waiting data is charged to the client's account."""

UNAUTHORIZED: Final = 3000
TOO_SLOW: Final = 1013
SHUTDOWN: Final = (1001, "server shutdown")


class OmniaConnection:
    """The handler of one connection; see the module docstring."""

    def __init__(
        self,
        context: OmniaContext,
        calls: Calls,
        connection: Connection,
        found: Exposed,
        admission: Admission | None,
        options: ServerOptions,
    ) -> None:
        entropy = context.rt.entropy
        self.watches = False
        """Whether it sees all frames of its session, including turns that others have asked for."""
        self._context = context
        self._room = context.options.waiting_bytes
        self._flood = context.options.flooded_bytes
        self._connection = connection
        self._calls = calls
        self._link = found.link
        self._name = self.agent = found.name
        """The public name of the agent."""
        self._cls = cast("type[ChatAgent]", found.cls)
        self._admission = admission
        self.principal = principal_of(admission)
        """The principal of the client; None for callers without credentials."""
        self.wire = ServerConnection(
            options, new_id=entropy.new_id, now=entropy.now, wake=connection.flush, copy=self._copy
        )
        self._in, self._messages = trio.open_memory_channel[MessageReceived](omnia.MAX_WAITING + 2)
        self._answers: trio.MemorySendChannel[ClientAnswer] | None = None
        self._drained = trio.Event()
        self._is_full = False  # somebody waits for room
        self._outlet: Outlet | None = None  # of the turn that goes on
        self._charged = 0
        self._watched: SessionKey | None = None
        self._asked: set[str] = set()  # calls of this turn that the client carries out
        self._call: Call | None = None  # the conversation by sound, if there is one
        self._is_after_call = False  # it is over: only a first frame begins another
        self._has_ended = False

    @property
    def turns(self) -> int:
        """The number of turns in progress and waiting."""
        return self.wire.turns

    async def run(self, resumed: str | None) -> None:
        """Serve the connection until it has ended. `resumed` is the session that the client names, if any."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._take_turns)
                self._begin(resumed)
                self._watch(self.wire.session_id)
                await self._connection.run(self)
                nursery.cancel_scope.cancel()
        finally:
            self._watch(None)
            self._has_ended = True
            self._make_room()
            if self._call is not None:
                self._call.detach(self)

    def _begin(self, resumed: str | None) -> None:
        """Announce the session of the connection. `resumed` is the session that the client names."""
        if resumed is None:
            self.wire.begin()
            return
        self._call = self._calls.resumed(self, self._link, self.principal, resumed)
        self.wire.adopt(resumed, resumed=self._call is not None)

    # ---- frames; see `Handler`

    def text(self, text: str) -> None:
        """Handle a text frame from the client."""
        self._handle(self.wire.receive(text, trio.current_time()))

    def binary(self, data: bytes) -> None:
        """Handle a binary frame from the client."""
        self._handle(self.wire.receive_binary(data, trio.current_time()))

    def frames(self, room: int) -> list[bytes]:
        """Return the frames that are to be sent."""
        found = self.wire.frames(room)
        if self._charged:
            self.charge()
        if self._is_full and self.wire.waiting_bytes < self._room:
            self._make_room()
        return found

    def is_behind(self) -> bool:
        """Return whether too much data waits for the client, so that its frames are not read for now."""
        return self.wire.waiting_bytes >= self._flood

    def charge(self) -> None:
        """Account for the bytes that wait to be sent."""
        charged = self.wire.waiting_bytes // STEP * STEP
        more, self._charged = charged - self._charged, charged
        self._connection.account.charge(more)

    def _handle(self, event: ServerEvent | None) -> None:
        if isinstance(event, MessageReceived):
            self._take_message(event)
        elif isinstance(event, CallAccepted):
            self._answer(ClientAnswer(event.call_id, "accepted"))
        elif isinstance(event, CallAnswered):
            self._answer(_client_answer(event))
        elif isinstance(event, UploadWanted):
            self._announce(event)
        elif isinstance(event, MediaReceived):
            self._hear(event.frame)
        elif event is not None and self._call is not None:
            self._call.hang_up()
        self.charge()

    def _announce(self, event: UploadWanted) -> None:
        """Answer a request for an upload with its address, or with an error."""
        uploads, session = self._context.uploads, event.session_id
        fault = self._not_allowed()
        if uploads is None:
            fault = omnia.MEDIA_NOT_ENABLED, "media storage is not enabled"
        if fault is None and uploads is not None:
            try:
                order = event.request.upload_request
                stored = partial(self._confirm, session)
                owner = self.principal or ""
                ticket = uploads.announce(
                    self._link.path, owner, session, order, self._context.url, stored,
                    is_first=self.wire.is_unused(session),
                )  # fmt: skip
                self.wire.offer_upload(ticket, session)
                return
            except UploadRefused as error:
                fault = omnia.UPLOAD_FAILED, str(error)
        if fault is not None:
            self.wire.refuse(*fault, session)

    def _confirm(self, session: str, stored: StoredUpload) -> None:
        self.wire.confirm_upload(stored, session)
        self.charge()

    def _reference_fault(self, event: MessageReceived) -> str | None:
        """Return the error in the file references of a message, None if all files exist."""
        for number, reference in enumerate(_references(event)):
            if reference is None:
                continue
            uploads, owner = self._context.uploads, self.principal or ""
            if uploads is None or not uploads.referred(self._link.path, owner, event.session_id, reference):
                return f"there is no such file in this session - at `$.parts[{number}].media.storage_ref`"
        return None

    def _take_message(self, event: MessageReceived) -> None:
        fault = self._not_allowed()
        wrong = None if fault is not None else self._reference_fault(event)
        if wrong is not None:
            fault = omnia.INVALID_MESSAGE, wrong
        if fault is not None:
            event.turn.fail(*fault)
        elif self._context.draining:
            event.turn.fail(omnia.INTERNAL_ERROR, "the node is shutting down")
        else:
            self._in.send_nowait(event)

    def _not_allowed(self) -> tuple[str, str] | None:
        """Return the fault if the credentials do not admit a turn now; if they have expired, close, too."""
        if self._admission is None:
            return None
        try:
            self._admission.check(self._name, "invoke", trio.current_time())
        except RateLimited as error:
            return omnia.RATE_LIMITED, str(error)
        except (Unauthorized, Forbidden):
            self._connection.close(UNAUTHORIZED, "the credentials are no longer good")
            return omnia.INTERNAL_ERROR, "the credentials are no longer good"
        return None

    def _allows(self, agent: str, verb: Verb) -> bool:
        """Return whether the client has a right over an agent now; see `Request.allows`."""
        admission = self._admission
        return (
            admission is not None and admission.valid(trio.current_time()) and admission.allows(agent, verb)
        )

    def _answer(self, answer: ClientAnswer) -> None:
        if self._answers is not None:
            with suppress(trio.WouldBlock, trio.BrokenResourceError):
                self._answers.send_nowait(answer)

    # ---- sound

    def _hear(self, frame: MediaFrame) -> None:
        """Handle a sound frame; the first frame begins a call."""
        session = self.wire.session_id
        if self._call is None:
            if self._is_after_call and frame.sequence:
                return  # it was on its way when the call ended
            fault = self._not_allowed()
            if not self._cls.has_voice():
                fault = omnia.MEDIA_NOT_ENABLED, "nobody can speak with this agent"
            elif self._context.draining:
                fault = omnia.INTERNAL_ERROR, "the node is shutting down"
            begun = fault or self._calls.begin(
                self, self._link, self._cls.sound_format, self.principal, frame
            )
            if isinstance(begun, tuple):
                self.wire.refuse(*begun, session)
                return
            self._call = begun
        fault = self._call.take(frame)
        if fault is not None:
            self.wire.refuse(*fault, None)

    def call_ended(self) -> None:
        """Note that the call is over."""
        self._call, self._is_after_call = None, True

    def call_taken(self) -> None:
        """Note that another connection has taken over the call; frames that still arrive here are dropped."""
        self._call, self._is_after_call = None, True

    # ---- turns

    async def _take_turns(self) -> None:
        async for event in self._messages:
            try:
                await self._turn(event, event.session_id, is_new=event.is_new)
            except Exception as error:  # a bug of ours: reported, and the connection goes on
                self._context.on_failure(error)
                if not event.turn.has_ended:
                    event.turn.fail(omnia.INTERNAL_ERROR, "internal server error")
            self.check_end()

    async def _turn(self, event: MessageReceived, session_id: str, *, is_new: bool) -> None:
        """Carry out a turn, which ends with exactly one `done` or `error`."""
        turn = event.turn
        try:
            await self._stream(event, session_id, is_new=is_new)
            if not turn.has_ended:
                turn.done()
        except AgentError as error:
            is_gone = isinstance(error, ActionFailed) and error.code == omnia.SESSION_EXPIRED
            if is_gone and not is_new and self._begins_with_file(event):
                await self._turn(event, session_id, is_new=True)
            elif is_gone and not is_new and not self._context.options.strict_sessions:
                # the client learns from the turn that it goes on in another session
                self.wire.adopt(self._context.rt.entropy.new_id())
                turn.session_id = self.wire.session_id
                await self._turn(event, self.wire.session_id, is_new=True)
            else:
                turn.fail(*fault_of(error))

    def _begins_with_file(self, event: MessageReceived) -> bool:
        """Return whether an unknown session may begin under the id that was sent, because it has a file."""
        uploads = self._context.uploads
        if uploads is None:
            return False
        if uploads.begins(self._link.path, self.principal or "", event.session_id):
            return True
        return not self._context.options.strict_sessions and any(_references(event))

    async def _stream(self, event: MessageReceived, session_id: str, *, is_new: bool) -> None:
        message, turn = event.message, event.turn
        metadata = dict(message.metadata or {})
        trace = _text(metadata.pop("traceparent", None)), _text(metadata.pop("tracestate", None))
        arrival = Arrival(WAY, *trace, turn_attributes(self._name, session_id))
        parts = None
        if message.parts is not None:
            parts = msgspec.convert(msgspec.to_builtins(message.parts), list[ChatPart])
        self._answers, answers = trio.open_memory_channel[ClientAnswer](64)
        args = answers, message.content or "", session_id, parts, metadata, is_new
        self._watch(session_id)
        asked = Invocation(
            "converse",
            args,
            {},
            stream=True,
            principal=self.principal,
            allows=self._allows,
            posting=arrival.note,
        )
        try:
            with arrival:
                async with self._link.open(asked) as items:
                    self._outlet = Outlet(partial(self._send, turn))
                    await pour(items, self._outlet)
        finally:
            self._answers = self._outlet = None
            self._asked.clear()

    def _send(self, turn: ServerTurn, item: Any) -> bool:
        if self.wire.waiting_bytes >= self._room and not self.has_room():
            return False
        if isinstance(item, TextChunk):
            turn.chunk(item.text, parts=_parts(item.parts))
        elif isinstance(item, MediaPiece):
            turn.media(item.media_id, item.data, item.mime_type, is_last=item.is_last)
        elif isinstance(item, ToolCalled):
            call = omnia.Call(
                id=item.id,
                name=item.name,
                arguments=item.arguments,
                consent_message=item.consent_message,
                categories=item.categories or None,
            )
            if item.by_client:
                self._asked.add(item.id)
                turn.ask(call)
            elif self._context.options.shows_tools:
                turn.show_call(call)
        elif isinstance(item, ToolReturned):
            if item.id in self._asked:
                turn.give_up(item.id)
            elif self._context.options.shows_tools:
                result = UNSET if item.error is not None else item.result
                turn.show_result(omnia.Outcome(id=item.id, result=result, error=item.error))
        elif isinstance(item, TurnDone):
            turn.done(item.text, parts=_parts(item.parts))
        elif isinstance(item, TurnBegan):
            turn.session_id = item.session
        if self._charged or self.wire.waiting_bytes >= STEP:
            self.charge()
        return True

    def has_room(self) -> bool:
        """Return whether the client has taken most of the sent data, or has left."""
        self._is_full = self.wire.waiting_bytes >= self._room and not self._has_ended
        return not self._is_full

    async def room(self) -> None:
        """Wait until `has_room`."""
        while not self.has_room():
            self._drained = trio.Event() if self._drained.is_set() else self._drained
            await self._drained.wait()

    def _make_room(self) -> None:
        self._is_full = False
        self._drained.set()
        if self._outlet is not None:
            self._outlet.go_on()

    # ---- watching, and the end

    def _watch(self, session_id: str | None) -> None:
        """Watch the frames of a session, if this connection watches; None ends the watching."""
        watchers = self._context.watchers
        if self._watched is not None:
            of_session = watchers[self._watched]
            del of_session[self]
            if not of_session:
                del watchers[self._watched]
        self._watched = None if session_id is None or not self.watches else self._key(session_id)
        if self._watched is not None:
            watchers.setdefault(self._watched, {})[self] = None

    def _key(self, session_id: str) -> SessionKey:
        return self._link.path, self.principal or "", session_id

    def _copy(self, message: ServerMessage, session_id: str) -> None:
        """Send a frame of a turn to the other connections that watch its session."""
        watchers = self._context.watchers
        if watchers:
            for other in watchers.get(self._key(session_id), ()):
                if other is not self:
                    other.show(message, session_id)

    def show(self, message: ServerMessage, session_id: str) -> None:
        """Send a frame of a turn that another connection requested; disconnect a client that is too slow."""
        if self.wire.waiting_bytes < self._flood:
            self.wire.send(message, session_id)
            self.charge()
        else:
            self._connection.close(TOO_SLOW, "too slow: too much waits to be sent")

    def check_end(self) -> None:
        """Close the connection if the node drains and nothing is open on it."""
        if self._context.draining and not self.wire.turns and self._call is None:
            self._connection.close(*SHUTDOWN)


def _references(event: MessageReceived) -> list[str | None]:
    """Return the file reference of each part of a message, None for a part without one."""
    parts = event.message.parts or ()
    return [None if part.media is None else part.media.storage_ref for part in parts]


def _client_answer(event: CallAnswered) -> ClientAnswer:
    if event.refused:
        return ClientAnswer(event.call_id, "refused", error=event.error or "")
    if event.error is not None:
        return ClientAnswer(event.call_id, "error", error=event.error)
    return ClientAnswer(event.call_id, "result", None if event.result is UNSET else event.result)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _parts(parts: list[ChatPart]) -> list[omnia.Part] | None:
    if not parts:
        return None
    return msgspec.convert(msgspec.to_builtins(parts), list[omnia.Part])
