"""Access decisions of a node: authentication of requests and connections, and authorization of operations.

The module guarantees the following:

- **One order of checks, cheapest and safest first**: site, Host header, Origin header, secrets
  reloaded, credentials, certificate, anonymous. Site, Host and Origin come before credentials, so that a
  web page whose name was pointed at this node (DNS rebinding) learns nothing from the answer.
- **Credentials that are presented are checked, even if none are needed.** An open agent answers 401 to
  a wrong token; serving the request as anonymous would hide a broken client.
- **A page of another site gets nothing.** This is decided before all other checks, and does not count
  as a wrong attempt of anyone. A request that a browser marks in this way (`Sec-Fetch-Site`) is refused,
  except from `origins`, or if a person follows a link to the node's page.
- **Guessing is slow, and locks nobody out**: see `_attempts.py`.
- **A revoked secret ends open connections.** An `Admission` keeps the `Proof` that it is based on. When
  secrets change, `generation` grows, and the next use asks the verifier whether the proof is still valid.
  Between changes, that check is one comparison of integers.
- **A secret that cannot be read admits no client**, and is reported once. At the start of the node it
  is a ConfigError.
- **A shared token opens stored data, and nothing else.** A client with it may use the agents of
  `storage_agents`, whatever the lists say; for all other agents it counts as no credentials.
- **A session of the page replaces credentials, and only for the node's own page** (`_sessions.py`). An
  Authorization header counts before a cookie; a wrong one is refused whatever cookie comes with it.
- **Lists apply to every name of an agent.** A member of a pool is also subject to the pool's list, and
  an agent that stores data sent by others is subject to `read` and `write` when it is invoked. Otherwise
  its own name or its actions would be a way around the lists.

Time is passed in as arguments: `now` of a monotonic clock for rates and intervals, `wall` (Unix time) only
for the expiry of tokens. So a changed system clock cannot extend a rate limit.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.errors import ConfigError, Forbidden, RateLimited, Unauthorized

from ._attempts import Attempts
from ._credentials import is_loopback
from ._jwt import JwtVerifier
from ._origins import Hosts, check_host, host_of, origin_of, own_origin, own_origin_at
from ._rates import Buckets, address_of
from ._request import (
    PERSONAL,
    AuthorizationHeader,
    Malformed,
    Principal,
    Refusal,
    RequestContext,
    authorization_in,
    token_in_query,
)
from ._schemes import Basic, Bearer, ClientCertificates, Jwt
from ._secrets import CHECK_INTERVAL, KeyedDigest
from ._verifiers import (
    SHARED,
    BasicVerifier,
    BearerVerifier,
    CertificateVerifier,
    IssuedTokenVerifier,
    SharedTokenVerifier,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lmos_actors._core import Headers

    from ._request import Verb
    from ._security import Security
    from ._sessions import Sessions
    from ._shared_token import SharedToken
    from ._verifiers import IssuedTokens, Proof, Verifier

ALLOWED_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
ALLOWED_HEADERS: Final = (
    b"Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, LMOS-Remaining, "
    b"Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id, Prefer, Traceparent, Tracestate"
)
EXPOSED_HEADERS: Final = b"ETag, Link, Location, Mcp-Session-Id, Retry-After, WWW-Authenticate"
PREFLIGHT_SECONDS: Final = b"600"  # how long a browser caches the answer to a preflight request

STORAGE_VERBS: Final[tuple[Verb, ...]] = ("invoke", "read", "write")

CREDENTIALS_NEEDED = "credentials are needed"
NOT_ACCEPTED = "the credentials are not accepted"
NOT_OWN: Final = "this takes the Origin of the node's own page"

OTHER_SITE: Final = "a page of another site has sent this: list its origin in `origins` to let it in"
TOO_MANY_WRONG: Final = "too many wrong credentials from this address"

OWN_SITES: Final = (b"same-origin", b"none")
"""Values of `Sec-Fetch-Site` in requests that no other page has made."""


def _ignore_problem(problem: str) -> None:
    pass


def _in_no_pool(name: str) -> str | None:
    return None


def _is_none(name: str) -> bool:
    return False


class Guard:
    """Access decisions of one node.

    `wall` returns Unix time. `hosts` are host names of the node in addition to the hosts in `security`. Pages
    under `public_url` count as the node's own, whatever Host header a proxy sends. `storage_agents` are
    public names of agents whose actions read and write stored data: to invoke them, a client needs `read` and
    `write` too. `is_approvals` returns whether a public name belongs to the agent whose actions decide
    approvals. Clients that may decide some approvals may use that agent, which checks itself which ones. With
    `operations`, a node without schemes lets clients on the same machine decide. `pool_of` returns the public
    name of the pool that an agent belongs to, or None: a pool's list also applies to its members. With
    `tokens`, bearer tokens that were issued while the node runs are credentials too, also as the parameter
    `token` of an address, for clients that cannot set headers. `shared` is the token with which nodes that
    were started together use the storage agents. With `sessions`, people log in at the node's page, and a
    cookie admits its requests. `attempts` counts log-ins at all doors.

    The constructor reads all secrets, which blocks on the disk, and raises ConfigError if one is missing or
    unusable. After that they are checked at most once a second, on use. Problems then go to `report`, each
    once; a secret that cannot be read admits no client.
    """

    def __init__(
        self,
        security: Security,
        *,
        wall: Callable[[], float],
        hosts: Sequence[str] = (),
        public_url: str | None = None,
        storage_agents: Collection[str] = (),
        pool_of: Callable[[str], str | None] = _in_no_pool,
        report: Callable[[str], None] = _ignore_problem,
        tokens: IssuedTokens | None = None,
        shared: SharedToken | None = None,
        is_approvals: Callable[[str], bool] = _is_none,
        operations: bool = False,
        sessions: Sessions | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self.security = security
        self.generation = 0
        """A number that grows when credentials that were accepted may not be accepted any more."""
        self.refusals: Counter[int] = Counter()
        """Number of refusals by status."""
        self._wall, self._report = wall, report
        self._hosts = Hosts((*security.hosts, *map(check_host, hosts)))
        self._origins = frozenset(security.origins)
        self._public = None if public_url is None else own_origin_at(public_url)
        self._rules, self._storage_agents = security.rules, frozenset(storage_agents)
        self._pool_of, self._is_approvals = pool_of, is_approvals
        self._is_open = security.is_open
        self.operations = operations and self._is_open
        self._has_access_lists, self._sessions = bool(security.access), sessions
        self._rates = None if security.rate is None else Buckets(security.rate)
        self.attempts = attempts or Attempts(security.failures)
        self._admits_anonymous = security.admits_anonymous
        self._verifiers, self._certificates = _verifiers(security)
        self._shared = None if shared is None else SharedTokenVerifier(shared)
        self._takes_query = tokens is not None
        self._verifiers += [] if tokens is None else [IssuedTokenVerifier(tokens)]
        self._checked_at: float | None = None
        self._reported: frozenset[str] = frozenset()
        self._read_first()

    # ---- letting in

    def admit(
        self, request: RequestContext, now: float, *, public: bool = False, page: bool = False
    ) -> Admission | Refusal:
        """Return the admission of a request or upgrade, or its refusal; `now` is monotonic time in seconds.

        If `public` is true, the resource is open to anyone, so credentials are not needed; those presented
        are checked all the same. If `page` is true, it is the node's page, to which links of other sites may
        lead. Blocks on the disk at most once a second.
        """
        is_foreign = self._is_of_other_site(request) and not (page and _follows_link(request))
        found = Refusal(403, OTHER_SITE) if is_foreign else self._decide(request, now, public=public)
        if isinstance(found, Refusal):
            self.refusals[found.status] += 1
        return found

    def _decide(self, request: RequestContext, now: float, *, public: bool) -> Admission | Refusal:
        refusal = self._host_or_origin_refusal(request)
        if refusal is not None:
            return refusal
        self.refresh(now)
        shown = authorization_in(request) if self._verifiers or self._shared is not None else None
        if self._shared is not None and isinstance(shown, AuthorizationHeader):
            proof = self._shared.verify(shown, 0.0)
            if proof is not None:
                return Admission(self, proof, self._source(None, request))
        credentials = shown if self._verifiers else None
        if credentials is None and self._takes_query:
            credentials = token_in_query(request)
        if isinstance(credentials, Malformed):
            return Refusal(400, "the Authorization header cannot be read")
        if credentials is not None:
            found = self.attempts.judge(credentials, request.peer, now, partial(self._verified, credentials))
            if isinstance(found, int | float):
                return _too_many(TOO_MANY_WRONG, found) if found else self.invalid_credentials
            return Admission(self, found, self._source(found.principal, request))
        if self._sessions is not None and shown is None and self._is_of_own_page(request):
            proof = self._sessions.find(request, self._wall())
            if proof is not None:
                return Admission(self, proof, self._source(proof.principal, request))
        return self._by_connection(request, now, public=public)

    def _verified(self, credentials: AuthorizationHeader) -> Proof | None:
        wall = self._wall()
        for verifier in self._verifiers:
            proof = verifier.verify(credentials, wall) if verifier.kind == credentials.kind else None
            if proof is not None:
                return proof
        return None

    def _by_connection(self, request: RequestContext, now: float, *, public: bool) -> Admission | Refusal:
        certificate = request.certificate
        if certificate is not None and self._certificates is not None:
            proof = self._certificates.verify_certificate(certificate)
            if proof is not None:
                return Admission(self, proof, self._source(proof.principal, request))
        if self._admits_anonymous or public:
            is_local = self.operations and _is_local(request)
            return Admission(self, None, self._source(None, request), is_local=is_local)
        return self._unauthorized(CREDENTIALS_NEEDED, wrong=False)

    def _source(self, principal: Principal | None, request: RequestContext) -> str:
        """Return the bucket of the request rate; its prefix distinguishes principals from addresses."""
        if self._rates is None:
            return ""
        return f"={principal.name}" if principal is not None else f"@{address_of(request.peer)}"

    def _unauthorized(self, reason: str, *, wrong: bool) -> Refusal:
        more = b', error="invalid_token"' if wrong else b""
        headers = (
            (name, each + (more if each.startswith(b"Bearer") else b"")) for name, each in self.challenges
        )
        return Refusal(401, reason, tuple(headers))

    @property
    def invalid_credentials(self) -> Refusal:
        """The refusal of credentials that are wrong, expired or revoked."""
        return self._unauthorized(NOT_ACCEPTED, wrong=True)

    @property
    def challenges(self) -> Headers:
        """The `WWW-Authenticate` headers of a 401 answer (RFC 9110, 11.6.1)."""
        found = dict.fromkeys(each.challenge for each in self._verifiers if each.challenge)
        return tuple((b"www-authenticate", each) for each in found)

    def _host_or_origin_refusal(self, request: RequestContext) -> Refusal | None:
        host = None if request.host is None else host_of(request.host)
        if request.host is not None and host is None:
            return Refusal(400, "the Host header cannot be read")
        if host is not None and not self._hosts.has(host[0]):
            return Refusal(403, "this node does not answer to the name in the Host header")
        return None if self.is_origin_allowed(request) else Refusal(403, "this origin is not allowed")

    # ---- pages in browsers

    def is_origin_allowed(self, request: RequestContext) -> bool:
        """Return whether a request comes from no web page, the node's own page, or an allowed origin."""
        named = request.values(b"origin")
        if not named:
            return True
        origin = origin_of(named[0].decode("latin-1")) if len(named) == 1 else None
        if origin is None:
            return False
        own = None if request.host is None else own_origin(request.host, secure=request.secure)
        return origin in (own, self._public) or origin in self._origins

    def _is_of_other_site(self, request: RequestContext) -> bool:
        """Return whether, according to the browser, a page of a site that is not allowed sent a request."""
        if all(site in OWN_SITES for site in request.values(b"sec-fetch-site")):
            return False
        named = request.values(b"origin")
        origin = origin_of(named[0].decode("latin-1")) if len(named) == 1 else None
        return origin is None or (origin != self._public and origin not in self._origins)

    def _has_own_origin(self, request: RequestContext) -> bool:
        """Return whether a request certainly comes from the node's own page."""
        named = request.values(b"origin")
        origin = origin_of(named[0].decode("latin-1")) if len(named) == 1 else None
        own = None if request.host is None else own_origin(request.host, secure=request.secure)
        return origin is not None and origin in (own, self._public)

    def comes_from_other_page(self, request: RequestContext) -> bool:
        """Return whether a request comes from a web page other than the node's own.

        Pages of `origins` may use agents, but only the node's own page may show or operate the node: a
        browser adds a client certificate to any page's request, and may run on the node's machine.
        """
        return bool(request.values(b"origin")) and not self._has_own_origin(request)

    def _is_of_own_page(self, request: RequestContext) -> bool:
        """Return whether the cookie of a request may count; see `_sessions.py`."""
        if request.values(b"origin"):
            return self._has_own_origin(request)
        return request.reads and all(site in OWN_SITES for site in request.values(b"sec-fetch-site"))

    def log_in(
        self, request: RequestContext, authorization: bytes, now: float
    ) -> tuple[Admission, bytes] | Refusal:
        """Begin a session of the page with credentials in the form of an Authorization header.

        Return the admission and the value of `Set-Cookie`, or the refusal. Wrong credentials count as they do
        elsewhere.
        """
        if self._sessions is None or not self._has_own_origin(request):
            return Refusal(403, NOT_OWN)
        rest = tuple(each for each in request.headers if each[0] not in (b"authorization", b"cookie"))
        headers = (*rest, (b"authorization", authorization))
        found = self.admit(attrs.evolve(request, headers=headers), now)
        if isinstance(found, Refusal):
            return found
        proof = found.proof
        if proof is None or proof.principal.scheme == SHARED:
            return self.invalid_credentials
        wait = self.take_token(self._source(proof.principal, request), now)
        if wait:
            return _too_many("too many requests", wait)
        self._sessions.end(request)
        secure = request.values(b"origin")[0][:6].lower() == b"https:"
        cookie = self._sessions.begin(proof, self._wall(), secure=secure)
        self.generation += 1
        return found, cookie

    def log_out(self, request: RequestContext) -> bytes | Refusal:
        """End the session of a request; return the value of `Set-Cookie`, or the refusal."""
        refusal = self._host_or_origin_refusal(request)
        if refusal is None and (self._sessions is None or not self._has_own_origin(request)):
            refusal = Refusal(403, NOT_OWN)
        if refusal is not None or self._sessions is None:
            return refusal or Refusal(403, NOT_OWN)
        self._sessions.end(request)
        self.generation += 1
        secure = request.values(b"origin")[0][:6].lower() == b"https:"
        return self._sessions.gone(secure=secure)

    def cors(self, request: RequestContext) -> Headers:
        """Return the CORS headers of an answer; () if no origin is configured.

        If origins are configured, every answer has `Vary: Origin`, so that caches keep the answers apart.
        """
        if not self._origins:
            return ()
        origin = self._named_origin(request)
        vary = ((b"vary", b"Origin"),)
        if origin is None:
            return vary
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", EXPOSED_HEADERS),
            *vary,
        )

    def preflight(self, request: RequestContext) -> Headers | None:
        """Return the headers of the 204 answer to a CORS preflight; None if the request is not a preflight.

        A preflight is an OPTIONS request (the caller has checked that) with `Access-Control-Request-Method`.
        Browsers send it without credentials, so it is answered before credentials are required.
        """
        if not request.values(b"access-control-request-method"):
            return None
        headers = self.cors(request)
        if self._named_origin(request) is None:
            return headers
        asks_inside = request.values(b"access-control-request-private-network") == [b"true"]
        return (
            *headers,
            (b"access-control-allow-methods", ALLOWED_METHODS),
            (b"access-control-allow-headers", ALLOWED_HEADERS),
            (b"access-control-max-age", PREFLIGHT_SECONDS),
            *(((b"access-control-allow-private-network", b"true"),) if asks_inside else ()),
        )

    def _named_origin(self, request: RequestContext) -> bytes | None:
        """Return the request's origin, exactly as the browser sent it; None if it is not configured."""
        named = request.values(b"origin")
        if len(named) != 1 or origin_of(named[0].decode("latin-1")) not in self._origins:
            return None
        return bytes(named[0])

    # ---- after admission

    def refresh(self, now: float) -> None:
        """Reload secrets that have changed, at most once a second. Blocks on the disk."""
        if self._checked_at is not None and self._checked_at <= now < self._checked_at + CHECK_INTERVAL:
            return
        self._checked_at = now
        self._read()
        problems = [problem for each in self._all() for problem in each.problems()]
        for problem in problems:
            if problem not in self._reported:
                self._report(problem)
        self._reported = frozenset(problems)

    def _read(self) -> None:
        changed = [each.refresh() for each in self._all()]
        if any(changed):
            self.generation += 1

    def _all(self) -> list[Verifier]:
        return [*self._verifiers, *([] if self._certificates is None else [self._certificates])]

    def _read_first(self) -> None:
        self._read()
        problems = [problem for each in self._all() for problem in each.problems()]
        if problems:
            raise ConfigError("; ".join(problems))

    def is_valid(self, proof: Proof) -> bool:
        """Return whether a proof is still valid: neither expired nor revoked."""
        return (proof.until is None or self._wall() < proof.until) and proof.verifier.is_valid(proof)

    def is_past(self, until: float) -> bool:
        """Return whether a Unix time has passed."""
        return self._wall() >= until

    def take_token(self, source: str, now: float) -> float:
        """Count a request against the rate of its source. Return the seconds to wait, or 0.0."""
        return 0.0 if self._rates is None else self._rates.take(source, now)

    def names(self, principal: Principal | None, agent: str, verb: Verb) -> bool:
        """Return whether an access list names a principal or one of its scopes, instead of admitting all."""
        rule = self._rules.rule(agent, verb)
        return not rule.open and not rule.known and rule.admits(principal)

    def has_list(self, agent: str, verb: Verb) -> bool:
        """Return whether an access list was written for a verb of an agent."""
        return self._rules.has_list(agent, verb)

    def has_right(self, principal: Principal | None, agent: str, right: Verb, *, local: bool) -> bool:
        """Return whether a client has a right of `PERSONAL` over an agent.

        If `local` is true, the client is on this machine. The name of the node as a whole is "". The right to
        inspect or operate a member of a pool requires the same right over the pool.
        """
        if self._is_open:
            return self.operations and local
        if principal is None or not self._rules.rule(agent, right).admits(principal):
            return False
        pool = self._pool_of(agent) if right != "approve" and agent else None
        return pool is None or self._rules.rule(pool, right).admits(principal)

    def has_somewhere(self, principal: Principal | None, right: Verb, *, local: bool) -> bool:
        """Return whether a client may have a right of `PERSONAL` over some agent, or the node as a whole."""
        if self._is_open:
            return self.operations and local
        return principal is not None and self._rules.has_somewhere(principal, right)

    def admits(self, principal: Principal | None, agent: str, verb: Verb) -> bool:
        """Return whether the access lists allow an operation; the principal None is an anonymous client."""
        if principal is not None and principal.scheme == SHARED:
            if agent in self._storage_agents:
                return True
            principal = None
        if not self._is_open and self._is_approvals(agent):
            return self.has_somewhere(principal, "approve", local=False)
        if agent in self._storage_agents and verb == "invoke":
            return all(self._rules.rule(agent, each).admits(principal) for each in STORAGE_VERBS)
        if not self._rules.rule(agent, verb).admits(principal):
            return False
        pool = self._pool_of(agent) if self._has_access_lists else None
        return pool is None or self._rules.rule(pool, verb).admits(principal)


class Admission:
    """An admitted client. `principal` is its identity; None for an anonymous client."""

    __slots__ = ("_generation", "_guard", "_is_local", "_proof", "_source", "_still_valid", "principal")

    def __init__(self, guard: Guard, proof: Proof | None, source: str, *, is_local: bool = False) -> None:
        self.principal: Principal | None = None if proof is None else proof.principal
        self._guard = guard
        self._proof = proof
        self._source = source
        self._is_local = is_local
        self._generation = guard.generation
        self._still_valid = True

    def __repr__(self) -> str:
        return f"Admission({self.principal!r})"

    @property
    def proof(self) -> Proof | None:
        """The proof of the credentials that admitted the client; None for an anonymous client."""
        return self._proof

    @property
    def until(self) -> float | None:
        """The Unix time at which the credentials expire; None if they never expire."""
        return None if self._proof is None else self._proof.until

    def valid(self, now: float) -> bool:
        """Return whether the credentials are still valid: neither expired nor revoked."""
        guard, proof = self._guard, self._proof
        if proof is None:
            return True
        guard.refresh(now)
        if self._generation != guard.generation:
            self._generation = guard.generation
            self._still_valid = proof.verifier.is_valid(proof)
        return self._still_valid and (proof.until is None or not guard.is_past(proof.until))

    def allows(self, agent: str, verb: Verb) -> bool:
        """Return whether the access lists allow an operation, without counting a request; for listings."""
        if verb in PERSONAL:
            return self._guard.has_right(self.principal, agent, verb, local=self._is_local)
        return self._guard.admits(self.principal, agent, verb)

    def has_somewhere(self, right: Verb) -> bool:
        """Return whether the client may have a right of `PERSONAL` over some agent or the whole node."""
        return self._guard.has_somewhere(self.principal, right, local=self._is_local)

    def charge(self, now: float) -> None:
        """Count a request against the rate, as `check` does. Raises Unauthorized and RateLimited."""
        if self._proof is not None and not self.valid(now):
            raise Unauthorized(NOT_ACCEPTED)
        wait = self._guard.take_token(self._source, now)
        if wait:
            raise RateLimited(wait)

    def check(self, agent: str, verb: Verb, now: float) -> None:
        """Check a request to an agent, by its public name, before the request is processed.

        Raises Unauthorized if the credentials are no longer valid, or an anonymous client needs credentials.
        Also raises RateLimited and Forbidden.
        """
        self.charge(now)
        if not self._guard.admits(self.principal, agent, verb):
            if self.principal is None:
                raise Unauthorized(CREDENTIALS_NEEDED)
            raise Forbidden(f"{self.principal.name} may not {verb} here")


def _verifiers(security: Security) -> tuple[list[Verifier], CertificateVerifier | None]:
    found: list[Verifier] = []
    certificates: CertificateVerifier | None = None
    digest_of = KeyedDigest()
    for scheme in security.schemes:
        match scheme:
            case Basic():
                found.append(BasicVerifier(scheme, digest_of))
            case Bearer():
                found.append(BearerVerifier(scheme, digest_of))
            case Jwt():
                found.append(JwtVerifier(scheme, digest_of))
            case ClientCertificates():
                certificates = CertificateVerifier(scheme)
            case _:
                pass
    return found, certificates


_FORWARDED: Final = frozenset(
    {
        b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip", b"true-client-ip",
        b"cf-connecting-ip", b"fastly-client-ip", b"x-envoy-external-address", b"x-original-forwarded-for",
    }
)  # fmt: skip
"""Headers that proxies add: a request through a proxy comes from elsewhere, even if the proxy is local."""

_FORWARDED_BEGIN: Final = b"x-forwarded-"
"""The prefix of further ones: X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto."""


def _is_local(request: RequestContext) -> bool:
    """Return whether a request certainly comes from this machine."""
    host = request.peer.rpartition(":")[0] or request.peer
    return is_loopback(host) and not any(
        name in _FORWARDED or name.startswith(_FORWARDED_BEGIN) for name, _ in request.headers
    )


def _follows_link(request: RequestContext) -> bool:
    """Return whether a person has followed a link: the answer is displayed, and no script reads it."""
    return request.reads and request.values(b"sec-fetch-mode") == [b"navigate"]


def _too_many(reason: str, wait: float) -> Refusal:
    seconds = str(max(1, -int(-wait // 1))).encode()
    return Refusal(429, reason, ((b"retry-after", seconds),), wait)
