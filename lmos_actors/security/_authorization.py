"""What an Authorization header says (RFC 9110, 11.6.2; RFC 7617; RFC 6750). Nothing here raises."""

from __future__ import annotations

import binascii
import re
from enum import Enum
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors._hidden import SecretBytes

if TYPE_CHECKING:
    from ._who import Presented

LONGEST: Final = 1 << 13
"""Bytes of credentials that are looked at; nobody's are longer."""

_SCHEME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_BASE64: Final = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")


class Wrong(Enum):
    """The type of `MALFORMED`."""

    MALFORMED = "malformed"


MALFORMED: Final = Wrong.MALFORMED
"""Stands for a header that is no credentials at all, or for two of them."""


@attrs.frozen
class Given:
    """Credentials as they came: the scheme's name in lower case, and what follows it."""

    kind: str = attrs.field(repr=False)  # where somebody forgets it, the secret stands in its place
    value: SecretBytes


def given_in(presented: Presented) -> Given | Wrong | None:
    """Give the credentials of a request, None where there are none.

    `Authorization: null` is none: kotlin-wot's HTTP client sends it when it has no credentials.
    """
    headers = presented.values(b"authorization")
    if not headers or [each.strip(b" \t") for each in headers] == [b"null"]:
        return None
    return MALFORMED if len(headers) > 1 else given_of(headers[0])


def given_of(header: bytes) -> Given | Wrong:
    """Read the value of one Authorization header."""
    if len(header) > LONGEST:
        return MALFORMED
    text = SecretBytes(header.strip(b" \t"))
    space = text.find(b" ")
    end = len(text) if space < 0 else space
    if not _SCHEME.fullmatch(text, 0, end):
        return MALFORMED
    return Given(text[:end].decode("ascii").lower(), SecretBytes(text[end:].strip(b" ")))


def basic_of(value: bytes) -> tuple[SecretBytes, SecretBytes] | None:
    """Read what Basic credentials hold, user and password; None where it is not that."""
    if not _BASE64.fullmatch(value):
        return None
    text = SecretBytes(binascii.a2b_base64(value))
    colon = text.find(b":")
    return None if colon < 0 else (SecretBytes(text[:colon]), SecretBytes(text[colon + 1 :]))


def is_token(value: bytes) -> bool:
    """Whether Bearer credentials can be these."""
    return _TOKEN.fullmatch(value) is not None
