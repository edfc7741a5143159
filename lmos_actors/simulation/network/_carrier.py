"""Messages between two nodes, in order: each takes the time of its line, and is held during a cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.links import Line

    from ._peer import NetworkParts


class Carrier:
    """The messages of one connection in both directions, over the two lines between two nodes.

    `source` is the node that connects; messages of the other node go `back`. A message that is sent while its
    line is cut is held, and is sent again after the cut. `drop` drops all messages that have not arrived.

    Each connection has its own order: a lost message holds up no other connection on the same lines, such as
    its successor.
    """

    __slots__ = ("_generation", "_held", "_last_at", "_lines", "is_instant", "network", "source", "target")

    def __init__(self, network: NetworkParts, source: str, target: str) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.is_instant = False
        """Whether everything arrives at once, whatever the lines are."""
        links = network.links
        self._lines = links.line(source, target), links.line(target, source)
        self._generation = 0
        self._held: list[tuple[Line, float, int, Callable[[], object]]] = []
        self._last_at: dict[Line, float] = {}  # when the last message arrives that was sent over each

    def line(self, *, back: bool = False) -> Line:
        """Return the line to the other node, or the line back, in its present state."""
        line, links = self._lines[back], self.network.links
        if line.version != links.version:
            links.update(line)
        return line

    @property
    def is_cut(self) -> bool:
        """Whether one of the lines is cut."""
        return self.line().is_cut or self.line(back=True).is_cut

    def last_at(self, *, back: bool = False) -> float:
        """Return the arrival time of the last message in this direction, or 0.0 if there was none."""
        return self._last_at.get(self.line(back=back), 0.0)

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
        line, now, links = self._lines[back], self.network.now(), self.network.links
        if line.version != links.version:  # as `line`, without the call
            links.update(line)
        on_sent = self.network.on_sent
        if line.cut_since is not None:
            self._held.append((line, now, size, arrive))
            if on_sent is not None:
                on_sent(line, _what(request, size), now, None, False)
            return None
        arrives = links.send_in_order(line, size, now, after=self._last_at.get(line, 0.0))
        self._last_at[line] = arrives
        if line.retries:
            self.network.note("late", line, request, size)
        if on_sent is not None:
            on_sent(line, _what(request, size), now, (arrives,), False)
        self._at(arrives, arrive)
        return arrives - now

    def hold(self, size: int, sent_at: float, arrive: Callable[[], object], *, back: bool = False) -> None:
        """Hold a message as if it had been sent at `sent_at`, while the line was cut."""
        line = self.line(back=back)
        self._held.append((line, sent_at, size, arrive))
        if self.network.on_sent is not None:
            self.network.on_sent(line, _what(None, size), sent_at, None, False)
        self._held.sort(key=lambda held: held[1])

    def _at(self, when: float, arrive: Callable[[], object]) -> None:
        generation = self._generation

        def arrived() -> None:
            if generation == self._generation:
                arrive()

        self.network.rt.timers.call_at(when, arrived)

    def look_at_lines(self) -> None:
        """Send held messages whose line is up again."""
        now, links = self.network.now(), self.network.links
        held, self._held = self._held, []
        for line, sent_at, size, arrive in held:
            links.line(line.source, line.target)  # as it is now
            if line.is_cut:
                self._held.append((line, sent_at, size, arrive))
            else:
                after = self._last_at.get(line, 0.0)
                arrives = self._last_at[line] = links.send_again(line, size, sent_at, now, after=after)
                self._at(arrives, arrive)
                if self.network.on_sent is not None:
                    self.network.on_sent(line, _what(None, size), now, (arrives,), True)

    def drop(self) -> None:
        """Drop everything that has not arrived."""
        self._generation += 1
        if self.network.on_sent is not None:
            for line, sent_at, size, _ in self._held:
                self.network.on_sent(line, _what(None, size), sent_at, (), True)
        self._held.clear()


def _what(request: Any, size: int) -> str:
    return f"{size} bytes" if request is None else str(request.name)
