"""Things used over HTTP: one client for requests, descriptions and directories, over the node's `Network`."""

from lmos_actors._late import late

with late(__name__):
    from ._sse import (
        EventReader as EventReader,
    )
    from ._stream import (
        BadAnswer as BadAnswer,
        Head as Head,
        HttpStream as HttpStream,
        Unanswered as Unanswered,
        Unsendable as Unsendable,
        WebAnswer as WebAnswer,
        WebRequest as WebRequest,
        connect_failed as connect_failed,
    )
