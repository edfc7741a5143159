"""The agent `approvals`: a system agent of a node, which gets agents' questions and people's answers.

The right to decide is checked only here, for every entry point: a client that has sent the request over a
network needs the right `approve` for the agent that asks. The code of the program itself may decide, as tests
do; agents may not, so that no agent approves its own question.

For a client without the right an approval does not exist: it gets the same answer as for a wrong id.

A question that is asked in a chat turn also goes to the user whose client carries out tools (`Offer`). The
user needs the same right as any other client. The first answer counts, from the list or from the user.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator  # noqa: TC003 -- types of agents are read
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from weakref import WeakKeyDictionary

import trio
from msgspec import Meta, structs

from lmos_actors.actors import Agent, MailboxOptions, Property, action, current_request, of_system, prop
from lmos_actors.errors import ActionFailed, StoreFailed
from lmos_actors.persistence import MemoryStore, check_only_writer, open_writer

from ._kept import (
    Approval,
    Asking,
    Decided,
    Held,
    KeptApprovals,
    KeyTaken,
    Misfit,
    TooMany,
    Withdrawn,
    completed,
)
from ._options import ApprovalOptions

if TYPE_CHECKING:
    from lmos_actors._core import Timer
    from lmos_actors.actors import Runtime

    from ._kept import Entry
    from ._offers import Offer, Offers

NAME: Final = "approvals"
"""The name of the agent, right below the root of its node."""

MOST_WAITING: Final = 10_000
"""The maximum number of questions that may wait, whatever the options say."""

MOST_ASKED: Final = 2 * MOST_WAITING
"""The maximum number of runs that wait for a decision; several may wait for the same one."""

LONGEST_NOTE: Final = 2_000

FORBIDDEN: Final = "FORBIDDEN"
UNKNOWN: Final = "UNKNOWN"
DECIDED: Final = "DECIDED"
ANSWER_INVALID: Final = "ANSWER_INVALID"
GONE: Final = "GONE"
QUESTION_CHANGED: Final = "QUESTION_CHANGED"
TOO_MANY: Final = "TOO_MANY"
STORE_FAILED: Final = "STORE_FAILED"

_MEMORIES: Final[WeakKeyDictionary[Runtime, MemoryStore]] = WeakKeyDictionary()
"""The approvals of nodes without a store: they outlive an incarnation, not the node."""

Id = Annotated[str, Meta(description="The id of an approval, as `list` has it.")]
Answer = Annotated[
    dict[str, Any] | None,
    Meta(description="The answer, where the approval has a `form`: an object that its JSON Schema allows."),
]
Note = Annotated[str, Meta(max_length=LONGEST_NOTE, description="A remark that is kept with the decision.")]
Most = Annotated[int, Meta(ge=1, le=MOST_WAITING, description="How many at most, the newest ones.")]


def failure(code: str, status: int, message: str) -> ActionFailed:
    """Return the failure of a question or a decision."""
    return ActionFailed({"code": code, "status": status, "message": message})


@of_system
class Approvals(Agent, mailbox=MailboxOptions(size=MOST_ASKED)):
    """The questions that agents of this node ask people.

    Clients need the right `approve` for the agent that asks.
    """

    waiting: Property[int] = prop(default=0)
    """The number of approvals that wait for a decision."""
    limits: ApprovalOptions = ApprovalOptions()

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Read the kept approvals."""
        slot = self._place()
        self._timer: Timer | None = None
        self._offers: Offers | None = None if slot.rt.approvals is None else slot.rt.approvals.offers
        async with AsyncExitStack() as stack:
            if slot.rt.keeping is not None:
                writer = slot.rt.keeping.writer
                check_only_writer(writer, "approvals")
            else:
                store = _MEMORIES.setdefault(slot.rt, MemoryStore())
                writer = await stack.enter_async_context(open_writer(store))
            self._writer = writer
            wall = (
                slot.rt.entropy.now
            )  # asked after the end of this incarnation, too: a decision is written late
            self._kept = KeptApprovals(writer, lambda: wall().timestamp(), self._end_of, self.limits)
            await writer.settled()
            await self._kept.load()
            yield

    def started(self) -> None:
        """Set the timer of the next deadline."""
        self._changed()

    # ---- for agents of the node

    @action(idempotent=True, concurrency=MOST_ASKED)
    async def ask(
        self, question: Approval, run: str = "", shared: bool = False, replaces: bool = False
    ) -> Approval:
        """Wait for the decision on a question that an agent of this node asks with `self.approve(...)`.

        The parameter `run` names the run that asks; only this run gets the answer, unless the answer is
        `shared`. With `replaces`, the question replaces an earlier one that has other words. Return the
        decided approval. Raise ActionFailed.
        """
        if current_request().allows is not None:
            raise failure(FORBIDDEN, 403, "only agents of the node itself ask for approval")
        asking = Asking(run or question.id, shared=shared or question.once, replaces=replaces)
        while True:
            try:
                entry = await self._asked(self._renewed(question), asking)
            except Held as held:
                with trio.move_on_after(question.expires - self._now()):
                    await held.ended.wait()
                    continue
                return structs.replace(question, state="expired", decided=question.expires)
            self._changed()
            try:
                if await self._answered(entry, question, asking):
                    return entry.approval
            except Withdrawn:
                raise failure(
                    QUESTION_CHANGED, 409, "another run has asked in other words, in place of this question"
                ) from None
            except StoreFailed:
                await self._writer.ready()

    def _renewed(self, question: Approval) -> Approval:
        """Return the question, with a fresh id if the answer under its id was handed to a run.

        Otherwise the question would overwrite that decision.
        """
        known = self._kept.find(question.id)
        if known is None or not known.approval.handed:
            return question
        return structs.replace(question, id=self._place().rt.entropy.new_id(), asked=self._now())

    async def _answered(self, entry: Entry, question: Approval, asking: Asking) -> bool:
        """Wait for the decision; return whether it is for the run that asks. Raise Withdrawn, StoreFailed."""
        offer = None if self._offers is None else self._offers.take(question.id)
        entry.askers += 1
        try:
            if offer is None or not entry.waits or not offer.allows(entry.approval.agent):
                await entry.changed.wait()
            else:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._ask_user, entry, offer)
                    await entry.changed.wait()
                    # a client that reads nothing does not learn that it is over, and holds up nobody
                    nursery.cancel_scope.deadline = trio.current_time() + 1.0
            if asking.shared:
                if entry.is_withdrawn:
                    raise Withdrawn
                return not entry.waits
            return await self._kept.hand(entry, asking.run)
        finally:
            entry.askers -= 1
            if not entry.askers and question.once:
                self._kept.withdraw(entry)
                self._changed()

    async def _ask_user(self, entry: Entry, offer: Offer) -> None:
        """Let a user decide unless somebody else decides first. An answer that does not fit has no effect."""
        said = await offer.ask(entry.approval, entry.changed)
        if said is None or not offer.allows(entry.approval.agent):
            return
        approved, answer = said
        with suppress(Decided, Withdrawn, Misfit, StoreFailed):
            await self._kept.decide(entry, approved=approved, by=offer.principal, note="", answer=answer)
        self._changed()

    async def _asked(self, question: Approval, asking: Asking) -> Entry:
        """Return a question's entry once it is kept; wait while the store fails. Raise Held, ActionFailed."""
        while True:
            try:
                return await self._kept.ask(question, asking)
            except StoreFailed:
                await self._writer.ready()
            except KeyTaken as taken:
                first = taken.first
                text = f"under the key {question.key!r} it has asked something else: {first.text}"
                raise failure(QUESTION_CHANGED, 409, text) from None
            except TooMany:
                text = f"{self.limits.waiting} approvals wait already, or they are too large"
                raise failure(TOO_MANY, 503, text) from None

    # ---- for people who decide

    @action(name="list", safe=True, idempotent=True)
    def entries(
        self, state: Literal["waiting", "decided", "all"] = "waiting", most: Most = 100
    ) -> list[Approval]:
        """Return the approvals that the caller may decide, in the order in which they were asked."""
        self._kept.expire()
        found = [
            self._seen(each)
            for each in self._kept
            if state in ("all", "waiting" if each.state == "waiting" else "decided") and self._may(each.agent)
        ]
        return found[-most:]

    @action(name="approve", idempotent=True, concurrency=MOST_WAITING)
    async def accept(self, id: Id, note: Note = "", answer: Answer = None) -> Approval:
        """Approve what an agent asks. Return the approval as it is kept.

        Failures have a code: UNKNOWN (the caller may decide no approval with this id), DECIDED (somebody or
        the deadline has decided already), GONE (no agent is at its path, or the agent no longer asks),
        ANSWER_INVALID (the answer does not fit the form, and nothing is decided), STORE_FAILED.
        """
        return await self._decide(id, note, approved=True, answer=answer)

    @action(idempotent=True, concurrency=MOST_WAITING)
    async def refuse(self, id: Id, note: Note = "") -> Approval:
        """Refuse what an agent asks. Return the approval as it is kept. Fails with the codes of `approve`."""
        return await self._decide(id, note, approved=False)

    async def _decide(
        self, id: str, note: str, *, approved: bool, answer: dict[str, Any] | None = None
    ) -> Approval:
        entry = self._kept.find(id)
        if entry is None or not self._may(entry.approval.agent):
            text = (
                f"no approval {id[:100]!r} waits for this client; ids are given whole, as the list has them"
            )
            raise failure(UNKNOWN, 404, text)
        by = current_request().principal
        if entry.waits and not self._is_there(entry.approval.agent):
            raise failure(GONE, 409, f"no agent is at {entry.approval.agent!r} any more")
        awaited = entry.askers > 0
        try:
            await self._kept.decide(entry, approved=approved, by=by, note=note, answer=answer)
        except Decided:
            found = entry.approval
            given = completed(found.form, answer) if answer else found.answer
            wanted = "approved" if approved else "refused", by, given
            # else its client asks once more
            if by is None or (found.state, found.by, found.answer) != wanted:
                raise failure(DECIDED, 409, _when(found)) from None
            awaited = False
        except Withdrawn:
            raise failure(GONE, 409, "the agent asks for it no longer") from None
        except Misfit as error:
            raise failure(ANSWER_INVALID, 400, f"the answer does not fit the form: {error}") from None
        except StoreFailed as error:
            raise failure(STORE_FAILED, 503, f"the decision was not kept: {error}") from None
        finally:
            self._changed()
        return self._seen(structs.replace(entry.approval, awaited=awaited))

    # ---- for the program itself, which need not ask

    def kept(self) -> tuple[Approval, ...]:
        """Return all approvals with their present states, in the order in which they were asked."""
        self._kept.expire()
        return tuple(map(self._seen, self._kept))

    # ---- rights, places, deadlines

    def _may(self, agent: str) -> bool:
        """Return whether the caller may decide the questions of an agent."""
        request = current_request()
        if request.allows is not None:
            return request.allows(agent.replace("/", "."), "approve")
        return request.consumer is None and request.principal is None

    def _is_there(self, agent: str) -> bool:
        """Return whether an agent is at a path: False for a stopped agent, True for one that restarts."""
        resolver = self._place().rt.resolver
        found: Any = None if resolver is None else resolver.at(agent)
        return found is not None and getattr(found, "status", None) != "stopped"

    def _seen(self, approval: Approval) -> Approval:
        if approval.state == "waiting" and not self._is_there(approval.agent):
            return structs.replace(approval, state="gone")
        return approval

    def _end_of(self, run: str) -> trio.Event | None:
        desk = self._place().rt.approvals
        return None if desk is None else desk.askers.end_of(run)

    def _now(self) -> float:
        return self._place().rt.entropy.now().timestamp()

    def _changed(self) -> None:
        """Publish how many approvals wait, and set the timer of the next deadline."""
        self.waiting = self._kept.waiting
        if self._timer is not None:
            self._timer.cancel()
        at = self._kept.next_deadline()
        self._timer = None
        if at is not None:
            seconds = max(0.0, at - self._now())
            self._timer = self.after(seconds, self._deadline)

    def _deadline(self) -> None:
        self._timer = None
        self._kept.expire()
        self._changed()


def _when(approval: Approval) -> str:
    if approval.state == "expired":
        return "its deadline has refused it"
    return f"{approval.by or 'somebody'} has {approval.state} it already"
