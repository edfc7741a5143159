"""The request that the running code is working on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trio.lowlevel import current_task

from ._runtime import RUNTIME
from .durable._keyed_requests import KeyedRequest
from .messages._invocation import CURRENT, OwnTask, Run
from .messages._mailbox import Envelope, InternalTurn, Request, trace_text
from .messages._operation import Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from .messages._mailbox import Mark


def is_agents_code() -> bool:
    """Return whether the running code is an agent's: a turn, a run, or one of the agent's own tasks."""
    rt = RUNTIME.get()
    return CURRENT.get() is not None or (rt is not None and rt.turns.slot is not None)


def paths_of_request() -> tuple[str | None, str | None]:
    """Return the paths of the agent that runs this code, and of the agent that requested the run.

    The first is None outside a run. The second is None unless an agent of this node made the request.
    """
    run = CURRENT.get()
    if run is None:
        return None, None
    request = run.request if isinstance(run, OwnTask) else run.envelope.request()
    is_near = request is not None and request.allows is None
    return run.slot.path, request.consumer if request is not None and is_near else None


def on_caller_left(callback: Callable[[], object]) -> None:
    """Call a function at the instant at which the caller of the current run leaves.

    That is when the run is cancelled for its caller, who has ended or waits no longer. The end of the agent's
    incarnation, or a caller who leaves after that end, does not count. A later function replaces this one.
    The function must not block or raise. Outside runs, do nothing.
    """
    run = CURRENT.get()
    if run is not None and not isinstance(run, OwnTask):
        run.at_withdrawal = callback


def current_run() -> Run | OwnTask | None:
    """Return the current run or own task of an agent; None in a turn and outside agents."""
    return CURRENT.get()


def on_run_ended(run: Run | OwnTask, callback: Callable[[], object]) -> None:
    """Call a function when a run, or an agent's own task, has ended in any way.

    A later function replaces this one. The function must not block or raise.
    """
    run.at_end = callback


def key_of_request(run: Run | OwnTask) -> str | None:
    """Return the name of a run's request key, or None; it is the same in the agent's next life."""
    envelope = run.envelope
    return envelope.key.name if isinstance(envelope, KeyedRequest) else None


def current_request() -> Request:
    """Return the request that the current code carries out: its content and its consumer.

    Raises LookupError outside an agent's turns and runs.
    """
    run = CURRENT.get()
    if isinstance(run, OwnTask):
        if run.request is None:
            raise LookupError("this task of an agent was not started by a run, so it belongs to no request")
        return run.request
    if run is not None:
        return run.envelope.request()
    rt = RUNTIME.get()
    if rt is None or rt.turns.slot is None:
        raise LookupError("no agent's turn or run is in progress here")
    item = rt.turns.current
    if isinstance(item, InternalTurn):
        return Request(affordance=item.affordance, trace=trace_text(item.trace))
    if isinstance(item, Envelope):
        return item.request()
    op: Operation | None
    sender: Any
    mark: Mark | None
    if isinstance(item, Operation):
        asker = current_task().context.get(CURRENT)
        op, sender = item, asker.slot if asker is not None else None
        mark = asker.envelope.trace if asker is not None else None
    else:
        op, _, sender = item
        mark = getattr(item, "trace", None)
    return Request(
        affordance=op.name if op is not None else "started",
        consumer=sender.path if sender is not None else None,
        trace=trace_text(mark),
    )
