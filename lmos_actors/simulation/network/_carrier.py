"""Messages between two nodes, in order: each takes the time of its line, and is held during a cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.links import Line

    from ._peer import NetworkParts

    _Held: TypeAlias = tuple[bool, float, int, Callable[[], object]]
    """A message that a cut holds: whether it goes back, when it was sent, its size and its arrival."""


class Carrier:
    """The messages of one connection in both directions, over the two lines between two nodes.

    `source` is the node that connects; messages of the other node go `back`. A message that is sent while its
    line is cut is held, and is sent again after the cut. `drop` drops all messages that have not arrived.

    Each connection has its own order: a lost message holds up no other connection on the same lines, such as
    its successor.
    """

    # There is one for each pair of nodes that talks: floats and None take less memory than tables.
    __slots__ = ("_back", "_back_at", "_generation", "_held", "_there", "_there_at", "is_instant", "network")

    def __init__(self, network: NetworkParts, source: str, target: str) -> None:
        self.network = network
        self.is_instant = False
        """Whether everything arrives at once, whatever the lines are."""
        links = network.links
        self._there = links.line(source, target)
        self._back: Line | None = None  # made when something goes back, or a fault may have cut it
        self._there_at = self._back_at = 0.0  # when the last message arrives that was sent over each
        self._generation = 0
        self._held: list[_Held] | None = None  # None while the lines are up, as nearly always

    def line(self, *, back: bool = False) -> Line:
        """Return the line to the other node, or the line back, in its present state."""
        line, links = self._line_back() if back else self._there, self.network.links
        if line.version != links.version:
            links.update(line)
        return line

    def _line_back(self) -> Line:
        there, back = self._there, self._back
        if back is None:
            back = self._back = self.network.links.line(there.target, there.source)
        return back

    @property
    def is_cut(self) -> bool:
        """Whether one of the lines is cut."""
        if not self.network.links.has_faults:
            return False
        return self.line().is_cut or self.line(back=True).is_cut

    def last_at(self, *, back: bool = False) -> float:
        """Return the arrival time of the last message in this direction, or 0.0 if there was none."""
        return self._back_at if back else self._there_at

    def send(
        self, size: int, arrive: Callable[[], object], request: Any = None, *, back: bool = False
    ) -> float | None:
        """Send a message of `size` bytes, and call `arrive` at the other end when it arrives.

        `request` is the request that the bytes belong to, if known. Return the seconds until the arrival, or
        None if they are not known yet.
        """
        if self.is_instant:
            arrive()
            return None
        line, now, links = self._there, self.network.now(), self.network.links
        if back:
            line = self._back or self._line_back()
        if line.version != links.version:  # as `line`, without the call
            links.update(line)
        on_sent = self.network.on_sent
        if line.cut_since is not None:
            self._hold((back, now, size, arrive))
            if on_sent is not None:
                on_sent(line, _what(request, size), now, None, False)
            return None
        arrives = links.send_in_order(line, size, now, after=self._back_at if back else self._there_at)
        self._note_arrival(arrives, back=back)
        if line.retries:
            self.network.note("late", line, request, size)
        if on_sent is not None:
            on_sent(line, _what(request, size), now, (arrives,), False)
        self._at(arrives, arrive)
        return arrives - now

    def hold(self, size: int, sent_at: float, arrive: Callable[[], object], *, back: bool = False) -> None:
        """Hold a message as if it had been sent at `sent_at`, while the line was cut."""
        self._hold((back, sent_at, size, arrive)).sort(key=lambda held: held[1])
        if self.network.on_sent is not None:
            self.network.on_sent(self.line(back=back), _what(None, size), sent_at, None, False)

    def _hold(self, held: _Held) -> list[_Held]:
        if self._held is None:
            self._held = []
        self._held.append(held)
        return self._held

    def _note_arrival(self, when: float, *, back: bool) -> None:
        if back:
            self._back_at = when
        else:
            self._there_at = when

    def _at(self, when: float, arrive: Callable[[], object]) -> None:
        generation = self._generation

        def arrived() -> None:
            if generation == self._generation:
                arrive()

        self.network.rt.timers.call_at(when, arrived)

    def look_at_lines(self) -> None:
        """Send held messages whose line is up again."""
        now, links = self.network.now(), self.network.links
        held, self._held = self._held, None
        for back, sent_at, size, arrive in held or ():
            line = self.line(back=back)
            if line.is_cut:
                self._hold((back, sent_at, size, arrive))
            else:
                arrives = links.send_again(line, size, sent_at, now, after=self.last_at(back=back))
                self._note_arrival(arrives, back=back)
                self._at(arrives, arrive)
                if self.network.on_sent is not None:
                    self.network.on_sent(line, _what(None, size), now, (arrives,), True)

    def drop(self) -> None:
        """Drop everything that has not arrived."""
        self._generation += 1
        held, self._held = self._held, None
        if self.network.on_sent is not None:
            for back, sent_at, size, _ in held or ():
                self.network.on_sent(self.line(back=back), _what(None, size), sent_at, (), True)


def _what(request: Any, size: int) -> str:
    return f"{size} bytes" if request is None else str(request.name)
