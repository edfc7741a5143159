"""The number of agents that a question has passed through; limiting it ends loops between two relays.

An agent that is asked on one relay may ask another on a second one, which then asks the first again. Each
question counts the hops before it, and one with too many is answered with an error.

**The count is in `ref`**, as `hops-3-...`: all recorded relays pass it on, while the reference drops private
members; and each gives a question a new id, so that ids show no loop. `ref` has another use only on the
oldest relay, as the text by which an answer is found: the count is in front of that text.

**Inside a node it is a member of `tracestate`**, `lmoshops=3`: near requests of a run, and those over LMOS or
HTTP, are in its trace, so the count is known wherever an agent asks on a relay again.
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
    """Return the hops in the `ref` of a question; 0 for another `ref`."""
    found = _REF.fullmatch(ref)
    return 0 if found is None else int(found[1])


def hops_in(trace: Mapping[str, Any]) -> int:
    """Return the hops of a question sent in a trace; 0 if no other question has caused it."""
    for member in str(trace.get("tracestate") or "").split(","):
        name, _, count = member.strip().rpartition("=")
        if f"{name}=" == _MEMBER and count.isascii() and count.isdigit() and len(count) < 7:
            return int(count)
    return 0


def trace_after(hops: int, parent: Any, state: Any, draw: Callable[[int], int]) -> tuple[str, str]:
    """Return `traceparent` and `tracestate` for requests caused by a question with a number of hops.

    A question without a trace begins one: `draw` returns a number of random bits.
    """
    if not isinstance(parent, str):
        parent, state = f"00-{draw(128) or 1:032x}-{draw(64) or 1:016x}-01", ""
    members = state.split(",") if isinstance(state, str) else []
    others = [each for each in members if each and not each.strip().startswith(_MEMBER)]
    return parent, ",".join([f"{_MEMBER}{hops + 1}", *others])
