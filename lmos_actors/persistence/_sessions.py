"""Sessions of conversations: who talks with which agent, what was said, and what the agent remembers of it.

A session belongs to an agent and an owner, the principal of its caller. Nobody else can see it. Its head is
one record and each message is another, so a turn writes only two messages and not the whole history:

| space | key | value |
|---|---|---|
| `chats` | agent, owner, session | `SessionHead`: when it expires, its memory, the numbers of messages |
| `chat messages` | agent, owner, session, number | `KeptMessage` |
| `chat turns` | agent, owner, session | `KeptTurn`: the message of a turn in progress |
| `chat steps` | agent, owner, session, number | a step of that turn: plain data of the agent, as JSON |

A turn in progress is recorded for agents that resume turns. Its record exists from the beginning of the turn
to its end, when the batch with its messages removes it. So a record that is found at the start of an agent
belongs to a turn whose process has ended. The recorded steps have no gaps: each step is one ticket of the
writer, and tickets are committed in order, so a power failure loses only the last steps.

The heads are also in memory, in the order in which they expire, so a lookup does not read the store. A
session that has had no turn yet is in memory only, and is listed only once it has been written. The number of
an agent's sessions is limited: beyond the limit, the owner with the most sessions loses the session that
would expire first. The messages and bytes of each session are limited, too: the oldest are removed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import quote, unquote

import attrs
import msgspec

from lmos_actors.errors import StoreDamaged, StoreFailed

from ._keys import SEPARATOR, parts_of, range_of
from ._store import Delete, DeleteRange, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ._store import Durability, Write
    from ._writer import StoreWriter, Ticket

CHATS: Final = "chats"
MESSAGES: Final = "chat messages"
TURNS: Final = "chat turns"
STEPS: Final = "chat steps"


TURN_VERSION: Final = 1
"""Version of the records of turns in progress."""

TURN_BYTES: Final = 32 << 20
"""Maximum bytes of the message and the steps of one turn. A turn that records more is not resumed."""

TURN_STEPS: Final = 4_096
"""Maximum steps of one turn; likewise."""

ALL_TURN_BYTES: Final = 256 << 20
"""Maximum bytes of all turns in progress of an agent; likewise."""

TOO_LARGE: Final = "it had recorded more than is kept of a turn"

Role: TypeAlias = Literal["user", "agent"]


class KeptMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation. `parts` is its content other than text; `at` is Unix time."""

    role: Role
    text: str
    at: float
    parts: list[dict[str, Any]] = []
    failed: dict[str, str] | None = None
    """Why the answer is incomplete, as `code` and `message`: set if the turn failed."""
    key: str = ""
    """Set on a user's message: the name under which it may be sent again, empty without one."""
    notes: list[Any] = []
    """Set on an answer: plain data that the agent keeps with it, for itself."""


class KeptTurn(msgspec.Struct, omit_defaults=True):
    """A turn in progress without its steps: the message, and how often the turn has been resumed."""

    version: int = TURN_VERSION
    text: str = ""
    at: float = 0.0
    parts: list[dict[str, Any]] = []
    metadata: dict[str, Any] = {}
    key: str = ""
    """The name under which the message may be sent again, empty without one."""
    id: str = ""
    """The mark that tells the turn from those of other nodes."""
    resumed: int = 0
    """The number of lives of the agent that have resumed it and ended soon after."""
    is_too_large: bool = False
    """Whether it has recorded more than is kept: then nothing of it is kept, and it cannot be resumed."""


class SessionHead(msgspec.Struct, omit_defaults=True):
    """A session without its messages. `until` is Unix time; messages have the numbers `first` to `last`."""

    until: float
    began: float
    first: int = 1
    last: int = 0
    bytes: int = 0
    """Bytes of the messages that are kept."""
    memory: dict[str, Any] = {}


@attrs.frozen(kw_only=True)
class SessionOptions:
    """The limits of the sessions of an agent. `seconds` is how long a session is kept after its last turn.

    `bytes` limits the messages of one session, `memory_bytes` what the agent remembers of a session.
    """

    seconds: float = 24 * 3600.0
    sessions: int = 10_000
    messages: int = 200
    bytes: int = 1 << 20
    memory_bytes: int = 64 << 10
    durability: Durability = "process"


@attrs.define(eq=False)
class OpenTurn:
    """A turn in progress. `wrong` is why it cannot be resumed, empty if it can be."""

    owner: str
    id: str
    """The id of its session."""
    kept: KeptTurn
    steps: int = 0
    bytes: int = 0
    wrong: str = ""
    keeping: Ticket | None = None
    """The write of its messages: under way, or ended."""
    goes_on: bool = False
    """Whether its caller is away and will come back for the answer: the same life resumes the turn."""


@attrs.define
class Session:
    """A session as read: `written` contains its stored messages, and `key` is its key in the store."""

    owner: str
    id: str
    key: tuple[str, str]
    head: SessionHead
    written: list[bytes]

    @property
    def messages(self) -> list[KeptMessage]:
        """The messages, oldest first; decoded anew each time."""
        return [msgspec.json.decode(each, type=KeptMessage) for each in self.written]

    @property
    def is_new(self) -> bool:
        """Whether no message has been answered yet; answers of failed turns do not count."""
        for written in reversed(self.written):
            message = msgspec.json.decode(written, type=KeptMessage)
            if message.role == "agent" and message.failed is None:
                return False
        return True


@attrs.frozen
class SessionInfo:
    """The facts about a session that are available without reading its messages."""

    id: str
    began: float
    until: float
    messages: int


class Sessions:
    """The sessions of one agent. `now` returns Unix time."""

    def __init__(
        self, writer: StoreWriter, agent: str, options: SessionOptions, now: Callable[[], float]
    ) -> None:
        self.options = options
        self._writer = writer
        self._agent = agent
        self._now = now
        self._heads: OrderedDict[tuple[str, str], SessionHead] = OrderedDict()
        self._listed: dict[tuple[str, str], SessionInfo] = {}  # as they are kept
        self._owners: Counter[str] = Counter()  # how many sessions each has
        self._turns: dict[tuple[str, str], OpenTurn] = {}
        self._turn_bytes = 0

    def __len__(self) -> int:
        return len(self._heads)

    async def load(self) -> None:
        """Read the heads and the turns in progress, and remove what has expired. Raise StoreFailed."""
        await self._writer.settled()
        found: list[tuple[float, tuple[str, str], SessionHead]] = []
        for key, value in await self._writer.records(CHATS, *range_of(self._agent)):
            place, head = _head_in(self._writer.name, key, value)
            found.append((head.until, place, head))
        self._heads = OrderedDict((key, head) for _, key, head in sorted(found, key=lambda each: each[:2]))
        self._listed = {key: _info(key, head) for key, head in self._heads.items()}
        self._owners = Counter(owner for owner, _ in self._heads)
        await self._load_turns()
        self._expire()

    async def _load_turns(self) -> None:
        for written, value in await self._writer.records(TURNS, *range_of(self._agent)):
            _, owner, id = parts_of(written, 3)
            key = (owner, id)
            if key in self._heads:
                turn = self._turns[key] = _turn_of(unquote(owner), id, value)
                self._size(turn, len(value))
            else:  # written by hand: a session is removed with its turn
                self._writer.submit(self._without_turn(key), self.options.durability)

    async def wait_ready(self) -> None:
        """Wait until the store works. Raise StoreFailed if it is closed before that."""
        await self._writer.ready()

    # ---- finding

    def begin(self, owner: str, id: str) -> None:
        """Create a session with this id, unless it exists. It is written with its first turn."""
        self._expire()
        key = (_written(owner), id)
        if key in self._heads:
            return
        while len(self._heads) >= self.options.sessions:
            self._drop(self._least_missed())
        now = self._now()
        self._heads[key] = SessionHead(now + self.options.seconds, now)
        self._owners[key[0]] += 1

    def has(self, owner: str, id: str) -> bool:
        """Return whether an owner has a session with an id."""
        self._expire()
        return (_written(owner), id) in self._heads

    async def read(self, owner: str, id: str) -> Session | None:
        """Return a session with its messages; None if its owner has none with the id. Raise StoreFailed."""
        self._expire()
        key = (_written(owner), id)
        head = self._heads.get(key)
        if head is None:
            return None
        written: list[bytes] = []
        if head.last:
            start, stop = self._message_key(key, head.first), self._message_key(key, head.last + 1)
            found = await self._writer.scan(MESSAGES, start=start, stop=stop, limit=head.last)
            written = [value for _, value in found]
        return Session(owner, id, key, _copy(head), written)

    def of_owner(self, owner: str) -> Iterator[SessionInfo]:
        """Yield the kept sessions of an owner, in the order in which they expire."""
        self._expire()
        written = _written(owner)
        for key in self._heads:
            if key[0] == written and key in self._listed:
                yield self._listed[key]

    # ---- changing

    async def keep(self, session: Session, said: Sequence[KeptMessage], turn: OpenTurn | None = None) -> None:
        """Write the messages of a turn and the memory; return once they are kept. Raise StoreFailed.

        The record of the `turn` is removed in the same batch. If the session has been forgotten meanwhile,
        nothing is written. After a failure `keep` can be called again.
        """
        key = session.key
        if key not in self._heads or (turn is not None and self._turns.get(key) is not turn):
            return
        options, head = self.options, _copy(session.head)
        head.until = self._now() + options.seconds
        writes: list[Write] = []
        written = list(session.written)
        for message in said:
            head.last += 1
            written.append(msgspec.json.encode(message))
            writes.append(Put(MESSAGES, self._message_key(key, head.last), written[-1]))
        head.bytes = sum(map(len, written))
        dropped, least = 0, len(said)  # this turn is kept, however large it is
        while len(written) - dropped > least and (
            len(written) - dropped > options.messages or head.bytes > options.bytes
        ):
            head.bytes -= len(written[dropped])
            dropped += 1
        if dropped:
            start = self._message_key(key, head.first)
            head.first += dropped
            writes.append(DeleteRange(MESSAGES, start, self._message_key(key, head.first)))
        writes.append(Put(CHATS, self._head_key(key), msgspec.json.encode(head)))
        if turn is not None:
            writes += self._without_turn(key)
        done = partial(self._kept, session, head, written[dropped:], turn)
        ticket = self._writer.submit(writes, options.durability, done)
        if turn is not None:
            turn.keeping = ticket
        await ticket.wait()

    def _kept(
        self,
        session: Session,
        head: SessionHead,
        written: list[bytes],
        turn: OpenTurn | None,
        error: Exception | None,
    ) -> None:
        """Record that a session was written, even if its waiting caller has been cancelled meanwhile."""
        if error is not None:
            return
        key = session.key
        session.head, session.written = head, written
        if key in self._heads:
            self._heads[key] = _copy(head)
            self._heads.move_to_end(key)
            self._listed[key] = _info(key, head)
        if turn is not None and self._turns.get(key) is turn:
            self._forget_turn(key)

    async def forget(self, owner: str, id: str) -> bool:
        """Remove a session, and return whether it existed. Raise StoreFailed."""
        key = (_written(owner), id)
        if key not in self._heads:
            return False
        await self._drop(key).wait()
        return True

    # ---- turns in progress

    @property
    def turns(self) -> list[OpenTurn]:
        """The turns in progress that have a record, in the order in which they began."""
        return sorted(self._turns.values(), key=lambda turn: (turn.kept.at, turn.owner, turn.id))

    def is_open(self, turn: OpenTurn) -> bool:
        """Return whether a turn still has a record."""
        return self._turns.get((_written(turn.owner), turn.id)) is turn

    def begin_turn(self, session: Session, kept: KeptTurn) -> tuple[OpenTurn, Ticket] | None:
        """Submit the record of a new turn; return the turn, and the ticket of the write. Raise StoreFailed.

        Return None if the session has been forgotten, or if the message is not plain data.
        """
        key = session.key
        head = self._heads.get(key)
        if head is None:
            return None
        turn = OpenTurn(session.owner, session.id, kept)
        try:
            written = msgspec.json.encode(kept)
        except (TypeError, ValueError, RecursionError):
            return None
        self._forget_turn(key)  # one that could not be removed while the store failed
        if not self._has_room(turn, len(written)):
            turn.kept = _without_content(kept)
            written = msgspec.json.encode(turn.kept)
        until = self._now() + self.options.seconds
        begun = msgspec.structs.replace(head, until=until)
        ticket = self._writer.submit(
            [
                *self._without_turn(key),
                Put(CHATS, self._head_key(key), msgspec.json.encode(begun)),
                Put(TURNS, self._head_key(key), written),
            ],
            self.options.durability,
            partial(self._begun, key, _info(key, begun)),
        )
        head.until = session.head.until = until
        self._heads.move_to_end(key)
        self._turns[key] = turn
        self._size(turn, len(written))
        return turn, ticket

    def _begun(self, key: tuple[str, str], info: SessionInfo, error: Exception | None) -> None:
        if error is None and key in self._heads:
            self._listed[key] = info

    async def record(self, turn: OpenTurn, step: Any) -> None:
        """Store the next step of a turn, and return once it is written. Raise StoreFailed, TypeError.

        Do nothing if the session has been forgotten, or if the turn has already recorded too much.
        """
        try:
            written = msgspec.json.encode(step)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"a step of a turn is plain data: {error}") from None
        key = (_written(turn.owner), turn.id)
        if self._turns.get(key) is not turn or turn.kept.is_too_large:
            return
        writes: list[Write]
        if turn.steps >= TURN_STEPS or not self._has_room(turn, len(written)):
            turn.kept = _without_content(turn.kept)
            kept = msgspec.json.encode(turn.kept)
            turn.steps = 0
            self._size(turn, len(kept))
            writes = [*self._without_turn(key), Put(TURNS, self._head_key(key), kept)]
        else:
            turn.steps += 1
            self._size(turn, turn.bytes + len(written))
            writes = [Put(STEPS, self._message_key(key, turn.steps), written)]
        await self._writer.commit(writes, self.options.durability)

    async def resume_turn(self, turn: OpenTurn) -> list[Any]:
        """Count a resumption of a turn; return the turn's steps once the count is stored. Raise StoreFailed.

        If a step is missing or cannot be read, set `wrong` of the turn and return no steps.
        """
        key = (_written(turn.owner), turn.id)
        if self._turns.get(key) is not turn:
            return []
        turn.kept.resumed += 1
        try:
            head = Put(TURNS, self._head_key(key), msgspec.json.encode(turn.kept))
            await self._writer.commit([head], self.options.durability)
        except StoreFailed:
            turn.kept.resumed -= 1
            raise
        steps: list[Any] = []
        size = len(msgspec.json.encode(turn.kept))
        for written, value in await self._writer.records(STEPS, *range_of(self._agent, *key)):
            size += len(value)
            try:
                steps.append(msgspec.json.decode(value))
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                turn.wrong = f"its step {len(steps) + 1} cannot be read: {error}"
                return []
            if written != self._message_key(key, len(steps)):
                turn.wrong = f"its step {len(steps)} is missing"
                return []
        turn.steps = len(steps)
        if self._turns.get(key) is turn:
            self._size(turn, size)
        return steps

    def uncount_resumption(self, turn: OpenTurn) -> None:
        """Decrease the count of resumptions of a turn that has run for a long time. Never block or raise."""
        key = (_written(turn.owner), turn.id)
        if self._turns.get(key) is turn and turn.kept.resumed:
            turn.kept.resumed -= 1
            with suppress(StoreFailed):
                write = Put(TURNS, self._head_key(key), msgspec.json.encode(turn.kept))
                self._writer.submit([write], self.options.durability)

    def end_turn(self, turn: OpenTurn, failed: Callable[[], None]) -> Ticket | None:
        """Remove the record of a turn that ended without stored messages; return the ticket of the removal.

        Never block or raise. If the store fails, the record stays and `failed` is called, at once or later.
        The caller must then call `remove_turn` once the store works.
        """
        key = (_written(turn.owner), turn.id)
        if self._turns.get(key) is not turn:
            return None
        self._forget_turn(key)

        def done(error: Exception | None) -> None:
            if error is not None:
                failed()

        try:
            return self._writer.submit(self._without_turn(key), self.options.durability, done)
        except StoreFailed:
            failed()
            return None

    async def remove_turn(self, turn: OpenTurn) -> None:
        """Remove the record of a turn for which `end_turn` has failed. Raise StoreFailed."""
        key = (_written(turn.owner), turn.id)
        if key not in self._turns:  # else a later turn of its session has removed it
            await self._writer.commit(self._without_turn(key), self.options.durability)

    def _has_room(self, turn: OpenTurn, more: int) -> bool:
        if turn.bytes + more > TURN_BYTES:
            return False
        return self._turn_bytes + more <= ALL_TURN_BYTES

    def _size(self, turn: OpenTurn, size: int) -> None:
        self._turn_bytes += size - turn.bytes
        turn.bytes = size

    def _forget_turn(self, key: tuple[str, str]) -> bool:
        turn = self._turns.pop(key, None)
        if turn is not None:
            self._size(turn, 0)
        return turn is not None

    def _without_turn(self, key: tuple[str, str]) -> list[Write]:
        written = self._head_key(key)
        return [Delete(TURNS, written), DeleteRange(STEPS, *range_of(written))]

    def _expire(self) -> None:
        """Remove the sessions whose time is up."""
        now = self._now()
        while self._heads:
            key, head = next(iter(self._heads.items()))
            if head.until > now:
                return
            self._drop(key)

    def _least_missed(self) -> tuple[str, str]:
        """Return the oldest session of the owner with the most sessions: no owner can displace all others."""
        greedy = max(self._owners, key=lambda owner: self._owners[owner])
        return next(key for key in self._heads if key[0] == greedy)

    def _drop(self, key: tuple[str, str]) -> Ticket:
        written = self._head_key(key)
        writes: list[Write] = [Delete(CHATS, written), DeleteRange(MESSAGES, *range_of(written))]
        if key in self._turns:
            writes += self._without_turn(key)
        ticket = self._writer.submit(writes, self.options.durability)
        self._forget_turn(key)
        del self._heads[key]
        self._listed.pop(key, None)
        self._owners[key[0]] -= 1
        if not self._owners[key[0]]:
            del self._owners[key[0]]
        return ticket

    def _head_key(self, key: tuple[str, str]) -> str:
        return SEPARATOR.join((self._agent, *key))

    def _message_key(self, key: tuple[str, str], number: int) -> str:
        return SEPARATOR.join((self._agent, *key, f"{number:010}"))


def _written(owner: str) -> str:
    """Return the name of an owner in the form that keys contain: without separators."""
    return quote(owner, safe="")


def _head_in(store: str, key: str, value: bytes) -> tuple[tuple[str, str], SessionHead]:
    """Decode a record; return the owner and id of its session, and the session's head. Raise StoreDamaged."""
    try:
        _, owner, id = key.split(SEPARATOR, 2)  # ids had any characters once
        return (owner, id), msgspec.json.decode(value, type=SessionHead)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise StoreDamaged(store, f"the record {key!r} in {CHATS!r} is no session") from None


def _turn_of(owner: str, id: str, value: bytes) -> OpenTurn:
    """Return the turn in progress that a record describes; `wrong` is set if the record cannot be read."""
    try:
        kept = msgspec.json.decode(value, type=KeptTurn)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return OpenTurn(owner, id, KeptTurn(), wrong=f"its record cannot be read: {error}")
    turn = OpenTurn(owner, id, kept)
    if kept.version > TURN_VERSION:
        turn.wrong = f"its record has the version {kept.version}, and this one reads {TURN_VERSION}"
    elif kept.is_too_large:
        turn.wrong = TOO_LARGE
    return turn


def _info(key: tuple[str, str], head: SessionHead) -> SessionInfo:
    return SessionInfo(key[1], head.began, head.until, head.last - head.first + 1)


def _copy(head: SessionHead) -> SessionHead:
    return msgspec.json.decode(msgspec.json.encode(head), type=SessionHead)


def _without_content(kept: KeptTurn) -> KeptTurn:
    """Return the shortened record of a turn that has recorded too much, marked so that it is not resumed."""
    text = kept.text[:500]
    return KeptTurn(text=text, at=kept.at, key=kept.key, id=kept.id, is_too_large=True)
