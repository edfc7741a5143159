"""Reports of incoming requests to instruments that measure and trace them: see `Edge`.

Every binding calls `came` right before a request is posted, and later `ended` or `left`, once. Without an
instrument each call costs one attribute read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.actors import incoming_trace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from lmos_actors.actors import Envelope, Far, Runtime, Watch


class Arrival:
    """A request that a binding opens by `Link.open`: measured from its posting to the end of the block.

    `attributes` are added to its span.
    """

    def __init__(
        self,
        way: str,
        traceparent: str | None = None,
        tracestate: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._said = way, traceparent, tracestate, attributes
        self._watch: Watch | None = None

    def note(self, envelope: Envelope) -> None:
        """Report that the request arrived with this envelope; passed on as `Invocation.posting`."""
        rt = envelope.slot.rt
        if rt.edge is None:
            incoming_trace(rt, envelope, *self._said[1:3])
        else:
            self._watch = rt.edge.came(envelope, *self._said)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.ended(error)


def came(
    far: Far,
    way: str,
    traceparent: str | None,
    tracestate: str | None,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Report a request before it is posted; `way` is `lmos` or `http`, `attributes` are added to its span."""
    rt = far.slot.rt
    if rt.edge is None:
        if traceparent is None and rt.instrument is None:
            return  # no instrument looks, and it has no trace
        incoming_trace(rt, far, traceparent, tracestate)
    elif far.watch is None:  # else another member of a pool left it
        far.watch = rt.edge.came(far, way, traceparent, tracestate, attributes)


def ended(far: Far, error: BaseException | None) -> None:
    """Report the answer of a request: `error`, or a value if `error` is None. Only the first call counts."""
    if far.watch is not None:
        far.watch.ended(error)


def left(far: Far) -> None:
    """Report that a request has ended because its consumer is gone."""
    if far.watch is not None:
        far.watch.left()


def refused(rt: Runtime, way: str, verb: str, error: BaseException) -> None:
    """Report a request that never reached a mailbox.

    The parameter `verb` is the same as `Operation.verb`, and empty if the verb is not known.
    """
    if rt.edge is not None:
        rt.edge.refused(way, verb, error)
