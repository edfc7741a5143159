"""Discovery of agents: registration, search, DNS-SD and well-known URLs (WoT Discovery)."""

from lmos_actors._late import late

with late(__name__):
    from ._client import (
        REQUEST_SECONDS as REQUEST_SECONDS,
        Directory as Directory,
        DirectoryRefused as DirectoryRefused,
        HttpDirectory as HttpDirectory,
        place_of_directory as place_of_directory,
    )
    from ._exploration import Exploration as Exploration, explore as explore, explore_all as explore_all
    from ._finder import AgentFinder as AgentFinder
    from ._lookup import Lookup as Lookup
    from ._mdns import (
        Announcement as Announcement,
        Announcer as Announcer,
        DiscoveredService as DiscoveredService,
        addresses_of as addresses_of,
        browse as browse,
        name_of as name_of,
    )
    from ._registrar import (
        MAX_AGENTS as MAX_AGENTS,
        TTL as TTL,
        ExposedAgent as ExposedAgent,
        Registered as Registered,
        Registrar as Registrar,
        Registration as Registration,
        ServedAgents as ServedAgents,
        notifier_of as notifier_of,
    )
    from ._replica_link import ReplicaLink as ReplicaLink
    from ._search_results import (
        LEASE as LEASE,
        Found as Found,
        is_array as is_array,
        is_object as is_object,
    )
