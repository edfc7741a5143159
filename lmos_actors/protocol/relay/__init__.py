"""The AgentRelay protocol: its frames, and the two ends, hub and agent. No sockets, no clock."""

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
        text_of as text_of,
        value_of as value_of,
    )
    from ._hub import (
        INVALID_MESSAGE as INVALID_MESSAGE,
        RATE_LIMIT as RATE_LIMIT,
        TOO_LARGE as TOO_LARGE,
        Hub as Hub,
        HubConnection as HubConnection,
        HubOptions as HubOptions,
        HubStatistics as HubStatistics,
    )
    from ._outbox import STEP as STEP, Outbox as Outbox
