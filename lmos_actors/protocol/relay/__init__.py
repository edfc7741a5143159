"""The AgentRelay protocol: frames, the hub's and the agent's end. No sockets, no clock."""

from lmos_actors._late import late

with late(__name__):
    from ._client import (
        RelayAnswer as RelayAnswer,
        RelayClient as RelayClient,
        RelayEvent as RelayEvent,
        RelayFault as RelayFault,
        RelayMessage as RelayMessage,
        Welcomed as Welcomed,
    )
    from ._extension import (
        ExtensionStore as ExtensionStore,
        Fate as Fate,
        HubControl as HubControl,
        HubExtension as HubExtension,
        HubFrame as HubFrame,
        HubRefusal as HubRefusal,
        Records as Records,
    )
    from ._frames import (
        EVERYBODY as EVERYBODY,
        RELAY as RELAY,
        Members as Members,
        Unreadable as Unreadable,
        read_members as read_members,
        text_of as text_of,
        value_of as value_of,
    )
    from ._hub import (
        AUTH_MISMATCH as AUTH_MISMATCH,
        ERROR_CODES as ERROR_CODES,
        INVALID_MESSAGE as INVALID_MESSAGE,
        NOT_ALLOWED as NOT_ALLOWED,
        RATE_LIMIT as RATE_LIMIT,
        TOO_LARGE as TOO_LARGE,
        UNAVAILABLE as UNAVAILABLE,
        UNKNOWN_COMMAND as UNKNOWN_COMMAND,
        Hub as Hub,
        HubConnection as HubConnection,
        HubOptions as HubOptions,
        HubStatistics as HubStatistics,
    )
    from ._outbox import STEP as STEP, Outbox as Outbox
