"""Token buckets by name, in bounded memory: how often somebody may ask, or be wrong."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

import attrs

from lmos_actors._errors import ConfigError

MOST: Final = 4096
"""Names that are kept. Beyond it the one that was not heard of for longest is forgotten."""


@attrs.frozen
class Rate:
    """`per_second` times a second in the long run, `burst` times at once. Raises ConfigError where it is none."""

    per_second: float
    burst: int

    def __attrs_post_init__(self) -> None:
        if not (math.isfinite(self.per_second) and self.per_second > 0):
            raise ConfigError(f"per_second must be more than 0, not {self.per_second!r}")
        if self.burst < 1:
            raise ConfigError(f"burst must be at least 1, not {self.burst!r}")


class Bucket:
    """The tokens of one name."""

    __slots__ = ("at", "left")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at


class Buckets:
    """The tokens of each name; `most` of them at once."""

    def __init__(self, rate: Rate, most: int = MOST) -> None:
        self.rate = rate
        self._most = most
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait(self, name: str, now: float) -> float:
        """Say how many seconds until a token is there, 0 if there is one. Takes none, keeps nothing."""
        bucket = self._buckets.get(name)
        if bucket is None:
            return 0.0
        self._fill(bucket, now)
        return self._lacking(bucket)

    def take(self, name: str, now: float) -> float:
        """Take a token: 0 if there was one, else the seconds until there will be."""
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._new(name, now)
        else:
            self._buckets.move_to_end(name)
            self._fill(bucket, now)
        if bucket.left >= 1.0:
            bucket.left -= 1.0
            return 0.0
        return self._lacking(bucket)

    def _new(self, name: str, now: float) -> Bucket:
        while len(self._buckets) >= self._most:
            self._buckets.popitem(last=False)
        bucket = self._buckets[name] = Bucket(float(self.rate.burst), now)
        return bucket

    def _fill(self, bucket: Bucket, now: float) -> None:
        if now > bucket.at:
            bucket.left = min(float(self.rate.burst), bucket.left + (now - bucket.at) * self.rate.per_second)
            bucket.at = now

    def _lacking(self, bucket: Bucket) -> float:
        return 0.0 if bucket.left >= 1.0 else (1.0 - bucket.left) / self.rate.per_second
