"""AgentRelay: a hub on this node, and agents of this node on any hub."""

from lmos_actors._late import late

with late(__name__):
    from lmos_actors.protocol.relay import (
        ExtensionStore as ExtensionStore,
        Fate as Fate,
        HubControl as HubControl,
        HubExtension as HubExtension,
        HubFrame as HubFrame,
        HubRefusal as HubRefusal,
        RelayAnswer as RelayAnswer,
        RelayFault as RelayFault,
        RelayMessage as RelayMessage,
        Welcomed as Welcomed,
    )
    from lmos_actors.protocol.relay.extensions import (
        History as History,
        HistoryOptions as HistoryOptions,
        Presence as Presence,
        Questions as Questions,
        Receipts as Receipts,
        Semantic as Semantic,
        Voting as Voting,
    )

    from ._bridge import (
        Bridge as Bridge,
        Bridges as Bridges,
        RelayBridge as RelayBridge,
        all_items as all_items,
    )
    from ._faults import fault_of as fault_of
    from ._hub import RelayHub as RelayHub
    from ._member import RelayMember as RelayMember, join_relay as join_relay
    from ._opening import open_relay as open_relay
    from ._options import Registration as Registration, RelayOptions as RelayOptions
    from ._peers import RelayPeer as RelayPeer
    from ._register import (
        agents_on_relay as agents_on_relay,
        register_on_relay as register_on_relay,
        revoke_on_relay as revoke_on_relay,
    )
    from ._sent import ACKNOWLEDGEMENTS as ACKNOWLEDGEMENTS, Receipt as Receipt
    from ._server import RelayServer as RelayServer
    from ._session import Relay as Relay
    from ._traces import carried as carried, trace_of as trace_of
    from ._urls import relay_url as relay_url
