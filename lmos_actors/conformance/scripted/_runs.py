"""Records of the scripted server: runs, and requests that may be repeated."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs

from ._messages import Request, is_object
from ._scheduler import Timer
from ._thing import ABSENT, Json, Problem, invalid

if TYPE_CHECKING:
    from collections import deque

    from ._input_streams import Input
    from ._thing import Taking

REMEMBERED: Final = 256
REMEMBERED_SECONDS: Final = 60.0

Final_: TypeAlias = Problem | tuple[str, Json]
"""The final answer to a request: an error, or a type of message and its own members."""


@attrs.define(eq=False)
class KnownRequest:
    """A request that was answered or is being carried out, remembered in case it is repeated."""

    content: str
    final: Final_ | None = None
    run: Run | None = None
    until: float = 0.0


class RunFollower(Protocol):
    """The part of a connection that a run uses to report to it."""

    live: list[Run]
    ended: deque[tuple[Run, str | None]]

    @property
    def kotlin(self) -> bool: ...
    def send_progress(self, run: Run, share: float) -> None: ...
    def send_item(self, run: Run, item: Any) -> str | bytes: ...
    def send_final(
        self, request: Request, correlation: str | None, final: Final_, more: Json | None = None
    ) -> None: ...
    def take(self, request: Request) -> None: ...


@attrs.define(eq=False)
class Run:
    """An action that was invoked: its followers with their correlations, and its status.

    `items`: the items of its answer; `next`: the index of the next one to send; `to`: the number of items so
    far; `is_open`: whether there may be more. `binary`: whether bytes are sent in binary frames; `stream`:
    the number of their stream, 0 before the first. `is_stopped`: whether the consumer wants no more.
    """

    request: Request
    received_by: dict[RunFollower, str | None]
    status: str = "in progress"
    final: Final_ | None = None
    credit: list[int] | None = None
    next: int = 0
    to: int = 0
    items: list[Any] = attrs.field(factory=list[Any])
    is_open: bool = False
    gathered: list[Any] | None = None
    inputs: dict[int, Input] = attrs.field(factory=dict[int, "Input"])
    taking: Taking | None = None
    binary: bool = False
    stream: int = 0
    sequence: int = 0
    is_stopped: bool = False
    timers: list[Timer] = attrs.field(factory=list[Timer])


@attrs.define(eq=False)
class KeyedRequest:
    """A request with a key: its content, its answer, and the repeated requests that wait for the answer."""

    content: str
    final: Final_ | None = None
    waiting: list[tuple[RunFollower, Request]] = attrs.field(factory=list[tuple["RunFollower", Request]])


class KeptAnswers:
    """The newest requests with keys, of all consumers together, as consumers cannot be told apart."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[str, str], KeyedRequest] = OrderedDict()

    def find(self, request: Request) -> KeyedRequest | None:
        """Return the record of the request that has the same key, or None."""
        return self._known.get(self._place(request))

    def begin(self, request: Request) -> None:
        """Note that a request is carried out."""
        self._known[self._place(request)] = KeyedRequest(content_of(request))
        while len(self._known) > self._limit:
            self._known.popitem(last=False)

    def settle(self, request: Request, final: Final_ | None) -> KeyedRequest | None:
        """Store the final answer to a request, and return its record.

        Without an answer that can be kept, the record is removed. Returns None for an unknown or answered
        request.
        """
        known = self.find(request)
        if known is None or known.final is not None:
            return None
        if final is None or isinstance(final, Problem) or final[1].get("cancelled"):
            del self._known[self._place(request)]
        else:
            known.final = final
        return known

    def _place(self, request: Request) -> tuple[str, str]:
        return request.thing.id, request.message["key"]


class RequestHistory:
    """The recent requests of one peer and their answers."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, KnownRequest] = OrderedDict()

    def find(self, request: Request, now: float) -> KnownRequest | None:
        """Return the record of the request with the same id and content, or None."""
        known = self._known.get(request.id)
        if known is None or known.content != content_of(request) or (known.final and known.until < now):
            return None
        return known

    def begin(self, request: Request, run: Run | None) -> KnownRequest:
        """Note that a request is carried out."""
        self._known.pop(request.id, None)
        known = self._known[request.id] = KnownRequest(content_of(request), run=run)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return known

    def settle(self, request: Request, final: Final_, now: float) -> None:
        """Store the final answer to a request; remove a request that was refused before it began."""
        known = self._known.get(request.id)
        if known is None or known.content != content_of(request):
            return
        if isinstance(final, Problem) and final.more.get("started") is False:
            del self._known[request.id]
        else:
            known.final, known.run, known.until = final, None, now + REMEMBERED_SECONDS

    def forget(self, request: Request) -> None:
        """Forget a request."""
        self._known.pop(request.id, None)


def content_of(request: Request) -> str:
    """Return a hash of a request's content; two requests with the same hash count as the same."""
    payload = None if request.payload is ABSENT else [request.payload]
    content = json.dumps([request.kind, request.thing.id, request.name, payload], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def completed(output: Any) -> Final_:
    """Return the final answer of a run that has succeeded."""
    return "actionStatus", {"status": "completed", **({} if output is ABSENT else {"output": output})}


def with_items(final: Final_, items: list[Any] | None) -> Final_:
    """Return the final answer with the stream's items added, for peers that get them in no other way.

    Without items, or if the run did not succeed, it is not changed.
    """
    if items is None or isinstance(final, Problem) or final[1]["status"] != "completed":
        return final
    return final[0], {**final[1], "output": items}


def credit_of(value: Any) -> list[int] | None:
    """Return credit as items and bytes, or None if there is none. Raises Problem if it is invalid."""
    if value is None:
        return None
    if is_object(value):
        items, size = value.get("items"), value.get("bytes")
        if type(items) is int and type(size) is int and items >= 0 and size >= 0:
            return [items, size]
    raise invalid("credit has items and bytes, whole numbers that are not negative", "$.credit")
