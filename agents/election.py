"""Leader election by rank: the candidate of the highest rank that is alive leads, and proves it by beating.

It is the bully algorithm: who misses the leader asks all of higher rank whether one of them is there, and
leads if none answers in time.
"""

from __future__ import annotations

from lmos_actors import Agent, Event, Property, Ref, action, event, prop


class Candidate(Agent):
    """One of several candidates; ranks differ. A leader says every `beat` seconds that it lives."""

    rank: int
    neighbours: tuple[Ref[Candidate], ...] = ()
    beat: float = 0.1
    leader: Property[int] = prop(default=-1, read_only=True, doc="Rank of the leader, -1 if unknown.")
    leading: Property[bool] = prop(default=False, read_only=True)
    elected: Event[int] = event(doc="A candidate has become the leader; its rank.")
    misses: int = 0
    waiting: bool = False
    answered: bool = False

    def started(self) -> None:
        self.after(self.beat, self.tick)

    def tick(self) -> None:
        """Lead, or look whether somebody does."""
        self.after(self.beat, self.tick)
        if self.leading:
            self.tell_all()
            return
        self.misses += 1
        if self.misses > 3 and not self.waiting:
            self.stand()

    def stand(self) -> None:
        """Ask those of higher rank whether they live; in two beats it is known."""
        self.waiting, self.answered = True, False
        for other in self.neighbours:
            self.send(other, Candidate.is_anybody_there, self.rank)
        self.after(2 * self.beat, self.count_answers)

    def count_answers(self) -> None:
        self.waiting = False
        if not self.answered and self.misses > 3:
            self.leading, self.leader = True, self.rank
            self.elected.emit(self.rank)
            self.tell_all()

    def tell_all(self) -> None:
        for other in self.neighbours:
            self.send(other, Candidate.heartbeat, self.rank)

    @action
    def is_anybody_there(self, rank: int) -> None:
        """A candidate of that rank misses the leader; who is of higher rank says that it lives."""
        if self.rank > rank:
            for other in self.neighbours:
                self.send(other, Candidate.i_am_here, self.rank)

    @action
    def i_am_here(self, rank: int) -> None:
        """A candidate of that rank lives and will lead, or knows who does."""
        self.answered = self.answered or rank > self.rank

    @action
    def heartbeat(self, rank: int) -> None:
        """The leader lives. One of lower rank is not followed by those above it: they stand against it."""
        if rank < self.rank:
            return
        self.leading = False
        self.misses = 0
        self.leader = rank
