"""A decoder of frames that knows how long a message may be."""

from __future__ import annotations

from wsproto.frame_protocol import CloseReason, FrameDecoder, Opcode, ParseFailed


class LimitedDecoder(FrameDecoder):
    """A decoder that refuses a message as soon as a header claims more bytes than it may have."""

    def __init__(self, client: bool, limit: int) -> None:
        super().__init__(client)
        self._limit = limit
        self._size = 0  # bytes that the message in progress has claimed

    def parse_header(self) -> bool:
        if not super().parse_header():
            return False
        if self.header is not None and not self.header.opcode.iscontrol():
            size = self.header.payload_len
            size += self._size if self.header.opcode is Opcode.CONTINUATION else 0
            self._size = 0 if self.header.fin else size
            if size > self._limit:
                raise ParseFailed(f"a message has {self._limit} bytes at most", CloseReason.MESSAGE_TOO_BIG)
        return True
