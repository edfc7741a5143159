"""The limit on wrong credentials: it slows guessing down, and does not lock out other clients.

A limit on wrong credentials can also be a way to lock out all others who have the same address: people behind
one proxy, on one machine, or with a browser in which a web page guesses. So:

- **No other client can hold up a client that was let in before.** The digest of an accepted credential
  is kept; a request with this credential is always checked, whatever others have done. Whether the
  credential is still valid is checked each time.
- **Tokens that are impossible to guess are always looked up.** Finding a token of 128 random bits takes
  one table look-up, and more look-ups do not help to guess one. If the bucket is empty, a wrong token
  gets the answer for too many attempts.
- **All other attempts are counted by claimed name and address**: the user of a password, the subject of
  a signed token. Once the bucket is empty nothing is checked, so that a right guess cannot be
  distinguished from a wrong one. Credentials without a name are counted by address. An address that
  claims more than `NAMES` names within `MEMORY` seconds has one bucket for all further names; otherwise
  each name would be a new bucket.
- **All doors of a node share one count**: a guess at one door counts at all of them.
- **The memory is bounded**: 4,096 digests, as many buckets, and as many addresses that have claimed
  names. The least recently used entry is removed first.

A password is compared by its digest, in microseconds, in the same step that has read the request. So there
are never two checks at the same time, and no client waits for a check of another.
"""

from __future__ import annotations

import binascii
import math
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from lmos_actors._core import Bounded

from ._rates import MOST, Buckets, Rate, address_of
from ._request import basic_of
from ._secrets import KeyedDigest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._request import AuthorizationHeader

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

NAMES: Final = 64
"""Names that one address may claim, wrongly, each with a count of its own."""

MEMORY: Final = 3600.0
"""Seconds for which a wrongly claimed name is remembered."""

_TO_BASE64: Final = bytes.maketrans(b"-_", b"+/")

LETTERS: Final = 8
"""Minimum of different letters in a random token; one in 28 million of 32 hexadecimal digits has fewer."""

_LOWER: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz")
_UPPER: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_HEXADECIMAL: Final = frozenset(b"0123456789abcdef"), frozenset(b"0123456789ABCDEF")


def is_random(token: bytes) -> bool:
    """Return whether a token is long enough for 128 random bits in its alphabet, with few repetitions."""
    letters = frozenset(token)
    size = 64 if letters & _LOWER and letters & _UPPER else 36
    if any(letters <= digits for digits in _HEXADECIMAL):
        size = 10 if token.isdigit() else 16
    return len(letters) >= LETTERS and len(token) * math.log2(size) >= 128


class _Claims(msgspec.Struct):
    sub: str = ""


def claimed_name(shown: AuthorizationHeader) -> bytes:
    """Return the name that credentials claim; b"" if they claim none.

    The subject of a token is read without verification.
    """
    if shown.kind == "basic":
        found = basic_of(shown.value)
        return b"" if found is None else bytes(found[0])
    if not _is_signed(shown):
        return b""
    part = shown.value.split(b".")[1]
    try:
        text = binascii.a2b_base64(part.translate(_TO_BASE64) + b"=" * (-len(part) % 4))
        return msgspec.json.decode(text, type=_Claims).sub.encode()
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return b""


def _is_signed(shown: AuthorizationHeader) -> bool:
    """Return whether credentials look like a signed token: the first of three parts is an encoded object.

    See RFC 7515, 3.1.
    """
    return shown.value.startswith(b"eyJ") and shown.value.count(b".") == 2


class Attempts:
    """The counted attempts to log in at the doors of one node; `rate` limits the wrong ones."""

    def __init__(self, rate: Rate) -> None:
        self._failures = Buckets(rate)
        self._digest_of = KeyedDigest()
        self._accepted: Bounded[bytes, bool] = Bounded(MOST)
        self._names: Bounded[str, dict[bytes, float]] = Bounded(MOST)

    def judge(
        self, shown: AuthorizationHeader, peer: str, now: float, check: Callable[[], T | None]
    ) -> T | float:
        """Return the result of `check`, or a number of seconds for wrong credentials.

        `check` returns None for wrong credentials. The number is 0.0 if they were checked just now; otherwise
        it is the time until such credentials are checked again. `now` is monotonic, in seconds.
        """
        wait = 0.0
        if self._failures:
            wait = self._failures.wait(self._bucket(shown, address_of(peer), now), now)
            if wait and not self._is_free(shown):
                return wait
        found = check()
        if found is not None:
            self._accepted.use(self._digest(shown), bool)
        elif not wait:
            self._fail(shown, address_of(peer), now)
        return wait if found is None else found

    def _is_free(self, shown: AuthorizationHeader) -> bool:
        """Return whether credentials are always checked: they were accepted before, or cannot be guessed."""
        if self._digest(shown) in self._accepted:
            return True
        return shown.kind != "basic" and not _is_signed(shown) and is_random(shown.value)

    def _fail(self, shown: AuthorizationHeader, address: str, now: float) -> None:
        self._failures.take(self._bucket(shown, address, now), now)
        name = claimed_name(shown)
        if name:
            names = self._names.use(address, dict[bytes, float])
            digest = self._digest_of(name)
            if digest in names or len(names) < NAMES:
                names[digest] = now

    def _bucket(self, shown: AuthorizationHeader, address: str, now: float) -> str:
        name = claimed_name(shown)
        if not name:
            return address
        digest, names = self._digest_of(name), self._names.get(address, {})
        if len(names) >= NAMES and digest not in names:
            for old in [each for each, at in names.items() if at < now - MEMORY]:
                del names[old]
            if len(names) >= NAMES:
                return f"{address} others"
        return f"{address} {digest.hex()}"

    def _digest(self, shown: AuthorizationHeader) -> bytes:
        return self._digest_of(shown.kind.encode(), shown.value)
