"""Invitations: secrets at a reference, one on each line; each admits one client.

The use of an invitation is not recorded here, but with the identities, under the digest of the invitation.
The digest is SHA-256, so that it is the same in each process.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from lmos_actors.errors import ConfigError

from ._secrets import SecretSource, lines_of

if TYPE_CHECKING:
    from ._secrets import Reference


class Invitations:
    """The invitations at a reference, read again when they change.

    The constructor reads them, which blocks on the disk, and raises ConfigError if they cannot be read.
    """

    def __init__(self, reference: Reference) -> None:
        self._source = SecretSource(reference)
        self._digests: frozenset[str] = frozenset()
        self._source.may_have_changed()
        self._read()
        if self._source.problem is not None:
            raise ConfigError(self._source.problem)

    @property
    def digests(self) -> frozenset[str]:
        """The digests of the invitations that are listed now."""
        return self._digests

    @property
    def problem(self) -> str | None:
        """The reason why the last read failed; None if it succeeded."""
        return self._source.problem

    def find(self, invitation: str, now: float) -> str | None:
        """Return the digest of a listed invitation; None for any other. `now` is monotonic, in seconds.

        Blocks on the disk at most once a second. A reference that cannot be read lists no invitation.
        """
        if self._source.is_due(now) and self._source.may_have_changed():
            self._read()
        digest = sha256(invitation.encode("utf-8", "surrogatepass")).hexdigest()
        return digest if digest in self._digests else None

    def _read(self) -> None:
        value = self._source.read()
        lines = () if value is None else lines_of(value)
        self._digests = frozenset(sha256(line.strip()).hexdigest() for line in lines if line.strip())
