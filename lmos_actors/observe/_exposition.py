"""Metrics as text, for whoever scrapes them: the Prometheus text format, and OpenMetrics 1.0.

Written in pieces, so that nothing else has to wait for all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[tuple[str, str], ...]

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
END: Final = b"# EOF\n"

PIECE: Final = 8192
"""Characters of a piece, roughly."""

LONGEST: Final = 200
"""Characters of a label's value that are shown."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@attrs.frozen
class Sample:
    """One number: `suffix` is what follows the name of its family."""

    labels: Labels
    value: float
    suffix: str = ""


@attrs.frozen
class Family:
    """Numbers of one name, which differ by their labels. Of a counter `name` has no `_total`."""

    name: str
    kind: Kind
    help: str
    samples: Iterable[Sample]


def format_of(accept: str) -> str:
    """Return the media type for an `Accept` header: OpenMetrics where it is named, else the text format."""
    return OPEN if "application/openmetrics-text" in accept else TEXT


def written(families: Iterable[Family], media_type: str) -> Iterator[bytes]:
    """Write families down, in pieces. The mark of the end, which OpenMetrics asks for, is not among them."""
    lines: list[str] = []
    size = 0
    for family in families:
        for line in _lines(family, is_open=media_type == OPEN):
            lines.append(line)
            size += len(line)
            if size >= PIECE:
                yield _encoded(lines)
                lines, size = [], 0
    if lines:
        yield _encoded(lines)


def _encoded(lines: list[str]) -> bytes:
    return "".join(lines).encode("utf-8", "replace")  # a name may have half a character


def _lines(family: Family, *, is_open: bool) -> Iterator[str]:
    is_counter = family.kind == "counter"
    told = f"{family.name}_total" if is_counter and not is_open else family.name
    yield f"# HELP {told} {family.help}\n"
    yield f"# TYPE {told} {family.kind}\n"
    name = f"{family.name}_total" if is_counter else family.name
    for sample in family.samples:
        labels = ",".join(f'{key}="{_value(value)}"' for key, value in sample.labels)
        shown = f"{{{labels}}}" if labels else ""
        yield f"{name}{sample.suffix}{shown} {sample.value!r}\n"


def _value(text: str) -> str:
    return (text if len(text) <= LONGEST else text[:LONGEST] + "…").translate(_ESCAPES)
