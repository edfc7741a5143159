"""Discovery of agents: directories, registration, search, DNS-SD and well-known URLs (WoT Discovery)."""

from ._client import (
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
    TTL as TTL,
    ExposedAgent as ExposedAgent,
    Registered as Registered,
    Registrar as Registrar,
    Registration as Registration,
    notifier_of as notifier_of,
)
from ._replica_link import ReplicaLink as ReplicaLink
from ._search_results import Found as Found
from .directory import (
    DirectoryOptions as DirectoryOptions,
    Notice as Notice,
    OwnDirectory as OwnDirectory,
    Page as Page,
    ThingDirectory as ThingDirectory,
    directory_routes as directory_routes,
    directory_spec as directory_spec,
)
