"""One connection that keeps order: its messages, and how long each end keeps receiving from the other.

Index 0 is the end that connected, index 1 the end that serves. Each end may give up before the other does.
The other end learns of this when a message about it arrives, which a cut delays too. What an end sent before
it was gone still arrives.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ._carrier import Carrier
from ._heartbeats import BEAT, SLACK, Heartbeats
from ._watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._peer import NetworkParts
    from ._serving import Serving

SMALL: Final = 60
"""Approximate bytes of a ping, or of the word that an end is gone."""


class LifeOwner(Protocol):
    """The end that connected."""

    def connection_lost(self) -> None:
        """Handle the end of the connection at this end."""
        ...


class Life:
    """An established connection; its owner is notified once the end that connected is gone.

    `served_since`: when the connection began for the serving end.
    """

    __slots__ = (
        "_back_since", "_beats", "_ended", "_is_half_open", "_is_slow", "_owner", "_timer", "_watch",
        "_were_cut", "_whole_since", "carrier", "serving",
    )  # fmt: skip

    def __init__(
        self,
        network: NetworkParts,
        source: str,
        target: str,
        owner: LifeOwner,
        served_since: float | None = None,
    ) -> None:
        now = trio.current_time()
        self.carrier = Carrier(network, source, target)
        self.serving: Serving | None = None
        """The receiver of requests at the other end, once a request has come."""
        self._beats = Heartbeats(now, now if served_since is None else served_since)
        self._owner = owner
        self._ended = (False, False)
        self._is_half_open = False  # the end that serves is gone, of which the other one gets no word
        self._timer: Any = None  # of the next look at which an end may give up
        self._were_cut = (False, False)  # the lines there and back, when they were looked at
        self._whole_since = now  # neither has been cut
        self._back_since = now  # the line back has not been cut
        self._is_slow = False
        self._watch: Watch | None = None  # made when an answer is owed for the first time
        if self.carrier.is_cut:
            self.look_at_lines()

    @property
    def since(self) -> float:
        """When the connection began, for the end that connected."""
        return self._beats.since

    @property
    def is_served(self) -> bool:
        """Whether the serving end still exists."""
        return not self._ended[1]

    @property
    def is_over(self) -> bool:
        """Whether both ends are gone."""
        return all(self._ended)

    def send(
        self, size: int, arrive: Callable[[], object], request: Any = None, *, back: bool = False
    ) -> None:
        """Call `arrive` at the other end after the delay of the line, unless the connection ends first."""

        if back and self._is_half_open:
            return  # what was begun there goes on, perhaps, and knows no connection

        def arrived() -> None:
            if self._is_half_open and not back:
                self._refuse()
                return
            self._hear(0 if back else 1)
            arrive()

        takes = self.carrier.send(size, arrived, request, back=back)
        if takes is not None:
            self._is_slow = takes >= 0.5
            if takes > BEAT:
                self._look_again()
        self._look_at_watch()

    # ---- the pings of an end that waits for an answer: see `Watched`

    def begin_watch(self) -> None:
        """Begin to watch the other end: it owes an answer from now on."""
        if self._watch is None:
            self._watch = Watch(self.carrier.network.rt.timers, self)
        self._watch.begin()

    def free_watch(self) -> None:
        """Record that the other end owes no answer any more."""
        if self._watch is not None:
            self._watch.free()

    def _settle_watch(self, now: float) -> None:
        if self._watch is not None:
            self._watch.settle(now)

    def _look_at_watch(self) -> None:
        if self._watch is not None:
            self._watch.look_again()

    @property
    def heard_at(self) -> float:
        """The instant at which the end that connected last received something.

        That may be a ping of the other end's heartbeat, which is computed, not sent.
        """
        beats = self._beats
        ping = beats.ping(1)
        is_lost = (
            self._ended[1] or self._is_half_open or self.carrier.line(back=True).is_cut or self._is_late(0)
        )
        if is_lost or not self._back_since <= ping <= trio.current_time() - beats.takes:
            return beats.heard
        return max(beats.heard, ping + beats.takes)

    @property
    def is_odd(self) -> bool:
        """Whether a ping may remain unanswered or take long."""
        lines = self.carrier.line(), self.carrier.line(back=True)
        return (
            self._is_slow
            or self._ended[1]
            or self._is_half_open
            or any(line.is_cut or line.loss for line in lines)
            or self._is_late(0)
            or self._is_late(1)
        )

    def ping(self) -> None:
        """Send a ping from the end that connected, and its answer from the other end."""

        def pinged() -> None:
            if self._is_half_open:
                self._refuse()
            elif not self._ended[1]:
                self._hear(1)
                self.carrier.send(SMALL, partial(self._hear, 0), back=True)

        self.carrier.send(SMALL, pinged)

    def pong(self, at: float) -> None:
        """Record an answered ping that was sent at the instant `at`: the lines were intact."""
        self._beats.hear(1, at + self._beats.takes)
        self._beats.hear(0, at + 2 * self._beats.takes)

    def look_at_lines(self) -> None:
        """React to a change of the lines: send held messages again, or predict the end of the connection."""
        now, were_cut = trio.current_time(), self._were_cut
        if self.carrier.is_cut:
            self._settle_watch(now)
        are_cut = self.carrier.line().is_cut, self.carrier.line(back=True).is_cut
        if were_cut == are_cut == (False, False):
            return  # nothing is held: a fault of other lines, as nearly all are in a large network
        if any(were_cut):
            self._hear_pings(now, were_cut)
        elif any(are_cut) and not any(self._ended) and not self._is_late(0) and not self._is_late(1):
            self._beats.pass_idle_time(now)
        if any(were_cut) and not any(are_cut):
            self._whole_since = now
        if were_cut[1] and not are_cut[1]:
            self._back_since = now
        if any(are_cut):
            self._look_again()
        self._were_cut = are_cut
        self.carrier.look_at_lines()
        self._look_at_watch()

    def _hear(self, end: int) -> None:
        now, beats = self.carrier.network.now(), self._beats
        if now > beats.next_ping:
            self._settle_watch(now)
        if now > beats.next_ping and not any((*self._were_cut, *self._ended)):
            is_idle = min(beats.ping(0), beats.ping(1)) > self._whole_since
            if is_idle:  # else its pings come with what was held
                beats.pass_idle_time(now)
        beats.hear(end, now)

    def _hear_pings(self, now: float, were_cut: tuple[bool, bool]) -> None:
        """Account for the pings sent up to now during a cut: held pings go before later messages."""
        pings = self._beats.ping(0), self._beats.ping(1)
        for end, ping in enumerate(pings):
            if ping >= now or self._ended[end]:
                continue
            if were_cut[end]:
                self._hold_word(end, ping)
            else:
                self._beats.hear(1 - end, ping)
                if were_cut[1 - end] and not self._ended[1 - end]:
                    self._hold_word(1 - end, ping)  # the pong

    def _hold_word(self, end: int, sent_at: float) -> None:
        """Once the cut is over, send the ping or pong that an end sent during it, at `sent_at`."""
        if not self.carrier.line(back=end == 1).is_cut:
            self.carrier.hold(SMALL, sent_at, partial(self._hear, 1 - end), back=end == 1)

    # ---- the looks of both ends

    def _look_again(self) -> None:
        """End the silent ends whose time is up, and set a timer for the next one."""
        self._forget_timer()
        now, waits = trio.current_time(), list[float]()
        for end in (0, 1):
            if self._ended[end] or not self._is_silent(end):
                continue
            gives_up = self._beats.gives_up(end)
            if gives_up <= now + SLACK:
                self.leave(end)
            else:  # what is under way may come in time, and is a sign of life
                waits.append(gives_up)
        if waits and not self.is_over:
            self._timer = self.carrier.network.rt.timers.call_at(min(waits), self._look_again)

    def _is_silent(self, end: int) -> bool:
        """Return whether an end receives nothing now, as its line is cut or a late message comes first."""
        return self._is_half_open or self.carrier.line(back=end == 0).is_cut or self._is_late(end)

    def _is_late(self, end: int) -> bool:
        """Return whether a message is still on its way to an end; later messages cannot overtake it."""
        return self.carrier.last_at(back=end == 0) > trio.current_time()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- the end

    def leave(self, end: int) -> None:
        """End one end of the connection; the other end learns of this when a message about it arrives."""
        if self._ended[end]:
            return
        self._ended = (self._ended[0], True) if end else (True, self._ended[1])
        if not self._ended[1 - end]:
            self.carrier.send(SMALL, partial(self.leave, 1 - end), back=end == 1)
        else:
            self._forget_timer()
            self.carrier.drop()
        self._end(end)

    def half_open(self) -> bool:
        """End the serving end without notice: the other end detects it when it sends or pings.

        Return whether both ends existed.
        """
        if any(self._ended):
            return False
        self._settle_watch(trio.current_time())
        if not any(self._were_cut) and not self._is_late(0) and not self._is_late(1):
            self._beats.pass_idle_time(trio.current_time())
        self._is_half_open, self._ended = True, (False, True)
        self._end(1)
        self._look_again()
        self._look_at_watch()
        self._ping_in_time()
        return True

    def _ping_in_time(self) -> None:
        """Make the end that connected ping when its next ping is due, if it receives nothing until then."""
        ping = self._beats.ping(0)
        if self._ended[0]:
            return
        if ping <= trio.current_time() + SLACK:
            self.carrier.send(SMALL, self._refuse)
        else:
            self.carrier.network.rt.timers.call_at(ping, self._ping_in_time)

    def _refuse(self) -> None:
        """Notify the connecting end that the other end is gone."""
        self.carrier.send(SMALL, partial(self.leave, 0), back=True)

    def never_stood(self) -> None:
        """Mark both ends as ended without notifying either, because there was no connection."""
        self._ended = (True, True)
        self._forget_timer()

    def reset(self) -> None:
        """End the connection at both ends."""
        self.carrier.drop()
        self._forget_timer()
        before, self._ended = self._ended, (True, True)
        for end in (0, 1):
            if not before[end]:
                self._end(end)

    def _end(self, end: int) -> None:
        if end == 0:
            if self._watch is not None:
                self._watch.end()
            self._owner.connection_lost()
        elif self.serving is not None:
            self.serving.close()
