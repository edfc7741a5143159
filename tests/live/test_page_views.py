"""Every view of the page of a node in a real browser: at all sizes of the tree, and checked by axe-core."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING

import pytest

from lmos_actors import open_node
from lmos_actors.security import Basic, Bearer, Security
from lmos_actors.transport import TcpNetwork
from tests.chromium import Page, browser as browser, of_one_server, violations
from tests.live.lively import lively, tree
from tests.live.watching import watching
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lmos_actors import Node

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PARTS = frozenset({"find", "agent", "rights", "logs"})
"""Views that are parts of others: each has no tab of its own."""

WIDTHS = few_or_all(((1280, False), (390, True)), tuple(product((1280, 390), (False, True))))


@pytest.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    async with of_one_server(browser) as tab:
        yield tab


async def views_of(node: Node) -> list[str]:
    """Return the names of all views that have a tab, as the node itself names them."""
    async with watching(node.urls[0], TcpNetwork(), ()) as watcher:
        return sorted({*watcher.hello["views"]} - PARTS)


async def seen(page: Page, node: Node, fragment: str = "") -> None:
    assert node.page_url is not None
    await page.visit(node.page_url + fragment)
    await page.until("document.documentElement.dataset.ready === 'yes'")


async def shown(page: Page, view: str) -> None:
    """Open a view, and wait until it has drawn what it has."""
    await page.run(f"document.getElementById({json.dumps(f'tab-{view}')}).click()")
    await page.until("!/Asking…|counting…/.test(document.querySelector('#view').textContent)", 60)
    await page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.mark.parametrize("agents", few_or_all((10, 100_000), (10, 1_000, 100_000)))
async def test_every_view_opens_at_every_size(page: Page, agents: int) -> None:
    async with lively(agents) as node:
        views = await views_of(node)
        await seen(page, node)
        tabs = await page.run(
            "[...document.querySelectorAll('[role=tab]')].map((each) => each.id.replace('tab-', ''))"
        )
        assert sorted(tabs) == views
        for view in views:
            await shown(page, view)
            assert await page.run("document.querySelector('#view').className") == f"view view-{view}"
            assert await page.run("document.querySelector('#view').getBoundingClientRect().height") > 100
            assert await page.run("document.querySelectorAll('#view *').length") < 5_000
        for path in ("weather", "sensors/0", "sensors", ""):
            await page.run(f"location.hash = '#view=tree&agent={path}'")
            await page.until("document.querySelectorAll('.panel h3').length > 0")


@pytest.mark.parametrize(("width", "dark"), WIDTHS)
async def test_axe_has_nothing_to_object_to(page: Page, width: int, dark: bool) -> None:
    found: list[str] = []

    async def check(what: str) -> None:
        found.extend(f"{what}: {each}" for each in await violations(page))

    await page.window(width, 800, dark=dark)
    async with lively(100) as node:
        await seen(page, node)
        for view in await views_of(node):
            await shown(page, view)
            await check(view)
        await shown(page, "flow")
        await page.until("document.querySelectorAll('.diagram .row').length > 3")
        await check("flow of messages")
        await shown(page, "tree")
        await page.run("document.querySelector('.find input').focus()")
        await page.call("Input.insertText", text="sensor")
        await page.until("document.querySelectorAll('.grid.list .gridrow').length > 5")
        await check("find")
        for path in ("", "sensors", "weather", "shop/store-room"):
            await page.run(f"location.hash = '#view=tree&agent={path}'")
            await page.until("document.querySelectorAll('.panel h3').length > 0")
            await check(f"agent {path}")
        await page.run("location.hash = '#view=tree&agent=weather'")
        await page.until("document.querySelector('.usepart:not([hidden])') !== null")
        await page.run("document.querySelector('.use').open = true")
        await page.until("document.querySelectorAll('.prop').length === 2")
        await page.run("document.querySelectorAll('.panel details').forEach((each) => { each.open = true; })")
        await page.run("document.querySelector('[data-action=forecast] form').requestSubmit()")
        await page.until(
            "document.querySelector('[data-action=forecast] [role=status]').textContent.includes('Answered')"
        )
        await check("forms")
        await page.click("[data-what=restart]")
        await page.until("document.querySelector('dialog[open]') !== null")
        await check("dialog")
        await page.key("Escape")
        await page.run("location.hash = '#view=chats'")
        await page.until("document.querySelector('.composer .main')?.disabled === false")
        await page.run("document.querySelector('.composer textarea').value = 'hello'")
        await page.run("document.querySelector('.composer').requestSubmit()")
        await page.until("document.querySelectorAll('.bubble .words').length === 2")
        await check("a chat")
    await page.until("document.documentElement.dataset.link === 'waiting'")
    await check("offline")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("width", "dark"), WIDTHS)
async def test_axe_has_nothing_to_object_to_in_the_log_in(
    page: Page, monkeypatch: pytest.MonkeyPatch, width: int, dark: bool
) -> None:
    monkeypatch.setenv("S27_ALICE", "secret-of-alice")
    schemes = (Bearer({"alice": "env:S27_ALICE"}), Basic({"alice": "env:S27_ALICE"}))
    await page.window(width, 800, dark=dark)
    async with open_node(tree(10), listen="ws://127.0.0.1:0", security=Security(schemes=schemes)) as node:
        assert node.page_url is not None
        await page.visit(node.page_url, "html[data-ready=login]")
        assert await violations(page) == []
        await page.run("document.querySelector('.login form').requestSubmit()")
        await page.until("document.querySelector('[role=alert].bad').textContent !== ''")
        assert await violations(page) == []
        page.problems[:] = [each for each in page.problems if "status of 4" not in each]
