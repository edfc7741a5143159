"""Execution of `record`: it runs the recorder until a signal comes, and prints the results."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import trio

from lmos_actors._core import printable
from lmos_actors.errors import ConfigError, TransportError
from lmos_actors.recording import record
from lmos_actors.reports import count

from ._exit_codes import FAILED, NOT_REACHED, OK
from ._loop import first_of
from ._signals import signals
from ._texts import explained

if TYPE_CHECKING:
    from lmos_actors.recording import Recorded, RecordRequest


def record_until_signal(request: RecordRequest) -> int:
    """Record until a signal comes. Returns the exit code. Raises ConfigError, OSError."""

    def announce(url: str) -> None:
        ends = "when the clients that came have left" if request.once else "at Ctrl-C"
        print(f"recording {request.to}: connect to {url}; ends {ends}", flush=True)

    async def recorded() -> Recorded:
        return await record(request, on_listening=announce, on_note=_complain)

    failure: BaseException | None = None
    code = NOT_REACHED
    try:
        with signals.in_order():
            code = _sum_up(trio.run(recorded))
    except* (ConfigError, TransportError, OSError) as group:
        failure = first_of(group)
    if isinstance(failure, TransportError):
        _complain(explained(failure))
    elif isinstance(failure, ConfigError) and failure.__cause__ is not None:  # an address that is taken
        _complain(str(failure))
    elif failure is not None:
        raise failure
    return code


def _complain(text: str) -> None:
    print(f"lmos-actors: {printable(text)}", file=sys.stderr, flush=True)


def _sum_up(found: Recorded) -> int:
    many = f"{count(found.sockets, 'WebSocket')}, {count(found.http_requests, 'HTTP request')}"
    asked = f"{count(found.requests, 'request')} to agents"
    print(f"recorded {many}, {asked}, {found.records} records: {found.file}", flush=True)
    troubles = (
        (found.refused, "refused by the server"),
        (found.unreachable, "not reached"),
        (found.lost, "cut by the server"),
        (found.unread, "not understood"),
    )
    for number, what in troubles:
        if number:
            print(f"  {number} {what}", flush=True)
    if found.unreachable or found.lost:
        return NOT_REACHED
    return FAILED if found.refused and not found.sockets else OK
