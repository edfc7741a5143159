"""The HTTP addresses of a relay: registering, revoking a token, and listing the agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import trio

from lmos_actors._core import read_json
from lmos_actors.bindings.http_client import WebRequest
from lmos_actors.errors import ActionFailed, ConnectFailed
from lmos_actors.persistence import NewIdentity
from lmos_actors.transport import answered, default_network

from .._http import exchange
from ._urls import http_url

if TYPE_CHECKING:
    import ssl

    from lmos_actors.security import Credentials
    from lmos_actors.transport import Network

SECONDS: Final = 30.0

MOST: Final = 16 << 20
"""Maximum bytes of an answer: a relay may have many agents."""

JSON: Final = (b"content-type", b"application/json")


async def register_on_relay(
    url: str,
    id: str | None = None,
    *,
    invitation: str | None = None,
    register_url: str | None = None,
    network: Network | None = None,
    tls: ssl.SSLContext | None = None,
) -> NewIdentity:
    """Register an agent at a relay, and return its id and token; without `id` the relay chooses one.

    `url` is the relay's URL. `register_url` is the address for registration, by default `/register` beside
    `url`. Raise ActionFailed with the `code` of a refusal, such as `agent_id_taken`; ConnectFailed;
    DeadlineExceeded; ConfigError for an invalid address.
    """
    body = {
        name: value for name, value in (("agent_id", id), ("invitation", invitation)) if value is not None
    }
    place = register_url or http_url(url, "/register")
    found = await _answer("POST", place, body, None, network, tls)
    agent, token = found.get("agent_id"), found.get("token")
    if not isinstance(agent, str) or not isinstance(token, str):
        raise ConnectFailed(place, "the answer has no agent_id and token")
    return NewIdentity(agent, token)


async def revoke_on_relay(
    url: str,
    id: str | None = None,
    *,
    credentials: Credentials | None = None,
    network: Network | None = None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Revoke the caller's own token, or the token of agent `id` if the caller has that right.

    Authentication uses `credentials`, which contain the token or the principal's credentials. Raise what
    `register_on_relay` does.
    """
    place = http_url(url, "/revoke")
    asked = {} if id is None else {"agent_id": id}
    found = await _answer("POST", place, asked, credentials, network, tls)
    if not found:
        raise ConnectFailed(place, "the answer is not that of a relay")


async def agents_on_relay(
    url: str,
    *,
    credentials: Credentials | None = None,
    network: Network | None = None,
    tls: ssl.SSLContext | None = None,
) -> list[str] | None:
    """Return the connected agents, None if the relay does not list them.

    Raise what `register_on_relay` does.
    """
    found = await _answer("GET", http_url(url, "/stats"), None, credentials, network, tls)
    agents = found.get("agents")
    if not isinstance(agents, list):
        return None
    names: list[Any] = agents  # pyright: ignore[reportUnknownVariableType]
    return list(map(str, names))


async def _answer(
    method: str,
    url: str,
    asked: dict[str, Any] | None,
    credentials: Credentials | None,
    network: Network | None,
    tls: ssl.SSLContext | None,
) -> dict[str, Any]:
    """Send a request with a JSON body, and return the object in the answer."""
    shown = () if credentials is None else credentials.headers_for(url, trio.current_time())
    body = None if asked is None else msgspec.json.encode(asked)
    answer = await exchange(
        default_network() if network is None else network,
        WebRequest(method, url, body=body),
        (*(() if body is None else (JSON,)), *shown),
        tls,
        seconds=SECONDS,
        most=MOST,
    )
    try:
        received = read_json(answer.body)
    except (ValueError, RecursionError):
        received = None
    found = cast("dict[str, Any]", received) if isinstance(received, dict) else {}
    head = answer.head
    if head.status == 200:
        return found
    code, message = found.get("error"), str(found.get("message") or "")
    wait = head.header(b"retry-after")
    if wait.isascii() and wait.isdigit():
        message = f"{message or head.reason}: try again in {wait[:9]} s"
    if isinstance(code, str) and head.status < 500:
        raise ActionFailed({"code": code, "message": message})
    raise ConnectFailed(url, answered(head.status, head.reason, message), status=head.status)
