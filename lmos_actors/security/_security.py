"""Security settings of a node: one immutable value, made in code or read from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import SecurityScheme

from ._access import Access, AccessRules, admits_anonymous, default_list, unknown_principals
from ._origins import check_host, check_origin
from ._rates import Rate
from ._schemes import Basic, Bearer, ClientCertificates, Jwt, NoSec, Scheme, is_a

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from ._request import Verb

ANY_OF = "any_sc"
"""Name of the `combo` scheme in a description: any one of several schemes."""


FAILURES: Final = Rate(0.2, 10)


def _schemes(written: Scheme | Sequence[Scheme]) -> tuple[Scheme, ...]:
    found = tuple(written) if isinstance(written, Sequence) else (written,)
    for each in found:
        if not is_a(each, NoSec, Basic, Bearer, Jwt, ClientCertificates):
            raise ConfigError(f"a scheme is needed, such as Bearer(...), not {type(each).__name__}")
    return found or (NoSec(),)


def _access(written: Mapping[str, Access]) -> Mapping[str, Access]:
    if not is_a(written, Mapping) or not all(is_a(each, Access) for each in written.values()):
        raise ConfigError("access maps patterns of agents' names to Access(...)")
    return dict(written)


def _origins(written: Sequence[str]) -> tuple[str, ...]:
    return _checked(written, check_origin)


def _hosts(written: Sequence[str]) -> tuple[str, ...]:
    return _checked(written, check_host)


def _checked(written: Sequence[str], check: Callable[[object], str]) -> tuple[str, ...]:
    if isinstance(written, str):
        raise ConfigError(f"a list is needed, did you mean ({written!r},)?")
    return tuple(map(check, written))


@attrs.frozen(kw_only=True)
class Security:
    """Security settings: how clients authenticate, and what each may do.

    `schemes`: accepted ways to authenticate; none means `NoSec()`. `access`: allow-lists by patterns of
    agents' public names (`desk.*`); the first that matches decides. `origins`: browser origins accepted
    besides the node's own, with CORS headers. `hosts`: names of this node besides addresses and `localhost`.
    `rate`: requests of one principal. `failures`: wrong credentials of one name from one address.
    `public_descriptions`: descriptions need no credentials. `crash_details`: an answer about a crash carries
    the exception's text; by default only without authentication. Raises ConfigError.
    """

    schemes: tuple[Scheme, ...] = attrs.field(default=(), converter=_schemes)
    access: Mapping[str, Access] = attrs.field(factory=dict[str, Access], converter=_access)
    origins: tuple[str, ...] = attrs.field(default=(), converter=_origins)
    hosts: tuple[str, ...] = attrs.field(default=(), converter=_hosts)
    rate: Rate | None = None
    failures: Rate = FAILURES
    public_descriptions: bool = False
    crash_details: bool | None = None
    rules: AccessRules = attrs.field(
        init=False,
        repr=False,
        eq=False,
        default=attrs.Factory(
            lambda self: AccessRules(self.access, default_list(self.schemes)), takes_self=True
        ),
    )

    def __attrs_post_init__(self) -> None:
        names = [each.name for each in self.schemes]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"there are two schemes of the kind {name.removesuffix('_sc')}: join them")
        for (pattern, verb, at), why in unknown_principals(self.access, self.schemes):
            raise ConfigError(why, f"access[{pattern!r}].{verb}[{at}]")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Security:
        """Read a YAML or TOML file. Blocks on the disk. Raises FileError with every mistake and its place.

        Relative references are resolved against the file's folder. Error messages repeat no text that could
        be a secret.
        """
        from ._file import load  # lazy: a node without a file does not import YAML

        return load(path, cls)

    @property
    def is_open(self) -> bool:
        """Whether no client has to authenticate."""
        return all(isinstance(each, NoSec) for each in self.schemes)

    @property
    def sends_crash_details(self) -> bool:
        """Whether remote clients receive the text of the exceptions that crash agents."""
        return self.is_open if self.crash_details is None else self.crash_details

    @property
    def needs_tls(self) -> bool:
        """Whether a scheme sends secrets (a password or a token), which only TLS protects in transit."""
        return any(isinstance(each, Basic | Bearer | Jwt) for each in self.schemes)

    @property
    def admits_anonymous(self) -> bool:
        """Whether clients without credentials are admitted, but only to what `access` opens to anyone."""
        return any(isinstance(each, NoSec) for each in self.schemes) or admits_anonymous(self.access)

    def definitions(self) -> dict[str, SecurityScheme]:
        """Return the `securityDefinitions` of a description."""
        asked = [each for each in self.schemes if not isinstance(each, NoSec)]
        found = {each.name: each.definition() for each in asked}
        if len(asked) > 1:
            more: dict[str, Any] = {"oneOf": [each.name for each in asked]}
            found[ANY_OF] = SecurityScheme(scheme="combo", extra=more)
        if not asked or self.admits_anonymous:
            found[NoSec.name] = NoSec().definition()
        return found

    def demands(self, agent: str | None = None, verb: Verb | None = None) -> tuple[str, ...]:
        """Return the `security` member of a description: the names of the accepted schemes.

        With an agent's public name and a verb, return the member of a form: `nosec_sc` if the verb is open.
        """
        asked = [each.name for each in self.schemes if not isinstance(each, NoSec)]
        if not asked or (agent is not None and verb is not None and self.rules.rule(agent, verb).open):
            return (NoSec.name,)
        return (ANY_OF,) if len(asked) > 1 else tuple(asked)
