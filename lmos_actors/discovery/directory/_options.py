"""What a directory may hold, for how long, and how much work one request may be."""

from __future__ import annotations

import math
import os
from typing import Any, Final

import attrs

from lmos_actors.errors import ConfigError

CENTURY: Final = (
    36_525 * 86_400.0
)  # seconds; a time to live beyond it leads out of the years that can be told


@attrs.frozen(kw_only=True)
class DirectoryOptions:
    """Where a directory keeps its registrations, and its limits.

    `path` is the SQLite database, made when it is not there; None keeps all in memory, for as long as the
    node lives. It belongs to one directory at a time.

    At most `max_entries` descriptions, each of at most `max_bytes` of JSON, together `max_total_bytes`.
    `default_ttl`: seconds after which a registration that names no end expires; None: never, or `max_ttl`.
    `max_ttl`: a registration for longer is refused. `max_events` and `max_event_bytes`: how much of what has
    happened is kept for those who come back with `Last-Event-ID`. `max_page`: descriptions in one page.
    `max_listeners`: streams of events at a time; `heartbeat_seconds`: after so long without an event a
    comment goes out on them. Of a search: `max_query` characters, `max_nodes` looked at, `search_seconds`
    (of real time alone), `max_answer_bytes`; `max_searches` at a time, four times as many may wait.
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

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(DirectoryOptions):
            value = getattr(self, field.name)
            if field.name.startswith("max_") and field.name != "max_ttl":
                _check_count(field.name, value)
            elif field.name != "path" and not (value is None and field.name.endswith("ttl")):
                _check_seconds(field.name, value)
        if self.path is not None and not isinstance(self.path, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"must be the path of a file, not {self.path!r}", "path")
        if self.max_ttl is not None and self.default_ttl is not None and self.default_ttl > self.max_ttl:
            raise ConfigError(f"must be at most max_ttl, {self.max_ttl:g} s", "default_ttl")

    @property
    def usual_ttl(self) -> float | None:
        """The seconds of a registration that names no end; None: it has none."""
        usual = self.max_ttl if self.default_ttl is None else self.default_ttl
        return None if usual is None else float(usual)

    @property
    def max_text(self) -> int:
        """The bytes of a description as it comes in: spaces, and its registration, are not kept."""
        return self.max_bytes * 2 + 4096

    @classmethod
    def of(cls, given: DirectoryOptions | str | os.PathLike[str] | bool) -> DirectoryOptions:
        """Return the options that an argument stands for: itself, a path, or True for one in memory."""
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
