"""The addresses of a relay."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from lmos_actors.errors import ConfigError


def relay_url(url: str) -> str:
    """Return the WebSocket address of a relay, from that address or the address of its server.

    `http://HOST` becomes `ws://HOST/arc`. Raise ConfigError for another scheme, or a token in the query.
    """
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not parts.netloc:
        raise ConfigError(f"a relay has an address like ws://HOST/arc, not {url!r}")
    if parts.query:
        raise ConfigError("a token is given by reference, such as env:ARC_TOKEN, and not in the address")
    return urlunsplit((scheme, parts.netloc, parts.path if parts.path not in ("", "/") else "/arc", "", ""))


def http_url(url: str, path: str) -> str:
    """Return the address of an HTTP path beside a relay. Raise ConfigError."""
    parts = urlsplit(relay_url(url))
    return urlunsplit(("https" if parts.scheme == "wss" else "http", parts.netloc, path, "", ""))
