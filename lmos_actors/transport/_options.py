"""Options, statistics and end of a connection, and the protocols for its handler and its listener."""

from __future__ import annotations

from typing import Final, Literal, Protocol

import attrs

from lmos_actors._core import TOTAL, check_limits
from lmos_actors.errors import ConfigError

_ENDLESS: Final = (
    "heartbeat_seconds", "heartbeat_grace", "handshake_seconds", "close_seconds", "write_seconds",
    "message_seconds",
)  # fmt: skip
"""Limits of a connection that infinity switches off."""

_UNSAYABLE: Final = (1004, 1005, 1006, 1015)


def check_close_code(code: int) -> None:
    """Raise ValueError if the code must not be sent in a Close frame (RFC 6455 7.4)."""
    if not 1000 <= code <= 4999 or code in _UNSAYABLE:
        raise ValueError(f"no Close frame may carry the code {code}")


@attrs.frozen(kw_only=True)
class ConnectionOptions:
    """The limits of a connection, in bytes and seconds. Raises ConfigError if one is not above 0.

    `max_message_bytes`: a peer that begins a longer message is closed with 1009. `heartbeat_seconds`: after
    this long without a byte from the peer, and twice as long at most, it is pinged. `heartbeat_grace`: how
    long it then has to send any bytes at all. `handshake_seconds`: for each of the handshakes (TCP and TLS
    together, then WebSocket). `close_seconds`: the maximum wait for the peer's Close, or the end of the
    stream. `write_seconds`: how long the peer has to take 64 KiB that wait. `message_seconds`: from the first
    byte of a message to its last; a peer that takes longer is closed with 1008. `total_bytes`: the limit of
    the memory that all peers of a node may occupy together, see `_budget.py`. `messages_per_second`: this
    many messages, including pings, may also arrive at once; a peer that sends more is closed with 1008.
    `fast_frames`: whole text frames are coded without wsproto, with the same verdicts. `needs_pongs`: the
    peer is pinged every `heartbeat_seconds`, and only its pongs count as a sign of life.

    A node of ours that owes an answer is pinged every 2 s, and given up after `answer_seconds` without a
    byte, at least 2, as its caller should not wait for heartbeats. `reconnect_seconds`: the longest pause
    between two attempts to connect again. `stop_seconds`: how long a node that stops waits for its peers, in
    addition to `close_seconds`.
    """

    max_message_bytes: int = 4 << 20
    heartbeat_seconds: float = 20.0
    heartbeat_grace: float = 20.0
    handshake_seconds: float = 10.0
    close_seconds: float = 5.0
    write_seconds: float = 30.0
    message_seconds: float = 300.0
    total_bytes: int = TOTAL
    messages_per_second: int | None = None
    fast_frames: bool = True
    needs_pongs: bool = False
    answer_seconds: float = 5.0
    reconnect_seconds: float = 30.0
    stop_seconds: float = 5.0

    def __attrs_post_init__(self) -> None:
        check_limits(self, endless=_ENDLESS)
        if self.messages_per_second is not None and not self.messages_per_second > 0:
            text = f"must be above 0, not {self.messages_per_second!r}"
            raise ConfigError(text, "ConnectionOptions.messages_per_second")
        if self.answer_seconds < 2:
            text = f"must be at least 2, not {self.answer_seconds!r}"
            raise ConfigError(text, "ConnectionOptions.answer_seconds")


@attrs.frozen
class ConnectionStatistics:
    """The traffic so far: messages, and bytes of frames with their heads."""

    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int


@attrs.frozen
class Ended:
    """The end of a connection.

    `by` is the side that ended it: "peer" or "us" by a Close frame, with its `code` and `reason` (1005: a
    Close without a code). It is "broken" if there was no Close: then `code` is None, and `reason` describes
    the break. `clean`: both sides have sent Close.
    """

    code: int | None
    reason: str
    by: Literal["peer", "us", "broken"]
    clean: bool


class Handler(Protocol):
    """The user of a connection, called from its tasks. Its methods do not wait, and should not raise.

    If one does raise, the connection ends with 1011, and `Connection.run` raises the exception.
    """

    def text(self, text: str) -> None:
        """Handle a text message from the peer."""
        ...

    def binary(self, data: bytes) -> None:
        """Handle a binary message from the peer."""
        ...

    def frames(self, room: int) -> list[bytes]:
        """Return messages to send, oldest first, until they fill `room` bytes; empty if no message waits.

        The last message may exceed `room`. Plain `bytes` are the UTF-8 of a text message; `server_text` makes
        a text that many connections share; instances of another subclass of bytes are a binary message.
        """
        ...

    # A handler may have `is_behind()`: nothing more is read, for a while, as long as that returns True.
    # It may have `overdrawn()`: that is called when it has to release, in a later step, what it holds.


class FrameListener(Protocol):
    """The receiver of the events of a wire. Its methods do not wait."""

    def on_text(self, text: str) -> None: ...
    def on_binary(self, data: bytes) -> None: ...
    def on_ping(self, payload: bytes) -> None: ...
    def on_pong(self) -> None: ...
    def on_trifle(self) -> None: ...
    def on_close(self, code: int, reason: str) -> None: ...
    def on_error(self, code: int, reason: str) -> None: ...

    @property
    def messages_in(self) -> int: ...


class Bucket:
    """A token bucket: `rate` tokens a second, and at most `rate` at once."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._left = rate
        self._at = now

    def take(self, now: float) -> bool:
        """Take a token; return whether one was available."""
        left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now
        if left < 1:
            self._left = left
            return False
        self._left = left - 1
        return True


def drop(_: object) -> None:
    """Do nothing; used in place of a handler's method while there is no handler."""
