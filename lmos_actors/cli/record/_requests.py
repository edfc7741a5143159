"""Requests over HTTP that go through the recorder: of those to things, what they read, write and invoke.

Which operation a request is follows from the forms of the descriptions that have been seen. Bodies are kept
for that as far as they are JSON and not too long; streams of events are not written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from lmos_actors.errors import ActionFailed, RemoteProtocolError
from lmos_actors.files import is_mapping, mapped
from lmos_actors.protocol import lmos

from ._transcript import MISSING

if TYPE_CHECKING:
    from ._things import Operation, Schema
    from ._transcript import Transcript

LONGEST: Final = 1 << 20
"""Bytes of a body that is read."""

VERBS: Final = {"readproperty": "read", "writeproperty": "write", "invokeaction": "invoke"}


class WebExchange:
    """One request and its answer, as they go by."""

    def __init__(self, transcript: Transcript, method: str, target: str) -> None:
        self._transcript = transcript
        self._method = method
        self._target = target
        found = transcript.things.at(method, target)
        self._operation: Operation | None = found if found is not None and found.op in VERBS else None
        self._given: bytearray | None = bytearray()
        self._answer: bytearray | None = bytearray()
        self._number: int | None = None
        self._status: int | None = None
        self._kind = ""

    def add_input(self, data: bytes) -> None:
        """Take a piece of the body of the request."""
        self._given = _grown(self._given, data, keep=self._operation is not None)

    def asked(self) -> None:
        """Take note that the request has been read. Raises OSError where it cannot be written."""
        operation = self._operation
        if operation is None:
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
        """Return the input as it is written, MISSING without one, None for one that cannot be read."""
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

    def head(self, status: int, content_type: str) -> None:
        """Take the head of the answer."""
        self._status, self._kind = status, content_type.partition(";")[0].strip().lower()

    def add_output(self, data: bytes) -> None:
        """Take a piece of the body of the answer."""
        is_json = self._kind == "application/json" or self._kind.endswith("+json")
        self._answer = _grown(self._answer, data, keep=self._number is not None and is_json)

    def end(self) -> None:
        """Take note that the exchange is over. Raises OSError where it cannot be written."""
        self._transcript.asked(self._method, self._target, self._status)
        if self._number is None or self._operation is None or self._status is None or self._answer is None:
            return
        operation, number, transcript = self._operation, self._number, self._transcript
        thing, name, verb = operation.thing, operation.affordance, VERBS[operation.op]
        try:
            value = msgspec.json.decode(bytes(self._answer)) if self._answer else None
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            transcript.unread += 1
            return
        if self._status in (200, 204):
            schema = thing.output_of(name) if verb == "invoke" else thing.property_of(name)
            shown = None if verb == "write" else transcript.redaction.described(value, schema)
            transcript.answered(thing.name, name, number, shown)
        elif self._status >= 400:
            error = _error_in(value, self._status)
            output: Any = None
            if isinstance(error, ActionFailed):
                output = transcript.redaction.described(error.output, thing.output_of(name))
                error = ActionFailed(output)
            transcript.failed(thing.name, name, number, error, output)


def _grown(body: bytearray | None, data: bytes, *, keep: bool) -> bytearray | None:
    """Return a body with one more piece; None for one that is too long."""
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
    """Return a member of a query as servers read it: JSON if it is that."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text


def _error_in(value: Any, status: int) -> Exception:
    """Return the exception that problem details stand for."""
    data = mapped(value)
    path, started = data.get("path"), data.get("started")
    detail = str(data.get("detail") or "")
    message = lmos.Error(
        thing_id="-",
        message_id="-",
        type=str(data.get("type") or ""),
        title=str(data.get("title") or ""),
        status=str(status),
        detail=detail,
        instance="",
        path=path if isinstance(path, str) else None,
        started=started if isinstance(started, bool) else None,
        about=mapped(data.get("about")) or None,
    )
    error = lmos.error_of(message)
    return RuntimeError(detail or f"HTTP {status}") if isinstance(error, RemoteProtocolError) else error
