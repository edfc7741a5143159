"""What a thing says of its runs: statuses, progress, items, the end, and answers to queries and cancels.

By habits (PROTOCOLS D12, D13, D15, DECISIONS W1 and W6):

    event        spec                                          kotlin-wot
    pending      actionStatus pending                          nothing
    began        in progress, if pending was said              nothing
    progress     in progress with progress, the newest alone   nothing
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

from .._messages import ActionStatus
from ._requests import Asked, State, Withdrawn
from ._streams import Gathered

if TYPE_CHECKING:
    from lmos_actors.errors import LmosActorsError

    from .._messages import CancelAction, Error, QueryAction
    from ._desk import Desk

STATUS: Final = {State.WAITING: "pending", State.PENDING: "pending", State.RUNNING: "in progress"}
TOO_MANY: Final = "the answer has more items than fit into one message"


def say_pending(asked: Asked) -> None:
    """Say that a run waits; once, and not after it has begun."""
    if asked.state is not State.WAITING:
        return
    asked.state = State.PENDING
    _say(asked, STATUS[State.PENDING])


def say_began(asked: Asked) -> None:
    """Note that a run has begun; say so to whom was told that it waits."""
    if asked.state is State.PENDING:
        _say(asked, STATUS[State.RUNNING])
    asked.state = State.RUNNING


def _say(asked: Asked, status: str) -> None:
    for desk in _standing(asked):
        desk.outbox.put(desk.status(asked, status))


def _standing(asked: Asked) -> list[Desk]:
    """Return the connections that want to hear of a run before its end."""
    desks: tuple[Desk, ...] = (asked.desk, *asked.also)
    return [desk for desk in desks if asked in desk.open and not desk.kotlin]


def say_progress(asked: Asked, value: object) -> None:
    """Put out the progress of a run, in the place of older progress that waits."""
    asked.state = State.RUNNING
    asked.told = value
    if asked.slot is None:
        asked.slot = object()
    for desk in _standing(asked):
        desk.outbox.put_latest(asked.slot, desk.status(asked, STATUS[State.RUNNING], progress=value))


def has_room(asked: Asked) -> bool:
    """Whether an item may be put out now; always where nobody takes it."""
    return asked.out is None or not asked.out.open or asked.out.room


def put_item(asked: Asked, output: object) -> bool:
    """Put out an item; False if that was one too many for a peer that knows no streams.

    A run that has given items is not repeated to a peer that asks again: they are not kept.
    """
    desk: Desk = asked.desk
    if not has_room(asked):
        raise LocalProtocolError(f"{asked.name} has no credit for another item")
    if desk.kotlin:
        return _gather(desk, asked, output)
    if asked.out is None:
        asked.out = desk.streams.answer(asked, None)
    frames = desk.streams.output(asked.out, asked.name, output)
    for frame in frames:
        desk.put_frame(frame)
    for other in asked.also:
        if not other.kotlin:
            other.outbox.put(other.status(asked, STATUS[State.RUNNING], output=output))
    _gave_item(asked, desk)
    return True


def _gave_item(asked: Asked, desk: Desk) -> None:
    asked.state = State.RUNNING
    asked.slot = None  # newer progress must not overtake the item
    if desk.memory is not None:
        desk.memory.forget(asked)


def _gather(desk: Desk, asked: Asked, output: object) -> bool:
    asked.state = State.RUNNING
    if asked.gathered is None:
        asked.gathered = Gathered(desk.options.max_bytes)
    if asked.gathered.add(output):
        return True
    end(asked, ActionFailed(TOO_MANY), state=State.WITHDRAWN)
    return False


def complete(asked: Asked, output: object) -> None:
    """Say that a run has succeeded."""
    if asked.gathered is not None and output is UNSET:
        output = asked.gathered.items
    desk: Desk = asked.desk
    run = asked.message
    # as `Desk.status` makes it, in fewer steps: nearly every run ends so
    status = ActionStatus(
        thing_id=run.thing_id,
        message_id=desk.new_id(),
        correlation_id=desk.open.get(asked, asked.correlation),
        action=run.action,
        status="completed",
        output=output,
    )
    desk.settle(asked, status, completed=True)


def end(asked: Asked, error: LmosActorsError, *, state: State = State.ANSWERED) -> None:
    """Say that a run has failed, was cancelled, or could not be carried out."""
    desk: Desk = asked.desk
    desk.settle(asked, _failure(desk, asked, error), state=state)


def _failure(desk: Desk, asked: Asked, error: LmosActorsError) -> ActionStatus | Error:
    if not desk.kotlin and isinstance(error, ActionFailed):
        return desk.status(asked, "failed", output=error.output)
    if not desk.kotlin and isinstance(error, ActionCancelled):
        return desk.status(asked, "failed", output=None, cancelled=True, reason=error.reason)
    return desk.error(asked.thing_id, error, desk.open.get(asked, asked.correlation))


def answer_query(desk: Desk, message: QueryAction) -> None:
    """Answer with the latest status of the run that is meant."""
    found = desk.runs.find(message, reversed(desk.open))
    if found is None:
        desk.refuse(message, _no_run(message))
    elif isinstance(found, Asked):
        _answer_live(desk, message, found)
    else:
        _reply(desk, message, found.final, found.correlation)


def _answer_live(desk: Desk, message: QueryAction, run: Asked) -> None:
    try:
        _reply(desk, message, desk.status(run, STATUS[run.state], progress=run.told), desk.open[run])
    except LocalProtocolError:  # progress that cannot be written: `frames` says so to the host
        run.told = UNSET
        _reply(desk, message, desk.status(run, STATUS[run.state]), desk.open[run])


def _reply(desk: Desk, message: QueryAction | CancelAction, status: Any, correlation: str) -> None:
    if desk.kotlin:  # there, any status with the correlation of a run ends it
        correlation = message.message_id
    desk.outbox.put(desk.retold(status, correlation, message.message_id))
    desk.counts.answered += 1


def _no_run(message: QueryAction | CancelAction) -> NotFound:
    return NotFound("run of action", message.action, where=message.thing_id)


def cancel(desk: Desk, message: CancelAction) -> tuple[Withdrawn, ...]:
    """Return the run that is meant its final answer, which answers the cancel as well."""
    found = desk.runs.find(message, reversed(desk.open))
    if found is None:
        desk.refuse(message, _no_run(message))
        return ()
    if not isinstance(found, Asked):
        _reply(desk, message, found.final, found.correlation)
        return ()
    return _cancelled(desk, message, found)


def _cancelled(desk: Desk, message: CancelAction, run: Asked) -> tuple[Withdrawn, ...]:
    owner: Desk = run.desk
    error = ActionCancelled(message.reason)
    status = desk.status(run, "failed", output=None, cancelled=True, reason=message.reason)
    reply = None if desk.kotlin else (desk, message.message_id)
    owner.settle(run, _failure(owner, run, error), state=State.WITHDRAWN, reply=reply)
    if desk.kotlin:
        _reply(desk, message, status, message.message_id)
    else:
        desk.counts.answered += 1
    return (Withdrawn(run, message.reason),)
