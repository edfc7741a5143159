"""What a node demands of whoever asks: one value, made in code or read from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import SecurityScheme

from ._access import Access, Gates, default_of, lets_in_anyone, strangers
from ._origins import check_host, check_origin
from ._rates import Rate
from ._schemes import Basic, Bearer, ClientCertificates, Jwt, NoSec, Scheme, is_a

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from ._presented import Verb

ANY_OF = "any_sc"
"""The name of the scheme that stands for any of several ones."""


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
    """Who is let in, and to what.

    `schemes`: how somebody may say who they are; none is `NoSec()`. `access`: patterns of agents' public
    names (`desk.*`), the first that fits counts. `origins`: pages in browsers that are let in besides those
    from here, which also turns CORS on for them. `hosts`: names of this node besides addresses and
    `localhost`. `rate`: how often each principal may ask. `failures`: how often one address may present
    credentials that are not good. `public_descriptions`: descriptions can be read by anyone.
    `tell_crashes`: whoever asks an agent that dies by it is told the text of the exception; not given, only
    where nobody is asked who they are. Raises ConfigError.
    """

    schemes: tuple[Scheme, ...] = attrs.field(default=(), converter=_schemes)
    access: Mapping[str, Access] = attrs.field(factory=dict[str, Access], converter=_access)
    origins: tuple[str, ...] = attrs.field(default=(), converter=_origins)
    hosts: tuple[str, ...] = attrs.field(default=(), converter=_hosts)
    rate: Rate | None = None
    failures: Rate = FAILURES
    public_descriptions: bool = False
    tell_crashes: bool | None = None
    gates: Gates = attrs.field(
        init=False,
        repr=False,
        eq=False,
        default=attrs.Factory(lambda self: Gates(self.access, default_of(self.schemes)), takes_self=True),
    )

    def __attrs_post_init__(self) -> None:
        names = [each.name for each in self.schemes]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"there are two schemes of the kind {name.removesuffix('_sc')}: join them")
        for (pattern, verb, at), why in strangers(self.access, self.schemes):
            raise ConfigError(why, f"access[{pattern!r}].{verb}[{at}]")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Security:
        """Read a YAML or TOML file. Blocks on the disk. Raises FileError with every mistake and its place.

        References to files in it are relative to it. Nothing of the text is repeated where a secret could
        stand.
        """
        from ._file import load  # YAML is not read where no file is

        return load(path, cls)

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked who they are."""
        return all(isinstance(each, NoSec) for each in self.schemes)

    @property
    def tells_crashes(self) -> bool:
        """Whether those who come over the network are told by which exceptions agents die."""
        return self.is_open if self.tell_crashes is None else self.tell_crashes

    @property
    def sends_secrets(self) -> bool:
        """Whether there is a scheme by which secrets travel, that only TLS keeps from others on the way."""
        return any(isinstance(each, Basic | Bearer | Jwt) for each in self.schemes)

    @property
    def lets_in_anyone(self) -> bool:
        """Whether who presents nothing is let in, as nobody, for what `access` leaves open."""
        return any(isinstance(each, NoSec) for each in self.schemes) or lets_in_anyone(self.access)

    def definitions(self) -> dict[str, SecurityScheme]:
        """Return the `securityDefinitions` of a description."""
        asked = [each for each in self.schemes if not isinstance(each, NoSec)]
        found = {each.name: each.definition() for each in asked}
        if len(asked) > 1:
            more: dict[str, Any] = {"oneOf": [each.name for each in asked]}
            found[ANY_OF] = SecurityScheme(scheme="combo", extra=more)
        if not asked or self.lets_in_anyone:
            found[NoSec.name] = NoSec().definition()
        return found

    def demands(self, agent: str | None = None, verb: Verb | None = None) -> tuple[str, ...]:
        """Return the `security` of a description: the name of what it takes.

        With an agent's public name and a verb, that of a form: `nosec_sc` where anyone is let in.
        """
        asked = [each.name for each in self.schemes if not isinstance(each, NoSec)]
        if not asked or (agent is not None and verb is not None and self.gates.gate(agent, verb).open):
            return (NoSec.name,)
        return (ANY_OF,) if len(asked) > 1 else tuple(asked)
