"""Omnia's agent-facade chat protocol: frames, and the two ends of a connection. No sockets, no clock."""

from lmos_actors._late import late

with late(__name__):
    from ._calls import (
        DEFAULT_FORMAT as DEFAULT_FORMAT,
        CallIn as CallIn,
        FrameOrder as FrameOrder,
        agreed_format as agreed_format,
        proposed_format as proposed_format,
    )
    from ._client import (
        OF_NO_TURN as OF_NO_TURN,
        ClientConnection as ClientConnection,
        End as End,
        ServerSaid as ServerSaid,
    )
    from ._codec import (
        UnknownFrame as UnknownFrame,
        Unreadable as Unreadable,
        read_client_frame as read_client_frame,
        read_server_frame as read_server_frame,
        write_frame as write_frame,
    )
    from ._media import (
        BinaryFrame as BinaryFrame,
        MediaFrame as MediaFrame,
        MediaInfo as MediaInfo,
        UnreadableMedia as UnreadableMedia,
        read_media_frame as read_media_frame,
        write_media_frame as write_media_frame,
    )
    from ._messages import (
        INTERNAL_ERROR as INTERNAL_ERROR,
        INVALID_MESSAGE as INVALID_MESSAGE,
        MEDIA_NOT_ENABLED as MEDIA_NOT_ENABLED,
        OUTCOME_UNKNOWN as OUTCOME_UNKNOWN,
        PROVIDER_ERROR as PROVIDER_ERROR,
        RATE_LIMITED as RATE_LIMITED,
        SESSION_EXPIRED as SESSION_EXPIRED,
        TOOL_ERROR as TOOL_ERROR,
        UNSATISFIABLE_FORMAT as UNSATISFIABLE_FORMAT,
        UPLOAD_FAILED as UPLOAD_FAILED,
        Announcement as Announcement,
        AudioFormat as AudioFormat,
        Call as Call,
        CallEnded as CallEnded,
        Capabilities as Capabilities,
        Chunk as Chunk,
        ClientToolResult as ClientToolResult,
        Connected as Connected,
        Done as Done,
        ErrorFrame as ErrorFrame,
        Fault as Fault,
        Hangup as Hangup,
        Interrupt as Interrupt,
        MediaChunk as MediaChunk,
        MediaPiece as MediaPiece,
        Outcome as Outcome,
        Part as Part,
        Refusal as Refusal,
        ServerMessage as ServerMessage,
        SessionConfig as SessionConfig,
        StoredUpload as StoredUpload,
        ToolCall as ToolCall,
        ToolCallNack as ToolCallNack,
        ToolResult as ToolResult,
        UploadOrder as UploadOrder,
        UploadReady as UploadReady,
        UploadTicket as UploadTicket,
        UserMessage as UserMessage,
    )
    from ._server import (
        MAX_WAITING as MAX_WAITING,
        CallAccepted as CallAccepted,
        CallAnswered as CallAnswered,
        HungUp as HungUp,
        MediaReceived as MediaReceived,
        MessageReceived as MessageReceived,
        ServerConnection as ServerConnection,
        ServerEvent as ServerEvent,
        ServerOptions as ServerOptions,
        ServerTurn as ServerTurn,
        UploadWanted as UploadWanted,
    )
