"""Omnia's chat protocol: its server for chat agents, and its client for agents of other servers."""

from lmos_actors._late import late

with late(__name__):
    from ._client import (
        Chat as Chat,
        ChatAnswer as ChatAnswer,
        chat_url as chat_url,
        open_chat as open_chat,
    )
    from ._options import OmniaOptions as OmniaOptions
    from ._outgoing_call import (
        CallEvent as CallEvent,
        CallStatistics as CallStatistics,
        OutgoingCall as OutgoingCall,
    )
    from ._remote_chat import RemoteChat as RemoteChat
    from ._server import (
        OmniaServer as OmniaServer,
    )
