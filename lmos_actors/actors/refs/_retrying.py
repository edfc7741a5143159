"""Retries if the outcome is not known, or the agent does not run: `ref.retrying()`.

Safe and idempotent requests are repeated: properties, and the actions that are declared so. Every attempt of
one request carries the same id, by which a far agent recognises a repeat.

A durable agent keeps answers, and then all its actions may be repeated: all attempts have a key, which the
caller may set (`ref.retrying(key="order-17")`), and the agent carries out one request for each key. A near
agent needs no key unless the caller sets one: a request that is repeated there has not begun. If a ref may
lead to different agents over time, an attempt of unknown outcome binds the next ones to its agent.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.errors import (
    AgentUnavailable,
    DeadlineExceeded,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    RateLimited,
)

from ..messages._operation import ASKING, named
from ..messages._request_keys import keyed_requests_of, no_answers, wrong_key
from ._forwarding import ForwardingLink
from ._link import Attempt

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from lmos_actors._core import RandomStream

    from ._link import Invocation, Link

NO_ACTIONS: Final = ("?", "=", "+", "")
"""The first characters of the keys of operations that are no actions."""

FIRST: Final = 0.1
"""Seconds: the first wait is a random part of them, each further wait of twice as many."""

LONGEST: Final = 5.0


@attrs.frozen
class Bounds:
    """The number of attempts, and the seconds from the first attempt to the start of the last one."""

    attempts: int | None
    seconds: float | None
    key: str | None = None
    """The key of the requests, as the caller names it."""


def bounds_of(attempts: int | None, seconds: float | None, key: str | None = None) -> Bounds:
    """Check and return the bounds of a retrying ref. Raises ValueError."""
    if attempts is not None and (type(attempts) is not int or attempts < 1):
        raise ValueError(f"retrying() needs a whole number of attempts of at least 1, not {attempts!r}")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ValueError(f"retrying() needs a finite number of seconds above 0, not {seconds!r}")
    if key is not None and (wrong := wrong_key(key)) is not None:
        raise ValueError(f"retrying(key=...): {wrong}")
    return Bounds(attempts, seconds, key)


class Retrying(ForwardingLink):
    """A link that repeats requests; see `Link`. All other verbs go to the inner link unchanged."""

    __slots__ = ("_bounds", "_random", "inner")

    def __init__(self, link: Link, bounds: Bounds) -> None:
        super().__init__(link.rt)
        self.inner: Link = link.inner if isinstance(link, Retrying) else link  # these bounds, not both
        self._bounds = bounds
        self._random: RandomStream | None = None

    def choose(self, *_request: object) -> Link:
        """Return the inner link."""
        return self.inner

    def look(self) -> Any:
        """Return the link to which the inner link leads; see `found_link`."""
        return found_link(self.inner)

    @named(ASKING)
    async def ask(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> Any:
        """Ask, as `Link` defines; one deadline covers all attempts and the waits between them."""
        deadline = None if seconds is None else trio.current_time() + seconds
        begin = trio.current_time()
        attempt = Attempt(key=self._key(key))  # views do not nest: no other is given
        unknown: OutcomeUnknown | None = None
        found: Any = None
        while True:
            left = None if deadline is None else deadline - trio.current_time()
            try:
                if left is not None and left <= 0:
                    raise DeadlineExceeded(self.path, seconds or 0.0, why=self.unready())
                if attempt.key is not None:
                    found = self._found_for_key(key) if attempt.begun_by is None else found
                    return await _ask_by_key(found, key, args, kwargs, left, attempt)
                return await self.inner.ask(key, args, kwargs, left, attempt)
            except DeadlineExceeded as late:
                raise DeadlineExceeded(self.path, seconds or 0.0, why=late.why) from None
            except NotFound as error:
                if unknown is None:
                    raise
                raise unknown from error  # the attempt before that may have begun
            except (OutcomeUnknown, AgentUnavailable, RateLimited) as error:
                unknown = error if isinstance(error, OutcomeUnknown) else unknown
                wait = self._wait(attempt, error)
                if not self._goes_on(key, attempt, begin, wait):
                    if unknown is None or unknown is error:
                        raise
                    raise unknown from error
            await trio.sleep(
                wait if deadline is None else min(wait, max(0.0, deadline - trio.current_time()))
            )
            attempt.number += 1

    def _key(self, key: str) -> str | None:
        """Return the key of a request: the caller's, else a new one for a far agent that keeps answers."""
        if key[:1] in NO_ACTIONS:
            return None
        found, text = found_link(self.inner), self._bounds.key
        if text is None and _keeps_answers(found, key) and not found.repeatable(key):
            text = str(found.rt.entropy.new_id())
        return text

    def _found_for_key(self, key: str) -> Any:
        """Return the link to an agent that keeps answers. Raises NotAllowed, NotFound."""
        found = found_link(self.inner)
        found = found.choose() if hasattr(found, "look") else found
        if not _is_near(found):
            if not _keeps_answers(found, key):
                raise NotAllowed(no_answers(self.path))
            if self._bounds.key is not None and not getattr(found, "takes_named_keys", True):
                raise NotAllowed(
                    f"{self.path!r} may be another agent next time, so a key of yours does not name one "
                    f"request: give the agent a key with ChildSpec(key=...), and find it by id=..."
                )
        return found

    def _wait(self, attempt: Attempt, error: OutcomeUnknown | AgentUnavailable | RateLimited) -> float:
        most = min(LONGEST, FIRST * 2.0 ** min(attempt.number - 1, 32))
        hint = getattr(error, "retry_in", None) or 0.0
        return max(round(most * self._chance(), 6), min(hint, LONGEST))

    def _goes_on(self, key: str, attempt: Attempt, begin: float, wait: float) -> bool:
        attempts, seconds = self._bounds.attempts, self._bounds.seconds
        if attempts is not None and attempt.number >= attempts:
            return False
        if attempt.key is None and not _repeatable(self.inner, key):
            return False
        return seconds is None or trio.current_time() + wait - begin <= seconds

    def _chance(self) -> float:
        random = self._random
        if random is None:
            entropy = found_link(self.inner).rt.entropy
            random = self._random = entropy.stream(f"retrying {entropy.new_id()}")
        return random.random()

    # ---- what is not asked again

    @property
    def has_key(self) -> bool:
        """Whether the caller has set a key, which then is the same each time the caller asks."""
        return self._bounds.key is not None

    def check_no_key(self, verb: str) -> None:
        """Raise NotAllowed if the caller has set a key, as only `invoke` can have one."""
        if self._bounds.key is not None:
            raise NotAllowed(f"{verb} has no key: of a ref made by retrying(key=...) use invoke")

    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        self.check_no_key("tell")
        await self.inner.tell(key, args, kwargs)

    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        self.check_no_key("tell_nowait")
        self.inner.tell_nowait(key, args, kwargs)

    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        self.check_no_key("send")
        self.inner.send_from(sender, key, args, kwargs)

    def open(self, invocation: Invocation) -> Any:
        """See `Link`."""
        if invocation.key[:1] not in NO_ACTIONS:
            self.check_no_key("stream" if invocation.stream else "begin")
        return self.inner.open(invocation)


def found_link(link: Any) -> Any:
    """Return the link behind another: the inner one of a retrying link, or the one a lookup has found."""
    look = getattr(link, "look", None)
    return link if look is None else look() or link


def _repeatable(link: Any, key: str) -> bool:
    """Return whether a repeat has no further effect, according to the far link or the near operation."""
    found = found_link(link)
    own = getattr(found, "repeatable", None)
    if own is not None:
        return bool(own(key))
    op = _near_operation(found, key)
    return op is not None and (
        bool(op.repeatable) or (_is_near(found) and found.output_gate is not None and not op.streams)
    )


def _near_operation(found: Any, key: str) -> Any:
    """Return an operation of an agent of this node, or of the members of a pool, or None."""
    tables = (getattr(slot, "table", {}) for slot in (found, *getattr(found, "members", ())))
    return next((table[key] for table in tables if key in table), None)


def acts_again(link: Any, key: str) -> bool:
    """Return whether a request has a further effect if its sender repeats it in its next life.

    It has none if the request is safe or idempotent, or if its ref or `completed_by` gives it a key.
    """
    if key[:1] in NO_ACTIONS or (isinstance(link, Retrying) and link.has_key):
        return False
    found = found_link(link)
    own = getattr(found, "repeatable", None)
    try:
        op = _near_operation(found, key) if own is None else found.operation(key)
        return op is not None and op.fill is None and not (op.repeatable if own is None else own(key))
    except (NotFound, NotAllowed):  # which the request itself says, or it finds an agent that has the action
        return False


def _ask_by_key(
    found: Any,
    key: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    left: float | None,
    attempt: Attempt,
) -> Coroutine[Any, Any, Any]:
    """Ask an agent that carries out only one request for each key."""
    if _is_near(found):
        asked = keyed_requests_of(found).ask(key, args, kwargs, left, attempt.key)
    else:
        asked = found.ask(key, args, kwargs, left, attempt)
    return asked  # type: ignore[no-any-return]


def _is_near(found: Any) -> bool:
    """Return whether a link is the slot of one agent of this node."""
    return hasattr(found, "output_gate")


def _keeps_answers(found: Any, key: str) -> bool:
    """Return whether a far agent keeps the answers to requests for an action."""
    keeps = getattr(found, "keeps_answers", None)
    return keeps is not None and bool(keeps(key))
