"""A storm of crashes with three tabs of the page open: both go on, and what they keep does not grow."""

from __future__ import annotations

import resource
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import pytest
import trio

from tests.benchmarks.browsing import stormy
from tests.chromium import browser as browser, opened

if TYPE_CHECKING:
    from tests.chromium import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VIEWS = ("tree", "top", "crashes")
MOST_HEAP = 40 << 20
"""Bytes of a page after its garbage was collected; it has 3 to 6 MB."""

MOST_GROWN = 60 << 20
"""Bytes by which the node may grow once it has crashed for some seconds."""


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def heap(page: Page) -> int:
    await page.call("HeapProfiler.collectGarbage")
    metrics = (await page.call("Performance.getMetrics"))["metrics"]
    return int(next(each["value"] for each in metrics if each["name"] == "JSHeapUsedSize"))


@pytest.mark.timeout(200)
@pytest.mark.parametrize("seconds", [8.0, pytest.param(30.0, marks=pytest.mark.matrix)])
async def test_pages_and_node_last_through_a_storm(browser: str, seconds: float) -> None:
    async with stormy(agents=20_000) as (node, group), AsyncExitStack() as stack:
        pages = [await stack.enter_async_context(opened(browser)) for _ in VIEWS]
        for page, view in zip(pages, VIEWS, strict=True):
            await page.call("Performance.enable")
            await page.visit(f"{node.page_url}#view={view}")
            await page.until("document.documentElement.dataset.ready === 'yes'")
            await page.run(
                "window.pressed = 0; addEventListener('keydown', () => { window.pressed += 1; }, true)"
            )
        began, before, sizes, presses = perf_counter(), group.statistics().restarts, list[int](), 0
        while (took := perf_counter() - began) < seconds:
            presses += 1
            for page in pages:
                await page.key("Shift")
                assert await page.run("window.pressed") == presses
            if took > seconds / 4:
                sizes.append(resident())
            await trio.sleep(0.2)
        rate = (group.statistics().restarts - before) / took
        heaps = [await heap(page) for page in pages]
        print(f"{rate:.0f} restarts/s, {presses} presses, heaps {heaps}, node {sizes[0]} to {sizes[-1]}")
        assert rate > 100
        assert max(heaps) < MOST_HEAP
        assert max(sizes) - sizes[0] < MOST_GROWN
        for page in pages:
            assert await page.run("document.documentElement.dataset.link") == "open"
            assert page.problems == []
