"""Calls of Omnia clients: streams of an agent's action `call`, which outlive the connections of clients.

A call begins with the first binary frame of a connection and belongs to its session. If the connection ends
before the client has hung up, the call is *parked*: the agent goes on until it waits for the client, and a
client that comes back with `resume=SESSION` in time finds the call where it stopped. A client that comes back
before its old connection is known to have ended takes the call over: later frames of the old one are dropped.

A call ends when its agent returns: a `hangup` after the last `done` tells the client. A client ends its sound
by a last frame or a `hangup`, and the agent sees the end of the sound; once a client has hung up and left,
the agent has `resume_seconds` to finish.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import trio

from lmos_actors.actors import Invocation
from lmos_actors.bindings import Arrival
from lmos_actors.errors import ActionFailed, AgentError
from lmos_actors.protocol import omnia
from lmos_actors.protocol.omnia import AudioFormat, CallIn, Chunk, Done, ErrorFrame, Fault

from ..chat import (
    CallBegan,
    Interrupted,
    Sound,
    SoundFormat,
    TextChunk,
    ToolCalled,
    ToolReturned,
    TurnDone,
)
from ._faults import fault_of
from ._spans import WAY, turn_attributes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lmos_actors.actors import PoolLink, Slot
    from lmos_actors.protocol.omnia import MediaFrame, ServerConnection

    from ._context import OmniaContext, SessionKey


class CallSide(Protocol):
    """The connection that currently carries a call."""

    wire: ServerConnection

    def charge(self) -> None:
        """Account for the bytes that wait to be sent."""
        ...

    async def room(self) -> None:
        """Wait until the client has taken most of the sent data, or has left."""
        ...

    def call_ended(self) -> None:
        """Note that the call is over."""
        ...

    def call_taken(self) -> None:
        """Note that another connection has taken over the call."""
        ...

    def check_end(self) -> None:
        """Close the connection if the node drains and nothing is open on it."""
        ...


@attrs.define
class SoundStatistics:
    """Counts of sound frames; `dropped` frames had a wrong format, or the agent was too far behind."""

    taken: int = 0
    late: int = 0
    lost: int = 0
    dropped: int = 0


class _Heard:
    """The sound that waits for the agent, as an async iterator: the input stream of the agent's action.

    At most `most` bytes wait, usually 20 s of sound; later sound is dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._news = trio.Event()
        self.has_ended = False

    def put(self, data: bytes) -> bool:
        if self._bytes >= self._most:
            return False
        self._waiting.append(data)
        self._bytes += len(data)
        self._news.set()
        return True

    def end(self) -> None:
        self.has_ended = True
        self._news.set()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            if self.has_ended:
                raise StopAsyncIteration
            self._news = trio.Event()
            await self._news.wait()
        await trio.lowlevel.checkpoint_if_cancelled()
        data = self._waiting.popleft()
        self._bytes -= len(data)
        return data


class Calls:
    """The calls of one node, limited in number, by their sessions."""

    def __init__(self, context: OmniaContext) -> None:
        self.context = context
        self.sound = SoundStatistics()
        """The frame counts of all calls that have ended."""
        self._calls: dict[SessionKey, Call] = {}
        self._done = trio.Event()
        self._done.set()

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def parked(self) -> int:
        """The number of calls that wait for their clients."""
        return sum(call.side is None for call in self._calls.values())

    def begin(
        self, side: CallSide, link: Slot | PoolLink, wanted: SoundFormat | None, principal: str | None,
        frame: MediaFrame,
    ) -> Call | tuple[str, str]:  # fmt: skip
        """Begin a call with its first frame; if that fails, return the code and the text of the fault."""
        proposed = omnia.proposed_format(frame.info)
        if proposed is None:
            return omnia.UNSATISFIABLE_FORMAT, f"a call carries sound, not {frame.info.mime_type}"
        most, owner = self.context.options.calls, principal or ""
        mine = sum(key[1] == owner for key in self._calls)
        if len(self._calls) >= most or (owner and mine >= (most + 1) // 2):
            return omnia.RATE_LIMITED, "audio session limit reached"
        key = link.path, owner, side.wire.session_id
        if key in self._calls:
            return omnia.RATE_LIMITED, "there is a call in this session: resume= goes on with it"
        needed = None if wanted is None else _audio_format(wanted)
        call = Call(self, key, link, omnia.agreed_format(proposed, needed), side)
        self._calls[key] = call
        self._done = trio.Event() if self._done.is_set() else self._done
        self.context.start_soon(call.run, name=f"call of {link.path}")
        return call

    def resumed(self, side: CallSide, link: Slot | PoolLink, principal: str | None, id: str) -> Call | None:
        """Continue a call over another connection; return None if the caller has no call in that session."""
        call = self._calls.get((link.path, principal or "", id))
        if call is None or call.heard.has_ended:
            return None
        call.attach(side)
        return call

    def move(self, call: Call) -> None:
        """Move a call to a new session and announce that: the session named by its client does not exist."""
        del self._calls[call.key]
        call.key = (*call.key[:2], self.context.rt.entropy.new_id())
        self._calls[call.key] = call
        if call.side is not None:
            call.side.wire.adopt(call.key[2])

    def drop(self, call: Call) -> None:
        """Remove a call that has ended, and add up its counts; used by `Call`."""
        del self._calls[call.key]
        for name, number in attrs.asdict(call.sound()).items():
            setattr(self.sound, name, getattr(self.sound, name) + number)
        if not self._calls:
            self._done.set()

    def hang_up(self) -> None:
        """End the sound of all calls, as the node drains."""
        for call in tuple(self._calls.values()):
            call.hang_up()

    async def wait_done(self) -> None:
        """Wait until no call is left."""
        await self._done.wait()


class Call:
    """One call; see the module docstring."""

    def __init__(
        self,
        calls: Calls,
        key: SessionKey,
        link: Slot | PoolLink,
        format: AudioFormat,
        side: CallSide,
    ) -> None:
        self.key = key
        self.side: CallSide | None = side
        """The connection over which it runs; None while it is parked."""
        self.heard = _Heard(calls.context.options.sound_bytes)
        self._calls = calls
        self._link = link
        self._in = CallIn(format)
        self._is_new = side.wire.use()
        self._dropped = 0
        self._is_behind = False
        self._sent = 0
        self._last: TurnDone | None = None
        self._attached = trio.Event()
        self._scope = trio.CancelScope()

    def sound(self) -> SoundStatistics:
        """Return the counts of the frames received so far."""
        order, wrong = self._in.order, self._in.misformatted
        return SoundStatistics(self._in.taken - self._dropped, order.late, order.lost, self._dropped + wrong)

    # ---- from the client

    def take(self, frame: MediaFrame) -> tuple[str, str] | None:
        """Handle a sound frame; return the code and the text of the fault in it, if there is one."""
        if self.heard.has_ended:
            return None  # what comes after the last one
        at, fault = trio.current_time(), None
        if self._in.take(frame, at):
            if frame.payload and not self.heard.put(frame.payload):
                self._dropped += 1
                if not self._is_behind:
                    fault = omnia.RATE_LIMITED, "the agent does not keep up: sound is dropped"
                self._is_behind = True
            else:
                self._is_behind = False
        elif self._in.is_unsatisfiable(at):
            self._fail(omnia.UNSATISFIABLE_FORMAT, f"this agent needs {_text(self._in.format)}")
            self._scope.cancel("the format does not fit")
        if frame.is_last:
            self.hang_up()
        return fault

    def hang_up(self) -> None:
        """End the sound: the client will send no more."""
        self.heard.end()
        if self.side is None:
            self._scope.deadline = trio.current_time() + self._calls.context.options.resume_seconds
            self._attached.set()

    def attach(self, side: CallSide) -> None:
        """Continue the call over another connection."""
        if self.side is not None:
            self.side.call_taken()
        self.side = side
        self._in.order.resume()
        self._scope.deadline = float("inf")
        self._attached.set()

    def detach(self, side: CallSide) -> None:
        """Note that a connection has ended, and wait `resume_seconds` for the client to reconnect."""
        if self.side is side:
            self.side = None
            self._attached = trio.Event()
            if self.heard.has_ended:
                self._attached.set()
            self._scope.deadline = trio.current_time() + self._calls.context.options.resume_seconds

    # ---- to the client

    async def run(self) -> None:
        """Run the call to its end."""
        try:
            with self._scope:
                await self._hold()
        except Exception as error:  # a bug of ours: reported, and the node goes on
            self._calls.context.on_failure(error)
            self._fail(omnia.INTERNAL_ERROR, "internal server error")
        finally:
            self._calls.drop(self)
            side = self.side
            if side is not None:
                side.call_ended()
                if self._last is not None:
                    side.wire.send_of_turn(Done(content=self._last.text or None), self.key[2])
                side.wire.end_call(self.key[2])
                side.charge()
                side.check_end()

    async def _hold(self) -> None:
        is_lenient = not self._calls.context.options.strict_sessions
        try:
            try:
                await self._stream(self._is_new)
            except ActionFailed as failure:
                if failure.code != omnia.SESSION_EXPIRED or self._is_new or not is_lenient:
                    raise
                self._calls.move(self)
                await self._stream(is_new=True)
        except AgentError as error:
            self._fail(*fault_of(error))

    async def _stream(self, is_new: bool) -> None:
        agreed = self._in.format
        format = SoundFormat(agreed.codec, agreed.sample_rate or 0, agreed.channels or 0)
        args = self.heard, self.key[2], format, is_new
        arrival = Arrival(WAY, attributes=turn_attributes(self._link.path, self.key[2]))
        who = self.key[1] or None
        asked = Invocation("call", args, {}, stream=True, principal=who, posting=arrival.note)
        with arrival:
            async with self._link.open(asked) as items:
                async for item in items:
                    await self._send(item)

    async def _send(self, item: Any) -> None:
        held, self._last = self._last, None
        if held is not None:
            await self._pass_on(held)
        if isinstance(item, TurnDone) and self.heard.has_ended:
            self._last = item  # if it is the last one, the place of the call is free before it is sent
        else:
            await self._pass_on(item)

    async def _pass_on(self, item: Any) -> None:
        while self.side is None and not self.heard.has_ended:
            await self._attached.wait()
        side = self.side
        if side is None:
            return  # hung up, and left
        wire, id = side.wire, self.key[2]
        if isinstance(item, Sound):
            wire.send_sound(item.data, self._sent, f"audio/{self._in.format.codec}", id)
            self._sent += 1
        elif isinstance(item, CallBegan):
            wire.configure(_audio_format(item.format), id)
        elif isinstance(item, Interrupted):
            wire.interrupt(id)
        elif isinstance(item, TextChunk):
            role = "user" if item.role == "user" else None
            wire.send_of_turn(Chunk(content=item.text or None, role=role), id)
        elif isinstance(item, TurnDone):
            wire.send_of_turn(Done(content=item.text or None), id)
        elif self._calls.context.options.shows_tools:
            self._show(wire, item)
        side.charge()
        await side.room()

    def _show(self, wire: ServerConnection, item: Any) -> None:
        if isinstance(item, ToolCalled):
            call = omnia.Call(id=item.id, name=item.name, arguments=item.arguments)
            wire.send_of_turn(wire.shown(call), self.key[2])
        elif isinstance(item, ToolReturned):
            outcome = omnia.Outcome(id=item.id, result=item.result)
            if item.error is not None:
                outcome = omnia.Outcome(id=item.id, error=item.error)
            wire.send_of_turn(omnia.ToolResult(tool_result=outcome), self.key[2])

    def _fail(self, code: str, message: str) -> None:
        if self.side is not None:
            self.side.wire.send_of_turn(ErrorFrame(error=Fault(code=code, message=message)), self.key[2])
            self.side.charge()


def _audio_format(format: SoundFormat) -> AudioFormat:
    return AudioFormat(codec=format.codec, sample_rate=format.sample_rate, channels=format.channels)


def _text(format: AudioFormat) -> str:
    return f"{format.codec} of {format.sample_rate} Hz with {format.channels} channel(s)"
