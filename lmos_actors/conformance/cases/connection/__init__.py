"""Cases for handshakes, frames, malformed messages and connections."""

from lmos_actors._late import late

with late(__name__):
    from ._connections import CONNECTIONS as CONNECTIONS
    from ._framing import FRAMING as FRAMING
    from ._handshake import HANDSHAKE as HANDSHAKE
    from ._malformed_messages import MALFORMED_MESSAGES as MALFORMED_MESSAGES
