"""Reports of incoming requests to instruments that measure and trace them: see `Edge`.

To be called by every binding: `came` right before a request is posted, and then once `ended` or `left`.
Without an instrument each call is one attribute read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.actors import incoming_trace

if TYPE_CHECKING:
    from lmos_actors.actors import Far, Runtime


def came(far: Far, way: str, traceparent: str | None, tracestate: str | None) -> None:
    """Mark a request, before it is posted; `way` is `lmos` or `http`."""
    rt = far.slot.rt
    if rt.edge is None:
        if traceparent is None and rt.instrument is None:
            return  # nothing looks, and it has no trace
        incoming_trace(rt, far, traceparent, tracestate)
    elif far.watch is None:  # else a member of a pool takes what another has left
        far.watch = rt.edge.came(far, way, traceparent, tracestate)


def ended(far: Far, error: BaseException | None) -> None:
    """Note its answer: this error, or a value. Only the first call counts."""
    if far.watch is not None:
        far.watch.ended(error)


def left(far: Far) -> None:
    """Its consumer is gone, and it with it."""
    if far.watch is not None:
        far.watch.left()


def refused(rt: Runtime, way: str, verb: str, error: BaseException) -> None:
    """Take note of a request that never got as far as a mailbox.

    `verb` in the words of `Operation.verb`, empty where it is not known.
    """
    if rt.edge is not None:
        rt.edge.refused(way, verb, error)
