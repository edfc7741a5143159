"""Access control before every route: nothing is looked up, read or decoded for a client that is not admitted.

Requests that are admitted carry their `Admission` to the routes, in `scope["state"]["admission"]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from lmos_actors.protocol.lmos import problem_of
from lmos_actors.security import Certificate, Refusal, RequestContext
from lmos_actors.transport import ClientLeft

from ._description_security import anything, sees

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, MutableMapping

    from lmos_actors._core import Headers
    from lmos_actors.security import Admission, Guard, Verb
    from lmos_actors.transport import App, ClientCertificate, Upgrade

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Send = Callable[[Message], Awaitable[None]]

PROBES: Final = ("/healthz", "/readyz")
"""Paths for probes, which know no names or secrets of the node; the answers reveal none either."""

AGENTS: Final = b"/agents/"
DESCRIPTIONS: Final = (b"/", b"/.well-known/wot", b"/agents", b"/openapi.json")

KEPT: Final = 64
"""Limit on the host names of this node that are remembered, each with its port."""

PROBLEM: Final = b"application/problem+json"
_PLAIN: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


def certificate_in(shown: ClientCertificate | None) -> Certificate | None:
    """Return a certificate in the form that the guard takes; None if there is none."""
    return None if shown is None else Certificate(shown.subject, shown.names, shown.fingerprint)


def presented_in(upgrade: Upgrade) -> RequestContext:
    """Return the context of a request for a WebSocket, for the guard."""
    certificate = certificate_in(upgrade.certificate)
    return RequestContext.of(
        upgrade.headers, upgrade.peer, secure=upgrade.secure, certificate=certificate, query=upgrade.query
    )


def presented_by(scope: Scope) -> RequestContext:
    """Return the context of an HTTP request, for the guard."""
    client = scope["client"]
    return RequestContext.of(
        tuple(scope["headers"]),
        "" if client is None else _peer(*client),
        secure=scope["scheme"] == "https",
        certificate=certificate_in(scope["state"].get("certificate")),
        query=scope["query_string"].decode("latin-1"),
        reads=scope["method"] in ("GET", "HEAD"),
    )


def _peer(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_of_other_page(headers: Headers) -> bool:
    """Return whether a request comes from a web page that is not certainly the node's own."""
    lines = dict(headers)
    return b"origin" in lines and lines.get(b"sec-fetch-site") != b"same-origin"


def principal_of(admission: Admission | None) -> str | None:
    """Return the principal of an admission; None if it has none."""
    who = None if admission is None else admission.principal
    return None if who is None else who.name


def nothing(agent: str, verb: Verb) -> bool:
    """Deny every right that access lists can grant."""
    return False


def rights_of(admission: Admission | None) -> Callable[[str, Verb], bool]:
    """Return the function by which agents test the rights of a client (`Request.allows`)."""
    return nothing if admission is None else admission.allows


def asks_nothing(guard: Guard) -> bool:
    """Return whether every admitted client may do everything, so that single requests need no check."""
    security = guard.security
    return security.is_open and not security.access and security.rate is None and not guard.operations


def guarded(app: App, guard: Guard, apart: Collection[str] = ()) -> App:
    """Return the application behind a guard, for the `http` scopes of the front door.

    Requests for the paths in `apart` are passed on unchecked, because their routes have another guard.
    """
    return _Guarded(app, guard, frozenset((*PROBES, *apart)))


class _Guarded:
    """An application behind a guard.

    On a node that asks for no credentials and names no origins of pages, it remembers the host names by
    which clients were admitted. A request to one of them that comes from no browser page and shows no
    credentials needs no further check. The credentials that one client shows do not count for others.
    """

    def __init__(self, app: App, guard: Guard, apart: frozenset[str]) -> None:
        self._app = app
        self._guard = guard
        self._apart = apart
        is_open = asks_nothing(guard)
        self._hosts: dict[bytes, Admission] | None = {} if is_open and not guard.security.origins else None
        self._all_is_seen = is_open or guard.security.public_descriptions

    def __call__(self, scope: Scope, receive: Any, send: Send) -> Awaitable[None]:
        if scope["path"] in self._apart:
            return self._app(scope, receive, send)
        if self._hosts is not None:
            host = _host_alone(scope)
            known = None if host is None else self._hosts.get(host)
            if known is not None:
                state = scope["state"]
                state["admission"], state["sees"] = known, anything
                return self._app(scope, receive, send)
        return self._checked(scope, receive, send)

    async def _checked(self, scope: Scope, receive: Any, send: Send) -> None:
        """Serve a request if the guard admits its client, else answer with the refusal."""
        presented, guard = presented_by(scope), self._guard
        before = guard.preflight(presented) if scope["method"] == "OPTIONS" else None
        is_public = before is not None or self._is_public(scope)
        found = guard.admit(presented, trio.current_time(), public=is_public)
        if isinstance(found, Refusal):
            await _answer(found.status, found, (*found.headers, *guard.cors(presented)), send)
        elif before is not None:
            await _answer(204, None, before, send)
        else:
            if self._hosts is not None:
                host = _host_alone(scope)
                if host is not None and len(self._hosts) < KEPT:
                    self._hosts[host] = found
            state = scope["state"]
            state["admission"], state["sees"] = found, anything if self._all_is_seen else sees(found)
            await self._app(scope, receive, _watched(send, found, guard, guard.cors(presented)))

    def _is_public(self, scope: Scope) -> bool:
        """Return whether a request only reads descriptions, and descriptions are public."""
        if not self._guard.security.public_descriptions or scope["method"] not in ("GET", "HEAD"):
            return False
        path = scope["raw_path"]
        return path in DESCRIPTIONS or (path.startswith(AGENTS) and b"/" not in path[len(AGENTS) :])


_LOOKED_AT: Final = (b"origin", b"authorization", b"sec-fetch-site")


def _host_alone(scope: Scope) -> bytes | None:
    """Return the host name of a request, if that alone can decide the admission.

    Return None if a web page sent the request, or it shows credentials or has two Host headers.
    """
    found: bytes | None = None
    for name, value in scope["headers"]:
        if name in _LOOKED_AT or (name == b"host" and found is not None):
            return None
        if name == b"host":
            found = value
    return found


def _watched(send: Send, admission: Admission, guard: Guard, more: Headers) -> Send:
    """Add the headers that browsers and challenges need, and end answers that outlive their credentials."""
    if not more and guard.security.is_open:
        return send

    async def sent(message: Message) -> None:
        begins = message["type"] == "http.response.start"
        if begins and not admission.valid(trio.current_time()):
            await _answer(401, guard.invalid_credentials, (*guard.invalid_credentials.headers, *more), send)
            raise ClientLeft("the credentials are no longer good")
        if begins:
            challenged = guard.challenges if message["status"] == 401 else ()
            message["headers"] = [*message.get("headers", ()), *challenged, *more]
        elif message.get("more_body") and not admission.valid(trio.current_time()):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            raise ClientLeft("the credentials are no longer good")
        await send(message)

    return sent


async def _answer(status: int, refusal: Refusal | None, headers: Headers, send: Send) -> None:
    body = b"" if refusal is None else problem_text(refusal)
    own: Headers = () if refusal is None else ((b"content-type", PROBLEM), *_PLAIN)
    length = () if status == 204 else ((b"content-length", b"%d" % len(body)),)
    await send({"type": "http.response.start", "status": status, "headers": [*own, *length, *headers]})
    await send({"type": "http.response.body", "body": body})


def problem_text(refusal: Refusal) -> bytes:
    """Return the problem details (RFC 9457) for a client that is not admitted."""
    problem = problem_of(refusal.error)
    members = {
        "type": problem.type,
        "title": problem.title,
        "status": refusal.status,
        "detail": problem.detail,
    }
    return msgspec.json.encode(members)
