"""Embeddings: functions that turn texts into vectors, so that texts are found by their meaning.

The function is the user's own, and often sends a request to another host. So all its failures become one
error, `EmbeddingFailed`, after which texts are found by words: if the function raises, takes too long, or
returns too few vectors or values that are not vectors. A vector is kept with the name of its embedding, and
compared only with vectors of the same embedding and the same length.
"""

from __future__ import annotations

import logging
import sys
from array import array
from inspect import isawaitable
from math import isfinite, sqrt
from operator import mul
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

MOST_NUMBERS: Final = 8_192
"""Numbers in a vector at most."""

AT_ONCE: Final = 64
"""Texts that the function gets in one call."""

_LOG: Final = logging.getLogger("lmos_actors")


class EmbeddingFailed(Exception):
    """Raised if the function of an embedding fails; the text has the reason."""


class KeptVector(msgspec.Struct, frozen=True):
    """A stored vector: floats of 32 bits, little-endian, and the name of its embedding."""

    embedding: str
    numbers: bytes


def _check_name(_: Any, __: Any, name: Any) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise ValueError(f"the name of an Embedding is a text of 1 to 200 characters, not {name!r}")


def _check_function(_: Any, __: Any, function: Any) -> None:
    if not callable(function):
        raise TypeError(f"the function of an Embedding is an async function of texts, not {function!r}")


def _check_seconds(_: Any, __: Any, seconds: Any) -> None:
    if not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise ValueError(f"the seconds of an Embedding are a number above 0, not {seconds!r}")


@attrs.frozen
class Embedding:
    """An async function from a list of texts to a list of vectors, one for each, and its name.

    Change the name when the model behind it changes: the next search then makes new vectors of the texts. A
    call of more than `seconds` is cancelled.
    """

    name: str = attrs.field(validator=_check_name)
    function: Callable[[list[str]], Awaitable[Sequence[Sequence[float]]]] = attrs.field(
        validator=_check_function, repr=False
    )
    seconds: float = attrs.field(default=10.0, validator=_check_seconds)


async def embedded(embedding: Embedding, texts: Sequence[str]) -> list[array[float]]:
    """Return a vector of length 1 for each text.

    Raise EmbeddingFailed; TypeError if the function is not async.
    """
    vectors: list[array[float]] = []
    for start in range(0, len(texts), AT_ONCE):
        some = list(texts[start : start + AT_ONCE])
        found = await _called(embedding, some)
        try:
            made = [_unit(list(map(float, each))) for each in found]
        except (TypeError, ValueError, OverflowError):
            raise EmbeddingFailed("it has returned something else than lists of numbers") from None
        if len(made) != len(some):
            raise EmbeddingFailed(f"it has returned {len(made)} vectors for {len(some)} texts")
        vectors += made
    if len({len(vector) for vector in vectors}) > 1:
        raise EmbeddingFailed("its vectors have different lengths")
    return vectors


async def _called(embedding: Embedding, texts: list[str]) -> Any:
    with trio.move_on_after(embedding.seconds):
        try:
            result: Any = embedding.function(texts)
            if isawaitable(result):
                return await result
        except Exception as error:
            _LOG.debug("the embedding %r has raised", embedding.name, exc_info=error)
            raise EmbeddingFailed(f"it has raised {type(error).__name__}") from error
        raise TypeError(f"the function of the embedding {embedding.name!r} is not async")
    raise EmbeddingFailed(f"it has not answered within {embedding.seconds:g} s")


def _unit(numbers: list[float]) -> array[float]:
    if not 0 < len(numbers) <= MOST_NUMBERS:
        raise EmbeddingFailed(f"a vector has {len(numbers)} numbers, and 1 to {MOST_NUMBERS} are taken")
    if not all(map(isfinite, numbers)):
        raise EmbeddingFailed("a vector has numbers that are not finite")
    largest = max(map(abs, numbers)) or 1.0  # first, as squares may be too large
    scaled = [each / largest for each in numbers]
    length = sqrt(sum(map(mul, scaled, scaled))) or 1.0
    return array("f", [each / length for each in scaled])


def likeness(one: Iterable[float], other: Iterable[float]) -> float:
    """Return the cosine of the angle between two vectors of length 1."""
    total: float = sum(map(mul, one, other))
    return total


def written(embedding: Embedding, vector: array[float]) -> bytes:
    """Return a vector, and the name of its embedding, as bytes for the store."""
    return msgspec.json.encode(KeptVector(embedding.name, _little(vector).tobytes()))


def read(embedding: Embedding, kept: bytes | None, length: int) -> array[float] | None:
    """Return the vector in kept bytes; None if they are None, damaged, or of another embedding or length."""
    if kept is None:
        return None
    try:
        found = msgspec.json.decode(kept, type=KeptVector)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # it is made anew
    if found.embedding != embedding.name or len(found.numbers) != 4 * length:
        return None
    return _little(array("f", found.numbers))


def _little(vector: array[float]) -> array[float]:
    if sys.byteorder == "little":
        return vector
    vector = vector[:]
    vector.byteswap()
    return vector
