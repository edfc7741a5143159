"""The state of a living agent, in the form in which formulas and judges of a run read it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

import attrs

from lmos_actors._core import plain
from lmos_actors.actors import conceal_all

SECRET: Final = "is secret: no formula may speak of it"

_PLAIN: Final = (bool, int, str, type(None))
_PARTS: Final = 1  # the secrecy of a value that has secret parts: the parts are hidden


@lru_cache(maxsize=1_000)
def fields_known(cls: Any) -> Mapping[str, tuple[str, bool]]:
    """Return the fields of an agent that formulas can read, by their names in `state:`.

    Each field has the name of its attribute, and whether it is secret.
    """
    contract = cls.__contract__
    properties = {made.attribute: (wire, made.hidden) for wire, made in contract.properties.items()}
    found: dict[str, tuple[str, bool]] = {}
    for field in attrs.fields(cls):
        wire, attribute = properties.get(field.name, (field.alias, field.name))
        how = max(contract.hidden.get(name, 0) for name in (field.name, attribute, field.alias))
        found[wire] = (attribute, how > _PARTS)
    return found


class AgentState(Mapping[str, Any]):
    """The fields of a living agent as plain data; each value is read only when it is looked up.

    Raises LookupError, with a readable text, for a field that is missing or secret, or whose value is not
    finite (infinity, NaN) or cannot be read.
    """

    __slots__ = ("_agent", "_fields")

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        cls = cast("Any", type(agent))
        self._fields = fields_known(cls)

    def __getitem__(self, name: str) -> Any:
        try:
            attribute, secret = self._fields[name]
            value = getattr(self._agent, attribute)
        except (KeyError, AttributeError):
            raise LookupError(f"state.{name} has no value") from None
        kind = cast("Any", type(value))
        if secret:
            raise LookupError(f"state.{name} {SECRET}")
        if kind in _PLAIN:
            return value
        if isinstance(value, float):
            if math.isfinite(value):
                return value
            raise LookupError(f"state.{name} is {value}, which is no number to compute with")
        try:
            return plain(conceal_all((value,), (_PARTS,))[0])
        except Exception as error:  # what it takes to write it out is foreign code
            raise LookupError(f"state.{name} cannot be read: {type(error).__name__}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def state_of(slot: Any) -> AgentState | None:
    """Return the state of the agent of a slot; None while the agent does not run."""
    agent = slot.agent
    return None if agent is None else AgentState(agent)
