"""Chat agents: conversations with people and programs, as ordinary agents.

A subclass implements `reply`; this module does the rest:

- **Sessions.** A conversation continues where it stopped, over connections and restarts of the process: the
  history and the agent's memory are kept in the node's store, or in memory if it has none. A session belongs
  to its caller: for all other callers it does not exist.
- **One turn at a time in a session, many sessions at once.** A message that arrives during a turn waits; if
  eight wait in one session, the next is refused.
- **A turn is kept before its end is sent**: a caller that has received `done` finds the turn in the history,
  whatever happens then. If a turn fails, its text so far and the reason are kept; if its caller leaves,
  nothing is.
- **A turn survives its process**, if the agent `resumes` and the node has a store (`_kept_turns.py`).
- **A call is a turn with sound**, in both directions at once (`_call.py`), for agents that have a `talk`.
- **A crash ends one turn.** Each runs in a temporary child (`_turn.py`). Its caller gets INTERNAL_ERROR, but
  not the exception, which is in the crash report.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator  # noqa: TC003 -- types of actions are read
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias
from weakref import WeakKeyDictionary

import msgspec
import trio

from lmos_actors.actors import (
    Agent,
    InputStream,
    MailboxOptions,
    Run,
    action,
    completed_by,
    current_request,
    current_run,
    keep_whole,
    outline_of,
    shape_of,
)
from lmos_actors.errors import (
    ActionFailed,
    AgentDied,
    AgentUnavailable,
    InvalidInput,
    NotFound,
    StartFailed,
    StopFailed,
    WrongState,
)
from lmos_actors.memories import Memories, MemoryOptions
from lmos_actors.persistence import (
    KeptMessage,
    MemoryStore,
    OpenTurn,
    SessionOptions,
    Sessions,
    check_only_writer,
    open_writer,
)
from lmos_actors.supervision import ChildSpec

from ._asked_turns import Key, TurnKeys, kept_key, keyed
from ._call import VoiceCall
from ._failures import failure, store_in_use
from ._items import (
    INTERNAL_ERROR,
    INVALID_MESSAGE,
    MEDIA_NOT_ENABLED,
    SESSION_EXPIRED,
    CallBegan,
    CallItem,
    ChatItem,
    ChatPart,
    ClientAnswer,
    Recalled,
    Said,
    SessionEntry,
    SoundFormat,
    TextChunk,
    TurnBegan,
    TurnDone,
    TurnFailure,
)
from ._kept_turns import KeptTurns, answer_under, failed_answer, name_of
from ._lines import Lines
from ._turn import ChatTurn, TurnOffer, TurnRunner, said_again

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lmos_actors.actors import Request, Runtime
    from lmos_actors.approvals import Offer
    from lmos_actors.persistence import Role, Session
    from lmos_actors.supervision import Supervisor

MAX_TURNS: Final = 4_096
"""Maximum turns of one agent, including those that wait."""

NO_SESSION: Final = "session expired or not found; start a new session"
"""The message of SESSION_EXPIRED."""

LONGEST_ID: Final = 200
"""Maximum characters of a session's id."""

Reply: TypeAlias = "str | ChatPart | None"

_MEMORIES: Final[WeakKeyDictionary[Runtime, dict[str, MemoryStore]]] = WeakKeyDictionary()
"""The sessions of nodes without a store, by the path of the agent: they outlive its incarnations."""


class ChatAgent(Agent, mailbox=MailboxOptions(size=MAX_TURNS)):
    """Agent that people talk to. Subclass it and write `reply`.

    `reply(self, turn)` answers one message: an async generator that yields pieces of text or `ChatPart`s, or
    an async or plain function that returns the whole answer. `turn` has the message, the history and a memory
    that is kept; `await turn.use(tool, ...)` calls a tool. An exception in `reply` ends only its turn;
    `ActionFailed({"code": ..., "message": ...})` is sent to the caller. While `reply` runs, turns of other
    sessions go on, and all share the fields of `self`.

    `talk(self, call)` holds a call, for agents that users speak with: an async function that iterates
    `call.sound` and plays sound. `sound_format` in the body of a class is the format that it needs; without
    it, the caller's proposal is used.

    `session_options` in the body of a class bounds the kept sessions, `memory_options` the memories of users
    over all sessions (`turn.memories`). If the node has a store, turns go on after the end of their process:
    `reply` is called again from its start, see `ChatTurn.steps`. `resumes = False` in the body turns this
    off; `serial` agents never resume.
    """

    session_options: ClassVar[SessionOptions] = SessionOptions()
    memory_options: ClassVar[MemoryOptions] = MemoryOptions()
    resumes: ClassVar[bool] = True
    _ephemeral: ClassVar[tuple[str, ...]] = ("_deaf", "_kept", "_lines", "_number", "_sessions")
    sound_format: ClassVar[SoundFormat | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.reply is ChatAgent.reply:
            raise TypeError(
                f"{cls.__name__} has no reply: write `async def reply(self, turn: ChatTurn)`, which yields "
                "or returns text"
            )
        outline = outline_of(cls)
        if outline is not None and outline.serial and vars(cls).get("resumes"):
            raise TypeError(
                f"{cls.__name__}: the turns of a serial agent are not resumed, as a resumed one has no run "
                "that holds up the others: leave out serial=True, or resumes = True"
            )

    def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart] | Awaitable[Reply] | Reply:
        """Answer a message. Subclasses implement this as an async generator or a function."""

    def talk(self, call: VoiceCall) -> Awaitable[None] | None:
        """Hold a call. Subclasses that users can speak with implement this."""

    def keeps_turn(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether a turn with this metadata may be resumed: always, unless overridden."""
        return True

    def identity_for(self, turn: ChatTurn | VoiceCall) -> str | None:
        """Return the identity whose memories are used: the principal, unless a subclass overrides this."""
        return turn.principal

    def _memories_of(self, turn: ChatTurn | VoiceCall) -> Memories:
        return Memories(self, self.identity_for(turn))

    @classmethod
    def has_voice(cls) -> bool:
        """Return whether users can speak with agents of this class: whether the class has a `talk`."""
        return cls.talk is not ChatAgent.talk

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Read the existing sessions. A subclass that defines a lifespan must enter this one in it."""
        slot = self._place()
        self._lines = Lines()
        self._deaf = dict[tuple[str | None, str], None]()  # sessions whose clients know no tool `approve`
        self._number = 0
        async with AsyncExitStack() as stack:
            if slot.rt.keeping is not None:
                writer = slot.rt.keeping.writer
                check_only_writer(writer, "the sessions of chats")
            else:
                stores = _MEMORIES.setdefault(slot.rt, {})
                store = stores.setdefault(self.path, MemoryStore())
                writer = await stack.enter_async_context(open_writer(store))
            wall = slot.rt.entropy.now
            self._sessions = Sessions(writer, self.path, self.session_options, lambda: wall().timestamp())
            await self._sessions.load()
            self._kept = KeptTurns(
                slot,
                self._sessions,
                self._lines,
                is_on=self.resumes and slot.rt.keeping is not None and not self.__contract__.serial,
                make=self._made_again,
                run=self._run_again,
                answer=self._answer_of,
                start_soon=self.nursery.start_soon,
            )
            self._kept.resume()
            yield

    # ---- what callers use

    @action(concurrency=MAX_TURNS)
    @completed_by(keyed)
    async def chat(
        self,
        content: str = "",
        session: str | None = None,
        parts: list[ChatPart] | None = None,
        metadata: dict[str, Any] | None = None,
        new: bool = False,
        key: Key = None,
    ) -> AsyncGenerator[ChatItem]:
        """Send a message; the items are the answer, piece by piece.

        Without `session`, a new session begins, and the first item names it. With `new`, a session with the
        given id begins if there is none. A message that arrives again with the same `key` does not begin
        another turn, but gets the same answer. Messages that a resumable turn sends get a key automatically.
        """
        yield await self._turn(content, session, parts, metadata, key, new=new)

    @action(concurrency=MAX_TURNS)
    @completed_by(keyed)
    async def converse(
        self,
        answers: AsyncIterator[ClientAnswer],
        content: str = "",
        session: str | None = None,
        parts: list[ChatPart] | None = None,
        metadata: dict[str, Any] | None = None,
        new: bool = False,
        key: Key = None,
    ) -> AsyncGenerator[ChatItem]:
        """Send a message as in `chat`, and offer tools to the agent; `answers` are those to its calls."""
        yield await self._turn(content, session, parts, metadata, key, new=new, answers=answers)

    @action(concurrency=MAX_TURNS)
    async def call(
        self,
        sound: AsyncIterator[bytes],
        session: str | None = None,
        format: SoundFormat | None = None,
        new: bool = False,
    ) -> AsyncGenerator[CallItem]:
        """Speak with the agent. The first item names the format of `sound`; `format` proposes one.

        The end of `sound` ends the call. Sessions work as in `chat`.
        """
        if not self.has_voice():
            raise failure(MEDIA_NOT_ENABLED, "nobody can speak with this agent")
        owner = self._owner()
        id = self._session_for(owner, session, new=new)
        async with self._lines.place(owner, id):
            kept = await self._read(owner, id)
            call = VoiceCall(
                id,
                format=self.sound_format or format or SoundFormat(),
                history=partial(_recalled, kept),
                memory=kept.head.memory,
                memory_bytes=self._sessions.options.memory_bytes,
                is_new=not kept.written,
                principal=owner or None,
                memories=self._memories_of,
                new_id=self.new_id,
            )
            yield CallBegan(id, call.is_new, call.format)  # noqa: ASYNC119 -- the runtime closes what it runs
            put, understood = _run().put, ""

            async def out(item: CallItem) -> None:
                nonlocal understood
                if isinstance(item, TextChunk) and item.role == "user":
                    understood += item.text
                elif isinstance(item, TurnDone):
                    said = self._message("user", understood), self._message("agent", item.text)
                    await self._keep(kept, call.memory, [each for each in said if each.text])
                    understood = ""
                await put(item)

            runner = partial(TurnRunner, turn=call, reply=self.talk, out=out)
            await self._in_child(runner, TurnRunner.hold_call, sound)
            await self._keep(kept, call.memory, [])

    @action(safe=True, idempotent=True)
    def sessions(self) -> list[SessionEntry]:
        """Return the sessions of the caller, in the order in which they expire."""
        owner, is_kept = self._owner(), self._place().rt.keeping is not None
        return [
            SessionEntry(
                each.id, each.began, each.until, each.messages, (owner, each.id) in self._lines, is_kept
            )
            for each in self._sessions.of_owner(owner)
        ]

    @action(safe=True, idempotent=True, concurrency=MAX_TURNS)
    async def history(self, session: str, settled: bool = False) -> list[Said]:
        """Return the messages of a session of the caller, oldest first.

        With `settled`, wait until no turn of the session is in progress, so that a caller who was cut off
        finds the answer.
        """
        owner = self._owner()
        if settled:
            await self._lines.wait_empty(owner, session)
        found = await self._read(owner, session)
        return [_said(each) for each in found.messages]

    @action(idempotent=True, concurrency=MAX_TURNS)
    async def forget(self, session: str) -> bool:
        """Remove a session of the caller; return whether there was one. A resumed turn in it ends."""
        owner = self._owner()
        with store_in_use():
            found = await self._sessions.forget(owner, session)
        self._kept.forgotten(owner, session)
        return found

    # ---- one turn

    def _owner(self) -> str:
        return current_request().principal or ""

    async def _turn(
        self,
        content: str,
        session_id: str | None,
        parts: list[ChatPart] | None,
        metadata: dict[str, Any] | None,
        key: str | None,
        *,
        new: bool,
        answers: AsyncIterator[ClientAnswer] | None = None,
    ) -> TurnDone:
        """Run one turn, output its items as items of this run, keep the turn, and return its last item."""
        if not content and not parts:
            raise failure(INVALID_MESSAGE, "a message has content or parts")
        if key is not None and session_id is None:
            session_id, new = f"for {key}", True
        request, run = current_request(), _run()
        owner = request.principal or ""
        id = self._session_for(owner, session_id, new=new)
        async with self._lines.place(owner, id):
            session = await self._read(owner, id)
            name = "" if key is None else kept_key(key, content, parts or ())
            if name and (before := answer_under(session, name)) is not None:
                turn = self._made(session, content, parts, metadata, None)
                await run.put(TurnBegan(id, turn.is_new))
                async for item in said_again(turn, before):
                    await run.put(item)
                return await self._done(turn)
            asked = self._message("user", content, parts or (), name)
            wanted, has_tools = self.keeps_turn(metadata or {}), answers is not None
            begun = self._kept.begun(session, asked, metadata, wanted=wanted, has_client=has_tools)
            async with begun as kept:
                turn = self._made(session, asked.text, parts, metadata, kept, has_client_tools=has_tools,
                                  put_nowait=run.put_nowait)  # fmt: skip
                name = "" if kept is None else name_of(session, kept)
                keys = None if kept is None else self._keys_of(kept, name)
                await run.put(TurnBegan(id, turn.is_new))
                runner = partial(TurnRunner, turn=turn, reply=self.reply, out=run.put, asks=keys)
                if isinstance(answers, InputStream):
                    answers.pour(turn.take_answer)
                try:
                    await self._in_child(runner, TurnRunner.run, offer=self._offer(turn, request), name=name)
                except ActionFailed as error:
                    await self._kept.wait_if_ended()
                    with suppress(ActionFailed):  # the caller hears why the turn has failed
                        await self._keep_failed(session, asked, turn, error, kept)
                    raise
                await self._keep(session, turn.memory, [asked, self._answer_of(turn)], kept)
        return await self._done(turn)

    async def _done(self, turn: ChatTurn) -> TurnDone:
        """Return the last item of a turn, once the agent's changes are kept."""
        await keep_whole()
        return TurnDone(turn.answer, list(turn.answer_parts), turn.is_cut)

    async def _keep_failed(
        self,
        session: Session,
        asked: KeptMessage,
        turn: ChatTurn,
        error: ActionFailed,
        kept: OpenTurn | None,
    ) -> None:
        """Keep the text of a failed turn, but none of its changes to the memory."""
        again = await self._read(session.owner, session.id)
        answer = failed_answer(self._answer_of(turn), error)
        await self._keep(again, again.head.memory, [asked, answer], kept)

    def _made(
        self,
        session: Session,
        text: str,
        parts: Sequence[ChatPart] | None,
        metadata: dict[str, Any] | None,
        kept: OpenTurn | None,
        **more: Any,
    ) -> ChatTurn:
        owner, id = session.owner, session.id
        return ChatTurn(
            id,
            text,
            parts=parts or (),
            metadata=metadata,
            history=partial(_recalled, session),
            memory=session.head.memory,
            memory_bytes=self._sessions.options.memory_bytes,
            is_new=session.is_new,
            read=partial(self._read_file, owner, id),
            principal=owner or None,
            memories=self._memories_of,
            record=None if kept is None else partial(self._kept.record, kept),
            new_id=self.new_id,
            **more,
        )

    def _made_again(self, session: Session, turn: OpenTurn, steps: list[Any]) -> ChatTurn:
        kept, parts = turn.kept, msgspec.convert(turn.kept.parts, list[ChatPart])
        return self._made(session, kept.text, parts, kept.metadata, turn, is_resumed=True, steps=steps)

    async def _run_again(self, turn: ChatTurn, kept: OpenTurn, name: str) -> None:
        keys = self._keys_of(kept, name)
        runner = partial(TurnRunner, turn=turn, reply=self.reply, out=_nowhere, asks=keys)
        await self._in_child(runner, TurnRunner.run, name=name)

    def _keys_of(self, kept: OpenTurn, name: str) -> TurnKeys:
        goes_on = partial(self._kept.comes_back, kept)
        return TurnKeys(self._place(), kept, f"{self.path}\n{name}", goes_on)

    def _answer_of(self, turn: ChatTurn | None) -> KeptMessage:
        """Return the text and parts that a turn has sent, as a message; it is empty if there are none."""
        if turn is None:
            return self._message("agent", "")
        answer = self._message("agent", turn.answer, turn.answer_parts)
        return msgspec.structs.replace(answer, notes=turn.notes)

    def _offer(self, turn: ChatTurn, request: Request) -> Offer | None:
        """Return the offer that brings a turn's questions to its user, or else to the caller's."""
        approvals = self._place().rt.approvals
        if approvals is None:
            return None
        if request.allows is not None:
            return TurnOffer(turn, request.allows, self._deaf) if turn.has_client_tools else None
        found: Offer | None = approvals.offers.of(request.consumer)
        return found

    def _session_for(self, owner: str, session_id: str | None, *, new: bool) -> str:
        """Return the id of the session that a message belongs to. Raises ActionFailed."""
        if session_id is not None and not (0 < len(session_id) <= LONGEST_ID and session_id.isprintable()):
            # a control character would be read as the separator of a key of the store
            text = f"the id of a session has 1 to {LONGEST_ID} printable characters"
            raise failure(INVALID_MESSAGE, text)
        with store_in_use():
            if session_id is not None and (not new or self._sessions.has(owner, session_id)):
                if not self._sessions.has(owner, session_id):
                    raise failure(SESSION_EXPIRED, f"{NO_SESSION}; new=True begins one with this id")
                return session_id
            begun = session_id or self.new_id()
            self._sessions.begin(owner, begun)
            return begun

    async def _read(self, owner: str, id: str) -> Session:
        with store_in_use():
            found = await self._sessions.read(owner, id)
        if found is None:
            raise failure(SESSION_EXPIRED, NO_SESSION)
        return found

    async def _read_file(self, owner: str, id: str, reference: str) -> bytes:
        """Return the content of a file of a session. Raises LookupError if there is none."""
        files = self._place().rt.files
        if files is None or (file := files.referred(self.path, owner, id, reference)) is None:
            raise LookupError(reference)
        content: bytes = await files.read(file)
        return content

    def _message(self, role: Role, text: str, parts: Sequence[ChatPart] = (), key: str = "") -> KeptMessage:
        return KeptMessage(role, text, self.now().timestamp(), msgspec.to_builtins(list(parts)), key=key)

    async def _keep(
        self,
        session: Session,
        memory: dict[str, Any],
        said: Sequence[KeptMessage],
        turn: OpenTurn | None = None,
    ) -> None:
        session.head.memory = memory
        await trio.lowlevel.checkpoint_if_cancelled()  # an incarnation that has ended writes no more
        with store_in_use():
            await self._sessions.keep(session, said, turn)

    async def _in_child(
        self,
        made: Callable[[], TurnRunner],
        handle: Any,
        *args: Any,
        offer: Offer | None = None,
        name: str = "",
    ) -> None:
        """Run a turn or a call in a child. A crash of the child becomes INTERNAL_ERROR.

        `name` names a turn that can be resumed by the agent's next incarnation.
        """
        self._number += 1
        child_name = f"turn-{self._number}"
        child = ChildSpec(child_name, made, restart="temporary", shutdown="brutal")
        try:
            children: Supervisor = self.children
            runner = await children.start_child(child)
        except (WrongState, StartFailed):
            await self._kept.wait_if_ended()  # as it may have since this task was last run
            raise
        approvals = self._place().rt.approvals
        offering: AbstractContextManager[None] = nullcontext()
        whole: AbstractContextManager[None] = nullcontext()
        naming: AbstractContextManager[None] = nullcontext()
        if approvals is not None:
            path = runner.path
            whole = approvals.clocks.part_of(path, current_run())
            if offer is not None:
                offering = approvals.offers.during(path, offer)
            if name:
                naming = approvals.askers.during(path, self.path, name)
        try:
            with whole, offering, naming:
                await runner.invoke(handle, *args)
        except (AgentDied, AgentUnavailable):
            raise failure(INTERNAL_ERROR, "internal server error") from None
        finally:
            # WrongState: all that is below the agent was stopped at once, as with its node
            with trio.CancelScope(shield=True), suppress(NotFound, StopFailed, WrongState):
                await children.terminate_child(child_name)


def _run() -> Run:
    """Return the current run, whose items are the answer."""
    run = current_run()
    assert isinstance(run, Run)
    return run


async def _nowhere(item: ChatItem) -> None:
    """Check and drop an item of a turn whose caller is gone."""
    try:
        shape_of(type(item)).take(item)
    except InvalidInput as error:
        raise TypeError(f"this cannot be sent: {error}") from None
    await trio.lowlevel.checkpoint()


def _said(message: KeptMessage) -> Said:
    parts = msgspec.convert(message.parts, list[ChatPart])
    return Said(
        message.role, message.text, message.at, parts, msgspec.convert(message.failed, TurnFailure | None)
    )


def _recalled(session: Session) -> list[Recalled]:
    return [Recalled(**msgspec.structs.asdict(_said(each)), notes=each.notes) for each in session.messages]
