"""Access rules: allow-lists by agent name and verb; the first matching pattern decides.

The module guarantees the following:

- **Default deny once there is a scheme.** An agent or verb without a list gets `default_list`:
  `AUTHENTICATED` as soon as one scheme can identify a client, and `ANYONE` only on a node without any
  such scheme. By default, nobody has the rights in `PERSONAL`. An empty tuple admits no principal; it
  never means "not given".
- **The first match wins, in the order written**, as a reader of the file expects. Lists are not merged:
  adding a narrow pattern in front must be able to take a right away.
- **A name costs no memory that a peer controls.** The agent's name comes off the wire before anything
  else is known about it, so the memo of compiled rules is bounded in entries (`MAX_REMEMBERED_NAMES`) and
  in characters for each (`LONGEST_NAME`). Beyond these bounds the patterns are matched again.
- **Patterns are compiled once, by `fnmatch.translate`.** `fnmatch.fnmatch` would fold case on some
  systems, and a list must mean the same on every machine.
- **A misspelt principal is an error when the node starts.** A list with a principal that no scheme can
  produce would refuse clients silently forever (`unknown_principals`).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import attrs

from lmos_actors.errors import ConfigError, hint_at

from ._request import PERSONAL, VERBS, Principal, Verb
from ._schemes import ANYONE, AUTHENTICATED, SCOPE, Jwt, NoSec, Scheme, is_a, principals_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

AllowList: TypeAlias = "Literal['anyone', 'authenticated'] | tuple[str, ...]"
"""The clients that a list admits: all, all authenticated ones, or the principals named.

`scope:x` in a tuple stands for every principal with that scope.
"""

RELAYED: Final = "relay:"
"""The prefix of principals that are agents on a relay, `relay:HOST/ID`, as the relay names them."""

MAX_REMEMBERED_NAMES: Final = 4096  # agents whose compiled rules are remembered
LONGEST_NAME: Final = 256  # characters; longer names are matched each time


def _allow_list(written: AllowList | Sequence[str] | None) -> AllowList | None:
    if written is None or written in (ANYONE, AUTHENTICATED):
        return cast("AllowList | None", written)
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


def _people(written: AllowList | Sequence[str] | None) -> AllowList | None:
    if written == ANYONE:
        raise ConfigError(
            f"{ANYONE!r} may not have this right, as it has to be known who used it: give {AUTHENTICATED!r}, "
            "or a list of principals"
        )
    return _allow_list(written)


@attrs.frozen(kw_only=True)
class Access:
    """Allow-lists of an agent: for reading, writing, invoking, subscribing, and for operators.

    Each is `ANYONE`, `AUTHENTICATED`, or a tuple of principals and `scope:x`; the empty tuple admits no
    client. The default is `AUTHENTICATED` if the node has a scheme that authenticates, else `ANYONE`. By
    default, nobody may `inspect` the agent (its state, its messages), `operate` it (stop, restart, hold), or
    `approve` its requests for approval. The pattern `*` also stands for the node as a whole.
    """

    read: AllowList | None = attrs.field(default=None, converter=_allow_list)
    write: AllowList | None = attrs.field(default=None, converter=_allow_list)
    invoke: AllowList | None = attrs.field(default=None, converter=_allow_list)
    subscribe: AllowList | None = attrs.field(default=None, converter=_allow_list)
    inspect: AllowList | None = attrs.field(default=None, converter=_people)
    operate: AllowList | None = attrs.field(default=None, converter=_people)
    approve: AllowList | None = attrs.field(default=None, converter=_people)

    def of(self, verb: Verb) -> AllowList | None:
        """Return the list of a verb; None if no list was given."""
        return cast("AllowList | None", getattr(self, verb))


@attrs.frozen
class AccessRule:
    """A compiled allow-list: `open` to all clients, open to all `known` ones, or to some names and scopes."""

    open: bool
    known: bool
    names: frozenset[str]
    scopes: frozenset[str]

    @classmethod
    def of(cls, allowed: AllowList) -> AccessRule:
        names = () if isinstance(allowed, str) else allowed
        return cls(
            allowed == ANYONE,
            allowed == AUTHENTICATED,
            frozenset(name for name in names if not name.startswith(SCOPE)),
            frozenset(name.removeprefix(SCOPE) for name in names if name.startswith(SCOPE)),
        )

    def admits(self, principal: Principal | None) -> bool:
        if self.open or principal is None:
            return self.open
        return self.known or principal.name in self.names or not self.scopes.isdisjoint(principal.scopes)


class AccessRules:
    """Compiled allow-lists of all agents, looked up by an agent's public name."""

    def __init__(self, access: Mapping[str, Access], default: AllowList) -> None:
        self._patterns = [
            (re.compile(fnmatch.translate(pattern)), self._compiled(each, default))
            for pattern, each in access.items()
        ]
        self._lists = [
            (pattern, each) for (pattern, _), each in zip(self._patterns, access.values(), strict=True)
        ]
        self._others = self._compiled(Access(), default)
        self._rules_by_agent: dict[str, dict[Verb, AccessRule]] = {}

    @staticmethod
    def _compiled(access: Access, default: AllowList) -> dict[Verb, AccessRule]:
        lists: dict[Verb, AllowList | None] = {verb: access.of(verb) for verb in VERBS}
        unnamed: dict[Verb, AllowList] = dict.fromkeys(PERSONAL, ())
        return {
            verb: AccessRule.of(unnamed.get(verb, default) if allowed is None else allowed)
            for verb, allowed in lists.items()
        }

    def rule(self, agent: str, verb: Verb) -> AccessRule:
        """Return the rule for a verb of an agent. The agent's name comes from a peer and may not exist."""
        rules = self._rules_by_agent.get(agent)
        return (self._found(agent) if rules is None else rules)[verb]

    def has_somewhere(self, principal: Principal, right: Verb) -> bool:
        """Return whether any agent's list grants a principal a right of `PERSONAL`."""
        return any(rules[right].admits(principal) for _, rules in self._patterns)

    def has_list(self, agent: str, verb: Verb) -> bool:
        """Return whether a list was written for a verb of an agent."""
        lists = (each for pattern, each in self._lists if pattern.match(agent))
        found = next(lists, None)
        return found is not None and found.of(verb) is not None

    def _found(self, agent: str) -> dict[Verb, AccessRule]:
        rules = next((each for pattern, each in self._patterns if pattern.match(agent)), self._others)
        if len(agent) <= LONGEST_NAME:
            if len(self._rules_by_agent) >= MAX_REMEMBERED_NAMES:
                self._rules_by_agent.clear()
            self._rules_by_agent[agent] = rules
        return rules


def default_list(schemes: Sequence[Scheme]) -> AllowList:
    """Return the allow-list for agents and verbs for which no list was given."""
    return ANYONE if all(isinstance(each, NoSec) for each in schemes) else AUTHENTICATED


def admits_anonymous(access: Mapping[str, Access]) -> bool:
    """Return whether any list admits clients without credentials."""
    return any(each.of(verb) == ANYONE for each in access.values() for verb in VERBS)


def unknown_principals(
    access: Mapping[str, Access], schemes: Sequence[Scheme]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield each principal in the lists that no scheme can produce, as its place and the error.

    The place is a path such as `("desk", "read", 0)`.
    """
    found = [principals_of(scheme) for scheme in schemes]
    known = None if any(each is None for each in found) else [name for each in found for name in each or ()]
    scoped = any(isinstance(scheme, Jwt) for scheme in schemes)
    for pattern, each in access.items():
        for verb in VERBS:
            allowed = each.of(verb)
            for at, name in enumerate(() if allowed is None or isinstance(allowed, str) else allowed):
                if why := _why_unknown(name, known, scoped=scoped):
                    yield (pattern, verb, at), why


def _why_unknown(name: str, known: list[str] | None, *, scoped: bool) -> str | None:
    if name.startswith(RELAYED):
        return None
    if name.startswith(SCOPE):
        return None if scoped else f"{name!r} needs a scheme with scopes: add the scheme jwt"
    if known is None or name in known:
        return None
    return f"no scheme knows {name!r}{hint_at(name, known)}"


def idle_patterns(patterns: Iterable[str], served: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each pattern of an access list that matches no served name, with a hint at a similar name.

    Agents below served ones may start later, so patterns for such agents are left out.
    """
    known = (*served, "directory", "metrics", "relay")
    tops = {name.partition(".")[0]: None for name in known}
    for pattern in patterns:
        top = pattern.partition(".")[0]
        if not any(fnmatch.fnmatchcase(name, pattern) for name in known) and not (
            "." in pattern and any(fnmatch.fnmatchcase(name, top) for name in tops)
        ):
            yield pattern, hint_at(pattern, served)
