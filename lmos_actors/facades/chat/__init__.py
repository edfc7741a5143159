"""Conversations: chat agents, their turns, their tools."""

from lmos_actors._late import late

with late(__name__):
    from ._agent import ChatAgent as ChatAgent
    from ._call import VoiceCall as VoiceCall
    from ._items import (
        GIVEN_UP as GIVEN_UP,
        INVALID_MESSAGE as INVALID_MESSAGE,
        SESSION_EXPIRED as SESSION_EXPIRED,
        CallBegan as CallBegan,
        CallItem as CallItem,
        ChatItem as ChatItem,
        ChatMedia as ChatMedia,
        ChatPart as ChatPart,
        ClientAnswer as ClientAnswer,
        Interrupted as Interrupted,
        MediaPiece as MediaPiece,
        PartType as PartType,
        Recalled as Recalled,
        Said as Said,
        SessionEntry as SessionEntry,
        Sound as Sound,
        SoundFormat as SoundFormat,
        TextChunk as TextChunk,
        ToolCalled as ToolCalled,
        ToolReturned as ToolReturned,
        TurnBegan as TurnBegan,
        TurnDone as TurnDone,
        TurnFailure as TurnFailure,
    )
    from ._tools import (
        Tool as Tool,
        raise_if_not_its_own as raise_if_not_its_own,
        shown_reason as shown_reason,
        tool_of as tool_of,
    )
    from ._turn import ChatTurn as ChatTurn
