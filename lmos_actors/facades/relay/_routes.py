"""The HTTP routes of a hub: `POST /register`, `POST /revoke`, `GET /stats`, `GET /health`."""

from __future__ import annotations

from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import trio
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lmos_actors._core import read_json
from lmos_actors.bindings import presented_by
from lmos_actors.errors import StoreFailed
from lmos_actors.persistence import NewIdentity
from lmos_actors.security import Buckets, Rate, Refusal, address_of

from ._admission import agent_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from lmos_actors.security import Admission

    from ._admission import HubAdmission
    from ._hub import HubPlace, RelayHub

MOST: Final = 4 << 10
"""Maximum bytes of a request body."""

_REFUSED: Final = {
    "invalid": (400, "invalid_agent_id", "an id has 3 to 64 of a-z, 0-9 and hyphens, none of them at an end"),
    "taken": (409, "agent_id_taken", "this id is taken"),
    "full": (503, "unavailable", "there are too many agents"),
    "used": (403, "not_allowed", "this invitation has been used"),
}


class _Fault(Exception):
    """A refusal of a request, with the answer to send."""

    def __init__(self, status: int, code: str, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        headers = {"retry-after": str(int(wait) + 1)} if wait else None
        self.answer = JSONResponse({"error": code, "message": message}, HTTPStatus(status), headers)


def relay_routes(place: HubPlace, admission: HubAdmission) -> list[BaseRoute]:
    """Return the routes of a hub."""
    routes = _RelayRoutes(place, admission)
    return [
        Route("/register", routes.register, methods=["POST"]),
        Route("/revoke", routes.revoke, methods=["POST"]),
        Route("/stats", routes.stats),
        Route("/health", routes.health),
    ]


class _RelayRoutes:
    def __init__(self, place: HubPlace, admission: HubAdmission) -> None:
        self._place = place
        self._admission = admission
        often = place.options.registrations_per_minute
        self._registrations = None if often is None else Buckets(Rate(often / 60, often))

    # ---- POST /register

    async def register(self, request: Request) -> Response:
        """Register an agent, and answer with its id and token."""
        try:
            self._admitted(request)
            peer = "" if request.client is None else f"{request.client.host}:0"
            wait = 0.0
            if self._registrations is not None:
                wait = self._registrations.take(address_of(peer), trio.current_time())
            if wait:
                raise _Fault(429, "rate_limit", "too many registrations", wait)
            body = await _body_of(request)
            invitation = self._invitation(body, peer)
            return await self._registered(_text_in(body, "agent_id"), invitation)
        except _Fault as fault:
            return fault.answer

    def _invitation(self, body: dict[str, Any], peer: str) -> str | None:
        """Return the digest of the required invitation, None if none is required. Raise _Fault."""
        hub = self._admission
        if hub.registration == "open":
            return None
        if hub.invitations is None:
            raise _Fault(403, "not_allowed", "agents do not register themselves here")
        shown = body.get("invitation")
        if shown is None:
            raise _Fault(403, "not_allowed", "an invitation is needed: the member `invitation`")
        found = hub.judge_invitation(shown, peer) if isinstance(shown, str) else 0.0
        if isinstance(found, int | float):
            if found:
                raise _Fault(429, "rate_limit", "too many wrong invitations", found)
            raise _Fault(403, "not_allowed", "this is no invitation")
        if hub.invitations.problem is None:
            self._hub().identities.keep_invitations(hub.invitations.digests)
        return found

    async def _registered(self, id: str | None, invitation: str | None) -> Response:
        try:
            found = await self._hub().identities.register(id, invitation=invitation)
        except StoreFailed:
            raise _Fault(503, "unavailable", "the registration cannot be kept") from None
        if not isinstance(found, NewIdentity):
            raise _Fault(*_REFUSED[found])
        answer = {"agent_id": found.id, "token": found.token}
        return JSONResponse(answer, headers={"cache-control": "no-store"})

    # ---- POST /revoke

    async def revoke(self, request: Request) -> Response:
        """Revoke a token: the caller's own token, or any token if the hub's access list names the caller."""
        try:
            admission = self._admitted(request)
            own = agent_of(admission)
            named = _text_in(await _body_of(request), "agent_id")
            if own is None and not self._admission.may_revoke(admission.principal):
                if admission.principal is None:
                    raise _Fault(401, "not_allowed", "credentials are needed")
                raise _Fault(403, "not_allowed", f"{admission.principal.name} may not take tokens away here")
            if own is not None and named not in (None, own):
                raise _Fault(403, "not_allowed", "an agent may take away its own token alone")
            id = named or own
            if id is None:
                raise _Fault(400, "invalid_agent_id", "the member `agent_id` says whose token")
            try:
                is_revoked = await self._hub().revoke_token(id)
            except StoreFailed:
                raise _Fault(503, "unavailable", "this cannot be kept") from None
            if not is_revoked:
                raise _Fault(404, "unknown_agent", "there is no such agent")
            return JSONResponse({"agent_id": id})
        except _Fault as fault:
            return fault.answer

    # ---- GET

    async def stats(self, request: Request) -> Response:
        """Return the counts; with credentials, also the connected agents."""
        try:
            admission, hub = self._admitted(request), self._hub()
        except _Fault as fault:
            return fault.answer
        counts = hub.hub.statistics()
        found: dict[str, Any] = {
            "connected": counts.connected,
            "registered": len(hub.identities),
            "messages": counts.passed,
            "deliveries": counts.deliveries,
            "dropped": counts.dropped,
        }
        if admission.principal is not None:
            found["agents"] = list(hub.hub.connected)
        return JSONResponse(found)

    async def health(self, _: Request) -> Response:
        """Answer 200 while the hub is running, otherwise 503."""
        try:
            self._hub()
        except _Fault as fault:
            return fault.answer
        return JSONResponse({"status": "ok"})

    # ---- for all

    def _hub(self) -> RelayHub:
        hub = self._place.hub
        if hub is None:
            raise _Fault(503, "unavailable", "the relay is not there")
        return hub

    def _admitted(self, request: Request) -> Admission:
        found = self._admission.admit(presented_by(request.scope))
        if isinstance(found, Refusal):
            code = "rate_limit" if found.status == 429 else "not_allowed"
            fault = _Fault(found.status, code, found.reason)
            for name, value in found.headers:
                fault.answer.headers[name.decode()] = value.decode()
            raise fault
        return found


async def _body_of(request: Request) -> dict[str, Any]:
    """Return the members of the JSON body, or an empty dict for an empty body. Raise _Fault."""
    body = bytearray()
    async with aclosing(request.stream()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > MOST:
                raise _Fault(413, "too_large", f"the body has {MOST} bytes at most")
    if not body.strip():
        return {}
    try:
        found: Any = read_json(body)
    except (ValueError, RecursionError):
        raise _Fault(400, "invalid_json", "the body is no JSON") from None
    if not isinstance(found, dict):
        raise _Fault(400, "invalid_json", "the body is no object")
    return cast("dict[str, Any]", found)


def _text_in(body: dict[str, Any], name: str) -> str | None:
    found = body.get(name)
    if not isinstance(found, str | None):
        raise _Fault(*_REFUSED["invalid"])
    return found
