"""Leader election by rank: of the candidates that are alive, the one of highest rank leads.

It is the bully algorithm. The leader lets all hear its heartbeat. Whoever misses it asks who of higher rank
is there, and leads if none says so in time. A candidate that comes back takes over from those below it, which
make way when it stands. In a network that is cut each side has a leader, until it is whole again.
"""

from __future__ import annotations

from lmos_actors import Agent, Property, Ref, action, prop


class Candidate(Agent):
    """One of several candidates, no two of the same rank."""

    rank: int
    neighbours: tuple[Ref[Candidate], ...] = ()
    beat: float = 0.1  # seconds between two heartbeats; a leader that misses three is looked for
    leader: Property[int] = prop(default=-1, read_only=True, doc="Rank of the leader, -1 if unknown.")
    leading: Property[bool] = prop(default=False, read_only=True)
    missed: int = 0
    standing: bool = False
    outranked: bool = False

    def started(self) -> None:
        self.after(self.beat, self.tick)

    def tick(self) -> None:
        """Lead, or look whether somebody does."""
        self.after(self.beat, self.tick)
        if self.leading:
            self.tell_all()
            return
        self.missed += 1
        if self.missed > 3 and not self.standing:
            self.stand()

    def stand(self) -> None:
        """Ask who is of higher rank; in two beats it is known."""
        self.standing, self.outranked = True, False
        for other in self.neighbours:
            self.send(other, Candidate.who_is_above, self.rank)
        self.after(2 * self.beat, self.decide)

    def decide(self) -> None:
        """Lead if nobody of higher rank was there, and nobody has begun to lead meanwhile."""
        self.standing = False
        if not self.outranked and self.missed > 3:
            self.leading, self.leader = True, self.rank
            self.tell_all()

    def tell_all(self) -> None:
        for other in self.neighbours:
            self.send(other, Candidate.heartbeat, self.rank)

    @action
    def who_is_above(self, rank: int) -> None:
        """A candidate of that rank misses the leader."""
        if self.rank > rank:
            for other in self.neighbours:
                self.send(other, Candidate.i_am_here, self.rank)
        elif self.leading:
            self.leading, self.missed = False, 0

    @action
    def i_am_here(self, rank: int) -> None:
        """A candidate of that rank is alive."""
        if rank > self.rank:
            self.outranked = True

    @action
    def heartbeat(self, rank: int) -> None:
        """A candidate of that rank leads. Those above it do not follow: they stand against it."""
        if rank > self.rank:
            self.missed = 0
            self.leading, self.leader = False, rank
