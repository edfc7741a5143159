"""Forms of the page for every kind of schema, in a real browser, and the same calls by curl and by Python."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import pytest
import trio
from msgspec import Meta, Struct

from lmos_actors import Agent, ChildSpec, Property, SupervisorSpec, action, open_node, prop
from tests.chromium import Page, browser as browser, of_one_server, violations

if TYPE_CHECKING:
    from lmos_actors import Node

pytestmark = [pytest.mark.browser, pytest.mark.slow]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 2


class Point(Struct, frozen=True):
    x: float
    y: float = 0.0


class Circle(Struct, tag=True):
    centre: Point
    radius: Annotated[float, Meta(gt=0, le=10)]


class Square(Struct, tag=True):
    side: int


class Plan(Struct):
    name: str
    stops: list[Point] = []


class Every(Agent):
    """Takes values of every kind, and returns them."""

    note: Property[str | None] = prop(default=None)
    big: Property[int] = prop(default=2**60 + 1, read_only=True)
    place: Property[Point] = prop(default=Point(1))

    @action
    def nothing(self) -> None:
        pass

    @action
    def words(
        self,
        colour: Colour,
        level: Level = Level.LOW,
        word: Literal["a", 1, None] = "a",
        flag: bool = True,
    ) -> list[Any]:
        return [colour.value, level.value, word, flag]

    @action
    def shapes(
        self, shape: Circle | Square, points: list[Point], names: dict[str, int], pair: tuple[int, str]
    ) -> list[Any]:
        return [type(shape).__name__, len(points), names, pair]

    @action
    def bounds(
        self,
        whole: Annotated[int, Meta(ge=1, le=5)],
        part: Annotated[float, Meta(gt=0, lt=1)],
        text: Annotated[str, Meta(min_length=2, max_length=4)],
        some: Annotated[list[int], Meta(min_length=1, max_length=2)],
    ) -> list[Any]:
        return [whole, part, text, some]

    @action
    def nullable(
        self, a: int | None, b: str | None, c: list[int] | None = None, d: int | str | None = 3
    ) -> list[Any]:
        return [a, b, c, d]

    @action
    def written(self, data: bytes, when: datetime, day: date, id: UUID, money: Decimal) -> list[Any]:
        return [len(data), when.isoformat(), day.isoformat(), str(id), str(money)]

    @action
    def given(self, size: int) -> bytes:
        return b"x" * size

    @action
    def anything(self, value: Any) -> Any:
        return value

    @action
    def large(self, number: int) -> int:
        return number

    @action
    def nested(self, plan: Plan, table: list[list[dict[str, Point]]]) -> list[Any]:
        return [plan.name, len(plan.stops), len(table)]

    @action
    async def points(self, count: int = 3) -> AsyncGenerator[Point]:
        for number in range(count):
            yield Point(number)

    @action
    async def tails(self, rows: AsyncIterator[Point], tail: str = "ä'\"\\") -> AsyncGenerator[str]:
        async for row in rows:
            yield f"{row.x}{tail}"


TREE = SupervisorSpec("root", [ChildSpec("every", Every)])

SIGNS = 'it\'s "ä" \\ \U0001f600\n$HOME `ls`'
UUID_TEXT = "123e4567-e89b-42d3-a456-426614174000"

CALLS: dict[str, tuple[list[str], Any]] = {
    "nothing": ([], None),
    "words": (['"blue"', "2", "null", "false"], ["blue", 2, None, False]),
    "shapes": (
        [
            '{"type": "Circle", "centre": {"x": 1}, "radius": 2.5}',
            '[{"x": 1, "y": 2}]',
            '{"a": 1}',
            '[1, "x"]',
        ],
        ["Circle", 1, {"a": 1}, [1, "x"]],
    ),
    "bounds": (["5", "0.5", "äö", "[1, 2]"], [5, 0.5, "äö", [1, 2]]),
    "nullable": (["", "", "", "", "null"], [None, None, None, None]),
    "written": (
        ["aGVsbG8=", "2026-11-28T12:00:00Z", "2026-11-28", UUID_TEXT, "1.50"],
        [5, "2026-11-28T12:00:00+00:00", "2026-11-28", UUID_TEXT, "1.50"],
    ),
    "given": (["3"], "eHh4"),
    "anything": (
        [r'{"a\/b": "\ud83d\ude00", "n": [true, null, -1.5e3]}'],
        {"a/b": "\U0001f600", "n": [True, None, -1500.0]},
    ),
    "large": (["9007199254740993"], 9007199254740993),
    "nested": (['{"name": "x", "stops": [{"x": 1}]}', '[[{"a": {"x": 1}}], []]'], ["x", 1, 2]),
}
"""What is written into the fields of each action, and its answer."""


@pytest.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    async with of_one_server(browser) as tab:
        yield tab


FIELDS = ".form-fields :is(input:not([type=checkbox], [type=file]), textarea, select)"


async def shown(page: Page, node: Node) -> None:
    assert node.page_url is not None
    await page.visit(node.page_url + "#view=tree&agent=every")
    await page.until("document.querySelector('.usepart:not([hidden])') !== null")
    await page.run("document.querySelector('.use').open = true")
    await page.until("document.querySelector('[data-action=nothing]') !== null")
    await page.run("document.querySelectorAll('.action').forEach((e) => { e.open = true; })")


async def fill(page: Page, name: str, texts: list[str]) -> None:
    """Write into fields; what is "" stays as it is."""
    await page.run(
        f"{json.dumps(texts)}.forEach((text, n) => {{ if (text === '') return;"
        f" const e = document.querySelectorAll('[data-action={name}] {FIELDS}')[n]; e.value = text;"
        " for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true})); })"
    )


async def invoked(page: Page, name: str, said: str = "Answered") -> str:
    await page.run(f"document.querySelector('[data-action={name}] form').requestSubmit()")
    state = f"document.querySelector('[data-action={name}] [role=status]').textContent"
    await page.until(f"{state}.includes({json.dumps(said)}) || {state}.includes(':') && {state}")
    assert said in await page.run(state)
    return await page.run(f"document.querySelector('[data-action={name}] .answer').textContent")


async def copied(page: Page, name: str) -> list[str]:
    """Return the call as `curl` and as Python."""
    fold = f"[data-action={name}] form > .elsewhere"
    await page.run(f"document.querySelector('{fold}').open = true")
    texts = f"[...document.querySelectorAll('{fold} pre')].map((e) => e.textContent)"
    return await page.until(f"{texts}.length === 2 && {texts}")


async def printed_by_curl(text: str) -> bytes:
    done = await trio.run_process(["sh", "-c", text.replace("curl", "curl -sS", 1)], capture_stdout=True)
    return done.stdout


async def printed_by_python(text: str) -> list[Any]:
    found: list[Any] = []
    names: dict[str, Any] = {"print": found.append}
    exec(text.replace("trio.run(main)", ""), names)
    await names["main"]()
    return found


async def test_every_kind_of_value_in_a_form_by_curl_and_by_python(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        await shown(page, node)
        for name, (texts, answer) in CALLS.items():
            if name == "nullable":  # the last one is written as JSON, the two first are null as they stand
                texts = texts[:3] + texts[4:]
            await fill(page, name, texts)
            text = await invoked(page, name)
            assert (json.loads(text) if text else None) == answer, name
            curl, python = await copied(page, name)
            said = await printed_by_curl(curl)
            assert (json.loads(said) if said else None) == answer, curl
            assert json.loads(json.dumps(await printed_by_python(python))) == [answer], python


async def test_signs_in_texts_are_the_same_everywhere(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        await shown(page, node)
        await fill(page, "tails", [SIGNS])
        await page.run(
            "document.querySelector('[data-action=tails] textarea[rows=\"3\"]').value = '{\"x\": 1}'"
        )
        await invoked(page, "tails", "1 item, ended")
        assert (
            json.loads(await page.run("document.querySelector('[data-action=tails] .items li').textContent"))
            == f"1.0{SIGNS}"
        )
        curl, python = await copied(page, "tails")
        assert json.loads((await printed_by_curl(curl)).splitlines()[0]) == f"1.0{SIGNS}"
        assert await printed_by_python(python) == [f"1.0{SIGNS}"]
        await fill(page, "points", ["2"])
        await invoked(page, "points", "2 items, ended")
        curl, python = await copied(page, "points")
        assert (await printed_by_curl(curl)).startswith(b'{"x":0.0,"y":0.0}\n{"x":1.0,"y":0.0}\n')
        assert await printed_by_python(python) == [{"x": 0.0, "y": 0.0}, {"x": 1.0, "y": 0.0}]


WRONG: list[tuple[str, list[str], str]] = [
    ("bounds", ["6", "0.5", "ab", "[1]"], "whole: 5 at most"),
    ("bounds", ["5", "0", "ab", "[1]"], "part: more than 0"),
    ("bounds", ["5", "1", "ab", "[1]"], "part: less than 1"),
    ("bounds", ["5", "0.5", "a", "[1]"], "text: 2 characters at least"),
    ("bounds", ["5", "0.5", "\U0001f600" * 5, "[1]"], "text: 4 characters at most"),
    ("bounds", ["5", "0.5", "ab", "[]"], "some: 1 item at least"),
    ("bounds", ["5", "0.5", "ab", "[1, 2, 3]"], "some: 2 items at most"),
    ("nullable", ["x"], "a: this is no number"),
    ("written", ["a", "x", "x", "x", "x"], "data: this is not base64"),
    ("large", ["1.5"], "number: a whole number is needed"),
    ("shapes", ["{"], "shape: this is not JSON"),
]


async def test_what_does_not_fit_is_said_before_anything_is_sent(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        await shown(page, node)
        before = len(page.requests)
        for name, texts, said in WRONG:
            await fill(page, name, texts)
            await page.run(f"document.querySelector('[data-action={name}] form').requestSubmit()")
            state = f"document.querySelector('[data-action={name}] [role=status]').textContent"
            await page.until(f"{state}.startsWith({json.dumps(said)})")
        assert len(page.requests) == before


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
async def test_axe_has_nothing_to_object_to(page: Page, width: int, dark: bool) -> None:
    await page.window(width, 800, dark=dark)
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        await shown(page, node)
        await fill(page, "bounds", ["6"])
        await page.run("document.querySelector('[data-action=bounds] form').requestSubmit()")
        await page.run("document.querySelectorAll('.panel details').forEach((e) => { e.open = true; })")
        assert await violations(page) == []


async def test_properties_of_every_kind(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        await shown(page, node)
        every = node.find(Every, "every")
        values = "[...document.querySelectorAll('.prop .value')].map((e) => e.textContent)"
        await page.until(f'{values}.join() === \'null,1152921504606846977,{{"x":1.0,"y":0.0}}\'')
        await page.run("document.querySelectorAll('.prop details').forEach((e) => { e.open = true; })")
        place = "[...document.querySelectorAll('.prop form')].at(-1)"
        await page.run(f"{place}.querySelector('textarea').value = '{{\"x\": 2}}'; {place}.requestSubmit()")
        await page.until(f'{values}[2] === \'{{"x":2.0,"y":0.0}}\'')
        note = "document.querySelector('.prop form')"
        await page.run(
            f"{note}.querySelector('textarea').value = 'null';"
            f" {note}.querySelector('textarea').dispatchEvent(new Event('input', {{bubbles: true}}));"
            f" {note}.requestSubmit()"
        )
        await page.until(f"{values}[0] === '\"null\"'")
        assert await every.read(Every.note) == "null"
        await page.run(f"{note}.querySelector('[type=checkbox]').click(); {note}.requestSubmit()")
        await page.until(f"{values}[0] === 'null'")
        assert await every.read(Every.note) is None
