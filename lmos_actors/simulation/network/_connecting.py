"""Reconnecting: attempts of two round trips, each with a time limit, and growing waits between them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.errors import ConnectFailed

from ._carrier import Carrier
from ._heartbeats import OPENING
from ._requests import HEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.bindings import Backoff

    from ._peer import NetworkParts

ATTEMPT: Final = 10.0
"""Seconds after which each part of an attempt to connect is abandoned; see `ConnectionOptions`."""

REFUSED: Final = "the connection was refused"
RESET: Final = "during the handshake: the connection was reset"


class Connecting:
    """The attempts of one node to connect to another, while there is no connection.

    `stands` is called once an attempt has succeeded. Its arguments are the instant at which the other end
    began to serve, and whether that node has ended since. `changed` is called whenever the time of the next
    attempt is set.
    """

    __slots__ = (
        "_answered_at", "_attempt", "_backoff", "_changed", "_ends", "_gives_up", "_has_reached", "_network",
        "_retry", "_source", "_stands", "_target", "failure", "failures", "retry_at",
    )  # fmt: skip

    def __init__(
        self,
        network: NetworkParts,
        ends: tuple[str, str],
        backoff: Backoff,
        stands: Callable[[float, bool], object],
        changed: Callable[[], object],
    ) -> None:
        self._network = network
        self._source, self._target = ends
        self._backoff = backoff
        self._stands = stands
        self._changed = changed
        self.failure: ConnectFailed | None = None
        """Why the last attempt failed; None before the first failure."""
        self.failures = 0
        """The number of attempts that have failed."""
        self.retry_at: float | None = None
        """The instant of the next attempt; None while an attempt is under way, or if there will be none."""
        self._retry: Any = None  # the timer of that
        self._attempt: Carrier | None = None
        self._has_reached = False  # whether the other node has answered it, the handshake not yet
        self._answered_at = 0.0  # when the other node has answered it last
        self._ends = 0  # how often the other node had ended then
        self._gives_up: Any = None  # the timer at which it is given up

    def begin(self, lasted: float) -> None:
        """Begin to reconnect, after a connection that lasted `lasted` seconds."""
        self.failure = None
        if lasted >= 1.0:  # else it does not count as a success
            self._backoff.reset()
        self._try_later()

    def begin_refused(self) -> None:
        """Begin after a first attempt that took no time and was refused, because the other node is away."""
        self._note_failure(REFUSED)

    def try_now(self) -> None:
        """Make the next attempt now, unless one is under way."""
        if self._retry is not None:
            self._retry.cancel()
            self._try()

    def stop(self) -> None:
        """End the attempt that is under way, and make no further one."""
        if self._retry is not None:
            self._retry.cancel()
        self.retry_at = self._retry = None
        if self._attempt is not None:
            self._end_attempt()

    def reset(self) -> None:
        """Reset connections: a handshake that is under way fails."""
        if self._attempt is not None and self._has_reached:
            self._failed(RESET)

    def look_at_lines(self) -> None:
        """Update the attempt that is under way after a change of the lines."""
        if self._attempt is not None:
            self._attempt.look_at_lines()

    # ---- attempts

    def _try_later(self) -> None:
        self.retry_at = trio.current_time() + self._backoff.next()
        self._retry = self._network.rt.timers.call_at(self.retry_at, self._try)
        self._changed()

    def _try(self) -> None:
        self.retry_at = self._retry = None
        self._has_reached = False
        self._attempt = Carrier(self._network, self._source, self._target)
        self._make_round_trip(self._attempt, f"no connection within {ATTEMPT:g} s", self._reached)

    def _make_round_trip(self, attempt: Carrier, why: str, then: Callable[[], object]) -> None:
        self._give_up_in(ATTEMPT, partial(self._failed, why))

        def answer() -> None:
            network, node = self._network, self._target
            self._answered_at = trio.current_time()
            if node in network.away or (self._has_reached and self._has_ended):
                why = RESET if self._has_reached else REFUSED
                attempt.send(HEAD, partial(self._failed, why), back=True)
                return
            self._ends = network.ends[node]
            attempt.send(HEAD, then, back=True)

        attempt.send(HEAD, answer)

    @property
    def _has_ended(self) -> bool:
        """Whether the other node has ended since it answered."""
        return self._ends != self._network.ends[self._target]

    def _give_up_in(self, seconds: float, then: Callable[[], None]) -> None:
        self._gives_up = self._network.rt.timers.call_at(trio.current_time() + seconds, then)

    def _reached(self) -> None:
        assert self._attempt is not None
        self._has_reached = True
        self._gives_up.cancel()
        why = f"no answer to the handshake within {ATTEMPT:g} s"
        self._make_round_trip(self._attempt, why, self._greeted)

    def _greeted(self) -> None:
        self._gives_up.cancel()
        self._give_up_in(OPENING, self._connected)

    def _end_attempt(self) -> None:
        assert self._attempt is not None
        self._gives_up.cancel()
        self._attempt.drop()
        self._attempt = None

    def _failed(self, why: str) -> None:
        self._end_attempt()
        self._note_failure(why)

    def _note_failure(self, why: str) -> None:
        self.failure = ConnectFailed(self._target, why)
        self.failures += 1
        self._try_later()

    def _connected(self) -> None:
        self._end_attempt()
        self.failure = None
        self._stands(self._answered_at, self._has_ended)
