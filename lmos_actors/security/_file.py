"""Security files: YAML or TOML with a closed set of keys; errors name the place and never show a secret.

This is a separate module because it imports the YAML reader, which a node without a security file does not
need.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

import attrs
import msgspec

from lmos_actors.errors import ConfigError
from lmos_actors.files import Document, Duration, FileError, Mistake, decode, is_list, is_mapping, read

from ._access import Access, unknown_principals
from ._origins import check_host, check_origin
from ._rates import Rate
from ._schemes import Basic, Bearer, ClientCertificates, Jwt, NoSec, Scheme, certificate_rule, check_name
from ._secrets import Reference

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from lmos_actors.files import DataPath

T = TypeVar("T")
W = TypeVar("W")

# the parts of a message that quote the file: quoted words, YAML anchors and tags, numbers, "saw the text ..."
_REPEATED: Final = re.compile(r"""(['"]).*\1|\([*&!].*\)|^\S+(?= is not a finite number)""")
_SEEN: Final = re.compile(r"saw the (text|number) .*?(?=; |, did you mean|$)")


class NoSecFile(msgspec.Struct, tag_field="scheme", tag="nosec"):
    """Scheme `nosec`: clients without credentials are admitted as anonymous clients."""


class BasicFile(msgspec.Struct, tag_field="scheme", tag="basic"):
    """Scheme `basic`: users, each with one or several references."""

    users: Any


class BearerFile(msgspec.Struct, tag_field="scheme", tag="bearer"):
    """Scheme `bearer`: principals, each with one or several references."""

    tokens: Any


class JwtFile(msgspec.Struct, tag_field="scheme", tag="jwt"):
    """Scheme `jwt`: tokens signed by an external issuer."""

    keys: Any
    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ("ES256",)
    leeway: Duration = Duration(30.0)
    principal: str = "sub"
    scopes: str = "scope"


class CertificatesFile(msgspec.Struct, tag_field="scheme", tag="certificates"):
    """Scheme `certificates`: principals, each with one or several certificates, or a reference to a file."""

    principals: Any


AllowListFile: TypeAlias = Literal["anyone", "authenticated"] | tuple[str, ...]


class AccessFile(msgspec.Struct):
    """Allow-lists for the agents that match one pattern."""

    read: AllowListFile | None = None
    write: AllowListFile | None = None
    invoke: AllowListFile | None = None
    subscribe: AllowListFile | None = None
    inspect: AllowListFile | None = None
    operate: AllowListFile | None = None
    approve: AllowListFile | None = None


class RateFile(msgspec.Struct):
    """A rate limit."""

    per_second: Annotated[float, msgspec.Meta(gt=0)]
    burst: Annotated[int, msgspec.Meta(ge=1)]


class SecurityFile(msgspec.Struct):
    """The members of a security file."""

    schemes: tuple[NoSecFile | BasicFile | BearerFile | JwtFile | CertificatesFile, ...] = ()
    access: dict[str, AccessFile] = {}
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    rate: RateFile | None = None
    failures: RateFile | None = None
    public_descriptions: bool = False
    crash_details: bool | None = None


def load(path: str | os.PathLike[str], make: Callable[..., T]) -> T:
    """Read a security file, and return `make(**settings)`. Blocks on the disk. Raises FileError."""
    found = _parts(path)  # FileError is raised here, where no local variable holds the file's text
    if isinstance(found, list):
        raise FileError(found)
    return make(**found)


def _parts(path: str | os.PathLike[str]) -> dict[str, Any] | list[Mistake]:
    try:
        document = read(path)
    except FileError as error:
        return list(map(redacted, error.mistakes))
    value, mistakes = decode(document, SecurityFile)
    if value is None:
        # errors of meaning are looked for only in a file whose shape is right
        return list(map(redacted, mistakes))
    reader = _Reader(document, Path(path).parent)
    found = reader.parts(value)
    return list(map(redacted, reader.mistakes)) or found


def redacted(mistake: Mistake) -> Mistake:
    """Return a mistake without the parts that quote the file, as they may contain a secret."""
    message = _SEEN.sub(lambda found: f"saw a {found[1]}", mistake.message)
    if mistake.kind in ("syntax", "unreadable") and mistake.line:
        message = _REPEATED.sub("…", message)
    return attrs.evolve(mistake, message=message, excerpt="")


class _Reader:
    def __init__(self, document: Document, folder: Path) -> None:
        self.document = document
        self.folder = folder
        self.mistakes: list[Mistake] = []

    def add_mistake(self, path: DataPath, message: str, *, key: bool = False) -> None:
        self.mistakes.append(self.document.mistake(path, message, key=key))

    def attempt(self, path: DataPath, make: Callable[[], W]) -> W | None:
        try:
            return make()
        except ConfigError as error:
            self.add_mistake(path, error.message)
            return None

    def parts(self, value: SecurityFile) -> dict[str, Any]:
        schemes = self._schemes(value)
        access = self._access(value, schemes)
        parts: dict[str, Any] = {
            "schemes": schemes,
            "access": access,
            "origins": self._checked("origins", value.origins, check_origin),
            "hosts": self._checked("hosts", value.hosts, check_host),
            "rate": None if value.rate is None else Rate(value.rate.per_second, value.rate.burst),
            "public_descriptions": value.public_descriptions,
            "crash_details": value.crash_details,
        }
        if value.failures is not None:
            parts["failures"] = Rate(value.failures.per_second, value.failures.burst)
        return parts

    def _checked(self, key: str, texts: tuple[str, ...], check: Callable[[object], str]) -> list[str | None]:
        return [self.attempt((key, at), partial(check, text)) for at, text in enumerate(texts)]

    # ---- schemes

    def _schemes(self, value: SecurityFile) -> list[Scheme]:
        found: list[Scheme] = []
        for at, each in enumerate(value.schemes):
            path = ("schemes", at)
            scheme = self.attempt(path, partial(self._scheme, each, path))
            if scheme is not None and any(scheme.name == other.name for other in found):
                self.add_mistake(path, "a scheme of that kind exists already: join them")
            elif scheme is not None:
                found.append(scheme)
        return found

    def _scheme(
        self, each: NoSecFile | BasicFile | BearerFile | JwtFile | CertificatesFile, path: DataPath
    ) -> Scheme | None:
        match each:
            case NoSecFile():
                return NoSec()
            case BasicFile():
                users = self._named((*path, "users"), each.users, self._reference)
                return None if users is None else Basic(users)
            case BearerFile():
                tokens = self._named((*path, "tokens"), each.tokens, self._reference)
                return None if tokens is None else Bearer(tokens)
            case CertificatesFile():
                return self._certificates((*path, "principals"), each.principals)
            case JwtFile():
                return self._jwt(path, each)

    def _reference(self, text: object) -> Reference:
        return Reference.parse(text, self.folder)

    def _jwt(self, path: DataPath, each: JwtFile) -> Jwt | None:
        keys = self.attempt((*path, "keys"), partial(self._reference, each.keys))
        if keys is None:
            return None
        return Jwt(
            keys=keys,
            issuer=each.issuer,
            audience=each.audience,
            algorithms=each.algorithms,
            leeway=float(each.leeway),
            principal=each.principal,
            scopes=each.scopes,
        )

    def _certificates(self, path: DataPath, written: object) -> ClientCertificates | None:
        if isinstance(written, str):
            reference = self.attempt(path, partial(self._reference, written))
            return None if reference is None else ClientCertificates(reference)
        rules = self._named(path, written, certificate_rule)
        return None if rules is None else ClientCertificates(rules)

    def _named(
        self, path: DataPath, principals: object, make: Callable[[object], W]
    ) -> Mapping[str, tuple[W, ...]] | None:
        """Return the things made from the text, or the list of texts, of each principal in a mapping.

        Return None after any mistake.
        """
        if not is_mapping(principals):
            self.add_mistake(path, "expected a mapping of principals")
            return None
        before = len(self.mistakes)
        found: dict[str, tuple[W, ...]] = {}
        for name, written in principals.items():
            here = (*path, name)
            texts = list(written) if is_list(written) else [written]
            places: list[DataPath] = [(*here, at) for at in range(len(texts))] if is_list(written) else [here]
            made = [self.attempt(at, partial(make, t)) for at, t in zip(places, texts, strict=True)]
            if self.attempt(here, partial(check_name, name)) and not texts:
                self.add_mistake(
                    here, "expected one text or several: an empty list admits no client, remove the name"
                )
            found[name] = tuple(each for each in made if each is not None)
        return None if len(self.mistakes) > before else found

    # ---- access

    def _access(self, value: SecurityFile, schemes: list[Scheme]) -> dict[str, Access]:
        found: dict[str, Access] = {}
        for pattern, each in value.access.items():
            made = self.attempt(("access", pattern), partial(Access, **msgspec.structs.asdict(each)))
            if made is not None:
                found[pattern] = made
        if not self.mistakes:
            for path, why in unknown_principals(found, schemes):
                self.add_mistake(("access", *path), why)
        return found
