"""Content negotiation: media types that a request accepts and sends (RFC 9110, 8.3 and 12.5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ._answers import HttpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Headers = Iterable[tuple[bytes, bytes]]

_CHARSETS: Final = ("utf-8", "utf8", "us-ascii", "ascii")


def header_values(headers: Headers, name: bytes) -> list[str]:
    """Return the values of all headers of that name."""
    return [each.decode("latin-1") for known, each in headers if known == name]


def best_of(headers: Headers, offered: Sequence[str]) -> str | None:
    """Return the media type that `Accept` likes best, of equal ones the first offered.

    None: it takes none.
    """
    ranges = ",".join(header_values(headers, b"accept"))
    if ranges in ("", "*/*"):
        return offered[0]
    liked = [_range(part) for part in ranges.split(",")]
    best = max(offered, key=lambda kind: _quality(kind, liked))  # of equal ones max gives the first
    return best if _quality(best, liked) > 0 else None


def check_taken(headers: Headers, offered: Sequence[str]) -> str:
    """Return the media type to answer with. Raises HttpError 406 where none would be taken."""
    best = best_of(headers, offered)
    if best is None:
        raise HttpError(406, "Not Acceptable", f"what is here is {' or '.join(offered)}")
    return best


def check_brought(headers: Headers) -> None:
    """Raise HttpError 415 unless a body is said to be JSON in UTF-8, and not compressed."""
    coded = [
        each for each in header_values(headers, b"content-encoding") if each.strip().lower() != "identity"
    ]
    if coded:
        raise HttpError(415, "Unsupported Media Type", "a body is taken as it is: no Content-Encoding")
    kinds = header_values(headers, b"content-type")
    if len(kinds) != 1 or not _is_json(kinds[0]):
        raise HttpError(
            415,
            "Unsupported Media Type",
            "a body has to be application/json, in UTF-8",
            ((b"accept-post", b"application/json"),),
        )


def _is_json(text: str) -> bool:
    kind, *parameters = (word.strip().lower() for word in text.split(";"))
    for parameter in parameters:
        name, _, given = parameter.partition("=")
        if name.strip() == "charset" and given.strip().strip('"') not in _CHARSETS:
            return False
    return kind == "application/json"


def _range(part: str) -> tuple[str, float]:
    kind, *parameters = (word.strip().lower() for word in part.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            return kind, _number(parameter[2:])
    return kind, 1.0


def _number(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def _quality(kind: str, liked: Sequence[tuple[str, float]]) -> float:
    """Return the quality of the most specific range that matches the type."""
    for wanted in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        found = [quality for word, quality in liked if word == wanted]
        if found:
            return max(found)
    return 0.0


def has_tag(headers: Headers, name: bytes, tag: bytes) -> bool:
    """Return whether a list of entity tags, as in If-None-Match, has this one, or all.

    Weak tags count as others do, but for If-Match (RFC 9110, 13.1.1).
    """
    weak = "" if name == b"if-match" else "W/"
    tags = [
        each.strip().removeprefix(weak) for value in header_values(headers, name) for each in value.split(",")
    ]
    return tag.decode() in tags or "*" in tags
