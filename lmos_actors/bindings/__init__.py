"""Bindings of agents to LMOS and HTTP: a node's own agents are exposed, agents of other nodes consumed."""

from lmos_actors._late import late

with late(__name__):
    from .consumed._consume import (
        ContractWarning as ContractWarning,
        consume as consume,
        consume_thing as consume_thing,
        remote_ref as remote_ref,
        remote_thing as remote_thing,
    )
    from .consumed._found import (
        found_link as found_link,
        hrefs_of as hrefs_of,
        is_connected as is_connected,
        is_down as is_down,
        look_elsewhere as look_elsewhere,
        names_of as names_of,
        reached as reached,
        thing_of as thing_of,
    )
    from .consumed._peers import (
        Peers as Peers,
        headers_with as headers_with,
    )
    from .consumed._target import (
        fetch as fetch,
    )
    from .consumed._thing import (
        ConsumedThing as ConsumedThing,
    )
    from .exposure._access_middleware import (
        asks_nothing as asks_nothing,
        guarded as guarded,
        presented_by as presented_by,
        presented_in as presented_in,
        principal_of as principal_of,
    )
    from .exposure._bind_policy import (
        ArgumentNames as ArgumentNames,
        check_exposed as check_exposed,
    )
    from .exposure._description_security import (
        anything as anything,
        check_sight as check_sight,
        discreet as discreet,
        sees as sees,
    )
    from .exposure._descriptions import (
        Descriptions as Descriptions,
        http_of as http_of,
        url_of as url_of,
    )
    from .exposure._exposure import (
        EXITED as EXITED,
        Exposed as Exposed,
        Exposure as Exposure,
        is_private as is_private,
        name_in_url as name_in_url,
        path_named as path_named,
        public_name as public_name,
    )
    from .exposure._meter import Arrival as Arrival
    from .exposure._served_connections import (
        LEAVING as LEAVING,
        ServedConnections as ServedConnections,
    )
    from .exposure._shared_values import (
        SharedValues as SharedValues,
    )
    from .exposure._values import (
        plain as plain,
        plain_members as plain_members,
    )
    from .http._agent_request import (
        AgentRequest as AgentRequest,
    )
    from .http._options import (
        HttpOptions as HttpOptions,
    )
    from .http._values import (
        valued as valued,
        written_value as written_value,
    )
    from .lmos._near_errors import (
        as_near_error as as_near_error,
        means_unwell as means_unwell,
        no_connection as no_connection,
    )
    from .lmos._peer import (
        Habits as Habits,
        Headers as Headers,
        Peer as Peer,
    )
    from .lmos._peer_backoff import (
        Backoff as Backoff,
    )
    from .lmos._peer_listening import (
        RemoteCrash as RemoteCrash,
        SharedListening as SharedListening,
    )
    from .lmos._peer_requests import (
        PendingRequest as PendingRequest,
        RemoteThing as RemoteThing,
        RunQuestion as RunQuestion,
        SentTell as SentTell,
        TurnTell as TurnTell,
    )
    from .lmos._peer_streams import (
        StreamTarget as StreamTarget,
    )
    from .lmos._peer_watch import (
        LOOK as LOOK,
        PING as PING,
    )
    from .lmos._remote_calls import (
        RemoteCall as RemoteCall,
        RemoteRun as RemoteRun,
        RemoteStream as RemoteStream,
    )
    from .lmos._remote_interface import (
        ClassInterface as ClassInterface,
    )
    from .lmos._remote_link import (
        RemoteLink as RemoteLink,
    )
    from .lmos._request_line import (
        RequestLine as RequestLine,
    )
    from .lmos._server import (
        LmosServer as LmosServer,
    )
    from .lmos._server_answers import (
        has_no_result as has_no_result,
    )
    from .lmos._server_listeners import (
        Listener as Listener,
        Listeners as Listeners,
        exited as exited,
    )
    from .lmos._server_requests import (
        action_requested as action_requested,
        representative as representative,
        requested_operation as requested_operation,
    )
    from .lmos._server_tells import (
        IncomingTells as IncomingTells,
        WaitingTells as WaitingTells,
    )
