"""The page of people with rights over some agents alone, in a real browser; operations on what is gone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import ChildSpec, open_node
from tests.chromium import Page, browser as browser, of_one_server, violations
from tests.live.test_own_rights import SECURITY, TREE, Till

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lmos_actors import Node

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TABS = "[...document.querySelectorAll('[role=tab]')].map((e) => e.textContent).join()"
BUTTONS = "[...document.querySelectorAll('.panel .tools [data-what]')].map((e) => e.textContent).join()"


@pytest.fixture(autouse=True)
def secret_of_sue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVE_SUE", "sue-token")


@pytest.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    async with of_one_server(browser) as tab:
        yield tab


async def log_in(page: Page, node: Node, name: str) -> None:
    assert node.page_url is not None
    await page.visit(node.page_url, "html[data-ready=login]")
    await page.run("document.querySelector('#login-token').focus()")
    await page.call("Input.insertText", text=f"{name}-token")
    await page.key("Enter")


async def ready(page: Page, node: Node, name: str) -> None:
    await log_in(page, node, name)
    await page.until("document.documentElement.dataset.ready === 'yes'")


async def press(page: Page, what: str) -> None:
    """Press a button of the panel, and mean it."""
    await page.run(f"document.querySelector('[data-what={what}]').click()")
    await page.until("document.querySelector('dialog') !== null")
    await page.run("document.querySelector('dialog .main').click()")


async def test_who_may_look_into_some_agents(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0", security=SECURITY) as node:
        await ready(page, node, "ann")
        assert await page.run(TABS) == "Agents,Messages,Chat,Approvals"
        await page.until("document.querySelector('#view').textContent.includes('The first 300 are shown.')")
        await page.click("#view td button")
        await page.until("document.querySelector('.panel').textContent.includes('Mailbox')")
        assert await page.run(BUTTONS) == ""
        assert await page.run("document.querySelector('.panel .tools button').hidden")  # there is no tree
        await page.key("/")  # and nothing is looked for in it
        assert await page.run(TABS) == "Agents,Messages,Chat,Approvals"
        await page.run("[...document.querySelectorAll('.panel .tools button')][1].click()")
        flow = "document.querySelector('.view-flow')?.textContent"
        await page.until(f"{flow} && !{flow}.includes('listening…')")
        assert "takes the right" not in await page.run(flow)
        await page.run("location.hash = '#view=agents&agent=vault'")
        await page.until("document.querySelector('.panel').textContent.includes('takes the right inspect')")


async def test_axe_has_nothing_to_object_to(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0", security=SECURITY) as node:
        await ready(page, node, "ann")
        await page.until("document.querySelector('#view td button') !== null")
        assert await violations(page) == []


async def test_who_decides_alone(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0", security=SECURITY) as node:
        async with trio.open_nursery() as nursery:
            paid: list[bool] = []

            async def pay() -> None:
                paid.append(await node.find(Till, "shop/once").invoke(Till.pay, "tea"))

            nursery.start_soon(pay)
            await ready(page, node, "bob")
            await page.until(f"{TABS} === 'Chat,Approvals (1)'")
            await page.until("document.querySelector('.card')?.textContent.includes('Pay for tea')")
            await page.click(".card .main")
            await page.until("document.querySelector('dialog') !== null")
            await page.click("dialog .main")
        assert paid == [True]


async def test_who_operates_one_agent_and_what_is_gone(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0", security=SECURITY) as node:
        await ready(page, node, "eve")
        await page.until("document.querySelectorAll('#view td button').length === 1")
        # more are looked for until then, and the line that says so stands over the row
        await page.until("document.querySelector('.listview > :not(.about)').hidden")
        await page.click("#view td button")
        await page.until(f"{BUTTONS} === 'Restart,Stop,Hold'")
        await press(page, "hold")
        await page.until(f"{BUTTONS} === 'Restart,Stop,Release'")
        await press(page, "stop")
        await page.until(f"{BUTTONS} === 'Start,Release'")
        await press(page, "start")
        await page.until(f"{BUTTONS} === 'Restart,Stop,Release'")
        # it goes while the question is on the screen
        await page.run("document.querySelector('[data-what=restart]').click()")
        await page.until("document.querySelector('dialog') !== null")
        shop = node.root.supervisor("shop")
        await shop.terminate_child("till")
        await shop.delete_child("till")
        await page.run("document.querySelector('dialog .main').click()")
        await page.until("document.querySelector('.panel .notice').textContent.includes('no agent')")
        await page.until(f"{BUTTONS} === ''")
        await shop.start_child(ChildSpec("till", Till))
        await page.until(f"{BUTTONS} === 'Restart,Stop,Hold'")


async def test_who_has_no_such_right(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0", security=SECURITY) as node:
        await log_in(page, node, "sue")
        said = json.dumps("may look at nothing of this node")
        await page.until(f"document.querySelector('.login').textContent.includes({said})")
