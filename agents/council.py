"""A council that meets on a relay: its members ask what a matter costs, say what they think, and vote."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, Literal

import trio

from lmos_actors import ActionFailed, Agent, AgentError, Property, Ref, action, prop
from lmos_actors.facades import RelayAnswer, RelayMember, RelayMessage

Outcome = Literal["passed", "rejected", "expired"]

PRICES: Final = {"bridge": 70, "opera": 400, "park": 20}
"""What things cost. These are invented."""


class Treasurer(Agent):
    """Knows what things cost."""

    @action(answers=True, safe=True, concurrency=16)
    async def price(self, matter: str) -> int:
        """Return what a matter costs."""
        if matter not in PRICES:
            raise ActionFailed({"code": "NO_PRICE", "message": f"nobody knows what a {matter} costs"})
        await trio.sleep(0.1)  # it has to look it up
        return PRICES[matter]


class Councillor(Agent):
    """Is for what costs no more than its `limit`. `seat` is its way to the relay, `treasury` a name there."""

    seat: Ref[RelayMember]
    treasury: str
    limit: int

    def started(self) -> None:
        self.follow(self.seat, RelayMember.heard, self.on_heard)

    def on_heard(self, message: RelayMessage) -> None:
        """Take up what is asked or proposed."""
        if message.type in ("question", "proposal"):
            self.send(self.ref, Councillor.consider, message)

    @action(concurrency=8)
    async def consider(self, message: RelayMessage) -> None:
        """Find out what a matter costs, then answer a question, or vote on a proposal."""
        is_for = await self.is_for(message.payload)
        if is_for is None:
            return  # nobody knows what it costs: there is nothing to say
        if message.type == "proposal":
            await self.seat.invoke(RelayMember.answer, message, {"approve": is_for}, "vote")
        else:
            await self.seat.invoke(RelayMember.answer, message, "yes" if is_for else "no")

    async def is_for(self, matter: Any) -> bool | None:
        try:
            price = await self.seat.within(5.0).invoke(RelayMember.ask, matter, [self.treasury])
        except AgentError:
            return None
        return price.payload <= self.limit if isinstance(price.payload, int) else None


class Chair(Agent):
    """Puts matters to the vote of so many `members`, of which it is one."""

    seat: Ref[RelayMember]
    members: int
    patience: float = 2.0
    repeated: Property[int] = prop(default=0, read_only=True)
    """How often a member has voted twice on one matter."""

    def started(self) -> None:
        self.voted: dict[str, set[str]] = {}
        self.ends: dict[str, Outcome] = {}
        self.ended = trio.Event()
        self.follow(self.seat, RelayMember.heard, self.on_heard)
        self.follow(self.seat, RelayMember.said, self.on_said)

    def on_heard(self, message: RelayMessage) -> None:
        """Take note of who votes."""
        if message.type == "vote":
            voted = self.voted.setdefault(message.ref, set())
            self.repeated += message.sender in voted
            voted.add(message.sender)

    def on_said(self, word: RelayAnswer) -> None:
        """Take note of how a vote has ended."""
        if word.type == "vote_result" and isinstance(word.payload, dict):
            self.ends[word.ref] = word.payload["status"]
            self.ended.set()
            self.ended = trio.Event()

    @action(concurrency=8)
    async def decide(self, matter: str, unanimous: bool = False) -> Outcome:
        """Propose a matter, vote for it, and wait for the end of the vote."""
        deadline = self.now() + timedelta(seconds=self.patience)
        members: dict[str, Any] = {"deadline": int(deadline.timestamp() * 1000)}
        if unanimous:  # more than half of it are all members
            members["quorum"] = 2 * self.members - 1
        proposal = await self.seat.invoke(RelayMember.say, matter, type="proposal", members=members)
        assert proposal is not None  # the relay has receipts
        vote = {"approve": True}
        await self.seat.invoke(RelayMember.say, vote, ["relay"], "vote", proposal.id)
        while proposal.id not in self.ends:
            await self.ended.wait()
        return self.ends[proposal.id]
