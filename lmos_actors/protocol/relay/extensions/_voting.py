"""Votes on a relay: `proposal`, `vote`, `vote_result`.

- A broadcast of the type `proposal` opens a vote. It may have the members `deadline` (Unix time in
  milliseconds; by default, and at the latest, seven days from now), and `quorum`, which may only raise the
  hub's quorum.
- `vote` with `{"approve": true | false}` goes to `relay` or to the proposer; its `ref` is the id of the
  proposal. An agent's newer vote replaces its older one. A vote without a valid proposal, or after the end,
  is refused.
- `vote_result` with `{"status", "votes": {"approve", "reject"}, "quorum"}`, by `ref`, goes to everybody,
  once.

The quorum is the total weight of the agents that were active in the seven days before the vote begins. A
proposal has passed as soon as approvals are more than half of it and more than rejections; it is rejected as
soon as rejections are more than half of it. At its deadline it is rejected if more than half of the quorum
has voted; otherwise it has expired.

Votes, deadlines and results are stored. The end of a vote is stored before it is announced, and the
announcement has the same id after a restart, so no agent takes one result for two. After a restart no vote
ends by its deadline for `GRACE` milliseconds, so that agents can reconnect to receive the result. Votes after
the deadline are late even so.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from .._extension import HubExtension, HubRefusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._extension import ExtensionStore, Fate, HubControl, HubFrame, Records

Status: TypeAlias = Literal["passed", "rejected", "expired"]

DAY: Final = 86_400_000
SPAN: Final = 7 * DAY
"""Milliseconds for which a vote runs at most, and within which an agent counts as active."""

GRACE: Final = 30_000
"""Milliseconds after a restart in which nothing ends by its deadline."""

AGAIN: Final = 5_000
"""Milliseconds after which an end that could not be kept is tried again."""

OPEN: Final = 1_000
"""Limit on the votes that are open at once."""

OPEN_OF_ONE: Final = 20
"""Limit on the votes of one proposer that are open at once."""

ENDED: Final = 1_000
"""Limit on the ended votes that are remembered, so that late voters learn the outcome."""

ACTIVE: Final = 100_000
"""Limit on the agents whose activity is remembered."""

RENEWED: Final = 3_600_000
"""Milliseconds after which an agent's activity is stored again."""


class Vote(msgspec.Struct):
    """A vote: its proposer, its deadline and quorum, the votes so far, and the outcome."""

    proposer: str
    deadline: int
    quorum: int
    votes: dict[str, bool] = msgspec.field(default_factory=dict[str, bool])
    status: Status | None = None
    """The outcome of the vote, None while it is open."""
    announced: bool = False


class Voting(HubExtension):
    """The extension `voting`. `weights` has the weights of agents whose vote does not count as 1."""

    name = "voting"

    def __init__(self, weights: Mapping[str, int] | None = None) -> None:
        self._weights = dict(weights or {})
        self._open: dict[str, Vote] = {}
        self._ended: OrderedDict[str, Vote] = OrderedDict()
        self._active: OrderedDict[str, int] = OrderedDict()  # agents, and when they were last active
        self._kept_active: dict[str, int] = {}
        self._quiet_until = 0
        self._due: int | None = None
        self._due_is_known = False
        self._again: dict[str, int] = {}  # ends that are being kept, and when that is tried again
        self._checked = ("", 0, 0)  # the proposal that was checked last: its id, deadline and quorum

    def start(self, hub: HubControl, store: ExtensionStore, records: Records) -> None:
        """Start with the votes that were stored before."""
        super().start(hub, store, records)
        for key, value in records:
            kind, _, id = key.partition(" ")
            if kind == "active":
                self._active[id] = self._kept_active[id] = int(value)
                continue
            vote = msgspec.json.decode(value, type=Vote)
            if vote.status is None or not vote.announced:
                self._open[id] = vote
            else:
                self._ended[id] = vote
        self._active = OrderedDict(sorted(self._active.items(), key=lambda each: each[1]))
        self._quiet_until = hub.now() + GRACE if self._open else 0
        self._due_is_known = False

    # ---- who is active

    def joined(self, agent: str) -> None:
        """Count an agent as active."""
        self._saw(agent)

    def _saw(self, agent: str) -> None:
        now = self.hub.now()
        self._active[agent] = now
        self._active.move_to_end(agent)
        changes: dict[str, bytes | None] = {}
        if now - self._kept_active.get(agent, 0) >= RENEWED:
            self._kept_active[agent] = now
            changes[f"active {agent}"] = str(now).encode()
        while self._active:
            oldest, at = next(iter(self._active.items()))
            if at > now - SPAN and len(self._active) <= ACTIVE:
                break
            del self._active[oldest]
            if self._kept_active.pop(oldest, None) is not None:
                changes[f"active {oldest}"] = None
        if changes:
            self.store.write(changes)

    def _weight(self, agent: str) -> int:
        return self._weights.get(agent, 1)

    # ---- proposals

    def check(self, frame: HubFrame) -> None:
        """Refuse an invalid proposal or vote before it is passed on."""
        if frame.type == "proposal" and frame.is_broadcast:
            self._checked = frame.id, *self._terms(frame)
        elif frame.type == "vote" and self._is_of_proposer(frame):
            self._vote_in(frame)

    def done(self, frame: HubFrame, fate: Fate) -> None:
        """Open the vote on a proposal, or count a vote that was sent to the proposer."""
        self._saw(frame.sender)
        if fate.outcome != "passed":
            return
        if frame.type == "proposal" and frame.is_broadcast:
            id, deadline, quorum = self._checked
            assert id == frame.id
            self._open[id] = vote = Vote(frame.sender, deadline, quorum)
            self._due_is_known = False
            self._keep(frame.id, vote)
        elif frame.type == "vote" and self._is_of_proposer(frame):
            self._count(frame)

    def _terms(self, frame: HubFrame) -> tuple[int, int]:
        """Return the deadline and the quorum of a proposal. Raise HubRefusal."""
        mine = [each for each in self._open.values() if each.proposer == frame.sender]
        if len(self._open) >= OPEN or len(mine) >= OPEN_OF_ONE:
            raise HubRefusal("unavailable", "there are too many votes: wait until some have ended")
        deadline, quorum = frame.value("deadline"), frame.value("quorum")
        latest = frame.ts + SPAN
        if deadline is None:
            deadline = latest
        elif not _is_number(deadline) or not frame.ts < deadline <= latest:
            raise HubRefusal(
                "invalid_message", "`deadline` is Unix time in milliseconds, within the next seven days"
            )
        if quorum is not None and (not _is_number(quorum) or not 0 < quorum < 1 << 53):
            raise HubRefusal("invalid_message", "`quorum` is a number above 0")
        recent = dict.fromkeys(agent for agent, at in self._active.items() if at > frame.ts - SPAN)
        recent[frame.sender] = None
        active = sum(map(self._weight, recent))
        return deadline, max(quorum or 0, active)

    # ---- votes

    def command(self, frame: HubFrame) -> bool:
        """Count a vote that was sent to the relay; return False for any other command."""
        if frame.type != "vote":
            return False
        self._count(frame)
        return True

    def _is_of_proposer(self, frame: HubFrame) -> bool:
        """Return whether a message goes to the proposer of the vote that the message names."""
        found = self._open.get(frame.ref) or self._ended.get(frame.ref)
        return found is not None and found.proposer in frame.to

    def _vote_in(self, frame: HubFrame) -> tuple[Vote, bool]:
        """Return the vote that a frame names, and whether the frame approves. Raise HubRefusal."""
        payload = frame.value("payload")
        approve = cast("dict[str, Any]", payload).get("approve") if isinstance(payload, dict) else None
        if not isinstance(approve, bool):
            raise HubRefusal("invalid_message", "the payload of a vote is {approve: true or false}")
        found = self._open.get(frame.ref) or self._ended.get(frame.ref)
        if found is None:
            raise HubRefusal("not_allowed", "`ref` is no proposal that is open")
        if found.status is not None:  # before its end is kept nobody is told how it ends
            how = f"has ended: {found.status}" if found.announced else "is being ended"
            raise HubRefusal("not_allowed", f"this vote {how}")
        if frame.ts >= found.deadline:
            raise HubRefusal("not_allowed", "this vote has ended: its deadline has passed")
        return found, approve

    def _count(self, frame: HubFrame) -> None:
        vote, approve = self._vote_in(frame)
        vote.votes[frame.sender] = approve
        approvals, rejections = self._tally(vote)
        if approvals * 2 > vote.quorum and approvals > rejections:
            self._end(frame.ref, vote, "passed")
        elif rejections * 2 > vote.quorum:
            self._end(frame.ref, vote, "rejected")
        else:
            self._keep(frame.ref, vote)

    def _tally(self, vote: Vote) -> tuple[int, int]:
        """Return the weight of the approvals and of the rejections."""
        sums = {True: 0, False: 0}
        for agent, approves in vote.votes.items():
            sums[approves] += self._weight(agent)
        return sums[True], sums[False]

    # ---- ends

    def _end(self, id: str, vote: Vote, status: Status) -> None:
        """End a vote: keep it, and then announce it."""
        vote.status = status
        self._again[id] = self.hub.now() + AGAIN
        self._due_is_known = False
        self.store.write({_key(id): msgspec.json.encode(vote)}, lambda: self._announce(id, vote))

    def _announce(self, id: str, vote: Vote) -> None:
        if self._open.pop(id, None) is None:
            return  # it was kept twice, after a failure of the store
        self._again.pop(id, None)
        self._due_is_known = False
        approvals, rejections = self._tally(vote)
        votes = {"approve": approvals, "reject": rejections}
        payload = {"status": vote.status, "votes": votes, "quorum": vote.quorum}
        self.hub.announce("vote_result", payload, id, id=f"{id}-result")
        vote.announced = True
        self._ended[id] = vote
        changes: dict[str, bytes | None] = {_key(id): msgspec.json.encode(vote)}
        while len(self._ended) > ENDED:
            changes[_key(self._ended.popitem(last=False)[0])] = None
        self.store.write(changes)

    def _keep(self, id: str, vote: Vote) -> None:
        self.store.write({_key(id): msgspec.json.encode(vote)})

    def due_at(self) -> int | None:
        """Return the time of the next deadline of a vote, or of the next attempt to store the end of one."""
        if not self._due_is_known:
            self._due = min((self._due_of(id, vote) for id, vote in self._open.items()), default=None)
            self._due_is_known = True
        return self._due

    def _due_of(self, id: str, vote: Vote) -> int:
        if id in self._again:
            return self._again[id]
        return self._quiet_until if vote.status is not None else max(vote.deadline, self._quiet_until)

    def due(self) -> None:
        """End the votes whose deadline has passed, and retry ends that could not be kept."""
        now = self.hub.now()
        for id, vote in tuple(self._open.items()):
            if self._due_of(id, vote) > now:
                continue
            approvals, rejections = self._tally(vote)
            has_voted = (approvals + rejections) * 2 > vote.quorum
            self._end(id, vote, vote.status or ("rejected" if has_voted else "expired"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _key(id: str) -> str:
    return f"vote {id}"
