"""The views of a node's network on its page: its connections, and its registration at directories.

The functions return plain data without null, at once, and within bounds; see `docs/reference/live.md`.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.errors import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lmos_actors._core import Budget
    from lmos_actors.bindings import LmosServer, Peers
    from lmos_actors.discovery import Registered
    from lmos_actors.transport import FrontDoor

    State = dict[str, Any]

ROWS: Final = 200
"""The maximum number of rows of one kind in a view."""
UNSENT: Final = 20
"""The maximum number of unsent messages to one node that a view lists."""
FAILURES: Final = 10
CHARACTERS: Final = 300


def connections_view(
    doors: Iterable[tuple[str, FrontDoor]],
    server: LmosServer,
    peers: Peers | None,
    budget: Budget,
    failures: Sequence[BaseException],
) -> State:
    """Return the front doors, the incoming and outgoing connections, and the memory that peers hold."""
    served, known = list(server.served), [] if peers is None else list(peers.known)
    return {
        "doors": [{"url": url, **_counts(door)} for url, door in doors],
        "clients": [_client(each) for each in served[:ROWS]],
        "clients_total": len(served),
        "peers": [_peer(each) for each in known[:ROWS]],
        "peers_total": len(known),
        "memory": attrs.asdict(budget.statistics()),
        "draining": server.statistics().draining,
        "turned_away": {str(status): count for status, count in server.not_let_in.items()},
        "failures": [
            f"{type(error).__name__}: {text_of(error)}"[:CHARACTERS] for error in list(failures)[-FAILURES:]
        ],
    }


def _counts(door: FrontDoor) -> State:
    counts = attrs.asdict(door.statistics())
    return {**counts, "refused": dict(counts["refused"])}


def _client(each: Any) -> State:
    """Return the row of one LMOS client."""
    counts, passed = each.session.statistics(), each.connection.statistics()
    return {
        "peer": each.label,
        **_named("principal", each.principal),
        "open": counts.open,
        "listening": counts.listening,
        "waiting": counts.waiting,
        "waiting_bytes": counts.waiting_bytes,
        "held_bytes": each.connection.account.bytes,
        "draining": each.draining,
        **_credit(each.session.tell_credit),
        **attrs.asdict(passed),
    }


def _peer(each: Any) -> State:
    unsent: list[tuple[str, Any]] = list(islice(each.unsent(), UNSENT + 1))
    return {
        "place": each.place,
        "connected": each.is_connected,
        "open": each.open_requests,
        **_credit(each.tell_credit),
        "unsent": [
            {"for": kind, "agent": message.path, "affordance": message.affordance}
            for kind, message in unsent[:UNSENT]
        ],
        "more_unsent": len(unsent) > UNSENT,
    }


def _credit(found: tuple[Any, Any] | None) -> State:
    """Return the credit for one-way messages: the spent part, and the size of the window."""
    if found is None:
        return {}
    window, spent = found
    return {
        "credit": {
            "messages": spent.items,
            "of_messages": window.items,
            "bytes": spent.bytes,
            "of_bytes": window.bytes,
        }
    }


def _named(name: str, value: Any) -> State:
    return {} if value is None else {name: value}


def directories_view(registrations: Sequence[Registered]) -> State:
    """Return the registrations of the node's agents."""
    return {
        "registrations": [
            {
                "directory": each.directory,
                "agents": each.agents,
                "refused": {path: why[:CHARACTERS] for path, why in islice(each.refused.items(), ROWS)},
                **_named("failure", each.failure),
            }
            for each in registrations
        ],
    }
