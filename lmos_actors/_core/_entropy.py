"""Ids, random numbers and wall-clock time: the one source of everything that differs from run to run.

`Entropy()` is the real source. `seeded_entropy` makes one that returns the same values for the same seed, on
every machine and under every hash seed.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, MutableSequence, Sequence

    import trio

T = TypeVar("T")

_MASK = (1 << 64) - 1
_NEXT = 1 << 64
_WEYL = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_UNIT = 2.0**-53


class RandomStream:
    """An endless stream of random numbers in 64 bytes (`random.Random` takes 2,500).

    The n-th number is a function of (key, n) and nothing else: the two halves of a product of the key are
    combined with a Weyl sequence, then finished as SplitMix64 does. Good for simulations, not for secrets.
    The methods mean the same as in `random.Random`; the numbers differ.
    """

    __slots__ = ("_state",)

    def __init__(self, key: int) -> None:
        # the key in the low 64 bits, the number of draws above them: one int is smaller than two
        self._state = _finish((key + _WEYL) & _MASK)

    def _draw(self) -> int:
        state = self._state
        self._state = state + _NEXT
        z = state * _WEYL
        return _finish((z ^ (z >> 64)) & _MASK)

    def random(self) -> float:
        """Return a float in [0, 1)."""
        state = self._state
        self._state = state + _NEXT
        z = state * _WEYL
        z = (z ^ (z >> 64)) & _MASK
        # _finish, written out: a call would cost a third more
        z = ((z ^ (z >> 30)) * _FIRST) & _MASK
        z = ((z ^ (z >> 27)) * _SECOND) & _MASK
        return ((z ^ (z >> 31)) >> 11) * _UNIT

    def getrandbits(self, k: int) -> int:
        """Return an int of `k` random bits."""
        if k < 0:
            raise ValueError("number of bits must be non-negative")
        if k <= 64:
            return self._draw() >> (64 - k)
        return (self.getrandbits(k - 64) << 64) | self._draw()

    def randbytes(self, n: int) -> bytes:
        """Return `n` random bytes."""
        words = b"".join(self._draw().to_bytes(8, "little") for _ in range(-(-n // 8)))
        return words[:n]

    def _below(self, n: int) -> int:
        """Return an int in [0, n), all equally likely: the upper half of a product, drawn again if uneven."""
        if n > _MASK:
            value = self.getrandbits(n.bit_length())
            return value if value < n else self._below(n)
        product = self._draw() * n
        if product & _MASK < n:
            uneven = _NEXT % n
            while product & _MASK < uneven:
                product = self._draw() * n
        return product >> 64

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return one of `range(start, stop, step)`, or of `range(start)`."""
        candidates = range(start) if stop is None else range(start, stop, step)
        # not len(): it cannot be over sys.maxsize
        count = (candidates.stop - candidates.start + step - (1 if step > 0 else -1)) // step
        if count <= 0:
            raise ValueError(f"empty range for randrange: {candidates}")
        return candidates.start + step * self._below(count)

    def randint(self, a: int, b: int) -> int:
        """Return an int in [a, b]."""
        if b < a:
            raise ValueError(f"empty range for randint({a}, {b})")
        return a + self._below(b - a + 1)

    def choice(self, seq: Sequence[T]) -> T:
        """Return one element of a sequence that is not empty."""
        if not seq:
            raise IndexError("cannot choose from an empty sequence")
        return seq[self._below(len(seq))]

    def choices(
        self,
        population: Sequence[T],
        weights: Sequence[float] | None = None,
        *,
        cum_weights: Sequence[float] | None = None,
        k: int = 1,
    ) -> list[T]:
        """Return `k` elements, with repetition, by relative or cumulative weights, or all equally likely."""
        if weights is not None:
            if cum_weights is not None:
                raise TypeError("cannot specify both weights and cumulative weights")
            cum_weights = list(accumulate(weights))
        if cum_weights is None:
            return [self.choice(population) for _ in range(k)]
        steps = list(cum_weights)
        if len(steps) != len(population):
            raise ValueError("the number of weights does not match the population")
        total = steps[-1] + 0.0 if steps else 0.0
        if not 0.0 < total < math.inf:
            raise ValueError("total of weights must be finite and greater than zero")
        last = len(steps) - 1
        return [population[bisect_right(steps, self.random() * total, 0, last)] for _ in range(k)]

    def sample(self, population: Sequence[T], k: int) -> list[T]:
        """Return `k` different elements of a sequence, in random order."""
        n = len(population)
        if not 0 <= k <= n:
            raise ValueError(f"cannot take {k} of {n} elements")
        moved: dict[int, int] = {}
        result: list[T] = []
        state = self._state
        # a shuffle that keeps only the places it has touched
        for i in range(k):
            # _below, written out: its three calls would cost twice as much as the rest
            left = n - i
            while True:
                z = state * _WEYL
                state += _NEXT
                z = (z ^ (z >> 64)) & _MASK
                z = ((z ^ (z >> 30)) * _FIRST) & _MASK
                z = ((z ^ (z >> 27)) * _SECOND) & _MASK
                product = (z ^ (z >> 31)) * left
                if product & _MASK >= left or product & _MASK >= _NEXT % left:
                    break
            j = i + (product >> 64)
            result.append(population[moved.get(j, j)])
            moved[j] = moved.get(i, i)
        self._state = state
        return result

    def shuffle(self, x: MutableSequence[T]) -> None:
        """Shuffle a sequence in place."""
        for i in range(len(x) - 1, 0, -1):
            j = self._below(i + 1)
            x[i], x[j] = x[j], x[i]

    def uniform(self, a: float, b: float) -> float:
        """Return a float between a and b."""
        return a + (b - a) * self.random()

    def triangular(self, low: float = 0.0, high: float = 1.0, mode: float | None = None) -> float:
        """Return a float between low and high, most often near mode (the middle if None)."""
        if high == low:
            return low
        peak = 0.5 if mode is None else (mode - low) / (high - low)
        u = self.random()
        if u > peak:
            u, peak, low, high = 1.0 - u, 1.0 - peak, high, low
        return low + (high - low) * math.sqrt(u * peak)

    def expovariate(self, lambd: float = 1.0) -> float:
        """Return a float of the exponential distribution with mean 1 / lambd."""
        return -math.log(1.0 - self.random()) / lambd

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        """Return a float of the normal distribution; each call draws twice and keeps nothing for the next."""
        state = self._state
        self._state = state + 2 * _NEXT
        # random, written out twice: its calls would cost more than the logarithm and the rest
        z = state * _WEYL
        z = (z ^ (z >> 64)) & _MASK
        z = ((z ^ (z >> 30)) * _FIRST) & _MASK
        z = ((z ^ (z >> 27)) * _SECOND) & _MASK
        radius = math.sqrt(-2.0 * math.log(1.0 - ((z ^ (z >> 31)) >> 11) * _UNIT))
        z = (state + _NEXT) * _WEYL
        z = (z ^ (z >> 64)) & _MASK
        z = ((z ^ (z >> 30)) * _FIRST) & _MASK
        z = ((z ^ (z >> 27)) * _SECOND) & _MASK
        return mu + sigma * radius * math.cos(math.tau * (((z ^ (z >> 31)) >> 11) * _UNIT))

    def normalvariate(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        """Return a float of the normal distribution, as `gauss` does."""
        return self.gauss(mu, sigma)

    def lognormvariate(self, mu: float, sigma: float) -> float:
        """Return a float whose logarithm is normally distributed."""
        return math.exp(self.gauss(mu, sigma))

    def gammavariate(self, alpha: float, beta: float) -> float:
        """Return a float of the gamma distribution with mean alpha * beta (Marsaglia and Tsang's method)."""
        if alpha <= 0.0 or beta <= 0.0:
            raise ValueError("gammavariate: alpha and beta must be greater than 0")
        if alpha < 1.0:
            return self.gammavariate(alpha + 1.0, beta) * math.pow(1.0 - self.random(), 1.0 / alpha)
        d = alpha - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self.gauss()
            v = (1.0 + c * x) ** 3
            if v > 0.0 and math.log(1.0 - self.random()) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                return d * v * beta

    def betavariate(self, alpha: float, beta: float) -> float:
        """Return a float in [0, 1] of the beta distribution with mean alpha / (alpha + beta)."""
        a = self.gammavariate(alpha, 1.0)
        return a / (a + self.gammavariate(beta, 1.0)) if a else 0.0

    def paretovariate(self, alpha: float) -> float:
        """Return a float of the Pareto distribution, 1 or more."""
        return math.pow(1.0 - self.random(), -1.0 / alpha)

    def weibullvariate(self, alpha: float, beta: float) -> float:
        """Return a float of the Weibull distribution with scale alpha and shape beta."""
        return alpha * math.pow(self.expovariate(), 1.0 / beta)


def _finish(z: int) -> int:
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


_BATCH = 256
_BLANK = b"00000000-0000-4000-0000-000000000000\n" * _BATCH
_WIDTH = 37
_COLUMNS = [c for c in range(36) if c not in (8, 13, 18, 23)]
_VARIANT = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
"""The wall-clock time of a simulated world at the virtual instant 0."""


def _format_ids(raw: bytes) -> list[str]:
    """Return an id as version-4 text for every 16 bytes; each step writes one column of all ids."""
    digits = raw.hex().encode()
    text = bytearray(_BLANK)
    for digit, column in enumerate(_COLUMNS):
        if column != 14:
            text[column::_WIDTH] = digits[digit::32]
    text[19::_WIDTH] = text[19::_WIDTH].translate(_VARIANT)
    return text.decode("ascii").split()


class Entropy:
    """A source of ids, chance and time of day. Without arguments it is the real one: no run can be repeated.

    It is put together from functions, each of which a world may replace: `id_bytes` returns the bytes of new
    ids, `key_bytes` the eight bytes that begin the stream of a name, `stamp` the time as a number, `time_of`
    the time of day of such a number. None of them blocks. `seed` is the world's, None without one.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        id_bytes: Callable[[int], bytes] | None = None,
        key_bytes: Callable[[str], bytes] | None = None,
        stamp: Callable[[], float] = time.time,
        time_of: Callable[[float], datetime] | None = None,
    ) -> None:
        self.seed = seed
        self._stamp = stamp
        self._time_of = partial(datetime.fromtimestamp, tz=UTC) if time_of is None else time_of
        self._ids = _POOL if id_bytes is None else list[str]()
        self._id_bytes = os.urandom if id_bytes is None else id_bytes
        self._key_bytes = _real_key_bytes if key_bytes is None else key_bytes

    def new_id(self) -> str:
        """Return a new UUID of version 4, as text."""
        try:
            return self._ids.pop()
        except IndexError:
            ids = _format_ids(self._id_bytes(16 * _BATCH))
            last = ids.pop()
            self._ids.extend(ids)
            return last

    def now(self) -> datetime:
        """Return the wall-clock time, in UTC."""
        return self._time_of(self._stamp())

    def stamp(self) -> float:
        """Return the wall-clock time as a number for `time_of`; cheaper than `now`, for frequent use."""
        return self._stamp()

    def time_of(self, stamp: float) -> datetime:
        """Return the wall-clock time of a stamp, in UTC."""
        return self._time_of(stamp)

    def stream(self, name: str) -> RandomStream:
        """Make a stream of random numbers.

        With a seed, each call with the same name makes the same stream from its beginning, so the caller has
        to keep the stream. Different names make unrelated streams. Without a seed every stream is new.
        """
        return RandomStream(int.from_bytes(self._key_bytes(name), "little"))


def _real_key_bytes(_name: str) -> bytes:
    return os.urandom(8)


def seeded_entropy(seed: int, clock: trio.abc.Clock) -> Entropy:
    """Return a source whose values all follow from `seed` and the virtual time of `clock`.

    Time is `EPOCH`, 2030-01-01T00:00:00Z, plus virtual time, to the microsecond. Ids and all streams are
    derived independently, so that using more of one changes nothing in the others.
    """
    derived = SeededBytes(seed)
    return Entropy(
        seed=seed,
        id_bytes=derived.of_ids,
        key_bytes=derived.of_stream,
        stamp=clock.current_time,
        time_of=_virtual_time_of,
    )


def _virtual_time_of(stamp: float) -> datetime:
    return EPOCH + timedelta(seconds=stamp)


class SeededBytes:
    """Bytes that are derived from a seed: for ids in batches, and for streams by name."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._batches = 0

    def of_ids(self, size: int) -> bytes:
        """Return the bytes of the next ids."""
        self._batches += 1
        return self._derive("ids", str(self._batches), size)

    def of_stream(self, name: str) -> bytes:
        """Return the eight bytes that begin the stream of a name."""
        return self._derive("stream", name, 8)

    def _derive(self, use: str, name: str, size: int) -> bytes:
        text = f"lmos-actors/1 {self._seed} {use} {name}"
        return hashlib.shake_128(text.encode("utf-8", "surrogatepass")).digest(size)


_POOL: list[str] = []
# a forked process must not hand out the ids of its parent
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.clear)
