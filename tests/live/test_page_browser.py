"""The page of a node in a real browser: views at all sizes, keys, breaks, log-ins, attacks."""

from __future__ import annotations

import json
import unicodedata
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, Secret, SupervisorSpec, action, open_node
from lmos_actors._core import printable
from lmos_actors.actors import slot_of
from lmos_actors.security import Access, Basic, Bearer, Security
from lmos_actors.supervision import BulkSpec
from lmos_actors.transport import ConnectionOptions
from tests.chromium import Page, browser as browser, of_one_server, opened
from tests.live.lively import lively
from tests.matrix import few_or_all, some

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from lmos_actors import Node

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FEW, SOME, MANY = 10, 1_000, 100_000
FIRST_SIGHT = 10.0
"""Seconds that the first rows of many may take on a busy machine."""

ROWS = "[...document.querySelectorAll('.grid:not([hidden]) .gridbody .gridrow:not([hidden])')]"
NAMES = f"{ROWS}.map((row) => row.querySelector('.label')?.textContent ?? '')"
LOADED = f"{ROWS}.length && !document.querySelector('.grid:not([hidden]) .gridrow.loading:not([hidden])')"
ACTIVE = "document.querySelector('.grid:not([hidden]) .gridrow.active:not([hidden])')"
TOTALS = "[...document.querySelectorAll('.totals dd')].map((each) => each.textContent)"
LINK = "document.documentElement?.dataset.link"
SAID = "document.querySelector('[role=status].unseen').textContent"
BUTTONS = "[...document.querySelectorAll('button')]"
HOSTILE = "<script>bad=1<!script><img src=x onerror=bad=1>"
TURNED = "\u202eegral\u202c <img src=x onerror=bad=1>"


class Echo(Agent):
    """Says what it hears."""

    @action
    def say(self, text: str) -> str:
        return text

    @action
    def fail(self) -> None:
        raise RuntimeError(HOSTILE)


class Clerk(Agent):
    """Asks a person before it pays."""

    @action
    async def refund(self, why: str) -> str:
        await self.approve(f"Refund 120 € for {why}", {"why": why}, key="r1", expires=3600)
        return "done"


class Till(Echo):
    """Takes money."""


def tree(agents: int) -> SupervisorSpec:
    """A tree of so many agents: 3 in a shop, the others in one row."""
    shop = SupervisorSpec(
        "shop", [ChildSpec("till", Till), ChildSpec("store", Echo), ChildSpec("mail", Echo)]
    )
    many = BulkSpec("many", member=ChildSpec("m", Echo), count=agents - 3, max_restarts=1_000_000)
    return SupervisorSpec("root", [shop, many])


@pytest.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    async with of_one_server(browser) as tab:
        yield tab


@asynccontextmanager
async def served(agents: int = FEW, *, port: int = 0, **options: Any) -> AsyncGenerator[Node]:
    async with open_node(tree(agents), listen=f"ws://127.0.0.1:{port}", **options) as node:
        yield node


def url_of(node: Node, fragment: str = "") -> str:
    assert node.page_url is not None
    return node.page_url + fragment


async def seen(page: Page, node: Node, fragment: str = "") -> None:
    await page.visit(url_of(node, fragment))
    await page.until(LOADED, FIRST_SIGHT)


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.key(key)


async def active(page: Page, name: str) -> None:
    """Wait until the row that the keys are at is that of a name."""
    await page.until(f"{ACTIVE} && {ACTIVE}.querySelector('.label')?.textContent === {json.dumps(name)}")


# ---- views


@pytest.mark.parametrize("agents", few_or_all((FEW, MANY), (FEW, SOME, MANY)))
async def test_every_view_at_every_size(page: Page, agents: int) -> None:
    async with served(agents) as node:
        for number in range(3):
            await node.find(Echo, f"many/{number}").invoke(Echo.say, "hello")
        await seen(page, node)
        assert await page.run(NAMES) == ["root", "shop", "many"]
        await page.until(f"{TOTALS}[0] === '{agents:,}'", 30)
        await page.until(f"{ROWS}[2].querySelector('.c-handled').textContent === '3'", 30)
        await press(page, "Tab", "Tab", "Tab")
        await page.run("document.querySelector('.grid.tree').focus()")
        await press(page, "End", "ArrowRight")
        await page.until(f"{NAMES}.includes('1')")
        await press(page, "ArrowRight")
        await active(page, "0")
        await press(page, "End")
        await active(page, str(agents - 4))
        assert await page.run(f"{ROWS}.length < 60")  # whatever there is, only what is seen is drawn
        assert await page.run("document.querySelector('.grid').getAttribute('aria-rowcount')") == str(
            agents + 1
        )
        await press(page, "ArrowLeft")
        await active(page, "many")
        await press(page, "ArrowLeft", "Home")
        await active(page, "root")
        await page.until(f"{NAMES}.length === 3")
        await press(page, *f"y/{agents - 5}")
        await page.until(f"{NAMES}[0] === 'many/{agents - 5}'", 30)
        await press(page, "ArrowDown", "Enter")
        await page.until("!document.querySelector('.panel').hidden")
        await page.click(".panel .tools button")
        await active(page, str(agents - 5))
        await press(page, "ArrowUp")
        await active(page, str(agents - 6))
        for view in await page.run("[...document.querySelectorAll('[role=tab]')].map((each) => each.id)"):
            await page.click(f"#{view}")
            await page.until(f"document.querySelector('#{view}').getAttribute('aria-selected') === 'true'")
            await page.until("!/Asking…|^$/.test(document.querySelector('#view').textContent)")


async def test_rows_are_recycled_while_one_scrolls(page: Page) -> None:
    async with served(SOME) as node:
        await page.visit(url_of(node))
        await page.until(LOADED)
        await page.run("document.querySelector('.grid.tree').focus()")
        await press(page, "End", "ArrowRight")
        await page.until(f"{ROWS}.length > 10 && {LOADED}")
        await page.run(
            "document.querySelectorAll('.gridbody .gridrow').forEach((row, n) => row.dataset.own = n)"
        )
        count = await page.run("document.querySelectorAll('.gridbody .gridrow').length")
        for place in (3_000, 12_000, 20_000, 0, 27_000):
            await page.run(f"document.querySelector('.grid.tree').scrollTop = {place}")
            first = (place - 1) // 28
            await page.until(f"{NAMES}.includes('{max(0, first)}') && {LOADED}")
        assert await page.run("document.querySelectorAll('.gridbody .gridrow:not([data-own])').length") <= 1
        assert await page.run("document.querySelectorAll('.gridbody .gridrow').length") <= count + 1


async def test_a_crash_is_shown_and_said(page: Page) -> None:
    async with served() as node:
        await seen(page, node)
        await page.until(f"{TOTALS}[3] === '0'")
        with pytest.raises(Exception, match="script"):
            await node.find(Till, "shop/till").invoke(Till.fail)
        await page.until(f"{TOTALS}[3] === '1'")
        await page.until(f"{SAID} === '1 restart.'")
        await page.until(f"{ROWS}[1].querySelector('.c-restarts').textContent === '1'")


async def test_rates_are_of_the_clock_of_the_node(page: Page) -> None:
    async with served() as node, trio.open_nursery() as nursery:
        till = node.find(Till, "shop/till")

        async def busy() -> None:
            while True:
                await till.invoke(Till.say, "x")
                await trio.sleep(0.02)

        nursery.start_soon(busy)
        await seen(page, node, "#view=tree")
        await page.run("document.querySelector('.grid.tree').focus()")
        await press(page, "ArrowDown", "ArrowRight")
        rate = f"Number({ROWS}[2].querySelector('.c-rate').textContent)"
        await page.until(f"{NAMES}[2] === 'till' && {rate} > 5 && {rate} < 51")
        nursery.cancel_scope.cancel()
        await page.until(f"{rate} === 0")


async def test_one_agent_and_its_crashes(page: Page) -> None:
    async with served(allow_operations=True) as node:
        for _ in range(2):
            await node.find(Till, "shop/till").ready()
            with pytest.raises(Exception, match="script"):
                await node.find(Till, "shop/till").invoke(Till.fail)
        await seen(page, node, "#view=tree&agent=shop/till")
        sections = "[...document.querySelectorAll('.panel h3')].map((each) => each.textContent)"
        await page.until(f"{sections}.includes('Mailbox') && {sections}.includes('Contract')")
        assert "say(text: string) → string" in await page.run("document.querySelector('.panel').textContent")
        assert await page.run("document.querySelectorAll('.panel .crash').length") == 2
        await page.click(".panel .crash summary")
        await page.until("document.querySelector('.panel .crash pre').textContent.includes('crashed at')")
        await node.find(Till, "shop/till").invoke(
            Till.say, "x"
        )  # what is unfolded stays so while numbers change
        await page.until("document.querySelector('.panel').textContent.includes('Handled3')")
        assert await page.run("document.querySelector('.panel .crash').open")
        await page.run("location.hash = '#view=crashes'")
        await page.until("document.querySelectorAll('.listview .crash').length === 2")
        await page.click(".listview .crash summary")
        await page.until(
            "document.querySelector('.listview .crash pre').textContent.includes('message in hand')"
        )
        assert HOSTILE in await page.run("document.querySelector('.listview .crash .why').textContent")
        await page.click(".listview .crash button")
        await page.until("!document.querySelector('.panel').hidden")
        await page.key("Escape")
        await page.until("document.querySelector('.panel').hidden && !location.hash.includes('agent')")


async def test_the_flow_of_messages(page: Page) -> None:
    async with served(allow_operations=True) as node, trio.open_nursery() as nursery:

        async def busy() -> None:
            while True:
                await node.find(Till, "shop/till").invoke(Till.say, HOSTILE)
                await node.find(Echo, "shop/mail").invoke(Echo.say, "y")
                await trio.sleep(0.05)

        nursery.start_soon(busy)
        await page.visit(url_of(node, "#view=tree&agent=shop/till"))
        await page.until("document.querySelectorAll('.panel h3').length > 2")
        await page.run(f"{BUTTONS}.find((each) => each.textContent === 'Its messages').click()")
        edges = "document.querySelector('.edges').textContent"
        await page.until("document.querySelectorAll('.diagram .message').length > 4")
        await page.until(f"{edges}.includes('shop/till') && !{edges}.includes('mail')")
        await page.run(f"{BUTTONS}.find((each) => each.textContent === 'Pause').click()")
        held = await page.run("document.querySelector('.diagram').scrollHeight")
        await page.click(".diagram .row")
        await page.until("!document.querySelector('.flowview .chosen').hidden")
        assert "shop/till" in await page.run("document.querySelector('.flowview .chosen').textContent")
        assert await page.run("document.querySelector('.diagram').scrollHeight") == held
        await page.run(f"{BUTTONS}.find((each) => each.textContent === 'Pause').click()")
        await page.until(f"document.querySelector('.diagram').scrollHeight > {held}")
        assert await page.run("window.bad === undefined && !document.querySelector('#app script, #app img')")
        nursery.cancel_scope.cancel()


SIZES = some([(width, dark) for dark in (False, True) for width in (390, 1280, 2560)], of=5)
"""Widths in light and in dark colours."""


@pytest.mark.parametrize(("width", "dark"), SIZES)
async def test_it_fits_at_every_width(page: Page, width: int, dark: bool) -> None:
    async with served(SOME, allow_operations=True) as node:
        await page.window(width, 800, dark=dark)
        await seen(page, node, "#view=tree&agent=shop/till")
        await page.until("document.querySelectorAll('.panel h3').length > 2")
        for view in ("tree", "top", "flow", "crashes", "waiting"):
            await page.run(f"location.hash = '#view={view}'")
            await page.until(
                f"document.querySelector('#tab-{view}').getAttribute('aria-selected') === 'true'"
            )
            assert await page.run("document.documentElement.scrollWidth") == width
            assert await page.run("document.documentElement.scrollHeight") == 800
            # text stands out from what it stands on: WCAG AA
            assert await page.run(CONTRAST) == []


CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((part) => part / 255).map(
      (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found[3] > 250) return found;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll('#app *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest('.flash, .unseen')) continue;
    const one = light(rgb(getComputedStyle(element).color)), other = light(behind(element));
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) found.push([element.className, element.textContent.slice(0, 30), ratio.toFixed(2)]);
  }
  return found;
})()"""


FRAMES = """
window.first = [];
window.WebSocket = class extends WebSocket {
  constructor(...options) {
    super(...options);
    const kept = (text) => window.first.push(Object.keys(JSON.parse(text).patches || {}));
    this.addEventListener('message', ({data}) => kept(data));
  }
};"""


async def test_rows_come_first_and_nothing_is_asked_before(page: Page) -> None:
    async with served() as node:
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=FRAMES)
        await seen(page, node)
        paths = [url.partition("?")[0].removeprefix(url_of(node)) for url in page.requests]
        assert sorted(path for path in paths if not path.startswith("data:")) == [
            "",
            "live/page.css",
            "live/page.js",
        ]
        hello, rows = await page.until("window.first.length > 1 && window.first.slice(0, 2)")
        assert hello == []
        assert any(name.startswith("tree-") for name in rows)


SOCKETS = """
window.asked = [];
window.WebSocket = class extends WebSocket {
  constructor(...options) { super(...options); window.socket = this; }
  send(text) { window.asked.push(JSON.parse(text)); super.send(text); }
};"""


async def test_what_comes_late_of_a_view_that_was_left_is_not_drawn_in_the_next(page: Page) -> None:
    async with served(allow_operations=True) as node:
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=SOCKETS)
        await page.visit(url_of(node, "#view=waiting"))
        await page.until("document.querySelector('#view').textContent.includes('No agent waits')")
        await page.click("#tab-connections")
        await page.until("document.querySelector('#view').textContent.includes('Addresses')")
        await page.run(
            "window.asked.filter((one) => one.type === 'leave').forEach(({id}) => socket.dispatchEvent("
            "new MessageEvent('message', {data: JSON.stringify({type: 'changes', number: 0, time: 0, patches:"
            " {[id]: {edges: [{kind: 'answer', text: 'what is late'}]}}})})))"
        )
        assert await page.run("window.asked.some((one) => one.type === 'leave')")
        assert "what is late" not in await page.run("document.querySelector('#view').textContent")


async def test_a_circle_of_waiting_is_shown_as_a_way_round(page: Page) -> None:
    async with lively(busy=False) as node:
        await page.visit(url_of(node, "#view=waiting"))
        await page.until("document.querySelector('.notice.bad') !== null")
        circle = await page.run("document.querySelector('.notice.bad').textContent")
        assert "loops/a → loops/b → loops/a" in circle
        assert "loops/a (run of 'ask') waits for the answer to 'ask' from loops/b" in circle


# ---- connections that break


async def test_a_node_that_is_started_anew(page: Page) -> None:
    async with served() as node:
        await seen(page, node)
        url, port = url_of(node), int(node.urls[0].rpartition(":")[2])
    await page.until(f"{LINK} === 'waiting'")
    assert "does not answer" in await page.run("document.querySelector('.notice.offline').textContent")
    async with served(SOME, port=port) as node:
        assert url_of(node) == url
        await page.run("[...document.querySelectorAll('.offline button')].forEach((each) => each.click())")
        await page.until(f"{LINK} === 'open'")
        await page.until(f"{TOTALS}[0] === '1,000'")
        await page.until(f"{SAID} === 'The node was started anew.'")
        assert await page.run("document.querySelector('.notice.offline').hidden")
        page.problems.clear()


async def test_a_page_of_another_version_is_loaded_again(page: Page) -> None:
    async with served() as node:
        await seen(page, node)
        await page.run("document.documentElement.dataset.software = 'lmos-actors 0.0.1'; window.old = 1")
        port = int(node.urls[0].rpartition(":")[2])
    await page.until(f"{LINK} === 'waiting'")
    async with served(port=port) as node:
        await page.until("window.old === undefined && document.documentElement?.dataset.ready === 'yes'")
        await page.until(LOADED)
        page.problems.clear()


async def test_a_connection_that_breaks_at_once_is_not_opened_without_rest(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ConnectionOptions(max_message_bytes=256 << 10, messages_per_second=1)
    monkeypatch.setattr("lmos_actors.live._server.OPTIONS", few)
    async with served() as node:
        await page.visit(url_of(node))
        await page.until(f"{LINK} === 'waiting'")
        notice = "document.querySelector('.notice.offline').textContent"
        await page.until(f"/Trying again in ([2-9]|1\\d) s/.test({notice})")
        page.problems.clear()


# ---- people


@asynccontextmanager
async def guarded(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Node]:
    """Alice may operate, bob may look, carol may use agents alone."""
    for name in ("ALICE", "BOB", "CAROL"):
        monkeypatch.setenv(f"S27_{name}", f"secret-of-{name.lower()}")
    security = Security(
        schemes=(Bearer({"alice": "env:S27_ALICE", "carol": "env:S27_CAROL"}), Basic({"bob": "env:S27_BOB"})),
        access={"*": Access(inspect=("alice", "bob"), operate=("alice",), approve=("alice",))},
    )
    async with served(security=security) as node:
        yield node


async def log_in(page: Page, node: Node, name: str, way: str, *, expected: str = "yes") -> None:
    await page.visit(url_of(node), "html[data-ready=login]")
    await page.run(
        f"[...document.querySelectorAll('.login button')].find((b) => b.textContent === '{way}').click()"
    )
    if way != "Token":
        await typed(page, "#login-name", name)
        await typed(page, "#login-password", f"secret-of-{name}")
    else:
        await typed(page, "#login-token", f"secret-of-{name}")
    await page.key("Enter")
    if expected == "yes":
        await page.until("document.documentElement.dataset.ready === 'yes'")


async def typed(page: Page, selector: str, text: str) -> None:
    await page.run(f"document.querySelector('{selector}').focus()")
    await page.call("Input.insertText", text=text)


async def test_two_people_of_whom_one_only_looks(browser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded(monkeypatch) as node, opened(browser) as alice, opened(browser) as bob:
        await log_in(alice, node, "alice", "Token")
        await log_in(bob, node, "bob", "Name and password")
        for page, name, word in ((alice, "alice", ""), (bob, "bob", "may look")):
            await page.until(LOADED)
            said = await page.run("document.querySelector('.who').textContent")
            assert said.startswith(name)
            assert ("may look" in said) == bool(word)
            assert await page.run("document.cookie") == ""
            assert f"secret-of-{name}" not in "".join(page.requests)
        await bob.click(".who button")
        await bob.until("document.documentElement?.dataset.ready === 'login'")
        assert await alice.run(LINK) == "open"
        assert (alice.problems, bob.problems) == ([], [])


async def test_an_operation_is_asked_once_more(browser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = (
        "[...document.querySelectorAll('.panel .tools button[data-what]')].map((each) => each.textContent)"
    )
    async with guarded(monkeypatch) as node, opened(browser) as alice, opened(browser) as bob:
        await log_in(alice, node, "alice", "Token")
        await log_in(bob, node, "bob", "Name and password")
        till = node.find(Till, "shop/till")
        for page, found in ((alice, ["Restart", "Stop", "Hold"]), (bob, [])):
            await page.run("location.hash = '#view=tree&agent=shop/till'")
            await page.until("document.querySelectorAll('.panel h3').length > 2")
            assert await page.run(labels) == found
        before = till.statistics().restarts
        await alice.click("[data-what=restart]")
        await alice.until("document.querySelector('dialog[open]') !== null")
        await alice.key("Escape")
        await alice.until("document.querySelector('dialog') === null")
        assert till.statistics().restarts == before
        await alice.click("[data-what=hold]")
        await alice.until("document.activeElement.textContent === 'Cancel'")
        await alice.click("dialog .main")
        await alice.until(f"{labels}.includes('Release')")
        assert await alice.run("document.querySelector('.panel .notice').textContent === 'Held.'")
        await bob.until("document.querySelector('.panel .facts').textContent.includes('held')")
        await alice.click("[data-what=release]")
        await alice.click("dialog .main")
        await alice.until(f"{labels}.includes('Hold')")
        await alice.click("[data-what=stop]")
        await alice.click("dialog .main")
        await alice.until(f"{labels}.includes('Start')")
        await alice.click("[data-what=start]")
        await alice.click("dialog .main")
        await alice.until(f"{labels}.includes('Stop')")
        await till.ready()
        await alice.click("#tab-audit")
        await alice.until("document.querySelector('#view').textContent.includes('alice')")
        assert (alice.problems, bob.problems) == ([], [])


async def test_an_approval_is_given_by_who_may(browser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        guarded(monkeypatch) as node,
        opened(browser) as alice,
        opened(browser) as bob,
        trio.open_nursery() as nursery,
    ):
        clerk, done = await node.start(Clerk), trio.Event()

        async def refund() -> None:
            assert await clerk.invoke(Clerk.refund, HOSTILE) == "done"
            done.set()

        nursery.start_soon(refund)
        await log_in(bob, node, "bob", "Name and password")
        await bob.click("#tab-approvals")
        await bob.until("document.querySelector('#view').textContent.includes('Nothing waits for you.')")
        await log_in(alice, node, "alice", "Token")
        await alice.click("#tab-approvals")
        await alice.until("document.querySelector('.card') !== null")
        assert HOSTILE in await alice.run("document.querySelector('.card h3').textContent")
        status = await bob.run(
            "fetch('agents/approvals/actions/approve', {method: 'POST', body: '{\"id\": \"x\"}',"
            " headers: {'Content-Type': 'application/json'}}).then((answer) => answer.status)"
        )
        assert status in (403, 404)
        await alice.click(".card .main")
        await alice.until("document.querySelector('dialog') !== null")
        assert HOSTILE in await alice.run("document.querySelector('dialog').textContent")
        await alice.key("Enter")  # the focus is on the button that does nothing
        await alice.until("document.querySelector('dialog') === null")
        assert not done.is_set()
        await alice.click(".card .main")
        await alice.until("document.querySelector('dialog') !== null")
        await alice.click("dialog .main")
        await done.wait()
        await alice.click("#tab-audit")
        await alice.until("/alice.*approve.*clerk/is.test(document.querySelector('#view').textContent)")
        assert alice.problems == []


async def test_ages_go_on_while_nothing_changes(page: Page) -> None:
    async with served(allow_operations=True) as node, trio.open_nursery() as nursery:
        clerk = await node.start(Clerk)
        nursery.start_soon(clerk.invoke, Clerk.refund, "x")
        await seen(page, node, "#view=tree&agent=clerk")
        age = "document.querySelector('.panel [data-begun]')"
        await page.until(f"{age} && {age}.textContent.startsWith('≥ ')")
        await page.run(f"window.first = {age}")
        await page.until("parseFloat(first.textContent.slice(2)) >= 2 && first.isConnected")
        # where it stands, as a traceback has it
        stack = "document.querySelector('.panel .folded details[open] pre')?.textContent"
        assert "in refund\n    await self.approve(" in await page.run(stack)
        nursery.cancel_scope.cancel()


async def test_an_approval_by_a_form_sends_its_answer(page: Page) -> None:
    form = {
        "type": "object",
        "properties": {"size": {"type": "string", "enum": ["small", "large"]}, "cups": {"type": "integer"}},
        "required": ["size", "cups"],
    }
    async with served(allow_operations=True) as node, trio.open_nursery() as nursery:
        slot: Any = slot_of(node.find(Till, "shop/till"))
        found: list[Any] = []

        async def ask() -> None:
            found.append(await slot.rt.approvals.ask_once(slot, "Which tea?", None, form, 60.0, None, None))

        nursery.start_soon(ask)
        await page.visit(url_of(node, "#view=approvals"))
        await page.until("document.querySelector('.card .field-row') !== null")
        await page.until("document.querySelector('#tab-approvals').textContent === 'Approvals (1)'")
        await page.click(".card .main")
        await page.until("document.querySelector('.card').textContent.includes('cups: a number is needed')")
        assert await page.run("document.querySelector('dialog') === null")
        await page.run("document.querySelector('.card select').value = '\"large\"'")
        await page.run("document.querySelector('.card .field-row input').value = '2'")
        await page.click(".card .main")
        await page.until("document.querySelector('dialog') !== null")
        assert '"large"' in await page.run("document.querySelector('dialog').textContent")
        await page.click("dialog .main")
        await page.until("document.querySelector('.card[data-state=approved]') !== null")
        await page.until("document.querySelector('#tab-approvals').textContent === 'Approvals'")
        nursery.cancel_scope.cancel()
        assert found[0].answer == {"size": "large", "cups": 2}


async def test_a_log_out_elsewhere_leaves_nothing_of_what_was_seen(
    browser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = "fetch('live/session', {method: 'DELETE'}).then((answer) => answer.status)"
    async with guarded(monkeypatch) as node, opened(browser) as page:
        await log_in(page, node, "alice", "Token")
        await page.until(LOADED)
        await page.run("window.seen = 1; sessionStorage.setItem('lmos-actors chat', '{}')")
        await page.run(end)
        await page.until("document.documentElement?.dataset.ready === 'login' && window.seen === undefined")
        assert "shop" not in await page.run("document.body.textContent")
        assert await page.run("sessionStorage.length") == 0


async def test_approvals_stand_in_their_order_after_each_decision(page: Page) -> None:
    async with served(allow_operations=True) as node, trio.open_nursery() as nursery:
        slot: Any = slot_of(node.find(Till, "shop/till"))
        for text in ("one", "two", "three"):
            nursery.start_soon(slot.rt.approvals.ask_once, slot, text, None, None, 60.0, None, None)
            await page.visit(url_of(node, "#view=approvals"))
            await page.until(f"document.querySelector('.card h3')?.textContent.startsWith('{text} ')")
        titles = "[...document.querySelectorAll('.card h3')].map((one) => one.textContent).join()"
        decisions = (
            ("one", "three waiting,two waiting,one refused"),
            ("three", "two waiting,three refused,one refused"),
        )
        for text, expected in decisions:
            await page.run(
                f"[...document.querySelectorAll('.card')].find((one) => one.textContent.includes('{text} '))"
                ".querySelectorAll('.tools button')[1].click()"
            )
            await page.click("dialog .main")
            await page.until(f"{titles} === '{expected}' && !document.querySelector('dialog')")
        nursery.cancel_scope.cancel()


async def test_who_may_not_look_is_told_so(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded(monkeypatch) as node:
        await log_in(page, node, "carol", "Token", expected="")
        await page.until("document.querySelector('.login').textContent.includes('carol may look at nothing')")
        assert await page.run(f"{ROWS}.length") == 0
        await page.click(".login button")
        await page.until("document.querySelector('#login-token') !== null")


async def test_a_wrong_log_in_and_a_flood_of_them(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded(monkeypatch) as node:
        await log_in(page, node, "mallory", "Token", expected="")
        await page.until("document.querySelector('[role=alert].bad').textContent === 'That is not accepted.'")
        assert await page.run("document.querySelector('#login-token').value") == ""
        for _ in range(10):
            await page.run(
                "fetch('live/session', {method: 'POST', headers: {'Content-Type': 'application/json'},"
                ' body: \'{"token": "x"}\'}).then((answer) => answer.status)'
            )
        await typed(page, "#login-token", "secret-of-alice")
        await page.key("Enter")
        await page.until(
            "document.querySelector('[role=alert].bad').textContent.startsWith('Too many attempts.')"
        )
        page.problems[:] = [each for each in page.problems if "status of 4" not in each]


# ---- attacks


class Hoard(Agent):
    """Keeps much."""

    token: Secret[str] = "nobody sees this"

    def __init__(self) -> None:
        self.kept = HOSTILE + "x" * 10_000_000
        self.ring: dict[str, Any] = {"text": TURNED}
        self.ring["ring"] = self.ring

    @action
    async def keep(self, text: str) -> None:
        await trio.sleep_forever()


class Turned(Agent):
    """An agent of a class with a name that turns text around."""

    @action
    def say(self) -> None:
        return None


Turned.__name__ = Turned.__qualname__ = TURNED


async def test_hostile_names_and_texts_are_text(page: Page) -> None:
    names = (HOSTILE, "__proto__", "constructor", TURNED, "a" * 200, "Ω≈ç√ 😀", "&lt;b&gt;")
    children = [ChildSpec(name, Turned) for name in names]
    async with open_node(SupervisorSpec("root", children), listen="ws://127.0.0.1:0") as node:
        await seen(page, node)
        assert await page.run(NAMES) == ["root", *map(printable, names)]
        assert await page.run(f"{ROWS}[1].querySelector('.c-class').textContent") == printable(TURNED)
        for name in names:
            await page.run(
                f"location.hash = new URLSearchParams({{view: 'tree', agent: {json.dumps(name)}}}).toString()"
            )
            shown = json.dumps(printable(name))
            await page.until(f"document.querySelector('.panel h2').textContent === {shown}")
        await page.run("location.hash = '#view=<script>window.bad=1</script>&agent=' + 'x/'.repeat(5000)")
        await page.until("document.querySelector('.panel h2').title.length === 10000")
        assert await page.run("window.bad === undefined && Object.keys(Object.prototype).length === 0")
        assert await page.run("document.querySelectorAll('#app script, #app img').length") == 0
        assert await page.run(f"{ROWS}.every((row) => row.offsetHeight < 40)")


async def test_a_text_is_spelt_out_as_on_a_terminal(page: Page) -> None:
    """The rule of `printable`, for every character and the joiners after two others."""
    code = files("lmos_actors.live").joinpath("page/base.js").read_text(encoding="utf-8")
    texts = [
        f"a{chr(number)}b"
        for number in (*range(0x3000), 0x3164, 0xFEFF, 0xFE0F, 0xFFA0, 0x1F600, 0xE0041, 0xE0100)
    ]
    texts = [
        each
        for each in (*texts, "\u0645\u200c\u0646", "n\u200c", "\u00e9\u200d", "\U0001f468\u200d\U0001f469")
        if is_old(each)
    ]
    async with open_node(SupervisorSpec("root", []), listen="ws://127.0.0.1:0") as node:
        await seen(page, node)
        family = "\U0001f468", "\u200d\U0001f469"
        pieces = [("\u0645", "\u200c\u0646"), ("n", "\u200c"), ("", "\u200c"), family]
        whole = f"{json.dumps(texts)}.map((text) => h('p', {{}}, text).textContent)"
        parts = f"{json.dumps(pieces)}.map(([before, text]) => legiblePiece(text, before))"
        shown, cut = await page.run(f"(() => {{ {code}; return [{whole}, {parts}]; }})()")
    assert shown == [printable(each, keep="\n\t") for each in texts]
    assert cut == [printable(text, before=before) for before, text in pieces]


def is_old(text: str) -> bool:
    """Return whether a browser knows each character, or knows that there is none, as Python does."""
    return all(unicodedata.ucd_3_2_0.category(each) != "Cn" for each in text)


async def test_large_values_and_secrets_of_an_agent(page: Page) -> None:
    tree = SupervisorSpec("root", [ChildSpec("hoard", Hoard, shutdown="brutal")])
    async with (
        open_node(tree, listen="ws://127.0.0.1:0", allow_operations=True) as node,
        trio.open_nursery() as nursery,
    ):
        for _ in range(3):
            nursery.start_soon(node.find(Hoard).invoke, Hoard.keep, HOSTILE + "y" * 4_000_000)
        await page.visit(url_of(node, "#view=tree&agent=hoard"))
        await page.until("document.querySelectorAll('.panel tbody tr').length > 0")
        text = await page.run("document.querySelector('.panel').textContent")
        assert HOSTILE in text
        assert "nobody sees this" not in text
        assert len(text) < 20_000
        assert await page.run("window.bad === undefined && !document.querySelector('#app script, #app img')")
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def elsewhere(html: str) -> AsyncGenerator[str]:
    """A site at another port: the same site, for cookies, and another origin."""
    body = html.encode()
    lines = (
        "HTTP/1.1 200 OK",
        "content-type: text/html",
        "connection: close",
        f"content-length: {len(body)}",
    )
    head = "\r\n".join((*lines, "", ""))

    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(head.encode() + body)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/"
        nursery.cancel_scope.cancel()


EVIL = """<!doctype html><title>evil</title><iframe src="NODE"></iframe><iframe name="into"></iframe>
<form method="post" target="into" action="NODElive/session" enctype="text/plain">
<input name='{"token":"secret-of-alice","a":"' value='"}'></form>
<script>
const found = {}, body = '{"token":"secret-of-alice"}', say = 'agents/shop.till/actions/say';
const socket = new WebSocket('WSlive', ['lmos-actors-live']);
socket.onopen = () => { found.socket = 'open'; };
socket.onclose = () => { found.socket = found.socket || 'refused'; };
document.forms[0].submit();
for (const [name, path, options] of [
  ['read', 'live/session', {}], ['log in', 'live/session', {method: 'POST', body}],
  ['log out', 'live/session', {method: 'DELETE'}], ['act', say, {method: 'POST', body: '"x"'}],
  ['blind', say, {method: 'POST', body: '"x"', mode: 'no-cors'}],
]) fetch('NODE' + path, {credentials: 'include', ...options}).then(
  (answer) => { found[name] = answer.type === 'opaque' ? 'sent' : answer.status; },
  () => { found[name] = 'refused'; });
</script>"""


async def test_another_site_frames_nothing_and_connects_to_nothing(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guarded(monkeypatch) as node:
        await log_in(page, node, "alice", "Token")
        url = url_of(node)
        html = EVIL.replace("NODE", url).replace("WS", url.replace("http", "ws"))
        async with elsewhere(html) as evil:
            await page.visit(evil, "form")
            await page.until("Object.keys(found).length === 6")
            found = await page.run("found")
            assert found == {
                "socket": "refused",
                "read": "refused",
                "log in": "refused",
                "log out": "refused",
                "act": "refused",
                "blind": "sent",
            }
            assert await page.run(
                "[...document.querySelectorAll('iframe')].every((each) => !each.contentDocument)"
            )
        assert node.find(Till, "shop/till").statistics().handled == 0
        await page.visit(url)  # and alice is logged in as before
        await page.until(LOADED)
        assert await page.run("document.querySelector('.who').textContent.startsWith('alice')")
        page.problems.clear()
        page.requests[:] = [each for each in page.requests if each.startswith(url)]
