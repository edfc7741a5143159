"""The edge of a node, where requests come in and go out: hooks for measuring and tracing them.

The hooks cost nothing in a node that neither measures nor traces, where `Runtime.edge` is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from .messages._mailbox import Envelope, Mark
    from .messages._operation import Operation


RequestKind: TypeAlias = tuple[str, str, str, str]
"""The kind under which a request is counted: class, affordance, verb, way."""


class TraceMembers(TypedDict, total=False):
    """The members of an LMOS message that carry a trace; empty without a trace."""

    traceparent: str
    tracestate: str


class Watch(Protocol):
    """One incoming request, observed until it is answered."""

    def ended(self, error: BaseException | None, /) -> None:
        """Note the answer to the request: this error, or a value. Only the first call counts."""
        ...

    def left(self) -> None:
        """Note that the consumer of the request has left, and needs no answer."""
        ...


class Going(Protocol):
    """One request that is sent or passed on.

    Used as a context manager, it returns `trace`, and the request ends with the block.
    """

    @property
    def trace(self) -> TraceMembers:
        """The trace members to be sent with the request."""
        ...

    def ended(self, error: BaseException | None, /) -> None:
        """Note the answer to the request: this error, or a value. Only the first call counts."""
        ...

    def __enter__(self) -> TraceMembers: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Inquiry(Protocol):
    """One request of an agent to a service that is no agent, such as the provider of a language model."""

    @property
    def records(self) -> bool:
        """Whether the inquiry is recorded as a span, so that attributes are needed."""
        ...

    def ended(
        self, outcome: str, amounts: Mapping[str, int], attributes: Mapping[str, Any], *, failed: bool
    ) -> None:
        """Note once the end of the inquiry: the outcome as a word, amounts by kind, the span's attributes."""
        ...


class Edge(Protocol):
    """The observer that measures requests and records them as spans. Set by the node; never raises."""

    @property
    def hands_on(self) -> bool:
        """Whether spans are recorded, so that agents carry the span in which they work."""
        ...

    def came(
        self,
        far: Any,
        way: str,
        traceparent: str | None,
        tracestate: str | None,
        attributes: Mapping[str, Any] | None = None,
        /,
    ) -> Watch:
        """Observe a request that is about to be posted, and give it its mark (see `incoming_trace`).

        `attributes` are further attributes of the request's span.
        """
        ...

    def passes(
        self,
        kind: RequestKind,
        name: str,
        attributes: Mapping[str, Any],
        traceparent: str | None,
        tracestate: str | None,
        /,
    ) -> Going:
        """Observe a message that this node forwards for others, with the trace that it arrived with.

        The other arguments are as in `calls`.
        """
        ...

    def refused(self, way: str, verb: str, error: BaseException, /) -> None:
        """Note a request that was answered before its target was known."""
        ...

    def goes(self, op: Operation, path: str, way: str, /) -> Going:
        """Observe a request that the current code sends to an agent."""
        ...

    def calls(self, kind: RequestKind, name: str, attributes: Mapping[str, Any], /) -> Going:
        """Observe a request that the current code sends to a receiver that is not an agent known here.

        `kind` is the request's kind for counts; `name` and `attributes` are for its span.
        """
        ...

    def asks(self, model: str, name: str, attributes: Mapping[str, Any], /) -> Inquiry:
        """Observe a request that the current code sends to a language model.

        `model` is the model's name for counts; `name` and `attributes` are for the request's span.
        """
        ...

    def mark(self, mark: Mark | None, /) -> Mark | None:
        """Return the mark of a message that the current code sends near; `mark` is its `current_mark`."""
        ...

    def gone(self, slot: Any, /) -> None:
        """Note that a slot is permanently empty."""
        ...

    def enter(self, envelope: Envelope, /) -> Any:
        """Run all following calls of the present context in the span of a request, until `leave`."""
        ...

    def leave(self, token: Any, /) -> None:
        """Undo the call of `enter` that returned `token`."""
        ...
