"""Candidates that elect a leader by terms. After a cut there may be two, for good."""

from __future__ import annotations

from lmos_actors import Agent, Property, Ref, action, prop


class Candidate(Agent):
    """One of several candidates. Whoever misses the leader leads in the next term; a newer term counts more.

    Planted: a leader does not make way for another one of the same term. Two that stand at the same time, as
    they do not hear each other, both lead from then on.
    """

    rank: int
    neighbours: tuple[Ref[Candidate], ...] = ()
    beat: float = 0.2
    leading: Property[bool] = prop(default=False, read_only=True)
    contested: Property[int] = prop(default=0, doc="Heartbeats of other leaders that this leader has heard.")
    term: int = 0
    missed: int = 0

    def started(self) -> None:
        self.after(self.beat, self.tick)

    def tick(self) -> None:
        """Lead, or look whether somebody does. Those of low rank are the first to stand."""
        self.after(self.beat, self.tick)
        self.missed += 1
        if not self.leading and self.missed > 3 + self.rank:
            self.leading, self.contested = True, 0
            self.term += 1
        if self.leading:
            for neighbour in self.neighbours:
                self.send(neighbour, Candidate.heartbeat, self.term, self.rank)

    @action
    def heartbeat(self, term: int, rank: int) -> None:
        """Hear that a candidate leads in a term."""
        if term < self.term or (self.leading and not self.yields_to(term, rank)):
            self.contested += self.leading
            return
        self.leading, self.term, self.missed = False, term, 0

    def yields_to(self, term: int, rank: int) -> bool:
        return term > self.term


class RightCandidate(Candidate):
    """A candidate that makes way for one of lower rank in the same term."""

    def yields_to(self, term: int, rank: int) -> bool:
        return (term, -rank) > (self.term, -self.rank)
