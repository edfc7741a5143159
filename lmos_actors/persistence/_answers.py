"""The kept answers of durable agents: found by the key of a request, forgotten by age, number and size.

Each answer is two records, written in the batch of the state that its request has changed:

    answers         OWNER \\0 NAME      the answer, see `KeptAnswer`
    answer-order    OWNER \\0 NUMBER    its name and its time, and how many bytes were written up to it
    answer-counts   OWNER              the last number, and the bytes up to it

`NAME` is a digest of the key and its scope. An answer is due to be forgotten when it is too old, or when too
many answers or too many bytes have come after it: all this follows from its record in `answer-order` and from
the last record, so nothing has to be counted when an answer is removed. Answers are removed in the batches of
new ones, oldest first, at most `REMOVED` with each. So an agent reads only its last number when it starts,
and never more than a `PAGE` of the order at once.

An answer that is too old is no longer found, even before it is removed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import attrs
import msgspec
import trio

from lmos_actors.actors import KEPT_ANSWERS, KEPT_BYTES, KEPT_SECONDS, KeptAnswer
from lmos_actors.errors import StoreFailed

from ._keys import key_of
from ._store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from lmos_actors._core import Entropy

    from ._store import Write
    from ._writer import StoreWriter

    Found: TypeAlias = Callable[[KeptAnswer | None, StoreFailed | None], None]

ANSWERS: Final = "answers"
ORDER: Final = "answer-order"
COUNTS: Final = "answer-counts"
"""The spaces of the store that hold answers."""

PAGE: Final = 64
"""Records of the order that are read at once."""

BATCH: Final = 256
"""Answers that are looked up at once."""

REMOVED: Final = 8
"""Maximum number of answers that are removed with each new one."""


class _Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of the last answer, and the bytes of all answers up to it."""

    last: int = 0
    bytes: int = 0


class _Ordered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record of an answer in the order of an agent's answers."""

    name: str
    at: float
    number: int
    bytes: int
    """The bytes of all answers up to this one, including the removed ones."""


@attrs.define
class _Oldest:
    """One of the oldest answers of an agent."""

    ordered: _Ordered
    is_replaced: bool
    """Whether its key has a newer answer, with a place of its own: then only this place is removed."""


class AgentAnswers:
    """The kept answers of one agent; see `AnswerStore` of the actors."""

    __slots__ = ("_counts", "_entropy", "_lookups", "_oldest", "_owner", "_whole", "_written")

    def __init__(self, owner: str, lookups: AnswerLookups, entropy: Entropy) -> None:
        self._owner = owner
        self._lookups = lookups
        self._entropy = entropy
        self._counts: _Counts | None = None
        self._oldest: deque[_Oldest] | None = None  # a page of the order, None where that is not known
        self._whole = False  # there is no other page
        self._written: dict[str, None] | None = None  # names of answers, while a page is being read

    def find(self, name: str, found: Found) -> None:
        """See `AnswerStore`."""
        self._lookups.add(self, name, found)

    # ---- reading

    def place(self, name: str) -> str:
        """Return the key of an answer in the store."""
        return key_of(self._owner, name)

    def current(self, kept: bytes | None) -> KeptAnswer | None:
        """Return the decoded answer; None if there is none, or if it is too old.

        The next answer replaces an answer that is too old.
        """
        if kept is None:
            return None
        answer = msgspec.json.decode(kept, type=KeptAnswer)
        return None if self._is_old(answer.at) else answer

    def reread(self) -> None:
        """Discard what has been read, as a commit may have failed, or another agent may have used the key."""
        self._counts = self._oldest = None

    @property
    def is_prepared(self) -> bool:
        """Whether all that is needed to write an answer has been read."""
        return self._counts is not None and self._oldest is not None

    async def prepare(self, writer: StoreWriter) -> None:
        """Read all that is needed to write an answer. Raises StoreFailed."""
        if self._counts is None:
            (kept,) = await writer.get(COUNTS, [self._owner])
            self._counts = _Counts() if kept is None else msgspec.json.decode(kept, type=_Counts)
        if self._oldest is None:
            self._written = {}
            try:
                await self._read_oldest(writer, self._written)
            finally:
                self._written = None

    async def _read_oldest(self, writer: StoreWriter, written: dict[str, None]) -> None:
        start, stop = self._order_key(0), self._order_key((1 << 64) - 1)
        page = await writer.scan(ORDER, start=start, stop=stop, limit=PAGE)
        order = [msgspec.json.decode(value, type=_Ordered) for _, value in page]
        answers = await writer.get(ANSWERS, [self.place(each.name) for each in order])
        self._oldest = deque(
            _Oldest(each, each.name in written or kept is None or _number(kept) != each.number)
            for each, kept in zip(order, answers, strict=True)
        )
        self._whole = len(page) < PAGE and not written

    # ---- writing

    def writes(self, name: str, answer: KeptAnswer) -> list[Write]:
        """Return the writes that keep an answer and remove older ones."""
        counts = self._counts or _Counts()
        number = counts.last + 1
        value = msgspec.json.encode(msgspec.structs.replace(answer, number=number))
        counts = self._counts = _Counts(number, counts.bytes + len(value))
        ordered = _Ordered(name, answer.at, number, counts.bytes)
        writes = self._removals(name, counts)
        writes.append(Put(ANSWERS, self.place(name), value))
        writes.append(Put(ORDER, self._order_key(number), msgspec.json.encode(ordered)))
        writes.append(Put(COUNTS, self._owner, msgspec.json.encode(counts)))
        if self._written is not None:
            self._written[name] = None
        if self._oldest is not None:
            self._whole = self._whole and len(self._oldest) < PAGE
            if self._whole:
                self._oldest.append(_Oldest(ordered, is_replaced=False))
        return writes

    def _removals(self, name: str, counts: _Counts) -> list[Write]:
        """Return the writes that remove answers due for removal; `name` is the name of the new answer."""
        writes: list[Write] = []
        oldest = self._oldest
        if oldest is None:
            return writes
        for each in oldest:
            each.is_replaced = each.is_replaced or each.ordered.name == name
        removed = 0
        while oldest and removed < REMOVED and self._is_due(oldest[0].ordered, counts):
            gone, removed = oldest.popleft(), removed + 1
            writes.append(Delete(ORDER, self._order_key(gone.ordered.number)))
            if not gone.is_replaced:
                writes.append(Delete(ANSWERS, self.place(gone.ordered.name)))
        if not oldest and not self._whole:
            self._oldest = None  # the next look reads on
        return writes

    def _is_old(self, at: float) -> bool:
        return at + KEPT_SECONDS <= self._entropy.now().timestamp()

    def _is_due(self, ordered: _Ordered, counts: _Counts) -> bool:
        newer, newer_bytes = counts.last - ordered.number, counts.bytes - ordered.bytes
        return newer >= KEPT_ANSWERS or newer_bytes >= KEPT_BYTES or self._is_old(ordered.at)

    def _order_key(self, number: int) -> str:
        return key_of(self._owner, f"{number:016x}")


def _number(kept: bytes) -> int:
    return msgspec.json.decode(kept, type=KeptAnswer).number


class AnswerLookups:
    """The lookups of answers in the store for all agents of a node, carried out in batches."""

    def __init__(self, writer: StoreWriter, start_soon: Callable[..., None]) -> None:
        self._writer = writer
        self._start_soon = start_soon
        self._waiting: list[tuple[AgentAnswers, str, Found]] = []
        self._runs = False

    def add(self, answers: AgentAnswers, name: str, found: Found) -> None:
        """Queue the lookup of an answer; `found` is called with the answer, with None, or with the error."""
        self._waiting.append((answers, name, found))
        if not self._runs:
            self._runs = True
            self._start_soon(self._run, name="looks for kept answers")

    @trio.lowlevel.enable_ki_protection
    async def _run(self) -> None:
        batch: list[tuple[AgentAnswers, str, Found]] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                await self._look(batch)
        except BaseException:  # the node ends
            waiting, self._waiting = [*batch, *self._waiting], []
            self._fail(waiting, StoreFailed(self._writer.name, "it is being closed", "ask before that"))
            raise
        finally:
            self._runs = False

    async def _look(self, batch: Sequence[tuple[AgentAnswers, str, Found]]) -> None:
        try:
            keys = [answers.place(name) for answers, name, _ in batch]
            kept = await self._writer.get(ANSWERS, keys)
            asked = dict.fromkeys(answers for answers, _, _ in batch)
            while not all(answers.is_prepared for answers in asked):  # or one has begun anew meanwhile
                for answers in asked:
                    await answers.prepare(self._writer)
            found = [answers.current(value) for (answers, _, _), value in zip(batch, kept, strict=True)]
        except StoreFailed as error:
            self._fail(batch, error)
        except msgspec.MsgspecError as error:
            self._fail(batch, StoreFailed(self._writer.name, f"kept answers cannot be read: {error}"))
        else:
            for (_, _, take), answer in zip(batch, found, strict=True):
                take(answer, None)

    @staticmethod
    def _fail(batch: Sequence[tuple[AgentAnswers, str, Found]], error: StoreFailed) -> None:
        for _, _, take in batch:
            take(None, error)
