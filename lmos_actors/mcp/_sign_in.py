"""Tokens for an MCP server at a URL, from the OAuth providers of the SDK: for a program, or for a person.

What this file does that the SDK does not:

- **Requests run in parallel.** A provider of the SDK holds its lock for each request until the head of the
  answer is there, and a server may take minutes for that. So a request with a valid token is sent here, and
  the provider gets it only if it is refused.
- **No secret is sent in the clear, or to another machine by a trick.** The server names the addresses to
  which the provider then sends requests. These must use https, or http to this machine if the server is
  on this machine, too.
- **Nobody is asked again and again**: if a server refuses a token with the scopes that it demands, no new one
  is fetched.
- **A person has time**: the time limits of calls and of the start are paused. The browser is redirected to a
  port of this machine. If the browser is on another machine, the address of its last page may be given as the
  answer to the question.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import attrs
import httpx2
import trio
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

from lmos_actors.errors import ConfigError, LmosActorsError
from lmos_actors.security import is_loopback
from lmos_actors.transport import FrontDoor, Refuse, TcpNetwork, endpoint_of

from ._failures import NotSignedIn

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from contextlib import AbstractContextManager

    from ._oauth import McpOAuth
    from ._tokens import Tokens

SECONDS: Final = {"connect": 5.0, "read": 30.0, "write": 30.0, "pool": 30.0}
"""The time limits of one request for metadata, a registration or a token."""

PATH: Final = "/callback"

DONE: Final = b"You may close this page."

_HEADER: Final = "authorization"

_QUIET: Final = "mcp.client.auth.oauth2"
"""The SDK's logger that writes tracebacks with answers of servers."""


@attrs.frozen
class Person:
    """The means of asking a person to sign in.

    `ask` has the person open a URL. It returns the address of the last page if the person gives it, None if
    the person refuses. `standing_still` pauses time limits during a block.
    """

    ask: Callable[[str], Awaitable[str | None]]
    standing_still: Callable[[], AbstractContextManager[None]]
    seconds: float


class SignIn(httpx2.Auth):
    """Authentication that adds a token to each request, and gets a new token if the server demands one."""

    def __init__(
        self, url: str, options: McpOAuth, secret: str, tokens: Tokens, person: Person | None
    ) -> None:
        logger = logging.getLogger(_QUIET)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)
        self._is_here = is_loopback(urlsplit(url).hostname or "")
        self._provider = _provider_of(url, options, secret, tokens, person)
        tokens.context = self._provider.context
        self._has_begun = False

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request; if it is refused because of the token, get a new one and send it again."""
        refusal: httpx2.Response | None = None
        sent = self.sign(request)
        if self._has_begun and (sent is not None or self._provider.context.current_tokens is None):
            refusal = yield request
            if refusal.status_code != 401 and not self._may_widen(refusal):
                return
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            self._has_begun = True  # what is kept has been read
            while True:
                answer = refusal  # the same request would be refused again
                if outgoing is not request or answer is None or outgoing.headers.get(_HEADER) != sent:
                    answer = yield self._checked(outgoing, request)
                refusal = None if outgoing is request else refusal
                outgoing = await flow.asend(answer)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def sign(self, request: httpx2.Request) -> str | None:
        """Add the token to a request, provided that the token is valid; return the header."""
        request.headers.pop(_HEADER, None)
        context = self._provider.context
        if context.current_tokens is not None and context.is_token_valid():
            request.headers[_HEADER] = f"Bearer {context.current_tokens.access_token}"
        return request.headers.get(_HEADER)

    def _may_widen(self, refusal: httpx2.Response) -> bool:
        """Return whether a refusal demands scopes that have not been requested yet."""
        if (
            refusal.status_code != 403
            or extract_field_from_www_auth(refusal, "error") != "insufficient_scope"
        ):
            return False
        wanted = (extract_scope_from_www_auth(refusal) or "").split()
        asked = self._provider.context.client_metadata.scope
        return asked is None or not set(wanted) <= set(asked.split())

    def _checked(self, outgoing: httpx2.Request, request: httpx2.Request) -> httpx2.Request:
        """Check and return a request of the provider. Raises OAuthFlowError if its address is not allowed."""
        if outgoing is request:
            return outgoing
        url = outgoing.url
        if url.scheme != "https" and not (self._is_here and is_loopback(url.host)):
            raise OAuthFlowError(f"it leads to {url.scheme}://{url.host}, which is not asked without TLS")
        outgoing.extensions["timeout"] = dict(SECONDS)
        return outgoing


def _provider_of(
    url: str, options: McpOAuth, secret: str, tokens: Tokens, person: Person | None
) -> OAuthClientProvider:
    client_id, method = options.client_id, options.auth_method
    if person is None and options.private_key is not None:
        signed = SignedJWTParameters(
            issuer=client_id, subject=client_id, signing_key=secret, signing_algorithm=options.algorithm
        )
        assertion = signed.create_assertion_provider()
        return PrivateKeyJWTOAuthProvider(url, tokens, client_id, assertion, issuer=options.issuer)
    if person is None:
        return ClientCredentialsOAuthProvider(url, tokens, client_id, secret, method, issuer=options.issuer)
    port = tokens.port(options.redirect_port)
    back = [AnyUrl(f"http://127.0.0.1:{port}{PATH}")]
    is_document = client_id.startswith("https://") and not secret
    if client_id and not is_document:
        tokens.client = OAuthClientInformationFull(
            client_id=client_id,
            client_secret=secret or None,
            token_endpoint_auth_method=method if secret else "none",
            redirect_uris=back,
            issuer=options.issuer or None,
        )
    browser = _Browser(person, port)
    return OAuthClientProvider(
        url,
        OAuthClientMetadata(client_name="lmos_actors", redirect_uris=back),
        tokens,
        browser.open,
        browser.answer,
        client_id if is_document else None,
    )


class _Browser:
    """A person's browser, which is sent to a URL and then redirected to a port of this machine."""

    def __init__(self, person: Person, port: int) -> None:
        self._person = person
        self._port = port
        self._url = ""
        self._answer: AuthorizationCodeResult | NotSignedIn | None = None
        self._came = trio.Event()

    async def open(self, url: str) -> None:
        """Store the URL for `answer`, which opens the port before it sends a browser there."""
        self._url = url

    async def answer(self) -> AuthorizationCodeResult:
        """Have a person open the URL, and wait for the redirect. Raises NotSignedIn."""
        self._came, self._answer = trio.Event(), None
        try:
            listener = await TcpNetwork().listen(endpoint_of(f"http://127.0.0.1:{self._port}"))
        except ConfigError as error:
            raise NotSignedIn(f"{error}: see redirect_port=") from None
        door = FrontDoor(
            listener, route=lambda _: Refuse(404, "no WebSocket"), app=self._take, on_failure=lambda _: None
        )
        with self._person.standing_still(), trio.move_on_after(self._person.seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(door.serve)
                nursery.start_soon(self._ask)
                await self._came.wait()
                nursery.cancel_scope.cancel("the browser has come back")
        return self._outcome()

    def _outcome(self) -> AuthorizationCodeResult:
        """Return the outcome of the sign-in. Raises NotSignedIn if it has failed, or was not in time."""
        if isinstance(self._answer, AuthorizationCodeResult):
            return self._answer
        late = NotSignedIn(f"nobody has signed in within {self._person.seconds:g} s")
        raise self._answer or late

    async def _ask(self) -> None:
        try:
            given = await self._person.ask(self._url)
        except LmosActorsError as error:
            self._set(NotSignedIn(f"nobody can be asked to sign in: {error}"))
            return
        if given is None:
            self._set(NotSignedIn("a person has refused to sign in"))
        elif given and not self._read(urlsplit(given).query):
            self._set(NotSignedIn("the address that was given is not the one to which the browser was led"))
        elif given:
            self._came.set()

    async def _take(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle the request of a browser; an ASGI application."""
        del receive
        good = scope["path"] == PATH and self._read(scope["query_string"].decode("ascii", "replace"))
        headers = [(b"content-type", b"text/plain"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200 if good else 404, "headers": headers})
        await send({"type": "http.response.body", "body": DONE if good else b"Not found."})
        if good:
            self._came.set()

    def _read(self, query: str) -> bool:
        """Read the parameters of a redirect; return whether they belong to this sign-in."""
        said = {name: values[0] for name, values in parse_qs(query).items()}
        state = parse_qs(urlsplit(self._url).query).get("state", [""])[-1]
        if not state or said.get("state") != state:
            return False
        if "code" in said:
            self._answer = AuthorizationCodeResult(code=said["code"], state=state, iss=said.get("iss"))
        else:
            self._answer = NotSignedIn(f"the sign-in has failed: {said.get('error', 'no reason is given')}")
        return True

    def _set(self, answer: NotSignedIn) -> None:
        self._answer = answer
        self._came.set()
