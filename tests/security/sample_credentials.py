"""What the tests of security present, and keys and tokens that they make."""

from __future__ import annotations

import base64
import json
import warnings
from typing import TYPE_CHECKING, Any

from joserfc import jwk, jws, jwt

from lmos_actors.security import Admission, Guard, Rate, Refusal, RequestContext, Security

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.security import Certificate

OFTEN = Rate(1e9, 10**9)
"""For tests in which nobody has to wait, however often credentials are wrong."""

WALL = 1_800_000_000.0
ISSUER = "https://login.example"
AUDIENCE = "weather"


class Wall:
    """The time of day of a test."""

    def __init__(self) -> None:
        self.time = WALL

    def __call__(self) -> float:
        return self.time


def request(
    *authorization: str | bytes,
    peer: str = "192.0.2.1:5000",
    host: str | None = "localhost:8080",
    secure: bool = False,
    certificate: Certificate | None = None,
    reads: bool = False,
    **headers: str,
) -> RequestContext:
    given = [(b"authorization", each.encode() if isinstance(each, str) else each) for each in authorization]
    more = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    hosts = [] if host is None else [(b"host", host.encode())]
    return RequestContext.of(
        (*hosts, *given, *more), peer, secure=secure, certificate=certificate, reads=reads
    )


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def guard_of(security: Security, **more: Any) -> Guard:
    return Guard(security, wall=more.pop("wall", Wall()), **more)


def who(found: Admission | Refusal) -> str | int | None:
    """The name of whoever was let in, or the status of the refusal."""
    if isinstance(found, Refusal):
        return found.status
    return None if found.principal is None else found.principal.name


# ---- keys and tokens


def key_of(kid: str | None = "k1", kind: str = "EC", size: Any = "P-256") -> Any:
    return jwk.generate_key(kind, size, {} if kid is None else {"kid": kid})


def key_set(*keys: Any, private: bool = False) -> str:
    return json.dumps({"keys": [key.as_dict(private=private) for key in keys]})


def write(path: Path, text: str) -> str:
    """Write a file as careful people do, by putting another in its place; give the reference to it."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text(text)
    fresh.replace(path)
    return f"file:{path}"


CLAIMS: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": WALL + 60}


def token(key: Any, claims: dict[str, Any] | None = None, alg: str = "ES256", **header: Any) -> str:
    """A token signed as it should be; a claim, or a part of the header, that is None is left out."""
    whole = {"alg": alg, "typ": "JWT", "kid": key.kid, **header}
    said = {name: value for name, value in {**CLAIMS, **(claims or {})}.items() if value is not None}
    shown = {name: value for name, value in whole.items() if value is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about EdDSA, which most issuers still say
        return jwt.encode(shown, said, key, algorithms=[alg])


def signed(key: Any, payload: bytes, alg: str = "ES256", **header: Any) -> str:
    """Any bytes, signed as they should be."""
    registry = jws.JWSRegistry(algorithms=[alg], strict_check_header=False)
    return jws.serialize_compact({"alg": alg, "kid": key.kid, **header}, payload, key, registry=registry)


def part(value: Any) -> str:
    """A part of a token, made by hand."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")
