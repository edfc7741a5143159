"""One turn of a conversation: its message, its history, its memory, and the agent's answer.

A turn runs in a separate agent (`TurnRunner`), a temporary child of the chat agent: a mistake in it ends only
that turn, its crash report names the turn, and `node.tree()` shows it while it runs.

The task that runs `reply` outputs the items of the answer itself, as items of the run that the caller has
requested, and waits until the caller has room (`_answer_channel.py`). So a tool that is used in the middle of
the answer is shown at the right place in it.
"""

from __future__ import annotations

import binascii
import inspect
from base64 import b64decode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import trio

from lmos_actors.actors import Agent, Run, action, ask_client, current_run
from lmos_actors.errors import ActionFailed, ToolFailed

from ._answer_channel import AnswerChannel, NotInProgress, check_memory, memories_of
from ._items import (
    TOOL_ERROR,
    ChatItem,
    ChatPart,
    ClientAnswer,
    MediaPiece,
    Recalled,
    TextChunk,
    ToolCalled,
    ToolReturned,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence

    from lmos_actors.approvals import Approval
    from lmos_actors.memories import Memories
    from lmos_actors.persistence import KeptMessage

    from ._tools import Tool

ACCEPT_SECONDS: Final = 5.0
"""Seconds for a client to accept a call of a tool, or to answer it."""

RESULT_SECONDS: Final = 60.0
"""Seconds for a client to return the result of a call, counted from the call."""

APPROVE_TOOL: Final = "approve"
"""The client's tool by which its user decides an agent's question."""

CATEGORIES: Final = ("approval",)

DECIDED_ELSEWHERE: Final = "it was decided elsewhere"

LONGEST_MEDIA_ID: Final = 12
"""Bytes of a medium's id, in binary frames."""

PIECE_BYTES: Final = 1 << 20
"""Maximum bytes of a medium that are passed on at once."""


class _OpenCall:
    """A call of a client's tool that has not been answered."""

    __slots__ = ("_accepted", "answer", "changed", "is_accepted", "why")

    def __init__(self, accepted: Callable[[], object] | None) -> None:
        self.answer: ClientAnswer | None = None
        self.why: str | None = None
        """Why there is no result."""
        self.is_accepted = False
        self.changed = trio.Event()
        self._accepted = accepted

    def take(self, answer: ClientAnswer) -> None:
        if answer.kind == "accepted":
            self.is_accepted = True
            if self._accepted is not None:
                self._accepted()
        else:
            self.answer = answer
        self.changed.set()
        self.changed = trio.Event()

    async def wait(self, result_seconds: float = RESULT_SECONDS) -> str | None:
        """Wait for the answer; return None if it has arrived, or else the reason why there is none."""
        began = trio.current_time()
        with trio.move_on_at(began + ACCEPT_SECONDS):
            while self.answer is None and not self.is_accepted:
                await self.changed.wait()
        if self.answer is None and not self.is_accepted:
            return f"the client did not acknowledge the call within {ACCEPT_SECONDS:g} s"
        with trio.move_on_at(began + result_seconds):
            while self.answer is None:
                await self.changed.wait()
        return None if self.answer is not None else f"the client did not answer within {result_seconds:g} s"


class ChatTurn:
    """One message of a user, and the way to answer it; passed to `ChatAgent.reply`.

    `text`, `parts` and `metadata` are the message; `session` is the id of the conversation, `is_new` is
    whether it has just begun, and `history` contains the earlier messages. `memory` is a dict of plain data
    that is kept with the session: if this turn ends well, the next turn finds the changes that `reply` makes.
    The memories of the user over all sessions are in `memories`.

    If the process of an agent that `resumes` turns ends in the middle of a turn, `reply` is called again with
    `is_resumed`. Then `steps` are the steps kept by `record`, and the answer goes only to the history.
    """

    def __init__(
        self,
        session: str,
        text: str,
        *,
        parts: Sequence[ChatPart] = (),
        metadata: Mapping[str, Any] | None = None,
        history: Callable[[], Sequence[Recalled]] = tuple,
        memory: dict[str, Any] | None = None,
        memory_bytes: int = 64 << 10,
        is_new: bool = False,
        has_client_tools: bool = False,
        read: Callable[[str], Awaitable[bytes]] | None = None,
        principal: str | None = None,
        record: Callable[[Any], Awaitable[None]] | None = None,
        steps: Sequence[Any] = (),
        is_resumed: bool = False,
        memories: Callable[[ChatTurn], Memories] | None = None,
        put_nowait: Callable[[Any], bool] | None = None,
        new_id: Callable[[], str],
    ) -> None:
        self.session = session
        self.text = text
        self.principal = principal
        """The caller, by the access list; session and metadata are only the caller's own claims."""
        self.parts = tuple(parts)
        self.metadata = dict(metadata or {})
        self._history, self._memories = history, memories
        self.memory, self.notes = {} if memory is None else memory, list[Any]()
        self._memory_bytes = memory_bytes
        self.is_new = is_new
        self.has_client_tools = has_client_tools
        """Whether the caller can be asked to carry out its own tools (`ask_client`)."""
        self.is_cut = False
        """Whether the answer was too long and is incomplete; `reply` may set it, for `TurnDone`."""
        self.is_resumed, self.steps = is_resumed, tuple(steps)
        self._new_id, self._read, self._record = new_id, read, record
        self._out = AnswerChannel(new_id, put_nowait)
        self._media = 0  # how many have been streamed
        self._said, self._shown = list[str](), list[ChatPart]()
        self._calls: dict[str, _OpenCall] = {}

    @cached_property
    def history(self) -> tuple[Recalled, ...]:
        """The messages before this one, oldest first."""
        return tuple(self._history())

    @cached_property
    def memories(self) -> Memories:
        """The memories of this user, over all sessions. Raises RuntimeError outside of an agent."""
        return memories_of(self, self._memories)

    @property
    def answer(self) -> str:
        """The text of the answer so far."""
        return "".join(self._said)

    @property
    def answer_parts(self) -> tuple[ChatPart, ...]:
        """The parts of the answer so far that are not plain text."""
        return tuple(self._shown)

    async def say(self, piece: str | ChatPart) -> None:
        """Send a piece of the answer, as `yield` in `reply` does. Waits until the reader has room."""
        if isinstance(piece, str):
            if not piece:
                return
            await self._out.put(TextChunk(piece))
            self._said.append(piece)
            return
        if not isinstance(piece, ChatPart):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a piece of an answer is text or a ChatPart, not {piece!r}")
        await self._out.put(TextChunk(parts=[piece]))
        self._shown.append(piece)

    def say_nowait(self, text: str) -> bool:
        """Send a piece of text if the reader has room for it now; return whether it was sent."""
        if not self._out.put_nowait(TextChunk(text)):
            return False
        self._said.append(text)
        return True

    @property
    def is_kept(self) -> bool:
        """Whether this turn is resumed if its process ends; otherwise `record` does nothing."""
        return self._record is not None

    async def record(self, step: Any) -> None:
        """Keep a step for the `steps` of a resumed turn; return once the step is kept.

        Record a result before anything uses it, and an intention before its execution. Raises TypeError for a
        step that is not plain data, and ActionFailed while the store fails.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._record is not None:
            await self._record(step)

    def note(self, *notes: Any) -> None:
        """Keep plain data with the answer, visible only to the agent, in the `history` of later turns.

        The note is kept even if the turn fails. Raises TypeError for anything but plain data.
        """
        try:
            self.notes += msgspec.json.decode(msgspec.json.encode(notes))
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"a note is plain data: {error}") from None

    async def read(self, part: ChatPart) -> bytes:
        """Return the content of a part: embedded data, or a file that the user has uploaded.

        Raises ValueError for text, for a part at a `url` (which is never fetched), and for invalid base64.
        Raises LookupError for a file that no longer exists.
        """
        media = part.media
        if media is None:
            raise ValueError(f"a part of type {part.type} has no media")
        if media.data is not None:
            try:
                return b64decode(media.data, validate=True)
            except binascii.Error as error:
                raise ValueError(f"the data of a part is no base64: {error}") from None
        if media.storage_ref is None:
            raise ValueError("what is elsewhere is not fetched")
        if self._read is None:
            raise LookupError(media.storage_ref)
        return await self._read(media.storage_ref)

    async def show(self, item: ToolCalled | ToolReturned | MediaPiece) -> None:
        """Show a tool that is carried out elsewhere, for example by another agent, or a piece of media."""
        await self._out.put(item)

    async def use(self, tool: Tool | Callable[..., Any], /, **arguments: Any) -> Any:
        """Call a tool, and show the call; return its result as plain data. Raises ToolFailed."""
        return await self._out.use(tool, arguments)

    async def stream_media(
        self, mime_type: str, source: bytes | AsyncIterable[bytes], media_id: str | None = None
    ) -> None:
        """Stream sound, images or video while they are produced. The history does not keep them.

        `source` contains the bytes, or is an async iterable of pieces, which is closed at the end. `media_id`
        has at most 12 bytes. Waits until the reader has room. Raises ValueError for an invalid `media_id`.
        """
        name = f"media-{self._media}" if media_id is None else media_id
        if not 0 < len(name.encode()) <= LONGEST_MEDIA_ID:
            raise ValueError(f"the id of a medium has 1 to {LONGEST_MEDIA_ID} bytes: {media_id!r}")
        self._media += 1
        number = 0
        if isinstance(source, bytes):
            whole = [source[at : at + PIECE_BYTES] for at in range(0, len(source), PIECE_BYTES)] or [b""]
            for number, data in enumerate(whole):
                await self._out.put(MediaPiece(name, number, data, mime_type, number == len(whole) - 1))
            return
        async with _closing(source) as pieces:
            async for data in pieces:
                await self._out.put(MediaPiece(name, number, data, mime_type))
                number += 1
        await self._out.put(MediaPiece(name, number, b"", mime_type, is_last=True))

    async def ask_client(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        consent_message: str | None = None,
        categories: Sequence[str] = (),
    ) -> Any:
        """Have the caller carry out one of its tools, and return the result.

        The caller has 5 s to accept the call and 60 s to answer it; for an MCP client the limits of
        `Agent.ask_client` apply. Raises ToolFailed if the caller has no such tool, refuses, fails, or does
        not answer.
        """
        if not self.has_client_tools:  # but it may be one of another kind: see `Agent.ask_client`
            return await ask_client(name, arguments or {})
        answer = await self.answer_of_client(name, arguments or {}, consent_message, categories)
        if answer.kind != "result":
            raise ToolFailed(name, answer.error)
        return answer.result

    async def answer_of_client(
        self,
        name: str,
        arguments: Mapping[str, Any],
        consent_message: str | None,
        categories: Sequence[str],
        accepted: Callable[[], object] | None = None,
    ) -> ClientAnswer:
        """Return the caller's answer to a call of one of its tools; for `ask_client`, and for bridges.

        `accepted` is called when the caller has accepted the call. If the caller does not accept it in time,
        that counts as a refusal.
        """
        asked = ToolCalled(self._new_id(), name, dict(arguments), True, consent_message, [*categories])
        async with self._client_call(asked, accepted) as call:
            call.why = await call.wait()
        if call.why is None and call.answer is not None:
            return call.answer
        is_refused = not call.is_accepted if call.answer is None else call.answer.kind == "refused"
        return ClientAnswer(asked.id, "refused" if is_refused else "error", error=call.why or "no answer")

    @asynccontextmanager
    async def _client_call(
        self, asked: ToolCalled, accepted: Callable[[], object] | None = None
    ) -> AsyncGenerator[_OpenCall]:
        """Call a tool of the caller for a block that waits for the answer; show the result at its end."""
        call_id = asked.id
        call = self._calls[call_id] = _OpenCall(accepted)
        await self._out.put(asked)
        try:
            yield call
        finally:
            del self._calls[call_id]
        answer = call.answer
        if call.why is None and answer is not None and answer.kind != "result":
            call.why = answer.error or (
                "refused" if answer.kind == "refused" else "the client names no reason"
            )
        if call.why is not None or answer is None:
            await self._out.put(ToolReturned(call_id, error=call.why or "no answer"))
        else:
            await self._out.put(ToolReturned(call_id, answer.result))

    def take_answer(self, answer: ClientAnswer) -> None:
        """Pass on the caller's answer to a call; ignore an answer to a call that is not open."""
        call = self._calls.get(answer.call_id)
        if call is not None:
            call.take(answer)

    async def run(self, reply: Callable[[ChatTurn], Any], out: Callable[[Any], Awaitable[None]]) -> None:
        """Run `reply` to answer the message; `out` gets the items of the answer."""
        async with self._out.opened(out):
            said: Any = reply(self)
            if isinstance(said, AsyncGenerator):
                pieces = cast("AsyncGenerator[Any]", said)
                async with aclosing(pieces):
                    async for piece in pieces:
                        await self.say(piece)
            else:
                said = await said if inspect.isawaitable(said) else said
                if said is not None:
                    await self.say(said)
        check_memory(self.memory, self._memory_bytes)


async def said_again(turn: ChatTurn, before: KeptMessage) -> AsyncIterator[ChatItem]:
    """Yield the items of an earlier answer, as a turn does. Raise its ActionFailed if it had failed."""
    parts = msgspec.convert(before.parts, list[ChatPart])
    turn._said, turn._shown = [before.text], parts  # pyright: ignore[reportPrivateUsage] -- of one file
    pieces = ([TextChunk(before.text)] if before.text else []) + [TextChunk(parts=[part]) for part in parts]
    for piece in pieces:
        yield piece
    if before.failed is not None:
        raise ActionFailed(before.failed)


@asynccontextmanager
async def _closing(source: AsyncIterable[bytes]) -> AsyncGenerator[AsyncIterator[bytes]]:
    """Return the iterator of a source for a block, and close it at the end."""
    pieces = aiter(source)
    try:
        yield pieces
    finally:
        if isinstance(pieces, AsyncGenerator):
            await cast("AsyncGenerator[bytes]", pieces).aclose()
        elif isinstance(pieces, trio.abc.AsyncResource):
            await pieces.aclose()


class TurnOffer:
    """The `Offer` of approvals to the user of a turn whose client carries out tools.

    The question is a call of the client's tool `approve`, which asks for consent. The user decides by giving
    or refusing consent. A client without that tool decides nothing: its session is added to `deaf`, and is
    not asked again.
    """

    def __init__(
        self, turn: ChatTurn, allows: Callable[[str, Any], bool], deaf: dict[tuple[str | None, str], None]
    ) -> None:
        self.principal = turn.principal
        self._turn = turn
        self._allows = allows
        self._session = turn.principal, turn.session
        self._deaf = deaf

    def allows(self, agent: str) -> bool:
        """Return whether the user may now decide a question of the agent at a path."""
        return self._allows(agent.replace("/", "."), "approve")

    async def ask(self, approval: Approval, over: trio.Event) -> tuple[bool, dict[str, Any] | None] | None:
        """Return the user's yes or no, and the filled-in form.

        Return None if no answer arrives, or if `over` is set before.
        """
        if self._session in self._deaf:
            return None
        arguments = {"agent": approval.agent, "text": approval.text, "expires": approval.expires}
        more = {"data": approval.data, "form": approval.form}
        arguments |= {name: value for name, value in more.items() if value is not None}
        try:
            turn = self._turn
            before = f" ({approval.earlier} granted before under this key)" if approval.earlier else ""
            text, id = approval.text + before, turn._new_id()  # pyright: ignore[reportPrivateUsage] -- of one file
            asked = ToolCalled(id, APPROVE_TOOL, arguments, True, text, [*CATEGORIES])
            async with turn._client_call(asked) as call:  # pyright: ignore[reportPrivateUsage]
                seconds = approval.expires - approval.asked
                why = await _until(over, partial(call.wait, result_seconds=seconds))
                call.why = DECIDED_ELSEWHERE if over.is_set() else why
            if over.is_set():
                return None
            if not call.is_accepted and (call.answer is None or call.answer.kind == "refused"):
                self._deaf[self._session] = None
                if len(self._deaf) > 4_096:  # beyond it, the oldest session is asked again
                    del self._deaf[next(iter(self._deaf))]
            return _decision_in(call)
        except (trio.BrokenResourceError, trio.ClosedResourceError, NotInProgress):
            return None  # the turn is over, or has not begun
        except TypeError:
            return None  # it is too deep to be put to a user: people decide it elsewhere


async def _until(over: trio.Event, work: Callable[[], Awaitable[str | None]]) -> str | None:
    """Return the result of an async function; None if an event is set first."""
    found: str | None = None

    async def end() -> None:
        await over.wait()
        nursery.cancel_scope.cancel("it is over")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        found = await work()
        nursery.cancel_scope.cancel("it is answered")
    return found


def _decision_in(call: _OpenCall) -> tuple[bool, dict[str, Any] | None] | None:
    """Return the decision in the answer to a call of `approve`; None if there is none.

    A client that refuses a call before accepting it has no such tool, or cannot ask its user.
    """
    answer = call.answer
    if answer is None or answer.kind == "error":
        return None
    if answer.kind == "refused":
        return (False, None) if call.is_accepted else None
    said: Any = answer.result
    if isinstance(said, bool):
        return said, None
    if not isinstance(said, dict):
        return None
    members = cast("dict[str, Any]", said)
    approved, given = members.get("approved"), members.get("answer")
    if not isinstance(approved, bool) or not (given is None or isinstance(given, dict)):
        return None
    return approved, cast("dict[str, Any] | None", given)


class TurnRunner(Agent, private=True):
    """An agent that runs one turn or one call of a chat agent; `out` is an async function for the items."""

    turn: Any
    reply: Any
    out: Any
    asks: Any = None
    """The keys (`TurnKeys`) of the turn's requests to others, None for a turn that is not resumed."""

    @action
    async def run(self) -> None:
        """Run the turn. Raises ActionFailed."""
        run = current_run()
        if self.asks is not None and isinstance(run, Run):
            run.resumption = self.asks
            run.slot.turns.durables += 1  # until it ends: so idle chat agents cost others nothing
        try:
            await self.turn.run(self.reply, self.out)
        except ToolFailed as error:  # its reason may be of an exception, and is not for the caller
            message = f"the tool {error.tool!r} failed"
            raise ActionFailed({"code": TOOL_ERROR, "message": message}) from None
        finally:
            if self.asks is not None and isinstance(run, Run):
                run.slot.turns.durables -= 1

    @action
    async def hold_call(self, sound: AsyncIterator[bytes]) -> None:
        """Run a call; `sound` is its caller's speech. Raises ActionFailed."""
        self.turn.sound = sound
        await self.run()
