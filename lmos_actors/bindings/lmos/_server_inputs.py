"""Input streams of a request from the wire: items are checked, and handed to the handler.

A consumer gets its first credit when the run begins, and more for each item that the handler takes, so the
items that wait here are never more than the window. An item of a wrong type breaks the stream off, as a near
caller's item does. The handler then gets `SourceFailed`, and if it does not catch this, the consumer gets the
error.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lmos_actors.actors import InputStream
from lmos_actors.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors._core import Timers
    from lmos_actors.actors import Operation, Parameter
    from lmos_actors.protocol import lmos


class ServerInput:
    """The items of one input stream, on their way to the handler."""

    __slots__ = ("_count", "_parameter", "items")

    def __init__(self, timers: Timers, parameter: Parameter) -> None:
        self.items = InputStream(timers, parameter.wire_name)
        self._parameter = parameter
        self._count = 0

    def begin(self, session: lmos.ThingSession, stream: lmos.Incoming) -> None:
        """Send the first credit, because the run has begun."""
        self.items.on_taken = partial(session.consumed, stream)
        session.ready(stream)

    def take(self, item: Any, session: lmos.ThingSession, stream: lmos.Incoming) -> None:
        """Check an item from the wire and pass it on; an item of a wrong type breaks the stream off."""
        name, count = self._parameter.wire_name, self._count
        self._count += 1
        try:
            self.items.put(self._parameter.shape.take(item, f"$.{name}[{count}]"))
        except InvalidInput as error:
            self.items.break_off(str(error))
            session.stop(stream, str(error))

    def end(self, reason: str | None) -> None:
        """End the stream; a `reason` means that it was broken off."""
        if reason is None:
            self.items.finish()
        else:
            self.items.break_off(reason)


def inputs_of(timers: Timers, op: Operation, streams: Mapping[str, lmos.Incoming]) -> dict[str, InputStream]:
    """Return the input streams of a request by the names of the parameters.

    Raises InvalidInput if the action has no such stream, or binary items come for a stream of JSON.
    """
    if streams and not op.streams:
        raise InvalidInput(f"{op.label} takes no streams", "$.streams")
    params = {op.params[place].wire_name: op.params[place] for place in op.streams}
    found: dict[str, InputStream] = {}
    for name, stream in streams.items():
        parameter = params.get(name)
        if parameter is None:
            raise InvalidInput(f"{op.label} takes no input stream {name!r}", f"$.streams.{name}")
        if stream.binary and parameter.shape.exact is not bytes:
            raise InvalidInput(
                f"the items of {name!r} are JSON, not {stream.content_type}", f"$.streams.{name}.contentType"
            )
        stream.host = made = ServerInput(timers, parameter)
        found[parameter.name] = made.items
    return found


def break_off(streams: Mapping[str, lmos.Incoming], reason: str) -> None:
    """Break off all input streams of a request, which itself goes on."""
    for stream in streams.values():
        if stream.host is not None:
            stream.host.end(reason)
