"""The runs, and the requests from other nodes, that wait for a run, directly or through further runs.

Waiters are looked up on demand, as in the waiting graph (`_waiting.py`): nothing is stored while agents work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ._remote_requests import Far
from .durable._keyed_requests import KeyedRequest
from .messages._invocation import CURRENT, OwnTask, Run, comes_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import trio

MOST: Final = 1_000
"""The most runs that are looked at for one run."""


class Awaited(Protocol):
    """A request, near or far, that tasks wait for."""

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        """Return the tasks that are parked until something happens to the request."""
        ...


def runs_awaiting(request: Awaited) -> Iterator[Run | OwnTask]:
    """Yield the runs that wait for a request; for a stream, the run that takes its items."""
    consumer = getattr(request, "consumer", None)
    if isinstance(consumer, Run | OwnTask):
        yield consumer
    for task in request.waiting_tasks():
        run = task.context.get(CURRENT)
        if run is not None:
            yield run


def is_cut_off(request: Any) -> bool:
    """Return whether a caller that abandons its request will make the request again."""
    return request.is_cut_off if isinstance(request, Far) else any(map(comes_back, runs_awaiting(request)))


def callers_of(
    runs: Iterable[Run | OwnTask], whole: Callable[[str], Run | OwnTask | None]
) -> tuple[list[Run | OwnTask], list[Any]]:
    """Return these runs with all that wait for them, and their requests, near and from afar.

    `whole` returns the run to which the work of the agent at a path belongs, None if there is none.
    """
    found = dict.fromkeys(runs)
    line, requests = list(found), list[Any]()
    for run in line:  # which grows
        above = whole(run.slot.path)
        callers = [] if above is None else [above]
        for request in requests_of(run.envelope):
            requests.append(request)
            callers += () if isinstance(request, Far) else runs_awaiting(request)
        for caller in callers:
            if caller not in found and len(line) < MOST:
                found[caller] = None
                line.append(caller)
    return line, requests


def requests_of(envelope: Any) -> Iterable[Any]:
    """Return the requests that wait for an envelope's answer: the envelope itself, or all with its key."""
    return envelope.callers if isinstance(envelope, KeyedRequest) else (envelope,)
