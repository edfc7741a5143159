"""Facades: ways other than LMOS to reach agents. Chat agents, Omnia's chat protocol, and AgentRelay.

The public names of conversations and relays are imported from here, as in `from lmos_actors.facades import
ChatAgent`.
"""

from lmos_actors._late import late

with late(__name__):
    from lmos_actors.persistence import NewIdentity as NewIdentity, SessionOptions as SessionOptions

    from .chat import (
        CallBegan as CallBegan,
        CallItem as CallItem,
        ChatAgent as ChatAgent,
        ChatItem as ChatItem,
        ChatMedia as ChatMedia,
        ChatPart as ChatPart,
        ChatTurn as ChatTurn,
        ClientAnswer as ClientAnswer,
        Interrupted as Interrupted,
        MediaPiece as MediaPiece,
        Recalled as Recalled,
        Said as Said,
        SessionEntry as SessionEntry,
        Sound as Sound,
        SoundFormat as SoundFormat,
        TextChunk as TextChunk,
        Tool as Tool,
        ToolCalled as ToolCalled,
        ToolReturned as ToolReturned,
        TurnBegan as TurnBegan,
        TurnDone as TurnDone,
        TurnFailure as TurnFailure,
        VoiceCall as VoiceCall,
        tool_of as tool_of,
    )
    from .omnia import (
        CallEvent as CallEvent,
        CallStatistics as CallStatistics,
        Chat as Chat,
        ChatAnswer as ChatAnswer,
        OmniaOptions as OmniaOptions,
        OutgoingCall as OutgoingCall,
        RemoteChat as RemoteChat,
        open_chat as open_chat,
    )
    from .relay import (
        ExtensionStore as ExtensionStore,
        Fate as Fate,
        History as History,
        HistoryOptions as HistoryOptions,
        HubControl as HubControl,
        HubExtension as HubExtension,
        HubFrame as HubFrame,
        HubRefusal as HubRefusal,
        Presence as Presence,
        Questions as Questions,
        Receipt as Receipt,
        Receipts as Receipts,
        Relay as Relay,
        RelayAnswer as RelayAnswer,
        RelayBridge as RelayBridge,
        RelayFault as RelayFault,
        RelayMember as RelayMember,
        RelayMessage as RelayMessage,
        RelayOptions as RelayOptions,
        RelayPeer as RelayPeer,
        Semantic as Semantic,
        Voting as Voting,
        Welcomed as Welcomed,
        agents_on_relay as agents_on_relay,
        join_relay as join_relay,
        open_relay as open_relay,
        register_on_relay as register_on_relay,
        revoke_on_relay as revoke_on_relay,
    )
