"""The byte level between the kit and a server: frames, stream items, sockets, handshakes and HTTP."""

from lmos_actors._late import late

with late(__name__):
    from ._frames import (
        BINARY as BINARY,
        CLOSE as CLOSE,
        CONTINUATION as CONTINUATION,
        PING as PING,
        PONG as PONG,
        TEXT as TEXT,
        FrameReader as FrameReader,
        FrameTooLong as FrameTooLong,
        RawFrame as RawFrame,
        accept_of as accept_of,
        close_payload as close_payload,
        mask as mask,
        write_frame as write_frame,
    )
    from ._handshake import (
        HandshakeOptions as HandshakeOptions,
        Refused as Refused,
        open_socket as open_socket,
    )
    from ._http import (
        HttpAnswer as HttpAnswer,
        Record as Record,
        Unreachable as Unreachable,
        exchange as exchange,
        read_json as read_json,
    )
    from ._items import LAST as LAST, ItemFrame as ItemFrame, read_item as read_item
    from ._socket import (
        ConnectionEnd as ConnectionEnd,
        ConnectionGone as ConnectionGone,
        Handshake as Handshake,
        Headers as Headers,
        Recorder as Recorder,
        Socket as Socket,
    )
