"""The short cut for inputs from afar: it takes what the long way takes, and leaves refusals to that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import Agent, InvalidInput, action
from lmos_actors.actors import completed_by

if TYPE_CHECKING:
    from lmos_actors.actors import Operation


def named(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*given[:-1], given[-1] or "nobody")


class Desk(Agent):
    @action
    @completed_by(named)
    def greet(self, text: str, name: str | None = None) -> None: ...

    @action
    def none(self) -> None: ...

    @action
    def one(self, text: str) -> None: ...

    @action
    def two(self, first: float, *, second: int = 2) -> None: ...


def way(op: Operation, data: Any) -> Any:
    args, kwargs = op.spread(data, tolerant=True)
    return op.bind(args, kwargs)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("none", {}),
        ("none", {"other": 1}),
        ("one", {"text": "hello"}),
        ("one", {"other": 1, "text": "hello"}),
        ("two", {"second": 3, "first": 1}),
    ],
)
def test_the_short_cut_gives_what_the_long_way_gives(name: str, data: Any) -> None:
    op = Desk.__contract__.table[name]
    assert op.taken(data) is not None
    assert op.taken(data) == way(op, data)
    assert list(map(type, op.taken(data) or ())) == list(map(type, way(op, data)))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("none", None),
        ("none", []),
        ("one", {}),
        ("one", {"text": 1}),
        ("two", {"first": 1}),
        ("one", "hello"),
    ],
)
def test_what_it_cannot_take_goes_the_long_way(name: str, data: Any) -> None:
    op = Desk.__contract__.table[name]
    assert op.taken(data) is None
    if data is not None and data != {"first": 1}:
        with pytest.raises(InvalidInput):
            way(op, data)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [(("hello",), {}), (("hello", None), {}), (("hello",), {"name": None}), ((), {"text": "hello"})],
)
def test_arguments_are_completed_however_they_are_given(args: tuple[Any, ...], kwargs: Any) -> None:
    assert Desk.__contract__.table["greet"].bind(args, kwargs) == ("hello", "nobody")
