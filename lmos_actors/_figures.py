"""A node's connections in numbers, for its metrics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from .observe import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._budget import Budget
    from .bindings import LmosServer, Peers
    from .transport import FrontDoor


def traffic_of(
    doors: Iterable[FrontDoor], server: LmosServer | None, peers: Peers | None, budget: Budget
) -> Traffic:
    """Count the connections at these doors, and those to peers."""
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
