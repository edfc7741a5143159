"""Approvals as they are kept: what was asked, until when, and who decided what.

One record each, in the space `approvals`, whose key is the path of the agent and the key of its question: an
agent that asks again after a crash finds the same record. All records are in memory, too: looking for one
reads nothing.

What it keeps true:

- **What is answered is in the store.** A question counts as asked, and a decision as made, once it is
  written. A decision that could not be written has not been made.
- **A decision is made once.** While one is being written another one waits for that (`ticket`). The first one
  that is written counts, and every later one is refused. What becomes of a write is noted by the writer, not
  by the task that waits for it: a client that leaves meanwhile changes nothing.
- **The deadline decides no**, by the clock of the world, and without the store: a record whose time has
  passed is refused also if nobody was there to write so.
- **It is bounded**: in questions that wait, and in bytes of all. Of decided ones the oldest are forgotten.
- **A question that cannot be asked again goes with the run that asks** (`once`): nobody would get the answer.
  It is written when somebody has decided, and so is not there after a crash.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import msgspec
import trio

from lmos_actors._core import schema_complaint
from lmos_actors.errors import StoreDamaged, StoreFailed, WriteConflict
from lmos_actors.persistence import Delete, Put, after, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmos_actors.persistence import StoreWriter, Ticket

SPACE: Final = "approvals"
PAGE: Final = 500

MOST_WAITING: Final = 10_000
"""Questions of one node that wait for a decision."""

MOST_DECIDED: Final = 10_000
"""Decided ones that are kept."""

MOST_ANSWER: Final = 64 << 10
"""Bytes of the answer by a form, as JSON."""

MOST_BYTES: Final = 64 << 20
"""Bytes of all of them."""

ApprovalState: TypeAlias = Literal["waiting", "approved", "refused", "expired", "gone"]
"""`expired`: its deadline has refused it. `gone`: it waits, but no agent is at its path, at least now."""


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A question of an agent, and what became of it. Times are Unix times, in seconds."""

    id: str
    agent: str
    """The path of the agent that asks."""
    key: str
    text: str
    data: Any = None
    form: dict[str, Any] | None = None
    """The JSON Schema of the answer that approving it needs; None where it needs none."""
    asked: float
    expires: float
    state: ApprovalState = "waiting"
    by: str | None = None
    """The principal that has decided; None for a client without a name, this program, and the clock."""
    decided: float | None = None
    note: str = ""
    answer: dict[str, Any] | None = None
    """The answer by its form, once it is approved."""
    once: bool = False
    """Whether the run that asks cannot ask again, so that the question goes with it."""
    awaited: bool = False
    """Whether a run of the agent waits for the decision now. Else the answer is kept until it asks again."""


@attrs.define(eq=False)
class Entry:
    """One approval in memory; `changed` is set once it is decided, or is not kept after all."""

    approval: Approval
    size: int
    askers: int = 0
    ticket: Ticket | None = None
    """The write that is under way."""
    kept: bool = True
    """Whether the question is kept: before, nobody is shown it, as a crash would take it back."""
    changed: trio.Event = attrs.field(factory=trio.Event)

    @property
    def waits(self) -> bool:
        """Whether nothing is decided."""
        return self.approval.state == "waiting"


class KeyTaken(Exception):
    """The key of a question names another one."""


class TooMany(Exception):
    """No more questions can wait."""


class Decided(Exception):
    """It has been decided already."""


class Withdrawn(Exception):
    """It is asked no longer."""


class Misfit(Exception):
    """The answer does not fit the form of the question; the text says why."""


class KeptApprovals:
    """The approvals of one node. `now` returns Unix time."""

    def __init__(self, writer: StoreWriter, now: Callable[[], float]) -> None:
        self._writer = writer
        self._now = now
        self._by_id: OrderedDict[str, Entry] = OrderedDict()  # in the order in which they were asked
        self._by_key: dict[str, Entry] = {}
        self._decided: OrderedDict[str, None] = OrderedDict()  # ids, in the order of the decisions
        self._deadlines: list[tuple[float, str]] = []  # a heap; of decided ones, too
        self._bytes = 0
        self._unkept = 0

    async def load(self) -> None:
        """Read all records. Raise StoreFailed."""
        start = ""
        found: list[Approval] = []
        while page := await self._writer.scan(SPACE, start=start, limit=PAGE):
            start = after(page[-1][0])
            found += [_approval_in(self._writer.name, key, value) for key, value in page]
        for each in sorted(found, key=lambda approval: (approval.asked, approval.id)):
            self._add(each)
        decided = [each for each in found if each.decided is not None]
        for each in sorted(decided, key=lambda approval: (approval.decided, approval.id)):
            self._decided[each.id] = None
        self.expire()

    # ---- looking

    def __iter__(self) -> Iterator[Approval]:
        """Yield all approvals that are kept, in the order in which they were asked."""
        for entry in self._by_id.values():
            if entry.kept:
                yield msgspec.structs.replace(entry.approval, awaited=entry.askers > 0)

    @property
    def waiting(self) -> int:
        """The number of approvals that are kept and wait for a decision."""
        return len(self._by_id) - len(self._decided) - self._unkept

    def find(self, id: str) -> Entry | None:
        """Return the approval of that id."""
        return self._by_id.get(id)

    def next_deadline(self) -> float | None:
        """Return when the next one expires, None if none waits."""
        while self._deadlines:
            at, id = self._deadlines[0]
            entry = self._by_id.get(id)
            if entry is not None and entry.waits:
                return at
            heappop(self._deadlines)
        return None

    # ---- changing

    async def ask(self, question: Approval) -> Entry:
        """Have a question wait, and return its entry once it is kept; of a known key the one there is.

        Raise KeyTaken, TooMany, StoreFailed, and ValueError for a key that no store can keep.
        """
        self.expire()
        known = self._by_key.get(_key_of(question))
        if known is None:
            known = self._begin(question)
        elif (known.approval.text, known.approval.data) != (question.text, question.data):
            raise KeyTaken
        if known.ticket is not None:
            await known.ticket.wait()
        return known

    def _begin(self, question: Approval) -> Entry:
        size = len(_written(question))
        self._make_room(size)
        if self.waiting + self._unkept >= MOST_WAITING or self._bytes + size > MOST_BYTES:
            raise TooMany
        entry = Entry(question, size)
        if question.once:
            self._add(question, entry)
            return entry
        write = Put(SPACE, _key_of(question), _written(question))
        entry.kept = False
        self._unkept += 1
        # settled by the writer's task, never before this step has ended
        entry.ticket = self._writer.submit([write], done=partial(self._question_written, entry))
        self._add(question, entry)
        return entry

    def _question_written(self, entry: Entry, error: Exception | None) -> None:
        entry.ticket, entry.kept = None, True
        self._unkept -= 1
        if error is not None:
            self._remove(entry)
            entry.changed.set()

    def withdraw(self, entry: Entry) -> None:
        """Remove a question that nobody waits for any more, unless its decision is on its way."""
        if entry.waits and entry.ticket is None and entry.approval.id in self._by_id:
            self._remove(entry)

    async def decide(
        self,
        entry: Entry,
        *,
        approved: bool,
        by: str | None,
        note: str,
        answer: dict[str, Any] | None = None,
    ) -> None:
        """Decide; return once that is kept. Raise Decided, Withdrawn, Misfit, StoreFailed.

        A cancel does not take it back.
        """
        while entry.ticket is not None:
            await _ended(entry.ticket)
        self.expire()
        if not entry.waits:
            raise Decided
        if self._by_id.get(entry.approval.id) is not entry:
            raise Withdrawn
        state: ApprovalState = "approved" if approved else "refused"
        given = answer_to(entry.approval, answer) if approved else None
        decided = msgspec.structs.replace(
            entry.approval, state=state, by=by, decided=self._now(), note=note, answer=given
        )
        written = _written(decided)
        self._make_room(len(written) - entry.size)
        write = Put(SPACE, _key_of(decided), written)
        done = partial(self._decision_written, entry, decided)
        ticket = entry.ticket = self._writer.submit([write], done=done)
        await ticket.wait()

    def _decision_written(self, entry: Entry, decided: Approval, error: Exception | None) -> None:
        entry.ticket = None
        if error is None:
            self._settle(entry, decided)
        elif entry.approval.expires <= self._now():
            self._refuse_late(entry)
        elif entry.approval.once and not entry.askers:
            self._remove(entry)

    def expire(self) -> None:
        """Refuse what has waited until its deadline; a decision that is being written has come before it."""
        now = self._now()
        while self._deadlines and self._deadlines[0][0] <= now:
            entry = self._by_id.get(heappop(self._deadlines)[1])
            if entry is not None and entry.waits and entry.ticket is None:
                self._refuse_late(entry)

    def _refuse_late(self, entry: Entry) -> None:
        late = entry.approval
        self._settle(entry, msgspec.structs.replace(late, state="expired", decided=late.expires))
        if late.once:  # nobody has decided anything: it is forgotten before what somebody has
            self._decided.move_to_end(late.id, last=False)

    def _settle(self, entry: Entry, approval: Approval) -> None:
        entry.approval = approval
        self._decided[approval.id] = None
        size = len(_written(approval))
        self._bytes += size - entry.size
        entry.size = size
        entry.changed.set()

    def _make_room(self, size: int) -> None:
        """Forget the oldest decisions until so many bytes more fit, if they can. Raise StoreFailed."""
        while self._decided and (len(self._decided) >= MOST_DECIDED or self._bytes + size > MOST_BYTES):
            self._forget(next(iter(self._decided)))

    def _forget(self, id: str) -> None:
        entry = self._by_id[id]
        self._writer.submit([Delete(SPACE, _key_of(entry.approval))])
        self._remove(entry)

    def _add(self, approval: Approval, entry: Entry | None = None) -> None:
        entry = entry or Entry(approval, len(_written(approval)))
        if entry.waits:
            heappush(self._deadlines, (approval.expires, approval.id))
        else:
            entry.changed.set()
        self._by_id[approval.id] = self._by_key[_key_of(approval)] = entry
        self._bytes += entry.size

    def _remove(self, entry: Entry) -> None:
        del self._by_id[entry.approval.id]
        del self._by_key[_key_of(entry.approval)]
        self._decided.pop(entry.approval.id, None)
        self._bytes -= entry.size


def answer_to(approval: Approval, answer: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what is kept of an answer: {} for none where there is a form. Raise Misfit."""
    if approval.form is None:
        if answer is not None:
            raise Misfit("it asks for a yes or a no, and for no answer")
        return None
    given = {} if answer is None else answer
    size = len(msgspec.json.encode(given))
    if size > MOST_ANSWER:
        raise Misfit(f"it has {size} bytes, and {MOST_ANSWER} are kept")
    wrong = schema_complaint(msgspec.json.encode(approval.form).decode(), given, formats=True)
    if wrong is not None:
        raise Misfit(wrong)
    return given


async def _ended(ticket: Ticket) -> None:
    """Wait until a write has ended, well or not."""
    with suppress(StoreFailed, WriteConflict):
        await ticket.wait()


def _approval_in(store: str, key: str, value: bytes) -> Approval:
    """Return an approval as it is kept. Raise StoreDamaged."""
    try:
        return msgspec.json.decode(value, type=Approval)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise StoreDamaged(store, f"the record {key!r} in {SPACE!r} is no approval") from None


def _key_of(approval: Approval) -> str:
    return key_of(approval.agent, approval.key)


def _written(approval: Approval) -> bytes:
    return msgspec.json.encode(approval)
