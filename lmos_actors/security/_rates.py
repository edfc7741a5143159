"""Token buckets by name, in bounded memory: rates of requests and of wrong credentials."""

from __future__ import annotations

import ipaddress
import math
from typing import Final

import attrs

from lmos_actors._core import Bounded
from lmos_actors.errors import ConfigError

MOST: Final = 4096
"""Limit on the names that are kept; beyond it the least recently used is dropped."""


@attrs.frozen
class Rate:
    """A rate limit: `per_second` on average, `burst` at once. Raises ConfigError."""

    per_second: float
    burst: int

    def __attrs_post_init__(self) -> None:
        if not (math.isfinite(self.per_second) and self.per_second > 0):
            raise ConfigError(f"per_second must be more than 0, not {self.per_second!r}")
        if self.burst < 1:
            raise ConfigError(f"burst must be at least 1, not {self.burst!r}")


class Bucket:
    """The token bucket of one name."""

    __slots__ = ("at", "left")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at


class Buckets:
    """Token buckets by name, at most `most` of them."""

    def __init__(self, rate: Rate, most: int = MOST) -> None:
        self.rate = rate
        self._buckets: Bounded[str, Bucket] = Bounded(most)

    def __len__(self) -> int:
        return len(self._buckets)

    def wait(self, name: str, now: float) -> float:
        """Return the seconds until a token is available, 0 if one is. No token is taken."""
        bucket = self._buckets.get(name)
        return 0.0 if bucket is None else self._lacking(self._left(bucket, now))

    def take(self, name: str, now: float) -> float:
        """Take a token. Return 0 if one was available, else the seconds until one will be."""
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._new(name, now)
        else:
            self._buckets.move_to_end(name)
            bucket.left, bucket.at = self._left(bucket, now), max(now, bucket.at)
        wait = self._lacking(bucket.left)
        if not wait:
            bucket.left -= 1.0
        return wait

    def _new(self, name: str, now: float) -> Bucket:
        bucket = self._buckets[name] = Bucket(float(self.rate.burst), now)
        return bucket

    def _left(self, bucket: Bucket, now: float) -> float:
        more = max(now - bucket.at, 0.0) * self.rate.per_second
        return min(float(self.rate.burst), bucket.left + more)

    def _lacking(self, left: float) -> float:
        # the tolerance makes a client that waits exactly Retry-After find its token, despite float rounding
        return 0.0 if left >= 1.0 - 1e-6 else (1.0 - left) / self.rate.per_second


def address_of(peer: str) -> str:
    """Return the address for which rates are kept: no port; for IPv6, the /64 network of one customer."""
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
