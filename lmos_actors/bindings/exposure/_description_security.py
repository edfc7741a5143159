"""Security in descriptions: the schemes they state, and the clients that may see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import attrs
import trio

from lmos_actors.errors import AgentDied, Forbidden, Unauthorized, WouldDeadlock
from lmos_actors.protocol.td import ActionAffordance, EventAffordance, PropertyAffordance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.protocol.td import Description, Form
    from lmos_actors.security import Admission, Security, Verb

E = TypeVar("E", bound=Exception)
T = TypeVar("T", PropertyAffordance, ActionAffordance, EventAffordance)

Sees: TypeAlias = Callable[[str], bool]
"""Function that tells whether the client may see what is exposed under a public name."""

CRASHED: Final = "error"
"""The text of a crash for clients that may not see the exception."""

UNTOLD: Final = ("normal", "shutdown")
"""Kinds of ends without an exception."""

VERBS: Final[tuple[Verb, ...]] = ("read", "write", "invoke", "subscribe")

_BY_OP: Final[Mapping[str, Verb]] = {
    "readproperty": "read",
    "observeproperty": "read",
    "unobserveproperty": "read",
    "readallproperties": "read",
    "readmultipleproperties": "read",
    "observeallproperties": "read",
    "unobserveallproperties": "read",
    "writeproperty": "write",
    "writeallproperties": "write",
    "writemultipleproperties": "write",
    "invokeaction": "invoke",
    "queryaction": "invoke",
    "cancelaction": "invoke",
    "queryallactions": "invoke",
    "subscribeevent": "subscribe",
    "unsubscribeevent": "subscribe",
    "subscribeallevents": "subscribe",
    "unsubscribeallevents": "subscribe",
}


def anything(name: str) -> bool:
    """Return True: everything may be seen."""
    return True


def sees(admission: Admission) -> Sees:
    """Return a function that tests what a client may see: everything that the client may use in some way."""
    return lambda name: any(admission.allows(name, verb) for verb in VERBS)


def discreet(error: E) -> E | AgentDied | WouldDeadlock:
    """Return an error without the details that peers may not see: why an agent died, who waits for whom."""
    if isinstance(error, WouldDeadlock):
        return WouldDeadlock(error.agent, error.affordance, ())
    if not isinstance(error, AgentDied) or error.reason.partition(":")[0] in UNTOLD:
        return error
    return AgentDied(CRASHED, started=error.started, agent=error.agent)


def check_sight(admission: Admission | None, sees: Sees, name: str) -> None:
    """Check that the client may see a public name, before the client learns whether the name exists.

    The check counts as a request. Raises Unauthorized, Forbidden, RateLimited.
    """
    if admission is not None:
        admission.charge(trio.current_time())
    if sees(name):
        return
    if admission is None or admission.principal is None:
        raise Unauthorized("credentials are needed")
    raise Forbidden(f"{admission.principal.name} may not see this")


def secured(description: Description, security: Security, agent: str | None = None) -> Description:
    """Return the description with the schemes of a node; forms that anyone may use are marked as open.

    `agent` is the public name of the described agent, None for the node itself.
    """
    described = attrs.evolve(
        description,
        security_definitions=security.definitions(),
        security=_written(security.demands()),
    )
    if agent is None or not security.admits_anonymous:
        return described
    opened = _Opened(security, agent)
    return attrs.evolve(
        described,
        forms=opened.forms(described.forms),
        properties=opened.affordances(described.properties),
        actions=opened.affordances(described.actions),
        events=opened.affordances(described.events),
    )


def _written(names: Sequence[str]) -> str | tuple[str, ...]:
    return names[0] if len(names) == 1 else tuple(names)


class _Opened:
    """A helper that marks the forms of an agent whose operations are all open to anyone."""

    def __init__(self, security: Security, agent: str) -> None:
        usual = security.demands()
        demanded = {verb: security.demands(agent, verb) for verb in VERBS}
        self._other = {verb: names for verb, names in demanded.items() if names != usual}

    def affordances(self, named: dict[str, T] | None) -> dict[str, T] | None:
        return named and {
            name: attrs.evolve(each, forms=self.forms(each.forms)) for name, each in named.items()
        }

    def forms(self, forms: tuple[Form, ...] | None) -> tuple[Form, ...] | None:
        return forms and tuple(map(self._form, forms))

    def _form(self, form: Form) -> Form:
        found = tuple(dict.fromkeys(self._other.get(_BY_OP.get(op, "write")) for op in form.ops))
        names = found[0] if len(found) == 1 else None
        return form if names is None else attrs.evolve(form, security=tuple(names))
