"""The clients behind requests, which agents can ask in return: users, models, and readers of logs.

A program that has sent a request over a connection may carry out something for the agent that answers it, as
clients of MCP do. Further agents that this agent asks may use the client, too: it is found by following the
requests that wait for the asking run (`_callers.py`), and the nearest client counts.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.errors import ActionFailed, ToolFailed

from ._callers import callers_of, requests_of
from ._remote_requests import Far
from ._runtime import RUNTIME
from .messages._invocation import CURRENT

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from ._remote_requests import RequestClient
    from .messages._invocation import OwnTask, Run
    from .slot._slot import Slot


CLIENT_FAILED: Final = "CLIENT_FAILED"
"""The code of a failure: the client cannot do what an agent asks of it, refuses, or is silent."""


def client_of(*runs: Run | OwnTask | None) -> RequestClient | None:
    """Return the client that waits for any of these runs, directly or through other agents, or None."""
    known = [run for run in runs if run is not None]
    if not known:
        return None
    approvals = known[0].slot.rt.approvals
    _, requests = callers_of(known, _none if approvals is None else approvals.clocks.run_above)
    clients = (each.client for each in requests if isinstance(each, Far))
    return next((client for client in clients if client is not None), None)


def _none(_: str) -> None:
    return None


async def answer_of_client(name: str, arguments: Mapping[str, Any]) -> Any:
    """Return the client's answer. Raises ActionFailed, as a fault of the client must not end the agent."""
    try:
        return await ask_client(name, arguments)
    except ToolFailed as error:
        raise ActionFailed({"code": CLIENT_FAILED, "message": f"{name}: {error.reason}"}) from None


async def ask_client(name: str, arguments: Mapping[str, Any]) -> Any:
    """Ask the client of the current run to carry out something. Raises ToolFailed."""
    client = client_of(CURRENT.get())
    if client is None:
        raise ToolFailed(name, "the client carries out no tools")
    return await client.carry_out(name, arguments)


def log_of(slot: Slot) -> Any:
    """Return a new structlog logger for an agent, whose lines also reach the current request's client."""
    import structlog

    made: Any = structlog.get_logger().bind(agent=slot.path, incarnation=slot.incarnation)
    with suppress(Exception):  # a class of the user's own, which need not have others below it
        made.__class__ = _shown(made.__class__)
    return made


@cache
def _shown(cls: Hashable) -> Any:
    """Return a class of loggers that send each line to the client of the current request, then log it."""

    base: Any = cls

    class Logger(base):  # type: ignore[misc]
        def _proxy_to_logger(self, method_name: str, event: Any = None, *args: Any, **fields: Any) -> Any:
            run, rt = CURRENT.get(), RUNTIME.get()
            requests: Iterable[Any] = ()
            if run is not None:
                requests = requests_of(run.envelope)
            elif rt is not None and rt.turns.slot is not None:
                requests = requests_of(rt.turns.current)
            for request in requests:
                if isinstance(request, Far) and request.client is not None:
                    request.client.logged(method_name, event, fields)
            return super()._proxy_to_logger(method_name, event, *args, **fields)  # pyright: ignore

    return Logger  # pyright: ignore[reportUnknownVariableType]
