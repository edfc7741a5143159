"""The number of agents that a question has passed through, whose limit ends loops between two relays.

An agent that is asked on one relay may ask another on a second relay, which then asks the first agent again.
Each question contains the number of hops before it, and a question with too many hops is answered with an
error.

**The count is in `ref`**, as `hops-3-...`. All recorded relays pass `ref` on, while the reference relay drops
private members. Each relay gives a question a new id, so ids do not show a loop. Only the oldest relay uses
`ref` for another purpose, as the text by which an answer is found; there the count precedes that text.

**Inside a node it is a member of `tracestate`**, `lmoshops=3`. Near requests of a run, and its requests over
LMOS or HTTP, are in its trace, so the count is known wherever an agent next asks on a relay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_HOPS: Final = 8
"""Maximum hops of a question that is answered; after more it is refused."""

_REF: Final = re.compile(r"hops-([0-9]{1,6})-.*", re.DOTALL)
_MEMBER: Final = "lmoshops="


def ref_with(hops: int, word: str) -> str:
    """Return the `ref` of a question after a number of hops."""
    return f"hops-{hops}-{word}"


def hops_of(ref: str) -> int:
    """Return the number of hops in the `ref` of a question; 0 if there is none."""
    found = _REF.fullmatch(ref)
    return 0 if found is None else int(found[1])


def hops_in(trace: Mapping[str, Any]) -> int:
    """Return the number of hops of a question from its trace; 0 if no other question has caused it."""
    for member in str(trace.get("tracestate") or "").split(","):
        name, _, count = member.strip().rpartition("=")
        if f"{name}=" == _MEMBER and count.isascii() and count.isdigit() and len(count) < 7:
            return int(count)
    return 0


def trace_after(hops: int, parent: Any, state: Any, draw: Callable[[int], int]) -> tuple[str, str]:
    """Return `traceparent` and `tracestate` for requests caused by a question with a number of hops.

    For a question without a trace, a new trace is made; `draw` returns the given number of random bits.
    """
    if not isinstance(parent, str):
        parent, state = f"00-{draw(128) or 1:032x}-{draw(64) or 1:016x}-01", ""
    members = state.split(",") if isinstance(state, str) else []
    others = [each for each in members if each and not each.strip().startswith(_MEMBER)]
    return parent, ",".join([f"{_MEMBER}{hops + 1}", *others])
