"""The page of watched runs in a real browser: clock and pace, network, series, verdicts, at all sizes."""

from __future__ import annotations

import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from tests.chromium import Page, browser as browser, of_one_server, violations
from tests.live.test_page_browser import CONTRAST, SIZES
from tests.matrix import some

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
ELECTION = ("sim", "scenarios/election.yaml", "--check-determinism", "off")
BEGUN = 60.0
"""Seconds that a process may take to start on a busy machine."""

OPEN = (0, 130)
"""Codes of a command that is ended while a run goes on, or after it."""

STATE = "document.documentElement.dataset.run"
TIME = "Number(document.querySelector('.progress').getAttribute('aria-valuenow'))"
CLOCK = "document.querySelector('.clock').textContent"
SPEED = "document.querySelector('.paces .speed').textContent"
SAID = "document.querySelector('[role=status].unseen').textContent"
RUNS = "[...document.querySelectorAll('.runline')].map((each) => each.querySelector('.heard').textContent)"
CAPTION = "document.querySelector('.caption').textContent"
CHECKS = "[...document.querySelectorAll('.runside .ticks')][0]"
CUT = "document.querySelectorAll('.pair.cut').length"
VISIBLE = (
    "[...document.querySelectorAll('.paces button')]"
    ".filter((each) => each.checkVisibility()).map((each) => each.textContent)"
)


@pytest.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    async with of_one_server(browser) as tab:
        yield tab


@asynccontextmanager
async def watched(*arguments: str, codes: tuple[int, ...] = (0,)) -> AsyncGenerator[str]:
    """A command that watches runs, by the address of its page; it ends with one of `codes` after Ctrl-C."""
    command = [sys.executable, "-m", "lmos_actors", *arguments, "--watch"]
    process = await trio.lowlevel.open_process(command, cwd=ROOT, stdout=-1, stderr=-2)
    assert process.stdout is not None
    said = b""
    try:
        with trio.fail_after(BEGUN):
            while b"watch at http://" not in said or not said.partition(b"watch at ")[2].count(b"\n"):
                some = await process.stdout.receive_some()
                assert some, said.decode()
                said += some
        yield said.partition(b"watch at ")[2].split()[0].decode()
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            with trio.move_on_after(BEGUN):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode in codes


async def begun(page: Page, url: str, fragment: str = "") -> None:
    await page.visit(url + fragment, "html[data-ready=yes]")
    await page.until(f"{STATE} === 'running' && {TIME} > 0", BEGUN)


async def test_a_run_from_its_begin_to_its_verdict(page: Page) -> None:
    async with watched(*ELECTION, "--seed", "1", "--speed", "2") as url:
        await begun(page, url)
        early = await page.run(TIME)
        await page.until(f"{TIME} > {early} + 1")  # it goes by itself
        assert await page.run("document.querySelectorAll('.node').length") == 5
        await page.until("document.querySelectorAll('.token').length > 0")
        await page.run("document.activeElement.blur()")

        await page.key(" ")
        await page.until(f"{STATE} === 'paused'")
        await page.until(f"{SAID}.startsWith('Paused at')")
        assert "paused" in await page.run("document.querySelector('.player .verdict').textContent")
        held = await page.run(TIME)
        for _ in range(3):
            before = await page.run(CLOCK)
            await page.key(".")
            await page.until(f"{CLOCK} !== '{before}'")
        # three steps are three records' instants: without the pause it would be seconds
        assert await page.run(TIME) < held + 0.5

        await page.key("+")
        await page.until(f"{SPEED} === '5\\u00d7'")
        await page.click("[data-what=slower]")
        await page.until(f"{SPEED} === '2\\u00d7'")
        await page.key("-")
        await page.until(f"{SPEED} === '1\\u00d7'")
        # what comes is held while it is there: the page presses its own button
        await page.run(
            f"window.cut = setInterval(() => {{ if ({CUT} === 6 && {STATE} === 'running')"
            " document.querySelector('[data-what=turn]').click(); }, 50)"
        )
        await page.click("[data-what=turn]")
        await page.until(f"{CUT} === 6 && {STATE} === 'paused'", BEGUN)  # two candidates from three
        await page.run("clearInterval(window.cut)")
        assert "12 links cut" in await page.run(CAPTION)
        assert (
            await page.run("document.querySelectorAll('.cutsign').length") == 6
        )  # a shape, not a colour alone
        assert "cut" in await page.run("document.querySelector('.node').getAttribute('aria-label')")
        await page.run("document.querySelector('.aslist').open = true")
        await page.until(
            "[...document.querySelectorAll('.links.whole tr')]"
            ".filter((row) => row.textContent.includes('cut')).length === 12"
        )
        listed = "!!document.querySelector('.faultlist .active')?.textContent.includes('partition')"
        while not await page.run(listed):  # it was held after the cut, and before the record of its fault
            before = await page.run(CLOCK)
            await page.key(".")
            await page.until(f"{CLOCK} !== '{before}'")
        await page.click("[data-what=turn]")
        for _ in range(3):
            await page.click("[data-what=faster]")
        await page.until(f"{CUT} === 0", BEGUN)

        await page.until(f"{STATE} === 'passed'", BEGUN)
        await page.until(f"JSON.stringify({RUNS}) === '[\"passed\"]'")
        await page.until("document.querySelector('.verdict .badge').textContent.includes('passed')")
        await page.until(f"{SAID}.startsWith('The run has passed')")
        assert await page.run(f"{CHECKS}.querySelectorAll('li.ok').length") == 10
        assert await page.run(VISIBLE) == []
        await page.click("#tab-run")
        await page.until("document.querySelectorAll('.story tbody tr').length >= 14")
        assert "elected" in await page.run("document.querySelector('.story').textContent")


async def test_series_grow(page: Page) -> None:
    async with watched(*ELECTION, "--seed", "1", "--speed", "2", codes=OPEN) as url:
        await begun(page, url, "#view=series")
        path = "document.querySelector('.chart path.series')"
        await page.until(f"{path} !== null")
        assert await page.run("document.querySelectorAll('.seriesview figure').length") == 4
        short = await page.run(f"{path}.getTotalLength()")
        await page.until(f"{path}.getTotalLength() > {short} + 10")
        await page.until("document.querySelector('.chart .faultband') !== null")
        await page.run("document.querySelector('.plot').focus()")
        await page.key("ArrowRight")
        await page.until("document.querySelector('.reading').textContent.includes('s: ')")


async def test_a_run_that_fails_says_why_and_others_are_chosen(page: Page) -> None:
    async with watched(*ELECTION, "--seeds", "1,2", "--set", "calm=1", "--speed", "max", codes=(1,)) as url:
        await page.visit(url, "html[data-ready=yes]")
        await page.until(f'JSON.stringify({RUNS}) === \'["failed","failed"]\'', BEGUN)
        assert "noisy" in await page.run("document.querySelector('.player .why').textContent")
        assert "seed=2" in await page.run("document.querySelector('h1').textContent")
        await page.click(".runline")
        await page.until(
            "document.querySelector('h1').textContent.includes('seed=1') && location.hash.includes('run=1')"
        )
        await page.until("document.querySelector('.runline').getAttribute('aria-current') === 'true'")
        await page.until(f"{CAPTION}.includes('5 nodes')")
        await page.click("#tab-run")
        await page.until("document.querySelector('.story .failure') !== null")
        assert "run=1" in await page.run("location.hash")
        for view in ("flow", "tree", "top", "crashes"):
            await page.click(f"#tab-{view}")
            await page.until("!/Asking…|^$/.test(document.querySelector('#view').textContent)")
        await page.until("document.querySelectorAll('.listview .crash').length > 0")
        when = await page.run("document.querySelector('.crash .when').textContent")
        assert when in ("5 s", "6 s")  # of the run, not of a day


async def test_a_run_in_real_time_is_not_paused(page: Page) -> None:
    async with watched("run", "scenarios/tea.yaml", "--set", "world=websocket") as url:
        await page.visit(url, "html[data-ready=yes]")
        await page.until(f"{STATE} === 'running' || {STATE} === 'passed'", BEGUN)
        await page.until(
            f"{STATE} === 'passed' || document.querySelector('.why').textContent.includes('real time')"
        )
        assert await page.run(VISIBLE) == []
        await page.until(f"{STATE} === 'passed'", BEGUN)


async def test_nothing_moves_where_that_is_asked_for(page: Page) -> None:
    async with watched(*ELECTION, "--seed", "1", codes=OPEN) as url:
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        await page.call("Emulation.setEmulatedMedia", features=[still])
        await begun(page, url)
        await page.until("/under way/.test(document.querySelector('.network').textContent)", BEGUN)
        assert await page.run("document.querySelectorAll('.token').length") == 0


async def test_nodes_are_reached_by_keys(page: Page) -> None:
    async with watched(*ELECTION, "--seed", "1", codes=OPEN) as url:
        await begun(page, url)
        await page.until("document.querySelector('.node[tabindex=\"0\"]') !== null")
        await page.run("document.querySelector('.node[tabindex=\"0\"]').focus()")
        for key, name in (("ArrowRight", "candidate/1"), ("ArrowLeft", "candidate/0")):
            await page.key(key)
            await page.until(f"document.activeElement.dataset.name === '{name}'")
        await page.key("Enter")
        await page.until("!document.querySelector('.picked').hidden")
        assert "candidate/0" in await page.run("document.querySelector('.picked').textContent")
        assert await page.run("document.activeElement.getAttribute('aria-pressed')") == "true"
        await page.key("Escape")
        await page.until("document.querySelector('.picked').hidden")


VIEWS = ("network", "series", "run", "flow", "tree")


async def shown(page: Page, view: str) -> None:
    await page.run(f"location.hash = '#view={view}'")
    await page.until(f"document.querySelector('#tab-{view}').getAttribute('aria-selected') === 'true'")
    await page.until("!/Asking…|^$/.test(document.querySelector('#view').textContent)")


@pytest.mark.parametrize(("width", "dark"), some(SIZES, of=2))
async def test_it_fits_at_every_width(page: Page, width: int, dark: bool) -> None:
    async with watched("sim", "scenarios/two-centres.yaml", "--seed", "1", "--speed", "5", codes=OPEN) as url:
        await page.window(width, 800, dark=dark)
        await begun(page, url)
        await page.until(f"{TIME} > 5", BEGUN)
        for view in VIEWS:
            await shown(page, view)
            assert await page.run("document.documentElement.scrollWidth") == width
            assert await page.run("document.documentElement.scrollHeight") == 800
            assert await page.run(CONTRAST) == []


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
async def test_axe_has_nothing_to_object_to(page: Page, width: int, dark: bool) -> None:
    found: list[str] = []
    async with watched(*ELECTION, "--seeds", "1,2", "--speed", "5") as url:
        await page.window(width, 800, dark=dark)
        await page.visit(url, "html[data-ready=yes]")
        await page.until("document.querySelectorAll('.node').length === 5", BEGUN)
        await page.run(
            "document.querySelector('.node').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        )
        await page.until("!document.querySelector('.picked').hidden")
        await page.run("document.querySelector('.aslist').open = true")
        found += [f"picked: {each}" for each in await violations(page)]
        await page.until(f'JSON.stringify({RUNS}) === \'["passed","passed"]\'', BEGUN)
        for view in VIEWS:
            await shown(page, view)
            found += [f"{view}: {each}" for each in await violations(page)]
    assert not found, "\n".join(found)
