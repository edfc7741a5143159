"""Approvals as they are kept: what was asked, until when, and who decided what.

Each approval is one record in the space `approvals`, whose key begins with the path of the agent and the key
of its question: an agent that asks again after a crash finds the same record. All records are in memory, too,
so that a lookup reads nothing from the store.

What this module guarantees:

- **Nothing counts before it is in the store.** A question counts as asked, and a decision as made, once it is
  written. A decision that could not be written has not been made.
- **A decision is made once.** While one decision is being written, another one waits for it (`ticket`). The
  first one that is written counts, and every later one is refused. The outcome of a write is noted by the
  writer, not by the task that waits for it: a client that leaves meanwhile changes nothing.
- **An answer is handed to one run**, and this is stored before the run has it. From then on the key is free:
  the next question under it is a new one, which states how many consents came before. While the run goes on,
  that question waits (`Held`), as the run may be about to act. The run itself gets the same answer each time.
- **The deadline refuses**, by the wall clock and without the store: a record whose time has passed counts as
  refused even if no process was there to write it.
- **Memory is bounded**, by the number of waiting questions and by the bytes of all approvals. The oldest
  decisions are deleted.
- **A question that cannot be asked again ends with the run that asks** (`once`): nobody would get the answer.
  It is written only when somebody has decided, and so is lost in a crash before that.
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
from lmos_actors.persistence import Delete, Put, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmos_actors.persistence import StoreWriter, Ticket

    from ._options import ApprovalOptions

SPACE: Final = "approvals"

MOST_ANSWER: Final = 64 << 10
"""Bytes of the answer by a form, as JSON."""

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
    """The JSON Schema of the answer that approving it needs; None if it needs no answer."""
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
    """Whether the run that asks cannot ask again, so that the question ends with it."""
    awaited: bool = False
    """Whether a run of the agent waits for the decision now. Else the answer is kept until it asks again."""
    handed: str = ""
    """The name of the run that has the answer, in a form that reveals nothing; empty while none has it."""
    earlier: int = 0
    """How many consents to earlier questions under this key have been handed to runs, or were for all."""
    former: Any = None
    """The data that was approved before for all runs, which this question replaces."""


@attrs.define(eq=False)
class Entry:
    """One approval in memory; `changed` is set once it is decided, withdrawn, or could not be stored."""

    approval: Approval
    size: int
    record: str
    """The key of its record in the store."""
    askers: int = 0
    ticket: Ticket | None = None
    """The write that is in progress."""
    kept: bool = True
    """Whether the question is kept: before, nobody is shown it, as a crash would take it back."""
    changed: trio.Event = attrs.field(factory=trio.Event)
    is_withdrawn: bool = False
    """Whether another run has asked in other words, and in place of this."""

    @property
    def waits(self) -> bool:
        """Whether nothing is decided yet."""
        return self.approval.state == "waiting"


@attrs.frozen
class Asking:
    """How a question is asked: `run` names the run that asks; with `shared` the answer is for all runs."""

    run: str
    shared: bool = False
    replaces: bool = False
    """Whether it takes the place of a question in other words under its key."""


class KeyTaken(Exception):
    """Another question has the key already."""

    def __init__(self, first: Approval) -> None:
        super().__init__(first.text)
        self.first = first


class Held(Exception):
    """The answer was handed to another run that still goes on; `ended` is set when that run ends."""

    def __init__(self, ended: trio.Event) -> None:
        super().__init__()
        self.ended = ended


class TooMany(Exception):
    """No more questions can wait."""


class Decided(Exception):
    """The question has been decided already."""


class Withdrawn(Exception):
    """The question is no longer asked."""


class Misfit(Exception):
    """The answer does not fit the form of the question; the text says why."""


class KeptApprovals:
    """The approvals of one node.

    `now` returns Unix time; `end_of` returns the event of a run's end, by its name, or None if it has ended.
    """

    def __init__(
        self,
        writer: StoreWriter,
        now: Callable[[], float],
        end_of: Callable[[str], trio.Event | None],
        limits: ApprovalOptions,
    ) -> None:
        self._limits = limits
        self._writer = writer
        self._now = now
        self._end_of = end_of
        self._by_id: OrderedDict[str, Entry] = OrderedDict()  # in the order in which they were asked
        self._by_key: dict[tuple[str, str], Entry] = {}  # the latest question under each key
        self._handed: dict[tuple[str, str, str], Entry] = {}  # by agent, key, and the name of the run
        self._decided: OrderedDict[str, None] = OrderedDict()  # ids, in the order of the decisions
        self._deadlines: list[tuple[float, str]] = []  # a heap; of decided ones, too
        self._bytes = 0
        self._unkept = 0

    async def load(self) -> None:
        """Read all records. Raise StoreFailed."""
        store = self._writer.name
        found: list[Entry] = []
        for key, value in await self._writer.records(SPACE):
            try:
                approval = msgspec.json.decode(value, type=Approval)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                raise StoreDamaged(store, f"the record {key!r} in {SPACE!r} is no approval") from None
            found.append(Entry(approval, len(value), key))
        # `_add` gives a key to the question that is not handed, in any order: clocks may have been set back
        for each in sorted(found, key=lambda entry: (entry.approval.asked, entry.approval.id)):
            self._add(each)
        decided = [each.approval for each in found if each.approval.decided is not None]
        for approval in sorted(decided, key=lambda approval: (approval.decided, approval.id)):
            self._decided[approval.id] = None
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
        """Return the approval with an id."""
        return self._by_id.get(id)

    def next_deadline(self) -> float | None:
        """Return the Unix time of the next deadline, None if no approval waits."""
        while self._deadlines:
            at, id = self._deadlines[0]
            entry = self._by_id.get(id)
            if entry is not None and entry.waits:
                return at
            heappop(self._deadlines)
        return None

    # ---- changing

    async def ask(self, question: Approval, asking: Asking) -> Entry:
        """Add a question, and return its entry once it is kept; a known question keeps the entry it has.

        Raise KeyTaken, Held, TooMany, StoreFailed, and ValueError for a key that no store can keep.
        """
        self.expire()
        place = question.agent, question.key
        own = None if asking.shared else self._handed.get((*place, asking.run))
        if own is not None and _is_same(own.approval, question):
            return own
        known = self._by_key.get(place)
        if known is not None and _is_same(known.approval, question) and not self._is_over(known, asking):
            entry = known
        elif known is None:
            entry = self._begin(question)
        else:
            while known.ticket is not None:
                await _ended(known.ticket)
            if self._by_key.get(place) is not known:
                return await self.ask(question, asking)
            entry = self._begin_after(known, question, asking)
        if entry.ticket is not None:
            await entry.ticket.wait()
        return entry

    def _is_over(self, known: Entry, asking: Asking) -> bool:
        """Return whether the key of a known question is free for the next one.

        It is free once the answer was handed to a run; with `shared`, once it has expired and no run waits.
        """
        if asking.shared:
            return known.approval.state == "expired" and not known.askers
        return bool(known.approval.handed)

    def _begin_after(self, known: Entry, question: Approval, asking: Asking) -> Entry:
        """Add a question under a key that already has a question. Raise KeyTaken, Held, TooMany."""
        former = known.approval
        is_spent = former.state == "approved" and (bool(former.handed) or asking.shared)
        before = former.data if is_spent and asking.shared else former.former
        changed = msgspec.structs.replace(question, earlier=former.earlier + is_spent, former=before)
        if self._is_over(known, asking) and former.handed != asking.run:
            ended = self._end_of(former.handed)
            if ended is not None:
                raise Held(ended)
            return self._begin(changed)
        if not asking.replaces:
            raise KeyTaken(former)
        return self._begin(changed, None if former.handed else known)

    def _begin(self, question: Approval, former: Entry | None = None) -> Entry:
        """Add a new question; once it is kept, it takes the place of `former`. Raise TooMany."""
        size = len(_written(question))
        self._make_room(size)
        limits = self._limits
        if self.waiting + self._unkept >= limits.waiting or self._bytes + size > limits.total_bytes:
            raise TooMany
        # older records have no id in their keys, and keep them
        entry = Entry(question, size, key_of(question.agent, question.key, question.id))
        if question.once:
            self._add(entry)
            return entry
        writes: list[Put | Delete] = [Put(SPACE, entry.record, _written(question))]
        if former is not None:
            writes.append(Delete(SPACE, former.record))
        entry.kept = False
        self._unkept += 1
        # settled by the writer's task, never before this step has ended
        entry.ticket = self._writer.submit(writes, done=partial(self._question_written, entry, former))
        if former is not None:
            former.ticket = entry.ticket  # nothing is decided, and nothing handed, meanwhile
        self._add(entry)
        return entry

    def _question_written(self, entry: Entry, former: Entry | None, error: Exception | None) -> None:
        entry.ticket, entry.kept = None, True
        self._unkept -= 1
        if former is not None:
            former.ticket = None
        if error is not None:
            self._remove(entry)
            if former is not None:
                self._by_key[_place(former.approval)] = former
            entry.changed.set()
        elif former is not None:
            former.is_withdrawn = True
            self._remove(former)
            former.changed.set()

    async def hand(self, entry: Entry, run: str) -> bool:
        """Hand the answer to a run, by its name, unless another run has it; return whether this run has it.

        Return once the handing over is stored. Raise StoreFailed, and Withdrawn.
        """
        while entry.ticket is not None:
            await _ended(entry.ticket)
        if entry.is_withdrawn:
            raise Withdrawn
        if not entry.approval.handed:
            handed = msgspec.structs.replace(entry.approval, handed=run)
            write = Put(SPACE, entry.record, _written(handed))
            done = partial(self._handing_written, entry, handed)
            ticket = entry.ticket = self._writer.submit([write], done=done)
            await ticket.wait()
        return entry.approval.handed == run

    def _handing_written(self, entry: Entry, handed: Approval, error: Exception | None) -> None:
        entry.ticket = None
        if error is None:
            self._change(entry, handed)
            self._handed[*_place(handed), handed.handed] = entry

    def withdraw(self, entry: Entry) -> None:
        """Remove a question that has no waiters left, unless its decision is being written."""
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
        """Decide a question; return once the decision is kept. Raise Decided, Withdrawn, Misfit, StoreFailed.

        A cancellation does not undo the decision.
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
        write = Put(SPACE, entry.record, written)
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
        """Refuse approvals whose deadline has passed, unless an earlier decision is being written."""
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
        self._change(entry, approval)
        self._decided[approval.id] = None
        entry.changed.set()

    def _change(self, entry: Entry, approval: Approval) -> None:
        entry.approval = approval
        size = len(_written(approval))
        self._bytes += size - entry.size
        entry.size = size

    def _make_room(self, size: int) -> None:
        """Forget the oldest decisions until `size` more bytes fit, if that is possible. Raise StoreFailed."""
        most, most_bytes = self._limits.decided, self._limits.total_bytes
        while self._decided and (len(self._decided) >= most or self._bytes + size > most_bytes):
            decided = map(self._by_id.__getitem__, self._decided)
            oldest = next((each for each in decided if not each.askers), None)  # others still wait for it
            if oldest is None:
                return
            self._writer.submit([Delete(SPACE, oldest.record)])
            self._remove(oldest)

    def _add(self, entry: Entry) -> None:
        approval, place = entry.approval, _place(entry.approval)
        if entry.waits:
            heappush(self._deadlines, (approval.expires, approval.id))
        else:
            entry.changed.set()
        self._by_id[approval.id] = entry
        known = self._by_key.get(place)
        if known is None or known.approval.handed or not approval.handed:
            self._by_key[place] = entry
        if approval.handed:
            self._handed[*place, approval.handed] = entry
        self._bytes += entry.size

    def _remove(self, entry: Entry) -> None:
        place = _place(entry.approval)
        del self._by_id[entry.approval.id]
        if self._by_key.get(place) is entry:
            del self._by_key[place]
        if self._handed.get((*place, entry.approval.handed)) is entry:
            del self._handed[*place, entry.approval.handed]
        self._decided.pop(entry.approval.id, None)
        self._bytes -= entry.size


def completed(form: dict[str, Any] | None, answer: dict[str, Any] | None) -> dict[str, Any]:
    """Return an answer, with the form's defaults for the fields that it leaves out."""
    fields: dict[str, Any] = {} if form is None else form.get("properties", {})
    defaults = {name: each["default"] for name, each in fields.items() if "default" in each}
    return {**defaults, **(answer or {})}


def answer_to(approval: Approval, answer: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the answer to keep, with the form's defaults; None if the question has no form. Raise Misfit."""
    if approval.form is None:
        if answer is not None:
            raise Misfit("it asks for a yes or a no, and for no answer")
        return None
    given = completed(approval.form, answer)
    size = len(msgspec.json.encode(given))
    if size > MOST_ANSWER:
        raise Misfit(f"it has {size} bytes, and {MOST_ANSWER} are kept")
    wrong = schema_complaint(msgspec.json.encode(approval.form).decode(), given, formats=True)
    if wrong is not None:
        raise Misfit(wrong)
    return given


async def _ended(ticket: Ticket) -> None:
    """Wait until a write has ended, whether it succeeded or failed."""
    with suppress(StoreFailed, WriteConflict):
        await ticket.wait()


def _place(approval: Approval) -> tuple[str, str]:
    return approval.agent, approval.key


def _is_same(one: Approval, other: Approval) -> bool:
    return (one.text, one.data) == (other.text, other.data)


def _written(approval: Approval) -> bytes:
    return msgspec.json.encode(approval)
