"""How agents are found: directories, and those who register and look there."""

from ._client import (
    Directory as Directory,
    DirectoryRefused as DirectoryRefused,
    HttpDirectory as HttpDirectory,
    place_of_directory as place_of_directory,
)
from ._found import Found as Found
from ._lookup import Lookup as Lookup
from ._mdns import (
    Announced as Announced,
    Announcement as Announcement,
    Announcer as Announcer,
    addresses_of as addresses_of,
    browse as browse,
    name_of as name_of,
)
from ._register import (
    TTL as TTL,
    Exhibit as Exhibit,
    Registered as Registered,
    Registrar as Registrar,
    Registration as Registration,
    paths_of as paths_of,
)
from ._seeking import Seeking as Seeking
from ._spreading import Choice as Choice
from ._wellknown import Explored as Explored, explore as explore, explore_all as explore_all
from .directory import (
    DirectoryOptions as DirectoryOptions,
    Notice as Notice,
    OwnDirectory as OwnDirectory,
    Page as Page,
    StoreFailed as StoreFailed,
    ThingDirectory as ThingDirectory,
    directory_routes as directory_routes,
    directory_spec as directory_spec,
)
