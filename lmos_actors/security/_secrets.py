"""Digests under a key that nobody knows: secrets are kept and compared as these alone.

Whoever measures how long a comparison takes learns something about a digest that cannot be worked out from
what was sent, so a table may be looked up by it; and no memory holds a secret that was only to be compared.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import attrs

from lmos_actors._core import SecretBytes
from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


_SIZE = 32


class Blind:
    """Makes digests, all under one random key of its own."""

    __slots__ = ("_key",)

    def __init__(self) -> None:
        self._key = os.urandom(_SIZE)

    def __repr__(self) -> str:
        return "Blind()"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key cannot be pickled")

    def __call__(self, *parts: bytes) -> bytes:
        """Return the digest of the parts; other parts, or the same ones cut elsewhere, return another."""
        digest = hashlib.blake2b(key=self._key, digest_size=_SIZE)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.digest()


# --- secrets by reference: `env:NAME` and `file:PATH`. What they refer to is read again where it has
# changed
#
# A secret itself is never an argument here: whoever writes one in place of a reference is told so, without
# its being repeated. `SecretSource` holds what was read only as long as it takes to hand it on.

LOOK_EVERY: Final = 1.0
"""Seconds: how long what was read is taken as it was, without looking at the file."""

LARGEST: Final = 1 << 18
_AGAIN: Final = (
    2  # looks after a change at which a file is read though it seems the same: clocks of files are coarse
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

NO_REFERENCE: Final = (
    "a reference to a secret is needed, env:NAME or file:PATH; the secret itself does not belong here"
)

Signature: TypeAlias = "tuple[int, ...] | None"


@attrs.frozen
class Reference:
    """Where a secret is: `kind` is `env` or `file`, `place` the variable's name or the file's path."""

    kind: str
    place: str

    @classmethod
    def parse(cls, text: object, folder: Path | None = None) -> Reference:
        """Read `env:NAME` or `file:PATH`; a relative path is one in `folder`, else where the program runs.

        Raises ConfigError for anything else, without repeating it: it may be a secret.
        """
        if not isinstance(text, str):
            raise ConfigError(NO_REFERENCE)
        kind, _, place = text.partition(":")
        if kind == "env" and _NAME.fullmatch(place):
            return cls(kind, place)
        if kind == "file" and place and place.isprintable():
            return cls(kind, os.path.abspath((folder or Path()) / place))
        raise ConfigError(NO_REFERENCE)

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"


class SecretSource:
    """What a reference leads to, looked at no more than once a second; `None` where there is nothing."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.trouble: str | None = None
        """Why nothing could be read, None where something was."""
        self._looked: float | None = None
        self._seen: Signature = ()  # as of no file, and not as of one that is missing
        self._again = 0

    def __repr__(self) -> str:
        return f"SecretSource({str(self.reference)!r})"

    def __reduce__(self) -> tuple[Callable[[Reference], SecretSource], tuple[Reference]]:
        return SecretSource, (self.reference,)

    def is_due(self, now: float) -> bool:
        """Whether it is time to look; from then on it is not for a second."""
        if self._looked is not None and self._looked <= now < self._looked + LOOK_EVERY:
            return False
        self._looked = now
        return True

    def may_have_changed(self) -> bool:
        """Look whether it seems to be another than when it was read last. Blocks on the disk."""
        if self.reference.kind == "env":
            return True  # cheaper to read than to know
        signature = _signature(self.reference.place)
        if signature != self._seen:
            self._seen, self._again = signature, _AGAIN
            return True
        if self._again:
            self._again -= 1
            return True
        return False

    def read(self) -> SecretBytes | None:
        """Read it. Blocks on the disk. None, with `trouble` saying why, where that is not possible."""
        value, self.trouble = (
            _of_environment(self.reference.place)
            if self.reference.kind == "env"
            else _of_file(self.reference.place)
        )
        if self.trouble is not None:
            self.trouble = f"{self.reference}: {self.trouble}"
        return value


def lines_of(value: SecretBytes) -> tuple[SecretBytes, ...]:
    """Return the secrets in what was read: one on each line, empty lines left out."""
    # never in a local variable as plain bytes: those are what a traceback may show
    return tuple(
        filter(None, map(SecretBytes, value.replace(b"\r\n", b"\n").removesuffix(b"\r").split(b"\n")))
    )


def _signature(path: str) -> Signature:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _of_environment(name: str) -> tuple[SecretBytes | None, str | None]:
    if name not in os.environ:
        return None, "there is no such variable"
    value = SecretBytes(os.fsencode(os.environ[name]))
    return (value, None) if value else (None, "is empty")


def _of_file(path: str) -> tuple[SecretBytes | None, str | None]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe could block for ever
            return None, "is not a regular file"
        with open(path, "rb") as stream:
            value = SecretBytes(stream.read(LARGEST + 1))
    except (OSError, ValueError) as error:
        return None, (error.strerror if isinstance(error, OSError) else None) or "cannot be read"
    if len(value) > LARGEST:
        return None, f"is larger than {LARGEST} bytes"
    return (value, None) if value.strip() else (None, "is empty")
