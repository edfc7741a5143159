"""Classes for agents without their own class: mocks, replays and remote agents without `use`.

Their inputs and outputs are any plain data. Consumers use actions, properties and events as usual, through a
`Thing` or the handles of any class with the same names; arguments given by name form one object.
"""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 -- types of an agent are read when it is made
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, Final, cast

from lmos_actors._core import plain
from lmos_actors.actors import (
    MISSING,
    Agent,
    Event,
    Operation,
    Parameter,
    Property,
    action,
    altered,
    event,
    prop,
    shape_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AT_ONCE: Final = 1 << 30
"""Concurrent runs of one action of an untyped agent: no limit in practice."""


def untyped_class(
    name: str,
    *,
    actions: Iterable[str] = (),
    streams: Iterable[str] = (),
    properties: Mapping[str, Any] | None = None,
    events: Iterable[str] = (),
) -> type[Agent]:
    """Make an agent class with the given affordances; `properties` has their initial values.

    Its actions do nothing until `double_of` alters them. Raises TypeError if two affordances share a name.
    """
    body: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": "Known by its names.",
        "__annotations__": {},
    }
    for number, wire in enumerate(dict.fromkeys(actions)):
        body[f"action_{number}"] = action(name=wire, concurrency=AT_ONCE)(_Template.run)
    for number, wire in enumerate(dict.fromkeys(streams)):
        body[f"stream_{number}"] = action(name=wire, concurrency=AT_ONCE)(_Template.stream)
    for number, wire in enumerate(properties or ()):
        body[f"property_{number}"] = prop(default=None, name=wire)
        body["__annotations__"][f"property_{number}"] = Property[None]
    for number, wire in enumerate(dict.fromkeys(events)):
        body[f"event_{number}"] = event(name=wire)
        body["__annotations__"][f"event_{number}"] = Event[Any]
    metaclass = cast("Any", type(Agent))
    made: type[Agent] = metaclass(name, (Agent,), body)
    _accept_anything(made, properties or {})
    return made


def _accept_anything(cls: type[Agent], properties: Mapping[str, Any]) -> None:
    """Accept any value of properties and any input of actions."""
    contract = cls.__contract__
    anything = shape_of(Any)
    take, plainly = anything.take, copy(anything)
    plainly.take = lambda value, path="$": take(plain(value), path)
    for wire, value in properties.items():
        made = contract.properties[wire]
        made.take = anything.take
        made.default = anything.take(value)
        contract.table[f"={wire}"].params = (
            Parameter("value", "value", anything, MISSING, keyword_only=False),
        )
        contract.table[f"={wire}"].take = anything.take
        read = contract.table[f"?{wire}"]
        contract.table[f"?{wire}"] = altered(read, _copying(read))
    for wire in contract.actions:
        op = contract.table[wire]
        op.untyped = True
        op.params = (Parameter("anything", "anything", plainly, None, keyword_only=False),)
        op.take = plainly.take


def _copying(read: Operation) -> Any:
    # a copy, as readers may change what they get
    def read_copy(agent: Any) -> Any:
        return deepcopy(read.fn(agent))

    return read_copy


class _Template:
    """The functions that all actions of untyped classes run."""

    async def run(self, anything: Any = None, /) -> Any:
        """Accept any input, and return nothing."""

    async def stream(self, anything: Any = None, /) -> AsyncIterator[Any]:
        """Accept any input, and yield no output."""
        none: tuple[Any, ...] = ()
        for item in none:
            yield item
