"""Host names and browser origins that requests may carry: the defence against DNS rebinding and CSRF."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::([0-9]{1,5}))?", re.IGNORECASE)
_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]{0,31})://([^/?#@\s]{1,300})", re.IGNORECASE)
_NAME: Final = re.compile(r"(\*\.)?[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_PORTS: Final = {"http": "80", "https": "443"}
ANY: Final = "*"


def host_of(authority: str) -> tuple[str, str] | None:
    """Split a Host value into host (lower case, no brackets, no final dot) and port ("" if absent).

    Return None if the value is malformed.
    """
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    host = found[1].lower()
    if host.startswith("["):
        return (host[1:-1], found[2] or "") if _is_address(host[1:-1]) else None
    host = host.removesuffix(".")
    return (host, found[2] or "") if host else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def origin_of(text: str) -> str | None:
    """Return an origin normalized for comparison (lower case, no default port); None if malformed."""
    found = _ORIGIN.fullmatch(text)
    host = None if found is None else host_of(found[2])
    return None if found is None or host is None else _origin(found[1].lower(), *host)


def own_origin(authority: str, *, secure: bool) -> str | None:
    """Return the origin of this node's own pages, under the name in the request's Host header."""
    host = host_of(authority)
    return None if host is None else _origin("https" if secure else "http", *host)


def own_origin_at(url: str) -> str | None:
    """Return the origin of this node's own pages under a URL of the node; `wss` counts as `https`."""
    scheme, _, rest = url.partition("://")
    authority = rest.partition("/")[0]
    return own_origin(authority, secure=scheme.lower() in ("https", "wss"))


def _origin(scheme: str, host: str, port: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    port = port.lstrip("0")
    return f"{scheme}://{shown}" if port in ("", _PORTS.get(scheme)) else f"{scheme}://{shown}:{port}"


class Hosts:
    """Host names that this node answers to.

    It always answers to addresses and `localhost`, which a web page cannot redirect. Any other name may have
    been pointed at this address by the page's own server (DNS rebinding), so it has to be configured.
    """

    def __init__(self, names: Iterable[str]) -> None:
        found = [name.lower() for name in names]
        self._all = ANY in found
        self._names = frozenset(name for name in found if not name.startswith("*"))
        self._under = tuple(name[1:] for name in found if name.startswith("*."))

    def has(self, host: str) -> bool:
        """Return whether the node answers to a host name (lower case, no port)."""
        if self._all or host in self._names or host == "localhost" or host.endswith(".localhost"):
            return True
        return _is_address(host) or host.endswith(self._under)


def check_host(name: object) -> str:
    """Validate and return a host name: `weather.example`, `*.example`, or `*` for any. Raises ConfigError."""
    text = name.lower().removesuffix(".") if isinstance(name, str) else ""
    if text == ANY or _NAME.fullmatch(text) or _is_address(text.strip("[]")):
        return text.strip("[]")
    raise ConfigError(f"{name!r} is not a host name: write it without scheme and port, 'weather.example'")


def check_origin(text: object) -> str:
    """Validate an origin such as `https://app.example` and return it normalized. Raises ConfigError."""
    found = origin_of(text) if isinstance(text, str) else None
    if found is None:
        hint = " (it would let every web page act as its user)" if text == ANY else ""
        raise ConfigError(f"{text!r} is not an origin{hint}: write each as 'https://app.example'")
    return found
