"""Conversations: chat agents, their turns, their tools."""

from ._agent import ChatAgent as ChatAgent
from ._items import (
    INVALID_MESSAGE as INVALID_MESSAGE,
    SESSION_EXPIRED as SESSION_EXPIRED,
    ChatItem as ChatItem,
    ChatMedia as ChatMedia,
    ChatPart as ChatPart,
    ClientAnswer as ClientAnswer,
    PartType as PartType,
    Said as Said,
    SessionEntry as SessionEntry,
    TextChunk as TextChunk,
    ToolCalled as ToolCalled,
    ToolReturned as ToolReturned,
    TurnBegan as TurnBegan,
    TurnDone as TurnDone,
)
from ._tools import Tool as Tool, shown_reason as shown_reason, tool_of as tool_of
from ._turn import ChatTurn as ChatTurn
