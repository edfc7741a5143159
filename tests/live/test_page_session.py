"""A session of scrolling and searching in the page of a node with 100,000 agents, while they crash."""

from __future__ import annotations

import pytest

from tests.benchmarks.browsing import session, stormy
from tests.chromium import browser as browser, opened

pytestmark = [pytest.mark.browser, pytest.mark.slow]

EVENTS = 45
MOST_ROWS = 300
MOST_BYTES = 1 << 20
MOST_ELEMENTS = 2_000


async def test_what_a_browser_gets_is_bounded_whatever_happens(browser: str) -> None:
    async with stormy() as (node, group), opened(browser) as page:
        assert node.page_url is not None
        before = group.statistics().restarts
        noted = await session(page, node.page_url, 0, EVENTS)
        assert group.statistics().restarts > before + 100
        assert len(noted["messages"]) > 3
        assert max(noted["messages"]) < MOST_BYTES
        assert noted["rows"] <= MOST_ROWS
        assert noted["nodes"] < MOST_ELEMENTS
        # nothing is sent before the changes sent last have been taken
        assert len(noted["messages"]) - noted["taken"] in (0, 1)
        assert len(noted["delays"]) > EVENTS
        assert await page.run("document.documentElement.dataset.link") == "open"
        assert page.problems == []
