"""The traffic of one node: counts of its connections, and bounded warnings that peers can cause."""

from __future__ import annotations

import logging
from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmos_actors._core import Budget
    from lmos_actors.bindings import LmosServer, Peers
    from lmos_actors.observe import Traffic
    from lmos_actors.transport import FrontDoor

WARNED: Final = 5
"""The maximum number of warnings about peers that are logged within `WARNED_SECONDS`."""

WARNED_SECONDS: Final = 60.0


def traffic_of(
    doors: Iterable[FrontDoor], server: LmosServer | None, peers: Peers | None, budget: Budget
) -> Traffic:
    """Return the counts of connections at the front doors and to peers, for metrics."""
    from lmos_actors.observe import Traffic

    counts = [door.statistics() for door in doors]
    refused: Counter[str] = Counter()
    for count in counts:
        refused.update(count.refused)
    served = None if server is None else server.statistics()
    known = {} if peers is None else peers.statistics()
    return Traffic(
        connections=sum(count.open for count in counts),
        accepted=sum(count.accepted for count in counts),
        refused=refused,
        turned_away={} if server is None else dict(server.not_let_in),
        open_requests=0 if served is None else served.open,
        draining=served is not None and served.draining,
        peers=known.get("peers", 0),
        peers_connected=known.get("connected", 0),
        held=budget.statistics(),
    )


class BoundedWarnings:
    """Warnings that any peer can cause: the first few of each minute are logged, the rest counted.

    The count is logged with the next warning.
    """

    def __init__(self, subject: str, *, real: bool) -> None:
        self._subject = subject
        self._real = real
        self._left = 0
        self._until = -inf
        self._unlogged = 0

    def warn(self, text: str) -> None:
        """Log a line, or only count it if there were too many."""
        if not self._real:
            return
        now = trio.current_time()
        if now >= self._until:
            self._until, self._left = now + WARNED_SECONDS, WARNED
        if not self._left:
            self._unlogged += 1
            return
        self._left -= 1
        missed = f" ({self._unlogged} more were not logged)" if self._unlogged else ""
        more = "" if self._left else f"; more within {WARNED_SECONDS:g} s are only counted"
        self._unlogged = 0
        logging.getLogger("lmos_actors").warning("%s: %s%s%s", self._subject, text, missed, more)
