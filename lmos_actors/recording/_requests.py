"""Requests over HTTP that go through the recorder, and the operations of things that they carry out.

The forms in the descriptions seen so far determine which operation a request carries out. The bodies of such
requests and answers are kept if they are JSON and not too long. An answer of many values is read while it is
passed on (`_web_answers.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from lmos_actors.files import is_mapping, mapped

from ._transcript import MISSING
from ._web_answers import EVENTS, LINES, Run, StreamOfValues, WebMemory, take_status, write_failure

if TYPE_CHECKING:
    from ._things import Operation, Schema
    from ._transcript import Transcript

LONGEST: Final = 1 << 20
"""Maximum bytes of a body that is read."""

VERBS: Final = {"readproperty": "read", "writeproperty": "write", "invokeaction": "invoke"}


class WebExchange:
    """One request and its answer, recorded while they are passed on. `accept` is the header of that name."""

    def __init__(
        self, transcript: Transcript, memory: WebMemory, method: str, target: str, accept: str
    ) -> None:
        self._transcript = transcript
        self._memory = memory
        self._method = method
        self._target = target
        self._operation = transcript.things.at(method, target, listens=EVENTS in accept.lower())
        self._runs = memory.runs_at(target.partition("?")[0]) if self._operation is None else []
        self._stream: StreamOfValues | None = None
        self._location = ""
        self.is_whole = False
        """Whether the answer has come to its end."""
        self._given: bytearray | None = bytearray()
        self._answer: bytearray | None = bytearray()
        self._number: int | None = None
        self._status: int | None = None
        self._kind = ""

    def add_input(self, data: bytes) -> None:
        """Add a piece of the body of the request."""
        self._given = _grown(self._given, data, keep=self._operation is not None)

    def asked(self) -> None:
        """Record the request once it has been read in full. Raise OSError if it cannot be written."""
        operation = self._operation
        if operation is None or operation.op not in VERBS:
            return
        thing, name, verb = operation.thing, operation.affordance, VERBS[operation.op]
        given: Any = MISSING
        if verb != "read":
            schema = thing.input_of(name) if verb == "invoke" else thing.property_of(name)
            given = self._input(verb, schema)
            if given is None:
                self._operation = None
                self._transcript.unread += 1
                return
        self._number = self._transcript.sent(thing.name, verb, name, given)

    def _input(self, verb: str, schema: Schema | None) -> Any:
        """Return the input as it is recorded, MISSING if there is none, or None if it cannot be read."""
        redaction = self._transcript.redaction
        query = {
            name: redaction.described(_of_query(value), _member_of(schema, name))
            for name, value in parse_qsl(self._target.partition("?")[2], keep_blank_values=True)
        }
        if self._given is None:
            return None
        if not self._given.strip():
            return (query or MISSING) if verb == "invoke" else None
        try:
            value = msgspec.json.decode(bytes(self._given))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        shown = redaction.described(value, schema)
        return {**query, **shown} if query and is_mapping(shown) else shown

    def head(self, status: int, content_type: str, location: str) -> None:
        """Process the head of the answer."""
        self._status, self._kind = status, content_type.partition(";")[0].strip().lower()
        self._location = location
        operation = self._operation
        if operation is None or status != 200 or self._kind not in (EVENTS, *LINES):
            return
        if operation.op not in VERBS or (operation.op == "invokeaction" and self._number is not None):
            self._stream = StreamOfValues(self._transcript, self._memory, operation, self._kind, self._number)

    def add_output(self, data: bytes) -> None:
        """Add a piece of the body of the answer."""
        if self._stream is not None:
            self._stream.feed(data)
            return
        is_asked = self._operation is not None and self._operation.op in VERBS
        if self._kind == "application/json" or self._kind.endswith("+json"):
            self._answer = _grown(self._answer, data, keep=is_asked or bool(self._runs))
        elif data:
            self._answer = None

    def end(self, *, has_left: bool) -> None:
        """Record the end of the exchange; `has_left`: the client has left, and may have cut the exchange off.

        Raise OSError if it cannot be written.
        """
        transcript = self._transcript
        transcript.asked(self._method, self._target, self._status)
        if self._stream is not None:
            self._stream.end(is_whole=self.is_whole, has_left=has_left)
        elif self._runs and self._status is not None and self._status < 300:
            self._take_run()
        elif self._number is not None and self._operation is not None and self._status is not None:
            self._take_answer(self._operation, self._number, self._status)

    def _take_run(self) -> None:
        if self._method == "DELETE":
            run = next((run for run in reversed(self._runs) if not run.is_over), None)
            if run is not None:
                run.is_over = True
                self._transcript.cancelled(run.thing.name, run.action, run.number)
            return
        value = self._value()
        if value is MISSING:
            self._transcript.unread += self.is_whole  # else it is counted as cut
        elif self._method == "GET":
            run = self._memory.named(value) or (self._runs[0] if len(self._runs) == 1 else None)
            if run is not None:
                take_status(self._transcript, run, value)

    def _take_answer(self, operation: Operation, number: int, status: int) -> None:
        thing, name, verb, transcript = (
            operation.thing,
            operation.affordance,
            VERBS[operation.op],
            self._transcript,
        )
        value = self._value()
        if status >= 400:
            write_failure(transcript, thing, name, number, {"status": status, **mapped(value)})
        elif status in (200, 204) and verb == "write":
            transcript.answered(thing.name, name, number, None)
        elif value is MISSING:
            transcript.unread += self.is_whole  # else it is counted as cut
        elif status in (200, 204):
            schema = thing.output_of(name) if verb == "invoke" else thing.property_of(name)
            transcript.answered(thing.name, name, number, transcript.redaction.described(value, schema))
        elif status in (201, 202) and verb == "invoke":
            run = Run(number, thing, name)
            href = mapped(value).get("href")
            self._memory.keep(run, self._location or (href if isinstance(href, str) else ""))
            take_status(transcript, run, value)

    def _value(self) -> Any:
        """Return the value of the answer, None if it is empty, or MISSING if it is unreadable or cut off."""
        if self._answer is None or not self.is_whole:
            return MISSING
        try:
            return msgspec.json.decode(bytes(self._answer)) if self._answer else None
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return MISSING


def _grown(body: bytearray | None, data: bytes, *, keep: bool) -> bytearray | None:
    """Return a body with one more piece, or None if it would be too long. Without `keep`, drop the piece."""
    if body is None or (keep and len(body) + len(data) > LONGEST):
        return None
    if keep:
        body += data
    return body


def _member_of(schema: Schema | None, name: str) -> Schema | None:
    if schema is None:
        return None
    return mapped(mapped(schema.get("properties")).get(name))


def _of_query(text: str) -> Any:
    """Return a query member in the form that servers read: as JSON if it is JSON, else as text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text
