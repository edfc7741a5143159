"""Messages of a thing about its runs: statuses, progress, items, the end, answers to queries and cancels.

By the habits of the peer:

    event        spec                                          kotlin-wot
    pending      actionStatus pending                          nothing
    began        in progress, if pending was sent              nothing
    progress     in progress with progress, the newest alone   nothing
    asks         in progress with the question to a person     nothing
    item         in progress with output, or binary frame      gathered into the one final output
    complete     completed, with output if there is one        completed, output null if there is none
    fail         failed for a declared failure, else error     error, 500 for a declared failure
    cancel       failed and cancelled, one frame for both      error for the run, failed for the cancel
    query        the latest status, correlated with the run    the latest status, correlated with the query
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.errors import ActionCancelled, ActionFailed, LocalProtocolError, NotFound

from .._limits import FINITE
from .._messages import ActionStatus
from ._requests import IncomingRequest, RequestWithdrawn, State, WaitsAsked
from ._streams import ItemCollector

if TYPE_CHECKING:
    from lmos_actors.errors import LmosActorsError

    from .._messages import CancelAction, Error, QueryAction
    from ._connection import ThingConnection

STATUS: Final = {State.WAITING: "pending", State.PENDING: "pending", State.RUNNING: "in progress"}


def send_pending(request: IncomingRequest) -> None:
    """Report that a run is waiting, once, unless it has already begun."""
    if request.state is not State.WAITING:
        return
    request.state = State.PENDING
    _send_status(request, STATUS[State.PENDING])


def send_began(request: IncomingRequest) -> None:
    """Record that a run has begun, and report this if `pending` was sent."""
    if request.state is State.PENDING:
        _send_status(request, STATUS[State.RUNNING])
    request.state = State.RUNNING


def _send_status(request: IncomingRequest, status: str) -> None:
    for connection in _listening_connections(request):
        connection.outbox.put(connection.status(request, status))


def _listening_connections(request: IncomingRequest) -> list[ThingConnection]:
    """Return the connections that get messages about a run before it ends."""
    connections: tuple[ThingConnection, ...] = (request.connection, *request.also)
    return [connection for connection in connections if request in connection.open and not connection.kotlin]


def send_progress(request: IncomingRequest, value: object) -> None:
    """Send the progress of a run, in place of older progress that still waits."""
    request.state = State.RUNNING
    if request.slot is None:
        request.slot = object()
    for connection in _listening_connections(request):
        waits = _asked(request, connection)
        status = connection.status(request, STATUS[State.RUNNING], progress=value, waits=waits)
        connection.outbox.put_latest(request.slot, status)
    request.latest_progress = value


def send_question(request: IncomingRequest, question: dict[str, Any] | None) -> None:
    """Send the question to a person that a run waits for, or None once it no longer waits."""
    request.question = question
    for connection in _listening_connections(request):
        if "questions" in connection.options.offers:
            connection.outbox.put(connection.status(request, STATUS[State.RUNNING], waits=question))


def _asked(request: IncomingRequest, connection: ThingConnection) -> dict[str, Any] | None:
    """Return the run's question to a person, None if there is none or `questions` are not offered."""
    return request.question if "questions" in connection.options.offers else None


def has_room(request: IncomingRequest) -> bool:
    """Return whether an item may be sent now. This is always true if there is no open stream for items."""
    return request.out is None or not request.out.open or request.out.room


def put_item(request: IncomingRequest, output: object) -> bool:
    """Send an item; return False if it was one too many for a peer without streams.

    The answer of a run that has sent items is not remembered for a repeat, because the items are not kept.
    """
    connection: ThingConnection = request.connection
    if not has_room(request):
        raise LocalProtocolError(f"{request.name} has no credit for another item")
    if connection.kotlin:
        request.state = State.RUNNING
        if request.gathered is None:
            request.gathered = ItemCollector(connection.options.max_bytes)
        fits = request.gathered.add(output)
        if not fits:
            error = ActionFailed("the answer has more items than fit into one message")
            end(request, error, state=State.WITHDRAWN)
        return fits
    if request.out is None:
        request.out = connection.streams.answer(request, None)
    frames = connection.streams.output(request.out, request.name, output)
    for frame in frames:
        connection.put_frame(frame)
    for other in request.also:
        if not other.kotlin:
            waits = _asked(request, other)
            other.outbox.put(other.status(request, STATUS[State.RUNNING], output=output, waits=waits))
    request.state = State.RUNNING
    request.slot = None  # newer progress must not overtake the item
    if connection.memory is not None:
        connection.memory.forget(request)
    return True


def complete(request: IncomingRequest, output: object) -> None:
    """End a run that has succeeded."""
    if request.gathered is not None and output is UNSET:
        output = request.gathered.items
    connection: ThingConnection = request.connection
    run = request.message
    # as `ThingConnection.status` makes it, in fewer steps: nearly every run ends so
    status = ActionStatus(
        thing_id=run.thing_id,
        message_id=connection.new_id(),
        correlation_id=connection.open.get(request, request.correlation),
        action=run.action,
        status="completed",
        output=output,
    )
    connection.settle(request, status, completed=True, checked=type(output) in FINITE)


def end(request: IncomingRequest, error: LmosActorsError, *, state: State = State.ANSWERED) -> None:
    """End a run that has failed, was cancelled, or could not be carried out."""
    connection: ThingConnection = request.connection
    connection.settle(request, _failure(connection, request, error), state=state)


def _failure(
    connection: ThingConnection, request: IncomingRequest, error: LmosActorsError
) -> ActionStatus | Error:
    if not connection.kotlin and isinstance(error, ActionFailed):
        return connection.status(request, "failed", output=error.output)
    if not connection.kotlin and isinstance(error, ActionCancelled):
        return connection.status(request, "failed", output=None, cancelled=True, reason=error.reason)
    return connection.error(request.thing_id, error, connection.open.get(request, request.correlation))


def answer_query(connection: ThingConnection, message: QueryAction) -> None:
    """Answer a query with the latest status of its run."""
    found = connection.runs.find(message, reversed(connection.open))
    if found is None:
        connection.refuse(message, _no_run(message))
    elif isinstance(found, IncomingRequest):
        _answer_live(connection, message, found)
    else:
        _reply(connection, message, found.final, found.correlation)


def tell_waits(connection: ThingConnection, asked: WaitsAsked, waits: dict[str, Any]) -> None:
    """Answer a query with what the run waits for, or with only its status once the run has ended."""
    run = asked.request
    if run in connection.open:
        status = connection.status(run, STATUS[run.state], waits=waits)
        _reply(connection, asked.message, status, connection.open[run])
    else:
        answer_query(connection, asked.message)


def _answer_live(connection: ThingConnection, message: QueryAction, run: IncomingRequest) -> None:
    try:
        _reply(
            connection,
            message,
            connection.status(run, STATUS[run.state], progress=run.latest_progress),
            connection.open[run],
        )
    except LocalProtocolError:  # progress that cannot be written, reported where it was not sent
        run.latest_progress = UNSET
        _reply(connection, message, connection.status(run, STATUS[run.state]), connection.open[run])


def _reply(
    connection: ThingConnection, message: QueryAction | CancelAction, status: Any, correlation: str
) -> None:
    if connection.kotlin:  # there, any status with the correlation of a run ends it
        correlation = message.message_id
    connection.outbox.put(connection.readdressed(status, correlation, message.message_id))
    connection.counts.answered += 1


def _no_run(message: QueryAction | CancelAction) -> NotFound:
    return NotFound("run of action", message.action, where=message.thing_id)


def cancel(connection: ThingConnection, message: CancelAction) -> tuple[RequestWithdrawn, ...]:
    """End the run that a cancel names; the run's final answer is also the answer to the cancel."""
    found = connection.runs.find(message, reversed(connection.open))
    if found is None:
        connection.refuse(message, _no_run(message))
        return ()
    if not isinstance(found, IncomingRequest):
        _reply(connection, message, found.final, found.correlation)
        return ()
    return _cancelled(connection, message, found)


def _cancelled(
    connection: ThingConnection, message: CancelAction, run: IncomingRequest
) -> tuple[RequestWithdrawn, ...]:
    owner: ThingConnection = run.connection
    error = ActionCancelled(message.reason)
    status = connection.status(run, "failed", output=None, cancelled=True, reason=message.reason)
    reply = None if connection.kotlin else (connection, message.message_id)
    owner.settle(run, _failure(owner, run, error), state=State.WITHDRAWN, reply=reply)
    if connection.kotlin:
        _reply(connection, message, status, message.message_id)
    else:
        connection.counts.answered += 1
    return (RequestWithdrawn(run, message.reason),)
