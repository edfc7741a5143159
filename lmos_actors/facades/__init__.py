"""Facades: other ways to reach the agents of a node than LMOS. Chat agents, and Omnia's chat protocol.

The public names of conversations are imported from here: `from lmos_actors.facades import ChatAgent`.
"""

from lmos_actors.persistence import SessionOptions as SessionOptions

from .chat import (
    ChatAgent as ChatAgent,
    ChatItem as ChatItem,
    ChatMedia as ChatMedia,
    ChatPart as ChatPart,
    ChatTurn as ChatTurn,
    ClientAnswer as ClientAnswer,
    Said as Said,
    SessionEntry as SessionEntry,
    TextChunk as TextChunk,
    Tool as Tool,
    ToolCalled as ToolCalled,
    ToolReturned as ToolReturned,
    TurnBegan as TurnBegan,
    TurnDone as TurnDone,
    tool_of as tool_of,
)
from .omnia import (
    Chat as Chat,
    ChatAnswer as ChatAnswer,
    MediaPiece as MediaPiece,
    OmniaOptions as OmniaOptions,
    RemoteChat as RemoteChat,
    open_chat as open_chat,
)
