"""The page of a report card in a real browser: nothing fetched, nothing complained of, readable, filtered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lmos_actors.conformance import card_html
from tests.chromium import browser as browser, opened
from tests.conformance.cards import HOSTILE, everything

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chromium import Page

pytestmark = pytest.mark.browser

SHOWN = "[...document.querySelectorAll('.case')].filter((each) => each.offsetParent).map((each) => each.id)"
ALL = [each.id for each in everything().results]


@pytest.mark.slow
async def test_a_page_is_read_filtered_printed_and_runs_no_script_of_others(
    browser: str, tmp_path: Path
) -> None:
    file = tmp_path / "card.html"
    file.write_text(card_html(everything(HOSTILE)), encoding="utf-8")
    async with opened(browser) as page:
        await page.open(file)
        await filtered(page)
        await page.open(file, "#read.timestamp")
        await page.until("document.getElementById('read.timestamp').open")
        await page.window(400, 800, dark=True)
        assert await page.run("document.documentElement.scrollWidth <= 400")
        await page.call("Emulation.setEmulatedMedia", media="print")
        assert await page.run("document.getElementById('filters').offsetParent") is None
        assert page.problems == []
        assert page.requests == [file.as_uri()]
    async with opened(browser) as page:
        await page.call("Emulation.setScriptExecutionDisabled", value=True)
        await page.call("Page.navigate", url=file.as_uri())
        await page.until(f"document.readyState === 'complete' && {SHOWN}.length")
        assert await page.run(SHOWN) == ALL
        assert await page.run("document.getElementById('filters').offsetParent") is None
        await page.click("#read\\.timestamp summary")
        await page.until("document.getElementById('read.timestamp').open")


async def filtered(page: Page) -> None:
    """Filters by verdict and by words, and opens what is left."""
    assert await page.run(SHOWN) == ALL
    await page.click("[value=failed]")
    assert await page.run(SHOWN) == [each for each in ALL if each != "read.value"]
    await page.run(
        "(() => { const words = document.querySelector('[name=words]'); words.value = 'WRITE not';"
        " words.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    assert await page.run(SHOWN) == ["write.value", "write.all"]
    assert await page.run("document.getElementById('shown').textContent") == "2 of 5"
    await page.click("#open")
    assert await page.run("[...document.querySelectorAll('.case[open]')].map((each) => each.id)") == [
        "read.value",
        "write.value",
        "write.all",
    ]
    assert await page.run("document.title.includes('alert(1)')")
