"""Rewriting of a server's own addresses, so that they lead through the recorder.

In a description these are the members `href` and `base`; in an answer, the headers whose address a client
follows. Addresses of other servers are not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from lmos_actors.errors import ConfigError
from lmos_actors.files import is_list, is_mapping
from lmos_actors.transport import endpoint_of

if TYPE_CHECKING:
    from lmos_actors.transport import Endpoint

LEADING: Final = (b"location", b"content-location")
MEMBERS: Final = ("href", "base")

_TO_PLAIN: Final = {"wss": "ws", "https": "http", "ws": "ws", "http": "http"}


class Rewriter:
    """A rewriter of one server's addresses to the recorder's. `elsewhere` holds the other servers found."""

    def __init__(self, server: Endpoint, recorder: str) -> None:
        self._server = server
        self._recorder = recorder
        self.elsewhere: dict[str, None] = {}

    def url(self, url: str) -> str:
        """Return an address; an address of the server is replaced by the recorder's."""
        try:
            parts = urlsplit(url)
            place = endpoint_of(url.partition("{")[0]) if parts.scheme in _TO_PLAIN else None
        except (ConfigError, ValueError):
            return url
        if place is None:
            return url
        if (place.secure, place.host, place.port) != (
            self._server.secure,
            self._server.host,
            self._server.port,
        ):
            if len(self.elsewhere) < 100:
                self.elsewhere[f"{parts.scheme}://{place.authority}"] = None
            return url
        return urlunsplit((_TO_PLAIN[parts.scheme], self._recorder, *parts[2:]))

    def description(self, text: bytes) -> bytes:
        """Return a text with descriptions, their addresses rewritten, and any other text unchanged."""
        try:
            data = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return text
        if not any(is_mapping(each) and "@context" in each for each in (data if is_list(data) else [data])):
            return text
        return msgspec.json.encode(self._rewritten(data))

    def _rewritten(self, data: Any) -> Any:
        if is_mapping(data):
            return {
                name: self.url(value)
                if name in MEMBERS and isinstance(value, str)
                else self._rewritten(value)
                for name, value in data.items()
            }
        return [self._rewritten(each) for each in data] if is_list(data) else data

    def header(self, name: bytes, value: bytes) -> bytes:
        """Return the value of a header, rewritten if the header has an address that a client follows."""
        return self.url(value.decode("latin-1")).encode("latin-1") if name.lower() in LEADING else value

    def origin(self, value: bytes) -> bytes:
        """Return the origin of a page; the recorder's origin is replaced by the server's."""
        own = f"http://{self._recorder}".encode("latin-1")
        scheme = "https" if self._server.secure else "http"
        return f"{scheme}://{self._server.authority}".encode() if value.lower() == own else value
