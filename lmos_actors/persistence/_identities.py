"""Identities of agents on a hub: who has registered, and the tokens by which they are recognized.

A token is 256 random bits. Only its SHA-256 is kept, so that nobody can log in with a copy of the store; the
token is long enough for a hash without salt. Records:

| space | key | value |
|---|---|---|
| `identities` | hub, id | `Identity`: the digest of its token, when it was made and last used |
| `invitations` | hub, digest | an invitation that has been used, as long as it is listed |

All identities are in memory too, by id and by digest. At most `identities` agents can be registered. An
identity that has never connected ends after `unused_seconds`; an identity that has left, and has not
connected again, ends after `kept_seconds`. After its end its name is refused for the same time again, so that
no other agent can pose as the old one. Times are Unix time.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs
import msgspec

from ._keys import key_of, parts_of, range_of
from ._store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container

    from ._writer import StoreWriter

IDENTITIES: Final = "identities"
INVITATIONS: Final = "invitations"
TOKEN_BYTES: Final = 32
PREFIX: Final = "tok_"

RENEWALS: Final = 720
"""Maximum writes of the last use while an identity is kept: one an hour for 30 days."""

_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,62}[a-z0-9]")

Refused: TypeAlias = Literal["invalid", "taken", "full", "used"]
"""Why a registration is refused: the id is not allowed; it is taken, or was taken recently; there are too
many identities; the invitation has been used."""


class Identity(msgspec.Struct, omit_defaults=True):
    """The kept record of an agent. `digest` is hexadecimal, "" once its token has been revoked.

    `used` is 0 until it has connected, `ended` is 0 until it has ended; after that only its name is kept.
    """

    digest: str
    made: float
    used: float = 0.0
    ended: float = 0.0


@attrs.frozen(kw_only=True)
class IdentityOptions:
    """The bounds on the identities of a hub."""

    identities: int = 100_000
    unused_seconds: float = 3_600.0
    kept_seconds: float = 30 * 86_400.0


@attrs.frozen
class NewIdentity:
    """A new identity, with its token, which is kept nowhere else."""

    id: str
    token: str = attrs.field(repr=False)


class Identities:
    """The identities of one hub.

    `now` returns Unix time. `random` returns the wanted number of random bytes for a token, `random_id` for a
    generated id. `is_here` returns whether an agent is connected: if so, its identity does not end.
    """

    def __init__(
        self,
        writer: StoreWriter,
        hub: str,
        options: IdentityOptions,
        *,
        now: Callable[[], float],
        random: Callable[[int], bytes],
        random_id: Callable[[int], bytes] | None = None,
        reserved: Container[str] = (),
        is_here: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.options = options
        self._writer = writer
        self._hub = hub
        self._now = now
        self._random = random
        self._random_id = random_id or random
        self._reserved = reserved
        self._is_here = is_here
        self._invited: set[str] = set()  # digests of invitations that have been used
        self._fresh: OrderedDict[str, Identity] = OrderedDict()  # never connected, oldest first
        self._used: OrderedDict[str, Identity] = OrderedDict()  # the one that was used longest ago first
        self._by_digest: dict[str, str] = {}
        self._ended: OrderedDict[str, Identity] = OrderedDict()  # names that are refused, oldest first

    def __len__(self) -> int:
        self._expire()
        return len(self._fresh) + len(self._used)

    async def load(self) -> None:
        """Read all identities from the store. Raise StoreFailed."""
        records = await self._records(IDENTITIES)
        found = [(id, msgspec.json.decode(value, type=Identity)) for id, value in records]
        self._invited.update(digest for digest, _ in await self._records(INVITATIONS))
        found.sort(key=lambda each: each[1].ended or each[1].used or each[1].made)
        for id, identity in found:
            self._place(id, identity)
        self._expire()

    async def _records(self, space: str) -> list[tuple[str, bytes]]:
        records = await self._writer.records(space, *range_of(self._hub))
        return [(parts_of(key, 2)[1], value) for key, value in records]

    # ---- finding

    def find(self, token: str) -> str | None:
        """Return the identity that a token belongs to; None for an unknown token."""
        self._expire()
        return self._by_digest.get(_digest(token))

    def has(self, id: str) -> bool:
        """Return whether there is an identity with an id."""
        self._expire()
        return self._get(id) is not None

    def _get(self, id: str) -> Identity | None:
        return self._used.get(id) or self._fresh.get(id)

    def _place(self, id: str, identity: Identity) -> None:
        """Put an identity into the table of its kind, as the newest."""
        if identity.ended:
            self._ended[id] = identity
            return
        (self._used if identity.used else self._fresh)[id] = identity
        self._by_digest[identity.digest] = id

    def _is_refused(self, id: str) -> bool:
        """Return whether a name still belongs to an identity that has ended."""
        ended = self._ended.get(id)
        return ended is not None and ended.ended + self._span(ended) > self._now()

    def _span(self, identity: Identity) -> float:
        """Return the seconds for which an identity is kept, and for which its name is refused after that."""
        return self.options.kept_seconds if identity.used else self.options.unused_seconds

    # ---- changing

    async def register(
        self, id: str | None = None, *, invitation: str | None = None
    ) -> NewIdentity | Refused:
        """Make an identity; return once it is kept. Without an id, one is generated. Raise StoreFailed.

        `invitation` is the digest of an invitation, which is then used up.
        """
        self._expire()
        if id is None:
            id = self._made_up()
        elif not _ID.fullmatch(id) or id in self._reserved:
            return "invalid"
        if self._get(id) is not None or self._is_refused(id):
            return "taken"
        if len(self) >= self.options.identities:
            return "full"
        if invitation in self._invited:
            return "used"
        token = f"{PREFIX}{self._random(TOKEN_BYTES).hex()}"
        made = Identity(_digest(token), self._now())
        self._ended.pop(id, None)
        self._place(id, made)  # at once: another registration of the name is refused from now on
        used = () if invitation is None else (Put(INVITATIONS, self._key(invitation), b"1"),)
        if invitation is not None:
            self._invited.add(invitation)
        try:
            await self._kept(id, made, *used)
        except BaseException:
            if invitation is not None:
                self._invited.discard(invitation)
            if self._fresh.get(id) is made:
                del self._fresh[id], self._by_digest[made.digest]
            raise
        return NewIdentity(id, token)

    async def use(self, id: str) -> None:
        """Note that an agent has connected. Raise StoreFailed."""
        known = self._get(id)
        if known is None:
            return
        before, known.used = known.used, self._now()
        self._fresh.pop(id, None)
        self._used[id] = known
        self._used.move_to_end(id)
        if not before or known.used - before >= self.options.kept_seconds / RENEWALS:
            await self._kept(id, known)

    def leave(self, id: str) -> None:
        """Note that an agent has left: the time for which its identity is kept begins now."""
        known = self._used.get(id)
        if known is None:
            return
        before, known.used = known.used, self._now()
        self._used.move_to_end(id)
        if known.used - before >= self.options.kept_seconds / RENEWALS:
            self._writer.submit([Put(IDENTITIES, self._key(id), msgspec.json.encode(known))], "process")

    async def revoke(self, id: str) -> bool:
        """Revoke the token of an agent, and end its identity; return whether there was one.

        Raise StoreFailed.
        """
        known = self._get(id)
        if known is None:
            return False
        await self._kept(id, self._end(id, known))
        return True

    def _made_up(self) -> str:
        while True:
            id = f"agent-{self._random_id(5).hex()}"
            if self._get(id) is None and id not in self._ended:
                return id

    def keep_invitations(self, listed: Collection[str]) -> None:
        """Forget the used invitations that are not among the `listed` digests."""
        gone = self._invited.difference(listed)
        self._invited -= gone
        if gone:
            self._writer.submit([Delete(INVITATIONS, self._key(each)) for each in gone], "process")

    async def _kept(self, id: str, identity: Identity, *more: Put) -> None:
        write = Put(IDENTITIES, self._key(id), msgspec.json.encode(identity))
        await self._writer.commit([write, *more])

    def _end(self, id: str, known: Identity) -> Identity:
        """End an identity: keep only its name."""
        del (self._used if id in self._used else self._fresh)[id]
        self._by_digest.pop(known.digest, None)
        ended = self._ended[id] = Identity("", known.made, known.used, self._now())
        while len(self._ended) > self.options.identities:
            self._forget_oldest()
        return ended

    def _expire(self) -> None:
        """End the identities whose time is up; forget names that have been refused long enough."""
        now, options = self._now(), self.options
        for table in (self._fresh, self._used):
            while table:
                id, known = next(iter(table.items()))
                if (known.used or known.made) + self._span(known) > now:
                    break
                if known.used and self._is_here(id):
                    known.used = now
                    table.move_to_end(id)
                    continue
                ended = self._end(id, known)
                self._writer.submit([Put(IDENTITIES, self._key(id), msgspec.json.encode(ended))], "process")
        longest = max(options.kept_seconds, options.unused_seconds)
        while self._ended and next(iter(self._ended.values())).ended + longest <= now:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        id, _ = self._ended.popitem(last=False)
        self._writer.submit([Delete(IDENTITIES, self._key(id))], "process")

    def _key(self, id: str) -> str:
        return key_of(self._hub, id)


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
