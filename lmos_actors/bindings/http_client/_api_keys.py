"""API keys (TD 1.1, 5.3.3.7): whether a form asks for one, and the request that carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from lmos_actors.errors import NotAllowed, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lmos_actors._core import SecretBytes
    from lmos_actors.protocol.td import Description, SecurityScheme

    from ._forms import HttpOperation
    from ._stream import Headers

PLACES: Final = ("header", "query", "uri", "cookie")


def _asked_for(
    defined: Mapping[str, SecurityScheme],
    names: Iterable[str],
    *,
    has_key: bool,
    seen: set[str] | None = None,
) -> tuple[SecurityScheme, ...]:
    """Return the schemes for API keys among the named ones, each once.

    Among the alternatives of a combination (`oneOf`), the first that asks for a key counts if there is a key
    to present, else the first that asks for none.
    """
    seen = set[str]() if seen is None else seen  # a combination may contain itself
    found: list[SecurityScheme] = []
    for name in names:
        scheme = None if name in seen else defined.get(name)
        seen.add(name)
        if scheme is None:
            continue
        if scheme.scheme == "apikey":
            found.append(scheme)
        found += _asked_for(defined, _names(scheme, "allOf"), has_key=has_key, seen=seen)
        ways = [_asked_for(defined, (one,), has_key=has_key, seen=seen) for one in _names(scheme, "oneOf")]
        found += next((way for way in ways if bool(way) == has_key), ways[0] if ways else ())
    return tuple(found)


def _names(scheme: SecurityScheme, word: str) -> tuple[str, ...]:
    named = scheme.extra.get(word) if scheme.scheme == "combo" else None
    if not isinstance(named, list):
        return ()
    listed: list[Any] = named  # pyright: ignore[reportUnknownVariableType]
    return tuple(each for each in listed if isinstance(each, str))


def with_keys(
    way: HttpOperation, values: Mapping[str, Any], described: Description, key: SecretBytes | None, path: str
) -> tuple[str, Headers]:
    """Return the URL of a request, and the headers for its server alone, with the API key that it needs.

    Raises InvalidInput as `HttpOperation.url` does, Unauthorized without a key, NotAllowed if the form asks
    for the key where none can be sent.
    """
    headers: list[tuple[bytes, bytes]] = []
    query: list[str] = []
    given, security = dict(values), way.form.security or ()
    names = (security,) if isinstance(security, str) else security
    for scheme in _asked_for(described.security_definitions or {}, names, has_key=key is not None):
        where, name = scheme.location or "query", scheme.name
        if name is None or where not in PLACES:
            what = f"in {where!r}" if name is not None else "without a name"
            raise NotAllowed(f"{path!r} asks for an API key {what}; one has a name, in {', '.join(PLACES)}")
        if key is None:
            raise Unauthorized(
                f"{path!r} asks for an API key ({where} {name!r}), and the node's credentials hold none for "
                f"{way.form.href.partition('{')[0][:200]!r}"
            )
        if where == "header":
            headers.append((name.encode("latin-1", "replace"), key))
        elif where == "cookie":
            headers.append((b"Cookie", type(key)(name.encode("latin-1", "replace") + b"=" + key)))
        elif where == "uri":
            given[name] = bytes(key).decode("ascii")
        else:
            query.append(f"{quote(name, safe='')}={quote(bytes(key), safe='')}")
    url = way.url(given)
    return (f"{url}{'&' if '?' in url else '?'}{'&'.join(query)}" if query else url), tuple(headers)
