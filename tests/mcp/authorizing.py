"""An MCP server that wants tokens, and the authorization server that gives them: one ASGI application."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
from starlette.responses import JSONResponse, RedirectResponse, Response

from tests.mcp.serving import by_hand, text_answer

SECRET = "s3cr3t-4711"


class Authorizing:
    """Lets in who has a good token; `asked` has the forms that came for tokens.

    `unnamed` is the number of requests that came without a token, which are let in if it `is_public`.
    `leads_to` is the authorization server that is named, by default this application; `ends_in` is the time
    of a token, in seconds.
    """

    def __init__(self, answer: Any = lambda id: text_answer(id, "fine")) -> None:
        self.base = ""
        self.leads_to = ""
        self.ends_in = 3600
        self.is_public = False
        self.is_contrary = False
        self.unnamed = 0
        self.good: set[str] = set()
        self.asked: list[dict[str, str]] = []
        self.headers: list[str] = []
        self.registered: list[dict[str, Any]] = []
        self._count = 0
        self._mcp = by_hand(answer)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        parts = urlsplit(scope["path"])
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if parts.path == "/mcp":
            given = headers.get("authorization", "")
            self.unnamed += not given
            if self.is_public or given.removeprefix("Bearer ") in self.good:
                await self._mcp(scope, receive, send)
                return
            answer: Any = Response(status_code=401, headers={"www-authenticate": "Bearer"})
        else:
            body = (await receive())["body"].decode()
            answer = self.answer(parts.path, parts.query, body, headers)
        await answer(scope, receive, send)

    def answer(self, path: str, query: str, body: str, headers: dict[str, str]) -> Any:
        match path:
            case "/.well-known/oauth-protected-resource/mcp":
                servers = [self.leads_to or self.base]
                return JSONResponse({"resource": f"{self.base}/mcp", "authorization_servers": servers})
            case "/.well-known/oauth-authorization-server":
                places = {f"{each}_endpoint": f"{self.base}/{name}" for each, name in PLACES.items()}
                return JSONResponse({"issuer": self.base, **places})
            case "/register":
                self.registered.append(json.loads(body))
                return JSONResponse({**self.registered[-1], "client_id": "made"}, status_code=201)
            case "/authorize":
                said = {name: values[0] for name, values in parse_qs(query).items()}
                back = urlencode({"code": "c-1", "state": said["state"]})
                return RedirectResponse(f"{said['redirect_uri']}?{back}")
            case "/oauth/token":
                return self.token({name: values[0] for name, values in parse_qs(body).items()}, headers)
            case _:
                return Response(status_code=404)

    def token(self, form: dict[str, str], headers: dict[str, str]) -> Any:
        self.asked.append(form)
        self.headers.append(headers.get("authorization", ""))
        if form.get("client_secret") == "wrong":
            return Response(f"not with {form['client_secret']}", status_code=401)
        self._count += 1
        self.good = set() if self.is_contrary else {f"t-{self._count}"}
        more = {} if form["grant_type"] == "client_credentials" else {"refresh_token": f"r-{self._count}"}
        given = {"access_token": f"t-{self._count}", "token_type": "Bearer", "expires_in": self.ends_in}
        return JSONResponse({**given, **more})


PLACES = {"authorization": "authorize", "token": "oauth/token", "registration": "register"}


async def browse(url: str) -> str:
    """Open a URL as a browser does, up to where it is led back; return that address."""
    async with httpx2.AsyncClient() as browser:
        return (await browser.get(url)).headers["location"]


async def sign_in(url: str) -> None:
    """Open a URL as a browser does, and come back."""
    async with httpx2.AsyncClient() as browser:
        await browser.get(await browse(url))
