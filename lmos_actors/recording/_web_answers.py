"""Answers over HTTP that are more than one value: items, observed values, events, and continuing runs.

A run is identified by the path in the answer to its invocation. If several streams of one property or event
are open, only the first counts, so that each value of a thing is recorded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import attrs
import msgspec
from msgspec import UNSET

from lmos_actors.bindings.http_client import BadAnswer, EventReader
from lmos_actors.errors import ActionFailed
from lmos_actors.files import mapped
from lmos_actors.protocol import lmos

from ._problems import error_in
from ._transcript import MISSING

if TYPE_CHECKING:
    from ._things import Operation, Thing
    from ._transcript import Transcript

EVENTS: Final = "text/event-stream"
LINES: Final = ("application/x-ndjson", "application/jsonl")
END: Final = "lmosx:end"
GAP: Final = "lmosx:gap"

LONGEST_LINE: Final = 4 << 20
MOST: Final = 10_000
"""Maximum runs that are remembered."""


@attrs.define(eq=False)
class Run:
    """A run of an action that continues after its invocation was answered."""

    number: int
    thing: Thing
    action: str
    progress: Any = MISSING
    is_over: bool = False


class WebMemory:
    """State that later requests of a recording need: runs by their paths, and open streams."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._of_action: dict[str, list[Run]] = {}
        self.listening: dict[tuple[str, str, str], list[StreamOfValues]] = {}

    def keep(self, run: Run, place: str) -> None:
        """Remember a run by its URL."""
        path = _path_of(place)
        if path and len(self._runs) < MOST:
            self._runs[path] = run
            self._of_action.setdefault(path.rpartition("/")[0], []).append(run)

    def runs_at(self, path: str) -> list[Run]:
        """Return the run at a path, or all runs of the action at that path."""
        found = self._runs.get(path)
        return self._of_action.get(path, []) if found is None else [found]

    def named(self, status: Any) -> Run | None:
        """Return the run that an ActionStatus names."""
        href = mapped(status).get("href")
        return self._runs.get(_path_of(href)) if isinstance(href, str) else None


def _path_of(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def take_status(transcript: Transcript, run: Run, status: Any) -> None:
    """Record the state of an unfinished run, as an ActionStatus reports it."""
    data, thing, redaction = mapped(status), run.thing, transcript.redaction
    state = lmos.canonical_status(str(data.get("status")))
    if run.is_over:
        return
    if "progress" in data and data["progress"] != run.progress:
        run.progress = data["progress"]
        shown = redaction.described(run.progress, thing.progress_of(run.action))
        transcript.progress(thing.name, run.action, run.number, shown)
    run.is_over = state in ("completed", "failed", "cancelled")
    if state == "completed":
        shown = redaction.described(data.get("output"), thing.output_of(run.action))
        transcript.answered(thing.name, run.action, run.number, shown)
    elif state == "cancelled":
        transcript.cancelled(thing.name, run.action, run.number)
    elif state == "failed":
        write_failure(transcript, thing, run.action, run.number, data.get("error", UNSET))


def write_failure(transcript: Transcript, thing: Thing, action: str, number: int, problem: Any) -> None:
    """Record that a request has failed with problem details."""
    fields = mapped(problem)
    status = fields.get("status")
    error = error_in(fields, status if isinstance(status, int) else 500)
    output: Any = None
    if isinstance(error, ActionFailed):
        output = transcript.redaction.described(error.output, thing.output_of(action))
        error = ActionFailed(output)
    transcript.failed(thing.name, action, number, error, output)


class _Lines:
    """A reader of JSON lines; each line is an item."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        """Return the lines that are complete. Raises BadAnswer for one that is too long."""
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise BadAnswer("a line is too long")
        return [("item", line.decode("utf-8", "replace")) for line in lines if line.strip()]


class _Events:
    """A reader of server-sent events."""

    def __init__(self) -> None:
        self._reader = EventReader()

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        """Return the names and data of complete events. Raise BadAnswer for an event that is too long."""
        return [(event.name, event.data) for event in self._reader.feed(data)]


class StreamOfValues:
    """An answer of many values, recorded as they arrive. `number` is the invocation's number, else None."""

    def __init__(
        self,
        transcript: Transcript,
        memory: WebMemory,
        operation: Operation,
        kind: str,
        number: int | None,
    ) -> None:
        self._transcript = transcript
        self._operation = operation
        self._number = number
        self._reader: _Events | _Lines | None = _Events() if kind == EVENTS else _Lines()
        self._is_over = False
        self._beside: list[StreamOfValues] = []
        if number is None:
            key = (operation.thing.id, operation.op, operation.affordance)
            self._beside = memory.listening.setdefault(key, [])
            self._beside.append(self)
            verb = "observe" if operation.op == "observeproperty" else "subscribe"
            self._number = transcript.sent(operation.thing.name, verb, operation.affordance)
            if verb == "subscribe":
                transcript.answered(operation.thing.name, operation.affordance, self._number, None)
                self._is_over = True

    def feed(self, data: bytes) -> None:
        """Read a piece of the body."""
        if self._reader is None:
            return
        try:
            for name, text in self._reader.feed(data):
                self._take(name, msgspec.json.decode(text))
        except (BadAnswer, msgspec.MsgspecError, UnicodeError, RecursionError):
            self._transcript.unread += 1
            self._reader = None

    def _take(self, name: str, value: Any) -> None:
        operation, transcript = self._operation, self._transcript
        thing, affordance, redaction = operation.thing, operation.affordance, transcript.redaction
        assert self._number is not None
        if name == "item" and list(mapped(value)) == [END]:  # as the last of JSON lines
            name, value = END, value[END]
        if name == GAP:
            return
        if operation.op == "invokeaction":
            if name == END:
                self._end(value)
            elif not self._is_over:
                shown = redaction.described(value, thing.output_of(affordance))
                transcript.item(thing.name, affordance, self._number, shown)
        elif name == END:
            return
        elif operation.op == "subscribeevent":
            if self._beside[:1] == [self]:
                shown = redaction.described(value, thing.event_of(affordance))
                transcript.event(thing.name, affordance, shown)
        else:
            shown = redaction.described(value, thing.property_of(affordance))
            if not self._is_over:
                self._is_over = True
                transcript.answered(thing.name, affordance, self._number, shown)
            elif self._beside[:1] == [self]:
                transcript.changed(thing.name, affordance, shown)

    def _end(self, problem: Any) -> None:
        thing, action = self._operation.thing, self._operation.affordance
        assert self._number is not None
        self._is_over = True
        if problem is None:
            self._transcript.answered(thing.name, action, self._number, None)
        else:
            write_failure(self._transcript, thing, action, self._number, problem)

    def end(self, *, is_whole: bool, has_left: bool) -> None:
        """Record the end of the answer: it is whole, the client has ended it, or it was cut off."""
        if self in self._beside:
            self._beside.remove(self)
        if self._operation.op != "invokeaction" or self._is_over or self._reader is None:
            return
        if is_whole:
            self._end(None)
        elif has_left:
            assert self._number is not None
            thing, action = self._operation.thing, self._operation.affordance
            self._transcript.cancelled(thing.name, action, self._number)
