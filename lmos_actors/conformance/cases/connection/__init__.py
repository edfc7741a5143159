"""Cases for handshakes, frames, malformed messages and connections."""

from ._connections import CHAPTER as CONNECTIONS
from ._framing import CHAPTER as FRAMING
from ._handshake import CHAPTER as HANDSHAKE
from ._malformed_messages import CHAPTER as MALFORMED_MESSAGES

__all__ = ["CONNECTIONS", "FRAMING", "HANDSHAKE", "MALFORMED_MESSAGES"]
