"""The one place that decides who is let in, and what they may do; one for each node."""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import TYPE_CHECKING, Final

from lmos_actors.errors import ConfigError, Forbidden, RateLimited, Unauthorized

from ._jwt import JwtVerifier
from ._origins import Hosts, check_host, host_of, origin_of, own_origin, own_origin_at
from ._presented import Given, Presented, Principal, Refusal, Wrong, given_in
from ._rates import Buckets
from ._schemes import Basic, Bearer, ClientCertificates, Jwt
from ._secrets import LOOK_EVERY, Blind
from ._verifiers import BasicVerifier, BearerVerifier, CertificateVerifier

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lmos_actors._core import Headers

    from ._presented import Verb
    from ._security import Security
    from ._verifiers import Proof, Verifier

ALLOWED_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
ALLOWED_HEADERS: Final = (
    b"Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, LMOS-Remaining, Prefer, "
    b"Traceparent, Tracestate"
)
EXPOSED_HEADERS: Final = b"ETag, Link, Location, Retry-After, WWW-Authenticate"
REMEMBERED: Final = b"600"  # seconds that a browser need not ask again

KEEPING: Final[tuple[Verb, ...]] = ("invoke", "read", "write")

NEEDED = "credentials are needed"
NOT_GOOD = "the credentials are not accepted"


def _silent(trouble: str) -> None:
    pass


def _in_no_pool(name: str) -> str | None:
    return None


class Guard:
    """Decides for one node. `wall` gives Unix time, `hosts` are names of the node beside those of `security`;
    pages that come by its `public_url` are from here, whatever a proxy before it has made of it.

    `keepers` are public names of agents whose actions read and write what they keep: whoever invokes one has
    to be let in for that, too. `pool_of` gives the public name of the pool that an agent is a member of, else
    None: a list for a pool holds for its members as well, whatever is said of them.

    Secrets are read when it is made, which blocks on the disk, and raises ConfigError where one is missing
    or not to be used; from then on at most once a second, when somebody asks. What goes wrong then is told
    to `report`, once: what cannot be read lets in nobody.
    """

    def __init__(
        self,
        security: Security,
        *,
        wall: Callable[[], float],
        hosts: Sequence[str] = (),
        public_url: str | None = None,
        keepers: Collection[str] = (),
        pool_of: Callable[[str], str | None] = _in_no_pool,
        report: Callable[[str], None] = _silent,
    ) -> None:
        self.security = security
        self.generation = 0
        """Grows when something that was good may be so no longer."""
        self.refusals: Counter[int] = Counter()
        """How many were not let in, by the status that they were answered with."""
        self._wall = wall
        self._report = report
        self._hosts = Hosts((*security.hosts, *map(check_host, hosts)))
        self._origins = frozenset(security.origins)
        self._public = None if public_url is None else own_origin_at(public_url)
        self._gates = security.gates
        self._keepers = frozenset(keepers)
        self._pool_of = pool_of
        self._has_lists = bool(security.access)
        self._rates = None if security.rate is None else Buckets(security.rate)
        self._failures = Buckets(security.failures)
        self._anyone = security.lets_in_anyone
        self._verifiers, self._certificates = _verifiers(security)
        self._looked: float | None = None
        self._told: frozenset[str] = frozenset()
        self._read_first()

    # ---- letting in

    def admit(self, presented: Presented, now: float, *, public: bool = False) -> Admission | Refusal:
        """Decide whether a request, or an upgrade, is let in; `now` is seconds of a clock that never goes
        back.

        `public`: what is asked for can be seen by anyone, so credentials are not needed; those that are
        presented are checked all the same.
        """
        found = self._decide(presented, now, public=public)
        if isinstance(found, Refusal):
            self.refusals[found.status] += 1
        return found

    def _decide(self, presented: Presented, now: float, *, public: bool) -> Admission | Refusal:
        refusal = self._wrong_door(presented)
        if refusal is not None:
            return refusal
        self.look(now)
        given = given_in(presented) if self._verifiers else None
        if isinstance(given, Wrong):
            return Refusal(400, "the Authorization header cannot be read")
        if given is not None:
            return self._by_credentials(given, presented, now)
        return self._by_connection(presented, now, public=public)

    def _by_credentials(self, given: Given, presented: Presented, now: float) -> Admission | Refusal:
        if self._failures:
            wait = self._failures.wait(address_of(presented.peer), now)
            if wait:
                return _too_often(wait)
        wall = self._wall()
        for verifier in self._verifiers:
            proof = verifier.verify(given, wall) if verifier.kind == given.kind else None
            if proof is not None:
                return Admission(self, proof, self._source(proof.principal, presented))
        self._failures.take(address_of(presented.peer), now)
        return self.not_good

    def _by_connection(self, presented: Presented, now: float, *, public: bool) -> Admission | Refusal:
        certificate = presented.certificate
        if certificate is not None and self._certificates is not None:
            proof = self._certificates.verify_certificate(certificate)
            if proof is not None:
                return Admission(self, proof, self._source(proof.principal, presented))
        if self._anyone or public:
            return Admission(self, None, self._source(None, presented))
        return self._unknown(NEEDED, wrong=False)

    def _source(self, principal: Principal | None, presented: Presented) -> str:
        """Return the name by which the rate of requests is kept."""
        if self._rates is None:
            return ""
        return f"={principal.name}" if principal is not None else f"@{address_of(presented.peer)}"

    def _unknown(self, reason: str, *, wrong: bool) -> Refusal:
        more = b', error="invalid_token"' if wrong else b""
        told = (
            (name, each + (more if each.startswith(b"Bearer") else b"")) for name, each in self.challenges
        )
        return Refusal(401, reason, tuple(told))

    @property
    def not_good(self) -> Refusal:
        """What somebody is told whose credentials are not good, or no longer."""
        return self._unknown(NOT_GOOD, wrong=True)

    @property
    def challenges(self) -> Headers:
        """Return the headers by which an answer 401 says how somebody may say who they are."""
        found = dict.fromkeys(each.challenge for each in self._verifiers if each.challenge)
        return tuple((b"www-authenticate", each) for each in found)

    def _wrong_door(self, presented: Presented) -> Refusal | None:
        host = None if presented.host is None else host_of(presented.host)
        if presented.host is not None and host is None:
            return Refusal(400, "the Host header cannot be read")
        if host is not None and not self._hosts.has(host[0]):
            return Refusal(403, "this node is not known by the name in the Host header")
        return None if self.is_origin_allowed(presented) else Refusal(403, "this origin is not let in")

    # ---- pages in browsers

    def is_origin_allowed(self, presented: Presented) -> bool:
        """Whether the page that asks, if it is one, is one from here or of an origin that is let in."""
        named = presented.values(b"origin")
        if not named:
            return True
        origin = origin_of(named[0].decode("latin-1")) if len(named) == 1 else None
        if origin is None:
            return False
        own = None if presented.host is None else own_origin(presented.host, secure=presented.secure)
        return origin in (own, self._public) or origin in self._origins

    def cors(self, presented: Presented) -> Headers:
        """Return the headers that an answer needs so that a page of an origin that is named may read it."""
        if not self._origins:
            return ()
        origin = self._named_origin(presented)
        vary = ((b"vary", b"Origin"),)
        if origin is None:
            return vary
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", EXPOSED_HEADERS),
            *vary,
        )

    def preflight(self, presented: Presented) -> Headers | None:
        """Return the headers of the answer (204) to a browser that asks beforehand; None if this is not one.

        It is one if it is an OPTIONS request with `Access-Control-Request-Method`; that it is OPTIONS the
        caller knows. It carries no credentials, and is to be answered before any are asked for.
        """
        if not presented.values(b"access-control-request-method"):
            return None
        headers = self.cors(presented)
        if self._named_origin(presented) is None:
            return headers
        asks_inside = presented.values(b"access-control-request-private-network") == [b"true"]
        return (
            *headers,
            (b"access-control-allow-methods", ALLOWED_METHODS),
            (b"access-control-allow-headers", ALLOWED_HEADERS),
            (b"access-control-max-age", REMEMBERED),
            *(((b"access-control-allow-private-network", b"true"),) if asks_inside else ()),
        )

    def _named_origin(self, presented: Presented) -> bytes | None:
        """Return the origin as the browser wrote it, where it is one of those named."""
        named = presented.values(b"origin")
        if len(named) != 1 or origin_of(named[0].decode("latin-1")) not in self._origins:
            return None
        return bytes(named[0])

    # ---- while they are in

    def look(self, now: float) -> None:
        """Read secrets that have changed, at most once a second. Blocks on the disk."""
        if self._looked is not None and self._looked <= now < self._looked + LOOK_EVERY:
            return
        self._looked = now
        self._read()
        self._tell()

    def _read(self) -> None:
        changed = [each.look() for each in self._all()]
        if any(changed):
            self.generation += 1

    def _all(self) -> list[Verifier]:
        return [*self._verifiers, *([] if self._certificates is None else [self._certificates])]

    def _read_first(self) -> None:
        self._read()
        troubles = [trouble for each in self._all() for trouble in each.troubles()]
        if troubles:
            raise ConfigError("; ".join(troubles))

    def _tell(self) -> None:
        troubles = [trouble for each in self._all() for trouble in each.troubles()]
        for trouble in troubles:
            if trouble not in self._told:
                self._report(trouble)
        self._told = frozenset(troubles)

    def holds(self, proof: Proof) -> bool:
        """Whether somebody who was let in would still be."""
        return (proof.until is None or self._wall() < proof.until) and proof.verifier.holds(proof)

    def is_past(self, until: float) -> bool:
        """Whether that Unix time has come."""
        return self._wall() >= until

    def pay(self, source: str, now: float) -> float:
        """Take a request from the rate of whoever asks: 0, or the seconds to wait."""
        return 0.0 if self._rates is None else self._rates.take(source, now)

    def lets_in(self, principal: Principal | None, agent: str, verb: Verb) -> bool:
        """Whether the access lists let somebody do that."""
        if agent in self._keepers and verb == "invoke":
            return all(self._gates.gate(agent, each).lets_in(principal) for each in KEEPING)
        if not self._gates.gate(agent, verb).lets_in(principal):
            return False
        pool = self._pool_of(agent) if self._has_lists else None
        return pool is None or self._gates.gate(pool, verb).lets_in(principal)


class Admission:
    """Somebody who was let in: `principal` is who, None for nobody known."""

    __slots__ = ("_generation", "_good", "_guard", "_proof", "_source", "principal")

    def __init__(self, guard: Guard, proof: Proof | None, source: str) -> None:
        self.principal: Principal | None = None if proof is None else proof.principal
        self._guard = guard
        self._proof = proof
        self._source = source
        self._generation = guard.generation
        self._good = True

    def __repr__(self) -> str:
        return f"Admission({self.principal!r})"

    @property
    def until(self) -> float | None:
        """When it ends by itself, in Unix time; None for never."""
        return None if self._proof is None else self._proof.until

    def valid(self, now: float) -> bool:
        """Whether the credentials are still good: neither expired nor taken away meanwhile."""
        guard, proof = self._guard, self._proof
        if proof is None:
            return True
        guard.look(now)
        if self._generation != guard.generation:
            self._generation = guard.generation
            self._good = proof.verifier.holds(proof)
        return self._good and (proof.until is None or not guard.is_past(proof.until))

    def allows(self, agent: str, verb: Verb) -> bool:
        """Whether the access lists allow it; for lists of what somebody may see. It costs nothing."""
        return self._guard.lets_in(self.principal, agent, verb)

    def charge(self, now: float) -> None:
        """Take a request from the rate; `check` does so as well. Raises Unauthorized, RateLimited."""
        if not self.valid(now):
            raise Unauthorized(NOT_GOOD)
        wait = self._guard.pay(self._source, now)
        if wait:
            raise RateLimited(wait)

    def check(self, agent: str, verb: Verb, now: float) -> None:
        """Check a request to an agent, by its public name, before anything else is done about it.

        Raises Unauthorized where the credentials are no longer good, or where nobody is known and somebody
        must be; RateLimited; Forbidden.
        """
        self.charge(now)
        if not self._guard.lets_in(self.principal, agent, verb):
            if self.principal is None:
                raise Unauthorized(NEEDED)
            raise Forbidden(f"{self.principal.name} may not {verb} here")


def _verifiers(security: Security) -> tuple[list[Verifier], CertificateVerifier | None]:
    found: list[Verifier] = []
    certificates: CertificateVerifier | None = None
    blind = Blind()
    for scheme in security.schemes:
        match scheme:
            case Basic():
                found.append(BasicVerifier(scheme, blind))
            case Bearer():
                found.append(BearerVerifier(scheme, blind))
            case Jwt():
                found.append(JwtVerifier(scheme, blind))
            case ClientCertificates():
                certificates = CertificateVerifier(scheme)
            case _:
                pass
    return found, certificates


def address_of(peer: str) -> str:
    """Return what counts as one address: without the port, and of IPv6 the network that one customer has."""
    host = peer.rpartition(":")[0] or peer
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))


def _too_often(wait: float) -> Refusal:
    seconds = str(max(1, -int(-wait // 1))).encode()
    return Refusal(429, "too many credentials that are not accepted", ((b"retry-after", seconds),), wait)
