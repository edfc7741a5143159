"""Redaction: bytes that reports and tracebacks show as `***`, for headers with credentials."""

from __future__ import annotations

from typing import Final, NoReturn, TypeAlias

Headers: TypeAlias = "tuple[tuple[bytes, bytes], ...]"

HIDDEN: Final = "***"
SENSITIVE: Final = frozenset({b"authorization", b"cookie", b"proxy-authorization", b"set-cookie"})


class SecretBytes(bytes):
    """Bytes that can be sent and compared, but show as `***`. They cannot be pickled."""

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be pickled")


def hide(headers: Headers) -> Headers:
    """Return the headers; values of headers that carry credentials become `SecretBytes`.

    Names have to be in lower case.
    """
    for name, value in headers:
        if name in SENSITIVE and type(value) is not SecretBytes:
            return tuple(
                (each[0], SecretBytes(each[1])) if each[0] in SENSITIVE else each for each in headers
            )
    return headers
