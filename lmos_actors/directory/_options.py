"""Options of a directory: its database, limits of its content, and limits of a request's work."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from lmos_actors.security import SharedToken

_NO_NUMBERS: Final = ("path", "takeover", "takeover_token")
"""Options that are not numbers."""

CENTURY: Final = (
    36_525 * 86_400.0
)  # seconds; a longer time to live could end after the year 9999, which `datetime` cannot hold


@attrs.frozen(kw_only=True)
class DirectoryOptions:
    """Options of a directory.

    `path` is the SQLite database, created if missing, or the URL of a store in Redis with `writers=one`; None
    keeps everything in memory for the life of the node. Only one directory can use a database at a time.

    A directory holds at most `max_entries` descriptions, each of at most `max_bytes` of JSON, and at most
    `max_total_bytes` in total. `default_ttl`: time to live in seconds of a registration without an end; None:
    `max_ttl`, or no end. `max_ttl`: longest accepted time to live. `max_events` and `max_event_bytes`: size
    of the log of events for clients that resume with `Last-Event-ID`. `max_page`: descriptions in one page.
    `max_listeners`: open event streams; `heartbeat_seconds`: seconds without an event after which they get a
    comment. Limits of a search: `max_query` characters, `max_nodes` visited values, `search_seconds` (on real
    time only), `max_answer_bytes`; `max_searches` run concurrently, and four times as many may wait.

    Only the principal that created an entry may change it. Principals in `takeover` may change all entries;
    so may clients that present `takeover_token`, which can also use this directory regardless of access
    lists. If either is given, only these clients may register agents with a key (`lmosx:lease`).
    """

    path: str | os.PathLike[str] | None = None
    max_entries: int = 50_000
    max_bytes: int = 256 << 10
    max_total_bytes: int = 256 << 20
    default_ttl: float | None = None
    max_ttl: float | None = None
    max_events: int = 10_000
    max_event_bytes: int = 16 << 20
    max_page: int = 1_000
    max_listeners: int = 1_000
    heartbeat_seconds: float = 15.0
    max_query: int = 2_000
    max_nodes: int = 2_000_000
    search_seconds: float = 5.0
    max_answer_bytes: int = 16 << 20
    max_searches: int = 2
    takeover: tuple[str, ...] = ()
    takeover_token: SharedToken | None = None

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(DirectoryOptions):
            value = getattr(self, field.name)
            if field.name.startswith("max_") and field.name != "max_ttl":
                _check_count(field.name, value)
            elif field.name not in _NO_NUMBERS and not (value is None and field.name.endswith("ttl")):
                _check_seconds(field.name, value)
        if self.path is not None and not isinstance(self.path, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"must be the path of a file, not {self.path!r}", "path")
        named: Any = self.takeover
        names = cast("tuple[object, ...]", named) if isinstance(named, tuple) else (None,)
        if not all(isinstance(each, str) and each for each in names):
            raise ConfigError(f"must be a tuple of names of principals, not {named!r}", "takeover")
        if self.max_ttl is not None and self.default_ttl is not None and self.default_ttl > self.max_ttl:
            raise ConfigError(f"must be at most max_ttl, {self.max_ttl:g} s", "default_ttl")

    @property
    def copies(self) -> int:
        """Copies of each record in memory: two without a path, as the store is then in memory, too."""
        return 2 if self.path is None else 1

    @property
    def has_takeover(self) -> bool:
        """Whether there are principals that may change all entries."""
        return bool(self.takeover) or self.takeover_token is not None

    def may_take_over(self, who: str) -> bool:
        """Return whether a principal may change all entries."""
        return who in self.takeover or (self.takeover_token is not None and who == self.takeover_token.name)

    @property
    def usual_ttl(self) -> float | None:
        """Time to live of a registration without an end, in seconds; None for no end."""
        usual = self.max_ttl if self.default_ttl is None else self.default_ttl
        return None if usual is None else float(usual)

    @property
    def max_text(self) -> int:
        """Maximum bytes of a received description, before its white space and registration are removed."""
        return self.max_bytes * 2 + 4096

    @classmethod
    def of(cls, given: DirectoryOptions | str | os.PathLike[str] | bool) -> DirectoryOptions:
        """Return the options for an argument: options, a path, or True for a directory in memory."""
        if isinstance(given, cls):
            return given
        if given is True:
            return cls()
        if isinstance(given, str | os.PathLike):
            return cls(path=given)
        raise ConfigError(
            f"must be DirectoryOptions, the path of a database, or True, not {given!r}", "directory"
        )


def _check_count(name: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise ConfigError(f"must be a whole number of at least 1, not {value!r}", name)


def _check_seconds(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise ConfigError(f"must be a number of seconds above 0, not {value!r}", name)
    if value > CENTURY:
        raise ConfigError(f"must be at most a hundred years, not {value!r} s", name)
