"""Actions that give many items, over HTTP: each item is an event of the answer to the invocation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.errors import LmosActorsError, LocalProtocolError
from lmos_actors.protocol.lmos import problem_of, written

from ._answers import problem_data
from ._listening import END, HEAD, HEARTBEAT, framed
from ._values import written_value

if TYPE_CHECKING:
    from ._agent_request import AgentRequest
    from ._request_tracker import HttpRequestTracker
    from ._requests import WebRequest

ITEM: Final = "item"


async def streamed(tracker: HttpRequestTracker, request: WebRequest, ask: AgentRequest) -> None:
    """Send the items of a run as they come, then how it has ended.

    Raises the error that comes in place of a first item; a later one is sent as the end. Cancelled,
    it takes the request back.
    """
    try:
        if not (ask.done or ask.items):
            await _wait(ask)
        if ask.done and not ask.items:
            ask.outcome()
        await request.send({"type": "http.response.start", "status": 200, "headers": list(HEAD)})
        while ask.items or not ask.done:
            items = ask.taken()
            body = b"".join([framed(ITEM, written_value(item)) for item in items])
            await _send(request, body or b":\n\n", more=True)
            if not (ask.items or ask.done):
                await _wait(ask)
    except BaseException:
        ask.left()
        raise
    await _send(request, framed(END, _end(tracker, ask)), more=False)


async def _wait(ask: AgentRequest) -> None:
    with trio.move_on_after(HEARTBEAT):
        await ask.something()


async def _send(request: WebRequest, body: bytes, *, more: bool) -> None:
    await request.send({"type": "http.response.body", "body": body, "more_body": more})


def _end(tracker: HttpRequestTracker, ask: AgentRequest) -> bytes:
    if ask.error is None:
        return b"null"
    error = ask.error
    if not isinstance(error, LmosActorsError):
        tracker.context.failed(error)
        error = LocalProtocolError("the answer could not be made")
    return written(problem_data(problem_of(error), tracker.rt.entropy.new_id()))
