"""The page of a deployment in a real browser: groups, what processes print, operations asked once; log-in."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import Agent, action, open_node
from lmos_actors.approvals import Approvals
from lmos_actors.assembly import NodeOptions
from lmos_actors.security import Access, Bearer, Security
from tests.chromium import Page, browser as browser, of_one_server, violations
from tests.deployment.places import Script, World, deployed, group

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = "<img src=x onerror=bad=1>"
QUICK = Script(
    ready=0.05, drains=0.05, url="ws://10.0.0.7:8123", page="http://10.0.0.7:8123/", prints=("up",)
)
ODD = Script(ready=0.05, drains=0.05, page="javascript:bad=1//", prints=(HOSTILE, "\x1b[31mred\x1b[0m"))
DIES = Script(ready=0.05, drains=0.05, ends=0.2, says=f"ValueError: {HOSTILE}")

ROWS = (
    "Object.fromEntries([...document.querySelectorAll('.processes tbody tr')].map((row) => "
    "[row.dataset.name, row]))"
)
LINES = "[...document.querySelectorAll('.oneline .text')].map((line) => line.textContent)"
TOLD = "document.querySelector('.told').textContent"


@pytest.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    async with of_one_server(browser) as tab:
        yield tab


@asynccontextmanager
async def shown(
    page: Page, *groups: Any, security: Security | None = None, **options: Any
) -> AsyncGenerator[World]:
    """Run a launcher of groups at a scripted place, and open its page."""
    allowed = options.pop("allowed", security is None)
    at = NodeOptions(listen="ws://127.0.0.1:0", security=security, allow_operations=allowed, page=True)
    async with deployed(*groups, page=at, usual=options.pop("usual", QUICK), **options) as world:
        await world.launcher.wait_ready()
        await page.visit(world.launcher.page)
        if security is None:
            await page.until(f"Object.keys({ROWS}).length")
        yield world


def button_of(row: str, what: str) -> str:
    return f"{ROWS}[{json.dumps(row)}].querySelector('[data-what={what}]')"


def text_of(row: str) -> str:
    return f"{ROWS}[{json.dumps(row)}].textContent"


async def test_groups_are_rolled_and_stopped_once_it_was_asked(page: Page) -> None:
    async with shown(page, group("weather", 2), group("front")) as world:
        assert await page.run(f"Object.keys({ROWS})") == [
            "weather",
            "weather/1",
            "weather/2",
            "front",
            "front/1",
        ]
        assert "2 of 2 ready" in await page.run(text_of("weather"))
        link = await page.run(
            f"(({{href, rel, target}}) => [href, rel, target])({ROWS}['weather/1'].querySelector('a'))"
        )
        assert link == ["http://10.0.0.7:8123/", "noopener noreferrer", "_blank"]
        world.place.take()
        await page.run(f"{button_of('weather', 'roll')}.click()")
        assert "Roll weather?" in await page.run("document.querySelector('dialog').textContent")
        await page.key("Escape")
        await page.until("!document.querySelector('dialog')")
        assert world.place.take() == []
        await page.run(f"{button_of('weather', 'roll')}.click()")
        await page.run("document.querySelector('dialog button.main').click()")
        await page.until(f"{TOLD} === 'Roll: weather: 1 replaced by 1; weather: 2 replaced by 2.'")
        await page.until(f"/ready.*2.*0/.test({text_of('weather/2')})")
        await page.run(f"{button_of('front/1', 'stop')}.click()")
        await page.run("document.querySelector('dialog button.main').click()")
        await page.until(f"{text_of('front/1')}.includes('stopped')")
        await page.until(f"{button_of('front/1', 'start')} !== null")
        await page.run("document.getElementById('tab-audit').click()")
        await page.until("/roll.*groups.weather/s.test(document.querySelector('#view').textContent)")


async def test_lines_grow_and_follow_the_one_that_is_chosen(page: Page) -> None:
    async with shown(page, group("weather", 2), group("front")) as world:
        await page.until(f"{LINES}.length === 3")
        await world.launcher.logs.write("weather/2", [f"line {n}" for n in range(60)])
        await page.until(f"{LINES}.includes('line 59')")
        end = "(({scrollTop, clientHeight, scrollHeight}) => scrollHeight - scrollTop - clientHeight < 2)"
        assert await page.run(f"{end}(document.querySelector('.printed'))")
        await page.run("document.querySelector('.printed').scrollTop = 0")
        await world.launcher.logs.write("weather/2", ["one more"])
        await page.until(f"{LINES}.includes('one more')")
        assert await page.run("document.querySelector('.printed').scrollTop") == 0
        await page.run(f"{ROWS}['front'].querySelector('th button').click()")
        await page.until(f"{LINES}.join() === 'up'")
        assert "front" in await page.run("document.querySelector('.linehead h3').textContent")


class Desk(Agent):
    """Asks a person."""

    @action(concurrency=9)
    async def refund(self, order: str) -> bool:
        return await self.approve(f"Refund {order}?", key=order)


def card_of(text: str) -> str:
    return f"[...document.querySelectorAll('.card')].find((c) => c.textContent.includes({json.dumps(text)}))"


async def chosen(page: Page, card: str, what: str) -> None:
    """Choose an answer to a question; it is asked once more."""
    buttons = f"[...{card}.querySelectorAll('button')]"
    await page.until(f"Boolean({card})")
    await page.run(f"{buttons}.find((b) => b.textContent.startsWith({json.dumps(what)})).click()")


async def test_questions_of_all_groups_are_decided_and_who_is_late_is_told(page: Page) -> None:
    here: dict[str, Any] = {"listen": "ws://127.0.0.1:0", "allow_operations": True}
    async with open_node(**here) as front, open_node(**here) as back, trio.open_nursery() as nursery:
        for node, order in ((front, "one"), (back, HOSTILE)):
            nursery.start_soon((await node.start(Desk)).invoke, Desk.refund, order)
        pages = {"front": front.urls[0], "back": back.urls[0], "away": "ws://192.0.2.1:80"}
        scripts = {
            f"{name}/1": [attrs.evolve(QUICK, page=f"{url.replace('ws', 'http')}/")]
            for name, url in pages.items()
        }
        async with shown(page, *map(group, pages), scripts=scripts):
            await page.until("document.getElementById('tab-approvals').textContent === 'Approvals (2)'")
            await page.run("document.getElementById('tab-approvals').click()")
            card = card_of("front/1")
            await chosen(page, card, "Approve")
            assert "desk of front/1 asks: Refund one?" in await page.run(
                "document.querySelector('dialog').textContent"
            )
            (found,) = await front.find(Approvals).invoke(Approvals.entries)
            await front.find(Approvals).invoke(Approvals.refuse, found.id)
            await page.until(f"{card}.dataset.state === 'refused'")
            await page.run("document.querySelector('dialog button.main').click()")
            await page.until(f"{card}.textContent.includes('somebody has refused it already')")
            card = card_of("back/1")
            await chosen(page, card, "Refuse")
            await page.run("document.querySelector('dialog button.main').click()")
            await page.until(f"{card}.dataset.state === 'refused'")
            await page.until(f"{card}.textContent.includes('refused: desk asks: Refund <img')")
            apart = "Not in this list: away/1 has no page of its own at an address of this machine alone."
            assert apart in await page.run("document.querySelector('#view').textContent")
            assert await page.run("typeof bad === 'undefined' && !document.querySelector('#view img')")


async def test_what_processes_print_is_text(page: Page) -> None:
    scripts = {"weather/1": [DIES, ODD]}
    async with shown(page, group("weather"), scripts=scripts, usual=ODD):
        await page.until(f"{LINES}.includes('red')")
        await page.until(f"{text_of('weather/1')}.includes({json.dumps(HOSTILE)})")
        assert HOSTILE in await page.run(LINES)
        assert await page.run("typeof bad === 'undefined' && !document.querySelector('#view img, #view a')")


async def test_without_operations_states_alone_are_shown(page: Page) -> None:
    async with shown(page, group("weather"), allowed=False):
        assert "ready" in await page.run(text_of("weather/1"))
        assert await page.run("document.querySelectorAll('.processes .tools button').length") == 0
        assert "--allow-operations" in await page.run("document.querySelector('.printed').textContent")
        tabs = await page.run("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.textContent)")
        assert tabs == ["Groups", "Agents", "Busiest"]


async def test_people_log_in_and_see_what_is_theirs(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANN", "secret-of-ann")
    lists = {"groups.weather*": Access(inspect=("ann",), operate=("ann",)), "*": Access()}
    security = Security(schemes=(Bearer({"ann": "env:ANN"}),), access=lists)
    async with shown(page, group("weather"), group("front"), security=security) as world:
        await page.until("document.documentElement.dataset.ready === 'login'")
        assert "weather" not in await page.run("document.body.textContent")
        await page.run("document.querySelector('#login-token').value = 'secret-of-ann'")
        await page.run("document.querySelector('.login form').requestSubmit()")
        await page.until(f"Object.keys({ROWS}).length")
        assert await page.run(f"Object.keys({ROWS})") == ["weather", "weather/1"]
        await page.until(f"{LINES}.join() === 'up'")
        await page.run(f"{button_of('weather/1', 'restart')}.click()")
        await page.run("document.querySelector('dialog button.main').click()")
        await page.until(f"{TOLD} === 'Restart: weather/1: stopped, and started again; weather/1: ready.'")
        assert [(each.who, each.path) for each in world.operated] == [("ann", "groups/weather/1")]
        assert not any("secret" in url for url in page.requests)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
async def test_axe_has_nothing_to_object_to(page: Page, width: int, dark: bool) -> None:
    scripts = {"weather/1": [DIES, QUICK]}
    await page.window(width, 800, dark=dark)
    async with shown(page, group("weather", 2), group("front"), scripts=scripts):
        await page.until(f"{text_of('weather/1')}.includes('ValueError')")
        assert await violations(page) == []
        assert await page.run("document.documentElement.scrollWidth <= innerWidth")
        await page.run("document.getElementById('tab-approvals').click()")
        await page.until("document.querySelectorAll('#view li').length === 3")
        assert await violations(page) == []
        assert await page.run("document.documentElement.scrollWidth <= innerWidth")
