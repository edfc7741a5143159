"""Those who listen to a far agent without a task of their own: followings and monitors of agents here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._peer_listening import Listening, Sink, Tap


class FarSinks:
    """The listeners of one far agent, by what they listen to; as a near agent's `Sinks`."""

    __slots__ = ("_tapped", "_taps")

    def __init__(self, tapped: Callable[[str, Sink], tuple[Tap, Listening]]) -> None:
        self._tapped = tapped
        self._taps: dict[tuple[str, Sink], tuple[Tap, Listening]] = {}

    def add(self, key: str, sink: Sink) -> None:
        """Let a sink hear what comes under `key` from now on, once there is a connection."""
        if (key, sink) not in self._taps:
            tap, listening = self._tapped(key, _Entrance(self, key, sink))
            if tap in listening.taps:
                self._taps[key, sink] = tap, listening

    def remove(self, key: str, sink: Sink) -> None:
        """Take a sink out; it may be gone already."""
        found = self._taps.pop((key, sink), None)
        if found is not None:
            tap, listening = found
            listening.leave(tap)


class _Entrance:
    """A sink that knows where it is kept, so that it is let go of when there will be no more."""

    __slots__ = ("_key", "_sink", "_sinks", "gap", "push")

    def __init__(self, sinks: FarSinks, key: str, sink: Sink) -> None:
        self.push = sink.push
        self.gap = sink.gap
        self._sinks = sinks
        self._key = key
        self._sink = sink

    def close(self) -> None:
        """It has ended for good."""
        self._sinks.remove(self._key, self._sink)
        self._sink.close()
