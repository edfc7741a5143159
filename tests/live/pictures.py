"""`python -m tests.live.pictures FOLDER [VIEW...]`: pictures of every view of the page, to be looked at.

They are of a node that has something in every view, in Chromium, at three widths, light and dark; beside them
those of the same views of a report's page, where it has such.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import trio

from lmos_actors.reports import html_page
from tests.chromium import Page, chromium, opened, running
from tests.live.lively import lively
from tests.reports.test_html_browser import VIEWS, story

SIZES: Final = ((390, 844), (1280, 800), (2560, 1300))
AGENTS: Final = ("weather", "shop/store-room", "sensors", "")
SETTLED: Final = 1.5
"""Seconds until what a view shows has come."""


async def take(page: Page, file: Path) -> None:
    """Write a picture of what a page shows."""
    await trio.sleep(SETTLED)
    await trio.Path(file).write_bytes(await page.picture())


async def of_node(page: Page, url: str, folder: Path, end: str, wanted: list[str]) -> None:
    """Write pictures of the views of a node."""
    await page.visit(url)
    views = await page.until("[...document.querySelectorAll('[role=tab]')].map((e) => e.id.slice(4))")
    for view in views:
        if not wanted or view in wanted:
            await page.run(f"document.getElementById({json.dumps(f'tab-{view}')}).click()")
            await take(page, folder / f"{view}-{end}.png")
    for path in AGENTS:
        if not wanted or "agent" in wanted:
            await page.run(f"location.hash = '#view=tree&agent={path}'")
            await page.until("document.querySelectorAll('.panel h3').length > 0")
            await take(page, folder / f"agent {path.replace('/', ' ')}-{end}.png")


async def of_report(page: Page, file: Path, folder: Path, end: str) -> None:
    """Write pictures of the views of a report."""
    for view in VIEWS:
        await page.open(file, f"#run=0&view={view}")
        await take(page, folder / f"report {view}-{end}.png")


async def write(folder: Path, report: Path, wanted: list[str]) -> None:
    """Write all pictures into a folder."""
    async with lively(300) as node:
        with running(chromium()) as browser:
            for width, height in SIZES:
                for dark in (False, True):
                    end = f"{width}-{'dark' if dark else 'light'}"
                    async with opened(browser) as page:
                        await page.window(width, height, dark=dark)
                        assert node.page_url is not None
                        await of_node(page, node.page_url, folder, end, wanted)
                        if not wanted or "report" in wanted:
                            await of_report(page, report, folder, end)


def main(folder: Path, wanted: list[str]) -> None:
    """Write the report, and all pictures, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report.html"
    report.write_text(html_page([story()], title="Story"), encoding="utf-8")
    trio.run(write, folder, report, wanted)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
