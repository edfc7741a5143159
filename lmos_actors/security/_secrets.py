"""Secrets by reference, and the keyed digests under which they are stored and compared.

Digests are made under a random key of the process. The time of a table look-up therefore depends only on a
digest that an attacker cannot compute from the credentials that were sent, and no constant-time scan of all
secrets is needed. Memory also holds no secret merely for comparison.

References are `env:NAME` and `file:PATH`, read again when they change. A secret itself is never an argument:
a user who writes one in place of a reference gets an error that does not repeat it. `SecretSource` holds a
secret only until it returns it.
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


class KeyedDigest:
    """A BLAKE2b digest keyed with its own random key, which cannot be shown or pickled."""

    __slots__ = ("_key",)

    def __init__(self) -> None:
        self._key = os.urandom(_SIZE)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key cannot be pickled")

    def __call__(self, *parts: bytes) -> bytes:
        """Return the digest of the parts; each part's length is included, so that no two splits collide."""
        digest = hashlib.blake2b(key=self._key, digest_size=_SIZE)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.digest()


# --- references

CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks whether a secret has changed."""

MAX_BYTES: Final = 1 << 18
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

NO_REFERENCE: Final = (
    "a reference to a secret is needed, env:NAME or file:PATH; the secret itself does not belong here"
)

Signature: TypeAlias = "tuple[int, ...] | None"


@attrs.frozen
class Reference:
    """Location of a secret: `kind` is `env` or `file`, `place` the variable's name or the file's path."""

    kind: str
    place: str

    @classmethod
    def parse(cls, text: object, folder: Path | None = None) -> Reference:
        """Parse `env:NAME` or `file:PATH`.

        A relative path is resolved in `folder`, else in the working directory. Raises ConfigError for any
        other text, without repeating it: it may be a secret.
        """
        if not isinstance(text, str):
            raise ConfigError(NO_REFERENCE)
        kind, _, place = text.partition(":")
        if kind == "env" and _VARIABLE_NAME.fullmatch(place):
            return cls(kind, place)
        if kind == "file" and place and place.isprintable():
            return cls(kind, os.path.abspath((folder or Path()) / place))
        raise ConfigError(NO_REFERENCE)

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"


class SecretSource:
    """A reader of one reference, which notices changes."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.problem: str | None = None
        """Reason for which the last read failed, None where it succeeded."""
        self._checked_at: float | None = None
        self._signature_read: Signature = ()  # never read; None stands for a missing file
        self._reads_left = 0

    def __repr__(self) -> str:
        return f"SecretSource({str(self.reference)!r})"

    def __reduce__(self) -> tuple[Callable[[Reference], SecretSource], tuple[Reference]]:
        return SecretSource, (self.reference,)

    def is_due(self, now: float) -> bool:
        """Return whether the check interval has passed since the last check; if so, restart it."""
        if self._checked_at is not None and self._checked_at <= now < self._checked_at + CHECK_INTERVAL:
            return False
        self._checked_at = now
        return True

    def may_have_changed(self) -> bool:
        """Return whether the secret may differ from the last one read. Blocks on the disk."""
        if self.reference.kind == "env":
            return True  # reading a variable is as cheap as any check
        signature = _signature(self.reference.place)
        if signature != self._signature_read:
            # it is read twice more, though its signature is the same: timestamps of file systems are coarse
            # (up to 2 s), and a writer may still be at work
            self._signature_read, self._reads_left = signature, 2
            return True
        if self._reads_left:
            self._reads_left -= 1
            return True
        return False

    def read(self) -> SecretBytes | None:
        """Return the secret, or None with the reason in `problem`. Blocks on the disk."""
        value, self.problem = (
            _read_environment(self.reference.place)
            if self.reference.kind == "env"
            else _read_file(self.reference.place)
        )
        if self.problem is not None:
            self.problem = f"{self.reference}: {self.problem}"
        return value


def lines_of(value: SecretBytes) -> tuple[SecretBytes, ...]:
    """Return the secrets in a file's content: one for each line, empty lines left out."""
    # no local variable holds plain bytes: a traceback may show local variables
    return tuple(
        filter(None, map(SecretBytes, value.replace(b"\r\n", b"\n").removesuffix(b"\r").split(b"\n")))
    )


def _signature(path: str) -> Signature:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read_environment(name: str) -> tuple[SecretBytes | None, str | None]:
    if name not in os.environ:
        return None, "the variable is not set"
    value = SecretBytes(os.fsencode(os.environ[name]))
    return (value, None) if value else (None, "is empty")


def _read_file(path: str) -> tuple[SecretBytes | None, str | None]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe could block forever
            return None, "is not a regular file"
        with open(path, "rb") as stream:
            value = SecretBytes(stream.read(MAX_BYTES + 1))
    except (OSError, ValueError) as error:
        return None, (error.strerror if isinstance(error, OSError) else None) or "cannot be read"
    if len(value) > MAX_BYTES:
        return None, f"is larger than {MAX_BYTES} bytes"
    return (value, None) if value.strip() else (None, "is empty")
