"""Keys of requests, and the kept answers of a durable agent, which carries out one request for each key.

A caller gives a request a key: `ref.retrying(key="order-17")`. The agent keeps the answer in the same commit
as the state that the request has changed, so a repeat finds both or neither: after a crash, after the end of
the process, and in a process of the caller that was started again.

A key belongs to one *scope*: this node, one principal, or all callers without a name. So no caller finds the
answer of another one, whatever key it guesses.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from lmos_actors.errors import InvalidInput, NotAllowed

from ._operation import STREAM

if TYPE_CHECKING:
    from ._operation import Operation

KEY_LENGTH: Final = 256
"""The most characters of a key."""

KEPT_SECONDS: Final = 24 * 3600.0
"""Seconds for which an answer is kept."""

KEPT_ANSWERS: Final = 10_000
"""The most answers that one agent keeps; the oldest is forgotten first."""

KEPT_BYTES: Final = 16 << 20
"""The most bytes of the answers that one agent keeps; the last one stays whatever its size."""

NEAR: Final = ""
"""The scope of callers in the node itself."""

ANONYMOUS: Final = "?"
"""The scope of callers from elsewhere that have no name."""

_UNGUESSABLE: Final = re.compile(r"[0-9A-Za-z_-]{32,}")
_VISIBLE: Final = frozenset(map(chr, range(0x21, 0x7F)))


def wrong_key(text: object) -> str | None:
    """Return why something cannot be the key of a request, or None if it can."""
    if not isinstance(text, str):
        return f"a key is text, not {type(text).__name__}"
    if not text:
        return "a key has one character at least"
    if len(text) > KEY_LENGTH:
        return f"a key has {KEY_LENGTH} characters at most, not {len(text)}"
    if not _VISIBLE.issuperset(text):
        return f"a key has visible ASCII characters alone, and no blanks, not {text!r}"
    return None


def wrong_operation(op: Operation) -> str | None:
    """Return why requests for an operation cannot have a key, or None if they can."""
    if op.kind == STREAM or op.streams:
        return f"{op.label} has streams, which cannot be repeated from a kept answer"
    if op.secrecies is not None or op.result_secrecy:
        return f"{op.label} has a secret input or answer, and secrets are never kept"
    return None


@attrs.frozen
class RequestKey:
    """The key of a request, in its scope."""

    scope: str
    text: str

    @property
    def name(self) -> str:
        """The name under which the answer is kept: of constant length, and different in each scope."""
        return _digest([self.scope, self.text])


def far_key(text: str, principal: str | None, *, guarded: bool) -> RequestKey:
    """Return the key of a request from elsewhere. Raises InvalidInput.

    Callers without a name share their keys. If programs outside the node's own machine may call (`guarded`),
    callers are strangers to each other: then such a key must be impossible to guess.
    """
    wrong = wrong_key(text)
    if wrong is None and principal is None and guarded and not _UNGUESSABLE.fullmatch(text):
        wrong = (
            "a key of a caller without credentials must be impossible to guess: "
            "32 letters, digits, - and _ at least, as a UUID has; or let `security` ask who they are"
        )
    if wrong is not None:
        raise InvalidInput(wrong, "$.key")
    return RequestKey(ANONYMOUS if principal is None else f"@{principal}", text)


def keyed_requests_of(slot: Any) -> Any:
    """Return the `KeyedRequests` of an agent.

    Raises NotAllowed if the agent keeps no answers, AgentUnavailable or NotFound if it does not run.
    """
    gate = slot.output_gate
    if gate is not None:
        return gate.state.requests
    if slot.size < 0:
        raise slot.closed_error()
    raise NotAllowed(no_answers(slot.path))


def no_answers(path: str) -> str:
    """Return the text of the error for a key that an agent cannot accept."""
    return (
        f"{path!r} keeps no answers, so a key does not make its actions safe to repeat: "
        f"durable agents keep them, as the member lmosx:answers of their descriptions says"
    )


def content_of(op: Operation, args: tuple[Any, ...]) -> str:
    """Return a digest of the action and the input, which must be the same in all requests with one key.

    Arguments equal to their defaults do not count, so that an action may get another parameter. Raises
    TypeError or ValueError for an input without a form in JSON.
    """
    given = {p.wire_name: value for p, value in zip(op.params, args, strict=True) if value is not p.default}
    return _digest([op.name, msgspec.to_builtins(given, str_keys=True, order="deterministic")])


def _digest(data: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()[:40]


class KeptAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The final answer to a request with a key, in its stored form."""

    key: str
    action: str
    content: str
    """The content that a repeat must have in common with the request, see `content_of`."""
    at: float
    """When it was given, in seconds since 1970."""
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    failure: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """The output of a declared failure."""
    lost: str = ""
    """Why neither could be kept."""
    number: int = 0
    """The place in the order of all kept answers of the agent."""
