"""The page of a node over HTTP: its document, its one script, its one style, and the log-in.

The page is served in front of the guard of all other routes: a browser has to load it and show the form
before anybody can log in. So everybody can get the files of this package, but nothing about the node except
its authentication schemes. The host name in a request and the request's origin are checked nevertheless.

The policy of the page lets it load from the node alone, and lets no script turn text into markup
(`require-trusted-types-for`), so that the name of an agent is always shown as text.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lmos_actors._core import read_json
from lmos_actors.bindings import presented_by
from lmos_actors.bindings.http import HttpError, best_of, has_tag, problem_response
from lmos_actors.errors import InvalidInput
from lmos_actors.security import Basic, Bearer, ClientCertificates, Jwt, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from lmos_actors.security import Admission, Guard
    from lmos_actors.transport import App

ROOT: Final = "/"
BELOW: Final = "/live/"
SCRIPT: Final = "/live/page.js"
STYLE: Final = "/live/page.css"
SESSION: Final = "/live/session"

STYLES: Final = ("base.css", "diagram.css", "chart.css", "live.css", "runs.css")
SCRIPTS: Final = (
    "base.js",
    "wire.js",
    "rates.js",
    "draw.js",
    "grid.js",
    "tree.js",
    "lists.js",
    "operate.js",
    "http.js",
    "form.js",
    "use.js",
    "chat.js",
    "agent.js",
    "approvals.js",
    "groups.js",
    "log.js",
    "diagram.js",
    "flow.js",
    "verdict.js",
    "chart.js",
    "runs.js",
    "network.js",
    "login.js",
    "app.js",
)
"""The parts of the script, in the order in which they are put together."""

OFFERED: Final = ("application/json", "application/td+json", "text/html")
"""The media types of `/`: browsers, which prefer the last, get the page."""

MOST_BYTES: Final = 16 << 10
"""Bytes of a log-in."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; media-src data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)

HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}

DOCUMENT: Final = """<!doctype html>
<html lang="en" data-software="{software}" data-looks="{looks}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>lmos-actors</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="live/page.css?{tag}">
<script src="live/page.js?{tag}" defer></script>
</head>
<body>
<div id="app" class="starting"><p>Connecting…</p></div>
<noscript><p>This page draws itself with its own script, which this browser does not run. The commands
<code>lmos-actors describe</code> and <code>lmos-actors discover</code> show its agents too.</p></noscript>
</body>
</html>
"""


class LogIn(Struct, forbid_unknown_fields=True):
    """The body of a log-in: a token, or a name with a password."""

    token: str = ""
    name: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return "LogIn(***)"

    def header(self) -> bytes:
        """Return the log-in as the value of an Authorization header. Raise InvalidInput."""
        if bool(self.token) == bool(self.name):
            raise InvalidInput("a log-in takes a token, or a name and a password")
        if self.token:
            return b"Bearer " + self.token.strip().encode()
        return b"Basic " + b64encode(f"{self.name}:{self.password}".encode())


@attrs.frozen
class _File:
    """A file of the page, as it is sent."""

    text: bytes
    kind: str
    tag: str


class Page:
    """The application that answers requests for the page and passes all others on to `app`.

    `may_look` returns whether a client may see the live view at all.
    """

    def __init__(self, app: App, guard: Guard, may_look: Callable[[Admission], bool]) -> None:
        self._app = app
        self._guard = guard
        self._may_look = may_look
        self._documents, self._files = _documents_and_files()
        self._methods: dict[str, Callable[[Request, Admission], Awaitable[Response]]] = {
            "GET": self._session,
            "HEAD": self._session,
            "POST": self._log_in,
            "DELETE": self._log_out,
        }

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request. A request for anything but the page costs only this additional call."""
        path = scope["path"]
        if path == ROOT or path.startswith(BELOW):
            return self._serve(path, scope, receive, send)
        return self._app(scope, receive, send)

    async def _serve(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        is_own = _wants_page(request) if path == ROOT else path == SESSION or path in self._files
        if not is_own:
            await self._app(scope, receive, send)
            return
        try:
            response = await self._answer(request, path)
        except ClientDisconnect:
            return
        except (HttpError, InvalidInput) as error:
            response = problem_response(error)
        response.headers.update(HEADERS)
        await response(scope, receive, send)

    async def _answer(self, request: Request, path: str) -> Response:
        shown, now = presented_by(request.scope), trio.current_time()
        admission = self._guard.admit(shown, now, public=True, page=True)
        if isinstance(admission, Refusal):
            return _refused(admission)
        if path == SESSION:
            method = self._methods.get(request.method)
            if method is None:
                raise HttpError(405, headers={"allow": ", ".join(self._methods)})
            return await method(request, admission)
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, headers={"allow": "GET, HEAD"})
        found = self._documents[self._may_look(admission)] if path == ROOT else self._files[path]
        vary = "Accept, Authorization, Cookie" if path == ROOT else "Accept"
        headers = {"etag": found.tag, "cache-control": "no-cache", "vary": vary}
        if has_tag(request.headers, "if-none-match", found.tag):
            return Response(None, 304, headers)
        return Response(found.text, 200, {"content-type": found.kind, **headers})

    # ---- the log-in

    async def _session(self, _request: Request, admission: Admission) -> Response:
        """Return who the client is, whether it may look, and how it can log in."""
        return _json(self._state(admission))

    def _state(self, admission: Admission) -> dict[str, Any]:
        schemes = self._guard.security.schemes
        ways = {"basic": (Basic,), "bearer": (Bearer, Jwt), "certificate": (ClientCertificates,)}
        return {
            "viewer": "" if admission.principal is None else admission.principal.name,
            "looks": self._may_look(admission),
            "schemes": [name for name, kinds in ways.items() if any(isinstance(s, kinds) for s in schemes)],
        }

    async def _log_in(self, request: Request, _admission: Admission) -> Response:
        """Begin a session. A form of another site cannot do so: it sends no JSON, and has another Origin."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HttpError(415, "send application/json")
        try:
            said = read_json(await _body(request), LogIn)
        except (ValueError, RecursionError):
            raise InvalidInput("a log-in is an object with a token, or with name and password") from None
        found = self._guard.log_in(presented_by(request.scope), said.header(), trio.current_time())
        if isinstance(found, Refusal):
            return _refused(found)
        admission, cookie = found
        return _json(self._state(admission), cookie)

    async def _log_out(self, request: Request, _admission: Admission) -> Response:
        """End the session, here and in the browser."""
        found = self._guard.log_out(presented_by(request.scope))
        if isinstance(found, Refusal):
            return _refused(found)
        return Response(None, 204, {"set-cookie": found.decode(), "cache-control": "no-store"})


@cache
def software() -> str:
    """Return the name and the version of this package."""
    return f"lmos-actors {version('lmos-actors')}"


@cache
def _documents_and_files() -> tuple[dict[bool, _File], dict[str, _File]]:
    """Return the document for clients that may look and for others, and the other files by path."""
    style, script = part_of(STYLES), "(() => {\n'use strict';\n" + part_of(SCRIPTS) + "})();\n"
    tag = _tag(style + script)[:12]
    # the document says whether this client may look: then the page connects without asking first
    documents = {
        looks: _file(
            DOCUMENT.format(software=software(), looks="yes" if looks else "no", tag=tag),
            "text/html; charset=utf-8",
        )
        for looks in (False, True)
    }
    found = {
        STYLE: _file(style, "text/css; charset=utf-8"),
        SCRIPT: _file(script, "text/javascript; charset=utf-8"),
    }
    return documents, found


@cache
def part_of(names: tuple[str, ...]) -> str:
    """Return the text of the named files of the page, joined in the given order."""
    folder = files("lmos_actors").joinpath("live", "page")
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def _file(text: str, kind: str) -> _File:
    return _File(text.encode(), kind, f'"{_tag(text)}"')


def _tag(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _wants_page(request: Request) -> bool:
    return request.method in ("GET", "HEAD") and best_of(request.headers, OFFERED) == OFFERED[-1]


async def _body(request: Request) -> bytes:
    found, more = b"", True
    while more:  # a body that is too large would leave `Request.stream` to the garbage collector
        message = await request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        found += message.get("body", b"")
        more = message.get("more_body", False)
        if len(found) > MOST_BYTES:
            raise HttpError(413, f"a log-in has {MOST_BYTES} bytes at most")
    return found


def _json(value: dict[str, Any], cookie: bytes | None = None) -> Response:
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    if cookie is not None:
        headers["set-cookie"] = cookie.decode()
    return Response(json.dumps(value).encode(), 200, headers)


def _refused(refusal: Refusal) -> Response:
    """Return a refusal without a challenge, as a challenge makes browsers ask for a password themselves."""
    status = 403 if refusal.status == 401 else refusal.status
    response = problem_response(HttpError(status, refusal.reason))
    response.headers.update(
        {name.decode(): text.decode() for name, text in refusal.headers if name == b"retry-after"}
    )
    return response
