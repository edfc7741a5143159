"""Who may do what with which agent: allow-lists by the names of agents, the first that fits counts."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import attrs

from lmos_actors.errors import ConfigError, nearest

from ._presented import VERBS, Principal, Verb
from ._schemes import ANYONE, AUTHENTICATED, SCOPE, Jwt, NoSec, Scheme, is_a, principals_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Who: TypeAlias = "Literal['anyone', 'authenticated'] | tuple[str, ...]"
"""Whom an access list lets in: everybody, everybody who is known, or the principals named.

`scope:x` in a tuple stands for whoever has that scope.
"""

KEPT: Final = 4096  # names of agents whose list is remembered
_LONGEST: Final = 256  # characters of one


def _who(written: Who | Sequence[str] | None) -> Who | None:
    if written is None or written in (ANYONE, AUTHENTICATED):
        return cast("Who | None", written)
    if isinstance(written, str) or not is_a(written, Sequence):
        raise ConfigError(
            f"{ANYONE!r}, {AUTHENTICATED!r} or a list of principals is needed"
            + (f", did you mean ({written!r},)?" if is_a(written, str) else "")
        )
    listed = tuple(written)
    for name in listed:
        if not is_a(name, str):
            raise ConfigError(f"the name of a principal, or scope:x, is needed, not {name!r}")
        if name in (ANYONE, AUTHENTICATED):
            raise ConfigError(f"{name!r} is no principal: give the word alone, not in a list")
    return listed


@attrs.frozen(kw_only=True)
class Access:
    """Who may read, write, invoke and subscribe.

    Each is `ANYONE`, `AUTHENTICATED`, or a tuple of principals and of `scope:x`, the empty one letting in
    nobody. Not given: `AUTHENTICATED` where the node has a scheme by which somebody could be, else `ANYONE`.
    """

    read: Who | None = attrs.field(default=None, converter=_who)
    write: Who | None = attrs.field(default=None, converter=_who)
    invoke: Who | None = attrs.field(default=None, converter=_who)
    subscribe: Who | None = attrs.field(default=None, converter=_who)

    def of(self, verb: Verb) -> Who | None:
        """Return the list of that verb."""
        return cast("Who | None", getattr(self, verb))


@attrs.frozen
class Gate:
    """One list, as it is asked: `open` to all, to all `known`, or to these names and scopes."""

    open: bool
    known: bool
    names: frozenset[str]
    scopes: frozenset[str]

    @classmethod
    def of(cls, who: Who) -> Gate:
        names = () if isinstance(who, str) else who
        return cls(
            who == ANYONE,
            who == AUTHENTICATED,
            frozenset(name for name in names if not name.startswith(SCOPE)),
            frozenset(name.removeprefix(SCOPE) for name in names if name.startswith(SCOPE)),
        )

    def lets_in(self, principal: Principal | None) -> bool:
        if self.open or principal is None:
            return self.open
        return self.known or principal.name in self.names or not self.scopes.isdisjoint(principal.scopes)


class Gates:
    """The lists of all agents, asked by an agent's public name."""

    def __init__(self, access: Mapping[str, Access], default: Who) -> None:
        self._patterns = [
            (re.compile(fnmatch.translate(pattern)), self._gates(each, default))
            for pattern, each in access.items()
        ]
        self._others = self._gates(Access(), default)
        self._known: dict[str, dict[Verb, Gate]] = {}

    @staticmethod
    def _gates(access: Access, default: Who) -> dict[Verb, Gate]:
        return {verb: Gate.of(default if (who := access.of(verb)) is None else who) for verb in VERBS}

    def gate(self, agent: str, verb: Verb) -> Gate:
        """Return the list for what is asked of an agent; names are a peer's word, and need not be known."""
        gates = self._known.get(agent)
        return (self._found(agent) if gates is None else gates)[verb]

    def _found(self, agent: str) -> dict[Verb, Gate]:
        gates = next((each for pattern, each in self._patterns if pattern.match(agent)), self._others)
        if len(agent) <= _LONGEST:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[agent] = gates
        return gates


def default_of(schemes: Sequence[Scheme]) -> Who:
    """Return the list of an agent for which there is none."""
    return ANYONE if all(isinstance(each, NoSec) for each in schemes) else AUTHENTICATED


def lets_in_anyone(access: Mapping[str, Access]) -> bool:
    """Whether there is a list that lets in whoever presents nothing."""
    return any(each.of(verb) == ANYONE for each in access.values() for verb in VERBS)


def strangers(
    access: Mapping[str, Access], schemes: Sequence[Scheme]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find names that no scheme can ever find: where they stand, as in `("desk", "read", 0)`, and why."""
    found = [principals_of(scheme) for scheme in schemes]
    known = None if any(each is None for each in found) else [name for each in found for name in each or ()]
    scoped = any(isinstance(scheme, Jwt) for scheme in schemes)
    for pattern, each in access.items():
        for verb in VERBS:
            who = each.of(verb)
            for at, name in enumerate(() if who is None or isinstance(who, str) else who):
                if why := _strange(name, known, scoped=scoped):
                    yield (pattern, verb, at), why


def _strange(name: str, known: list[str] | None, *, scoped: bool) -> str | None:
    if name.startswith(SCOPE):
        return None if scoped else f"{name!r}: no scheme here says what scopes somebody has; jwt does"
    if known is None or name in known:
        return None
    near = nearest(name, known)
    return f"no scheme knows {name!r}" + (f", did you mean {near!r}?" if near else "")
