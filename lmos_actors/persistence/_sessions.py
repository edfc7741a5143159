"""Sessions of conversations: who talks with which agent, what was said, and what the agent remembers of it.

A session belongs to an agent and an owner, the principal of its caller: for all others it does not exist.
Its head is one record, each message another, so that a turn writes two messages and not the whole history:

| space | key | value |
|---|---|---|
| `chats` | agent, owner, session | `SessionHead`: when it expires, its memory, the numbers of messages |
| `chat messages` | agent, owner, session, number | `KeptMessage` |

The heads are also in memory, in the order in which they expire: looking for one reads nothing. A session
that has had no turn yet is in memory alone. The sessions of an agent are bounded (of the owner with most of
them, the one that would expire first is removed), and so are the messages and bytes of each (the oldest go).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import quote

import attrs
import msgspec

from ._store import Delete, DeleteRange, Put, after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ._store import Durability, Write
    from ._writer import StoreWriter, Ticket

CHATS: Final = "chats"
MESSAGES: Final = "chat messages"
SEPARATOR: Final = "\x00"
BEHIND: Final = "\x01"
"""Comes after the separator: the end of a range of keys."""

PAGE: Final = 500

Role: TypeAlias = Literal["user", "agent"]


class KeptMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation. `parts` is what it had beside text; `at` is Unix time."""

    role: Role
    text: str
    at: float
    parts: list[dict[str, Any]] = []


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
    """The bounds of the sessions of an agent. `seconds`: for which one is kept after its last turn.

    `bytes` is for the messages of one session, `memory_bytes` for what the agent remembers of it.
    """

    seconds: float = 24 * 3600.0
    sessions: int = 10_000
    messages: int = 200
    bytes: int = 1 << 20
    memory_bytes: int = 64 << 10
    durability: Durability = "process"


@attrs.define
class Session:
    """A session that has been read. `written` are its messages as they are stored."""

    owner: str
    id: str
    head: SessionHead
    written: list[bytes]

    @property
    def messages(self) -> list[KeptMessage]:
        """The messages, oldest first; read anew each time."""
        return [msgspec.json.decode(each, type=KeptMessage) for each in self.written]


@attrs.frozen
class SessionInfo:
    """The facts about a session that need no reading of its messages."""

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
        self._owners: Counter[str] = Counter()  # how many sessions each has

    def __len__(self) -> int:
        return len(self._heads)

    async def load(self) -> None:
        """Read the heads, and remove those that have expired. Raise StoreFailed."""
        start, stop = f"{self._agent}{SEPARATOR}", f"{self._agent}{BEHIND}"
        found: list[tuple[float, tuple[str, str], SessionHead]] = []
        while page := await self._writer.scan(CHATS, start=start, stop=stop, limit=PAGE):
            start = after(page[-1][0])
            for key, value in page:
                _, owner, id = key.split(SEPARATOR)
                head = msgspec.json.decode(value, type=SessionHead)
                found.append((head.until, (owner, id), head))
        self._heads = OrderedDict((key, head) for _, key, head in sorted(found, key=lambda each: each[:2]))
        self._owners = Counter(owner for owner, _ in self._heads)
        self._expire()

    # ---- finding

    def begin(self, owner: str, id: str) -> None:
        """Have a session from now on, unless there is one of that id. It is written with its first turn."""
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
        """Return whether an owner has a session of that id."""
        self._expire()
        return (_written(owner), id) in self._heads

    async def read(self, owner: str, id: str) -> Session | None:
        """Return a session with its messages, None if its owner has none of that id. Raise StoreFailed."""
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
        return Session(owner, id, _copy(head), written)

    def of_owner(self, owner: str) -> Iterator[SessionInfo]:
        """Yield the sessions of an owner, the one that expires first at first."""
        self._expire()
        written = _written(owner)
        for (each, id), head in self._heads.items():
            if each == written:
                yield SessionInfo(id, head.began, head.until, head.last - head.first + 1)

    # ---- changing

    async def keep(self, session: Session, said: Sequence[KeptMessage]) -> None:
        """Write the messages of a turn, and the memory; return once they are kept. Raise StoreFailed.

        If the session has been forgotten meanwhile, nothing is written.
        """
        key = (_written(session.owner), session.id)
        if key not in self._heads:
            return
        options, head = self.options, session.head
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
        await self._writer.submit(writes, options.durability).wait()
        session.written = written[dropped:]
        if key in self._heads:
            self._heads[key] = _copy(head)
            self._heads.move_to_end(key)

    async def forget(self, owner: str, id: str) -> bool:
        """Remove a session; return whether there was one. Raise StoreFailed."""
        key = (_written(owner), id)
        if key not in self._heads:
            return False
        await self._drop(key).wait()
        return True

    def _expire(self) -> None:
        """Remove the sessions whose time is up."""
        now = self._now()
        while self._heads:
            key, head = next(iter(self._heads.items()))
            if head.until > now:
                return
            self._drop(key)

    def _least_missed(self) -> tuple[str, str]:
        """Return the oldest session of the owner who has most of them: so one cannot push out all others."""
        greedy = max(self._owners, key=lambda owner: self._owners[owner])
        return next(key for key in self._heads if key[0] == greedy)

    def _drop(self, key: tuple[str, str]) -> Ticket:
        written = self._head_key(key)
        writes: list[Write] = [
            Delete(CHATS, written),
            DeleteRange(MESSAGES, f"{written}{SEPARATOR}", f"{written}{BEHIND}"),
        ]
        ticket = self._writer.submit(writes, self.options.durability)
        del self._heads[key]
        self._owners[key[0]] -= 1
        if not self._owners[key[0]]:
            del self._owners[key[0]]
        return ticket

    def _head_key(self, key: tuple[str, str]) -> str:
        return SEPARATOR.join((self._agent, *key))

    def _message_key(self, key: tuple[str, str], number: int) -> str:
        return f"{self._head_key(key)}{SEPARATOR}{number:010}"


def _written(owner: str) -> str:
    """Return the name of an owner as keys have it: without separators."""
    return quote(owner, safe="")


def _copy(head: SessionHead) -> SessionHead:
    return msgspec.json.decode(msgspec.json.encode(head), type=SessionHead)
