"""Calls: sound in both directions over one connection, or over several in succession.

A call begins with a binary frame of a client. It ends with a frame that is flagged as the last one, or with a
`hangup`. This module has the rules for its frames, for both ends:

- **Numbers.** Each direction counts its frames over all connections of the call. A number beyond the next one
  means that frames were *lost*. After a resumption, frames with earlier numbers are *late* and are dropped.
  On a single connection no frame is late, because TCP keeps their order and not every client counts. If a
  client begins with 0 again after a resumption, the count starts anew.
- **Format.** A client proposes a format with its first frame, and the agent's own format overrides it part by
  part. The server answers with the agreed format. Frames that name another format are dropped until the
  client has changed, because they would sound wrong. A client that does not change within `CHANGE_SECONDS`
  cannot be served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ._messages import AudioFormat

if TYPE_CHECKING:
    from ._media import MediaFrame, MediaInfo

SOUND: Final = "audio/"
"""The beginning of the media types of sound."""

CHANGE_SECONDS: Final = 5.0
"""Seconds that a client has to send sound in the format that was agreed on."""

DEFAULT_FORMAT: Final = AudioFormat(codec="pcm", sample_rate=16_000, channels=1)
"""The format of a client that proposes none."""


@attrs.define
class FrameOrder:
    """The order of the frames of one direction. `lost` and `late` count frames."""

    lost: int = 0
    late: int = 0
    next: int | None = None
    """The number of the next frame; None before the first."""
    _is_resumed: bool = False

    def resume(self) -> None:
        """Prepare for the frames of another connection, on which the call continues."""
        self._is_resumed = True

    def take(self, number: int) -> bool:
        """Count a frame; return False if it is late."""
        expected, self.next = self.next, number + 1
        if expected is None or number == expected:
            return True
        if number > expected:
            self.lost += number - expected
        elif self._is_resumed and number:
            self.late += 1
            self.next = expected
            return False
        return True


def proposed_format(info: MediaInfo) -> AudioFormat | None:
    """Return the format that a client proposes with its first frame; None if the frame is not sound."""
    if info.mime_type and not info.mime_type.startswith(SOUND):
        return None
    named = AudioFormat(codec=info.codec or "", sample_rate=info.sample_rate, channels=info.channels)
    return _merged(DEFAULT_FORMAT, named)


def agreed_format(proposed: AudioFormat, wanted: AudioFormat | None) -> AudioFormat:
    """Return the wanted format, completed by the proposed one."""
    return proposed if wanted is None else _merged(proposed, wanted)


def _merged(format: AudioFormat, other: AudioFormat) -> AudioFormat:
    return AudioFormat(
        codec=other.codec or format.codec,
        sample_rate=other.sample_rate or format.sample_rate,
        channels=other.channels or format.channels,
    )


@attrs.define
class CallIn:
    """The sound that a client sends in a call, in the agreed `format`."""

    format: AudioFormat
    order: FrameOrder = attrs.field(factory=FrameOrder)
    taken: int = 0
    misformatted: int = 0
    """Frames that named another format."""
    _wrong_since: float | None = None

    def take(self, frame: MediaFrame, at: float) -> bool:
        """Count a frame; return whether its sound may be used."""
        if not self.order.take(frame.sequence):
            return False
        info, format = frame.info, self.format
        is_sound = not info.mime_type or info.mime_type.startswith(SOUND)
        named = (info.codec or None, info.sample_rate or None, info.channels or None)
        agreed = zip(named, (format.codec, format.sample_rate, format.channels), strict=True)
        if not is_sound or not all(name is None or name == known for name, known in agreed):
            self.misformatted += 1
            self._wrong_since = at if self._wrong_since is None else self._wrong_since
            return False
        self._wrong_since = None
        self.taken += 1
        return True

    def is_unsatisfiable(self, at: float) -> bool:
        """Return whether the client has failed to change its format in time."""
        return self._wrong_since is not None and at - self._wrong_since >= CHANGE_SECONDS
