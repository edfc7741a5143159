"""Sessions of people at the page of a node: a cookie stands for credentials that were shown once.

A script in a browser can set no header on a WebSocket, and a token in an address ends up in histories and
logs. So the page sends credentials once, and the browser then has a cookie. This module guarantees:

- **Only the browser has the cookie.** No script can read it (`HttpOnly`); it is not sent when another site
  links to this node (`SameSite=Strict`), nor, under TLS, to any other host (`Secure`, and the prefix
  `__Host-`, which no other host can set). The node stores only a digest of it.
- **A cookie is no proof that the page made the request.** Browsers send cookies to every port of a host, and
  treat pages of two ports as one site. So a request with an effect, or for a WebSocket, also needs the node's
  own `Origin`, and a request that only reads must not come from another site (`Sec-Fetch-Site`).
- **No client chooses a session.** Each log-in makes a new cookie, and ends the session of the cookie that was
  sent with it. Two cookies of that name count as none: one of them was set by someone else.
- **A session ends with its credentials**, when they expire or are revoked, and after `LIFE` in any case.
- **The number of sessions is bounded**: `MOST` in all, `MOST_OF_ONE` for one principal. A new session ends
  the oldest one of the same principal first, so that no principal can end the sessions of others.

The name of the cookie contains the port of the node, because browsers do not separate cookies by port: two
nodes on one machine would overwrite each other's.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from ._secrets import KeyedDigest
from ._verifiers import Proof

if TYPE_CHECKING:
    from ._request import AuthorizationHeader, RequestContext

LIFE: Final = 12 * 3600.0
"""Seconds after which a session ends whatever its credentials say."""

MOST: Final = 256
MOST_OF_ONE: Final = 16

LONGEST: Final = 16 << 10
"""Limit on the bytes of cookies in a request that are read; browsers send about 4 KiB for each cookie."""

_ID: Final = re.compile(rb"[0-9a-f]{64}")


@attrs.frozen
class _Session:
    """A session: the credentials that were shown, and the Unix time at which it ends."""

    shown: Proof
    until: float


class Sessions:
    """The open sessions of one node at `port`. It is also the verifier of the proofs of these sessions."""

    kind = ""
    challenge = b""

    def __init__(self, port: int) -> None:
        self._name = f"lmos-actors-{port}"
        self._digest_of = KeyedDigest()
        self._open: dict[bytes, _Session] = {}

    def __len__(self) -> int:
        return len(self._open)

    # ---- in and out

    def begin(self, shown: Proof, wall: float, *, secure: bool) -> bytes:
        """Begin a session for credentials, and return the value of `Set-Cookie`. `wall` is Unix time."""
        self._make_room(shown, wall)
        id = os.urandom(32).hex().encode()
        until = wall + LIFE if shown.until is None else min(wall + LIFE, shown.until)
        self._open[self._digest_of(id)] = _Session(shown, until)
        return self._cookie(id, int(until - wall), secure=secure)

    def end(self, request: RequestContext) -> None:
        """End the session of a request, if there is one."""
        for id in self._shown(request):
            self._open.pop(self._digest_of(id), None)

    def gone(self, *, secure: bool) -> bytes:
        """Return the value of `Set-Cookie` that makes a browser delete the cookie."""
        return self._cookie(b"", 0, secure=secure)

    def find(self, request: RequestContext, wall: float) -> Proof | None:
        """Return the proof of a request's session, or None if there is no session or it has ended."""
        shown = self._shown(request)
        if len(shown) != 1:
            return None
        key = self._digest_of(shown[0])
        session = self._open.get(key)
        if session is None:
            return None
        if session.until <= wall or not session.shown.verifier.is_valid(session.shown):
            del self._open[key]
            return None
        return Proof(session.shown.principal, self, key, session.until)

    # ---- see `Verifier`

    def verify(self, credentials: AuthorizationHeader, wall: float) -> Proof | None:
        """Return None: no Authorization header holds a session."""
        return None

    def is_valid(self, proof: Proof) -> bool:
        """Return whether a session is open and its credentials still valid, regardless of their expiry."""
        session = self._open.get(proof.key)
        return session is not None and session.shown.verifier.is_valid(session.shown)

    def refresh(self) -> bool:
        """Return False: there are no secrets to be read."""
        return False

    def problems(self) -> list[str]:
        """Return an empty list: there are no secrets to be read."""
        return []

    # ---- inside

    def _make_room(self, shown: Proof, wall: float) -> None:
        for key in [key for key, each in self._open.items() if each.until <= wall]:
            del self._open[key]
        counts = Counter(each.shown.principal for each in self._open.values())
        if counts[shown.principal] >= MOST_OF_ONE:
            crowded = shown.principal
        elif len(self._open) >= MOST:
            crowded = max(counts, key=counts.__getitem__)
        else:
            return
        del self._open[next(key for key, each in self._open.items() if each.shown.principal == crowded)]

    def _cookie(self, id: bytes, seconds: int, *, secure: bool) -> bytes:
        name = self._named(secure=secure)
        more = b"; Secure" if secure else b""
        return name + b"=" + id + b"; Path=/; Max-Age=%d; HttpOnly; SameSite=Strict" % seconds + more

    def _named(self, *, secure: bool) -> bytes:
        return f"{'__Host-' if secure else ''}{self._name}".encode()

    def _shown(self, request: RequestContext) -> list[bytes]:
        """Return the ids in a request's cookies; under TLS only from cookies that no other host can set."""
        lines = request.values(b"cookie")
        if sum(map(len, lines)) > LONGEST:
            return []
        pairs = [pair.strip(b" \t").partition(b"=") for line in lines for pair in line.split(b";")]
        named = {self._named(secure=True), self._named(secure=request.secure)}
        return [id for name, _, id in pairs if name in named and _ID.fullmatch(id)]
