"""Metrics as text: the Prometheus text format and OpenMetrics 1.0.

The text is made in pieces, so that other tasks run in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[tuple[str, str], ...]

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
END: Final = b"# EOF\n"

LONGEST: Final = 200
"""Characters of a label's value that are kept."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@attrs.frozen
class Sample:
    """One number; `suffix` follows the name of its family."""

    labels: Labels
    value: float
    suffix: str = ""


@attrs.frozen
class Family:
    """Samples of one name that differ in their labels. The `name` of a counter is without `_total`."""

    name: str
    kind: Kind
    help: str
    samples: Iterable[Sample]


def media_type_for(accept: str) -> str:
    """Return the media type for an `Accept` header: OpenMetrics if named there, or the text format."""
    return OPENMETRICS if "application/openmetrics-text" in accept else PROMETHEUS


def encode_families(families: Iterable[Family], media_type: str) -> Iterator[bytes]:
    """Yield the text of families in pieces, without the end mark that OpenMetrics requires."""
    lines: list[str] = []
    size = 0
    for family in families:
        for line in _lines(family, is_open=media_type == OPENMETRICS):
            lines.append(line)
            size += len(line)
            if size >= 8192:
                yield _encode(lines)
                lines, size = [], 0
    if lines:
        yield _encode(lines)


def _encode(lines: list[str]) -> bytes:
    return "".join(lines).encode("utf-8", "replace")  # a name may contain a lone surrogate


def _lines(family: Family, *, is_open: bool) -> Iterator[str]:
    is_counter = family.kind == "counter"
    typed_name = f"{family.name}_total" if is_counter and not is_open else family.name
    yield f"# HELP {typed_name} {family.help}\n"
    yield f"# TYPE {typed_name} {family.kind}\n"
    name = f"{family.name}_total" if is_counter else family.name
    for sample in family.samples:
        labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sample.labels)
        shown = f"{{{labels}}}" if labels else ""
        yield f"{name}{sample.suffix}{shown} {sample.value!r}\n"


def _escaped(text: str) -> str:
    return (text if len(text) <= LONGEST else text[:LONGEST] + "…").translate(_ESCAPES)
