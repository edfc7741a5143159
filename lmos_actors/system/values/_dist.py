"""Numbers drawn from distributions. Each draw takes a fixed count of numbers from its random stream."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import UNSET, structs

from lmos_actors.files import Duration

from ..model import Constant, Delay, Distribution, Empirical, Exponential, Lognormal, Normal, Uniform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors._core import RandomStream

Drawn: TypeAlias = Delay | Distribution

LONGEST: Final = 360_000_000.0
"""The longest time that is drawn, in seconds: 100000h, the longest duration."""

TAIL: Final = 3.0
"""How many deviations the mean of a normal latency is above zero, at least: one in a thousand is below."""

_LARGEST_EXPONENT: Final = 709.0


def draw(given: Drawn, stream: RandomStream) -> float:
    """Draw a number from a distribution in which `problem_of` finds no mistake.

    Times are seconds, in whole microseconds, from 0 to 100000h; plain numbers are not changed. Normal and
    lognormal take two numbers of the stream; uniform, exponential and empirical take one; a constant takes
    none.
    """
    if isinstance(given, Duration):
        return float(given)
    value = _draw(given, stream)
    return _seconds(value) if is_time(given) else value


def _seconds(value: float) -> float:
    if not 0.0 <= value <= LONGEST:
        value = min(max(value, 0.0), LONGEST)
    return round(value * 1_000_000) / 1_000_000


def sampler(given: Drawn) -> Callable[[RandomStream], float]:
    """Return a function that draws as `draw` does, but faster for many draws."""
    if isinstance(given, Duration):
        seconds = float(given)
        return lambda _: seconds
    if isinstance(given, Lognormal):
        return _lognormal(given)
    drawn = partial(_draw, given)
    return (lambda stream: _seconds(drawn(stream))) if is_time(given) else drawn


def _lognormal(given: Lognormal) -> Callable[[RandomStream], float]:
    middle, spread = _of_logarithm(given)
    are_times = is_time(given)

    def drawn(stream: RandomStream) -> float:
        exponent = middle + spread * stream.gauss()
        value = math.exp(exponent if exponent < _LARGEST_EXPONENT else _LARGEST_EXPONENT)
        if not are_times:
            return value
        return round((value if value < LONGEST else LONGEST) * 1_000_000) / 1_000_000  # as `_seconds`

    return drawn


def number_type(schema: Mapping[str, Any]) -> Literal["number", "integer"] | None:
    """Return the type of number that a schema accepts, or None; draws for an integer are rounded."""
    found = [schema.get("type"), *(inner.get("type") for inner in schema.get("oneOf", ()))]
    if "number" in found:
        return "number"
    return "integer" if "integer" in found else None


def is_time(given: Drawn) -> bool:
    """Return whether the draws of a distribution are times."""
    return isinstance(given, Duration) or any(isinstance(amount, Duration) for amount in _amounts(given))


def problem_of(given: Drawn, *, time: bool = False) -> str | None:
    """Return the mistake in a distribution, or None. `time`: the draws have to be times."""
    found = problem_at(given, time=time)
    return None if found is None else found[1]


def problem_at(given: Drawn, *, time: bool = False) -> tuple[str, str] | None:
    """Return the key and the text of the mistake in a distribution, or None; see `problem_of`."""
    if isinstance(given, Duration):
        return None
    if isinstance(given, Empirical):
        return _wrong_values(given, time=time)
    names = structs.asdict(given)
    bare = [name for name, amount in names.items() if not isinstance(amount, Duration)]
    if bare and (time or len(bare) < len(names)):
        return bare[0], f'"{bare[0]}" has no unit: write {names[bare[0]]:g}s or {names[bare[0]]:g}ms'
    for name, amount in names.items():
        if not math.isfinite(amount):
            return name, f'"{name}" is not a finite number'
    return _out_of_order(given)


def problem_of_delay(given: Delay) -> tuple[str, str] | None:
    """Return the key and the text of the mistake in a delay of messages, or None."""
    problem = problem_at(given, time=True)
    if problem is None and isinstance(given, Normal) and given.mean < TAIL * given.deviation:
        return "deviation", "below zero in its tail: a message would arrive before it is sent. Use lognormal"
    return problem


def _wrong_values(given: Empirical, *, time: bool) -> tuple[str, str] | None:
    if (given.values is UNSET) == (given.file is UNSET):
        return "dist", 'an empirical distribution has "values", or a "file" that has them'
    if given.values is UNSET:
        return None  # its file could not be read, which is reported already
    for key in ("column", "unit"):
        if getattr(given, key) is not UNSET:
            return key, f'"{key}" is of values in a "file"'
    bare = [value for value in given.values if not isinstance(value, Duration)]
    if bare and (time or len(bare) < len(given.values)):
        return "values", f"a value has no unit: write {bare[0]:g}s or {bare[0]:g}ms"
    if not all(map(math.isfinite, given.values)):
        return "values", "a value is not a finite number"
    return None


def _out_of_order(given: Distribution) -> tuple[str, str] | None:
    if isinstance(given, Uniform) and given.max < given.min:
        return "max", f'"max" is less than "min": {given.max} and {given.min}'
    if isinstance(given, Exponential) and given.mean < 0:
        return "mean", f'"mean" is below zero: {given.mean}'
    if isinstance(given, Normal) and given.deviation < 0:
        return "deviation", f'"deviation" is below zero: {given.deviation}'
    if isinstance(given, Lognormal):
        if given.median <= 0:
            return "median", f'"median" has to be above zero: {given.median}'
        if given.p99 < given.median:
            return "p99", f'"p99" is less than "median": {given.p99} and {given.median}'
    return None


def _amounts(given: Distribution) -> list[float]:
    if isinstance(given, Empirical):
        return list(_values_of(given)[:1])  # all are times, or none
    return list(structs.asdict(given).values())


def _values_of(given: Empirical) -> tuple[float, ...]:
    return () if given.values is UNSET else given.values


def _draw(given: Distribution, stream: RandomStream) -> float:
    if isinstance(given, Constant):
        return float(given.value)
    if isinstance(given, Uniform):
        share = stream.random()
        return min(max(given.min * (1.0 - share) + given.max * share, given.min), given.max)
    if isinstance(given, Exponential):
        return stream.expovariate() * given.mean
    if isinstance(given, Empirical):
        values = _values_of(given)
        return float(values[int(stream.random() * len(values))])
    if isinstance(given, Normal):
        return given.mean + given.deviation * stream.gauss()
    middle, spread = _of_logarithm(given)
    return math.exp(min(middle + spread * stream.gauss(), _LARGEST_EXPONENT))


def _of_logarithm(given: Lognormal) -> tuple[float, float]:
    """Return the mean and the standard deviation of the logarithm."""
    middle = math.log(given.median)
    p99 = 2.3263478740408408  # in deviations above the median of a normal distribution
    return middle, (math.log(given.p99) - middle) / p99
