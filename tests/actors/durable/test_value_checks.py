"""Values that could not be given back are refused before they are kept, with the place where they are."""

from __future__ import annotations

import datetime
import decimal
import enum
from typing import TYPE_CHECKING, Any, Literal, NewType, TypedDict

import attrs
import pytest
import trio

from lmos_actors import Agent, AgentDied, ChildSpec, StartFailed, action, open_node

if TYPE_CHECKING:
    from pathlib import Path


class Colour(enum.Enum):
    RED = "red"


@attrs.define
class Line:
    name: str
    amounts: list[decimal.Decimal] = attrs.field(factory=list)
    below: list[Line] = attrs.field(factory=list)


@attrs.define
class LongLine(Line):
    more: int = 0


@attrs.define
class Note:
    text: str


class Sizes(TypedDict, total=False):
    width: int


Points = NewType("Points", int)


class Shop(Agent, durable=True):
    n: int = 0
    weight: float = 1.0
    day: datetime.date = datetime.date(2026, 1, 1)
    numbers: list[int] = attrs.field(factory=list)
    rows: list[list[str]] = attrs.field(factory=list)
    lines: list[Line] = attrs.field(factory=list)
    by_name: dict[str, Line | Note | None] = attrs.field(factory=dict)
    by_number: dict[int, int] = attrs.field(factory=dict)
    by_day: dict[datetime.date, float] = attrs.field(factory=dict)
    seen: set[str] = attrs.field(factory=set)
    pair: tuple[int, str] = (1, "a")
    words: tuple[str, ...] = ()
    way: Literal["in", "out"] = "in"
    colour: Colour | None = None
    sizes: Sizes = attrs.field(factory=lambda: Sizes())
    points: Points = Points(0)

    @action
    def change(self, case: int) -> None:
        name, value, _ = (*WRONG, *FITTING)[case]
        setattr(self, name, value)

    @action
    def shown(self) -> str:
        return repr(attrs.asdict(self, recurse=False))


WRONG: list[tuple[str, Any, str]] = [
    ("n", True, r"Shop\.n must be int, not True"),
    ("n", 1.0, r"Shop\.n must be int, not 1\.0"),
    ("n", 1 << 70, r"Shop\.n is 1180591620717411303424, and an int of more than 64 bits cannot be kept"),
    ("weight", float("nan"), r"Shop\.weight is nan, which cannot be kept: it must be a finite number"),
    ("weight", "5", r"Shop\.weight must be float, not '5'"),
    ("day", datetime.datetime(2026, 1, 1), r"Shop\.day must be date, not datetime"),
    ("day", "2026-02-02", r"Shop\.day must be date, not '2026-02-02'"),
    ("numbers", [1, 2, "3"], r"Shop\.numbers\[2\] must be int, not '3'"),
    ("numbers", {1}, r"Shop\.numbers must be list, not \{1\}"),
    ("rows", [["a"], ["b", 5]], r"Shop\.rows\[1\]\[1\] must be str, not 5"),
    ("lines", [Line("a"), Line(5)], r"Shop\.lines\[1\]\.name must be str, not 5"),  # type: ignore[arg-type]
    (
        "lines",
        [Line("a", below=[Line("b", [1])])],
        r"Shop\.lines\[0\]\.below\[0\]\.amounts\[0\] must be Decimal",
    ),  # type: ignore[list-item]
    ("lines", [LongLine("a")], r"Shop\.lines\[0\] must be Line, not LongLine"),
    ("by_name", {"a": Note(5)}, r"Shop\.by_name\['a'\]\.text must be str, not 5"),  # type: ignore[arg-type]
    ("by_name", {"a": 5}, r"Shop\.by_name\['a'\] must be Line or Note or None, not 5"),
    ("by_name", {5: None}, r"Shop\.by_name has the key 5, which must be str, not 5"),
    ("by_number", {"5": 5}, r"Shop\.by_number has the key '5', which must be int, not '5'"),
    ("by_day", {datetime.date(2026, 1, 1): float("inf")}, r"Shop\.by_day\[datetime.*\] is inf"),
    ("seen", {5}, r"Shop\.seen\[5\] must be str, not 5"),
    ("pair", (1, 2), r"Shop\.pair\[1\] must be str, not 2"),
    ("pair", (1,), r"Shop\.pair must be a tuple of 2, not \(1,\)"),
    ("words", ("a", 1), r"Shop\.words\[1\] must be str, not 1"),
    ("way", "up", r"Shop\.way must be 'in' or 'out', not 'up'"),
    ("colour", "red", r"Shop\.colour must be Colour or None, not 'red'"),
    ("sizes", {"width": "wide"}, r"Shop\.sizes\['width'\] must be int, not 'wide'"),
    ("points", "5", r"Shop\.points must be int, not '5'"),
    ("total", 5, r"Shop\.total is not declared, and so not kept: declare it in the class, as `total: int`"),
]

FITTING: list[tuple[str, Any, str]] = [
    ("n", (1 << 64) - 1, ""),
    ("weight", 5.5, ""),
    ("numbers", [1, 2], ""),
    ("lines", [Line("a", [decimal.Decimal(1)], [Line("b")])], ""),
    ("by_name", {"a": None, "b": Note("b"), "c": Line("c")}, ""),
    ("by_number", {5: 5}, ""),
    ("by_day", {datetime.date(2026, 1, 1): 1.5}, ""),
    ("seen", {"a"}, ""),
    ("pair", (2, "b"), ""),
    ("words", ("a", "b"), ""),
    ("colour", Colour.RED, ""),
    ("sizes", {"width": 5}, ""),
]


async def test_values_that_could_not_be_given_back_crash_the_turn_that_set_them(
    autojump_clock: object,
) -> None:
    async with open_node(store="memory:") as node:
        ref = await node.start_child(ChildSpec("shop", Shop))
        before = await ref.invoke(Shop.shown)
        for case, (_, _, why) in enumerate(WRONG):
            with pytest.raises(AgentDied, match=why):
                await ref.invoke(Shop.change, case)
            await ref.ready()
            assert await ref.invoke(Shop.shown) == before
            await trio.sleep(10)


async def test_values_that_fit_come_back(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'shop.db'}"
    async with open_node(store=store) as node:
        ref = await node.start_child(ChildSpec("shop", Shop))
        for case in range(len(FITTING)):
            await ref.invoke(Shop.change, len(WRONG) + case)
        shown = await ref.invoke(Shop.shown)
    async with open_node(store=store) as node:
        ref = await node.start_child(ChildSpec("shop", Shop))
        assert await ref.invoke(Shop.shown) == shown


class Journal(Agent, durable="journal"):
    def apply(self, fact: Line | Note) -> None: ...

    @action
    def note(self) -> None:
        self.record(Line("a", below=[Line("b", [5])]))  # type: ignore[list-item]


async def test_a_fact_that_could_not_be_given_back_is_refused_where_it_is_recorded(
    autojump_clock: object,
) -> None:
    async with open_node(store="memory:") as node:
        ref = await node.start_child(ChildSpec("journal", Journal))
        with pytest.raises(AgentDied, match=r"Line\.below\[0\]\.amounts\[0\] must be Decimal, not 5"):
            await ref.invoke(Journal.note)


class Hidden(Agent, durable=True):
    n: int = 0

    def __attrs_post_init__(self) -> None:
        self.total = 5


async def test_an_attribute_that_is_not_declared_is_refused_as_the_agent_starts() -> None:
    async with open_node(store="memory:") as node:
        with pytest.raises(StartFailed, match=r"Hidden\.total is not declared"):
            await node.start_child(ChildSpec("hidden", Hidden))
